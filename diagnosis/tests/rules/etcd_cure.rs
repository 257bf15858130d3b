//! TC07 by whose figures: an alarm is cured by those of its own member, a quota is one that somebody told, and without a
//! quota there is no alarm to wait for.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::etcd_verdict::etcd_node;
use crate::world::{self, Change, etcd, kill, known, list_mut, status_mut, unknown};
use crate::{expect, only, rank};

const QUOTA: i64 = 2_147_483_648;

fn space(e: EtcdFacts) -> Finding {
    only(&judge(&etcd_node(e)), ConditionType::EtcdSpace)
}

fn alarm(e: &mut EtcdFacts, ids: &[String]) {
    let alarm = |id: &String| AlarmFacts { member_id: id.clone(), kind: "NOSPACE".into() };
    e.alarms = known(ids.iter().map(alarm).collect());
}

fn id(n: usize) -> String {
    world::member(n).id
}

/// Members 1 and 2 nearly full of live data, 3 full of holes.
fn unlike() -> EtcdFacts {
    etcd(3).with(|e| {
        for n in 1..=3 {
            let s = status_mut(e, n);
            let used = if n == 3 { 200_000_000 } else { 2_147_000_000 };
            (s.db_size_bytes, s.db_in_use_bytes, s.quota_bytes) = (QUOTA - 1000 * n as i64, used, QUOTA);
        }
    })
}

#[test]
fn the_cure_is_by_the_figures_of_the_member_with_the_alarm() {
    let f = space(unlike().with(|e| alarm(e, &[id(3)])));
    let words = ["set on n3", "n3: size", "200000000", "n3 first", "then clears the alarm"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
    assert!(!f.message.contains("n1") && !f.advice.contains("raises the quota"), "{f:#?}");
    let f = space(unlike().with(|e| alarm(e, &[id(1)])));
    let words = ["n1: size", "removes objects and compacts, or raises the quota; then defragments n1"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
}

#[test]
fn of_two_with_the_alarm_the_cure_helps_both() {
    // n3 is as large and full of holes: to defragment alone would leave n1 as it is.
    let f = space(unlike().with(|e| {
        status_mut(e, 3).db_size_bytes = QUOTA + 500;
        alarm(e, &[id(1), id(3)]);
    }));
    let words = ["n1: size", "removes objects and compacts, or raises the quota; then defragments n1, n3"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
}

#[test]
fn an_alarmed_member_that_is_away_has_no_figures_and_no_other_lends_it_any() {
    for cause in [UnknownCause::ConnectionRefused, UnknownCause::TimedOut, UnknownCause::TlsFailed] {
        let f = space(unlike().with(|e| {
            alarm(e, &[id(3)]);
            kill(e, 3, 600);
            e.endpoints[2].status = unknown(cause.clone());
        }));
        let words = [
            "set on n3 (1 of 3 members)",
            "whole cluster",
            "The figures of n3 are not known",
            "https://10.0.0.3:2379",
            cause.as_str(),
            "which choose no cure for n3: n1: size",
            "etcdctl endpoint status -w json --endpoints=https://10.0.0.3:2379",
            "n3 is defragmented",
        ];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
        let order = ["n3 has to answer", "removed and compacted", "is defragmented", "alarm is cleared"];
        let places: Vec<Option<usize>> = order.iter().map(|word| f.advice.find(word)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {f:#?}");
        assert!(!f.message.contains("defragmentation frees"), "no other's holes: {f:#?}");
    }
    // It answers and its size is none.
    let f = space(unlike().with(|e| {
        alarm(e, &[id(3)]);
        status_mut(e, 3).db_size_bytes = 0;
    }));
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &["told no size that can be one"]);
    // Two are alarmed and one of them is seen: its cure, and the other's alarm stays until it is seen too.
    let f = space(unlike().with(|e| {
        alarm(e, &[id(2), id(3)]);
        kill(e, 3, 600);
    }));
    let words = [
        "n2: size",
        "figures of the others that are alarmed are not known: n3 does not answer",
        "The alarm of n3",
    ];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
}

#[test]
fn an_alarm_of_a_member_that_nobody_lists() {
    let gone = |e: &mut EtcdFacts| alarm(e, &["dead".to_owned()]);
    let f = space(etcd(3).with(gone));
    let words = [
        "set on dead",
        "the member list does not have it any more",
        "Find out who dead is",
        "has room, so nothing else may be left",
    ];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
    let f = space(unlike().with(gone));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["near its quota as well: it is cured first"],
    );
    assert!(!f.message.contains("frees about"), "{f:#?}");
    let f = space(of_quota(5_000_000_000, 1, 0).with(gone));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["has room is not known, for its quota is not"],
    );
    // Without a list nobody knows whether it is in it.
    let f = space(etcd(3).with(|e| {
        alarm(e, &["dead".to_owned()]);
        e.members = unknown(UnknownCause::TimedOut);
    }));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["member list that would tell more was not read"],
    );
    assert!(!f.message.contains("any more"), "{f:#?}");
}

#[test]
fn of_a_dead_ghost_with_the_alarm_nothing_is_read_or_freed() {
    let ghost = |e: &mut EtcdFacts| {
        e.kubernetes_nodes = known((1..=e.endpoints.len() - 1).map(|n| format!("n{n}")).collect());
        let last = e.endpoints.len();
        kill(e, last, 6000);
    };
    // 4 members are without tolerance with it, 6 and 7 are not.
    for n in [4, 6, 7] {
        let f = space(etcd(n).with(|e| {
            ghost(e);
            alarm(e, &[id(n)]);
        }));
        let who = format!(
            "n{n} is a ghost that does not answer: a person removes it as EtcdMembership tells, and its alarm stays"
        );
        let words = [who.as_str(), "has room, so nothing else may be left", "etcdctl alarm disarm"];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
        let impossible =
            [format!("n{n} has to answer"), format!("n{n} is defragmented"), "tolerance back".into()];
        impossible.iter().for_each(|word| assert!(!f.advice.contains(word), "{word}: {f:#?}"));
    }
    // Another member with the alarm is cured by its own figures, and the ghost's alarm waits for none.
    let f = space(unlike().with(|e| {
        list_mut(e).members.push(world::member(4));
        e.endpoints.push(world::endpoint(4, false));
        ghost(e);
        alarm(e, &[id(1), id(4)]);
    }));
    let words = ["removes objects and compacts", "defragments n1", "n4 is a ghost that does not answer"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
    assert!(!f.advice.contains("The alarm of n4"), "{f:#?}");
    // So does that of a member that nobody lists.
    let f = space(unlike().with(|e| alarm(e, &[id(1), "dead".into()])));
    assert!(!f.advice.contains("The alarm of dead") && f.advice.contains("Find out who dead is"), "{f:#?}");
    // One that is only away, and one that answers or may, have to tell theirs.
    let away = etcd(4).with(|e| {
        kill(e, 4, 6000);
        alarm(e, &[id(4)]);
    });
    let unasked = away.clone().with(|e| {
        ghost(e);
        e.endpoints[3].status = unknown(UnknownCause::TlsFailed);
    });
    for e in [away, unasked] {
        let f = space(e);
        assert!(f.advice.contains("n4 has to answer") && !f.advice.contains("is a ghost"), "{f:#?}");
    }
}

#[test]
fn an_alarm_that_names_nobody_is_told_by_the_fullest_and_says_so() {
    for ids in [vec!["0".to_owned()], vec![]] {
        let f = space(unlike().with(|e| {
            alarm(e, &ids);
            status_mut(e, 1).errors = vec!["alarm:NOSPACE".into()];
        }));
        let words = ["some member", "On which member it is set is not told", "the fullest"];
        if f.message.contains("set on 0") {
            panic!("{f:#?}");
        }
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
    }
}

fn of_quota(size: i64, in_use: i64, quota: i64) -> EtcdFacts {
    etcd(3).with(|e| {
        for n in 1..=3 {
            let s = status_mut(e, n);
            (s.db_size_bytes, s.db_in_use_bytes, s.quota_bytes) = (size, in_use, quota);
        }
    })
}

#[test]
fn a_size_above_a_quota_that_nobody_told_is_no_share_of_it() {
    for (size, in_use, severity) in [
        (QUOTA + 1, 2_083_000_000, Severity::Warn),
        (2_200_000_000, 2_083_000_000, Severity::Warn),
        (2_200_000_000, 0, Severity::Warn),
        (2_300_000_000, 2_083_000_000, Severity::Info),
        (7_000_000_000, 100_000_000, Severity::Info),
    ] {
        let f = space(of_quota(size, in_use, 0));
        let words =
            ["n1", "n2", "n3", "more than the default quota", "--quota-backend-bytes", &size.to_string()];
        expect(&f, Status::Unknown, severity, ReasonCode::EtcdQuotaUnknown, &words);
        assert!(!f.message.contains(" %"), "a share of a guess: {f:#?}");
    }
    // One told its own, and another's file is larger than that.
    let f = space(of_quota(3_000_000_000, 100_000_000, 0).with(|e| {
        let s = status_mut(e, 1);
        (s.db_size_bytes, s.quota_bytes) = (1_000_000_000, 2_500_000_000);
    }));
    let words = ["more than the quota of n1", "n2, n3"];
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::EtcdQuotaUnknown, &words);
    // A full one of known quota is worse than a doubt about another, and neither hides.
    let f = space(of_quota(3_000_000_000, 100_000_000, 0).with(|e| {
        let s = status_mut(e, 1);
        (s.db_size_bytes, s.db_in_use_bytes, s.quota_bytes) = (2_000_000_000, 1_900_000_000, QUOTA);
    }));
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdSpaceLow, &["n1: size", "Also: ", "n2"]);
    // With the alarm set the file has reached its quota, whatever that is: the cure goes by what of the file is in use.
    let alarmed = |in_use| space(of_quota(7_000_000_000, in_use, 0).with(|e| alarm(e, &[id(2)])));
    let f = alarmed(6_900_000_000);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["quota not known", "removes objects and compacts"],
    );
    assert!(!f.message.contains(" %"), "{f:#?}");
    let f = alarmed(500_000_000);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["defragmentation frees about 6.5 GB"],
    );
}

#[test]
fn a_negative_quota_is_none_and_not_the_default() {
    for quota in [-1, -5, i64::MIN] {
        let f = space(of_quota(1_900_000_000, 1_850_000_000, quota));
        let words =
            ["no quota", "switched off", "until its file system is full", "--quota-backend-bytes of n"];
        expect(&f, Status::True, Severity::Info, ReasonCode::EtcdQuotaOff, &words);
        assert!(!f.message.contains(" %") && !f.message.contains("the default"), "{f:#?}");
    }
    let folder = |free| DataFolder {
        path: "/var/lib/etcd".into(),
        tombstone: false,
        reset_flag: false,
        free_bytes: Some(free),
    };
    let f = space(
        of_quota(9_000_000_000, 1_000_000_000, -1).with(|e| e.data_folder = Some(known(folder(100_000_000)))),
    );
    let words = ["/var/lib/etcd has 100.0 MB", "Make room at /var/lib/etcd now", "9.0 GB"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdQuotaOff, &words);
    // A quota well above a file that is larger than any that is suggested is none: first it is made smaller.
    for (size, shrinks) in [(9_000_000_000, true), (8_400_000_000, true), (6_000_000_000, false)] {
        let f = space(of_quota(size, size - 100_000_000, -1));
        assert_eq!(f.reason, ReasonCode::EtcdQuotaOff);
        assert_eq!(
            f.advice.contains("much smaller than 8.6 GB: remove objects and compact, then defragment"),
            shrinks,
            "{f:#?}"
        );
        assert_eq!(f.advice.contains("well above what is left"), shrinks, "{f:#?}");
    }
    // An alarm from before it was switched off is left over: nothing sets it anew.
    let f = space(of_quota(3_000_000_000, 2_900_000_000, -1).with(|e| alarm(e, &[id(2)])));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdAlarmLeftOver,
        &["still set on n2", "no quota"],
    );
    // Switched off on one member says little of another that did not tell.
    let f = space(of_quota(3_000_000_000, 2_900_000_000, 0).with(|e| {
        status_mut(e, 1).quota_bytes = -1;
        alarm(e, &[id(2)]);
    }));
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &["First look up the quota of n2"]);
}

#[test]
fn an_endpoint_without_a_member_id_is_called_by_its_url_and_two_ways_to_one_member_are_one() {
    let f = space(etcd(1).with(|e| {
        e.endpoints[0].member_id.clear();
        status_mut(e, 1).member_id.clear();
        status_mut(e, 1).db_in_use_bytes = 0;
    }));
    expect(&f, Status::True, Severity::Ok, ReasonCode::EtcdSpaceFree, &["https://10.0.0.1:2379: size"]);
    let f = space(of_quota(2_300_000_000, 1, 0).with(|e| {
        let again = e.endpoints[0].clone().with(|again| again.endpoint = "https://127.0.0.1:2379".into());
        e.endpoints.push(again);
        e.endpoints.truncate(4);
    }));
    assert_eq!(f.message.matches("n1").count(), 1, "{f:#?}");
}

#[test]
fn alarms_that_a_learner_would_not_tell_are_no_matter_of_its_version() {
    let refused = || {
        Fact::unknown(
            UnknownCause::Unsupported,
            "etcdserver: rpc not supported for learner",
            "t",
            world::now(),
        )
    };
    let j = judge(&etcd_node(etcd(3).with(|e| {
        e.alarms = refused();
        e.members = Fact::unknown(
            UnknownCause::Unsupported,
            "etcdserver: rpc not supported for learner",
            "t",
            world::now(),
        );
        status_mut(e, 1).is_learner = true;
        e.endpoints[0].linearizable_read = unknown(UnknownCause::Unsupported);
    })));
    for of in [ConditionType::EtcdSpace, ConditionType::EtcdQuorum, ConditionType::EtcdMembership] {
        let f = only(&j, of);
        assert_eq!((f.status, &f.reason), (Status::Unknown, &ReasonCode::Unsupported), "{f:#?}");
        assert!(f.advice.contains("is a learner, and a learner answers no such question"), "{f:#?}");
        assert!(f.advice.contains("https://10.0.0.2:2379") && !f.advice.contains("version"), "{f:#?}");
    }
    // None of the voters answers: that is no "nothing is broken".
    let j = judge(&etcd_node(etcd(3).with(|e| {
        e.alarms = refused();
        status_mut(e, 1).is_learner = true;
        (2..=3).for_each(|n| kill(e, n, 60));
    })));
    let f = only(&j, ConditionType::EtcdSpace);
    assert!(
        f.advice.contains("none of the voters answers") && !f.advice.contains("Nothing is broken"),
        "{f:#?}"
    );
    // Little room is told though the alarms are not known.
    let f = space(
        of_quota(2_100_000_000, 2_000_000_000, QUOTA).with(|e| e.alarms = unknown(UnknownCause::TimedOut)),
    );
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::TimedOut, &["Little room is left: n1", "93 %"]);
}

#[derive(Clone, Debug)]
struct Told {
    size: i64,
    used: f64,
    quota: i64,
    answers: bool,
}

fn told() -> impl Strategy<Value = Told> {
    let quota = prop_oneof![Just(0i64), Just(-1), Just(QUOTA), 500_000_000i64..9_000_000_000];
    (1i64..9_000_000_000, 0.001f64..1.0, quota, prop::bool::weighted(0.7))
        .prop_map(|(size, used, quota, answers)| Told { size, used, quota, answers })
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn the_verdict_on_an_alarm_shows_no_share_and_no_gain_but_the_alarmed_members(
        all in prop::collection::vec(told(), 3), on in 1usize..4,
    ) {
        let e = etcd(3).with(|e| {
            list_mut(e);
            for (n, t) in (1..=3).zip(&all) {
                let s = status_mut(e, n);
                (s.db_size_bytes, s.quota_bytes) = (t.size, t.quota);
                s.db_in_use_bytes = ((t.size as f64 * t.used) as i64).max(1);
                if !t.answers {
                    kill(e, n, 600);
                }
            }
            alarm(e, &[id(on)]);
        });
        let f = space(e);
        prop_assert_eq!((f.status, f.severity), (Status::False, Severity::Error));
        let name = format!("n{on}");
        prop_assert!(f.message.contains(&format!("set on {name}")), "{f:#?}");
        let own = &all[on - 1];
        if own.answers {
            prop_assert!(f.message.contains(&format!("{name}: size")) && f.message.contains(&own.size.to_string()), "{f:#?}");
            for other in (1..=3).filter(|n| *n != on) {
                prop_assert!(!f.message.contains(&format!("n{other}: size")), "{f:#?}");
            }
        } else {
            prop_assert!(f.message.contains(&format!("The figures of {name} are not known")), "{f:#?}");
            prop_assert!(!f.message.contains("frees") && f.advice.contains(&format!("First {name} has to answer")), "{f:#?}");
            prop_assert!(f.reason != ReasonCode::EtcdAlarmLeftOver);
        }
    }

    #[test]
    fn a_larger_file_never_improves_a_verdict(size in 1i64..9_000_000_000, more in 1i64..4_000_000_000, used in 0.01f64..1.0, quota in prop_oneof![Just(0i64), Just(-1), Just(QUOTA)]) {
        let of = |size: i64| space(of_quota(size, ((size as f64 * used) as i64).max(1), quota));
        let (before, after) = (of(size), of(size.saturating_add(more)));
        // Two doubts about an unknown quota are one: near the default it may be the default.
        if before.reason != after.reason || before.reason != ReasonCode::EtcdQuotaUnknown {
            prop_assert!(rank(&before) <= rank(&after), "{before:#?}\n{after:#?}");
        }
    }
}
