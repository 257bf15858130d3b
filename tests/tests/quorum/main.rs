//! Real etcd clusters, laid out as RKE2 does, in network namespaces, broken for real; what the coordinator shows of it and
//! how fast. Run by `tests/run --suite quorum`, which gives it namespaces of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod losses;
mod machines;
mod network;
mod standing;

use std::time::{Duration, Instant};

use outrider_protocol::{Condition, EventView, Status};
use outrider_tests::beds::servers::{Etcd, Options, Seen, Servers, Timing, said};

/// The budget: quorum lost until suspected (`docs/design.md`).
const SUSPECTED: Duration = Duration::from_secs(3);
/// The budget: until it is certain, on top of the member's election timeout.
const CERTAIN_EXTRA: Duration = Duration::from_secs(2);
/// Says where a time was over its budget. The budget is held by reading the table: a machine that is busy with something
/// else is no fault of ours. A time of several budgets is: then something waits that should not.
fn in_time(what: &str, took: Duration, budget: Duration) {
    if took > budget {
        println!("over the budget: {what} after {took:?}, budget {budget:?}");
    }
    assert!(took <= 4 * budget, "{what} after {took:?}, budget {budget:?}");
}

/// Every agent reads the whole cluster every ten seconds instead of every two minutes, and calls a learner stalled after
/// twenty seconds instead of five minutes.
const AGENT: &str = "[checks.etcd]\ninterval = \"10s\"\nlearner_stalled = \"20s\"\n";

/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(400);

/// The later etcd where it could be unpacked, else the installed one.
fn newer() -> Etcd {
    Etcd::newer().unwrap_or_else(|_| installed())
}

fn installed() -> Etcd {
    Etcd::installed().unwrap_or_else(|why| panic!("{why}"))
}

fn start(options: &Options) -> Servers {
    Servers::start(options).unwrap_or_else(|e| panic!("{e:?}"))
}

fn quorum(seen: &Seen) -> Option<&Condition> {
    seen.of_cluster("EtcdQuorum")
}

/// Whether the cluster's quorum is in doubt.
fn is_suspected(seen: &Seen) -> bool {
    quorum(seen).is_some_and(|c| c.status != Status::True)
}

fn is_lost(seen: &Seen) -> bool {
    quorum(seen).is_some_and(|c| c.status == Status::False)
}

/// Looks until `good`, from `start` on.
fn seen(bed: &mut Servers, what: &str, start: Instant, good: impl FnMut(&Seen) -> bool) -> (Duration, Seen) {
    bed.until(what, start, LIMIT, good).unwrap_or_else(|e| panic!("{e:?}"))
}

/// What `outrider describe cluster` shows a person who is woken by `fault`, printed as well.
fn described(bed: &Servers, fault: &str) -> String {
    let text = bed.described().unwrap_or_else(|e| panic!("{fault}: {e:?}"));
    println!("---- {fault}: outrider describe cluster\n{text}----");
    text
}

/// Looks until everything is well again.
fn well(bed: &mut Servers, what: &str, start: Instant) -> Duration {
    let nodes = bed.len();
    seen(bed, what, start, |s| s.is_well(nodes)).0
}

/// Transitions of the cluster's quorum among `events`.
fn of_quorum(events: &[EventView]) -> Vec<&Condition> {
    let cluster = events.iter().filter(|e| e.node == "bed").map(|e| &e.transition.condition);
    cluster.filter(|c| c.condition_type.as_str() == "EtcdQuorum").collect()
}

/// Where the history and the elections stood before a fault.
#[derive(Clone, Copy)]
struct Before {
    event: u64,
    term: u64,
}

impl Before {
    /// Now, as member 0 has it, which no fault that leaves a majority takes away for good.
    fn now(bed: &mut Servers) -> Self {
        let event = bed.position().expect("the history");
        Self { event, term: bed.term(0).expect("a term") }
    }

    /// Now, with member 0 as the leader: a fault around others leaves it in its place.
    fn led_by_the_first(bed: &mut Servers) -> Self {
        bed.lead(0).expect("a leader");
        well(bed, "led by server-1", Instant::now());
        Self::now(bed)
    }
}

/// What the cluster's quorum went through since `before`, in words; it may never be called lost unless etcd did lose its
/// leader meanwhile (its term says so), and then for that reason and until the next word only. The side without a majority
/// may raise a doubt, until the other's next word.
fn never_lost(bed: &mut Servers, fault: &str, before: Before) -> String {
    let events = bed.events(before.event).expect("the history");
    let term = bed.term(0).expect("a term");
    let told = of_quorum(&events);
    let all: Vec<String> = told.iter().map(|c| format!("{}: {}", said(c), c.message)).collect();
    let elections = term - before.term;
    let (mut doubted, mut lost) = (Duration::ZERO, Duration::ZERO);
    for (i, c) in told.iter().enumerate().filter(|(_, c)| c.status != Status::True) {
        let Some(next) = told.get(i + 1) else { panic!("{fault}: not True to the end: {all:#?}") };
        let lasted = next.last_transition_time.since(c.last_transition_time);
        if c.status == Status::Unknown {
            doubted += lasted;
            continue;
        }
        assert!(elections > 0, "{fault}: no election since term {}, so quorum held: {all:#?}", before.term);
        assert_eq!(c.reason.as_str(), "EtcdNoLeader", "{fault}: only the leader was lost: {all:#?}");
        lost += lasted;
    }
    let doubted = match doubted {
        Duration::ZERO => "never doubted".to_owned(),
        d => format!("doubted for {:.1} s", d.as_secs_f64()),
    };
    match lost {
        Duration::ZERO => format!("cluster: quorum {doubted}, never False"),
        lost => {
            format!("cluster: quorum {doubted}, False for {:.1} s of {elections} terms", lost.as_secs_f64())
        }
    }
}
