//! Facts of the machine and of the agent itself.

use outrider_protocol::*;
use proptest::prelude::*;

use super::{fact, word};
use crate::world::{self, Change};

pub(super) fn host() -> impl Strategy<Value = HostFacts> {
    let fs = (
        word(&["/", "/var", "/var/lib/rancher", "/boot", "/snap/x"]),
        word(&["ext4", "overlay", "squashfs"]),
        any::<[u64; 4]>(),
        any::<bool>(),
    );
    let fs = fs.prop_map(|(mount, fs_type, [total, free, inodes, inodes_free], read_only)| FilesystemFacts {
        mount,
        device: "/dev/vda".into(),
        fs_type,
        total_bytes: total,
        available_bytes: free,
        inodes_total: inodes,
        inodes_free,
        read_only,
    });
    let memory = any::<[u64; 2]>().prop_map(|[total_bytes, available_bytes]| MemoryFacts {
        total_bytes,
        available_bytes,
        ..MemoryFacts::default()
    });
    let pressure = any::<[f64; 3]>().prop_map(|[cpu, memory, io]| PressureFacts { cpu, memory, io });
    (
        fact(prop::collection::vec(fs, 0..4)),
        fact(memory),
        fact(pressure),
        fact(word(&["kvm", "none", "vmware"])),
        fact(0u64..2000),
    )
        .prop_map(|(filesystems, memory, pressure, virtualization, uptime_seconds)| {
            world::host().with(|h| {
                (h.filesystems, h.memory, h.pressure) = (filesystems, memory, pressure);
                (h.virtualization, h.uptime_seconds) = (virtualization, uptime_seconds);
            })
        })
}

pub(super) fn clock() -> impl Strategy<Value = ClockFacts> {
    let kernel = (any::<bool>(), any::<i64>()).prop_map(|(synchronized, e)| KernelClock {
        synchronized,
        estimated_error_us: e,
        maximum_error_us: e,
    });
    let offset = any::<[i64; 2]>().prop_map(|[offset_ms, uncertainty_ms]| ClockOffset {
        offset_ms,
        uncertainty_ms,
        peer: "p".into(),
    });
    (fact(kernel), fact(word(&["chronyd"])), prop::option::of(fact(time_source())), fact(offset)).prop_map(
        |(kernel, service, source, coordinator)| ClockFacts { kernel, service, source, coordinator },
    )
}

fn time_source() -> impl Strategy<Value = TimeSource> {
    let one = (prop::sample::select(NtpState::ALL), word(&["", "192.0.2.1", "PHC0"]), 0u32..9);
    let one = one.prop_map(|(state, address, answered)| NtpSource {
        address,
        state,
        stratum: 2,
        answered,
        seconds_ago: None,
        offset_ms: None,
    });
    (
        word(&["", "192.0.2.1"]),
        prop::option::of(any::<i64>()),
        prop::option::of(any::<f64>()),
        prop::option::of(any::<f64>()),
        prop::collection::vec(one, 0..3),
    )
        .prop_map(|(selected, updated, offset_ms, uncertainty_ms, sources)| TimeSource {
            service: "chronyd".into(),
            selected,
            stratum: 3,
            updated_at: updated.map(Timestamp::from_millis),
            offset_ms,
            uncertainty_ms,
            sources,
        })
}

pub(super) fn cloud_init() -> impl Strategy<Value = CloudInitFacts> {
    let status = word(&["not run", "running", "done", "error", "disabled", "new word"]);
    let code = prop::option::of(0i32..4);
    (
        status,
        code,
        prop::collection::vec(".*", 0..3),
        prop::option::of(any::<u64>()),
        word(&["", "degraded done"]),
        any::<bool>(),
    )
        .prop_map(|(status, code, errors, stage_seconds, extended, warned)| {
            world::cloud_init(&status, code).with(|c| {
                (c.errors, c.stage_seconds, c.extended_status) = (
                    errors.iter().map(|e| format!("e {}", e.trim())).map(|e| e.replace("  ", " ")).collect(),
                    stage_seconds,
                    extended,
                );
                if warned {
                    c.recoverable_errors.insert("WARNING".into(), vec!["w".into()]);
                }
            })
        })
}

pub(super) fn guest_agent() -> impl Strategy<Value = GuestAgentFacts> {
    let unit = (
        word(&["qemu-ga.service", "qemu-guest-agent.service"]),
        word(&["loaded", "masked", "not-found", ""]),
        word(&["active", "inactive", "failed", "activating"]),
        word(&["static", "masked", ""]),
    );
    let units = prop::collection::vec(unit.prop_map(|(n, l, a, f)| world::unit(&n, &l, &a, &f)), 0..3);
    let process = Just(ProcessFacts { pid: 1, name: "qemu-ga".into(), seconds: 3 });
    (
        fact(Just("/dev/x".to_owned())),
        fact(Just("/usr/bin/qemu-ga".to_owned())),
        fact(units),
        fact(process),
        fact(0u64..1000),
        (
            prop::option::of(fact(rpc_lists())),
            prop::option::of(fact(denials())),
            prop::option::of(fact(setup())),
        ),
    )
        .prop_map(|(port, binary, units, process, uptime_seconds, (rpc_lists, denials, setup))| {
            GuestAgentFacts { port, binary, units, process, uptime_seconds, rpc_lists, denials, setup }
        })
}

fn rpc_lists() -> impl Strategy<Value = Vec<RpcList>> {
    let calls =
        word(&["guest-network-get-interfaces", "guest-get-osinfo", "guest-fsfreeze-freeze", "guest-exec"]);
    let list = (any::<bool>(), prop::collection::vec(calls, 1..4)).prop_map(|(allows, calls)| RpcList {
        source: "/etc/qemu/qemu-ga.conf".into(),
        setting: if allows { "allow-rpcs" } else { "block-rpcs" }.into(),
        allows,
        calls,
    });
    prop::collection::vec(list, 0..3)
}

fn denials() -> impl Strategy<Value = Vec<Denial>> {
    let denial = (0i64..200_000).prop_map(|ago| Denial {
        at: world::now().before(std::time::Duration::from_secs(ago.unsigned_abs())),
        text: "avc:  denied  { read } for pid=1".into(),
    });
    prop::collection::vec(denial, 0..3)
}

fn setup() -> impl Strategy<Value = GuestAgentSetup> {
    (
        prop::sample::select(SetupState::ALL),
        prop::option::of(prop::sample::select(ReasonCode::ALL)),
        word(&["installs  qemu-guest-agent, for 3 s.", "waits", "x: y."]),
        -1000i64..1000,
        prop::option::of(-1000i64..1000),
    )
        .prop_map(|(state, reason, message, at, next)| {
            let ahead = |s: i64| Timestamp::from_millis(world::now().as_millis() + s * 1000);
            GuestAgentSetup {
                state,
                reason,
                message,
                at: ahead(at),
                failures: 1,
                next_attempt_at: next.map(ahead),
            }
        })
}

pub(super) fn agent() -> impl Strategy<Value = AgentFacts> {
    let texts = (
        word(&["", "https://c"]),
        word(&["enrolled", "pending", "refused", "token-unusable", "none", "odd"]),
        word(&["", "refused."]),
        word(&["", "disk full"]),
    );
    (texts, any::<[u64; 2]>(), prop::option::of(0u64..4000), prop::option::of(any::<i64>()), 0usize..9)
        .prop_map(
            |(
                (coordinator, enrolment, delivery_error, spool_problem),
                [spooled, merged],
                since,
                end,
                problems,
            )| AgentFacts {
                config_problems: (0..problems).map(|n| format!("a.toml:{n}: odd")).collect(),
                coordinator,
                enrolment,
                delivery_error,
                delivery_failing_since: since.map(world::ago),
                untried: spooled % 2 == 0,
                spooled,
                merged: if merged % 2 == 0 { 0 } else { merged },
                spool_problem,
                certificate_not_after: end.map(|ms| {
                    Timestamp::from_millis(world::now().as_millis().saturating_add(ms % 4_000_000_000))
                }),
                failing_checks: vec![],
            },
        )
}
