//! What runs out: processors, memory, pressure, file systems.

use std::collections::BTreeMap;
use std::path::Path;

use nix::sys::statvfs::statvfs;
use outrider_protocol::{Fact, FilesystemFacts, MemoryFacts, PressureFacts, UnknownCause};
use sysinfo::System;

use super::super::{SenseContext, file};

/// Logical processors online, of a list such as `0-3,8`.
pub(crate) fn cpus(cx: &SenseContext) -> Fact<u32> {
    file::fact(cx, "/sys/devices/system/cpu/online", file::SMALL, |text| {
        let parts = text.trim().split(',').map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            last.checked_sub(first)?.checked_add(1)
        });
        let total = parts.sum::<Option<u32>>();
        total.ok_or_else(|| format!("{} is no list of processors", file::excerpt(text)))
    })
}

/// Memory of the machine, of the running kernel whatever the root: a container's limit is not the machine's size.
pub(crate) fn memory(cx: &SenseContext) -> Fact<MemoryFacts> {
    let source = "/proc/meminfo";
    let mut system = match System::new() {
        Ok(system) => system,
        Err(e) => return Fact::unknown(UnknownCause::IoError, e.to_string(), source, cx.now()),
    };
    system.refresh_memory();
    if system.total_memory() == 0 {
        // sysinfo has no error here; a machine without memory does not ask.
        return Fact::unknown(UnknownCause::IoError, "no MemTotal could be read", source, cx.now());
    }
    let memory = MemoryFacts {
        total_bytes: system.total_memory(),
        available_bytes: system.available_memory(),
        swap_total_bytes: system.total_swap(),
        swap_free_bytes: system.free_swap(),
    };
    Fact::known(memory, source, cx.now())
}

/// Run-queue averages, of the running kernel.
pub(super) fn load(cx: &SenseContext) -> Fact<[f64; 3]> {
    let source = "/proc/loadavg";
    match System::load_average() {
        Ok(load) => Fact::known([load.one, load.five, load.fifteen], source, cx.now()),
        Err(e) => Fact::unknown(UnknownCause::IoError, e.to_string(), source, cx.now()),
    }
}

/// Pressure-stall averages; absent on kernels without `CONFIG_PSI`, and where `psi=0` makes every read fail.
pub(super) fn pressure(cx: &SenseContext) -> Fact<PressureFacts> {
    let mut average = BTreeMap::new();
    for name in ["cpu", "memory", "io"] {
        let path = format!("/proc/pressure/{name}");
        match file::read_text(&cx.path(&path), file::SMALL) {
            Ok(text) => match some_avg60(&text) {
                Some(value) => average.insert(name, value),
                None => {
                    let detail = format!("no `some avg60=` in {}", file::excerpt(&text));
                    return Fact::unknown(UnknownCause::InvalidInput, detail, path, cx.now());
                }
            },
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => return Fact::absent(path, cx.now()),
            Err(e) => return Fact::from_io(&e, path, cx.now()),
        };
    }
    let value = PressureFacts { cpu: average["cpu"], memory: average["memory"], io: average["io"] };
    Fact::known(value, "/proc/pressure", cx.now())
}

fn some_avg60(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|l| l.strip_prefix("some "))?;
    let value = line.split_ascii_whitespace().find_map(|f| f.strip_prefix("avg60="))?;
    value.parse().ok().filter(|v: &f64| v.is_finite())
}

/// Types that live in memory or in the kernel: nothing an operator could clean up.
const NOT_ON_DISK: [&str; 33] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fuse.lxcfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "ramfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "squashfs",
    "erofs",
    "iso9660",
    "cramfs",
    "romfs",
    "fuse.portal",
    "fuse.gvfsd-fuse",
    "rootfs",
];

/// Types whose server may be gone: `statvfs` on them can hang for ever in an uninterruptible state.
fn is_network(fs_type: &str) -> bool {
    const NETWORK: [&str; 14] = [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ceph",
        "glusterfs",
        "lustre",
        "gfs2",
        "ocfs2",
        "9p",
        "afs",
        "beegfs",
        "virtiofs",
    ];
    // Any FUSE file system has a process behind it that may hang.
    NETWORK.contains(&fs_type) || fs_type == "fuse" || fs_type.starts_with("fuse.")
}

/// One line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq)]
struct Mount {
    id: u32,
    parent: u32,
    device_number: String,
    mount: String,
    fs_type: String,
    device: String,
    read_only: bool,
}

/// File systems on disks, each once, at its shortest mount point.
///
/// Whether one is read-only is the file system's own state and not the mount's: our unit sees most of the tree
/// through read-only mounts, and a disk the kernel remounted read-only after an error shows in both.
pub(super) fn filesystems(cx: &SenseContext) -> Fact<Vec<FilesystemFacts>> {
    let source = "/proc/self/mountinfo";
    // `self` is a link to the reader's own folder; a prepared root has a plain folder there.
    let text = match file::read_text(&cx.path(source), file::LARGE) {
        Ok(text) => text,
        Err(e) => return Fact::from_io(&e, source, cx.now()),
    };
    let mounts = on_disk(&text);
    if mounts.is_empty() && !text.lines().any(|l| parse_mount(l).is_some()) {
        let detail = format!("no line of the expected form: {}", file::excerpt(&text));
        return Fact::unknown(UnknownCause::InvalidInput, detail, source, cx.now());
    }
    let mut facts = Vec::with_capacity(mounts.len());
    let mut last_error = None;
    for mount in mounts {
        match statvfs(cx.path(Path::new(&mount.mount)).as_path()) {
            Ok(stat) => facts.push(FilesystemFacts {
                total_bytes: stat.blocks().saturating_mul(stat.fragment_size()),
                available_bytes: stat.blocks_available().saturating_mul(stat.fragment_size()),
                inodes_total: stat.files(),
                inodes_free: stat.files_available(),
                mount: mount.mount,
                device: mount.device,
                fs_type: mount.fs_type,
                read_only: mount.read_only,
            }),
            // A mount below a folder we may not enter, or one that went away meanwhile: not ours to judge.
            Err(e) => last_error = Some((mount.mount, e)),
        }
    }
    match last_error {
        Some((mount, e)) if facts.is_empty() => {
            Fact::from_io(&e.into(), format!("statvfs {mount}"), cx.now())
        }
        _ => Fact::known(facts, source, cx.now()),
    }
}

/// The mounts worth a look, ordered by mount point.
fn on_disk(text: &str) -> Vec<Mount> {
    let mut by_device: BTreeMap<String, Mount> = BTreeMap::new();
    let all: Vec<Mount> = text.lines().filter_map(parse_mount).collect();
    for mount in all.iter().filter(|m| !is_hidden(m, &all)).cloned() {
        let fs_type = mount.fs_type.as_str();
        // An overlay is a container's view of a disk that is listed already, unless it is our own root.
        let view = fs_type == "overlay" && mount.mount != "/";
        if view
            || NOT_ON_DISK.contains(&fs_type)
            || is_network(fs_type)
            || mount.device.starts_with("/dev/loop")
        {
            continue;
        }
        match by_device.get(&mount.device_number) {
            Some(known) if known.mount.len() <= mount.mount.len() => {}
            _ => {
                by_device.insert(mount.device_number.clone(), mount);
            }
        }
    }
    let mut mounts: Vec<Mount> = by_device.into_values().collect();
    mounts.sort_by(|a, b| a.mount.cmp(&b.mount));
    mounts
}

/// True for a mount that another one covers, as a sandbox covers `/home`: asking at its mount point would tell of the
/// cover.
fn is_hidden(mount: &Mount, all: &[Mount]) -> bool {
    let mut mount = mount;
    // Up to the root; broken input may go in a circle.
    for _ in 0..64 {
        let covers = |q: &Mount| {
            let on_top = q.parent == mount.id && q.mount == mount.mount;
            let above = mount.mount.strip_prefix(&q.mount).is_some_and(|rest| rest.starts_with('/'));
            q.id != mount.id && (on_top || q.parent == mount.parent && above && q.mount != "/")
        };
        if all.iter().any(covers) {
            return true;
        }
        match all.iter().find(|p| p.id == mount.parent && p.id != mount.id) {
            Some(parent) => mount = parent,
            None => return false,
        }
    }
    false
}

fn parse_mount(line: &str) -> Option<Mount> {
    // Optional fields end with a lone hyphen; type, source and the file system's options follow.
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let (id, parent) = (before.next()?.parse().ok()?, before.next()?.parse().ok()?);
    let device_number = before.next()?.to_owned();
    let mount = unescape(before.nth(1)?);
    let mut after = after.split(' ');
    let fs_type = after.next()?.to_owned();
    let device = unescape(after.next()?);
    let read_only = after.next()?.split(',').any(|o| o == "ro");
    mount.starts_with('/').then_some(Mount { id, parent, device_number, mount, fs_type, device, read_only })
}

/// Blanks and backslashes are written as three octal digits there.
fn unescape(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let digits = rest.get(at + 1..at + 4).and_then(|d| u8::from_str_radix(d, 8).ok());
        match digits.filter(u8::is_ascii) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::prepared::Machine;
    use super::*;

    const MOUNTINFO: &str = "\
22 1 8:1 / / ro,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid shared:2 - proc proc rw
24 22 8:1 /var/lib/kubelet /var/lib/kubelet/pods rw shared:1 - ext4 /dev/vda1 rw
25 22 8:16 / /var/lib/rancher rw,relatime shared:3 - xfs /dev/vdb ro,attr2
26 22 0:45 / /mnt/share\\040one rw - nfs4 nas:/export rw,vers=4.2
27 22 0:46 / /run/k3s/overlay rw - overlay overlay rw,lowerdir=/x
28 22 0:47 / /home rw - btrfs /dev/vdc rw,subvol=/@home
29 22 7:1 / /snap/core rw - ext4 /dev/loop1 rw
30 22 0:50 / /data\\040disk rw - fuse.sshfs host:/ rw
";

    #[test]
    fn each_disk_once_and_never_a_network_mount() {
        let mounts = on_disk(MOUNTINFO);
        let seen: Vec<_> = mounts.iter().map(|m| (m.mount.as_str(), m.read_only)).collect();
        assert_eq!(seen, [("/", false), ("/home", false), ("/var/lib/rancher", true)]);
    }

    #[test]
    fn a_disk_under_a_cover_is_not_seen() {
        let covered = format!(
            "{MOUNTINFO}40 28 0:60 / /home ro - tmpfs tmpfs ro\n41 25 9:9 / /var/lib/rancher/a/b rw - ext4 /dev/a rw\n\
             42 25 0:61 / /var/lib/rancher/a rw - tmpfs tmpfs rw\n43 41 9:8 / /var/lib/rancher/a/b/c rw - xfs /dev/b rw\n"
        );
        let mounts = on_disk(&covered);
        let seen: Vec<_> = mounts.iter().map(|m| m.mount.as_str()).collect();
        assert_eq!(seen, ["/", "/var/lib/rancher"]);
        assert_eq!(on_disk("1 1 8:1 / / rw - ext4 /dev/a rw\n2 3 8:2 / /x rw - ext4 /dev/b rw\n").len(), 2);
    }

    #[test]
    fn an_overlay_counts_only_as_the_root() {
        let mounts = on_disk("1 0 0:30 / / rw - overlay overlay rw,lowerdir=/l\n");
        assert_eq!(mounts.len(), 1);
    }

    #[test]
    fn broken_mountinfo_is_unknown() {
        let machine = Machine::new();
        machine.write("/proc/self/mountinfo", "nonsense\n");
        assert!(matches!(filesystems(&machine.cx()), Fact::Unknown { .. }));
        machine.write("/proc/self/mountinfo", MOUNTINFO);
        let facts = filesystems(&machine.cx());
        assert_eq!(facts.value().map(|f| f[0].mount.clone()), Some("/".into()), "{facts:?}");
    }

    #[test]
    fn processors_are_counted_from_ranges() {
        for (text, expected) in
            [("0\n", Some(1)), ("0-3,8,10-11\n", Some(7)), ("", None), ("3-1", None), ("x", None)]
        {
            let machine = Machine::new();
            machine.write("/sys/devices/system/cpu/online", text);
            assert_eq!(cpus(&machine.cx()).value().copied(), expected, "{text:?}");
        }
    }

    #[test]
    fn pressure_is_the_some_line_over_a_minute() {
        let machine = Machine::new();
        assert!(matches!(pressure(&machine.cx()), Fact::Absent { .. }));
        for (name, avg) in [("cpu", "1.50"), ("memory", "0.00"), ("io", "42.01")] {
            let text =
                format!("some avg10=9.00 avg60={avg} avg300=0.10 total=1\nfull avg10=0.00 avg60=7.00\n");
            machine.write(&format!("/proc/pressure/{name}"), &text);
        }
        let facts = pressure(&machine.cx());
        assert_eq!(facts.value(), Some(&PressureFacts { cpu: 1.5, memory: 0.0, io: 42.01 }));
        machine.write("/proc/pressure/io", "full avg10=0.00\n");
        assert!(matches!(pressure(&machine.cx()), Fact::Unknown { .. }));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in "[\\x00-\\x7f\u{e9}\\\\ -]{0,200}") {
            let _ = on_disk(&text);
            let _ = some_avg60(&text);
            prop_assert!(unescape(&text).len() <= text.len());
        }
    }
}
