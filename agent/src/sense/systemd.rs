//! What systemd knows of units, through `systemctl show`, whose `Name=value` blocks are made for programs.
//!
//! The D-Bus call behind it would cost the daemon a D-Bus library (1.5 MiB resident measured) for two questions.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use outrider_protocol::{Fact, UnknownCause};

use super::{SenseContext, file};

/// Properties of one unit, by name.
pub(crate) type Properties = BTreeMap<String, String>;

/// Folders that change when a unit does. systemd makes an entry in the first whenever it starts a unit's process and takes
/// it away when the unit has ended (`src/core/unit.c`: `unit_export_state_files`, `unit_notify`; since systemd 235), and
/// makes folders anew in the second whenever it reads unit files again (`lookup_paths_mkdir_generator`). Units lie in the
/// others, and what enables them.
const MARKS: [&str; 8] = [
    "/run/systemd/units",
    "/run/systemd",
    "/etc/systemd/system",
    "/etc/systemd/system/multi-user.target.wants",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// An answer is not kept for longer: what has no process (a timer) leaves no mark.
const KEPT: Duration = Duration::from_secs(300);

/// The last answer to one question, and how the folders looked before it was asked.
#[derive(Default)]
pub(super) struct Memory(Option<Answer>);

impl std::fmt::Debug for Memory {
    /// Without the answer: an environment is for everybody on this machine to see, and for nobody in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

struct Answer {
    asked: Instant,
    marks: Marks,
    blocks: Vec<Properties>,
}

/// Which folder lies there and when it was last changed.
type Marks = [Option<(u64, u64, i64, i64)>; MARKS.len()];

/// As [`show`], without asking again while nothing that shows from outside has changed: `systemctl` costs a thousand times
/// what a look at some folders does. Always asked with the same words. A unit that is on its way to another state, or has
/// failed, is asked about every time.
pub(crate) fn show_changes(
    cx: &SenseContext,
    units: &[&str],
    properties: &[&str],
    limit: Duration,
    memory: &mut Memory,
) -> Fact<Vec<Properties>> {
    let marks = marks(cx);
    if let Some(last) = &memory.0
        && last.asked.elapsed() < KEPT
        && Some(&last.marks) == marks.as_ref()
    {
        return Fact::known(last.blocks.clone(), source(units), cx.now());
    }
    let asked = Instant::now();
    let answer = show(cx, units, properties, limit);
    memory.0 = match (marks, answer.value()) {
        (Some(marks), Some(blocks)) if blocks.iter().all(is_settled) => {
            Some(Answer { asked, marks, blocks: blocks.clone() })
        }
        _ => None,
    };
    answer
}

/// `None` where systemd leaves no marks of units.
fn marks(cx: &SenseContext) -> Option<Marks> {
    let marks = MARKS.map(|folder| {
        let folder = std::fs::metadata(cx.path(folder)).ok()?;
        Some((folder.dev(), folder.ino(), folder.mtime(), folder.mtime_nsec()))
    });
    marks[0].map(|_| marks)
}

/// Whether the unit stays as it is until it is started or stopped.
fn is_settled(unit: &Properties) -> bool {
    unit.get("ActiveState").is_some_and(|state| state == "active" || state == "inactive")
}

fn source(units: &[&str]) -> String {
    format!("systemctl show {}", units.join(" "))
}

/// `properties` of `units`, in their order; unknown units come with `LoadState=not-found`.
///
/// `Absent` when systemd is not PID 1 here. Blocks the thread for at most `limit`; the child is gone afterwards.
pub(crate) fn show(
    cx: &SenseContext,
    units: &[&str],
    properties: &[&str],
    limit: Duration,
) -> Fact<Vec<Properties>> {
    let source = source(units);
    // What sd_booted(3) looks at.
    if !cx.path("/run/systemd/system").is_dir() {
        return Fact::absent("/run/systemd/system", cx.now());
    }
    let Some(mut command) = command(cx, "systemctl") else {
        return Fact::absent("/usr/bin/systemctl", cx.now());
    };
    command.args(["--no-pager", "show", "--property"]).arg(properties.join(",")).arg("--").args(units);
    match run(command, limit) {
        Ok(text) => {
            let blocks = parse(&text);
            if blocks.len() == units.len() {
                Fact::known(blocks, source, cx.now())
            } else {
                let detail = format!("{} units asked for, {} answered", units.len(), blocks.len());
                Fact::unknown(UnknownCause::InvalidAnswer, detail, source, cx.now())
            }
        }
        Err((cause, detail)) => Fact::unknown(cause, detail, source, cx.now()),
    }
}

/// `properties` of systemd-timesyncd, which has to run: asking for one that does not would start it.
pub(crate) fn show_timesync(
    cx: &SenseContext,
    properties: &str,
) -> Result<Properties, (UnknownCause, String)> {
    let missing = || (UnknownCause::Unsupported, "there is no timedatectl here".to_owned());
    let mut command = command(cx, "timedatectl").ok_or_else(missing)?;
    command.args(["--no-pager", "show-timesync", "--all", "--property", properties]);
    let text = run(command, Duration::from_secs(2))?;
    Ok(parse(&text).into_iter().next().unwrap_or_default())
}

/// A program of systemd's, to be run with nothing of our environment.
fn command(cx: &SenseContext, name: &str) -> Option<Command> {
    let program =
        ["/usr/bin", "/bin"].iter().map(|folder| cx.path(folder).join(name)).find(|p| p.is_file())?;
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
    Some(command)
}

/// `Name=value` lines, units set apart by blank lines.
fn parse(text: &str) -> Vec<Properties> {
    let mut blocks = vec![Properties::new()];
    for line in text.lines() {
        match (line.split_once('='), blocks.last_mut()) {
            (Some((name, value)), Some(block)) => {
                // A list of structures (`EnvironmentFiles`) comes as a line each.
                let entry = block.entry(name.to_owned());
                entry.and_modify(|all| all.extend(["\n", value])).or_insert_with(|| value.to_owned());
            }
            _ if line.is_empty() => blocks.push(Properties::new()),
            _ => {}
        }
    }
    blocks.retain(|b| !b.is_empty());
    blocks
}

/// Standard output of `command`, which must end with success within `limit`.
fn run(mut command: Command, limit: Duration) -> Result<String, (UnknownCause, String)> {
    let io = |e: std::io::Error| (UnknownCause::IoError, e.to_string());
    let deadline = Instant::now() + limit;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io)?;
    // The answer is far smaller than a pipe's buffer, so it need not be drained while waiting; a child that writes
    // more stops in its write and meets the deadline.
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err((UnknownCause::TimedOut, format!("no answer within {limit:?}")));
            }
            Err(e) => return Err(io(e)),
        }
    };
    if status.success() {
        let answer = child.stdout.take().map_or_else(|| Ok(String::new()), drain);
        return answer.map_err(|e| (UnknownCause::InvalidAnswer, e.to_string()));
    }
    let said = child.stderr.take().map(drain).and_then(Result::ok).unwrap_or_default();
    Err((UnknownCause::Unavailable, format!("{status}: {}", file::excerpt(&said))))
}

/// What lies in the pipe of a child that has ended. A grandchild may hold the pipe open, so this never waits for its end.
fn drain(pipe: impl Read + std::os::fd::AsFd) -> std::io::Result<String> {
    rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK)?;
    let mut bytes = Vec::new();
    match pipe.take(file::SMALL).read_to_end(&mut bytes) {
        Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => Err(e),
        _ => file::text(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepared::Machine;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn ask(machine: &Machine, limit: Duration) -> Fact<Vec<Properties>> {
        show(&machine.cx(), &["a.service", "b.service"], &["Id", "LoadState"], limit)
    }

    #[test]
    fn blocks_are_told_apart() {
        let machine = Machine::with_systemctl(
            "printf 'Id=a.service\\nLoadState=loaded\\n\\nId=b.service\\nLoadState=not-found\\n'",
        );
        let answer = ask(&machine, LIMIT);
        let blocks = answer.value().unwrap_or_else(|| panic!("{answer:?}"));
        assert_eq!(blocks[1]["LoadState"], "not-found");
    }

    #[test]
    fn without_systemd_it_is_absent() {
        assert!(matches!(ask(&Machine::new(), LIMIT), Fact::Absent { .. }));
    }

    #[test]
    fn systemd_is_asked_again_when_a_unit_has_started_ended_or_changed() {
        let machine = Machine::new();
        let answers = |state: &str| {
            machine.systemctl(&format!(
                "echo >>{}; printf 'Id=a.service\\nActiveState={state}\\n\\nId=b.service\\nActiveState=inactive\\n'",
                machine.path("/asked").display()
            ));
        };
        let asked = || std::fs::read(machine.path("/asked")).unwrap_or_default().len();
        let mut memory = Memory::default();
        let mut ask = || {
            let words = ["Id", "ActiveState"];
            let answer = show_changes(&machine.cx(), &["a.service", "b.service"], &words, LIMIT, &mut memory);
            (answer.value().unwrap_or_else(|| panic!("{answer:?}"))[0]["ActiveState"].clone(), asked())
        };
        // The kernel stamps with the time of its last tick.
        let tick = || std::thread::sleep(Duration::from_millis(30));
        answers("active");
        assert_eq!((ask().1, ask().1), (1, 2), "a systemd that leaves no marks");
        machine.link("/run/systemd/units/invocation:a.service", "0123");
        assert_eq!((ask().1, ask().1, ask()), (3, 3, ("active".into(), 3)));
        tick();
        std::fs::remove_file(machine.path("/run/systemd/units/invocation:a.service")).unwrap();
        answers("deactivating");
        assert_eq!((ask().1, ask()), (4, ("deactivating".into(), 5)), "it is on its way");
        answers("failed");
        assert_eq!((ask().1, ask().1), (6, 7), "a reset leaves no mark");
        answers("inactive");
        assert_eq!((ask().1, ask()), (8, ("inactive".into(), 8)));
        tick();
        machine.write("/etc/systemd/system/a.service", "");
        assert_eq!((ask().1, ask().1), (9, 9));
        tick();
        machine.write("/etc/systemd/system/multi-user.target.wants/a.service", "");
        assert_eq!((ask().1, ask().1), (10, 10));
        tick();
        std::fs::create_dir_all(machine.path("/run/systemd/generator")).unwrap();
        assert_eq!((ask().1, ask().1), (11, 11), "unit files were read again");
    }

    #[test]
    fn failure_garbage_and_silence_are_unknown_each_with_its_cause() {
        for (script, limit, expected) in [
            (
                "echo 'Failed to connect to bus: No such file or directory' >&2; exit 1",
                LIMIT,
                UnknownCause::Unavailable,
            ),
            ("echo nonsense", LIMIT, UnknownCause::InvalidAnswer),
            ("printf 'Id=\\377\\n\\nId=b\\n'", LIMIT, UnknownCause::InvalidAnswer),
            ("exec sleep 600", Duration::from_millis(50), UnknownCause::TimedOut),
            ("exec cat /dev/zero", Duration::from_millis(50), UnknownCause::TimedOut),
        ] {
            match ask(&Machine::with_systemctl(script), limit) {
                Fact::Unknown { cause, .. } => assert_eq!(cause, expected, "{script}"),
                other => panic!("{script}: {other:?}"),
            }
        }
    }
}
