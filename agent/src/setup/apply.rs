//! Taking the steps. Each may be taken again.

use std::os::unix::fs::DirBuilderExt;
use std::time::Instant;

use outrider_protocol::{Fact, GuestAgentFacts, GuestAgentSetup, ReasonCode, SetupState};

use super::child::{self, Ended};
use super::packages::{Manager, PACKAGE, Said, Source};
use super::plan::{Step, is_loaded};
use super::situation::{Situation, boot_id, cloud_init_installs};
use super::{INSTALLING, SNAPSHOT, Setup, lock};
use crate::act::replace_file;
use crate::sense::guest_agent;

/// Why a step was not done.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    /// The code; none for what the check sees by itself.
    pub(super) reason: Option<ReasonCode>,
    /// In words.
    pub(super) message: String,
    /// We were asked to end.
    pub(super) stopped: bool,
}

impl Failure {
    pub(super) fn new(reason: Option<ReasonCode>, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), stopped: false }
    }

    fn install(message: impl Into<String>) -> Self {
        Self::new(Some(ReasonCode::GuestAgentInstallFailed), message)
    }

    fn io(what: &str, error: &std::io::Error) -> Self {
        Self::install(format!("{what}: {error}"))
    }
}

/// A run at work.
pub(super) struct Work<'a> {
    setup: &'a Setup,
    situation: Situation,
}

impl<'a> Work<'a> {
    pub(super) fn new(setup: &'a Setup, situation: Situation) -> Self {
        Self { setup, situation }
    }

    /// Takes the steps in order.
    pub(super) fn take(&self, steps: &[Step]) -> Result<(), Failure> {
        for step in steps {
            match step {
                Step::WaitForCloudInit => self.wait_for_cloud_init()?,
                Step::WaitForLock => self.wait_for_lock()?,
                Step::Repair => self.repair()?,
                Step::Install(source) => self.install(source)?,
                Step::Start => self.start()?,
            }
        }
        Ok(())
    }

    /// Says what it is at. Said again every few seconds, so that a run that was cut short is told from one that goes on.
    fn at_work(&self, reason: ReasonCode, message: &str) {
        let status = self.setup.new_status(SetupState::Working, Some(reason), message.to_owned());
        let failures = self.setup.status().map_or(0, |before| before.failures);
        self.setup.put(&GuestAgentSetup { failures, ..status });
    }

    fn pause(&self) -> Result<(), Failure> {
        std::thread::sleep(self.setup.limits.tick);
        self.go_on()
    }

    /// An error once we were asked to end.
    fn go_on(&self) -> Result<(), Failure> {
        if (self.setup.stopping)() {
            return Err(Failure {
                stopped: true,
                ..Failure::new(None, "the set-up was stopped; it goes on when it is started again")
            });
        }
        Ok(())
    }

    fn wait_for_cloud_init(&self) -> Result<(), Failure> {
        let limit = self.setup.limits.cloud_init;
        let begun = Instant::now();
        (self.setup.say)(&format!("waiting for cloud-init's packages, {} s at most", limit.as_secs()));
        while cloud_init_installs(&self.setup.cx) && begun.elapsed() < limit {
            let seconds = begun.elapsed().as_secs();
            let message = format!(
                "waits for cloud-init to install its packages, for {seconds} s (limit {} s)",
                limit.as_secs()
            );
            self.at_work(ReasonCode::GuestAgentInstalling, &message);
            self.pause()?;
            if has_binary(&self.guest()) {
                break;
            }
        }
        Ok(())
    }

    fn wait_for_lock(&self) -> Result<(), Failure> {
        let Some(manager) = self.situation.manager else { return Ok(()) };
        let limit = self.setup.limits.lock;
        let begun = Instant::now();
        let mut said = None;
        while let Some(holder) = lock::holder(&self.setup.cx, manager) {
            let seconds = begun.elapsed().as_secs();
            if begun.elapsed() >= limit {
                let message = format!("waited {} s for {holder}, which was not ended", limit.as_secs());
                return Err(Failure::new(Some(ReasonCode::GuestAgentLockHeld), message));
            }
            if said.as_ref() != Some(&holder) {
                (self.setup.say)(&format!("waiting for {holder}"));
                said = Some(holder.clone());
            }
            let message = format!("waits for {holder}, for {seconds} s (limit {} s)", limit.as_secs());
            self.at_work(ReasonCode::GuestAgentLockHeld, &message);
            self.pause()?;
        }
        Ok(())
    }

    /// Runs a program to its end.
    fn run(&self, words: &[impl AsRef<str>], doing: &str) -> Result<Ended, Failure> {
        self.go_on()?;
        let line = words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ");
        (self.setup.say)(&line);
        let begun = Instant::now();
        let mut told = None;
        let mut tick = || {
            let seconds = begun.elapsed().as_secs();
            if told.is_none_or(|told| seconds >= told + 5) {
                told = Some(seconds);
                self.at_work(ReasonCode::GuestAgentInstalling, &format!("{doing}, for {seconds} s"));
            }
        };
        let every = self.setup.limits.tick;
        child::run(&self.setup.cx, words, every, &*self.setup.say, &mut tick)
            .map_err(|e| Failure::io(&line, &e))
    }

    /// What our own interrupted installation left. With somebody else's this is not done: `dpkg --configure -a` would go on with
    /// what they may have stopped on purpose.
    fn repair(&self) -> Result<(), Failure> {
        let ended = self.run(
            &["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"],
            "finishes its interrupted installation",
        )?;
        if ended.code != Some(0) {
            return Err(Failure::install(
                ended.told("dpkg --configure -a, after our installation was interrupted,"),
            ));
        }
        self.unmark(INSTALLING)
    }

    fn install(&self, source: &Source) -> Result<(), Failure> {
        let Some(manager) = self.situation.manager else { return Ok(()) };
        // cloud-init, or whoever held the lock, may have installed it meanwhile; and a repair does.
        if has_binary(&self.guest()) {
            return Ok(());
        }
        match self.try_install(manager, source)? {
            (Said::Installed, _) if manager == Manager::Transactional => self.mark(SNAPSHOT),
            (Said::Installed, ended) => {
                if has_binary(&self.guest()) {
                    return Ok(());
                }
                let message = ended.told(&format!(
                    "{}, and no qemu-ga is there although it says to have installed it:",
                    manager.name()
                ));
                Err(Failure::install(message))
            }
            (Said::ReadOnly, ended) => {
                if super::packages::program(&self.setup.cx, "transactional-update").is_none() {
                    let message = ended.told("zypper says that this system is read-only, and there is no transactional-update; zypper");
                    return Err(Failure::install(message));
                }
                match self.try_install(Manager::Transactional, source)? {
                    (Said::Installed, _) => self.mark(SNAPSHOT),
                    (_, ended) => Err(Failure::install(ended.told("transactional-update"))),
                }
            }
            (Said::Locked, ended) => {
                let holder = lock::holder(&self.setup.cx, manager);
                let message = holder.map_or_else(
                    || ended.told(manager.name()),
                    |holder| format!("{} waited for {holder}", manager.name()),
                );
                Err(Failure::new(Some(ReasonCode::GuestAgentLockHeld), message))
            }
            (Said::NotFound, ended) => Err(no_repository(ended.told(manager.name()))),
            (Said::Failed, ended) => Err(Failure::install(ended.told(manager.name()))),
        }
    }

    /// Installs, and finds out what a failure was: most exit codes do not say.
    fn try_install(&self, manager: Manager, source: &Source) -> Result<(Said, Ended), Failure> {
        let online = *source == Source::Repositories;
        let refresh = |doing: &str| -> Result<Option<Ended>, Failure> {
            let Some(words) = manager.refresh().filter(|_| online) else { return Ok(None) };
            let ended = self.run(&words, doing)?;
            Ok((ended.code != Some(0)).then_some(ended))
        };
        let offers = || -> Result<bool, Failure> {
            let Some(words) = manager.offers().filter(|_| online) else { return Ok(true) };
            Ok(child::run(&self.setup.cx, &words, self.setup.limits.tick, &|_| {}, &mut || {})
                .map_err(|e| Failure::io(words[0], &e))?
                .code
                == Some(0))
        };
        // apt knows only what was fetched before; the others fetch by themselves.
        let mut unreachable = None;
        if manager == Manager::Apt {
            unreachable = refresh("fetches the lists of the repositories")?;
            if !offers()? {
                return Err(no_repository(match unreachable {
                    Some(ended) => {
                        format!("the lists could not be fetched: {}", ended.told("apt-get update"))
                    }
                    None => format!("none offers {PACKAGE}"),
                }));
            }
        }
        self.mark(INSTALLING)?;
        let ended =
            self.run(&manager.install(source), &format!("installs {PACKAGE} with {}", manager.name()))?;
        // By a signal it was interrupted, and the mark stays.
        if ended.code.is_some() {
            self.unmark(INSTALLING)?;
        }
        let said = manager.said(ended.code);
        if said != Said::Failed || !online {
            return Ok((said, ended));
        }
        if lock::holder(&self.setup.cx, manager).is_some() {
            return Ok((Said::Locked, ended));
        }
        if manager != Manager::Apt {
            unreachable = refresh("asks the repositories again")?;
        }
        let offered = offers()?;
        match unreachable {
            // One repository of several that is out of order is no reason where the package is known from another and what
            // failed was no download. zypper's look at its repositories has no such second word.
            Some(refreshed) if !offered || manager.offers().is_none() || is_download(&ended.words) => {
                Err(no_repository(format!(
                    "{}; before it, {}",
                    ended.told(manager.name()),
                    refreshed.told("its refresh")
                )))
            }
            None if !offered => Err(no_repository(format!("none offers {PACKAGE}"))),
            _ => Ok((said, ended)),
        }
    }

    fn start(&self) -> Result<(), Failure> {
        let failure = |message: String| Err(Failure::new(None, message));
        let guest = self.guest();
        let Some(facts) = guest.value() else {
            return failure("the guest agent's state could not be read".to_owned());
        };
        if facts.process.value().is_some() {
            return Ok(());
        }
        let Some(units) = facts.units.value() else {
            return failure("systemd did not say which units there are".to_owned());
        };
        // Neither to start nor to judge: the plan that follows says what it is.
        let Some(unit) = units.iter().find(|u| is_loaded(u)) else { return Ok(()) };
        // Not waited for by systemctl: a unit that waits for its device would take us along.
        let ended = self
            .run(&["systemctl", "--no-block", "start", "--", &unit.name], &format!("starts {}", unit.name))?;
        if ended.code != Some(0) {
            return failure(ended.told(&format!("systemctl start {}", unit.name)));
        }
        let begun = Instant::now();
        while begun.elapsed() < self.setup.limits.start {
            if self.guest().value().is_some_and(|facts| facts.process.value().is_some()) {
                return Ok(());
            }
            self.pause()?;
        }
        failure(format!(
            "{} was started, and no process of it was seen for {} s; its journal says why",
            unit.name,
            begun.elapsed().as_secs()
        ))
    }

    fn guest(&self) -> Fact<GuestAgentFacts> {
        guest_agent::read(&self.setup.cx, &mut guest_agent::Memory::default())
    }

    fn mark(&self, path: &str) -> Result<(), Failure> {
        let file = self.setup.cx.path(path);
        let text = format!("{}\n", boot_id(&self.setup.cx));
        // systemd makes the folder for the unit (`StateDirectory=`); by hand nobody has.
        let folder = file
            .parent()
            .map_or(Ok(()), |folder| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder));
        folder.map_err(|e| Failure::io(path, &e))?;
        let written =
            replace_file(&file, text.as_bytes(), 0o600).and_then(|()| std::fs::File::open(&file)?.sync_all());
        written.map_err(|e| Failure::io(path, &e))
    }

    fn unmark(&self, path: &str) -> Result<(), Failure> {
        match std::fs::remove_file(self.setup.cx.path(path)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Failure::io(path, &e)),
            _ => Ok(()),
        }
    }
}

/// Whether a package manager's last words are about a download. They are told in English (`LC_ALL=C`).
fn is_download(words: &str) -> bool {
    const OF_DOWNLOADS: [&str; 8] = [
        "to fetch",
        "ownload",
        "retriev",
        "Could not resolve",
        "Could not connect",
        "Cannot initiate the connection",
        "imed out",
        "Curl error",
    ];
    OF_DOWNLOADS.iter().any(|word| words.contains(word))
}

fn no_repository(why: String) -> Failure {
    let message = format!("no repository reachable from here offers {PACKAGE}: {why}");
    Failure::new(Some(ReasonCode::GuestAgentNoRepository), message)
}

fn has_binary(guest: &Fact<GuestAgentFacts>) -> bool {
    guest.value().is_some_and(|facts| facts.binary.value().is_some())
}
