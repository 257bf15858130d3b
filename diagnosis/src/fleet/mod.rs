//! What only all members' reports tell together: quorum, split clusters, partitions, placement, versions, snapshots.
//!
//! A node that is heard stands by its last report: nodes report by change, so an old reading of a node that is still
//! heard is a reading that has not changed. A node that is silent says nothing, however fresh its last report looks, for
//! its clock may be ahead. Where reports contradict each other about a member, the newest reading of the member itself
//! counts, and while a loss is too young to be confirmed by silence the member is unknown: suspicion first, certainty
//! later.
//!
//! [`judge_cluster`] yields the verdict, [`picture`] the same as data: members, numbers, and who sees whom. Both begin
//! with one [`Joined`], in which everything is in the order of names, so that the order of reports changes nothing.

mod join;
mod learners;
mod membership;
mod neighbours;
mod one_way;
mod paths;
mod picture;
mod reports;
mod snapshots;
mod topology;
mod trim;
mod versions;

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{
    Check, ConditionType, Fact, NotApplicable, ReasonCode as R, Severity, Status, Timestamp, UnknownCause,
};

pub use paths::{matrices, paths_of};
pub use picture::picture;
use reports::{Joined, Quiet, View};
pub use reports::{Member, Received};
pub use trim::trim;

use crate::finding::{Finding, Judgement};
use crate::rules::etcd::quorum;
use crate::rules::etcd::view::{is_silent, without_bad_list};
use crate::wording::{Count, names};

const NAMED: usize = 7;
/// A voter less is shown without alarm as soon as it has held for so long; as grave as it is once it has lasted.
const REDUCED_SHOWN: Duration = Duration::from_secs(3);

/// The conditions over the whole cluster `cluster`, whose name is their subject: `EtcdQuorum`, `EtcdMembership`,
/// `EtcdVersions`, `NodePortsReachable` and, where anybody looks for them, `EtcdSnapshots`; and `LoadBalancerReachable`,
/// whose subject is the balancer.
///
/// Nothing applies to a cluster none of whose nodes has etcd. `now` is the coordinator's clock.
pub fn judge_cluster(cluster: &str, members: &[Member<'_>], now: Timestamp) -> Judgement {
    let mut out = judge_etcd(cluster, members, now);
    // Whether anybody reaches a machine that was deleted is no question.
    let living: Vec<Member<'_>> = members.iter().filter(|m| m.retired_as().is_none()).copied().collect();
    neighbours::add(&mut out, cluster, &living, now);
    paths::add(&mut out, &living, now);
    out.sorted()
}

/// Nodes whose word is in doubt: their members were lost by two other nodes at least, after what they said last.
pub fn unreached<'a>(members: &'a [Member<'a>], now: Timestamp) -> Vec<&'a str> {
    join::unreached(&Joined::of(members, now))
}

fn judge_etcd(cluster: &str, members: &[Member<'_>], now: Timestamp) -> Judgement {
    let mut out = Judgement::default();
    let joined = Joined::of(members, now);
    if joined.is_empty() {
        out.not_applicable.push(NotApplicable {
            check: Check::Etcd,
            reason: format!("none of {} runs etcd that Outrider can see", Count(members.len(), "node")),
        });
        return out;
    }
    let findings = if joined.group.is_empty() { no_views(&joined) } else { judge_views(&joined) };
    out.findings.extend(findings.into_iter().map(|f| f.subject(cluster)));
    out.sorted()
}

/// Nobody knows: both conditions stay in sight as unknown.
fn unknown(severity: Severity, reason: R, at: Timestamp, message: &str, advice: &str) -> Vec<Finding> {
    let types = [ConditionType::EtcdQuorum, ConditionType::EtcdMembership];
    let finding = |t| Finding::new(t, Status::Unknown, severity, reason.clone(), at, message).advice(advice);
    types.into_iter().map(finding).collect()
}

/// The quorum of the clusters that as many nodes belong to as to the judged one: nobody is the minority, so each is told,
/// and the worst decides.
fn with_equals(joined: &Joined<'_>, quorum: Finding) -> Finding {
    let mut nodes: BTreeMap<&str, Vec<Member<'_>>> = BTreeMap::new();
    for v in &joined.others {
        nodes.entry(v.cluster_id).or_default().extend(joined.node(v.node).copied());
    }
    let told = joined.group.iter().filter(|v| !v.cluster_id.is_empty()).count();
    let mut first = quorum;
    let mut equals = Vec::new();
    for equal in nodes.values().filter(|nodes| nodes.len() == told) {
        let other = Joined::of(equal, joined.now);
        if let Some(list) = other.list.as_deref() {
            let mut finding = quorum::judge(&other.tally(list), joined.at);
            finding.message = format!("In cluster {}: {}", list.cluster_id, finding.message);
            equals.push(finding);
        }
    }
    for mut other in equals {
        if (other.severity, other.status == Status::False) > (first.severity, first.status == Status::False) {
            std::mem::swap(&mut first, &mut other);
            let judged = joined.list.as_deref().map_or("", |list| list.cluster_id.as_str());
            if !other.message.contains(judged) {
                other.message = format!("In cluster {judged}: {}", other.message);
            }
        }
        first.message = format!("{} {}", first.message, other.message);
        // Nothing is added or taken away before it is known whose data counts.
        let is_of_size = matches!(other.reason, R::EtcdEvenVoters | R::EtcdSingleVoter);
        if other.severity >= Severity::Warn && !is_of_size && !first.advice.contains(&other.advice) {
            first.advice = format!("{} {}", first.advice, other.advice);
        }
    }
    first
}

fn no_views(joined: &Joined<'_>) -> Vec<Finding> {
    if let Some(unread) = unread(joined) {
        return unread;
    }
    let quiet = names(joined.quiet.iter().map(|q| format!("{} ({})", q.node, q.why)), NAMED);
    let message = format!(
        "What the cluster is like cannot be told: none of {} with etcd has reported lately: {quiet}.",
        Count(joined.quiet.len(), "node"),
    );
    let advice = format!(
        "See whether the nodes or only their agents are away: ask one of {} itself, then its outrider-agent.",
        names(joined.quiet.iter().map(|q| q.node), NAMED)
    );
    unknown(Severity::Error, R::EtcdViewsStale, joined.now, &message, &advice)
}

/// Nodes that report and whose agents could not read etcd; `None` where none does.
fn unread(joined: &Joined<'_>) -> Option<Vec<Finding>> {
    let (told, away): (Vec<&Quiet<'_>>, Vec<&Quiet<'_>>) =
        joined.quiet.iter().partition(|q| q.unread.is_some());
    let (_, first) = told.iter().find_map(|q| Some((q.node, q.unread?)))?;
    let whys = names(told.iter().map(|q| format!("{} ({})", q.node, q.words())), NAMED);
    let rest = match away.len() {
        0 => String::new(),
        n => format!(
            "; no report counts of {}: {}",
            Count(n, "more node"),
            names(away.iter().map(|q| format!("{} ({})", q.node, q.why)), NAMED)
        ),
    };
    let who = match (told.len(), away.len()) {
        (1, 0) => "the 1 node with etcd reports and could not read etcd".to_owned(),
        (n, 0) => format!("all {n} nodes with etcd report and none could read etcd"),
        (n, _) => format!("{} of {} with etcd report and none could read etcd", n, joined.quiet.len()),
    };
    let message = format!("What the cluster is like cannot be told: {who}: {whys}{rest}.");
    let nodes = names(told.iter().map(|q| q.node), NAMED);
    let advice = match first {
        UnknownCause::PermissionDenied => format!(
            "The agents of {nodes} may not read what the detail names. They have no rights of their own: outrider-helper opens root's \
             files for them (systemctl status outrider-helper.socket there). This says nothing of etcd itself."
        ),
        UnknownCause::NotYetRead => {
            format!("Wait: the agents of {nodes} have not read etcd yet since they started.")
        }
        UnknownCause::Unauthenticated | UnknownCause::Forbidden | UnknownCause::TlsFailed => format!(
            "See the client certificate and CA that the agents of {nodes} use (outrider check --only etcd,certificates there). \
             This says nothing of etcd itself."
        ),
        _ => format!(
            "Look on one of {nodes} (outrider check --only etcd): the nodes are there, and what failed is the reading."
        ),
    };
    Some(unknown(Severity::Error, R::EtcdVotersUnknown, joined.now, &message, &advice))
}

/// Reports that count, and none has a member list: who could not read it, and why.
fn no_list(joined: &Joined<'_>) -> Vec<Finding> {
    let reports = Count(joined.group.len(), "report");
    let mut why: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for view in &joined.group {
        let bad = without_bad_list(view.etcd);
        if let Fact::Unknown { cause, detail, .. } = &bad.as_ref().unwrap_or(view.etcd).members {
            let why = why.entry((cause.to_string(), detail.trim_end_matches('.').to_owned()));
            why.or_default().push(view.node);
        }
    }
    let said = why.iter().map(|((cause, detail), who)| format!("{} ({cause}: {detail})", names(who, NAMED)));
    let message = match names(said, NAMED) {
        nobody if nobody.is_empty() => format!("{reports} and no member list among them."),
        said => format!("{reports} and no member list among them: it could not be read by {said}."),
    };
    let tls =
        |view: &&View<'_>| matches!(&view.etcd.members, Fact::Unknown { cause: UnknownCause::TlsFailed, .. });
    if let Some(advice) = all_silent(joined) {
        let message = format!("No member of etcd answers. {message}");
        return unknown(Severity::Error, R::EtcdNoMembers, joined.at, &message, &advice);
    }
    let refused = names(joined.group.iter().filter(tls).map(|view| view.node), NAMED);
    if refused.is_empty() || joined.group.iter().any(View::lives) {
        return unknown(Severity::Warn, R::EtcdNoMembers, joined.at, &message, quorum::NO_MEMBERS_ADVICE);
    }
    // By no way that ends in TLS can anybody ask: etcdctl fails as the check does.
    let message = format!("No member of etcd lets its own server in, so its clients are out. {message}");
    let advice = format!(
        "See CertificatesValid of {refused}: etcdctl fails there for the same reason. Where what etcd shows has ended, the restart \
         that CertificatesValid names is the cure: one server after the other, on to the next without waiting for the first to be \
         healthy, for quorum is back only when most of them show new certificates."
    );
    unknown(Severity::Error, R::TlsFailed, joined.at, &message, &advice)
}

/// What to do where every endpoint that any report has is silent; `None` where one is not, or none is known.
fn all_silent(joined: &Joined<'_>) -> Option<String> {
    let mut endpoints = joined.group.iter().flat_map(|v| &v.etcd.endpoints).peekable();
    endpoints.peek()?;
    if !endpoints.all(is_silent) {
        return None;
    }
    let nodes = names(joined.group.iter().map(|v| v.node), NAMED);
    let snapshot = snapshots::known_words(joined).unwrap_or_else(|| "none is known here".to_owned());
    Some(format!(
        "Bring the members of {nodes} back, each as it is: with more than half of the voters answering, writes go on by themselves. \
         EtcdMemberHealthy of each says how it ended. A cluster reset is a person's last resort. Before it: are all members \
         stopped? Which is the newest snapshot ({snapshot})? Is the token the same?"
    ))
}

fn judge_views(joined: &Joined<'_>) -> Vec<Finding> {
    let mut findings = Vec::with_capacity(4);
    let split = membership::split(joined);
    if let Some(list) = joined.list.as_deref() {
        let tally = joined.tally(list);
        let mut quorum = with_equals(joined, quorum::judge(&tally, joined.at));
        let mut apart = topology::partition(joined, list, joined.at);
        if apart.is_none()
            && let Some(pairs) = topology::pairs(joined, list, joined.at)
        {
            quorum = pairs.limit(quorum);
            apart = Some(pairs.finding);
        }
        let is_reduced = matches!(quorum.reason, R::EtcdToleranceReduced | R::EtcdNoTolerance);
        findings.push(if is_reduced { quorum.early(REDUCED_SHOWN, Severity::Info) } else { quorum });
        findings.push(membership::judge(joined, list, &tally, split, apart));
        findings.push(versions::judge(joined, list));
    } else {
        findings.extend(
            no_list(joined)
                .into_iter()
                .filter(|f| split.as_ref().is_none_or(|split| split.condition_type != f.condition_type)),
        );
        findings.extend(split);
    }
    findings.extend(snapshots::judge(joined));
    findings
}
