//! Node pools: an image without guest agent, whose machines are made and deleted for ever; what Rancher wants beside what is
//! there; and Rancher itself, taken away and given back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use outrider_protocol::{Condition, List, PoolView, Status};
use outrider_tests::simulated::Member;
use outrider_tests::table::Table;
use serde_json::{Value, json};

use crate::bed::{Bed, LIMIT, Made};
use crate::said;

const STABLE: &str = "PoolStable";
const COMPLETE: &str = "PoolComplete";
const CLUSTERS: &str = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/fleet-default/rolebindings";

impl Bed {
    async fn pool(&self, name: &str) -> Result<Option<PoolView>> {
        let list: List<PoolView> = self.coordinator.operator.get("/v1/pools").await?;
        Ok(list.items.into_iter().find(|pool| pool.name == name))
    }

    /// Waits until the pool's condition is as wanted; the pool, the condition, and how long that took.
    async fn until_pool(
        &self,
        name: &str,
        kind: &str,
        reason: &str,
    ) -> Result<(PoolView, Condition, Duration)> {
        self.until_pool_is(name, kind, reason, |_, _| true).await
    }

    /// The same, where the rest of the pool is to be as `is` wants it: its two kinds of objects are read one by one.
    async fn until_pool_is(
        &self,
        name: &str,
        kind: &str,
        reason: &str,
        is: impl Fn(&PoolView, &Condition) -> bool,
    ) -> Result<(PoolView, Condition, Duration)> {
        let start = Instant::now();
        loop {
            let pool = self.pool(name).await?;
            let shown =
                pool.as_ref().and_then(|p| p.conditions.iter().find(|c| c.condition_type.as_str() == kind));
            if let (Some(pool), Some(condition)) = (&pool, shown.filter(|c| c.reason.as_str() == reason))
                && is(pool, condition)
            {
                return Ok((pool.clone(), condition.clone(), start.elapsed()));
            }
            ensure!(start.elapsed() < LIMIT, "pool {name}: {kind} is no {reason}; {pool:#?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn want(&self, pools: &Value) -> Result<()> {
        let path = format!("{CLUSTERS}/prod");
        self.patch(&path, &json!({"spec": {"rkeConfig": {"machinePools": pools}}})).map(drop)
    }
}

fn vm<'a>(name: &'a str, mac: &'a str) -> Made<'a> {
    Made { name, cluster: "prod", mac, uuid: "", pool: "loop" }
}

fn wanted(name: &str, quantity: u32) -> Value {
    json!({"name": name, "quantity": quantity, "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc-1"}})
}

/// A machine that never reports is deleted, and the next one is made, as Rancher does it.
async fn replaced(bed: &Bed, old: &Made<'_>, new: &Made<'_>) -> Result<()> {
    old.remove(bed)?;
    let start = Instant::now();
    while bed
        .pool("loop")
        .await?
        .is_some_and(|p| p.departures.iter().all(|gone| !gone.machine.ends_with(old.name)))
    {
        ensure!(start.elapsed() < LIMIT, "{} is not seen to go", old.name);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    new.create(bed)?;
    new.run(bed, 0)
}

pub(crate) async fn rows(bed: &mut Bed, table: &mut Table) -> Result<()> {
    let mut member = made_and_deleted_for_ever(bed, table).await?;
    // What went stands in the store.
    bed.read_rancher_too().await?;
    bed.report(&mut member).await?;
    let (pool, _, _) = bed.until_pool("loop", STABLE, "PoolRolling").await?;
    ensure!(pool.replaced_last_hour == 2 && pool.departures.len() == 2, "{pool:#?}");
    wanted_and_there(bed, &mut member, table).await?;
    vm("loop-c", "").remove(bed)
}

async fn made_and_deleted_for_ever(bed: &Bed, table: &mut Table) -> Result<Member> {
    let [one, two, three] = [
        vm("loop-a", "52:54:00:00:11:01"),
        vm("loop-b", "52:54:00:00:11:02"),
        vm("loop-c", "52:54:00:00:11:03"),
    ];
    one.create(bed)?;
    one.run(bed, 9 * 60)?;
    let is_made = |p: &PoolView, _: &Condition| (p.present, p.never_reported, p.replacing) == (1, 1, 0);
    let (pool, steady, _) = bed.until_pool_is("loop", STABLE, "PoolSteady", is_made).await?;
    ensure!(
        steady.status == Status::True && pool.wanted.is_none() && !pool.wanted_unknown.is_empty(),
        "{pool:#?}"
    );
    ensure!(pool.conditions.iter().all(|c| c.condition_type.as_str() != COMPLETE), "{pool:#?}");
    replaced(bed, &one, &two).await?;
    let is_once = |p: &PoolView, _: &Condition| (p.present, p.replacing, p.replaced_last_hour) == (1, 1, 1);
    let (_, rolling, _) = bed.until_pool_is("loop", STABLE, "PoolRolling", is_once).await?;
    ensure!(rolling.message.contains("prod/loop-a by prod/loop-b"), "{rolling:?}");
    replaced(bed, &two, &three).await?;
    let is_twice = |p: &PoolView, _: &Condition| (p.replacing, p.replaced_last_hour) == (1, 2);
    let (_, in_vain, raised) = bed.until_pool_is("loop", STABLE, "PoolReplacedInVain", is_twice).await?;
    ensure!(
        in_vain.message.contains("2 of 2 machines") && in_vain.advice.contains("qemu-guest-agent"),
        "{in_vain:?}"
    );
    let member = bed.enrol("loop-node", 3, three.mac).await?;
    let is_there = |p: &PoolView, _: &Condition| (p.reporting, p.replacing, p.never_reported) == (1, 0, 0);
    let (_, _, cleared) = bed.until_pool_is("loop", STABLE, "PoolRolling", is_there).await?;
    table.timed(
        "an image without guest agent: made, deleted, made again",
        "two VMs deleted before they report, another in the place of each; then one reports",
        said(&in_vain),
        raised,
        Some(cleared),
    );
    Ok(member)
}

async fn wanted_and_there(bed: &Bed, member: &mut Member, table: &mut Table) -> Result<()> {
    bed.until_source_of("RancherReadable", "InvalidInput").await?;
    let (_, unknown, _) = bed.until_pool("loop", COMPLETE, "PoolWantedUnknown").await?;
    ensure!(unknown.status == Status::Unknown, "{unknown:?}");
    bed.post(
        CLUSTERS,
        &json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "prod"}, "spec": {"rkeConfig": {"machinePools": [wanted("loop", 1)]}}}),
    )?;
    bed.let_in_to_rancher()?;
    let is_full = |_: &PoolView, c: &Condition| c.message.contains("1 wanted, 1 present, 1 reporting");
    let (pool, _, cleared) = bed.until_pool_is("loop", COMPLETE, "PoolFull", is_full).await?;
    ensure!(pool.wanted == Some(1) && pool.wanted_unknown.is_empty(), "{pool:#?}");
    table.timed(
        "Rancher is not read yet",
        "its kubeconfig is not there",
        said(&unknown),
        Duration::ZERO,
        Some(cleared),
    );

    bed.want(&json!([wanted("loop", 3), wanted("empty", 2)]))?;
    let (pool, short, raised) = bed.until_pool("loop", COMPLETE, "PoolShort").await?;
    ensure!(short.message.contains("3 wanted, 1 present, 1 reporting; short for"), "{short:?}");
    ensure!(pool.wanted == Some(3), "{pool:#?}");
    let (empty, _, _) = bed.until_pool("empty", COMPLETE, "PoolShort").await?;
    ensure!((empty.wanted, empty.present) == (Some(2), 0), "{empty:#?}");
    bed.want(&json!([wanted("loop", 1)]))?;
    let (_, _, cleared) = bed.until_pool("loop", COMPLETE, "PoolFull").await?;
    table.timed(
        "a pool is short",
        "quantity 3 of a pool with one machine, and 1 again",
        said(&short),
        raised,
        Some(cleared),
    );
    let start = Instant::now();
    while bed.pool("empty").await?.is_some() {
        ensure!(start.elapsed() < LIMIT, "a pool that nobody wants is still shown");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    bed.report(member).await?;
    let binding = bed.take_rights_at(ROLES, "outrider-rancher-reader")?;
    let (refused, raised) = bed.until_source_of("RancherReadable", "Forbidden").await?;
    ensure!(
        refused.message.contains("403") && refused.message.contains("clusters.provisioning"),
        "{refused:?}"
    );
    let (pool, _, _) = bed.until_pool("loop", COMPLETE, "PoolWantedUnknown").await?;
    ensure!(pool.wanted.is_none(), "what it wanted is not taken for what it wants: {pool:#?}");
    bed.post(ROLES, &binding)?;
    bed.report(member).await?;
    let (_, cleared) = bed.until_source_of("RancherReadable", "RancherRead").await?;
    bed.until_pool("loop", COMPLETE, "PoolFull").await?;
    table.timed("rights at Rancher are taken", "RoleBinding deleted", said(&refused), raised, Some(cleared));
    Ok(())
}
