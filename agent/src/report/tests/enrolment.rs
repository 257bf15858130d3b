//! Who may speak: tokens, checksums, approval, refusals, renewal.

use super::*;

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
