//! `outrider install`: look, plan, say it, do it.

use std::path::Path;

use anyhow::{Context, bail};
use outrider_agent::report::Token;

use crate::cli::{InstallArgs, NodeArgs, WorkingArgs};
use crate::contexts::coordinator_url;
use crate::exit::Exit;
use crate::input::{self, Wanted};
use crate::install::{self, Given, Machine, Preflight, Receipt, Release, Wishes};
use crate::output::{Format, Screen, UsageError, document};
use crate::show::install::{Report, table};
use crate::show::report::Layout;

const TOKEN: Wanted = Wanted { max_bytes: 64 << 10, what: "token" };

/// Runs the command.
pub(crate) async fn run(args: InstallArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let given = Given { wishes: wishes(&args)?, token: token(&args.node)? };
    let machine = machine(&args.working)?;
    let receipt = read_receipt(&machine)?;
    let wishes = given.wishes.clone().over(receipt.as_ref().map(|receipt| &receipt.wishes));
    let release = match &args.from {
        Some(from) => Some(Release::read(from)?),
        None => Release::beside_the_program(&machine)?,
    };
    let wanted = install::wanted(release.as_ref(), &wishes, given.token.as_ref());
    let users = release.as_ref().map(|release| release.users.clone()).unwrap_or_default();
    let seen = install::look(&machine, &wanted, &users, receipt).await?;
    let plan = install::plan(&wanted, &seen, machine.live, machine.is_ours());
    let preflight = Preflight {
        machine: &machine,
        given: &given,
        wishes: &wishes,
        release: release.as_ref(),
        named: args.from.is_some(),
        wanted: &wanted,
        seen: &seen,
        plan: &plan,
    };
    let findings = screen.busy("Looking at the machine and the coordinator", preflight.run()).await;
    let mut report = Report::install(&findings, &plan, args.working.dry_run);
    // The plan of a machine that something stands in the way of is told all the same.
    if report.may_go_on() {
        let doing = install::apply(&machine, &plan, release.as_ref(), &wishes, seen.receipt.clone());
        match screen.busy("Installing", doing).await {
            Ok(()) => report.done(),
            Err(error) => report.failed(&error),
        }
    }
    tell(&report, &args.working, screen)
}

/// Prints a report and ends as it says.
pub(super) fn tell(report: &Report, working: &WorkingArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let text = match working.output {
        Format::Json => document::json(report)?,
        Format::Yaml => document::yaml(report)?,
        _ => table(report, Layout::on(screen, false)),
    };
    screen.write(&text)?;
    Ok(if report.is_bad() { Exit::Failed } else { Exit::Ok })
}

/// The machine that is meant.
pub(super) fn machine(working: &WorkingArgs) -> anyhow::Result<Machine> {
    let root = &working.root;
    let found = root.canonicalize().with_context(|| format!("--root {}", root.display()))?;
    if !found.is_dir() {
        bail!(UsageError(format!("--root: {} is no folder", root.display())));
    }
    Ok(Machine::new(&found))
}

/// The receipt; who may not read it is told so by the look at his rights.
pub(super) fn read_receipt(machine: &Machine) -> anyhow::Result<Option<Receipt>> {
    match Receipt::read(machine) {
        Err(error) if !machine.is_root && is_denied(&error) => Ok(None),
        read => read,
    }
}

fn is_denied(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

fn wishes(args: &InstallArgs) -> anyhow::Result<Wishes> {
    let urls = args.node.coordinator.iter().map(|url| Ok(coordinator_url(url)?.to_string()));
    for (option, value) in [("name", &args.name), ("cluster", &args.node.cluster)] {
        if value.as_ref().is_some_and(|value| value.trim().is_empty()) {
            bail!(UsageError(format!("--{option} is empty; leave it out instead")));
        }
    }
    Ok(Wishes {
        coordinators: urls.collect::<anyhow::Result<_>>()?,
        name: args.name.clone(),
        cluster: args.node.cluster.clone(),
        profile: args.profile.clone(),
        token: args.node.token.is_some() || args.node.token_file.is_some(),
    })
}

/// The enrolment token, taken apart once so that a slip is told as the agent would tell it.
pub(super) fn token(args: &NodeArgs) -> anyhow::Result<Option<Token>> {
    let (option, text) = match (&args.token, &args.token_file) {
        (Some(token), _) => ("token", token.clone()),
        (None, Some(file)) => ("token-file", read(file)?),
        (None, None) => return Ok(None),
    };
    Ok(Some(Token::parse(&text).map_err(|e| UsageError(format!("--{option}: {e}")))?))
}

fn read(file: &Path) -> anyhow::Result<String> {
    let (name, bytes) = input::read(file, TOKEN)?;
    String::from_utf8(bytes).with_context(|| format!("{name} is no text"))
}
