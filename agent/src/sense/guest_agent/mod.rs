//! Check `guest-agent`: channel, binary, unit and process of the QEMU guest agent, in the order they are needed
//! (`facts/guest-agent.md`, section 4).
//!
//! Each is read by itself: without the port no unit can run, a masked unit is somebody's decision, and on openSUSE
//! before 15.3 the unit has another name than the package. Which of these is the cause is for the rules to say.
//!
//! An agent that runs may still be of no use: `rpcs` reads which calls it was told to refuse, `denials` what SELinux
//! denied it. What the set-up (`crate::setup`) did about all this it says in a status file of its own.

mod denials;
mod rpcs;

use std::time::Duration;

use outrider_protocol::{Fact, GuestAgentFacts, UnitFacts};

use super::{SenseContext, file, host, process, systemd};
use crate::setup::STATUS;

pub(crate) use denials::excerpt as denials_excerpt;

/// Name of the virtio channel.
const CHANNEL: &str = "org.qemu.guest_agent.0";
/// Where the kernel lists virtio ports. Our unit has no `/dev/virtio-ports` of its own, but it has this.
const PORTS: &str = "/sys/class/virtio-ports";
const BINARIES: [&str; 3] = ["/usr/bin/qemu-ga", "/usr/sbin/qemu-ga", "/usr/libexec/qemu-ga/qemu-ga"];
const UNITS: [&str; 2] = ["qemu-guest-agent.service", "qemu-ga.service"];
/// Limit of the question to systemd.
const SYSTEMD_LIMIT: Duration = Duration::from_secs(5);

/// What is remembered between passes.
#[derive(Debug, Default)]
pub struct Memory {
    units: systemd::Memory,
    denials: denials::Memory,
}

/// Reads the guest agent's state. On a machine whose hypervisor offers no such channel it is not applicable, with
/// the reason. Blocking.
pub fn read(cx: &SenseContext, memory: &mut Memory) -> Fact<GuestAgentFacts> {
    let port = port(cx);
    if port.value().is_none()
        && let Some(reason) = nothing_to_expect(cx)
    {
        return Fact::not_applicable(reason, cx.now());
    }
    let process = process::find(cx, &["qemu-ga"]);
    let setup = file::fact(cx, STATUS, file::SMALL, |text| {
        serde_json::from_str(text).map_err(|e| format!("no status of the set-up: {e}"))
    });
    let facts = GuestAgentFacts {
        port,
        binary: binary(cx),
        units: units(cx, &mut memory.units),
        rpc_lists: Some(rpcs::read(cx, process.value())),
        denials: Some(denials::read(cx, &mut memory.denials)),
        process,
        uptime_seconds: host::uptime_seconds(cx),
        setup: Some(setup),
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
                let name = file::read_text(&entry.path().join("name"), file::SMALL);
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
fn units(cx: &SenseContext, memory: &mut systemd::Memory) -> Fact<Vec<UnitFacts>> {
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
mod tests;
