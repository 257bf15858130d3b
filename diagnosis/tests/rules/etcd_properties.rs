//! TC07, SP3 and learners over random numbers: the right cure, in the right order, and only what the last minutes show.

use outrider_diagnosis::Finding;
use outrider_protocol::*;
use proptest::prelude::*;

use crate::etcd_verdict::found;
use crate::world::{self, Change, ago, etcd, histogram, known, list_mut, scrape, status_mut};

const DEFAULT_QUOTA: u64 = 2_147_483_648;

fn sized(size: u64, in_use: u64, quota: u64, alarm: bool) -> EtcdFacts {
    etcd(3).with(|e| {
        for n in 1..=3 {
            let s = status_mut(e, n);
            s.db_size_bytes = i64::try_from(size).unwrap();
            s.db_in_use_bytes = i64::try_from(in_use).unwrap();
            s.quota_bytes = i64::try_from(quota).unwrap();
        }
        let alarms = alarm.then(|| AlarmFacts { member_id: world::member(2).id, kind: "NOSPACE".into() });
        e.alarms = known(alarms.into_iter().collect());
    })
}

/// Size, in-use size and quota (0 stands for the default).
fn numbers() -> impl Strategy<Value = (u64, u64, u64)> {
    let quota = prop_oneof![1 => Just(0u64), 3 => 500_000_000u64..16_000_000_000];
    (quota, 0.01f64..1.0, 0.001f64..1.0).prop_map(|(quota, size, used)| {
        let of = if quota == 0 { DEFAULT_QUOTA } else { quota };
        let size = ((of as f64 * size) as u64).max(2);
        (size, ((size as f64 * used) as u64).max(1), quota)
    })
}

/// Fsyncs of the last minutes after `before` of a lifetime.
fn disk(before: (u64, u64), fast: u64, slow: u64) -> Finding {
    let earlier = scrape(300, before.0, before.1);
    let latest = scrape(0, before.0 + fast, before.1 + slow);
    let metrics = known(EtcdMetrics { earlier: Some(earlier), latest });
    found(etcd(3).with(|e| e.metrics = metrics), ConditionType::EtcdDisk)
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn tc07_the_cure_follows_what_is_in_use((size, in_use, quota) in numbers()) {
        let of = if quota == 0 { DEFAULT_QUOTA } else { quota };
        let share = in_use as f64 * 100.0 / of as f64;
        let f = found(sized(size, in_use, quota, true), ConditionType::EtcdSpace);
        prop_assert_eq!((f.status, f.severity), (Status::False, Severity::Error));
        prop_assert!(f.message.contains("n2") && f.message.contains("whole cluster"), "{f:#?}");
        let place = |word: &str| f.advice.find(word);
        if share > 80.0 {
            prop_assert!(f.advice.contains("Do not restart"), "{f:#?}");
            let order = [place("removes objects"), place("raises"), place("defragments"), place("clears the alarm")];
            prop_assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?} {f:#?}");
        } else if f.reason == ReasonCode::EtcdNoSpace {
            prop_assert!(f.advice.contains("Do not restart"), "{f:#?}");
            let order = [place("defragments"), place("clears the alarm")];
            prop_assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{f:#?}");
            prop_assert!(place("raises").is_none(), "{f:#?}");
        } else {
            // Space is back: only the alarm is left, and nobody but a person clears it.
            prop_assert_eq!(&f.reason, &ReasonCode::EtcdAlarmLeftOver);
            prop_assert!((size as f64) < 0.9 * of as f64 && f.advice.contains("still set on n2"), "{f:#?}");
        }
        prop_assert!(f.message.contains(&size.to_string()) && f.message.contains(&in_use.to_string()), "{f:#?}");
    }

    #[test]
    fn tc07_without_an_alarm_the_limit_is_eighty_percent((size, in_use, quota) in numbers()) {
        let of = if quota == 0 { DEFAULT_QUOTA } else { quota };
        let share = in_use as f64 * 100.0 / of as f64;
        let f = found(sized(size, in_use, quota, false), ConditionType::EtcdSpace);
        prop_assert_eq!(f.status, Status::True);
        if share > 80.0 {
            prop_assert_eq!((f.severity, &f.reason), (Severity::Warn, &ReasonCode::EtcdSpaceLow));
            prop_assert!(f.advice.contains("Defragmentation will not help"), "{f:#?}");
        } else if (size as f64) < 0.9 * of as f64 {
            prop_assert!(f.severity <= Severity::Info, "{f:#?}");
            prop_assert_eq!(f.reason == ReasonCode::EtcdDatabaseLarge, size > 1_000_000_000);
        }
    }

    #[test]
    fn sp3_the_lifetime_changes_nothing(life in (0u64..1_000_000_000, 0u64..1_000_000), fast in 0u64..5_000, slow in 0u64..5_000) {
        let (fresh, old) = (disk((0, 0), fast, slow), disk(life, fast, slow));
        prop_assert_eq!((fresh.status, fresh.severity, &fresh.reason, &fresh.message), (old.status, old.severity, &old.reason, &old.message));
        let total = fast + slow;
        if total >= 20 {
            // 128 to 256 ms: above the limit of 100 ms as soon as one in a hundred is.
            prop_assert_eq!(fresh.severity == Severity::Error, slow * 100 > total, "{:#?}", fresh);
        } else {
            prop_assert_eq!(&fresh.reason, &ReasonCode::EtcdDiskUnmeasured);
        }
    }

    #[test]
    fn sp3_more_slow_writes_never_improve_a_verdict(fast in 20u64..5_000, slow in 0u64..2_000, more in 1u64..2_000) {
        let (before, after) = (disk((0, 0), fast, slow), disk((0, 0), fast, slow + more));
        prop_assert!(crate::rank(&before) <= crate::rank(&after), "{before:#?}\n{after:#?}");
    }

    #[test]
    fn sp3_slower_writes_never_improve_a_verdict(
        of in prop::collection::vec((0usize..15, 1u64..60), 1..5), from in 0usize..5, to in 0usize..15, commits in any::<bool>(),
    ) {
        let finding = |of: &[(usize, u64)]| {
            let (mut earlier, mut latest) = (scrape(300, 0, 0), scrape(0, 1000, 0));
            let h = |scale: u64| {
                let mut buckets: Vec<(f64, u64)> = (0..14usize)
                    .map(|i| (0.001 * f64::from(1u32 << i), scale * of.iter().filter(|(b, _)| *b <= i).map(|(_, n)| n).sum::<u64>()))
                    .collect();
                let count = scale * of.iter().map(|(_, n)| n).sum::<u64>();
                buckets.push((f64::MAX, count));
                Histogram { buckets, count, sum: 0.0 }
            };
            if commits {
                (earlier.backend_commit, latest.backend_commit) = (h(0), h(1));
            } else {
                (earlier.wal_fsync, latest.wal_fsync) = (h(0), h(1));
            }
            found(etcd(3).with(|e| e.metrics = known(EtcdMetrics { earlier: Some(earlier), latest })), ConditionType::EtcdDisk)
        };
        let mut slower = of.clone();
        let i = from % slower.len();
        slower[i].0 = slower[i].0.max(to);
        let (before, after) = (finding(&of), finding(&slower));
        prop_assert!(crate::rank(&before) <= crate::rank(&after), "{of:?} {slower:?}\n{before:#?}\n{after:#?}");
    }

    #[test]
    fn a_learner_is_never_failed_and_never_to_be_removed_while_it_comes_closer(
        age in 0u64..100_000, before in 0u64..120_000, now in 0u64..120_000, span in 0u64..600,
    ) {
        let e = etcd(4).with(|e| {
            list_mut(e).members[3].is_learner = true;
            let s = status_mut(e, 4);
            (s.is_learner, s.raft_index) = (true, 120_000 - now);
            let id = world::member(4).id;
            e.learners_since.insert(id.clone(), ago(age));
            let look = |seconds, lag| LearnerProgress { at: ago(seconds), index: 120_000 - lag, front: 120_000 };
            e.learner_progress.insert(id, vec![look(span, before), look(0, now)]);
        });
        let f = found(e.clone(), ConditionType::EtcdMembership);
        prop_assert_eq!(f.status, Status::True);
        prop_assert!(f.severity <= Severity::Warn && !f.advice.contains("removes this learner"), "{f:#?}");
        if age < 300 || (span >= 10 && now < before && now > 12_000) {
            prop_assert_eq!(&f.reason, &ReasonCode::EtcdLearnerJoining, "{:#?}", f);
        }
        let quorum = found(e, ConditionType::EtcdQuorum);
        prop_assert_eq!((quorum.severity, &quorum.reason), (Severity::Ok, &ReasonCode::EtcdQuorumMet));
    }
}

#[test]
fn the_quantile_of_what_is_beyond_every_bucket_is_no_number() {
    let mut latest = scrape(0, 0, 0);
    latest.wal_fsync = histogram(0, 0);
    latest.wal_fsync.count = 100;
    if let Some(last) = latest.wal_fsync.buckets.last_mut() {
        last.1 = 100;
    }
    let metrics = known(EtcdMetrics { earlier: Some(scrape(300, 0, 0)), latest });
    let f = found(etcd(3).with(|e| e.metrics = metrics), ConditionType::EtcdDisk);
    assert_eq!((f.status, f.severity), (Status::False, Severity::Error), "{f:#?}");
    assert!(f.message.contains("more than 8192 ms"), "{}", f.message);
}
