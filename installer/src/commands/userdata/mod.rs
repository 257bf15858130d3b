//! `outrider userdata`: cloud-init userdata judged, merged and written. Offline, but for `--agent coordinator`, which asks for
//! SHA-256.

mod form;
mod lint;
mod merge;
mod ours;
mod render;
pub(crate) mod verify;

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

use crate::cli::{UserdataArgs, UserdataCommand};
use crate::exit::Exit;
use crate::input::Wanted;
use crate::output::Screen;

/// Sixteen times what any platform takes.
const USERDATA: Wanted = Wanted { max_bytes: 4 << 20, what: "userdata" };

/// Runs the command.
pub(crate) async fn run(args: UserdataArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    match args.command {
        UserdataCommand::Lint(args) => lint::run(args, screen).await,
        UserdataCommand::Merge(args) => merge::run(&args, screen).await,
        UserdataCommand::Render(args) => render::run(&args, screen).await,
    }
}

/// To the file, whole or not at all and for its owner alone, or to standard output.
fn deliver(text: &str, out: Option<&Path>, screen: &mut Screen) -> anyhow::Result<()> {
    let Some(path) = out else { return screen.write(text) };
    let written = || {
        // What is no file, such as a pipe, is written to; a file is replaced.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|e| e.error)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}
