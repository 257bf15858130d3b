//! The guest agent's set-up: what root may do about a QEMU guest agent that is not there or does not run.
//!
//! A program of its own (`outrider-guest-agent`), which systemd starts after boot and when the daemon, which has no rights,
//! touches a file ([`ask`]). It looks ([`situation`]), decides ([`plan`], a pure function), and takes the steps ([`apply`]):
//! wait for cloud-init's packages and for the package manager's lock ([`lock`]), install one package ([`packages`]), start the
//! unit that exists. What came of it lies in a status file that the check `guest-agent` reads.
//!
//! It never unmasks, enables or edits anything of the distribution's, never changes SELinux, never kills who holds a lock,
//! never removes a package, never reboots. Only configuration that nobody but root can have written governs it
//! (`[guest_agent]`). Rules: `facts/guest-agent.md` sections 4 and 7, `facts/packaging.md` sections 4 and 5.

pub mod ask;

mod apply;
mod child;
mod lock;
mod packages;
mod plan;
mod situation;

use std::time::Duration;

use outrider_protocol::{GuestAgentSetup, Plan, ReasonCode, SetupState, Timestamp, TypeMeta};

use crate::act::replace_file;
use crate::sense::{SenseContext, file};

use self::apply::{Failure, Work};
use self::plan::Verdict;
use self::situation::Situation;

/// The status file, in a folder that is root's: the daemon's own folder is no place for root to write.
pub const STATUS: &str = "/run/outrider-guest-agent/status.json";
/// There while an installation of ours is under way: whoever finds it at the start was interrupted. Holds the boot's id.
const INSTALLING: &str = "/var/lib/outrider-guest-agent/installing";
/// There once the package lies in the next snapshot. Holds the id of the boot that put it there.
const SNAPSHOT: &str = "/var/lib/outrider-guest-agent/snapshot";
/// Identifies a boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The first wait after an attempt that failed; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(60);
/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// How long it waits for others.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For cloud-init to install its packages. Rancher gives a machine ten minutes to have an address.
    pub cloud_init: Duration,
    /// For the package manager's lock.
    pub lock: Duration,
    /// For a unit to start, and for its process to be seen.
    pub start: Duration,
    /// Between two looks.
    pub tick: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { cloud_init: seconds(180), lock: seconds(600), start: seconds(60), tick: seconds(1) }
    }
}

/// One run.
pub struct Setup {
    /// The machine.
    pub cx: SenseContext,
    /// Whose configuration counts: 0.
    pub owner: u32,
    /// How long it waits.
    pub limits: Limits,
    /// Whether it was asked to end. A package manager that has begun is waited for.
    pub stopping: Box<dyn Fn() -> bool>,
    /// Takes a line for the journal.
    pub say: Box<dyn Fn(&str)>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// What the status file says now.
    pub status: GuestAgentSetup,
    /// Whether anything was done; else the caller rests, so that being asked in a loop costs little.
    pub worked: bool,
}

impl Setup {
    /// What would be done now.
    pub fn plan(&self) -> Plan {
        let situation = Situation::read(&self.cx, self.owner);
        plan::describe(&plan::plan(&situation), situation.manager)
    }

    /// Looks, decides, takes the steps and says in the status file what came of it. An attempt that follows a failure too
    /// soon is not made, unless in a `hurry`.
    pub fn run(&self, hurry: bool) -> Ran {
        let before = self.status();
        let situation = Situation::read(&self.cx, self.owner);
        let status = match plan::plan(&situation) {
            Verdict::Done(message) => self.new_status(SetupState::Done, None, message),
            Verdict::Held { reason, message } => self.new_status(SetupState::Held, reason, message),
            Verdict::Go(steps) => {
                let now = self.cx.now();
                let failures = before.as_ref().map_or(0, |status| status.failures);
                // A clock that was set back must not keep us waiting for longer than the longest wait.
                let early = |at: Timestamp| at > now && at.since(now) <= LONGEST_WAIT;
                match before {
                    Some(before) if !hurry && before.next_attempt_at.is_some_and(early) => {
                        return Ran { status: before, worked: false };
                    }
                    _ => {
                        let work = Work::new(self, situation);
                        let status = match work.take(&steps) {
                            Ok(()) => self.afterwards(failures),
                            Err(failure) => self.failed(failure, failures),
                        };
                        self.write(&status);
                        return Ran { status, worked: true };
                    }
                }
            }
        };
        self.write(&status);
        Ran { status, worked: false }
    }

    /// What is to be said when every step was taken.
    fn afterwards(&self, failures: u32) -> GuestAgentSetup {
        match plan::plan(&Situation::read(&self.cx, self.owner)) {
            Verdict::Done(message) => self.new_status(SetupState::Done, None, message),
            Verdict::Held { reason, message } => self.new_status(SetupState::Held, reason, message),
            Verdict::Go(_) => {
                let message = "every step was taken, and the guest agent still does not run".to_owned();
                self.failed(Failure::new(None, message), failures)
            }
        }
    }

    fn failed(&self, failure: Failure, failures: u32) -> GuestAgentSetup {
        // Being stopped is nobody's failure.
        let failures = if failure.stopped { failures } else { failures.saturating_add(1) };
        let wait = if failure.stopped { Duration::ZERO } else { wait_after(failures) };
        let status = self.new_status(SetupState::Failed, failure.reason, failure.message);
        GuestAgentSetup { failures, next_attempt_at: Some(status.at.after(wait)), ..status }
    }

    fn new_status(&self, state: SetupState, reason: Option<ReasonCode>, message: String) -> GuestAgentSetup {
        GuestAgentSetup { state, reason, message, at: self.cx.now(), failures: 0, next_attempt_at: None }
    }

    /// What the run before said; none after a boot.
    fn status(&self) -> Option<GuestAgentSetup> {
        let text = file::read_text(&self.cx.path(STATUS), file::SMALL).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn write(&self, status: &GuestAgentSetup) {
        (self.say)(&status.message);
        self.put(status);
    }

    /// Writes the status file.
    fn put(&self, status: &GuestAgentSetup) {
        let written = serde_json::to_vec_pretty(status)
            .map_err(std::io::Error::from)
            .and_then(|bytes| replace_file(&self.cx.path(STATUS), &bytes, 0o644));
        if let Err(e) = written {
            (self.say)(&format!("{STATUS} cannot be written: {e}"));
        }
    }
}

/// How long nothing is tried after so many failures in a row.
fn wait_after(failures: u32) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1).min(16)));
    doubled.min(LONGEST_WAIT)
}

/// The document of a plan.
fn plan_document(steps: Vec<outrider_protocol::Step>, held: Vec<outrider_protocol::Step>) -> Plan {
    Plan { meta: TypeMeta::new("Plan"), steps, held }
}

#[cfg(test)]
mod tests;
