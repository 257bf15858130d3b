//! A real three-member TLS etcd behind `outrider check`: all up, one down, two down, all back. Beside it a real HAProxy in
//! front of two real nginx, in the same pass.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use outrider_protocol::{Severity, Status};
use outrider_tests::beds::balancer::{self, Balancer};
use outrider_tests::beds::etcd::{self, EtcdCluster};
use outrider_tests::checked::{check, check_until};
use outrider_tests::table::Table;

const LIMIT: Duration = Duration::from_secs(60);

fn etcd_configuration(cluster: &EtcdCluster) -> String {
    format!(
        "[etcd]\nendpoints = {:?}\nca = {:?}\ncert = {:?}\nkey = {:?}\nelection_timeout = \"1s\"\n",
        cluster.endpoints(),
        cluster.ca(),
        cluster.client_certificate(),
        cluster.client_key(),
    )
}

#[test]
#[ignore = "run by tests/run --suite etcd"]
fn three_members_lose_one_then_two_and_come_back() {
    let version = etcd::installed().expect("etcd");
    let mut table =
        Table::new(&format!("etcd {version}, three members with TLS, beside HAProxy and two nginx"));
    let mut cluster = EtcdCluster::start(3, etcd::Options::default()).expect("a cluster");
    let balancer = Balancer::start(&balancer::Options::default()).expect("a balancer");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("agent.toml");
    let mut text = etcd_configuration(&cluster);
    write!(
        text,
        "[[load_balancer]]\nname = \"rancher\"\nurl = \"https://{}:{}\"\nhttp_port = {}\nca = {:?}\nbackends = [\"{}\", \"{}\"]\n\
         [load_balancer.resolve]\n\"{}\" = [\"{}\"]\n",
        balancer::HOST,
        balancer.l4().port(),
        balancer.l4_http().port(),
        balancer.ca(),
        balancer.backend(0),
        balancer.backend(1),
        balancer::HOST,
        balancer.l4().ip(),
    )
    .expect("text");
    fs::write(&config, text).expect("a configuration");
    let both = "etcd,load-balancer";

    let (_, all) =
        check_until(&config, both, "all is well", LIMIT, |c| c.code == 0).expect("a healthy cluster");
    let quorum = all.condition("EtcdQuorum").expect("EtcdQuorum");
    assert_eq!(quorum.status, Status::True);
    for number in ["3 voters", "quorum 2", "3 healthy", "tolerates 1"] {
        assert!(quorum.message.contains(number), "{number}: {}", quorum.message);
    }
    for kind in [
        "LoadBalancerReachable",
        "LoadBalancerForwarding",
        "EtcdMemberHealthy",
        "EtcdSpace",
        "EtcdMembership",
    ] {
        let condition = all.condition(kind).unwrap_or_else(|| panic!("{kind} is missing:\n{}", all.lines()));
        assert_eq!(condition.status, Status::True, "{kind}: {}", all.lines());
        assert!(
            condition.message.contains(|c: char| c.is_ascii_digit()),
            "{kind} has numbers: {}",
            condition.message
        );
    }
    table.row("none", "all three up", quorum.message.clone());

    // Not the local one, which the configuration names first. Where it led, a pass during the election rightly says
    // that a loss is suspected: the verdict is what stands after it.
    cluster.kill(2);
    let (raised, one) = check_until(&config, both, "tolerated 0", LIMIT, |c| {
        c.condition("EtcdQuorum")
            .is_some_and(|q| q.status == Status::True && q.message.contains("tolerates 0"))
    })
    .expect("one down");
    let quorum = one.condition("EtcdQuorum").expect("EtcdQuorum");
    assert_eq!((quorum.status, one.code > 0), (Status::True, true), "holds, and warns: {}", one.lines());
    assert!(quorum.severity >= Severity::Warn, "{quorum:?}");
    assert!(quorum.message.contains(cluster.name(2)), "names the member: {}", quorum.message);
    assert!(!quorum.advice.is_empty());
    table.timed(
        "one member lost",
        format!("kill -9 of {}", cluster.name(2)),
        quorum.message.clone(),
        raised,
        None,
    );
    assert_eq!(
        one.condition("LoadBalancerForwarding").map(|c| c.status),
        Some(Status::True),
        "{}",
        one.lines()
    );

    cluster.kill(1);
    let (raised, two) = check_until(&config, both, "EtcdQuorum=False", LIMIT, |c| {
        c.condition("EtcdQuorum").is_some_and(|q| q.status == Status::False)
    })
    .expect("two down");
    let quorum = two.condition("EtcdQuorum").expect("EtcdQuorum");
    assert_eq!((two.code, quorum.severity), (2, Severity::Error), "{}", two.lines());
    assert!(
        quorum.message.contains(cluster.name(1)) && quorum.message.contains(cluster.name(2)),
        "{}",
        quorum.message
    );
    table.timed(
        "two members lost",
        format!("kill -9 of {} as well", cluster.name(1)),
        quorum.message.clone(),
        raised,
        None,
    );

    cluster.restart(1).expect("a member");
    cluster.restart(2).expect("a member");
    let (cleared, back) =
        check_until(&config, both, "all is well again", LIMIT, |c| c.code == 0).expect("all back");
    table.timed(
        "all back",
        "started again with their data",
        back.condition("EtcdQuorum").expect("it").message.clone(),
        Duration::ZERO,
        Some(cleared),
    );
}

#[test]
#[ignore = "run by tests/run --suite etcd"]
fn what_cannot_be_read_is_unknown_with_its_cause() {
    let mut table = Table::new("etcd that cannot be read");
    let cluster = EtcdCluster::start(1, etcd::Options::default()).expect("a cluster");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("agent.toml");
    let foreign = folder.path().join("foreign.pem");
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate =
        rcgen::CertificateParams::new(vec!["x".to_owned()]).and_then(|p| p.self_signed(&key)).expect("one");
    fs::write(&foreign, certificate.pem()).expect("a file");
    let foreign_key = folder.path().join("foreign.key");
    fs::write(&foreign_key, key.serialize_pem()).expect("a file");
    let good = etcd_configuration(&cluster);
    let quoted = |path: &std::path::Path| format!("{path:?}");
    for (fault, text) in [
        ("no such key", good.replace(&quoted(&cluster.client_key()), "\"/nowhere/client.key\"")),
        ("a key of another certificate", good.replace(&quoted(&cluster.client_key()), &quoted(&foreign_key))),
        ("a CA that did not sign it", good.replace(&quoted(&cluster.ca()), &quoted(&foreign))),
        (
            "a certificate etcd does not trust",
            good.replace(&quoted(&cluster.client_certificate()), &quoted(&foreign))
                .replace(&quoted(&cluster.client_key()), &quoted(&foreign_key)),
        ),
        ("nobody listens", good.replace(":2379", ":1")),
    ] {
        fs::write(&config, text).expect("a configuration");
        let checked = check(&config, "etcd").expect("a pass");
        let quorum = checked.condition("EtcdQuorum").or(checked.condition("EtcdMemberHealthy"));
        let seen = quorum.unwrap_or_else(|| panic!("{fault}: nothing said:\n{}", checked.lines()));
        assert_ne!(seen.status, Status::True, "{fault}: {}", checked.lines());
        assert_ne!(checked.code, 0, "{fault}: {}", checked.lines());
        assert!(!seen.advice.is_empty(), "{fault}: says what to do: {}", checked.lines());
        table.row(
            fault,
            "outrider check --only etcd",
            format!("{} {} {}: {}", seen.condition_type, seen.status, seen.reason, seen.message),
        );
    }
}
