//! Random clusters: the arithmetic, that a loss never improves a verdict, that the unknown never becomes healthy, that
//! learners never count, that the order of reports changes nothing, and what advice never says.

use outrider_diagnosis::{Finding, Judgement, judge};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::etcd_verdict::etcd_node;
use crate::fleet_world::World;
use crate::world::{self, ago, kill, known, list_mut, orphan, status_mut, unknown};

/// What happened to one server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// etcd answers and its agent reports.
    Well,
    /// The machine is off: others lost it, its agent is silent.
    Off,
    /// etcd is dead, its agent reports.
    Dead,
    /// etcd is well, its agent is silent.
    AgentAway,
    /// The others may not ask it, its agent is silent.
    Refused,
}

fn states(most: usize) -> impl Strategy<Value = Vec<State>> {
    let state = prop_oneof![
        4 => Just(State::Well),
        1 => Just(State::Off),
        1 => Just(State::Dead),
        1 => Just(State::AgentAway),
        1 => Just(State::Refused),
    ];
    prop::collection::vec(state, 1..=most)
}

/// The cluster in which each server is in its state; `learners` more are learners, well or off in turns.
fn cluster(states: &[State], learners: usize) -> World {
    let voters = states.len();
    let state = |i: usize| {
        states.get(i - 1).copied().unwrap_or(if i.is_multiple_of(2) { State::Well } else { State::Off })
    };
    let well = states.iter().filter(|s| matches!(s, State::Well | State::AgentAway | State::Refused)).count();
    let has_quorum = well > voters / 2;
    let mut w = World::of(voters + learners).every(|from, e| {
        for to in 1..=voters + learners {
            if to > voters {
                list_mut(e).members[to - 1].is_learner = true;
                let s = status_mut(e, to);
                (s.is_learner, s.raft_index) = (true, 60_000);
                e.learners_since.insert(world::member(to).id, ago(100));
                e.endpoints[to - 1].linearizable_read = unknown(UnknownCause::Unsupported);
            } else if !has_quorum {
                orphan(e, to);
            }
            match state(to) {
                State::Off | State::Dead => kill(e, to, 600),
                State::Refused if from != to => e.endpoints[to - 1].status = unknown(UnknownCause::Forbidden),
                _ => {}
            }
        }
        if !has_quorum {
            e.endpoints[from - 1].linearizable_read = unknown(UnknownCause::TimedOut);
        }
    });
    for i in 1..=voters + learners {
        if !matches!(state(i), State::Well | State::Dead) {
            w.nodes[i - 1].ready = Status::Unknown;
        }
    }
    w
}

fn quorum(w: &World) -> Finding {
    w.found(ConditionType::EtcdQuorum)
}

/// Words that would tell a person, or a machine, to do what Outrider must not cause.
const FORBIDDEN: [&str; 8] = [
    "restart etcd to",
    "Restart etcd",
    "run cluster-reset",
    "etcdctl member remove",
    "etcdctl member update",
    "Clear the alarm now",
    "Outrider removes",
    "Outrider clears",
];

fn says_what_it_must(j: &Judgement) -> Result<(), TestCaseError> {
    for f in &j.findings {
        prop_assert!(f.message.len() > 10 && f.message.ends_with('.'), "{f:#?}");
        let numbered = f.message.bytes().chain(f.advice.bytes()).any(|b| b.is_ascii_digit());
        let read =
            ReasonCode::from(&UnknownCause::ALL[0]) != f.reason && f.reason.as_str().starts_with("Etcd");
        prop_assert!(numbered || !read || f.reason == ReasonCode::EtcdNoMembers, "no number: {f:#?}");
        prop_assert!(
            f.severity == Severity::Ok || !f.advice.is_empty() || f.status == Status::Unknown,
            "no advice: {f:#?}"
        );
        for word in FORBIDDEN {
            prop_assert!(!f.advice.contains(word), "{word:?} in {f:#?}");
        }
        let range = f.reason.info().map(|i| i.severities);
        prop_assert!(range.is_some_and(|(low, high)| low <= f.severity && f.severity <= high), "{f:#?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn the_numbers_are_those_of_a_majority(states in states(9), learners in 0usize..3) {
        let w = cluster(&states, learners);
        let p = w.picture();
        if p.voters > 0 {
            prop_assert_eq!(p.voters as usize, states.len());
            prop_assert_eq!(p.quorum, p.voters / 2 + 1);
            prop_assert_eq!(p.tolerated, p.healthy.saturating_sub(p.quorum));
            prop_assert!(p.healthy + p.unknown <= p.voters && p.learners as usize == learners);
            let numbers = format!("quorum {}, {} healthy", p.quorum, p.healthy);
            let f = quorum(&w);
            prop_assert!(f.message.contains(&numbers), "{numbers}: {f:#?}");
            // A row a member, a cell a member in each row.
            prop_assert_eq!(p.members.len(), states.len() + learners);
            prop_assert!(p.matrix.iter().all(|r| r.cells.len() == p.members.len()));
            let healthy = p.members.iter().filter(|m| m.role == MemberRole::Voter && m.health == MemberHealth::Healthy);
            prop_assert_eq!(healthy.count(), p.healthy as usize);
        }
    }

    #[test]
    fn a_verdict_never_claims_more_than_was_seen(states in states(7)) {
        let w = cluster(&states, 0);
        let f = quorum(&w);
        let needed = states.len() / 2 + 1;
        let count = |all: &[State]| states.iter().filter(|s| all.contains(s)).count();
        let seen_by_somebody = states.contains(&State::Well);
        // Nothing is called healthy that has no quorum, and nothing lost that may have one.
        if count(&[State::Well, State::AgentAway, State::Refused]) < needed {
            prop_assert_ne!(f.status, Status::True, "{:#?}", f);
        }
        if seen_by_somebody && count(&[State::Well, State::AgentAway]) >= needed {
            prop_assert_eq!(f.status, Status::True, "{:#?}", f);
        }
        if count(&[State::Well, State::AgentAway, State::Refused]) >= needed {
            prop_assert_ne!(f.status, Status::False, "{:#?}", f);
        }
    }

    #[test]
    fn losing_a_voter_never_improves_a_verdict(states in states(7), victim in any::<prop::sample::Index>(), to_off in any::<bool>()) {
        let well: Vec<usize> = (0..states.len()).filter(|i| states[*i] == State::Well).collect();
        if well.is_empty() {
            return Ok(());
        }
        let mut after = states.clone();
        after[well[victim.index(well.len())]] = if to_off { State::Off } else { State::Dead };
        let (before, after) = (cluster(&states, 0), cluster(&after, 0));
        let (b, a) = (quorum(&before), quorum(&after));
        // The last witness takes certainty with it, never the alarm.
        let blind = after.nodes.iter().all(|n| n.ready != Status::True);
        prop_assert!(crate::rank(&b) <= crate::rank(&a) || blind && a.severity == Severity::Error, "{b:#?}\n{a:#?}");
        let (b, a) = (before.picture(), after.picture());
        prop_assert!(a.voters == 0 || a.healthy <= b.healthy && a.tolerated <= b.tolerated, "{b:#?}\n{a:#?}");
    }

    #[test]
    fn the_unknown_never_becomes_healthy(n in 1usize..8, cause in prop::sample::select(UnknownCause::ALL), whole in any::<bool>()) {
        let w = World::of(n).every(|_, e| {
            for i in 0..n {
                e.endpoints[i].status = unknown(cause.clone());
                e.endpoints[i].linearizable_read = unknown(cause.clone());
            }
        });
        let mut w = w;
        if whole {
            w.nodes.iter_mut().for_each(|node| node.etcd = Some(unknown(cause.clone())));
        }
        prop_assert_ne!(quorum(&w).status, Status::True);
        let p = w.picture();
        prop_assert_eq!((p.healthy, p.tolerated), (0, 0));
        prop_assert!(p.members.iter().all(|m| m.health != MemberHealth::Healthy));
    }

    #[test]
    fn learners_count_neither_way(states in states(5), learners in 1usize..4) {
        let (without, with) = (cluster(&states, 0), cluster(&states, learners));
        let (a, b) = (without.picture(), with.picture());
        if a.voters > 0 {
            prop_assert_eq!((a.voters, a.quorum, a.healthy, a.tolerated), (b.voters, b.quorum, b.healthy, b.tolerated));
            let (a, b) = (quorum(&without), quorum(&with));
            prop_assert_eq!((a.status, a.severity, a.reason), (b.status, b.severity, b.reason));
        }
    }

    #[test]
    fn the_order_of_reports_changes_nothing(states in states(7), learners in 0usize..2, seed in any::<u64>(), other in any::<bool>()) {
        let mut w = cluster(&states, learners);
        if other {
            w.view(1, |e| {
                list_mut(e).cluster_id = "c9".into();
                if let Fact::Known { value, .. } = &mut e.endpoints[0].status {
                    value.cluster_id = "c9".into();
                }
            });
        }
        let mut turned = w.clone();
        // A shuffle that depends on nothing but the seed.
        let mut x = seed | 1;
        for i in (1..turned.nodes.len()).rev() {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            turned.nodes.swap(i, (x >> 33) as usize % (i + 1));
        }
        prop_assert_eq!(w.judged(), turned.judged());
        prop_assert_eq!(w.picture(), turned.picture());
    }

    #[test]
    fn every_verdict_has_numbers_and_advice_and_none_forbids_itself(states in states(7), learners in 0usize..3, fault in 0usize..8) {
        let mut w = cluster(&states, learners);
        w.view(1, |e| spoil(e, fault));
        says_what_it_must(&w.judged())?;
        if let Some(Fact::Known { value, .. }) = &w.nodes[0].etcd {
            says_what_it_must(&judge(&etcd_node(value.clone())))?;
        }
    }
}

/// One more fault on one node.
fn spoil(e: &mut EtcdFacts, fault: usize) {
    let alarm = |kind: &str| known(vec![AlarmFacts { member_id: world::member(1).id, kind: kind.into() }]);
    match fault {
        0 => e.alarms = alarm("NOSPACE"),
        1 => e.alarms = alarm("CORRUPT"),
        2 => {
            e.expected = Some(known(ExpectedMember {
                name: "n1".into(),
                peer_urls: vec!["http://10.9.9.9:2380".into()],
                ..ExpectedMember::default()
            }));
        }
        3 => {
            e.data_folder = Some(known(DataFolder {
                path: "/data".into(),
                tombstone: true,
                reset_flag: true,
                free_bytes: Some(1),
            }));
        }
        4 => {
            if let Fact::Known { value, .. } = &mut e.metrics {
                value.latest.wal_fsync = world::histogram(500, 500);
                value.latest.leader_changes = 9.0;
            }
        }
        5 => {
            e.snapshots = Some(known(Snapshots {
                folder: "/snapshots".into(),
                count: 0,
                newest: None,
                too_small: None,
                object_storage: false,
                schedule_disabled: false,
            }));
        }
        6 => e.kubernetes_nodes = known(vec!["n1".into()]),
        _ => e.members = unknown(UnknownCause::TimedOut),
    }
}
