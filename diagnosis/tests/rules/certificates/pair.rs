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
fn a_key_that_fits_or_is_not_there_or_not_readable_is_no_mismatch() {
    let path = format!("{TLS}{SERVER}");
    let denied = Some(unknown(UnknownCause::PermissionDenied));
    for key in [
        None,
        key(&path, true),
        Some(world::absent("x.key")),
        denied,
        Some(unknown(UnknownCause::Unsupported)),
    ] {
        let j = etcd_with(key, known(vec![leaf("etcd", 265)]));
        assert!(j.findings.iter().all(|f| f.severity == Severity::Ok), "{j:#?}");
    }
    let garbage =
        Fact::unknown(UnknownCause::InvalidInput, "no PEM private key in it", "/x.key", world::now());
    expect(
        &about(&etcd_with(Some(garbage), known(vec![leaf("etcd", 265)])), "files"),
        Status::False,
        Severity::Error,
        R::CertificateUnreadable,
        &["/x.key holds no private key", "server-client.crt"],
    );
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
