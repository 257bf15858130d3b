//! What the coordinator desires over the node's own settings; the rules are `outrider_sync::node`.

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{Check, NodeConfigSpec, TopologyValues};
use outrider_sync::node::{CheckValues, Held, NodeValues, merge};
use outrider_sync::topology::refused;

use crate::config::Settings;

/// The settings in force, and what was held back with its reason. A field that is null leaves the node's own value as it
/// is, to the millisecond.
pub(super) fn effective(own: &Settings, desired: &NodeConfigSpec) -> (Settings, Vec<Held>) {
    let seconds = |duration: Duration| u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
    let checks = own.checks.iter().map(|(check, values)| {
        let values = CheckValues { enabled: values.enabled, interval_seconds: seconds(values.interval) };
        (check.to_string(), values)
    });
    let values = NodeValues {
        heartbeat_seconds: seconds(own.report.heartbeat),
        cluster: own.node.cluster.clone(),
        checks: checks.collect::<BTreeMap<_, _>>(),
        probes_per_minute: own.probes_per_minute,
    };
    let merged = merge(&values, desired);
    let mut settings = own.clone();
    let changed = |own: Duration, new: u32| {
        if seconds(own) == new { own } else { Duration::from_secs(new.into()) }
    };
    settings.report.heartbeat = changed(own.report.heartbeat, merged.values.heartbeat_seconds);
    settings.node.cluster = merged.values.cluster;
    settings.probes_per_minute = merged.values.probes_per_minute;
    for (name, new) in merged.values.checks {
        if let Some(values) = settings.checks.get_mut(&Check::from(name.as_str())) {
            values.enabled = new.enabled;
            values.interval = changed(values.interval, new.interval_seconds);
        }
    }
    let mut held = merged.held;
    let topology = desired.topology.clone().unwrap_or_default();
    settings.topology.host = topology.host;
    settings.topology.desired = TopologyValues {
        region: usable("topology.region", topology.values.region, &mut held),
        zone: usable("topology.zone", topology.values.zone, &mut held),
    };
    (settings, held)
}

/// A label's value, unless Kubernetes would refuse it. An empty one is to be no label.
fn usable(path: &str, desired: Option<String>, held: &mut Vec<Held>) -> Option<String> {
    let why = desired.as_deref().filter(|value| !value.is_empty()).and_then(refused);
    if let Some(why) = &why {
        held.push(Held { path: path.to_owned(), reason: format!("it can be no label: {why}") });
    }
    desired.filter(|_| why.is_none())
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{CheckConfig, LoadBalancerConfig};

    use super::*;

    #[test]
    fn null_leaves_the_nodes_own_values_and_the_rest_goes_over_them() {
        let mut own = Settings::default();
        own.report.heartbeat = Duration::from_millis(1_500);
        own.node.cluster = "own".to_owned();
        let (same, held) = effective(&own, &NodeConfigSpec::default());
        assert_eq!((same, held.len()), (own.clone(), 0));
        let check = CheckConfig { enabled: Some(false), interval_seconds: Some(7) };
        let unknown = CheckConfig::default();
        let desired = NodeConfigSpec {
            heartbeat_seconds: Some(0),
            cluster: Some(String::new()),
            checks: Some([("host".to_owned(), check), ("dsn".to_owned(), unknown)].into()),
            load_balancer: Some(LoadBalancerConfig { probes_per_minute: Some(4) }),
            topology: None,
        };
        let (settings, held) = effective(&own, &desired);
        assert_eq!(settings.report.heartbeat, Duration::from_millis(1_500), "out of bounds is held");
        assert_eq!(settings.node.cluster, "", "empty is managed and empty");
        assert_eq!(settings.probes_per_minute, 4);
        let host = settings.checks[&Check::Host];
        assert_eq!((host.enabled, host.interval), (false, Duration::from_secs(7)));
        assert_eq!(held.len(), 2, "{held:?}");
    }
}
