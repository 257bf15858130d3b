//! What this machine's own files say of its region and zone.

use std::collections::BTreeMap;

use outrider_protocol::{BETA_REGION, BETA_ZONE, Fact, REGION, TopologyValues, ZONE};
use serde_json::Value;

use crate::sense::rancher::{self, K3S, Opened, RKE2};
use crate::sense::{SenseContext, file};

/// cloud-init's reading of the instance metadata (canonical/cloud-init, `cloudinit/sources/__init__.py`, keys `v1`).
pub(super) fn instance(cx: &SenseContext) -> Fact<TopologyValues> {
    file::fact(cx, "/run/cloud-init/instance-data.json", file::LARGE, |text| {
        let all: Value = serde_json::from_str(text).map_err(|e| format!("no JSON: {e}"))?;
        let value = |key: &str| {
            let value = all.pointer(&format!("/v1/{key}")).and_then(Value::as_str);
            value.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        Ok(TopologyValues { region: value("region"), zone: value("availability_zone") })
    })
}

/// `node-label` of RKE2 or K3s, of the four of topology: the kubelet writes them again at every registration
/// (`facts/rke2-k3s-on-disk.md`, 4).
pub(super) fn static_labels(cx: &SenseContext) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for program in [&RKE2, &K3S] {
        let told = rancher::read(&Opened(&*cx.opener), program);
        let labels = told.options.node_labels().filter_map(|label| label.split_once('='));
        let ours = labels.filter(|(key, _)| [REGION, ZONE, BETA_REGION, BETA_ZONE].contains(key));
        found.extend(ours.map(|(key, value)| (key.to_owned(), value.chars().take(253).collect())));
    }
    found
}
