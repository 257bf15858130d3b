//! Case SP2: port, package, unit and process of the guest agent.

use outrider_diagnosis::{Finding, Judgement, judge};
use outrider_protocol::*;

use crate::world::{self, Change, absent, guest_agent, known, unit, unknown};
use crate::{expect, only};

const PORT: &str = "/dev/virtio-ports/org.qemu.guest_agent.0";

fn facts(g: GuestAgentFacts) -> NodeFacts {
    world::node_facts(CheckFacts {
        guest_agent: Some(known(g)),
        host: Some(known(world::host())),
        ..CheckFacts::default()
    })
}

fn on(g: GuestAgentFacts, profile: Profile) -> Judgement {
    judge(&facts(g).with(|f| f.node.profile = profile))
}

fn judged(g: GuestAgentFacts) -> Finding {
    only(&on(g, Profile::HarvesterVm), ConditionType::GuestAgentReady)
}

/// Stopped, with one unit of these states.
fn stopped(name: &str, load: &str, active: &str, file: &str) -> GuestAgentFacts {
    guest_agent().with(|g| {
        g.units = known(vec![unit(name, load, active, file)]);
        g.process = absent("/proc");
    })
}

#[test]
fn sp2_a_no_port_is_a_change_on_the_host() {
    for binary in [known("/usr/bin/qemu-ga".into()), absent("PATH"), unknown(UnknownCause::PermissionDenied)]
    {
        let g = guest_agent().with(|g| {
            g.port = absent(PORT);
            g.binary = binary;
        });
        let f = judged(g);
        expect(
            &f,
            Status::False,
            Severity::Error,
            ReasonCode::GuestAgentPortMissing,
            &[PORT, "added to the VM on the host", "VM restarted"],
        );
    }
    // Elsewhere than on SUSE Virtualization it is a warning to whoever installed the package.
    let g = guest_agent().with(|g| g.port = absent(PORT));
    let f = only(&on(g, Profile::Generic), ConditionType::GuestAgentReady);
    assert_eq!((f.severity, f.reason), (Severity::Warn, ReasonCode::GuestAgentPortMissing));
}

#[test]
fn sp2_b_masked_is_reported_and_never_unmasked() {
    for (load, file) in [("masked", "masked"), ("masked", ""), ("loaded", "masked-runtime")] {
        let f = judged(stopped("qemu-guest-agent.service", load, "inactive", file));
        expect(
            &f,
            Status::False,
            Severity::Error,
            ReasonCode::GuestAgentMasked,
            &["Somebody masked", "qemu-guest-agent.service", "does not unmask"],
        );
    }
    let f = judged(
        guest_agent().with(|g| g.units = known(vec![unit("qemu-ga.service", "masked", "active", "masked")])),
    );
    expect(&f, Status::True, Severity::Warn, ReasonCode::GuestAgentMasked, &["runs"]);
}

#[test]
fn sp2_c_static_and_active_is_fine() {
    for file in ["static", "enabled", "indirect", "disabled", ""] {
        let g = guest_agent()
            .with(|g| g.units = known(vec![unit("qemu-guest-agent.service", "loaded", "active", file)]));
        expect(&judged(g), Status::True, Severity::Ok, ReasonCode::GuestAgentRunning, &["512"]);
    }
}

#[test]
fn sp2_d_either_unit_name_will_do() {
    for (name, other) in
        [("qemu-ga.service", "qemu-guest-agent.service"), ("qemu-guest-agent.service", "qemu-ga.service")]
    {
        for load in ["not-found", "masked"] {
            let g = guest_agent().with(|g| {
                g.units =
                    known(vec![unit(other, load, "inactive", ""), unit(name, "loaded", "active", "static")]);
            });
            expect(&judged(g), Status::True, Severity::Ok, ReasonCode::GuestAgentRunning, &[name]);
        }
    }
}

#[test]
fn not_installed_tells_the_address_the_guest_has() {
    let bare = |uptime: u64| {
        guest_agent().with(|g| {
            g.binary = absent("/usr/sbin/qemu-ga");
            g.units = known(vec![unit("qemu-guest-agent.service", "not-found", "inactive", "")]);
            g.process = absent("/proc");
            g.uptime_seconds = known(uptime);
        })
    };
    let f = judged(bare(361));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::GuestAgentNotInstalled,
        &["192.168.30.139/24", "no DHCP failure", "does not run again"],
    );
    assert!(!f.message.contains("fe80"), "{}", f.message);
    expect(
        &judged(bare(60)),
        Status::False,
        Severity::Warn,
        ReasonCode::GuestAgentNotInstalled,
        &["60 s after boot"],
    );
}

#[test]
fn stopped_has_its_grace_after_boot() {
    for (active, uptime) in [("inactive", 30), ("activating", 359), ("failed", 100)] {
        let g =
            stopped("qemu-ga.service", "loaded", active, "static").with(|g| g.uptime_seconds = known(uptime));
        expect(
            &judged(g),
            Status::Unknown,
            Severity::Info,
            ReasonCode::GuestAgentStarting,
            &["grace 6 min", "Wait"],
        );
    }
    for active in ["inactive", "failed"] {
        let g =
            stopped("qemu-ga.service", "loaded", active, "static").with(|g| g.uptime_seconds = known(360));
        expect(
            &judged(g),
            Status::False,
            Severity::Error,
            ReasonCode::GuestAgentStopped,
            &[active, "qemu-ga.service", "192.168.30.139", "udev"],
        );
    }
    let g = stopped("qemu-ga.service", "loaded", "failed", "")
        .with(|g| g.uptime_seconds = unknown(UnknownCause::IoError));
    assert_eq!(judged(g).reason, ReasonCode::GuestAgentStopped);
}

#[test]
fn a_process_is_proof_without_systemd() {
    for units in [unknown(UnknownCause::Unreachable), absent("D-Bus"), known(vec![])] {
        let g = guest_agent().with(|g| g.units = units);
        expect(&judged(g), Status::True, Severity::Ok, ReasonCode::GuestAgentRunning, &["process 512"]);
    }
    // And an active unit is proof where the process list was not read, but not against it.
    let g = guest_agent().with(|g| g.process = unknown(UnknownCause::PermissionDenied));
    expect(&judged(g), Status::True, Severity::Ok, ReasonCode::GuestAgentRunning, &["its unit is active"]);
    let g = guest_agent().with(|g| g.process = absent("/proc"));
    assert_eq!(judged(g).reason, ReasonCode::GuestAgentStopped);
}

#[test]
fn what_could_not_be_read_is_unknown() {
    let g = guest_agent().with(|g| {
        g.units = unknown(UnknownCause::Unreachable);
        g.process = unknown(UnknownCause::PermissionDenied);
    });
    expect(&judged(g), Status::Unknown, Severity::Warn, ReasonCode::PermissionDenied, &[]);
    let g = guest_agent().with(|g| g.port = unknown(UnknownCause::PermissionDenied));
    expect(&judged(g), Status::Unknown, Severity::Warn, ReasonCode::PermissionDenied, &[]);
}

#[test]
fn machines_without_a_channel_to_expect_are_not_judged() {
    let bare = || {
        guest_agent().with(|g| {
            g.port = absent(PORT);
            g.binary = absent("PATH");
            g.process = absent("/proc");
        })
    };
    for kind in ["none", "vmware", "microsoft", "docker", "amazon"] {
        // Even with the package installed.
        let g = guest_agent().with(|g| g.port = absent(PORT));
        let j = judge(&facts(g).with(|f| {
            if let Some(Fact::Known { value, .. }) = &mut f.checks.host {
                value.virtualization = known(kind.into());
            }
        }));
        assert!(j.findings.iter().all(|f| f.condition_type != ConditionType::GuestAgentReady), "{kind}");
        assert_eq!(j.not_applicable[0].check, Check::GuestAgent);
    }
    let j = on(bare(), Profile::Generic);
    assert!(j.not_applicable[0].reason.contains("harvester-vm"), "{j:?}");
    assert_eq!(only(&on(bare(), Profile::HarvesterVm), ConditionType::GuestAgentReady).status, Status::False);
}

// ---- one that runs and is of no use ----

fn listed(setting: &str, allows: bool, calls: &[&str]) -> GuestAgentFacts {
    let calls = calls.iter().map(|call| (*call).to_owned()).collect();
    let list = RpcList { source: "/etc/sysconfig/qemu-ga".into(), setting: setting.into(), allows, calls };
    guest_agent().with(|g| g.rpc_lists = Some(known(vec![list])))
}

#[test]
fn refused_calls_matter_only_where_they_are_needed_in_every_spelling() {
    const NEEDED: [&str; 6] = [
        "guest-network-get-interfaces",
        "guest-get-osinfo",
        "guest-get-host-name",
        "guest-fsfreeze-status",
        "guest-fsfreeze-freeze",
        "guest-fsfreeze-thaw",
    ];
    for setting in ["BLACKLIST_RPC", "FILTER_RPC_ARGS --block-rpcs", "block-rpcs"] {
        let exec = judged(listed(setting, false, &["guest-exec", "guest-file-open"]));
        expect(&exec, Status::True, Severity::Ok, ReasonCode::GuestAgentRunning, &[]);
        let blind = judged(listed(setting, false, &["guest-exec", "guest-network-get-interfaces"]));
        expect(
            &blind,
            Status::False,
            Severity::Error,
            ReasonCode::GuestAgentCallsRefused,
            &[
                "guest-network-get-interfaces",
                setting,
                "/etc/sysconfig/qemu-ga",
                "192.168.30.139/24",
                "guest-exec least of all",
            ],
        );
        let name = judged(listed(setting, false, &["guest-get-host-name"]));
        expect(
            &name,
            Status::True,
            Severity::Warn,
            ReasonCode::GuestAgentCallsRefused,
            &["guest-get-host-name"],
        );
    }
    let allowed = judged(listed("--allow-rpcs", true, &NEEDED));
    expect(&allowed, Status::True, Severity::Ok, ReasonCode::GuestAgentRunning, &[]);
    let some = judged(listed("--allow-rpcs", true, &NEEDED[..3]));
    expect(
        &some,
        Status::True,
        Severity::Warn,
        ReasonCode::GuestAgentCallsRefused,
        &["guest-fsfreeze-freeze"],
    );
    let few = judged(listed("--allow-rpcs", true, &["guest-ping"]));
    expect(&few, Status::False, Severity::Error, ReasonCode::GuestAgentCallsRefused, &["--allow-rpcs"]);
    // What could not be read refuses nothing.
    let g = guest_agent().with(|g| g.rpc_lists = Some(unknown(UnknownCause::PermissionDenied)));
    assert_eq!(judged(g).reason, ReasonCode::GuestAgentRunning);
}

#[test]
fn denials_since_the_agent_runs_are_quoted_and_selinux_stays_on() {
    let denied = |seconds: u64| {
        let at = world::now().before(std::time::Duration::from_secs(seconds));
        let text = "avc: denied { read } for pid=512 comm=\"qemu-ga\"".to_owned();
        Some(known(vec![Denial { at, text }]))
    };
    let f = judged(guest_agent().with(|g| g.denials = denied(600)));
    let quote = "avc: denied { read } for pid=512 comm=\"qemu-ga\"";
    expect(&f, Status::True, Severity::Warn, ReasonCode::GuestAgentDenied, &[quote, "Leave SELinux on"]);
    assert!(!f.advice.contains("setenforce"), "{}", f.advice);
    // Of the process before, and of the day before yesterday.
    for (seconds, running) in [(600, 60), (2 * 86_400, 3 * 86_400)] {
        let g = guest_agent().with(|g| {
            g.denials = denied(seconds);
            g.process = known(ProcessFacts { pid: 512, name: "qemu-ga".into(), seconds: running });
        });
        assert_eq!(judged(g).reason, ReasonCode::GuestAgentRunning);
    }
    let g =
        stopped("qemu-guest-agent.service", "loaded", "failed", "static").with(|g| g.denials = denied(600));
    expect(&judged(g), Status::False, Severity::Error, ReasonCode::GuestAgentDenied, &[quote]);
    let g = guest_agent().with(|g| g.denials = Some(unknown(UnknownCause::PermissionDenied)));
    assert_eq!(judged(g).reason, ReasonCode::GuestAgentRunning, "unknown is not denied");
}

#[test]
fn a_package_without_a_unit_is_told_from_no_package_and_a_channel_from_a_process() {
    let g = guest_agent().with(|g| {
        g.units = known(Vec::new());
        g.process = absent("/proc");
    });
    let words =
        ["/usr/sbin/qemu-ga", "neither qemu-guest-agent.service nor qemu-ga.service", "192.168.30.139"];
    expect(&judged(g), Status::False, Severity::Error, ReasonCode::GuestAgentUnitMissing, &words);
    let g = guest_agent().with(|g| g.port = absent(PORT));
    let words = ["process 512 all the same", "KubeVirt", "libvirt", "Proxmox", "192.168.30.139"];
    expect(&judged(g), Status::False, Severity::Error, ReasonCode::GuestAgentPortMissing, &words);
}

// ---- what the set-up says ----

fn with_setup(state: SetupState, reason: Option<ReasonCode>, seconds_ago: u64) -> GuestAgentFacts {
    let at = world::now().before(std::time::Duration::from_secs(seconds_ago));
    guest_agent().with(|g| {
        g.binary = absent("/usr/sbin/qemu-ga");
        g.units = known(Vec::new());
        g.process = absent("/proc");
        g.setup = Some(known(GuestAgentSetup {
            state,
            reason,
            message: "waits for X".into(),
            at,
            failures: 1,
            next_attempt_at: Some(world::now().after(std::time::Duration::from_secs(90))),
        }));
    })
}

#[test]
fn what_the_set_up_knows_becomes_the_reason() {
    use ReasonCode as R;
    let again = &format!("tries again at {}", world::now().after(std::time::Duration::from_secs(90)));
    for (state, reason, status, severity, words) in [
        (SetupState::Working, R::GuestAgentInstalling, Status::Unknown, Severity::Info, "set-up waits for X"),
        (SetupState::Working, R::GuestAgentLockHeld, Status::False, Severity::Warn, "waits for X"),
        (SetupState::Failed, R::GuestAgentNoRepository, Status::False, Severity::Error, again),
        (SetupState::Failed, R::GuestAgentInstallFailed, Status::False, Severity::Error, again),
        (SetupState::Failed, R::GuestAgentLockHeld, Status::False, Severity::Error, again),
        (SetupState::Held, R::GuestAgentRebootNeeded, Status::False, Severity::Warn, "waits for X"),
        (SetupState::Held, R::GuestAgentSetupHeld, Status::False, Severity::Error, "waits for X"),
    ] {
        let f = judged(with_setup(state, Some(reason.clone()), 5));
        expect(&f, status, severity, reason, &[words, "192.168.30.139"]);
    }
    // Soon after boot apt's daily run is no fault.
    let g = with_setup(SetupState::Working, Some(R::GuestAgentLockHeld), 5)
        .with(|g| g.uptime_seconds = known(60));
    expect(&judged(g), Status::Unknown, Severity::Info, R::GuestAgentLockHeld, &["waits for X"]);
}

#[test]
fn a_set_up_that_was_cut_short_leaves_or_knows_nothing_leaves_the_finding() {
    use ReasonCode as R;
    for (state, reason, ago, words) in [
        (SetupState::Working, Some(R::GuestAgentInstalling), 600, "cut short"),
        (SetupState::Held, None, 5, "leaves it at that"),
        (SetupState::Failed, None, 5, "The set-up says"),
        (SetupState::Done, None, 5, "No qemu-ga is installed"),
        (SetupState::Failed, Some(R::EtcdNoSpace), 5, "The set-up says"),
    ] {
        let f = judged(with_setup(state, reason, ago));
        expect(&f, Status::False, Severity::Error, R::GuestAgentNotInstalled, &[words]);
    }
    // One that runs needs no set-up.
    let g = with_setup(SetupState::Failed, Some(R::GuestAgentNoRepository), 5)
        .with(|g| g.process = guest_agent().process);
    assert_eq!(judged(g).reason, R::GuestAgentRunning);
}
