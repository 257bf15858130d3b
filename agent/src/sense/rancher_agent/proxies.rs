//! Whose environment names which proxy, and what is reached around it under both readings of `NO_PROXY`.

use std::net::IpAddr;
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use outrider_protocol::{
    DirectKind, Fact, ProxyEnvironment, ProxyReading, ProxySource, ProxyVariable, RestartCount, ServiceUnit,
};

use super::environment::{self, Assignment, HIDDEN};
use crate::config::Settings;
use crate::net::Url;
use crate::net::proxy::{NoProxy, Proxy, plainly_direct};
use crate::sense::cluster::Cluster;
use crate::sense::systemd::{self, Properties};
use crate::sense::{SenseContext, file};

/// Most environment files of a unit.
const MAX_FILES: usize = 8;
/// Most addresses of this node that are looked at.
const MAX_ADDRESSES: usize = 8;

/// What one look leaves for the next, and what this process was started with.
#[derive(Debug, Default)]
pub struct Memory {
    own: Vec<Assignment>,
    pub(super) restarts: Vec<RestartCount>,
    /// What systemd said of units.
    pub(super) units: systemd::Memory,
}

impl Memory {
    /// With the environment of this process. Call it once, at the start of the program.
    pub fn of_this_process() -> Self {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some(format!("{}={}", name.into_string().ok()?, value.into_string().ok()?))
        });
        let variables: Vec<String> = variables.collect();
        let own = environment::kept(variables.iter().map(String::as_str));
        Self { own, ..Self::default() }
    }
}

/// One program's environment.
pub(super) struct Environment {
    program: String,
    source: ProxySource,
    variables: Fact<Vec<(Assignment, String)>>,
    newer_files: Vec<String>,
    ignored: Vec<String>,
}

/// Our own, and that of each unit that is here.
pub(super) fn environments(
    cx: &SenseContext,
    services: &[(ServiceUnit, &Properties)],
    memory: &Memory,
) -> Vec<Environment> {
    let own = memory.own.iter().map(|a| (a.clone(), "its own environment".to_owned())).collect();
    let mut all = vec![Environment {
        program: "outrider".to_owned(),
        source: ProxySource::Process,
        variables: Fact::known(own, "environment", cx.now()),
        newer_files: Vec::new(),
        ignored: Vec::new(),
    }];
    all.extend(services.iter().map(|(unit, properties)| of_unit(cx, unit, properties)));
    all
}

fn of_unit(cx: &SenseContext, unit: &ServiceUnit, properties: &Properties) -> Environment {
    let program = unit.name.trim_end_matches(".service").to_owned();
    let mut found = Environment {
        program,
        source: ProxySource::Unit,
        variables: Fact::known(Vec::new(), unit.name.clone(), cx.now()),
        newer_files: Vec::new(),
        ignored: Vec::new(),
    };
    let mut variables: Vec<(Assignment, String)> = Vec::new();
    // A later assignment takes the place of an earlier one, and a file that of the unit.
    let mut put = |assignment: Assignment, source: &str| {
        variables.retain(|(earlier, _)| earlier.name != assignment.name);
        variables.push((assignment, source.to_owned()));
    };
    if let Some(text) = properties.get("Environment") {
        environment::of_property(text).into_iter().for_each(|a| put(a, &unit.name));
    }
    let mut unread = None;
    let files = properties.get("EnvironmentFiles").map(String::as_str).unwrap_or_default();
    for line in files.lines().take(MAX_FILES) {
        let path = line.rsplit_once(" (").map_or(line, |(path, _)| path).trim();
        if !path.starts_with('/') || path.contains('*') {
            continue;
        }
        match read(cx, path) {
            Ok(text) => {
                for assignment in environment::parse(&text) {
                    if assignment.exported {
                        let what = format!("{path} line {}: export {}=…", assignment.line, assignment.name);
                        found.ignored.push(what);
                    } else {
                        put(assignment, path);
                    }
                }
                found.newer_files.extend(newer(cx, unit, path));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => {
                unread.get_or_insert((e, path.to_owned()));
            }
        }
    }
    found.variables = match unread {
        Some((e, path)) => Fact::from_io(&e, path, cx.now()),
        None => Fact::known(variables, unit.name.clone(), cx.now()),
    };
    // What the process really has beats what it would be given.
    if unit.pid > 0
        && let Ok(text) = read_process(cx, unit.pid)
    {
        let kept = environment::kept(text.split('\0'));
        let source = format!("process {}", unit.pid);
        let kept = kept.into_iter().map(|a| (a, source.clone())).collect();
        (found.source, found.variables) = (ProxySource::Process, Fact::known(kept, source, cx.now()));
    }
    found
}

fn read(cx: &SenseContext, path: &str) -> std::io::Result<String> {
    file::text(file::read_bounded(cx.opener.open(Path::new(path))?, file::SMALL)?)
}

fn read_process(cx: &SenseContext, pid: i32) -> std::io::Result<String> {
    let bytes =
        file::read_bounded(file::open_regular(&cx.path(format!("/proc/{pid}/environ")))?, file::LARGE)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `path`, when it was written after the running process had started.
fn newer(cx: &SenseContext, unit: &ServiceUnit, path: &str) -> Option<String> {
    let started = unit.started_seconds_ago.filter(|_| unit.pid > 0)?;
    let written = std::fs::metadata(cx.path(path)).ok()?.modified().ok()?;
    let written = written.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis();
    let start = cx.now().as_millis() - i64::try_from(started).ok()?.saturating_mul(1000);
    // Both clocks are read to the second.
    (i64::try_from(written).ok()? > start.saturating_add(2000)).then(|| path.to_owned())
}

impl Environment {
    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// `CATTLE_AGENT_STRICT_VERIFY`, or `STRICT_VERIFY` of older versions.
    pub(super) fn strict_verify(&self, cx: &SenseContext) -> Fact<bool> {
        match &self.variables {
            Fact::Known { value, source, at } => {
                let found = value.iter().find(|(a, _)| a.name.ends_with("STRICT_VERIFY"));
                match found {
                    Some((a, source)) => Fact::known(is_true(&a.value), source.clone(), *at),
                    None => Fact::absent(source.clone(), *at),
                }
            }
            Fact::Unknown { cause, detail, source, at } => {
                Fact::unknown(cause.clone(), detail.clone(), source.clone(), *at)
            }
            Fact::Absent { .. } | Fact::NotApplicable { .. } => Fact::absent(self.program.clone(), cx.now()),
        }
    }

    pub(super) fn into_facts(self, direct: &[Target]) -> ProxyEnvironment {
        let is_go = self.program != "outrider";
        let variables = self.variables.map(|all| -> Vec<ProxyVariable> {
            let proxies = all.into_iter().filter(|(a, _)| a.name.to_ascii_uppercase().ends_with("_PROXY"));
            proxies.map(|(a, source)| variable(a, source, is_go)).collect()
        });
        let readings = variables.value().map_or(vec![], |all| readings(all, direct, &self.program));
        ProxyEnvironment {
            program: self.program,
            read_from: self.source,
            variables,
            readings,
            newer_files: self.newer_files,
            ignored: self.ignored,
        }
    }
}

/// As Go's `strconv.ParseBool` takes it, and the shell of the installer.
fn is_true(value: &str) -> bool {
    matches!(value.trim(), "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn variable(a: Assignment, source: String, is_go: bool) -> ProxyVariable {
    let is_list = a.name.eq_ignore_ascii_case("NO_PROXY");
    let problem = match a.value.trim() {
        "" => String::new(),
        value if is_list => no_proxy_problem(value),
        value => usable(value, is_go).err().unwrap_or_default(),
    };
    let credentials = !is_list && a.value.contains(HIDDEN);
    ProxyVariable { name: a.name, value: a.value, problem, credentials, source }
}

/// Whether the value names a proxy that the program can use. Go's programs take SOCKS 5, too (net/http: `Transport`).
fn usable(value: &str, is_go: bool) -> Result<(), String> {
    let plain = match value.split_once("://") {
        Some(("socks5" | "socks5h", rest)) if is_go => format!("http://{rest}"),
        _ => value.to_owned(),
    };
    Proxy::parse(&plain).map(|_| ())
}

fn no_proxy_problem(value: &str) -> String {
    let (_, bad) = NoProxy::parse(value);
    let spaced = value.split(',').map(str::trim).find(|entry| entry.contains(char::is_whitespace));
    match (bad.first(), spaced) {
        (_, Some(entry)) => format!(
            "{} is set apart by spaces: Go's programs read it as one name, curl as several",
            file::excerpt(entry)
        ),
        (Some(entry), None) => {
            format!("{} is no name, address or CIDR and has no effect", file::excerpt(entry))
        }
        (None, None) => String::new(),
    }
}

/// Something that should be reached without a proxy.
pub(super) struct Target {
    host: String,
    port: u16,
    kind: DirectKind,
    what: String,
}

/// What this node has to reach without a proxy, as far as it is known here.
pub(super) fn direct(settings: &Settings, cluster: &Cluster, rancher: Option<&str>) -> Vec<Target> {
    let mut all: Vec<Target> = Vec::new();
    let mut add = |host: &str, port: u16, kind: DirectKind, what: String| {
        if all.iter().all(|t| t.host != host || t.kind != kind) {
            all.push(Target { host: host.to_owned(), port, kind, what });
        }
    };
    let balancers = settings.load_balancers.iter();
    let servers = balancers.map(|b| (b.url.clone(), format!("the load balancer {}", b.name)));
    let servers = servers.chain(rancher.map(|url| (url.to_owned(), "Rancher".to_owned())));
    let servers =
        servers.chain(settings.coordinator.urls.iter().map(|u| (u.clone(), "the coordinator".to_owned())));
    let servers =
        servers.chain(cluster.server.iter().map(|u| (u.clone(), "the server this node joined".to_owned())));
    for (url, what) in servers {
        if let Ok(url) = Url::parse(&url) {
            add(&url.host, url.port, DirectKind::Server, what);
        }
    }
    if let Some(distribution) = &cluster.distribution {
        for ip in own_addresses().into_iter().take(MAX_ADDRESSES) {
            add(&ip.to_string(), 443, DirectKind::Node, "an address of this node".to_owned());
        }
        for (name, networks) in [("pod", &cluster.pods), ("service", &cluster.services)] {
            for told in networks {
                let default =
                    if told.assumed { format!(" (default of {distribution})") } else { String::new() };
                add(&told.value, 443, DirectKind::Network, format!("the {name} network{default}"));
            }
        }
        add(".svc", 443, DirectKind::Service, "names of services".to_owned());
        let domain = format!(".{}", cluster.domain);
        if domain.len() > 1 {
            add(&domain, 443, DirectKind::Service, "the domain of the cluster".to_owned());
        }
    }
    all
}

/// Addresses of physical interfaces: those a program of the node itself would use.
fn own_addresses() -> Vec<IpAddr> {
    let mut found = Vec::new();
    for entry in getifaddrs().into_iter().flatten() {
        let name = &entry.interface_name;
        // Interfaces of containers and overlays have addresses nobody proxies to.
        let inner =
            ["lo", "cali", "veth", "cni", "flannel", "docker", "vxlan", "kube", "cilium", "lxc", "tunl"];
        let Some(storage) = entry.address.filter(|_| !inner.iter().any(|i| name.starts_with(i))) else {
            continue;
        };
        let ip: Option<IpAddr> = match (storage.as_sockaddr_in(), storage.as_sockaddr_in6()) {
            (Some(v4), _) => Some(v4.ip().into()),
            (_, Some(v6)) => Some(v6.ip().into()),
            _ => None,
        };
        let usable = |ip: &IpAddr| match ip {
            IpAddr::V4(v4) => !v4.is_link_local() && !v4.is_loopback(),
            IpAddr::V6(v6) => !v6.is_unicast_link_local() && !v6.is_loopback(),
        };
        found.extend(ip.filter(usable));
    }
    found
}

/// Under both readings. Nothing where no proxy is set.
fn readings(variables: &[ProxyVariable], direct: &[Target], program: &str) -> Vec<ProxyReading> {
    let get = |upper: &str, lower: &str| {
        let find = |name: &str| variables.iter().find(|v| v.name == name && !v.value.trim().is_empty());
        // Go asks for capitals first (golang.org/x/net/http/httpproxy), curl for small letters.
        (find(upper).or(find(lower)), find(lower).or(find(upper)))
    };
    let is_set = |upper: &str, lower: &str| get(upper, lower).0.is_some();
    if !is_set("HTTPS_PROXY", "https_proxy") && !is_set("HTTP_PROXY", "http_proxy") {
        return Vec::new();
    }
    let (go, plain) = get("NO_PROXY", "no_proxy");
    let text = |v: Option<&ProxyVariable>| v.map(|v| v.value.clone()).unwrap_or_default();
    let (go, plain) = (text(go), text(plain));
    let (no_proxy, _) = NoProxy::parse(&go);
    // RKE2 and K3s add the networks and the domain of the cluster by themselves.
    let adds = program.starts_with("rke2") || program.starts_with("k3s");
    // Of our own traffic only the coordinator's goes through a proxy.
    let concerns = |t: &&Target| program != "outrider" || t.what == "the coordinator";
    let read = |t: &Target| {
        let (is_go, is_plain) = match t.kind {
            DirectKind::Network => {
                let parsed =
                    t.host.split_once('/').and_then(|(ip, p)| Some((ip.parse().ok()?, p.parse().ok()?)));
                let covered = adds || parsed.is_some_and(|(ip, prefix)| no_proxy.covers(ip, prefix));
                (covered, covered)
            }
            DirectKind::Service => {
                let name = format!("kubernetes.default{}", t.host);
                let covered = adds || no_proxy.matches(&name, t.port);
                (covered, covered || plainly_direct(&plain, &name))
            }
            _ => (no_proxy.matches(&t.host, t.port), plainly_direct(&plain, &t.host)),
        };
        ProxyReading {
            host: t.host.clone(),
            kind: t.kind.clone(),
            what: t.what.clone(),
            go: is_go,
            plain: is_plain,
        }
    };
    direct.iter().filter(concerns).map(read).collect()
}
