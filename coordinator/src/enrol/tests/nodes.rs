//! What becomes of nodes, operators and tokens afterwards.

use super::*;

#[tokio::test]
async fn a_living_node_keeps_its_name_and_a_rebuilt_machine_gets_it_back() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    let m = Machine::new("n1", "a");
    let old = bed.admitted(&m, &token, now()).await;
    bed.registrar.set_labels("n1", &[("zone".to_owned(), "z1".to_owned())].into()).await.unwrap();
    let spec = NodeConfigSpec { heartbeat_seconds: Some(5), ..NodeConfigSpec::default() };
    assert_eq!(bed.registrar.set_config("n1", &spec, Some(0)).await.unwrap().generation, 1);
    bed.sight(&old.uid, "boot-a", now()).unwrap();

    let soon = now().after(Duration::from_secs(10));
    let stranger = Machine::new("n1", "b");
    let error = bed.enroll(&stranger, &token, soon).await.unwrap_err();
    let api = error.to_api();
    assert_eq!((api.code, api.reason.as_str()), (409, "IdentityInUse"));
    assert!(api.message.contains("n1") && api.message.contains(&old.uid) && api.message.contains("10 s ago"));
    assert!(api.advice.contains("in 80 s"), "{}", api.advice);

    // The disk was lost, the hardware is the same.
    let mut departures = bed.registrar.departures();
    let rebuilt = Machine { key: key(), ..Machine::new("n1", "a") };
    let new = bed.admitted(&rebuilt, &token, soon).await;
    assert_ne!(new.uid, old.uid);
    assert_eq!(departures.try_recv().unwrap(), Departure { uid: old.uid.clone(), reason: "NodeSuperseded" });
    assert_eq!(reason(bed.registrar.authenticate(&old, soon)), "NodeSuperseded");
    assert_eq!(reason(bed.enroll(&m, &token, soon).await), "NodeSuperseded");
    let record = bed.registrar.find("n1").unwrap();
    assert_eq!((record.uid.as_str(), record.desired.generation), (new.uid.as_str(), 1));
    assert_eq!(record.labels["zone"], "z1");

    // A restart knows all that, and gives a name free only after its node had time to be heard.
    bed.restart(soon).await;
    assert_eq!(bed.registrar.nodes().len(), 1);
    assert_eq!(reason(bed.registrar.authenticate(&old, soon)), "NodeSuperseded");
    assert_eq!(reason(bed.enroll(&stranger, &token, soon).await), "IdentityInUse");
    let silent = soon.after(Duration::from_secs(90));
    let third = bed.admitted(&stranger, &token, silent).await;
    assert_eq!(bed.registrar.find("n1").unwrap().uid, third.uid);
}

#[tokio::test]
async fn what_a_crash_left_half_done_is_finished() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    let old = bed.admitted(&Machine::new("n1", "a"), &token, now()).await;
    let later = now().after(HOUR);
    let new = bed.admitted(&Machine::new("n1", "b"), &token, later).await;
    // As it was between the two writes.
    let key = NodeRecord::key(&old.uid);
    let entry = bed.store.get(&key).await.unwrap().unwrap();
    let mut record: NodeRecord = serde_json::from_slice(&entry.value).unwrap();
    assert_eq!(record.enrolment, Enrolment::Superseded);
    (record.enrolment, record.ended) = (Enrolment::Approved, None);
    bed.store.put(&key, serde_json::to_vec(&record).unwrap().into(), Expect::Any).await.unwrap();
    bed.restart(later).await;
    assert_eq!(bed.registrar.find("n1").unwrap().uid, new.uid);
    assert_eq!(bed.registrar.node(&old.uid).unwrap().enrolment, Enrolment::Superseded);
}

#[tokio::test]
async fn certificates_renew_before_and_a_while_after_their_end() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let m = Machine::new("n1", "a");
    let first = bed.admitted(&m, &token, now()).await;
    let due = now().after(HOUR * 16);
    let renewed = bed.registrar.renew(&first, &m.renewal(), due).await.unwrap();
    assert_eq!(renewed.renew_at, Some(due.after(HOUR * 16)));
    let second = peer(&renewed);
    assert_eq!(second.uid, first.uid);

    let month = now().after(DAY * 31);
    assert_eq!(reason(bed.registrar.authenticate(&second, month)), "CertificateExpired");
    let back = peer(&bed.registrar.renew(&second, &m.renewal(), month).await.unwrap());
    bed.registrar.authenticate(&back, month).unwrap();
    assert_eq!(bed.registrar.find("n1").unwrap().certificates.len(), 2, "the newest are remembered");

    let too_late = now().after(DAY * 100);
    assert_eq!(reason(bed.registrar.renew(&back, &m.renewal(), too_late).await), "CertificateGraceOver");
    let thief = Machine::new("n1", "a");
    assert_eq!(reason(bed.registrar.renew(&back, &thief.renewal(), month).await), "KeyChanged");
    let forged = PeerCertificate { key_hash: "0".repeat(64), ..back.clone() };
    assert_eq!(reason(bed.registrar.authenticate(&forged, month)), "CertificateUnknown");
    let nobody = PeerCertificate { uid: "nobody".to_owned(), ..back };
    assert_eq!(reason(bed.registrar.authenticate(&nobody, month)), "NodeUnknown");
}

#[tokio::test]
async fn a_revoked_node_is_shut_out_at_once_and_for_good() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    let m = Machine::new("n1", "a");
    let certificate = bed.admitted(&m, &token, now()).await;
    let mut departures = bed.registrar.departures();
    bed.registrar.revoke("n1", "stolen", now()).await.unwrap();
    assert_eq!(
        departures.recv().await.unwrap(),
        Departure { uid: certificate.uid.clone(), reason: "NodeRevoked" }
    );
    bed.restart(now()).await;
    let error = bed.registrar.authenticate(&certificate, now()).unwrap_err();
    assert!(error.reason() == "NodeRevoked" && error.to_string().contains("stolen"), "{error}");
    assert_eq!(reason(bed.registrar.renew(&certificate, &m.renewal(), now()).await), "NodeRevoked");
    assert_eq!(reason(bed.enroll(&m, &token, now()).await), "NodeRevoked");
    // The same key with another token is still the same key.
    assert_eq!(reason(bed.enroll(&m, &bed.many().await, now()).await), "NodeRevoked");
    assert_eq!(reason(bed.registrar.approve("n1", now()).await), "NodeRevoked");
    // A new key and an operator's token: somebody decided so.
    let again = Machine { key: key(), ..Machine::new("n1", "a") };
    let admitted = bed.admitted(&again, &token, now()).await;
    assert_eq!(bed.registrar.find("n1").unwrap().uid, admitted.uid);
}

#[tokio::test]
async fn desired_configuration_changes_by_generation() {
    let bed = Bed::new().await;
    bed.admitted(&Machine::new("n1", "a"), &bed.many().await, now()).await;
    let spec = |n| NodeConfigSpec { heartbeat_seconds: Some(n), ..NodeConfigSpec::default() };
    assert_eq!(bed.registrar.set_config("n1", &spec(5), None).await.unwrap().generation, 1);
    assert_eq!(bed.registrar.set_config("n1", &spec(5), Some(1)).await.unwrap().generation, 1, "no change");
    assert_eq!(reason(bed.registrar.set_config("n1", &spec(6), Some(0)).await), "ConfigChanged");
    assert_eq!(bed.registrar.set_config("n1", &spec(6), Some(1)).await.unwrap().generation, 2);
    assert_eq!(reason(bed.registrar.set_config("n9", &spec(6), None).await), "NodeUnknown");
}

#[tokio::test]
async fn operators_are_known_by_their_tokens() {
    use std::os::unix::fs::PermissionsExt;
    let mut bed = Bed::new().await;
    let file = bed.folder.path().join("operator.token");
    let first = bed.registrar.ensure_operator_token(&file, now()).await.unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), first.reveal());
    assert_eq!(bed.registrar.check_operator(&first.reveal()).unwrap().id, first.id);
    // A restart keeps it; a database begun anew learns it from the file; a rotation gives it the new pin.
    bed.restart(now()).await;
    assert_eq!(bed.registrar.ensure_operator_token(&file, now()).await.unwrap(), first);
    bed.store = Arc::default();
    bed.restart(now()).await;
    assert!(bed.registrar.check_operator(&first.reveal()).is_err());
    bed.authority.rotate(now()).unwrap();
    let rotated = bed.registrar.ensure_operator_token(&file, now()).await.unwrap();
    assert_eq!(rotated, first.with_pin(bed.authority.pin()));
    bed.authority.retire(1, now()).unwrap();
    bed.authority.rotate(now()).unwrap();
    bed.registrar.tend(now()).await.unwrap();
    let followed = std::fs::read_to_string(&file).unwrap();
    assert_eq!(followed.trim(), first.with_pin(bed.authority.pin()).reveal());
    bed.registrar.check_operator(&first.reveal()).unwrap();

    let second = bed.registrar.create_operator("ci", now()).await.unwrap();
    assert_eq!(bed.registrar.operators().len(), 2);
    assert!(bed.registrar.revoke_operator(&second.id).await.unwrap());
    assert!(!bed.registrar.revoke_operator(&second.id).await.unwrap());
    for wrong in ["", "x", &second.reveal(), &bed.many().await] {
        let error = bed.registrar.check_operator(wrong).unwrap_err();
        assert_eq!((error.reason(), error.to_api().code), ("Unauthenticated", 401));
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let kept = bed.registrar.ensure_operator_token(&file, now()).await.unwrap();
    assert_eq!(kept.id, first.id, "said in the log, and no reason to lock operators out");
    // Removed by somebody who distrusts it: a new one is written, and the old one opens nothing.
    std::fs::remove_file(&file).unwrap();
    let fresh = bed.registrar.ensure_operator_token(&file, now()).await.unwrap();
    assert_ne!(fresh.id, first.id);
    bed.registrar.check_operator(&fresh.reveal()).unwrap();
    assert!(bed.registrar.check_operator(&first.reveal()).is_err());
}

#[tokio::test]
async fn a_retirement_is_told_whom_it_would_leave_out() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let (a, b) = (Machine::new("n1", "a"), Machine::new("n2", "b"));
    let first = bed.admitted(&a, &token, now()).await;
    bed.admitted(&b, &token, now()).await;
    bed.authority.rotate(now()).unwrap();
    assert_eq!(bed.registrar.nodes_of_root(1).len(), 2);
    let renewed = bed.registrar.renew(&first, &a.renewal(), now()).await.unwrap();
    assert_eq!(
        renewed.ca_bundle.matches("BEGIN CERTIFICATE").count(),
        2,
        "agents learn both roots by renewal"
    );
    let left: Vec<String> = bed.registrar.nodes_of_root(1).iter().map(|r| r.name.clone()).collect();
    assert_eq!(left, ["n2"]);
    // Tokens of before the rotation still lead to us, until the old root is retired.
    bed.admitted(&Machine::new("n3", "c"), &token, now()).await;
    bed.authority.retire(1, now()).unwrap();
    assert_eq!(reason(bed.enroll(&Machine::new("n4", "d"), &token, now()).await), "CaMismatch");
}

#[tokio::test]
async fn the_registry_forgets_what_is_over() {
    let mut bed = Bed::new().await;
    let token = bed.token(TokenKind::Once, |t| t.uses = Some(3)).await;
    let pool = bed.token(TokenKind::Pool, |t| t.ttl_seconds = Some(10 * 24 * 3600)).await;
    let old = bed.admitted(&Machine::new("n1", "a"), &token, now()).await;
    let later = now().after(HOUR);
    bed.admitted(&Machine::new("n1", "b"), &token, later).await;
    let ending = bed.registrar.tokens_ending(later).await.unwrap();
    assert_eq!(ending.iter().map(|t| &t.id).collect::<Vec<_>>(), [&pool.parse::<TokenText>().unwrap().id]);

    bed.registrar.tend(later).await.unwrap();
    assert!(bed.registrar.node(&old.uid).is_some());
    assert_eq!(bed.registrar.tokens().await.unwrap().len(), 2);
    let much_later = now().after(DAY * 61 + HOUR * 2);
    bed.registrar.tend(much_later).await.unwrap();
    bed.restart(much_later).await;
    assert!(bed.registrar.node(&old.uid).is_none());
    assert!(bed.registrar.find("n1").is_ok());
    assert_eq!(bed.registrar.tokens().await.unwrap().len(), 1, "the once token ended 60 days ago");
}

#[tokio::test]
async fn records_that_cannot_be_read_harm_no_other() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    bed.admitted(&Machine::new("n1", "a"), &token, now()).await;
    for key in ["nodes/broken", "tokens/broken", "operators/broken"] {
        bed.store.put(key, Bytes::from_static(b"{"), Expect::Any).await.unwrap();
    }
    bed.restart(now()).await;
    assert_eq!(bed.registrar.nodes().len(), 1);
    assert_eq!(bed.registrar.tokens().await.unwrap().len(), 1);
    bed.admitted(&Machine::new("n2", "b"), &token, now()).await;
    assert!(bed.store.get("nodes/broken").await.unwrap().is_some(), "left where it is");
}
