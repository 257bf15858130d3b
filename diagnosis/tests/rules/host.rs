//! Disks, memory, pressure, clock.

use outrider_diagnosis::{Finding, Judgement, judge, latch};
use outrider_protocol::*;

use crate::world::{self, Change, clock, filesystem, host, known, unknown};
use crate::{expect, only};

fn judged(h: HostFacts) -> Judgement {
    judge(&world::node_facts(CheckFacts { host: Some(known(h)), ..CheckFacts::default() }))
}

fn about(j: &Judgement, subject: &str) -> Finding {
    j.findings.iter().find(|f| f.subject == subject).unwrap_or_else(|| panic!("{subject} in {j:#?}")).clone()
}

fn disks(all: Vec<FilesystemFacts>) -> Judgement {
    judged(host().with(|h| h.filesystems = known(all)))
}

fn disk(fs: FilesystemFacts) -> Finding {
    let mount = fs.mount.clone();
    about(&disks(vec![fs]), &mount)
}

#[test]
fn a_healthy_host_has_one_condition_a_thing() {
    let j = judged(host());
    let subjects: Vec<&str> = j.findings.iter().map(|f| f.subject.as_str()).collect();
    assert_eq!(subjects, ["/", "/var/lib/rancher", "memory", "pressure"]);
    assert!(j.findings.iter().all(|f| f.severity == Severity::Ok && f.reason == ReasonCode::HostHasRoom));
}

#[test]
fn disk_space_by_its_limits() {
    expect(
        &disk(filesystem("/", 15)),
        Status::True,
        Severity::Ok,
        ReasonCode::HostHasRoom,
        &["15.0 GB of 100.0 GB", "15 %"],
    );
    expect(
        &disk(filesystem("/", 14)),
        Status::True,
        Severity::Warn,
        ReasonCode::DiskSpaceLow,
        &["14 %", "/dev/vda1"],
    );
    expect(&disk(filesystem("/", 4)), Status::False, Severity::Error, ReasonCode::DiskSpaceLow, &["4.0 %"]);
    let nearly = filesystem("/", 0).with(|f| f.available_bytes = 4_960_000_000);
    expect(&disk(nearly), Status::False, Severity::Error, ReasonCode::DiskSpaceLow, &["4.9 %"]);
    expect(&disk(filesystem("/boot/efi", 4)), Status::True, Severity::Warn, ReasonCode::DiskSpaceLow, &[]);
    assert_eq!(disk(filesystem("/boot", 10)).severity, Severity::Ok);
}

#[test]
fn inodes_run_out_too() {
    let f = disk(filesystem("/var", 60).with(|f| f.inodes_free = 20_000));
    expect(&f, Status::False, Severity::Error, ReasonCode::InodesLow, &["20000 of 1000000", "2.0 %"]);
    assert_eq!(
        disk(filesystem("/var", 60).with(|f| (f.inodes_total, f.inodes_free) = (0, 0))).severity,
        Severity::Ok
    );
}

#[test]
fn read_only_matters_where_things_are_written() {
    let ro = |mount: &str| filesystem(mount, 60).with(|f| f.read_only = true);
    expect(
        &disk(ro("/")),
        Status::False,
        Severity::Error,
        ReasonCode::FilesystemReadOnly,
        &["/", "journalctl -k"],
    );
    // An immutable root with a writable /var is as it should be.
    let j = disks(vec![ro("/"), filesystem("/var", 60), ro("/usr")]);
    assert_eq!((about(&j, "/").severity, about(&j, "/usr").severity), (Severity::Ok, Severity::Ok));
    let j = disks(vec![filesystem("/", 60), ro("/var"), ro("/var/lib/rancher")]);
    assert_eq!(about(&j, "/var").reason, ReasonCode::FilesystemReadOnly);
    assert_eq!(about(&j, "/var/lib/rancher").reason, ReasonCode::FilesystemReadOnly);
    // /variable is not below /var.
    assert_eq!(disk(ro("/variable")).severity, Severity::Ok);
}

#[test]
fn images_pseudo_file_systems_and_containers_raise_no_alarm() {
    let full = |mount: &str, fs_type: &str| {
        filesystem(mount, 0).with(|f| {
            f.fs_type = fs_type.into();
            f.read_only = true;
        })
    };
    let j = disks(vec![
        filesystem("/", 60),
        full("/snap/core/1", "squashfs"),
        full("/mnt/cd", "iso9660"),
        full("/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs", "overlay"),
        full("/var/lib/docker/overlay2/x/merged", "overlay"),
        full("/var/lib/kubelet/pods/x/volumes/y", "ext4"),
        full("/var/lib/rancher/rke2/agent/containerd/x", "ext4"),
        full("/dev/shm", "tmpfs"),
        full("/media/x", "fuse.sshfs"),
        filesystem("/proc", 0).with(|f| f.total_bytes = 0),
    ]);
    let disks: Vec<&str> =
        j.findings.iter().map(|f| f.subject.as_str()).filter(|s| s.starts_with('/')).collect();
    assert_eq!(disks, ["/"]);
    // The root of a container lies on a real disk.
    let f = disk(filesystem("/", 3).with(|f| f.fs_type = "overlay".into()));
    assert_eq!(f.severity, Severity::Error);
}

#[test]
fn memory_and_pressure() {
    let memory = |percent: u64| {
        about(
            &judged(host().with(|h| {
                h.memory = known(MemoryFacts {
                    total_bytes: 1_000,
                    available_bytes: percent * 10,
                    ..MemoryFacts::default()
                });
            })),
            "memory",
        )
    };
    assert_eq!(memory(10).severity, Severity::Ok);
    expect(
        &memory(9),
        Status::True,
        Severity::Warn,
        ReasonCode::MemoryLow,
        &["9.0 %", "limits 10 % and 3 %"],
    );
    expect(&memory(2), Status::False, Severity::Error, ReasonCode::MemoryLow, &[]);
    let none = judged(host().with(|h| h.memory = known(MemoryFacts::default())));
    assert_eq!(about(&none, "memory").status, Status::Unknown);
    let p = judged(host().with(|h| h.pressure = known(PressureFacts { cpu: 99.0, memory: 0.0, io: 70.0 })));
    expect(
        &about(&p, "pressure"),
        Status::True,
        Severity::Warn,
        ReasonCode::PressureHigh,
        &["70.0 % on I/O"],
    );
    let busy = judged(host().with(|h| h.pressure = known(PressureFacts { cpu: 99.0, memory: 0.0, io: 2.0 })));
    assert_eq!(about(&busy, "pressure").severity, Severity::Ok, "a busy processor is no fault");
    let without = judged(host().with(|h| h.pressure = world::absent("/proc/pressure")));
    assert!(without.findings.iter().all(|f| f.subject != "pressure"));
}

#[test]
fn file_systems_that_could_not_be_listed_have_not_vanished() {
    let facts = |h| world::node_facts(CheckFacts { host: Some(known(h)), ..CheckFacts::default() });
    let before = facts(host());
    let latches = latch(&[], &judge(&before), before.now).latches;
    let blind =
        facts(host().with(|h| h.filesystems = unknown(UnknownCause::TimedOut))).with(|f| f.latches = latches);
    let j = judge(&blind);
    for subject in ["/", "/var/lib/rancher"] {
        expect(&about(&j, subject), Status::Unknown, Severity::Warn, ReasonCode::TimedOut, &[]);
    }
    let l = latch(&blind.latches, &j, blind.now);
    assert!(l.transitions.is_empty(), "one lost read is no news: {:#?}", l.transitions);
    let never_seen = judge(&facts(host().with(|h| h.filesystems = unknown(UnknownCause::TimedOut))));
    assert_eq!(about(&never_seen, "filesystems").status, Status::Unknown);
}

fn clocked(c: ClockFacts, uptime: u64) -> Finding {
    let h = host().with(|h| h.uptime_seconds = known(uptime));
    let checks = CheckFacts { clock: Some(known(c)), host: Some(known(h)), ..CheckFacts::default() };
    only(&judge(&world::node_facts(checks)), ConditionType::ClockSynchronized)
}

fn offset(ms: i64, uncertainty: i64) -> Fact<ClockOffset> {
    known(ClockOffset { offset_ms: ms, uncertainty_ms: uncertainty, peer: "c.example".into() })
}

#[test]
fn the_clock_against_the_coordinators() {
    let off = |ms, uncertainty| clocked(clock().with(|c| c.coordinator = offset(ms, uncertainty)), 90_000);
    assert_eq!(off(1_000, 0).reason, ReasonCode::ClockInSync);
    expect(
        &off(1_501, 500),
        Status::False,
        Severity::Warn,
        ReasonCode::ClockSkewed,
        &["1501 ms ahead", "give or take 500 ms", "c.example"],
    );
    expect(&off(-31_000, 500), Status::False, Severity::Error, ReasonCode::ClockSkewed, &["31 s behind"]);
    expect(
        &off(3_456_000_000, 500),
        Status::False,
        Severity::Error,
        ReasonCode::ClockSkewed,
        &["3456000 s (40 days) ahead of that of c.example"],
    );
    assert_eq!(off(1_400, 500).reason, ReasonCode::ClockInSync, "within the uncertainty");
    assert_eq!(off(i64::MIN, 0).severity, Severity::Error);
}

#[test]
fn a_clock_nobody_disciplines() {
    let free = || {
        clock().with(|c| {
            c.kernel = known(KernelClock {
                synchronized: false,
                estimated_error_us: 0,
                maximum_error_us: 16_000_000,
            });
            c.service = world::absent("systemd");
            c.coordinator = unknown(UnknownCause::Unreachable);
        })
    };
    expect(
        &clocked(free(), 90_000),
        Status::False,
        Severity::Warn,
        ReasonCode::ClockUnsynchronized,
        &["no time service found", "16000000 us"],
    );
    expect(
        &clocked(free(), 60),
        Status::False,
        Severity::Info,
        ReasonCode::ClockUnsynchronized,
        &["60 s after boot"],
    );
    let vouched = free().with(|c| c.coordinator = offset(5, 500));
    expect(
        &clocked(vouched, 90_000),
        Status::False,
        Severity::Info,
        ReasonCode::ClockUnsynchronized,
        &["5 ms ahead"],
    );
}

#[test]
fn a_clock_nobody_could_read() {
    let blind = || clock().with(|c| c.kernel = unknown(UnknownCause::PermissionDenied));
    assert_eq!(clocked(blind(), 90_000).reason, ReasonCode::ClockInSync, "the offset is evidence");
    let deaf = blind().with(|c| c.coordinator = unknown(UnknownCause::Unreachable));
    expect(&clocked(deaf, 90_000), Status::Unknown, Severity::Warn, ReasonCode::PermissionDenied, &[]);
}
