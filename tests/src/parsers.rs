//! Every parser of foreign bytes, as functions that take any bytes and must neither panic nor contradict themselves.
//!
//! The fuzz targets in `fuzz/` call these with what libFuzzer invents; `tests/tests/parsers.rs` calls the same
//! functions with what proptest invents, on every run.

use std::str::FromStr;
use std::sync::Arc;

use outrider_agent::config::{self, ConfigSource};
use outrider_agent::net::Url;
use outrider_agent::report::disk::{Disk, MemoryDisk, replace};
use outrider_agent::report::{Spool, SpoolLimits};
use outrider_agent::sense::etcd::MetricsReader;
use outrider_cloud_init::{header, lint, merge};
use outrider_coordinator::enrol::TokenText;
use outrider_coordinator::pki::VerifiedRequest;
use outrider_protocol::{Heartbeat, NodeFacts, NodeReport, NodeState, Timestamp};

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
            let secret = token.reveal().rsplit(':').next().unwrap_or_default().to_owned();
            assert!(!format!("{token:?}").contains(&secret), "a debug print holds the secret");
        }
        Err(error) => {
            // An error goes to logs: no part of what may be a secret stands in it.
            let secret =
                text.trim().split_once("::").and_then(|(_, rest)| rest.rsplit(':').next()).unwrap_or("");
            assert!(secret.len() < 22 || !error.to_string().contains(secret), "{error}");
        }
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
    if let Ok(report) = serde_json::from_slice::<NodeReport>(bytes) {
        let text = serde_json::to_vec(&report).unwrap_or_default();
        assert_eq!(serde_json::from_slice::<NodeReport>(&text).ok().as_ref(), Some(&report));
        for transition in &report.transitions {
            assert_eq!(transition.content_hash(), transition.clone().content_hash());
        }
        if let Some(state) = &report.state {
            assert_eq!(NodeState::compute_digest(&state.identity, &state.conditions).len(), 16);
        }
    }
    if let Ok(heartbeat) = serde_json::from_slice::<Heartbeat>(bytes) {
        let text = serde_json::to_vec(&heartbeat).unwrap_or_default();
        assert_eq!(serde_json::from_slice::<Heartbeat>(&text).ok(), Some(heartbeat));
    }
    if let Ok(time) = Timestamp::from_str(&String::from_utf8_lossy(bytes)) {
        assert_eq!(Timestamp::from_str(&time.to_string()), Ok(time));
    }
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

/// An address from a configuration or a `Location` header.
pub fn url(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(url) = Url::parse(&text) {
        let written = url.to_string();
        assert_eq!(
            Url::parse(&written).map(|u| u.to_string()),
            Ok(written),
            "a URL is read as it is written"
        );
        assert!(!url.host.is_empty());
    }
}

/// etcd's `/metrics`: the same however the text is cut into pieces, and what comes of it can be written and read.
pub fn metrics(bytes: &[u8]) {
    let mut whole = MetricsReader::default();
    let _ = whole.push(bytes);
    let families = whole.finish();
    if families.quota_bytes.is_none() {
        let mut pieces = MetricsReader::default();
        for piece in bytes.chunks(7) {
            let _ = pieces.push(piece);
        }
        assert_eq!(pieces.finish(), families, "in pieces of seven bytes");
    }
    if let Ok(scrape) = families.into_scrape(Timestamp::from_seconds(0)) {
        let text = serde_json::to_string(&scrape).unwrap_or_default();
        assert_eq!(serde_json::from_str(&text).ok(), Some(scrape), "{text}");
    }
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

/// Userdata as people and templates write it: recognised, linted, and merged so that merging again changes nothing.
pub fn userdata(bytes: &[u8]) {
    let _ = header::recognise(bytes);
    let _ = lint::lint(bytes);
    let text = String::from_utf8_lossy(bytes);
    let ours = merge::Additions::default();
    if let Ok(merged) = merge::merge(&[&text], &ours) {
        assert_eq!(merge::merge(&[&merged], &ours).ok(), Some(merged), "merging again changes nothing");
    }
}
