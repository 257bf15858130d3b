//! What ports show: dates, names, another cluster's, and what is not the file.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use outrider_protocol::{Severity, Status};
use outrider_tests::beds::pki::{Authority, DAY};
use outrider_tests::table::Table;

use crate::node::{NAMES, Node, about, agent, is, on_a_machine_of_its_own, said, tls};

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn real_expired_and_swapped_certificates() {
    on_a_machine_of_its_own(|| {
        let mut table =
            Table::new("certificates of an RKE2 server: etcd, and openssl s_server for the other ports");
        let mut node = Node::start();
        let well = node.check();
        let subjects: Vec<&str> = well.document.conditions.iter().map(|c| c.subject.as_str()).collect();
        assert_eq!(
            subjects,
            [
                "ca",
                "etcd-peer:2380",
                "etcd:2379",
                "files",
                "kube-apiserver:6443",
                "kubelet:10250",
                "supervisor:9345"
            ],
            "{}",
            well.lines()
        );
        assert_eq!(well.code, 0, "{}", well.lines());
        table.row("none", "all good for 299 days", said(about(&well, "etcd:2379")));

        // etcd ends under our eyes: a certificate of eight seconds, which it takes at the next handshake.
        let end = Instant::now() + Duration::from_secs(8);
        node.put("etcd/server-client", &node.etcd_ca, 8);
        let soon = node.check();
        let soon = about(&soon, "etcd:2379");
        assert_eq!((soon.status, soon.severity), (Status::True, Severity::Error), "{soon:?}");
        let (_, ended) = node.until("etcd's has ended", |c| is(c, "etcd:2379", "CertificateExpired"));
        let raised = Instant::now().saturating_duration_since(end);
        let condition = about(&ended, "etcd:2379");
        assert_eq!((condition.status, ended.code), (Status::False, 2), "{}", ended.lines());
        assert!(condition.advice.contains("A restart of rke2-server renews it"), "{condition:?}");
        node.put("etcd/server-client", &node.etcd_ca, 300 * DAY);
        let cleared = node.until_well();
        table.timed(
            "etcd's certificate ends",
            "one of 8 s put in place (etcd reads at each handshake)",
            said(condition),
            raised,
            Some(cleared),
        );

        // Rotated on disk and not restarted.
        node.kubelet(365 * DAY).write(&agent("serving-kubelet.crt"), &agent("serving-kubelet.key")).unwrap();
        let (raised, stale) =
            node.until("the kubelet holds the old one", |c| is(c, "kubelet:10250", "CertificateNotServed"));
        let condition = about(&stale, "kubelet:10250");
        assert_eq!(
            (condition.status, condition.severity, stale.code),
            (Status::True, Severity::Warn, 1),
            "{condition:?}"
        );
        assert!(condition.advice.contains("Restart needed: the process holds the old one"), "{condition:?}");
        node.stand_in(10250, &agent("serving-kubelet"), &[]);
        let cleared = node.until_well();
        table.timed(
            "renewed on disk, not restarted",
            "new files beside a running s_server; then restarted",
            said(condition),
            raised,
            Some(cleared),
        );

        // The same when the old one has ended meanwhile: the worst day of D15.
        node.kubelet(-3 * DAY).write(&agent("serving-kubelet.crt"), &agent("serving-kubelet.key")).unwrap();
        node.stand_in(10250, &agent("serving-kubelet"), &[]);
        node.kubelet(365 * DAY).write(&agent("serving-kubelet.crt"), &agent("serving-kubelet.key")).unwrap();
        let (raised, dead) =
            node.until("it serves an ended one", |c| is(c, "kubelet:10250", "CertificateExpired"));
        let condition = about(&dead, "kubelet:10250");
        assert!(condition.advice.contains("Restart needed: the process holds the old one"), "{condition:?}");
        node.stand_in(10250, &agent("serving-kubelet"), &[]);
        let cleared = node.until_well();
        table.timed(
            "the process serves an ended one, the file is good",
            "s_server started with it, file renewed",
            said(condition),
            raised,
            Some(cleared),
        );

        // Another cluster's, under the same names.
        let other = Authority::new("etcd-server-ca@1", 3000 * DAY).unwrap();
        node.put("etcd/server-client", &other, 300 * DAY);
        let (raised, wrong) = node.until("another cluster's", |c| is(c, "etcd:2379", "CertificateWrong"));
        let condition = about(&wrong, "etcd:2379");
        assert_eq!((condition.status, condition.severity), (Status::False, Severity::Error), "{condition:?}");
        node.put("etcd/server-client", &node.etcd_ca, 300 * DAY);
        let cleared = node.until_well();
        table.timed(
            "certificate of another cluster",
            "etcd given one of another CA of the same name",
            said(condition),
            raised,
            Some(cleared),
        );

        // A key that is not its own.
        let key = fs::read(tls("etcd/server-client.key")).unwrap();
        fs::copy(tls("client-admin.key"), tls("etcd/server-client.key")).unwrap();
        let (raised, broken) =
            node.until("the handshake ends", |c| is(c, "etcd:2379", "CertificateKeyMismatch"));
        let condition = about(&broken, "etcd:2379");
        assert_eq!((condition.status, broken.code != 0), (Status::False, true), "{}", broken.lines());
        fs::write(tls("etcd/server-client.key"), key).unwrap();
        let cleared = node.until_well();
        table.timed(
            "key beside it does not match",
            "another key copied over etcd's",
            said(condition),
            raised,
            Some(cleared),
        );

        for (fault, made, from, end, names, reason, status) in [
            (
                "not valid yet",
                "begins in two days",
                2 * DAY,
                300 * DAY,
                NAMES.as_slice(),
                "CertificateNotYetValid",
                Status::False,
            ),
            (
                "names of another node",
                "only for 10.9.8.6",
                -DAY,
                300 * DAY,
                ["10.9.8.6"].as_slice(),
                "CertificateWrong",
                Status::False,
            ),
            (
                "ends in 25 days",
                "25 days left",
                -DAY,
                25 * DAY,
                NAMES.as_slice(),
                "CertificateEnding",
                Status::True,
            ),
            (
                "ends in 100 days",
                "100 days left",
                -DAY,
                100 * DAY,
                NAMES.as_slice(),
                "CertificateEnding",
                Status::True,
            ),
            (
                "an authority that ends before its leaf, which has no end",
                "until 9999-12-31",
                -DAY,
                i64::MAX,
                NAMES.as_slice(),
                "CertificatesInDate",
                Status::True,
            ),
            (
                "ended in 1970",
                "until 1970-01-01 00:16",
                -21_000 * DAY,
                i64::MIN,
                NAMES.as_slice(),
                "CertificateExpired",
                Status::False,
            ),
        ] {
            let pair = node.folder.path().join("odd");
            let end = match end {
                i64::MIN => 1000 - unix_now(),
                // 9999-12-31T23:59:59Z, which says that there is no end (RFC 5280).
                i64::MAX => 253_402_300_799 - unix_now(),
                end => end,
            };
            let odd = node.server_ca.issue("kube-apiserver", names, from, end).unwrap();
            odd.write(&pair.with_extension("crt"), &pair.with_extension("key")).unwrap();
            for half in ["crt", "key"] {
                fs::copy(pair.with_extension(half), tls(&format!("serving-kube-apiserver.{half}"))).unwrap();
            }
            node.stand_in(6443, &pair, &[]);
            let (raised, odd) = node.until(fault, |c| is(c, "kube-apiserver:6443", reason));
            let condition = about(&odd, "kube-apiserver:6443");
            assert_eq!(condition.status, status, "{}", odd.lines());
            node.put("serving-kube-apiserver", &node.server_ca, 300 * DAY);
            node.stand_in(6443, &tls("serving-kube-apiserver"), &[]);
            let cleared = node.until_well();
            table.timed(fault, format!("s_server on 6443, {made}"), said(condition), raised, Some(cleared));
        }

        // An intermediate that has ended, sent along.
        let middle = node.server_ca.intermediate("middle", -DAY).unwrap();
        let pair = node.folder.path().join("chained");
        let leaf = middle.issue("kube-apiserver", &NAMES, -DAY, 300 * DAY).unwrap();
        leaf.write(&pair.with_extension("crt"), &pair.with_extension("key")).unwrap();
        let chain = pair.with_extension("chain");
        fs::write(&chain, middle.pem()).unwrap();
        fs::write(tls("serving-kube-apiserver.crt"), leaf.certificate.clone() + &middle.pem()).unwrap();
        fs::copy(pair.with_extension("key"), tls("serving-kube-apiserver.key")).unwrap();
        node.stand_in(6443, &pair, &["-cert_chain", chain.to_str().unwrap()]);
        let (raised, odd) =
            node.until("the intermediate", |c| is(c, "kube-apiserver:6443", "CertificateExpired"));
        let condition = about(&odd, "kube-apiserver:6443");
        assert!(condition.message.contains("intermediate"), "{condition:?}");
        node.put("serving-kube-apiserver", &node.server_ca, 300 * DAY);
        node.stand_in(6443, &tls("serving-kube-apiserver"), &[]);
        let cleared = node.until_well();
        table.timed(
            "an intermediate has ended",
            "s_server -cert_chain",
            said(condition),
            raised,
            Some(cleared),
        );
    });
}

fn unix_now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
}
