//! Processes by command name, from `/proc`.

use std::path::Path;

use outrider_protocol::{Fact, ProcessFacts, UnknownCause};

use super::{SenseContext, file};

/// The oldest living process whose command name is one of `names`.
///
/// Names are compared as the kernel keeps them, cut to 15 bytes. A zombie is no process that serves anybody. Where
/// `/proc` hides other users' processes (`hidepid`), "not seen" is unknown and not absent.
pub(crate) fn find(cx: &SenseContext, names: &[&str]) -> Fact<ProcessFacts> {
    let source = "/proc/*/stat";
    let proc = cx.path("/proc");
    let entries = match std::fs::read_dir(&proc) {
        Ok(entries) => entries,
        Err(e) => return Fact::from_io(&e, source, cx.now()),
    };
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
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Some(process) = read(&entry.path(), pid, uptime) else { continue };
        let wanted = names.iter().any(|n| process.name.as_bytes() == &n.as_bytes()[..n.len().min(15)]);
        if wanted && found.as_ref().is_none_or(|f| process.seconds > f.seconds) {
            found = Some(process);
        }
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

    fn stat(name: &str, state: char, start_ticks: u64) -> String {
        format!("7 ({name}) {state} 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 2 0 {start_ticks} 81281024 1431")
    }

    #[test]
    fn finds_the_oldest_and_skips_zombies() {
        let machine = Machine::new();
        machine.write("/proc/uptime", "1000.50 900.0\n");
        machine.write("/proc/1/stat", &stat("systemd", 'S', 0));
        machine.write("/proc/40/stat", &stat("qemu-ga", 'Z', 100));
        assert!(matches!(find(&machine.cx(), &["qemu-ga"]), Fact::Absent { .. }));
        machine.write("/proc/41/stat", &stat("qemu-ga", 'S', 50_000));
        machine.write("/proc/42/stat", &stat("qemu-ga", 'S', 90_000));
        let found = find(&machine.cx(), &["qemu-ga"]);
        assert_eq!(found.value(), Some(&ProcessFacts { pid: 41, name: "qemu-ga".into(), seconds: 500 }));
    }

    #[test]
    fn a_name_may_hold_parentheses_and_long_names_are_cut() {
        let machine = Machine::new();
        machine.write("/proc/uptime", "10.0 1.0");
        machine.write("/proc/1/stat", &stat("a) S (b", 'S', 0));
        machine.write("/proc/9/stat", &stat("systemd-timesyn", 'S', 0));
        assert_eq!(find(&machine.cx(), &["a) S (b"]).value().map(|p| p.pid), Some(1));
        assert_eq!(find(&machine.cx(), &["systemd-timesyncd"]).value().map(|p| p.pid), Some(9));
    }

    #[test]
    fn hidden_processes_are_unknown_not_absent() {
        let machine = Machine::new();
        machine.write("/proc/uptime", "10.0 1.0");
        machine.write("/proc/77/stat", &stat("outrider-agent", 'S', 0));
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
            machine.write(&format!("/proc/{pid}/stat"), text);
        }
        machine.write_bytes("/proc/5/stat", &[0xff, 0xfe, 0]);
        assert!(matches!(find(&machine.cx(), &["qemu-ga"]), Fact::Absent { .. }));
    }
}
