//! Case TC07: alarms, sizes and the cure that helps.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::etcd_verdict::etcd_node;
use crate::world::{self, Change, etcd, known, list_mut, status_mut, unknown};
use crate::{expect, only};

const QUOTA: i64 = 2_147_483_648;

fn space(e: EtcdFacts) -> Finding {
    only(&judge(&etcd_node(e)), ConditionType::EtcdSpace)
}

/// Every member with these numbers, and alarms of `kind` on the members of `on`.
fn sized(size: i64, in_use: i64, quota: i64, kind: &str, on: &[usize]) -> EtcdFacts {
    etcd(3).with(|e| {
        for n in 1..=3 {
            let s = status_mut(e, n);
            (s.db_size_bytes, s.db_in_use_bytes, s.quota_bytes) = (size, in_use, quota);
        }
        let alarm = |n: &usize| AlarmFacts { member_id: world::member(*n).id, kind: kind.into() };
        e.alarms = known(on.iter().map(alarm).collect());
    })
}

#[test]
fn tc07_1_full_of_live_data() {
    let f = space(sized(QUOTA, 2_147_475_456, QUOTA, "NOSPACE", &[2]));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &[
            "n2",
            "1 of 3 members",
            "whole cluster",
            "health checks may pass",
            "8192 bytes",
            "8.2 kB",
            "2147475456",
            "removes objects and compacts, or raises the quota; then defragments",
            "then clears the alarm, in this order",
            "Do not restart",
        ],
    );
    // A file at its quota sets the alarm anew, whoever it is set on now.
    assert!(f.advice.contains("defragments n2, and n1, n3 as well"), "{f:#?}");
    // The same with a quota other than the default, on another member, with less in use but above the limit.
    let f = space(sized(8_000_000_000, 6_600_000_000, 8_000_000_000, "NOSPACE", &[1, 3]));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["n1, n3", "82 %", "defragmentation alone does not help"],
    );
}

#[test]
fn tc07_2_full_of_holes() {
    let f = space(sized(QUOTA, 310_000_000, QUOTA, "NOSPACE", &[1]));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["1.8 GB", "defragments one member after the other", "then clears the alarm", "Do not restart"],
    );
    assert!(!f.advice.contains("raises the quota"), "{}", f.advice);
}

#[test]
fn tc07_3_nearly_used_up() {
    let f = space(sized(1_900_000_000, 1_850_000_000, QUOTA, "", &[]));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdSpaceLow,
        &["86 %", "Defragmentation will not help"],
    );
    // One full member of three is enough; which one is said.
    let e = etcd(3).with(|e| {
        let s = status_mut(e, 3);
        (s.db_size_bytes, s.db_in_use_bytes) = (1_800_000_000, 1_750_000_000);
    });
    expect(&space(e), Status::True, Severity::Warn, ReasonCode::EtcdSpaceLow, &["n3", "81 %"]);
}

#[test]
fn tc07_4_a_quota_of_zero_is_the_default() {
    let f = space(sized(400_000_000, 395_000_000, 0, "", &[]));
    expect(&f, Status::True, Severity::Ok, ReasonCode::EtcdSpaceFree, &["2147483648", "the default", "18 %"]);
    expect(
        &space(sized(1_900_000_000, 1_850_000_000, 0, "", &[])),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdSpaceLow,
        &["86 %"],
    );
}

#[test]
fn a_database_larger_than_the_default_has_another_quota() {
    let f = space(sized(5_000_000_000, 4_900_000_000, 0, "", &[]));
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::EtcdQuotaUnknown, &["5000000000"]);
    // With the alarm set, there is no doubt.
    let f = space(sized(5_000_000_000, 4_900_000_000, 0, "NOSPACE", &[1]));
    assert_eq!((f.status, f.reason), (Status::False, ReasonCode::EtcdNoSpace));
}

#[test]
fn an_alarm_left_over_is_told_from_one_that_holds() {
    for (size, in_use) in [(400_000_000, 395_000_000), (1_000_000_000, 100_000_000)] {
        let f = space(sized(size, in_use, QUOTA, "NOSPACE", &[3]));
        expect(
            &f,
            Status::False,
            Severity::Error,
            ReasonCode::EtcdAlarmLeftOver,
            &["still set on n3", "space is back"],
        );
    }
    // One member is still full: space is not back, wherever the alarm is.
    let e = sized(400_000_000, 395_000_000, QUOTA, "NOSPACE", &[3]).with(|e| {
        let s = status_mut(e, 1);
        (s.db_size_bytes, s.db_in_use_bytes) = (QUOTA, QUOTA - 8192);
    });
    assert_eq!(space(e).reason, ReasonCode::EtcdNoSpace);
    // The alarmed member does not tell its size.
    let e = sized(400_000_000, 395_000_000, QUOTA, "NOSPACE", &[3]).with(|e| world::kill(e, 3, 60));
    assert_eq!(space(e).reason, ReasonCode::EtcdNoSpace);
}

#[test]
fn a_file_near_its_quota_warns_even_when_little_of_it_is_in_use() {
    let f = space(sized(2_000_000_000, 300_000_000, QUOTA, "", &[]));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdSpaceLow,
        &["defragmentation frees about 1.7 GB"],
    );
}

#[test]
fn versions_that_do_not_tell_what_is_in_use() {
    let f = space(sized(QUOTA, 0, QUOTA, "NOSPACE", &[1]));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["in-use size not reported", "Do not restart"],
    );
    expect(
        &space(sized(2_000_000_000, 0, QUOTA, "", &[])),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdSpaceLow,
        &["93 %"],
    );
}

#[test]
fn an_alarm_of_a_member_that_is_no_more_is_named_by_its_id() {
    let e = sized(100, 50, QUOTA, "", &[]).with(|e| {
        e.alarms = known(vec![AlarmFacts { member_id: "dead".into(), kind: "NOSPACE".into() }]);
    });
    expect(&space(e), Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &["dead"]);
}

#[test]
fn corruption_comes_before_space() {
    let e = sized(QUOTA, QUOTA, QUOTA, "NOSPACE", &[1]).with(|e| {
        if let Fact::Known { value, .. } = &mut e.alarms {
            value.push(AlarmFacts { member_id: world::member(2).id, kind: "CORRUPT".into() });
        }
    });
    expect(
        &space(e),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdCorrupt,
        &["n2", "Do not clear the alarm", "Only after that the other alarm", "removes objects and compacts"],
    );
}

#[test]
fn alarms_that_were_not_read_are_not_absent() {
    let f = space(etcd(3).with(|e| e.alarms = unknown(UnknownCause::TimedOut)));
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::TimedOut, &[]);
    // But a member that reports the alarm among its errors has told.
    let e = etcd(3).with(|e| {
        e.alarms = unknown(UnknownCause::TimedOut);
        status_mut(e, 2).errors = vec!["memberID:2 alarm:NOSPACE ".into()];
    });
    assert_eq!((space(e.clone()).status, space(e).severity), (Status::False, Severity::Error));
}

#[test]
fn sizes_that_nobody_told_are_unknown() {
    let f = space(etcd(3).with(|e| (1..=3).for_each(|n| world::kill(e, n, 60))));
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::ConnectionRefused, &["none of 3 endpoints"]);
}

#[test]
fn sizes_that_no_member_can_have_never_read_as_room() {
    for (size, in_use, quota) in [(-1, -1, -1), (0, 0, 0), (0, 0, QUOTA), (i64::MIN, 50, QUOTA)] {
        let f = space(sized(size, in_use, quota, "", &[]));
        let words = ["told a database size of", "https://10.0.0.1:2379"];
        expect(&f, Status::Unknown, Severity::Warn, ReasonCode::InvalidAnswer, &words);
    }
    // One member of three is enough for doubt, and an alarm or a full file of another is worse.
    let one =
        |size, in_use| sized(size, in_use, QUOTA, "", &[]).with(|e| status_mut(e, 3).db_size_bytes = -7);
    let f = space(one(100_000_000, 50_000_000));
    let words = ["n3 told a database size of -7 bytes", "in use 50.0 MB"];
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::InvalidAnswer, &words);
    assert_eq!(space(one(1_900_000_000, 1_850_000_000)).reason, ReasonCode::EtcdSpaceLow);
    let f = space(sized(-1, -1, QUOTA, "NOSPACE", &[1]));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["n1 answers and told no size that can be one"],
    );
    // In-use bytes that are none are not reported ones.
    let f = space(sized(100_000_000, -5, QUOTA, "", &[]));
    expect(&f, Status::True, Severity::Ok, ReasonCode::EtcdSpaceFree, &["in-use size not reported"]);
}

#[test]
fn a_quota_that_only_one_member_told_holds_for_the_others_until_somebody_looks() {
    const SMALL: i64 = 4_194_304;
    let judged = |size: i64, in_use: i64| {
        space(sized(size, in_use, 0, "NOSPACE", &[2]).with(|e| status_mut(e, 1).quota_bytes = SMALL))
    };
    // Full by the quota that the local member told: no talk of room by the default of 2 GiB.
    let f = judged(4_190_000, 4_180_000);
    let words = ["n2", "99 % of the quota 4.2 MB", "taken to be that of n1", "frees only about"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
    // Room by that quota: the alarm may be left over, or the quota of the alarmed member is a smaller one.
    let f = judged(1_000_000, 900_000);
    let words = [
        "set on n2",
        "the quota of n2 is not known here, and by that of n1 there is room",
        "First look up the quota of n2",
    ];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
    assert!(!f.message.contains("space is back"), "{}", f.message);
    // The alarmed member told its own, though another did not.
    let f =
        space(sized(1_000_000, 900_000, 0, "NOSPACE", &[1]).with(|e| status_mut(e, 1).quota_bytes = SMALL));
    assert_eq!(f.reason, ReasonCode::EtcdAlarmLeftOver, "{f:#?}");
    // Two are alarmed, of which one told its own: left over there, and the other is named.
    let two = sized(1_000_000, 900_000, 0, "NOSPACE", &[1, 2]).with(|e| status_mut(e, 1).quota_bytes = SMALL);
    let words = ["space is back", "still set on n1, n2", "First look up the quota of n2"];
    expect(&space(two), Status::False, Severity::Error, ReasonCode::EtcdAlarmLeftOver, &words);
    // Told by the member itself: nothing to look up.
    let f = space(sized(1_000_000, 900_000, SMALL, "NOSPACE", &[2]));
    assert!(!f.advice.contains("look up"), "{}", f.advice);
}

#[test]
fn a_status_that_tells_an_alarm_names_the_member_it_is_set_on() {
    // Every member's status lists every alarm of the cluster, whose id is decimal there.
    let told = |error: &str, alarms: Fact<Vec<AlarmFacts>>| {
        space(etcd(3).with(|e| {
            e.alarms = alarms;
            list_mut(e).members[1].id = "b84245ea0f2a867".into();
            (1..=3).for_each(|n| status_mut(e, n).errors = vec![error.into()]);
            status_mut(e, 2).member_id = "b84245ea0f2a867".into();
        }))
    };
    let lists = || [unknown(UnknownCause::TimedOut), known(vec![]), Fact::not_applicable("x", world::now())];
    for alarms in lists() {
        let f = told("memberID:829828220188797031 alarm:NOSPACE ", alarms);
        assert_eq!((f.status, f.severity), (Status::False, Severity::Error));
        assert!(f.message.contains("set on n2 (1 of 3 members)"), "{}", f.message);
    }
    for alarms in lists() {
        let f = told("memberID:829828220188797031 alarm:CORRUPT ", alarms);
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdCorrupt, &["set on n2:"]);
    }
    let f = told("memberID:57005 alarm:NOSPACE ", known(vec![]));
    assert!(f.message.contains("set on dead"), "{}", f.message);
    let f = told("alarm:NOSPACE", known(vec![]));
    assert!(f.message.contains("set on some member although"), "{}", f.message);
}

#[test]
fn an_alarm_of_another_kind_is_not_no_alarm() {
    for f in [
        space(sized(100, 50, QUOTA, "3", &[2])),
        space(etcd(3).with(|e| status_mut(e, 1).errors = vec!["memberID:2 alarm:3 ".into()])),
    ] {
        assert_eq!((f.status, f.severity), (Status::Unknown, Severity::Warn), "{}", f.message);
        assert!(
            f.message.contains("not known here is set: 3.") && !f.message.contains("No alarm"),
            "{}",
            f.message
        );
    }
}

#[test]
fn both_alarms_are_told() {
    let e = sized(QUOTA, QUOTA, QUOTA, "NOSPACE", &[1]).with(|e| {
        if let Fact::Known { value, .. } = &mut e.alarms {
            value.push(AlarmFacts { member_id: world::member(2).id, kind: "CORRUPT".into() });
        }
    });
    let words = ["CORRUPT alarm is set on n2", "NOSPACE alarm is set too, on n1"];
    expect(&space(e), Status::False, Severity::Error, ReasonCode::EtcdCorrupt, &words);
}

#[test]
fn room_by_a_quota_that_nobody_told_is_no_room() {
    let f = space(sized(1_000_000, 900_000, 0, "NOSPACE", &[2]));
    let words = [
        "set on n2",
        "the quota of n2 is not known here",
        "First look up the quota of n2",
        "defragments",
        "compacted",
    ];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
    assert!(!f.message.contains("space is back"), "{}", f.message);
    // No member list: no "1 of 0 members".
    let f = space(
        sized(QUOTA, QUOTA, QUOTA, "NOSPACE", &[2]).with(|e| e.members = unknown(UnknownCause::TimedOut)),
    );
    assert!(!f.message.contains("of 0"), "{}", f.message);
}

#[test]
fn more_in_use_than_there_is_is_no_number() {
    let told = |in_use| space(sized(100_000_000, in_use, QUOTA, "", &[]));
    let words = ["100000000 bytes with 2000000000 in use", "etcdctl endpoint status"];
    expect(&told(2_000_000_000), Status::Unknown, Severity::Warn, ReasonCode::InvalidAnswer, &words);
    // The two are read one after the other.
    assert_eq!(told(101_000_000).reason, ReasonCode::EtcdSpaceFree);
}

#[test]
fn above_its_quota_is_not_near_it() {
    for (size, in_use, words) in [
        (2_147_483_648, 60_000_000, ["not below its quota: the next write sets the alarm", "defragment"]),
        (2_200_000_000, 60_000_000, ["not below its quota: the next write sets the alarm", "defragment"]),
        (2_200_000_000, 2_150_000_000, ["and most of it is in use", "Defragmentation will not help"]),
    ] {
        let e = etcd(3).with(|e| {
            let s = status_mut(e, 3);
            (s.db_size_bytes, s.db_in_use_bytes) = (size, in_use);
        });
        let f = space(e);
        assert_eq!(
            (f.status, f.severity, &f.reason),
            (Status::False, Severity::Error, &ReasonCode::EtcdSpaceLow),
            "{f:#?}"
        );
        let text = format!("{} {}", f.message, f.advice);
        assert!(words.iter().all(|word| text.contains(word)) && !text.contains("near its quota"), "{f:#?}");
    }
}
