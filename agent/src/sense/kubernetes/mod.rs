//! Check `kubernetes`: who runs Kubernetes here, whether the machine and its firewall suit it, and which neighbours of
//! the same cluster are reached.
//!
//! `identify` finds the distribution, `rke1` what says RKE1, `machine` and `host_network` what requirements are judged
//! by, `network` where this node stands in its cluster, `neighbours` tries the ports of others, `components` asks the
//! kubelet and the API server of this node. Nothing is sent to a neighbour but a TLS handshake; etcd's ports are never
//! touched, for a bare connection to them is an error in etcd's log and its own peers watch that way already.

mod components;
mod host_network;
mod identify;
mod machine;
mod neighbours;
mod network;
mod rke1;

use std::time::Duration;

use outrider_protocol::{
    Distribution, Fact, KubernetesFacts, KubernetesRole, NodeNetwork, Peers, UnitFacts, UnknownCause,
};

use super::{SenseContext, systemd};
pub use neighbours::Memory;
pub(crate) use rke1::is_left_over as rke1_is_left_over;

/// Limit of the call to systemd.
const SYSTEMD_LIMIT: Duration = Duration::from_secs(5);

/// Units of Kubernetes and its runtimes.
const KUBERNETES_UNITS: [&str; 7] = [
    "rke2-server.service",
    "rke2-agent.service",
    "k3s.service",
    "k3s-agent.service",
    "kubelet.service",
    "containerd.service",
    "docker.service",
];
/// Units of packet filters.
const FIREWALL_UNITS: [&str; 5] =
    ["firewalld.service", "ufw.service", "nftables.service", "iptables.service", "ip6tables.service"];
/// Units of NetworkManager.
const NETWORK_UNITS: [&str; 3] = ["NetworkManager.service", "nm-cloud-setup.service", "nm-cloud-setup.timer"];

/// What was found by reading alone.
struct Local {
    distribution: Distribution,
    role: KubernetesRole,
    facts: KubernetesFacts,
}

/// Reads this node and tries the neighbours in `peers`, no oftener than every `every` while all of them answer.
pub async fn read(
    cx: &SenseContext,
    peers: Option<&Peers>,
    every: Duration,
    memory: &mut Memory,
) -> Fact<KubernetesFacts> {
    let (blocking, mut units) = (cx.clone(), std::mem::take(&mut memory.units));
    let read = tokio::task::spawn_blocking(move || (local(&blocking, &mut units), units)).await;
    let local = match read.map(|(local, units)| {
        memory.units = units;
        local
    }) {
        Ok(Fact::Known { value, .. }) => value,
        Ok(other) => return other.map(|local| local.facts),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(e) => {
                return Fact::unknown(UnknownCause::Panicked, e.to_string(), "check kubernetes", cx.now());
            }
        },
    };
    let Local { distribution, role, mut facts } = local;
    let (kubelet, apiserver) = tokio::join!(components::kubelet(cx), async {
        match role {
            KubernetesRole::Server => Some(components::apiserver(cx).await),
            _ => None,
        }
    });
    (facts.kubelet, facts.apiserver) = (Some(kubelet), apiserver);
    if let (Fact::Known { value, .. }, Some(peers)) = (&mut facts.network, peers) {
        value.others = Some(peers.others);
        value.neighbours = neighbours::look(cx, value, peers, every, memory).await;
    }
    Fact::known(facts, format!("{distribution} {role}"), cx.now())
}

/// Everything that is read without the network. Blocking.
fn local(cx: &SenseContext, memory: &mut systemd::Memory) -> Fact<Local> {
    let asked: Vec<&str> = [&KUBERNETES_UNITS[..], &FIREWALL_UNITS, &NETWORK_UNITS].concat();
    let units = units(cx, &asked, memory);
    let rke1 = rke1::read(cx);
    let found = match identify::identify(cx, units.value().map_or(&[][..], Vec::as_slice), &rke1) {
        identify::Found::Here(found) => found,
        identify::Found::Nothing => {
            return Fact::not_applicable("no RKE2, K3s, RKE1 or kubeadm on this machine", cx.now());
        }
        identify::Found::Unreadable(error, path) => return Fact::from_io(&error, path, cx.now()),
    };
    let firewalls = host_network::firewalls(cx, &units);
    let active = firewalls.value().map_or(&[][..], Vec::as_slice);
    let active = active.iter().filter(|f| f.active).map(|f| f.name.clone()).collect();
    let network = network::read(cx, &found.distribution).map(|seen| NodeNetwork {
        distribution: found.distribution.clone(),
        role: found.role.clone(),
        addresses: seen.addresses,
        mtu: seen.mtu,
        overlays: seen.overlays,
        firewalls: active,
        others: None,
        neighbours: Vec::new(),
    });
    let facts = KubernetesFacts {
        distribution: found.distribution.clone(),
        role: found.role.clone(),
        found_by: found.by,
        rke1,
        machine: machine::read(cx, only(&units, &KUBERNETES_UNITS)),
        network_manager: host_network::network_manager(cx, &units),
        firewalls,
        kubelet: None,
        apiserver: None,
        network,
    };
    Fact::known(Local { distribution: found.distribution, role: found.role, facts }, "", cx.now())
}

/// What systemd says of `asked`; units it does not know are left out.
fn units(cx: &SenseContext, asked: &[&str], memory: &mut systemd::Memory) -> Fact<Vec<UnitFacts>> {
    let names = ["Id", "LoadState", "ActiveState", "SubState", "UnitFileState"];
    systemd::show_changes(cx, asked, &names, SYSTEMD_LIMIT, memory).map(|blocks| {
        let units = blocks.iter().zip(asked).map(|(block, asked)| {
            let value = |name: &str| block.get(name).cloned().unwrap_or_default();
            UnitFacts {
                name: (*asked).to_owned(),
                load_state: value("LoadState"),
                active_state: value("ActiveState"),
                sub_state: value("SubState"),
                unit_file_state: value("UnitFileState"),
            }
        });
        units.filter(|u| u.load_state != "not-found").collect()
    })
}

/// The units of one list.
fn only(units: &Fact<Vec<UnitFacts>>, names: &[&str]) -> Fact<Vec<UnitFacts>> {
    units.clone().map(|all| all.into_iter().filter(|u| names.contains(&u.name.as_str())).collect())
}

#[cfg(test)]
mod tests {
    use super::super::prepared::Machine;
    use super::*;

    #[test]
    fn a_machine_without_kubernetes_is_not_judged() {
        assert!(matches!(
            local(&Machine::new().cx(), &mut systemd::Memory::default()),
            Fact::NotApplicable { .. }
        ));
    }

    #[test]
    fn an_rke2_server_is_read_whole() {
        let machine = Machine::new();
        std::fs::create_dir_all(machine.path("/var/lib/rancher/rke2/server/db")).unwrap();
        machine.write("/proc/sys/net/ipv4/conf/all/forwarding", "1\n");
        let facts = local(&machine.cx(), &mut systemd::Memory::default());
        let local = facts.value().unwrap_or_else(|| panic!("no facts"));
        assert_eq!((&local.distribution, &local.role), (&Distribution::Rke2, &KubernetesRole::Server));
        assert!(local.facts.rke1.running.is_empty() && local.facts.rke1.on_disk.is_empty());
        assert_eq!(local.facts.machine.forwarding.value(), Some(&true));
        assert!(matches!(local.facts.firewalls, Fact::Absent { .. }), "{:?}", local.facts.firewalls);
    }

    #[test]
    fn units_that_systemd_does_not_know_are_left_out() {
        let machine = Machine::with_systemctl(
            "printf 'Id=a\\nLoadState=loaded\\nActiveState=active\\n\\nId=b\\nLoadState=not-found\\n'",
        );
        let units = units(&machine.cx(), &["a.service", "b.service"], &mut systemd::Memory::default());
        let names: Vec<&str> = units.value().unwrap().iter().map(|u| u.name.as_str()).collect();
        assert_eq!(names, ["a.service"]);
    }
}
