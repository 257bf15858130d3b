//! A guest agent that runs and is of no use: it refuses the calls that the host makes, or SELinux denies it what it needs for
//! them (`facts/guest-agent.md`, sections 5 and 6).

use std::time::Duration;

use outrider_protocol::{
    Denial, Fact, GuestAgentFacts, ReasonCode as R, RpcList, Severity, Status, Timestamp,
};

use super::TYPE;
use crate::finding::Finding;
use crate::wording::names;

/// The call without which the host shows no address.
const ADDRESSES: &str = "guest-network-get-interfaces";
/// The other calls that are made of it: names and system for the cloud provider and the screen, freezing for snapshots. That
/// others (`guest-exec`) are refused is as it should be.
const NEEDED: [&str; 6] = [
    ADDRESSES,
    "guest-get-osinfo",
    "guest-get-host-name",
    "guest-fsfreeze-status",
    "guest-fsfreeze-freeze",
    "guest-fsfreeze-thaw",
];
/// How long a denial is news.
const RECENT: Duration = Duration::from_secs(24 * 3600);
/// Denials that are quoted.
const QUOTED: usize = 2;

pub(super) const DENIED_ADVICE: &str = "Read them whole with ausearch -m AVC -ts boot, update the package selinux-policy, which is where the agent's \
     rules come from, and restore labels that somebody's copy lost (restorecon). Leave SELinux on.";

/// What keeps an agent that runs from being of use; `who` says how it runs, `own` which addresses the guest has.
pub(super) fn running(guest: &GuestAgentFacts, at: Timestamp, who: &str, own: &str) -> Option<Finding> {
    let refused = refused(guest);
    let denials = denials(guest, at);
    let by = || by_whom(guest);
    if refused.contains(&ADDRESSES) {
        let message = format!(
            "The guest agent runs ({who}) and is told to refuse {} ({}); the host cannot see this VM's address{own}.",
            names(refused, 6),
            by()
        );
        return Some(
            Finding::new(TYPE, Status::False, Severity::Error, R::GuestAgentCallsRefused, at, message)
                .advice(CALLS_ADVICE),
        );
    }
    if let Some(quoted) = quote(&denials) {
        let message = format!("The guest agent runs ({who}), and SELinux denied it lately: {quoted}.");
        return Some(
            Finding::new(TYPE, Status::True, Severity::Warn, R::GuestAgentDenied, at, message)
                .advice(DENIED_ADVICE),
        );
    }
    if refused.is_empty() {
        return None;
    }
    let message =
        format!("The guest agent runs ({who}) and is told to refuse {} ({}).", names(refused, 6), by());
    Some(
        Finding::new(TYPE, Status::True, Severity::Warn, R::GuestAgentCallsRefused, at, message)
            .advice(CALLS_ADVICE),
    )
}

const CALLS_ADVICE: &str = "Let these calls be answered where the list stands (block-rpcs or allow-rpcs of /etc/sysconfig/qemu-ga or \
     /etc/qemu/qemu-ga.conf, BLACKLIST_RPC in old releases) and restart the unit. No other call is needed, guest-exec least of all.";

/// Needed calls that the lists keep it from answering.
fn refused(guest: &GuestAgentFacts) -> Vec<&'static str> {
    let lists = lists(guest);
    let allows = |call: &str| lists.iter().any(|l| l.allows && l.calls.iter().any(|c| c == call));
    let blocks = |call: &str| lists.iter().any(|l| !l.allows && l.calls.iter().any(|c| c == call));
    let only_allowed = lists.iter().any(|l| l.allows);
    NEEDED.into_iter().filter(|call| blocks(call) || (only_allowed && !allows(call))).collect()
}

fn lists(guest: &GuestAgentFacts) -> &[RpcList] {
    guest.rpc_lists.as_ref().and_then(Fact::value).map_or(&[], Vec::as_slice)
}

/// Where the lists that matter stand.
fn by_whom(guest: &GuestAgentFacts) -> String {
    let matters = |list: &&RpcList| list.allows || list.calls.iter().any(|c| NEEDED.contains(&c.as_str()));
    let places: Vec<String> =
        lists(guest).iter().filter(matters).map(|l| format!("{} of {}", l.setting, l.source)).collect();
    names(places.iter().map(String::as_str), 3)
}

/// What it was denied since it runs, or since boot where it does not, within a day.
pub(super) fn denials(guest: &GuestAgentFacts, at: Timestamp) -> Vec<&Denial> {
    let running = guest.process.value().map(|p| p.seconds).or(guest.uptime_seconds.value().copied());
    let window = running.map_or(RECENT, Duration::from_secs).min(RECENT);
    let known = guest.denials.as_ref().and_then(Fact::value).map_or(&[][..], Vec::as_slice);
    // The times of processes are told in whole seconds.
    known.iter().filter(|d| at.since(d.at) <= window + Duration::from_secs(1)).collect()
}

/// Some of them in their own words; none where there are none.
pub(super) fn quote(denials: &[&Denial]) -> Option<String> {
    let texts: Vec<String> = denials
        .iter()
        .take(QUOTED)
        .map(|d| d.text.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    (!texts.is_empty()).then(|| format!("\"{}\"", texts.join("\", \"")))
}
