//! Whether all members run one version: `EtcdVersions` over the cluster, and within `EtcdMembership` what one node sees.
//!
//! etcd supports two kinds of upgrade: between patch releases, and one minor version at a time
//! (etcd.io/docs, "Upgrading etcd clusters and applications"). So one minor version apart is an upgrade under way, which
//! takes minutes; further apart is a state that etcd does not support.

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, MemberList, ReasonCode as R, Severity, Status, Timestamp, UnknownCause,
};

use super::view::{answers_itself, display_name, endpoints_of, is_of_another};
use crate::finding::Finding;
use crate::wording::{Count, Span, names};

const TYPE: ConditionType = ConditionType::EtcdVersions;
const NAMED: usize = 7;
/// An upgrade of all servers, one after the other.
const UPGRADE: Duration = Duration::from_secs(3600);

/// Major, minor and patch; a suffix such as `-rc.0` or `+k3s1` says nothing of compatibility. What is not three numbers is
/// no version: a part that cannot be read must not be shown as 0.
fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let version = version.trim();
    let core = version.strip_prefix('v').unwrap_or(version).split(['-', '+']).next()?;
    let mut parts = core.split('.').map(|part| part.parse::<u32>().ok());
    let version = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(version)
}

/// More than one minor version apart, by what the members told this node: no upgrade looks so.
pub(super) fn apart(etcd: &EtcdFacts, list: &MemberList, at: Timestamp) -> Option<Finding> {
    let told = list.members.iter().map(|m| {
        let own = endpoints_of(etcd, m).filter(|e| answers_itself(e, m)).find_map(|e| e.status.value());
        let own = own.filter(|s| !is_of_another(s, &list.cluster_id));
        (display_name(m), own.map(|s| s.version.as_str()))
    });
    let finding = judge(told, at);
    (finding.status == Status::False).then_some(Finding {
        condition_type: ConditionType::EtcdMembership,
        escalates: None,
        ..finding
    })
}

/// The verdict over all members: each by name, with the version that it told, if it answered.
pub(crate) fn judge<'a>(members: impl Iterator<Item = (&'a str, Option<&'a str>)>, at: Timestamp) -> Finding {
    let mut by_version: BTreeMap<(u32, u32, u32), Vec<&str>> = BTreeMap::new();
    let mut unreadable: Vec<String> = Vec::new();
    let mut silent: Vec<&str> = Vec::new();
    let mut all = 0;
    for (name, version) in members {
        all += 1;
        match version.map(|told| (told, parse(told))) {
            Some((_, Some(version))) => by_version.entry(version).or_default().push(name),
            Some((told, None)) => unreadable.push(format!("{told:?} of {name}")),
            None => silent.push(name),
        }
    }
    let unreadable = match names(&unreadable, NAMED) {
        all if all.is_empty() => String::new(),
        all => format!("; not to be read as a version: {all}"),
    };
    let silent = match names(&silent, NAMED) {
        none if none.is_empty() => String::new(),
        silent => format!("; not known of {silent}, which told none"),
    };
    let told: usize = by_version.values().map(Vec::len).sum();
    let of = format!("{told} of {}{unreadable}{silent}", Count(all, "member"));
    let (Some((lowest, behind)), Some((highest, _))) =
        (by_version.first_key_value(), by_version.last_key_value())
    else {
        let message = format!("No version is known: none of {} told one{unreadable}.", Count(all, "member"));
        return Finding::unknown(TYPE, &UnknownCause::Unavailable, Severity::Info, at, message);
    };
    let word = |(major, minor, patch): &(u32, u32, u32)| format!("{major}.{minor}.{patch}");
    if by_version.len() == 1 && !unreadable.is_empty() {
        let message =
            format!("Whether all members run one version cannot be told: etcd {} on {of}.", word(lowest));
        return Finding::unknown(TYPE, &UnknownCause::InvalidAnswer, Severity::Info, at, message).advice(
            "Ask those that are named by hand (etcdctl endpoint status -w table): what answers there may be no etcd, or a proxy.",
        );
    }
    if by_version.len() == 1 {
        let message = format!("etcd {} on {of}.", word(lowest));
        return Finding::new(TYPE, Status::True, Severity::Ok, R::EtcdVersionsEqual, at, message);
    }
    let all = by_version.iter().map(|(v, who)| format!("{} on {}", word(v), names(who, NAMED)));
    let all = names(all, NAMED);
    let minors = if lowest.0 == highest.0 { highest.1 - lowest.1 } else { u32::MAX };
    let behind = names(behind, NAMED);
    let new = |status, severity, message: String| {
        Finding::new(TYPE, status, severity, R::EtcdVersionSkew, at, message)
    };
    match minors {
        0 | 1 => new(
            Status::True,
            Severity::Info,
            format!(
                "etcd runs in {} versions: {all}; told by {of}; fine while an upgrade is under way.",
                by_version.len()
            ),
        )
        .escalates(UPGRADE, Severity::Warn)
        .advice(format!(
            "Let the upgrade end, one server after the other: {behind} still {} {}. After {} this is a warning: see why the \
             upgrade of {behind} stopped.",
            if by_version.first_key_value().is_some_and(|(_, who)| who.len() == 1) { "runs" } else { "run" },
            word(lowest),
            Span(UPGRADE)
        )),
        _ => new(
            Status::False,
            Severity::Error,
            format!("etcd runs in versions more than one minor apart: {all}; told by {of}."),
        )
        .advice(format!(
            "etcd supports one minor version at a time. Add or upgrade no further server to {}; a person brings {behind} from \
             {} to the next minor version first, and so on, each step on all members and after an etcd snapshot.",
            word(highest),
            word(lowest)
        )),
    }
}
