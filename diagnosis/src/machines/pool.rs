//! `PoolComplete` and `PoolStable`: whether a node pool has the machines that Rancher wants, and whether they stay.
//!
//! An image without guest agent shows no address: Rancher's driver waits ten minutes for one, deletes the machine and makes
//! another, for ever (`facts/guest-agent.md`, section 3: A2). Each machine alone looks like one that is starting; only their
//! succession tells.

use std::time::Duration;

use outrider_protocol::{ConditionType, Departure, ReasonCode as R, Severity, Status, Timestamp};

use crate::finding::{Finding, Judgement};
use crate::wording::{Count, Span, names};

/// Replacements are counted over so long.
pub const POOL_WINDOW: Duration = Duration::from_secs(3600);
/// So many machines that went without a word are no accident.
const IN_VAIN: usize = 2;
/// A machine that is made anew and installs itself may take so long.
const MAKING: Duration = Duration::from_secs(900);
/// With no machine left, so much is enough.
const MAKING_THE_FIRST: Duration = Duration::from_secs(1800);
const NAMED: usize = 5;

/// One pool with all that is known of it.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    /// Machines that Rancher wants.
    pub wanted: PoolWanted<'a>,
    /// VMs that exist.
    pub present: usize,
    /// Of these, those that are being deleted.
    pub deleting: usize,
    /// Of these, those whose node is heard.
    pub reporting: usize,
    /// Since when fewer are there, or report, than are wanted.
    pub short_since: Option<Timestamp>,
    /// Machines that went, or go.
    pub departures: &'a [Departure],
    /// When the newest of those that report was first seen; `None` where all were there when the coordinator first looked.
    pub newest_reporting: Option<Timestamp>,
    /// Since when the pool is watched.
    pub watched_since: Timestamp,
}

/// How many machines are wanted.
#[derive(Clone, Debug)]
pub enum PoolWanted<'a> {
    /// Nobody reads what Rancher wants.
    NotRead,
    /// It is read and this is not known of it, for the reason.
    Unknown(&'a str),
    /// So many.
    Known(u32),
}

impl Pool<'_> {
    /// Whether fewer are there, or report, than are wanted.
    pub fn is_short(&self) -> bool {
        let stay = self.present.saturating_sub(self.deleting);
        matches!(self.wanted, PoolWanted::Known(n) if stay.min(self.reporting) < n as usize)
    }
}

/// The conditions of one pool: `PoolStable`, and `PoolComplete` where what Rancher wants is read. `now` is the coordinator's
/// clock.
pub fn judge_pool(pool: &Pool<'_>, now: Timestamp) -> Judgement {
    let mut out = Judgement::default();
    out.findings.extend(complete(pool, now));
    out.findings.push(stable(pool, now));
    out.sorted()
}

/// Machines that went within the last hour and in whose place another began.
pub fn replaced(departures: &[Departure], now: Timestamp) -> impl Iterator<Item = &Departure> {
    departures
        .iter()
        .filter(move |gone| !gone.replaced_by.is_empty() && now.since(gone.leaving_since) < POOL_WINDOW)
}

fn complete(pool: &Pool<'_>, now: Timestamp) -> Option<Finding> {
    let new = |status, severity, reason, message: String| {
        Finding::new(ConditionType::PoolComplete, status, severity, reason, now, message)
    };
    let going = if pool.deleting > 0 { format!(" ({} being deleted)", pool.deleting) } else { String::new() };
    let there = format!("{} present{going}, {} reporting", pool.present, pool.reporting);
    let wanted = match pool.wanted {
        PoolWanted::NotRead => return None,
        PoolWanted::Unknown(why) => {
            let message = format!("How many machines are wanted is not known: {why}; {there}.");
            let finding = new(Status::Unknown, Severity::Info, R::PoolWantedUnknown, message);
            return Some(finding.waits(crate::finding::UNKNOWN_AFTER, Duration::ZERO));
        }
        PoolWanted::Known(wanted) => wanted,
    };
    let (many, stay) = (wanted as usize, pool.present.saturating_sub(pool.deleting));
    if pool.is_short() {
        let since = pool.short_since.unwrap_or(now);
        let short = now.since(since);
        let severity = match () {
            () if pool.reporting == 0 && short >= MAKING_THE_FIRST => Severity::Error,
            () if short >= MAKING => Severity::Warn,
            () => Severity::Info,
        };
        let message = format!("{wanted} wanted, {there}; short for {}.", Span(short));
        let advice = if stay < many {
            "Rancher has yet to make the missing machines: see the cluster's Machines in Rancher and the events there (no room at \
             Harvester, a quota, an image that is gone and a cloud credential that has ended are the usual causes), and PoolStable \
             for machines that are made and deleted again."
        } else {
            "The machines are there and not all of their nodes report: outrider get machines says of each how long it has been up \
             and what keeps it."
        };
        return Some(new(Status::False, severity, R::PoolShort, message).advice(advice));
    }
    if stay > many {
        let message =
            format!("{wanted} wanted, {there}: more than are wanted, as while a pool is rolled or shrunk.");
        return Some(new(Status::True, Severity::Info, R::PoolSurplus, message));
    }
    let message = format!("{wanted} wanted, {there}.");
    Some(new(Status::True, Severity::Ok, R::PoolFull, message))
}

fn stable(pool: &Pool<'_>, now: Timestamp) -> Finding {
    let new = |status, severity, reason, message: String| {
        Finding::new(ConditionType::PoolStable, status, severity, reason, now, message)
    };
    let watched = now.since(pool.watched_since).min(POOL_WINDOW);
    let of_late = if watched < POOL_WINDOW {
        format!("in the {} it has been watched", Span(watched))
    } else {
        "within the last hour".to_owned()
    };
    let all: Vec<&Departure> = replaced(pool.departures, now).collect();
    // One that began after them and reports has broken the circle.
    let is_later = |gone: &&&Departure| pool.newest_reporting.is_none_or(|born| gone.leaving_since > born);
    let in_vain: Vec<&Departure> =
        all.iter().filter(|gone| !gone.reported).filter(is_later).copied().collect();
    if in_vain.len() >= IN_VAIN {
        return looping(&in_vain, all.len(), &of_late, now);
    }
    if all.is_empty() {
        let message = format!("No machine of the pool was replaced {of_late}.");
        return new(Status::True, Severity::Ok, R::PoolSteady, message);
    }
    let mute = all.iter().filter(|gone| !gone.reported).count();
    let message = format!(
        "{} {} replaced {of_late}, {mute} of which never reported: {}.",
        Count(all.len(), "machine"),
        if all.len() == 1 { "was" } else { "were" },
        names(all.iter().map(|gone| format!("{} by {}", gone.machine, gone.replaced_by)), NAMED)
    );
    new(Status::True, Severity::Info, R::PoolRolling, message)
}

/// Machines that are deleted before they ever report, again and again.
fn looping(in_vain: &[&Departure], replaced: usize, of_late: &str, now: Timestamp) -> Finding {
    let lived = |gone: &&Departure| gone.created_at.map(|made| gone.leaving_since.since(made));
    let lives: Vec<Duration> = in_vain.iter().filter_map(lived).collect();
    let lives = match (lives.iter().min(), lives.iter().max()) {
        (Some(least), Some(most)) if least == most => format!(", each after {}", Span(*least)),
        (Some(least), Some(most)) => format!(", after {} to {}", Span(*least), Span(*most)),
        _ => String::new(),
    };
    let (agents, addresses) = (
        in_vain.iter().filter(|gone| gone.agent_connected).count(),
        in_vain.iter().filter(|gone| gone.had_address).count(),
    );
    let last = in_vain.iter().map(|gone| gone.leaving_since).max().unwrap_or(now);
    let message = format!(
        "{} of {replaced} machines replaced {of_late} never reported and were deleted{lives}, the last {} ago: {}. Of these {agents} \
         had a guest agent connected and {addresses} showed an address.",
        in_vain.len(),
        Span(now.since(last)),
        names(in_vain.iter().rev().map(|gone| &*gone.machine), NAMED)
    );
    let advice = match (agents, addresses) {
        (0, 0) => {
            "Rancher's driver waits 10 min for an address, which Harvester shows by the guest agent alone; without one it deletes the \
             machine and makes another. Install qemu-guest-agent in the image or by the pool's userdata, and make sure that the image \
             has cloud-init. To look at one, scale the pool to 0 and start a VM of the same image by hand."
        }
        (_, 0) => {
            "The guest agent runs and no address was seen at its interfaces: see DHCP, the VM network and its VLAN, and the pool's \
             network configuration. Without an IPv4 address within 10 min Rancher's driver deletes the machine and makes another."
        }
        _ => {
            "These machines had a network and never became nodes: see that the pool's userdata installs outrider-agent with a token \
             that still opens, that it joins the cluster, and in Rancher why it deletes them (provisioning log of the cluster)."
        }
    };
    Finding::new(
        ConditionType::PoolStable,
        Status::False,
        Severity::Warn,
        R::PoolReplacedInVain,
        now,
        message,
    )
    .advice(advice)
}
