//! What is kept of one VM: small, for a Harvester has thousands.

use outrider_protocol::Timestamp;

use super::VmMarks;

/// One virtual machine. Empty text means that its object does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vm {
    /// Namespace.
    pub namespace: Box<str>,
    /// Name, unique in the namespace.
    pub name: Box<str>,
    /// UID of the `VirtualMachine`; the cloud provider's provider ID is `harvester://` and this.
    pub uid: Box<str>,
    /// Rancher's name of the guest cluster; empty for a VM of no guest cluster.
    pub cluster: Box<str>,
    /// Whether Rancher's node driver made it.
    pub by_node_driver: bool,
    /// Machine set of its pool, `<namespace>-<cluster>-<pool>`.
    pub machine_set: Box<str>,
    /// Name of its pool.
    pub pool: Box<str>,
    /// MACs of its network cards as they are specified, lower case with colons.
    pub macs: Vec<Box<str>>,
    /// System UUID as it is specified, lower case.
    pub system_uuid: Box<str>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Since when it is being deleted.
    pub deleted_at: Option<Timestamp>,
    /// What runs of it; `None` while it is stopped.
    pub instance: Option<Box<Instance>>,
}

/// A running VM (`VirtualMachineInstance`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    /// When it was made: the VM was started then.
    pub created_at: Option<Timestamp>,
    /// Since when it is being deleted.
    pub deleted_at: Option<Timestamp>,
    /// `Pending`, `Scheduling`, `Scheduled`, `Running`, `Succeeded`, `Failed`, …
    pub phase: Box<str>,
    /// Since when it is `Running`, where its object says so.
    pub running_since: Option<Timestamp>,
    /// Host it runs on.
    pub host: Box<str>,
    /// Whether the host reaches the guest agent.
    pub agent: AgentConnected,
    /// Its network cards, as specified and as seen from outside; interfaces that only the guest made are left out.
    pub nics: Vec<Nic>,
    /// Address of the first interface in its status, whatever that is: the only one at which Rancher's node driver looks,
    /// and it takes no other than IPv4.
    pub first_address: Box<str>,
    /// System UUID, lower case.
    pub system_uuid: Box<str>,
    /// Host name as the guest agent reports it. `status.guestOSInfo` has none: it comes from the subresource
    /// `virtualmachineinstances/guestosinfo`, where that was asked.
    pub guest_host_name: Box<str>,
    /// Annotation `topology.kubernetes.io/region`.
    pub region: Box<str>,
    /// Annotation `topology.kubernetes.io/zone`.
    pub zone: Box<str>,
}

/// Condition `AgentConnected` of a running VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentConnected {
    /// There is no such condition: it has not connected since the VM was started, or not been noticed yet.
    #[default]
    Unsaid,
    /// Connected, since then.
    True(Option<Timestamp>),
    /// Not connected, since then.
    False(Option<Timestamp>),
}

/// One network card of a running VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nic {
    /// Hardware address, lower case with colons.
    pub mac: Box<str>,
    /// Its addresses, without prefix length.
    pub addresses: Vec<Box<str>>,
}

impl Vm {
    /// Every MAC that it has: of the running VM and as specified, each once.
    pub fn all_macs(&self) -> Vec<&str> {
        let running = self.instance.iter().flat_map(|i| i.nics.iter().map(|nic| &*nic.mac));
        let mut macs: Vec<&str> = running.chain(self.macs.iter().map(|mac| &**mac)).collect();
        macs.sort_unstable();
        macs.dedup();
        macs
    }

    /// System UUID; empty when unknown.
    pub fn known_uuid(&self) -> &str {
        match &self.instance {
            Some(instance) if !instance.system_uuid.is_empty() => &instance.system_uuid,
            _ => &self.system_uuid,
        }
    }

    /// The marks by which it is told.
    pub fn marks(&self) -> VmMarks<'_> {
        VmMarks {
            name: &self.name,
            guest_host_name: self.instance.as_ref().map_or("", |i| &i.guest_host_name),
            cluster: &self.cluster,
            macs: self.all_macs(),
            system_uuid: self.known_uuid(),
        }
    }
}

impl Instance {
    /// Whether the guest runs and is not being ended.
    pub fn is_running(&self) -> bool {
        &*self.phase == "Running" && self.deleted_at.is_none()
    }

    /// Whether Rancher's node driver gets the address it waits for: the first interface's, and IPv4.
    pub fn satisfies_driver(&self) -> bool {
        self.first_address.parse::<std::net::Ipv4Addr>().is_ok()
    }

    /// Its addresses as the API shows them, without link-local ones.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let all = self.nics.iter().flat_map(|nic| nic.addresses.iter().map(|address| &**address));
        all.filter(|address| !is_link_local(address))
    }
}

fn is_link_local(address: &str) -> bool {
    match address.parse() {
        Ok(std::net::IpAddr::V4(v4)) => v4.is_link_local(),
        Ok(std::net::IpAddr::V6(v6)) => v6.is_unicast_link_local(),
        Err(_) => false,
    }
}

/// `mac` in lower case with colons, if it tells machines apart. Those of tunnels and pod networks do not: every Calico
/// interface has `ee:ee:ee:ee:ee:ee`, and the bridge behind every masqueraded card `02:00:00:00:00:00`.
pub fn usable_mac(mac: &str) -> Option<String> {
    let mac = mac.trim().to_ascii_lowercase().replace('-', ":");
    let octets: Vec<u8> = mac
        .split(':')
        .filter(|octet| octet.len() == 2)
        .map_while(|octet| u8::from_str_radix(octet, 16).ok())
        .collect();
    let is_group = octets.first().is_some_and(|first| first & 1 == 1);
    let is_common = octets.iter().all(|octet| *octet == 0)
        || octets.iter().all(|octet| *octet == 0xee)
        || octets == [2, 0, 0, 0, 0, 0];
    (mac.len() == 17 && octets.len() == 6 && !is_group && !is_common).then_some(mac)
}
