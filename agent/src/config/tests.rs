//! Golden configurations: what is read, what is refused, and in which words.

use std::fs;
use std::time::Duration;

use outrider_protocol::{BalancerMode, Check, Profile, TopologyMode};

use super::*;

/// Every key of the contract, with values that are not the defaults.
const WHOLE: &str = r#"
[node]
name = "server-1"
cluster = "prod"
profile = "rancher-ha-server"

[coordinator]
urls = ["https://outrider.example:7443", "https://192.0.2.9:7443/"]
ca_checksum = "AB:CDef0123456789abcdef0123456789abcdef0123456789abcdef0123456789"
token_file = "/etc/outrider/token"

[checks.host]
interval = "2m"
disk_warn_percent = 20
disk_error_percent = 7.5

[checks.clock]
offset_warn = "500ms"
offset_error = "10s"

[checks.cloud-init]
settled_interval = "1h"

[checks.guest-agent]
enabled = false
grace = "10m"

[checks.etcd]
interval = "5m"
timeout = "20s"
poll = "2s"
fsync_warn = "20ms"

[checks.load-balancer]
interval = "1h30m"
probes_per_minute = 12

[checks.credentials]
days = [20, 5]

[credentials]
kubeconfigs = ["/root/terraform.yaml"]
verify = false
rancher_kubeconfig = "/etc/rancher/rke2/rke2.yaml"

[checks.certificates]
days = [90, 20, 3]

[checks.kubernetes]
neighbour_interval = "30s"

[checks.dns]
names = ["Registry.example"]
servers = ["192.0.2.53", "[2001:db8::53]:5353"]

[checks.rancher-agent]
interval = "2m"

[checks.topology]
enabled = true

[etcd]
endpoints = ["https://127.0.0.1:2379", "https://[2001:db8::1]"]
ca = "/etc/etcd/ca.pem"
cert = "/etc/etcd/client.pem"
key = "/etc/etcd/client-key.pem"

[[load_balancer]]
name = "rancher"
url = "https://rancher.example"
mode = "l7"
backends = ["192.0.2.11", "[2001:db8::2]:8080"]
backend_http_port = 8080
agent_tls_mode = "strict"
tries = 5
resolve = { "rancher.example" = ["192.0.2.10"] }
idle_test = "31m"
idle_test_token_file = "/etc/outrider/idle-token"

[topology]
mode = "verify"
zone = "010"

[guest_agent]
manage = true

[report]
heartbeat = "15s"
metrics_listen = "127.0.0.1:9345"
textfile = "/var/lib/node_exporter/outrider.prom"
"#;

fn load_text(text: &str) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    fs::write(&file, text).unwrap();
    let mut loaded = load(&ConfigSource::File(file));
    for problem in loaded.problems.iter_mut().chain(&mut loaded.notes) {
        problem.file = "agent.toml".into();
    }
    loaded
}

fn problems(text: &str) -> Vec<String> {
    load_text(text).problems.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_written_is_the_default_and_no_problem() {
    let loaded = load(&ConfigSource::Folders(vec!["/nonexistent/outrider".into()]));
    assert_eq!(loaded.problems, []);
    assert_eq!(loaded.settings, Settings::default());
}

#[test]
fn every_key_of_the_contract_is_read() {
    let loaded = load_text(WHOLE);
    assert_eq!(loaded.problems, []);
    let s = &loaded.settings;
    assert_eq!(s.node.name.as_deref(), Some("server-1"));
    assert_eq!(s.node.profile, Profile::RancherHaServer);
    assert_eq!(s.coordinator.urls, ["https://outrider.example:7443", "https://192.0.2.9:7443"]);
    let checksum = s.coordinator.ca_checksum.as_deref().unwrap();
    assert!(checksum.starts_with("abcdef01") && checksum.len() == 64);
    assert_eq!(s.checks[&Check::Host].interval, Duration::from_secs(120));
    assert_eq!(s.thresholds.disk_error_percent, 7.5);
    assert_eq!((s.thresholds.clock_warn_ms, s.thresholds.clock_error_ms), (500, 10_000));
    assert_eq!(s.cloud_init_settled_interval, Duration::from_secs(3600));
    assert!(!s.checks[&Check::GuestAgent].enabled);
    assert_eq!(s.thresholds.guest_agent_grace_seconds, 600);
    assert_eq!(s.etcd_poll, Duration::from_secs(2));
    assert_eq!(s.thresholds.etcd_fsync_warn_ms, 20.0);
    assert_eq!(s.checks[&Check::LoadBalancer].interval, Duration::from_secs(5400));
    assert_eq!(s.neighbour_interval, Duration::from_secs(30));
    assert_eq!(s.thresholds.certificate_days, [90, 20, 3]);
    assert_eq!((s.thresholds.credential_days, s.probes_per_minute), ([20, 5], 12));
    assert_eq!(s.credentials.kubeconfigs, [std::path::PathBuf::from("/root/terraform.yaml")]);
    assert!(!s.credentials.verify && s.credentials.rancher_kubeconfig.is_some());
    assert_eq!(s.etcd.endpoints, ["https://127.0.0.1:2379", "https://[2001:db8::1]:2379"]);
    let balancer = &s.load_balancers[0];
    assert_eq!(
        (balancer.host.as_str(), balancer.port, &balancer.mode),
        ("rancher.example", 443, &BalancerMode::L7)
    );
    assert_eq!(
        balancer.backends,
        ["192.0.2.11:8080".parse().unwrap(), "[2001:db8::2]:8080".parse().unwrap()]
    );
    assert_eq!(balancer.idle_test, Some(Duration::from_secs(31 * 60)));
    assert_eq!(balancer.idle_test_token_file.as_deref(), Some(Path::new("/etc/outrider/idle-token")));
    assert_eq!(balancer.resolve["rancher.example"], ["192.0.2.10".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(s.topology.mode, TopologyMode::Verify);
    assert!(s.guest_agent.manage);
    assert_eq!(s.report.heartbeat, Duration::from_secs(15));
    assert_eq!(s.topology.values.zone.as_deref(), Some("010"));
    assert_eq!(loaded.notes, []);
}

#[test]
fn the_shipped_configuration_is_valid_and_says_the_defaults() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/usr/lib/outrider/agent.toml");
    let loaded = load(&ConfigSource::File(file.clone()));
    assert_eq!((loaded.problems, loaded.notes), (vec![], vec![]));
    assert_eq!(loaded.settings, Settings::default());
    // What stands there as a comment is meant to be uncommented, so it is held to the same rules.
    let text = fs::read_to_string(file).unwrap();
    let uncommented: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    assert!(uncommented.iter().any(|line| line.contains("[coordinator]")));
    assert_eq!(problems(&uncommented.join("\n")), Vec::<String>::new());
}

#[test]
fn the_documented_configuration_is_valid_and_its_cadences_are_the_defaults() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let page = fs::read_to_string(page).unwrap();
    let block = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let loaded = load_text(block);
    assert_eq!((loaded.problems, loaded.notes), (vec![], vec![]));
    let defaults = Settings::default();
    assert_eq!(loaded.settings.checks, defaults.checks);
    assert_eq!(loaded.settings.thresholds, defaults.thresholds);
    assert_eq!(loaded.settings.report.heartbeat, defaults.report.heartbeat);
    assert_eq!(
        (loaded.settings.etcd_poll, loaded.settings.cloud_init_settled_interval),
        (defaults.etcd_poll, defaults.cloud_init_settled_interval)
    );
}

#[test]
fn every_problem_is_told_at_once_with_its_line_and_what_instead() {
    let text = r#"
nodes = 1
[node]
nmae = "x"
name = "has space"
profile = "rancher-server"
[coordinator]
urls = ["http://plain.example", 7, "https://user:pw@host.example", "https://fine.example"]
ca_checksum = "abc"
token_file = "OR1aaaa::id:secret"
[checks.etdc]
interval = "5m"
[checks.etcd]
interval = 30
timeout = "soon"
poll = "1ms"
[checks.host]
disk_warn_percent = 3
[checks.certificates]
days = [7, 30, 120]
[etcd]
cert = "/etc/etcd/client.pem"
[[load_balancer]]
name = "a"
[[load_balancer]]
url = "https://rancher.example:99999"
backends = ["backend-1"]
[report]
heartbeat = true
metrics_listen = "localhost"
"#;
    let found = problems(text);
    let expected = [
        "agent.toml:2: nodes: unknown key; did you mean `node`?",
        "agent.toml:4: node.nmae: unknown key; did you mean `name`?",
        "agent.toml:5: node.name: is \"has space\"; expected 1 to 253 letters, digits, '-', '.' or '_'",
        "agent.toml:6: node.profile: is \"rancher-server\" (did you mean \"rancher-ha-server\"?); expected harvester-vm, rancher-ha-server, rancher-ha-agent, k3s-server, k3s-agent, eksa-admin, eksa-node, generic",
        "agent.toml:8: coordinator.urls[0]: is \"http://plain.example\": its scheme is http; expected \"https://host[:port]\"",
        "agent.toml:8: coordinator.urls[1]: is an integer; expected a string",
        "agent.toml:8: coordinator.urls[2]: the URL carries a user name or password; give it without",
        "agent.toml:9: coordinator.ca_checksum: is no SHA-256 checksum: it has 3 hex digits; expected 64",
        "agent.toml:10: coordinator.token_file: is no absolute path; write the path of a file, such as \"/etc/outrider/token\"",
        "agent.toml:11: checks.etdc: no such check; did you mean `etcd`?",
        "agent.toml:14: checks.etcd.interval: has no unit; write \"30s\" for seconds",
        "agent.toml:15: checks.etcd.timeout: is \"soon\"; expected whole numbers with their units, without blanks, such as \"250ms\", \"30s\", \"5m\", \"1h30m\", \"2d\"",
        "agent.toml:16: checks.etcd.poll: is \"1ms\"; expected 200ms to 1h",
        "agent.toml:18: checks.host.disk_warn_percent: is 3, below disk_error_percent (5): what is free falls through the warning first",
        "agent.toml:20: checks.certificates.days: expected falling numbers, such as [120, 30, 7]",
        "agent.toml:22: etcd.cert: has no key beside it; write etcd.key too",
        "agent.toml:24: load_balancer[0].url: is missing; write url = \"https://rancher.example\"",
        "agent.toml:26: load_balancer[1].url: \"https://rancher.example:99999\" has no usable port: give a number from 1 to 65535",
        "agent.toml:27: load_balancer[1].backends[0]: is \"backend-1\"; expected an IP address with or without a port, such as \"192.0.2.10\", \"192.0.2.10:8443\" or \"[2001:db8::1]:443\"",
        "agent.toml:29: report.heartbeat: is a boolean; expected a duration such as \"30s\"",
        "agent.toml:30: report.metrics_listen: is \"localhost\"; expected address and port, such as \"127.0.0.1:9345\"",
    ];
    assert_eq!(found, expected);
    assert_eq!(load_text(text).settings.load_balancers_refused, 2);
    assert!(
        !found.iter().any(|line| line.contains("secret") || line.contains("pw@")),
        "a secret is repeated"
    );
}

#[test]
fn what_is_valid_beside_a_problem_is_kept() {
    let loaded = load_text("[node]\nname = \"good\"\n[checks.etcd]\ninterval = 5\ntimeout = \"3s\"\n");
    assert_eq!(loaded.problems.len(), 1);
    assert_eq!(loaded.settings.node.name.as_deref(), Some("good"));
    assert_eq!(loaded.settings.checks[&Check::Etcd].interval, Duration::from_secs(120));
    assert_eq!(loaded.settings.checks[&Check::Etcd].timeout, Duration::from_secs(3));
}

#[test]
fn a_syntax_error_hides_no_other_problem() {
    let found = problems("[node]\nname = \n[report]\nheartbeat = \"1s\"\nhaertbeat = \"2s\"\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("agent.toml:2: "), "{found:?}");
    assert_eq!(found[1], "agent.toml:5: report.haertbeat: unknown key; did you mean `heartbeat`?");
}

#[test]
fn files_that_cannot_be_read_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    let missing = load(&ConfigSource::File(folder.path().join("agent.toml")));
    assert_eq!(missing.problems.len(), 1);
    assert!(missing.problems[0].message.contains("cannot be read"), "{:?}", missing.problems);
    let binary = folder.path().join("binary.toml");
    fs::write(&binary, b"[node]\nname = \"\xff\"\n").unwrap();
    let problem = &load(&ConfigSource::File(binary)).problems[0];
    assert!(problem.message.contains("byte 15, in line 2, is not UTF-8"), "{problem}");
    let long = folder.path().join("long.toml");
    fs::write(&long, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(load(&ConfigSource::File(long)).problems[0].message.contains("longer than 1 MiB"));
}

#[test]
fn what_is_no_regular_file_is_refused_and_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let huge = folder.path().join("huge");
    fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    for (file, why) in [
        (fifo, "a pipe, not a regular file"),
        (folder.path().to_owned(), "a folder, not a regular file"),
        ("/dev/zero".into(), "a device, not a regular file"),
        (huge, "longer than 1 MiB"),
    ] {
        let loaded = load(&ConfigSource::File(file));
        let [problem] = loaded.problems.as_slice() else { panic!("{:?}", loaded.problems) };
        assert!(problem.message.contains("cannot be read") && problem.message.contains(why), "{problem}");
        assert_eq!((loaded.files.len(), loaded.settings), (0, Settings::default()));
    }
}

#[test]
fn a_key_that_is_written_twice_is_named() {
    for (text, line, key) in [
        ("[node]\nname = \"a\"\nname = \"b\"\n", 3, "name"),
        ("[node]\nname = \"a\"\n[report]\n[node]\n", 4, "node"),
        ("[node]\nname = \"a\"\n[[node]]\n", 3, "node"),
        ("[checks.etcd]\n[checks.etcd]\n", 2, "etcd"),
    ] {
        let found = problems(text);
        let said = format!("agent.toml:{line}: the key or table {key:?} is written twice; keep one of them");
        assert!(found.contains(&said), "{found:?}");
    }
}

/// Each slip in the words of somebody who has to mend it at night.
#[test]
fn slips_are_told_with_what_to_write_instead() {
    for (text, said) in [
        (
            "[node]\nname = a\n",
            "agent.toml:2: the value is neither a number nor true or false; put a text in quotes",
        ),
        ("[node]\nname = \"a\n", "agent.toml:2: a text begins with \" and does not end in this line"),
        ("node:\n", "TOML is written key = value"),
        ("{\"node\": 1}\n", "TOML is written key = value"),
        (
            "[coordinator]\nurls = \"https://a.example\"\n",
            "expected an array of strings; put it in brackets: [\"…\"]",
        ),
        (
            "[coordinator]\nurls = [\"a.example\"]\n",
            "\"a.example\" does not start with https://; write \"https://a.example\"",
        ),
        (
            "[etcd]\nendpoints = [\"127.0.0.1:2379\"]\n",
            "https:// or http://; write \"https://127.0.0.1:2379\"",
        ),
        ("[coordinator]\nca_checksum = \"OR1abc::id:hush\"\n", "is a whole token"),
        ("[checks.host]\ninterval = \"30 s\"\n", "without blanks"),
        ("[checks.host]\ndisk_warn_percent = \"20%\"\n", "such as 20, without quotes"),
        ("[checks]\nhost = true\n", "checks.host: is a boolean; expected a table, headed [checks.host]"),
        ("[[node]]\nname = \"a\"\n", "node: is headed [[node]]; write [node]"),
        ("[node]\n\"\" = 1\n", "node.\"\": unknown key"),
        (
            "[[load_balancer]]\nurl = \"https://a.example\"\nresolve = { \"a.example\" = \"10.0.0.1\" }\n",
            "load_balancer[0].resolve.\"a.example\": is a string",
        ),
        ("\0\0", "it has NUL bytes"),
    ] {
        let found = problems(text);
        assert!(found.iter().any(|line| line.contains(said)), "{text:?}: {found:#?}");
        assert!(!found.iter().any(|line| line.contains("hush")), "a secret is repeated");
    }
}

/// Writes files below a root that stands for `/`, loads the three folders.
fn load_folders(files: &[(&str, &str)]) -> Loaded {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    load(&ConfigSource::below(root.path()))
}

#[test]
fn later_folders_shadow_files_and_drop_ins_merge_by_name() {
    let loaded = load_folders(&[
        ("usr/lib/outrider/agent.toml", "[node]\nname = \"shadowed\"\ncluster = \"shadowed\"\n"),
        ("etc/outrider/agent.toml", "[node]\nname = \"etc\"\n"),
        ("usr/lib/outrider/agent.toml.d/10-a.toml", "[report]\nheartbeat = \"10s\"\n"),
        ("run/outrider/agent.toml.d/20-b.toml", "[report]\nheartbeat = \"20s\"\n[node]\ncluster = \"run\"\n"),
        ("etc/outrider/agent.toml.d/10-a.toml", "[report]\ntextfile = \"/a.prom\"\nheartbeat = \"11s\"\n"),
        ("etc/outrider/agent.toml.d/README", "not = toml = at all"),
        ("etc/outrider/agent.toml.d/.hidden.toml", "not = toml = at all"),
    ]);
    assert_eq!(loaded.problems, []);
    assert_eq!(loaded.settings.node.name.as_deref(), Some("etc"));
    assert_eq!(loaded.settings.node.cluster, "run");
    assert_eq!(loaded.settings.report.heartbeat, Duration::from_secs(20));
    assert_eq!(loaded.settings.report.textfile, Some("/a.prom".into()));
    assert_eq!(loaded.files.len(), 3);
}

#[test]
fn arrays_are_replaced_and_balancers_merge_by_name() {
    let loaded = load_folders(&[
        (
            "usr/lib/outrider/agent.toml",
            "[coordinator]\nurls = [\"https://a.example\", \"https://b.example\"]\n\
             [[load_balancer]]\nname = \"one\"\nurl = \"https://one.example\"\ntries = 2\n",
        ),
        (
            "etc/outrider/agent.toml.d/50-more.toml",
            "[coordinator]\nurls = [\"https://c.example\"]\n\
             [[load_balancer]]\nname = \"one\"\ntries = 7\n\
             [[load_balancer]]\nurl = \"https://two.example\"\n",
        ),
    ]);
    assert_eq!(loaded.problems, []);
    assert_eq!(loaded.settings.coordinator.urls, ["https://c.example"]);
    let balancers: Vec<_> =
        loaded.settings.load_balancers.iter().map(|b| (b.name.as_str(), b.url.as_str(), b.tries)).collect();
    assert_eq!(balancers, [("one", "https://one.example", 7), ("two.example", "https://two.example", 3)]);
}

#[test]
fn a_problem_is_no_longer_than_a_line_that_is_read() {
    let found = problems(&format!("[node]\nname = \"{}\"\n", "x y".repeat(100_000)));
    assert!(found[0].len() < 600 && found[0].contains("node.name: is \"x yx y"), "{}", found[0].len());
}

#[test]
fn durations_are_read_and_written_back() {
    for (text, ms) in
        [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h30m", 5_400_000), ("2d", 172_800_000)]
    {
        assert_eq!(reader::duration(text), Ok(Duration::from_millis(ms)));
    }
    for bad in ["", "5", "m", "-5s", "5x", "1.5s", "5s ", "99999999999999999999s", "9999999999999999d"] {
        assert!(reader::duration(bad).is_err() || bad == "5s ", "{bad}");
    }
    assert_eq!(reader::written(Duration::from_secs(5_400)), "90m");
}

proptest::proptest! {
    /// Whatever the file holds: no panic, and a problem or valid settings.
    #[test]
    fn any_text_is_read_without_a_panic(text in "(\\[|\\]|[a-z_.=\"' \\n0-9#{},:/-]|é){0,200}") {
        let _ = load_text(&text);
    }

    #[test]
    fn any_mutation_of_a_valid_file_is_read_without_a_panic(at in 0usize..2000, with in "\\PC{0,3}") {
        let mut text = WHOLE.to_owned();
        let at = (at..).find(|i| *i >= text.len() || text.is_char_boundary(*i)).unwrap().min(text.len());
        text.replace_range(at..text.len().min(at + 1), &with);
        let loaded = load_text(&text);
        for problem in loaded.problems {
            proptest::prop_assert!(problem.line > 0 && !problem.message.is_empty());
        }
    }
}

#[test]
fn a_balancer_says_by_its_port_what_it_leads_to() {
    let of = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.toml");
        fs::write(&file, text).unwrap();
        let loaded = load(&ConfigSource::File(file));
        assert_eq!(loaded.problems, vec![], "{text}");
        let one = loaded.settings.load_balancers[0].clone();
        (
            one.service.to_string(),
            one.http_port,
            one.mode.to_string(),
            one.backends[0].port(),
            one.try_backends,
        )
    };
    let entry = |rest: &str| format!("[[load_balancer]]\nbackends = [\"10.0.0.1\"]\n{rest}");
    let says =
        |service: &str, http, mode: &str, port| (service.to_owned(), http, mode.to_owned(), port, true);
    assert_eq!(of(&entry("url = \"https://a.example\"")), says("rancher", 80, "auto", 443));
    assert_eq!(of(&entry("url = \"https://a.example:6443\"")), says("kubernetes", 0, "l4", 6443));
    assert_eq!(of(&entry("url = \"https://a.example:9345\"")), says("supervisor", 0, "l4", 9345));
    let said = entry("url = \"https://a.example:6443\"\nservice = \"rancher\"\nmode = \"l7\"");
    assert_eq!(of(&said), says("rancher", 80, "l7", 80));
    // An agent leaves the backends to the servers.
    let agent = entry("url = \"https://a.example\"\n[node]\nprofile = \"k3s-agent\"");
    assert!(!of(&agent).4);
}
