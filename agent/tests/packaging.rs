//! What is shipped in `packaging/`, checked without a running system: ordering rules of the units, the sandbox's
//! reasons, the default configuration. That it works under a real systemd is the suite `unit`'s to show.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use outrider_agent::config::{self, ConfigSource};

/// `Section.Key` with all the words given to it; an empty assignment resets, as systemd reads it.
type Unit = BTreeMap<String, Vec<String>>;

fn parse(text: &str) -> Unit {
    let mut unit = Unit::new();
    let mut section = "";
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name;
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("no assignment: {line}"));
        let words = unit.entry(format!("{section}.{}", key.trim())).or_default();
        if value.trim().is_empty() {
            words.clear();
        }
        words.extend(value.split_ascii_whitespace().map(str::to_owned));
    }
    unit
}

fn words<'a>(unit: &'a Unit, key: &str) -> &'a [String] {
    unit.get(key).map(Vec::as_slice).unwrap_or_default()
}

/// Why starting this unit from cloud-init, or at boot, would hang (`facts/packaging.md`, section 1).
fn ordering_faults(unit: &Unit) -> Vec<String> {
    let mut faults = Vec::new();
    for after in words(unit, "Unit.After") {
        let of_cloud_init = after.starts_with("cloud-") && !after.ends_with(".socket");
        if of_cloud_init {
            faults.push(format!("deadlock: after {after}, while cloud-init starts it and waits"));
        } else if ["multi-user.target", "graphical.target", "default.target"].contains(&after.as_str()) {
            faults.push(format!("deadlock: after {after}, which wants it or waits for cloud-init"));
        } else if after.ends_with(".target")
            && !words(unit, "Unit.Wants").contains(after)
            && !words(unit, "Unit.Requires").contains(after)
        {
            faults.push(format!("after {after} without wanting it: the order means nothing"));
        }
    }
    faults
}

#[test]
fn ordering_that_deadlocks_is_told_from_ordering_that_does_not() {
    let faults = |text: &str| ordering_faults(&parse(text));
    assert!(faults("[Unit]\nAfter=cloud-final.service\n")[0].contains("deadlock"));
    assert!(faults("[Unit]\nAfter=cloud-init.target\n")[0].contains("deadlock"));
    assert!(
        faults("[Unit]\nAfter=multi-user.target\n[Install]\nWantedBy=multi-user.target\n")[0]
            .contains("deadlock")
    );
    let fine = "[Unit]\nAfter=network-online.target\nWants=network-online.target\n";
    assert_eq!(faults(fine), Vec::<String>::new());
    assert_eq!(faults("[Unit]\nAfter=network-online.target\n").len(), 1);
    // An empty assignment takes everything back.
    assert_eq!(faults("[Unit]\nAfter=cloud-final.service\nAfter=\n"), Vec::<String>::new());
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

fn units() -> BTreeMap<String, Unit> {
    let folder = packaging().join("usr/lib/systemd/system");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let units: BTreeMap<String, Unit> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, parse(&std::fs::read_to_string(&path).unwrap()))
        })
        .collect();
    assert!(units.contains_key("outrider-agent.service"), "{:?}", units.keys());
    units
}

#[test]
fn no_shipped_unit_can_hold_up_a_boot() {
    for (name, unit) in units() {
        assert_eq!(ordering_faults(&unit), Vec::<String>::new(), "{name}");
        // Before the end of all, as every service is unless it says otherwise, is no wait.
        let before = words(&unit, "Unit.Before").iter().filter(|unit| *unit != "shutdown.target");
        assert_eq!(before.count(), 0, "{name} makes others wait");
        if words(&unit, "Service.Type") == ["notify"] {
            assert!(
                !words(&unit, "Service.TimeoutStartSec").is_empty(),
                "{name} notifies without a start limit"
            );
        }
    }
}

#[test]
fn what_must_run_is_never_given_up() {
    let units = units();
    for name in ["outrider-agent.service", "outrider-coordinator.service"] {
        assert_eq!(words(&units[name], "Service.Restart"), ["always"], "{name}");
        assert_eq!(words(&units[name], "Unit.StartLimitIntervalSec"), ["0"], "{name}");
    }
}

#[test]
fn the_sandbox_leaves_what_the_sensors_need() {
    let units = units();
    let agent = &units["outrider-agent.service"];
    // adjtimex(2) is asked by the check `clock`; processes are looked up by `guest-agent` and `clock`.
    assert!(words(agent, "Service.SystemCallFilter").contains(&"adjtimex".to_owned()));
    assert!(words(agent, "Service.ProtectClock").is_empty());
    assert!(words(agent, "Service.ProtectProc").is_empty() && words(agent, "Service.ProcSubset").is_empty());
    // getifaddrs(3) needs netlink.
    assert!(words(agent, "Service.RestrictAddressFamilies").contains(&"AF_NETLINK".to_owned()));
    // /run/outrider holds the helper's socket too.
    assert_eq!(words(agent, "Service.RuntimeDirectoryPreserve"), ["yes"]);
    assert_eq!(words(agent, "Service.CapabilityBoundingSet"), [] as [&str; 0]);
    assert_eq!(
        words(&units["outrider-helper.service"], "Service.CapabilityBoundingSet"),
        ["CAP_DAC_READ_SEARCH"]
    );
}

#[test]
fn the_preset_names_units_that_exist() {
    let preset = ["80-outrider.preset", "80-outrider-coordinator.preset"].map(|name| {
        std::fs::read_to_string(packaging().join("usr/lib/systemd/system-preset").join(name)).unwrap()
    });
    let preset = preset.concat();
    let units = units();
    for line in preset.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (verb, unit) = line.split_once(' ').unwrap();
        assert!(["enable", "disable"].contains(&verb), "{line}");
        assert!(units.contains_key(unit), "{line}");
        assert!(!words(&units[unit], "Install.WantedBy").is_empty(), "{unit} cannot be enabled");
    }
}

#[test]
fn the_shipped_configuration_is_valid() {
    let loaded = config::load(&ConfigSource::File(packaging().join("usr/lib/outrider/agent.toml")));
    assert_eq!(loaded.problems, Vec::new());
}

#[test]
fn what_the_shipped_configuration_shows_is_valid_too() {
    let text = std::fs::read_to_string(packaging().join("usr/lib/outrider/agent.toml")).unwrap();
    let example: String =
        text.lines().filter_map(|l| l.strip_prefix("#   ")).map(|l| format!("{l}\n")).collect();
    assert!(example.contains("[coordinator]"), "{example}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, example).unwrap();
    assert_eq!(config::load(&ConfigSource::File(file)).problems, Vec::new());
}
