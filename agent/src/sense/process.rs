//! Processes by command name, from `/proc`.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use outrider_protocol::{Fact, ProcessFacts, UnknownCause};

use super::{SenseContext, file};

/// Bytes of a command name that the kernel keeps.
const NAME: usize = 15;

/// Calls `seen` with the number, the command name and the folder of every process of the folder `proc`. A machine has
/// hundreds, and several checks look at all of them: a process costs three system calls, and `stat`, which takes the kernel
/// several times as long, is for those whose name is right.
pub(crate) fn each(proc: &Path, mut seen: impl FnMut(i32, &[u8], &Path)) -> std::io::Result<()> {
    for entry in std::fs::read_dir(proc)?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let folder = entry.path();
        let mut name = [0; 64];
        // One that has ended meanwhile has no name.
        if let Some(length) = comm(&folder, &mut name) {
            seen(pid, name[..length].trim_ascii_end(), &folder);
        }
    }
    Ok(())
}

fn comm(folder: &Path, name: &mut [u8]) -> Option<usize> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(folder.join("comm"));
    file.ok()?.read(name).ok()
}

/// The oldest living process whose command name is one of `names`.
///
/// Names are compared as the kernel keeps them, cut to 15 bytes. A zombie is no process that serves anybody. Where
/// `/proc` hides other users' processes (`hidepid`), "not seen" is unknown and not absent.
pub(crate) fn find(cx: &SenseContext, names: &[&str]) -> Fact<ProcessFacts> {
    let source = "/proc/*/stat";
    let proc = cx.path("/proc");
    if let Err(e) = std::fs::metadata(&proc) {
        return Fact::from_io(&e, source, cx.now());
    }
    let uptime = match file::read_text(&proc.join("uptime"), file::SMALL).ok().and_then(|t| uptime(&t).ok()) {
        Some(uptime) => uptime,
        None => {
            return Fact::unknown(
                UnknownCause::InvalidInput,
                "/proc/uptime is not readable",
                source,
                cx.now(),
            );
        }
    };
    let mut found: Option<ProcessFacts> = None;
    let looked = each(&proc, |pid, name, folder| {
        if !names.iter().any(|n| name == &n.as_bytes()[..n.len().min(NAME)]) {
            return;
        }
        let process = read(folder, pid, uptime);
        if let Some(process) = process.filter(|p| found.as_ref().is_none_or(|f| p.seconds > f.seconds)) {
            found = Some(process);
        }
    });
    if let Err(e) = looked {
        return Fact::from_io(&e, source, cx.now());
    }
    match found {
        Some(process) => Fact::known(process, source, cx.now()),
        // PID 1 always lives, and is root's.
        None if !proc.join("1").exists() => Fact::unknown(
            UnknownCause::PermissionDenied,
            "/proc hides the processes of other users (mount option hidepid)",
            source,
            cx.now(),
        ),
        None => Fact::absent(source, cx.now()),
    }
}

/// One process of `/proc/PID/stat`; none when it has ended meanwhile or is a zombie.
fn read(folder: &Path, pid: i32, uptime: f64) -> Option<ProcessFacts> {
    /// USER_HZ: fixed at 100 on every architecture this runs on, by the kernel's ABI.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = file::read_text(&folder.join("stat"), file::SMALL).ok()?;
    // The name stands in parentheses and may hold blanks and parentheses itself: the last one closes it.
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Field 3 (state) is the first after the name; 22 is the start in ticks since boot (proc_pid_stat(5)).
    let state = *fields.first()?;
    let started = fields.get(19)?.parse::<u64>().ok()? as f64 / TICKS_PER_SECOND;
    let dead = matches!(state, "Z" | "X" | "x");
    (!dead).then(|| ProcessFacts { pid, name: name.to_owned(), seconds: (uptime - started).max(0.0) as u64 })
}

/// Seconds since boot, of `/proc/uptime`.
pub(crate) fn uptime(text: &str) -> Result<f64, String> {
    let first = text.split_ascii_whitespace().next().unwrap_or("");
    match first.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err(format!("{} is no time since boot", file::excerpt(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepared::Machine;
    use super::*;

    /// Puts a process there.
    fn process(machine: &Machine, pid: u32, name: &str, state: char, start_ticks: u64) {
        machine.write(&format!("/proc/{pid}/comm"), &format!("{name}\n"));
        machine.write(&format!("/proc/{pid}/stat"), &stat(name, state, start_ticks));
    }

    fn stat(name: &str, state: char, start_ticks: u64) -> String {
        format!("7 ({name}) {state} 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 2 0 {start_ticks} 81281024 1431")
    }

    #[test]
    fn finds_the_oldest_and_skips_zombies() {
        let machine = Machine::new();
        machine.write("/proc/uptime", "1000.50 900.0\n");
        process(&machine, 1, "systemd", 'S', 0);
        process(&machine, 40, "qemu-ga", 'Z', 100);
        assert!(matches!(find(&machine.cx(), &["qemu-ga"]), Fact::Absent { .. }));
        process(&machine, 41, "qemu-ga", 'S', 50_000);
        process(&machine, 42, "qemu-ga", 'S', 90_000);
        let found = find(&machine.cx(), &["qemu-ga"]);
        assert_eq!(found.value(), Some(&ProcessFacts { pid: 41, name: "qemu-ga".into(), seconds: 500 }));
    }

    #[test]
    fn a_name_may_hold_parentheses_and_long_names_are_cut() {
        let machine = Machine::new();
        machine.write("/proc/uptime", "10.0 1.0");
        process(&machine, 1, "a) S (b", 'S', 0);
        process(&machine, 9, "systemd-timesyn", 'S', 0);
        assert_eq!(find(&machine.cx(), &["a) S (b"]).value().map(|p| p.pid), Some(1));
        assert_eq!(find(&machine.cx(), &["systemd-timesyncd"]).value().map(|p| p.pid), Some(9));
    }

    #[test]
    fn hidden_processes_are_unknown_not_absent() {
        let machine = Machine::new();
        machine.write("/proc/uptime", "10.0 1.0");
        process(&machine, 77, "outrider-agent", 'S', 0);
        let Fact::Unknown { cause, .. } = find(&machine.cx(), &["qemu-ga"]) else {
            panic!("hidden is unknown")
        };
        assert_eq!(cause, UnknownCause::PermissionDenied);
    }

    #[test]
    fn broken_stat_lines_are_skipped() {
        let machine = Machine::new();
        machine.write("/proc/uptime", "10.0 1.0");
        for (pid, text) in [(1, "1 (init"), (2, "2 (qemu-ga) S 1"), (3, ""), (4, ") (qemu-ga S")] {
            machine.write(&format!("/proc/{pid}/comm"), "qemu-ga\n");
            machine.write(&format!("/proc/{pid}/stat"), text);
        }
        machine.write("/proc/5/comm", "qemu-ga\n");
        machine.write_bytes("/proc/5/stat", &[0xff, 0xfe, 0]);
        machine.write("/proc/6/comm", "qemu-ga\n");
        assert!(matches!(find(&machine.cx(), &["qemu-ga"]), Fact::Absent { .. }));
    }
}
