//! Check `host`: which machine this is, and how it fares.
//!
//! Identity (`identity`) is what the coordinator tells clones from rebuilt machines by; `virtualization` decides what
//! else may be expected of the machine; `resources` and `interfaces` are what runs out or moves. Every value is a fact
//! of its own: one unreadable file leaves the others known.

mod identity;
mod interfaces;
mod resources;
mod virtualization;

use outrider_protocol::{Fact, HostFacts, OsRelease};

use super::{SenseContext, file, process};

pub(crate) use identity::system_uuid;
pub(crate) use resources::{cpus, memory};
pub(crate) use virtualization::{has_smbios, virtualization};

/// Reads everything about the machine. Blocking.
pub fn read(cx: &SenseContext) -> Fact<HostFacts> {
    let facts = HostFacts {
        hostname: hostname(cx),
        machine_id_hash: identity::machine_id_hash(cx),
        system_uuid: identity::system_uuid(cx),
        boot_id: identity::boot_id(cx),
        instance_id: identity::instance_id(cx),
        os: os_release(cx),
        kernel: word(cx, "/proc/sys/kernel/osrelease"),
        architecture: architecture(cx),
        virtualization: virtualization(cx),
        cpus: resources::cpus(cx),
        uptime_seconds: uptime_seconds(cx),
        memory: resources::memory(cx),
        load: resources::load(cx),
        pressure: resources::pressure(cx),
        filesystems: resources::filesystems(cx),
        interfaces: interfaces::read(cx),
    };
    Fact::known(facts, "/proc, /sys, /etc", cx.now())
}

/// The host name as the kernel has it now; `localhost` and an empty name are no name.
pub fn hostname(cx: &SenseContext) -> Fact<String> {
    match word(cx, "/proc/sys/kernel/hostname") {
        Fact::Known { value, source, at } if value == "localhost" || value == "(none)" => {
            Fact::absent(source, at)
        }
        name => name,
    }
}

/// Seconds since boot.
pub(crate) fn uptime_seconds(cx: &SenseContext) -> Fact<u64> {
    file::fact(cx, "/proc/uptime", file::SMALL, |text| process::uptime(text).map(|s| s as u64))
}

/// A file that holds one line with one value.
fn word(cx: &SenseContext, path: &str) -> Fact<String> {
    file::fact(cx, path, file::SMALL, |text| match text.trim() {
        "" => Err("the file is empty".to_owned()),
        value if value.contains(|c: char| c.is_control()) => {
            Err(format!("{} is not one line of text", file::excerpt(value)))
        }
        value => Ok(value.to_owned()),
    })
}

/// `uname -m`.
pub(crate) fn architecture(cx: &SenseContext) -> Fact<String> {
    match nix::sys::utsname::uname() {
        Ok(names) => Fact::known(names.machine().to_string_lossy().into_owned(), "uname(2)", cx.now()),
        Err(e) => Fact::from_io(&e.into(), "uname(2)", cx.now()),
    }
}

/// `/etc/os-release`, else `/usr/lib/os-release`, as os-release(5) orders them.
pub(crate) fn os_release(cx: &SenseContext) -> Fact<OsRelease> {
    let read = |path| file::fact(cx, path, file::SMALL, parse_os_release);
    match read("/etc/os-release") {
        Fact::Absent { .. } => read("/usr/lib/os-release"),
        fact => fact,
    }
}

/// Shell-like assignments; an unknown line is skipped, a document without `ID` is refused.
fn parse_os_release(text: &str) -> Result<OsRelease, String> {
    let value = |key: &str| {
        let lines = text.lines().filter_map(|l| l.trim().split_once('='));
        // Assigned twice, the shell keeps the last.
        lines.filter(|(k, _)| *k == key).map(|(_, v)| unquote(v)).next_back().unwrap_or_default()
    };
    let os = OsRelease {
        id: value("ID"),
        id_like: value("ID_LIKE").split_ascii_whitespace().map(str::to_owned).collect(),
        version_id: value("VERSION_ID"),
        pretty_name: value("PRETTY_NAME"),
    };
    if os.id.is_empty() { Err(format!("no ID in {}", file::excerpt(text))) } else { Ok(os) }
}

/// A shell word without its quotes and escapes.
fn unquote(word: &str) -> String {
    let word = word.trim();
    let inner = match word.chars().next() {
        Some(q @ ('"' | '\'')) if word.len() > 1 && word.ends_with(q) => &word[1..word.len() - 1],
        _ => word,
    };
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use outrider_protocol::UnknownCause;

    use super::super::prepared::Machine;
    use super::*;

    #[test]
    fn an_empty_machine_yields_absent_values_and_no_panic() {
        let facts = read(&Machine::new().cx());
        let host = facts.value().unwrap();
        for absent in [&host.hostname, &host.machine_id_hash, &host.system_uuid, &host.boot_id, &host.kernel]
        {
            assert!(matches!(absent, Fact::Absent { .. }), "{absent:?}");
        }
        assert!(matches!(host.filesystems, Fact::Absent { .. }), "{:?}", host.filesystems);
    }

    #[test]
    fn this_machine_is_known() {
        let cx = SenseContext { root: "/".into(), ..Machine::new().cx() };
        let facts = read(&cx);
        let host = facts.value().unwrap();
        assert!(host.memory.value().is_some_and(|m| m.total_bytes > 0), "{:?}", host.memory);
        assert!(host.cpus.value().is_some_and(|n| *n > 0), "{:?}", host.cpus);
        assert!(host.kernel.value().is_some(), "{:?}", host.kernel);
        assert!(host.boot_id.value().is_some(), "{:?}", host.boot_id);
    }

    #[test]
    fn os_release_is_read_as_the_shell_would() {
        let os = parse_os_release(
            "# comment\nNAME=\"SLES\"\nID=\"sles\"\nID_LIKE='suse opensuse'\nVERSION_ID=\"15.6\"\n\
             PRETTY_NAME=\"SUSE \\\"Linux\\\" 15\"\n\nbroken line\n",
        );
        let os = os.unwrap();
        assert_eq!(os.id_like, ["suse", "opensuse"]);
        assert_eq!((os.id.as_str(), os.version_id.as_str()), ("sles", "15.6"));
        assert_eq!(os.pretty_name, "SUSE \"Linux\" 15");
        assert!(parse_os_release("NAME=x\n").is_err());
        assert!(parse_os_release("ID=\"").is_ok_and(|os| os.id == "\""));
    }

    #[test]
    fn os_release_falls_back_to_usr_lib() {
        let machine = Machine::new();
        machine.write("/usr/lib/os-release", "ID=debian\n");
        assert_eq!(os_release(&machine.cx()).value().map(|os| os.id.clone()), Some("debian".into()));
        machine.write_bytes("/etc/os-release", b"\xff\xfe\0binary");
        let Fact::Unknown { cause, .. } = os_release(&machine.cx()) else { panic!("junk is unknown") };
        assert_eq!(cause, UnknownCause::InvalidInput);
    }

    #[test]
    fn localhost_is_no_name() {
        let machine = Machine::new();
        machine.write("/proc/sys/kernel/hostname", "localhost\n");
        assert!(matches!(hostname(&machine.cx()), Fact::Absent { .. }));
        machine.write("/proc/sys/kernel/hostname", "rke2-server-1\n");
        assert_eq!(hostname(&machine.cx()).value().map(String::as_str), Some("rke2-server-1"));
    }
}
