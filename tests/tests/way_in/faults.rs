//! The matrix: every fault in one run, each told apart from its neighbours.

use std::collections::BTreeMap;

use outrider_tests::beds::rancher::{Balancer, Bed, Layer, Setup, missing};
use outrider_tests::table::Table;

use crate::{pass, said};

/// One fault and what must be said of it: the type that is not well, and its reason.
struct Fault {
    name: &'static str,
    made: &'static str,
    setup: Setup,
    expected: (&'static str, &'static str),
}

fn right(layer: Layer, balancer: Balancer) -> Setup {
    Setup::new(layer, balancer)
}

fn faults() -> Vec<Fault> {
    use Balancer::Haproxy;
    use Layer::L7;
    vec![Fault {
        name: "L7: X-Forwarded-Proto is not sent",
        made: "HAProxy without set-header X-Forwarded-Proto",
        setup: Setup {
            balancer_edits: vec![("http-request set-header X-Forwarded-Proto https\n", "\n")],
            ..right(L7, Haproxy)
        },
        expected: ("LoadBalancerForwarding", "ForwardedHeaderMissing"),
    }]
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn every_fault_is_told_from_its_neighbours() {
    if let Some(why) = missing() {
        panic!("{why}");
    }
    let mut table = Table::new("the way in, broken");
    let mut bed = Bed::new().expect("a bed");
    let mut verdicts: BTreeMap<String, &str> = BTreeMap::new();
    let mut wrong = Vec::new();

    for (layer, balancer) in [(Layer::L4, Balancer::Haproxy), (Layer::L7, Balancer::Haproxy)] {
        let setup = right(layer, balancer);
        bed.arrange(&setup).expect("a bed");
        let (checked, took) = pass(&bed, &setup);
        let seen = checked.condition("LoadBalancerForwarding").map(said).unwrap_or_default();
        table.timed(format!("none: {layer:?}, {balancer:?}"), "as published", seen, took, None);
        if checked.code != 0 {
            wrong.push(format!(
                "{layer:?} {balancer:?} as published: exit {}\n{}",
                checked.code,
                checked.lines()
            ));
        }
    }
    for fault in faults() {
        bed.arrange(&fault.setup).expect("a bed");
        let (checked, took) = pass(&bed, &fault.setup);
        let (kind, reason) = fault.expected;
        let condition = checked.condition(kind);
        table.timed(fault.name, fault.made, condition.map(said).unwrap_or_default(), took, None);
        if condition.is_none_or(|c| c.reason.as_str() != reason || c.advice.is_empty()) {
            wrong.push(format!("{}: wanted {kind} {reason}, got\n{}", fault.name, checked.lines()));
        }
        if let Some(other) = verdicts.insert(format!("{kind} {reason}"), fault.name) {
            wrong.push(format!("{} and {other} are both {kind} {reason}", fault.name));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
