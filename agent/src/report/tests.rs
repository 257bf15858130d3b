//! Delivery against a fake coordinator, in paused time.

use std::time::SystemTime;

use outrider_protocol::{
    ApiError, Condition, ConditionType, Identity, NodeConfigSpec, NodeRef, Profile, ReasonCode, Severity,
    Status, TypeMeta,
};
use tokio::time::timeout;

use super::fake::{Fake, Lines};
use super::*;
use crate::net::Url;

/// Far more than any of this takes, in time that costs nothing.
const LONG: Duration = Duration::from_secs(3600);

fn transition(id: i64) -> Transition {
    let at = Timestamp::from_millis(id);
    Transition {
        at,
        condition: Condition {
            condition_type: ConditionType::HostHealthy,
            status: if id % 2 == 0 { Status::True } else { Status::False },
            severity: Severity::Warn,
            reason: ReasonCode::DiskSpaceLow,
            message: format!("number {id}"),
            advice: String::new(),
            subject: format!("s{}", id % 7),
            last_transition_time: at,
            observed_at: at,
        },
        previous_status: None,
        previous_reason: None,
        removed: false,
        merged: 0,
    }
}

fn state(digest: &str) -> NodeState {
    NodeState {
        digest: digest.to_owned(),
        identity: Identity { boot_id: "boot-1".to_owned(), ..Identity::default() },
        conditions: Vec::new(),
        etcd: None,
        load_balancer: None,
        network: None,
        zone: String::new(),
        region: String::new(),
    }
}

fn target(urls: &[String], token: TokenSource) -> Target {
    Target {
        urls: urls.iter().map(|url| Url::parse(url).unwrap()).collect(),
        ca_checksum: None,
        token,
        heartbeat: Duration::from_secs(30),
        refresh: Duration::from_secs(300),
        node: NodeRef {
            name: "n1".to_owned(),
            uid: String::new(),
            cluster: "c1".to_owned(),
            profile: Profile::Generic,
            simulated: false,
        },
    }
}

fn reporter(fakes: &[&Fake], disk: &MemoryDisk, target: Target) -> Reporter {
    reporter_ahead(fakes, disk, target, Duration::ZERO)
}

/// One whose clock is ahead.
fn reporter_ahead(fakes: &[&Fake], disk: &MemoryDisk, target: Target, ahead: Duration) -> Reporter {
    Reporter::start(ReporterOptions {
        disk: Ok(Arc::new(disk.clone())),
        limits: SpoolLimits::default(),
        clock: Arc::new(move || Timestamp::from(SystemTime::now()).after(ahead)),
        transport: Arc::new(Lines(fakes.iter().map(|fake| (*fake).clone()).collect())),
        target,
    })
}

fn started(fake: &Fake, disk: &MemoryDisk) -> Reporter {
    let reporter = reporter(&[fake], disk, target(&[fake.url()], fake.token()));
    reporter.put(Vec::new(), &[], Some(state("d1")));
    reporter
}

/// Waits until delivery stands as `wanted`; the last status otherwise.
async fn until(reporter: &Reporter, wanted: impl FnMut(&DeliveryStatus) -> bool) -> DeliveryStatus {
    let mut status = reporter.status();
    let found = timeout(LONG, status.wait_for(wanted)).await.map(|found| found.unwrap().clone());
    found.unwrap_or_else(|_| panic!("not reached; the last status is {:?}", *reporter.status().borrow()))
}

/// Waits until the fake has seen what `wanted` asks for.
async fn seen(fake: &Fake, wanted: impl Fn(&super::fake::Mind) -> bool) {
    let wait = async {
        while !wanted(&fake.mind()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(LONG, wait).await.expect("the coordinator has not seen it");
}

fn ids(fake: &Fake) -> Vec<i64> {
    fake.mind().history.iter().map(|t| t.at.as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn enrols_reports_and_beats() {
    let fake = Fake::new("c.example");
    let reporter = started(&fake, &MemoryDisk::default());
    reporter.put((1..=3).map(transition).collect(), &[], None);
    seen(&fake, |mind| mind.history.len() == 3 && mind.heartbeats.len() >= 3).await;
    let status = until(&reporter, |status| status.spooled == 0).await;
    assert_eq!(
        (status.enrolment.as_str(), status.node_uid.as_str(), status.error.as_str()),
        ("enrolled", "uid-1", "")
    );
    assert!(status.clock_offset.unwrap().value().unwrap().offset_ms.abs() < 60_000);
    assert!(status.certificate_not_after.is_some());
    let mind = fake.mind();
    assert_eq!(mind.enrolments.len(), 1);
    assert_eq!(mind.enrolments[0].identity.boot_id, "boot-1");
    let report = mind.reports.last().unwrap();
    assert_eq!((report.node.uid.as_str(), report.boot_id.as_str()), ("uid-1", "boot-1"));
    assert!(mind.reports.iter().any(|report| report.state.as_ref().is_some_and(|s| s.digest == "d1")));
    assert!(mind.heartbeats.iter().all(|beat| beat.hold_seconds == 30));
}

#[tokio::test(start_paused = true)]
async fn after_ten_minutes_without_coordinator_everything_arrives_once_and_in_order() {
    let fake = Fake::new("c.example");
    let disk = MemoryDisk::default();
    let reporter = started(&fake, &disk);
    reporter.put(vec![transition(1)], &[], None);
    seen(&fake, |mind| mind.history.len() == 1).await;
    fake.go_away();
    for id in 2..=121 {
        reporter.put(vec![transition(id)], &[], None);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let status = reporter.status().borrow().clone();
    assert_eq!(status.spooled, 120);
    assert!(status.failing_since.is_some() && !status.error.is_empty(), "{status:?}");
    fake.come_back();
    seen(&fake, |mind| mind.history.len() == 121).await;
    assert_eq!(ids(&fake), (1..=121).collect::<Vec<_>>());
    let status = until(&reporter, |status| status.spooled == 0).await;
    assert_eq!((status.error.as_str(), status.failing_since), ("", None));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_repeats_a_report_and_stores_it_once() {
    let fake = Fake::new("c.example");
    let reporter = started(&fake, &MemoryDisk::default());
    until(&reporter, |status| status.enrolment == "enrolled").await;
    fake.mind().lose_answers = true;
    reporter.put(vec![transition(1), transition(2)], &[], None);
    seen(&fake, |mind| mind.reports.iter().filter(|r| !r.transitions.is_empty()).count() >= 3).await;
    fake.mind().lose_answers = false;
    until(&reporter, |status| status.spooled == 0).await;
    assert_eq!(ids(&fake), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_with_identity_and_spool() {
    let fake = Fake::new("c.example");
    let disk = MemoryDisk::default();
    let first = started(&fake, &disk);
    until(&first, |status| status.enrolment == "enrolled").await;
    fake.go_away();
    first.put(vec![transition(1)], &[], None);
    // Killed, not stopped.
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(first);
    fake.come_back();
    let second = started(&fake, &disk);
    let status = second.status().borrow().clone();
    assert!(
        status.certificate_not_after.is_some() && status.node_uid == "uid-1",
        "known before anything is tried"
    );
    until(&second, |status| status.enrolment == "enrolled" && status.spooled == 0).await;
    assert_eq!((ids(&fake), fake.mind().enrolments.len()), (vec![1], 1));
}

#[tokio::test(start_paused = true)]
async fn a_spool_that_was_restored_from_a_snapshot_begins_a_new_epoch() {
    let fake = Fake::new("c.example");
    let (disk, snapshot) = (MemoryDisk::default(), MemoryDisk::default());
    let first = started(&fake, &disk);
    until(&first, |status| status.enrolment == "enrolled").await;
    for name in ["identity.key", "identity.json", "spool.log"] {
        disk::replace(&snapshot, name, &disk.read(name).unwrap()).unwrap();
    }
    first.put(vec![transition(1)], &[], None);
    seen(&fake, |mind| mind.history.len() == 1).await;
    drop(first);
    let second = started(&fake, &snapshot);
    second.put(vec![transition(2)], &[], None);
    seen(&fake, |mind| mind.history.len() == 2).await;
    until(&second, |status| status.spooled == 0).await;
    assert_eq!(ids(&fake), [1, 2]);
    let epochs: std::collections::BTreeSet<_> = fake.mind().stored.keys().map(|(epoch, _)| *epoch).collect();
    assert_eq!(epochs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_ca_is_refused_with_both_checksums() {
    let (fake, other) = (Fake::new("c.example"), Fake::new("other.example"));
    let reporter = reporter(&[&fake], &MemoryDisk::default(), target(&[fake.url()], other.token()));
    reporter.put(Vec::new(), &[], Some(state("d1")));
    let status = until(&reporter, |status| !status.error.is_empty()).await;
    assert!(status.error.contains(&fake.pin()) && status.error.contains(&other.pin()), "{}", status.error);
    assert!(!status.error.contains("s3cret"));
    assert!(fake.mind().enrolments.is_empty());
}

#[tokio::test(start_paused = true)]
async fn token_and_configuration_must_agree() {
    let fake = Fake::new("c.example");
    let mut target = target(&[fake.url()], fake.token());
    target.ca_checksum = Some("0".repeat(64));
    let reporter = reporter(&[&fake], &MemoryDisk::default(), target);
    reporter.put(Vec::new(), &[], Some(state("d1")));
    let status = until(&reporter, |status| !status.error.is_empty()).await;
    assert!(status.error.contains(&"0".repeat(64)) && status.error.contains(&fake.pin()), "{}", status.error);
}

#[tokio::test(start_paused = true)]
async fn a_token_file_that_is_of_no_use_is_named_at_once_and_read_again() {
    let fake = Fake::new("c.example");
    let TokenSource::Given(good) = fake.token() else { panic!("the fake gives its token") };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let name = file.display().to_string();
    let reporter =
        reporter(&[&fake], &MemoryDisk::default(), target(&[fake.url()], TokenSource::File(file.clone())));
    reporter.put(Vec::new(), &[], Some(state("d1")));
    let status = until(&reporter, |status| !status.error.is_empty()).await;
    assert!(status.error.contains(&name) && status.error.contains("No such file"), "{}", status.error);
    // What hangs is not waited for.
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRUSR).unwrap();
    until(&reporter, |status| status.error.contains("not a regular file")).await;
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, good.expose().replace("::", ":")).unwrap();
    let status = until(&reporter, |status| status.error.contains("::<id>:<secret>")).await;
    assert_eq!((status.enrolment.as_str(), status.tried), ("token-unusable", true));
    assert!(status.error.contains(&name) && !status.error.contains("s3cret"), "{}", status.error);
    assert!(fake.mind().enrolments.is_empty());
    std::fs::write(&file, good.expose()).unwrap();
    until(&reporter, |status| status.enrolment == "enrolled" && status.error.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn before_the_first_exchange_the_coordinator_is_known_and_nothing_else() {
    let fake = Fake::new("c.example");
    let disk = MemoryDisk::default();
    for _restart in 0..2 {
        let reporter = reporter(&[&fake], &disk, target(&[fake.url()], fake.token()));
        let first = reporter.status().borrow().clone();
        assert_eq!((first.coordinator, first.tried), (fake.url(), false));
        reporter.put(Vec::new(), &[], Some(state("d1")));
        until(&reporter, |status| status.tried && status.enrolment == "enrolled").await;
        // Another coordinator has not been tried.
        reporter.configure(target(&["https://silent".to_owned()], fake.token()));
        let moved = until(&reporter, |status| status.coordinator == "https://silent").await;
        assert_eq!((moved.tried, moved.error.as_str()), (false, ""));
    }
    let alone = reporter(&[], &disk, target(&[], TokenSource::None));
    assert_eq!(alone.status().borrow().coordinator, "");
}

#[tokio::test(start_paused = true)]
async fn an_operator_who_approves_late_is_waited_for() {
    let fake = Fake::new("c.example");
    fake.mind().pending = 3;
    let reporter = started(&fake, &MemoryDisk::default());
    let status = until(&reporter, |status| status.enrolment == "pending").await;
    assert_eq!(status.error, "outrider approve n1");
    let status = until(&reporter, |status| status.enrolment == "enrolled").await;
    assert_eq!(status.error, "");
    let mind = fake.mind();
    assert_eq!(mind.enrolments.len(), 4);
    // The same key each time: the coordinator can tell that it is the same machine.
    let keys: std::collections::BTreeSet<_> = mind
        .enrolments
        .iter()
        .map(|request| rcgen::CertificateSigningRequestParams::from_pem(&request.csr).unwrap())
        .map(|csr| rcgen::PublicKeyData::subject_public_key_info(&csr.public_key))
        .collect();
    assert_eq!(keys.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_told_from_troubles() {
    let fake = Fake::new("c.example");
    fake.mind().refuse = Some(ApiError::new(503, "StoreUnavailable", "the store is away", "Wait."));
    let reporter = started(&fake, &MemoryDisk::default());
    let status = until(&reporter, |status| !status.error.is_empty()).await;
    assert_eq!(
        (status.enrolment.as_str(), status.error.as_str()),
        ("none", "StoreUnavailable: the store is away. Wait.")
    );
    fake.mind().refuse = Some(ApiError::new(401, "TokenExpired", "token tok ended", "Make a new token."));
    until(&reporter, |status| status.enrolment == "refused" && status.error.starts_with("TokenExpired"))
        .await;
    fake.mind().refuse = None;
    until(&reporter, |status| status.enrolment == "enrolled" && status.error.is_empty()).await;
    fake.mind().refuse = Some(ApiError::new(403, "NodeRevoked", "node n1 was revoked", ""));
    until(&reporter, |status| status.enrolment == "refused").await;
    fake.mind().refuse = None;
    until(&reporter, |status| status.enrolment == "enrolled").await;
    assert_eq!(fake.mind().enrolments.len(), 1, "a revoked node must not enrol anew by itself");
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_forgot_the_node_is_enrolled_at_anew() {
    let fake = Fake::new("c.example");
    let reporter = started(&fake, &MemoryDisk::default());
    until(&reporter, |status| status.enrolment == "enrolled").await;
    fake.mind().refuse = Some(ApiError::new(404, "NodeUnknown", "no node uid-1", ""));
    until(&reporter, |status| status.error.starts_with("NodeUnknown")).await;
    fake.mind().refuse = None;
    seen(&fake, |mind| mind.enrolments.len() == 2).await;
    until(&reporter, |status| status.enrolment == "enrolled").await;
}

#[tokio::test(start_paused = true)]
async fn desired_configuration_is_kept_over_a_restart() {
    let fake = Fake::new("c.example");
    let disk = MemoryDisk::default();
    let reporter = started(&fake, &disk);
    let spec = NodeConfigSpec { heartbeat_seconds: Some(5), ..NodeConfigSpec::default() };
    let desired = NodeConfig { meta: TypeMeta::new("NodeConfig"), generation: 3, spec };
    fake.mind().desired = Some(desired.clone());
    until(&reporter, |status| status.desired.as_ref() == Some(&desired)).await;
    reporter.in_force(3);
    seen(&fake, |mind| mind.heartbeats.last().is_some_and(|beat| beat.generation == 3)).await;
    drop(reporter);
    let again = super::tests::reporter(&[], &disk, target(&[], TokenSource::None));
    assert_eq!(again.status().borrow().desired, Some(desired));
}

#[tokio::test(start_paused = true)]
async fn the_certificate_is_renewed_in_time_with_the_same_key() {
    let fake = Fake::new("c.example");
    fake.mind().renew_in = Some(0);
    let disk = MemoryDisk::default();
    let reporter = started(&fake, &disk);
    seen(&fake, |mind| mind.renewals >= 1).await;
    until(&reporter, |status| status.enrolment == "enrolled" && status.error.is_empty()).await;
    let key = disk.read("identity.key").unwrap();
    reporter.put(vec![transition(1)], &[], None);
    seen(&fake, |mind| mind.history.len() == 1).await;
    assert_eq!((disk.read("identity.key").unwrap(), fake.mind().enrolments.len()), (key, 1));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_allows_enrolment_and_nothing_else() {
    // The server's certificate is good from tomorrow on: this clock is a day behind.
    let fake = Fake::with_certificate_in("c.example", 1);
    let reporter = started(&fake, &MemoryDisk::default());
    let status = until(&reporter, |status| status.enrolment == "enrolled" && !status.error.is_empty()).await;
    assert!(status.error.contains("is a clock wrong?"), "{}", status.error);
    let mind = fake.mind();
    assert_eq!((mind.enrolments.len(), mind.reports.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_second_url_is_used_when_the_first_does_not_answer() {
    let (dead, fake) = (Fake::new("dead.example"), Fake::new("c.example"));
    dead.go_away();
    let reporter =
        reporter(&[&dead, &fake], &MemoryDisk::default(), target(&[dead.url(), fake.url()], fake.token()));
    reporter.put(vec![transition(1)], &[], Some(state("d1")));
    seen(&fake, |mind| mind.history.len() == 1).await;
    let status = until(&reporter, |status| status.error.is_empty()).await;
    assert_eq!(status.coordinator, fake.url());
}

#[tokio::test(start_paused = true)]
async fn a_state_folder_that_cannot_be_used_enrols_nothing_and_says_so() {
    let fake = Fake::new("c.example");
    let reporter = Reporter::start(ReporterOptions {
        disk: Err("the state folder /x cannot be used: read-only".to_owned()),
        limits: SpoolLimits::default(),
        clock: Arc::new(|| Timestamp::from(SystemTime::now())),
        transport: Arc::new(Lines(vec![fake.clone()])),
        target: target(&[fake.url()], fake.token()),
    });
    reporter.put(vec![transition(1)], &[], Some(state("d1")));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(reporter.status().borrow().error.contains("read-only"));
    assert!(fake.mind().enrolments.is_empty());
}

#[tokio::test(start_paused = true)]
async fn stopping_delivers_what_waits_within_its_limit() {
    let fake = Fake::new("c.example");
    let disk = MemoryDisk::default();
    let reporter = started(&fake, &disk);
    until(&reporter, |status| status.enrolment == "enrolled").await;
    reporter.put(vec![transition(1)], &[], None);
    reporter.stop(Duration::from_secs(4)).await;
    assert_eq!(ids(&fake), [1]);
    let reporter = started(&fake, &disk);
    until(&reporter, |status| status.enrolment == "enrolled").await;
    fake.go_away();
    reporter.put(vec![transition(2)], &[], None);
    let began = tokio::time::Instant::now();
    reporter.stop(Duration::from_secs(4)).await;
    assert!(began.elapsed() <= Duration::from_secs(5));
    let spool = Spool::open(Arc::new(disk), SpoolLimits::default(), Timestamp::default());
    assert_eq!(spool.batch(9, 9_999).len(), 1, "what could not be sent waits on disk");
}

#[tokio::test(start_paused = true)]
async fn reports_that_are_refused_are_not_hidden_by_heartbeats_that_pass() {
    let fake = Fake::new("c.example");
    let reporter = started(&fake, &MemoryDisk::default());
    until(&reporter, |status| status.enrolment == "enrolled").await;
    fake.mind().refuse_reports = Some(ApiError::new(400, "InvalidDocument", "a field is wrong", ""));
    reporter.put(vec![transition(1)], &[], None);
    until(&reporter, |status| status.error.starts_with("InvalidDocument")).await;
    let beats = fake.mind().heartbeats.len();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(reporter.status().borrow().error.starts_with("InvalidDocument"));
    }
    assert!(fake.mind().heartbeats.len() >= beats + 18, "heartbeats go on");
    fake.mind().refuse_reports = None;
    until(&reporter, |status| status.spooled == 0 && status.error.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_too_large_goes_in_parts() {
    let fake = Fake::new("c.example");
    fake.mind().most = Some(3);
    let reporter = started(&fake, &MemoryDisk::default());
    reporter.put((1..=40).map(transition).collect(), &[], None);
    seen(&fake, |mind| mind.history.len() == 40).await;
    assert_eq!(ids(&fake), (1..=40).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_transition_that_is_never_taken_is_set_aside_and_holds_up_nobody() {
    let fake = Fake::new("c.example");
    fake.mind().never = Some(17);
    let disk = MemoryDisk::default();
    let reporter = started(&fake, &disk);
    reporter.put((1..=40).map(transition).collect(), &[], None);
    seen(&fake, |mind| mind.history.len() == 39).await;
    assert_eq!(ids(&fake), (1..=40).filter(|id| *id != 17).collect::<Vec<_>>());
    let status = until(&reporter, |status| status.spooled == 0 && status.reported).await;
    assert_eq!(status.error, "");
    let aside = String::from_utf8(disk.read("refused.jsonl").unwrap()).unwrap();
    assert!(aside.lines().count() == 1 && aside.contains("number 17"), "{aside}");
    assert!(aside.contains("InvalidReport"), "the coordinator's words: {aside}");
    // The state was not given up with it.
    seen(&fake, |mind| mind.reports.iter().any(|report| report.state.is_some())).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_days_ahead_neither_silences_nor_renews_without_end() {
    let fake = Fake::new("c.example");
    let target = target(&[fake.url()], fake.token());
    let ahead = Duration::from_secs(3 * 86_400);
    let reporter = reporter_ahead(&[&fake], &MemoryDisk::default(), target, ahead);
    reporter.put(vec![transition(1)], &[], Some(state("d1")));
    let status = until(&reporter, |status| status.enrolment == "enrolled" && status.reported).await;
    let offset = status.clock_offset.unwrap().value().unwrap().offset_ms;
    assert!((offset - 3 * 86_400_000).abs() < 60_000, "{offset}");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    reporter.put(vec![transition(2)], &[], None);
    seen(&fake, |mind| mind.history.len() == 2).await;
    assert_eq!(fake.mind().renewals, 0);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_wakes_up_does_not_wait_for_a_dead_connection() {
    let fake = Fake::new("c.example");
    let reporter = started(&fake, &MemoryDisk::default());
    seen(&fake, |mind| mind.heartbeats.len() == 2).await;
    let began = tokio::time::Instant::now();
    reporter.wake();
    seen(&fake, |mind| mind.heartbeats.len() == 3).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_unbounded_message_is_cut_and_not_stuck() {
    let fake = Fake::new("c.example");
    let reporter = started(&fake, &MemoryDisk::default());
    let mut long = transition(1);
    long.condition.message = "ä".repeat(20_000);
    reporter.put(vec![long], &[], None);
    seen(&fake, |mind| mind.history.len() == 1).await;
    let message = fake.mind().history[0].condition.message.clone();
    assert!(message.len() < 9_000 && message.ends_with('…'));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_did_not_reach_the_coordinator_follows_as_soon_as_something_does() {
    let fake = Fake::new("c.example");
    fake.mind().renew_in = Some(90);
    let reporter = started(&fake, &MemoryDisk::default());
    until(&reporter, |status| status.enrolment == "enrolled").await;
    fake.go_away();
    // One may have come through before, for enrolling takes time of its own.
    let before = fake.mind().renewals;
    tokio::time::sleep(Duration::from_secs(200)).await;
    fake.come_back();
    let back = tokio::time::Instant::now();
    seen(&fake, |mind| mind.renewals > before).await;
    // The longest wait between two tries (60 s) and the limit of a try that was under way. By itself the renewal would
    // wait for up to 300 s.
    assert!(back.elapsed() < Duration::from_secs(100), "{:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_token_is_read_from_its_file_whenever_it_is_needed() {
    let fake = Fake::new("c.example");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let target = target(&[fake.url()], TokenSource::File(file.clone()));
    let reporter = reporter(&[&fake], &MemoryDisk::default(), target);
    reporter.put(Vec::new(), &[], Some(state("d1")));
    let status = until(&reporter, |status| !status.error.is_empty()).await;
    assert!(status.error.contains("cannot be read") && status.error.contains("token"), "{}", status.error);
    std::fs::write(&file, "OR1abc::id:s3cret").unwrap();
    let status = until(&reporter, |status| status.error.contains("checksum")).await;
    assert!(!status.error.contains("s3cret"), "{}", status.error);
    let TokenSource::Given(token) = fake.token() else { panic!("the fake gives its token") };
    std::fs::write(&file, format!("{}\n", token.expose())).unwrap();
    until(&reporter, |status| status.enrolment == "enrolled").await;
}
