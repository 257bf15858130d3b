//! What ports show against what lies on disk, dates, the renewal window, and clocks that are wrong.

mod clock;
mod files;
mod hindered;
mod pair;
mod renewal;
mod reserve;
mod served;

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
            &[
                "127.0.0.1:2379",
                "First see that etcd tolerates a restart",
                "A restart of rke2-server renews it",
            ],
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
fn under_an_authority_that_has_ended_no_leaf_is_renewed_to_any_use() {
    for leaf_days in [-20, -1] {
        let c = certificates(NEW, leaf_days).with(|c| c.files[0].certificates = known(vec![authority(-10)]));
        let f = about(&judged(c), "etcd:2379");
        expect(
            &f,
            Status::False,
            Severity::Error,
            R::CertificateExpired,
            &["The authority behind", "No restart renews"],
        );
        assert!(!f.advice.contains("A restart of"), "{f:#?}");
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
    expect(&about(&judged(c), "ca"), Status::True, Severity::Ok, R::CertificatesInDate, &["9999-12-31"]);
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
        let promised = finding.advice.contains("A restart of rke2-server renews it:");
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
