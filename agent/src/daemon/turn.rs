//! The daemon's parts, and what each event does to them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{Check, Fact, NodeConfig, Transition};
use outrider_sync::topology;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::desired::effective;
use super::schedule::Schedule;
use super::start::StateFolder;
use super::state::State;
use super::time::{Clocks, Jump, Timekeeper};
use super::{Embedding, Event, RunError, RunOptions, start};
use crate::act::labels::{self, Ledger};
use crate::act::{self, Action};
use crate::checks::{Ended, Machine, Mailbox, PassContext, Reading, Sensors, Slot, pass};
use crate::config::{self, ConfigSource, Loaded};
use crate::journal::TransitionLog;
use crate::local::{Ask, Question};
use crate::metrics;
use crate::notify::Notifier;
use crate::report::{DeliveryStatus, Reporter};
use crate::sense::SenseContext;
use crate::setup::ask::{self, Asker};

/// The longest the loop sleeps: the watchdog is fed, and suspend and a set clock noticed, at this pace at least.
const HOUSEKEEPING: Duration = Duration::from_secs(10);
/// The shortest rest after a judgement, however soon a wait in it ends.
const LEAST: Duration = Duration::from_millis(20);
/// How old the status file, the textfile and the state at delivery may be while nothing changes.
const REFRESH: Duration = Duration::from_secs(30);
/// How long the first verdict waits for a first reading: until then, what was shown before a restart stands.
const FIRST_READING: Duration = Duration::from_secs(15);
/// What our writes of labels came to, in the state folder.
const LEDGER: &str = "topology.json";
/// For what can still be written and sent at the end.
const DRAIN: Duration = Duration::from_secs(4);

/// Everything the loop owns.
pub(super) struct Daemon {
    pub(super) mailbox: Arc<Mailbox>,
    state: State,
    schedule: Schedule,
    sensors: Arc<dyn Sensors>,
    sense: SenseContext,
    config: ConfigSource,
    embedding: Option<Embedding>,
    runtime_dir: PathBuf,
    reporter: Reporter,
    notifier: Notifier,
    journal: TransitionLog,
    timekeeper: Timekeeper,
    started: Instant,
    judged: Instant,
    refreshed: Option<Instant>,
    told_digest: String,
    textfile: Slot,
    /// When the guest agent's set-up was asked for.
    asker: Asker,
    /// Our writes to the own Node.
    labels: Arc<Ledger>,
    ask: mpsc::Sender<Question>,
    /// Where `/metrics` listens, and who serves it.
    metrics: Option<(SocketAddr, AbortOnDrop)>,
    _folder: StateFolder,
}

impl Daemon {
    /// Reads the configuration and what the process before left; nothing runs yet.
    pub(super) fn start(options: RunOptions, ask: mpsc::Sender<Question>) -> Result<Self, RunError> {
        let loaded = read_config(&options.config);
        let now = options.sense.now();
        let folder = StateFolder::open(&options.state_dir)?;
        let target = start::target(&loaded.settings, options.embedding.as_ref());
        let reporter = start::reporter(&folder, &options.sense, target);
        let mut state = State::new(&loaded, reporter.latches().to_vec(), now);
        state.storage_problem = folder.problem();
        state.delivery = reporter.status().borrow().clone();
        let labels = Arc::new(Ledger::open(options.state_dir.join(LEDGER)));
        let machine = || Arc::new(Machine::with(options.sense.clone(), labels.clone()));
        let sensors = options.sensors.unwrap_or_else(|| machine());
        let mut daemon = Self {
            mailbox: Arc::default(),
            state,
            schedule: Schedule::default(),
            sensors,
            sense: options.sense,
            config: options.config,
            embedding: options.embedding,
            runtime_dir: options.runtime_dir,
            reporter,
            notifier: options.notifier,
            journal: TransitionLog::default(),
            timekeeper: Timekeeper::new(Clocks::read()),
            started: Instant::now(),
            judged: Instant::now(),
            refreshed: None,
            told_digest: String::new(),
            textfile: Slot::default(),
            asker: Asker::default(),
            labels,
            ask,
            metrics: None,
            _folder: folder,
        };
        match daemon.state.delivery.desired.clone() {
            Some(desired) => daemon.apply_desired(&desired),
            None => daemon.settings_changed(),
        }
        Ok(daemon)
    }

    /// How delivery stands, for the loop to wait on.
    pub(super) fn delivery(&self) -> watch::Receiver<DeliveryStatus> {
        self.reporter.status()
    }

    /// Configuration read, socket open: what else is missing shows in conditions and must not hold back the boot.
    pub(super) fn ready(&mut self) {
        self.begin_due_passes();
        self.notifier.status(self.state.summary());
        self.notifier.ready();
    }

    /// When the loop must turn even if nothing happens.
    pub(super) fn next_due(&self) -> Instant {
        let turn = self.judgement_due();
        self.schedule.next().map_or(turn, |due| due.min(turn))
    }

    /// When what is known is judged again though nothing new has come: time passes, and a finding that waits to be shown
    /// has waited long enough.
    fn judgement_due(&self) -> Instant {
        let rest = self.state.waits.map_or(HOUSEKEEPING, |waits| waits.clamp(LEAST, HOUSEKEEPING));
        self.judged + self.notifier.watchdog.map_or(rest, |watchdog| rest.min(watchdog))
    }

    /// One turn. What brought nothing new is not judged: a poll a second must not cost a judgement each.
    pub(super) fn turn(&mut self, event: Event) {
        let mut news = true;
        match event {
            // A question changes nothing and must not make the loop turn faster than it would.
            Event::Question(question) => return self.answer(question),
            Event::Passes(passes) => {
                news = false;
                for pass in passes {
                    news |= self.take(pass);
                }
            }
            Event::Delivery(status) => self.state.take_delivery(*status),
            Event::DeliveryEnded => self.state.delivery_ended(self.sense.now()),
            Event::Reload => self.reload(),
            Event::Due => {
                self.look_at_the_clocks();
                news = false;
            }
        }
        self.begin_due_passes();
        let now = Instant::now();
        if news || now >= self.judgement_due() {
            self.judged = now;
            if self.state.has_read() || self.started.elapsed() >= FIRST_READING {
                let transitions = self.state.judge(self.sense.now());
                self.act(transitions);
                self.notifier.status(self.state.summary());
            }
        }
        self.notifier.alive(now);
    }

    /// Whether the pass brought a reading.
    fn take(&mut self, pass: Ended) -> bool {
        let counts = self.schedule.ended(&pass, &self.state.settings, Instant::now());
        let Some(reading) = pass.reading.filter(|_| counts) else { return false };
        self.state.take_reading(reading);
        true
    }

    fn begin_due_passes(&mut self) {
        for due in self.schedule.start_due(&self.state.settings, Instant::now()) {
            let (sensors, mailbox) = (self.sensors.clone(), self.mailbox.clone());
            let clock = self.sense.clock.clone();
            let context = PassContext {
                settings: self.state.settings.clone(),
                clock_offset: self.state.delivery.clock_offset.clone(),
                peers: self.state.delivery.peers.clone(),
            };
            tokio::spawn(async move {
                let work = |guard| sensors.pass(&due.check, context, guard);
                let reading = pass(&due.check, due.limit, &due.slot, || clock(), work).await;
                mailbox.put(Ended { check: due.check, reading });
            });
        }
    }

    /// Plans the steps of this turn, takes them, reports.
    fn act(&mut self, transitions: Vec<Transition>) {
        let now = Instant::now();
        for transition in &transitions {
            self.journal.write(transition, now);
        }
        self.journal.sum_up(now);
        let refresh = self.refreshed.is_none_or(|at| now.duration_since(at) >= REFRESH);
        let write = refresh || !transitions.is_empty();
        // Embedded, the machine is the packaged daemon's to care for.
        let manage = self.state.settings.guest_agent.manage && self.embedding.is_none();
        let guest_agent = self.state.facts.checks.guest_agent.as_ref();
        let ask_setup = self.asker.ask(guest_agent, manage, self.sense.now());
        let (desired, coordinator) =
            (self.state.delivery.desired.clone(), self.state.delivery.coordinator.clone());
        let input = act::TurnInput {
            transitions: &transitions,
            coordinator: Some(coordinator.as_str()).filter(|url| !url.is_empty()),
            desired: desired.as_ref().filter(|desired| desired.generation != self.state.generation),
            status_file: write.then(|| self.runtime_dir.join("status.json")),
            // Embedded, we run beside a packaged daemon whose file it is.
            textfile: self
                .state
                .settings
                .report
                .textfile
                .clone()
                .filter(|_| write && self.embedding.is_none()),
            ask_setup: ask_setup.then(|| self.runtime_dir.join(ask::NAME)),
            labels: self.state.facts.checks.topology.as_ref().and_then(Fact::value).and_then(topology::plan),
            writes_labels: self.embedding.is_none(),
        };
        let (actions, _held) = act::plan(&input);
        for action in &actions {
            if let Err(error) = self.take_step(action) {
                let step = action.step();
                log::warn!("{} {}: {error}", step.kind, step.target);
            }
        }
        self.report(transitions, refresh);
        if write {
            self.refreshed = Some(now);
        }
    }

    fn take_step(&mut self, action: &Action<'_>) -> std::io::Result<()> {
        let now = self.sense.now();
        match action {
            // Handed over in one piece with the latches, by `report`.
            Action::Spool(_) => Ok(()),
            Action::ApplyDesired(desired) => {
                self.apply_desired(desired);
                Ok(())
            }
            Action::WriteStatus(path) => {
                let bytes = serde_json::to_vec_pretty(&self.state.status(now))?;
                act::replace_file(path, &bytes, 0o640)
            }
            Action::WriteTextfile(path) => {
                self.write_apart(path.clone(), self.metrics_page());
                Ok(())
            }
            Action::ApplyLabels(apply) => {
                labels::write(&self.labels, &self.sense, &self.state.settings.topology, apply);
                Ok(())
            }
            Action::AskGuestAgentSetup(path) => {
                log::info!("the guest agent does not run: its set-up is asked for");
                ask::touch(path, now)
            }
        }
    }

    /// Hands transitions to the spool, with the latches that followed from them, and the state when it is news. Without a
    /// coordinator the spool keeps the latches alone.
    fn report(&mut self, transitions: Vec<Transition>, refresh: bool) {
        let known = if refresh { None } else { Some(self.told_digest.as_str()) };
        let knows = self.state.knows_itself(self.started.elapsed());
        let state = if knows { self.state.node_state(known) } else { None };
        if let Some(state) = &state {
            self.told_digest.clone_from(&state.digest);
        }
        if !transitions.is_empty() || state.is_some() {
            self.reporter.put(transitions, self.state.latches(), state);
        }
    }

    /// Writes a file of the operator's choice on a thread of its own: the disk below may hang, and this loop must not.
    fn write_apart(&self, path: PathBuf, text: String) {
        let Some(guard) = self.textfile.enter() else {
            return log::warn!("{} is not written: the write before has not ended", path.display());
        };
        tokio::task::spawn_blocking(move || {
            let _guard = guard;
            if let Err(error) = act::replace_file(&path, text.as_bytes(), 0o644) {
                log::warn!("{} cannot be written: {error}", path.display());
            }
        });
    }

    fn metrics_page(&self) -> String {
        act::render_textfile(self.state.conditions(), &self.state.agent_facts(), self.sense.now())
    }

    fn answer(&self, question: Question) {
        let document = match question.ask {
            Ask::Status => serde_json::to_vec(&self.state.status(self.sense.now())),
            Ask::Conditions => serde_json::to_vec(&self.state.verdict),
            Ask::Facts => serde_json::to_vec(&self.state.facts),
            Ask::Metrics => Ok(self.metrics_page().into_bytes()),
        };
        match document {
            // The client may have gone; that is its own affair.
            Ok(document) => drop(question.answer.send(document)),
            Err(error) => log::error!("a document cannot be written: {error}"),
        }
    }

    /// SIGHUP: read the configuration anew; with problems, the last good one stays in force.
    fn reload(&mut self) {
        self.notifier.reloading();
        let loaded = read_config(&self.config);
        match loaded.problems.len() {
            0 => log::info!("configuration reloaded"),
            n => log::error!("the configuration has {n} problems; the last good one stays in force"),
        }
        self.state.take_config(&loaded, false);
        match self.state.delivery.desired.clone() {
            Some(desired) => self.apply_desired(&desired),
            None => self.settings_changed(),
        }
        self.schedule.all_due(Instant::now());
        self.reporter.wake();
        self.notifier.ready();
    }

    /// Puts what the coordinator desires in force, over the node's own settings. Safe to repeat.
    fn apply_desired(&mut self, desired: &NodeConfig) {
        let (settings, held) = effective(&self.state.own, &desired.spec);
        if self.state.generation != desired.generation {
            log::info!("desired configuration of generation {} is in force", desired.generation);
            held.iter().for_each(|held| log::warn!("desired {} is held back: {}", held.path, held.reason));
        }
        self.state.take_settings(settings);
        self.state.generation = desired.generation;
        self.settings_changed();
        self.reporter.in_force(desired.generation);
    }

    fn settings_changed(&mut self) {
        for check in self.schedule.apply(&self.state.settings, Instant::now()) {
            let reason = format!("switched off by checks.{check}.enabled");
            if let Some(reading) = Reading::not_applicable(&check, &reason, self.sense.now()) {
                self.state.take_reading(reading);
            }
        }
        self.labels.wake();
        self.reporter.configure(start::target(&self.state.settings, self.embedding.as_ref()));
        self.serve_metrics();
    }

    /// Serves `/metrics` where the settings want it. A program that embeds the daemon has its own.
    fn serve_metrics(&mut self) {
        let wanted = self.state.settings.report.metrics_listen.filter(|_| self.embedding.is_none());
        if self.metrics.as_ref().map(|(address, _)| *address) != wanted {
            self.metrics = wanted.map(|address| {
                let task = tokio::spawn(metrics::serve(address, self.ask.clone()));
                (address, AbortOnDrop(task.abort_handle()))
            });
        }
    }

    fn look_at_the_clocks(&mut self) {
        for jump in self.timekeeper.look(Clocks::read()) {
            match jump {
                Jump::Suspended(time) => {
                    log::info!(
                        "the machine was suspended for {} s; everything is read again",
                        time.as_secs()
                    );
                    self.schedule.all_due(Instant::now());
                    self.reporter.wake();
                }
                Jump::ClockSet(ms) => {
                    log::warn!("the wall clock was set by {:.1} s", ms as f64 / 1000.0);
                    self.schedule.due_now(&Check::Clock, Instant::now());
                }
            }
        }
    }

    /// The verdict of the last turn.
    #[cfg(test)]
    pub(super) fn verdict(&self) -> &outrider_protocol::NodeConditions {
        &self.state.verdict
    }

    /// When the last turn judged.
    #[cfg(test)]
    pub(super) fn judged_at(&self) -> outrider_protocol::Timestamp {
        self.state.facts.now
    }

    /// The last words: within five seconds, what can be written and sent is.
    pub(super) async fn drain(self) {
        self.notifier.stopping();
        self.reporter.stop(DRAIN).await;
    }
}

/// A task that ends with its owner.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn read_config(source: &ConfigSource) -> Loaded {
    let loaded = config::load(source);
    loaded.problems.iter().for_each(|problem| log::error!("configuration: {problem}"));
    loaded.notes.iter().for_each(|note| log::info!("configuration: {note}"));
    loaded
}
