//! A leader that changes again and again: what this node's disk and its way to the peers say to it (D9).

use outrider_protocol::{EtcdFacts, ReasonCode as R, Severity};

use super::histogram::{self, Difference};
use super::links::{self, Network};
use super::view::election_timeout;
use crate::finding::Finding;
use crate::wording::Span;

/// A change of leader by itself is no news; several within minutes are a fault that goes on.
const LEADER_CHANGES: f64 = 3.0;

/// A leader that changes again and again, and what the disk and the peers say to it (D9): of the disk what `EtcdDisk` says,
/// so that the two agree. Message and advice; `None` where there is nothing to say.
pub(super) fn changes(etcd: &EtcdFacts, name: &str, disk: &Finding) -> Option<(String, String)> {
    let metrics = etcd.metrics.value()?;
    let earlier = metrics.earlier.as_ref()?;
    let changes = metrics.latest.leader_changes - earlier.leader_changes;
    let span = metrics.latest.at.since(earlier.at);
    // Three in half a day are no trouble of now.
    if changes < LEADER_CHANGES || span.is_zero() || span > histogram::LAST_MINUTES {
        return None;
    }
    let network = links::network(metrics, etcd.members.value(), election_timeout(etcd));
    let trips = match &network {
        Network::Fine(trips) | Network::Slow(trips) => trips,
        Network::Unmeasured => "not measured",
    };
    let elsewhere = "look at the disk of the member that leads, at restarts of etcd, and at processor time that the machines do \
                     not get";
    let is_measured = matches!(disk.reason, R::EtcdDiskSlow | R::EtcdDiskFast);
    let (disk_words, advice) = match (&disk.reason, &network) {
        (R::EtcdDiskSlow, Network::Slow(slow)) => (
            "slow by EtcdDisk",
            format!(
                "Disk and network are both slow: {name}'s disk first (see EtcdDisk), then the way to {slow}."
            ),
        ),
        (R::EtcdDiskSlow, Network::Fine(_)) => (
            "slow by EtcdDisk",
            format!("It is the disk, not the network, that is slow here: see EtcdDisk of {name}."),
        ),
        (R::EtcdDiskSlow, Network::Unmeasured) => (
            "slow by EtcdDisk",
            format!(
                "{name}'s disk is slow, which is enough to look there first: see EtcdDisk. The way to the peers was not measured."
            ),
        ),
        (R::EtcdDiskFast, Network::Slow(slow)) => (
            "fast enough",
            format!(
                "It is the network, not this disk: look at the way between {name} and {slow} (loss, MTU, load)."
            ),
        ),
        (R::EtcdDiskFast, Network::Fine(_)) => {
            ("fast enough", format!("Neither this disk nor a peer is slow: {elsewhere}."))
        }
        (R::EtcdDiskFast, Network::Unmeasured) => (
            "fast enough",
            format!("This disk is not slow, and the way to the peers was not measured: {elsewhere}."),
        ),
        // Not measured, and what is known of it points at it all the same: writes that do not end, few that all stall.
        (_, network) if disk.severity >= Severity::Warn => {
            let peers = match network {
                Network::Slow(slow) => format!("The way to {slow} is slow as well."),
                Network::Fine(_) => "No peer is slow.".to_owned(),
                Network::Unmeasured => "The way to the peers was not measured.".to_owned(),
            };
            ("in doubt by EtcdDisk", format!("This disk may be why: see EtcdDisk of {name} first. {peers}"))
        }
        (_, Network::Slow(slow)) => (
            "not measured",
            format!(
                "The way between {name} and {slow} is slow (loss, MTU, load): look there. It may be this disk as well, which was not \
                 measured: see EtcdDisk for why."
            ),
        ),
        (_, Network::Fine(_)) => (
            "not measured",
            format!(
                "No peer is slow, and this disk was not measured: see EtcdDisk for why, and {elsewhere}."
            ),
        ),
        (_, Network::Unmeasured) => (
            "not measured",
            format!(
                "Neither this disk nor the way to the peers was measured: see EtcdDisk for why, and {elsewhere}."
            ),
        ),
    };
    let writes = Difference::new(&earlier.wal_fsync, &metrics.latest.wal_fsync);
    let p99 = match writes.ok().filter(|d| is_measured && d.total > 0) {
        Some(writes) => format!(", fsync p99 {}", writes.quantile(0.99)),
        None => String::new(),
    };
    let message = format!(
        "{name} saw the leader change {changes:.0} times in {}; this disk: {disk_words}{p99}; peer round trips: {trips}.",
        Span(span)
    );
    let advice = format!("{advice} Do not restart etcd because of it.");
    Some((message, advice))
}
