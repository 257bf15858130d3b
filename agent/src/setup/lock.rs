//! Who holds the package manager's lock.
//!
//! apt, dpkg, rpm and libzypp lock whole files with fcntl(2): the kernel tells who holds such a lock, as it does for
//! `/proc/locks`, but by file and not by device number, which differs there on btrfs and overlays. dnf writes its process
//! into a file instead.

use std::fmt;
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, fcntl};

use super::packages::Manager;
use crate::sense::{SenseContext, file};

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The file.
    pub(super) path: &'static str,
    /// The process; 0 when it is not visible from here.
    pub(super) pid: i32,
    /// Its command name; empty when it is not known.
    pub(super) name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, pid, name } = self;
        match (pid, name.is_empty()) {
            (1.., false) => write!(f, "{path}, held by process {pid} ({name})"),
            (1.., true) => write!(f, "{path}, held by process {pid}"),
            _ => write!(f, "{path}, held by a process that is not visible from here"),
        }
    }
}

const APT: [&str; 4] = [
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
];
const RPM: [&str; 2] = ["/usr/lib/sysimage/rpm/.rpm.lock", "/var/lib/rpm/.rpm.lock"];
const ZYPP: [&str; 2] = ["/run/zypp.pid", "/var/run/zypp.pid"];
const DNF_PIDS: [&str; 3] =
    ["/var/cache/dnf/metadata_lock.pid", "/var/cache/dnf/download_lock.pid", "/var/lib/dnf/rpmdb_lock.pid"];
const YUM_PIDS: [&str; 1] = ["/var/run/yum.pid"];

/// The first lock of `manager` that another process holds.
pub(super) fn holder(cx: &SenseContext, manager: Manager) -> Option<Holder> {
    let (locked, pids): (Vec<&'static str>, &[&'static str]) = match manager {
        Manager::Apt => (APT.to_vec(), &[]),
        Manager::Zypper | Manager::Transactional => (ZYPP.iter().chain(&RPM).copied().collect(), &[]),
        Manager::Dnf => (RPM.to_vec(), &DNF_PIDS),
        Manager::Yum => (RPM.to_vec(), &YUM_PIDS),
    };
    locked
        .into_iter()
        .find_map(|path| locker(cx, path))
        .or_else(|| pids.iter().find_map(|path| writer(cx, path)))
}

/// Who holds a lock of the whole file.
fn locker(cx: &SenseContext, path: &'static str) -> Option<Holder> {
    let file = file::open_regular(&cx.path(path)).ok()?;
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file.as_fd(), FcntlArg::F_GETLK(&mut lock)).ok()?;
    let held = lock.l_type != libc::F_UNLCK as libc::c_short;
    held.then(|| Holder { path, pid: lock.l_pid.max(0), name: name(cx, lock.l_pid) })
}

/// Who wrote its process into the file and lives.
fn writer(cx: &SenseContext, path: &'static str) -> Option<Holder> {
    let pid: i32 = file::read_text(&cx.path(path), file::SMALL).ok()?.trim().parse().ok()?;
    (pid > 0 && cx.path(format!("/proc/{pid}")).exists()).then(|| Holder { path, pid, name: name(cx, pid) })
}

fn name(cx: &SenseContext, pid: i32) -> String {
    let text = file::read_text(&cx.path(format!("/proc/{pid}/comm")), file::SMALL).unwrap_or_default();
    text.trim().chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::super::sense::prepared::Machine;
    use super::*;

    #[test]
    fn free_and_missing_locks_have_no_holder() {
        let machine = Machine::new();
        for manager in [Manager::Apt, Manager::Zypper, Manager::Dnf, Manager::Yum, Manager::Transactional] {
            assert_eq!(holder(&machine.cx(), manager), None);
        }
        machine.write(APT[0], "");
        assert_eq!(holder(&machine.cx(), Manager::Apt), None);
    }

    #[test]
    fn a_lock_of_another_process_names_it() {
        let machine = Machine::new();
        machine.write(APT[1], "");
        let lock = machine.path(APT[1]);
        // A process of its own: the kernel does not show a process its own locks.
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut child = std::process::Command::new("python3")
            .args(["-c", "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"])
            .arg(&lock)
            .stdin(std::os::fd::OwnedFd::from(theirs.try_clone().unwrap()))
            .stdout(std::os::fd::OwnedFd::from(theirs))
            .spawn();
        let Ok(child) = &mut child else { return };
        std::io::Read::read_exact(&mut &ours, &mut [0]).unwrap();
        machine.write(&format!("/proc/{}/comm", child.id()), "unattended-upgr\n");
        let held = holder(&machine.cx(), Manager::Apt).unwrap();
        assert_eq!((held.path, held.pid), (APT[1], child.id() as i32));
        assert_eq!(held.to_string(), format!("{}, held by process {} (unattended-upgr)", APT[1], child.id()));
        drop(ours);
        child.wait().unwrap();
        assert_eq!(holder(&machine.cx(), Manager::Apt), None);
    }

    #[test]
    fn a_pid_file_counts_while_its_process_lives() {
        let machine = Machine::new();
        machine.write(DNF_PIDS[0], "4711");
        assert_eq!(holder(&machine.cx(), Manager::Dnf), None);
        machine.write("/proc/4711/comm", "dnf-automatic\n");
        assert_eq!(holder(&machine.cx(), Manager::Dnf).unwrap().name, "dnf-automatic");
        machine.write(DNF_PIDS[0], "junk");
        assert_eq!(holder(&machine.cx(), Manager::Dnf), None);
    }
}
