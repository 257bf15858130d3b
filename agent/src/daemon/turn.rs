//! The daemon's parts, and what each event does to them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{Check, Timestamp, Transition};
use tokio::time::Instant;

use super::schedule::Schedule;
use super::state::State;
use super::time::{Clocks, Jump, Timekeeper};
use super::{Event, RunOptions};
use crate::act::{self, Action};
use crate::checks::{Machine, Mailbox, PassContext, Reading, Sensors, pass};
use crate::config::{self, ConfigSource};
use crate::journal::TransitionLog;
use crate::local::{Ask, Question};
use crate::notify::Notifier;
use crate::sense::SenseContext;

/// The longest the loop sleeps: the watchdog is fed, and suspend and a set clock noticed, at this pace at least.
const HOUSEKEEPING: Duration = Duration::from_secs(10);
/// While a judgement waits to be shown.
const PENDING: Duration = Duration::from_secs(1);
/// How old the status file and the textfile may be while nothing changes.
const REFRESH: Duration = Duration::from_secs(30);

/// Everything the loop owns.
pub(super) struct Daemon {
    pub(super) mailbox: Arc<Mailbox>,
    state: State,
    schedule: Schedule,
    sensors: Arc<dyn Sensors>,
    sense: SenseContext,
    config: ConfigSource,
    runtime_dir: PathBuf,
    notifier: Notifier,
    journal: TransitionLog,
    timekeeper: Timekeeper,
    last_turn: Instant,
    files_written: Option<Instant>,
}

impl Daemon {
    /// Reads the configuration and what the process before left; nothing runs yet.
    pub(super) fn start(options: RunOptions) -> Self {
        let loaded = config::load(&options.config);
        loaded.problems.iter().for_each(|problem| log::error!("configuration: {problem}"));
        loaded.notes.iter().for_each(|note| log::info!("configuration: {note}"));
        let now = options.sense.now();
        let mut daemon = Self {
            mailbox: Arc::default(),
            state: State::new(&loaded, Vec::new(), now),
            schedule: Schedule::default(),
            sensors: options.sensors.unwrap_or_else(|| Arc::new(Machine::new(options.sense.clone()))),
            sense: options.sense,
            config: options.config,
            runtime_dir: options.runtime_dir,
            notifier: options.notifier,
            journal: TransitionLog::default(),
            timekeeper: Timekeeper::new(Clocks::read()),
            last_turn: Instant::now(),
            files_written: None,
        };
        daemon.settings_changed();
        daemon
    }

    /// Configuration read, socket open: what else is missing shows in conditions and must not hold back the boot.
    pub(super) fn ready(&mut self) {
        self.begin_due_passes();
        self.notifier.status(self.state.summary());
        self.notifier.ready();
    }

    /// When the loop must turn even if nothing happens.
    pub(super) fn next_due(&self) -> Instant {
        let rest = if self.state.pending() { PENDING } else { HOUSEKEEPING };
        let rest = self.notifier.watchdog.map_or(rest, |watchdog| rest.min(watchdog));
        let turn = self.last_turn + rest;
        self.schedule.next().map_or(turn, |due| due.min(turn))
    }

    /// One turn.
    pub(super) fn turn(&mut self, event: Event) {
        match event {
            // A question changes nothing and must not make the loop turn faster than it would.
            Event::Question(question) => return self.answer(question),
            Event::Readings(readings) => readings.into_iter().for_each(|reading| self.take(reading)),
            Event::Delivery(status) => self.state.delivery = status,
            Event::Reload => self.reload(),
            Event::Due => self.look_at_the_clocks(),
        }
        self.begin_due_passes();
        let transitions = self.state.judge(self.sense.now());
        self.act(&transitions);
        self.last_turn = Instant::now();
        self.notifier.status(self.state.summary());
        self.notifier.alive();
    }

    fn take(&mut self, reading: Reading) {
        if self.schedule.ended(&reading, &self.state.settings, Instant::now()) {
            self.state.take_reading(reading);
        }
    }

    fn begin_due_passes(&mut self) {
        let context = PassContext {
            settings: self.state.settings.clone(),
            clock_offset: self.state.delivery.clock_offset.clone(),
        };
        for due in self.schedule.start_due(&self.state.settings, Instant::now()) {
            let (sensors, mailbox) = (self.sensors.clone(), self.mailbox.clone());
            let (context, clock) = (context.clone(), self.sense.clock.clone());
            tokio::spawn(async move {
                let work = |guard| sensors.pass(&due.check, context, guard);
                if let Some(reading) = pass(&due.check, due.limit, &due.slot, || clock(), work).await {
                    mailbox.put(reading);
                }
            });
        }
    }

    /// Plans the steps of this turn and takes them.
    fn act(&mut self, transitions: &[Transition]) {
        let now = Instant::now();
        transitions.iter().for_each(|transition| self.journal.write(transition, now));
        self.journal.sum_up(now);
        let stale = self.files_written.is_none_or(|at| now.duration_since(at) >= REFRESH);
        let write = stale || !transitions.is_empty();
        let settings = self.state.settings.clone();
        let input = act::TurnInput {
            transitions,
            coordinator: None,
            desired: None,
            status_file: write.then(|| self.runtime_dir.join("status.json")),
            textfile: settings.report.textfile.clone().filter(|_| write),
        };
        let (actions, _held) = act::plan(&input);
        for action in &actions {
            if let Err(error) = self.do_one(action) {
                let step = action.step();
                log::warn!("{} {}: {error}", step.kind, step.target);
            }
        }
        if write {
            self.files_written = Some(now);
        }
    }

    fn do_one(&mut self, action: &Action<'_>) -> std::io::Result<()> {
        let now = self.sense.now();
        match action {
            Action::Spool(_) | Action::ApplyDesired(_) => Ok(()),
            Action::WriteStatus(path) => {
                let bytes = serde_json::to_vec_pretty(&self.state.status(now))?;
                act::replace_file(path, &bytes, 0o640)
            }
            Action::WriteTextfile(path) => {
                let text = act::render_textfile(self.state.conditions(), &self.state.agent_facts(), now);
                act::replace_file(path, text.as_bytes(), 0o644)
            }
        }
    }

    fn answer(&self, question: Question) {
        let document = match question.ask {
            Ask::Status => serde_json::to_vec(&self.state.status(self.sense.now())),
            Ask::Conditions => serde_json::to_vec(&self.state.verdict),
            Ask::Facts => serde_json::to_vec(&self.state.facts),
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
        let loaded = config::load(&self.config);
        loaded.problems.iter().for_each(|problem| log::error!("configuration: {problem}"));
        loaded.notes.iter().for_each(|note| log::info!("configuration: {note}"));
        match loaded.problems.len() {
            0 => log::info!("configuration reloaded"),
            n => log::error!("configuration has {n} problems; the last good one stays in force"),
        }
        self.state.take_config(&loaded, false);
        self.settings_changed();
        self.schedule.all_due(Instant::now());
        self.notifier.ready();
    }

    fn settings_changed(&mut self) {
        for check in self.schedule.apply(&self.state.settings, Instant::now()) {
            let reason = format!("switched off by checks.{check}.enabled");
            if let Some(reading) = Reading::not_applicable(&check, &reason, self.sense.now()) {
                self.state.take_reading(reading);
            }
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
                }
                Jump::ClockSet(ms) => {
                    log::warn!("the wall clock was set by {:.1} s", ms as f64 / 1000.0);
                    self.schedule.due_now(&Check::Clock, Instant::now());
                }
            }
        }
    }

    /// The last words: within five seconds, what can be written and sent is.
    pub(super) async fn drain(&mut self) {
        self.notifier.stopping();
        let _: Timestamp = self.sense.now();
    }
}
