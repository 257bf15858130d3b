//! Signs of life, and what they say of clones: see [`clones`](super::clones) for the rule itself.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use outrider_protocol::{Condition, ConditionType, ReasonCode, Severity, Status, Timestamp};

use super::clones::{self, Incarnation, Sameness, alternation, hardware, shared_mark};
use super::index::{Known, Life};
use super::registrar::{Registrar, Sighting};
use super::{CloneRecord, EnrolError, Enrolment, NodeRecord};

impl Registrar {
    /// When a node was last heard: at the latest sign of life, or, before any, when it enrolled or we started.
    pub(super) fn heard(&self, known: &Known) -> Timestamp {
        known.life().heard.unwrap_or(known.record.enrolled_at.max(self.started_at))
    }

    /// How long a node may be silent and still live.
    pub(super) fn silent_after(&self, known: &Known) -> Duration {
        let interval = known.life().interval.unwrap_or(self.settings.default_interval);
        interval * self.settings.silent_after_intervals
    }

    fn window(&self, life: &Life) -> Duration {
        let interval = life.interval.unwrap_or(self.settings.default_interval);
        self.settings.clone_window.max(interval * 3)
    }

    /// When the node was last heard since this process began.
    pub fn last_heard(&self, uid: &str) -> Option<Timestamp> {
        self.index().get(uid).and_then(|known| known.life().heard)
    }

    /// Takes note of a sign of life, on every request of an authenticated node. No I/O.
    ///
    /// [`EnrolError::IdentityCloned`] stops the request: it comes from the twin of a living node. The node stays what it
    /// is; only that machine is stopped, until the other one is silent or it gets an identity of its own.
    pub fn observe(&self, uid: &str, sighting: &Sighting<'_>) -> Result<(), EnrolError> {
        let (known, sharing) = {
            let index = self.index();
            let unknown = || EnrolError::NodeUnknown { node: uid.to_owned() };
            let known = index.get(uid).cloned().ok_or_else(unknown)?;
            let sharing = index.sharing(&known.record);
            (known, sharing)
        };
        let mut unsaved = false;
        let verdict = {
            let mut life = known.life();
            let window = self.window(&life);
            life.interval = sighting.interval.or(life.interval);
            let verdict = note(&mut life, &known.record, sighting, window, &mut unsaved);
            if verdict.is_ok() {
                life.heard = Some(sighting.at);
                let news = sighting.identity.filter(|i| **i != known.record.identity);
                if let Some(identity) = news.filter(|i| believable(&life, &known.record, sighting, i, window))
                {
                    life.identity = Some(Box::new(identity.clone()));
                    unsaved = true;
                }
            }
            verdict
        };
        if unsaved {
            self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned());
            self.unsaved_bell.notify_one();
        }
        verdict?;
        // With the marks as they are reported now: a machine that was given its own identity is free at once.
        let identity = sighting.identity.unwrap_or(&known.record.identity);
        match self.elder_twin(&known.record, identity, &sharing, sighting.at) {
            Some((elder, mark)) => {
                let name = &known.record.name;
                let detail = format!(
                    "node {name} has the {mark} of node {} ({}), which enrolled before it and lives; {name} is stopped",
                    elder.name, elder.uid
                );
                Err(EnrolError::IdentityCloned { detail })
            }
            None => Ok(()),
        }
    }

    /// A living node that shares a mark with this one and enrolled before it.
    fn elder_twin(
        &self,
        record: &NodeRecord,
        identity: &outrider_protocol::Identity,
        sharing: &[Known],
        now: Timestamp,
    ) -> Option<(Arc<NodeRecord>, &'static str)> {
        let elder = |other: &&Known| {
            (other.record.enrolled_at, &other.record.uid) < (record.enrolled_at, &record.uid)
        };
        sharing.iter().filter(elder).find_map(|other| self.living_twin(identity, other, now))
    }

    fn living_twin(
        &self,
        identity: &outrider_protocol::Identity,
        other: &Known,
        now: Timestamp,
    ) -> Option<(Arc<NodeRecord>, &'static str)> {
        // Only who was heard since we started lives for sure; the grace after a start must not make clones.
        let heard = other.life().heard?;
        let lives =
            other.record.enrolment == Enrolment::Approved && now.since(heard) < self.silent_after(other);
        let mark = shared_mark(identity, &other.record.identity).filter(|_| lives)?;
        Some((other.record.clone(), mark))
    }

    /// The condition `IdentityUnique` of a node, as the coordinator judges it. `lastTransitionTime` is `now` for a
    /// clear identity: the caller keeps the time at which it began.
    pub fn identity_condition(&self, uid: &str, now: Timestamp) -> Condition {
        let (known, sharing) = {
            let index = self.index();
            let known = index.get(uid).cloned();
            let sharing = known.as_ref().map(|k| index.sharing(&k.record)).unwrap_or_default();
            (known, sharing)
        };
        let mut condition = Condition {
            condition_type: ConditionType::IdentityUnique,
            status: Status::True,
            severity: Severity::Ok,
            reason: ReasonCode::IdentityClear,
            message: "No other living machine shows this node's certificate, machine-id or system UUID."
                .to_owned(),
            advice: String::new(),
            subject: String::new(),
            last_transition_time: now,
            observed_at: now,
        };
        let Some(known) = known else { return condition };
        let clone = known.life().clone.clone();
        let message = match clone {
            Some(clone) => {
                condition.last_transition_time = clone.since;
                Some(describe(&known.record, &clone))
            }
            None => {
                let twin = sharing.iter().find_map(|o| self.living_twin(&known.record.identity, o, now));
                twin.map(|(other, mark)| {
                    format!(
                        "Nodes {} and {} ({}) are both alive and share one {mark}; the one that enrolled later is stopped.",
                        known.record.name, other.name, other.uid
                    )
                })
            }
        };
        if let Some(message) = message {
            condition.status = Status::False;
            condition.severity = Severity::Error;
            condition.reason = ReasonCode::IdentityCloned;
            condition.message = message;
            condition.advice = "Give the copy its own identity: stop its agent, remove /var/lib/outrider, make a new \
                                machine-id (`rm /etc/machine-id; systemd-machine-id-setup`), enrol it with a token. \
                                In a template, remove both before it is sealed."
                .to_owned();
        }
        condition
    }
}

fn describe(record: &NodeRecord, clone: &CloneRecord) -> String {
    let boots = if clone.rightful.boot_id == clone.twin.boot_id {
        format!(
            "boot {} with two spools, epochs {} and {}",
            clone.twin.boot_id, clone.rightful.epoch, clone.twin.epoch
        )
    } else {
        format!("boot {} and boot {}", clone.rightful.boot_id, clone.twin.boot_id)
    };
    format!(
        "Two living machines show the certificate of node {} (key {}): {boots}. The latter is stopped.",
        record.name,
        record.key_mark()
    )
}

/// Whether a sighting is of the machine that is stopped.
fn is_twin(clone: &CloneRecord, boot_id: &str, epoch: uuid::Uuid) -> bool {
    let twin = &clone.twin;
    let same_boot = *twin.boot_id == *boot_id;
    // Its epoch may have changed since; its boot id tells it as long as the rightful one has another.
    same_boot && (twin.epoch == epoch || twin.boot_id != clone.rightful.boot_id)
}

/// Notes a sighting in a node's life: ends a clone that is over, finds a new one, stops the twin.
fn note(
    life: &mut Life,
    record: &NodeRecord,
    sighting: &Sighting<'_>,
    window: Duration,
    unsaved: &mut bool,
) -> Result<(), EnrolError> {
    let Sighting { boot_id, epoch, at, .. } = *sighting;
    if boot_id.is_empty() {
        return Ok(());
    }
    if let Some(clone) = life.clone.clone() {
        if is_twin(&clone, boot_id, epoch) {
            life.twin_heard = Some(at);
            // Without a sighting since the start of this process the stored verdict stands for one window.
            let rightful = *life.heard.get_or_insert(at);
            if at.since(rightful) <= window {
                return Err(EnrolError::IdentityCloned { detail: describe(record, &clone) });
            }
            log::info!("node {}: the other machine is silent; boot {boot_id} may go on", record.name);
            over(life, unsaved);
        } else if at.since(*life.twin_heard.get_or_insert(at)) > window {
            log::info!("node {}: its twin is silent; its identity is clear again", record.name);
            over(life, unsaved);
        }
    }
    if !clones::record(&mut life.runs, boot_id, epoch, at) {
        return Ok(());
    }
    let Some((first, second)) = alternation(&life.runs, window) else { return Ok(()) };
    let (first, second) = (life.runs[first].incarnation.clone(), life.runs[second].incarnation.clone());
    // A known clone whose twin rebooted is found again under its new boot id.
    let known = life.clone.as_ref().map_or(&*record.identity.boot_id, |clone| &*clone.rightful.boot_id);
    let (rightful, twin) = who_is_rightful(known, first, second);
    // From here on only the other one's sightings are kept: the twin's are refused before they get here.
    life.runs.retain(|run| run.incarnation != twin);
    let since = life.clone.as_ref().map_or(at, |clone| clone.since);
    let clone = CloneRecord { since, rightful, twin };
    log::error!("{}", describe(record, &clone));
    let stopped = is_twin(&clone, boot_id, epoch);
    let verdict = EnrolError::IdentityCloned { detail: describe(record, &clone) };
    life.clone = Some(clone);
    life.twin_heard = Some(at);
    *unsaved = true;
    if stopped { Err(verdict) } else { Ok(()) }
}

fn over(life: &mut Life, unsaved: &mut bool) {
    life.clone = None;
    life.twin_heard = None;
    life.runs.clear();
    *unsaved = true;
}

/// Of two that alternate: the one whose boot id is the node's as it is known, else the one seen first.
fn who_is_rightful(known: &str, first: Incarnation, second: Incarnation) -> (Incarnation, Incarnation) {
    let second_is_known = *second.boot_id == *known && *first.boot_id != *known;
    if second_is_known { (second, first) } else { (first, second) }
}

/// Whether marks that differ from the record's are the node's own: other hardware is believed only after nobody else has
/// spoken for the node for a while, so that a twin does not write itself into the record before it is found out.
fn believable(
    life: &Life,
    record: &NodeRecord,
    sighting: &Sighting<'_>,
    identity: &outrider_protocol::Identity,
    window: Duration,
) -> bool {
    let others = life.runs.iter().filter(|run| *run.incarnation.boot_id != *sighting.boot_id);
    let alone = others.into_iter().all(|run| sighting.at.since(run.last) > window);
    alone || hardware(identity, &record.identity) == Sameness::Same
}
