//! Which calls the agent is told to refuse: one setting with three names, in three places (`facts/guest-agent.md`, section 5).
//!
//! Releases of the RHEL family write `BLACKLIST_RPC` (9.1 and below), `--block-rpcs` (9.2, 9.3) or `--allow-rpcs` (9.4, 10)
//! into `/etc/sysconfig/qemu-ga`, from where the unit puts it on the command line; the agent itself reads `blacklist`,
//! `block-rpcs` and `allow-rpcs` of `qemu-ga.conf` (qemu, `qga/main.c`), and adds to these what its command line says. So of a
//! process that runs, the command line counts, and of one that does not, the file the command line would be made of.

use outrider_protocol::{Fact, ProcessFacts, RpcList};

use super::super::{SenseContext, environment_file, file};

const SYSCONFIG: &str = "/etc/sysconfig/qemu-ga";
const CONFIG: &str = "/etc/qemu/qemu-ga.conf";
/// Options with a value in the next word, beside those looked for.
const WITH_VALUE: [&str; 14] = [
    "-m",
    "-p",
    "-l",
    "-f",
    "-t",
    "-s",
    "-c",
    "--method",
    "--path",
    "--logfile",
    "--pidfile",
    "--statedir",
    "--config",
    "--service",
];

/// Every list; empty when all calls are answered.
pub(super) fn read(cx: &SenseContext, process: Option<&ProcessFacts>) -> Fact<Vec<RpcList>> {
    let mut sources = vec![(CONFIG.to_owned(), of_config as fn(&str) -> Vec<Setting>)];
    match process {
        Some(process) => sources.push((format!("/proc/{}/cmdline", process.pid), of_command_line)),
        None => sources.push((SYSCONFIG.to_owned(), of_sysconfig)),
    }
    let mut lists = Vec::new();
    for (source, parse) in &sources {
        match file::read_text(&cx.path(source), file::SMALL) {
            Ok(text) => lists.extend(parse(&text).into_iter().filter(|s| !s.calls.is_empty()).map(|s| {
                RpcList { source: source.clone(), setting: s.setting, allows: s.allows, calls: s.calls }
            })),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Fact::from_io(&e, source.clone(), cx.now()),
        }
    }
    let sources: Vec<String> = sources.into_iter().map(|(source, _)| source).collect();
    Fact::known(lists, sources.join(", "), cx.now())
}

/// One setting as it is written.
#[derive(Debug, PartialEq)]
struct Setting {
    setting: String,
    allows: bool,
    calls: Vec<String>,
}

impl Setting {
    fn new(setting: &str, allows: bool, calls: &str) -> Self {
        let calls =
            calls.split(',').map(str::trim).filter(|call| !call.is_empty()).map(str::to_owned).collect();
        Self { setting: setting.to_owned(), allows, calls }
    }
}

/// Whether a name of the setting allows or blocks; none for another setting.
fn allows(name: &str) -> Option<bool> {
    match name {
        "allow-rpcs" | "a" => Some(true),
        "block-rpcs" | "blacklist" | "b" => Some(false),
        _ => None,
    }
}

/// Of `/proc/PID/cmdline`.
fn of_command_line(text: &str) -> Vec<Setting> {
    of_words(text.split('\0'))
}

/// Of the words of a command line, as getopt_long(3) takes them.
fn of_words<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Setting> {
    let mut found = Vec::new();
    let mut words = words.skip_while(|word| !word.starts_with('-'));
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
            continue;
        }
        let (name, value) = match word.strip_prefix("--") {
            // The rest are no options.
            Some("") => break,
            Some(long) => match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            },
            None => match word.strip_prefix('-').and_then(|short| short.split_at_checked(1)) {
                Some((name, "")) => (name, None),
                Some((name, value)) => (name, Some(value)),
                None => continue,
            },
        };
        if let Some(allows) = allows(name)
            && let Some(value) = value.or_else(|| words.next())
        {
            let dashes = if name.len() == 1 { "-" } else { "--" };
            found.push(Setting::new(&format!("{dashes}{name}"), allows, value));
        }
    }
    found
}

/// Of `qemu-ga.conf`, a key file of GLib: the group `[general]`.
fn of_config(text: &str) -> Vec<Setting> {
    let mut general = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            general = line == "[general]";
        } else if general
            && !line.starts_with('#')
            && let Some((name, value)) = line.split_once('=')
            && let Some(allows) = allows(name.trim()).filter(|_| name.trim().len() > 1)
        {
            // The later of one name stands.
            found.retain(|s: &Setting| s.setting != name.trim());
            found.push(Setting::new(name.trim(), allows, value));
        }
    }
    found
}

/// Of `/etc/sysconfig/qemu-ga`. Variables are told by what they hold or what they are called: their names have changed.
fn of_sysconfig(text: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    for (name, value) in environment_file::assignments(text) {
        let upper = name.to_ascii_uppercase();
        if value.trim_start().starts_with('-') {
            let options = of_words(value.split_whitespace());
            found.extend(
                options.into_iter().map(|o| Setting { setting: format!("{name} {}", o.setting), ..o }),
            );
        } else if upper.contains("RPC") {
            let allows = upper.contains("ALLOW");
            if allows || upper.contains("BLOCK") || upper.contains("BLACKLIST") {
                found.push(Setting::new(&name, allows, &value));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::prepared::Machine;
    use super::*;

    fn all(machine: &Machine, pid: Option<i32>) -> Vec<(String, bool, usize)> {
        let process = pid.map(|pid| ProcessFacts { pid, name: "qemu-ga".into(), seconds: 1 });
        let fact = read(&machine.cx(), process.as_ref());
        let lists = fact.value().unwrap_or_else(|| panic!("{fact:?}"));
        lists.iter().map(|l| (l.setting.clone(), l.allows, l.calls.len())).collect()
    }

    #[test]
    fn the_three_spellings_of_a_file_that_the_command_line_is_made_of() {
        for (text, expected) in [
            (
                "# qemu-ga\nBLACKLIST_RPC=guest-file-open,guest-exec\nFSFREEZE_HOOK_PATHNAME=/etc/x\n",
                ("BLACKLIST_RPC", false, 2),
            ),
            (
                "FILTER_RPC_ARGS=\"--block-rpcs=guest-exec, guest-exec-status\"",
                ("FILTER_RPC_ARGS --block-rpcs", false, 1),
            ),
            (
                "FILTER_RPC_ARGS=\"--allow-rpcs=guest-sync,guest-ping,guest-info\"",
                ("FILTER_RPC_ARGS --allow-rpcs", true, 3),
            ),
            ("BLOCK_RPCS=guest-exec", ("BLOCK_RPCS", false, 1)),
        ] {
            let machine = Machine::new();
            machine.write(SYSCONFIG, text);
            assert_eq!(all(&machine, None), [(expected.0.to_owned(), expected.1, expected.2)], "{text}");
            // Of a process that runs, its command line counts.
            machine.write("/proc/7/cmdline", "/usr/bin/qemu-ga\0--method=virtio-serial\0");
            assert_eq!(all(&machine, Some(7)), []);
        }
        let machine = Machine::new();
        machine.write(SYSCONFIG, "BLACKLIST_RPC=\n#BLACKLIST_RPC=guest-exec\n");
        assert_eq!(all(&machine, None), [], "empty blocks nothing");
        assert_eq!(all(&Machine::new(), None), []);
    }

    #[test]
    fn the_agents_own_file_and_its_command_line_add_up() {
        let machine = Machine::new();
        machine.write(
            CONFIG,
            "[general]\nblock-rpcs = guest-exec\n#allow-rpcs=x\n[other]\nblacklist=guest-ping\n",
        );
        machine.write(
            "/proc/7/cmdline",
            "qemu-ga\0-m\0virtio-serial\0-p\0-b\0-bguest-set-time\0--allow-rpcs\0a,b\0--\0-b\0z\0",
        );
        let expected = [("block-rpcs", false, 1), ("-b", false, 1), ("--allow-rpcs", true, 2)];
        assert_eq!(all(&machine, Some(7)), expected.map(|(s, a, n)| (s.to_owned(), a, n)));
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_not_unfiltered() {
        let machine = Machine::new();
        std::fs::create_dir_all(machine.path(CONFIG)).unwrap();
        assert!(matches!(read(&machine.cx(), None), Fact::Unknown { .. }));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,200}") {
            of_command_line(&text);
            of_config(&text);
            of_sysconfig(&text);
        }

        #[test]
        fn however_it_is_spelled_the_calls_are_found(calls in prop::collection::vec("guest-[a-z]{1,9}", 1..5), long in any::<bool>(), apart in any::<bool>()) {
            let list = calls.join(",");
            let words = match (long, apart) {
                (true, true) => format!("qemu-ga\0--block-rpcs\0{list}\0"),
                (true, false) => format!("qemu-ga\0--block-rpcs={list}\0"),
                (false, true) => format!("qemu-ga\0-b\0{list}\0"),
                (false, false) => format!("qemu-ga\0-b{list}\0"),
            };
            let found = of_command_line(&words);
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(&found[0].calls, &calls);
        }
    }
}
