//! Files that are not what they should be, and ports that are not.

use std::fs::{self, File};
use std::net::TcpListener;
use std::time::{Duration, Instant, SystemTime};

use outrider_protocol::{Severity, Status};
use outrider_tests::beds::pki::{Authority, DAY};
use outrider_tests::table::Table;

use crate::node::{NAMES, Node, about, is, on_a_machine_of_its_own, said, tls};

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn bad_files_and_bad_ports_are_named_within_the_limit() {
    on_a_machine_of_its_own(|| {
        let mut table = Table::new("certificate files and ports that are not what they should be");
        let mut node = Node::start();
        node.until_well();
        let admin = tls("client-admin.crt");
        let good = fs::read(&admin).unwrap();
        let der = node.server_ca.issue("admin", &NAMES, -DAY, 300 * DAY).unwrap().der;
        let cut = good[..good.len() / 2].to_vec();
        for (fault, bytes) in [
            ("an empty file", Vec::new()),
            ("garbage", b"\x00\xffnot a certificate".to_vec()),
            ("a certificate in DER", der),
            ("a certificate cut in two", cut),
            ("a key instead", fs::read(tls("client-admin.key")).unwrap()),
        ] {
            fs::write(&admin, bytes).unwrap();
            let (raised, bad) = node.until(fault, |c| is(c, "files", "CertificateUnreadable"));
            let condition = about(&bad, "files");
            assert!(condition.message.contains("client-admin.crt"), "{condition:?}");
            assert!(!bad.lines().contains("PRIVATE KEY"), "nothing of a file is shown");
            fs::write(&admin, &good).unwrap();
            let cleared = node.until_well();
            table.timed(fault, "written over client-admin.crt", said(condition), raised, Some(cleared));
        }
        fs::remove_file(&admin).unwrap();
        fs::create_dir(&admin).unwrap();
        let (raised, bad) = node.until("a folder", |c| is(c, "files", "CertificateUnreadable"));
        table.timed(
            "a folder of that name",
            "mkdir client-admin.crt",
            said(about(&bad, "files")),
            raised,
            None,
        );
        fs::remove_dir(&admin).unwrap();
        fs::write(&admin, &good).unwrap();

        // A bundle is fine; what stands first counts.
        fs::write(&admin, [good.clone(), node.server_ca.pem().into_bytes()].concat()).unwrap();
        node.until_well();

        // Ports: one that hangs, one without TLS, one that is closed.
        node.close(9345);
        let hanging = TcpListener::bind("127.0.0.1:9345").unwrap();
        let start = Instant::now();
        let hangs = node.check();
        let took = start.elapsed();
        let condition = about(&hangs, "supervisor:9345");
        assert_eq!(
            (condition.status, condition.reason.as_str()),
            (Status::Unknown, "TimedOut"),
            "{}",
            hangs.lines()
        );
        assert_eq!(about(&hangs, "etcd:2379").severity, Severity::Ok, "one port holds up no other");
        assert!(took < Duration::from_secs(20), "{took:?}");
        table.timed("a port that hangs", "listens, never answers", said(condition), took, None);
        drop(hanging);
        let start = Instant::now();
        let closed = node.check();
        assert_eq!(closed.code, 0, "{}", closed.lines());
        assert!(
            closed.document.conditions.iter().all(|c| c.subject != "supervisor:9345"),
            "{}",
            closed.lines()
        );
        table.timed("a port nobody listens on", "closed", "no condition, exit code 0", start.elapsed(), None);
        let plain = TcpListener::bind("127.0.0.1:9345").unwrap();
        let server = std::thread::spawn(move || {
            use std::io::Write;
            let (mut stream, _) = plain.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            std::thread::sleep(Duration::from_millis(300));
        });
        let start = Instant::now();
        let plain = node.check();
        let condition = about(&plain, "supervisor:9345");
        assert_eq!(
            (condition.status, condition.reason.as_str()),
            (Status::Unknown, "TlsFailed"),
            "{}",
            plain.lines()
        );
        table.timed("a port without TLS", "answers in plain HTTP", said(condition), start.elapsed(), None);
        server.join().unwrap();
        node.start_supervisor(300 * DAY);
        node.until_well();

        // What the last start left alone although it was due is no longer used (D16).
        let orphan = tls("client-kube-proxy.crt");
        node.put("client-kube-proxy", &node.server_ca, -20 * DAY);
        let (raised, expired) = node.until("an ended file", |c| is(c, "files", "CertificateExpired"));
        table.timed(
            "a file without a port has ended",
            "client-kube-proxy.crt, just written",
            said(about(&expired, "files")),
            raised,
            None,
        );
        let written = SystemTime::now() - Duration::from_secs(400 * DAY as u64);
        File::options().write(true).open(&orphan).unwrap().set_modified(written).unwrap();
        fs::write(tls("client-ca.nochain.crt"), node.server_ca.pem()).unwrap();
        let (raised, left) = node.until("a leftover", |c| is(c, "files", "CertificateLeftOver"));
        let condition = about(&left, "files");
        assert_eq!(
            (condition.status, condition.severity, left.code),
            (Status::True, Severity::Info, 0),
            "{}",
            left.lines()
        );
        fs::remove_file(&orphan).unwrap();
        let cleared = node.until_well();
        table.timed(
            "a leftover file",
            "400 days old; the service has started since",
            said(condition),
            raised,
            Some(cleared),
        );

        // The authority itself, and what outlives it.
        let ca = fs::read(tls("server-ca.crt")).unwrap();
        for (days, severity) in [(100, Severity::Warn), (10, Severity::Error)] {
            let ending = Authority::new("rke2-request-header-ca@1", days * DAY).unwrap();
            fs::write(tls("request-header-ca.crt"), ending.pem()).unwrap();
            let checked = node.check();
            let condition = about(&checked, "ca");
            assert_eq!(
                (condition.severity, condition.reason.as_str()),
                (severity, "CertificateAuthorityEnding"),
                "{condition:?}"
            );
            assert!(condition.advice.contains("rke2 certificate rotate-ca"), "{condition:?}");
            table.row(format!("an authority ends in {days} days"), "request-header-ca.crt", said(condition));
        }
        fs::remove_file(tls("request-header-ca.crt")).unwrap();
        fs::write(tls("server-ca.crt"), b"nothing").unwrap();
        let checked = node.check();
        assert_eq!(about(&checked, "kube-apiserver:6443").status, Status::Unknown, "{}", checked.lines());
        assert!(is(&checked, "files", "CertificateUnreadable") && checked.code == 2, "{}", checked.lines());
        table.row(
            "the authority's file is broken",
            "server-ca.crt overwritten",
            said(about(&checked, "kube-apiserver:6443")),
        );
        fs::write(tls("server-ca.crt"), ca).unwrap();
        node.until_well();
    });
}
