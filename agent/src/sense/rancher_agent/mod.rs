//! Check `rancher-agent`: rancher-system-agent's unit, files and plans, and the proxies of Rancher's programs on this node
//! (`facts/rancher-system-agent.md`).
//!
//! Tour: `files` (configuration, connection, plans, never a secret of them), `environment` (environment files without
//! their passwords), `proxies` (whose environment names which proxy, and what goes around it). The running process's own
//! environment is read where we may (as root); the daemon may not, for a helper that could would need the right to trace
//! every process, and takes the unit and its files instead, saying when those are newer than the process.

pub mod environment;
mod files;
mod proxies;

use std::time::Duration;

use outrider_protocol::{Fact, RancherAgentFacts, RestartCount, ServiceUnit, SystemAgent, UnknownCause};

pub use self::files::{config_excerpt, connection_excerpt};
pub use self::proxies::Memory;

use super::{SenseContext, cluster, file, process, systemd};
use crate::config::Settings;
use crate::sense::systemd::Properties;

const UNIT: &str = "rancher-system-agent.service";
/// Units whose proxies are looked at.
const UNITS: [&str; 5] =
    [UNIT, "rke2-server.service", "rke2-agent.service", "k3s.service", "k3s-agent.service"];
const PROPERTIES: [&str; 12] = [
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "Result",
    "ExecMainStatus",
    "NRestarts",
    "MainPID",
    "ExecMainStartTimestampMonotonic",
    "Environment",
    "EnvironmentFiles",
];
const SYSTEMD_LIMIT: Duration = Duration::from_secs(5);
/// Restarts are counted over so long.
const WINDOW: Duration = Duration::from_secs(600);

/// Reads it. Blocking.
pub fn read(cx: &SenseContext, settings: &Settings, memory: &mut Memory) -> Fact<RancherAgentFacts> {
    let units = systemd::show_changes(cx, &UNITS, &PROPERTIES, SYSTEMD_LIMIT, &mut memory.units);
    let uptime = file::read_text(&cx.path("/proc/uptime"), file::SMALL).ok();
    let uptime = uptime.and_then(|text| process::uptime(&text).ok());
    let services: Vec<(ServiceUnit, &Properties)> = units
        .value()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .zip(UNITS)
        .map(|(block, name)| (service(block, name, uptime), block))
        .filter(|(unit, _)| !matches!(unit.load_state.as_str(), "not-found" | ""))
        .collect();
    let cluster = cluster::read(cx);
    let config = files::config(cx);
    let connection = files::connection(cx, config.value());
    let server = connection.value().map(|c| c.server.clone()).filter(|s| !s.is_empty());
    let environments = proxies::environments(cx, &services, memory);
    let direct = proxies::direct(settings, &cluster, server.as_deref());

    let own = services.iter().find(|(unit, _)| unit.name == UNIT);
    let agent = match (own, &units) {
        (Some((unit, _)), _) => {
            let strict = environments.iter().find(|e| e.program() == "rancher-system-agent");
            let agent = SystemAgent {
                unit: unit.clone(),
                earlier: remember(cx, unit, memory),
                strict_verify: strict.map_or_else(
                    || Fact::absent(UNIT, cx.now()),
                    |environment| environment.strict_verify(cx),
                ),
                config,
                connection,
                plans: files::plans(cx),
            };
            Fact::known(agent, UNIT, cx.now())
        }
        (None, Fact::Unknown { cause, detail, source, at }) => {
            Fact::unknown(cause.clone(), detail.clone(), source.clone(), *at)
        }
        // The files may be there without the unit: somebody removed half of it.
        (None, Fact::Known { .. }) if matches!(config, Fact::Known { .. }) => Fact::unknown(
            UnknownCause::InvalidInput,
            format!("{} is there and systemd knows no {UNIT}", files::CONFIG),
            UNIT,
            cx.now(),
        ),
        (None, _) => Fact::absent(UNIT, cx.now()),
    };
    let proxies = environments.into_iter().map(|e| e.into_facts(&direct)).collect();
    Fact::known(RancherAgentFacts { agent, proxies }, "systemctl show, files", cx.now())
}

/// Where rancher-system-agent finds Rancher, for the check `dns`. Blocking.
pub(super) fn server(cx: &SenseContext) -> Option<String> {
    let config = files::config(cx);
    let connection = files::connection(cx, config.value());
    connection.value().map(|c| c.server.clone()).filter(|server| !server.is_empty())
}

fn service(block: &Properties, name: &str, uptime: Option<f64>) -> ServiceUnit {
    let text = |key: &str| block.get(key).cloned().unwrap_or_default();
    fn number<T: std::str::FromStr + Default>(text: &str) -> T {
        text.parse().unwrap_or_default()
    }
    let started: u64 = number(&text("ExecMainStartTimestampMonotonic"));
    let ago = uptime.filter(|_| started > 0).map(|up| (up - started as f64 / 1e6).max(0.0) as u64);
    ServiceUnit {
        name: name.to_owned(),
        load_state: text("LoadState"),
        active_state: text("ActiveState"),
        sub_state: text("SubState"),
        unit_file_state: text("UnitFileState"),
        result: text("Result"),
        exit_status: number(&text("ExecMainStatus")),
        restarts: number(&text("NRestarts")),
        pid: number(&text("MainPID")),
        started_seconds_ago: ago,
    }
}

/// The oldest count of the last ten minutes, and keeps this one.
fn remember(cx: &SenseContext, unit: &ServiceUnit, memory: &mut Memory) -> Option<RestartCount> {
    let now = cx.now();
    let counts = &mut memory.restarts;
    counts.retain(|count| count.at <= now && now.since(count.at) <= WINDOW);
    // Somebody started it anew: what was counted before is another life.
    if counts.last().is_some_and(|last| last.restarts > unit.restarts) {
        counts.clear();
    }
    let earlier = counts.first().copied();
    if counts.last().is_none_or(|last| now.since(last.at) >= Duration::from_secs(5)) {
        counts.push(RestartCount { restarts: unit.restarts, at: now });
    }
    earlier
}
