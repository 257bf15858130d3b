//! `outrider sync`: a hosted cluster's fields, what a push would do, and timelines; offline.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context;
use outrider_protocol::Timestamp;
use outrider_sync::hosted::explain::{Question, Rules, explain, plan_of};
use outrider_sync::hosted::object::{self, Hosted};
use outrider_sync::hosted::rancher::push::push;
use outrider_sync::hosted::simulate::{scenario, simulate};
use outrider_sync::hosted::{Document, Provider};

use crate::cli::{HostedArgs, SyncArgs, SyncCommand, SyncExplainArgs, SyncPlanArgs, SyncSimulateArgs};
use crate::exit::Exit;
use crate::input::{self, Wanted};
use crate::output::{Format, Screen, UsageError, document};
use crate::show::report::Layout;
use crate::show::sync::{Explained, Planned, Played, explained, planned, played};

/// A cluster with thousands of pools is some MiB.
const CLUSTER: Wanted = Wanted { max_bytes: 64 << 20, what: "hosted cluster" };
const TIMELINE: Wanted = Wanted { max_bytes: 64 << 20, what: "timeline" };

/// Runs the command.
pub(crate) fn run(args: SyncArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    match args.command {
        SyncCommand::Explain(args) => explain_cluster(&args, screen),
        SyncCommand::Plan(args) => plan_push(&args, screen),
        SyncCommand::Simulate(args) => play(&args, screen),
    }
}

fn explain_cluster(args: &SyncExplainArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let given = Given::read(&args.hosted)?;
    let question = given.question();
    let answer = Explained::new(&given.hosted, &explain(&question), given.rules);
    let text = match &args.output {
        Format::Json => document::json(&answer)?,
        Format::Yaml => document::yaml(&answer)?,
        Format::Name => answer.names(),
        format => explained::table(&answer, given.now, Layout::on(screen, matches!(format, Format::Wide))),
    };
    screen.write(&text)?;
    Ok(Exit::Ok)
}

fn plan_push(args: &SyncPlanArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let given = Given::read(&args.hosted)?;
    let question = given.question();
    let cloud = given.live.as_ref().or(given.hosted.upstream.as_ref()).with_context(|| {
        "the object does not hold the cloud's view, so nothing can be planned; give it with --upstream FILE"
    })?;
    let confirmed: BTreeSet<String> = args.confirm.iter().cloned().collect();
    let answer = match given.rules {
        Rules::Outrider => {
            let plan = plan_of(&question, &confirmed);
            let known = plan.writes.iter().map(|w| &w.path).chain(plan.held.iter().map(|h| &h.write.path));
            let known: BTreeSet<&String> = known.collect();
            if let Some(strange) = confirmed.iter().find(|path| !known.contains(path)) {
                let paths: Vec<&str> = known.iter().map(|path| path.as_str()).collect();
                let there = if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") };
                return Err(UsageError(format!(
                    "--confirm {strange}: the plan does not write it; it writes {there}"
                ))
                .into());
            }
            Planned::of_ours(&given.hosted, plan)
        }
        Rules::Rancher if !confirmed.is_empty() => {
            return Err(UsageError("--confirm is ours; Rancher's operators hold nothing".to_owned()).into());
        }
        Rules::Rancher => {
            let hosted = &given.hosted;
            let steps = push(hosted.provider, hosted.origin, &hosted.spec, cloud);
            Planned::of_rancher(hosted, cloud, steps)
        }
    };
    let text = match &args.output {
        Format::Json => document::json(&answer)?,
        Format::Yaml => document::yaml(&answer)?,
        Format::Name => answer.names(),
        _ => planned::table(&answer, Layout::on(screen, false)),
    };
    screen.write(&text)?;
    Ok(Exit::Ok)
}

fn play(args: &SyncSimulateArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let base = args.file.as_deref().map(cluster).transpose()?;
    let (name, timeline) = input::document(&args.timeline, TIMELINE)?;
    let scenario = scenario::read(&timeline, base.as_ref()).map_err(|e| anyhow::anyhow!("{name}: {e}"))?;
    let answer = Played::new(&scenario, &simulate(&scenario));
    let text = match &args.output {
        Format::Json => document::json(&answer)?,
        Format::Yaml => document::yaml(&answer)?,
        Format::Name => answer.names(),
        format => played::table(&answer, Layout::on(screen, matches!(format, Format::Wide))),
    };
    screen.write(&text)?;
    Ok(Exit::Ok)
}

/// What was given on the command line, read.
struct Given {
    hosted: Hosted,
    live: Option<Document>,
    now: i64,
    interval: i64,
    rules: Rules,
}

impl Given {
    fn read(args: &HostedArgs) -> anyhow::Result<Self> {
        let stdin = Path::new("-");
        if args.file == stdin && args.upstream.as_deref() == Some(stdin) {
            return Err(UsageError(
                "standard input can be one of --file and --upstream, not both".to_owned(),
            )
            .into());
        }
        let hosted = cluster(&args.file)?;
        let live = args.upstream.as_deref().map(|file| upstream(hosted.provider, file)).transpose()?;
        let now = args.at.unwrap_or_else(|| Timestamp::from(SystemTime::now()));
        Ok(Self {
            hosted,
            live,
            now: now.as_millis().div_euclid(1000),
            interval: i64::try_from(args.interval.as_secs()).unwrap_or(i64::MAX),
            rules: if args.rules == "rancher" { Rules::Rancher } else { Rules::Outrider },
        })
    }

    fn question(&self) -> Question<'_> {
        Question {
            hosted: &self.hosted,
            live: self.live.as_ref(),
            now: self.now,
            interval: self.interval,
            rules: self.rules,
        }
    }
}

fn cluster(file: &Path) -> anyhow::Result<Hosted> {
    let (name, value) = input::document(file, CLUSTER)?;
    object::read(&value).map_err(|e| anyhow::anyhow!("{name}: {e}"))
}

fn upstream(provider: Provider, file: &Path) -> anyhow::Result<Document> {
    let (name, value) = input::document(file, CLUSTER)?;
    object::read_upstream(provider, &value).map_err(|e| anyhow::anyhow!("{name}: {e}"))
}
