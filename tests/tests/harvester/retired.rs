//! Nodes whose machines are deleted: not an error of a node that is silent, and not what another kubeconfig does not show.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use outrider_protocol::{ClusterView, Condition, NodeView, Severity, Status};
use outrider_tests::simulated::Member;
use outrider_tests::table::Table;

use crate::bed::{Bed, LIMIT, Made};
use crate::said;

const NODE: &str = "to-be-retired";

impl Bed {
    /// Waits until the node's `Ready` has this reason; it, and how long that took.
    async fn until_ready(&self, node: &str, reason: &str) -> Result<(Condition, Duration)> {
        let start = Instant::now();
        loop {
            let view: NodeView = self.coordinator.operator.get(&format!("/v1/nodes/{node}")).await?;
            let ready = view.conditions.into_iter().find(|c| c.condition_type.as_str() == "Ready");
            if let Some(condition) = ready.clone().filter(|c| c.reason.as_str() == reason) {
                return Ok((condition, start.elapsed()));
            }
            ensure!(start.elapsed() < LIMIT, "{node} is not {reason}, but {ready:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A word of the node, by which it is silent three seconds later.
    async fn beat(&self, member: &Member) -> Result<()> {
        let mut connection = self.coordinator.operator.target.connect(member.tls.clone(), None).await?;
        member.heartbeat(&mut connection, 1).await.map(drop)
    }

    async fn counts(&self, node: &str) -> Result<bool> {
        let cluster: ClusterView = self.coordinator.operator.get("/v1/clusters/prod").await?;
        Ok(cluster.nodes.iter().any(|name| name == node))
    }
}

pub(crate) async fn rows(bed: &Bed, table: &mut Table) -> Result<()> {
    let vm = Made { name: NODE, cluster: "prod", mac: "52:54:00:00:22:01", uuid: "", pool: "pool1" };
    vm.create(bed)?;
    vm.run(bed, 0)?;
    let member = bed.enrol(NODE, 41, vm.mac).await?;
    bed.until(NODE, "MachineReporting", "MachineReports").await?;
    bed.beat(&member).await?;
    bed.until_ready(NODE, "NodeSilent").await?;
    ensure!(bed.counts(NODE).await?, "a silent node counts");

    // Another kubeconfig shows no machine of this namespace; that does not delete them.
    bed.let_in_to("fleet-default")?;
    let start = Instant::now();
    while bed.machines().await?.iter().any(|machine| machine.name == NODE) {
        ensure!(start.elapsed() < LIMIT, "the other kubeconfig is not read");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    bed.until_ready(NODE, "NodeSilent").await?;
    bed.let_in()?;
    bed.until(NODE, "MachineIdentified", "MachineMatched").await?;
    bed.until_ready(NODE, "NodeSilent").await?;
    table.row(
        "a kubeconfig that shows other machines",
        "its context names another namespace, and none again",
        "Ready=Unknown NodeSilent: nobody is retired",
    );

    vm.remove(bed)?;
    let (retired, raised) = bed.until_ready(NODE, "NodeRetired").await?;
    ensure!((retired.status, retired.severity) == (Status::Unknown, Severity::Info), "{retired:?}");
    ensure!(retired.message.contains("prod/to-be-retired was deleted"), "{retired:?}");
    ensure!(!bed.counts(NODE).await?, "a retired node does not count");
    vm.create(bed)?;
    vm.run(bed, 0)?;
    let (_, cleared) = bed.until_ready(NODE, "NodeSilent").await?;
    ensure!(bed.counts(NODE).await?, "it counts again");
    table.timed(
        "the machine of a silent node is deleted",
        "VM and instance deleted; then a VM with its MAC again",
        said(&retired),
        raised,
        Some(cleared),
    );

    vm.remove(bed)?;
    let (retired, raised) = bed.until_ready(NODE, "NodeRetired").await?;
    bed.beat(&member).await?;
    let (_, cleared) = bed.until_ready(NODE, "AgentRunning").await?;
    bed.until_ready(NODE, "NodeSilent").await?;
    table.timed(
        "one that was retired is heard again",
        "VM deleted; then a heartbeat of its node",
        said(&retired),
        raised,
        Some(cleared),
    );
    Ok(())
}
