//! `HostHealthy`: room on disks, memory, and tasks that stall; one subject a file system, `memory`, `pressure`.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, Fact, FilesystemFacts, HostFacts, MemoryFacts, NodeFacts, PressureFacts, ReasonCode,
    Severity, Status, Thresholds, Timestamp,
};

use super::unread;
use crate::finding::{Finding, Judgement};
use crate::wording::{Percent, Short, percent};

const TYPE: ConditionType = ConditionType::HostHealthy;

/// A disk near its threshold breathes; what is full stays full.
const DISK_RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(120);
/// Memory and pressure move faster: a peak of a build or an image pull is no state.
const LOAD_RAISE: Duration = Duration::from_secs(180);

/// `some avg60` above which tasks stall for so much of a minute that etcd and the kubelet feel it, in percent.
const MEMORY_PRESSURE: f64 = 10.0;
const IO_PRESSURE: f64 = 50.0;

/// Subject while the list of file systems was never read.
const FILESYSTEMS: &str = "filesystems";

pub(super) fn judge(out: &mut Judgement, host: &HostFacts, facts: &NodeFacts) {
    let limits = &facts.thresholds;
    match &host.filesystems {
        Fact::Known { value, at, .. } => {
            let writable = holder_of(value, "/var/lib");
            for (i, fs) in value.iter().enumerate().filter(|(_, fs)| is_judged(fs)) {
                out.findings.push(filesystem(fs, writable == Some(i), limits, *at));
            }
        }
        unknown => unread_filesystems(out, unknown, facts),
    }
    match &host.memory {
        Fact::Known { value, at, .. } => out.findings.push(memory(value, limits, *at)),
        other => {
            out.findings.extend(unread(TYPE, "Memory", other, Severity::Warn).map(|f| f.subject("memory")));
        }
    }
    // Kernels without pressure accounting have nothing to read; that is no fault.
    match &host.pressure {
        Fact::Known { value, at, .. } => out.findings.push(pressure(value, *at)),
        other => {
            out.findings
                .extend(unread(TYPE, "Pressure", other, Severity::Info).map(|f| f.subject("pressure")));
        }
    }
}

/// Every file system known before becomes unknown: it has not vanished, it could not be seen.
fn unread_filesystems(out: &mut Judgement, fact: &Fact<Vec<FilesystemFacts>>, facts: &NodeFacts) {
    let Some(finding) = unread(TYPE, "The list of file systems", fact, Severity::Warn) else { return };
    let before = out.findings.len();
    for latch in &facts.latches {
        if latch.condition.condition_type == TYPE && latch.condition.subject.starts_with('/') {
            out.findings.push(finding.clone().subject(latch.condition.subject.clone()));
        }
    }
    if out.findings.len() == before {
        out.findings.push(finding.subject(FILESYSTEMS));
    }
}

/// Whether fullness of this file system means anything to the node.
///
/// Images and pseudo file systems are always full or have no size; volumes of pods and layers of containers are their
/// owners' matter and counted in the file system below them.
fn is_judged(fs: &FilesystemFacts) -> bool {
    const NOT_STORAGE: [&str; 22] = [
        "squashfs",
        "iso9660",
        "udf",
        "erofs",
        "cramfs",
        "composefs",
        "tmpfs",
        "devtmpfs",
        "ramfs",
        "proc",
        "sysfs",
        "cgroup",
        "cgroup2",
        "devpts",
        "mqueue",
        "nsfs",
        "autofs",
        "efivarfs",
        "debugfs",
        "tracefs",
        "bpf",
        "overlay",
    ];
    const OF_CONTAINERS: [&str; 8] = [
        "/run/",
        "/snap/",
        "/proc/",
        "/sys/",
        "/dev/",
        "/var/lib/kubelet/pods/",
        "/var/lib/kubelet/plugins/",
        "/var/lib/docker/",
    ];
    if fs.total_bytes == 0 || !fs.mount.starts_with('/') {
        return false;
    }
    // The root of a container is an overlay over a real disk: when it fills, the node stands still all the same.
    let overlay_root = fs.fs_type == "overlay" && fs.mount == "/";
    if !overlay_root && (NOT_STORAGE.contains(&fs.fs_type.as_str()) || fs.fs_type.starts_with("fuse")) {
        return false;
    }
    let below = |part: &str| fs.mount.contains(part);
    !OF_CONTAINERS.iter().any(|prefix| fs.mount.starts_with(prefix))
        && !below("/containerd/")
        && !below("/containers/storage/")
}

/// Index of the file system that `path` lies on.
fn holder_of(all: &[FilesystemFacts], path: &str) -> Option<usize> {
    let holds = |mount: &str| {
        mount == "/" || path == mount || path.strip_prefix(mount).is_some_and(|rest| rest.starts_with('/'))
    };
    let candidates = all.iter().enumerate().filter(|(_, fs)| holds(&fs.mount));
    candidates.max_by_key(|(_, fs)| fs.mount.len()).map(|(i, _)| i)
}

fn filesystem(fs: &FilesystemFacts, holds_var_lib: bool, limits: &Thresholds, at: Timestamp) -> Finding {
    let new = |status, severity, reason, message: String| {
        Finding::new(TYPE, status, severity, reason, at, message)
            .subject(fs.mount.clone())
            .waits(DISK_RAISE, CLEAR)
    };
    let free = percent(fs.available_bytes.min(fs.total_bytes), fs.total_bytes);
    let room = format!(
        "{} of {} ({}) available on {} ({}, {})",
        Short(fs.available_bytes),
        Short(fs.total_bytes),
        Percent(free),
        fs.mount,
        fs.device,
        fs.fs_type
    );

    // Immutable systems mount / and /usr read-only on purpose; below /var/lib everything has to be written.
    let must_be_written =
        holds_var_lib || fs.mount.starts_with("/var/lib/") || fs.mount.starts_with("/var/log");
    if fs.read_only {
        if !must_be_written {
            return new(
                Status::True,
                Severity::Ok,
                ReasonCode::HostHasRoom,
                format!("Read-only by design: {room}."),
            );
        }
        return new(
            Status::False,
            Severity::Error,
            ReasonCode::FilesystemReadOnly,
            format!("{} is mounted read-only and must be written; {room}.", fs.mount),
        )
        .advice(
            "Look for I/O or file-system errors in the kernel log (journalctl -k): ext4 and xfs turn read-only after \
             one. Check the disk on the host before mounting it again for writing.",
        );
    }

    // Boot partitions are small and change only with a kernel: full is a nuisance at the next update, not an outage.
    let boot = fs.mount == "/efi" || fs.mount == "/boot" || fs.mount.starts_with("/boot/");
    let (warn, error) = if boot {
        (limits.disk_error_percent, -1.0)
    } else {
        (limits.disk_warn_percent, limits.disk_error_percent)
    };
    if let Some((status, severity)) = level(free, warn, error) {
        return new(status, severity, ReasonCode::DiskSpaceLow, format!("Only {room}; limits {warn} % and {error} %."))
            .advice(
                "Find what grows (journal, container images, logs, etcd snapshots) and free space; the kubelet evicts \
                 pods and etcd stops when it runs out.",
            );
    }
    // Types without a fixed number of inodes report 0 of 0.
    if fs.inodes_total > 0 {
        let free_inodes = percent(fs.inodes_free.min(fs.inodes_total), fs.inodes_total);
        if let Some((status, severity)) = level(free_inodes, warn, error) {
            let message = format!(
                "Only {} of {} inodes ({}) free on {}; {room}; limits {warn} % and {error} %.",
                fs.inodes_free,
                fs.inodes_total,
                Percent(free_inodes),
                fs.mount
            );
            return new(status, severity, ReasonCode::InodesLow, message).advice(
                "Find the folder with very many small files and clear it; free bytes do not help here.",
            );
        }
    }
    new(Status::True, Severity::Ok, ReasonCode::HostHasRoom, format!("{room}."))
}

/// `None` while `free` percent are enough; below `warn` it still holds, below `error` it does not.
fn level(free: f64, warn: f64, error: f64) -> Option<(Status, Severity)> {
    if free < error {
        Some((Status::False, Severity::Error))
    } else if free < warn {
        Some((Status::True, Severity::Warn))
    } else {
        None
    }
}

fn memory(memory: &MemoryFacts, limits: &Thresholds, at: Timestamp) -> Finding {
    let free = percent(memory.available_bytes.min(memory.total_bytes), memory.total_bytes);
    let numbers = format!(
        "{} of {} ({}) of memory available, swap {} of {} free",
        Short(memory.available_bytes),
        Short(memory.total_bytes),
        Percent(free),
        Short(memory.swap_free_bytes),
        Short(memory.swap_total_bytes)
    );
    let finding = if memory.total_bytes == 0 {
        Finding::unknown(
            TYPE,
            &outrider_protocol::UnknownCause::InvalidAnswer,
            Severity::Warn,
            at,
            "The kernel reports 0 bytes of memory.",
        )
    } else if let Some((status, severity)) =
        level(free, limits.memory_warn_percent, limits.memory_error_percent)
    {
        let message = format!(
            "Only {numbers}; limits {} % and {} %.",
            limits.memory_warn_percent, limits.memory_error_percent
        );
        Finding::new(TYPE, status, severity, ReasonCode::MemoryLow, at, message).advice(
            "See which process holds it (ps, systemd-cgtop); move load away or give the machine more memory.",
        )
    } else {
        Finding::new(TYPE, Status::True, Severity::Ok, ReasonCode::HostHasRoom, at, format!("{numbers}."))
    };
    finding.subject("memory").waits(LOAD_RAISE, CLEAR)
}

fn pressure(p: &PressureFacts, at: Timestamp) -> Finding {
    let numbers = format!(
        "tasks stalled {:.1} % of the last minute on memory, {:.1} % on I/O, {:.1} % on CPU",
        p.memory, p.io, p.cpu
    );
    let finding = if p.memory > MEMORY_PRESSURE || p.io > IO_PRESSURE {
        let message = format!("Some {numbers}; limits {MEMORY_PRESSURE} % memory, {IO_PRESSURE} % I/O.");
        Finding::new(TYPE, Status::True, Severity::Warn, ReasonCode::PressureHigh, at, message).advice(
            "See which unit stalls (systemd-cgtop, /sys/fs/cgroup/*/io.pressure) and whether the disk below is shared.",
        )
    } else {
        Finding::new(
            TYPE,
            Status::True,
            Severity::Ok,
            ReasonCode::HostHasRoom,
            at,
            format!("Some {numbers}."),
        )
    };
    finding.subject("pressure").waits(LOAD_RAISE, CLEAR)
}
