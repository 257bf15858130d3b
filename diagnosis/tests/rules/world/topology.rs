//! A Node whose labels are its machine's.

use std::collections::BTreeMap;

use outrider_protocol::*;

use super::{absent, ago, known};

fn values(region: &str, zone: &str) -> TopologyValues {
    TopologyValues { region: Some(region.into()), zone: Some(zone.into()) }
}

pub fn topology() -> TopologyFacts {
    let labels = [(REGION, "r1"), (ZONE, "z1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let owner =
        || vec![LabelOwner { manager: FIELD_MANAGER.into(), operation: "Apply".into(), at: Some(ago(60)) }];
    let node = NodeTopology {
        name: "n1".into(),
        uid: "0c5b0f0e-0000-4000-8000-000000000001".into(),
        resource_version: "700".into(),
        created: Some(ago(86_400)),
        labels: BTreeMap::from(labels),
        owners: [REGION, ZONE].map(|key| (key.to_owned(), owner())).into(),
        ready_since: Some(ago(86_000)),
        ..NodeTopology::default()
    };
    let machine = MachineTopology {
        namespace: "guest".into(),
        name: "n1".into(),
        matched_by: "MAC".into(),
        host: "host1".into(),
        annotations: values("r1", "z1"),
        follows_host: true,
        copied_from: "host1".into(),
        ..MachineTopology::default()
    };
    TopologyFacts {
        mode: TopologyMode::Auto,
        take_over: Vec::new(),
        strict: false,
        node: known(node),
        machine: known(machine),
        host: None,
        desired: TopologyValues::default(),
        configured: TopologyValues::default(),
        instance: absent("/run/cloud-init/instance-data.json"),
        static_labels: BTreeMap::new(),
        system_uuid: String::new(),
        writes: WriteRecord { written: 1, ..WriteRecord::default() },
    }
}
