//! A balancer that lets nobody in without a client certificate, as OpenSSL says so: up to TLS 1.2 by an alert that ends the
//! handshake, in TLS 1.3 by one that comes after it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use outrider_protocol::{Fact, ProbeKind, UnknownCause};
use outrider_tests::beds::balancer::HOST;
use outrider_tests::beds::pki::{Authority, DAY};
use outrider_tests::checked::check;
use outrider_tests::programs::{Process, has_command, until};
use outrider_tests::table::Table;

use crate::{LIMIT, Through, cause, pass, settings, tries};

/// `openssl s_server` that answers every request with 200, after what `more` says.
fn s_server(folder: &Path, address: SocketAddr, more: &[&str]) -> Process {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-quiet", "-www", "-accept", &address.to_string()]);
    command.arg("-cert").arg(folder.join("server.crt")).arg("-key").arg(folder.join("server.key"));
    command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process::spawn(&mut command).unwrap();
    until("s_server listens", Duration::from_secs(30), || TcpStream::connect(address).ok()).unwrap();
    process
}

#[test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
fn a_balancer_that_wants_a_client_certificate_is_named() {
    if !has_command("openssl") {
        println!("skipped: openssl is not installed");
        return;
    }
    let mut table = Table::new("openssl s_server in place of the balancer, asked without a certificate");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("bed-ca", 3650 * DAY).unwrap();
    let leaf = authority.issue(HOST, &[HOST], -DAY, 365 * DAY).unwrap();
    leaf.write(&folder.path().join("server.crt"), &folder.path().join("server.key")).unwrap();
    std::fs::write(folder.path().join("ca.crt"), authority.pem()).unwrap();
    let net = [rand::random_range(16..=250), rand::random_range(1..=250)];

    for (last, more, demands) in [
        (1, &["-Verify", "1", "-tls1_2"][..], true),
        (2, &["-Verify", "1", "-tls1_3"], true),
        // One that may be shown, and is not, is no demand.
        (3, &["-verify", "1", "-tls1_2"], false),
        (4, &["-verify", "1", "-tls1_3"], false),
    ] {
        let address = SocketAddr::from((Ipv4Addr::new(127, net[0], net[1], last), 8443));
        let _server = s_server(folder.path(), address, more);

        let facts = runtime.block_on(pass(&settings(address, 0, &[address.ip()]), LIMIT));
        let roots = tries(&facts, Through, ProbeKind::Root);
        let tls13 = more.contains(&"-tls1_3");
        let refused = |fact: Option<&UnknownCause>| fact == Some(&UnknownCause::Unauthenticated);
        let as_said = roots.iter().all(|p| match (demands, tls13) {
            (false, _) => p.http.value().is_some_and(|answer| answer.status == 200),
            (true, false) => refused(cause(&p.tls)) && matches!(p.http, Fact::NotApplicable { .. }),
            (true, true) => refused(cause(&p.http)),
        });
        assert!(roots.len() >= 4 && as_said, "{more:?}: {roots:#?}");

        let config = folder.path().join("agent.toml");
        let text = format!(
            "[[load_balancer]]\nname = \"rancher\"\nurl = \"https://{HOST}:8443\"\nhttp_port = 0\nca = {:?}\n\
             [load_balancer.resolve]\n\"{HOST}\" = [\"{}\"]\n",
            folder.path().join("ca.crt"),
            address.ip()
        );
        std::fs::write(&config, text).unwrap();
        let start = std::time::Instant::now();
        let checked = check(&config, "load-balancer").unwrap();
        let took = start.elapsed();
        let forwarding = checked.condition("LoadBalancerForwarding").unwrap();
        let named = forwarding.reason.as_str() == "BalancerRefusesRequest"
            && forwarding.message.contains("wants a client certificate (mTLS)")
            && forwarding.advice.contains("verify none");
        assert_eq!(named, demands, "{more:?}:\n{}", checked.lines());
        // Whoever asks for one has not a broken TLS, nor a broken certificate of its own.
        let reachable = checked.condition("LoadBalancerReachable").unwrap();
        let blamed = ["TlsFailed", "BalancerCertificateWrong", "BalancerDown"];
        assert!(!blamed.contains(&reachable.reason.as_str()), "{more:?}:\n{}", checked.lines());
        let seen = format!("{} {}: {}", forwarding.status, forwarding.reason, forwarding.message);
        table.timed(
            if demands { "a client certificate is demanded" } else { "none" },
            more.join(" "),
            seen,
            took,
            None,
        );
    }
}
