//! The registrar: admission, certificates, revocation and identity, over the store.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bytes::Bytes;
use outrider_protocol::{Identity, NodeConfig, NodeConfigSpec, Timestamp};
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

use super::index::{Index, Known};
use super::operators::Operators;
use super::vouching::Witness;
use super::{Ended, EnrolError, Enrolment, NodeRecord, Operator, TokenText};
use crate::pki::{Authority, PeerCertificate};
use crate::store::{self, Expect, Store, StoreError};

/// Tries of a change against another writer before giving up.
const TRIES: usize = 8;
/// Where the pins of the CA are remembered, to tell when it is another one.
const AUTHORITY_KEY: &str = "authority";
/// Departures held for a subscriber that is slow.
const DEPARTURES: usize = 1024;

/// What the registrar goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long after its end a certificate may still renew. 45 days, so that a VM switched off for a month comes back.
    pub renewal_grace: Duration,
    /// A node silent for this many of its intervals no longer lives.
    pub silent_after_intervals: u32,
    /// The interval of a node that has not told its own.
    pub default_interval: Duration,
    /// Two incarnations that alternate within this time (or three intervals, if that is longer) are two machines.
    pub clone_window: Duration,
    /// Tokens that end within this time are warned about.
    pub warn_before: Duration,
    /// How long superseded nodes are remembered.
    pub superseded_kept: Duration,
    /// How long a request for approval is kept that its machine no longer repeats.
    pub pending_kept: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let days = |n: u64| Duration::from_secs(n * 24 * 3600);
        Self {
            renewal_grace: days(45),
            silent_after_intervals: 3,
            default_interval: Duration::from_secs(30),
            clone_window: Duration::from_secs(600),
            warn_before: days(14),
            superseded_kept: days(60),
            pending_kept: days(7),
        }
    }
}

/// A node whose connections are to be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Its uid.
    pub uid: String,
    /// Why: `NodeRevoked` or `NodeSuperseded`.
    pub reason: &'static str,
}

/// A sign of life of a node, as a heartbeat or report carries it.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// Kernel boot id; empty when not told, which counts as life and tells nothing of clones.
    pub boot_id: &'a str,
    /// Spool epoch.
    pub epoch: Uuid,
    /// Marks of the machine, where the request carries them.
    pub identity: Option<&'a Identity>,
    /// How often the node means to be heard, where the request says.
    pub interval: Option<Duration>,
    /// When it came.
    pub at: Timestamp,
}

/// The registrar; share it in an `Arc`.
#[derive(Debug)]
pub struct Registrar {
    pub(super) store: Arc<dyn Store>,
    pub(super) authority: Arc<Authority>,
    pub(super) settings: Settings,
    /// Before this nobody can have been heard: nodes count as living for their first silence.
    pub(super) started_at: Timestamp,
    index: RwLock<Index>,
    operators: Operators,
    /// Who sees virtual machines from outside, where somebody does.
    witness: OnceLock<Arc<dyn Witness>>,
    /// The file of the first operator token, once it was asked for.
    operator_file: Mutex<Option<PathBuf>>,
    departures: broadcast::Sender<Departure>,
    /// Uids whose life holds something the store does not know yet.
    pub(super) unsaved: Mutex<BTreeSet<String>>,
    pub(super) unsaved_bell: Notify,
}

impl Registrar {
    /// Reads the registry from the store.
    ///
    /// Records that cannot be read are named in the log and left where they are; their nodes must enrol again.
    pub async fn open(
        store: Arc<dyn Store>,
        authority: Arc<Authority>,
        settings: Settings,
        now: Timestamp,
    ) -> Result<Self, EnrolError> {
        let (entries, _) = store::list_all(&*store, "nodes/").await?;
        let mut index = Index::default();
        for entry in entries {
            match serde_json::from_slice::<NodeRecord>(&entry.value) {
                Ok(record) => index.insert(Arc::new(record), entry.revision),
                Err(e) => log::error!("{} cannot be read, the node is unknown: {e}", entry.key),
            }
        }
        let operators = Operators::load(&*store).await?;
        let registrar = Self {
            store,
            authority,
            settings,
            started_at: now,
            index: RwLock::new(index),
            operators,
            witness: OnceLock::new(),
            operator_file: Mutex::default(),
            departures: broadcast::Sender::new(DEPARTURES),
            unsaved: Mutex::default(),
            unsaved_bell: Notify::new(),
        };
        registrar.finish_interrupted(now).await?;
        registrar.compare_authority().await?;
        Ok(registrar)
    }

    /// Says when the CA is another one than these nodes know: its folder was lost or restored from elsewhere.
    pub(super) async fn compare_authority(&self) -> Result<(), EnrolError> {
        let pins: Vec<String> = self.authority.roots().iter().map(|root| root.pin.to_string()).collect();
        let found = self.store.get(AUTHORITY_KEY).await?;
        let before: Vec<String> =
            found.and_then(|e| serde_json::from_slice(&e.value).ok()).unwrap_or_default();
        if !before.is_empty() && !before.iter().any(|pin| pins.contains(pin)) {
            let nodes = self.nodes().len();
            log::error!(
                "the CA is {} and this database knew {}: {nodes} nodes cannot verify this coordinator. Restore the CA's \
                 folder from a backup, or enrol them again with new tokens",
                pins.join(", "),
                before.join(", "),
            );
        }
        if before != pins {
            self.store.put(AUTHORITY_KEY, encode(&pins)?, Expect::Any).await?;
        }
        Ok(())
    }

    /// Ends what a crash left half done: a node was stored, those whose place it took were not yet ended.
    async fn finish_interrupted(&self, now: Timestamp) -> Result<(), EnrolError> {
        let mut left: Vec<(String, String)> = Vec::new();
        {
            let index = self.index();
            for known in index.all().filter(|k| k.record.enrolment == Enrolment::Approved) {
                for old in &known.record.supersedes {
                    let alive = index.get(old).is_some_and(|o| {
                        matches!(o.record.enrolment, Enrolment::Approved | Enrolment::Pending)
                    });
                    if alive {
                        left.push((old.clone(), known.record.uid.clone()));
                    }
                }
            }
        }
        for (old, new) in left {
            self.supersede(&old, &new, now).await?;
        }
        Ok(())
    }

    pub(super) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `witness` asked for machines of tokens that admit those that are seen.
    pub fn ask_witness(&self, witness: Arc<dyn Witness>) {
        let _ = self.witness.set(witness);
    }

    pub(super) fn witness(&self) -> Option<&dyn Witness> {
        self.witness.get().map(|witness| &**witness)
    }

    /// Nodes whose connections are to be closed, from now on.
    pub fn departures(&self) -> broadcast::Receiver<Departure> {
        self.departures.subscribe()
    }

    /// Every node but the superseded, by name.
    pub fn nodes(&self) -> Vec<Arc<NodeRecord>> {
        let index = self.index();
        let shown = index.all().filter(|k| k.record.enrolment != Enrolment::Superseded);
        let mut nodes: Vec<Arc<NodeRecord>> = shown.map(|k| k.record.clone()).collect();
        drop(index);
        nodes.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
        nodes
    }

    /// The node of this uid, whatever became of it.
    pub fn node(&self, uid: &str) -> Option<Arc<NodeRecord>> {
        self.index().get(uid).map(|k| k.record.clone())
    }

    /// The node people mean by a name or uid: the approved one of the name, else one that waits, else a revoked one.
    pub fn find(&self, name_or_uid: &str) -> Result<Arc<NodeRecord>, EnrolError> {
        let found = self.index().find(name_or_uid).map(|k| k.record.clone());
        found.ok_or_else(|| EnrolError::NodeUnknown { node: name_or_uid.chars().take(253).collect() })
    }

    /// Nodes that have not renewed since root `generation` was replaced: whom its retirement would leave out.
    pub fn nodes_of_root(&self, generation: u32) -> Vec<Arc<NodeRecord>> {
        let approved = |r: &NodeRecord| r.enrolment == Enrolment::Approved;
        let of_root = |r: &NodeRecord| r.certificates.last().is_some_and(|c| c.generation <= generation);
        self.nodes().into_iter().filter(|r| approved(r) && of_root(r)).collect()
    }

    /// Who holds this certificate, if it may speak at `now`: to be asked on every request. Two look-ups, no I/O.
    pub fn authenticate(
        &self,
        peer: &PeerCertificate,
        now: Timestamp,
    ) -> Result<Arc<NodeRecord>, EnrolError> {
        let record = self.holder(peer)?;
        match peer.expired_since(now) {
            Some(since) => Err(EnrolError::CertificateExpired { since }),
            None => Ok(record),
        }
    }

    /// Who holds this certificate, expired or not.
    pub(super) fn holder(&self, peer: &PeerCertificate) -> Result<Arc<NodeRecord>, EnrolError> {
        let record =
            self.node(&peer.uid).ok_or_else(|| EnrolError::NodeUnknown { node: peer.uid.clone() })?;
        standing(&record)?;
        if record.key_hash != peer.key_hash {
            let (serial, name) = (peer.serial.clone(), record.name.clone());
            return Err(EnrolError::CertificateUnknown { serial, name });
        }
        Ok(record)
    }

    /// Changes a record by `change`, against other writers; nothing is written when it changes nothing.
    pub(super) async fn update(
        &self,
        uid: &str,
        change: impl Fn(&mut NodeRecord) -> Result<(), EnrolError>,
    ) -> Result<Arc<NodeRecord>, EnrolError> {
        let unknown = || EnrolError::NodeUnknown { node: uid.to_owned() };
        let known = self.index().get(uid).cloned().ok_or_else(unknown)?;
        let (mut record, mut revision) = (known.record, known.revision);
        let mut tries = 0;
        loop {
            let mut changed = NodeRecord::clone(&record);
            change(&mut changed)?;
            if changed == *record {
                return Ok(record);
            }
            let value = encode(&changed)?;
            match self.store.put(&NodeRecord::key(uid), value, Expect::Revision(revision)).await {
                Ok(revision) => {
                    let changed = Arc::new(changed);
                    self.index_mut().insert(changed.clone(), revision);
                    return Ok(changed);
                }
                Err(StoreError::Conflict { .. }) if tries < TRIES => tries += 1,
                Err(e) => return Err(e.into()),
            }
            let entry = self.store.get(&NodeRecord::key(uid)).await?.ok_or_else(unknown)?;
            record = Arc::new(decode(&entry)?);
            revision = entry.revision;
            self.index_mut().insert(record.clone(), revision);
        }
    }

    /// Lets a waiting node in; one already in stays in.
    pub async fn approve(&self, name_or_uid: &str, now: Timestamp) -> Result<Arc<NodeRecord>, EnrolError> {
        let uid = self.find(name_or_uid)?.uid.clone();
        let record = self
            .update(&uid, |record| {
                if record.enrolment == Enrolment::Pending {
                    record.enrolment = Enrolment::Approved;
                    record.pending_why.clear();
                }
                standing(record)
            })
            .await?;
        // The operator has seen whose place it takes: it said so while it waited.
        let others: Vec<Known> = self.index().related(&uid, &record.name, &record.key_hash, &record.identity);
        for other in others {
            let listed = record.supersedes.contains(&other.record.uid);
            let living = matches!(other.record.enrolment, Enrolment::Approved | Enrolment::Pending);
            if other.record.uid != uid && living && (listed || other.record.name == record.name) {
                self.supersede(&other.record.uid, &uid, now).await?;
            }
        }
        log::info!("node {} ({uid}) was approved", record.name);
        Ok(record)
    }

    /// Shuts a node out and closes its connections. Its key never gets in again; a new key with a new token may.
    pub async fn revoke(
        &self,
        name_or_uid: &str,
        why: &str,
        now: Timestamp,
    ) -> Result<Arc<NodeRecord>, EnrolError> {
        let uid = self.find(name_or_uid)?.uid.clone();
        let record = self
            .update(&uid, |record| {
                if record.enrolment != Enrolment::Revoked {
                    record.enrolment = Enrolment::Revoked;
                    record.ended = Some(Ended { at: now, why: why.to_owned() });
                }
                Ok(())
            })
            .await?;
        log::warn!("node {} ({uid}) was revoked", record.name);
        self.depart(&uid, "NodeRevoked");
        Ok(record)
    }

    /// Forgets simulated nodes that were revoked; their uids.
    pub async fn forget_simulated(&self) -> Result<Vec<String>, EnrolError> {
        let over: Vec<(String, u64)> = {
            let index = self.index();
            let revoked =
                index.all().filter(|k| k.record.simulated && k.record.enrolment == Enrolment::Revoked);
            revoked.map(|k| (k.record.uid.clone(), k.revision)).collect()
        };
        let mut forgotten = Vec::new();
        for (uid, revision) in over {
            self.store.delete(&NodeRecord::key(&uid), Expect::Revision(revision)).await?;
            self.index_mut().remove(&uid);
            forgotten.push(uid);
        }
        Ok(forgotten)
    }

    pub(super) async fn supersede(&self, old: &str, new: &str, now: Timestamp) -> Result<(), EnrolError> {
        let record = self
            .update(old, |record| {
                if matches!(record.enrolment, Enrolment::Approved | Enrolment::Pending) {
                    record.enrolment = Enrolment::Superseded;
                    record.ended = Some(Ended { at: now, why: format!("superseded by {new}") });
                }
                Ok(())
            })
            .await?;
        log::info!("node {} ({old}) was superseded by {new}", record.name);
        self.depart(old, "NodeSuperseded");
        Ok(())
    }

    fn depart(&self, uid: &str, reason: &'static str) {
        // Nobody listening is no failure: every request is checked anyway.
        let _ = self.departures.send(Departure { uid: uid.to_owned(), reason });
    }

    /// Sets what is desired of a node. `expected`: the generation the change is based on, if it must be that one.
    pub async fn set_config(
        &self,
        name_or_uid: &str,
        spec: &NodeConfigSpec,
        expected: Option<u64>,
    ) -> Result<NodeConfig, EnrolError> {
        let uid = self.find(name_or_uid)?.uid.clone();
        let record = self
            .update(&uid, |record| {
                let current = record.desired.generation;
                if let Some(expected) = expected.filter(|e| *e != current) {
                    return Err(EnrolError::ConfigChanged { name: record.name.clone(), expected, current });
                }
                if record.desired.spec != *spec {
                    record.desired.spec = spec.clone();
                    record.desired.generation = current + 1;
                }
                Ok(())
            })
            .await?;
        Ok(record.desired.clone())
    }

    /// Sets the labels of a node.
    pub async fn set_labels(
        &self,
        name_or_uid: &str,
        labels: &std::collections::BTreeMap<String, String>,
    ) -> Result<Arc<NodeRecord>, EnrolError> {
        let uid = self.find(name_or_uid)?.uid.clone();
        self.update(&uid, |record| {
            record.labels.clone_from(labels);
            Ok(())
        })
        .await
    }

    /// Changes labels of a node: a value sets one, `None` removes it, the others stay. One that has another value is
    /// changed only with `overwrite`; a node has at most `most`.
    pub async fn change_labels(
        &self,
        name_or_uid: &str,
        change: &std::collections::BTreeMap<String, Option<String>>,
        overwrite: bool,
        most: usize,
    ) -> Result<Arc<NodeRecord>, EnrolError> {
        let uid = self.find(name_or_uid)?.uid.clone();
        self.update(&uid, |record| {
            let mut labels = record.labels.clone();
            for (key, value) in change {
                let Some(value) = value else {
                    labels.remove(key);
                    continue;
                };
                let before = labels.insert(key.clone(), value.clone());
                if let Some(before) = before.filter(|before| before != value && !overwrite) {
                    let name = record.name.clone();
                    return Err(EnrolError::LabelTaken { name, key: key.clone(), value: before });
                }
            }
            if labels.len() > most {
                return Err(EnrolError::TooManyLabels {
                    name: record.name.clone(),
                    count: labels.len(),
                    most,
                });
            }
            record.labels = labels;
            Ok(())
        })
        .await
    }

    /// The operator token in `file` (0600), made when there is none. It follows the CA: after a rotation the file gets
    /// the new pin when the registry is tended.
    pub async fn ensure_operator_token(&self, file: &Path, now: Timestamp) -> Result<TokenText, EnrolError> {
        let text = self.operators.ensure_file(&*self.store, file, self.authority.pin(), now).await?;
        *self.operator_file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file.to_owned());
        Ok(text)
    }

    /// Follows a change of the CA: remembers its pins, and gives the operator token's file the active root's.
    pub async fn follow_authority(&self, now: Timestamp) -> Result<(), EnrolError> {
        self.compare_authority().await?;
        let file = self.operator_file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(file) = file {
            self.ensure_operator_token(&file, now).await?;
        }
        Ok(())
    }

    /// A further operator token.
    pub async fn create_operator(&self, name: &str, now: Timestamp) -> Result<TokenText, EnrolError> {
        let text = TokenText::generate(self.authority.pin());
        self.operators.add(&*self.store, &text, name, now).await?;
        Ok(text)
    }

    /// Takes an operator token away; whether there was one.
    pub async fn revoke_operator(&self, id: &str) -> Result<bool, EnrolError> {
        self.operators.remove(&*self.store, id).await
    }

    /// Every operator token, without secrets.
    pub fn operators(&self) -> Vec<Operator> {
        self.operators.list()
    }

    /// Who shows this operator token (the text after `Bearer `). No I/O.
    pub fn check_operator(&self, token: &str) -> Result<Operator, EnrolError> {
        self.operators.check(token)
    }
}

/// Whether a node may speak.
pub(super) fn standing(record: &NodeRecord) -> Result<(), EnrolError> {
    let name = || record.name.clone();
    let ended = || record.ended.clone().unwrap_or(Ended { at: record.enrolled_at, why: String::new() });
    match record.enrolment {
        Enrolment::Approved => Ok(()),
        Enrolment::Pending => Err(EnrolError::NodePending { name: name() }),
        Enrolment::Revoked => {
            let Ended { at, why } = ended();
            Err(EnrolError::NodeRevoked { name: name(), since: at, why })
        }
        Enrolment::Superseded => Err(EnrolError::NodeSuperseded { name: name(), since: ended().at }),
    }
}

pub(super) fn encode(document: &impl serde::Serialize) -> Result<Bytes, EnrolError> {
    let invalid = |e: serde_json::Error| StoreError::Invalid { key: String::new(), problem: e.to_string() };
    // Without room to grow: the store keeps recent documents in memory for its watchers.
    Ok(serde_json::to_vec(document).map_err(invalid)?.into_boxed_slice().into())
}

pub(super) fn decode<T: serde::de::DeserializeOwned>(entry: &store::Entry) -> Result<T, EnrolError> {
    let invalid =
        |e: serde_json::Error| StoreError::Invalid { key: entry.key.clone(), problem: e.to_string() };
    Ok(serde_json::from_slice(&entry.value).map_err(invalid)?)
}
