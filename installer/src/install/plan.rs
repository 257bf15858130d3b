//! From what is wanted and what was seen to the steps: a pure function, so that what `--dry-run` prints is what is done.

use std::collections::BTreeSet;

use outrider_agent::report::Token;
use outrider_protocol::hex;
use sha2::{Digest, Sha256};

use super::files::There;
use super::look::{Seen, above};
use super::receipt::Class;
use super::step::{Bytes, Held, Owner, Planned, Step, Wanted};
use super::wishes::Wishes;
use super::{AGENT, AGENT_UNIT, DROP_IN, Release, TOKEN, UNITS, wants};

/// The folders of root's own configuration, as the release's tmpfiles has them.
pub(super) const FOLDERS: [&str; 3] =
    ["/etc/outrider", "/etc/outrider/agent.toml.d", "/etc/outrider/helper.d"];

/// Of the token: root writes it, the agent's group reads it.
pub(super) const TOKEN_MODE: u32 = 0o640;

/// The steps, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// What is to be done.
    pub(crate) steps: Vec<Planned<Step>>,
    /// What is left alone.
    pub(crate) held: Vec<Held>,
}

impl Plan {
    fn add(&mut self, step: Step, reason: impl Into<String>) {
        self.steps.push(Planned { step, reason: reason.into() });
    }

    fn hold(&mut self, target: impl Into<String>, reason: impl Into<String>) {
        self.held.push(Held { target: target.into(), reason: reason.into() });
    }

    /// The files to be written.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Wanted> {
        self.steps.iter().filter_map(|planned| match &planned.step {
            Step::File { file, .. } => Some(file),
            _ => None,
        })
    }
}

/// Every file as it is to be: the release's, our drop-in, the token.
pub(crate) fn wanted(release: Option<&Release>, wishes: &Wishes, token: Option<&Token>) -> Vec<Wanted> {
    let shipped = release.into_iter().flat_map(|release| &release.files).map(|file| Wanted {
        path: file.path.clone(),
        mode: file.mode,
        owner: Owner::Root,
        class: Class::Program,
        sha256: file.sha256.clone(),
        size: file.size,
        bytes: Bytes::Release,
    });
    let ours = |path: &str, mode: u32, owner: Owner, text: String| Wanted {
        path: path.to_owned(),
        mode,
        owner,
        class: Class::Configuration,
        sha256: hex(&Sha256::digest(&text)),
        size: text.len() as u64,
        bytes: Bytes::Text(text),
    };
    let token = token.map(|token| ours(TOKEN, TOKEN_MODE, Owner::Agent, format!("{}\n", token.expose())));
    let drop_in = wishes.drop_in().map(|text| ours(DROP_IN, 0o644, Owner::Root, text));
    shipped.chain(token).chain(drop_in).collect()
}

/// What has to be done so that the machine is as wanted. `live`: its systemd runs; `runs_here`: its programs can be run.
pub(crate) fn plan(wanted: &[Wanted], seen: &Seen, live: bool, runs_here: bool) -> Plan {
    let mut plan = Plan::default();
    let mut folders = Folders { there: seen.folders.clone() };
    let mut changed = Vec::new();
    if let Some(package) = &seen.package {
        let why =
            format!("the package {} laid it out; {} brings another version", package.name, package.upgrade);
        plan.hold("programs, units, manual", why);
    }
    for file in wanted.iter().filter(|file| file.class == Class::Program && seen.package.is_none()) {
        if let Some((step, reason)) = of_file(file, seen) {
            changed.push(file.path.clone());
            folders.make(&file.path, &mut plan);
            plan.add(step, reason);
        }
    }
    // A run that ended in between may have ended before any of what follows.
    let unfinished = seen.receipt.as_ref().is_some_and(|receipt| !receipt.complete);
    let new_programs = !changed.is_empty() || unfinished;
    users(seen, live, &mut plan);
    for folder in &seen.userdata.folders {
        plan.add(Step::Folder((*folder).to_owned()), "userdata made it for this node");
    }
    for folder in FOLDERS {
        if folders.there.insert(folder.to_owned()) {
            plan.add(Step::Folder(folder.to_owned()), "configuration lies there");
        }
    }
    let mut configured = adopt(wanted, seen, &mut plan);
    for file in wanted.iter().filter(|file| file.class == Class::Configuration) {
        if changed_by_hand(file, seen) {
            plan.hold(&file.path, "it was changed by hand since it was written, and stays as it is");
            continue;
        }
        if let Some((step, reason)) = of_file(file, seen) {
            configured.push(file.path.clone());
            folders.make(&file.path, &mut plan);
            plan.add(step, reason);
        }
    }
    let starting: Vec<String> =
        UNITS.iter().filter(|(unit, _)| !seen.runs(unit)).map(|(unit, _)| (*unit).to_owned()).collect();
    if live && (new_programs || !starting.is_empty() || configured.iter().any(|path| path == TOKEN)) {
        plan.add(Step::Runtime, "as the release's tmpfiles say");
    }
    if seen.selinux && !(changed.is_empty() && configured.is_empty()) {
        plan.add(Step::Relabel([changed.clone(), configured.clone()].concat()), "SELinux is on");
    }
    if runs_here && new_programs && seen.package.is_none() {
        plan.add(
            Step::Try(AGENT.to_owned()),
            "before anything is started: a program of another system would not run",
        );
    }
    if live && new_programs {
        plan.add(Step::Reload, "units were written");
    }
    for (unit, target) in UNITS {
        if !seen.enabled.contains(unit) {
            let (link, to) = wants(unit, target);
            folders.make(&link, &mut plan);
            plan.add(
                Step::Enable { unit: unit.to_owned(), link, target: to },
                format!("{target} wants it at boot"),
            );
        }
    }
    run(seen, live, (new_programs, !configured.is_empty()), starting, &mut plan);
    plan
}

/// Takes over what userdata wrote and this run does not write; the paths.
fn adopt(wanted: &[Wanted], seen: &Seen, plan: &mut Plan) -> Vec<String> {
    let ours = |path: &str| wanted.iter().any(|file| file.path == path);
    let mut adopted = Vec::new();
    for (path, lying) in seen.userdata.files.iter().filter(|(path, _)| !ours(path)) {
        let owner = if *path == TOKEN { Owner::Agent } else { Owner::Root };
        let step = Step::Adopt { path: (*path).to_owned(), sha256: lying.sha256.clone(), owner };
        plan.add(step, "userdata wrote it; uninstall --purge takes it too");
        adopted.push((*path).to_owned());
    }
    adopted
}

/// What is done about the running units.
fn run(
    seen: &Seen,
    live: bool,
    (new_programs, configured): (bool, bool),
    starting: Vec<String>,
    plan: &mut Plan,
) {
    if !live {
        plan.hold("outrider-agent.service", "systemd does not run here; it starts at the next boot");
        return;
    }
    let agent_starts = starting.iter().any(|unit| unit == AGENT_UNIT);
    if !starting.is_empty() {
        plan.add(Step::Start(starting), "they do not run; nobody waits for them");
    }
    if agent_starts || !seen.runs(AGENT_UNIT) {
        return;
    }
    if new_programs {
        plan.add(Step::Restart(AGENT_UNIT.to_owned()), "it runs another version");
    } else if configured {
        plan.add(Step::Reread(AGENT_UNIT.to_owned()), "its configuration changed");
    }
}

fn users(seen: &Seen, live: bool, plan: &mut Plan) {
    let missing = &seen.users_missing;
    match (missing.is_empty(), seen.can_make_users || live) {
        (true, _) => {}
        (false, true) => plan.add(Step::Users(missing.clone()), "the units run as them"),
        (false, false) => plan.hold(
            missing.join(", "),
            "these users cannot be made from here; systemd-sysusers makes them at the first boot, and a token then needs `chgrp outrider \
             /etc/outrider/token`",
        ),
    }
}

/// The step that a file needs, if it needs one.
fn of_file(file: &Wanted, seen: &Seen) -> Option<(Step, String)> {
    let known = seen.receipt.as_ref().and_then(|receipt| receipt.file(&file.path));
    let step = |replaced| Step::File { file: file.clone(), replaced };
    match seen.at(&file.path) {
        There::File(lying) if lying.sha256 == file.sha256 && mode_fits(file, lying.mode) => None,
        There::File(lying) if lying.sha256 == file.sha256 => {
            Some((step(None), format!("its mode is {:o}, not {:o}", lying.mode, file.mode)))
        }
        There::File(lying) if known.is_some_and(|(ours, _)| ours.contains(&lying.sha256)) => {
            Some((step(None), "an earlier run wrote another one".to_owned()))
        }
        There::File(lying) => Some((
            step(Some(lying.clone())),
            "what lies there is not of this release; it is kept, and comes back at uninstall".to_owned(),
        )),
        // What is no file is refused before anything is done.
        _ => Some((step(None), "it is not there".to_owned())),
    }
}

/// A person edited what is not to be another one than the last time.
fn changed_by_hand(file: &Wanted, seen: &Seen) -> bool {
    let known = seen.receipt.as_ref().and_then(|receipt| receipt.file(&file.path));
    let (Some((ours, _)), There::File(lying)) = (known, seen.at(&file.path)) else { return false };
    !ours.contains(&lying.sha256) && ours.last() == Some(&file.sha256)
}

/// A person may close a token or a setting further; a program has its mode.
fn mode_fits(file: &Wanted, mode: u32) -> bool {
    match file.class {
        Class::Program => mode == file.mode,
        Class::Configuration => mode & !file.mode == 0,
    }
}

struct Folders {
    there: BTreeSet<String>,
}

impl Folders {
    /// Plans the folders that are missing above `path`.
    fn make(&mut self, path: &str, plan: &mut Plan) {
        for folder in above(path) {
            if self.there.insert(folder.clone()) {
                plan.add(Step::Folder(folder), "it is not there");
            }
        }
    }
}
