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

use std::time::Instant;

use outrider_protocol::Condition;
use outrider_tests::beds::rancher::{Bed, Setup};
use outrider_tests::checked::{Checked, check_inside};

const ONLY: &str = "load-balancer";

/// One pass on the client's machine.
fn pass(bed: &Bed, setup: &Setup) -> (Checked, std::time::Duration) {
    let config = bed.agent(setup).expect("a configuration");
    let start = Instant::now();
    let checked = check_inside(bed.client(), &config, ONLY).expect("a pass");
    (checked, start.elapsed())
}

/// A condition in one line, as the tables show it.
fn said(condition: &Condition) -> String {
    format!(
        "{} {} {} {}: {}",
        condition.condition_type, condition.status, condition.severity, condition.reason, condition.message
    )
}
