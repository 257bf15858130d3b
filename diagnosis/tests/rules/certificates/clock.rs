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
        &["unsynchronised", "If it is right: First see that etcd tolerates it"],
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
