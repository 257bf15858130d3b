//! Two machines, one identity.

use super::*;

#[tokio::test]
async fn two_living_machines_with_one_certificate_are_a_clone() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    let uid = bed.admitted(&Machine::new("n1", "a"), &token, now()).await.uid;
    let at = |seconds| now().after(Duration::from_secs(seconds));
    assert_eq!(bed.registrar.identity_condition(&uid, at(0)).status, Status::True);
    bed.sight(&uid, "boot-a", at(0)).unwrap();
    bed.sight(&uid, "boot-b", at(10)).unwrap();
    bed.sight(&uid, "boot-a", at(30)).unwrap();
    let error = bed.sight(&uid, "boot-b", at(40)).unwrap_err();
    assert_eq!((error.reason(), error.to_api().code), ("IdentityCloned", 409));
    assert!(error.to_string().contains("boot-a") && error.to_string().contains("boot-b"), "{error}");
    // The rightful one goes on, also after a reboot; the twin stays stopped.
    bed.sight(&uid, "boot-a", at(60)).unwrap();
    bed.sight(&uid, "boot-a2", at(90)).unwrap();
    assert_eq!(reason(bed.sight(&uid, "boot-b", at(100))), "IdentityCloned");
    let condition = bed.registrar.identity_condition(&uid, at(100));
    assert_eq!((condition.status, &condition.reason), (Status::False, &ReasonCode::IdentityCloned));
    assert_eq!(condition.last_transition_time, at(40));
    assert!(condition.message.contains("n1") && !condition.advice.is_empty());

    // A restart forgets the sightings and keeps the verdict.
    bed.registrar.save_found().await;
    bed.restart(at(110)).await;
    assert_eq!(bed.registrar.identity_condition(&uid, at(110)).status, Status::False);
    assert_eq!(reason(bed.sight(&uid, "boot-b", at(120))), "IdentityCloned");
    bed.sight(&uid, "boot-a2", at(125)).unwrap();
    // The twin is gone for the whole window: clear again, and stored so.
    bed.sight(&uid, "boot-a2", at(700)).unwrap();
    assert_eq!(bed.registrar.identity_condition(&uid, at(700)).status, Status::False);
    bed.sight(&uid, "boot-a2", at(721)).unwrap();
    assert_eq!(bed.registrar.identity_condition(&uid, at(721)).status, Status::True);
    bed.registrar.save_found().await;
    assert_eq!(bed.registrar.node(&uid).unwrap().clone, None);
}

#[tokio::test]
async fn a_twin_neither_hides_by_a_reboot_nor_writes_itself_into_the_record() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    let original = Machine::new("n1", "a");
    let copy = Identity { boot_id: "boot-b".to_owned(), ..Machine::new("n1", "b").identity };
    let uid = bed.admitted(&original, &token, now()).await.uid;
    let at = |seconds| now().after(Duration::from_secs(seconds));
    // The coordinator starts anew and hears the copy first, with its own marks.
    bed.sight(&uid, "boot-a", at(0)).unwrap();
    bed.restart(at(1)).await;
    let seen = |boot_id, identity, second| {
        let epoch = Uuid::from_u128(1);
        bed.registrar.observe(&uid, &Sighting { boot_id, epoch, identity, interval: None, at: at(second) })
    };
    seen("boot-a", None, 5).unwrap();
    seen("boot-b", Some(&copy), 10).unwrap();
    seen("boot-a", None, 20).unwrap();
    assert_eq!(reason(seen("boot-b", None, 30)), "IdentityCloned");
    bed.registrar.save_found().await;
    assert_eq!(bed.registrar.node(&uid).unwrap().identity, original.identity);
    // The copy reboots: two rounds later it is stopped again.
    for (boot, second) in [("boot-a", 40), ("boot-b2", 50), ("boot-a", 60)] {
        seen(boot, None, second).unwrap();
    }
    assert_eq!(reason(seen("boot-b2", None, 70)), "IdentityCloned");
    seen("boot-a", None, 80).unwrap();
}

#[tokio::test]
async fn whoever_is_heard_first_after_a_restart_the_known_boot_is_rightful() {
    let bed = Bed::new().await;
    let uid = bed.admitted(&Machine::new("n1", "a"), &bed.many().await, now()).await.uid;
    let at = |seconds| now().after(Duration::from_secs(seconds));
    for (boot, second) in [("boot-b", 0), ("boot-a", 10), ("boot-b", 20), ("boot-a", 30)] {
        bed.sight(&uid, boot, at(second)).unwrap();
    }
    assert_eq!(reason(bed.sight(&uid, "boot-b", at(40))), "IdentityCloned");
    bed.sight(&uid, "boot-a", at(50)).unwrap();
}

#[tokio::test]
async fn of_a_clone_the_one_that_lives_on_may_stay() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let uid = bed.admitted(&Machine::new("n1", "a"), &token, now()).await.uid;
    let at = |seconds| now().after(Duration::from_secs(seconds));
    for (boot, second) in [("boot-a", 0), ("boot-b", 10), ("boot-a", 30)] {
        bed.sight(&uid, boot, at(second)).unwrap();
    }
    assert!(bed.sight(&uid, "boot-b", at(40)).is_err());
    // The original is deleted, the copy goes on asking.
    assert!(bed.sight(&uid, "boot-b", at(600)).is_err());
    bed.sight(&uid, "boot-b", at(631)).unwrap();
    assert_eq!(bed.registrar.identity_condition(&uid, at(631)).status, Status::True);
}

#[tokio::test]
async fn reboots_and_restored_snapshots_are_no_clones() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let uid = bed.admitted(&Machine::new("n1", "a"), &token, now()).await.uid;
    for (n, boot) in ["a", "b", "c", "b", "d", "e", "d", "f"].into_iter().enumerate() {
        bed.sight(&uid, boot, now().after(Duration::from_secs(n as u64 * 20))).unwrap();
        bed.sight(&uid, "", now().after(Duration::from_secs(n as u64 * 20 + 1))).unwrap();
    }
    assert_eq!(bed.registrar.identity_condition(&uid, now()).status, Status::True);
}

#[tokio::test]
async fn nodes_of_one_template_may_not_both_live() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let template = |name: &str, mark: &str| {
        let mut m = Machine::new(name, mark);
        m.identity.machine_id_hash = "from the template".to_owned();
        m
    };
    let (a, b) = (template("n1", "a"), template("n2", "b"));
    let first = bed.admitted(&a, &token, now()).await.uid;
    let error = bed.enroll(&b, &token, now().after(Duration::from_secs(5))).await.unwrap_err();
    assert!(error.reason() == "IdentityInUse" && error.to_string().contains("machine-id"), "{error}");
    // The first is silent for a while and comes back: then both live.
    let later = now().after(HOUR);
    let second = bed.admitted(&b, &token, later).await.uid;
    bed.sight(&second, "boot-b", later).unwrap();
    bed.sight(&first, "boot-a", later).unwrap();
    let error = bed.sight(&second, "boot-b", later).unwrap_err();
    assert!(error.reason() == "IdentityCloned" && error.to_string().contains("n1"), "{error}");
    for uid in [&first, &second] {
        let condition = bed.registrar.identity_condition(uid, later);
        assert_eq!(condition.status, Status::False);
        assert!(
            condition.message.contains("n1") && condition.message.contains("n2"),
            "{}",
            condition.message
        );
    }
    // It gets a machine-id of its own and says so with its next report.
    let own = Identity { machine_id_hash: "its own".to_owned(), ..b.identity.clone() };
    let sighting = Sighting {
        boot_id: "boot-b2",
        epoch: Uuid::from_u128(1),
        identity: Some(&own),
        interval: Some(Duration::from_secs(30)),
        at: later,
    };
    bed.registrar.observe(&second, &sighting).unwrap();
    bed.registrar.save_found().await;
    bed.sight(&second, "boot-b2", later).unwrap();
    for uid in [&first, &second] {
        assert_eq!(bed.registrar.identity_condition(uid, later).status, Status::True);
    }
}
