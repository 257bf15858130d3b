//! Package managers: which one a machine has, and the command lines that install one package without a question.

use std::path::{Path, PathBuf};

use crate::sense::SenseContext;

/// The package, on every distribution (`facts/guest-agent.md`, section 4).
pub(super) const PACKAGE: &str = "qemu-guest-agent";

/// What installs packages here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// Debian and Ubuntu.
    Apt,
    /// SUSE.
    Zypper,
    /// SLE Micro and MicroOS, whose running system is read-only: into the next snapshot.
    Transactional,
    /// Fedora and the RHEL family.
    Dnf,
    /// RHEL 7 and its kin.
    Yum,
}

/// Where the package comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The distribution's repositories.
    Repositories,
    /// Files on this machine, without any repository.
    Files(Vec<PathBuf>),
}

/// What a package manager's exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It is installed, or so it says.
    Installed,
    /// Somebody holds its lock.
    Locked,
    /// No repository has the package.
    NotFound,
    /// The running system is read-only.
    ReadOnly,
    /// Something else.
    Failed,
}

impl Manager {
    /// What `there` of the programs decides; `read_only` is whether the running system is.
    pub(super) fn detect(there: impl Fn(&str) -> bool, read_only: bool) -> Option<Self> {
        if read_only && there("transactional-update") {
            return Some(Self::Transactional);
        }
        let by_program =
            [("apt-get", Self::Apt), ("zypper", Self::Zypper), ("dnf", Self::Dnf), ("yum", Self::Yum)];
        by_program.into_iter().find_map(|(program, manager)| there(program).then_some(manager))
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Apt => "apt",
            Self::Zypper => "zypper",
            Self::Transactional => "transactional-update",
            Self::Dnf => "dnf",
            Self::Yum => "yum",
        }
    }

    /// How its package files end.
    pub(super) fn suffix(self) -> &'static str {
        if self == Self::Apt { "deb" } else { "rpm" }
    }

    /// The command line that installs. Nothing is removed or upgraded for it, no question is asked, and no key is taken
    /// into trust; a file that root named is trusted as such.
    pub(super) fn install(self, source: &Source) -> Vec<String> {
        let files = |source: &Source| match source {
            Source::Repositories => vec![PACKAGE.to_owned()],
            Source::Files(files) => files.iter().map(|f| f.display().to_string()).collect(),
        };
        let offline = matches!(source, Source::Files(_));
        let mut words: Vec<&str> = match self {
            Self::Apt => vec![
                "apt-get",
                "-q",
                "-y",
                "--no-install-recommends",
                "--no-remove",
                // Between our look at the lock and its own; releases before 1.9.11 do not know it and fail at once.
                "-oDPkg::Lock::Timeout=60",
                "-oDpkg::Options::=--force-confdef",
                "-oDpkg::Options::=--force-confold",
                "-oAcquire::Retries=2",
                "-oAcquire::http::Timeout=30",
                "-oAcquire::https::Timeout=30",
                "install",
            ],
            Self::Zypper if offline => {
                vec![
                    "zypper",
                    "--non-interactive",
                    "--no-refresh",
                    "install",
                    "--no-recommends",
                    "--allow-unsigned-rpm",
                ]
            }
            Self::Zypper => vec!["zypper", "--non-interactive", "install", "--no-recommends"],
            // On top of what somebody else has put into the next snapshot already, which would be lost otherwise.
            Self::Transactional => {
                vec!["transactional-update", "--non-interactive", "--continue", "pkg", "install"]
            }
            Self::Dnf | Self::Yum => {
                let program = if self == Self::Dnf { "dnf" } else { "yum" };
                let mut words = vec![program, "-y", "--setopt=install_weak_deps=False"];
                if offline {
                    words.push("--disablerepo=*");
                }
                words.push("install");
                words
            }
        };
        // What follows is no option, whatever a file is called: each path is absolute.
        words.retain(|word| !word.is_empty());
        words.into_iter().map(str::to_owned).chain(files(source)).collect()
    }

    /// The command line that fetches the lists of the repositories, where installing does not do that by itself or does not
    /// tell its failure apart.
    pub(super) fn refresh(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Apt => Some(vec![
                "apt-get",
                "-q",
                "-oDPkg::Lock::Timeout=60",
                "-oAcquire::Retries=1",
                "-oAcquire::http::Timeout=30",
                "-oAcquire::https::Timeout=30",
                // Without it a server that is away is a warning; releases before 2.1 do not know it.
                "-oAPT::Update::Error-Mode=any",
                "update",
            ]),
            Self::Zypper => Some(vec!["zypper", "--non-interactive", "refresh"]),
            Self::Dnf => Some(vec!["dnf", "-q", "makecache"]),
            Self::Yum => Some(vec!["yum", "-q", "makecache"]),
            Self::Transactional => None,
        }
    }

    /// The command line that ends with 0 when a repository has the package.
    pub(super) fn offers(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Apt => Some(vec!["apt-cache", "show", "--no-all-versions", PACKAGE]),
            Self::Dnf => Some(vec!["dnf", "-q", "list", PACKAGE]),
            Self::Yum => Some(vec!["yum", "-q", "list", PACKAGE]),
            // Their exit codes tell.
            Self::Zypper | Self::Transactional => None,
        }
    }

    /// The meaning of an exit code of `install`. zypper's are documented (zypper(8), EXIT CODES); apt's and dnf's are one for
    /// all.
    pub(super) fn said(self, code: Option<i32>) -> Said {
        match (self, code) {
            (_, Some(0)) => Said::Installed,
            // A reboot or a restart is suggested; a repository was skipped, which the look for the binary settles.
            (Self::Zypper, Some(100..=103 | 106 | 107)) => Said::Installed,
            (Self::Zypper, Some(7)) => Said::Locked,
            (Self::Zypper, Some(5)) => Said::ReadOnly,
            // No repositories at all, or none with such a package.
            (Self::Zypper, Some(6 | 104)) => Said::NotFound,
            _ => Said::Failed,
        }
    }
}

/// Where programs lie, in the order they are looked for.
const FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// The program of that name.
pub(super) fn program(cx: &SenseContext, name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| cx.path(Path::new(folder).join(name))).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_what_is_there_and_a_read_only_root_wants_snapshots() {
        let detect = |there: &'static [&'static str], ro| Manager::detect(move |p| there.contains(&p), ro);
        assert_eq!(detect(&["apt-get", "dpkg"], false), Some(Manager::Apt));
        assert_eq!(detect(&["zypper", "transactional-update"], false), Some(Manager::Zypper));
        assert_eq!(detect(&["zypper", "transactional-update"], true), Some(Manager::Transactional));
        assert_eq!(detect(&["dnf", "yum"], false), Some(Manager::Dnf));
        assert_eq!(detect(&["yum"], true), Some(Manager::Yum));
        assert_eq!(detect(&["rpm", "apk"], true), None);
    }

    #[test]
    fn no_command_line_asks_removes_or_takes_a_key() {
        let files = Source::Files(vec!["/opt/qga.rpm".into()]);
        for manager in [Manager::Apt, Manager::Zypper, Manager::Transactional, Manager::Dnf, Manager::Yum] {
            for source in [&Source::Repositories, &files] {
                let line = manager.install(source).join(" ");
                assert!(line.contains("-y") || line.contains("--non-interactive"), "{line}");
                for never in
                    ["auto-import", "no-gpg-checks", " remove", "allow-downgrades", "force-yes", "upgrade"]
                {
                    assert!(!line.contains(never), "{line}");
                }
                let last = if *source == files { "/opt/qga.rpm" } else { PACKAGE };
                assert!(line.ends_with(last), "{line}");
            }
        }
        assert!(Manager::Apt.install(&files).contains(&"--no-remove".to_owned()));
    }

    #[test]
    fn zyppers_exit_codes_tell_what_others_do_not() {
        let said = |code| Manager::Zypper.said(Some(code));
        assert_eq!((said(0), said(102), said(106)), (Said::Installed, Said::Installed, Said::Installed));
        assert_eq!((said(5), said(7), said(104)), (Said::ReadOnly, Said::Locked, Said::NotFound));
        assert_eq!((said(4), Manager::Zypper.said(None)), (Said::Failed, Said::Failed));
        assert_eq!(Manager::Apt.said(Some(100)), Said::Failed);
    }
}
