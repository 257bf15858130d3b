//! `ProxySettingsValid`: the proxy variables of Rancher's programs, a subject a program (`facts/rancher-load-balancer.md`, F3
//! to F6).
//!
//! Two readings of `NO_PROXY` are in use: that of Go (Rancher, Kubernetes, rancher-system-agent) and the plain one of wget,
//! Python and older curl. What is reached without the proxy under both is safe; where they differ for a server, that is said.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, DirectKind, Fact, NodeFacts, ProxyEnvironment, ProxyReading, ProxyVariable,
    RancherAgentFacts, ReasonCode as R, Severity, Status, Timestamp,
};

use crate::candidate::{Candidate, worst};
use crate::finding::Judgement;
use crate::rules::dns::is_private;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::ProxySettingsValid;
const CLEAR: Duration = Duration::from_secs(30);
/// Things named in a message.
const QUOTED: usize = 5;

pub(super) fn judge(out: &mut Judgement, rancher: &RancherAgentFacts, at: Timestamp, facts: &NodeFacts) {
    let noteworthy = |e: &&ProxyEnvironment| !is_bare(e);
    let mut all: Vec<&ProxyEnvironment> = rancher.proxies.iter().filter(noteworthy).collect();
    // One row says that there is nothing to say.
    if all.is_empty() {
        all.extend(rancher.proxies.iter().find(|e| e.program != "outrider").or(rancher.proxies.first()));
    }
    for environment in all {
        let candidates = candidates(environment, facts);
        out.findings.extend(worst(TYPE, environment.program.clone(), at, CLEAR, candidates));
    }
}

/// No variable, and nothing that should be one.
fn is_bare(e: &ProxyEnvironment) -> bool {
    e.ignored.is_empty() && matches!(&e.variables, Fact::Known { value, .. } if value.is_empty())
}

fn candidates(e: &ProxyEnvironment, facts: &NodeFacts) -> Vec<Candidate> {
    let mut all = Vec::new();
    let variables = match &e.variables {
        Fact::Known { value, .. } => value.as_slice(),
        Fact::Unknown { cause, detail, source, .. } => {
            let message = format!(
                "The environment of {} could not be read ({source}): {}.",
                e.program,
                detail.trim_end_matches('.')
            );
            let unread = Candidate::new(Status::Unknown, Severity::Info, R::from(cause), message);
            return vec![unread.advice("Let the root helper read it, or run this check as root.")];
        }
        _ => &[],
    };
    all.extend(not_in_effect(e));
    all.extend(unusable(e, variables));
    all.extend(two_spellings(e, variables));
    all.extend(ambiguous(e));
    all.extend(incomplete(e, facts));
    all.push(good(e, variables));
    all
}

fn not_in_effect(e: &ProxyEnvironment) -> Vec<Candidate> {
    let mut all = Vec::new();
    if !e.newer_files.is_empty() {
        let message = format!(
            "{} was started before {} was written: the process does not have what is in there now.",
            e.program,
            names(&e.newer_files, QUOTED)
        );
        all.push(Candidate::fault(Severity::Warn, R::ProxyNotInEffect, message).advice(format!(
            "If the change is meant, restart {} at a time of your choice; an installer of rancher-system-agent overwrites its \
             file, so keep settings of your own in a drop-in of the unit.",
            e.program
        )));
    }
    if !e.ignored.is_empty() {
        let message =
            format!("systemd does not take these lines for {}: {}.", e.program, names(&e.ignored, QUOTED));
        all.push(
            Candidate::fault(Severity::Warn, R::ProxyNotInEffect, message).advice(
                "Write NAME=value without `export`: an environment file of systemd is no shell script.",
            ),
        );
    }
    all
}

fn unusable(e: &ProxyEnvironment, variables: &[ProxyVariable]) -> Vec<Candidate> {
    let bad = variables.iter().filter(|v| !v.problem.is_empty());
    bad.map(|v| {
        if v.name.eq_ignore_ascii_case("no_proxy") {
            let message = format!("In {} of {} ({}), {}.", v.name, e.program, v.source, v.problem);
            return Candidate::fault(Severity::Warn, R::NoProxyAmbiguous, message)
                .advice("Set entries apart by commas, and write names, addresses or CIDRs.");
        }
        let severity =
            if v.name.eq_ignore_ascii_case("all_proxy") { Severity::Warn } else { Severity::Error };
        let message = format!(
            "{} of {} ({}) cannot be used: {}.",
            v.name,
            e.program,
            v.source,
            v.problem.trim_end_matches('.')
        );
        Candidate::fault(severity, R::ProxyUnusable, message)
            .advice("Write http://HOST:PORT; characters such as @, / or # in a password are percent-encoded.")
    })
    .collect()
}

/// `HTTP_PROXY` and `http_proxy` that differ: Go takes capitals first, curl small letters.
fn two_spellings(e: &ProxyEnvironment, variables: &[ProxyVariable]) -> Option<Candidate> {
    let pairs = variables.iter().filter_map(|upper| {
        let is_upper = upper.name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        let lower = variables.iter().find(|v| is_upper && v.name == upper.name.to_ascii_lowercase())?;
        (lower.value != upper.value).then(|| format!("{} and {}", upper.name, lower.name))
    });
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() {
        return None;
    }
    let message = format!(
        "{} of {} differ: Go's programs take the one in capitals, curl the other.",
        names(&pairs, QUOTED),
        e.program
    );
    Some(Candidate::fault(Severity::Warn, R::NoProxyAmbiguous, message).advice("Give both the same value."))
}

fn title(r: &ProxyReading) -> String {
    format!("{} ({})", r.host, r.what)
}

fn ambiguous(e: &ProxyEnvironment) -> Option<Candidate> {
    let differ: Vec<&ProxyReading> =
        e.readings.iter().filter(|r| r.kind == DirectKind::Server && r.go != r.plain).collect();
    let first = differ.first()?;
    let (direct, proxied) = if first.go {
        ("Go's programs (Rancher, Kubernetes) go straight", "wget, Python and older curl through the proxy")
    } else {
        ("wget, Python and older curl go straight", "Go's programs (Rancher, Kubernetes) through the proxy")
    };
    let message = format!(
        "Programs read NO_PROXY of {} differently for {}: {direct}, {proxied}.",
        e.program,
        names(differ.iter().map(|r| title(r)), QUOTED)
    );
    Some(Candidate::fault(Severity::Warn, R::NoProxyAmbiguous, message).advice(format!(
        "Add the whole name ({}) as an entry of its own, after a comma: every program reads that alike. `*.name`, CIDRs, ports \
         and spaces are read differently.",
        first.host
    )))
}

fn incomplete(e: &ProxyEnvironment, facts: &NodeFacts) -> Vec<Candidate> {
    let missing = |kind: &DirectKind| -> Vec<&ProxyReading> {
        e.readings.iter().filter(|r| r.kind == *kind && !r.go && !r.plain).collect()
    };
    let mut all = Vec::new();
    let inner: Vec<&ProxyReading> =
        [DirectKind::Node, DirectKind::Network, DirectKind::Service].iter().flat_map(missing).collect();
    if !inner.is_empty() {
        let message = format!(
            "NO_PROXY of {} leaves out {}: traffic inside of the cluster goes to the proxy.",
            e.program,
            names(inner.iter().map(|r| title(r)), QUOTED)
        );
        all.push(Candidate::fault(Severity::Warn, R::NoProxyIncomplete, message).advice(format!(
            "Add to NO_PROXY, set apart by commas: {}. Then restart the program at a time of your choice.",
            names(inner.iter().map(|r| r.host.as_str()), 12)
        )));
    }
    let servers = missing(&DirectKind::Server);
    if let Some(first) = servers.first() {
        let inside: Vec<&&ProxyReading> = servers.iter().filter(|r| leads_inside(facts, &r.host)).collect();
        let (severity, why) = if inside.is_empty() {
            (Severity::Info, " That is right if the proxy is the way there.")
        } else {
            (Severity::Warn, " Its addresses are private: the proxy may not reach them at all.")
        };
        let message = format!(
            "{} reaches {} through the proxy.{why}",
            e.program,
            names(servers.iter().map(|r| title(r)), QUOTED)
        );
        all.push(Candidate::fault(severity, R::NoProxyIncomplete, message).advice(format!(
            "If it should go straight, add {} to NO_PROXY: a CIDR does not cover a name, whatever that resolves to.",
            first.host
        )));
    }
    all
}

/// Whether the host is, or resolves to, private addresses only.
fn leads_inside(facts: &NodeFacts, host: &str) -> bool {
    if host.parse::<u8>().is_err() && is_private(host) {
        return true;
    }
    let dns = facts.checks.dns.as_ref().and_then(Fact::value);
    let name = dns.and_then(|dns| dns.names.iter().find(|n| n.name == host));
    let addresses = name.and_then(|n| n.host.value()).map_or(&[][..], |h| h.addresses.as_slice());
    !addresses.is_empty() && addresses.iter().all(|ip| is_private(ip))
}

fn good(e: &ProxyEnvironment, variables: &[ProxyVariable]) -> Candidate {
    let ok = |message| Candidate::new(Status::True, Severity::Ok, R::ProxyFits, message);
    let set: Vec<String> = variables
        .iter()
        .filter(|v| !v.name.eq_ignore_ascii_case("no_proxy") && !v.value.trim().is_empty())
        .map(|v| format!("{} {}{}", v.name, v.value, if v.credentials { " (with credentials)" } else { "" }))
        .collect();
    if set.is_empty() {
        return ok(format!("No proxy is set for {}.", e.program));
    }
    let from = if e.read_from.as_str() == "process" { "the running process" } else { "its unit" };
    let direct = e.readings.iter().filter(|r| r.go && r.plain).count();
    let around = match e.readings.len() {
        0 => String::new(),
        all => format!(
            "; {direct} of {all} things that should be reached without it are, under both readings of NO_PROXY"
        ),
    };
    ok(format!("{} uses {} (read from {from}){around}.", e.program, names(&set, 4)))
}
