//! What else on this machine touches packets and interfaces: packet filters that systemd manages, NetworkManager.
//!
//! The rules of a packet filter are root's to read and are not read: a filter that is active is a fact, what it lets
//! through is shown by tries between neighbours.

use outrider_protocol::{Fact, FirewallFacts, NetworkManagerFacts, UnitFacts};

use crate::sense::{SenseContext, file};

/// `ufw.service` is "active" also while ufw itself is switched off; this file decides (ufw(8)).
const UFW: &str = "/etc/ufw/ufw.conf";
/// Where NetworkManager reads its configuration from (NetworkManager.conf(5)).
const FOLDERS: [&str; 3] =
    ["/usr/lib/NetworkManager/conf.d", "/run/NetworkManager/conf.d", "/etc/NetworkManager/conf.d"];
const MAIN: &str = "/etc/NetworkManager/NetworkManager.conf";
/// Interfaces of the CNIs that RKE2's documents want left alone (`known_issues.md`, NetworkManager).
const CNI_PREFIXES: [&str; 2] = ["cali", "flannel"];

fn is_active(unit: &UnitFacts) -> bool {
    matches!(unit.active_state.as_str(), "active" | "activating" | "reloading")
}

/// Packet filters among the units.
pub(super) fn firewalls(cx: &SenseContext, units: &Fact<Vec<UnitFacts>>) -> Fact<Vec<FirewallFacts>> {
    units.clone().map(|units| {
        let filters = units.iter().filter_map(|unit| {
            let name = unit.name.strip_suffix(".service")?;
            if !matches!(name, "firewalld" | "ufw" | "nftables" | "iptables" | "ip6tables") {
                return None;
            }
            let mut active = is_active(unit);
            let mut evidence = format!("{} is {}", unit.name, unit.active_state);
            if name == "ufw"
                && active
                && let Ok(text) = file::read_text(&cx.path(UFW), file::SMALL)
            {
                active = ufw_enabled(&text);
                evidence = format!("{UFW} says ENABLED={}", if active { "yes" } else { "no" });
            }
            Some(FirewallFacts { name: name.to_owned(), active, evidence })
        });
        filters.collect()
    })
}

fn ufw_enabled(text: &str) -> bool {
    let mut values = text.lines().filter_map(|l| l.trim().strip_prefix("ENABLED="));
    values.next_back().is_some_and(|v| v.trim_matches(['"', '\'', ' ']).eq_ignore_ascii_case("yes"))
}

/// NetworkManager among the units; absent where it is not installed.
pub(super) fn network_manager(cx: &SenseContext, units: &Fact<Vec<UnitFacts>>) -> Fact<NetworkManagerFacts> {
    let Fact::Known { value, source, at } = units else {
        return units.clone().map(|_| NetworkManagerFacts {
            active: false,
            manages: vec![],
            cloud_setup: vec![],
        });
    };
    let Some(service) = value.iter().find(|u| u.name == "NetworkManager.service") else {
        return Fact::absent(source, *at);
    };
    let works = |u: &&UnitFacts| is_active(u) || u.unit_file_state == "enabled";
    let cloud_setup = value.iter().filter(|u| u.name.starts_with("nm-cloud-setup.")).filter(works);
    let cloud_setup = cloud_setup.map(|u| u.name.clone()).collect();
    let lines = exemptions(cx);
    let manages = CNI_PREFIXES.iter().filter(|p| !lines.iter().any(|line| line.contains(*p)));
    let facts = NetworkManagerFacts {
        active: is_active(service),
        manages: manages.map(|p| (*p).to_owned()).collect(),
        cloud_setup,
    };
    Fact::known(facts, format!("{source}; {MAIN} and conf.d"), cx.now())
}

/// Lines that exempt interfaces: `unmanaged-devices=…`, or `match-device=…` of a section with `managed=0`.
fn exemptions(cx: &SenseContext) -> Vec<String> {
    let mut files = vec![cx.path(MAIN)];
    for folder in FOLDERS {
        let Ok(entries) = std::fs::read_dir(cx.path(folder)) else { continue };
        files.extend(
            entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "conf")),
        );
    }
    let mut lines = Vec::new();
    for text in files.iter().filter_map(|path| file::read_text(path, file::SMALL).ok()) {
        let own = text.lines().map(|line| line.split_whitespace().collect::<String>());
        lines.extend(own.filter(|l| l.starts_with("unmanaged-devices") || l.starts_with("match-device")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::super::prepared::Machine;
    use super::*;

    fn units(all: &[(&str, &str, &str)]) -> Fact<Vec<UnitFacts>> {
        let unit = |(name, active, file): &(&str, &str, &str)| UnitFacts {
            name: (*name).into(),
            load_state: "loaded".into(),
            active_state: (*active).into(),
            sub_state: String::new(),
            unit_file_state: (*file).into(),
        };
        Fact::known(all.iter().map(unit).collect(), "systemctl", Machine::new().cx().now())
    }

    #[test]
    fn ufw_counts_only_when_it_is_switched_on() {
        let machine = Machine::new();
        let of = |machine: &Machine| {
            let all =
                units(&[("ufw.service", "active", "enabled"), ("firewalld.service", "inactive", "disabled")]);
            firewalls(&machine.cx(), &all).value().unwrap().iter().map(|f| f.active).collect::<Vec<_>>()
        };
        assert_eq!(of(&machine), [true, false]);
        machine.write(UFW, "# comment\nENABLED=no\nLOGLEVEL=low\n");
        assert_eq!(of(&machine), [false, false]);
        machine.write(UFW, "ENABLED=\"yes\"\n");
        assert_eq!(of(&machine), [true, false]);
    }

    #[test]
    fn what_systemd_could_not_say_stays_unknown() {
        let machine = Machine::new();
        let unknown = Fact::unknown(
            outrider_protocol::UnknownCause::TimedOut,
            "no answer",
            "systemctl",
            machine.cx().now(),
        );
        assert!(matches!(firewalls(&machine.cx(), &unknown), Fact::Unknown { .. }));
        assert!(matches!(network_manager(&machine.cx(), &unknown), Fact::Unknown { .. }));
    }

    #[test]
    fn network_manager_is_read_with_its_exemptions() {
        let machine = Machine::new();
        let all = units(&[
            ("NetworkManager.service", "active", "enabled"),
            ("nm-cloud-setup.timer", "inactive", "enabled"),
            ("nm-cloud-setup.service", "inactive", "disabled"),
        ]);
        let facts = network_manager(&machine.cx(), &all);
        let facts = facts.value().unwrap();
        assert_eq!(facts.manages, ["cali", "flannel"]);
        assert_eq!(facts.cloud_setup, ["nm-cloud-setup.timer"]);
        machine.write(
            "/etc/NetworkManager/conf.d/rke2-canal.conf",
            "[keyfile]\nunmanaged-devices = interface-name:cali*;interface-name:flannel*\n",
        );
        assert!(network_manager(&machine.cx(), &all).value().unwrap().manages.is_empty());
        assert!(matches!(network_manager(&machine.cx(), &units(&[])), Fact::Absent { .. }));
    }
}
