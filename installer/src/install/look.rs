//! What lies on the machine now, of all that a plan is about. Nothing is changed by looking.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::files::{self, There};
use super::plan::FOLDERS;
use super::programs::{self, Package};
use super::receipt::Made;
use super::release::{self, SYSUSERS};
use super::step::Wanted;
use super::userdata::{self, Userdata};
use super::{AGENT, Machine, Receipt, UNITS};

/// The machine as it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// What lies at each path of the wanted files.
    pub(crate) files: BTreeMap<String, There>,
    /// Those folders, of them and of the wanted links, that are there.
    pub(crate) folders: BTreeSet<String>,
    /// The users that the release wants.
    pub(crate) users: Vec<String>,
    /// Those of them that are missing.
    pub(crate) users_missing: Vec<String>,
    /// Units that are started at boot already.
    pub(crate) enabled: BTreeSet<String>,
    /// Units that are masked.
    pub(crate) masked: Vec<String>,
    /// `ActiveState=` of the units; empty on a machine that does not run.
    pub(crate) states: BTreeMap<String, String>,
    /// The daemon's program lies there.
    pub(crate) has_programs: bool,
    /// The package that laid it out.
    pub(crate) package: Option<Package>,
    /// What was made here before.
    pub(crate) receipt: Option<Receipt>,
    /// What userdata wrote here before.
    pub(crate) userdata: Userdata,
    /// A policy of SELinux is in force here.
    pub(crate) selinux: bool,
    /// Missing users can be made now.
    pub(crate) can_make_users: bool,
}

impl Seen {
    /// Whether a unit runs, or is about to.
    pub(crate) fn runs(&self, unit: &str) -> bool {
        self.states
            .get(unit)
            .is_some_and(|state| matches!(state.as_str(), "active" | "activating" | "reloading"))
    }

    /// What lies at a path.
    pub(crate) fn at(&self, path: &str) -> &There {
        self.files.get(path).unwrap_or(&There::Nothing)
    }
}

/// Looks at everything that `wanted` touches.
pub(crate) async fn look(
    machine: &Machine,
    wanted: &[Wanted],
    users: &[String],
    receipt: Option<Receipt>,
) -> anyhow::Result<Seen> {
    let mut seen = Seen { has_programs: machine.has(AGENT), ..Seen::default() };
    for file in wanted {
        seen.files.insert(file.path.clone(), files::look_at(&machine.at(&file.path)));
    }
    let links = UNITS.map(|(unit, target)| super::wants(unit, target).0);
    let paths = wanted.iter().map(|file| &file.path).chain(&links);
    let of_configuration = FOLDERS.map(str::to_owned);
    for folder in paths.flat_map(|path| above(path)).chain(of_configuration) {
        if machine.is_dir(&folder) {
            seen.folders.insert(folder);
        }
    }
    // Without a release, the users are those of the package's own list.
    seen.users = users.to_vec();
    if users.is_empty() {
        let texts = SYSUSERS.iter().map(|path| fs::read_to_string(machine.at(path)).unwrap_or_default());
        seen.users = texts.flat_map(|text| release::users(&text)).collect();
    }
    seen.users_missing = seen.users.iter().filter(|user| !machine.has_user(user)).cloned().collect();
    for (unit, _) in UNITS {
        let of_people = machine.at("/etc/systemd/system");
        if is_wanted(&of_people, unit) {
            seen.enabled.insert(unit.to_owned());
        }
        for folder in [of_people, machine.at("/run/systemd/system")] {
            if fs::read_link(folder.join(unit)).is_ok_and(|target| target == Path::new("/dev/null")) {
                seen.masked.push(unit.to_owned());
            }
        }
        if machine.live {
            seen.states.insert(unit.to_owned(), programs::active_state(unit).await);
        }
    }
    if seen.has_programs {
        seen.package = programs::package_of(machine, AGENT).await?;
    }
    seen.selinux = machine.is_ours() && Path::new("/sys/fs/selinux/enforce").exists();
    seen.can_make_users = machine.is_root && programs::find("systemd-sysusers").is_some();
    seen.userdata = userdata::look(machine, receipt.as_ref());
    seen.receipt = receipt;
    Ok(seen)
}

/// The folders above a path, outermost first, without `/`.
pub(crate) fn above(path: &str) -> Vec<String> {
    let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
    ends.map(|at| path[..at].to_owned()).collect()
}

/// Whether a `.wants` or `.requires` folder of `folder` has `unit`, whoever put it there.
fn is_wanted(folder: &Path, unit: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        path.extension().is_some_and(|e| e == "wants" || e == "requires")
            && path.join(unit).symlink_metadata().is_ok()
    })
}

/// The entries of a receipt that are files of the release.
pub(crate) fn programs_of(receipt: &Receipt) -> impl Iterator<Item = &str> {
    receipt.made.iter().filter_map(|made| match made {
        Made::File { path, class: super::receipt::Class::Program, .. } => Some(path.as_str()),
        _ => None,
    })
}
