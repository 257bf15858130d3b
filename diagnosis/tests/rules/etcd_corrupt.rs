//! A CORRUPT alarm: what `EtcdSpace` says of the member it is set on, and that no other condition says otherwise.

use outrider_protocol::*;

use crate::etcd_verdict::found;
use crate::expect;
use crate::fleet_world::{World, id};
use crate::world::{Change, etcd, kill, known, orphan, unknown};

fn corrupt(e: &mut EtcdFacts, on: &[usize]) {
    let alarm = |n: &usize| AlarmFacts { member_id: id(*n), kind: "CORRUPT".into() };
    e.alarms = known(on.iter().map(alarm).collect());
}

fn nodes(e: &mut EtcdFacts, n: usize) {
    e.kubernetes_nodes = known((1..=n).map(|n| format!("n{n}")).collect());
}

#[test]
fn a_corrupt_member_that_is_away_is_replaced_and_not_brought_back() {
    for n in [3, 4, 5, 7] {
        let down = |e: &mut EtcdFacts| {
            kill(e, n, 600);
            corrupt(e, &[n]);
        };
        let e = etcd(n).with(down);
        let who = format!("n{n}");
        let space = found(e.clone(), ConditionType::EtcdSpace);
        let replaced = format!(
            "errors; a person replaces it (removed, data folder empty, joined again) while the {} other",
            n - 1
        );
        expect(&space, Status::False, Severity::Error, ReasonCode::EtcdCorrupt, &[&replaced]);
        let mut world = World::of(n).every(|_, e| down(e));
        world.nodes.pop();
        for quorum in [found(e, ConditionType::EtcdQuorum), world.quorum()] {
            assert!(
                quorum.advice.contains(&format!("Do not simply bring {who} back: a CORRUPT alarm")),
                "{quorum:#?}"
            );
            for against in [
                format!("ring {who} back first"),
                format!("Bring {who} back"),
                format!("Do not remove {who}"),
            ] {
                assert!(!quorum.advice.contains(&against), "{against}: {quorum:#?}");
            }
        }
    }
    // Another one that is away besides is brought back, and it alone.
    let f = found(
        etcd(5).with(|e| {
            kill(e, 4, 600);
            kill(e, 5, 600);
            corrupt(e, &[5]);
        }),
        ConditionType::EtcdQuorum,
    );
    assert!(
        f.advice.contains("bring n4 back first") && f.advice.contains("Do not simply bring n5 back"),
        "{f:#?}"
    );
    // Without a quorum neither: what the others cannot make alone is not promised.
    let f = found(
        etcd(3).with(|e| {
            orphan(e, 1);
            kill(e, 2, 600);
            kill(e, 3, 600);
            corrupt(e, &[3]);
        }),
        ConditionType::EtcdQuorum,
    );
    assert_eq!(f.reason, ReasonCode::EtcdQuorumLost);
    assert!(
        f.advice.contains("Bring n2 back;") && f.advice.contains("Do not simply bring n3 back"),
        "{f:#?}"
    );
}

#[test]
fn nothing_joins_again_in_place_of_a_ghost() {
    for (state, membership) in
        [("dead", "gone for good"), ("unasked", "do not remove it before"), ("alive", "while it answers")]
    {
        let e = etcd(4).with(|e| {
            nodes(e, 3);
            corrupt(e, &[4]);
            match state {
                "dead" => kill(e, 4, 6000),
                "unasked" => e.endpoints[3].status = unknown(UnknownCause::TlsFailed),
                _ => {}
            }
        });
        let f = found(e.clone(), ConditionType::EtcdSpace);
        let words = [
            "n4, which is a ghost: whether and how it is removed EtcdMembership tells",
            "The alarm stays set",
        ];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdCorrupt, &words);
        assert!(!f.advice.contains("joined again") && !f.advice.contains("disk and memory of n4"), "{f:#?}");
        let f = found(e, ConditionType::EtcdMembership);
        assert!(f.advice.contains(membership), "{f:#?}");
    }
}

#[test]
fn of_a_member_that_was_removed_only_the_alarm_is_left() {
    for n in [1, 2, 3, 5] {
        for also_full in [false, true] {
            let e = etcd(n).with(|e| {
                corrupt(e, &[95]);
                if let (Fact::Known { value, .. }, true) = (&mut e.alarms, also_full) {
                    value.push(AlarmFacts { member_id: id(95), kind: "NOSPACE".into() });
                }
            });
            let f = found(e.clone(), ConditionType::EtcdSpace);
            let who = format!("set on {}, which the member list does not have any more", id(95));
            let words = [
                who.as_str(),
                "nothing is to be replaced",
                "an alarm stays when its member is removed",
                "disarm",
            ];
            expect(&f, Status::False, Severity::Error, ReasonCode::EtcdCorrupt, &words);
            for against in
                ["a person replaces", "joined again", "only voter", "remove no member", "of the others"]
            {
                assert!(!f.advice.contains(against) && !f.message.contains(against), "{against}: {f:#?}");
            }
            assert_eq!(f.advice.contains("hashkv"), n > 1, "{f:#?}");
            assert_eq!(f.message.contains("NOSPACE"), also_full);
            // To clear it needs a quorum.
            let lost = e.with(|e| {
                orphan(e, 1);
                (2..=n).for_each(|i| kill(e, i, 600));
            });
            let f = found(lost, ConditionType::EtcdSpace);
            assert!(f.advice.starts_with("First see EtcdQuorum: no quorum holds now"), "{f:#?}");
        }
    }
    // Beside one that is still a member nothing is different for that one.
    let f = found(etcd(3).with(|e| corrupt(e, &[2, 95])), ConditionType::EtcdSpace);
    let words = ["set on n2: its data differs", &format!("set on {} too", id(95)), "a person replaces it"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdCorrupt, &words);
    // Without a list nobody can say that it is gone.
    let e = etcd(3).with(|e| {
        corrupt(e, &[95]);
        e.members = unknown(UnknownCause::TimedOut);
    });
    assert!(found(e, ConditionType::EtcdSpace).advice.contains("who the members are is not known"));
}

#[test]
fn servers_are_neither_added_nor_taken_away_over_an_alarm() {
    for (n, kind) in [(1, "CORRUPT"), (2, "CORRUPT"), (4, "CORRUPT"), (4, "NOSPACE")] {
        let e = etcd(n).with(|e| {
            corrupt(e, &[1]);
            if let Fact::Known { value, .. } = &mut e.alarms {
                value[0].kind = kind.into();
            }
        });
        let f = found(e, ConditionType::EtcdQuorum);
        assert!(f.advice.starts_with("First see EtcdSpace, for an alarm is set"), "{f:#?}");
        assert!(!found(etcd(n), ConditionType::EtcdQuorum).advice.contains("EtcdSpace"));
    }
}
