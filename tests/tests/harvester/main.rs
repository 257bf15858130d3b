//! The coordinator at a Harvester's API: machines that never report, guest agents that connect late, stopped ones, copies,
//! those of others; and the API itself, taken away in every way and given back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod admission;
mod bed;
mod pools;
mod retired;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use outrider_protocol::Status;
use outrider_tests::beds::kube_apiserver::program;
use outrider_tests::table::Table;

use bed::{Bed, Made};

const REPORTING: &str = "MachineReporting";
const AGENT: &str = "GuestAgentConnected";
const IDENTIFIED: &str = "MachineIdentified";

fn vm<'a>(name: &'a str, mac: &'a str) -> Made<'a> {
    Made { name, cluster: "prod", mac, uuid: "", pool: "pool1" }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite harvester"]
async fn what_harvester_says_and_what_nodes_say() {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return println!("harvester: without a kube-apiserver nothing can be shown here ({why})"),
    };
    let mut bed = Bed::start(&program).await.expect("a bed");
    let mut table = Table::new("Harvester's machines at a real kube-apiserver");
    let shown = async {
        let asking = at_first(&bed, &mut table).await?;
        machines(&bed, &mut table).await?;
        copies(&bed, &mut table).await?;
        admission::rows(&bed, &asking, &mut table).await?;
        pools::rows(&mut bed, &mut table).await?;
        retired::rows(&bed, &mut table).await?;
        rights(&bed, &mut table).await?;
        away(&mut bed, &mut table).await?;
        gone(&mut bed, &mut table).await
    };
    shown.await.expect("the faults");
}

/// Before anything was read there are not "no machines".
async fn at_first(bed: &Bed, table: &mut Table) -> Result<admission::Asking> {
    let start = Instant::now();
    let (condition, _) = bed.until_source("InvalidInput").await?;
    ensure!(
        condition.status == Status::Unknown && condition.message.contains("harvester.kubeconfig"),
        "{condition:?}"
    );
    let refused = bed.machines().await.expect_err("a list").to_string();
    ensure!(
        refused.contains("HarvesterNotReadable") && refused.contains("does not mean that there is none"),
        "{refused}"
    );
    let asking = admission::unread(bed).await?;
    bed.let_in()?;
    let (_, cleared) = bed.until_source("HarvesterRead").await?;
    ensure!(bed.machines().await?.is_empty());
    table.timed(
        "no kubeconfig yet",
        "the file is not there",
        said(&condition),
        start.elapsed() - cleared,
        Some(cleared),
    );
    Ok(asking)
}

pub(crate) fn said(condition: &outrider_protocol::Condition) -> String {
    format!("{}={} {}", condition.condition_type, condition.status, condition.reason)
}

async fn machines(bed: &Bed, table: &mut Table) -> Result<()> {
    let one = vm("prod-pool1-a", "52:54:00:00:00:01");
    // The cluster is known by a node of it, as by a token.
    bed.enrol("prod-server", 99, "52:54:00:00:00:99").await?;
    one.create(bed)?;
    bed.until(one.name, REPORTING, "MachineStopped").await?;
    one.run(bed, 7 * 60)?;
    let (never, raised) = bed.until(one.name, REPORTING, "MachineNeverReported").await?;
    ensure!(never.message.contains("VM up 7 min, no first contact"), "{never:?}");
    ensure!(never.advice.contains("cloud-init") && never.advice.contains("ISO"), "{never:?}");
    let (hurry, _) = bed.until(one.name, AGENT, "GuestAgentNeverConnected").await?;
    ensure!(
        hurry.message.contains("not connected") && hurry.message.contains("left before Rancher"),
        "{hurry:?}"
    );
    let mut member = bed.enrol("renamed-by-userdata", 1, one.mac).await?;
    let (reports, cleared) = bed.until(one.name, REPORTING, "MachineReports").await?;
    ensure!(
        reports.message.contains("renamed-by-userdata") && reports.message.contains("host1"),
        "{reports:?}"
    );
    table.timed(
        "a VM never reports, then enrols",
        "no agent in it; then one with its MAC and another name",
        said(&never),
        raised,
        Some(cleared),
    );
    table.timed(
        "Rancher is about to delete it",
        "running for 7 min without AgentConnected",
        said(&hurry),
        raised,
        None,
    );

    let (late, raised) = bed.until(one.name, AGENT, "GuestAgentNotPolled").await?;
    ensure!(late.message.contains("Agent up, host has not polled yet"), "{late:?}");
    one.connect_agent(bed, "192.0.2.11")?;
    let (_, cleared) = bed.until(one.name, AGENT, "GuestAgentConnectedAtHost").await?;
    table.timed(
        "the guest agent connects late",
        "AgentConnected absent while the node says it runs",
        said(&late),
        raised,
        Some(cleared),
    );
    let shown = bed.machines().await?;
    let shown = shown.iter().find(|machine| machine.name == one.name).expect("it");
    ensure!(shown.addresses == ["192.0.2.11"] && shown.matched_by == "MAC", "{shown:?}");
    ensure!((shown.zone.as_str(), shown.region.as_str()) == ("zone-1", "region-1"), "{shown:?}");

    bed.delete(&one.instance())?;
    let (stopped, raised) = bed.until(one.name, REPORTING, "MachineStopped").await?;
    ensure!(stopped.message.contains("stale"), "{stopped:?}");
    one.run(bed, 0)?;
    bed.report(&mut member).await?;
    let (_, cleared) = bed.until(one.name, REPORTING, "MachineReports").await?;
    table.timed(
        "a VM is stopped",
        "its VirtualMachineInstance deleted, its VirtualMachine left",
        said(&stopped),
        raised,
        Some(cleared),
    );

    let other = Made { cluster: "somebody-elses", ..vm("theirs", "52:54:00:00:00:77") };
    other.create(bed)?;
    other.run(bed, 3600)?;
    bed.until(one.name, REPORTING, "MachineReports").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(bed.machines().await?.iter().all(|machine| machine.name != other.name));
    ensure!(!bed.log().contains(other.name), "{}", bed.log());
    table.row(
        "a VM of another cluster",
        "label guestcluster.harvesterhci.io/name of nobody here",
        "nothing: no machine, no line",
    );
    Ok(())
}

async fn copies(bed: &Bed, table: &mut Table) -> Result<()> {
    let copy = vm("copy-of-a", "52:54:00:00:00:01");
    copy.create(bed)?;
    copy.run(bed, 0)?;
    let (both, raised) = bed.until("prod-pool1-a", IDENTIFIED, "MachineAmbiguous").await?;
    ensure!(both.message.contains("prod/copy-of-a") && both.message.contains("MAC"), "{both:?}");
    bed.until(copy.name, IDENTIFIED, "MachineAmbiguous").await?;
    copy.remove(bed)?;
    let (_, cleared) = bed.until("prod-pool1-a", IDENTIFIED, "MachineMatched").await?;
    table.timed("a clone", "a second VM with the same MAC", said(&both), raised, Some(cleared));

    let uuid = outrider_tests::simulated::identity_of(7).system_uuid;
    let original = Made { name: "by-uuid", cluster: "prod", mac: "", uuid: &uuid, pool: "pool1" };
    original.create(bed)?;
    original.run(bed, 0)?;
    bed.enrol("n7", 7, "52:54:00:00:07:07").await?;
    bed.until(original.name, IDENTIFIED, "MachineMatched").await?;
    let copy = Made { name: "by-uuid-2", ..original.clone() };
    copy.create(bed)?;
    copy.run(bed, 0)?;
    let (both, raised) = bed.until(original.name, IDENTIFIED, "MachineAmbiguous").await?;
    ensure!(both.message.contains("system UUID"), "{both:?}");
    copy.remove(bed)?;
    let (_, cleared) = bed.until(original.name, IDENTIFIED, "MachineMatched").await?;
    table.timed(
        "a clone without MACs",
        "a second VM with the same firmware UUID",
        said(&both),
        raised,
        Some(cleared),
    );

    let again = vm("n7", "52:54:00:00:07:99");
    again.create(bed)?;
    again.run(bed, 0)?;
    original.remove(bed)?;
    let (another, raised) = bed.until(again.name, IDENTIFIED, "MachineContradicted").await?;
    ensure!(another.message.contains("n7") && another.message.contains("MAC"), "{another:?}");
    again.remove(bed)?;
    table.timed(
        "a machine made anew under an old name",
        "a VM with the node's name and another MAC",
        said(&another),
        raised,
        None,
    );

    let namesake = Made { cluster: "", ..vm("n7", "52:54:00:00:07:98") };
    namesake.create(bed)?;
    namesake.run(bed, 3600)?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(bed.machines().await?.iter().all(|machine| machine.name != namesake.name));
    namesake.remove(bed)?;
    table.row(
        "a namesake of a node",
        "a VM of no cluster with the node's name and another MAC",
        "nothing: no machine",
    );
    Ok(())
}

async fn rights(bed: &Bed, table: &mut Table) -> Result<()> {
    let binding = bed.take_rights("outrider-harvester-reader")?;
    let (refused, raised) = bed.until_source("Forbidden").await?;
    ensure!(refused.status == Status::Unknown, "{refused:?}");
    ensure!(refused.message.contains("virtualmachine") && refused.message.contains("403"), "{refused:?}");
    ensure!(refused.message.contains("watch ") || refused.message.contains("list "), "{refused:?}");
    ensure!(bed.machines().await?.len() == 1, "what was read stays in sight");
    bed.give_rights(&binding)?;
    let (_, cleared) = bed.until_source("HarvesterRead").await?;
    table.timed("rights are taken", "ClusterRoleBinding deleted", said(&refused), raised, Some(cleared));

    let binding = bed.take_rights("outrider-harvester-hosts")?;
    let (partly, raised) = bed.until_source("HarvesterPartlyRead").await?;
    ensure!(partly.status == Status::True && partly.message.contains("nodes"), "{partly:?}");
    bed.give_rights(&binding)?;
    let (_, cleared) = bed.until_source("HarvesterRead").await?;
    table.timed(
        "the right to hosts is taken",
        "the binding for nodes deleted",
        said(&partly),
        raised,
        Some(cleared),
    );

    bed.revoke_tokens()?;
    let (refused, raised) = bed.until_source("Unauthenticated").await?;
    ensure!(refused.message.contains("401") && refused.advice.contains("new kubeconfig"), "{refused:?}");
    bed.let_in()?;
    let (_, cleared) = bed.until_source("HarvesterRead").await?;
    table.timed(
        "the token is revoked",
        "its ServiceAccount deleted and made anew; then a new kubeconfig",
        said(&refused),
        raised,
        Some(cleared),
    );
    Ok(())
}

async fn away(bed: &mut Bed, table: &mut Table) -> Result<()> {
    bed.server.kill();
    let (refused, raised) = bed.until_source("ConnectionRefused").await?;
    ensure!(refused.message.contains("old"), "{refused:?}");
    ensure!(bed.machines().await?.len() == 1, "what was read stays in sight");
    bed.restart()?;
    let (_, cleared) = bed.until_source("HarvesterRead").await?;
    table.timed("the API server ends", "kill -9, and started again", said(&refused), raised, Some(cleared));

    bed.server.freeze(true)?;
    let hung = bed.until_source("TimedOut").await;
    bed.server.freeze(false)?;
    let (hung, raised) = hung?;
    let (_, cleared) = bed.until_source("HarvesterRead").await?;
    table.timed("the API server hangs", "SIGSTOP, and SIGCONT", said(&hung), raised, Some(cleared));
    Ok(())
}

/// The coordinator's place in the history is gone: it stands still while the server ends its watches, objects change, etcd
/// forgets and the server is started anew.
async fn gone(bed: &mut Bed, table: &mut Table) -> Result<()> {
    use nix::sys::signal::Signal;
    let late = vm("made-meanwhile", "52:54:00:00:00:33");
    bed.coordinator.process.signal(Signal::SIGSTOP)?;
    let compacted = async {
        tokio::time::sleep(Duration::from_secs(45)).await;
        late.create(bed)?;
        bed.compact()?;
        bed.restart()
    };
    let compacted = compacted.await;
    bed.coordinator.process.signal(Signal::SIGCONT)?;
    compacted?;
    let start = Instant::now();
    bed.until(late.name, REPORTING, "MachineStopped").await?;
    // A server that is slow to come back refuses the connection before it can say that the version is gone.
    let by = if bed.log().contains("is gone") { "410" } else { "the end of the watch" };
    table.timed(
        "the version to go on from is gone (410)",
        "etcd compacted and the server restarted while the coordinator stood still",
        format!("listed anew after {by}; the new VM is there"),
        start.elapsed(),
        None,
    );
    Ok(())
}
