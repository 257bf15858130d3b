//! Every parser of foreign bytes, as functions that take any bytes and must neither panic nor contradict themselves.
//!
//! The fuzz targets in `fuzz/` call these with what libFuzzer invents; `tests/tests/parsers.rs` calls the same
//! functions with what proptest invents, on every run.

mod machine;
mod network;

use std::str::FromStr;
use std::sync::Arc;

use outrider_agent::config::{self, ConfigSource};
use outrider_agent::report::disk::{Disk, MemoryDisk, replace};
use outrider_agent::report::{Spool, SpoolLimits, Token};
use outrider_cloud_init::{header, lint, merge};
use outrider_coordinator::Beat;
use outrider_coordinator::enrol::TokenText;
use outrider_coordinator::pki::VerifiedRequest;
use outrider_protocol::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use machine::{
    cloud_init, environment, etcd_config, helper_request, host, launch, resolver, server_config,
};
pub use network::{
    certificate, dns_message, etcd_message, events, http_answer, location, metrics, proxy, query, url,
};

/// An enrolment or operator token as somebody pasted it.
pub fn token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match TokenText::from_str(&text) {
        Ok(token) => {
            assert_eq!(
                TokenText::from_str(&token.reveal()).as_ref(),
                Ok(&token),
                "a token is read as it is written"
            );
            assert!(token.matches(&token.secret_hash()));
            // What a coordinator takes, its agents take.
            let at_agent = Token::parse(&text);
            assert!(
                at_agent.as_ref().is_ok_and(|read| TokenText::from_str(read.expose()).as_ref() == Ok(&token)),
                "{at_agent:?}"
            );
            let shown = format!("{token:?}");
            let revealed = token.reveal();
            let (open, secret) = revealed.rsplit_once(':').unwrap_or_default();
            assert!(open.contains(secret) || !shown.contains(secret), "a debug print holds the secret");
        }
        Err(error) => {
            // An error goes to logs: no part of what may be a secret stands in it.
            let secret =
                text.trim().split_once("::").and_then(|(_, rest)| rest.rsplit(':').next()).unwrap_or("");
            // A piece of the sentence itself, which a fuzzer learns, is none.
            let open = secret.len() < 22 || secret.contains(' ');
            assert!(open || !error.to_string().contains(secret), "{error}");
        }
    }
}

/// A hosted cluster or a timeline: read or refused; what is read is explained and played without a contradiction.
pub fn hosted(bytes: &[u8]) {
    use outrider_sync::hosted::explain::{Question, Rules, explain};
    use outrider_sync::hosted::simulate::{scenario, simulate};
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    if let Ok(hosted) = outrider_sync::hosted::object::read(&value) {
        for rules in [Rules::Outrider, Rules::Rancher] {
            let question = Question { hosted: &hosted, live: None, now: 0, interval: 300, rules };
            let answer = explain(&question);
            assert_eq!(answer, explain(&question), "the same question has one answer");
            for row in &answer.rows {
                assert!(!row.reason.is_empty(), "{row:?}");
                assert!(row.managed || (row.desired.is_null() && row.push.as_str() == "nothing"), "{row:?}");
            }
        }
    }
    if let Ok(scenario) = scenario::read(&value, None)
        && scenario.until - scenario.first_refresh < 100_000
    {
        let played = simulate(&scenario);
        assert!(played.writes.len() <= scenario.events.len());
    }
}

/// A captured facts file: judged without a panic, the same way twice, and the same way after a round trip.
pub fn facts(bytes: &[u8]) {
    let Ok(facts) = serde_json::from_slice::<NodeFacts>(bytes) else { return };
    let conditions = outrider_diagnosis::diagnose(&facts);
    let written = serde_json::to_vec(&conditions).map_err(|e| e.to_string());
    assert_eq!(written, serde_json::to_vec(&outrider_diagnosis::diagnose(&facts)).map_err(|e| e.to_string()));
    let again =
        serde_json::to_vec(&facts).ok().and_then(|text| serde_json::from_slice::<NodeFacts>(&text).ok());
    let again = again
        .map(|facts| serde_json::to_vec(&outrider_diagnosis::diagnose(&facts)).map_err(|e| e.to_string()));
    assert_eq!(again, Some(written), "facts judge alike after a round trip");
    for condition in &conditions.conditions {
        let info = condition.reason.info();
        let range = info.map(|info| info.severities);
        assert!(
            range.is_none_or(|(least, most)| (least..=most).contains(&condition.severity)),
            "{} with severity {} is outside its range",
            condition.reason,
            condition.severity
        );
    }
}

/// A report or a heartbeat as the coordinator reads it.
pub fn report(bytes: &[u8]) {
    if let Some(report) = round_trip::<NodeReport>(bytes) {
        for transition in &report.transitions {
            assert_eq!(transition.content_hash(), transition.clone().content_hash());
        }
        if let Some(state) = &report.state {
            assert_eq!(NodeState::compute_digest(&state.identity, &state.conditions).len(), 16);
        }
    }
    if let Some(heartbeat) = round_trip::<Heartbeat>(bytes) {
        // The coordinator reads it in a cheaper way of its own, which refuses nothing that an agent may send.
        let may_be_sent = heartbeat.meta.kind == "Heartbeat"
            && heartbeat.hold_seconds <= 3600
            && heartbeat.digest.len() <= 128
            && heartbeat.boot_id.len() <= 128;
        assert_eq!(Beat::read(bytes).is_ok(), may_be_sent, "{heartbeat:?}");
    }
    if let Ok(time) = Timestamp::from_str(&String::from_utf8_lossy(bytes)) {
        assert_eq!(Timestamp::from_str(&time.to_string()), Ok(time));
    }
}

/// Any other document that crosses the network.
pub fn document(bytes: &[u8]) {
    round_trip::<EnrollRequest>(bytes);
    round_trip::<EnrollResponse>(bytes);
    round_trip::<RenewRequest>(bytes);
    round_trip::<ReportAck>(bytes);
    round_trip::<NodeConfig>(bytes);
    round_trip::<TokenRequest>(bytes);
    round_trip::<TokenView>(bytes);
    round_trip::<NodeView>(bytes);
    round_trip::<ClusterView>(bytes);
    round_trip::<EventView>(bytes);
    round_trip::<ApiError>(bytes);
}

/// A document that is one of this type; written again, it is read as the same.
fn round_trip<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(bytes).ok()?;
    let text = serde_json::to_string(&read).unwrap_or_default();
    assert_eq!(serde_json::from_str::<T>(&text).ok().as_ref(), Some(&read), "{text}");
    Some(read)
}

/// A configuration file: every problem is placed in the file, and the settings are whole whatever it says.
pub fn configuration(bytes: &[u8]) {
    let Ok(file) = tempfile::NamedTempFile::new() else { return };
    if std::fs::write(file.path(), bytes).is_err() {
        return;
    }
    let loaded = config::load(&ConfigSource::File(file.path().to_owned()));
    let lines = bytes.iter().filter(|b| **b == b'\n').count() + 1;
    for problem in &loaded.problems {
        assert!(problem.line <= lines, "{problem} lies behind the last line, {lines}");
        assert!(!problem.message.is_empty(), "{problem:?}");
    }
    assert_eq!(
        config::load(&ConfigSource::File(file.path().to_owned())),
        loaded,
        "the same file, the same settings"
    );
}

/// A certificate request, PEM or DER.
pub fn certificate_request(bytes: &[u8]) {
    if let Ok(request) = VerifiedRequest::from_der(bytes) {
        assert_eq!(request.key_hash().len(), 64);
    }
    let _ = VerifiedRequest::from_pem(&String::from_utf8_lossy(bytes));
}

/// The agent's spool as it may lie on a disk: opened whatever it holds, and of use at once.
pub fn spool(bytes: &[u8]) {
    let disk = MemoryDisk::default();
    if replace(&disk, "spool.log", bytes).is_err() {
        return;
    }
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let mut spool = Spool::open(disk.clone(), SpoolLimits::default(), Timestamp::from_seconds(0));
    let before = spool.len();
    assert!(spool.append(vec![crate::witness::transition(1)], Vec::new()).is_ok());
    let (epoch, sequence) = (spool.epoch(), spool.last_sequence());
    drop(spool);
    let again = Spool::open(disk, SpoolLimits::default(), Timestamp::from_seconds(0));
    assert_eq!((again.epoch(), again.last_sequence()), (epoch, sequence), "what was appended is read again");
    assert!(again.len() > before.min(SpoolLimits::default().count - 1));
}

/// Userdata as people and templates write it: recognised, linted with every finding in the document, and merged so that
/// merging again changes nothing, ours are in it and Rancher's script is last.
pub fn userdata(bytes: &[u8]) {
    const OURS: &str = "#cloud-config\npackages: [qemu-guest-agent]\nruncmd:\n  - [start, ours]\n";
    let _ = header::recognise(bytes);
    let lines = bytes.iter().filter(|b| **b == b'\n').count() + 1;
    let context = lint::Context {
        platform: Some(outrider_cloud_init::Platform::Harvester),
        ..lint::Context::default()
    };
    for finding in lint::lint_for(bytes, &context) {
        assert!(finding.line <= lines, "{finding:?} lies behind the last line, {lines}");
        assert!(!finding.message.is_empty() && !finding.cure.is_empty(), "{finding:?}");
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(merged) = merge::merge(&[&text]) {
        assert_eq!(merge::merge(&[&merged]).ok().as_ref(), Some(&merged), "merging again changes nothing");
    }
    if let Ok(merged) = merge::merge(&[&text, OURS]) {
        assert!(merged.starts_with("#cloud-config") && merged.contains("qemu-guest-agent"), "{merged}");
        assert_eq!(merge::merge(&[&merged, OURS]).ok().as_ref(), Some(&merged), "ours are added once");
    }
}
