//! Voters that are not simply brought back, because of their data: what becomes of one another condition tells, and advice
//! to bring members back has to agree with it.

use outrider_protocol::{EtcdFacts, Fact, MemberList};

use super::alarms::{Alarmed, CORRUPT};
use super::quorum::Voter;
use super::view::tells_of;

/// Why a voter that is away is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoilt {
    /// A CORRUPT alarm is set on it: `EtcdSpace` tells.
    Corrupt,
    /// It follows another leader than most, with writes of its own: `EtcdMembership` tells.
    Rival,
    /// It was removed, or the cluster was reset on its server: `EtcdMemberHealthy` of that server tells.
    ByItsFolder,
}

/// Whether the cluster was reset on this server (D19), whose member does not answer: then it is not the quorum of before that
/// is to come back.
pub(crate) fn is_reset(etcd: &EtcdFacts) -> bool {
    let folder = etcd.data_folder.as_ref().and_then(Fact::value);
    folder.is_some_and(|f| f.reset_flag) && etcd.local_status().is_none()
}

/// Marks those of `voters`, which are of `list`, whose data is spoilt by what `etcd` tells.
pub(crate) fn mark(voters: &mut [Voter<'_>], etcd: &EtcdFacts, list: &MemberList) {
    let corrupt = Alarmed::of(etcd, CORRUPT);
    for id in corrupt.named() {
        voters.iter_mut().filter(|v| v.id == id).for_each(|v| v.spoilt = Some(Spoilt::Corrupt));
    }
    let folder = etcd.data_folder.as_ref().and_then(Fact::value);
    let is_told = folder.is_some_and(|f| f.tombstone || f.reset_flag) && etcd.local_status().is_none();
    for e in etcd.endpoints.iter().filter(|e| e.local && is_told) {
        let own = list.members.iter().filter(|m| tells_of(e, m, Some(list)));
        for member in own {
            let voter = voters.iter_mut().filter(|v| v.id == member.id);
            voter.for_each(|v| v.spoilt = Some(Spoilt::ByItsFolder));
        }
    }
}
