//! Where a person's files lie (XDG base directories), also for users without `HOME`, such as a unit's.

use std::path::PathBuf;

use anyhow::Context;

/// `outrider` below `$XDG_CONFIG_HOME` or `~/.config`.
pub(crate) fn config() -> anyhow::Result<PathBuf> {
    base("XDG_CONFIG_HOME", ".config")
}

/// `outrider` below `$XDG_STATE_HOME` or `~/.local/state`.
pub(crate) fn state() -> anyhow::Result<PathBuf> {
    base("XDG_STATE_HOME", ".local/state")
}

/// A relative path in an XDG variable is invalid and to be ignored, says the specification.
fn base(variable: &str, below_home: &str) -> anyhow::Result<PathBuf> {
    let set = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = match set {
        Some(base) => base,
        None => home()
            .with_context(|| {
                format!("cannot tell your home folder: set HOME or {variable} to an absolute path")
            })?
            .join(below_home),
    };
    Ok(base.join("outrider"))
}

fn home() -> Option<PathBuf> {
    let set = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    set.or_else(|| nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten().map(|user| user.dir))
}
