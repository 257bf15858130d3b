//! Check `guest-agent`: channel, binary, unit and process of the QEMU guest agent, in the order they are needed
//! (`facts/guest-agent.md`, section 4).
//!
//! Each is read by itself: without the port no unit can run, a masked unit is somebody's decision, and on openSUSE
//! before 15.3 the unit has another name than the package. Which of these is the cause is for the rules to say.

use std::time::Duration;

use outrider_protocol::{Fact, GuestAgentFacts, UnitFacts};

pub use super::systemd::Memory;
use super::{SenseContext, host, process, systemd};

/// Name of the virtio channel.
const CHANNEL: &str = "org.qemu.guest_agent.0";
/// Where the kernel lists virtio ports. Our unit has no `/dev/virtio-ports` of its own, but it has this.
const PORTS: &str = "/sys/class/virtio-ports";
const BINARIES: [&str; 3] = ["/usr/bin/qemu-ga", "/usr/sbin/qemu-ga", "/usr/libexec/qemu-ga/qemu-ga"];
const UNITS: [&str; 2] = ["qemu-guest-agent.service", "qemu-ga.service"];
/// Limit of the question to systemd.
const SYSTEMD_LIMIT: Duration = Duration::from_secs(5);

/// Reads the guest agent's state. On a machine whose hypervisor offers no such channel it is not applicable, with
/// the reason. Blocking.
pub fn read(cx: &SenseContext, memory: &mut Memory) -> Fact<GuestAgentFacts> {
    let port = port(cx);
    if port.value().is_none()
        && let Some(reason) = nothing_to_expect(cx)
    {
        return Fact::not_applicable(reason, cx.now());
    }
    let facts = GuestAgentFacts {
        port,
        binary: binary(cx),
        units: units(cx, memory),
        process: process::find(cx, &["qemu-ga"]),
        uptime_seconds: host::uptime_seconds(cx),
    };
    Fact::known(facts, CHANNEL, cx.now())
}

/// Why no guest agent is expected here; none where it is, or where that is not known.
fn nothing_to_expect(cx: &SenseContext) -> Option<String> {
    let virtualization = host::virtualization(cx);
    match virtualization.value().map(String::as_str)? {
        // A microVM (Firecracker, QEMU's microvm) has neither SMBIOS nor a way to add the channel.
        "kvm" | "qemu" if !host::has_smbios(cx) => {
            Some("a microVM without SMBIOS, whose hypervisor offers no guest-agent channel".to_owned())
        }
        "kvm" | "qemu" => None,
        "none" => Some("not a virtual machine".to_owned()),
        other => Some(format!("virtualization is {other}, which has no QEMU guest-agent channel")),
    }
}

/// The channel, by the name that the kernel gives each virtio port; else by udev's link.
fn port(cx: &SenseContext) -> Fact<String> {
    let device = format!("/dev/virtio-ports/{CHANNEL}");
    match std::fs::read_dir(cx.path(PORTS)) {
        Ok(entries) => {
            for entry in entries.flatten() {
                let name = super::file::read_text(&entry.path().join("name"), super::file::SMALL);
                if name.is_ok_and(|n| n.trim() == CHANNEL) {
                    let source = format!("{PORTS}/{}/name", entry.file_name().to_string_lossy());
                    return Fact::known(device, source, cx.now());
                }
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Fact::from_io(&e, PORTS, cx.now()),
    }
    if cx.path(&device).exists() {
        return Fact::known(device.clone(), device, cx.now());
    }
    Fact::absent(format!("{PORTS}, {device}"), cx.now())
}

/// The first binary that is there.
fn binary(cx: &SenseContext) -> Fact<String> {
    let mut refused = None;
    for path in BINARIES {
        match std::fs::metadata(cx.path(path)) {
            Ok(meta) if meta.is_file() => return Fact::known(path.to_owned(), path, cx.now()),
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => refused = Some((path, e)),
            _ => {}
        }
    }
    match refused {
        Some((path, e)) => Fact::from_io(&e, path, cx.now()),
        None => Fact::absent(BINARIES.join(", "), cx.now()),
    }
}

/// The units that exist, masked ones too. Whether one is enabled says nothing: in Debian it has an empty `[Install]`
/// and udev starts it.
fn units(cx: &SenseContext, memory: &mut Memory) -> Fact<Vec<UnitFacts>> {
    let names = ["Id", "LoadState", "ActiveState", "SubState", "UnitFileState"];
    systemd::show_changes(cx, &UNITS, &names, SYSTEMD_LIMIT, memory).map(|blocks| {
        let units = blocks.iter().zip(UNITS).map(|(block, asked)| {
            let value = |name: &str| block.get(name).cloned().unwrap_or_default();
            // An alias answers with the name it stands for.
            let name = Some(value("Id")).filter(|id| !id.is_empty()).unwrap_or_else(|| asked.to_owned());
            UnitFacts {
                name,
                load_state: value("LoadState"),
                active_state: value("ActiveState"),
                sub_state: value("SubState"),
                unit_file_state: value("UnitFileState"),
            }
        });
        let mut known: Vec<UnitFacts> = units.filter(|u| u.load_state != "not-found").collect();
        known.dedup_by(|a, b| a.name == b.name);
        known
    })
}

#[cfg(test)]
mod tests {
    use super::super::prepared::Machine;
    use super::*;

    /// A KubeVirt VM with the channel, whose systemd answers for both units as told.
    fn vm(unit: &str, other: &str) -> Machine {
        let machine = Machine::new();
        machine.write("/sys/devices/virtual/dmi/id/sys_vendor", "KubeVirt\n");
        machine.write("/proc/uptime", "500.0 400.0");
        machine.write("/proc/1/stat", "1 (systemd) S 0 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 2 0 1 1 1");
        machine.systemctl(&format!("cat <<E\n{unit}\n\n{other}\nE"));
        machine
    }

    fn state(name: &str, load: &str, active: &str, file: &str) -> String {
        format!("Id={name}\nLoadState={load}\nActiveState={active}\nSubState=dead\nUnitFileState={file}")
    }

    fn missing(name: &str) -> String {
        state(name, "not-found", "inactive", "")
    }

    fn facts(machine: &Machine) -> GuestAgentFacts {
        let fact = read(&machine.cx(), &mut Memory::default());
        fact.value().cloned().unwrap_or_else(|| panic!("{fact:?}"))
    }

    #[test]
    fn port_missing_with_the_package_there() {
        let machine = vm(&state(UNITS[0], "loaded", "inactive", "static"), &missing(UNITS[1]));
        machine.write("/usr/sbin/qemu-ga", "");
        let facts = facts(&machine);
        assert!(matches!(facts.port, Fact::Absent { .. }));
        assert_eq!(facts.binary.value().map(String::as_str), Some("/usr/sbin/qemu-ga"));
        assert_eq!(facts.uptime_seconds.value(), Some(&500));
    }

    #[test]
    fn port_there_and_the_unit_masked() {
        let machine = vm(&state(UNITS[0], "masked", "inactive", "masked"), &missing(UNITS[1]));
        machine.write(&format!("{PORTS}/vport0p1/name"), "com.redhat.spice.0\n");
        machine.write(&format!("{PORTS}/vport1p1/name"), &format!("{CHANNEL}\n"));
        let facts = facts(&machine);
        assert_eq!(facts.port.value().map(String::as_str), Some("/dev/virtio-ports/org.qemu.guest_agent.0"));
        let units = facts.units.value().unwrap();
        assert_eq!(units.len(), 1);
        assert_eq!((units[0].load_state.as_str(), units[0].unit_file_state.as_str()), ("masked", "masked"));
    }

    #[test]
    fn static_and_active_with_its_process() {
        let machine = vm(&state(UNITS[0], "loaded", "active", "static"), &missing(UNITS[1]));
        machine.write("/proc/50/comm", "qemu-ga\n");
        machine.write("/proc/50/stat", "50 (qemu-ga) S 1 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 2 0 10000 1 1");
        let facts = facts(&machine);
        assert_eq!(facts.units.value().map(|u| u[0].active_state.clone()), Some("active".into()));
        assert_eq!(facts.process.value().map(|p| (p.pid, p.seconds)), Some((50, 400)));
    }

    #[test]
    fn only_the_other_name_exists() {
        let machine = vm(&missing(UNITS[0]), &state(UNITS[1], "loaded", "active", "enabled"));
        let facts = facts(&machine);
        assert_eq!(facts.units.value().map(|u| u[0].name.clone()), Some("qemu-ga.service".into()));
    }

    #[test]
    fn an_alias_is_one_unit() {
        let machine = vm(
            &state(UNITS[0], "loaded", "active", "enabled"),
            &state(UNITS[0], "loaded", "active", "enabled"),
        );
        assert_eq!(facts(&machine).units.value().map(Vec::len), Some(1));
    }

    #[test]
    fn where_it_is_not_expected_the_reason_is_given() {
        let reason = |prepare: &dyn Fn(&Machine)| {
            let machine = Machine::new();
            prepare(&machine);
            match read(&machine.cx(), &mut Memory::default()) {
                Fact::NotApplicable { reason, .. } => reason,
                other => panic!("{other:?}"),
            }
        };
        let hardware = reason(&|m| m.write("/proc/cpuinfo", "flags : fpu\n"));
        assert!(hardware.contains("not a virtual machine"), "{hardware}");
        let container = reason(&|m| m.write("/run/systemd/container", "docker"));
        assert!(container.contains("docker"), "{container}");
        let micro = reason(&|m| {
            m.write("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc kvm-clock");
        });
        assert!(micro.contains("microVM"), "{micro}");
    }

    #[test]
    fn a_port_is_enough_to_expect_the_agent() {
        let machine = Machine::new();
        machine.write(&format!("/dev/virtio-ports/{CHANNEL}"), "");
        machine.write("/run/systemd/container", "systemd-nspawn");
        assert!(facts(&machine).port.value().is_some());
    }

    #[test]
    fn a_silent_systemd_leaves_the_rest_known() {
        let machine = vm("", "");
        machine.systemctl("echo 'Failed to connect to bus' >&2; exit 1");
        let facts = facts(&machine);
        assert!(matches!(facts.units, Fact::Unknown { .. }), "{:?}", facts.units);
        assert!(facts.uptime_seconds.value().is_some());
    }
}
