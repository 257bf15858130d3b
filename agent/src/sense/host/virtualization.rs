//! Container, virtual machine or neither: what may be expected of this machine hangs on it.
//!
//! Words as systemd-detect-virt(1) uses them. The sources are files: the container's own markers first, since a
//! container shows its host's hardware; then SMBIOS; then what the kernel knows of its hypervisor.

use std::io::{BufRead, BufReader, Read};

use outrider_protocol::Fact;

use super::super::{SenseContext, file};

/// Folder of the SMBIOS strings. `/sys/class/dmi/id` is a link to it.
const DMI: &str = "/sys/devices/virtual/dmi/id";

/// Vendor strings in SMBIOS and the hypervisor behind them, in the order they are tried.
const VENDORS: [(&str, &str); 13] = [
    // KubeVirt (and with it SUSE Virtualization) says so in sys_vendor, and runs QEMU with KVM.
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("Google", "google"),
    ("QEMU", "qemu"),
    ("Red Hat", "kvm"),
    ("OpenStack", "kvm"),
    ("Hetzner", "kvm"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Xen", "xen"),
    ("Parallels", "parallels"),
];

/// Containers that are named, and the ones that only leave a file.
const CONTAINER_FILES: [(&str, &str); 2] = [("/run/.containerenv", "podman"), ("/.dockerenv", "docker")];

/// `kvm`, `qemu`, `vmware`, …; `docker`, `podman`, `lxc`, …; `vm-other` for a hypervisor without a name; `none`.
pub(crate) fn virtualization(cx: &SenseContext) -> Fact<String> {
    if let Some((word, source)) = container(cx) {
        return Fact::known(word, source, cx.now());
    }
    if let Some((word, source)) = vendor(cx) {
        // QEMU with KVM offers its clock; without, the processor is emulated.
        let word = if word == "qemu" && has_kvm_clock(cx) { "kvm" } else { word };
        return Fact::known(word.to_owned(), source, cx.now());
    }
    if let Ok(kind) = file::read_text(&cx.path("/sys/hypervisor/type"), file::SMALL)
        && !kind.trim().is_empty()
    {
        return Fact::known(kind.trim().to_owned(), "/sys/hypervisor/type", cx.now());
    }
    if has_kvm_clock(cx) {
        return Fact::known("kvm".to_owned(), CLOCK_SOURCES, cx.now());
    }
    match hypervisor_flag(cx) {
        Ok(true) => Fact::known("vm-other".to_owned(), "/proc/cpuinfo", cx.now()),
        Ok(false) => Fact::known("none".to_owned(), format!("{DMI}, /proc/cpuinfo"), cx.now()),
        Err(e) => Fact::from_io(&e, "/proc/cpuinfo", cx.now()),
    }
}

/// True where the machine has SMBIOS tables: every VM of KubeVirt has, a microVM has not.
pub(crate) fn has_smbios(cx: &SenseContext) -> bool {
    cx.path(DMI).is_dir()
}

/// The container manager, and where it said so.
fn container(cx: &SenseContext) -> Option<(String, String)> {
    // systemd as PID 1 writes its own `container=` here for everybody to read; PID 1's environment is root's.
    for path in ["/run/systemd/container", "/proc/1/environ"] {
        let Ok(bytes) = file::open_regular(&cx.path(path)).and_then(|f| file::read_bounded(f, file::SMALL))
        else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        let name = if path == "/proc/1/environ" {
            text.split('\0').find_map(|v| v.strip_prefix("container=")).unwrap_or("").to_owned()
        } else {
            text.trim().to_owned()
        };
        // An empty value means "none", as systemd reads it.
        if !name.is_empty() && name.len() < 64 && !name.contains(|c: char| c.is_control()) {
            return Some((name, path.to_owned()));
        }
    }
    CONTAINER_FILES
        .iter()
        .find(|(path, _)| cx.path(path).exists())
        .map(|(path, name)| ((*name).to_owned(), (*path).to_owned()))
}

/// The hypervisor by SMBIOS.
fn vendor(cx: &SenseContext) -> Option<(&'static str, String)> {
    ["sys_vendor", "product_name", "board_vendor", "bios_vendor"].iter().find_map(|name| {
        let path = format!("{DMI}/{name}");
        let text = file::read_text(&cx.path(&path), file::SMALL).ok()?;
        let (_, word) = VENDORS.iter().find(|(vendor, _)| text.trim().starts_with(vendor))?;
        Some((*word, path))
    })
}

const CLOCK_SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";

fn has_kvm_clock(cx: &SenseContext) -> bool {
    file::read_text(&cx.path(CLOCK_SOURCES), file::SMALL)
        .is_ok_and(|text| text.split_ascii_whitespace().any(|c| c == "kvm-clock"))
}

/// The processor's flag that a hypervisor sets (x86 only).
fn hypervisor_flag(cx: &SenseContext) -> std::io::Result<bool> {
    // The first processor's are enough: a machine may have hundreds, and the kernel asks each how fast it runs.
    let file = BufReader::new(file::open_regular(&cx.path("/proc/cpuinfo"))?).take(file::SMALL);
    for line in file.lines() {
        let line = line?;
        if line.starts_with("flags") {
            return Ok(line.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::super::super::prepared::Machine;
    use super::*;

    fn word(machine: &Machine) -> String {
        virtualization(&machine.cx()).value().cloned().unwrap_or_else(|| "?".into())
    }

    #[test]
    fn a_kubevirt_vm_is_kvm() {
        let machine = Machine::new();
        machine.write(&format!("{DMI}/sys_vendor"), "KubeVirt\n");
        assert_eq!(word(&machine), "kvm");
        assert!(has_smbios(&machine.cx()));
    }

    #[test]
    fn qemu_without_the_kvm_clock_is_emulated() {
        let machine = Machine::new();
        machine.write(&format!("{DMI}/sys_vendor"), "QEMU\n");
        assert_eq!(word(&machine), "qemu");
        machine.write(CLOCK_SOURCES, "kvm-clock tsc acpi_pm\n");
        assert_eq!(word(&machine), "kvm");
    }

    #[test]
    fn a_container_on_a_vm_is_a_container() {
        let machine = Machine::new();
        machine.write(&format!("{DMI}/sys_vendor"), "QEMU\n");
        machine.write_bytes("/proc/1/environ", b"PATH=/bin\0container=\0");
        assert_eq!(word(&machine), "qemu");
        machine.write_bytes("/proc/1/environ", b"PATH=/bin\0container=lxc\0");
        assert_eq!(word(&machine), "lxc");
        machine.write("/run/systemd/container", "systemd-nspawn\n");
        assert_eq!(word(&machine), "systemd-nspawn");
        let docker = Machine::new();
        docker.write("/.dockerenv", "");
        assert_eq!(word(&docker), "docker");
    }

    #[test]
    fn hardware_is_none_and_an_unreadable_machine_is_not() {
        let machine = Machine::new();
        assert_eq!(word(&machine), "?");
        machine.write(&format!("{DMI}/sys_vendor"), "Dell Inc.\n");
        machine.write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2\n");
        assert_eq!(word(&machine), "none");
        machine.write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n");
        assert_eq!(word(&machine), "vm-other");
    }

    #[test]
    fn a_vm_of_another_maker_is_not_kvm() {
        for (vendor, expected) in [("VMware, Inc.", "vmware"), ("Amazon EC2", "amazon"), ("Google", "google")]
        {
            let machine = Machine::new();
            machine.write(&format!("{DMI}/sys_vendor"), vendor);
            machine.write(CLOCK_SOURCES, "kvm-clock tsc\n");
            assert_eq!(word(&machine), expected);
        }
    }
}
