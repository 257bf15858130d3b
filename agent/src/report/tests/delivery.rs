//! What is put arrives, once and in order, whatever happens in between.

use super::*;

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
    let again = super::reporter(&[], &disk, target(&[], TokenSource::None));
    assert_eq!(again.status().borrow().desired, Some(desired));
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
