//! The way in to Rancher, each fault made for real: HAProxy and nginx set up by the files of `docs/load-balancer/`, nginx and
//! Traefik as ingress, a backend with Rancher's own code; judged by `outrider check` on a machine beside them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod faults;
mod idle;
mod matrix;
mod moves;
mod paths;
mod politeness;
mod watchers;

use std::time::Instant;

use outrider_protocol::Condition;
use outrider_tests::beds::rancher::{Bed, Setup};
use outrider_tests::checked::{Checked, check_inside};

use crate::matrix::From;

/// Whether this fault is to be made: all of them, or those that `WAY_IN_FAULT` is part of the name of.
fn chosen(name: &str) -> bool {
    std::env::var("WAY_IN_FAULT").map_or(true, |part| name.contains(&part))
}

/// One pass, and what it took.
fn pass(bed: &Bed, setup: &Setup, from: From) -> (Checked, std::time::Duration) {
    let config = bed.agent(setup).expect("a configuration");
    // On a node its own addresses count: it is one of the backends.
    let (machine, only) = match from {
        From::Outside => (bed.client(), "load-balancer"),
        From::Node => (bed.node(1), "load-balancer,host"),
    };
    let start = Instant::now();
    let checked = check_inside(machine, &config, only).expect("a pass");
    (checked, start.elapsed())
}

/// A condition in one line, as the tables show it.
fn said(condition: &Condition) -> String {
    format!(
        "{} {} {} {}: {}",
        condition.condition_type, condition.status, condition.severity, condition.reason, condition.message
    )
}
