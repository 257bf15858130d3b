//! Whether the Node is the one of the machine that the agent runs on. A clone of a disk has its kubelet's credential and its
//! name, and is another machine with another host.

use outrider_protocol::{Fact, NodeTopology, TopologyFacts};

use crate::harvester::same_uuid;

/// What a provider ID of Harvester's cloud provider begins with; the uid of the `VirtualMachine` follows
/// (harvester/cloud-provider-harvester, `pkg/cloud-controller-manager/instance.go`).
const SCHEME: &str = "harvester://";

/// Why the Node is another machine's, as the end of a sentence; none where nothing says so. What is not known contradicts
/// nothing.
pub fn stranger(facts: &TopologyFacts) -> Option<String> {
    let Fact::Known { value: node, .. } = &facts.node else { return None };
    if same_uuid(&node.system_uuid, &facts.system_uuid) == Some(false) {
        return Some(format!(
            "the Node {} is of a machine with the system UUID {}, and this machine has {}",
            node.name, node.system_uuid, facts.system_uuid
        ));
    }
    of_another(node, facts)
}

/// The uid in the provider ID is set once and never changed.
fn of_another(node: &NodeTopology, facts: &TopologyFacts) -> Option<String> {
    let machine = facts.machine.value().filter(|machine| machine.unmatched.is_empty())?;
    let uid = node.provider_id.strip_prefix(SCHEME)?;
    if uid.is_empty() || machine.uid.is_empty() || uid == machine.uid {
        return None;
    }
    Some(format!(
        "the provider ID of the Node {} is {}, and the virtual machine {}/{} has the uid {}",
        node.name, node.provider_id, machine.namespace, machine.name, machine.uid
    ))
}
