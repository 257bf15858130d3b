//! `outrider-coordinator backup`: the database and, beside it, the keys without which no node would know it.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use outrider_coordinator::pki::files;
use outrider_coordinator::store::sqlite::{FILE_NAME, backup};

use super::BackupArgs;

/// Copies a state folder, in use or not.
pub(super) async fn run(args: &BackupArgs, state_dir: &Path) -> anyhow::Result<()> {
    // A copy of nothing must not take the place of the copy that is needed.
    outrider_coordinator::refuse_lost_database(state_dir)?;
    let from = state_dir.join(FILE_NAME);
    anyhow::ensure!(from.exists(), "{} holds no coordinator; give --state-dir", state_dir.display());
    let (database, to) = (from.clone(), args.file.clone());
    tokio::task::spawn_blocking(move || backup(&database, &to)).await??;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} copied to {}", from.display(), args.file.display())?;
    if args.without_ca {
        return Ok(());
    }
    let to = PathBuf::from(format!("{}.ca", args.file.display()));
    let copied = copy_ca(&state_dir.join("ca"), &to)?;
    writeln!(out, "{copied} files of the CA copied to {}: they hold its private keys", to.display())?;
    writeln!(
        out,
        "To restore: stop the service, put the first in place of {FILE_NAME} and the second in place of ca/."
    )?;
    Ok(())
}

/// Copies the CA's files for the owner's eyes only; how many.
fn copy_ca(from: &Path, to: &Path) -> anyhow::Result<usize> {
    anyhow::ensure!(!to.exists(), "{} exists; a backup replaces nothing", to.display());
    files::private_folder(to)?;
    let mut copied = 0;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let content = std::fs::read(entry.path())?;
            files::write_whole(&to.join(entry.file_name()), &content, 0o600)?;
            copied += 1;
        }
    }
    Ok(copied)
}
