//! `EtcdMemberHealthy`: the member on this node.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EndpointFacts, EtcdFacts, Fact, ReasonCode as R, Severity, Status, Timestamp, UnknownCause,
};

use super::view::{is_down, lacks_leader, name_of, silent_for};
use crate::finding::Finding;

const TYPE: ConditionType = ConditionType::EtcdMemberHealthy;

/// A static pod is restarted within seconds.
const RAISE: Duration = Duration::from_secs(15);
const CLEAR: Duration = Duration::from_secs(5);

pub(super) fn judge(etcd: &EtcdFacts, at: Timestamp, now: Timestamp) -> Finding {
    let local = etcd.endpoints.iter().filter(|e| e.local);
    // Loopback and node address are one member: the one that answers speaks for it.
    let Some(endpoint) = local.max_by_key(|e| e.status.value().is_some()) else {
        return Finding::unknown(
            TYPE,
            &UnknownCause::InvalidInput,
            Severity::Warn,
            at,
            format!("No endpoint of this node's own member is known (found by {}).", etcd.found_by),
        );
    };
    let list = etcd.members.value();
    let url = &endpoint.endpoint;
    let new = |status, severity, reason, message: String| {
        Finding::new(TYPE, status, severity, reason, at, message).waits(RAISE, CLEAR)
    };
    let status = match &endpoint.status {
        Fact::Known { value, .. } => value,
        Fact::Unknown { cause, detail, .. } if is_down(cause) => {
            let since = silent_for(endpoint, now);
            let message = format!("The local member does not answer at {url}{since}: {cause}, {detail}.");
            return new(Status::False, Severity::Error, R::EtcdMemberDown, message)
                .advice(down_advice(cause));
        }
        Fact::Absent { .. } => {
            let message = format!("The local member is not there at {url}.");
            return new(Status::False, Severity::Error, R::EtcdMemberDown, message)
                .advice(down_advice(&UnknownCause::ConnectionRefused));
        }
        Fact::Unknown { cause, detail, .. } => {
            let message = format!("The local member could not be asked at {url}: {detail}.");
            return Finding::unknown(TYPE, cause, Severity::Warn, at, message);
        }
        Fact::NotApplicable { reason, .. } => {
            let message = format!("The local member was not asked at {url}: {reason}.");
            return Finding::unknown(TYPE, &UnknownCause::NotYetRead, Severity::Info, at, message);
        }
    };

    let name = name_of(list, &status.member_id);
    if status.is_learner {
        let message = format!(
            "{name} at {url} is a learner at raft index {}; it does not vote yet and cannot answer health reads.",
            status.raft_index
        );
        return new(Status::True, Severity::Info, R::EtcdMemberIsLearner, message)
            .advice("Wait, it is not broken: the leader promotes it when it has caught up.");
    }
    if lacks_leader(status) {
        let message = format!("{name} at {url} answers and sees no leader (raft term {}).", status.raft_term);
        return new(Status::False, Severity::Error, R::EtcdNoLeader, message).advice(
            "See EtcdQuorum: without a quorum there is no leader. If quorum holds elsewhere, check port 2380 from and \
             to this node. Do not restart etcd because it has no leader.",
        );
    }
    read(endpoint, name, &new)
}

fn read(
    endpoint: &EndpointFacts,
    name: &str,
    new: &impl Fn(Status, Severity, R, String) -> Finding,
) -> Finding {
    let url = &endpoint.endpoint;
    match &endpoint.linearizable_read {
        Fact::Known { value, .. } => {
            let version = endpoint.status.value().map_or("", |s| s.version.as_str());
            let message =
                format!("{name} at {url} (etcd {version}) answered a linearizable read in {value:.1} ms.");
            new(Status::True, Severity::Ok, R::EtcdMemberAnswers, message)
        }
        Fact::Unknown { cause, detail, .. } if is_down(cause) => {
            let message =
                format!("{name} at {url} answers, but a linearizable read failed: {cause}, {detail}.");
            new(Status::False, Severity::Warn, R::EtcdReadFailed, message).advice(
                "See EtcdQuorum and EtcdDisk: quorum or a slow disk is the usual cause. Do not restart etcd because it \
                 is slow.",
            )
        }
        _ => {
            let message =
                format!("{name} at {url} answers; a linearizable read was not possible for this client.");
            new(Status::True, Severity::Ok, R::EtcdMemberAnswers, message)
        }
    }
}

fn down_advice(cause: &UnknownCause) -> &'static str {
    match cause {
        UnknownCause::ConnectionRefused => {
            "Nothing listens there: see whether etcd's pod or service runs and what its log ends with. \"member has been \
             permanently removed\" means that its data folder has to be emptied before it joins again."
        }
        _ => {
            "The port is there and etcd does not answer in time: look at the disk and at the log before anything else; \
             a restart does not make a slow disk faster."
        }
    }
}
