//! Which alarms are set and on whom: by the list of alarms, and by the errors in each member's status.
//!
//! etcd lists every alarm of the cluster among the errors of every member's status, as
//! `memberID:829831840369890727 alarm:NOSPACE ` (etcd-io/etcd:server/etcdserver/api/v3rpc/maintenance.go): so the member
//! that tells it is not the one on which it is set, and the id is decimal there while it is hexadecimal elsewhere.

use outrider_protocol::EtcdFacts;

use super::view::{name_of, ours};
use crate::wording::names;

pub(super) const NO_SPACE: &str = "NOSPACE";
pub(super) const CORRUPT: &str = "CORRUPT";

/// Members on which an alarm of one kind is set.
pub(super) struct Alarmed {
    ids: Vec<String>,
    /// A member reports the alarm and does not say whose it is.
    unnamed: bool,
}

impl Alarmed {
    pub(super) fn of(etcd: &EtcdFacts, kind: &str) -> Self {
        let listed = etcd.alarms.value().into_iter().flatten().filter(|a| a.kind == kind);
        let mut ids: Vec<String> = listed.map(|a| a.member_id.clone()).collect();
        let mut unnamed = false;
        for error in errors(etcd).filter(|e| e.contains(kind)) {
            match in_error(error) {
                Some((id, told)) if told == kind => ids.push(known_id(etcd, id)),
                Some(_) => {}
                None => unnamed = true,
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Self { ids, unnamed }
    }

    pub(super) fn is_set(&self) -> bool {
        self.unnamed || !self.ids.is_empty()
    }

    /// The members that are named. Id 0 stands for "some member, it is not known which": etcd sets CORRUPT so where it cannot
    /// tell who differs (etcd-io/etcd:server/etcdserver/corrupt.go).
    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        self.ids.iter().filter(|id| id.as_str() != "0")
    }

    pub(super) fn who(&self, etcd: &EtcdFacts) -> String {
        match names(self.named().map(|id| name_of(etcd.members.value(), id)), 7) {
            nobody if nobody.is_empty() => "some member".to_owned(),
            named => named,
        }
    }
}

/// Whether an alarm is set while which no write is taken, quorum or not.
pub(crate) fn stop_writes(etcd: &EtcdFacts) -> bool {
    [NO_SPACE, CORRUPT].iter().any(|kind| Alarmed::of(etcd, kind).is_set())
}

/// Kinds of alarm that are set and that nothing here knows, each once.
pub(super) fn others(etcd: &EtcdFacts) -> Vec<&str> {
    let listed = etcd.alarms.value().into_iter().flatten().map(|a| a.kind.as_str());
    let told = errors(etcd).filter_map(|e| in_error(e).map(|(_, kind)| kind));
    let mut kinds: Vec<&str> =
        listed.chain(told).filter(|k| ![NO_SPACE, CORRUPT, "NONE", ""].contains(k)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn errors(etcd: &EtcdFacts) -> impl Iterator<Item = &str> {
    ours(etcd).filter_map(|e| e.status.value()).flat_map(|s| s.errors.iter().map(String::as_str))
}

/// Id and kind of `memberID:ID alarm:KIND`.
fn in_error(error: &str) -> Option<(u64, &str)> {
    let field = |key: &str| error.split_whitespace().find_map(|word| word.strip_prefix(key));
    Some((field("memberID:")?.parse().ok()?, field("alarm:")?))
}

/// The id as the list or a status writes it, else in plain hexadecimal.
fn known_id(etcd: &EtcdFacts, id: u64) -> String {
    let listed = etcd.members.value().into_iter().flat_map(|l| l.members.iter().map(|m| &m.id));
    let told = etcd.endpoints.iter().filter_map(|e| e.status.value().map(|s| &s.member_id));
    let same = |written: &&String| u64::from_str_radix(written, 16) == Ok(id);
    listed.chain(told).find(same).cloned().unwrap_or_else(|| format!("{id:x}"))
}
