//! Desired configuration of a node over what the node itself has.

use std::collections::BTreeMap;

use outrider_protocol::NodeConfigSpec;

/// Bounds of a desired heartbeat, in seconds: slower than an hour and silence means nothing.
pub const HEARTBEAT_SECONDS: std::ops::RangeInclusive<u32> = 1..=3600;
/// Bounds of a desired interval between two passes of a check, in seconds.
pub const INTERVAL_SECONDS: std::ops::RangeInclusive<u32> = 1..=86_400;

/// Bounds of the connections a minute to one balancer.
pub const PROBES_PER_MINUTE: std::ops::RangeInclusive<u32> = 1..=600;

/// The values a node has: its own (upstream) going in, the effective ones coming out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeValues {
    /// Seconds between heartbeats.
    pub heartbeat_seconds: u32,
    /// Cluster the node is shown under; empty when none.
    pub cluster: String,
    /// Cadence of every check the node has, by name.
    pub checks: BTreeMap<String, CheckValues>,
    /// Connections a minute to one balancer and its backends.
    pub probes_per_minute: u32,
}

/// Cadence of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckValues {
    /// Whether it runs.
    pub enabled: bool,
    /// Seconds between passes.
    pub interval_seconds: u32,
}

/// Whose value is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The field is unmanaged: the node's own value stays.
    Node,
    /// The field is desired by the coordinator.
    Coordinator,
}

/// One field, as `explain` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path, such as `checks.etcd.intervalSeconds`.
    pub path: String,
    /// What is desired; `None` when unmanaged.
    pub desired: Option<String>,
    /// What the node has of its own.
    pub upstream: String,
    /// What is in force.
    pub effective: String,
    /// Whose value that is.
    pub owner: Owner,
}

/// A desired value that is not put in force, and why. The node's own value stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Path of the field.
    pub path: String,
    /// What is wrong with the desired value, and what may be given instead.
    pub reason: String,
}

/// The outcome of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The values in force.
    pub values: NodeValues,
    /// Every field with its owner, in a fixed order.
    pub fields: Vec<Field>,
    /// Desired values that were held back.
    pub held: Vec<Held>,
}

/// Merges `desired` over the node's own values. Never fails: a value out of bounds, or for a check this node does not
/// know, is held with its reason while everything else goes into force.
pub fn merge(own: &NodeValues, desired: &NodeConfigSpec) -> Merged {
    let mut merge = Merge { fields: Vec::new(), held: Vec::new() };
    let heartbeat_seconds = merge.number(
        "heartbeatSeconds".to_owned(),
        own.heartbeat_seconds,
        desired.heartbeat_seconds,
        HEARTBEAT_SECONDS,
    );
    let cluster = merge.take("cluster".to_owned(), own.cluster.clone(), desired.cluster.clone());

    let unmanaged = BTreeMap::new();
    let wanted = desired.checks.as_ref().unwrap_or(&unmanaged);
    for name in wanted.keys().filter(|name| !own.checks.contains_key(*name)) {
        let known = own.checks.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        merge.hold(format!("checks.{name}"), format!("this node has no check {name:?}; it has {known}"));
    }
    let checks = own
        .checks
        .iter()
        .map(|(name, values)| {
            let want = wanted.get(name).cloned().unwrap_or_default();
            let enabled = merge.take(format!("checks.{name}.enabled"), values.enabled, want.enabled);
            let interval_seconds = merge.number(
                format!("checks.{name}.intervalSeconds"),
                values.interval_seconds,
                want.interval_seconds,
                INTERVAL_SECONDS,
            );
            (name.clone(), CheckValues { enabled, interval_seconds })
        })
        .collect();

    let probes_per_minute = merge.number(
        "loadBalancer.probesPerMinute".to_owned(),
        own.probes_per_minute,
        desired.load_balancer.as_ref().and_then(|balancer| balancer.probes_per_minute),
        PROBES_PER_MINUTE,
    );

    Merged {
        values: NodeValues { heartbeat_seconds, cluster, checks, probes_per_minute },
        fields: merge.fields,
        held: merge.held,
    }
}

struct Merge {
    fields: Vec<Field>,
    held: Vec<Held>,
}

impl Merge {
    fn hold(&mut self, path: String, reason: String) {
        self.held.push(Held { path, reason });
    }

    /// The desired value if there is one, else the node's own; either way the field is recorded.
    fn take<T: ToString>(&mut self, path: String, own: T, desired: Option<T>) -> T {
        let upstream = own.to_string();
        let wanted = desired.as_ref().map(ToString::to_string);
        let owner = if desired.is_some() { Owner::Coordinator } else { Owner::Node };
        let value = desired.unwrap_or(own);
        self.fields.push(Field { path, desired: wanted, upstream, effective: value.to_string(), owner });
        value
    }

    fn number(
        &mut self,
        path: String,
        own: u32,
        desired: Option<u32>,
        bounds: std::ops::RangeInclusive<u32>,
    ) -> u32 {
        match desired {
            Some(n) if !bounds.contains(&n) => {
                let reason = format!("{n} is out of bounds; give {} to {}", bounds.start(), bounds.end());
                self.hold(path.clone(), reason);
                self.take(path, own, None)
            }
            in_bounds => self.take(path, own, in_bounds),
        }
    }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{CheckConfig, LoadBalancerConfig};

    use super::*;

    fn own() -> NodeValues {
        let checks = ["clock", "etcd"]
            .map(|name| (name.to_owned(), CheckValues { enabled: true, interval_seconds: 60 }))
            .into_iter()
            .collect();
        NodeValues { heartbeat_seconds: 30, cluster: "prod".to_owned(), checks, probes_per_minute: 30 }
    }

    fn etcd(config: CheckConfig) -> NodeConfigSpec {
        NodeConfigSpec { checks: Some([("etcd".to_owned(), config)].into()), ..Default::default() }
    }

    #[test]
    fn nothing_desired_changes_nothing() {
        let merged = merge(&own(), &NodeConfigSpec::default());
        assert_eq!(merged.values, own());
        assert!(merged.held.is_empty());
        assert!(merged.fields.iter().all(|f| f.owner == Owner::Node && f.desired.is_none()));
    }

    #[test]
    fn an_empty_string_is_managed_and_empty() {
        let desired = NodeConfigSpec { cluster: Some(String::new()), ..Default::default() };
        let merged = merge(&own(), &desired);
        assert_eq!(merged.values.cluster, "");
        let field = merged.fields.iter().find(|f| f.path == "cluster").unwrap();
        assert_eq!((field.owner, field.upstream.as_str()), (Owner::Coordinator, "prod"));
    }

    #[test]
    fn a_check_that_is_not_named_keeps_its_cadence() {
        let merged = merge(&own(), &etcd(CheckConfig { enabled: None, interval_seconds: Some(5) }));
        assert_eq!(merged.values.checks["etcd"], CheckValues { enabled: true, interval_seconds: 5 });
        assert_eq!(merged.values.checks["clock"], own().checks["clock"]);
    }

    #[test]
    fn what_is_out_of_bounds_is_held_and_the_rest_goes_on() {
        let mut desired = etcd(CheckConfig { enabled: Some(false), interval_seconds: Some(0) });
        desired.heartbeat_seconds = Some(3601);
        desired.load_balancer = Some(LoadBalancerConfig { probes_per_minute: Some(0) });
        let merged = merge(&own(), &desired);
        assert_eq!(merged.values.heartbeat_seconds, 30);
        assert_eq!(merged.values.checks["etcd"], CheckValues { enabled: false, interval_seconds: 60 });
        let paths: Vec<_> = merged.held.iter().map(|h| h.path.as_str()).collect();
        assert_eq!(
            paths,
            ["heartbeatSeconds", "checks.etcd.intervalSeconds", "loadBalancer.probesPerMinute"]
        );
    }

    #[test]
    fn an_unknown_check_is_held_by_name_never_ignored() {
        let desired = NodeConfigSpec {
            checks: Some([("moon".to_owned(), CheckConfig::default())].into()),
            ..Default::default()
        };
        let merged = merge(&own(), &desired);
        assert_eq!(merged.held[0].path, "checks.moon");
        assert!(merged.held[0].reason.contains("clock, etcd"), "{}", merged.held[0].reason);
    }

    #[test]
    fn a_share_of_the_probes_goes_over_the_nodes_own() {
        let share = LoadBalancerConfig { probes_per_minute: Some(4) };
        let desired = NodeConfigSpec { load_balancer: Some(share), ..Default::default() };
        assert_eq!(merge(&own(), &desired).values.probes_per_minute, 4);
        let unmanaged = NodeConfigSpec { load_balancer: Some(Default::default()), ..Default::default() };
        assert_eq!(merge(&own(), &unmanaged).values.probes_per_minute, 30);
    }

    #[test]
    fn merging_is_idempotent() {
        let desired = etcd(CheckConfig { enabled: Some(false), interval_seconds: Some(7) });
        let once = merge(&own(), &desired);
        assert_eq!(merge(&once.values, &desired).values, once.values);
    }
}
