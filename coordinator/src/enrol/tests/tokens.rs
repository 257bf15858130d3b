//! Who is let in.

use super::*;

#[tokio::test]
async fn a_once_token_lets_one_machine_in_and_survives_repeats() {
    let mut bed = Bed::new().await;
    let token = bed.token(TokenKind::Once, |t| t.cluster = "prod".to_owned()).await;
    let m = Machine::new("n1", "a");
    let first = bed.admitted(&m, &token, now()).await;
    let record = bed.registrar.authenticate(&first, now()).unwrap();
    assert_eq!((record.name.as_str(), record.cluster.as_str()), ("n1", "prod"));
    // The answer was lost: the same key is the same node, also after the token's end and a restart.
    bed.restart(now().after(DAY * 2)).await;
    let again = bed.admitted(&m, &token, now().after(DAY * 2)).await;
    assert_eq!(again.uid, first.uid);
    assert_ne!(again.serial, first.serial);
    assert_eq!(reason(bed.enroll(&Machine::new("n2", "b"), &token, now()).await), "TokenUsedUp");
    let view = &bed.registrar.tokens().await.unwrap()[0];
    assert_eq!((view.uses_left, view.token.as_str()), (Some(0), ""));
    assert_eq!(bed.registrar.nodes().len(), 1);
}

#[tokio::test]
async fn every_refusal_of_a_token_has_its_own_name() {
    let bed = Bed::new().await;
    let m = Machine::new("n1", "a");
    let short = bed.token(TokenKind::Once, |t| t.ttl_seconds = Some(60)).await;
    let late = now().after(Duration::from_secs(61));
    let error = bed.enroll(&m, &short, late).await.unwrap_err();
    assert_eq!(error.reason(), "TokenExpired");
    let since = now().after(Duration::from_secs(60)).to_string();
    assert!(error.to_string().contains(&since), "{error} names since when");

    let token = bed.many().await;
    let id = token.parse::<TokenText>().unwrap().id;
    let stranger = TokenText::generate(bed.authority.pin()).reveal();
    assert_eq!(reason(bed.enroll(&m, &stranger, now()).await), "TokenUnknown");
    let guessed = format!("OR1{}::{id}:{}", bed.authority.pin(), "A".repeat(32));
    assert_eq!(reason(bed.enroll(&m, &guessed, now()).await), "TokenUnknown");
    assert_eq!(reason(bed.enroll(&m, "OR1", now()).await), "TokenMalformed");
    let foreign = token.parse::<TokenText>().unwrap().with_pin(Pin::of(b"another root")).reveal();
    let error = bed.enroll(&m, &foreign, now()).await.unwrap_err();
    assert_eq!(error.reason(), "CaMismatch");
    for pin in [Pin::of(b"another root"), bed.authority.pin()] {
        assert!(error.to_string().contains(&pin.to_string()), "{error} shows both");
    }
    let named = bed.token(TokenKind::Once, |t| t.name_pattern = "db-*".to_owned()).await;
    assert_eq!(reason(bed.enroll(&m, &named, now()).await), "NameNotAllowed");
    bed.registrar.revoke_token(&id, now()).await.unwrap();
    assert_eq!(reason(bed.enroll(&m, &token, now()).await), "TokenRevoked");
    assert_eq!(reason(bed.registrar.revoke_token("nobody", now()).await), "TokenUnknown");
    assert_eq!(bed.registrar.nodes().len(), 0, "a refusal leaves nothing");
}

#[tokio::test]
async fn bad_names_and_requests_are_refused() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    for name in ["", "a/b", "-x", "a b", "a\n", &"x".repeat(254)] {
        assert_eq!(
            reason(bed.enroll(&Machine::new(name, "a"), &token, now()).await),
            "NameInvalid",
            "{name:?}"
        );
    }
    let mut request = Machine::new("n1", "a").request(&token, now());
    request.csr = "nothing".to_owned();
    assert_eq!(reason(bed.registrar.enroll(&request, now()).await), "RequestInvalid");
}

#[tokio::test]
async fn no_secret_is_stored() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let operator = bed.registrar.create_operator("me", now()).await.unwrap().reveal();
    bed.admitted(&Machine::new("n1", "a"), &token, now()).await;
    let (entries, _) = store::list_all(&*bed.store, "").await.unwrap();
    assert_eq!(entries.len(), 4, "token, operator, node and the CA's pins");
    for text in [token, operator] {
        let secret = text.rsplit(':').next().unwrap().to_owned();
        for entry in &entries {
            assert!(!String::from_utf8_lossy(&entry.value).contains(&secret), "{}", entry.key);
        }
    }
}

#[tokio::test]
async fn a_pool_admits_by_rate_and_otherwise_asks() {
    let mut bed = Bed::new().await;
    let token = bed
        .token(TokenKind::Pool, |t| {
            t.name_pattern = "pool1-*".to_owned();
            t.rate_per_hour = 2;
        })
        .await;
    for n in ["pool1-a", "pool1-b"] {
        bed.admitted(&Machine::new(n, n), &token, now()).await;
    }
    let third = Machine::new("pool1-c", "c");
    let asked = bed.enroll(&third, &token, now()).await.unwrap();
    assert_eq!(asked.certificate, "");
    assert!(asked.pending.contains("outrider approve pool1-c") && asked.retry_after_seconds.is_some());
    assert!(!asked.ca_bundle.is_empty());
    // It asks again and again; the rate that is free an hour later is for new machines, an operator answers this one.
    let later = now().after(HOUR * 2);
    bed.restart(later).await;
    assert_eq!(bed.enroll(&third, &token, later).await.unwrap().node_uid, asked.node_uid);
    bed.admitted(&Machine::new("pool1-d", "d"), &token, later).await;
    bed.registrar.approve("pool1-c", later).await.unwrap();
    let admitted = bed.admitted(&third, &token, later).await;
    assert_eq!(admitted.uid, asked.node_uid);
    bed.registrar.authenticate(&admitted, later).unwrap();
    // Months later a replacement still joins.
    bed.admitted(&Machine::new("pool1-e", "e"), &token, now().after(DAY * 200)).await;
    assert_eq!(reason(bed.enroll(&Machine::new("db-1", "f"), &token, now()).await), "NameNotAllowed");
}

#[tokio::test]
async fn a_pool_without_a_rate_only_asks() {
    let bed = Bed::new().await;
    let token = bed.token(TokenKind::Pool, |_| {}).await;
    let m = Machine::new("n1", "a");
    let asked = bed.enroll(&m, &token, now()).await.unwrap();
    assert_eq!(asked.certificate, "");
    let record = bed.registrar.find("n1").unwrap();
    assert_eq!((record.enrolment, record.certificates.len()), (Enrolment::Pending, 0));
    bed.registrar.revoke("n1", "who is this", now()).await.unwrap();
    let error = bed.enroll(&m, &token, now()).await.unwrap_err();
    assert_eq!(error.reason(), "NodeRevoked");
    assert!(error.to_string().contains("who is this"));
}

#[tokio::test]
async fn a_failing_store_burns_no_token_and_keeps_no_name() {
    let bed = Bed::new().await;
    let token = bed.token(TokenKind::Once, |_| {}).await;
    let m = Machine::new("n1", "a");
    bed.store.broken.store(true, Ordering::SeqCst);
    let error = bed.enroll(&m, &token, now()).await.unwrap_err();
    assert_eq!((error.reason(), error.to_api().code), ("DiskFull", 507));
    bed.store.broken.store(false, Ordering::SeqCst);
    // Another machine may take name and use: the first one holds neither.
    bed.admitted(&Machine::new("n1", "b"), &token, now()).await;
    assert_eq!(reason(bed.enroll(&m, &token, now()).await), "TokenUsedUp");
}

#[tokio::test]
async fn an_enrolment_stored_before_a_crash_is_found_again() {
    let bed = Bed::new().await;
    let token = bed.token(TokenKind::Once, |_| {}).await;
    let m = Machine::new("n1", "a");
    // A registrar that has not seen it, as one that died after the write would not have.
    let (store, authority) = (bed.store.clone(), bed.authority.clone());
    let blind = Registrar::open(store, authority, Settings::default(), now()).await.unwrap();
    let first = bed.admitted(&m, &token, now()).await;
    let again = blind.enroll(&m.request(&token, now()), now()).await.unwrap();
    assert_eq!(again.node_uid, first.uid);
}

#[tokio::test]
async fn of_two_machines_that_ask_for_a_name_at_once_one_gets_it() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let (a, b) = (Machine::new("n1", "a"), Machine::new("n1", "b"));
    let (one, two) = tokio::join!(bed.enroll(&a, &token, now()), bed.enroll(&b, &token, now()));
    assert_eq!([one.is_ok(), two.is_ok()].iter().filter(|ok| **ok).count(), 1, "{one:?} {two:?}");
    assert_eq!(bed.registrar.nodes().len(), 1);
    // One machine on two connections is one node.
    let c = Machine::new("n2", "c");
    let (one, two) = tokio::join!(bed.enroll(&c, &token, now()), bed.enroll(&c, &token, now()));
    assert_eq!(one.unwrap().node_uid, two.unwrap().node_uid);
    assert_eq!(bed.registrar.nodes().len(), 2);
}

#[tokio::test]
async fn a_leaked_pool_token_does_not_fill_the_registry() {
    let bed = Bed::new().await;
    let token = bed.token(TokenKind::Pool, |_| {}).await;
    for n in 0..500 {
        bed.enroll(&Machine::new(&format!("n{n}"), &n.to_string()), &token, now()).await.unwrap();
    }
    let error = bed.enroll(&Machine::new("more", "x"), &token, now()).await.unwrap_err();
    assert_eq!((error.reason(), error.to_api().code), ("TooManyPending", 429));
    // Requests that nobody repeats go; one that is repeated stays.
    let week = now().after(DAY * 7);
    let patient = Machine::new("patient", "p");
    bed.registrar.revoke("n0", "", now()).await.unwrap();
    bed.enroll(&patient, &token, now()).await.unwrap();
    bed.enroll(&patient, &token, week).await.unwrap();
    bed.registrar.tend(week.after(HOUR)).await.unwrap();
    let left: Vec<String> = bed.registrar.nodes().iter().map(|r| r.name.clone()).collect();
    assert_eq!(left, ["n0", "patient"], "what an operator said stays too");
}

#[tokio::test]
async fn a_clock_that_is_years_off_is_let_in_and_said() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let m = Machine::new("n1", "a");
    let mut request = m.request(&token, now().before(DAY * 3650));
    let answer = bed.registrar.enroll(&request, now()).await.unwrap();
    assert_eq!(answer.server_time, now());
    assert_eq!(bed.registrar.find("n1").unwrap().clock_skew_ms, -(DAY.as_millis() as i64) * 3650);
    request.sent_at = Timestamp::from_millis(i64::MAX);
    bed.registrar.enroll(&request, now()).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_request_makes_enrolment_panic(name in ".{0,300}", csr in ".{0,200}", marks in ".{0,50}", once in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let bed = Bed::new().await;
            let token = bed.token(if once { TokenKind::Once } else { TokenKind::Pool }, |_| {}).await;
            let mut request = Machine::new(&name, &marks).request(&token, now());
            let _ = bed.registrar.enroll(&request, now()).await;
            request.csr = csr;
            request.node.name = "n".to_owned();
            let _ = bed.registrar.enroll(&request, now()).await;
        });
    }
}
