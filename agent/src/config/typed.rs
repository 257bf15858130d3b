//! Third stage: typed settings. What is wrong is reported and replaced by its default.

use std::collections::BTreeSet;
use std::time::Duration;

use outrider_protocol::{BalancerMode, BalancerService, Check, Profile, Thresholds, TopologyMode};

use super::Problem;
use super::reader::{Section, address, checksum, closest, one_of, path, socket_address, url};
use super::settings::*;
use super::written::Table;
use crate::net::Url;

/// Checks of later versions: known words, so that a configuration written ahead of an upgrade is no error.
const LATER_CHECKS: [&str; 1] = ["eks-anywhere"];

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Types the merged tree.
pub(super) fn settings(table: &Table, problems: &mut Vec<Problem>, notes: &mut Vec<Problem>) -> Settings {
    let mut settings = Settings::default();
    let mut root = Section::root(table);
    node(&mut root, &mut settings.node);
    coordinator(&mut root, &mut settings.coordinator);
    checks(&mut root, &mut settings, notes);
    etcd(&mut root, &mut settings.etcd);
    credentials(&mut root, &mut settings.credentials);
    (settings.load_balancers, settings.load_balancers_refused) = load_balancers(&mut root);
    // A fleet of agents that all try every backend would be a load of its own, and they see no more than the servers do.
    let is_agent = matches!(settings.node.profile, Profile::RancherHaAgent | Profile::K3sAgent);
    settings.load_balancers.iter_mut().for_each(|balancer| balancer.try_backends = !is_agent);
    topology(&mut root, &mut settings.topology);
    guest_agent(&mut root, &settings.node.profile, &mut settings.guest_agent);
    report(&mut root, &mut settings.report);
    problems.extend(root.finish());
    settings
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

fn node(root: &mut Section, node: &mut NodeSettings) {
    let mut section = root.section("node");
    node.name = section.text("name", node_name);
    set(
        &mut node.cluster,
        section.text("cluster", |s| if s.is_empty() { Ok(String::new()) } else { node_name(s) }),
    );
    let words: Vec<&str> = Profile::ALL.iter().map(Profile::as_str).collect();
    set(&mut node.profile, section.text("profile", |s| one_of(&words, s).map(|w| Profile::from(w.as_str()))));
    root.absorb(section);
}

/// Names travel in URLs, file names and certificates.
fn node_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if text.is_empty() || text.len() > 253 || !text.chars().all(fits) {
        return Err(format!("is {text:?}; expected 1 to 253 letters, digits, '-', '.' or '_'"));
    }
    Ok(text.to_owned())
}

fn coordinator(root: &mut Section, coordinator: &mut CoordinatorSettings) {
    let mut section = root.section("coordinator");
    set(&mut coordinator.urls, section.texts("urls", |s| url(s, &["https"]).map(|url| url.to_string())));
    coordinator.ca_checksum = section.text("ca_checksum", checksum);
    coordinator.token_file = section.text("token_file", path);
    root.absorb(section);
}

fn checks(root: &mut Section, settings: &mut Settings, notes: &mut Vec<Problem>) {
    let mut section = root.section("checks");
    let known: Vec<&str> = Check::ALL.iter().filter(|c| **c != Check::Agent).map(Check::as_str).collect();
    for name in section.names() {
        if known.contains(&name) {
            let mut check = section.section(name);
            one_check(&mut check, &Check::from(name), settings);
            section.absorb(check);
        } else if LATER_CHECKS.contains(&name) {
            let mut check = section.section(name);
            check.boolean("enabled");
            check.duration("interval", SECOND, DAY);
            check.duration("timeout", Duration::from_millis(100), Duration::from_secs(600));
            section.absorb(check);
            note(notes, &section, name, &format!("checks.{name}"), "this version has no such check");
        } else {
            let all: Vec<&str> = known.iter().chain(&LATER_CHECKS).copied().collect();
            section.section(name);
            let meant = match closest(name, &all) {
                Some(near) => format!("no such check; did you mean `{near}`?"),
                None => format!("no such check; checks are {}", known.join(", ")),
            };
            section.problem(name, meant);
        }
    }
    root.absorb(section);
}

fn note(notes: &mut Vec<Problem>, section: &Section, key: &str, path: &str, message: &str) {
    notes.extend(section.place(key).map(|place| place.problem(path, message)));
}

fn one_check(section: &mut Section, check: &Check, settings: &mut Settings) {
    let mut values = CheckSettings::default_of(check);
    set(&mut values.enabled, section.boolean("enabled"));
    set(&mut values.interval, section.duration("interval", SECOND, DAY));
    let timeout = section.duration("timeout", Duration::from_millis(100), Duration::from_secs(600));
    set(&mut values.timeout, timeout);
    settings.checks.insert(check.clone(), values);
    let thresholds = &mut settings.thresholds;
    match check {
        Check::Host => host_thresholds(section, thresholds),
        Check::Clock => {
            let (warn, error) = (
                section.duration("offset_warn", Duration::ZERO, DAY),
                section.duration("offset_error", Duration::ZERO, DAY),
            );
            let ms = |d: Duration| d.as_millis() as i64;
            let warn = warn.map_or(thresholds.clock_warn_ms, ms);
            let error = error.map_or(thresholds.clock_error_ms, ms);
            if warn > error {
                section.problem("offset_warn", "is above offset_error; it must warn before it is an error");
            } else {
                (thresholds.clock_warn_ms, thresholds.clock_error_ms) = (warn, error);
            }
        }
        Check::CloudInit => {
            set(&mut settings.cloud_init_settled_interval, section.duration("settled_interval", SECOND, DAY));
        }
        Check::GuestAgent => {
            let grace = section.duration("grace", Duration::ZERO, DAY);
            set(&mut thresholds.guest_agent_grace_seconds, grace.map(|d| d.as_secs()));
        }
        Check::Etcd => {
            set(
                &mut settings.etcd_poll,
                section.duration("poll", Duration::from_millis(200), Duration::from_secs(3600)),
            );
            etcd_thresholds(section, thresholds);
        }
        Check::Certificates => {
            let days = section.three("days", "days that inform, warn and are an error, such as [120, 30, 7]");
            if days.is_some_and(|[info, warn, error]| info < warn || warn < error || error < 0) {
                section.problem("days", "expected falling numbers, such as [120, 30, 7]");
            } else {
                set(&mut thresholds.certificate_days, days);
            }
        }
        Check::Credentials => {
            let days = section.two("days", "days that warn and are an error, such as [14, 7]");
            if days.is_some_and(|[warn, error]| warn < error || error < 0) {
                section.problem("days", "expected falling numbers, such as [14, 7]");
            } else {
                set(&mut thresholds.credential_days, days);
            }
        }
        Check::Kubernetes => {
            set(&mut settings.neighbour_interval, section.duration("neighbour_interval", SECOND, DAY));
        }
        Check::LoadBalancer => {
            let probes = section.integer("probes_per_minute", 1, 600).and_then(|n| u32::try_from(n).ok());
            set(&mut settings.probes_per_minute, probes);
        }
        Check::Dns => {
            set(&mut settings.dns.names, section.texts("names", dns_name));
            set(&mut settings.dns.servers, section.texts("servers", |s| address(s, 53)));
        }
        _ => {}
    }
}

/// A name as it may stand in a URL.
fn dns_name(text: &str) -> Result<String, String> {
    let wrong = || {
        format!("is {text:?}; expected a host name such as \"registry.example\", in punycode beyond ASCII")
    };
    let name = Url::parse(&format!("https://{text}")).map_err(|_| wrong())?;
    let is_name =
        name.port == 443 && name.path == "/" && name.ip().is_none() && !text.contains([':', '/', '?', '#']);
    is_name.then_some(name.host).ok_or_else(wrong)
}

fn host_thresholds(section: &mut Section, t: &mut Thresholds) {
    for (warn, error, what) in [
        (&mut t.disk_warn_percent, &mut t.disk_error_percent, "disk"),
        (&mut t.memory_warn_percent, &mut t.memory_error_percent, "memory"),
    ] {
        let keys = (format!("{what}_warn_percent"), format!("{what}_error_percent"));
        let w = section.percent(&keys.0).unwrap_or(*warn);
        let e = section.percent(&keys.1).unwrap_or(*error);
        if w < e {
            let message =
                format!("is {w}, below {} ({e}): what is free falls through the warning first", keys.1);
            section.problem(&keys.0, message);
        } else {
            (*warn, *error) = (w, e);
        }
    }
}

fn etcd_thresholds(section: &mut Section, t: &mut Thresholds) {
    set(&mut t.etcd_space_warn_percent, section.percent("space_warn_percent"));
    let minute = Duration::from_secs(60);
    let ms = |d: Duration| d.as_millis() as f64;
    let warn = section.duration("fsync_warn", Duration::ZERO, minute).map_or(t.etcd_fsync_warn_ms, ms);
    let error = section.duration("fsync_error", Duration::ZERO, minute).map_or(t.etcd_fsync_error_ms, ms);
    if warn > error {
        section.problem("fsync_warn", "is above fsync_error; it must warn before it is an error");
    } else {
        (t.etcd_fsync_warn_ms, t.etcd_fsync_error_ms) = (warn, error);
    }
    let stalled = section.duration("learner_stalled", SECOND, DAY);
    set(&mut t.etcd_learner_stalled_seconds, stalled.map(|d| d.as_secs()));
}

fn etcd(root: &mut Section, etcd: &mut EtcdSettings) {
    let mut section = root.section("etcd");
    let endpoint = |s: &str| {
        let written = url(s, &["https", "http"])?;
        // Left out, the port is etcd's, not the scheme's.
        let has_port = s.trim_end_matches('/').rsplit(':').next().is_some_and(|t| t.parse::<u16>().is_ok());
        let port = if has_port { written.port } else { 2379 };
        Ok(format!(
            "{}://{}",
            if written.tls { "https" } else { "http" },
            Url { port, ..written }.host_and_port()
        ))
    };
    let before = section.problems();
    set(&mut etcd.endpoints, section.texts("endpoints", endpoint));
    etcd.endpoints_refused = section.problems() > before;
    etcd.ca = section.text("ca", path);
    etcd.cert = section.text("cert", path);
    etcd.key = section.text("key", path);
    etcd.election_timeout =
        section.duration("election_timeout", Duration::from_millis(10), Duration::from_secs(600));
    match (&etcd.cert, &etcd.key) {
        (Some(_), None) => section.problem("cert", "has no key beside it; write etcd.key too"),
        (None, Some(_)) => section.problem("key", "has no certificate beside it; write etcd.cert too"),
        _ => {}
    }
    root.absorb(section);
}

fn credentials(root: &mut Section, credentials: &mut CredentialSettings) {
    let mut section = root.section("credentials");
    set(&mut credentials.kubeconfigs, section.texts("kubeconfigs", path));
    set(&mut credentials.verify, section.boolean("verify"));
    credentials.rancher_kubeconfig = section.text("rancher_kubeconfig", path);
    root.absorb(section);
}

/// Those that can be used, and how many cannot.
fn load_balancers(root: &mut Section) -> (Vec<LoadBalancerSettings>, usize) {
    let mut names = BTreeSet::new();
    let mut balancers = Vec::new();
    let mut written = 0;
    for mut section in root.sections("load_balancer") {
        written += 1;
        if let Some(balancer) = load_balancer(&mut section) {
            if names.insert(balancer.name.clone()) {
                balancers.push(balancer);
            } else {
                section.problem("name", format!("{:?} is the name of another balancer too", balancer.name));
            }
        }
        root.absorb(section);
    }
    let refused = written - balancers.len();
    (balancers, refused)
}

/// One entry; `None` when its URL is missing or bad: half a balancer cannot be judged.
fn load_balancer(section: &mut Section) -> Option<LoadBalancerSettings> {
    let written_url = section.place("url").is_some();
    let url = section.text("url", |s| url(s, &["https"]));
    let name = section.text("name", |s| match s.chars().count() {
        1..=253 => Ok(s.to_owned()),
        n => Err(format!("has {n} characters; expected 1 to 253")),
    });
    let port = |section: &mut Section, key: &str, default: u16, least: i64| {
        section.integer(key, least, 65_535).and_then(|i| u16::try_from(i).ok()).unwrap_or(default)
    };
    let services = ["rancher", "kubernetes", "supervisor"];
    let service =
        section.text("service", |s| one_of(&services, s).map(|w| BalancerService::from(w.as_str())));
    let service = service.unwrap_or_else(|| match url.as_ref().map(|url| url.port) {
        Some(6443) => BalancerService::Kubernetes,
        Some(9345) => BalancerService::Supervisor,
        _ => BalancerService::Rancher,
    });
    let is_rancher = service == BalancerService::Rancher;
    let http_port = port(section, "http_port", if is_rancher { 80 } else { 0 }, 0);
    let backend_http_port = port(section, "backend_http_port", 80, 1);
    let modes = ["auto", "l4", "l7"];
    let mode = section
        .text("mode", |s| one_of(&modes, s).map(|w| BalancerMode::from(w.as_str())))
        .unwrap_or(BalancerMode::from("auto"));
    // TLS of a cluster's own ports ends at its servers: a balancer that ended it would shut every client out.
    let mode = if is_rancher { mode } else { BalancerMode::L4 };
    let backend_port = match url.as_ref() {
        Some(url) if !is_rancher => url.port,
        _ if mode == BalancerMode::L7 => backend_http_port,
        _ => 443,
    };
    let backends = section.texts("backends", |s| address(s, backend_port)).unwrap_or_default();
    let tls_modes = ["strict", "system-store"];
    let balancer = LoadBalancerSettings {
        name: String::new(),
        url: String::new(),
        host: String::new(),
        port: 0,
        http_port,
        service,
        mode,
        backends,
        backend_http_port,
        ca: section.text("ca", path),
        ca_checksum: section.text("ca_checksum", checksum),
        agent_tls_mode: section.text("agent_tls_mode", |s| one_of(&tls_modes, s)),
        tries: section.integer("tries", 1, 20).and_then(|i| u32::try_from(i).ok()).unwrap_or(3),
        resolve: section.addresses_by_name("resolve"),
        try_backends: true,
        idle_test: section.duration("idle_test", 10 * SECOND, 2 * 3600 * SECOND),
        idle_test_token_file: section.text("idle_test_token_file", path),
    };
    let Some(url) = url else {
        if !written_url {
            section.problem("url", "is missing; write url = \"https://rancher.example\"");
        }
        return None;
    };
    let (host, port) = (url.host.clone(), url.port);
    let name = name.unwrap_or_else(|| host.clone());
    Some(LoadBalancerSettings { name, url: url.to_string(), host, port, ..balancer })
}

fn topology(root: &mut Section, topology: &mut TopologySettings) {
    let mut section = root.section("topology");
    let modes: Vec<&str> = TopologyMode::ALL.iter().map(TopologyMode::as_str).collect();
    set(
        &mut topology.mode,
        section.text("mode", |s| one_of(&modes, s).map(|w| TopologyMode::from(w.as_str()))),
    );
    set(&mut topology.take_over, section.texts("take_over", |s| Ok(s.to_owned())));
    topology.kubeconfig = section.text("kubeconfig", path);
    topology.harvester_kubeconfig = section.text("harvester_kubeconfig", path);
    set(&mut topology.strict, section.boolean("strict"));
    topology.values.region = section.text("region", label_value);
    topology.values.zone = section.text("zone", label_value);
    root.absorb(section);
}

/// A region or a zone, as Kubernetes takes it.
fn label_value(text: &str) -> Result<String, String> {
    match outrider_sync::topology::refused(text) {
        Some(why) => Err(format!("{text:?} can be no label: {why}")),
        None => Ok(text.to_owned()),
    }
}

fn guest_agent(root: &mut Section, profile: &Profile, guest_agent: &mut GuestAgentSettings) {
    let mut section = root.section("guest_agent");
    // Whoever calls a machine a VM of Harvester wants it to have what Harvester needs.
    guest_agent.manage = section.boolean("manage").unwrap_or(*profile == Profile::HarvesterVm);
    guest_agent.package_file = section.text("package_file", path);
    root.absorb(section);
}

fn report(root: &mut Section, report: &mut ReportSettings) {
    let mut section = root.section("report");
    set(&mut report.heartbeat, section.duration("heartbeat", SECOND, Duration::from_secs(3600)));
    report.metrics_listen = section.text("metrics_listen", socket_address);
    report.textfile = section.text("textfile", path);
    root.absorb(section);
}
