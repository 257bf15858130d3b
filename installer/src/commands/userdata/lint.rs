//! `outrider userdata lint`.

use outrider_cloud_init::lint::{Context, lint_for};
use outrider_cloud_init::{Field, Severity, header, size};

use super::{USERDATA, verify};
use crate::cli::UserdataLintArgs;
use crate::exit::Exit;
use crate::input;
use crate::output::{Format, Screen, document};
use crate::show::report::Layout;
use crate::show::userdata::{self, Linted};

/// Runs the command.
pub(super) async fn run(args: UserdataLintArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let (name, bytes) = input::raw(&args.file, USERDATA)?;
    let field = args.field.map(Field::from);
    let context = Context { platform: args.platform, field, version: args.cloud_init };
    let decoded = match field {
        Some(Field::Base64) => size::decoded(&bytes).ok(),
        _ => None,
    };
    let plain = decoded.as_deref().unwrap_or(&bytes);
    let mut linted = Linted::new(&name, header::recognise(plain).0, plain.len(), context);
    linted.add(lint_for(&bytes, &context));
    if args.verify {
        let verdict = screen.busy("asking cloud-init schema", verify::ask(plain)).await;
        if let Some(finding) = verdict.differs(linted.worst()) {
            linted.add(vec![finding]);
        }
        linted.verdict = Some(verdict);
    }
    let text = match &args.output {
        Format::Json => document::json(&linted)?,
        Format::Yaml => document::yaml(&linted)?,
        Format::Name => linted.names(),
        format => userdata::table(&linted, Layout::on(screen, matches!(format, Format::Wide))),
    };
    screen.write(&text)?;
    let enough = if args.strict { Severity::Warn } else { Severity::Error };
    Ok(if linted.worst() >= enough { Exit::Failed } else { Exit::Ok })
}
