//! What errands brought, and what follows from it.

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{NodeConfig, Peers, ReportAck};
use tokio::task::JoinError;
use tokio::time::Instant;

use super::super::client::ExchangeError;
use super::super::errands::{self, Beaten, Done, EnrolOutcome, Enrolled, Reported, SpoolView, SpoolWork};
use super::{Delivery, Enrolment, RETRY_DISK, TOO_LARGE_REST};

/// Two heartbeats are never closer.
const BEAT_GAP: Duration = Duration::from_secs(1);
/// Most and least time between tries to renew.
const RENEW_RETRY: Duration = Duration::from_secs(300);
const RENEW_LEAST: Duration = Duration::from_secs(10);
/// A certificate is not renewed sooner than this after it was given, whatever the clocks say; one of a shorter life not
/// before half of that.
const RENEW_GAP: Duration = Duration::from_secs(60);
/// More new epochs within a minute are no cure.
const EPOCHS_A_MINUTE: usize = 3;

/// Refusals after which the same machine may enrol anew with its token.
const FORGOTTEN: [&str; 3] = ["NodeUnknown", "CertificateGraceOver", "CertificateUnknown"];
/// Refusals of an enrolled node that an operator decided or must decide.
const REFUSED: [&str; 5] = ["NodeRevoked", "NodeSuperseded", "IdentityCloned", "NotYourNode", "KeyChanged"];

impl Delivery {
    pub(super) fn take(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Spooled(view)) => self.take_view(view),
            Ok(Done::Opened(result)) => self.take_identity(result),
            Ok(Done::Enrolled(result)) => self.take_enrolment(result),
            Ok(Done::Renewed(result)) => self.take_renewal(result),
            Ok(Done::Reported(reported)) => self.take_report(reported),
            Ok(Done::Beaten(beaten)) => self.take_beat(beaten),
            Ok(Done::Desired(config)) => {
                self.parts.status.send_modify(|status| status.desired = Some(config));
            }
            // Only a heartbeat is ever broken off: when the machine woke up.
            Err(error) if error.is_cancelled() => self.under_way.beating = None,
            Err(error) => self.take_panic(&error),
        }
    }

    /// An errand that panicked: which one cannot be told, so all are begun again.
    fn take_panic(&mut self, error: &JoinError) {
        log::error!("delivery failed inside and goes on: {error}");
        self.errands.abort_all();
        self.under_way = Default::default();
        let error = ExchangeError::Unprepared("delivery failed inside Outrider; see the log".to_owned());
        let at = self.now();
        [&mut self.enrol, &mut self.report, &mut self.beat]
            .into_iter()
            .for_each(|lane| lane.failed(&error, at));
        self.tried = true;
    }

    fn now(&self) -> outrider_protocol::Timestamp {
        (self.parts.clock)()
    }

    fn take_view(&mut self, view: SpoolView) {
        match (self.view.durable, view.durable) {
            (true, false) => log::error!("{}; transitions are kept in memory", view.problem),
            (false, true) => log::info!("the spool works again"),
            _ => {}
        }
        if !view.durable {
            self.retry_disk_at = Instant::now() + RETRY_DISK;
        }
        if self.ending_epoch.is_some_and(|ending| ending != view.epoch) {
            self.ending_epoch = None;
        }
        self.view = view;
        self.under_way.spooling = None;
    }

    fn take_identity(&mut self, result: Result<Enrolled, String>) {
        self.under_way.enrolling = false;
        match result {
            Ok(enrolled) => {
                self.enrol.worked();
                self.take_enrolled(enrolled);
            }
            Err(error) => {
                self.tried = true;
                self.enrol.failed(&ExchangeError::Unprepared(error), self.now());
            }
        }
    }

    /// Takes over certificate and roots. The coordinator's clock, where it is known, says how long they are good: ours
    /// may be years off, and must then neither renew without end nor fall silent.
    fn take_enrolled(&mut self, enrolled: Enrolled) {
        if !enrolled.found.is_empty() {
            log::error!("identity: {}", enrolled.found);
        }
        self.enrolment = if enrolled.ledger.is_some() { Enrolment::Enrolled } else { Enrolment::None };
        if let Some(ledger) = &enrolled.ledger {
            let now = Instant::now();
            let clock = enrolled.server_time.unwrap_or_else(|| self.now());
            let life = ledger.not_after.since(clock);
            let given = enrolled.server_time.is_some();
            let gap = if given { RENEW_GAP.min(life / 2).max(BEAT_GAP) } else { Duration::ZERO };
            self.renew_at = now + ledger.renew_at.since(clock).max(gap);
            self.ends_at = now + life;
            self.kept = None;
        }
        (self.ledger, self.tls) = (enrolled.ledger, enrolled.tls);
        if enrolled.clock_offset.is_some() {
            self.parts.status.send_modify(|status| status.clock_offset = enrolled.clock_offset);
        }
    }

    fn take_enrolment(&mut self, result: Result<EnrolOutcome, ExchangeError>) {
        self.under_way.enrolling = false;
        self.tried = true;
        match result {
            Ok(EnrolOutcome::Enrolled(enrolled)) => {
                self.enrol_anew = false;
                self.take_enrolled(enrolled);
                self.wants_state = true;
                log::info!("enrolled at {} as node {}", self.line.addresses.current(), self.uid());
                [&mut self.enrol, &mut self.report, &mut self.beat]
                    .into_iter()
                    .for_each(|lane| lane.worked());
            }
            Ok(EnrolOutcome::Pending { text, retry_after, clock_offset }) => {
                self.enrolment = Enrolment::Pending;
                self.enrol.worked();
                self.enrol.retry_at = Instant::now() + retry_after;
                self.enrol.error = text;
                self.parts.status.send_modify(|status| status.clock_offset = clock_offset);
            }
            Err(error) if is_decision(&error) => {
                self.enrolment = Enrolment::Refused;
                self.enrol.refused(&error, self.now());
            }
            Err(error) => {
                let token = matches!(error, ExchangeError::Token(_));
                self.enrolment = if token { Enrolment::TokenUnusable } else { Enrolment::None };
                self.enrol.failed(&error, self.now());
            }
        }
    }

    fn take_renewal(&mut self, result: Result<Enrolled, ExchangeError>) {
        self.under_way.renewing = false;
        match result {
            Ok(enrolled) => {
                self.take_enrolled(enrolled);
                self.reached();
                self.enrol.worked();
                let until = self.ledger.as_ref().map(|ledger| ledger.not_after.to_string());
                log::info!("certificate renewed, good until {}", until.unwrap_or_default());
            }
            Err(error) if FORGOTTEN.contains(&error.reason()) => self.forgotten(&error),
            Err(error) => {
                log::warn!("the certificate cannot be renewed: {error}");
                let now = Instant::now();
                let ended = self.ends_at <= now;
                // The nearer the end, the more often.
                let pause =
                    (self.ends_at.saturating_duration_since(now) / 4).min(RENEW_RETRY).max(RENEW_LEAST);
                self.renew_at = now + pause.mul_f64(0.5 + 0.5 * rand::random::<f64>());
                self.renewal_unreached = matches!(error, ExchangeError::Network(_));
                if ended {
                    self.tried = true;
                    self.enrol.failed(&error, self.now());
                }
            }
        }
    }

    fn take_report(&mut self, reported: Reported) {
        self.under_way.reporting = false;
        self.tried = true;
        self.kept = reported.connection.or(self.kept.take());
        match reported.result {
            Ok((ack, offset)) => {
                self.report.worked();
                self.reached();
                self.most = usize::MAX;
                if let Some(digest) = reported.digest {
                    self.reported_digest = digest;
                    self.wants_state = false;
                    self.refresh_at =
                        Instant::now() + self.target.refresh.mul_f64(0.9 + 0.1 * rand::random::<f64>());
                }
                if offset.is_some() {
                    self.parts.status.send_modify(|status| status.clock_offset = offset);
                }
                if let Some(peers) = reported.peers {
                    self.take_peers(*peers);
                }
                self.take_ack(ack, reported.epoch);
            }
            Err(error) if error.reason() == "TooLarge" => {
                self.too_large(&error, reported.transitions, reported.digest.is_some());
            }
            Err(error) if error.reason() == "EpochMismatch" => self.new_epoch(&error, reported.epoch),
            Err(error) if error.is_permanent() => {
                let first = reported.first.filter(|_| reported.epoch == self.view.epoch);
                self.never_taken(&error, reported.transitions, first, reported.digest.is_some());
            }
            Err(error) => {
                self.report.failed(&error, self.now());
                self.denied(&error);
            }
        }
    }

    /// Neighbours that could not be asked for stay as they were; it is no fault of delivery.
    fn take_peers(&self, peers: Result<Peers, ExchangeError>) {
        match peers {
            Ok(peers) => {
                self.parts.status.send_if_modified(|status| {
                    let changed = status.peers.as_deref() != Some(&peers);
                    if changed {
                        status.peers = Some(Arc::new(peers));
                    }
                    changed
                });
            }
            Err(error) => log::debug!("neighbours: {error}"),
        }
    }

    fn take_beat(&mut self, beaten: Beaten) {
        self.under_way.beating = None;
        self.tried = true;
        self.kept = beaten.connection;
        match beaten.result {
            Ok(ack) => {
                self.beat.worked();
                self.reached();
                let began = self.beaten_at.unwrap_or_else(Instant::now);
                // A held answer means that the next is due; one that came early asked for something.
                let pause =
                    if ack.resync || ack.desired.is_some() { BEAT_GAP } else { self.target.heartbeat };
                self.beat_at = began + pause;
                self.take_ack(ack, beaten.epoch);
            }
            Err(error) if error.reason() == "EpochMismatch" => self.new_epoch(&error, beaten.epoch),
            Err(error) => {
                self.beat.failed(&error, self.now());
                self.denied(&error);
            }
        }
    }

    /// The coordinator was reached: whatever waited because it could not be need not wait longer.
    fn reached(&mut self) {
        [&mut self.enrol, &mut self.report, &mut self.beat].into_iter().for_each(|lane| lane.reached());
        if std::mem::take(&mut self.renewal_unreached) {
            self.renew_at = Instant::now();
        }
    }

    fn take_ack(&mut self, ack: ReportAck, epoch: uuid::Uuid) {
        if epoch == self.view.epoch {
            // The batch is trimmed at once, so that nothing is sent twice while the spool is busy.
            let before = self.view.batch.len();
            self.view.batch.retain(|entry| entry.sequence > ack.acknowledged);
            if self.view.batch.len() < before {
                self.work.push(SpoolWork::Acknowledge(ack.acknowledged));
            }
        }
        self.wants_state |= ack.resync;
        if let Some(desired) = ack.desired.filter(|desired| desired.generation != self.generation) {
            self.take_desired(desired);
        }
    }

    fn take_desired(&mut self, desired: NodeConfig) {
        let known = self.parts.status.borrow().desired.as_ref().map(|known| known.generation);
        if known != Some(desired.generation)
            && let Some(disk) = self.parts.disk.clone()
        {
            self.errands.spawn(errands::keep_desired(disk, desired));
        }
    }

    /// Fewer transitions next time; when one is too many with the state, the state waits.
    fn too_large(&mut self, error: &ExchangeError, transitions: usize, had_state: bool) {
        if transitions > 1 {
            self.most = transitions / 2;
        } else if had_state {
            log::error!("the state is too large for the coordinator: {error}");
            self.state_not_before = Instant::now() + TOO_LARGE_REST;
            self.report.failed(error, self.now());
        } else {
            self.report.failed(error, self.now());
        }
    }

    /// The coordinator will never take something of this report. Halved until one transition is left, which is set aside,
    /// so that it does not stand in the way of all behind it; a state that is not taken waits, for it changes.
    fn never_taken(
        &mut self,
        error: &ExchangeError,
        transitions: usize,
        first: Option<u64>,
        had_state: bool,
    ) {
        if transitions > 1 {
            self.most = transitions / 2;
        } else if had_state {
            // Whether it is the state or the one transition shows when that goes alone.
            log::error!(
                "the coordinator does not take the state, or the transition that went with it: {error}"
            );
            self.state_not_before = Instant::now() + TOO_LARGE_REST;
            if transitions == 0 {
                self.report.failed(error, self.now());
            }
        } else if let Some(sequence) =
            first.filter(|first| self.view.batch.first().map(|e| e.sequence) == Some(*first))
        {
            self.view.batch.remove(0);
            self.work.push(SpoolWork::SetAside(sequence, error.to_string()));
            self.most = usize::MAX;
            self.state_not_before = Instant::now();
        } else {
            self.report.failed(error, self.now());
        }
    }

    /// The coordinator has another content under a sequence of ours: a restored disk or memory snapshot. Once is cured
    /// at once; again and again is a failure like any other.
    fn new_epoch(&mut self, error: &ExchangeError, epoch: uuid::Uuid) {
        if epoch != self.view.epoch || self.ending_epoch == Some(epoch) {
            return;
        }
        let now = Instant::now();
        self.recent_epochs.retain(|at| now.duration_since(*at) < Duration::from_secs(60));
        if self.recent_epochs.len() >= EPOCHS_A_MINUTE {
            let at = self.now();
            self.beat.failed(error, at);
            return self.report.failed(error, at);
        }
        self.recent_epochs.push_back(now);
        log::warn!("a new spool epoch begins: {error}");
        self.ending_epoch = Some(epoch);
        self.work.push(SpoolWork::NewEpoch);
        // Nothing of the old epoch may be sent until the new one is there.
        self.view.batch.clear();
        self.wants_state = true;
        let soon = now + Duration::from_millis(100);
        (self.report.retry_at, self.beat.retry_at) = (soon, soon);
    }

    /// What an enrolled node may be told instead of an acknowledgement.
    fn denied(&mut self, error: &ExchangeError) {
        match error.reason() {
            "CertificateExpired" => {
                self.ends_at = Instant::now();
                self.renew_at = Instant::now();
            }
            "NodePending" => self.enrolment = Enrolment::Pending,
            reason if FORGOTTEN.contains(&reason) => self.forgotten(error),
            reason if REFUSED.contains(&reason) => {
                self.enrolment = Enrolment::Refused;
                self.report.refused(error, self.now());
                self.beat.worked();
            }
            _ => {}
        }
    }

    /// The coordinator knows this node no more: enrol anew with the same key, if there is a token.
    fn forgotten(&mut self, error: &ExchangeError) {
        log::warn!("the coordinator does not take this certificate any more; enrolling anew: {error}");
        self.enrol_anew = true;
        self.enrolment = Enrolment::None;
        self.tried = true;
        self.enrol.failed(error, self.now());
    }
}

/// Whether a refusal is a decision rather than a trouble of the coordinator's.
fn is_decision(error: &ExchangeError) -> bool {
    matches!(error, ExchangeError::Refused { error, .. } if matches!(error.code, 400 | 401 | 403 | 404 | 409))
}
