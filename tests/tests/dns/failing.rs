//! Servers that are there and fail: real dnsmasq, each of its own accord.

use nix::sys::signal::Signal;
use outrider_tests::programs::Process;
use outrider_tests::table::Table;

use crate::bed::*;

const SERVER: &str = "127.2.0.1";
/// The root's key of 2017, as every validating server knows it (IANA, root-anchors.xml).
const TRUST_ANCHOR: &str =
    "--trust-anchor=.,20326,8,2,E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D";

#[test]
#[ignore = "needs root, dnsmasq and ip"]
fn a_server_that_fails_or_is_silent_is_named() {
    on_a_machine_of_its_own(|node| {
        let mut table = Table::new("dns: dnsmasq that fails");
        let text = format!("nameserver {SERVER}\noptions timeout:1 attempts:1\n");
        let told = |reason: &str, word: &str| {
            node.write("/etc/resolv.conf", &text);
            let start = std::time::Instant::now();
            let checked = node.check();
            let condition = about(&checked, NAME);
            assert_eq!(condition.reason.as_str(), reason, "{}", checked.lines());
            let found = condition.message.contains(word) || condition.advice.contains(word);
            assert!(found, "{word:?} is missing in\n{}", checked.lines());
            let seen = format!("{} {} {}", condition.status, condition.severity, condition.reason);
            (seen, start.elapsed())
        };

        // What it is told is signed by nobody, and it wants the root's signatures.
        let upstream = node.server("127.2.0.9", &words(&good()));
        let validating =
            node.server(SERVER, &["--server=127.2.0.9", "--dnssec", "--dnssec-no-timecheck", TRUST_ANCHOR]);
        let (seen, took) = told("DnsServerFailing", "SERVFAIL");
        table.timed("SERVFAIL", "dnsmasq --dnssec before one that signs nothing", seen, took, None);
        // The same without DNSSEC: it was the signatures.
        drop(validating);
        let passing = node.server(SERVER, &["--server=127.2.0.9"]);
        let (seen, took) = told("NamesResolve", "198.51.100.10");
        table.timed("none", "the same without --dnssec", seen, took, None);

        // What it asks does not answer, so it does not either.
        drop(upstream);
        drop(passing);
        let waiting: Process = node.server(SERVER, &["--server=127.2.0.77"]);
        let (seen, took) = told("DnsServerDown", "silent");
        table.timed("silence", "dnsmasq whose upstream is gone", seen, took, None);
        drop(waiting);

        let hung = node.server(SERVER, &words(&good()));
        hung.signal(Signal::SIGSTOP).unwrap();
        let (seen, took) = told("DnsServerDown", "silent");
        table.timed(
            "silence",
            "dnsmasq stopped (SIGSTOP): its kernel takes questions, nobody answers",
            seen,
            took,
            None,
        );
    });
}
