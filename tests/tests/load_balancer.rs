//! A real HAProxy in front of two real nginx that answer as Rancher does, at layer 4 and 7: each fault made for real.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use outrider_protocol::Status;
use outrider_tests::beds::balancer::{Balancer, HOST, Options};
use outrider_tests::checked::{Checked, check_until};
use outrider_tests::table::Table;

const LIMIT: Duration = Duration::from_secs(40);
const ONLY: &str = "load-balancer";

struct Config {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

/// A configuration for the balancer's layer-4 or layer-7 side.
fn config(balancer: &Balancer, mode: &str, change: impl Fn(String) -> String) -> Config {
    let (https, http, backends): (SocketAddr, SocketAddr, [SocketAddr; 2]) = match mode {
        "l4" => (balancer.l4(), balancer.l4_http(), [balancer.backend(0), balancer.backend(1)]),
        _ => (balancer.l7(), balancer.l7_http(), [balancer.backend_http(0), balancer.backend_http(1)]),
    };
    let text = format!(
        "[[load_balancer]]\nname = \"rancher\"\nurl = \"https://{HOST}:{}\"\nhttp_port = {}\nmode = \"{mode}\"\n\
         ca = {:?}\nbackends = [\"{}\", \"{}\"]\nbackend_http_port = {}\n[load_balancer.resolve]\n\"{HOST}\" = [\"{}\"]\n",
        https.port(),
        http.port(),
        balancer.ca(),
        backends[0],
        backends[1],
        balancer.backend_http(0).port(),
        https.ip(),
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("agent.toml");
    fs::write(&file, change(text)).expect("a configuration");
    Config { _folder: folder, file }
}

fn said(checked: &Checked, kind: &str) -> String {
    let condition = checked.condition(kind).unwrap_or_else(|| panic!("no {kind}:\n{}", checked.lines()));
    format!("{} {} {}: {}", condition.condition_type, condition.status, condition.reason, condition.message)
}

/// Checks until `kind` has this reason.
fn see(config: &Config, kind: &str, reason: &str) -> (Duration, Checked) {
    check_until(&config.file, ONLY, &format!("{kind} {reason}"), LIMIT, |c| {
        c.condition(kind).is_some_and(|c| c.reason.as_str() == reason)
    })
    .unwrap_or_else(|e| panic!("{e:#}"))
}

#[test]
#[ignore = "run by tests/run --suite load-balancer"]
fn backends_die_and_come_back() {
    let mut table = Table::new("HAProxy with health checks, two nginx");
    let mut balancer = Balancer::start(&Options::default()).expect("a balancer");
    for mode in ["l4", "l7"] {
        let config = config(&balancer, mode, |text| text);
        let (_, well) = see(&config, "LoadBalancerForwarding", "ForwardingWorks");
        assert_eq!(well.code, 0, "{}", well.lines());
        table.row(format!("{mode}: none"), "both backends up", said(&well, "LoadBalancerForwarding"));

        balancer.kill_backend(1);
        let (raised, one) = see(&config, "LoadBalancerForwarding", "BackendDown");
        assert!(one.code > 0, "{}", one.lines());
        let message = said(&one, "LoadBalancerForwarding");
        balancer.start_backend(1).expect("a backend");
        let (cleared, _) = see(&config, "LoadBalancerForwarding", "ForwardingWorks");
        table.timed(
            format!("{mode}: a backend is dead"),
            "kill -9 of one nginx",
            message,
            raised,
            Some(cleared),
        );

        balancer.kill_backend(0);
        balancer.kill_backend(1);
        let (raised, none) = check_until(&config.file, ONLY, "no backend", LIMIT, |c| {
            c.condition("LoadBalancerForwarding").is_some_and(|c| c.status == Status::False)
        })
        .expect("both dead");
        assert_eq!(none.code, 2, "{}", none.lines());
        let message = said(&none, "LoadBalancerForwarding");
        for i in 0..2 {
            balancer.start_backend(i).expect("a backend");
        }
        let (cleared, _) = see(&config, "LoadBalancerForwarding", "ForwardingWorks");
        table.timed(
            format!("{mode}: no backend lives"),
            "kill -9 of both nginx",
            message,
            raised,
            Some(cleared),
        );
    }
}

#[test]
#[ignore = "run by tests/run --suite load-balancer"]
fn each_wrong_setting_is_named() {
    let mut table = Table::new("balancers that are set up wrongly");
    let right = Options::default;
    type Change = fn(&Balancer, String) -> String;
    let same: Change = |_, text| text;
    let elsewhere: Change =
        |balancer, text| text.replacen(&format!("{HOST}:{}", balancer.l4().port()), &format!("{HOST}:9"), 1);
    let cases: [(&str, &str, Options, &str, Change, &str, &str); 6] = [
        (
            "no health checks",
            "a dead nginx stays in use",
            Options { health_checks: false, ..right() },
            "l4",
            same,
            "LoadBalancerForwarding",
            "DeadBackendInUse",
        ),
        (
            "X-Forwarded-Proto not set",
            "haproxy without set-header",
            Options { forwarded_proto: false, ..right() },
            "l7",
            same,
            "LoadBalancerForwarding",
            "ForwardedHeaderMissing",
        ),
        (
            "X-Forwarded-Proto not trusted",
            "an ingress that ignores it",
            Options { ingress_trusts: false, ..right() },
            "l7",
            same,
            "LoadBalancerForwarding",
            "ForwardedHeaderIgnored",
        ),
        (
            "a certificate for another name",
            "a SAN that does not match",
            Options { certificate_name: "other.test".into(), ..right() },
            "l4",
            same,
            "LoadBalancerReachable",
            "BalancerCertificateWrong",
        ),
        (
            "a host nobody routes",
            "an ingress for another host",
            Options { ingress_host: "other.test".into(), ..right() },
            "l4",
            same,
            "LoadBalancerForwarding",
            "HostNotRouted",
        ),
        ("nobody listens", "another port", right(), "l4", elsewhere, "LoadBalancerReachable", "BalancerDown"),
    ];
    for (fault, made, options, mode, change, kind, reason) in cases {
        let mut balancer = Balancer::start(&options).expect("a balancer");
        if !options.health_checks {
            balancer.kill_backend(1);
        }
        let config = config(&balancer, mode, |text| change(&balancer, text));
        let (raised, seen) = see(&config, kind, reason);
        let condition = seen.condition(kind).expect("it");
        assert!(!condition.advice.is_empty(), "{fault}: {}", seen.lines());
        assert!(seen.code > 0, "{fault}: {}", seen.lines());
        table.timed(fault, made, said(&seen, kind), raised, None);
    }
}
