//! A peer that is silent to one question: our own limit ends the wait, and what is asked next goes over a new connection. On
//! the old one the late answer is still to come, and would pass for that to the next question.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use outrider_agent::config::LoadBalancerSettings;
use outrider_protocol::{BalancerMode, Fact, Probe, ProbeKind, UnknownCause};
use outrider_tests::beds::balancer::{HOST, missing};
use outrider_tests::beds::pki::{Authority, DAY};
use outrider_tests::programs::{Process, until};

use crate::{Backend, LIMIT, Through, cause, pass, settings, tries};

/// HAProxy that answers by itself, each path with words of its own, and holds the answer to `/cacerts` back (`tarpit`) for
/// longer than we wait.
fn haproxy(folder: &Path, address: SocketAddr) -> Process {
    let authority = Authority::new("bed-ca", 3650 * DAY).unwrap();
    let leaf = authority.issue(HOST, &[HOST], -DAY, 365 * DAY).unwrap();
    let pem = folder.join("balancer.pem");
    std::fs::write(&pem, format!("{}{}", leaf.certificate, leaf.key)).unwrap();
    let returns = |path: &str, status: u16, text: &str| {
        format!(
            "  http-request return status {status} content-type text/plain string \"{text}\" if {{ path {path} }}\n"
        )
    };
    let text = format!(
        "defaults\n  mode http\n  timeout client 30s\n  timeout tarpit 4s\n\
         frontend f\n  bind {address} ssl crt {} alpn h2,http/1.1\n\
         \x20 http-request tarpit deny_status 500 if {{ path /cacerts }}\n{}{}{}{}\
         \x20 http-request return status 404 content-type text/plain string nothing\n",
        pem.display(),
        returns("/", 200, "the root"),
        returns("/ping", 200, "pong"),
        returns("/healthz", 200, "ok"),
        returns("/v3/connect", 401, "failed authentication"),
    );
    let file = folder.join("haproxy.cfg");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(&file).stdin(Stdio::null());
    let process = Process::spawn(&mut command).unwrap();
    until("HAProxy listens", Duration::from_secs(30), || TcpStream::connect(address).ok()).unwrap();
    process
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn what_is_asked_after_our_own_time_out_goes_over_a_new_connection() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let address = SocketAddr::from((
        Ipv4Addr::new(127, rand::random_range(16..=250), rand::random_range(1..=250), 1),
        8443,
    ));
    let _haproxy = haproxy(folder.path(), address);
    let one = LoadBalancerSettings {
        tries: 1,
        mode: BalancerMode::L4,
        backends: vec![address],
        ..settings(address, 0, &[address.ip()])
    };
    let facts = pass(&one, LIMIT).await;

    let of = |kind: ProbeKind| tries(&facts, Through, kind);
    let is_kept = |probe: &Probe| matches!(probe.tcp, Fact::NotApplicable { .. });
    let said = |probe: &Probe| {
        let answer = probe.http.value();
        answer.map(|a| (a.status, a.body_start.clone()))
    };
    // HTTP/1.1: silence on a connection that had answered three times.
    let silent = of(ProbeKind::CaCerts)[0];
    assert!(is_kept(silent) && cause(&silent.http) == Some(&UnknownCause::TimedOut), "{silent:#?}");
    let next = of(ProbeKind::Nonsense)[0];
    assert!(next.tcp.value().is_some() && next.tls.value().is_some(), "a new connection: {next:#?}");
    assert_eq!(said(next), Some((404, "nothing".into())), "the answer to another question: {next:#?}");
    // And that one is kept.
    let roots = of(ProbeKind::Root);
    assert!(roots.len() == 2 && is_kept(roots[1]), "{roots:#?}");
    assert!(roots.iter().all(|root| said(root) == Some((200, "the root".into()))), "{roots:#?}");
    let took = next.at.since(silent.at);
    assert!(took < Duration::from_secs(1), "what came late was not waited for: {took:?}");

    // HTTP/2, as a backend is asked.
    let of = |kind: ProbeKind| tries(&facts, Backend, kind)[0];
    let silent = of(ProbeKind::CaCerts);
    assert!(is_kept(silent) && cause(&silent.http) == Some(&UnknownCause::TimedOut), "{silent:#?}");
    let next = of(ProbeKind::HealthzByAddress);
    assert_eq!(next.tls.value().map(|tls| tls.alpn.as_str()), Some("h2"), "a new connection: {next:#?}");
    assert_eq!(said(next), Some((200, "ok".into())), "the answer to another question: {next:#?}");
}
