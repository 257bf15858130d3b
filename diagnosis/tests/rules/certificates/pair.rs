//! Keys of other pairs, and signatures that are refused.

use super::*;

const SERVER: &str = "/etcd/server-client.crt";

fn key(path: &str, fits: bool) -> Option<Fact<bool>> {
    Some(Fact::known(fits, path.replace(".crt", ".key"), world::now()))
}

/// The file of the etcd port has this key beside it.
fn etcd_with(key: Option<Fact<bool>>, chain: Fact<Vec<CertificateFacts>>) -> Judgement {
    judged(certificates(NEW, 265).with(|c| {
        c.files[1].key = key;
        c.served[0].chain = chain;
    }))
}

#[test]
fn a_key_of_another_pair_is_named_whatever_the_port_does() {
    let path = format!("{TLS}{SERVER}");
    let nobody = Fact::not_applicable("nobody listens at 127.0.0.1:2379", world::now());
    for (chain, subject, words) in [
        (known(vec![leaf("etcd", 265)]), "etcd:2379", "still serves it with the key it holds"),
        (known(vec![leaf("old", 200)]), "etcd:2379", "still serves the pair it holds"),
        (unknown(UnknownCause::TlsFailed), "etcd:2379", "gives no certificate"),
        (nobody, "files", "nobody listens at 127.0.0.1:2379: etcd does not start with this pair"),
    ] {
        let j = etcd_with(key(&path, false), chain);
        let both = format!("{TLS}{SERVER} and {TLS}/etcd/server-client.key are of different pairs");
        let words = [both.as_str(), words, "Restart nothing with this pair", "openssl pkey -pubout"];
        expect(&about(&j, subject), Status::False, Severity::Error, R::CertificateKeyMismatch, &words);
        let told = j.findings.iter().filter(|f| f.reason == R::CertificateKeyMismatch).count();
        assert_eq!(told, 1, "{j:#?}");
    }
}

#[test]
fn a_key_that_fits_and_one_that_nobody_looked_for_are_good() {
    for key in [None, key(&format!("{TLS}{SERVER}"), true)] {
        let j = etcd_with(key, known(vec![leaf("etcd", 265)]));
        assert!(j.findings.iter().all(|f| f.severity == Severity::Ok), "{j:#?}");
    }
}

/// A key beside each file in turn, and what is said of the files then.
fn beside(place: usize, key: &Fact<bool>) -> Finding {
    about(&judged(certificates(NEW, 265).with(|c| c.files[place].key = Some(key.clone()))), "files")
}

#[test]
fn a_key_that_is_not_there_or_is_none_is_told_of_every_file_in_use() {
    let of = |detail: &str| Fact::unknown(UnknownCause::InvalidInput, detail, "/x.key", world::now());
    for (key, words) in [
        (world::absent("/x.key"), "The private key /x.key is missing"),
        (of("a pipe, not a regular file"), "/x.key holds no private key (a pipe, not a regular file)"),
        (of("a folder, not a regular file"), "/x.key holds no private key (a folder"),
        (of("no PEM private key in it"), "/x.key holds no private key"),
    ] {
        for (place, file) in [(1, "server-client.crt"), (2, "client-admin.crt"), (3, "client-kubelet.crt")] {
            let f = beside(place, &key);
            let words = [words, file, "does not start", "Restart nothing with this pair", "ls -l /x.key"];
            expect(&f, Status::False, Severity::Error, R::CertificateUnreadable, &words);
        }
        // With such a file on the way nobody restarts anything for another reason.
        let c = certificates(NEW, 5).with(|c| c.files[2].key = Some(key.clone()));
        let f = about(&judged(c), "etcd:2379");
        assert!(f.advice.contains("the key of") && f.advice.contains("client-admin.crt is "), "{f:#?}");
    }
    let all = certificates(NEW, 265).with(|c| {
        for file in &mut c.files[1..] {
            file.key = Some(world::absent(&file.path.replace(".crt", ".key")));
        }
    });
    let words = ["server-client.key is missing", "The same holds for the key of", "client-kubelet.crt"];
    expect(&about(&judged(all), "files"), Status::False, Severity::Error, R::CertificateUnreadable, &words);
}

#[test]
fn a_key_that_could_not_be_read_is_never_healthy() {
    for cause in [
        UnknownCause::PermissionDenied,
        UnknownCause::Unsupported,
        UnknownCause::TimedOut,
        UnknownCause::IoError,
        UnknownCause::InvalidAnswer,
    ] {
        for place in 1..=3 {
            let f = beside(place, &unknown(cause.clone()));
            assert_eq!((f.status, f.severity), (Status::Unknown, Severity::Warn), "{f:#?}");
            assert_eq!(f.reason, R::from(&cause));
            assert!(f.advice.contains("must print the same") && !f.advice.contains("The peer"), "{f:#?}");
        }
    }
    // What is known to be wrong stands before it.
    let c = certificates(NEW, 265).with(|c| {
        c.files[1].key = Some(unknown(UnknownCause::TimedOut));
        c.files[2].key = Some(world::absent("/x.key"));
    });
    let f = about(&judged(c), "files");
    expect(&f, Status::False, Severity::Error, R::CertificateUnreadable, &["is missing", "is not known"]);
}

#[test]
fn nobody_needs_the_key_of_a_file_that_is_not_used() {
    let c = certificates(NEW, 265).with(|c| {
        c.files[2].usage = CertificateUse::Foreign;
        c.files[2].key = Some(world::absent("/x.key"));
    });
    assert!(judged(c).findings.iter().all(|f| f.severity == Severity::Ok));
}

#[test]
fn files_that_no_port_shows_have_keys_as_well() {
    let c = certificates(NEW, 265).with(|c| {
        for file in &mut c.files[2..] {
            file.key = key(&file.path, false);
        }
    });
    expect(
        &about(&judged(c), "files"),
        Status::False,
        Severity::Error,
        R::CertificateKeyMismatch,
        &["client-admin.crt", "does not start", "The same holds for", "client-kubelet.crt"],
    );
}

#[test]
fn a_member_with_such_a_pair_is_told_beside_the_quorum() {
    let facts = world::node_facts(CheckFacts {
        certificates: Some(known(certificates(NEW, 265).with(|c| {
            c.files[1].key = key(&c.files[1].path, false);
            c.served[0].chain = unknown(UnknownCause::TlsFailed);
        }))),
        etcd: Some(known(world::etcd(3).with(|e| e.endpoints[0].status = unknown(UnknownCause::TlsFailed)))),
        ..CheckFacts::default()
    });
    let quorum = crate::only(&judge(&facts), ConditionType::EtcdQuorum);
    assert!(quorum.advice.contains("server-client.crt and its key are of different pairs"), "{quorum:?}");
}

#[test]
fn signatures_that_are_refused_are_named_wherever_they_stand() {
    let by = |algorithm: &str, c: CertificateFacts| CertificateFacts { signature: algorithm.into(), ..c };
    for (algorithm, refused) in [
        ("sha1WithRSAEncryption", true),
        ("md5WithRSAEncryption", true),
        ("md2WithRSAEncryption", true),
        ("ecdsa-with-SHA1", true),
        ("dsaWithSHA1", true),
        ("sha1WithRSA", true),
        ("sha256WithRSAEncryption", false),
        ("ecdsa-with-SHA384", false),
        ("ED25519", false),
        ("rsassaPss", false),
        ("1.2.3.4", false),
        ("", false),
    ] {
        let at_port = certificates(NEW, 265)
            .with(|c| c.served[0].chain = known(vec![by(algorithm, leaf("etcd", 265))]));
        let stored = certificates(NEW, 265)
            .with(|c| c.files[2].certificates = known(vec![by(algorithm, leaf("admin", 265))]));
        let between = certificates(NEW, 265).with(|c| {
            let signed = CertificateFacts { issuer: "CN=middle".into(), ..leaf("etcd", 265) };
            let middle =
                CertificateFacts { subject: "CN=middle".into(), sha256: "m".into(), ..authority(1000) };
            let middle = CertificateFacts { issuer: "CN=rke2-server-ca".into(), ..middle };
            c.files[1].certificates = known(vec![signed.clone()]);
            c.served[0].chain = known(vec![signed, by(algorithm, middle)]);
        });
        for (c, subject) in [(at_port, "etcd:2379"), (stored, "files"), (between, "etcd:2379")] {
            let finding = about(&judged(c), subject);
            if refused {
                expect(
                    &finding,
                    Status::True,
                    Severity::Warn,
                    R::CertificateSignatureWeak,
                    &[algorithm, "Go 1.18"],
                );
            } else {
                assert_eq!(finding.severity, Severity::Ok, "{finding:#?}");
            }
        }
        // What signed itself is trusted for what it is.
        let root = certificates(NEW, 265).with(|c| {
            let own = CertificateFacts { issuer: "CN=rke2-server-ca".into(), ..authority(3000) };
            c.files[0].certificates = known(vec![by(algorithm, own)]);
        });
        assert!(judged(root).findings.iter().all(|f| f.severity == Severity::Ok), "{algorithm}");
    }
}
