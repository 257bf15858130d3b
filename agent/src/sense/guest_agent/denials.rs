//! What SELinux denied the guest agent, from the end of the audit log (`facts/guest-agent.md`, section 6).
//!
//! The log is root's alone: the root helper passes the lines about the agent's domain and nothing else of it. A machine whose
//! audit messages go to the journal instead keeps them where a daemon without privileges does not see them: unknown, which
//! is not "nothing was denied".

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::{Duration, Instant};

use outrider_protocol::{Denial, Fact, Timestamp, UnknownCause};

use super::super::SenseContext;

/// Where auditd writes.
const LOG: &str = "/var/log/audit/audit.log";
/// There where SELinux is in use.
const ENFORCE: &str = "/sys/fs/selinux/enforce";
/// The domain of the guest agent in the reference policy.
const DOMAIN: &str = ":virt_qemu_ga_t:";
/// Bytes of the log's end that are looked at.
const TAIL: u64 = 1024 * 1024;
/// Different denials that are kept, the latest.
const KEPT: usize = 4;
/// Longest denial.
const LONGEST: usize = 500;
/// Time between reads: denials are no news of the minute, and the log may be large.
const EVERY: Duration = Duration::from_secs(300);

/// The last reading.
#[derive(Debug, Default)]
pub(super) struct Memory(Option<(Instant, Fact<Vec<Denial>>)>);

/// The latest denials, each kind once.
pub(super) fn read(cx: &SenseContext, memory: &mut Memory) -> Fact<Vec<Denial>> {
    if !cx.path(ENFORCE).exists() {
        return Fact::not_applicable("SELinux is not in use", cx.now());
    }
    if let Some((at, fact)) = &memory.0
        && at.elapsed() < EVERY
    {
        return fact.clone();
    }
    let fact = match cx.opener.open(LOG.as_ref()).and_then(excerpt) {
        Ok(text) => Fact::known(latest(&text), LOG, cx.now()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Fact::unknown(
            UnknownCause::Unavailable,
            "there is no audit log; the journal may have denials, which only root may read (journalctl _TRANSPORT=audit)",
            LOG,
            cx.now(),
        ),
        Err(e) => Fact::from_io(&e, LOG, cx.now()),
    };
    memory.0 = Some((Instant::now(), fact.clone()));
    fact
}

/// The lines of the log's end that tell a denial of the agent.
pub(crate) fn excerpt(mut log: File) -> io::Result<String> {
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    log.take(TAIL).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter(|line| is_denial(line));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

/// What a permissive domain was denied, it was not denied.
fn is_denial(line: &str) -> bool {
    line.contains("avc:")
        && line.contains("denied")
        && source(line).contains(DOMAIN)
        && !line.contains("permissive=1")
}

fn source(line: &str) -> &str {
    line.split_once("scontext=").map_or("", |(_, rest)| rest.split_whitespace().next().unwrap_or(""))
}

fn latest(text: &str) -> Vec<Denial> {
    let mut found: Vec<Denial> = Vec::new();
    for denial in text.lines().filter_map(denial).collect::<Vec<_>>().into_iter().rev() {
        // The same again, by another process or at another file handle.
        if found.len() < KEPT && !found.iter().any(|f| kind(&f.text) == kind(&denial.text)) {
            found.push(denial);
        }
    }
    found
}

/// What it is about: everything but numbers of processes and inodes.
fn kind(text: &str) -> Vec<&str> {
    text.split(' ').filter(|word| !word.starts_with("pid=") && !word.starts_with("ino=")).collect()
}

/// `type=AVC msg=audit(1700000000.123:456): avc:  denied  { read } for …`
fn denial(line: &str) -> Option<Denial> {
    if !is_denial(line) {
        return None;
    }
    let (_, stamp) = line.split_once("audit(")?;
    let seconds: i64 = stamp.split(['.', ':']).next()?.parse().ok()?;
    let text = &line[line.find("avc:")?..];
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    Some(Denial { at: Timestamp::from_seconds(seconds), text })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::prepared::Machine;
    use super::*;

    fn line(second: i64, pid: u32, call: &str, domain: &str, permissive: u8) -> String {
        format!(
            "type=AVC msg=audit({second}.123:45): avc:  denied  {{ {call} }} for  pid={pid} comm=\"qemu-ga\" \
             path=\"/proc/1/net\" scontext=system_u:system_r:{domain}:s0 tcontext=system_u:object_r:proc_net_t:s0 \
             tclass=file permissive={permissive}\n"
        )
    }

    fn told(log: &str) -> Vec<Denial> {
        let machine = Machine::new();
        machine.write(ENFORCE, "1");
        machine.write(LOG, log);
        let fact = read(&machine.cx(), &mut Memory::default());
        fact.value().cloned().unwrap_or_else(|| panic!("{fact:?}"))
    }

    #[test]
    fn denials_of_the_agent_are_quoted_each_kind_once_the_latest_first() {
        let log = [
            line(100, 7, "read", "virt_qemu_ga_t", 0),
            line(200, 8, "read", "virt_qemu_ga_t", 0),
            line(300, 8, "write", "virt_qemu_ga_t", 0),
            line(400, 8, "open", "virt_qemu_ga_t", 1),
            line(500, 8, "open", "sshd_t", 0),
            "type=SYSCALL msg=audit(1.1:1): arch=c000003e\n\u{0}junk".to_owned(),
        ];
        let told = told(&log.concat());
        assert_eq!(told.iter().map(|d| d.at.as_millis() / 1000).collect::<Vec<_>>(), [300, 200]);
        assert!(told[1].text.starts_with("avc: denied { read } for pid=8 comm=\"qemu-ga\""), "{told:?}");
    }

    #[test]
    fn a_machine_without_selinux_has_none_and_one_without_a_log_cannot_tell() {
        let machine = Machine::new();
        assert!(matches!(read(&machine.cx(), &mut Memory::default()), Fact::NotApplicable { .. }));
        machine.write(ENFORCE, "1");
        assert!(matches!(read(&machine.cx(), &mut Memory::default()), Fact::Unknown { .. }));
        machine.write(LOG, "");
        assert!(
            matches!(read(&machine.cx(), &mut Memory::default()), Fact::Known { value, .. } if value.is_empty())
        );
    }

    #[test]
    fn of_a_huge_log_the_end_is_read() {
        let mut log = line(1, 7, "read", "virt_qemu_ga_t", 0);
        log.push_str(&"type=CWD msg=audit(2.0:1): cwd=\"/\"\n".repeat(60_000));
        assert!(log.len() as u64 > TAIL);
        assert_eq!(told(&log), []);
        log.push_str(&line(3, 7, "read", "virt_qemu_ga_t", 0));
        assert_eq!(told(&log).len(), 1);
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_panic(text in ".{0,80}(avc: +denied)?.{0,80}(scontext=a:b:virt_qemu_ga_t:s0)?") {
            denial(&text);
            denial(&format!("audit({text}"));
        }
    }
}
