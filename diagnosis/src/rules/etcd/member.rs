//! `EtcdMemberHealthy`: the member on this node.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, DataFolder, Distribution, EndpointFacts, EndpointStatus, EtcdFacts, Fact, MemberList,
    NodeFacts, ReasonCode as R, Severity, Status, Thresholds, Timestamp, UnknownCause,
};

use super::folder;
use super::leader;
use super::learners::{self, Learner};
use super::links;
use super::quorum::Health;
use super::spoilt::is_reset;
use super::view::{
    Silence, cluster_id, display_name, election_timeout, is_down, is_time, lacks_leader, member_of, name_of,
    refused_by_learner, service, silent_for, status_health,
};
use crate::finding::Finding;
use crate::wording::{Bytes, Short, names};

const TYPE: ConditionType = ConditionType::EtcdMemberHealthy;

/// A static pod is restarted within seconds.
const RAISE: Duration = Duration::from_secs(15);
/// Without room a restart does not help: etcd ends again at its start.
const RAISE_WITHOUT_ROOM: Duration = Duration::from_secs(2);
const CLEAR: Duration = Duration::from_secs(5);

/// `quorum` is whether `EtcdQuorum` says that quorum holds, `disk` what `EtcdDisk` says.
pub(super) fn judge(
    etcd: &EtcdFacts,
    quorum: Status,
    disk: &Finding,
    at: Timestamp,
    facts: &NodeFacts,
) -> Finding {
    let (now, limits) = (facts.now, &facts.thresholds);
    let local = etcd.endpoints.iter().filter(|e| e.local);
    // Loopback and node address are one member: the one that answers speaks for it.
    let Some(endpoint) = local.max_by_key(|e| e.status.value().is_some()) else {
        return Finding::unknown(
            TYPE,
            &UnknownCause::InvalidInput,
            Severity::Warn,
            at,
            format!("No endpoint of this node's own member is known (found by {}).", etcd.found_by),
        )
        .advice(format!(
            "Outrider found etcd by {}: name its client URL in the agent's configuration, [etcd] endpoints.",
            etcd.found_by
        ));
    };
    if let Some(removed) = removed(etcd, endpoint, at) {
        return removed;
    }
    let url = &endpoint.endpoint;
    let status = match &endpoint.status {
        Fact::Known { value, .. } => value,
        Fact::Unknown { cause, detail, .. } if is_down(cause) => {
            return down(etcd, endpoint, &format!(": {cause}, {detail}"), at, now);
        }
        Fact::Absent { .. } => {
            return down(etcd, endpoint, ": nothing is there", at, now);
        }
        Fact::Unknown { detail, .. } if refused_by_learner(&endpoint.status) => {
            let name = name_of(etcd.members.value(), &endpoint.member_id);
            let who = if name.is_empty() { "The local member" } else { name };
            let message =
                format!("{who} at {url} answers that it is a learner ({detail}); it does not vote yet.");
            let advice = match learners::cut_off(etcd, &endpoint.member_id) {
                Some(peers) => learners::cut_off_advice(&peers),
                None => Learning { etcd, quorum, at, now, limits }.advice(&endpoint.member_id),
            };
            return new(Status::True, Severity::Info, R::EtcdMemberIsLearner, at, message).advice(advice);
        }
        Fact::Unknown { cause, detail, .. } => {
            let message = format!("The local member could not be asked at {url}: {detail}.");
            let finding = Finding::unknown(TYPE, cause, Severity::Warn, at, message);
            let shown = match facts.checks.certificates.as_ref().and_then(Fact::value) {
                Some(_) => "CertificatesValid says what is served there",
                None => &format!(
                    "openssl s_client -connect {} -showcerts shows it",
                    url.split_once("://").map_or(url.as_str(), |(_, place)| place)
                ),
            };
            return match unasked_advice(cause, detail, (url, shown), etcd) {
                Some(advice) => finding.advice(advice),
                None => finding,
            };
        }
        Fact::NotApplicable { reason, .. } => {
            let message = format!("The local member was not asked at {url}: {reason}.");
            return Finding::unknown(TYPE, &UnknownCause::NotYetRead, Severity::Info, at, message);
        }
    };

    let name = name_of(etcd.members.value(), &status.member_id);
    let cluster_id = etcd.members.value().map_or("", |l| l.cluster_id.as_str());
    let seen = status_health(status, cluster_id);
    if status.is_learner && seen.foreign.is_none() {
        return Learning { etcd, quorum, at, now, limits }.finding(url, status);
    }
    if lacks_leader(status) && seen.foreign.is_none() {
        return leaderless(etcd, name, url, status, at);
    }
    if seen.health == Health::Down {
        let (reason, why) =
            (if seen.foreign.is_some() { R::EtcdClusterIdMismatch } else { R::EtcdReadFailed }, seen.why);
        let message = format!("{name} at {url} {why}; EtcdQuorum does not count it as healthy.");
        return new(Status::False, Severity::Error, reason, at, message).advice(format!(
            "See EtcdMembership and EtcdQuorum, and the log of {name} for the cause. Do not restart etcd before it is known."
        ));
    }
    let odd = folder::odd(etcd, name).map(|(reason, message, advice)| {
        new(Status::True, Severity::Warn, reason, at, message).advice(advice)
    });
    odd.unwrap_or_else(|| read(etcd, endpoint, name, disk, at))
}

/// The member of this server that the list of its own cluster does not have, as `(id, list)`.
pub(crate) fn unlisted(etcd: &EtcdFacts) -> Option<(&str, &MemberList)> {
    let list = etcd.members.value().filter(|l| !l.members.is_empty())?;
    let local = etcd.endpoints.iter().filter(|e| e.local).max_by_key(|e| e.status.value().is_some())?;
    let id = member_of(local)?;
    let same = cluster_id(etcd) == list.cluster_id && !list.cluster_id.is_empty();
    (same && list.members.iter().all(|m| m.id != id)).then_some((id, list))
}

/// A member of this server that the cluster's list does not have: a list that a quorum vouched for makes it certain. What
/// the data folder itself tells of a removal or a reset says more.
fn removed(etcd: &EtcdFacts, endpoint: &EndpointFacts, at: Timestamp) -> Option<Finding> {
    let (id, list) = unlisted(etcd).filter(|(_, list)| list.linearizable)?;
    let folder = etcd.data_folder.as_ref().and_then(Fact::value);
    let answers = endpoint.status.value().is_some();
    if !answers && folder.is_some_and(|f| f.tombstone || f.reset_flag) {
        return None;
    }
    let how = if answers { "still answers" } else { "does not answer" };
    let message = format!(
        "The member of this server (id {id}, {how} at {}) is not in the linearizable member list of cluster {}, which has {}: it \
         was removed.",
        endpoint.endpoint,
        list.cluster_id,
        names(list.members.iter().map(display_name), 7)
    );
    let path = folder.map_or("its data folder", |f| f.path.as_str());
    Some(new(Status::False, Severity::Error, R::EtcdMemberRemoved, at, message).advice(format!(
        "It does not come back with its old data. If this server is to be a member again, a person stops it, empties {path} \
         and starts it with the same token, so that it joins as a new member; else it is taken out of service. The others \
         need nothing for that."
    )))
}

/// To follow the local member's name: that it may have been removed, by a list that no quorum vouched for.
fn suspected(etcd: &EtcdFacts) -> String {
    match unlisted(etcd).filter(|(_, list)| !list.linearizable) {
        Some((id, _)) => format!(
            " It (id {id}) is not in the member list that could be read, which may be stale: it may have been removed."
        ),
        None => String::new(),
    }
}

/// What a person does about a member that could not be asked, where the cause tells it: the question, not the member.
/// `shown` tells how the certificate is looked at that `url` shows.
fn unasked_advice(
    cause: &UnknownCause,
    detail: &str,
    (url, shown): (&str, &str),
    etcd: &EtcdFacts,
) -> Option<String> {
    let files = names(
        etcd.paths.iter().filter(|p| p.ends_with(".crt") || p.ends_with(".pem") || p.ends_with(".key")),
        3,
    );
    let with = if files.is_empty() { String::new() } else { format!(" ({files})") };
    Some(match cause {
        UnknownCause::TlsFailed if detail.contains("certificate expired") => format!(
            "Compare this clock with another first (date -u). If it is right, the certificate that {url} shows has ended ({shown}) and \
             is to be renewed by whoever issues it; etcd reads its files at every handshake. Until then no client gets in that \
             verifies it, and this says nothing of the member itself."
        ),
        UnknownCause::TlsFailed => format!(
            "Compare the certificate that {url} shows ({shown}) with the CA and the names that Outrider expects{with}. This says \
             nothing of the member itself."
        ),
        UnknownCause::Forbidden => format!(
            "{url} knows who asks and refuses (403): Outrider's client certificate{with} is accepted, and the right behind it is \
             missing. See which user etcd takes it for and which role that has (etcdctl user list, role list), and whether a proxy \
             in between refuses. This says nothing of the member itself."
        ),
        UnknownCause::Unauthenticated => format!(
            "{url} does not take Outrider's client certificate{with}: see whether it is of this cluster's etcd CA and in date. \
             This says nothing of the member itself."
        ),
        UnknownCause::Unsupported => format!(
            "What answers at {url} does not know the call: see whether it is etcd 3.4 or newer and no proxy before it."
        ),
        UnknownCause::InvalidAnswer => {
            format!("See what listens at {url} (ss -ltnp): it does not answer as etcd does.")
        }
        _ => return None,
    })
}

/// A learner on this node: what there is to do about it `EtcdMembership` says, and this no other.
struct Learning<'a> {
    etcd: &'a EtcdFacts,
    /// Whether quorum holds, as `EtcdQuorum` says.
    quorum: Status,
    at: Timestamp,
    now: Timestamp,
    limits: &'a Thresholds,
}

impl<'a> Learning<'a> {
    fn finding(&self, url: &str, status: &EndpointStatus) -> Finding {
        let name = name_of(self.etcd.members.value(), &status.member_id);
        let advice = self.advice(&status.member_id);
        if lacks_leader(status) {
            let message = format!(
                "{name} at {url} is a learner at raft index {} and sees no leader (raft term {}): nobody sends it the log, and \
                 nobody can promote it.",
                status.raft_index, status.raft_term
            );
            return new(Status::False, Severity::Error, R::EtcdNoLeader, self.at, message).advice(advice);
        }
        if let Some(peers) = learners::cut_off(self.etcd, &status.member_id) {
            let leader = name_of(self.etcd.members.value(), &status.leader);
            let message = format!(
                "{name} at {url} is a learner at raft index {} and hears nobody: its connections on port 2380 to {peers} are all \
                 down. That it names {leader} as its leader is old, for a learner takes part in no election.",
                status.raft_index
            );
            let advice = learners::cut_off_advice(&peers);
            return new(Status::False, Severity::Error, R::EtcdNoLeader, self.at, message).advice(advice);
        }
        let message = format!(
            "{name} at {url} is a learner at raft index {}; it does not vote yet and cannot answer health reads.",
            status.raft_index
        );
        new(Status::True, Severity::Info, R::EtcdMemberIsLearner, self.at, message).advice(advice)
    }

    /// As this node's own facts show it, where the list has it as a learner.
    fn seen(&self, id: &str) -> Option<Learner<'a>> {
        let list = self.etcd.members.value()?;
        let member = list.members.iter().find(|m| m.id == id && m.is_learner)?;
        Some(Learner { quorum: self.quorum, ..learners::seen_by(self.etcd, member, self.now) })
    }

    fn advice(&self, id: &str) -> String {
        let etcd = self.etcd;
        let Some(seen) = self.seen(id) else { return unlisted_advice(etcd) };
        let stalled = Duration::from_secs(self.limits.etcd_learner_stalled_seconds);
        let on_its_way = learners::finding(&seen, stalled, self.at);
        match on_its_way.severity {
            Severity::Ok | Severity::Info => on_its_way.advice,
            _ => format!("It does not come on as it should, see EtcdMembership: {}", on_its_way.advice),
        }
    }
}

/// A learner of which the list was not read, or does not tell it.
fn unlisted_advice(etcd: &EtcdFacts) -> String {
    if etcd.local_status().is_some_and(lacks_leader) {
        return "Quorum first: without a leader nobody sends this learner the log or promotes it. EtcdQuorum of a server whose \
                member votes tells what is missing; do not restart etcd because it has no leader."
            .to_owned();
    }
    if let Fact::Unknown { cause: UnknownCause::InvalidAnswer, detail, .. } = &etcd.members {
        return format!(
            "The member list here is none that an etcd gives ({detail}), so nothing says that it will be promoted: ask another server \
             (outrider check --only etcd there), and see what listens here (ss -ltnp)."
        );
    }
    let promoter = match etcd.distribution {
        Distribution::Rke2 | Distribution::K3s => "the leader's server, which looks every 15 s",
        Distribution::Kubeadm => "kubeadm join",
        _ => "whoever added it",
    };
    format!(
        "Wait, it is not broken: it is promoted once it has caught up, by {promoter}. How far it is shows in EtcdMembership of a \
         server whose member list can be read."
    )
}

fn new(status: Status, severity: Severity, reason: R, at: Timestamp, message: String) -> Finding {
    Finding::new(TYPE, status, severity, reason, at, message).waits(RAISE, CLEAR)
}

fn down(etcd: &EtcdFacts, endpoint: &EndpointFacts, why: &str, at: Timestamp, now: Timestamp) -> Finding {
    let (url, since) = (&endpoint.endpoint, silent_for(endpoint, now));
    let message = format!("The local member does not answer at {url}{since}{why}.{}", suspected(etcd));
    let folder = etcd.data_folder.as_ref().and_then(Fact::value);
    match folder {
        Some(folder) if folder.tombstone => {
            let message = format!(
                "{message} It was removed from its cluster for good (tombstone in {}).{}",
                folder.path,
                if folder.reset_flag {
                    " The cluster was reset on this server, too (reset-flag)."
                } else {
                    ""
                }
            );
            new(Status::False, Severity::Error, R::EtcdMemberRemoved, at, message)
                .advice(folder::removed_advice(etcd, folder))
        }
        Some(folder) if folder.reset_flag => {
            let message =
                format!("{message} The cluster was reset on this server (reset-flag by {}).", folder.path);
            new(Status::False, Severity::Error, R::EtcdMemberDown, at, message).advice(format!(
                "{} {}",
                folder::reset_advice(etcd),
                down_advice(etcd, endpoint)
            ))
        }
        Some(DataFolder { path, free_bytes: Some(free), .. }) if *free < NEXT_SEGMENT => {
            let message = format!(
                "{message} The file system of its data has {} left ({path}), less than the {} that etcd sets aside for the \
                 next piece of its log.",
                Bytes(*free),
                Short(NEXT_SEGMENT)
            );
            let full = new(Status::False, Severity::Error, R::EtcdMemberDown, at, message);
            full.waits(RAISE_WITHOUT_ROOM, CLEAR).advice(format!(
                "Make room on that file system first: etcd ends at a write that fails, and ends again at every start until \
                 there is room. Move away what is not etcd's (du -xh --max-depth=2 on that file system; old snapshots, \
                 images, logs), nothing below {path}. Then see whether its pod or service comes up by itself. This is the \
                 disk and not the quota: there is no alarm to clear."
            ))
        }
        _ => new(Status::False, Severity::Error, R::EtcdMemberDown, at, message)
            .advice(down_advice(etcd, endpoint)),
    }
}

/// Size of a piece of etcd's write-ahead log, which is set aside before it is written (etcd-io/etcd,
/// `server/storage/wal/wal.go`, `SegmentSizeBytes`).
pub(super) const NEXT_SEGMENT: u64 = 64 * 1024 * 1024;

fn down_advice(etcd: &EtcdFacts, endpoint: &EndpointFacts) -> String {
    let (url, service) = (&endpoint.endpoint, service(&etcd.distribution));
    let how = match Silence::of(endpoint) {
        Some(Silence::Refuses) | None => format!(
            "Nothing listens at {url}: see whether {service} runs and what its log ends with.{}",
            if may_be_removed(etcd) {
                " \"member has been permanently removed\" there means that it can only join anew, with an empty data folder, once \
                 the others are seen to serve."
            } else {
                ""
            }
        ),
        Some(Silence::Hangs) => format!(
            "etcd hangs: {url} takes the connection and does not answer in time. Look at the disk (EtcdDisk, dmesg), at processor \
             time and at the log of {service} before anything else: a restart does not make a slow disk faster, and a process \
             in state D does not end."
        ),
        Some(Silence::NoConnection | Silence::Unreachable) => format!(
            "The way to {url} on this machine itself is cut: see whether the address is still this machine's (ip -br address), \
             what its firewall does to port 2379, and whether {service} ends again and again."
        ),
        Some(Silence::Unavailable) => format!(
            "etcd at {url} answers that it cannot serve now: its own words stand above, its log (that of {service}) says since \
             when. Do not restart it before the cause is known."
        ),
    };
    match learner_here(etcd, endpoint) {
        Some(name) => format!(
            "{how} {name} is a learner: the voters go on without it, and it goes on catching up once its server runs again."
        ),
        None => how,
    }
}

/// Whether somebody else could have removed this server's member: not from a cluster of its own, and after a reset what lies
/// here may be the only good data.
fn may_be_removed(etcd: &EtcdFacts) -> bool {
    etcd.members.value().is_none_or(|l| l.members.len() != 1) && !is_reset(etcd)
}

/// The name of the member behind the endpoint where the list knows it as a learner.
fn learner_here<'a>(etcd: &'a EtcdFacts, endpoint: &EndpointFacts) -> Option<&'a str> {
    let list = etcd.members.value()?;
    let member = list.members.iter().find(|m| m.id == endpoint.member_id && m.is_learner)?;
    Some(super::view::display_name(member))
}

fn leaderless(etcd: &EtcdFacts, name: &str, url: &str, status: &EndpointStatus, at: Timestamp) -> Finding {
    let broken = etcd.metrics.value().map(|m| links::broken(etcd, m)).unwrap_or_default();
    let links = if broken.is_empty() {
        String::new()
    } else {
        format!("; its connections on port 2380 are down to {}", names(&broken, 7))
    };
    let message =
        format!("{name} at {url} answers and sees no leader (raft term {}){links}.", status.raft_term);
    let to = if broken.is_empty() { "the others".to_owned() } else { names(&broken, 7) };
    new(Status::False, Severity::Error, R::EtcdNoLeader, at, message).advice(format!(
        "See EtcdQuorum: without a quorum there is no leader. If quorum holds elsewhere, check port 2380 between this node \
         and {to}, both ways. Do not restart etcd because it has no leader."
    ))
}

fn read(etcd: &EtcdFacts, endpoint: &EndpointFacts, name: &str, disk: &Finding, at: Timestamp) -> Finding {
    let url = &endpoint.endpoint;
    match &endpoint.linearizable_read {
        Fact::Unknown { cause, detail, .. } if is_down(cause) => {
            let message =
                format!("{name} at {url} answers, but a linearizable read failed: {cause}, {detail}.");
            return new(Status::False, Severity::Warn, R::EtcdReadFailed, at, message).advice(format!(
                "See EtcdQuorum and EtcdDisk of {name}: quorum or a slow disk is the usual cause. Do not restart etcd \
                 because it is slow."
            ));
        }
        Fact::Known { value: ms, .. } if !is_time(*ms) => {
            let message = format!(
                "{name} at {url} answers, and its linearizable read is said to have taken {ms:e} ms, which is no time."
            );
            return Finding::unknown(TYPE, &UnknownCause::InvalidAnswer, Severity::Warn, at, message);
        }
        Fact::Known { value: ms, .. } if *ms > election_timeout(etcd).as_secs_f64() * 1000.0 => {
            let message = format!(
                "{name} at {url} answered a linearizable read only after {:.1} s, longer than an election timeout ({} ms): clients \
                 have given up by then.",
                ms / 1000.0,
                election_timeout(etcd).as_millis()
            );
            return new(Status::False, Severity::Warn, R::EtcdReadFailed, at, message).advice(format!(
                "See EtcdDisk of {name} and whether the leader changes again and again: a slow disk or a slow way to the leader is \
                 the usual cause. Do not restart etcd because it is slow."
            ));
        }
        _ => {}
    }
    if let Some((message, advice)) = leader::changes(etcd, name, disk) {
        return new(Status::True, Severity::Warn, R::EtcdLeaderUnstable, at, message).advice(advice);
    }
    let message = match &endpoint.linearizable_read {
        Fact::Known { value, .. } => {
            let version = endpoint.status.value().map_or("", |s| s.version.as_str());
            format!("{name} at {url} (etcd {version}) answered a linearizable read in {value:.1} ms.")
        }
        _ => format!("{name} at {url} answers; a linearizable read was not possible for this client."),
    };
    new(Status::True, Severity::Ok, R::EtcdMemberAnswers, at, message)
}
