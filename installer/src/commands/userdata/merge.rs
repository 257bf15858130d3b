//! `outrider userdata merge`.

use std::path::Path;

use outrider_cloud_init::gzip;
use outrider_cloud_init::lint::lint;
use outrider_cloud_init::merge::merge;
use outrider_cloud_init::render::Profile;
use outrider_cloud_init::{Finding, Severity};

use super::form::Form;
use super::{USERDATA, deliver, ours};
use crate::cli::{RenderFormat, UserdataMergeArgs};
use crate::exit::Exit;
use crate::input;
use crate::output::{Screen, UsageError, text};

/// Runs the command. Nothing is written where something is refused.
pub(super) async fn run(args: &UserdataMergeArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let inputs = args.files.iter().chain(&args.ours.node.token_file);
    if inputs.filter(|file| *file == Path::new("-")).count() > 1 {
        return Err(UsageError("standard input can be one of the files, not several".to_owned()).into());
    }
    if args.form.format == RenderFormat::Network {
        let message = "--format network: network data is no part of what is merged; `render` writes it alone";
        return Err(UsageError(message.to_owned()).into());
    }
    let form = Form::new(&args.form)?;
    let ours = match (args.profile, args.files.as_slice()) {
        (Some(profile), _) => Some(ours::rendered(profile, &args.ours).await?),
        (None, [_]) => Some(ours::rendered(Profile::HarvesterVm, &args.ours).await?),
        (None, _) if args.ours.given() => {
            let message = "with several files, what is ours is added only with --profile; name one";
            return Err(UsageError(message.to_owned()).into());
        }
        (None, _) => None,
    };
    let mut names = Vec::new();
    let mut texts = Vec::new();
    for file in &args.files {
        let (name, text) = read(file)?;
        names.push(name);
        texts.push(text);
    }
    names.push("what is added".to_owned());
    texts.extend(ours);
    let files: Vec<&str> = texts.iter().map(String::as_str).collect();
    let merged = merge(&files).map_err(|refusal| {
        let name = names.get(refusal.file).map_or("", String::as_str);
        refused(name, &refusal.findings)
    })?;
    let found = lint(merged.as_bytes());
    deliver(&form.of(merged), args.form.out.as_deref(), screen)?;
    left(&found, screen);
    Ok(Exit::Ok)
}

fn read(file: &Path) -> anyhow::Result<(String, String)> {
    let (name, bytes) = input::raw(file, USERDATA)?;
    if bytes.starts_with(gzip::MARK) {
        anyhow::bail!("{name} is packed; unpack it first (gzip -d)");
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((name, text)),
        Err(e) => {
            let found = lint(e.as_bytes());
            let errors: Vec<Finding> = found.into_iter().filter(|f| f.severity == Severity::Error).collect();
            if errors.is_empty() {
                anyhow::bail!("{name} is no text; save it as UTF-8");
            }
            Err(refused(&name, &errors))
        }
    }
}

fn refused(name: &str, findings: &[Finding]) -> anyhow::Error {
    let lines: Vec<String> = findings
        .iter()
        .map(|f| {
            let place = match (f.line, f.column) {
                (0, _) => String::new(),
                (line, 0) => format!("line {line}: "),
                (line, column) => format!("line {line}, column {column}: "),
            };
            let message = text::printable(&f.message);
            format!("{name}: {place}{message} ({})\n  -> {}", f.code, text::printable(&f.cure))
        })
        .collect();
    anyhow::anyhow!("nothing is merged\n{}", lines.join("\n"))
}

/// What is still wrong was theirs before; it is not silently passed on.
fn left(found: &[Finding], screen: &mut Screen) {
    let count = |severity| found.iter().filter(|f| f.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warn));
    if errors + warnings > 0 {
        screen.note(&format!(
            "note: in the result {} and {} are left; `outrider userdata lint` names them",
            text::count(errors, "error"),
            text::count(warnings, "warning")
        ));
    }
}
