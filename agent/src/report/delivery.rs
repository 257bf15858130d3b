//! Delivery: one task that owns how this node and its coordinator stand, and sends errands.
//!
//! Enrolment, then two streams. **Heartbeats** go over one kept connection whose answer the coordinator holds until it is
//! due or something is desired. **Reports** go at once when transitions wait or the state's digest changed: over the kept
//! connection while no heartbeat is held there, else over a short one of their own. At most one errand of a kind is
//! under way. A failure makes everything wait with full jitter; what waits, waits in the spool.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{Heartbeat, NodeConfig, NodeReport, NodeState, ReportAck, TypeMeta};
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::backoff::Backoff;
use super::client::{Addresses, ExchangeError};
use super::disk::Disk;
use super::errands::{
    self, Beaten, Done, EnrolOutcome, Enrolled, Line, Reported, SharedSpool, SpoolView, SpoolWork,
};
use super::identity::Ledger;
use super::outbox::{Outbox, Target};
use super::transport::Transport;
use super::{Clock, DeliveryStatus};
use crate::capture::VERSION;
use crate::net::Connection;

/// Backoff of exchanges.
const BASE: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(60);
/// Backoff after a refusal: an operator has to act first.
const REFUSED_BASE: Duration = Duration::from_secs(30);
const REFUSED_CAP: Duration = Duration::from_secs(300);
/// Time between tries to write what a failing disk left in memory.
const RETRY_DISK: Duration = Duration::from_secs(5);
/// A disk that has not answered for so long is said to hang.
const DISK_HANGS: Duration = Duration::from_secs(5);
/// Two heartbeats are never closer.
const BEAT_GAP: Duration = Duration::from_secs(1);
/// How often the whole state is sent though its digest has not changed: messages carry numbers.
const REFRESH: Duration = Duration::from_secs(300);
/// Time between tries to renew while the certificate is still good.
const RENEW_RETRY: Duration = Duration::from_secs(300);

/// Refusals after which the same machine may enrol anew with its token.
const FORGOTTEN: [&str; 3] = ["NodeUnknown", "CertificateGraceOver", "CertificateUnknown"];
/// Refusals of an enrolled node that an operator decided or must decide.
const REFUSED: [&str; 5] = ["NodeRevoked", "NodeSuperseded", "IdentityCloned", "NotYourNode", "KeyChanged"];

/// How enrolment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enrolment {
    /// The identity has not been read.
    Unread,
    None,
    Pending,
    Enrolled,
    Refused,
}

/// See the [module](self).
pub(super) struct Delivery {
    pub(super) outbox: Arc<Outbox>,
    pub(super) status: watch::Sender<DeliveryStatus>,
    pub(super) disk: Option<Arc<dyn Disk>>,
    pub(super) spool: SharedSpool,
    pub(super) clock: Clock,
    errands: JoinSet<Done>,
    line: Line,
    target: Target,
    view: SpoolView,
    work: Vec<SpoolWork>,
    spooling_since: Option<Instant>,
    retry_disk_at: Instant,
    state: Option<NodeState>,
    generation: u64,
    enrolment: Enrolment,
    enrol_anew: bool,
    ledger: Option<Ledger>,
    tls: Option<Arc<ClientConfig>>,
    kept: Option<Connection>,
    enrolling: bool,
    renewing: bool,
    reporting: bool,
    beating: bool,
    renew_at: Instant,
    beat_at: Instant,
    beaten_at: Option<Instant>,
    refresh_at: Instant,
    retry_at: Instant,
    backoff: Backoff,
    refused: Backoff,
    reported_digest: String,
    wants_state: bool,
    /// Transitions of the last report that the coordinator called too large.
    too_large: usize,
    recent_epochs: VecDeque<Instant>,
    stopping: bool,
    /// Whether an exchange has ended since the start, well or not.
    tried: bool,
}

impl Delivery {
    #[expect(clippy::too_many_arguments, reason = "called once, by the reporter that makes each of them")]
    pub(super) fn new(
        outbox: Arc<Outbox>,
        status: watch::Sender<DeliveryStatus>,
        disk: Option<Arc<dyn Disk>>,
        spool: SharedSpool,
        view: SpoolView,
        clock: Clock,
        transport: Arc<dyn Transport>,
        target: Target,
    ) -> Self {
        let now = Instant::now();
        let line = Line { addresses: Addresses::new(target.urls.clone()), transport, clock: clock.clone() };
        Self {
            outbox,
            status,
            disk,
            spool,
            clock,
            errands: JoinSet::new(),
            line,
            target,
            view,
            work: Vec::new(),
            spooling_since: None,
            retry_disk_at: now,
            state: None,
            generation: 0,
            enrolment: Enrolment::Unread,
            enrol_anew: false,
            ledger: None,
            tls: None,
            kept: None,
            enrolling: false,
            renewing: false,
            reporting: false,
            beating: false,
            renew_at: now,
            beat_at: now,
            beaten_at: None,
            refresh_at: now + REFRESH,
            retry_at: now,
            backoff: Backoff::new(BASE, CAP),
            refused: Backoff::new(REFUSED_BASE, REFUSED_CAP),
            reported_digest: String::new(),
            wants_state: false,
            too_large: 0,
            recent_epochs: VecDeque::new(),
            stopping: false,
            tried: false,
        }
    }

    /// Delivers until told to stop and nothing more can be done.
    pub(super) async fn run(mut self) {
        loop {
            self.take_outbox();
            self.send_errands();
            self.publish();
            if self.is_drained() {
                return;
            }
            let due = self.next_due();
            tokio::select! {
                () = self.outbox.changed.notified() => {}
                Some(done) = self.errands.join_next() => self.take(done),
                () = sleep_until(due) => {}
            }
        }
    }

    fn is_drained(&self) -> bool {
        let idle =
            !self.enrolling && !self.reporting && self.spooling_since.is_none() && self.work.is_empty();
        self.stopping && idle && (!self.has_news() || !self.may_report())
    }

    fn take_outbox(&mut self) {
        let pending = self.outbox.take();
        self.stopping = pending.stopping;
        if let Some(target) = pending.target {
            self.take_target(target);
        }
        if !pending.transitions.is_empty() {
            self.work.push(SpoolWork::Append(pending.transitions, pending.latches));
        }
        self.state = pending.state.or(self.state.take());
        self.generation = pending.generation.unwrap_or(self.generation);
        if pending.woken {
            self.start_over();
        }
    }

    /// Everything that stands in the way of a try now: after a reload, a suspend, a network that came back.
    fn start_over(&mut self) {
        self.kept = None;
        self.backoff.reset();
        self.refused.reset();
        self.retry_at = Instant::now();
        self.beat_at = Instant::now();
        self.renew_at = self.renew_at.min(Instant::now() + RENEW_RETRY);
    }

    fn take_target(&mut self, target: Target) {
        if target == self.target {
            return;
        }
        if target.urls != self.target.urls {
            self.line.addresses = Addresses::new(target.urls.clone());
            self.start_over();
        }
        // What was refused under another token or name may be admitted now.
        if self.enrolment == Enrolment::Refused {
            self.enrolment = if self.ledger.is_some() { Enrolment::Enrolled } else { Enrolment::None };
            self.retry_at = Instant::now();
        }
        self.wants_state |= target.node != self.target.node;
        self.target = target;
    }

    fn delivers(&self) -> bool {
        !self.line.addresses.is_empty()
    }

    fn may_report(&self) -> bool {
        self.delivers()
            && self.enrolment == Enrolment::Enrolled
            && self.tls.is_some()
            && self.retry_at <= Instant::now()
    }

    fn has_news(&self) -> bool {
        let changed = self.state.as_ref().is_some_and(|state| state.digest != self.reported_digest);
        !self.view.batch.is_empty() || changed || (self.wants_state && self.state.is_some())
    }

    /// When something falls due by itself. What is under way ends by itself and needs no time here.
    fn next_due(&self) -> Instant {
        let now = Instant::now();
        let mut due = now + Duration::from_secs(3600);
        let mut at = |time: Instant, wanted: bool| {
            if wanted {
                due = due.min(time);
            }
        };
        match self.spooling_since {
            Some(since) if since + DISK_HANGS > now => at(since + DISK_HANGS, true),
            Some(_) => at(now + DISK_HANGS, true),
            None => at(self.retry_disk_at, !self.view.durable),
        }
        if self.delivers() && self.state.is_some() && self.enrolment != Enrolment::Unread && !self.stopping {
            let enrolled = self.enrolment == Enrolment::Enrolled;
            at(self.retry_at, !enrolled && !self.enrolling);
            at(self.renew_at, enrolled && !self.renewing);
            // A certificate that has ended is good for its renewal alone.
            let speaks = enrolled && !self.has_ended();
            at(self.retry_at, speaks && !self.reporting && self.has_news());
            at(self.refresh_at.max(self.retry_at), speaks && !self.reporting);
            at(self.beat_at.max(self.retry_at), speaks && !self.beating && !self.reporting);
        }
        // Should a time that has passed have no errand after all, this loop must not spin.
        due.max(now + Duration::from_millis(20))
    }

    fn send_errands(&mut self) {
        let now = Instant::now();
        self.spool_errand(now);
        if !self.delivers() {
            return;
        }
        let Some(disk) = self.disk.clone() else { return };
        if self.enrolment == Enrolment::Unread {
            if !self.enrolling {
                self.enrolling = true;
                self.errands.spawn(errands::open_identity(disk, self.clock.clone()));
            }
            return;
        }
        // Nothing is sent before this machine can say who it is.
        let Some(state) = self.state.clone() else { return };
        if self.stopping && self.enrolment != Enrolment::Enrolled {
            return;
        }
        if self.enrolment != Enrolment::Enrolled
            && !(self.enrolment == Enrolment::Refused && self.ledger.is_some())
        {
            if !self.enrolling && self.retry_at <= now {
                self.enrolling = true;
                let (line, target, anew) = (self.line.clone(), self.target.clone(), self.enrol_anew);
                let marks = state.identity;
                self.errands.spawn(async move {
                    Done::Enrolled(errands::enrol(line, disk, target, marks, anew).await)
                });
            }
            return;
        }
        let Some(tls) = self.tls.clone() else { return };
        if self.enrolment == Enrolment::Refused && self.retry_at <= now {
            // Whatever was decided may have been taken back: ask with what we have.
            self.enrolment = Enrolment::Enrolled;
        }
        if self.renew_at <= now && !self.renewing && !self.stopping {
            self.renewing = true;
            let (line, tls) = (self.line.clone(), tls.clone());
            self.errands.spawn(async move { Done::Renewed(errands::renew(line, disk, tls).await) });
        }
        // A certificate that has ended is good for its renewal alone.
        if self.enrolment != Enrolment::Enrolled || self.retry_at > now || self.has_ended() {
            return;
        }
        self.report_errand(&tls, state, now);
        self.beat_errand(tls, now);
    }

    fn spool_errand(&mut self, now: Instant) {
        if self.spooling_since.is_some() {
            return;
        }
        if !self.view.durable && self.retry_disk_at <= now && self.work.is_empty() {
            self.work.push(SpoolWork::Retry);
        }
        if self.work.is_empty() {
            return;
        }
        self.spooling_since = Some(now);
        let (spool, work) = (self.spool.clone(), std::mem::take(&mut self.work));
        let blocks = self.disk.as_ref().is_some_and(|disk| disk.blocks());
        self.errands.spawn(errands::spool_work(spool, blocks, work, self.delivers()));
    }

    fn report_errand(&mut self, tls: &Arc<ClientConfig>, state: NodeState, now: Instant) {
        let refresh = self.refresh_at <= now;
        if self.reporting || !(self.has_news() || refresh) {
            return;
        }
        self.reporting = true;
        let mut transitions = self.view.batch.clone();
        if self.too_large > 0 {
            transitions.truncate(self.too_large);
        }
        let with_state = state.digest != self.reported_digest || self.wants_state || refresh;
        let report = NodeReport {
            meta: TypeMeta::new("NodeReport"),
            node: self.node(),
            epoch: self.view.epoch,
            boot_id: state.identity.boot_id.clone(),
            agent_version: VERSION.to_owned(),
            sent_at: (self.clock)(),
            generation: self.generation,
            transitions,
            state: with_state.then_some(state),
        };
        let kept = if self.beating { None } else { self.kept.take() };
        let keep = !self.beating;
        self.errands.spawn({
            let (line, tls) = (self.line.clone(), tls.clone());
            async move { Done::Reported(errands::report(line, tls, kept, report, keep).await) }
        });
    }

    fn beat_errand(&mut self, tls: Arc<ClientConfig>, now: Instant) {
        // The first report goes first, on the connection that the heartbeat will hold.
        if self.beating || self.stopping || self.beat_at > now || (self.reporting && self.beaten_at.is_none())
        {
            return;
        }
        self.beating = true;
        self.beaten_at = Some(now);
        let beat = Heartbeat {
            meta: TypeMeta::new("Heartbeat"),
            epoch: self.view.epoch,
            sequence: self.view.last_sequence,
            digest: self.reported_digest.clone(),
            boot_id: self.state.as_ref().map(|state| state.identity.boot_id.clone()).unwrap_or_default(),
            generation: self.generation,
            hold_seconds: u32::try_from(self.target.heartbeat.as_secs().clamp(1, 3600)).unwrap_or(30),
            sent_at: (self.clock)(),
        };
        let (line, kept) = (self.line.clone(), self.kept.take());
        self.errands.spawn(async move { Done::Beaten(errands::heartbeat(line, tls, kept, beat).await) });
    }

    fn node(&self) -> outrider_protocol::NodeRef {
        let uid = self.ledger.as_ref().map(|ledger| ledger.node_uid.clone()).unwrap_or_default();
        outrider_protocol::NodeRef { uid, ..self.target.node.clone() }
    }

    fn has_ended(&self) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.not_after <= (self.clock)())
    }

    fn take(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Spooled(view)) => self.take_view(view),
            Ok(Done::Opened(result)) => self.take_identity(result),
            Ok(Done::Enrolled(result)) => self.take_enrolment(result),
            Ok(Done::Renewed(result)) => self.take_renewal(result),
            Ok(Done::Reported(reported)) => self.take_report(reported),
            Ok(Done::Beaten(beaten)) => self.take_beat(beaten),
            Ok(Done::Desired(config)) => self.status.send_modify(|status| status.desired = Some(config)),
            Err(error) => {
                // An errand that panicked: which one cannot be told, so all may be begun again.
                log::error!("delivery failed inside and goes on: {error}");
                (self.enrolling, self.renewing, self.reporting, self.beating) = (false, false, false, false);
                self.spooling_since = None;
                self.errands.abort_all();
                self.failed("delivery failed inside; see the log", None);
            }
        }
    }

    fn take_view(&mut self, view: SpoolView) {
        if !view.durable {
            self.retry_disk_at = Instant::now() + RETRY_DISK;
            if self.view.durable {
                log::error!("{}; transitions are kept in memory", view.problem);
            }
        } else if !self.view.durable {
            log::info!("the spool works again");
        }
        self.view = view;
        self.spooling_since = None;
    }

    fn take_identity(&mut self, result: Result<Enrolled, String>) {
        self.enrolling = false;
        match result {
            Ok(enrolled) => self.take_enrolled(enrolled),
            Err(error) => {
                self.enrolment = Enrolment::Unread;
                self.failed(&error, None);
                // Opened again at the pace of failures; nothing else can be done without.
                let at = self.retry_at;
                self.errands.spawn(async move {
                    sleep_until(at).await;
                    Done::Opened(Err(String::new()))
                });
                self.enrolling = true;
            }
        }
    }

    fn take_enrolled(&mut self, enrolled: Enrolled) {
        if !enrolled.found.is_empty() {
            log::error!("identity: {}", enrolled.found);
        }
        self.enrolment = if enrolled.ledger.is_some() { Enrolment::Enrolled } else { Enrolment::None };
        if let Some(ledger) = &enrolled.ledger {
            let left = ledger.renew_at.since((self.clock)());
            self.renew_at = Instant::now() + left;
            self.kept = None;
        }
        (self.ledger, self.tls) = (enrolled.ledger, enrolled.tls);
        if enrolled.clock_offset.is_some() {
            self.status.send_modify(|status| status.clock_offset = enrolled.clock_offset);
        }
    }

    fn take_enrolment(&mut self, result: Result<EnrolOutcome, ExchangeError>) {
        self.enrolling = false;
        match result {
            Ok(EnrolOutcome::Enrolled(enrolled)) => {
                self.enrol_anew = false;
                self.take_enrolled(enrolled);
                self.wants_state = true;
                let uid = self.ledger.as_ref().map(|ledger| ledger.node_uid.as_str()).unwrap_or_default();
                log::info!("enrolled at {} as node {uid}", self.line.addresses.current());
                self.worked();
            }
            Ok(EnrolOutcome::Pending { text, retry_after, clock_offset }) => {
                if self.enrolment != Enrolment::Pending {
                    log::warn!("enrolment waits for an operator: {text}");
                }
                self.worked();
                self.enrolment = Enrolment::Pending;
                self.retry_at = Instant::now() + retry_after;
                self.status.send_modify(|status| {
                    status.error = text;
                    status.clock_offset = clock_offset;
                });
            }
            Err(error) => {
                if matches!(error, ExchangeError::Refused { .. }) && is_decision(&error) {
                    self.enrolment = Enrolment::Refused;
                    return self.refused(&error);
                }
                self.enrolment = Enrolment::None;
                self.failed(&error.to_string(), error.retry_after());
            }
        }
    }

    fn take_renewal(&mut self, result: Result<Enrolled, ExchangeError>) {
        self.renewing = false;
        match result {
            Ok(enrolled) => {
                self.take_enrolled(enrolled);
                let until =
                    self.ledger.as_ref().map(|ledger| ledger.not_after.to_string()).unwrap_or_default();
                log::info!("certificate renewed, good until {until}");
                self.worked();
            }
            Err(error) if FORGOTTEN.contains(&error.reason()) => self.forgotten(&error),
            Err(error) => {
                log::warn!("the certificate cannot be renewed: {error}");
                let pause = if self.has_ended() { CAP } else { RENEW_RETRY };
                self.renew_at = Instant::now() + pause.mul_f64(0.5 + 0.5 * rand::random::<f64>());
                if self.has_ended() {
                    self.failed(&error.to_string(), error.retry_after());
                }
            }
        }
    }

    fn take_report(&mut self, reported: Reported) {
        self.reporting = false;
        self.kept = reported.connection.or(self.kept.take());
        match reported.result {
            Ok((ack, offset)) => {
                self.worked();
                self.too_large = 0;
                if let Some(digest) = reported.digest {
                    self.reported_digest = digest;
                    self.wants_state = false;
                    self.refresh_at = Instant::now() + REFRESH.mul_f64(0.9 + 0.1 * rand::random::<f64>());
                }
                if offset.is_some() {
                    self.status.send_modify(|status| status.clock_offset = offset);
                }
                if reported.epoch == self.view.epoch {
                    self.acknowledged(ack.acknowledged);
                }
                self.take_ack(ack);
            }
            Err(error) => self.exchange_failed(&error),
        }
    }

    /// Everything up to `through` is stored. The batch is trimmed at once, so that nothing is sent twice while the
    /// spool is busy.
    fn acknowledged(&mut self, through: u64) {
        let before = self.view.batch.len();
        self.view.batch.retain(|entry| entry.sequence > through);
        if self.view.batch.len() < before {
            self.work.push(SpoolWork::Acknowledge(through));
        }
    }

    fn take_beat(&mut self, beaten: Beaten) {
        self.beating = false;
        self.kept = beaten.connection;
        match beaten.result {
            Ok(ack) => {
                self.worked();
                let began = self.beaten_at.unwrap_or_else(Instant::now);
                // A held answer means that the next is due; one that came early asked for something.
                let pause =
                    if ack.resync || ack.desired.is_some() { BEAT_GAP } else { self.target.heartbeat };
                self.beat_at = began + pause;
                if beaten.epoch == self.view.epoch {
                    self.acknowledged(ack.acknowledged);
                }
                self.take_ack(ack);
            }
            Err(error) => self.exchange_failed(&error),
        }
    }

    fn take_ack(&mut self, ack: ReportAck) {
        self.wants_state |= ack.resync;
        if let Some(desired) = ack.desired.filter(|desired| desired.generation != self.generation) {
            self.take_desired(desired);
        }
    }

    fn take_desired(&mut self, desired: NodeConfig) {
        let known = self.status.borrow().desired.as_ref().map(|known| known.generation);
        if known == Some(desired.generation) {
            return;
        }
        if let Some(disk) = self.disk.clone() {
            self.errands.spawn(errands::keep_desired(disk, desired));
        }
    }

    fn exchange_failed(&mut self, error: &ExchangeError) {
        match error.reason() {
            "EpochMismatch" => self.new_epoch(error),
            "TooLarge" if self.view.batch.len() > 1 => {
                let sent = if self.too_large > 0 { self.too_large } else { self.view.batch.len() };
                self.too_large = (sent / 2).max(1);
            }
            "CertificateExpired" => self.renew_at = Instant::now(),
            "NodePending" => {
                self.enrolment = Enrolment::Pending;
                self.failed(&error.to_string(), error.retry_after());
            }
            reason if FORGOTTEN.contains(&reason) => self.forgotten(error),
            reason if REFUSED.contains(&reason) => {
                self.enrolment = Enrolment::Refused;
                self.refused(error);
            }
            _ => self.failed(&error.to_string(), error.retry_after()),
        }
    }

    /// The coordinator has another content under a sequence of ours: a restored disk or memory snapshot. Once is
    /// cured at once; again and again is a failure like any other.
    fn new_epoch(&mut self, error: &ExchangeError) {
        let now = Instant::now();
        self.recent_epochs.retain(|at| now.duration_since(*at) < Duration::from_secs(60));
        if self.recent_epochs.len() >= 3 {
            return self.failed(&error.to_string(), error.retry_after());
        }
        self.recent_epochs.push_back(now);
        log::warn!("a new spool epoch begins: {error}");
        self.work.push(SpoolWork::NewEpoch);
        // Nothing of the old epoch may be sent until the new one is there.
        self.view.batch.clear();
        self.wants_state = true;
        self.retry_at = now + Duration::from_millis(100);
    }

    /// The coordinator knows this node no more: enrol anew with the same key, if there is a token.
    fn forgotten(&mut self, error: &ExchangeError) {
        log::warn!("the coordinator does not take this certificate any more; enrolling anew: {error}");
        self.enrol_anew = true;
        self.enrolment = Enrolment::None;
        self.failed(&error.to_string(), error.retry_after());
    }

    fn refused(&mut self, error: &ExchangeError) {
        let wait = self.refused.failed(0.5 + 0.5 * rand::random::<f64>());
        self.say_failure(&error.to_string());
        self.retry_at = Instant::now() + error.retry_after().unwrap_or_default().max(wait);
    }

    fn failed(&mut self, error: &str, retry_after: Option<Duration>) {
        let wait = self.backoff.failed(rand::random());
        if !error.is_empty() {
            self.say_failure(error);
        }
        self.retry_at = Instant::now() + retry_after.unwrap_or_default().min(REFUSED_CAP).max(wait);
    }

    fn say_failure(&mut self, error: &str) {
        self.tried = true;
        let now = (self.clock)();
        self.status.send_modify(|status| {
            if status.error != error {
                log::warn!("delivery: {error}");
                error.clone_into(&mut status.error);
            }
            status.failing_since.get_or_insert(now);
        });
    }

    fn worked(&mut self) {
        self.tried = true;
        self.backoff.reset();
        self.refused.reset();
        self.retry_at = Instant::now();
        self.status.send_if_modified(|status| {
            let failing = status.failing_since.take().is_some() || !status.error.is_empty();
            if failing {
                log::info!("delivery works again");
                status.error.clear();
            }
            failing
        });
    }

    /// Tells the loop, when something changed.
    fn publish(&self) {
        let enrolment = match self.enrolment {
            _ if !self.delivers() => "none",
            // What the process before knew stands until something else is known.
            Enrolment::Unread | Enrolment::None if !self.tried => &self.status.borrow().enrolment.clone(),
            Enrolment::Unread | Enrolment::None => "none",
            Enrolment::Pending => "pending",
            Enrolment::Enrolled => "enrolled",
            Enrolment::Refused => "refused",
        };
        let hangs = self
            .spooling_since
            .filter(|since| since.elapsed() >= DISK_HANGS)
            .map(|since| format!("the disk has not answered for {} s", since.elapsed().as_secs() / 5 * 5));
        let problem = [self.view.problem.clone(), hangs.unwrap_or_default()];
        let problem = problem.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join("; ");
        let uid = self.ledger.as_ref().map(|ledger| ledger.node_uid.clone()).unwrap_or_default();
        let not_after = self.ledger.as_ref().map(|ledger| ledger.not_after);
        let current = self.line.addresses.current();
        let reported = self.tried && !self.has_news() && self.work.is_empty() && self.spooling_since.is_none();
        self.status.send_if_modified(|status| {
            let new = DeliveryStatus {
                coordinator: current,
                enrolment: enrolment.to_owned(),
                node_uid: uid,
                spooled: if self.delivers() { self.view.len } else { 0 },
                merged: self.view.merged,
                spool_problem: problem,
                certificate_not_after: not_after,
                reported,
                ..status.clone()
            };
            let changed = *status != new;
            *status = new;
            changed
        });
    }
}

/// Whether a refusal is a decision rather than a trouble of the coordinator's.
fn is_decision(error: &ExchangeError) -> bool {
    match error {
        ExchangeError::Refused { error, .. } => matches!(error.code, 400..=403 | 404 | 409),
        _ => false,
    }
}
