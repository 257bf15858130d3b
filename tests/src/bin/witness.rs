//! `witness spool|store FOLDER FROM COUNT [PAUSE_MS]`: appends numbers and prints each once it is promised to survive.
//! It is run over a disk that fails, and killed. With a pause between numbers, a failed append is said and the next one
//! tried; without, it ends the run.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use outrider_tests::witness;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, folder, from, count, rest @ ..] = arguments.as_slice() else {
        anyhow::bail!("witness spool|store FOLDER FROM COUNT [PAUSE_MS]");
    };
    let (from, count): (u64, u64) = (from.parse().context("FROM")?, count.parse().context("COUNT")?);
    let pause = rest.first().map(|ms| ms.parse()).transpose().context("PAUSE_MS")?.map(Duration::from_millis);
    let mut witness = witness::open(kind, &PathBuf::from(folder))?;
    let mut out = std::io::stdout();
    for n in from..from + count {
        match witness.append(n) {
            Ok(()) => writeln!(out, "{n}")?,
            Err(error) if pause.is_some() => writeln!(out, "failed {n}: {error:#}")?,
            Err(error) => return Err(error),
        }
        out.flush()?;
        if let Some(pause) = pause {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}
