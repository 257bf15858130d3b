//! The sensor on prepared machines.

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
    let machine =
        vm(&state(UNITS[0], "loaded", "active", "enabled"), &state(UNITS[0], "loaded", "active", "enabled"));
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
