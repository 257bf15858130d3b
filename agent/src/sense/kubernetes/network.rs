//! Where this node stands in its cluster's network: the addresses Kubernetes uses for it, and its overlay interfaces.
//!
//! The address is the configured `node-ip`, else that of the interface with the default route, as the kubelet itself
//! chooses. Overlay interfaces are known by the names their CNIs give them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use outrider_protocol::{Distribution, Encapsulation as E, Fact, OverlayFacts};

use crate::sense::rancher::{self, K3S, Opened, RKE2};
use crate::sense::{SenseContext, file};

/// What was seen.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) addresses: Vec<String>,
    pub(super) mtu: Option<u32>,
    pub(super) overlays: Vec<OverlayFacts>,
}

type Addresses = BTreeMap<String, Vec<IpAddr>>;

/// Interface names of CNIs: name or prefix (with `*`), CNI, encapsulation, UDP port. Ports: RKE2's
/// `install/requirements.md` and K3s' `installation/requirements.md`, inbound rules; Geneve: Cilium's default.
const OVERLAYS: [(&str, &str, E, u16); 11] = [
    ("flannel-wg", "flannel", E::Wireguard, 51820),
    ("flannel-wg-v6", "flannel", E::Wireguard, 51821),
    ("flannel-v6.*", "canal or flannel", E::Vxlan, 8472),
    ("flannel.*", "canal or flannel", E::Vxlan, 8472),
    ("vxlan.calico", "calico", E::Vxlan, 4789),
    ("vxlan-v6.calico", "calico", E::Vxlan, 4789),
    ("wireguard.cali", "calico", E::Wireguard, 51820),
    ("wg-v6.cali", "calico", E::Wireguard, 51821),
    ("tunl0", "calico", E::Ipip, 0),
    ("cilium_host", "cilium", E::None, 0),
    ("cilium_wg0", "cilium", E::Wireguard, 51871),
];

/// Reads it. Blocking.
pub(super) fn read(cx: &SenseContext, distribution: &Distribution) -> Fact<Seen> {
    let addresses = match addresses() {
        Ok(addresses) => addresses,
        Err(e) => return Fact::from_io(&e, "getifaddrs(3)", cx.now()),
    };
    let configured = configured(cx, distribution);
    let own = place(&configured, &default_interfaces(cx), &addresses);
    if own.is_empty() {
        return Fact::absent("no node-ip and no interface with a default route", cx.now());
    }
    let holder = addresses.iter().find(|(_, all)| own.first().is_some_and(|ip| all.contains(ip)));
    let seen = Seen {
        mtu: holder.and_then(|(name, _)| mtu(cx, name)),
        overlays: overlays(cx, &addresses),
        addresses: own.iter().map(IpAddr::to_string).collect(),
    };
    Fact::known(seen, "getifaddrs(3), /proc/net, /sys/class/net", cx.now())
}

fn addresses() -> std::io::Result<Addresses> {
    let mut by_name = Addresses::new();
    for entry in getifaddrs()? {
        let Some(storage) = entry.address else { continue };
        let ip = match (storage.as_sockaddr_in(), storage.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::V4(v4.ip()),
            (_, Some(v6)) => IpAddr::V6(v6.ip()),
            _ => continue,
        };
        if is_usable(&ip) {
            by_name.entry(entry.interface_name).or_default().push(ip);
        }
    }
    Ok(by_name)
}

/// An address that another machine could connect to.
pub(super) fn is_usable(ip: &IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_link_local)
}

/// At most one address a family: the configured ones, else those of the interfaces with a default route.
fn place(configured: &[IpAddr], default: &[String], addresses: &Addresses) -> Vec<IpAddr> {
    let of_default = default.iter().filter_map(|name| addresses.get(name)).flatten().copied();
    let candidates: Vec<IpAddr> =
        if configured.is_empty() { of_default.collect() } else { configured.to_vec() };
    first_of_each_family(candidates.into_iter())
}

fn first_of_each_family(all: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut kept: Vec<IpAddr> = Vec::new();
    for ip in all {
        if kept.iter().all(|k| k.is_ipv4() != ip.is_ipv4()) {
            kept.push(ip);
        }
    }
    kept
}

/// `node-ip` of RKE2 or K3s. What cannot be read is not there: the default route stands in.
fn configured(cx: &SenseContext, distribution: &Distribution) -> Vec<IpAddr> {
    let program = match distribution {
        Distribution::Rke2 => &RKE2,
        Distribution::K3s => &K3S,
        _ => return Vec::new(),
    };
    let told = rancher::read(&Opened(&*cx.opener), program);
    told.options.node_ips().into_iter().filter(is_usable).collect()
}

/// Interfaces with a default route, the preferred first, IPv4 before IPv6.
fn default_interfaces(cx: &SenseContext) -> Vec<String> {
    let text = |path: &str| file::read_text(&cx.path(path), file::LARGE).unwrap_or_default();
    let mut names = ipv4_defaults(&text("/proc/net/route"));
    names.extend(ipv6_defaults(&text("/proc/net/ipv6_route")));
    names
}

/// Columns: Iface Destination Gateway Flags RefCnt Use Metric Mask …
fn ipv4_defaults(text: &str) -> Vec<String> {
    let mut found: Vec<(u64, String)> = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [name, "00000000", _, _, _, _, metric, "00000000", ..] = fields.as_slice() {
            found.push((metric.parse().unwrap_or(u64::MAX), (*name).to_owned()));
        }
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

/// Columns: destination, prefix length, source, prefix length, next hop, metric (hex), … interface. The kernel keeps
/// an unreachable default on `lo`.
fn ipv6_defaults(text: &str) -> Vec<String> {
    let mut found: Vec<(u64, String)> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, "00", .., name] = fields.as_slice() else { continue };
        if destination.bytes().all(|b| b == b'0') && *name != "lo" {
            let metric = fields.get(5).and_then(|m| u64::from_str_radix(m, 16).ok()).unwrap_or(u64::MAX);
            found.push((metric, (*name).to_owned()));
        }
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

fn mtu(cx: &SenseContext, interface: &str) -> Option<u32> {
    let path = cx.path(format!("/sys/class/net/{interface}/mtu"));
    file::read_text(&path, file::SMALL).ok()?.trim().parse().ok()
}

/// Overlay interfaces that are there.
fn overlays(cx: &SenseContext, addresses: &Addresses) -> Vec<OverlayFacts> {
    let Ok(entries) = std::fs::read_dir(cx.path("/sys/class/net")) else { return Vec::new() };
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    let kernel = kernel_ports(cx);
    let mut found: Vec<OverlayFacts> = Vec::new();
    for name in &names {
        let Some((_, cni, encapsulation, port)) = OVERLAYS.iter().find(|(p, ..)| is_named(name, p)) else {
            continue;
        };
        let own = addresses.get(name).map_or(&[][..], Vec::as_slice);
        if own.is_empty() {
            // Without an address of its own it is nobody's way (Linux makes a `tunl0` with its module).
            continue;
        }
        let (encapsulation, port) = match *cni {
            // Cilium's tunnel is a device of its own, without an address; without one, packets are routed as they are.
            "cilium" if *encapsulation == E::None => match () {
                () if names.iter().any(|n| n == "cilium_vxlan") => (E::Vxlan, 8472),
                () if names.iter().any(|n| n == "cilium_geneve") => (E::Geneve, 6081),
                () => (E::None, 0),
            },
            _ => (encapsulation.clone(), *port),
        };
        found.push(OverlayFacts {
            interface: name.clone(),
            cni: (*cni).to_owned(),
            port: if encapsulation == E::Vxlan { vxlan_port(port, &kernel) } else { port },
            // Cilium sets the MTU on its routes and leaves the devices at that of the machine.
            mtu: if *cni == "cilium" { None } else { mtu(cx, name) },
            encapsulation,
            addresses: first_of_each_family(own.iter().copied()).iter().map(IpAddr::to_string).collect(),
        });
    }
    found
}

fn is_named(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => {
            name.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        }
        None => name == pattern,
    }
}

/// RKE2's own flannel listens on 4789 where Canal's listens on 8472 (`install/requirements.md`): where the kernel holds
/// exactly one of the two, that is the one.
fn vxlan_port(usual: u16, kernel: &[u16]) -> u16 {
    let held: Vec<u16> = [8472, 4789].into_iter().filter(|p| kernel.contains(p)).collect();
    match held.as_slice() {
        [one] => *one,
        _ => usual,
    }
}

/// UDP ports that the kernel itself listens on: such a socket belongs to no file, so its inode is 0.
fn kernel_ports(cx: &SenseContext) -> Vec<u16> {
    let mut ports = Vec::new();
    for path in ["/proc/net/udp", "/proc/net/udp6"] {
        let text = file::read_text(&cx.path(path), file::LARGE).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(&"0")) = (fields.get(1), fields.get(9)) else { continue };
            let port = local.rsplit_once(':').and_then(|(_, p)| u16::from_str_radix(p, 16).ok());
            ports.extend(port);
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::prepared::Machine;
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_configured_address_wins_over_the_default_route() {
        let addresses = Addresses::from([
            ("eth0".to_owned(), vec![ip("192.0.2.1"), ip("192.0.2.9"), ip("2001:db8::1")]),
            ("eth1".to_owned(), vec![ip("10.0.0.1")]),
        ]);
        let default = ["eth0".to_owned()];
        assert_eq!(place(&[], &default, &addresses), [ip("192.0.2.1"), ip("2001:db8::1")]);
        assert_eq!(place(&[ip("10.0.0.1")], &default, &addresses), [ip("10.0.0.1")]);
        assert!(place(&[], &[], &addresses).is_empty());
    }

    #[test]
    fn node_ip_is_read_in_every_form_and_later_files_win() {
        let machine = Machine::new();
        machine.write("/etc/rancher/rke2/config.yaml", "node-ip: 10.0.0.1\n");
        machine.write("/etc/rancher/rke2/config.yaml.d/50-rancher.yaml", "{\"node-ip\": [\"10.0.0.7\"]}");
        machine.write("/etc/rancher/rke2/config.yaml.d/90-other.yaml", "cni: canal\n");
        assert_eq!(configured(&machine.cx(), &Distribution::Rke2), [ip("10.0.0.7")]);
        assert!(configured(&machine.cx(), &Distribution::Kubeadm).is_empty());
        machine.write("/etc/rancher/k3s/config.yaml", "node-ip: 10.0.0.1,fd00::1,127.0.0.1\n");
        assert_eq!(configured(&machine.cx(), &Distribution::K3s), [ip("10.0.0.1"), ip("fd00::1")]);
    }

    #[test]
    fn default_routes_are_ordered_by_metric() {
        let ipv4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                    eth1\t00000000\t0101A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n\
                    eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                    eth0\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(ipv4_defaults(ipv4), ["eth0", "eth1"]);
        let zero = "0".repeat(32);
        let ipv6 = format!(
            "{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00450003     eth0\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n"
        );
        assert_eq!(ipv6_defaults(&ipv6), ["eth0"]);
    }

    #[test]
    fn overlay_interfaces_are_known_by_name() {
        let machine = Machine::new();
        for (name, mtu) in [
            ("flannel.1", "1450"),
            ("eth0", "1500"),
            ("cali12", "1450"),
            ("tunl0", "1480"),
            ("cilium_host", "1500"),
            ("cilium_vxlan", "1500"),
        ] {
            machine.write(&format!("/sys/class/net/{name}/mtu"), mtu);
        }
        let addresses = Addresses::from([
            ("flannel.1".to_owned(), vec![ip("10.42.1.0")]),
            ("cilium_host".to_owned(), vec![ip("10.0.1.12")]),
            ("eth0".to_owned(), vec![ip("192.0.2.1")]),
        ]);
        let found = overlays(&machine.cx(), &addresses);
        let seen: Vec<_> =
            found.iter().map(|o| (o.interface.as_str(), &o.encapsulation, o.port, o.mtu)).collect();
        assert_eq!(
            seen,
            [("cilium_host", &E::Vxlan, 8472, None), ("flannel.1", &E::Vxlan, 8472, Some(1450))]
        );
    }

    #[test]
    fn the_kernels_own_port_is_believed() {
        let machine = Machine::new();
        machine.write(
            "/proc/net/udp",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             1: 00000000:12B5 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 0 2 0 0\n\
             2: 00000000:2118 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0 0\n",
        );
        assert_eq!(kernel_ports(&machine.cx()), [4789]);
        assert_eq!(vxlan_port(8472, &[4789]), 4789);
        assert_eq!(vxlan_port(8472, &[4789, 8472]), 8472);
        assert_eq!(vxlan_port(4789, &[]), 4789);
    }

    proptest! {
        #[test]
        fn tables_of_any_text_do_not_panic(text in "[ -~\\n\\t]{0,300}") {
            let _ = (ipv4_defaults(&text), ipv6_defaults(&text));
        }
    }
}
