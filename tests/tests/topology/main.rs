//! Region and zone of a Node, at two real kube-apiservers: the guest cluster with the Node authorizer and NodeRestriction, and a
//! Harvester with minimal definitions of KubeVirt's kinds. The agent is the real daemon with a kubelet's own credential.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod bed;
mod faults;
mod labels;

use anyhow::Result;
use outrider_tests::beds::kube_apiserver::program;
use outrider_tests::table::Table;

use bed::Bed;

fn with_a_bed(title: &str, run: fn(&mut Bed, &mut Table) -> Result<()>) {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let mut table = Table::new(title);
    let mut bed = Bed::start(&program).unwrap();
    run(&mut bed, &mut table).unwrap();
    table.row("writes in all", "the daemon's own count", format!("{} requests", bed.writes().unwrap()));
}

#[test]
#[ignore = "needs etcd and kube-apiserver; run by tests/run"]
fn region_and_zone_follow_the_machine_and_nobody_is_fought() {
    with_a_bed("topology: labels of the own Node, at real API servers", labels::run);
}

#[test]
#[ignore = "needs etcd and kube-apiserver; run by tests/run"]
fn what_fails_is_named_and_changes_nothing() {
    with_a_bed("topology: what fails is named, and no label is changed", faults::run);
}
