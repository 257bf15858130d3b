//! Check `cloud-init`: what cloud-init did in this boot, from the files it keeps for others to read.
//!
//! The program `cloud-init status` is not called: it costs a Python start at every pass, and all it knows is in
//! `/run/cloud-init/status.json` and a few markers. Its answer and exit code are derived from them the way it does
//! (`facts/cloud-init.md`, section 7); versions differ in that older ones (Debian 12 has 22.4) know no recoverable
//! errors and so never exit with 2.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use outrider_protocol::{CloudInitFacts, CloudInitStatus, Fact, Timestamp, UnknownCause};
use serde_json::{Map, Value};

use super::{SenseContext, file, process, systemd};

const STATUS: &str = "/run/cloud-init/status.json";
const RESULT: &str = "/run/cloud-init/result.json";
const DISABLED_FILE: &str = "/etc/cloud/cloud-init.disabled";
const DISABLED_BY_GENERATOR: &str = "/run/cloud-init/disabled";
const PROGRAMS: [&str; 3] = ["/usr/bin/cloud-init", "/usr/local/bin/cloud-init", "/bin/cloud-init"];
/// Units of the stages; the names changed in 24.3.
const UNITS: [&str; 6] = [
    "cloud-init-local.service",
    "cloud-init.service",
    "cloud-init-network.service",
    "cloud-config.service",
    "cloud-final.service",
    "cloud-init-main.service",
];
/// Limit of the question to systemd.
const SYSTEMD_LIMIT: Duration = Duration::from_secs(5);
/// Messages kept a list, and characters kept a message: a module in a loop may write thousands.
const MESSAGES: usize = 20;
const MESSAGE_LENGTH: usize = 500;

/// Reads what cloud-init did. `Absent` on a machine without cloud-init. Blocking.
pub fn read(cx: &SenseContext) -> Fact<CloudInitFacts> {
    match state(cx) {
        Ok(Some(facts)) => Fact::known(facts, STATUS, cx.now()),
        Ok(None) => Fact::absent(PROGRAMS[0], cx.now()),
        Err((path, error)) => match Fact::from_io(&error, path, cx.now()) {
            // A file that vanished between two looks is not "no cloud-init".
            Fact::Absent { source, at } => {
                Fact::unknown(UnknownCause::IoError, error.to_string(), source, at)
            }
            fact => fact,
        },
    }
}

/// A path and why it could not be used.
type Failure = (&'static str, io::Error);

fn state(cx: &SenseContext) -> Result<Option<CloudInitFacts>, Failure> {
    let (status, result) = (document(cx, STATUS)?, document(cx, RESULT)?);
    if status.is_none() && result.is_none() {
        return Ok(if installed(cx)? { Some(idle(cx)?) } else { None });
    }
    let finished = result.is_some();
    // A version that left only its result still tells errors and source.
    let known_to_tell = status.is_some();
    let v1 = status.or(result).unwrap_or_default();
    let stages: Vec<&Map<String, Value>> = v1.values().filter_map(Value::as_object).collect();

    let mut errors: Vec<String> = stages.iter().flat_map(|s| messages(s.get("errors"))).collect();
    if !known_to_tell {
        errors = messages(v1.get("errors"));
    }
    let mut recoverable_errors = BTreeMap::<String, Vec<String>>::new();
    for (level, list) in stages.iter().filter_map(|s| s.get("recoverable_errors")?.as_object()).flatten() {
        recoverable_errors.entry(cut(level)).or_default().extend(messages(Some(list)));
    }
    let stage = v1.get("stage").and_then(Value::as_str).unwrap_or_default();
    let started = v1.get(stage).and_then(|s| s.get("start")).and_then(Value::as_f64);
    let stage_seconds = started.and_then(|started| seconds_since(cx, started));

    let mut running = !finished || !stage.is_empty();
    if disabled(cx)?.is_some() {
        running = false;
    } else if running && let Some(unit) = failed_unit(cx) {
        // Killed before it could write its result: without this it would be "running" for ever.
        errors.push(format!("systemd unit {unit} failed"));
        running = false;
    }
    truncate(&mut errors);
    recoverable_errors.values_mut().for_each(truncate);
    recoverable_errors.retain(|_, list| !list.is_empty());
    while recoverable_errors.len() > MESSAGES {
        recoverable_errors.pop_last();
    }

    let (status, extended_status) = words(cx, running, &errors, &recoverable_errors)?;
    let exit_code = match (errors.is_empty(), recoverable_errors.is_empty()) {
        (false, _) => Some(1),
        (true, false) => Some(2),
        (true, true) => known_to_tell.then_some(0),
    };
    Ok(Some(CloudInitFacts {
        status,
        extended_status,
        exit_code,
        stage: cut(stage),
        stage_seconds,
        errors,
        recoverable_errors,
        datasource: datasource(&v1),
        version: version(cx),
    }))
}

/// Seconds since `started`: seconds since the epoch in older versions, since boot from 24.3 on.
fn seconds_since(cx: &SenseContext, started: f64) -> Option<u64> {
    /// No machine has been up for thirty years, and no clock stands in 2001.
    const BEFORE_ANY_CLOCK: f64 = 1e9;
    if started >= BEFORE_ANY_CLOCK {
        return Some(cx.now().since(Timestamp::from_millis((started * 1000.0) as i64)).as_secs());
    }
    let uptime = file::read_text(&cx.path("/proc/uptime"), file::SMALL).ok()?;
    process::uptime(&uptime).ok().map(|uptime| (uptime - started).max(0.0) as u64)
}

/// Status in a word and in two, as `cloud-init status --long` words them.
fn words(
    cx: &SenseContext,
    running: bool,
    errors: &[String],
    recoverable: &BTreeMap<String, Vec<String>>,
) -> Result<(CloudInitStatus, String), Failure> {
    let (status, word) = if disabled(cx)?.is_some() {
        (CloudInitStatus::Disabled, "disabled")
    } else if running {
        (CloudInitStatus::Running, "running")
    } else {
        (CloudInitStatus::Done, "done")
    };
    Ok(if !errors.is_empty() {
        (CloudInitStatus::Error, format!("error - {word}"))
    } else if !recoverable.is_empty() && status != CloudInitStatus::Disabled {
        (status, format!("degraded {word}"))
    } else {
        (status, word.to_owned())
    })
}

/// Installed, and has not written a line in this boot.
fn idle(cx: &SenseContext) -> Result<CloudInitFacts, Failure> {
    let (status, extended_status) = match disabled(cx)? {
        Some(why) => (CloudInitStatus::Disabled, why),
        None => (CloudInitStatus::NotRun, String::new()),
    };
    Ok(CloudInitFacts {
        status,
        extended_status,
        exit_code: Some(0),
        stage: String::new(),
        stage_seconds: None,
        errors: Vec::new(),
        recoverable_errors: BTreeMap::new(),
        datasource: String::new(),
        version: version(cx),
    })
}

/// Why cloud-init does not run on this machine; none where it does. In the order cloud-init decides.
fn disabled(cx: &SenseContext) -> Result<Option<String>, Failure> {
    let cmdline = file::read_text(&cx.path("/proc/cmdline"), file::SMALL).unwrap_or_default();
    let given = |word: &str| cmdline.split_ascii_whitespace().any(|w| w == word);
    let why = if given("cloud-init=enabled") {
        None
    } else if exists(cx, DISABLED_FILE)? {
        Some(format!("disabled by {DISABLED_FILE}"))
    } else if given("cloud-init=disabled") {
        Some("disabled by the kernel command line".to_owned())
    } else if exists(cx, DISABLED_BY_GENERATOR)? {
        // The generator found no data source.
        Some("disabled by its generator: no data source found".to_owned())
    } else {
        None
    };
    Ok(why)
}

fn installed(cx: &SenseContext) -> Result<bool, Failure> {
    for path in PROGRAMS {
        if exists(cx, path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn exists(cx: &SenseContext, path: &'static str) -> Result<bool, Failure> {
    cx.path(path).try_exists().map_err(|e| (path, e))
}

/// The part `v1` of a JSON file; none when the file is not there.
fn document(cx: &SenseContext, path: &'static str) -> Result<Option<Map<String, Value>>, Failure> {
    let text = match file::read_text(&cx.path(path), file::LARGE) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err((path, e)),
    };
    let mut document: Value =
        serde_json::from_str(&text).map_err(|e| (path, file::invalid(e.to_string())))?;
    match document.get_mut("v1").map(Value::take) {
        Some(Value::Object(v1)) => Ok(Some(v1)),
        _ => Err((path, file::invalid(format!("no object v1 in {}", file::excerpt(&text))))),
    }
}

fn messages(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|m| m.as_str().map_or_else(|| m.to_string(), str::to_owned)).collect()
}

fn truncate(list: &mut Vec<String>) {
    let more = list.len().saturating_sub(MESSAGES);
    list.truncate(MESSAGES);
    for message in list.iter_mut() {
        *message = cut(message);
    }
    if more > 0 {
        list.push(format!("{more} more"));
    }
}

/// The beginning of a text that is too long.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_LENGTH) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// `DataSourceNoCloud [seed=/dev/sr0][dsmode=net]` without the details.
fn datasource(v1: &Map<String, Value>) -> String {
    let text = v1.get("datasource").and_then(Value::as_str).unwrap_or_default();
    cut(text.split_ascii_whitespace().next().unwrap_or_default())
}

/// A unit of cloud-init that failed. systemd's silence is no failure of cloud-init.
fn failed_unit(cx: &SenseContext) -> Option<String> {
    let units = systemd::show(cx, &UNITS, &["Id", "ActiveState"], SYSTEMD_LIMIT);
    let failed = units.value()?.iter().find(|u| u.get("ActiveState").is_some_and(|s| s == "failed"))?;
    failed.get("Id").cloned()
}

/// The version by the name of the Python package's metadata; empty where it is not found.
fn version(cx: &SenseContext) -> String {
    let lib = cx.path("/usr/lib");
    let pythons = std::fs::read_dir(&lib).into_iter().flatten().flatten();
    let pythons = pythons.filter(|e| e.file_name().to_string_lossy().starts_with("python3"));
    pythons
        .flat_map(|e| ["dist-packages", "site-packages"].map(|p| e.path().join(p)))
        .filter_map(|packages| std::fs::read_dir(packages).ok())
        .flat_map(|entries| entries.flatten())
        .find_map(|e| {
            let name = e.file_name().into_string().ok()?;
            let rest = name.strip_prefix("cloud_init-")?;
            let version = rest.strip_suffix(".dist-info").or_else(|| rest.strip_suffix(".egg-info"))?;
            // Eggs carry the Python version as well: `23.1.1-py3.9`.
            Some(version.split("-py").next().unwrap_or(version).to_owned())
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::prepared::Machine;
    use super::*;

    fn machine(status: &str, result: Option<&str>) -> Machine {
        let machine = Machine::new();
        machine.write("/usr/bin/cloud-init", "");
        machine.write("/var/lib/cloud/data/status.json", status);
        machine.link(STATUS, "../../var/lib/cloud/data/status.json");
        if let Some(result) = result {
            machine.write("/var/lib/cloud/data/result.json", result);
            machine.link(RESULT, "../../var/lib/cloud/data/result.json");
        }
        machine
    }

    fn facts(machine: &Machine) -> CloudInitFacts {
        let fact = read(&machine.cx());
        fact.value().cloned().unwrap_or_else(|| panic!("{fact:?}"))
    }

    /// What `cloud-init status --format json` said of a recorded state.
    #[derive(serde::Deserialize)]
    struct Said {
        status: String,
        extended_status: Option<String>,
        errors: Vec<String>,
        recoverable_errors: Option<BTreeMap<String, Vec<String>>>,
        exit_code: i32,
    }

    fn recorded(name: &str) -> (Machine, Said) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cloud-init").join(name);
        let text = |file: &str| std::fs::read_to_string(folder.join(file));
        let machine = machine(&text("status.json").unwrap(), text("result.json").ok().as_deref());
        (machine, serde_json::from_str(&text("said.json").unwrap()).unwrap())
    }

    #[test]
    fn the_same_files_get_the_answer_that_cloud_init_gave() {
        for name in ["22.4-done", "22.4-error", "22.4-running", "25.1-degraded", "25.1-error", "25.1-running"]
        {
            let (machine, said) = recorded(name);
            let facts = facts(&machine);
            assert_eq!(facts.status.as_str(), said.status, "{name}");
            assert_eq!(facts.exit_code, Some(said.exit_code), "{name}");
            assert_eq!(facts.errors, said.errors, "{name}");
            assert_eq!(facts.recoverable_errors, said.recoverable_errors.unwrap_or_default(), "{name}");
            // Versions without the two words get ours.
            if let Some(extended) = said.extended_status {
                assert_eq!(facts.extended_status, extended, "{name}");
            }
            assert_eq!(facts.datasource, "DataSourceNoCloud", "{name}");
        }
    }

    #[test]
    fn the_version_comes_from_the_package_s_metadata() {
        let (machine, _) = recorded("22.4-done");
        assert_eq!(facts(&machine).version, "");
        machine.write("/usr/lib/python3/dist-packages/cloud_init-22.4.2.egg-info/PKG-INFO", "");
        assert_eq!(facts(&machine).version, "22.4.2");
        let (machine, _) = recorded("22.4-done");
        machine.write("/usr/lib/python3.6/site-packages/cloud_init-23.3-py3.6.egg-info/PKG-INFO", "");
        assert_eq!(facts(&machine).version, "23.3");
    }

    #[test]
    fn a_stage_s_age_is_told_from_either_clock() {
        // 22.4 writes seconds since the epoch, 25.1 seconds since boot.
        let (old, _) = recorded("22.4-running");
        let facts_of_old = facts(&old);
        assert_eq!(facts_of_old.stage, "modules-final");
        assert!(
            facts_of_old.stage_seconds.is_some_and(|s| s > 1_000_000),
            "{:?}",
            facts_of_old.stage_seconds
        );
        let text = r#"{"v1":{"stage":"init","init":{"start":40.25,"finished":null,"errors":[]}}}"#;
        let new = machine(text, None);
        assert_eq!(facts(&new).stage_seconds, None);
        new.write("/proc/uptime", "100.5 90.0\n");
        assert_eq!(facts(&new).stage_seconds, Some(60));
    }

    #[test]
    fn between_two_stages_it_still_runs() {
        let machine =
            machine(r#"{"v1":{"datasource":null,"stage":null,"init-local":{"start":1,"finished":2}}}"#, None);
        let facts = facts(&machine);
        assert_eq!((facts.status, facts.exit_code), (CloudInitStatus::Running, Some(0)));
    }

    #[test]
    fn warnings_while_running_are_still_running() {
        let text = r#"{"v1":{"stage":"init","init":{"start":1799999990.5,"finished":null,"errors":[],
            "recoverable_errors":{"WARNING":["group already exists"]}}}}"#;
        let facts = facts(&machine(text, None));
        assert_eq!((facts.status, facts.exit_code), (CloudInitStatus::Running, Some(2)));
        assert_eq!(facts.stage_seconds, Some(9));
    }

    #[test]
    fn disabled_in_each_way() {
        let disable: [&dyn Fn(&Machine); 3] = [
            &|m| m.write(DISABLED_FILE, ""),
            &|m| m.write("/proc/cmdline", "ro cloud-init=disabled quiet\n"),
            &|m| m.write(DISABLED_BY_GENERATOR, ""),
        ];
        for prepare in disable {
            let machine = Machine::new();
            machine.write("/usr/bin/cloud-init", "");
            assert_eq!(facts(&machine).status, CloudInitStatus::NotRun);
            prepare(&machine);
            assert_eq!(facts(&machine).status, CloudInitStatus::Disabled);
        }
        let machine = Machine::new();
        machine.write("/usr/bin/cloud-init", "");
        machine.write(DISABLED_FILE, "");
        machine.write("/proc/cmdline", "cloud-init=enabled");
        assert_eq!(facts(&machine).status, CloudInitStatus::NotRun);
    }

    #[test]
    fn a_machine_without_it_is_absent() {
        let machine = Machine::new();
        // What a removed package leaves behind.
        machine.write("/etc/cloud/cloud.cfg", "");
        assert!(matches!(read(&machine.cx()), Fact::Absent { .. }));
    }

    #[test]
    fn a_killed_stage_does_not_run_for_ever() {
        let (machine, _) = recorded("22.4-running");
        let states = UNITS.map(|u| {
            let state = if u == "cloud-final.service" { "failed" } else { "inactive" };
            format!("Id={u}\nActiveState={state}\n")
        });
        machine.systemctl(&format!("cat <<E\n{}\nE", states.join("\n")));
        let facts = facts(&machine);
        assert_eq!(facts.status, CloudInitStatus::Error);
        assert!(facts.errors[0].contains("cloud-final.service"), "{:?}", facts.errors);
    }

    #[test]
    fn broken_files_are_unknown_each_with_its_cause() {
        let broken = ["", "{\"v1\":{\"datas", "[]", "{\"v2\":{}}", "{\"v1\":null}"];
        for text in broken {
            match read(&machine(text, None).cx()) {
                Fact::Unknown { cause, .. } => assert_eq!(cause, UnknownCause::InvalidInput, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let machine = machine("{}", None);
        machine.write_bytes("/var/lib/cloud/data/status.json", b"\x00\xff\xfe");
        assert!(matches!(read(&machine.cx()), Fact::Unknown { .. }));
    }

    #[test]
    fn thousands_of_messages_are_cut_and_counted() {
        let list: Vec<String> = (0..5000).map(|i| format!("{i}{}", "é".repeat(900))).collect();
        let text = serde_json::json!({"v1": {"init": {"errors": list}}}).to_string();
        let machine = machine(&text, Some(r#"{"v1":{}}"#));
        let refused = read(&machine.cx());
        assert!(matches!(refused, Fact::Unknown { .. }), "9 MB is no status file");
        let text = serde_json::json!({"v1": {"init": {"errors": list[..500]}}}).to_string();
        machine.write("/var/lib/cloud/data/status.json", &text);
        let facts = facts(&machine);
        assert_eq!((facts.errors.len(), facts.errors[20].as_str()), (21, "480 more"));
        assert!(facts.errors[0].chars().count() <= MESSAGE_LENGTH + 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_document_is_read_without_a_panic(
            stage in "[a-z-]{0,12}", errors in proptest::collection::vec("\\PC{0,20}", 0..4),
            start in proptest::num::f64::ANY, finished in proptest::bool::ANY,
        ) {
            let text = serde_json::json!({"v1": {"stage": stage.clone(), stage.as_str(): {"start": start, "errors": errors}}});
            let machine = machine(&text.to_string(), finished.then_some("{\"v1\":{}}"));
            let absent = matches!(read(&machine.cx()), Fact::Absent { .. });
            prop_assert!(!absent);
        }
    }
}
