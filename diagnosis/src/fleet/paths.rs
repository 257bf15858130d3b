//! `LoadBalancerReachable` over a cluster: the path matrix, node by balancer address by backend
//! (`facts/rancher-load-balancer.md`, 8; E11, E12).
//!
//! Each node reports what its tries came to; together they tell a backend that is down and still used (tries fail from
//! everywhere), a hairpin (about one try in as many as there are backends, and only from nodes that are backends), one
//! node's own route or firewall, and a network that is not let in. How grave it is hangs on failures alone, whose fault it is
//! on successes too: one more success never makes a verdict worse.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outrider_protocol::{
    BalancerPaths, Check, ConditionType, Fact, LoadBalancerFacts, NotApplicable, PathCell, PathColumn,
    PathMatrix, PathRow, PathTries, Probe, ProbeKind, ProbeTarget, ReasonCode as R, Severity, Status,
    Timestamp, UnknownCause,
};

use super::Member;
use crate::finding::{Finding, Judgement};
use crate::rules::load_balancer::{host_of, is_at_port, is_of_peer, used_ports, without_gaps};
use crate::wording::{Count, names};

mod whose;

const TYPE: ConditionType = ConditionType::LoadBalancerReachable;
/// Reports of one moment arrive one after another.
const RAISE: Duration = Duration::from_secs(10);
const CLEAR: Duration = Duration::from_secs(30);
/// An address that moved is seen by one node after another: until each has looked again, for which twice the time between
/// the looks of the one that looks least often is given, and no less than this.
const MOVED: Duration = Duration::from_secs(90);
const NAMED: usize = 7;
/// Most paths of one balancer that a report carries.
const MAX_PATHS: usize = 32;
/// Tries of one pass that tell a way that is cut off from one that is bad now and then.
const CUT_OFF: u32 = 3;
/// Failures that are no accident.
const FAILURES: u32 = 2;

/// What one pass of a node came to, by path.
pub fn paths_of(facts: &LoadBalancerFacts) -> BalancerPaths {
    let facts = &*without_gaps(facts);
    let mut paths: Vec<PathTries> = Vec::new();
    let at = facts.probes.iter().map(|p| p.at).max().unwrap_or(facts.addresses.at());
    let used = used_ports(facts);
    for probe in &facts.probes {
        let is_way_in = probe.target == ProbeTarget::Balancer;
        if is_way_in && !is_at_port(&probe.peer, facts.port) {
            continue;
        }
        if probe.target == ProbeTarget::Backend && !used.contains(probe.peer.as_str()) {
            continue;
        }
        // A PROXY protocol header is a question to what listens, and most must refuse it.
        if probe.kind == ProbeKind::ProxyPing {
            continue;
        }
        let Some(outcome) = outcome(probe) else { continue };
        let known = paths.iter().position(|p| p.target == probe.target && p.peer == probe.peer);
        let place = known.unwrap_or_else(|| {
            let (target, peer) = (probe.target.clone(), probe.peer.clone());
            let behind = facts.neighbours.iter().find(|n| is_way_in && n.address == host_of(&peer));
            let mac = behind.map(|n| n.mac.clone()).unwrap_or_default();
            paths.push(PathTries {
                target,
                peer,
                tries: 0,
                failed: 0,
                timed_out: 0,
                cause: None,
                down: false,
                mac,
            });
            paths.len() - 1
        });
        let Some(path) = paths.get_mut(place) else { continue };
        path.tries += 1;
        if let Err(cause) = outcome {
            path.failed += 1;
            path.timed_out += u32::from(cause == Some(&UnknownCause::TimedOut));
            path.cause = cause.cloned();
        }
    }
    paths.truncate(MAX_PATHS);
    paths.iter_mut().for_each(|path| path.down = path.tries >= CUT_OFF && path.failed == path.tries);
    let untried = match &facts.addresses {
        Fact::Unknown { cause, .. } => cause.to_string(),
        Fact::Absent { .. } => UnknownCause::NameNotResolved.to_string(),
        _ if paths.is_empty() => UnknownCause::NotYetRead.to_string(),
        _ => String::new(),
    };
    BalancerPaths {
        name: facts.name.clone(),
        host: facts.host.clone(),
        port: facts.port,
        at,
        every_seconds: None,
        untried,
        paths,
    }
}

/// What a try of a new connection came to; none for one that told nothing of the path.
fn outcome(probe: &Probe) -> Option<Result<(), Option<&UnknownCause>>> {
    fn failure<T>(fact: &Fact<T>) -> Option<&UnknownCause> {
        match fact {
            Fact::Unknown { cause, .. } => Some(cause),
            _ => None,
        }
    }
    let causes = [failure(&probe.tcp), failure(&probe.tls), failure(&probe.http)];
    if let Some(cause) = causes.into_iter().flatten().next() {
        return is_of_peer(cause).then_some(Err(Some(cause)));
    }
    // What went over the connection of the try before is no try of its own.
    probe.tcp.value()?;
    match probe.http.value() {
        Some(answer) if matches!(answer.status, 502..=504) => Some(Err(None)),
        _ => Some(Ok(())),
    }
}

/// Adds a finding a balancer, or why there is none.
pub(super) fn add(out: &mut Judgement, members: &[Member<'_>], now: Timestamp) {
    let balancers = Balancer::of(members);
    if balancers.is_empty() {
        out.not_applicable.push(NotApplicable {
            check: Check::LoadBalancer,
            reason: "no node of the cluster tries a load balancer".to_owned(),
        });
    }
    out.findings.extend(balancers.iter().map(|b| judge(b, now).subject(b.subject.clone())));
}

/// The same as data.
pub fn matrices(members: &[Member<'_>]) -> Vec<PathMatrix> {
    Balancer::of(members).iter().map(Balancer::matrix).collect()
}

/// Tries that came through, and that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    good: u32,
    failed: u32,
    timed_out: u32,
}

impl Tally {
    fn add(&mut self, tries: &PathTries) {
        let failed = tries.failed.min(tries.tries);
        self.good = self.good.saturating_add(tries.tries - failed);
        self.failed = self.failed.saturating_add(failed);
        self.timed_out = self.timed_out.saturating_add(tries.timed_out.min(failed));
    }

    fn tries(&self) -> u32 {
        self.good.saturating_add(self.failed)
    }

    fn sum<'a>(all: impl IntoIterator<Item = &'a Tally>) -> Tally {
        all.into_iter().fold(Tally::default(), |sum, t| Tally {
            good: sum.good.saturating_add(t.good),
            failed: sum.failed.saturating_add(t.failed),
            timed_out: sum.timed_out.saturating_add(t.timed_out),
        })
    }

    /// Nothing came through, and that is no accident.
    fn is_dead(&self) -> bool {
        self.good == 0 && self.failed >= FAILURES
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} tries failed", self.failed, self.tries())
    }
}

/// One node's tries.
struct Row<'a> {
    node: &'a str,
    at: Timestamp,
    /// Between two looks; where the node does not tell, the age of its last.
    every: Option<Duration>,
    /// One of the backends has its address.
    is_target: bool,
    /// The network it stands in; empty when unknown.
    network: String,
    /// By address of the balancer.
    through: BTreeMap<&'a str, Tally>,
    /// By backend, whatever the port.
    behind: BTreeMap<&'a str, Tally>,
    paths: &'a [PathTries],
    addresses: &'a [String],
}

impl Row<'_> {
    fn has_address(&self, host: &str) -> bool {
        self.addresses.iter().any(|address| plain(address) == host)
    }

    fn all(&self) -> Tally {
        Tally::sum(self.through.values())
    }

    /// Nothing comes through: in no pass that is remembered, or now, whatever came through before.
    fn is_cut_off(&self) -> bool {
        let mut through = self.paths.iter().filter(|t| t.target == ProbeTarget::Balancer).peekable();
        self.all().good == 0 || (through.peek().is_some() && through.all(|t| t.down))
    }
}

/// One balancer with the tries of every node.
struct Balancer<'a> {
    subject: String,
    name: &'a str,
    host: &'a str,
    port: u16,
    /// Nodes that are heard and told of tries, by name.
    rows: Vec<Row<'a>>,
    /// Nodes that try it and do not count, with why.
    quiet: Vec<String>,
    /// Backends that anybody tried.
    backends: BTreeSet<&'a str>,
}

impl<'a> Balancer<'a> {
    fn of(members: &[Member<'a>]) -> Vec<Self> {
        let mut sorted: Vec<&Member<'a>> = members.iter().collect();
        sorted.sort_by_key(|m| m.name);
        let mut all: Vec<Self> = Vec::new();
        for m in sorted {
            for paths in m.paths {
                let known = all.iter().position(|b| b.host == paths.host && b.port == paths.port);
                let place = known.unwrap_or_else(|| {
                    all.push(Self {
                        subject: String::new(),
                        name: &paths.name,
                        host: &paths.host,
                        port: paths.port,
                        rows: Vec::new(),
                        quiet: Vec::new(),
                        backends: BTreeSet::new(),
                    });
                    all.len() - 1
                });
                if let Some(balancer) = all.get_mut(place) {
                    balancer.take(m, paths);
                }
            }
        }
        for balancer in &mut all {
            balancer.mark_targets();
        }
        let counted: Vec<&str> = all.iter().map(|b| b.name).collect();
        let is_one = |name: &str| counted.iter().filter(|other| **other == name).count() == 1;
        for (balancer, name) in all.iter_mut().zip(&counted) {
            balancer.subject = if is_one(name) && !name.is_empty() {
                (*name).to_owned()
            } else {
                format!("{} ({}:{})", balancer.name, balancer.host, balancer.port)
            };
        }
        all
    }

    fn take(&mut self, m: &Member<'a>, paths: &'a BalancerPaths) {
        let backends = paths.paths.iter().filter(|p| p.target == ProbeTarget::Backend);
        self.backends.extend(backends.map(|p| p.peer.as_str()));
        if m.ready != Status::True {
            self.quiet.push(format!("{} (silent)", m.name));
            return;
        }
        let mut row = Row {
            node: m.name,
            at: paths.at,
            every: paths.every_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            is_target: false,
            network: network_of(m.addresses).unwrap_or_default(),
            through: BTreeMap::new(),
            behind: BTreeMap::new(),
            paths: &paths.paths,
            addresses: m.addresses,
        };
        for tries in &paths.paths {
            // Two backends may be two ports of one host.
            match tries.target {
                ProbeTarget::Balancer => row.through.entry(host_of(&tries.peer)).or_default().add(tries),
                _ => row.behind.entry(&tries.peer).or_default().add(tries),
            }
        }
        let told = row.all().tries() > 0;
        if !paths.untried.is_empty() || !told {
            let why = if paths.untried.is_empty() { "no tries" } else { &paths.untried };
            self.quiet.push(format!("{} ({why})", m.name));
        }
        if told || !row.behind.is_empty() {
            self.rows.push(row);
        }
    }

    fn mark_targets(&mut self) {
        for row in &mut self.rows {
            row.is_target = self.backends.iter().any(|backend| row.has_address(host_of(backend)));
        }
    }

    /// Tries through the balancer, of all nodes.
    fn all(&self) -> Tally {
        let each: Vec<Tally> = self.rows.iter().map(Row::all).collect();
        Tally::sum(&each)
    }

    /// Tries of all nodes at one backend.
    fn at_backend(&self, backend: &str) -> Tally {
        Tally::sum(self.rows.iter().filter_map(|row| row.behind.get(backend)))
    }

    /// Backends at which no try of anybody came through.
    fn dead(&self) -> Vec<&'a str> {
        self.backends.iter().copied().filter(|b| self.at_backend(b).is_dead()).collect()
    }

    fn matrix(&self) -> PathMatrix {
        let node_at = |host: &str| {
            let of = self.rows.iter().find(|row| row.has_address(host));
            of.map_or_else(String::new, |row| row.node.to_owned())
        };
        let mut columns: Vec<PathColumn> = Vec::new();
        for tries in self.rows.iter().flat_map(|row| row.paths) {
            let is_known = columns.iter().any(|c| c.target == tries.target && c.peer == tries.peer);
            if !is_known {
                let node = if tries.target == ProbeTarget::Backend {
                    node_at(host_of(&tries.peer))
                } else {
                    String::new()
                };
                columns.push(PathColumn { target: tries.target.clone(), peer: tries.peer.clone(), node });
            }
        }
        columns.sort();
        let rows = self.rows.iter().map(|row| PathRow {
            node: row.node.to_owned(),
            at: row.at,
            is_target: row.is_target,
            network: row.network.clone(),
            cells: columns.iter().map(|column| cell(row, column)).collect(),
        });
        let rows = rows.collect();
        PathMatrix {
            balancer: self.subject.clone(),
            host: self.host.to_owned(),
            port: self.port,
            columns,
            rows,
        }
    }
}

fn cell(row: &Row<'_>, column: &PathColumn) -> PathCell {
    let mut tally = Tally::default();
    for tries in row.paths.iter().filter(|t| t.target == column.target && t.peer == column.peer) {
        tally.add(tries);
    }
    let reached = match (tally.tries(), tally.failed) {
        (0, _) => Status::Unknown,
        (_, 0) => Status::True,
        _ => Status::False,
    };
    PathCell { reached, tries: tally.tries(), failed: tally.failed }
}

/// An address without its prefix length.
fn plain(address: &str) -> &str {
    address.split('/').next().unwrap_or(address)
}

/// The network of the first address that tells one: IPv4 before IPv6, link-local ones never.
fn network_of(addresses: &[String]) -> Option<String> {
    let parsed: Vec<(IpAddr, u32)> = addresses
        .iter()
        .filter_map(|text| {
            let (ip, prefix) = text.split_once('/')?;
            Some((ip.parse().ok()?, prefix.parse().ok()?))
        })
        .collect();
    let v4 = parsed.iter().find_map(|(ip, prefix)| match ip {
        IpAddr::V4(ip) if *prefix <= 32 && !ip.is_link_local() => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            Some(format!("{}/{prefix}", Ipv4Addr::from(u32::from(*ip) & mask)))
        }
        _ => None,
    });
    v4.or_else(|| {
        parsed.iter().find_map(|(ip, prefix)| match ip {
            IpAddr::V6(ip) if *prefix <= 128 && (ip.segments()[0] & 0xffc0) != 0xfe80 => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                Some(format!("{}/{prefix}", Ipv6Addr::from(u128::from(*ip) & mask)))
            }
            _ => None,
        })
    })
}

fn judge(b: &Balancer<'_>, now: Timestamp) -> Finding {
    let finding = |status, severity, reason, message: String| {
        Finding::new(TYPE, status, severity, reason, now, message).waits(RAISE, CLEAR)
    };
    let all = b.all();
    let quiet = match b.quiet.as_slice() {
        [] => String::new(),
        some => format!(" Not counted: {}.", names(some, NAMED)),
    };
    if all.failed >= FAILURES {
        let whose = whose::judge(b);
        let message = format!("{}{quiet}", whose.message);
        return finding(Status::False, Severity::Error, whose.reason, message).advice(whose.advice);
    }
    let dead = b.dead();
    if !dead.is_empty() && all.good > 0 {
        let message = format!(
            "{} no try, from whatever node; the balancer at {} leaves {} out: {} of {} tries through it came through.{quiet}",
            if dead.len() == 1 {
                format!("The backend {} answers", dead[0])
            } else {
                format!("The backends {} answer", names(&dead, NAMED))
            },
            b.host,
            if dead.len() == 1 { "it" } else { "them" },
            all.good,
            all.tries()
        );
        return finding(Status::True, Severity::Warn, R::BackendDown, message).advice(
            "Repair the backend that is named: each that is left carries more, and the next loss is felt.",
        );
    }
    if all.good == 0 {
        let message = match all.failed {
            0 => format!("No try at {} has told anything yet.{quiet}", b.host),
            _ => format!(
                "One try at {} was made that told anything, and it failed: too few to say more.{quiet}",
                b.host
            ),
        };
        return finding(Status::Unknown, Severity::Info, R::PathsUntried, message);
    }
    if let Some(split) = split(b) {
        let message = format!(
            "Nodes of one network are answered by different machines {split}. {} of {} tries came through.{quiet}",
            all.good,
            all.tries()
        );
        let every = b.rows.iter().map(|row| row.every.unwrap_or_else(|| now.since(row.at))).max();
        let until_all_looked = MOVED.max(every.unwrap_or_default() * 2);
        let finding = finding(Status::True, Severity::Warn, R::BalancerContested, message);
        return finding.waits(until_all_looked, CLEAR).advice(
            "Two balancers hold one address: see whether they hear each other's VRRP (protocol 112, or keepalived's \
             unicast_peer); ip address on both shows who holds it. A bond in mode balance-alb looks the same, and is none.",
        );
    }
    let message = format!(
        "{} of {} tries at {} from {} came through{}.{quiet}",
        all.good,
        all.tries(),
        b.host,
        Count(b.rows.len(), "node"),
        if all.failed == 0 { "" } else { "; one failure is no news" }
    );
    let severity = if all.failed == 0 && b.quiet.is_empty() { Severity::Ok } else { Severity::Info };
    finding(Status::True, severity, R::PathsWork, message)
}

/// An address of the balancer for which different machines answer nodes of one network: where, and who is answered by
/// which.
fn split(b: &Balancer<'_>) -> Option<String> {
    let mut behind: BTreeMap<(&str, &str), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for row in b.rows.iter().filter(|row| !row.network.is_empty()) {
        for tries in row.paths.iter().filter(|t| t.target == ProbeTarget::Balancer && !t.mac.is_empty()) {
            let of = behind.entry((host_of(&tries.peer), &row.network)).or_default();
            of.entry(&tries.mac).or_default().push(row.node);
        }
    }
    let ((address, _), machines) = behind.into_iter().find(|(_, machines)| machines.len() > 1)?;
    let each = machines.iter().map(|(mac, nodes)| format!("{mac} ({})", names(nodes, NAMED)));
    Some(format!("at {address}: {}", names(each, NAMED)))
}
