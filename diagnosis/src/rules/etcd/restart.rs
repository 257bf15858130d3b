//! Whether this server's member may be restarted and would come back, apart from what quorum says: other conditions forbid
//! a restart or foresee that it fails, and advice that names one for another reason (a certificate's end) has to agree.

use outrider_protocol::{EtcdFacts, Fact, Timestamp};

use super::alarms::{Alarmed, CORRUPT, NO_SPACE, others};
use super::member::{NEXT_SEGMENT, unlisted};
use super::peers::{self, Compared};
use super::space::LARGE;
use super::spoilt::is_reset;
use super::view::{distinct, tally};
use crate::wording::names;

/// One thing to be settled before a restart. No figure that changes from look to look is in its words.
pub(crate) struct Hindrance {
    /// In words that follow a colon.
    pub(crate) why: String,
    /// The condition that says what to do about it.
    pub(crate) see: String,
}

impl Hindrance {
    fn new(see: &str, why: String) -> Self {
        Self { why, see: see.to_owned() }
    }
}

/// All that stands against a restart of the server that runs this node's member.
pub(crate) fn hindrances(etcd: &EtcdFacts, now: Timestamp) -> Vec<Hindrance> {
    let all = [of_alarms(etcd), of_the_list(etcd, now), of_the_folder(etcd), of_the_disk(etcd)];
    all.into_iter().flatten().collect()
}

/// etcd may end at its start with a full quota (D3), and what is corrupt is spread or lost by it.
fn of_alarms(etcd: &EtcdFacts) -> Option<Hindrance> {
    let (corrupt, no_space) = (Alarmed::of(etcd, CORRUPT), Alarmed::of(etcd, NO_SPACE));
    let why = if corrupt.is_set() {
        format!(
            "a CORRUPT alarm is set on {}, and no member is restarted while it is not known which data is sound",
            corrupt.who(etcd)
        )
    } else if no_space.is_set() {
        format!(
            "a NOSPACE alarm is set on {}, and etcd may end at its start while the quota is used up",
            no_space.who(etcd)
        )
    } else {
        let kinds = names(others(etcd), 3);
        if kinds.is_empty() {
            return None;
        }
        format!("the alarm {kinds} is set, and what it means for a start is not known here")
    };
    Some(Hindrance::new("EtcdSpace", why))
}

fn of_the_list(etcd: &EtcdFacts, now: Timestamp) -> Option<Hindrance> {
    if unlisted(etcd).is_some_and(|(_, list)| list.linearizable) {
        let why =
            "this server's member is no longer in the member list, so it does not come back with its data";
        return Some(Hindrance::new("EtcdMemberHealthy", why.to_owned()));
    }
    let (list, _) = distinct(etcd.members.value()?);
    let tally = tally(etcd, &list, now);
    let Compared::Different(_) = peers::local(etcd, &list, &tally, now) else { return None };
    let why = "this server's member is recorded with another peer URL than its configuration gives it, so etcd does not come back from \
               a start";
    Some(Hindrance::new("EtcdMembership", why.to_owned()))
}

/// K3s and RKE2 move the folder away at the next start where a tombstone lies in it. After a reset a normal start is what is
/// wanted, but not of a member that is down before it is known which side holds the data that counts (`folder`).
fn of_the_folder(etcd: &EtcdFacts) -> Option<Hindrance> {
    let folder = etcd.data_folder.as_ref().and_then(Fact::value)?;
    let path = &folder.path;
    let why = if folder.tombstone {
        format!("a tombstone lies in {path}, and a start takes the data of a removed member away")
    } else if is_reset(etcd) {
        "the cluster was reset on this server, whose member does not answer, and which data counts is to be known first"
            .to_owned()
    } else {
        return None;
    };
    Some(Hindrance::new("EtcdMemberHealthy", why))
}

/// A start sets the next piece of the log aside, and with RKE2 and K3s it defragments, which takes a copy of the file.
fn of_the_disk(etcd: &EtcdFacts) -> Option<Hindrance> {
    let folder = etcd.data_folder.as_ref().and_then(Fact::value)?;
    let free = folder.free_bytes?;
    if free < NEXT_SEGMENT {
        let see = if etcd.local_status().is_some() { "EtcdSpace" } else { "EtcdMemberHealthy" };
        let why = format!(
            "the file system of etcd's data ({}) is full, and etcd ends at every start until there is room",
            folder.path
        );
        return Some(Hindrance::new(see, why));
    }
    u64::try_from(etcd.local_status()?.db_size_bytes).ok().filter(|size| *size > LARGE && free < *size)?;
    let why = format!("{} has no room for the copy of the database that a start may make", folder.path);
    Some(Hindrance::new("EtcdSpace", why))
}
