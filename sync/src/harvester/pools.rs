//! Node pools as Rancher wants them: `clusters.provisioning.cattle.io` of Rancher's own cluster, of which only the machine
//! pools are read (rancher/rancher, `pkg/apis/provisioning.cattle.io/v1`, `spec.rkeConfig.machinePools`).
//!
//! A pool is matched by what Harvester's labels say of its machines: the machine set `<namespace>-<cluster>-<pool>` where it
//! is told, else cluster and pool by name (`facts/harvester-topology.md`, section 8). Where neither leads to one pool, what is
//! wanted is unknown.

use serde::Deserialize;

use super::object::{Metadata, lenient};

/// `kind` of the machine configuration of pools on Harvester.
const HARVESTER_CONFIG: &str = "HarvesterConfig";

/// A `Cluster` of `provisioning.cattle.io/v1`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProvisioningCluster {
    /// `metadata`.
    pub metadata: Metadata,
    #[serde(deserialize_with = "lenient")]
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    rke_config: Option<RkeConfig>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RkeConfig {
    machine_pools: Vec<MachinePool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MachinePool {
    name: String,
    quantity: Option<i64>,
    machine_config_ref: ConfigRef,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ConfigRef {
    kind: String,
}

/// One pool as Rancher wants it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedPool {
    /// Namespace of the cluster's object at Rancher.
    pub namespace: Box<str>,
    /// Rancher's name of the cluster.
    pub cluster: Box<str>,
    /// Name of the pool.
    pub pool: Box<str>,
    /// Machines that are wanted; `None` where the object does not say.
    pub quantity: Option<u32>,
    /// Whether its machines are made at Harvester.
    pub on_harvester: bool,
}

impl ProvisioningCluster {
    /// Its machine pools; none of an imported cluster or one without node driver.
    pub fn pools(&self) -> Vec<WantedPool> {
        let pools = self.spec.rke_config.iter().flat_map(|config| &config.machine_pools);
        pools
            .filter(|pool| !pool.name.is_empty())
            .map(|pool| WantedPool {
                namespace: self.metadata.namespace.as_str().into(),
                cluster: self.metadata.name.as_str().into(),
                pool: pool.name.as_str().into(),
                quantity: pool.quantity.and_then(|quantity| u32::try_from(quantity).ok()),
                on_harvester: pool.machine_config_ref.kind == HARVESTER_CONFIG,
            })
            .collect()
    }
}

impl WantedPool {
    /// The machine set of its machines, as the node driver labels them.
    fn machine_set(&self) -> String {
        format!("{}-{}-{}", self.namespace, self.cluster, self.pool)
    }
}

/// Which of `wanted` is the pool whose machines bear these labels; the reason, in words, where that cannot be told.
pub fn wanted_pool<'a>(
    cluster: &str,
    pool: &str,
    machine_set: &str,
    wanted: &'a [WantedPool],
) -> Result<&'a WantedPool, String> {
    let of_cluster: Vec<&WantedPool> = wanted.iter().filter(|w| &*w.cluster == cluster).collect();
    if of_cluster.is_empty() {
        return Err(format!("Rancher shows no cluster {cluster} with machine pools"));
    }
    let by_set: Vec<&WantedPool> =
        of_cluster.iter().copied().filter(|w| w.machine_set() == machine_set).collect();
    let by_name: Vec<&WantedPool> = of_cluster.iter().copied().filter(|w| &*w.pool == pool).collect();
    match (by_set.as_slice(), by_name.as_slice()) {
        ([one], _) | ([], [one]) => Ok(*one),
        ([], []) => {
            Err(format!("none of the pools that Rancher wants of cluster {cluster} has these labels"))
        }
        (several, named) => Err(format!(
            "{} pools of clusters named {cluster} at Rancher come into question",
            several.len().max(named.len())
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(namespace: &str, pools: serde_json::Value) -> Vec<WantedPool> {
        let object = json!({
            "metadata": {"namespace": namespace, "name": "prod"},
            "spec": {"kubernetesVersion": "v1", "rkeConfig": {"machinePools": pools}}
        });
        serde_json::from_value::<ProvisioningCluster>(object).unwrap().pools()
    }

    #[test]
    fn what_is_wanted_is_a_number_or_unknown_and_never_made_up() {
        let pools = json!([
            {"name": "pool1", "quantity": 3, "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc-1"}},
            {"name": "pool2", "quantity": 0}, {"name": "pool3"}, {"name": "pool4", "quantity": -1}
        ]);
        let pools = cluster("fleet-default", pools);
        let told: Vec<_> = pools.iter().map(|p| (&*p.pool, p.quantity, p.on_harvester)).collect();
        let expected = [
            ("pool1", Some(3), true),
            ("pool2", Some(0), false),
            ("pool3", None, false),
            ("pool4", None, false),
        ];
        assert_eq!(told, expected);
        for odd in [json!({}), json!({"spec": 3}), json!({"spec": {"rkeConfig": null}})] {
            assert!(serde_json::from_value::<ProvisioningCluster>(odd).unwrap().pools().is_empty());
        }
    }

    #[test]
    fn a_pool_is_matched_by_its_machine_set_then_by_name_and_else_not() {
        let pool = json!([{"name": "pool1", "quantity": 3}]);
        let one = cluster("fleet-default", pool.clone());
        let two: Vec<WantedPool> = one.iter().cloned().chain(cluster("other", pool)).collect();
        let of = |pool: &str, set: &str, wanted: &[WantedPool]| {
            wanted_pool("prod", pool, set, wanted).map(|found| found.namespace.to_string())
        };
        assert_eq!(of("pool1", "", &one).unwrap(), "fleet-default");
        assert_eq!(of("prod-pool1", "fleet-default-prod-pool1", &one).unwrap(), "fleet-default");
        assert_eq!(of("pool1", "other-prod-pool1", &two).unwrap(), "other");
        assert!(of("pool1", "hash_abc_z", &two).unwrap_err().contains("2 pools"));
        assert!(of("pool9", "", &one).unwrap_err().contains("none of the pools"));
        assert!(wanted_pool("test", "pool1", "", &one).unwrap_err().contains("no cluster test"));
    }
}
