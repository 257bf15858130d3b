//! The machine itself: rights, systemd, programs, units, name, who else works here, configuration.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use outrider_agent::config::{self, ConfigSource, Settings};
use outrider_protocol::Severity;

use super::{Finding, Preflight, tell};
use crate::install::files::There;
use crate::install::look::programs_of;
use crate::install::receipt::Class;
use crate::install::step::{Bytes, Step};
use crate::install::{AGENT, DROP_IN, TOKEN, programs as tools};

/// 2026-01-01: no release is older, so no clock before it is right.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);

/// Root is needed for a machine; an image's tree may be the caller's own.
pub(super) fn rights(looked: &Preflight<'_>, findings: &mut Vec<Finding>) {
    let machine = looked.machine;
    if machine.is_root {
        tell(findings, "rights", Severity::Ok, "root", "");
    } else if machine.is_ours() {
        let message = "not root: users, units and files of the system can be neither made nor, in part, read";
        tell(findings, "rights", Severity::Error, message, "Run it with sudo, or as root.");
    } else {
        let message =
            "not root: the files in the tree become yours, and the users of the units cannot be made";
        tell(findings, "rights", Severity::Warn, message, "");
    }
    if SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|now| now < EARLIEST) {
        let message = "this machine's clock stands before 2026: certificates will be judged wrongly";
        tell(
            findings,
            "clock",
            Severity::Warn,
            message,
            "Set up chrony, or systemd-timesyncd. The clock is never set from here.",
        );
    }
}

/// systemd runs the agent; whether it is there, and on what machine.
pub(super) fn system(looked: &Preflight<'_>, findings: &mut Vec<Finding>) {
    let machine = looked.machine;
    let lies =
        ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"].iter().any(|path| machine.at(path).is_file());
    if machine.live {
        tell(findings, "systemd", Severity::Ok, "it runs", "");
    } else if lies {
        tell(
            findings,
            "systemd",
            Severity::Info,
            "it does not run here (an image build?): the agent starts at the next boot",
            "",
        );
    } else {
        let message = format!("there is none below {}", machine.root().display());
        tell(
            findings,
            "systemd",
            Severity::Error,
            message,
            "The units need it. Elsewhere run `outrider-agent run` under a supervisor of yours.",
        );
    }
    if machine.live && !looked.seen.users_missing.is_empty() {
        let maker = ["systemd-sysusers", "useradd"].into_iter().find(|tool| tools::find(tool).is_some());
        if maker.is_none() {
            let message = format!(
                "neither systemd-sysusers nor useradd is there to make {}",
                looked.seen.users_missing.join(", ")
            );
            tell(
                findings,
                "users",
                Severity::Error,
                message,
                "Install either, or make these system users yourself.",
            );
        }
    }
}

/// Where the programs come from.
pub(super) fn programs(looked: &Preflight<'_>, findings: &mut Vec<Finding>) {
    let (seen, machine) = (looked.seen, looked.machine);
    match (&seen.package, looked.release) {
        (Some(package), Some(release)) if looked.named => {
            let message = format!(
                "the package {} laid out the programs; {} would be lost at its next upgrade",
                package.name,
                release.source().display()
            );
            let advice = format!(
                "{} brings another version. Without --from this sets up configuration, token and service.",
                package.upgrade
            );
            tell(findings, "programs", Severity::Error, message, advice);
        }
        (Some(package), _) => {
            tell(findings, "programs", Severity::Ok, format!("of the package {}", package.name), "")
        }
        (None, Some(release)) => {
            tell(
                findings,
                "programs",
                Severity::Ok,
                format!("{} files of {}", release.files.len(), release.source().display()),
                "",
            );
            elf(looked, release.elf_machine, findings);
        }
        (None, None) if seen.has_programs => {
            tell(findings, "programs", Severity::Ok, "they are there already", "")
        }
        (None, None) => {
            let message = format!(
                "{} is not there, and no release was given or lies beside this program",
                machine.at(AGENT).display()
            );
            tell(
                findings,
                "programs",
                Severity::Error,
                message,
                "Give the unpacked release or its archive: --from DIR, --from FILE.tar.gz. Or install the package.",
            );
        }
    }
    for (path, there) in &seen.files {
        let what = match there {
            There::Other => "it is no regular file".to_owned(),
            There::Unreadable(why) if machine.is_root => format!("it cannot be read: {why}"),
            _ => continue,
        };
        tell(
            findings,
            "files",
            Severity::Error,
            format!("{path}: {what}"),
            "Move it away: a link or folder is not replaced.",
        );
    }
    for planned in &looked.plan.steps {
        if let Step::Folder(path) = &planned.step
            && machine.has(path)
            && !machine.is_dir(path)
        {
            let message = format!("{path}: it is no folder, and files are to go there");
            tell(
                findings,
                "files",
                Severity::Error,
                message,
                "Move it away, or make the folder that it leads to.",
            );
        }
    }
    if let Some(receipt) = &seen.receipt {
        let gone = programs_of(receipt).filter(|path| looked.release.is_none() && !machine.has(path)).count();
        if gone > 0 && seen.package.is_none() {
            let message = format!("{gone} files of the installation are gone");
            tell(
                findings,
                "programs",
                Severity::Error,
                message,
                "Give the release again, with --from: then they are put back.",
            );
        }
    }
}

/// A release for another processor would not start.
fn elf(looked: &Preflight<'_>, is: u16, findings: &mut Vec<Finding>) {
    let names = [(62_u16, "x86_64"), (183, "aarch64"), (243, "riscv64"), (22, "s390x"), (21, "powerpc64")];
    let here = names.iter().find(|(_, name)| *name == std::env::consts::ARCH);
    let (Some((wanted, here)), true) = (here, looked.machine.is_ours() && is != 0) else { return };
    if is != *wanted {
        let name =
            names.iter().find(|(number, _)| *number == is).map_or("another processor", |(_, name)| *name);
        let message = format!("the release is for {name}, and this machine is {here}");
        tell(findings, "programs", Severity::Error, message, "Take the release of its architecture.");
    }
}

/// Units that somebody masked stay so.
pub(super) fn units(looked: &Preflight<'_>, findings: &mut Vec<Finding>) {
    for unit in &looked.seen.masked {
        let message = format!("{unit} is masked: somebody does not want it to run here");
        tell(findings, "units", Severity::Error, message, format!("If it may run: systemctl unmask {unit}"));
    }
}

/// The name that the node will have.
pub(super) fn name(looked: &Preflight<'_>, findings: &mut Vec<Finding>) {
    let (name, from) = match (&looked.wishes.name, effective(looked).and_then(|settings| settings.node.name))
    {
        (Some(name), _) => (name.clone(), "as asked"),
        (None, Some(name)) => (name, "as configured"),
        (None, None) => (looked.machine.host_name(), "as the machine calls itself"),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let advice = "Give it one: --name NAME (letters, digits, '-', '.', '_'), or set the host name.";
    if name.is_empty() && !looked.machine.live {
        tell(findings, "name", Severity::Info, "the image has none; each machine takes its own", "");
    } else if name.split('.').next() == Some("localhost") {
        let severity = if looked.machine.live { Severity::Error } else { Severity::Warn };
        tell(findings, "name", severity, format!("{name:?} is every machine's name"), advice);
    } else if name.is_empty() || name.len() > 253 || !name.chars().all(fits) {
        tell(findings, "name", Severity::Error, format!("{name:?} is no name of a node"), advice);
    } else {
        tell(findings, "name", Severity::Ok, format!("{name}, {from}"), "");
    }
}

/// Who else has an agent here. They are only told: none of them is in the way.
pub(super) fn others(looked: &Preflight<'_>, findings: &mut Vec<Finding>) {
    let units = [
        ("rancher-system-agent", "Rancher's node agent"),
        ("rke2-server", "an RKE2 server: profile rancher-ha-server"),
        ("rke2-agent", "an RKE2 agent: profile rancher-ha-agent"),
        ("k3s", "a K3s server: profile k3s-server"),
        ("k3s-agent", "a K3s agent: profile k3s-agent"),
        ("elemental-system-agent", "Elemental's node agent"),
        ("qemu-guest-agent", "the QEMU guest agent"),
    ];
    let folders = [
        "/etc/systemd/system",
        "/usr/local/lib/systemd/system",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
    ];
    for (unit, what) in units {
        if folders.iter().any(|folder| looked.machine.at(&format!("{folder}/{unit}.service")).is_file()) {
            tell(
                findings,
                "others",
                Severity::Info,
                format!("{unit}: {what}; it is watched and left alone"),
                "",
            );
        }
    }
}

/// What the agent will read: ours among what is there.
pub(super) fn configuration(looked: &Preflight<'_>, findings: &mut Vec<Finding>) {
    if let (There::File(lying), Some(receipt)) = (looked.seen.at(DROP_IN), &looked.seen.receipt)
        && let Some((ours, _)) = receipt.file(DROP_IN)
        && !ours.contains(&lying.sha256)
        && looked.plan.files().any(|file| file.path == DROP_IN)
    {
        let message = format!("{DROP_IN} was changed by hand; what was changed would be lost");
        let advice =
            "Move your settings into a file of their own there, such as 90-site.toml, and remove this one.";
        tell(findings, "configuration", Severity::Error, message, advice);
    }
    let Some(loaded) = load(looked) else { return };
    for problem in loaded.problems.iter().take(5) {
        let ours = problem.file.ends_with("60-install.toml");
        let severity = if ours { Severity::Error } else { Severity::Warn };
        let message =
            if ours { format!("{}: {}", problem.path, problem.message) } else { problem.to_string() };
        tell(findings, "configuration", severity, message, "");
    }
    let settings = loaded.settings;
    let wishes = looked.wishes;
    // What is refused above has no word of its own here.
    if loaded.problems.iter().any(|problem| problem.file.ends_with("60-install.toml")) {
        return;
    }
    let differs = |asked: &Option<String>, is: Option<String>| asked.is_some() && *asked != is;
    let mut overruled = Vec::new();
    if differs(&wishes.name, settings.node.name.clone()) {
        overruled.push("node.name");
    }
    if differs(&wishes.cluster, Some(settings.node.cluster.clone())) {
        overruled.push("node.cluster");
    }
    let urls: Vec<String> = settings.coordinator.urls.iter().map(ToString::to_string).collect();
    if !wishes.coordinators.is_empty() && wishes.coordinators != urls {
        overruled.push("coordinator.urls");
    }
    if wishes.token && settings.coordinator.token_file.as_deref() != Some(Path::new(TOKEN)) {
        overruled.push("coordinator.token_file");
    }
    if !overruled.is_empty() {
        let message = format!("a later drop-in has another word about {}", overruled.join(", "));
        tell(
            findings,
            "configuration",
            Severity::Warn,
            message,
            "See `outrider-agent validate`, and the files in /etc/outrider/agent.toml.d.",
        );
    }
    if let (Some(token), Some(checksum)) = (&looked.given.token, &settings.coordinator.ca_checksum)
        && *checksum != token.pin
    {
        let message = format!("coordinator.ca_checksum is {checksum} and the token pins {}", token.pin);
        tell(
            findings,
            "configuration",
            Severity::Error,
            message,
            "One of them is of another coordinator; find out which before you trust either.",
        );
    }
    match (settings.coordinator.urls.is_empty(), settings.coordinator.token_file.is_some()) {
        (true, _) => tell(
            findings,
            "coordinator",
            Severity::Warn,
            "none is named: the agent will report to nobody",
            "Name it: --coordinator URL --token-file FILE.",
        ),
        (false, false) if !looked.machine.has("/var/lib/outrider/identity.json") => {
            tell(
                findings,
                "coordinator",
                Severity::Warn,
                "no token: the agent will not be let in",
                "Give it one: --token-file FILE, with what `outrider token create` printed.",
            );
        }
        _ => {}
    }
}

/// The settings that will be in force; `None` where they cannot be put together.
pub(super) fn effective(looked: &Preflight<'_>) -> Option<Settings> {
    load(looked).map(|loaded| loaded.settings)
}

/// Reads the machine's configuration with our drop-in among it: a further folder shadows the file of the same name.
fn load(looked: &Preflight<'_>) -> Option<config::Loaded> {
    let ConfigSource::Folders(mut folders) = ConfigSource::below(looked.machine.root()) else { return None };
    let ours = tempfile::tempdir().ok()?;
    let drop_in =
        looked.wanted.iter().find(|file| file.class == Class::Configuration && file.path == DROP_IN);
    if let Some(Bytes::Text(text)) = drop_in.map(|file| &file.bytes) {
        let folder = ours.path().join("agent.toml.d");
        std::fs::create_dir(&folder).ok()?;
        let mut file = std::fs::File::create(folder.join("60-install.toml")).ok()?;
        file.write_all(text.as_bytes()).ok()?;
        folders.push(ours.path().to_owned());
    }
    Some(config::load(&ConfigSource::Folders(folders)))
}
