//! The rules against the project's cases and further inputs of their kinds, hysteresis and fleet verdicts by property,
//! and the promise that the crate is pure.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

mod agent;
mod balancer;
mod balancer_backends;
mod balancer_ca;
mod balancer_certificates;
mod balancer_foreign;
mod balancer_headers;
mod balancer_idle;
mod balancer_moved;
mod balancer_reachable;
mod balancer_refusals;
mod balancer_websocket;
mod certificates;
mod clock;
mod clock_ends;
mod clock_service;
mod cloud_init;
mod credentials;
mod dns;
mod dns_servers;
mod dns_this_node;
mod etcd_apart;
mod etcd_corrupt;
mod etcd_cure;
mod etcd_disk;
mod etcd_folder;
mod etcd_foreign;
mod etcd_lagging;
mod etcd_learners;
mod etcd_majority;
mod etcd_members;
mod etcd_needs;
mod etcd_node;
mod etcd_odd;
mod etcd_peers;
mod etcd_properties;
mod etcd_quorum;
mod etcd_space;
mod etcd_split;
mod etcd_urls;
mod etcd_verdict;
mod fleet;
mod fleet_clock;
mod fleet_data;
mod fleet_etcd;
mod fleet_ghosts;
mod fleet_halves;
mod fleet_ports;
mod fleet_properties;
mod fleet_reads;
mod fleet_retired;
mod fleet_split;
mod fleet_world;
mod guest_agent;
mod host;
mod hysteresis;
mod kubernetes;
mod machines;
mod paths;
mod pools;
mod proxy;
mod purity;
mod rancher_agent;
mod registry;
mod runbooks;
mod topology;
mod world;

use outrider_diagnosis::{Finding, Judgement};
use outrider_protocol::{ConditionType, ReasonCode, Severity, Status};

/// The one finding of a type, whatever its subject.
fn only(judgement: &Judgement, of: ConditionType) -> Finding {
    let mut found = judgement.findings.iter().filter(|f| f.condition_type == of);
    let first = found.next().unwrap_or_else(|| panic!("no {of} in {judgement:#?}"));
    assert!(found.next().is_none(), "several {of}");
    first.clone()
}

#[track_caller]
fn expect(f: &Finding, status: Status, severity: Severity, reason: ReasonCode, words: &[&str]) {
    assert_eq!((f.status, f.severity, &f.reason), (status, severity, &reason), "{f:#?}");
    for word in words {
        let found = f.message.contains(word) || f.advice.contains(word);
        assert!(found, "{word:?} is in neither message nor advice: {f:#?}");
    }
}

/// How bad a finding is: worse is greater.
fn rank(f: &Finding) -> (u8, Severity) {
    let status = match f.status {
        Status::True => 0,
        Status::Unknown => 1,
        Status::False => 2,
    };
    (status, f.severity)
}

/// Properties are random and leave no file behind; a failure prints its smallest input.
fn properties() -> proptest::test_runner::Config {
    proptest::test_runner::Config { failure_persistence: None, ..Default::default() }
}
