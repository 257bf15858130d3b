//! Servers, credentials and rights that fail, and machines that cannot be told.

use std::time::Instant;

use anyhow::{Result, ensure};
use outrider_tests::table::Table;
use serde_json::{Value, json};

use crate::bed::{Bed, CLOUD, KUBELET, LIMIT, MERGE, VM_UID, ZONE, inline};

const IN_SYNC: &str = "TopologyInSync";
const GOOD: &str = "TopologyMatches";

pub(crate) fn run(bed: &mut Bed, table: &mut Table) -> Result<()> {
    refused_by_node_restriction(bed, table)?;
    bed.annotate(ZONE, json!("z2"))?;
    bed.run("mode = \"auto\"")?;
    bed.until(IN_SYNC, GOOD, &["z2"])?;
    values(bed, table)?;
    machines(bed, table)?;
    rights(bed, table)?;
    credentials(bed, table)?;
    servers(bed, table)?;
    taint(bed, table)?;
    verify(bed, table)
}

/// What a kubelet's credential may not do, as the server says it: why it is enough for us and no more.
fn refused_by_node_restriction(bed: &Bed, table: &mut Table) -> Result<()> {
    let kubelet = bed.guest.kubelet("n1")?;
    let label = json!({"metadata": {"labels": {ZONE: "x"}}});
    let taint = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    for (fault, path, body, words) in [
        ("the label of another Node", "/api/v1/nodes/n2", label, "is not allowed to modify node"),
        ("a taint of the own Node", "/api/v1/nodes/n1", taint, "is not allowed to modify taints"),
    ] {
        let (status, said) = bed.guest.request(&kubelet, "PATCH", path, Some((MERGE, &body.to_string())))?;
        ensure!(status == 403 && said.contains(words), "{status} {said}");
        table.row(fault, "PATCH with the kubelet's credential", format!("403 {words}"));
    }
    Ok(())
}

fn values(bed: &Bed, table: &mut Table) -> Result<()> {
    let before = bed.writes()?;
    bed.annotate(ZONE, json!("rack/7"))?;
    let (raised, _) = bed.until(IN_SYNC, "TopologyValueInvalid", &["rack/7", "'/'"])?;
    ensure!(bed.writes()? == before, "it was sent");
    bed.annotate(ZONE, json!("z2"))?;
    let (cleared, _) = bed.until(IN_SYNC, GOOD, &["z2"])?;
    table.timed(
        "a value that can be no label",
        "the annotation is rack/7",
        "TopologyValueInvalid, nothing sent",
        raised,
        Some(cleared),
    );
    Ok(())
}

fn machines(bed: &mut Bed, table: &mut Table) -> Result<()> {
    let before = bed.writes()?;
    bed.forget_machine("n1")?;
    let (raised, _) = bed.until(IN_SYNC, "TopologyMachineUnmatched", &["none of"])?;
    ensure!(bed.has(ZONE)?.as_deref() == Some("z2") && bed.writes()? == before, "the label went");
    bed.machine("n1", json!({"topology.kubernetes.io/region": "r1", ZONE: "z2"}))?;
    let (cleared, _) = bed.until(IN_SYNC, GOOD, &["z2"])?;
    let seen = "TopologyMachineUnmatched, the labels stay";
    table.timed("the machine is not there", "its instance is deleted", seen, raised, Some(cleared));
    Ok(())
}

fn rights(bed: &Bed, table: &mut Table) -> Result<()> {
    bed.allow(false)?;
    let words = ["virtualmachineinstances", "guest-cloud"];
    let (raised, _) = bed.until(IN_SYNC, "Forbidden", &words)?;
    bed.allow(true)?;
    let (cleared, _) = bed.until(IN_SYNC, GOOD, &["z2"])?;
    table.timed(
        "no right to read the machine",
        "its RoleBinding is deleted",
        "Forbidden names verb and resource",
        raised,
        Some(cleared),
    );
    Ok(())
}

fn credentials(bed: &mut Bed, table: &mut Table) -> Result<()> {
    let good = inline(&bed.guest.kubelet("n1")?, "")?;
    // The other cluster's authority did not sign this certificate, and this one did not sign that server's.
    let foreign: Value = serde_json::from_str(&inline(&bed.host.kubelet("n1")?, "")?)?;
    let mut other_user: Value = serde_json::from_str(&good)?;
    other_user["users"] = foreign["users"].clone();
    let mut other_ca: Value = serde_json::from_str(&good)?;
    other_ca["clusters"][0]["cluster"]["certificate-authority-data"] =
        foreign["clusters"][0]["cluster"]["certificate-authority-data"].clone();
    let stranger = inline(&bed.guest.identity("system:node:n1", &[])?, "")?;
    for (fault, config, reason) in [
        ("a credential of another cluster", other_user.to_string(), "Unauthenticated"),
        ("the authority of another cluster", other_ca.to_string(), "TlsFailed"),
        ("a credential without rights", stranger, "Forbidden"),
    ] {
        bed.home.put(KUBELET, &config)?;
        bed.run("mode = \"auto\"")?;
        let (raised, _) = bed.until(IN_SYNC, reason, &["Node"])?;
        bed.home.put(KUBELET, &good)?;
        let (cleared, _) = bed.until(IN_SYNC, GOOD, &["z2"])?;
        table.timed(fault, "in the kubelet's kubeconfig", reason, raised, Some(cleared));
    }
    Ok(())
}

fn servers(bed: &mut Bed, table: &mut Table) -> Result<()> {
    bed.guest.kill();
    let (raised, _) = bed.until(IN_SYNC, "ConnectionRefused", &[])?;
    let back = Instant::now();
    bed.guest.restart()?;
    let admin = bed.admin.clone();
    bed.guest.wait_until_ready(&admin, LIMIT)?;
    bed.until(IN_SYNC, GOOD, &["z2"])?;
    table.timed(
        "the API server is gone",
        "SIGKILL; then started again",
        "ConnectionRefused",
        raised,
        Some(back.elapsed()),
    );

    bed.guest.freeze(true)?;
    let (raised, _) = bed.until(IN_SYNC, "TimedOut", &[])?;
    bed.guest.freeze(false)?;
    let (cleared, _) = bed.until(IN_SYNC, GOOD, &["z2"])?;
    table.timed("the API server hangs", "SIGSTOP; then SIGCONT", "TimedOut", raised, Some(cleared));

    let cloud = inline(&bed.cloud, "guest")?;
    bed.home.put(CLOUD, "not: a kubeconfig\nclusters: [")?;
    bed.run("mode = \"auto\"")?;
    let (raised, _) = bed.until(IN_SYNC, "InvalidInput", &["virtual machine"])?;
    bed.home.put(CLOUD, &cloud)?;
    let (cleared, _) = bed.until(IN_SYNC, GOOD, &["z2"])?;
    table.timed("a broken cloud-config", "half a file", "InvalidInput", raised, Some(cleared));
    Ok(())
}

fn taint(bed: &Bed, table: &mut Table) -> Result<()> {
    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    let key = "node.cloudprovider.kubernetes.io/uninitialized";
    let one = taints(json!([{"key": key, "value": "true", "effect": "NoSchedule"}]));
    bed.guest_send("PATCH", "/api/v1/nodes/n1", MERGE, &one)?;
    let (raised, _) = bed.until("NodeInitialized", "NodeUninitialized", &[key])?;
    bed.guest_send("PATCH", "/api/v1/nodes/n1", MERGE, &taints(Value::Null))?;
    let (cleared, _) = bed.until("NodeInitialized", "NodeInitialized", &[])?;
    table.timed(
        "a Node waits for a cloud provider",
        "its taint",
        "NodeUninitialized with its age",
        raised,
        Some(cleared),
    );
    Ok(())
}

fn verify(bed: &mut Bed, table: &mut Table) -> Result<()> {
    let provider = json!({"spec": {"providerID": format!("harvester://{VM_UID}")}});
    bed.guest_send("PATCH", "/api/v1/nodes/n1", MERGE, &provider)?;
    bed.run("mode = \"auto\"")?;
    bed.until(IN_SYNC, GOOD, &["z2"])?;
    bed.annotate(ZONE, json!("z3"))?;
    let words = ["z2", "z3", "only compared", "version cannot be seen"];
    let (raised, _) = bed.until(IN_SYNC, "TopologyDiffers", &words)?;
    ensure!(bed.has(ZONE)?.as_deref() == Some("z2"), "it was written");
    bed.annotate(ZONE, json!("z2"))?;
    let (cleared, _) = bed.until(IN_SYNC, GOOD, &["z2"])?;
    table.timed(
        "Harvester's cloud provider runs",
        "a providerID of its own; the annotation changes",
        "TopologyDiffers, nothing written",
        raised,
        Some(cleared),
    );
    clone(bed, table)
}

/// The agent runs on a clone: the machine that is found by its marks is not the one whose Node this is.
fn clone(bed: &mut Bed, table: &mut Table) -> Result<()> {
    bed.run("mode = \"sync\"\ntake_over = [\"placement\", \"kubectl-label\"]")?;
    bed.until(IN_SYNC, GOOD, &["z2"])?;
    let before = bed.writes()?;
    bed.owned_by("another")?;
    let words = ["another machine's", VM_UID, "the uid another"];
    let (raised, _) = bed.until(IN_SYNC, "TopologyMachineUnmatched", &words)?;
    bed.annotate(ZONE, json!("z9"))?;
    std::thread::sleep(std::time::Duration::from_secs(3));
    ensure!(bed.has(ZONE)?.as_deref() == Some("z2") && bed.writes()? == before, "it was written");
    bed.annotate(ZONE, json!("z2"))?;
    bed.owned_by(VM_UID)?;
    let (cleared, _) = bed.until(IN_SYNC, GOOD, &["z2"])?;
    table.timed(
        "a clone of the node's disk",
        "the machine's uid is not the one in the providerID",
        "TopologyMachineUnmatched names both, nothing written",
        raised,
        Some(cleared),
    );
    Ok(())
}
