//! The set-up on prepared machines, with stand-ins for package managers: shell scripts of the same names that write down how
//! they were called and end as the real ones are known to end. `transactional-update` is played by one as well: no real one
//! can run here. Real apt, dpkg, zypper, rpm and systemd: suite `guest-agent`.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use outrider_protocol::{Fact, GuestAgentFacts, ProcessFacts, UnitFacts, UnknownCause};
use proptest::prelude::*;

use super::packages::{Manager, Source};
use super::plan::{Step, plan};
use super::situation::Policy;
use super::*;
use crate::sense::prepared::Machine;

// ---- the plan ----

fn unit(name: &str, load: &str, active: &str) -> UnitFacts {
    UnitFacts {
        name: name.into(),
        load_state: load.into(),
        active_state: active.into(),
        sub_state: String::new(),
        unit_file_state: "static".into(),
    }
}

fn at() -> Timestamp {
    Timestamp::from_seconds(1_800_000_000)
}

fn bare() -> GuestAgentFacts {
    GuestAgentFacts {
        port: Fact::known("/dev/virtio-ports/org.qemu.guest_agent.0".into(), "", at()),
        binary: Fact::absent("", at()),
        units: Fact::known(Vec::new(), "", at()),
        process: Fact::absent("", at()),
        uptime_seconds: Fact::known(10, "", at()),
        rpc_lists: None,
        denials: None,
        setup: None,
    }
}

fn situation(guest: GuestAgentFacts) -> Situation {
    Situation {
        policy: Ok(Policy { manage: true, source: Ok(Source::Repositories) }),
        guest: Fact::known(guest, "", at()),
        manager: Some(Manager::Apt),
        interrupted: false,
        in_next_snapshot: false,
        cloud_init_installs: false,
    }
}

fn steps(situation: &Situation) -> Vec<Step> {
    match plan(situation) {
        Verdict::Go(steps) => steps,
        other => panic!("{other:?}"),
    }
}

fn held(situation: &Situation) -> (Option<ReasonCode>, String) {
    match plan(situation) {
        Verdict::Held { reason, message } => (reason, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bare_machine_gets_the_package_and_its_unit_started() {
    let mut s = situation(bare());
    assert_eq!(steps(&s), [Step::WaitForLock, Step::Install(Source::Repositories), Step::Start]);
    s.cloud_init_installs = true;
    s.interrupted = true;
    assert_eq!(
        steps(&s),
        [
            Step::WaitForCloudInit,
            Step::WaitForLock,
            Step::Repair,
            Step::Install(Source::Repositories),
            Step::Start
        ]
    );
    s.manager = Some(Manager::Transactional);
    let install = Step::Install(Source::Repositories);
    assert_eq!(steps(&s), [Step::WaitForCloudInit, Step::WaitForLock, install], "a reboot starts it");
    s.in_next_snapshot = true;
    assert_eq!(held(&s).0, Some(ReasonCode::GuestAgentRebootNeeded));
    s = situation(GuestAgentFacts { units: Fact::unknown(UnknownCause::TimedOut, "", "", at()), ..bare() });
    assert_eq!(steps(&s).len(), 3, "a silent systemd does not keep a package from being installed");
}

#[test]
fn what_is_installed_is_only_started_by_the_name_that_exists() {
    let binary = Fact::known("/usr/sbin/qemu-ga".into(), "", at());
    let with =
        |units| GuestAgentFacts { binary: binary.clone(), units: Fact::known(units, "", at()), ..bare() };
    let s = situation(with(vec![unit("qemu-ga.service", "loaded", "inactive")]));
    assert_eq!(steps(&s), [Step::Start]);
    let interrupted = Situation { interrupted: true, ..s };
    assert_eq!(steps(&interrupted), [Step::WaitForLock, Step::Repair, Step::Start]);
    let (reason, message) = held(&situation(with(Vec::new())));
    assert!(reason.is_none() && message.contains("no unit"), "{message}");
}

#[test]
fn each_reason_to_leave_things_alone_is_told() {
    let change = |change: &dyn Fn(&mut Situation)| {
        let mut s = situation(bare());
        change(&mut s);
        held(&s)
    };
    let guest = |change: &dyn Fn(&mut GuestAgentFacts)| {
        let mut g = bare();
        change(&mut g);
        held(&situation(g))
    };
    let unknown = |what: &str| Fact::unknown(UnknownCause::PermissionDenied, what, "", at());
    for ((reason, message), words) in [
        (change(&|s| s.policy = Err("agent.toml:3: no".into())), "agent.toml:3"),
        (change(&|s| s.policy = Ok(Policy { manage: false, source: Ok(Source::Repositories) })), "manage"),
        (change(&|s| s.policy = Ok(Policy { manage: true, source: Err("not root's".into()) })), "not root's"),
        (change(&|s| s.guest = Fact::not_applicable("not a virtual machine", at())), "not a virtual machine"),
        (change(&|s| s.guest = Fact::unknown(UnknownCause::IoError, "EIO", "", at())), "EIO"),
        (change(&|s| s.manager = None), "put it into the image"),
        (guest(&|g| g.port = Fact::absent("", at())), "org.qemu.guest_agent.0"),
        (guest(&|g| g.port = unknown("x")), "could not be read"),
        (guest(&|g| g.binary = unknown("x")), "could not be read"),
        (guest(&|g| g.process = Fact::unknown(UnknownCause::IoError, "", "", at())), "could not be read"),
        (
            guest(&|g| g.units = Fact::known(vec![unit("qemu-ga.service", "masked", "inactive")], "", at())),
            "not unmasked",
        ),
    ] {
        assert!(message.contains(words), "{message:?} lacks {words:?} ({reason:?})");
    }
    let channel = guest(&|g| g.port = Fact::absent("", at())).1;
    assert!(
        ["KubeVirt", "libvirt", "Proxmox"].iter().all(|platform| channel.contains(platform)),
        "{channel}"
    );
}

fn any_fact<T: Clone + std::fmt::Debug + 'static>(values: Vec<T>) -> impl Strategy<Value = Fact<T>> {
    (prop::sample::select(values), 0u8..4).prop_map(|(value, state)| match state {
        0 => Fact::absent("", at()),
        1 => Fact::unknown(UnknownCause::IoError, "io", "", at()),
        _ => Fact::known(value, "", at()),
    })
}

fn any_situation() -> impl Strategy<Value = Situation> {
    let units = |load: &str, active: &str| vec![unit("qemu-guest-agent.service", load, active)];
    let units =
        vec![vec![], units("loaded", "inactive"), units("loaded", "active"), units("masked", "inactive")];
    let manager = prop::option::of(prop::sample::select(vec![
        Manager::Apt,
        Manager::Zypper,
        Manager::Transactional,
        Manager::Dnf,
    ]));
    (
        (any_fact(vec!["/dev/x".to_owned()]), any_fact(vec!["/usr/bin/qemu-ga".to_owned()]), any_fact(units)),
        any_fact(vec![ProcessFacts { pid: 9, name: "qemu-ga".into(), seconds: 1 }]),
        (0u8..4, manager, any::<bool>(), any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |((port, binary, units), process, (policy, manager, interrupted, in_next_snapshot, cloud))| {
                Situation {
                    policy: match policy {
                        0 => Err("bad".into()),
                        1 => Ok(Policy { manage: false, source: Ok(Source::Repositories) }),
                        2 => Ok(Policy { manage: true, source: Err("bad".into()) }),
                        _ => Ok(Policy { manage: true, source: Ok(Source::Repositories) }),
                    },
                    guest: Fact::known(GuestAgentFacts { port, binary, units, process, ..bare() }, "", at()),
                    manager,
                    interrupted,
                    in_next_snapshot,
                    cloud_init_installs: cloud,
                }
            },
        )
}

proptest! {
    #[test]
    fn nothing_is_done_without_leave_a_channel_and_the_need(s in any_situation()) {
        let guest = s.guest.value().unwrap().clone();
        let masked = guest.units.value().is_some_and(|units| units.iter().any(|u| u.load_state == "masked"));
        if let Verdict::Go(steps) = plan(&s) {
            prop_assert!(s.policy.as_ref().is_ok_and(|p| p.manage));
            let stopped = matches!(guest.process, Fact::Absent { .. });
            prop_assert!(guest.port.value().is_some() && stopped && !masked);
            let installs = steps.iter().position(|step| matches!(step, Step::Install(_)));
            if let Some(at) = installs {
                let absent = matches!(guest.binary, Fact::Absent { .. });
                prop_assert!(absent);
                prop_assert!(s.manager.is_some() && !s.in_next_snapshot);
                prop_assert!(steps[..at].contains(&Step::WaitForLock));
            }
            if steps.contains(&Step::Repair) {
                prop_assert!(s.interrupted, "only what was ours is repaired");
            }
            prop_assert!(!steps.is_empty());
        }
        let document = super::plan::describe(&plan(&s), s.manager);
        prop_assert!(document.steps.is_empty() != document.held.is_empty());
    }

    #[test]
    fn waits_grow_and_have_an_end(failures in 0u32..100) {
        prop_assert!(wait_after(failures) <= LONGEST_WAIT && wait_after(failures) >= FIRST_WAIT);
        prop_assert!(wait_after(failures + 1) >= wait_after(failures));
    }

    #[test]
    fn no_password_of_a_repository_is_told(user in "[a-z]{1,8}", password in "[!-.0-9:-?A-~]{1,12}") {
        let line = super::child::clean(&format!("Err:1  http://{user}:{password}@mirror.example/debian x"));
        prop_assert_eq!(line, "Err:1 http://***@mirror.example/debian x");
    }
}

// ---- runs ----

/// A VM with the channel, and what it was told.
struct Vm {
    machine: Machine,
    said: Rc<RefCell<Vec<String>>>,
}

impl Vm {
    fn new() -> Self {
        let machine = Machine::new();
        for folder in ["/run/outrider-guest-agent", "/var/lib/outrider-guest-agent", "/usr/lib/outrider"] {
            std::fs::create_dir_all(machine.path(folder)).unwrap();
        }
        std::fs::set_permissions(machine.path("/"), std::fs::Permissions::from_mode(0o755)).unwrap();
        machine.write("/sys/class/virtio-ports/vport1p1/name", "org.qemu.guest_agent.0\n");
        machine.write("/proc/uptime", "500.0 400.0");
        machine.write("/proc/1/stat", "1 (systemd) S 0 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 2 0 1 1 1");
        machine.write("/proc/1/comm", "systemd\n");
        machine.write(BOOT_ID, "boot-one\n");
        machine.write("/etc/outrider/agent.toml", "[guest_agent]\nmanage = true\n");
        let vm = Self { machine, said: Rc::default() };
        // `start` makes the process; `show` knows the unit where it lies.
        vm.program(
            "systemctl",
            "case $* in *start*) mkdir -p $root/proc/50; echo qemu-ga >$root/proc/50/comm
                echo '50 (qemu-ga) S 1 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 2 0 10000 1 1' >$root/proc/50/stat;;
             *) for u in qemu-guest-agent qemu-ga; do load=not-found; [ -e $root/usr/lib/systemd/system/$u.service ] && load=loaded
                printf 'Id=%s.service\\nLoadState=%s\\nActiveState=inactive\\nSubState=dead\\nUnitFileState=static\\n\\n' $u $load; done;; esac",
        );
        std::fs::create_dir_all(vm.machine.path("/run/systemd/system")).unwrap();
        vm
    }

    /// A stand-in: it writes down its arguments, then runs `script`, to which `install` is what installing comes to.
    fn program(&self, name: &str, script: &str) {
        let root = self.machine.path("/");
        let text = format!(
            "#!/bin/sh\nroot={}\ninstall() {{ mkdir -p $root/usr/lib/systemd/system $root/usr/sbin; : >$root/usr/sbin/qemu-ga; : >$root/usr/lib/systemd/system/${{1:-qemu-guest-agent}}.service; }}\n\
             case $0$* in *systemctl*show*) ;; *) echo \"{name} $*\" >>$root/called;; esac\n{script}\n",
            root.display().to_string().trim_end_matches('/')
        );
        self.machine.write(&format!("/usr/bin/{name}"), &text);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.machine.path(&format!("/usr/bin/{name}")), mode).unwrap();
    }

    fn setup(&self) -> Setup {
        let said = self.said.clone();
        let ms = Duration::from_millis;
        Setup {
            cx: self.machine.cx(),
            owner: nix::unistd::geteuid().as_raw(),
            limits: Limits { cloud_init: ms(60), lock: ms(60), start: ms(200), tick: ms(20) },
            stopping: Box::new(|| false),
            say: Box::new(move |line| said.borrow_mut().push(line.to_owned())),
        }
    }

    fn run(&self) -> GuestAgentSetup {
        let ran = self.setup().run(true);
        assert_eq!(self.setup().status(), Some(ran.status.clone()), "the status file says the same");
        ran.status
    }

    /// Command lines of what was run, systemd's questions left out.
    fn called(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.machine.path("/called")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn has(&self, path: &str) -> bool {
        self.machine.path(path).exists()
    }
}

fn is(status: &GuestAgentSetup, state: SetupState, reason: Option<ReasonCode>, words: &str) {
    assert_eq!((&status.state, &status.reason), (&state, &reason), "{status:?}");
    assert!(status.message.contains(words), "{status:?}");
}

#[test]
fn apt_installs_and_the_unit_that_exists_is_started() {
    let vm = Vm::new();
    vm.program("apt-get", "case $* in *install*) install;; esac");
    vm.program("apt-cache", "");
    is(&vm.run(), SetupState::Done, None, "process 50");
    let called = vm.called();
    assert_eq!(called.len(), 4, "{called:?}");
    assert!(called[0].ends_with("update") && called[1].starts_with("apt-cache show"), "{called:?}");
    assert!(called[2].ends_with("install qemu-guest-agent"), "{called:?}");
    assert_eq!(called[3], "systemctl --no-block start -- qemu-guest-agent.service");
    assert!(!vm.has(INSTALLING));
    is(&vm.run(), SetupState::Done, None, "process 50");
    assert_eq!(vm.called().len(), 4, "the second run has nothing to do");
}

#[test]
fn without_a_repository_that_is_said_and_the_next_attempt_has_its_time() {
    let vm = Vm::new();
    vm.program("apt-get", "echo 'E: Failed to fetch http://u:p@mirror.example/x' >&2; exit 100");
    vm.program("apt-cache", "exit 100");
    let status = vm.run();
    is(
        &status,
        SetupState::Failed,
        Some(ReasonCode::GuestAgentNoRepository),
        "Failed to fetch http://***@mirror",
    );
    assert_eq!(status.next_attempt_at, Some(status.at.after(FIRST_WAIT)));
    assert_eq!(vm.run().failures, 2);
    // Not in a hurry it waits, and changes nothing.
    let called = vm.called().len();
    let ran = vm.setup().run(false);
    assert_eq!((ran.worked, ran.status.failures, vm.called().len()), (false, 2, called));
    // A list that is there and has no such package is another thing.
    vm.program("apt-get", "exit 0");
    is(&vm.run(), SetupState::Failed, Some(ReasonCode::GuestAgentNoRepository), "none offers");
}

/// A repository that is out of order beside one that has the package is not the cause of whatever fails later.
#[test]
fn a_broken_repository_beside_a_good_one_is_not_blamed_for_an_installation() {
    for (said, reason) in [
        ("E: You do not have enough free space", ReasonCode::GuestAgentInstallFailed),
        ("", ReasonCode::GuestAgentInstallFailed),
        ("E: Unable to fetch some archives", ReasonCode::GuestAgentNoRepository),
    ] {
        let vm = Vm::new();
        // Told on standard output, as some do.
        vm.program(
            "apt-get",
            &format!("case $* in *install*) echo '{said}'; exit 100;; *) echo unsigned >&2; exit 100;; esac"),
        );
        vm.program("apt-cache", "");
        is(&vm.run(), SetupState::Failed, Some(reason), said);
    }
}

#[test]
fn an_installation_that_was_interrupted_is_finished_and_only_then() {
    let vm = Vm::new();
    vm.program("apt-get", "case $* in *install*) install; kill -9 $$;; esac");
    vm.program("apt-cache", "");
    vm.program("dpkg", "");
    is(&vm.run(), SetupState::Failed, Some(ReasonCode::GuestAgentInstallFailed), "signal");
    assert!(vm.has(INSTALLING));
    is(&vm.run(), SetupState::Done, None, "");
    let called = vm.called();
    assert!(
        called[called.len() - 2].starts_with("dpkg ") && called[called.len() - 2].ends_with("--configure -a")
    );
    assert!(!vm.has(INSTALLING));
    // apt that ends by itself is not interrupted, whatever it leaves: dpkg is not called.
    let vm = Vm::new();
    vm.program("apt-get", "case $* in *install*) echo 'E: dpkg was interrupted' >&2; exit 100;; esac");
    vm.program("apt-cache", "");
    vm.program("dpkg", "");
    for _ in 0..2 {
        is(
            &vm.run(),
            SetupState::Failed,
            Some(ReasonCode::GuestAgentInstallFailed),
            "E: dpkg was interrupted",
        );
    }
    assert!(vm.called().iter().all(|line| !line.starts_with("dpkg ")));
}

#[test]
fn zyppers_code_5_goes_to_transactional_update_and_a_reboot_finishes() {
    let vm = Vm::new();
    vm.program("zypper", "exit 5");
    is(&vm.run(), SetupState::Failed, Some(ReasonCode::GuestAgentInstallFailed), "no transactional-update");
    vm.program("transactional-update", "exit 0");
    is(&vm.run(), SetupState::Held, Some(ReasonCode::GuestAgentRebootNeeded), "reboot activates");
    assert_eq!(
        vm.called().last().unwrap(),
        "transactional-update --non-interactive --continue pkg install qemu-guest-agent"
    );
    let called = vm.called().len();
    is(&vm.run(), SetupState::Held, Some(ReasonCode::GuestAgentRebootNeeded), "");
    assert_eq!(vm.called().len(), called, "once a boot");
    // The next boot, into the snapshot.
    vm.machine.write(BOOT_ID, "boot-two\n");
    vm.machine.write("/usr/bin/qemu-ga", "");
    vm.machine.write("/usr/lib/systemd/system/qemu-ga.service", "");
    is(&vm.run(), SetupState::Done, None, "");
    assert_eq!(vm.called().last().unwrap(), "systemctl --no-block start -- qemu-ga.service");
}

#[test]
fn exit_codes_of_zypper_and_dnf_become_reasons() {
    for (script, reason) in [
        ("exit 104", ReasonCode::GuestAgentNoRepository),
        ("exit 6", ReasonCode::GuestAgentNoRepository),
        ("exit 7", ReasonCode::GuestAgentLockHeld),
        ("case $* in *refresh*) exit 4;; esac; exit 4", ReasonCode::GuestAgentNoRepository),
        ("case $* in *refresh*) exit 0;; esac; exit 8", ReasonCode::GuestAgentInstallFailed),
        ("exit 0", ReasonCode::GuestAgentInstallFailed),
    ] {
        let vm = Vm::new();
        vm.program("zypper", script);
        assert_eq!(vm.run().reason, Some(reason), "{script}");
    }
    for (script, reason) in [
        ("exit 1", ReasonCode::GuestAgentNoRepository),
        ("case $* in *makecache*) exit 0;; esac; exit 1", ReasonCode::GuestAgentNoRepository),
        ("case $* in *makecache*|*list*) exit 0;; esac; exit 1", ReasonCode::GuestAgentInstallFailed),
    ] {
        let vm = Vm::new();
        vm.program("dnf", script);
        assert_eq!(vm.run().reason, Some(reason), "{script}");
    }
}

#[test]
fn a_local_package_needs_no_repository_and_root_alone_may_have_put_it_there() {
    let vm = Vm::new();
    vm.program("apt-get", "case $* in *install*) install;; esac");
    vm.machine.write(
        "/etc/outrider/agent.toml",
        "[guest_agent]\nmanage = true\npackage_file = \"/opt/packages\"\n",
    );
    vm.machine.write("/opt/packages/b.deb", "");
    vm.machine.write("/opt/packages/a.deb", "");
    vm.machine.write("/opt/packages/c.rpm", "");
    let mode = |path: &str, mode| {
        std::fs::set_permissions(vm.machine.path(path), std::fs::Permissions::from_mode(mode)).unwrap()
    };
    mode("/opt/packages", 0o777);
    is(&vm.run(), SetupState::Held, Some(ReasonCode::GuestAgentSetupHeld), "may be written by others");
    mode("/opt/packages", 0o755);
    mode("/opt/packages/b.deb", 0o666);
    is(&vm.run(), SetupState::Held, Some(ReasonCode::GuestAgentSetupHeld), "b.deb may be written by others");
    mode("/opt/packages/b.deb", 0o644);
    is(&vm.run(), SetupState::Done, None, "");
    let called = vm.called();
    assert!(called[0].ends_with("install /opt/packages/a.deb /opt/packages/b.deb"), "{called:?}");
    assert!(called.iter().all(|line| !line.contains("update")), "{called:?}");
    vm.machine.write(
        "/etc/outrider/agent.toml",
        "[guest_agent]\nmanage = true\npackage_file = \"/opt/packages/c.rpm\"\n",
    );
    std::fs::remove_file(vm.machine.path("/usr/sbin/qemu-ga")).unwrap();
    std::fs::remove_dir_all(vm.machine.path("/proc/50")).unwrap();
    is(&vm.run(), SetupState::Held, Some(ReasonCode::GuestAgentSetupHeld), ".deb file is what apt installs");
}

#[test]
fn configuration_that_is_wrong_or_not_roots_lets_nothing_be_done() {
    let vm = Vm::new();
    vm.program("apt-get", "case $* in *install*) install;; esac");
    vm.program("apt-cache", "");
    let agent = "/etc/outrider/agent.toml";
    for (text, words) in [
        ("[guest_agent]\nmanage = \"no\"\n", "guest_agent.manage"),
        ("[guest_agent\n", "agent.toml"),
        ("[node]\nprofile = \"harvester\"\n", "node.profile"),
    ] {
        vm.machine.write(agent, text);
        is(&vm.run(), SetupState::Held, Some(ReasonCode::GuestAgentSetupHeld), words);
    }
    vm.machine.write(agent, "[guest_agent]\nmanage = true\n");
    std::fs::set_permissions(vm.machine.path(agent), std::fs::Permissions::from_mode(0o666)).unwrap();
    is(&vm.run(), SetupState::Held, Some(ReasonCode::GuestAgentSetupHeld), "may be written by others");
    std::fs::set_permissions(vm.machine.path(agent), std::fs::Permissions::from_mode(0o644)).unwrap();
    // The daemon's own folder is no configuration for root.
    vm.machine.write("/run/outrider/agent.toml.d/x.toml", "[guest_agent]\nmanage = true\n");
    vm.machine.write(agent, "");
    is(&vm.run(), SetupState::Held, None, "guest_agent.manage");
    assert!(vm.called().is_empty(), "{:?}", vm.called());
    // Left out, the profile decides; a mistake elsewhere changes nothing.
    vm.machine.write(agent, "[node]\nprofile = \"harvester-vm\"\n[checks.etcd]\nintervall = \"1m\"\n");
    is(&vm.run(), SetupState::Done, None, "");
}

#[test]
fn a_stop_is_obeyed_between_steps_and_is_no_failure() {
    let vm = Vm::new();
    vm.program("apt-get", "install");
    let setup = Setup { stopping: Box::new(|| true), ..vm.setup() };
    let status = setup.run(true).status;
    is(&status, SetupState::Failed, None, "stopped");
    assert_eq!((status.failures, status.next_attempt_at), (0, Some(status.at)));
    assert!(vm.called().is_empty());
}

#[test]
fn cloud_inits_packages_come_first_but_not_for_ever() {
    let vm = Vm::new();
    vm.program("apt-get", "case $* in *install*) install;; esac");
    vm.program("apt-cache", "");
    vm.machine.write("/run/cloud-init/status.json", "{}");
    assert!(matches!(vm.setup().plan().steps[0].kind, outrider_protocol::StepKind::WaitForCloudInit));
    is(&vm.run(), SetupState::Done, None, "");
    assert!(vm.said.borrow().iter().any(|line| line.contains("waiting for cloud-init")));
    for done in [
        "/run/cloud-init/result.json",
        "/run/cloud-init/disabled",
        "/var/lib/cloud/instance/sem/config_scripts_user",
    ] {
        let vm = Vm::new();
        vm.machine.write("/run/cloud-init/status.json", "{}");
        vm.machine.write(done, "");
        assert!(!Situation::read(&vm.machine.cx(), 0).cloud_init_installs, "{done}");
    }
}

#[test]
fn a_program_that_hangs_on_to_its_output_is_not_waited_for() {
    let vm = Vm::new();
    vm.program("dpkg", "echo first >&2; sleep 3 & echo last >&2; exit 3");
    let cx = vm.machine.cx();
    let mut ticks = 0;
    let ended =
        super::child::run(&cx, &["dpkg"], Duration::from_millis(20), &|_| {}, &mut || ticks += 1).unwrap();
    assert_eq!(ended.code, Some(3));
    assert!(ended.words.ends_with("last") && ticks > 0, "{ended:?}");
    assert!(super::child::run(&cx, &["nothing"], Duration::ZERO, &|_| {}, &mut || {}).is_err());
}
