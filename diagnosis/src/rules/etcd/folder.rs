//! What the data folder of this server tells of a removal or a reset, and whose data may be emptied by that: nobody's before
//! it is known where the cluster lives (D10, D18, D19).

use outrider_protocol::{DataFolder, EndpointFacts, EtcdFacts, Fact, ReasonCode as R};

use super::view::{display_name, lacks_leader, member_of, name_of, ours};
use crate::wording::names;

const NAMED: usize = 7;

/// Voters on other servers that answer and see a leader: where one does, a cluster lives without this server.
fn living<'a>(etcd: &'a EtcdFacts, endpoints: impl Iterator<Item = &'a EndpointFacts>) -> String {
    let serves =
        |e: &&EndpointFacts| !e.local && e.status.value().is_some_and(|s| !s.is_learner && !lacks_leader(s));
    let name = |e: &'a EndpointFacts| {
        member_of(e).map_or(e.endpoint.as_str(), |id| name_of(etcd.members.value(), id))
    };
    names(endpoints.filter(serves).map(name), NAMED)
}

/// A tombstone in the folder of a member that does not answer.
pub(super) fn removed_advice(etcd: &EtcdFacts, folder: &DataFolder) -> String {
    let path = &folder.path;
    let means = "\"member has been permanently removed\" means: wipe the data and rejoin";
    if folder.reset_flag {
        return format!(
            "Do not empty {path} yet: a server on which the cluster was reset may hold the only data. A person keeps a copy of it \
             and sees first whether another server's etcd lives, and with which data. Only where one does and holds what counts, \
             {means}, with the same token."
        );
    }
    match living(etcd, ours(etcd)) {
        nobody if nobody.is_empty() => format!(
            "Do not empty {path} yet: no other voter answers here with a leader, so nobody knows whether the cluster still lives. \
             See first on another server (outrider check --only etcd there; EtcdQuorum). \
             While it is not known, a person keeps a copy of the folder. Once the cluster serves, {means}, with the same token."
        ),
        who => format!(
            "{means}. A person makes sure that this server is to come back, empties {path} (the cluster goes on without it; answering with a \
             leader: {who}) and starts the server with the same token, so that it joins as a new member. Starting it \
             again with the old data does not help."
        ),
    }
}

/// A reset-flag beside the folder of a member that does not answer.
pub(super) fn reset_advice(etcd: &EtcdFacts) -> String {
    match living(etcd, etcd.endpoints.iter()) {
        nobody if nobody.is_empty() => "The reset is done: do not reset again. A person starts this server normally first, with the \
             same token, and only then the others, each with its own data folder emptied and a copy of it kept until this one \
             serves; as long as one of them runs with its old data, it disturbs this one."
            .to_owned(),
        who => format!(
            "Do not reset again, and empty no data folder: a cluster lives without this server (answering with a leader: {who}). A \
             person finds out first which side holds the data that counts (etcdctl endpoint status: cluster id, revision; the \
             newest objects). Where it is the cluster of {who}, this server is the one that joins it anew, with its own data \
             folder emptied after a copy; start it with its old data before that is settled, and it may stand against them."
        ),
    }
}

/// What a removal (D18) or a reset (D19) left in the folder while the member `name` runs: reason, message, advice.
pub(super) fn odd(etcd: &EtcdFacts, name: &str) -> Option<(R, String, String)> {
    let folder = etcd.data_folder.as_ref().and_then(Fact::value)?;
    if folder.tombstone {
        return Some(doomed(etcd, folder, name));
    }
    if !folder.reset_flag {
        return None;
    }
    let path = &folder.path;
    let members = etcd.members.value().map_or(&[][..], |l| &l.members);
    let flag = format!("{name} answers; its cluster was reset on this server (reset-flag by {path})");
    let (message, advice) = match members {
        [] => (
            format!("{flag}, and which members it has now was not read."),
            "Do not reset again, and empty no data folder before the member list tells who belongs to this cluster now \
             (outrider check --only etcd)."
                .to_owned(),
        ),
        [_] => (
            format!("{flag}, and this is its only member now."),
            format!(
                "The flag goes with the next normal start of this server. Servers that are to join {name} again: each stopped, its \
                 own data folder emptied, the same token. A server that still runs with its old data disturbs this one."
            ),
        ),
        members => {
            let who = names(members.iter().map(display_name), NAMED);
            (
                format!("{flag}, and has {} members now: {who}.", members.len()),
                format!(
                    "Empty nothing on the servers of {who}: they belong to the cluster as it is now. The flag is left over and goes with \
                     the next normal start of this server. Only a server that is not among them and still holds data from before \
                     the reset is stopped, and its own data folder emptied, before it joins."
                ),
            )
        }
    };
    Some((R::EtcdClusterReset, message, advice))
}

/// A tombstone under a member that runs and is in the list: K3s and RKE2 move such a folder away at their next start and join
/// anew (k3s-io/k3s:pkg/etcd/etcd.go, `Register`).
fn doomed(etcd: &EtcdFacts, folder: &DataFolder, name: &str) -> (R, String, String) {
    let path = &folder.path;
    let message = format!(
        "{name} answers, and a tombstone lies in {path}: it was removed from its cluster once, and at the next start of this \
         server K3s and RKE2 move that folder away and join as a new member."
    );
    let voters = etcd.members.value().map_or(0, |l| l.members.iter().filter(|m| !m.is_learner).count());
    let price = match voters {
        1 => "it is the only voter, so the data of the whole cluster would go with the folder",
        _ => {
            "it would come back as a new member beside its old entry in the list, which then counts as a ghost"
        }
    };
    let advice = format!(
        "Do not restart this server before that is settled: {price}. A person takes an etcd snapshot, sees in the server's log who \
         removed it and when (\"removed from the cluster\"), and decides whether it is to go: the tombstone alone makes the next \
         start give the data up."
    );
    (R::EtcdMemberRemoved, message, advice)
}
