//! Clocks that are wrong.

use super::*;

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
        &["unsynchronised", "If it is right: First see that etcd tolerates a restart"],
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
fn files_of_the_future_make_the_clock_itself_a_fault() {
    let node = |days: u64, coordinator: Fact<ClockOffset>, begins: bool| {
        let c = certificates(NEW, 265).with(|c| {
            c.files[2].modified = Some(ahead(days * DAY));
            if begins {
                c.served[0].chain =
                    known(vec![CertificateFacts { not_before: ahead(days * DAY), ..leaf("etcd", 265) }]);
            }
        });
        let clock = world::clock().with(|c| c.coordinator = coordinator);
        let checks =
            CheckFacts { certificates: Some(known(c)), clock: Some(known(clock)), ..CheckFacts::default() };
        crate::only(&judge(&world::node_facts(checks)), ConditionType::ClockSynchronized)
    };
    let nobody = || Fact::not_applicable("no coordinator", world::now());
    let words = [
        "client-admin.crt was written 300 days ahead of this clock",
        "the kernel calls it synchronised",
        "date -u",
    ];
    expect(&node(300, nobody(), false), Status::False, Severity::Warn, R::ClockSkewed, &words);
    expect(&node(300, nobody(), true), Status::False, Severity::Error, R::ClockSkewed, &words);
    assert_eq!(node(0, nobody(), false).reason, R::ClockInSync);
    // Another clock vouches for this one: the date of the file is what is wrong.
    let agrees = known(ClockOffset { offset_ms: 3, uncertainty_ms: 500, peer: "c.example".into() });
    assert_eq!(node(300, agrees, false).reason, R::ClockInSync);
}

#[test]
fn an_end_by_a_clock_of_which_nothing_is_known_is_told_with_that() {
    let with = |clock: Option<Fact<ClockFacts>>| {
        let checks =
            CheckFacts { certificates: Some(known(certificates(NEW, -3))), clock, ..CheckFacts::default() };
        about(&judge(&world::node_facts(checks)), "etcd:2379")
    };
    let words = "Before that, compare this clock with another (date -u)";
    for clock in [None, Some(unknown(UnknownCause::TimedOut))] {
        let f = with(clock);
        assert_eq!(f.reason, R::CertificateExpired);
        assert!(
            f.advice.ends_with("whether anybody keeps this clock is not known.") && f.advice.contains(words),
            "{f:#?}"
        );
    }
    assert!(!with(Some(known(world::clock()))).advice.contains(words));
}

/// `facts` of a server with an etcd that has no leader, and a clock that nobody keeps or one that is kept.
fn leaderless(c: CertificatesFacts, kept: bool) -> NodeFacts {
    let clock = world::clock().with(|c| {
        c.kernel = known(KernelClock { synchronized: kept, estimated_error_us: 0, maximum_error_us: 0 });
        c.coordinator = unknown(UnknownCause::Unreachable);
    });
    let etcd = world::etcd_from(1, 3).with(|e| (1..=3).for_each(|n| world::orphan(e, n)));
    world::node_facts(CheckFacts {
        certificates: Some(known(c)),
        etcd: Some(known(etcd)),
        clock: Some(known(clock)),
        ..CheckFacts::default()
    })
}

#[test]
fn where_the_clock_may_be_right_its_end_of_a_certificate_may_be_why_there_is_no_quorum() {
    let peer = format!("{TLS}/etcd/peer-server-client.crt");
    for port in ["etcd", "etcd-peer"] {
        for kept in [false, true] {
            let c = certificates(NEW, 20).with(|c| {
                let days = |name| if name == port { -2 } else { 265 };
                c.served[0].chain = known(vec![leaf("etcd", days("etcd"))]);
                c.served.push(served("etcd-peer", 2380, &peer, vec![leaf("peer", days("etcd-peer"))]));
            });
            let j = judge(&leaderless(c, kept));
            let unsure = if kept { "" } else { "if this clock is right, " };
            let subject = if port == "etcd" { "etcd:2379" } else { "etcd-peer:2380" };
            let ended = about(&j, subject);
            let reason = if kept { R::CertificateExpired } else { R::CertificateClockUnsure };
            assert_eq!(ended.reason, reason, "{ended:#?}");
            // Of that port and of one that ends soon, for one start renews them both.
            for f in [&ended, &about(&j, "supervisor:9345")] {
                let why = format!("n1 is not in it: {unsure}the certificate of {port} at 127.0.0.1:");
                assert!(f.advice.contains(&why), "{f:#?}");
                assert!(
                    f.advice.contains("joins no quorum before the restart of exactly this server"),
                    "{f:#?}"
                );
                assert!(!f.advice.contains("Quorum first"), "{f:#?}");
            }
            for of in [ConditionType::EtcdQuorum, ConditionType::EtcdMemberHealthy] {
                let f = crate::only(&j, of);
                let words = if kept {
                    format!("The certificate of {port} at")
                } else {
                    format!("If this clock is right, the certificate of {port} at")
                };
                assert!(f.advice.contains(&words) && f.advice.contains("exactly n1's server"), "{f:#?}");
            }
        }
    }
    // All that ended, behind TLS that nobody gets past: no advice leads in a circle here either.
    let mut facts = leaderless(certificates(NEW, -2), false);
    if let Some(Fact::Known { value: e, .. }) = &mut facts.checks.etcd {
        e.members = unknown(UnknownCause::TlsFailed);
        e.endpoints.iter_mut().for_each(|e| e.status = unknown(UnknownCause::TlsFailed));
    }
    let f = about(&judge(&facts), "etcd:2379");
    assert!(f.advice.contains("If it is right: A restart of rke2-server renews it"), "{f:#?}");
    assert!(
        f.advice.contains("If this clock is right, the certificate of etcd")
            && f.advice.contains("needs no member list"),
        "{f:#?}"
    );
    // A clock that is known to be wrong makes nothing the cause, and nothing is called no cause.
    let mut facts = leaderless(certificates(NEW, -2), true);
    if let Some(Fact::Known { value: clock, .. }) = &mut facts.checks.clock {
        let offset_ms = 10 * DAY as i64 * 1000;
        clock.coordinator = known(ClockOffset { offset_ms, uncertainty_ms: 500, peer: "c.example".into() });
    }
    let j = judge(&facts);
    assert!(about(&j, "etcd:2379").advice.starts_with("Correct the clock first"), "{j:#?}");
    assert!(!crate::only(&j, ConditionType::EtcdQuorum).advice.contains("certificate"), "{j:#?}");
}
