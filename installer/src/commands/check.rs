//! `outrider check`: one pass over this machine, as a person or a monitoring system asks for it.

use std::path::Path;

use anyhow::Context;
use outrider_agent::capture::Look;
use outrider_agent::local::{self, Ask};
use outrider_protocol::{Check, CheckFacts, NodeConditions, NodeFacts, Timestamp};

use crate::cli::{CheckArgs, SensorArgs};
use crate::commands::get::Object;
use crate::exit::{Exit, verdict, worse};
use crate::looking;
use crate::output::{Format, Screen, document, text};
use crate::show::conditions::Owned;
use crate::show::report::Layout;
use crate::show::{nagios, report, worst_first};

/// Where the packaged daemon answers.
const SOCKET: &str = "/run/outrider/agent.sock";

/// Runs the command.
pub(crate) async fn run(args: CheckArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let only = &args.sensors.only;
    let facts = read(&args.sensors, true, screen).await?;
    let mut conditions = outrider_diagnosis::diagnose(&facts);
    if !only.is_empty() && !only.contains(&Check::Clock) {
        // Read for the sake of the certificates' dates, and not asked about.
        conditions.conditions.retain(|c| c.condition_type.check_of(&c.subject) != Check::Clock);
        conditions.not_applicable.retain(|n| n.check != Check::Clock);
    }
    let unjudged = unjudged(&conditions, only);
    if let Some(path) = &args.facts_out {
        std::fs::write(path, document::json(&facts)?)
            .with_context(|| format!("cannot write the facts to {}", path.display()))?;
    }
    let shown = match &args.output {
        Format::Nagios => nagios::line(&conditions, &facts, &unjudged),
        format => show(&conditions, format, screen)?,
    };
    screen.write(&shown)?;
    if !unjudged.is_empty() && !matches!(args.output, Format::Nagios) {
        screen.note(&format!("unknown: {}", text::printable(&unjudged.join("; "))));
    }
    let nothing = !unjudged.is_empty() || conditions.conditions.is_empty();
    let least = if nothing { Exit::CheckUnknown } else { Exit::Ok };
    Ok(worse(verdict(&conditions.conditions), least))
}

/// What was asked for by name and could not be judged, and why: who names a check wants a verdict, and its absence is
/// none. Where nobody named it, a check that does not apply here is in order.
fn unjudged(conditions: &NodeConditions, only: &[Check]) -> Vec<String> {
    let judged =
        |check: &Check| conditions.conditions.iter().any(|c| c.condition_type.check_of(&c.subject) == *check);
    let why = |check: &Check| match conditions.not_applicable.iter().find(|n| n.check == *check) {
        Some(found) => Some(format!("{check}: not applicable here: {}", found.reason)),
        None if conditions.conditions.is_empty() => Some(format!("{check}: nothing was found to judge")),
        None => None,
    };
    only.iter().filter(|check| !judged(check)).filter_map(why).collect()
}

/// The conditions of one node in this format.
pub(crate) fn show(conditions: &NodeConditions, format: &Format, screen: &Screen) -> anyhow::Result<String> {
    Ok(match format {
        Format::Json => document::json(conditions)?,
        Format::Yaml => document::yaml(conditions)?,
        Format::Name => names(conditions),
        Format::Wide => report::node(conditions, Layout::on(screen, true)),
        _ => report::node(conditions, Layout::on(screen, false)),
    })
}

/// The conditions by name, as `outrider get conditions -o name` prints them.
pub(crate) fn names(verdict: &NodeConditions) -> String {
    let object = format!("node/{}", verdict.node.name);
    let name = |c| Owned::new(object.clone(), verdict.node.simulated, c).path() + "\n";
    worst_first(&verdict.conditions).into_iter().map(name).collect()
}

/// The facts of this machine: of the daemon's last turn for a caller who may read less than the daemon, else of a pass
/// of our own. The daemon's carry its latches, so that judging them gives its verdict, hysteresis included.
pub(crate) async fn facts(args: &SensorArgs, screen: &mut Screen) -> anyhow::Result<NodeFacts> {
    read(args, false, screen).await
}

/// [`facts`]; where they are `to_judge`, what the judgement needs besides is read as well.
async fn read(args: &SensorArgs, to_judge: bool, screen: &mut Screen) -> anyhow::Result<NodeFacts> {
    let look = Look { config: args.config.clone(), only: args.only.clone(), to_judge };
    if nix::unistd::geteuid().is_root() || args.config.is_some() {
        return sense(&look, screen).await;
    }
    let answer = local::ask(Path::new(SOCKET), Ask::Facts).await;
    let facts = match answer {
        Ok(told) => document::typed::<NodeFacts>(&told)
            .map_err(|e| format!("the daemon's answer makes no sense to this version ({e})")),
        Err(error) => Err(chain(&error)),
    };
    match facts {
        Ok(mut facts) => {
            let age = text::age(now().since(facts.now));
            screen.note(&format!(
                "note: without root; this is what the daemon on this machine read and judged {age} ago"
            ));
            keep_only(&mut facts, &look.wanted());
            Ok(facts)
        }
        Err(why) => {
            screen.note(&format!("note: without root, and {why}; this is what your user may read itself"));
            sense(&look, screen).await
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
        credentials: checks.credentials.filter(|_| wanted(Check::Credentials)),
        kubernetes: checks.kubernetes.filter(|_| wanted(Check::Kubernetes)),
        dns: checks.dns.filter(|_| wanted(Check::Dns)),
        rancher_agent: checks.rancher_agent.filter(|_| wanted(Check::RancherAgent)),
        topology: checks.topology.filter(|_| wanted(Check::Topology)),
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

/// One pass over this machine.
async fn sense(look: &Look, screen: &mut Screen) -> anyhow::Result<NodeFacts> {
    let looked = screen.busy("Reading this machine", looking::look(look)).await?;
    looked.notes.iter().for_each(|note| screen.note(note));
    Ok(looked.facts)
}

/// The time by this machine's clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}
