//! Network interfaces: names, hardware addresses, addresses.

use std::collections::BTreeMap;
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use outrider_protocol::{Fact, InterfaceFacts};

use super::super::{SenseContext, file};

/// Addresses with prefix length, by interface.
type Addresses = BTreeMap<String, Vec<String>>;

const FOLDER: &str = "/sys/class/net";

/// Interfaces of the machine with their addresses, of the running kernel.
pub(super) fn read(cx: &SenseContext) -> Fact<Vec<InterfaceFacts>> {
    match addresses() {
        Ok(addresses) => interfaces(cx, addresses),
        Err(e) => Fact::from_io(&e, "getifaddrs(3)", cx.now()),
    }
}

/// What `/sys/class/net` lists, without loopback and without interfaces that software made and that hold no address
/// of their own: a Kubernetes node has one of those a pod, and they tell nothing of the machine.
fn interfaces(cx: &SenseContext, mut addresses: Addresses) -> Fact<Vec<InterfaceFacts>> {
    let folder = cx.path(FOLDER);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) => return Fact::from_io(&e, FOLDER, cx.now()),
    };
    let mut found: Vec<InterfaceFacts> = entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter_map(|name| {
            let own = addresses.remove(&name).unwrap_or_default();
            interface(&folder.join(&name), name, own)
        })
        .filter(|i| !i.is_virtual || i.addresses.iter().any(|a| !is_link_local(a)))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Fact::known(found, FOLDER, cx.now())
}

/// One interface; none for loopback and for files such as `bonding_masters`.
fn interface(folder: &Path, name: String, addresses: Vec<String>) -> Option<InterfaceFacts> {
    const ARPHRD_LOOPBACK: u32 = 772;
    let value = |file| file::read_text(&folder.join(file), file::SMALL).ok();
    let flags = u32::from_str_radix(value("flags")?.trim().trim_start_matches("0x"), 16).ok()?;
    let kind = value("type").and_then(|t| t.trim().parse::<u32>().ok());
    if kind == Some(ARPHRD_LOOPBACK) {
        return None;
    }
    let mac = value("address").map(|t| t.trim().to_ascii_lowercase()).unwrap_or_default();
    let no_mac = mac.is_empty() || mac.bytes().all(|b| b == b'0' || b == b':');
    Some(InterfaceFacts {
        name,
        mac: if no_mac { String::new() } else { mac },
        addresses,
        up: flags & libc::IFF_UP as u32 != 0,
        // Hardware, a virtio device as well, has a device behind it.
        is_virtual: !folder.join("device").exists(),
    })
}

fn is_link_local(address: &str) -> bool {
    address.starts_with("fe80:")
}

/// Addresses of every interface, ordered: a change of order is no change.
fn addresses() -> std::io::Result<Addresses> {
    let mut by_name = Addresses::new();
    for entry in getifaddrs()? {
        let text = match (entry.address.as_ref(), entry.netmask.as_ref()) {
            (Some(address), mask) => with_prefix(address, mask),
            _ => None,
        };
        let Some(text) = text else { continue };
        by_name.entry(entry.interface_name).or_default().push(text);
    }
    for list in by_name.values_mut() {
        list.sort();
        list.dedup();
    }
    Ok(by_name)
}

fn with_prefix(address: &SockaddrStorage, mask: Option<&SockaddrStorage>) -> Option<String> {
    if let Some(ip) = address.as_sockaddr_in() {
        let mask = mask.and_then(|m| m.as_sockaddr_in()).map_or(32, |m| u32::from(m.ip()).count_ones());
        return Some(format!("{}/{mask}", ip.ip()));
    }
    let ip = address.as_sockaddr_in6()?;
    let mask = mask.and_then(|m| m.as_sockaddr_in6()).map_or(128, |m| u128::from(m.ip()).count_ones());
    Some(format!("{}/{mask}", ip.ip()))
}

#[cfg(test)]
mod tests {
    use super::super::super::prepared::Machine;
    use super::*;

    fn add(machine: &Machine, name: &str, flags: &str, kind: u32, mac: &str, hardware: bool) {
        machine.write(&format!("{FOLDER}/{name}/flags"), flags);
        machine.write(&format!("{FOLDER}/{name}/type"), &kind.to_string());
        machine.write(&format!("{FOLDER}/{name}/address"), mac);
        if hardware {
            machine.write(&format!("{FOLDER}/{name}/device/uevent"), "");
        }
    }

    #[test]
    fn pods_interfaces_and_loopback_are_left_out() {
        let machine = Machine::new();
        assert!(matches!(interfaces(&machine.cx(), Addresses::new()), Fact::Absent { .. }));
        add(&machine, "lo", "0x9\n", 772, "00:00:00:00:00:00\n", false);
        add(&machine, "eth0", "0x1003\n", 1, "52:54:00:AB:CD:EF\n", true);
        add(&machine, "eth1", "0x1002\n", 1, "52:54:00:00:00:02\n", true);
        add(&machine, "cali1", "0x1043\n", 1, "ee:ee:ee:ee:ee:ee\n", false);
        add(&machine, "bond0", "0x1443\n", 1, "52:54:00:00:00:03\n", false);
        add(&machine, "wg0", "0x91\n", 65534, "\n", false);
        machine.write(&format!("{FOLDER}/bonding_masters"), "bond0\n");
        let addresses = Addresses::from([
            ("eth0".into(), vec!["192.0.2.5/24".into()]),
            ("cali1".into(), vec!["fe80::1/64".into()]),
            ("bond0".into(), vec!["198.51.100.1/24".into()]),
            ("wg0".into(), vec!["10.9.0.1/32".into()]),
        ]);
        let facts = interfaces(&machine.cx(), addresses);
        let seen: Vec<_> =
            facts.value().unwrap().iter().map(|i| (i.name.as_str(), i.up, i.is_virtual)).collect();
        let expected =
            [("bond0", true, true), ("eth0", true, false), ("eth1", false, false), ("wg0", true, true)];
        assert_eq!(seen, expected);
        let by_name = |n: &str| facts.value().unwrap().iter().find(|i| i.name == n).cloned().unwrap();
        assert_eq!(by_name("eth0").mac, "52:54:00:ab:cd:ef");
        assert_eq!(by_name("wg0").mac, "");
    }

    #[test]
    fn loopback_of_this_machine_has_its_prefix() {
        let addresses = addresses().unwrap();
        // A machine without loopback addresses (a fresh network namespace) has nothing to show.
        if let Some(lo) = addresses.get("lo").filter(|lo| !lo.is_empty()) {
            assert!(lo.iter().all(|a| a.contains('/')), "{lo:?}");
        }
    }
}
