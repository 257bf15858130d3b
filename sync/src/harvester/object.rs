//! `VirtualMachine` and `VirtualMachineInstance` of `kubevirt.io/v1`: the fields that are read, and no others.
//!
//! Field names are KubeVirt's (`staging/src/kubevirt.io/api/core/v1/types.go`). A field that is missing, or of another
//! shape than expected where that does no harm, is unknown; it is no error of the whole list.

use std::collections::BTreeMap;

use outrider_protocol::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{
    AgentConnected, CLUSTER_LABEL, CREATOR_LABEL, Instance, MAC_ANNOTATION, MACHINE_SET_LABEL, NODE_DRIVER,
    Nic, POOL_LABEL, Vm, usable_mac,
};

/// What is read of `metadata`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version of the object; in a bookmark, of the whole list.
    pub resource_version: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: String,
    uid: String,
}

/// A `VirtualMachine`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VirtualMachine {
    /// `metadata`.
    pub metadata: Metadata,
    #[serde(deserialize_with = "lenient")]
    spec: VmSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct VmSpec {
    template: Template,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    spec: InstanceSpec,
}

/// A `VirtualMachineInstance`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VirtualMachineInstance {
    /// `metadata`.
    pub metadata: Metadata,
    #[serde(deserialize_with = "lenient")]
    spec: InstanceSpec,
    #[serde(deserialize_with = "lenient")]
    status: InstanceStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct InstanceSpec {
    domain: Domain,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Domain {
    firmware: Firmware,
    devices: Devices,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Firmware {
    uuid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Devices {
    interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Interface {
    mac_address: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InstanceStatus {
    node_name: String,
    phase: String,
    conditions: Vec<Condition>,
    interfaces: Vec<StatusInterface>,
    phase_transition_timestamps: Vec<PhaseTransition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    condition_type: String,
    status: String,
    last_transition_time: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusInterface {
    /// Name in the specification; empty where only the guest made the interface.
    name: String,
    mac: String,
    ip_address: String,
    ip_addresses: Vec<String>,
    info_source: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PhaseTransition {
    phase: String,
    phase_transition_timestamp: Option<String>,
}

/// A part of another shape says nothing; the rest of the object, and of the list, still does.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: Default + serde::de::DeserializeOwned>(
    d: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(d)?).unwrap_or_default())
}

fn instant(text: Option<&String>) -> Option<Timestamp> {
    text?.parse().ok()
}

fn boxed(text: Option<&String>) -> Box<str> {
    text.map_or_else(Box::default, |text| text.as_str().into())
}

impl Metadata {
    /// The part of a VM that every object of it tells.
    fn vm(&self) -> Vm {
        let label = |key: &str| boxed(self.labels.get(key));
        Vm {
            namespace: self.namespace.as_str().into(),
            name: self.name.as_str().into(),
            cluster: label(CLUSTER_LABEL),
            by_node_driver: self.labels.get(CREATOR_LABEL).is_some_and(|creator| creator == NODE_DRIVER),
            machine_set: label(MACHINE_SET_LABEL),
            pool: label(POOL_LABEL),
            created_at: instant(self.creation_timestamp.as_ref()),
            deleted_at: instant(self.deletion_timestamp.as_ref()),
            ..Vm::default()
        }
    }

    /// MACs that Harvester noted beside the specification.
    fn noted_macs(&self) -> impl Iterator<Item = String> {
        let noted = self.annotations.get(MAC_ANNOTATION);
        let noted = noted.and_then(|json| serde_json::from_str::<BTreeMap<String, String>>(json).ok());
        noted.unwrap_or_default().into_values()
    }
}

impl InstanceSpec {
    fn macs(&self) -> impl Iterator<Item = String> + '_ {
        self.domain.devices.interfaces.iter().map(|interface| interface.mac_address.clone())
    }

    fn uuid(&self) -> Box<str> {
        self.domain.firmware.uuid.to_ascii_lowercase().into()
    }
}

fn usable(macs: impl Iterator<Item = String>) -> Vec<Box<str>> {
    let mut macs: Vec<Box<str>> =
        macs.filter_map(|mac| usable_mac(&mac)).map(String::into_boxed_str).collect();
    macs.sort_unstable();
    macs.dedup();
    macs.shrink_to_fit();
    macs
}

impl From<&VirtualMachine> for Vm {
    /// The VM without what runs of it.
    fn from(vm: &VirtualMachine) -> Self {
        let spec = &vm.spec.template.spec;
        Vm {
            uid: vm.metadata.uid.as_str().into(),
            macs: usable(spec.macs().chain(vm.metadata.noted_macs())),
            system_uuid: spec.uuid(),
            ..vm.metadata.vm()
        }
    }
}

impl From<&VirtualMachineInstance> for Vm {
    /// The running VM, as far as its instance tells: all but the VM's own dates.
    fn from(instance: &VirtualMachineInstance) -> Self {
        let metadata = &instance.metadata;
        let owner = metadata.owner_references.iter().find(|owner| owner.kind == "VirtualMachine");
        Vm {
            uid: boxed(owner.map(|owner| &owner.uid)),
            macs: usable(instance.spec.macs()),
            created_at: None,
            deleted_at: None,
            instance: Some(Box::new(Instance::from(instance))),
            ..metadata.vm()
        }
    }
}

impl From<&VirtualMachineInstance> for Instance {
    fn from(instance: &VirtualMachineInstance) -> Self {
        let VirtualMachineInstance { metadata, spec, status } = instance;
        let began = |t: &PhaseTransition| instant(t.phase_transition_timestamp.as_ref());
        let running = status.phase_transition_timestamps.iter().filter(|t| t.phase == "Running");
        let annotation = |key: &str| boxed(metadata.annotations.get(key));
        let mut nics: Vec<Nic> = status.interfaces.iter().filter_map(StatusInterface::nic).collect();
        nics.shrink_to_fit();
        Instance {
            created_at: instant(metadata.creation_timestamp.as_ref()),
            deleted_at: instant(metadata.deletion_timestamp.as_ref()),
            phase: status.phase.as_str().into(),
            running_since: running.filter_map(began).max(),
            host: status.node_name.as_str().into(),
            agent: status.agent(),
            nics,
            first_address: status.interfaces.first().map_or("", |first| &first.ip_address).into(),
            system_uuid: spec.uuid(),
            guest_host_name: Box::default(),
            region: annotation("topology.kubernetes.io/region"),
            zone: annotation("topology.kubernetes.io/zone"),
        }
    }
}

impl InstanceStatus {
    fn agent(&self) -> AgentConnected {
        let said = self.conditions.iter().find(|c| c.condition_type == "AgentConnected");
        let since = |c: &Condition| instant(c.last_transition_time.as_ref());
        match said {
            Some(c) if c.status == "True" => AgentConnected::True(since(c)),
            Some(c) if c.status == "False" => AgentConnected::False(since(c)),
            _ => AgentConnected::Unsaid,
        }
    }
}

impl StatusInterface {
    /// The card, unless only the guest agent knows it: bridges and pod networks of the guest are not the VM's.
    fn nic(&self) -> Option<Nic> {
        let is_of_vm = !self.name.is_empty() || self.info_source.split(',').any(|s| s.trim() == "domain");
        let mac = usable_mac(&self.mac).filter(|_| is_of_vm)?;
        let first = Some(&self.ip_address).filter(|ip| !ip.is_empty() && !self.ip_addresses.contains(ip));
        let addresses = first.into_iter().chain(&self.ip_addresses);
        let addresses = addresses.filter(|ip| !ip.is_empty()).map(|ip| ip.as_str().into()).collect();
        Some(Nic { mac: mac.into(), addresses })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_running_machine_of_the_node_driver() {
        let json = json!({
            "metadata": {
                "namespace": "prod", "name": "prod-pool1-abcde", "uid": "vmi-uid", "creationTimestamp": "2026-11-30T12:00:00Z",
                "labels": {
                    "harvesterhci.io/creator": "docker-machine-driver-harvester", "guestcluster.harvesterhci.io/name": "prod",
                    "harvesterhci.io/machineSetName": "fleet-default-prod-pool1", "nodepool.harvesterhci.io/name": "pool1"
                },
                "annotations": {"topology.kubernetes.io/zone": "zone1"},
                "ownerReferences": [{"kind": "VirtualMachine", "uid": "vm-uid"}],
                "managedFields": [{"manager": "virt-controller"}]
            },
            "spec": {"domain": {
                "firmware": {"uuid": "5D307CA9-B3EF-428C-8861-06E72D69F223"},
                "devices": {"interfaces": [{"name": "nic-1", "macAddress": "52:54:00:AA:BB:01", "bridge": {}}]}
            }},
            "status": {
                "phase": "Running", "nodeName": "host1",
                "phaseTransitionTimestamps": [
                    {"phase": "Pending", "phaseTransitionTimestamp": "2026-11-30T12:00:01Z"},
                    {"phase": "Running", "phaseTransitionTimestamp": "2026-11-30T12:00:20Z"}
                ],
                "conditions": [{"type": "AgentConnected", "status": "True", "lastTransitionTime": "2026-11-30T12:01:00Z"}],
                "interfaces": [
                    {"name": "nic-1", "mac": "52:54:00:aa:bb:01", "ipAddress": "192.0.2.10",
                     "ipAddresses": ["192.0.2.10", "fe80::1"], "infoSource": "domain, guest-agent"},
                    {"interfaceName": "cali1", "mac": "02:11:22:33:44:55", "infoSource": "guest-agent"}
                ]
            }
        });
        let vmi: VirtualMachineInstance = serde_json::from_value(json).unwrap();
        let vm = Vm::from(&vmi);
        assert_eq!((&*vm.uid, &*vm.cluster, &*vm.pool, vm.by_node_driver), ("vm-uid", "prod", "pool1", true));
        assert_eq!(
            (&*vm.machine_set, vm.all_macs()),
            ("fleet-default-prod-pool1", vec!["52:54:00:aa:bb:01"])
        );
        assert_eq!(vm.known_uuid(), "5d307ca9-b3ef-428c-8861-06e72d69f223");
        let instance = vm.instance.unwrap();
        assert!(instance.is_running());
        assert_eq!(instance.running_since, "2026-11-30T12:00:20Z".parse().ok());
        assert_eq!(instance.agent, AgentConnected::True("2026-11-30T12:01:00Z".parse().ok()));
        assert_eq!(instance.addresses().collect::<Vec<_>>(), ["192.0.2.10"]);
        assert_eq!((&*instance.host, &*instance.zone, &*instance.region), ("host1", "zone1", ""));
    }

    #[test]
    fn a_stopped_machine_keeps_its_macs_wherever_they_stand() {
        let json = json!({
            "metadata": {"name": "a", "annotations": {"harvesterhci.io/mac-address": "{\"nic-2\":\"52:54:00:00:00:02\"}"}},
            "spec": {"template": {"spec": {"domain": {"devices": {"interfaces": [{"macAddress": "52-54-00-00-00-01"}]}}}}}
        });
        let vm = Vm::from(&serde_json::from_value::<VirtualMachine>(json).unwrap());
        assert_eq!(vm.all_macs(), ["52:54:00:00:00:01", "52:54:00:00:00:02"]);
        assert_eq!((vm.instance, vm.by_node_driver, &*vm.cluster), (None, false, ""));
    }

    #[test]
    fn a_part_of_another_shape_is_unknown_and_no_error() {
        for json in [json!({}), json!({"metadata": {"name": "a"}, "spec": {"domain": 3}, "status": []})] {
            let vm = Vm::from(&serde_json::from_value::<VirtualMachineInstance>(json).unwrap());
            let instance = vm.instance.unwrap();
            assert_eq!(
                (instance.agent, instance.nics.len(), &*instance.phase),
                (AgentConnected::Unsaid, 0, "")
            );
        }
    }
}
