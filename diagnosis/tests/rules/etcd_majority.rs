//! Quorum over random clusters: the arithmetic, that a loss never improves a verdict, and that unknown never becomes healthy.

use outrider_diagnosis::Finding;
use outrider_protocol::*;
use proptest::prelude::*;

use crate::etcd_verdict::found;
use crate::world::{self, Change, etcd, kill, known, orphan, unknown};

fn quorum(e: EtcdFacts) -> Finding {
    found(e, ConditionType::EtcdQuorum)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Healthy,
    Orphan,
    Dead,
    Refused,
}

fn cluster(states: &[State], read: Option<bool>) -> EtcdFacts {
    etcd(states.len()).with(|e| {
        for (i, s) in states.iter().enumerate() {
            match s {
                State::Healthy => {}
                State::Orphan => orphan(e, i + 1),
                State::Dead => kill(e, i + 1, 60),
                State::Refused => e.endpoints[i].status = unknown(UnknownCause::Forbidden),
            }
            e.endpoints[i].linearizable_read = match read {
                Some(true) if *s == State::Healthy => known(1.0),
                Some(false) => unknown(UnknownCause::TimedOut),
                _ => Fact::not_applicable("not tried", world::now()),
            };
        }
    })
}

fn states() -> impl Strategy<Value = Vec<State>> {
    let state = prop_oneof![3 => Just(State::Healthy), 1 => Just(State::Orphan), 1 => Just(State::Dead), 1 => Just(State::Refused)];
    prop::collection::vec(state, 1..10)
}

proptest! {
    #![proptest_config(crate::properties())]
    #[test]
    fn the_arithmetic_is_that_of_a_majority(states in states()) {
        let f = quorum(cluster(&states, None));
        let count = |s| states.iter().filter(|x| **x == s).count();
        let (n, healthy) = (states.len(), count(State::Healthy));
        let needed = n / 2 + 1;
        prop_assert_eq!(f.status == Status::True, healthy >= needed, "{:?}", f);
        // What could not be asked never makes a loss certain.
        let at_best = healthy + count(State::Refused);
        prop_assert_eq!(f.status == Status::False, at_best < needed, "{:?}", f);
        let enough_answer = healthy + count(State::Orphan) >= needed;
        prop_assert_eq!(f.reason == ReasonCode::EtcdNoLeader, at_best < needed && enough_answer, "{:?}", f);
        let numbers = format!("quorum {needed}, {healthy} healthy");
        prop_assert!(f.message.contains(&numbers), "{}", f.message);
    }

    #[test]
    fn losing_a_voter_never_improves_the_verdict(states in states(), victim in any::<prop::sample::Index>(), read in any::<Option<bool>>()) {
        let eligible: Vec<usize> = (0..states.len()).filter(|i| matches!(states[*i], State::Healthy | State::Orphan)).collect();
        if eligible.is_empty() {
            return Ok(());
        }
        let mut after = states.clone();
        let i = eligible[victim.index(eligible.len())];
        after[i] = State::Dead;
        let (before, after) = (quorum(cluster(&states, read)), quorum(cluster(&after, read)));
        prop_assert!(crate::rank(&before) <= crate::rank(&after), "{before:#?}\n{after:#?}");
    }

    #[test]
    fn what_is_unknown_never_turns_healthy(n in 1usize..9, read in any::<Option<bool>>()) {
        let f = quorum(cluster(&vec![State::Refused; n], read));
        prop_assert_ne!(f.status, Status::True);
        prop_assert_ne!(f.status, Status::False);
    }
}
