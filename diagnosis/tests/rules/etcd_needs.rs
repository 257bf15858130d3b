//! What a cure takes from the quorum and needs of it (D3, D8, D17): NOSPACE, ghosts that still answer, voters that never
//! started, and a quorum that bringing members back cannot make.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::etcd_verdict::etcd_node;
use crate::only;
use crate::world::{Change, etcd, kill, known, list_mut, orphan, status_mut, unknown};

fn found(e: &EtcdFacts, of: ConditionType) -> Finding {
    only(&judge(&etcd_node(e.clone())), of)
}

fn has(f: &Finding, words: &[&str]) {
    words.iter().for_each(|word| assert!(f.advice.contains(word), "{word}: {f:#?}"));
}

fn has_not(f: &Finding, words: &[&str]) {
    words.iter().for_each(|word| assert!(!f.advice.contains(word), "{word}: {f:#?}"));
}

/// `n` voters, the first with a NOSPACE alarm and a file of `size` with little of it in use.
fn no_space(n: usize, size: i64) -> EtcdFacts {
    etcd(n).with(|e| {
        let s = status_mut(e, 1);
        (s.db_size_bytes, s.db_in_use_bytes, s.quota_bytes) = (size, 300_000_000, size);
        let member_id = list_mut(e).members[0].id.clone();
        e.alarms = known(vec![AlarmFacts { member_id, kind: "NOSPACE".into() }]);
    })
}

/// The first answers without a leader, all others are away.
fn lost(e: &mut EtcdFacts, n: usize) {
    orphan(e, 1);
    e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
    (2..=n).for_each(|other| kill(e, other, 600));
}

#[test]
fn a_cure_for_space_does_not_itself_take_the_quorum() {
    // All are there: nothing has to come before it.
    let f = found(&no_space(3, 2_147_483_648), ConditionType::EtcdSpace);
    assert!(f.advice.starts_with("Do not restart etcd. A person defragments"), "{f:#?}");
    has_not(&f, &["choose the minute", "First"]);
    // The next loss stops the cluster, and a member that is defragmented is one.
    let f = found(&no_space(3, 2_147_483_648).with(|e| kill(e, 2, 600)), ConditionType::EtcdSpace);
    assert!(f.advice.starts_with("First bring n2 back (EtcdQuorum)"), "{f:#?}");
    has(
        &f,
        &["2 of 3 voters are healthy, quorum 2", "Do not restart etcd. After that: a person defragments"],
    );
    // Who could not be asked is not said to be away.
    let unasked =
        no_space(3, 2_147_483_648).with(|e| e.endpoints[1].status = unknown(UnknownCause::TlsFailed));
    let f = found(&unasked, ConditionType::EtcdSpace);
    assert!(f.advice.starts_with("First see EtcdQuorum, for not all voters could be asked"), "{f:#?}");
    // One or two voters: etcd stands still whatever is done first.
    for n in 1..=2 {
        let f = found(&no_space(n, 8_589_934_592), ConditionType::EtcdSpace);
        let voters =
            if n == 1 { "With 1 voter etcd stands still" } else { "With 2 voters etcd stands still" };
        has(&f, &[voters, "for about 45 s each time", "choose the minute"]);
    }
}

#[test]
fn what_takes_no_member_away_is_not_held_back_for_the_tolerance() {
    // Full of live data, with the alarm and before it, and sizes that do not tell what is in use.
    let full = |n: usize, in_use: i64, alarmed: bool| {
        no_space(n, 2_147_483_648).with(|e| {
            (1..=n).for_each(|m| status_mut(e, m).db_in_use_bytes = in_use);
            if !alarmed {
                status_mut(e, 1).db_size_bytes = 2_000_000_000;
                e.alarms = known(Vec::new());
            }
        })
    };
    for (in_use, alarmed) in [(1_950_000_000, true), (1_950_000_000, false), (0, true), (0, false)] {
        for (n, away) in [(3, 1), (4, 1), (5, 2)] {
            let e = full(n, in_use, alarmed).with(|e| (0..away).for_each(|i| kill(e, n - i, 600)));
            let f = found(&e, ConditionType::EtcdSpace);
            assert!(
                f.advice.starts_with(
                    "Reading, removing objects and compacting take no member away and need not wait."
                ),
                "{f:#?}"
            );
            let back = format!("n{n} back (EtcdQuorum)");
            has(
                &f,
                &["A defragmentation does", "a restart for a larger quota", "before either, bring n", &back],
            );
            has_not(&f, &["After that:", "First bring"]);
        }
        // With tolerance nothing waits.
        has_not(&found(&full(3, in_use, alarmed), ConditionType::EtcdSpace), &["need not wait", "First"]);
        // Without a quorum nothing goes.
        let f = found(&full(3, in_use, alarmed).with(|e| lost(e, 3)), ConditionType::EtcdSpace);
        assert!(f.advice.starts_with("First see EtcdQuorum: no quorum holds now"), "{f:#?}");
    }
}

#[test]
fn without_a_quorum_no_alarm_is_cleared_and_no_write_goes_on() {
    let left_over = no_space(3, 2_147_483_648).with(|e| status_mut(e, 1).db_size_bytes = 400_000_000);
    for (e, reason) in [
        (no_space(3, 2_147_483_648), ReasonCode::EtcdNoSpace),
        (left_over.clone(), ReasonCode::EtcdAlarmLeftOver),
    ] {
        let e = e.with(|e| lost(e, 3));
        let f = found(&e, ConditionType::EtcdSpace);
        assert_eq!(f.reason, reason, "{f:#?}");
        assert!(f.advice.starts_with("First see EtcdQuorum: no quorum holds now"), "{f:#?}");
        let f = found(&e, ConditionType::EtcdQuorum);
        assert_eq!(f.reason, ReasonCode::EtcdQuorumLost);
        has(&f, &["Bring 1 of n2, n3 back; quorum is back then, and writes stay refused until the alarm"]);
        has_not(&f, &["writes go on"]);
    }
    // Clearing takes no member away, and without an alarm writes do go on.
    let f = found(&left_over.with(|e| kill(e, 2, 600)), ConditionType::EtcdSpace);
    assert!(f.advice.starts_with("The alarm is still set on n1"), "{f:#?}");
    let f = found(&etcd(3).with(|e| lost(e, 3)), ConditionType::EtcdQuorum);
    has(&f, &["writes go on by themselves then"]);
}

fn nodes(e: &mut EtcdFacts, n: usize) {
    e.kubernetes_nodes = known((1..=n).map(|n| format!("n{n}")).collect());
}

#[test]
fn living_ghosts_are_stopped_one_at_a_time_and_count_until_they_are_removed() {
    // Two of three: once one is gone, the second may not be stopped.
    let f = found(&etcd(3).with(|e| nodes(e, 1)), ConditionType::EtcdMembership);
    assert_eq!(f.reason, ReasonCode::EtcdGhostMember);
    has(
        &f,
        &[
            "while they answer: machines run there and vote",
            "stop one, remove it once it no longer answers, and only then the next",
            "quorum stays 2 of 3 until it is removed, and with it stopped 2 of 3 live",
            "After 1 of them the next that is stopped would leave 1 of 2, quorum 2: the cluster would stop, so first have one \
             server more",
        ],
    );
    has_not(&f, &["are a quorum of 1"]);
    // Three of five may go so, each after the other.
    let f = found(&etcd(5).with(|e| nodes(e, 2)), ConditionType::EtcdMembership);
    has(&f, &["quorum stays 3 of 5 until it is removed, and with it stopped 4 of 5 live."]);
    has_not(&f, &["would stop", "cluster stops"]);
    // With one more away the second has to wait for it.
    let f = found(
        &etcd(5).with(|e| {
            nodes(e, 3);
            kill(e, 3, 600);
        }),
        ConditionType::EtcdMembership,
    );
    has(
        &f,
        &["with it stopped 3 of 5 live. After 1 of them", "leave 2 of 4, quorum 3", "so first have n3 back"],
    );
}

/// Healthy voters, `old` of them, and `new` that were added and never started.
fn unstarted(old: usize, new: usize) -> EtcdFacts {
    etcd(old + new).with(|e| {
        for member in &mut list_mut(e).members[old..] {
            member.name.clear();
            member.client_urls.clear();
        }
        e.endpoints.truncate(old);
    })
}

#[test]
fn a_voter_that_never_started_is_started_and_not_brought_back() {
    for (e, urls, plural) in [
        (unstarted(3, 1), "0000000000000004 at https://10.0.0.4:2380", false),
        (unstarted(3, 2), "0000000000000005 at https://10.0.0.5:2380", true),
    ] {
        let f = found(&e, ConditionType::EtcdQuorum);
        assert_eq!(f.status, Status::True, "{f:#?}");
        let start = if plural {
            "Start etcd where those that never started are to be"
        } else {
            "Start etcd where the one"
        };
        has(&f, &[start, urls, "or see EtcdMembership."]);
        has_not(&f, &["ring 0", "Do not remove"]);
        let f = found(&e, ConditionType::EtcdMembership);
        assert_eq!(f.reason, ReasonCode::EtcdMemberUnstarted, "{f:#?}");
        if plural {
            has(
                &f,
                &[
                    "machines that are to listen",
                    "If they will never come",
                    "one at a time, while quorum holds",
                ],
            );
        } else {
            has(&f, &["machine that is to listen", "If it will never come"]);
        }
    }
    // One that was there and one that never was: each its own word.
    let f = found(&unstarted(4, 1).with(|e| kill(e, 4, 600)), ConditionType::EtcdQuorum);
    assert_eq!(f.reason, ReasonCode::EtcdNoTolerance, "{f:#?}");
    has(
        &f,
        &[
            "bring n4 back first",
            "Do not remove n4 while it may come back as it is",
            "Start etcd where the one that never started is",
        ],
    );
    let f = found(
        &unstarted(3, 2).with(|e| {
            (1..=2).for_each(|n| orphan(e, n));
            kill(e, 3, 600);
        }),
        ConditionType::EtcdQuorum,
    );
    assert_eq!(f.reason, ReasonCode::EtcdQuorumLost, "{f:#?}");
    has(&f, &["Bring n3 back", "Start etcd where those that never started are to be"]);
}

#[test]
fn a_quorum_that_bringing_back_cannot_make_is_not_promised() {
    let e = etcd(5).with(|e| {
        nodes(e, 2);
        lost(e, 5);
    });
    let f = found(&e, ConditionType::EtcdQuorum);
    assert_eq!(f.reason, ReasonCode::EtcdQuorumLost);
    has(
        &f,
        &[
            "No quorum is to be had by bringing members back alone: with n2 back 2 of the 3 that are needed answer",
        ],
    );
    has_not(&f, &["1 of 2 that are needed", "writes go on"]);
    let f = found(&e, ConditionType::EtcdMembership);
    has(&f, &["with n2 back only 2 of the 3 that are needed would answer, so none of them can be removed"]);
    has_not(&f, &["first bring back"]);
}
