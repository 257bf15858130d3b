//! Every node in memory, found by uid, name, key and marks: what each request is checked against.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrider_protocol::{Identity, Timestamp};

use super::clones::Run;
use super::{CloneRecord, Enrolment, NodeRecord};

/// Signs of life of one node. Lost with the process, all but the clone, which the record keeps.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// When it was last heard.
    pub(super) heard: Option<Timestamp>,
    /// How often it means to be heard.
    pub(super) interval: Option<Duration>,
    /// Which incarnations, in what order.
    pub(super) runs: Vec<Run>,
    /// A twin that is stopped.
    pub(super) clone: Option<CloneRecord>,
    /// When the twin last tried.
    pub(super) twin_heard: Option<Timestamp>,
    /// Marks as last reported, when they differ from the record's.
    pub(super) identity: Option<Box<Identity>>,
}

/// One node as it is known here.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) record: Arc<NodeRecord>,
    /// Revision in the store; 0 while the first write is under way.
    pub(super) revision: u64,
    pub(super) life: Arc<Mutex<Life>>,
}

impl Known {
    pub(super) fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Uids = BTreeSet<String>;

/// The nodes and the ways to find them.
#[derive(Debug, Default)]
pub(super) struct Index {
    nodes: BTreeMap<String, Known>,
    names: HashMap<String, Uids>,
    keys: HashMap<String, Uids>,
    machine_ids: HashMap<String, Uids>,
    system_uuids: HashMap<String, Uids>,
    tokens: HashMap<String, TokenUse>,
}

/// What a token admitted: counted as records come and go, for a token may admit a whole fleet.
#[derive(Debug, Default)]
struct TokenUse {
    admitted: u32,
    pending: u32,
    by_rate: BTreeSet<(Timestamp, String)>,
}

fn add(map: &mut HashMap<String, Uids>, key: &str, uid: &str) {
    if !key.is_empty() {
        map.entry(key.to_owned()).or_default().insert(uid.to_owned());
    }
}

fn take(map: &mut HashMap<String, Uids>, key: &str, uid: &str) {
    if let Some(uids) = map.get_mut(key) {
        uids.remove(uid);
        if uids.is_empty() {
            map.remove(key);
        }
    }
}

impl Index {
    pub(super) fn get(&self, uid: &str) -> Option<&Known> {
        self.nodes.get(uid)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Known> {
        self.nodes.values()
    }

    /// Puts a record in, in place of an older one of its uid; an older revision than the known one is ignored.
    pub(super) fn insert(&mut self, record: Arc<NodeRecord>, revision: u64) {
        let life = match self.nodes.get(&record.uid) {
            Some(known) if known.revision > revision => return,
            Some(known) => known.life.clone(),
            None => Arc::default(),
        };
        self.remove(&record.uid);
        let uid = record.uid.clone();
        add(&mut self.names, &record.name, &uid);
        add(&mut self.keys, &record.key_hash, &uid);
        add(&mut self.machine_ids, &record.identity.machine_id_hash, &uid);
        add(&mut self.system_uuids, &record.identity.system_uuid, &uid);
        let used = self.tokens.entry(record.token_id.clone()).or_default();
        let pending = record.enrolment == Enrolment::Pending;
        used.pending += u32::from(pending);
        used.admitted += u32::from(!pending);
        if record.admitted_by_rate {
            used.by_rate.insert((record.enrolled_at, uid.clone()));
        }
        let known = Known { record, revision, life };
        // What was stored of a clone outlives a restart; what is known since is newer.
        let mut now = known.life();
        if now.clone.is_none() && now.runs.is_empty() {
            now.clone = known.record.clone.clone();
        }
        drop(now);
        self.nodes.insert(uid, known);
    }

    pub(super) fn remove(&mut self, uid: &str) {
        let Some(known) = self.nodes.remove(uid) else {
            return;
        };
        take(&mut self.names, &known.record.name, uid);
        take(&mut self.keys, &known.record.key_hash, uid);
        take(&mut self.machine_ids, &known.record.identity.machine_id_hash, uid);
        take(&mut self.system_uuids, &known.record.identity.system_uuid, uid);
        if let Some(used) = self.tokens.get_mut(&known.record.token_id) {
            let pending = known.record.enrolment == Enrolment::Pending;
            used.pending -= u32::from(pending);
            used.admitted -= u32::from(!pending);
            used.by_rate.remove(&(known.record.enrolled_at, known.record.uid.clone()));
        }
    }

    fn of<'a>(&'a self, uids: Option<&'a Uids>) -> impl Iterator<Item = &'a Known> {
        uids.into_iter().flatten().filter_map(|uid| self.nodes.get(uid))
    }

    /// The node people mean by `name`: the approved one of the name, else one that waits, else one that was revoked; or
    /// the one of this uid.
    pub(super) fn find(&self, name: &str) -> Option<&Known> {
        let rank = |known: &&Known| match known.record.enrolment {
            Enrolment::Approved => 0,
            Enrolment::Pending => 1,
            Enrolment::Revoked => 2,
            Enrolment::Superseded => 3,
        };
        let named = self.of(self.names.get(name)).filter(|k| k.record.enrolment != Enrolment::Superseded);
        named.min_by_key(rank).or_else(|| self.nodes.get(name))
    }

    /// Every node that shares uid, name, key or a mark.
    pub(super) fn related(&self, uid: &str, name: &str, key_hash: &str, identity: &Identity) -> Vec<Known> {
        let mut uids: BTreeSet<&str> = BTreeSet::from([uid]);
        for shared in [
            self.names.get(name),
            self.keys.get(key_hash),
            self.machine_ids.get(&identity.machine_id_hash),
            self.system_uuids.get(&identity.system_uuid),
        ] {
            uids.extend(shared.into_iter().flatten().map(String::as_str));
        }
        uids.into_iter().filter_map(|uid| self.nodes.get(uid)).cloned().collect()
    }

    /// Other nodes that share a mark with this one; empty nearly always, so it costs two look-ups.
    pub(super) fn sharing(&self, record: &NodeRecord) -> Vec<Known> {
        let identity = &record.identity;
        let sets =
            [self.machine_ids.get(&identity.machine_id_hash), self.system_uuids.get(&identity.system_uuid)];
        if sets.iter().flatten().all(|uids| uids.len() < 2) {
            return Vec::new();
        }
        let uids: BTreeSet<&String> = sets.into_iter().flatten().flatten().collect();
        uids.into_iter()
            .filter(|uid| **uid != record.uid)
            .filter_map(|uid| self.nodes.get(uid))
            .cloned()
            .collect()
    }

    /// How many nodes a token admitted, whatever became of them.
    pub(super) fn uses(&self, id: &str) -> u32 {
        self.tokens.get(id).map_or(0, |used| used.admitted)
    }

    /// How many machines wait for approval with a token.
    pub(super) fn pending(&self, id: &str) -> u32 {
        self.tokens.get(id).map_or(0, |used| used.pending)
    }

    /// Whether a pool token's rate has room at `now`.
    pub(super) fn within_rate(&self, id: &str, rate: u32, now: Timestamp) -> bool {
        let since = (now.before(Duration::from_secs(3600)), String::new());
        let recent = self.tokens.get(id).map_or(0, |used| used.by_rate.range(since..).count());
        recent < rate as usize
    }
}
