//! What ports show against what lies on disk, dates, the renewal window, and clocks that are wrong.

use std::time::Duration;

use outrider_diagnosis::{Finding, Judgement, judge, latch};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::world::{
    self, Change, DAY, TLS, ago, ahead, authority, certificate_file, certificates, in_days, known, leaf,
    served, unknown,
};
use crate::{expect, rank};
use CertificateUse as Use;
use ReasonCode as R;

fn judged(c: CertificatesFacts) -> Judgement {
    judge(&world::node_facts(CheckFacts { certificates: Some(known(c)), ..CheckFacts::default() }))
}

fn about(j: &Judgement, subject: &str) -> Finding {
    j.findings.iter().find(|f| f.subject == subject).unwrap_or_else(|| panic!("{subject} in {j:#?}")).clone()
}

/// The etcd port of a node where both it and its file end in so many days.
fn etcd(version: &str, days: i64) -> Finding {
    about(&judged(certificates(version, days)), "etcd:2379")
}

const NEW: &str = "v1.33.1-rke2r1";
const OLD: &str = "v1.29.15-rke2r1";

#[test]
fn a_healthy_server_reads_few() {
    let j = judged(certificates(NEW, 265));
    let subjects: Vec<&str> = j.findings.iter().map(|f| f.subject.as_str()).collect();
    assert_eq!(subjects, ["ca", "etcd:2379", "files", "supervisor:9345"]);
    for finding in &j.findings {
        assert_eq!((finding.status, finding.severity), (Status::True, Severity::Ok), "{finding:#?}");
        assert!(finding.advice.is_empty(), "{finding:#?}");
    }
    expect(
        &about(&j, "files"),
        Status::True,
        Severity::Ok,
        R::CertificatesInDate,
        &["2 certificate files", "265 days"],
    );
}

#[test]
fn the_levels_by_their_days() {
    let severity = |days| etcd(NEW, days).severity;
    assert_eq!(severity(121), Severity::Ok);
    for (days, expected) in [
        (120, Severity::Info),
        (31, Severity::Info),
        (30, Severity::Warn),
        (8, Severity::Warn),
        (7, Severity::Error),
        (1, Severity::Error),
    ] {
        let finding = etcd(NEW, days);
        expect(
            &finding,
            Status::True,
            expected,
            R::CertificateEnding,
            &["127.0.0.1:2379", "A restart of rke2-server renews it"],
        );
    }
    for days in [0, -1, -400] {
        expect(
            &etcd(NEW, days),
            Status::False,
            Severity::Error,
            R::CertificateExpired,
            &["ended", "A restart"],
        );
    }
    // To the millisecond.
    let at = |end: Timestamp| {
        let mut c = certificates(NEW, 300);
        c.served[0].chain = known(vec![CertificateFacts { not_after: end, ..leaf("etcd", 0) }]);
        c.files.retain(|file| !file.path.ends_with("server-client.crt"));
        about(&judged(c), "etcd:2379").severity
    };
    let millis =
        |days: i64, ms: i64| Timestamp::from_millis(world::now().as_millis() + days * 86_400_000 + ms);
    assert_eq!((at(millis(120, 1)), at(millis(120, 0))), (Severity::Ok, Severity::Info));
    assert_eq!((at(millis(30, 1)), at(millis(30, 0))), (Severity::Info, Severity::Warn));
    assert_eq!((at(millis(7, 1)), at(millis(7, 0))), (Severity::Warn, Severity::Error));
}

#[test]
fn other_days_may_be_configured() {
    let mut facts = world::node_facts(CheckFacts {
        certificates: Some(known(certificates(NEW, 50))),
        ..CheckFacts::default()
    });
    facts.thresholds.certificate_days = [60, 40, 20];
    assert_eq!(about(&judge(&facts), "etcd:2379").severity, Severity::Info);
}

#[test]
fn a_restart_is_promised_only_inside_the_window_of_the_version() {
    for (version, days, words) in [
        (OLD, 90, "A restart of rke2-server renews it"),
        (OLD, 91, "A restart does not help yet"),
        ("v1.30.12-rke2r1", 91, "A restart does not help yet"),
        ("v1.30.13-rke2r1", 91, "A restart of rke2-server renews it"),
        ("v1.31.8-rke2r1", 100, "A restart does not help yet"),
        ("v1.31.9-rke2r1", 100, "A restart of rke2-server renews it"),
        ("v1.32.4-rke2r1", 120, "A restart does not help yet"),
        ("v1.32.5-rke2r1", 120, "A restart of rke2-server renews it"),
        ("v1.33.0-rke2r1", 120, "A restart does not help yet"),
        ("v1.33.1-rc1-rke2r1", 120, "A restart of rke2-server renews it"),
        ("v1.34.0-rke2r1", 120, "A restart of rke2-server renews it"),
        ("", 90, "every version renews at a start from 90 days"),
        ("", 91, "with an older one a restart does not help before"),
        ("odd", 120, "The version could not be read"),
    ] {
        let finding = etcd(version, days);
        assert!(finding.advice.contains(words), "{version} {days}: {}", finding.advice);
    }
    // When it helps is a date.
    let finding = etcd(OLD, 100);
    let from = world::in_days(10).to_string();
    assert!(finding.advice.contains(&from[..10]), "{} from {from}", finding.advice);
    // Outside every window, where the configured days inform that early.
    let mut facts = world::node_facts(CheckFacts {
        certificates: Some(known(certificates("", 200))),
        ..CheckFacts::default()
    });
    facts.thresholds.certificate_days = [300, 30, 7];
    let advice = about(&judge(&facts), "etcd:2379").advice;
    for day in [80, 110] {
        assert!(advice.contains(&world::in_days(day).to_string()[..10]), "{day}: {advice}");
    }
}

#[test]
fn served_is_not_what_lies_on_disk() {
    // Rotated, not restarted.
    let stale = |days| {
        certificates(NEW, 365).with(|c| {
            c.served[0] =
                served("etcd", 2379, &format!("{TLS}/etcd/server-client.crt"), vec![leaf("old", days)]);
        })
    };
    for (days, status, severity, reason) in [
        (200, Status::True, Severity::Warn, R::CertificateNotServed),
        (100, Status::True, Severity::Warn, R::CertificateNotServed),
        (3, Status::True, Severity::Error, R::CertificateEnding),
        (-3, Status::False, Severity::Error, R::CertificateExpired),
    ] {
        let finding = about(&judged(stale(days)), "etcd:2379");
        expect(&finding, status, severity, reason, &["Restart needed: the process holds the old one"]);
        assert!(!finding.advice.contains("does not help"), "{}", finding.advice);
    }
    // The other way round the file is the leftover.
    let newer = certificates(NEW, 3).with(|c| {
        c.served[0] = served("etcd", 2379, &format!("{TLS}/etcd/server-client.crt"), vec![leaf("new", 360)]);
    });
    let finding = about(&judged(newer), "etcd:2379");
    expect(&finding, Status::True, Severity::Info, R::CertificateLeftOver, &["possibly not used"]);
    // A file that cannot be read is told once, under files.
    let broken =
        certificates(NEW, 265).with(|c| c.files[1].certificates = unknown(UnknownCause::InvalidInput));
    let j = judged(broken);
    assert_eq!(about(&j, "etcd:2379").severity, Severity::Ok);
    expect(
        &about(&j, "files"),
        Status::False,
        Severity::Error,
        R::CertificateUnreadable,
        &["server-client.crt"],
    );
}

#[test]
fn one_look_at_a_renewal_under_way_is_no_news() {
    let facts = |c| world::node_facts(CheckFacts { certificates: Some(known(c)), ..CheckFacts::default() });
    let good = facts(certificates(NEW, 365));
    let latches = latch(&[], &judge(&good), good.now).latches;
    let stale = certificates(NEW, 365).with(|c| {
        c.served[0].chain = known(vec![leaf("old", 200)]);
    });
    let j = judge(&facts(stale));
    let shown = |latches: &[Latch], after: u64| {
        let latched = latch(latches, &j, world::now().after(Duration::from_secs(after)));
        let condition = latched.conditions.iter().find(|c| c.subject == "etcd:2379").unwrap().reason.clone();
        (condition, latched.latches)
    };
    let (reason, latches) = shown(&latches, 0);
    assert_eq!(reason, R::CertificatesInDate);
    assert_eq!(shown(&latches, 91).0, R::CertificateNotServed);
}

#[test]
fn another_clusters_certificate_and_names_that_do_not_fit() {
    let foreign = certificates(NEW, 265).with(|c| c.served[0].issuer = world::absent("server-ca.crt"));
    let finding = about(&judged(foreign), "etcd:2379");
    expect(
        &finding,
        Status::False,
        Severity::Error,
        R::CertificateWrong,
        &["did not sign", "another cluster", "sport = :2379"],
    );
    let names = |sans: &[&str]| {
        let sans: Vec<String> = sans.iter().map(|s| (*s).to_owned()).collect();
        let c = certificates(NEW, 265).with(|c| {
            let named = CertificateFacts { sans, ..leaf("etcd", 265) };
            c.served[0].chain = known(vec![named.clone()]);
            c.files[1].certificates = known(vec![named]);
        });
        about(&judged(c), "etcd:2379")
    };
    expect(
        &names(&["10.0.0.9"]),
        Status::False,
        Severity::Error,
        R::CertificateWrong,
        &["n1, 10.0.0.1", "10.0.0.9"],
    );
    expect(
        &names(&["127.0.0.1"]),
        Status::True,
        Severity::Warn,
        R::CertificateWrong,
        &["covers none of this node's"],
    );
    expect(&names(&[]), Status::False, Severity::Error, R::CertificateWrong, &["no name at all"]);
    assert_eq!(names(&["N1"]).severity, Severity::Ok);
    // A host name alone proves no address missing.
    let nameless = certificates(NEW, 265).with(|c| {
        c.node_names = vec!["n9".into()];
    });
    assert_eq!(about(&judged(nameless), "etcd:2379").severity, Severity::Ok);
}

#[test]
fn the_chain_ends_where_it_ends_first() {
    let through = |intermediate: i64, ca: i64| {
        certificates(NEW, 265).with(|c| {
            let leaf = CertificateFacts { issuer: "CN=middle".into(), ..leaf("etcd", 265) };
            let middle = CertificateFacts {
                subject: "CN=middle".into(),
                sha256: "m".into(),
                ..authority(intermediate)
            };
            let middle = CertificateFacts { issuer: "CN=rke2-server-ca".into(), ..middle };
            c.files[0].certificates = known(vec![authority(ca)]);
            c.files[1].certificates = known(vec![leaf.clone(), middle.clone()]);
            c.served[0].chain = known(vec![leaf, middle]);
        })
    };
    let finding = about(&judged(through(-1, 3000)), "etcd:2379");
    expect(
        &finding,
        Status::False,
        Severity::Error,
        R::CertificateExpired,
        &["An intermediate of", "CN=middle"],
    );
    let j = judged(through(1000, -5));
    expect(
        &about(&j, "etcd:2379"),
        Status::False,
        Severity::Error,
        R::CertificateExpired,
        &["The authority behind", "rotate-ca"],
    );
    expect(
        &about(&j, "ca"),
        Status::False,
        Severity::Error,
        R::CertificateAuthorityEnding,
        &["nothing it signed"],
    );
}

#[test]
fn the_authoritys_own_end_is_told_early() {
    let ca = |days| {
        let c = certificates(NEW, 20).with(|c| c.files[0].certificates = known(vec![authority(days)]));
        about(&judged(c), "ca")
    };
    assert_eq!(ca(361).severity, Severity::Ok);
    expect(
        &ca(360),
        Status::True,
        Severity::Info,
        R::CertificateAuthorityEnding,
        &["rke2 certificate rotate-ca"],
    );
    assert_eq!((ca(121).severity, ca(120).severity), (Severity::Info, Severity::Warn));
    expect(&ca(30), Status::True, Severity::Error, R::CertificateAuthorityEnding, &[]);
    expect(
        &ca(10),
        Status::True,
        Severity::Error,
        R::CertificateAuthorityEnding,
        &["ends before", "client-admin.crt"],
    );
    expect(&ca(0), Status::False, Severity::Error, R::CertificateAuthorityEnding, &[]);
    // An old root that is only kept to be trusted a while longer is none of it.
    let bundle = certificates(NEW, 265).with(|c| {
        let old = CertificateFacts {
            subject: "CN=old".into(),
            issuer: "CN=old".into(),
            sha256: "old".into(),
            ..authority(-100)
        };
        let new = CertificateFacts { issuer: "CN=rke2-server-ca".into(), ..authority(3000) };
        c.files[0].certificates = known(vec![new, old]);
    });
    assert_eq!(about(&judged(bundle), "ca").severity, Severity::Ok);
}

#[test]
fn files_are_told_together_the_first_end_first() {
    let c = certificates(NEW, 265).with(|c| {
        c.files[2].certificates = known(vec![leaf("admin", -2)]);
        c.files.push(certificate_file(&format!("{TLS}/client-x.crt"), Use::Server, vec![leaf("x", -1)]));
    });
    let finding = about(&judged(c), "files");
    expect(
        &finding,
        Status::False,
        Severity::Error,
        R::CertificateExpired,
        &["client-admin.crt", "The same holds for 1 more of 3 files", "client-x.crt"],
    );
    // What an agent fetches at every start needs no window.
    let agent = certificates(OLD, 265).with(|c| c.files[3].certificates = known(vec![leaf("kubelet", 110)]));
    let finding = about(&judged(agent), "files");
    expect(
        &finding,
        Status::True,
        Severity::Info,
        R::CertificateEnding,
        &["A restart of rke2-server renews it", "anew at every start"],
    );
    // What a component made for itself harms little.
    let made = certificates(NEW, 265).with(|c| {
        let path = format!("{TLS}/kube-scheduler/kube-scheduler.crt");
        c.files.push(certificate_file(&path, Use::SelfMade, vec![leaf("scheduler", -9)]));
    });
    let finding = about(&judged(made), "files");
    expect(
        &finding,
        Status::True,
        Severity::Warn,
        R::CertificateEnding,
        &["A restart alone does not renew it"],
    );
}

#[test]
fn a_file_that_the_last_start_left_alone_wakes_nobody() {
    let orphan = format!("{TLS}/client-kube-proxy.crt");
    let node = |started: u64, written: u64, days: i64| {
        certificates(NEW, 300).with(|c| {
            let mut file = certificate_file(&orphan, Use::Server, vec![leaf("kube-proxy", days)]);
            file.modified = Some(ago(written * DAY));
            c.files.push(file);
            let mut marker = certificate_file(
                &format!("{TLS}/client-ca.nochain.crt"),
                Use::Authority,
                vec![authority(3000)],
            );
            marker.modified = Some(ago(started * DAY));
            c.files.push(marker);
        })
    };
    for days in [-40, 3, 20] {
        let finding = about(&judged(node(1, 400, days)), "files");
        expect(
            &finding,
            Status::True,
            Severity::Info,
            R::CertificateLeftOver,
            &["client-kube-proxy.crt", "probably not used", "last start"],
        );
    }
    // That start lay outside its window: it may well be used.
    expect(
        &about(&judged(node(100, 400, 20)), "files"),
        Status::True,
        Severity::Warn,
        R::CertificateEnding,
        &["A restart"],
    );
    // A backup put back writes all files at once: no evidence.
    expect(
        &about(&judged(node(1, 1, -40)), "files"),
        Status::False,
        Severity::Error,
        R::CertificateExpired,
        &[],
    );
    // A service that fails at every start writes its marker too, and renews nothing.
    let failing = node(1, 400, -40).with(|c| c.served.retain(|served| served.name != "supervisor"));
    assert_eq!(about(&judged(failing), "files").reason, R::CertificateExpired);
    // A server that became an agent: its own files lie there, and the agent has started since.
    let agent = |written: u64| {
        node(300, 400, -40).with(|c| {
            let path = "/var/lib/rancher/rke2/agent/serving-kubelet.crt";
            let mut file = certificate_file(path, Use::Agent, vec![leaf("serving", 300)]);
            file.modified = Some(ago(written * DAY));
            c.files.push(file);
            c.served = vec![served("kubelet", 10250, path, vec![leaf("serving", 300)])];
        })
    };
    assert_eq!(about(&judged(agent(1)), "files").reason, R::CertificateLeftOver);
    assert_eq!(about(&judged(agent(300)), "files").reason, R::CertificateExpired);
    // What an agent fetches at every start and did not get is in use all the same.
    let unfetched = node(1, 400, 300).with(|c| {
        c.files[3].certificates = known(vec![leaf("kubelet", 3)]);
        c.files[3].modified = Some(ago(400 * DAY));
    });
    expect(
        &about(&judged(unfetched), "files"),
        Status::True,
        Severity::Error,
        R::CertificateEnding,
        &["client-kubelet.crt"],
    );
    // No start is known.
    let unknown_start = node(1, 400, -40).with(|c| c.files.retain(|file| !file.path.contains("nochain")));
    assert_eq!(about(&judged(unknown_start), "files").reason, R::CertificateExpired);
    // One that a port shows is used, whatever the dates say.
    let shown = node(1, 400, 3).with(|c| {
        c.served.push(served("kubelet", 10250, &orphan, vec![leaf("kube-proxy", 3)]));
    });
    assert_eq!(about(&judged(shown), "kubelet:10250").severity, Severity::Error);
}

#[test]
fn what_cannot_be_read_is_never_healthy() {
    for cause in [UnknownCause::TimedOut, UnknownCause::TlsFailed] {
        let c = certificates(NEW, 265).with(|c| c.served[0].chain = unknown(cause.clone()));
        expect(
            &about(&judged(c), "etcd:2379"),
            Status::Unknown,
            Severity::Warn,
            R::from(&cause),
            &["shows no certificate"],
        );
    }
    let closed = certificates(NEW, 265)
        .with(|c| c.served[0].chain = Fact::not_applicable("nobody listens", world::now()));
    let j = judged(closed);
    assert!(j.findings.iter().all(|f| f.subject != "etcd:2379"), "not this node's role");
    assert!(about(&j, "files").message.starts_with("3 certificate files"), "its file is judged all the same");
    let denied =
        certificates(NEW, 265).with(|c| c.files[2].certificates = unknown(UnknownCause::PermissionDenied));
    expect(
        &about(&judged(denied), "files"),
        Status::Unknown,
        Severity::Warn,
        R::PermissionDenied,
        &["client-admin.crt"],
    );
    let garbage =
        certificates(NEW, 265).with(|c| c.files[2].certificates = unknown(UnknownCause::InvalidInput));
    expect(
        &about(&judged(garbage), "files"),
        Status::False,
        Severity::Warn,
        R::CertificateUnreadable,
        &["holds no certificate"],
    );
    let untold = certificates(NEW, 265).with(|c| c.served[0].issuer = unknown(UnknownCause::InvalidInput));
    expect(
        &about(&judged(untold), "etcd:2379"),
        Status::Unknown,
        Severity::Warn,
        R::InvalidInput,
        &["Who signed"],
    );
}

#[test]
fn advice_is_true_for_the_distribution() {
    for (distribution, words) in [
        (Distribution::Kubeadm, "kubeadm certs renew all"),
        (Distribution::Rke1, "rke cert rotate"),
        (Distribution::K3s, "A restart of k3s renews it"),
    ] {
        let c = certificates("", 20).with(|c| c.distribution = distribution);
        let finding = about(&judged(c), "etcd:2379");
        expect(&finding, Status::True, Severity::Warn, R::CertificateEnding, &[words]);
    }
    let agent = certificates("", 20).with(|c| {
        (c.server, c.served) = (false, vec![]);
        c.files.retain(|file| file.usage == Use::Agent);
    });
    assert!(about(&judged(agent), "files").advice.contains("A restart of rke2-agent renews it"));
    let supervisor = about(&judged(certificates(OLD, 100)), "supervisor:9345");
    expect(
        &supervisor,
        Status::True,
        Severity::Info,
        R::CertificateEnding,
        &["Nothing to do", "renews it by itself"],
    );
    let late = about(&judged(certificates(NEW, 100)), "supervisor:9345");
    assert!(late.advice.contains("has not"), "{}", late.advice);
    // Another member's certificate lies on RKE1's nodes.
    let foreign = certificates("", 300).with(|c| {
        c.distribution = Distribution::Rke1;
        c.files.push(certificate_file(
            "/etc/kubernetes/ssl/kube-etcd-10-0-0-9.pem",
            Use::Foreign,
            vec![leaf("m9", -3)],
        ));
    });
    expect(
        &about(&judged(foreign), "files"),
        Status::True,
        Severity::Info,
        R::CertificateLeftOver,
        &["another node"],
    );
}

#[test]
fn a_clock_that_is_wrong_ends_no_certificate() {
    let with_clock = |days, clock: ClockFacts| {
        let checks = CheckFacts {
            certificates: Some(known(certificates(NEW, days))),
            clock: Some(known(clock)),
            ..CheckFacts::default()
        };
        about(&judge(&world::node_facts(checks)), "etcd:2379")
    };
    let offset = |ms| known(ClockOffset { offset_ms: ms, uncertainty_ms: 500, peer: "c.example".into() });
    let skewed = |days, ms| with_clock(days, world::clock().with(|c| c.coordinator = offset(ms)));
    let day = DAY as i64 * 1000;
    for days in [-2, 3, 100] {
        expect(
            &skewed(days, 10 * day),
            Status::Unknown,
            if days < 30 { Severity::Error } else { Severity::Warn },
            R::CertificateClockUnsure,
            &["By this clock", "ahead of that of c.example", "Correct the clock first"],
        );
    }
    // This clock is behind: what it calls good has ended.
    assert_eq!(skewed(200, -300 * day).reason, R::CertificateClockUnsure);
    // Both clocks call it good.
    assert_eq!(skewed(265, 10 * day).reason, R::CertificatesInDate);
    // An offset that is small, or may be the network, is none.
    assert_eq!(skewed(-2, 900).reason, R::CertificateExpired);
    let free = || {
        world::clock().with(|c| {
            c.kernel = known(KernelClock { synchronized: false, estimated_error_us: 0, maximum_error_us: 0 });
            c.coordinator = unknown(UnknownCause::Unreachable);
        })
    };
    expect(
        &with_clock(-2, free()),
        Status::Unknown,
        Severity::Error,
        R::CertificateClockUnsure,
        &["unsynchronised", "If it is right: A restart of rke2-server renews it"],
    );
    assert_eq!(with_clock(20, free()).reason, R::CertificateEnding, "some days are more than a clock drifts");
    let vouched = free().with(|c| c.coordinator = offset(3));
    assert_eq!(with_clock(-2, vouched).reason, R::CertificateExpired);
    // A clock at its beginning: files are younger than now.
    let c = certificates(NEW, 265).with(|c| {
        c.served[0].chain = known(vec![CertificateFacts { not_before: ahead(DAY), ..leaf("etcd", 265) }]);
        c.files[1] = certificate_file(
            &format!("{TLS}/etcd/server-client.crt"),
            Use::Server,
            c.served[0].chain.value().unwrap().clone(),
        );
    });
    expect(
        &about(&judged(c.clone()), "etcd:2379"),
        Status::False,
        Severity::Error,
        R::CertificateNotYetValid,
        &["clock"],
    );
    let c = c.with(|c| c.files[2].modified = Some(ahead(2 * DAY)));
    expect(
        &about(&judged(c), "etcd:2379"),
        Status::Unknown,
        Severity::Error,
        R::CertificateClockUnsure,
        &["ahead of this clock"],
    );
    // A clock that is behind makes an end only more certain.
    let c = certificates(NEW, -2).with(|c| {
        c.files[0].certificates = known(vec![authority(-1)]);
        c.files[2].modified = Some(ahead(2 * DAY));
    });
    let j = judged(c);
    assert_eq!(about(&j, "etcd:2379").reason, R::CertificateExpired);
    assert_eq!(about(&j, "ca").status, Status::False);
    assert_eq!(skewed(-2, -10 * day).reason, R::CertificateExpired);
}

#[test]
fn what_is_missing_or_was_not_read_is_not_healthy() {
    let gone = certificates(NEW, 265).with(|c| c.files[1].certificates = world::absent("file"));
    expect(
        &about(&judged(gone), "files"),
        Status::False,
        Severity::Warn,
        R::CertificateUnreadable,
        &["server-client.crt is missing"],
    );
    let many = certificates(NEW, 265).with(|c| c.files_left_out = 7);
    expect(
        &about(&judged(many), "files"),
        Status::Unknown,
        Severity::Warn,
        R::InvalidInput,
        &["7 further certificate files were not read", "Move copies"],
    );
    let large = certificates(NEW, 265).with(|c| c.files[2].certificates = unknown(UnknownCause::Unsupported));
    let large = about(&judged(large), "files");
    assert_eq!((large.status, large.severity), (Status::Unknown, Severity::Warn), "{large:#?}");
}

#[test]
fn an_authority_that_has_ended_is_not_cross_signed() {
    for distribution in Distribution::ALL {
        let ca = |days| {
            let c = certificates(NEW, 20).with(|c| {
                c.distribution = distribution.clone();
                c.files[0].certificates = known(vec![authority(days)]);
            });
            about(&judged(c), "ca").advice
        };
        assert!(ca(5).contains("while it is still valid"), "{}", ca(5));
        let ended = ca(-5);
        assert!(!ended.contains("still valid") && ended.contains("brought to every node"), "{ended}");
    }
}

#[test]
fn a_port_that_shows_nothing_is_told_by_how_it_failed() {
    let advice = |cause: UnknownCause, detail: &str| {
        let chain = Fact::unknown(cause, detail, "127.0.0.1:2379", world::now());
        let finding = about(&judged(certificates(NEW, 265).with(|c| c.served[0].chain = chain)), "etcd:2379");
        assert_eq!(finding.status, Status::Unknown);
        assert!(!finding.message.contains("?."), "{}", finding.message);
        finding.advice
    };
    for (cause, detail, words) in [
        (UnknownCause::TimedOut, "no answer within 3 s", "does not answer"),
        (UnknownCause::Unreachable, "it closes at once", "closes at once"),
        (UnknownCause::TlsFailed, "the peer does not speak TLS on this port", "another program has the port"),
        (UnknownCause::Unsupported, "a P-521 key", "Look by hand"),
        (UnknownCause::TlsFailed, "another key?", "a key that does not belong"),
    ] {
        let advice = advice(cause, detail);
        assert!(advice.contains(words), "{detail}: {advice}");
        assert_eq!(advice.contains("a key that does not belong"), detail == "another key?", "{advice}");
    }
}

#[test]
fn dates_at_the_edges_of_the_calendar() {
    let at = |text: &str| {
        let end: Timestamp = text.parse().unwrap();
        let c = certificates(NEW, 265).with(|c| {
            let odd =
                CertificateFacts { not_after: end, not_before: Timestamp::default(), ..leaf("etcd", 0) };
            c.files[0].certificates = known(vec![authority(300_000)]);
            c.served[0].chain = known(vec![odd.clone()]);
            c.files[1].certificates = known(vec![odd]);
        });
        about(&judged(c), "etcd:2379")
    };
    expect(
        &at("1970-01-01T00:00:00Z"),
        Status::False,
        Severity::Error,
        R::CertificateExpired,
        &["1970-01-01 00:00 UTC"],
    );
    expect(&at("2050-01-01T00:00:00Z"), Status::True, Severity::Ok, R::CertificatesInDate, &["2050-01-01"]);
    let c = certificates(NEW, 265).with(|c| {
        let odd = CertificateFacts { not_after: Timestamp::from_millis(i64::MAX), ..authority(0) };
        c.files[0].certificates = known(vec![odd]);
    });
    expect(&about(&judged(c), "ca"), Status::True, Severity::Ok, R::CertificatesInDate, &["9999-12-30"]);
}

#[test]
fn the_agents_own_certificate_is_another_check() {
    let facts = world::server(3);
    let latched = latch(&[], &judge(&facts), facts.now);
    let mut blind = facts.clone();
    blind.latches = latched.latches;
    blind.checks.certificates = Some(Fact::not_applicable("no certificates", facts.now));
    let after = latch(&blind.latches, &judge(&blind), blind.now);
    let left: Vec<&str> = after
        .conditions
        .iter()
        .filter(|c| c.condition_type == ConditionType::CertificatesValid)
        .map(|c| c.subject.as_str())
        .collect();
    assert_eq!(left, [AGENT_CERTIFICATE]);
}

proptest! {
    #![proptest_config(crate::properties())]

    /// Closer to the end is never less severe, whoever shows it, whatever the version.
    #[test]
    fn nearer_the_end_is_never_less_grave(
        near in -800i64..4000,
        more in 0i64..800,
        version in prop::sample::select(vec!["", NEW, OLD]),
        distribution in prop::sample::select(Distribution::ALL),
    ) {
        let of = |days| judged(certificates(version, days).with(|c| c.distribution = distribution.clone()));
        let (nearer, farther) = (of(near), of(near + more));
        for subject in ["etcd:2379", "files", "supervisor:9345"] {
            prop_assert!(rank(&about(&nearer, subject)) >= rank(&about(&farther, subject)), "{subject} {near} +{more}");
        }
        let ca = |days| about(&judged(certificates(version, 265).with(|c| c.files[0].certificates = known(vec![authority(days)]))), "ca");
        prop_assert!(rank(&ca(near)) >= rank(&ca(near + more)));
    }

    /// A restart is promised exactly inside the window.
    #[test]
    fn a_promise_is_kept(days in 1i64..120, minor in 20u32..40, patch in 0u32..20) {
        let wide = matches!((minor, patch), (30, 13..) | (31, 9..) | (32, 5..) | (33, 1..) | (34.., _));
        let finding = etcd(&format!("v1.{minor}.{patch}-rke2r1"), days);
        let promised = finding.advice.starts_with("A restart of rke2-server renews it");
        prop_assert_eq!(promised, days <= if wide { 120 } else { 90 }, "{}", finding.advice);
    }

    /// An ended certificate is never called good, by whatever path it comes.
    #[test]
    fn an_ended_certificate_is_never_healthy(leaf_days in -400i64..400, ca_days in -400i64..4000) {
        let c = certificates(NEW, leaf_days).with(|c| c.files[0].certificates = known(vec![authority(ca_days)]));
        let finding = about(&judged(c), "etcd:2379");
        prop_assert_eq!(finding.status == Status::False, leaf_days <= 0 || ca_days <= 0);
        prop_assert_eq!(finding.severity == Severity::Ok, leaf_days.min(ca_days) > 120);
    }
}

#[test]
fn ends_are_days_from_now() {
    assert!(in_days(1) > world::now() && in_days(-1) < world::now());
}
