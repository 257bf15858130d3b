//! The daemon's side: when it asks for the set-up, and how.
//!
//! The daemon may not install anything. It touches a file in its own folder, which `outrider-guest-agent.path` watches. The
//! file says nothing: what is done is decided by root's program from root's configuration. A daemon that asked at every
//! reading would have systemd start a program a minute for nothing, so it asks ever more rarely.

use std::path::Path;
use std::time::Duration;

use outrider_protocol::{Fact, GuestAgentFacts, SetupState, Timestamp};

use crate::act::replace_file;

/// The file that is touched, in the daemon's runtime folder.
pub const NAME: &str = "guest-agent.ask";
/// The wait after the first question; it doubles.
const FIRST: Duration = Duration::from_secs(120);
/// The longest.
const LONGEST: Duration = Duration::from_secs(3600);
/// How long the set-up's "I work on it" is believed.
const BELIEVED: Duration = Duration::from_secs(120);

/// When the daemon asked last, and when it may ask again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker {
    asked: Option<(Timestamp, Duration)>,
}

impl Asker {
    /// Whether to ask now; if so it is remembered as asked.
    pub fn ask(&mut self, guest: Option<&Fact<GuestAgentFacts>>, manage: bool, now: Timestamp) -> bool {
        let Some(guest) = guest.and_then(Fact::value).filter(|_| manage) else { return false };
        if guest.process.value().is_some() {
            // What is needed the next time is another question.
            self.asked = None;
            return false;
        }
        if !is_wanted(guest, now) {
            return false;
        }
        let wait = match self.asked {
            Some((at, wait)) if now.since(at) < wait && now >= at => return false,
            Some((_, wait)) => (wait * 2).min(LONGEST),
            None => FIRST,
        };
        self.asked = Some((now, wait));
        true
    }
}

/// Whether the set-up could do something: it knows best itself, so this only leaves out what is certain.
fn is_wanted(guest: &GuestAgentFacts, now: Timestamp) -> bool {
    let active = guest.units.value().is_some_and(|units| units.iter().any(|u| u.active_state == "active"));
    let busy = guest.setup.as_ref().and_then(Fact::value).is_some_and(|setup| match setup.state {
        SetupState::Working => now.since(setup.at) < BELIEVED,
        SetupState::Failed => setup.next_attempt_at.is_some_and(|at| at > now && at.since(now) <= LONGEST),
        _ => false,
    });
    guest.port.value().is_some() && matches!(guest.process, Fact::Absent { .. }) && !active && !busy
}

/// Touches the file.
pub fn touch(path: &Path, now: Timestamp) -> std::io::Result<()> {
    replace_file(path, format!("{}\n", now.as_millis()).as_bytes(), 0o640)
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{GuestAgentSetup, ProcessFacts, UnitFacts};

    use super::*;

    fn t0() -> Timestamp {
        Timestamp::from_seconds(1_800_000_000)
    }

    fn bare() -> GuestAgentFacts {
        GuestAgentFacts {
            port: Fact::known("/dev/virtio-ports/x".into(), "", t0()),
            binary: Fact::absent("", t0()),
            units: Fact::known(Vec::new(), "", t0()),
            process: Fact::absent("", t0()),
            uptime_seconds: Fact::known(10, "", t0()),
            rpc_lists: None,
            denials: None,
            setup: None,
        }
    }

    /// Seconds at which it asks when asked every second for `hours`.
    fn asks(guest: impl Fn(u64) -> GuestAgentFacts, hours: u64) -> Vec<u64> {
        let mut asker = Asker::default();
        (0..hours * 3600)
            .filter(|s| {
                let fact = Fact::known(guest(*s), "", t0());
                asker.ask(Some(&fact), true, t0().after(Duration::from_secs(*s)))
            })
            .collect()
    }

    #[test]
    fn it_asks_at_once_and_then_ever_more_rarely() {
        let asked = asks(|_| bare(), 24);
        assert_eq!(asked[..4], [0, 120, 360, 840]);
        assert!(asked.len() < 32, "{}", asked.len());
        assert!(asked.windows(2).all(|w| w[1] - w[0] <= 3600));
    }

    #[test]
    fn an_agent_that_ran_meanwhile_makes_it_a_new_question() {
        let process = ProcessFacts { pid: 1, name: "qemu-ga".into(), seconds: 1 };
        let asked = asks(
            |s| match s {
                100..110 => GuestAgentFacts { process: Fact::known(process.clone(), "", t0()), ..bare() },
                _ => bare(),
            },
            1,
        );
        assert_eq!(asked[..3], [0, 110, 230]);
    }

    #[test]
    fn it_does_not_ask_for_what_cannot_be_done_or_is_being_done() {
        let at = |state: SetupState, next: Option<Timestamp>| {
            let status = GuestAgentSetup {
                state,
                reason: None,
                message: "x".into(),
                at: t0(),
                failures: 1,
                next_attempt_at: next,
            };
            GuestAgentFacts { setup: Some(Fact::known(status, "", t0())), ..bare() }
        };
        let unit = UnitFacts {
            name: "qemu-ga.service".into(),
            load_state: "loaded".into(),
            active_state: "active".into(),
            sub_state: String::new(),
            unit_file_state: String::new(),
        };
        for (what, guest) in [
            ("no port", GuestAgentFacts { port: Fact::absent("", t0()), ..bare() }),
            ("active", GuestAgentFacts { units: Fact::known(vec![unit], "", t0()), ..bare() }),
            (
                "unknown process",
                GuestAgentFacts {
                    process: Fact::unknown(outrider_protocol::UnknownCause::PermissionDenied, "", "", t0()),
                    ..bare()
                },
            ),
            ("working", at(SetupState::Working, None)),
            ("failed a moment ago", at(SetupState::Failed, Some(t0().after(Duration::from_secs(600))))),
        ] {
            assert!(!Asker::default().ask(Some(&Fact::known(guest, "", t0())), true, t0()), "{what}");
        }
        let late = t0().after(Duration::from_secs(700));
        for guest in
            [at(SetupState::Working, None), at(SetupState::Failed, Some(t0())), at(SetupState::Done, None)]
        {
            assert!(Asker::default().ask(Some(&Fact::known(guest, "", t0())), true, late));
        }
        assert!(!Asker::default().ask(Some(&Fact::known(bare(), "", t0())), false, t0()), "manage = false");
        assert!(!Asker::default().ask(None, true, t0()));
    }

    #[test]
    fn touching_replaces_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        touch(&path, t0()).unwrap();
        touch(&path, t0()).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "1800000000000\n");
    }
}
