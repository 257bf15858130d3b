//! Node pools: what is wanted, what is there, and what is made and deleted for ever.

use outrider_diagnosis::machines::{Pool, PoolWanted, SourceState, judge_pool, judge_rancher};
use outrider_protocol::{ConditionType as T, Departure, ReasonCode as R, Severity, Status, UnknownCause};
use proptest::prelude::*;

use crate::machines::{ago, failed, now, source};
use crate::registry::check;
use crate::{expect, only, properties};

fn departure(minutes_ago: u64, reported: bool, replaced: bool) -> Departure {
    Departure {
        machine: format!("prod/a{minutes_ago}"),
        uid: format!("u{minutes_ago}"),
        created_at: Some(ago((minutes_ago + 10) * 60)),
        leaving_since: ago(minutes_ago * 60),
        gone_at: Some(ago(minutes_ago * 60)),
        reported,
        replaced_by: if replaced { "prod/next".to_owned() } else { String::new() },
        ..Departure::default()
    }
}

fn pool<'a>(
    wanted: PoolWanted<'a>,
    [present, deleting, reporting]: [usize; 3],
    gone: &'a [Departure],
) -> Pool<'a> {
    Pool {
        wanted,
        present,
        deleting,
        reporting,
        short_since: None,
        departures: gone,
        newest_reporting: None,
        watched_since: ago(7200),
    }
}

#[test]
fn a_pool_is_held_against_what_is_wanted_and_nothing_is_wanted_of_an_unknown() {
    let judged = |p: &Pool<'_>| only(&judge_pool(p, now()), T::PoolComplete);
    let of = |n, counts, short: u64| {
        let p = pool(PoolWanted::Known(n), counts, &[]);
        judged(&Pool { short_since: (short > 0).then(|| ago(short)), ..p })
    };
    expect(
        &of(3, [3, 0, 3], 0),
        Status::True,
        Severity::Ok,
        R::PoolFull,
        &["3 wanted, 3 present, 3 reporting"],
    );
    expect(&of(0, [0, 0, 0], 0), Status::True, Severity::Ok, R::PoolFull, &["0 wanted"]);
    let words = ["3 wanted, 3 present (1 being deleted), 2 reporting", "short for 60 s", "yet to make"];
    expect(&of(3, [3, 1, 2], 60), Status::False, Severity::Info, R::PoolShort, &words);
    let words = ["3 present, 2 reporting", "short for 15 min", "outrider get machines"];
    expect(&of(3, [3, 0, 2], 900), Status::False, Severity::Warn, R::PoolShort, &words);
    expect(&of(3, [0, 0, 0], 1700), Status::False, Severity::Warn, R::PoolShort, &["0 present"]);
    expect(&of(3, [3, 0, 0], 1800), Status::False, Severity::Error, R::PoolShort, &["0 reporting"]);
    expect(&of(2, [3, 0, 3], 0), Status::True, Severity::Info, R::PoolSurplus, &["more than are wanted"]);
    let unknown = judged(&pool(PoolWanted::Unknown("nobody knows"), [3, 0, 3], &[]));
    expect(&unknown, Status::Unknown, Severity::Info, R::PoolWantedUnknown, &["nobody knows", "3 present"]);
    let not_read = judge_pool(&pool(PoolWanted::NotRead, [3, 0, 3], &[]), now());
    assert!(not_read.findings.iter().all(|f| f.condition_type == T::PoolStable), "{not_read:#?}");
}

#[test]
fn machines_that_are_made_and_deleted_for_ever_are_told_by_their_succession() {
    let judged = |p: &Pool<'_>| only(&judge_pool(p, now()), T::PoolStable);
    let of = |gone: &[Departure]| judged(&pool(PoolWanted::NotRead, [1, 0, 0], gone));
    expect(&of(&[]), Status::True, Severity::Ok, R::PoolSteady, &["within the last hour"]);
    let young = Pool { watched_since: ago(300), ..pool(PoolWanted::NotRead, [1, 0, 0], &[]) };
    expect(&judged(&young), Status::True, Severity::Ok, R::PoolSteady, &["in the 5 min it has been watched"]);
    // One is an accident, one without another in its place was not replaced, and one that reported has served.
    let one = [departure(30, false, true), departure(20, false, false), departure(5, true, true)];
    expect(
        &of(&one),
        Status::True,
        Severity::Info,
        R::PoolRolling,
        &["2 machines were replaced", "1 of which never"],
    );
    let mut two = vec![departure(70, false, true), departure(25, false, true), departure(10, false, true)];
    let words = [
        "2 of 2 machines",
        "each after 10 min",
        "the last 10 min ago",
        "prod/a10, prod/a25",
        "Of these 0 had",
        "qemu-guest-agent",
    ];
    expect(&of(&two), Status::False, Severity::Warn, R::PoolReplacedInVain, &words);
    two[1].agent_connected = true;
    expect(&of(&two), Status::False, Severity::Warn, R::PoolReplacedInVain, &["Of these 1 had", "DHCP"]);
    two[1].had_address = true;
    expect(&of(&two), Status::False, Severity::Warn, R::PoolReplacedInVain, &["1 showed", "userdata"]);
    // One that began after them and reports has broken the circle; one that began before has not.
    let later = |born: u64| {
        judged(&Pool { newest_reporting: Some(ago(born)), ..pool(PoolWanted::NotRead, [1, 0, 1], &two) })
    };
    expect(&later(300), Status::True, Severity::Info, R::PoolRolling, &["2 machines were replaced"]);
    expect(&later(3000), Status::False, Severity::Warn, R::PoolReplacedInVain, &[]);
}

#[test]
fn what_rancher_wants_is_unknown_while_it_cannot_be_read() {
    let judge = |state| judge_rancher("https://r", &source("clusters", false, state), now());
    expect(&judge(SourceState::Read(2)), Status::True, Severity::Ok, R::RancherRead, &["2 clusters"]);
    let words = ["403", "does not mean none", "outrider-coordinator-rancher.yaml"];
    expect(
        &judge(failed(UnknownCause::Forbidden, None)),
        Status::Unknown,
        Severity::Warn,
        R::Forbidden,
        &words,
    );
    let stale = judge(failed(UnknownCause::Unauthenticated, Some(ago(90))));
    expect(&stale, Status::Unknown, Severity::Warn, R::Unauthenticated, &["90 s ago", "new kubeconfig"]);
    assert_eq!(judge(SourceState::NotYetRead).reason, R::NotYetRead);
}

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn every_verdict_over_a_pool_is_one_that_the_registry_allows(
        wanted in prop::option::of(0u32..5),
        counts in [0usize..5, 0usize..5, 0usize..5],
        short in 0u64..4000,
        gone in prop::collection::vec((0u64..90, any::<[bool; 4]>()), 0..6),
    ) {
        let gone: Vec<Departure> = gone.into_iter().map(|(minutes, [reported, replaced, agent, address])| {
            let (agent_connected, had_address) = (agent, address);
            Departure { agent_connected, had_address, ..departure(minutes, reported, replaced) }
        }).collect();
        let wanted = wanted.map_or(PoolWanted::Unknown("why"), PoolWanted::Known);
        let p = Pool { short_since: Some(ago(short)), ..pool(wanted, counts, &gone) };
        for finding in judge_pool(&p, now()).findings {
            check(&finding)?;
        }
    }
}
