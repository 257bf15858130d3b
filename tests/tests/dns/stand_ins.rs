//! What no real server does on purpose: servers of the test's own say it.

use std::net::UdpSocket;

use outrider_tests::table::Table;

use crate::bed::*;

/// A server that says what it is told, for what dnsmasq would never do.
fn stand_in(address: &'static str, answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) {
    let socket = UdpSocket::bind((address, 53)).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((n, peer)) = socket.recv_from(&mut buffer) {
            if let Some(bytes) = answer(&buffer[..n]) {
                let _ = socket.send_to(&bytes, peer);
            }
        }
    });
}

/// The question with these flags and these answer bytes behind it.
fn answered(question: &[u8], flags: [u8; 2], records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = question.to_vec();
    bytes[2..4].copy_from_slice(&flags);
    bytes[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    bytes.extend(records.concat());
    bytes
}

/// A record whose owner is the question's name.
fn record(kind: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60];
    bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Whether AAAA is asked for.
fn wants_v6(question: &[u8]) -> bool {
    question[question.len() - 3] == 28
}

#[test]
#[ignore = "needs root and ip"]
fn what_no_real_server_does_on_purpose() {
    on_a_machine_of_its_own(|node| {
        let mut table = Table::new("dns: stand-ins for broken servers");
        node.write(
            "/etc/resolv.conf",
            "nameserver 127.1.1.1\nnameserver 127.1.1.2\nnameserver 127.1.1.3\noptions timeout:1 attempts:1\n",
        );
        let good = |q: &[u8]| {
            let address = record(1, &[198, 51, 100, 10]);
            answered(q, [0x81, 0x80], if wants_v6(q) { &[] } else { std::slice::from_ref(&address) })
        };
        let rows: [(&'static str, &'static str, &'static str, &'static str); 3] = [
            ("127.2.0.2", "NXDOMAIN for AAAA only", "DnsFamiliesDisagree", "NXDOMAIN when asked for AAAA"),
            ("127.2.0.3", "cut, and no TCP", "DnsAnswerTruncated", "TCP port 53"),
            ("127.2.0.4", "an alias of itself", "DnsAliasBroken", "circle"),
        ];
        stand_in(rows[0].0, move |q| {
            Some(if wants_v6(q) { answered(q, [0x81, 0x83], &[]) } else { good(q) })
        });
        stand_in(rows[1].0, |q| Some(answered(q, [0x83, 0x80], &[])));
        stand_in(rows[2].0, |q| Some(answered(q, [0x81, 0x80], &[record(5, &[0xc0, 12])])));
        for (address, made, reason, word) in rows {
            node.write("/etc/resolv.conf", &format!("nameserver {address}\noptions timeout:1 attempts:1\n"));
            let start = std::time::Instant::now();
            let checked = node.check();
            let condition = about(&checked, NAME);
            assert_eq!(condition.reason.as_str(), reason, "{made}:\n{}", checked.lines());
            let found = condition.message.contains(word) || condition.advice.contains(word);
            assert!(found, "{made}: {word:?} is missing in\n{}", checked.lines());
            let seen = format!("{} {} {}", condition.status, condition.severity, condition.reason);
            table.timed(made, format!("a stand-in at {address}"), seen, start.elapsed(), None);
        }
    });
}
