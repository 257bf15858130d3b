//! Advice to restart against whatever else of the same node forbids one, or says that this server does not come back.

use super::*;
use crate::etcd_folder::folder;
use crate::world::{etcd_from, kill, orphan, status_mut};

fn node(c: CertificatesFacts, etcd: EtcdFacts) -> NodeFacts {
    world::node_facts(CheckFacts {
        certificates: Some(known(c)),
        etcd: Some(known(etcd)),
        ..CheckFacts::default()
    })
}

fn alarm(kind: &str, n: usize) -> Fact<Vec<AlarmFacts>> {
    known(vec![AlarmFacts { member_id: format!("{n:016x}"), kind: kind.into() }])
}

/// States of etcd under which nobody restarts this server, and the condition that says why.
fn states() -> Vec<(EtcdFacts, &'static str, &'static str)> {
    let of = |change: &dyn Fn(&mut EtcdFacts)| etcd_from(1, 3).with(|e| change(e));
    vec![
        (of(&|e| e.alarms = alarm("NOSPACE", 1)), "EtcdSpace", "NOSPACE"),
        (of(&|e| e.alarms = alarm("NOSPACE", 2)), "EtcdSpace", "NOSPACE"),
        (of(&|e| e.alarms = alarm("CORRUPT", 1)), "EtcdSpace", "CORRUPT"),
        (of(&|e| e.alarms = alarm("CORRUPT", 3)), "EtcdSpace", "CORRUPT"),
        (of(&|e| e.alarms = alarm("HOT", 3)), "EtcdSpace", "HOT"),
        (of(&|e| e.data_folder = folder(|f| f.free_bytes = Some(1000))), "EtcdSpace", "is full"),
        (
            of(&|e| {
                status_mut(e, 1).db_size_bytes = 3_000_000_000;
                e.data_folder = folder(|f| f.free_bytes = Some(500_000_000));
            }),
            "EtcdSpace",
            "no room for the copy",
        ),
        (of(&|e| e.data_folder = folder(|f| f.tombstone = true)), "EtcdMemberHealthy", "tombstone"),
        (
            of(&|e| {
                e.expected = Some(known(ExpectedMember {
                    name: "n1".into(),
                    peer_urls: vec!["https://10.0.0.99:2380".into()],
                    client_urls: Vec::new(),
                    election_timeout_ms: None,
                    heartbeat_ms: None,
                }));
            }),
            "EtcdMembership",
            "another peer URL",
        ),
    ]
}

#[test]
fn no_restart_is_promised_while_etcd_forbids_one() {
    for (etcd, see, why) in states() {
        for days in [20, 5, -1] {
            let j = judge(&node(certificates(NEW, days), etcd.clone()));
            let told = j.findings.iter().filter(|f| f.condition_type == ConditionType::CertificatesValid);
            let told: Vec<&Finding> = told.filter(|f| f.advice.contains("restart of rke2-server")).collect();
            assert!(told.len() > 1, "{j:#?}");
            for f in told {
                let advice = &f.advice;
                assert!(
                    advice.starts_with("No restart yet: ")
                        && advice.contains(why)
                        && advice.contains(&format!("(see {see})"))
                        && advice.contains("After that: ")
                        && advice.contains("See EtcdQuorum again")
                        && !advice.contains("etcd bears it now")
                        && !advice.contains("takes nothing"),
                    "{advice}"
                );
            }
            for of in [ConditionType::EtcdQuorum, ConditionType::EtcdMembership] {
                let f = crate::only(&j, of);
                assert!(!f.advice.contains("exception"), "{f:?}");
            }
        }
    }
}

#[test]
fn what_is_found_in_the_files_goes_first_too() {
    let garbage = || unknown(UnknownCause::InvalidInput);
    let mismatched = |i: usize| move |c: &mut CertificatesFacts| c.files[i].key = Some(known(false));
    type Spoil = Box<dyn Fn(&mut CertificatesFacts)>;
    let cases: [(&str, &str, Spoil); 5] = [
        (
            "CertificatesValid/files",
            "server-ca.crt is missing or unreadable",
            Box::new(|c| c.files[0].certificates = world::absent("file")),
        ),
        (
            "CertificatesValid/files",
            "server-ca.crt is missing or unreadable",
            Box::new(move |c| c.files[0].certificates = garbage()),
        ),
        ("CertificatesValid/etcd:2379", "are of different pairs", Box::new(mismatched(1))),
        ("CertificatesValid/files", "are of different pairs", Box::new(mismatched(2))),
        (
            "CertificatesValid/files",
            "the key of",
            Box::new(|c| c.files[2].key = Some(unknown(UnknownCause::InvalidInput))),
        ),
    ];
    for (see, why, change) in cases {
        let j = judge(&node(certificates(NEW, 20).with(change), etcd_from(1, 3)));
        let f = about(&j, "supervisor:9345");
        assert!(
            f.advice.starts_with("No restart yet: ")
                && f.advice.contains(why)
                && f.advice.contains(&format!("(see {see})")),
            "{f:#?}"
        );
        assert!(
            j.findings
                .iter()
                .all(|f| !f.advice.contains("etcd bears it now") || f.advice.contains("Move both"))
        );
    }
    // The way out of such a pair is not forbidden by the pair itself.
    let own = certificates(NEW, 265).with(mismatched(1));
    let f = about(&judge(&node(own, etcd_from(1, 3))), "etcd:2379");
    assert!(f.advice.contains("Without one: Move both away and restart rke2-server"), "{f:#?}");
}

#[test]
fn a_missing_or_unreadable_authority_is_an_error_and_nothing_is_started_before_it_is_back() {
    for fact in [world::absent("file"), unknown(UnknownCause::InvalidInput)] {
        let c = certificates(NEW, 265).with(|c| c.files[0].certificates = fact);
        let f = about(&judge(&node(c, etcd_from(1, 3))), "files");
        let words =
            ["server-ca.crt", "from another server of this cluster", "do not restart rke2-server before"];
        expect(&f, Status::False, Severity::Error, R::CertificateUnreadable, &words);
        assert!(!f.advice.contains("etcd bears it now"), "{f:#?}");
    }
}

#[test]
fn a_lost_quorum_comes_before_a_certificate_that_is_not_why() {
    let lost = etcd_from(1, 3).with(|e| {
        orphan(e, 1);
        kill(e, 2, 600);
        kill(e, 3, 600);
    });
    let j = judge(&node(certificates(NEW, 20), lost));
    for subject in ["etcd:2379", "supervisor:9345", "files"] {
        let f = about(&j, subject);
        assert!(
            f.advice.starts_with("Quorum first: it is lost (3 voters, quorum 2, 0 healthy")
                && !f.advice.contains("takes nothing"),
            "{f:#?}"
        );
    }
}

#[test]
fn a_reset_that_is_done_hinders_no_start() {
    let reset = etcd_from(1, 3).with(|e| e.data_folder = folder(|f| f.reset_flag = true));
    let f = about(&judge(&node(certificates(NEW, 20), reset)), "etcd:2379");
    assert!(f.advice.starts_with("A restart of rke2-server renews it"), "{f:#?}");
    // Unless its member is down: then it is to be known first which data counts.
    let down = etcd_from(1, 3).with(|e| {
        kill(e, 1, 600);
        e.data_folder = folder(|f| f.reset_flag = true);
    });
    let f = about(&judge(&node(certificates(NEW, -1), down)), "etcd:2379");
    assert!(
        f.advice.starts_with("No restart yet: the cluster was reset on this server")
            && f.advice.contains("(see EtcdMemberHealthy)"),
        "{f:#?}"
    );
}

#[test]
fn an_authority_of_etcds_that_has_ended_is_named_and_no_restart_is_the_cure() {
    let lost = |e: &mut EtcdFacts| (1..=3).for_each(|n| orphan(e, n));
    let refused = |e: &mut EtcdFacts| {
        e.members = unknown(UnknownCause::TlsFailed);
        e.endpoints.iter_mut().for_each(|e| e.status = unknown(UnknownCause::TlsFailed));
    };
    // An etcd with an authority of its own, which has ended, beside leaves that end of themselves or do not.
    for days in [-2, 20, 265] {
        let c = certificates(NEW, days).with(|c| {
            let (ca, path) =
                (format!("{TLS}/etcd/peer-ca.crt"), format!("{TLS}/etcd/peer-server-client.crt"));
            let ended = CertificateFacts {
                subject: "CN=etcd-peer-ca".into(),
                sha256: "peer-ca".into(),
                ..authority(-2)
            };
            let issued = CertificateFacts { issuer: "CN=etcd-peer-ca".into(), ..leaf("peer", days) };
            c.files.push(certificate_file(&ca, Use::Authority, vec![ended]));
            c.served.push(served("etcd-peer", 2380, &path, vec![issued]));
        });
        for spoil in [&lost as &dyn Fn(&mut EtcdFacts), &refused] {
            let j = judge(&node(c.clone(), etcd_from(1, 3).with(|e| spoil(e))));
            assert!(
                about(&j, "etcd-peer:2380").advice.starts_with("No restart renews an authority"),
                "{j:#?}"
            );
            for of in [ConditionType::EtcdQuorum, ConditionType::EtcdMemberHealthy] {
                let f = crate::only(&j, of);
                // Where the leaf of the other port has ended as well, either names what is to be done.
                let named = [
                    "The authority behind the certificate of etcd-peer at 127.0.0.1:2380 ended on",
                    "The certificate of etcd at",
                ];
                assert!(named.iter().any(|words| f.advice.contains(words)), "{f:#?}");
                assert!(f.advice.contains("what has to be done before a restart"), "{f:#?}");
                assert!(
                    !f.advice.contains("the restart of exactly") && !f.advice.contains("is the cure"),
                    "{f:#?}"
                );
            }
            if days < 120 {
                let f = about(&j, "supervisor:9345");
                assert!(
                    f.advice.starts_with("No restart yet: the authority behind the certificate of etcd-peer"),
                    "{f:#?}"
                );
                assert!(f.advice.contains("which no restart renews (see CertificatesValid/ca)"), "{f:#?}");
            }
        }
    }
}
