//! `outrider check`: one pass over this machine, as a person or a monitoring system asks for it.

use std::path::Path;

use anyhow::Context;
use outrider_agent::capture::{capture, with_config};
use outrider_agent::config::{self, ConfigSource};
use outrider_agent::local::{self, Ask};
use outrider_agent::privileged;
use outrider_agent::sense::SenseContext;
use outrider_protocol::{Check, CheckFacts, NodeConditions, NodeFacts, Timestamp};

use crate::cli::{CheckArgs, SensorArgs};
use crate::exit::{Exit, verdict};
use crate::output::{Format, Screen, UsageError, document, text};
use crate::show::report::Layout;
use crate::show::{nagios, report};

/// Where the packaged daemon answers.
const SOCKET: &str = "/run/outrider/agent.sock";

/// Runs the command.
pub(crate) async fn run(args: CheckArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let facts = facts(&args.sensors, screen).await?;
    let conditions = outrider_diagnosis::diagnose(&facts);
    if let Some(path) = &args.facts_out {
        std::fs::write(path, document::json(&facts)?)
            .with_context(|| format!("cannot write the facts to {}", path.display()))?;
    }
    let text = match &args.output {
        Format::Nagios => nagios::line(&conditions, &facts),
        format => show(&conditions, format, screen)?,
    };
    screen.write(&text)?;
    Ok(verdict(&conditions.conditions))
}

/// The conditions of one node in this format.
pub(crate) fn show(conditions: &NodeConditions, format: &Format, screen: &Screen) -> anyhow::Result<String> {
    Ok(match format {
        Format::Json => document::json(conditions)?,
        Format::Yaml => document::yaml(conditions)?,
        Format::Name => format!("node/{}\n", conditions.node.name),
        Format::Wide => report::node(conditions, Layout::on(screen, true)),
        _ => report::node(conditions, Layout::on(screen, false)),
    })
}

/// The facts of this machine: of the daemon's last turn for a caller who may read less than the daemon, else of a pass
/// of our own. The daemon's carry its latches, so that judging them gives its verdict, hysteresis included.
pub(crate) async fn facts(args: &SensorArgs, screen: &mut Screen) -> anyhow::Result<NodeFacts> {
    if nix::unistd::geteuid().is_root() || args.config.is_some() {
        return sense(args, screen).await;
    }
    let answer = local::ask(Path::new(SOCKET), Ask::Facts).await;
    let facts = match answer {
        Ok(document) => serde_json::from_value::<NodeFacts>(document)
            .map_err(|e| format!("the daemon's answer makes no sense to this version ({e})")),
        Err(error) => Err(chain(&error)),
    };
    match facts {
        Ok(mut facts) => {
            let age = text::age(now().since(facts.now));
            screen.note(&format!(
                "note: without root; this is what the daemon on this machine read and judged {age} ago"
            ));
            keep_only(&mut facts, &args.only);
            Ok(facts)
        }
        Err(why) => {
            screen.note(&format!("note: without root, and {why}; this is what your user may read itself"));
            sense(args, screen).await
        }
    }
}

/// Leaves out of the daemon's facts what was not asked for.
fn keep_only(facts: &mut NodeFacts, only: &[Check]) {
    if only.is_empty() {
        return;
    }
    let checks = std::mem::take(&mut facts.checks);
    let wanted = |check: Check| only.contains(&check);
    facts.checks = CheckFacts {
        host: checks.host.filter(|_| wanted(Check::Host)),
        clock: checks.clock.filter(|_| wanted(Check::Clock)),
        cloud_init: checks.cloud_init.filter(|_| wanted(Check::CloudInit)),
        guest_agent: checks.guest_agent.filter(|_| wanted(Check::GuestAgent)),
        etcd: checks.etcd.filter(|_| wanted(Check::Etcd)),
        load_balancer: checks.load_balancer.filter(|_| wanted(Check::LoadBalancer)),
        certificates: checks.certificates.filter(|_| wanted(Check::Certificates)),
        kubernetes: checks.kubernetes.filter(|_| wanted(Check::Kubernetes)),
        agent: None,
    };
    facts.latches.retain(|latch| {
        let condition = &latch.condition;
        only.contains(&condition.condition_type.check_of(&condition.subject))
    });
}

/// An error and its sources in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let layers = std::iter::successors(Some(error), |error| error.source());
    layers.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// One pass of the sensors, with the configuration of this machine or of one file.
pub(crate) async fn sense(args: &SensorArgs, screen: &mut Screen) -> anyhow::Result<NodeFacts> {
    let source = match &args.config {
        Some(file) if !file.exists() => {
            return Err(UsageError(format!("--config: there is no file {}", file.display())).into());
        }
        Some(file) => ConfigSource::File(file.clone()),
        None => ConfigSource::default(),
    };
    let loaded = config::load(&source);
    if let (Some(_), Some(problem), true) = (&args.config, loaded.problems.first(), loaded.files.is_empty()) {
        // Not one key of what was asked for is there: the defaults would answer another question.
        return Err(UsageError(format!("--config: {problem}")).into());
    }
    for problem in &loaded.problems {
        screen.note(&format!("warning: {problem}"));
    }
    let cx = machine();
    let facts = screen.busy("Reading this machine", capture(&loaded.settings, &cx, &args.only)).await;
    // Asked for some checks only, one is not told about others; that the configuration is not in force is no other.
    let whole = args.only.is_empty() || !loaded.problems.is_empty();
    Ok(if whole { with_config(facts, &loaded) } else { facts })
}

/// This machine; root-only files come through the root helper where the caller is none.
pub(crate) fn machine() -> SenseContext {
    SenseContext {
        root: "/".into(),
        clock: std::sync::Arc::new(now),
        opener: privileged::opener(Path::new("/")),
    }
}

/// The time by this machine's clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}
