//! What RKE2 and K3s were told, wherever it stands (`facts/rke2-k3s-on-disk.md`, sections 1 and 5).
//!
//! Both read their arguments alike (k3s-io/k3s, `pkg/configfilearg/parser.go`, which RKE2 uses): `config.yaml` and the
//! files of `config.yaml.d` become the first arguments, the command line follows, and the environment stands in for a flag
//! that is given nowhere. The command line is taken from the unit that starts them, with its drop-ins and environment
//! files: `/proc/PID/cmdline` tells none of it, because both overwrite it when they start, to hide what is secret in it
//! (`pkg/cli/server/server.go`, `SetProcTitle`).
//!
//! `options` is the pure part, `unit` reads what systemd reads. The daemon reads through its opener, the root helper
//! through files that only root can have written; both end in the same [`Options`].

mod options;
mod unit;

use std::io;
use std::path::{Path, PathBuf};

use outrider_protocol::{Distribution, UnknownCause};

pub(crate) use options::{DATASTORE, KUBELET_ARG, NODE_LABEL, SERVER, flag_of, flags, mapping, words};
pub use options::{Options, scheme};
pub(crate) use unit::{UNIT_FOLDERS, service_lines, split};

use super::{OpenFile, file};
use crate::net::Failure;

/// Largest configuration file.
const MAX_CONFIG: u64 = 256 * 1024;
/// Most drop-ins of one folder.
const MAX_DROP_INS: usize = 64;

/// One of the two.
#[derive(Debug)]
pub(crate) struct Program {
    /// Which.
    pub(crate) distribution: Distribution,
    /// Its name in a sentence.
    pub(crate) title: &'static str,
    /// Where it keeps everything, unless it is told otherwise.
    pub(crate) data_dir: &'static str,
    /// Its configuration, unless it is told otherwise.
    pub(crate) config: &'static str,
    /// What its environment variables begin with.
    prefix: &'static str,
    /// The units that start it: a server's, an agent's.
    pub(crate) units: [&'static str; 2],
}

/// RKE2.
pub(crate) const RKE2: Program = Program {
    distribution: Distribution::Rke2,
    title: "RKE2",
    data_dir: "/var/lib/rancher/rke2",
    config: "/etc/rancher/rke2/config.yaml",
    prefix: "RKE2_",
    units: ["rke2-server", "rke2-agent"],
};

/// K3s.
pub(crate) const K3S: Program = Program {
    distribution: Distribution::K3s,
    title: "K3s",
    data_dir: "/var/lib/rancher/k3s",
    config: "/etc/rancher/k3s/config.yaml",
    prefix: "K3S_",
    units: ["k3s", "k3s-agent"],
};

/// Where the files come from.
pub(crate) trait Files {
    /// A file's bytes; `None` when it is not there.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Names in a folder, by name; `None` when it is not there.
    fn list(&self, path: &Path) -> io::Result<Option<Vec<String>>>;
}

/// The daemon's.
pub(crate) struct Opened<'a>(pub(crate) &'a dyn OpenFile);

impl Files for Opened<'_> {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        absent(self.0.open(path).and_then(|open| file::read_bounded(open, MAX_CONFIG)))
    }

    fn list(&self, path: &Path) -> io::Result<Option<Vec<String>>> {
        absent(self.0.list(path))
    }
}

/// What is not there is no error.
pub(crate) fn absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

/// What one of them was told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// All of it.
    pub(crate) options: Options,
    /// Its configuration file; none where it is fetched over the network.
    pub(crate) config: Option<PathBuf>,
    /// Files of its environment.
    pub(crate) environment: Vec<PathBuf>,
    /// What could not be read or understood: something else may be in force.
    pub(crate) problem: Option<Failure>,
}

/// Reads it. Blocking.
///
/// What may not be read is no problem of its own: the configuration holds the join token, so the root helper passes an
/// excerpt, and where there is no helper the data folder cannot be read either, which is told.
pub(crate) fn read(files: &dyn Files, program: &Program) -> Told {
    let mut told = Told::default();
    let launch = unit::launch(files, program, &mut told);
    let path = match launch.config_file(program) {
        // It may be fetched, too (`readConfigFileData`).
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            let detail = "its configuration is fetched over the network, which is not read";
            told.problem.get_or_insert(Failure::new(UnknownCause::Unsupported, detail));
            None
        }
        Some(path) => Some(PathBuf::from(path)),
        None => Some(PathBuf::from(program.config)),
    };
    if let Some(path) = path {
        for file in configuration(files, &path, &mut told) {
            match files.read(&file) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    if let Err(why) = told.options.merge(&bytes) {
                        let failure = Failure::new(UnknownCause::InvalidInput, why);
                        told.problem.get_or_insert(failure.during(file.display()));
                    }
                }
                Err(e) => told.note(&e, &file),
            }
        }
        told.config = Some(path);
    }
    told.options.append(&launch.words);
    told.options.fill_in(program.prefix, &launch.environment);
    told
}

/// The file, and those of the folder beside it by name.
fn configuration(files: &dyn Files, path: &Path, told: &mut Told) -> Vec<PathBuf> {
    let folder = PathBuf::from(format!("{}.d", path.display()));
    let mut all = vec![path.to_owned()];
    match files.list(&folder) {
        Ok(names) => {
            let names = names.unwrap_or_default();
            let is_yaml = |name: &&String| {
                let name = name.to_ascii_lowercase();
                name.ends_with(".yaml") || name.ends_with(".yml")
            };
            all.extend(names.iter().filter(is_yaml).take(MAX_DROP_INS).map(|name| folder.join(name)));
        }
        Err(e) => told.note(&e, &folder),
    }
    all
}

impl Told {
    fn note(&mut self, error: &io::Error, path: &Path) {
        if error.kind() != io::ErrorKind::PermissionDenied {
            self.problem.get_or_insert(Failure::from(error).during(path.display()));
        }
    }

    /// Its data folder.
    pub(crate) fn data_dir(&self, program: &Program) -> PathBuf {
        PathBuf::from(self.options.data_dir().unwrap_or(program.data_dir))
    }
}

#[cfg(test)]
mod tests;
