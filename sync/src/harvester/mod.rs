//! Virtual machines of SUSE Virtualization (Harvester) as its API describes them, and which node each of them is.
//!
//! [`Vm`] is what is kept of a [`VirtualMachine`] together with its [`VirtualMachineInstance`], both `kubevirt.io/v1` and read
//! from their JSON. [`identify`] says which node of a fleet, or of a guest cluster, each VM is, and why one is none
//! (`facts/harvester-topology.md`, sections 4 and 11).

mod identity;
mod object;
mod pools;
mod vm;

pub use identity::{Identified, Mark, NodeMarks, VmMarks, Vms, identify, same_uuid};
pub use object::{Metadata, VirtualMachine, VirtualMachineInstance};
pub use pools::{ProvisioningCluster, WantedPool, wanted_pool};
pub use vm::{AgentConnected, Instance, Nic, Vm, usable_mac};

/// Label: who made the VM.
pub const CREATOR_LABEL: &str = "harvesterhci.io/creator";
/// Value of [`CREATOR_LABEL`] on machines of Rancher's node driver.
pub const NODE_DRIVER: &str = "docker-machine-driver-harvester";
/// Label: Rancher's name of the guest cluster that the VM belongs to.
pub const CLUSTER_LABEL: &str = "guestcluster.harvesterhci.io/name";
/// Label: pool of the VM, as `<namespace>-<cluster>-<pool>`.
pub const MACHINE_SET_LABEL: &str = "harvesterhci.io/machineSetName";
/// Label: name of the VM's node pool.
pub const POOL_LABEL: &str = "nodepool.harvesterhci.io/name";
/// Annotation of a VM: MAC by name of the interface, as JSON, where the specification has none.
pub const MAC_ANNOTATION: &str = "harvesterhci.io/mac-address";
