//! Delivery: one task that owns how this node and its coordinator stand, and sends errands.
//!
//! Enrolment, then two streams. **Heartbeats** go over one kept connection whose answer the coordinator holds until it is
//! due or something is desired. **Reports** go at once when transitions wait or the state's digest changed: over the kept
//! connection while no heartbeat is held there, else over a short one of their own. At most one errand of a kind is
//! under way. Each kind waits by itself after a failure, with full jitter ([`lane`]); what waits, waits in the spool.
//! What an errand brought is taken in by [`outcomes`].

mod lane;
mod outcomes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{Heartbeat, NeighbourFacts, NodeRef, NodeReport, NodeState, TypeMeta};
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::client::Addresses;
use super::disk::Disk;
use super::errands::{self, Done, Line, SharedSpool, SpoolView, SpoolWork};
use super::identity::Ledger;
use super::outbox::{Outbox, Target};
use super::transport::Transport;
use super::{Clock, DeliveryStatus};
use crate::capture::VERSION;
use crate::net::Connection;
use lane::Lane;

/// Time between tries to write what a failing disk left in memory.
const RETRY_DISK: Duration = Duration::from_secs(5);
/// A disk that has not answered for so long is said to hang.
const DISK_HANGS: Duration = Duration::from_secs(5);
/// How long a state waits that was too large for the coordinator.
const TOO_LARGE_REST: Duration = Duration::from_secs(300);

/// How enrolment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enrolment {
    /// The identity has not been read.
    Unread,
    /// There is no certificate.
    None,
    /// An operator has to approve.
    Pending,
    /// There is a certificate.
    Enrolled,
    /// The coordinator decided against this node.
    Refused,
    /// There is no token that could be sent.
    TokenUnusable,
}

/// What is under way, at most one of each.
#[derive(Default)]
struct UnderWay {
    enrolling: bool,
    renewing: bool,
    reporting: bool,
    beating: Option<AbortHandle>,
    spooling: Option<Instant>,
}

/// What delivery is made of.
pub(super) struct Parts {
    pub(super) outbox: Arc<Outbox>,
    pub(super) status: watch::Sender<DeliveryStatus>,
    pub(super) disk: Option<Arc<dyn Disk>>,
    pub(super) spool: SharedSpool,
    pub(super) clock: Clock,
    pub(super) transport: Arc<dyn Transport>,
}

/// See the [module](self).
pub(super) struct Delivery {
    parts: Parts,
    errands: JoinSet<Done>,
    under_way: UnderWay,
    line: Line,
    target: Target,
    enrol: Lane,
    report: Lane,
    beat: Lane,
    /// The spool as the last work on it left it.
    view: SpoolView,
    work: Vec<SpoolWork>,
    retry_disk_at: Instant,
    /// An epoch that the coordinator has refused and that is being replaced.
    ending_epoch: Option<Uuid>,
    recent_epochs: VecDeque<Instant>,
    state: Option<NodeState>,
    /// Digest of the state the coordinator has.
    reported_digest: String,
    wants_state: bool,
    refresh_at: Instant,
    /// Most transitions of a report, after the coordinator called one too large.
    most: usize,
    /// Not to be sent before: the coordinator called a report too large for its state alone.
    state_not_before: Instant,
    generation: u64,
    enrolment: Enrolment,
    enrol_anew: bool,
    ledger: Option<Ledger>,
    tls: Option<Arc<ClientConfig>>,
    renew_at: Instant,
    /// The last renewal did not reach the coordinator.
    renewal_unreached: bool,
    /// End of the certificate, by the coordinator's clock where it is known.
    ends_at: Instant,
    kept: Option<Connection>,
    beat_at: Instant,
    /// Neighbours are asked for with the next state from then on.
    peers_at: Instant,
    beaten_at: Option<Instant>,
    /// Whether an exchange with these addresses has ended since the start, well or not.
    tried: bool,
    /// What the process before showed stands until something is known.
    remembering: bool,
    stopping: bool,
}

impl Delivery {
    pub(super) fn new(parts: Parts, target: Target, view: SpoolView) -> Self {
        let now = Instant::now();
        let line = Line {
            addresses: Addresses::new(target.urls.clone()),
            transport: parts.transport.clone(),
            clock: parts.clock.clone(),
        };
        let refresh_at = now + target.refresh;
        Self {
            parts,
            errands: JoinSet::new(),
            under_way: UnderWay::default(),
            line,
            target,
            enrol: Lane::new(),
            report: Lane::new(),
            beat: Lane::new(),
            view,
            work: Vec::new(),
            retry_disk_at: now,
            ending_epoch: None,
            recent_epochs: VecDeque::new(),
            state: None,
            reported_digest: String::new(),
            wants_state: false,
            refresh_at,
            most: usize::MAX,
            state_not_before: now,
            generation: 0,
            enrolment: Enrolment::Unread,
            enrol_anew: false,
            ledger: None,
            tls: None,
            renew_at: now,
            renewal_unreached: false,
            ends_at: now,
            kept: None,
            beat_at: now,
            peers_at: now,
            beaten_at: None,
            tried: false,
            remembering: true,
            stopping: false,
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
                () = self.parts.outbox.changed.notified() => {}
                Some(done) = self.errands.join_next() => self.take(done),
                () = sleep_until(due) => {}
            }
        }
    }

    fn is_drained(&self) -> bool {
        let idle = !self.under_way.enrolling
            && !self.under_way.reporting
            && self.under_way.spooling.is_none()
            && self.work.is_empty();
        let now = Instant::now();
        self.stopping && idle && !(self.has_news(now) && self.speaks(now) && self.report.is_open(now))
    }

    fn take_outbox(&mut self) {
        let pending = self.parts.outbox.take();
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

    fn take_target(&mut self, target: Target) {
        if target == self.target {
            return;
        }
        if target.urls != self.target.urls {
            self.line.addresses = Addresses::new(target.urls.clone());
            // How it went with another coordinator says nothing of this one.
            [&mut self.enrol, &mut self.report, &mut self.beat].into_iter().for_each(Lane::worked);
            (self.tried, self.remembering) = (false, false);
            self.start_over();
        }
        // What was refused under another token or name may be admitted now.
        if matches!(self.enrolment, Enrolment::Refused | Enrolment::TokenUnusable) {
            self.enrolment = if self.ledger.is_some() { Enrolment::Enrolled } else { Enrolment::None };
            self.enrol.start_over();
            self.report.start_over();
        }
        self.wants_state |= target.node != self.target.node;
        self.target = target;
    }

    /// Whatever waits for its time is tried now: after a reload, or when the machine woke up.
    fn start_over(&mut self) {
        // A held answer may hang on a connection that died in the suspend.
        if let Some(beating) = &self.under_way.beating {
            beating.abort();
        }
        self.kept = None;
        [&mut self.enrol, &mut self.report, &mut self.beat].into_iter().for_each(Lane::start_over);
        self.beat_at = Instant::now();
    }

    fn delivers(&self) -> bool {
        !self.line.addresses.is_empty()
    }

    /// Whether our certificate speaks for us. One that has ended is good for its renewal alone.
    fn speaks(&self, now: Instant) -> bool {
        self.delivers() && self.enrolment == Enrolment::Enrolled && self.tls.is_some() && self.ends_at > now
    }

    fn has_news(&self, now: Instant) -> bool {
        !self.view.batch.is_empty() || self.has_state_news(now)
    }

    fn has_state_news(&self, now: Instant) -> bool {
        let Some(state) = &self.state else { return false };
        let wanted = self.wants_state || state.digest != self.reported_digest || self.refresh_at <= now;
        wanted && self.state_not_before <= now
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
        match self.under_way.spooling {
            Some(since) if since + DISK_HANGS > now => at(since + DISK_HANGS, true),
            Some(_) => at(now + DISK_HANGS, true),
            None => at(self.retry_disk_at, !self.view.durable),
        }
        if self.delivers() && self.parts.disk.is_some() && !self.stopping {
            let way = &self.under_way;
            let unread = self.enrolment == Enrolment::Unread;
            at(self.enrol.retry_at, unread && !way.enrolling);
            if self.state.is_some() && !unread {
                let retries = !matches!(self.enrolment, Enrolment::Unread | Enrolment::Enrolled);
                let lane = if self.ledger.is_some() && self.enrolment == Enrolment::Refused {
                    &self.report
                } else {
                    &self.enrol
                };
                at(lane.retry_at, retries && !way.enrolling);
                at(self.renew_at, self.enrolment == Enrolment::Enrolled && !way.renewing);
                let speaks = self.speaks(now);
                at(self.report.retry_at, speaks && !way.reporting && self.has_news(now));
                at(self.refresh_at.max(self.report.retry_at), speaks && !way.reporting);
                at(self.state_not_before, speaks && self.state_not_before > now);
                at(self.beat_at.max(self.beat.retry_at), speaks && way.beating.is_none() && !way.reporting);
            }
        }
        // Should a time that has passed have no errand after all, this loop must not spin.
        due.max(now + Duration::from_millis(20))
    }

    fn send_errands(&mut self) {
        let now = Instant::now();
        self.send_to_spool(now);
        let Some(disk) = self.parts.disk.clone().filter(|_| self.delivers()) else { return };
        if self.enrolment == Enrolment::Unread {
            if !self.under_way.enrolling && self.enrol.is_open(now) {
                self.under_way.enrolling = true;
                self.errands.spawn(errands::open_identity(disk, self.parts.clock.clone()));
            }
            return;
        }
        // Nothing is sent before this machine can say who it is.
        let Some(state) = self.state.clone() else { return };
        if self.enrolment == Enrolment::Refused && self.ledger.is_some() && self.report.is_open(now) {
            // Whatever was decided may have been taken back: ask with what we have.
            self.enrolment = Enrolment::Enrolled;
        }
        match (self.enrolment, self.tls.clone()) {
            (Enrolment::Enrolled, Some(tls)) => {
                self.send_renewal(disk, &tls, now);
                if self.speaks(now) {
                    self.send_report(&tls, state, now);
                    self.send_beat(tls, now);
                }
            }
            (Enrolment::Refused, Some(_)) => {}
            _ => self.send_enrolment(disk, state, now),
        }
    }

    fn send_to_spool(&mut self, now: Instant) {
        if self.under_way.spooling.is_some() {
            return;
        }
        if !self.view.durable && self.retry_disk_at <= now && self.work.is_empty() {
            self.work.push(SpoolWork::Retry);
        }
        if self.work.is_empty() {
            return;
        }
        self.under_way.spooling = Some(now);
        let (spool, work) = (self.parts.spool.clone(), std::mem::take(&mut self.work));
        let blocks = self.parts.disk.as_ref().is_some_and(|disk| disk.blocks());
        self.errands.spawn(errands::spool_work(spool, blocks, work, self.delivers()));
    }

    fn send_enrolment(&mut self, disk: Arc<dyn Disk>, state: NodeState, now: Instant) {
        if self.under_way.enrolling || self.stopping || !self.enrol.is_open(now) {
            return;
        }
        self.under_way.enrolling = true;
        let (line, target, anew) = (self.line.clone(), self.target.clone(), self.enrol_anew);
        let enrol = errands::enrol(line, disk, target, state.identity, anew);
        self.errands.spawn(async move { Done::Enrolled(enrol.await) });
    }

    fn send_renewal(&mut self, disk: Arc<dyn Disk>, tls: &Arc<ClientConfig>, now: Instant) {
        if self.under_way.renewing || self.stopping || self.renew_at > now {
            return;
        }
        self.under_way.renewing = true;
        let renew = errands::renew(self.line.clone(), disk, tls.clone());
        self.errands.spawn(async move { Done::Renewed(renew.await) });
    }

    fn send_report(&mut self, tls: &Arc<ClientConfig>, state: NodeState, now: Instant) {
        if self.under_way.reporting || !self.report.is_open(now) || !self.has_news(now) {
            return;
        }
        self.under_way.reporting = true;
        let mut transitions = self.view.batch.clone();
        transitions.truncate(self.most);
        let report = NodeReport {
            meta: TypeMeta::new("NodeReport"),
            node: self.node(),
            epoch: self.view.epoch,
            boot_id: state.identity.boot_id.clone(),
            agent_version: VERSION.to_owned(),
            sent_at: (self.parts.clock)(),
            generation: self.generation,
            transitions,
            state: self.has_state_news(now).then_some(state),
        };
        let keep = self.under_way.beating.is_none();
        let kept = if keep { self.kept.take() } else { None };
        // With the state, so that whoever asks has said where it stands itself.
        let peers = (report.state.is_some() && self.peers_at <= now).then(|| self.failing_neighbours());
        if peers.is_some() {
            self.peers_at = now + self.target.refresh / 2;
        }
        let report = errands::report(self.line.clone(), tls.clone(), kept, report, keep, peers);
        self.errands.spawn(async move { Done::Reported(report.await) });
    }

    /// Neighbours that did not answer last: they are to stay among those that are tried.
    fn failing_neighbours(&self) -> Vec<String> {
        let network = self.state.as_ref().and_then(|state| state.network.as_ref());
        let neighbours = network.map_or(&[][..], |n| n.neighbours.as_slice());
        let fails = |n: &&NeighbourFacts| n.tries.iter().any(|t| t.failures > 0);
        neighbours.iter().filter(fails).map(|n| n.name.clone()).take(4).collect()
    }

    fn send_beat(&mut self, tls: Arc<ClientConfig>, now: Instant) {
        // The first report goes first, on the connection that the heartbeat will hold.
        let waits = self.under_way.reporting && self.beaten_at.is_none();
        if self.under_way.beating.is_some()
            || waits
            || self.stopping
            || self.beat_at > now
            || !self.beat.is_open(now)
        {
            return;
        }
        self.beaten_at = Some(now);
        let beat = Heartbeat {
            meta: TypeMeta::new("Heartbeat"),
            epoch: self.view.epoch,
            sequence: self.view.last_sequence,
            digest: self.reported_digest.clone(),
            boot_id: self.state.as_ref().map(|state| state.identity.boot_id.clone()).unwrap_or_default(),
            generation: self.generation,
            hold_seconds: u32::try_from(self.target.heartbeat.as_secs().clamp(1, 3600)).unwrap_or(30),
            sent_at: (self.parts.clock)(),
        };
        let beat = errands::heartbeat(self.line.clone(), tls, self.kept.take(), beat);
        self.under_way.beating = Some(self.errands.spawn(async move { Done::Beaten(beat.await) }));
    }

    fn node(&self) -> NodeRef {
        NodeRef { uid: self.uid(), ..self.target.node.clone() }
    }

    fn uid(&self) -> String {
        self.ledger.as_ref().map(|ledger| ledger.node_uid.clone()).unwrap_or_default()
    }

    /// Tells the loop, when something changed.
    fn publish(&self) {
        let now = Instant::now();
        let way = &self.under_way;
        let hangs = way.spooling.filter(|since| now.duration_since(*since) >= DISK_HANGS).map(|since| {
            format!("the disk has not answered for {} s", now.duration_since(since).as_secs() / 5 * 5)
        });
        let problem = [self.view.problem.clone(), hangs.unwrap_or_default()];
        let problem = problem.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join("; ");
        let lanes = [&self.enrol, &self.report, &self.beat];
        let error = lanes.iter().map(|lane| lane.error.as_str()).find(|error| !error.is_empty());
        let since = lanes.iter().filter_map(|lane| lane.since).min();
        let idle = self.work.is_empty() && way.spooling.is_none() && !way.reporting;
        self.parts.status.send_if_modified(|status| {
            let mut new = DeliveryStatus {
                coordinator: self.line.addresses.current(),
                spooled: if self.delivers() { self.view.len } else { 0 },
                merged: self.view.merged,
                spool_problem: problem,
                tried: self.tried,
                reported: self.tried && idle && !self.has_news(now),
                ..status.clone()
            };
            // What the process before knew stands until something else is known.
            if self.enrolment != Enrolment::Unread || !self.delivers() {
                new.node_uid = self.uid();
                new.certificate_not_after = self.ledger.as_ref().map(|ledger| ledger.not_after);
            }
            if self.tried || !self.remembering || !self.delivers() {
                new.enrolment = self.enrolment_word().to_owned();
                new.error = error.unwrap_or_default().to_owned();
                new.failing_since = since;
            }
            if status.error != new.error {
                match new.error.as_str() {
                    "" => log::info!("delivery works"),
                    error => log::warn!("delivery: {error}"),
                }
            }
            let changed = *status != new;
            *status = new;
            changed
        });
    }

    fn enrolment_word(&self) -> &'static str {
        match self.enrolment {
            _ if !self.delivers() => "none",
            Enrolment::Unread | Enrolment::None => "none",
            Enrolment::Pending => "pending",
            Enrolment::Enrolled => "enrolled",
            Enrolment::Refused => "refused",
            Enrolment::TokenUnusable => "token-unusable",
        }
    }
}
