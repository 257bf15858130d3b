//! `RancherCA`: the checksum of `/cacerts`, the modes of verification and the chain.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::{Backend, Balancer};
use outrider_protocol::*;

use crate::world::{self, Change, balancer, http, known, probe, published, unknown};
use crate::{expect, only};

const LB: &str = "192.0.2.10:443";

/// `/cacerts` with the checksum and the mode that are configured.
fn judged(ca: CaFacts, checksum: &str, mode: &str) -> Finding {
    of(balancer(vec![probe(K::Root, Balancer, LB, Some(http(200, "", "")))]).with(|b| {
        b.ca = Some(known(ca));
        b.ca_checksum = checksum.into();
        b.agent_tls_mode = mode.into();
    }))
}

fn of(b: LoadBalancerFacts) -> Finding {
    let facts =
        world::node_facts(CheckFacts { load_balancer: Some(known(vec![b])), ..CheckFacts::default() });
    only(&judge(&facts), ConditionType::RancherCa)
}

fn right() -> String {
    "11".repeat(32)
}

fn wrong() -> String {
    "22".repeat(32)
}

fn empty() -> CaFacts {
    published().with(|ca| {
        ca.bytes = 0;
        ca.sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".into();
        ca.body_start = String::new();
        ca.certificates = world::absent("it is empty");
        ca.trusts_chain = known("/cacerts holds no certificate: it is empty".into());
    })
}

fn public(ca: CaFacts) -> CaFacts {
    ca.with(|ca| ca.system_trusts_chain = known(String::new()))
}

#[test]
fn the_right_checksum_in_any_spelling() {
    let upper = right().to_uppercase();
    let colons: String = right().as_bytes().chunks(2).map(|c| format!("{}:", c.escape_ascii())).collect();
    for given in [
        "",
        &right(),
        &upper,
        colons.trim_end_matches(':'),
        &format!("sha256:{}", right()),
        &format!("{}\n", right()),
    ] {
        for mode in ["", "strict", "system-store"] {
            let f = judged(published(), given, mode);
            expect(&f, Status::True, Severity::Ok, ReasonCode::CaTrusted, &["leads to the CA"]);
        }
    }
}

#[test]
fn a_wrong_checksum_says_what_it_is_the_checksum_of() {
    let candidate = |what: &str| CaCandidate { what: what.into(), sha256: wrong() };
    let told =
        format!("Configured cacerts checksum ({}) does not match given --ca-checksum ({})", right(), wrong());
    for what in ["the bytes of /cacerts without a final newline", "the fingerprint of CN=ca in /cacerts"] {
        let f = judged(published().with(|ca| ca.candidates = vec![candidate(what)]), &wrong(), "strict");
        let words = [&told, what, "exactly as /cacerts serves them", &right()];
        expect(&f, Status::False, Severity::Error, ReasonCode::CaChecksumMismatch, &words);
    }
    let others = vec![CaCandidate { what: "the file /etc/ca.pem".into(), sha256: "33".repeat(32) }];
    let f = judged(published().with(|ca| ca.candidates = others), &wrong(), "");
    let words = [&told, "tried: the file /etc/ca.pem", "another Rancher", "CN=rke2-server-ca"];
    expect(&f, Status::False, Severity::Error, ReasonCode::CaChecksumMismatch, &words);
    // Discarded where the system's roots suffice.
    let f = judged(public(published()), &wrong(), "system-store");
    expect(&f, Status::True, Severity::Info, ReasonCode::CaLeftOver, &["discard"]);
    let f = judged(public(published()), &wrong(), "strict");
    assert_eq!(f.reason, ReasonCode::CaChecksumMismatch);
    let f = judged(published(), &wrong(), "system-store");
    assert_eq!(f.reason, ReasonCode::CaChecksumMismatch);
}

#[test]
fn what_can_be_no_checksum_is_said_before_anything_is_compared() {
    for (given, word) in [
        ("da39a3ee5e6b4b0d3255bfef95601890afd80709", "SHA-1"),
        ("d41d8cd98f00b204e9800998ecf8427e", "MD5"),
        ("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "base64"),
        ("K10abc::server:x", "K3s or RKE2"),
        ("OR1abc::x", "Outrider"),
        ("11", "2 characters"),
        (&"g".repeat(64), "64 characters"),
        ("é", "1 characters"),
    ] {
        let f = judged(published(), given, "strict");
        let words = [word, "64 hex digits", "curl -ks https://rancher.x/cacerts | sha256sum"];
        expect(&f, Status::False, Severity::Error, ReasonCode::CaChecksumMalformed, &words);
    }
}

#[test]
fn empty_is_certain_failure_or_right_by_the_mode() {
    use ReasonCode::{
        CaCertsEmpty as Empty, CaChainMismatch as Mismatch, CaLeftOver as LeftOver, CaTrusted as Trusted,
    };
    for (is_public, given, mode, status, severity, reason, word) in [
        (false, "", "strict", Status::False, Severity::Error, Empty, "Aborting system-agent installation"),
        (true, "", "strict", Status::False, Severity::Error, Empty, "certainly"),
        (true, "x", "strict", Status::False, Severity::Error, Empty, "does not match given --ca-checksum"),
        (true, "x", "", Status::False, Severity::Error, Empty, "does not match given --ca-checksum"),
        (true, "", "system-store", Status::True, Severity::Ok, Trusted, "own roots"),
        (true, "x", "system-store", Status::True, Severity::Info, LeftOver, "discard"),
        (false, "", "system-store", Status::False, Severity::Error, Mismatch, "nothing to trust"),
        (false, "x", "system-store", Status::False, Severity::Error, Mismatch, "nothing to trust"),
        (true, "", "", Status::True, Severity::Warn, Empty, "agent-tls-mode"),
        (false, "", "", Status::False, Severity::Error, Mismatch, "nothing to trust"),
    ] {
        let ca = if is_public { public(empty()) } else { empty() };
        let given = if given.is_empty() { String::new() } else { wrong() };
        expect(&judged(ca, &given, mode), status, severity, reason, &[word]);
    }
    // Line ends alone are empty too.
    let blank = empty().with(|ca| ca.bytes = 2);
    assert_eq!(judged(blank, "", "strict").reason, Empty);
}

#[test]
fn a_page_in_place_of_certificates_is_named() {
    for (body, why, words) in [
        ("<!DOCTYPE html><html>", "no PEM certificate", ["a web page", "<!DOCTYPE html>"]),
        (
            "a certificate",
            "no PEM certificate (-----BEGIN CERTIFICATE-----) in it",
            ["no PEM certificate", "13 bytes"],
        ),
        ("-----BEGIN CERTIFICATE-----", "the END line is missing", ["the END line is missing", "tls-ca"]),
    ] {
        let ca = published().with(|ca| {
            ca.body_start = body.into();
            ca.bytes = body.len() as u64;
            ca.certificates = world::absent(why);
        });
        expect(&judged(ca, "", ""), Status::False, Severity::Error, ReasonCode::CaCertsNotPem, &words);
    }
}

#[test]
fn several_ranchers_behind_one_name() {
    let gives = |target, peer: &str, sum: &str| {
        probe(
            K::CaCerts,
            target,
            peer,
            Some(http(200, "", "-----BEGIN").with(|a| a.body_sha256 = sum.into())),
        )
    };
    let b = |probes| {
        balancer(probes).with(|b| {
            b.ca = Some(known(published()));
            b.ca_checksum = right();
        })
    };
    let f = of(b(vec![gives(Balancer, LB, &right()), gives(Backend, "10.0.0.2:443", &wrong())]));
    let words = ["2 different", "the one that is given", "10.0.0.2:443", "rollout restart"];
    expect(&f, Status::False, Severity::Error, ReasonCode::CaCertsDiffer, &words);
    let f = of(b(vec![gives(Balancer, LB, &right()), gives(Backend, "10.0.0.2:443", &right())]));
    assert_eq!(f.reason, ReasonCode::CaTrusted);
}

#[test]
fn a_chain_that_does_not_lead_to_what_is_published() {
    let foreign = || published().with(|ca| ca.trusts_chain = known("unknown issuer".into()));
    for (ca, mode, status, severity, reason, word) in [
        (
            foreign(),
            "strict",
            Status::False,
            Severity::Error,
            ReasonCode::CaChainMismatch,
            "Agents trust /cacerts and fail",
        ),
        (
            foreign(),
            "system-store",
            Status::False,
            Severity::Error,
            ReasonCode::CaChainMismatch,
            "unknown issuer",
        ),
        (
            public(foreign()),
            "strict",
            Status::False,
            Severity::Error,
            ReasonCode::CaChainMismatch,
            "old CA was kept",
        ),
        (
            public(foreign()),
            "",
            Status::True,
            Severity::Warn,
            ReasonCode::CaChainMismatch,
            "in system-store mode they work",
        ),
        (
            public(foreign()),
            "system-store",
            Status::True,
            Severity::Info,
            ReasonCode::CaLeftOver,
            "fail once",
        ),
    ] {
        expect(&judged(ca, &right(), mode), status, severity, reason, &[word]);
    }
    let dates = published()
        .with(|ca| ca.trusts_chain = known("the certificate expired 3 days ago by this clock".into()));
    expect(&judged(dates, "", "strict"), Status::Unknown, Severity::Info, ReasonCode::TlsFailed, &["dates"]);
}

#[test]
fn a_published_ca_that_ends() {
    for (days, status, severity) in [
        (-1, Status::False, Severity::Error),
        (20, Status::True, Severity::Warn),
        (31, Status::True, Severity::Ok),
    ] {
        let f = judged(published().with(|ca| ca.certificates = known(vec![world::authority(days)])), "", "");
        assert_eq!((f.status, f.severity), (status, severity), "{f:#?}");
        assert_eq!(f.reason == ReasonCode::CertificateAuthorityEnding, severity > Severity::Ok);
    }
}

#[test]
fn what_was_not_read_is_unknown() {
    let f = of(balancer(vec![]));
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::NotYetRead, &["rancher.x"]);
    let f = of(balancer(vec![]).with(|b| b.ca = Some(unknown(UnknownCause::TimedOut))));
    assert_eq!((f.status, f.reason), (Status::Unknown, ReasonCode::TimedOut));
    let mut silent = probe(K::CaCerts, Balancer, LB, None);
    silent.http = unknown(UnknownCause::TimedOut);
    assert_eq!(of(balancer(vec![silent])).reason, ReasonCode::TimedOut);
    for status in [302, 401, 404, 502] {
        let f = judged(published().with(|ca| ca.status = status), &right(), "strict");
        expect(&f, Status::Unknown, Severity::Info, ReasonCode::InvalidAnswer, &["LoadBalancerForwarding"]);
    }
}

#[test]
fn a_path_that_is_broken_while_others_work_is_an_error() {
    let b = |status: u16, ping: &str| {
        let ca = published().with(|ca| ca.status = status);
        let tried = probe(K::CaCerts, Balancer, LB, Some(http(status, "", "")));
        balancer(vec![probe(K::Ping, Balancer, LB, Some(http(200, "", ping))), tried]).with(|b| {
            b.ca = Some(known(ca));
            b.ca_checksum = right();
            b.agent_tls_mode = "strict".into();
        })
    };
    for status in [302, 404, 500] {
        let words = [&format!("answers {status}"), "1 of 1 tries", "take the checksum of that page"];
        let f = of(b(status, "pong"));
        expect(&f, Status::False, Severity::Error, ReasonCode::CaCertsNotPem, &words.map(|w| w as &str));
        // What else is wrong is told by LoadBalancerForwarding.
        assert_eq!(of(b(status, "a web page")).status, Status::Unknown);
        // Such agents do not need it.
        let f = of(b(status, "pong").with(|b| {
            b.agent_tls_mode = "system-store".into();
            b.ca = Some(known(public(published().with(|ca| ca.status = status))));
        }));
        assert_eq!(f.status, Status::Unknown, "{f:#?}");
    }
    assert_eq!(of(b(200, "pong")).reason, ReasonCode::CaTrusted);
    // Now and then is enough.
    let f =
        of(b(200, "pong").with(|b| b.probes.push(probe(K::CaCerts, Balancer, LB, Some(http(503, "", ""))))));
    expect(&f, Status::False, Severity::Error, ReasonCode::CaCertsNotPem, &["answers 503", "1 of 2"]);
}

#[test]
fn the_checksum_of_the_ca_that_signed_is_kept() {
    let file = vec![CaCandidate { what: "the file /etc/ca.pem".into(), sha256: wrong() }];
    let foreign = published().with(|ca| {
        ca.candidates = file;
        ca.trusts_chain = known("unknown issuer".into());
    });
    let f = judged(foreign.clone(), &wrong(), "strict");
    let words = ["publishes another CA than the one that signed", "Keep the checksum"];
    expect(&f, Status::False, Severity::Error, ReasonCode::CaChecksumMismatch, &words);
    // Where that CA is not known to have signed, neither checksum is right yet.
    let untrusted = probe(K::Root, Balancer, LB, Some(http(200, "", ""))).with(|p| {
        if let Fact::Known { value, .. } = &mut p.tls {
            value.trust = known("unknown issuer".into());
        }
    });
    let f = of(balancer(vec![untrusted]).with(|b| {
        b.ca = Some(known(foreign.clone()));
        b.ca_checksum = wrong();
    }));
    let words = ["First publish the CA that issued", "does not lead to what /cacerts publishes"];
    expect(&f, Status::False, Severity::Error, ReasonCode::CaChecksumMismatch, &words);
    // And where /cacerts is right, the checksum is what is wrong.
    let f = judged(foreign.with(|ca| ca.trusts_chain = known(String::new())), &wrong(), "strict");
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::CaChecksumMismatch,
        &["exactly as /cacerts serves"],
    );
}

#[test]
fn a_part_has_no_checksum() {
    let much = published().with(|ca| (ca.bytes, ca.sha256) = (1 << 20, String::new()));
    for given in [String::new(), wrong()] {
        let f = judged(much.clone(), &given, "strict");
        expect(
            &f,
            Status::Unknown,
            Severity::Warn,
            ReasonCode::InvalidAnswer,
            &["more than 1 MiB, not hashed"],
        );
    }
}

/// Agents trust what is published as a whole, so a CA that nothing hangs on may end.
#[test]
fn an_old_ca_beside_the_one_that_signed() {
    let judged_with = |published: Vec<CertificateFacts>, issuer: &str| {
        let mut p = probe(K::Root, Balancer, LB, Some(http(200, "", "")));
        if let Fact::Known { value, .. } = &mut p.tls {
            value.chain[0].issuer = issuer.into();
        }
        of(balancer(vec![p]).with(|b| {
            b.ca = Some(known(self::published().with(|ca| ca.certificates = known(published))));
        }))
    };
    let ca = |subject: &str, days: i64| CertificateFacts {
        subject: subject.into(),
        sha256: format!("{subject} {days}"),
        ..world::authority(days)
    };
    let reason = ReasonCode::CertificateAuthorityEnding;
    let f = judged_with(vec![ca("CN=now", 3000), ca("CN=old", -3)], "CN=now");
    let words = ["CN=old", "An old CA", "Agents work", "another checksum"];
    expect(&f, Status::True, Severity::Info, reason.clone(), &words);
    // The same by the name that was renewed.
    assert_eq!(judged_with(vec![ca("CN=now", 3000), ca("CN=now", -3)], "CN=now").severity, Severity::Info);
    // Soon is no news of one that nobody needs.
    assert_eq!(
        judged_with(vec![ca("CN=now", 3000), ca("CN=old", 3)], "CN=now").reason,
        ReasonCode::CaTrusted
    );
    let f = judged_with(vec![ca("CN=now", 3000), ca("CN=old", -3)], "CN=old");
    expect(&f, Status::False, Severity::Error, reason.clone(), &["Issue a new CA"]);
    assert_eq!(judged_with(vec![ca("CN=now", 3)], "CN=now").severity, Severity::Warn);
    // Nothing tells which of them it is.
    assert_eq!(judged_with(vec![ca("CN=now", 3000), ca("CN=old", -3)], "CN=?").severity, Severity::Error);
}

#[test]
fn a_web_page_that_agents_in_system_store_mode_do_without() {
    let page = || {
        published().with(|ca| {
            ca.body_start = "<html>login".into();
            ca.certificates = world::absent("no PEM certificate");
        })
    };
    let f = judged(public(page()), "", "system-store");
    expect(&f, Status::True, Severity::Info, ReasonCode::CaLeftOver, &["a web page", "do without it"]);
    for f in [judged(public(page()), "", "strict"), judged(page(), "", "system-store")] {
        expect(&f, Status::False, Severity::Error, ReasonCode::CaCertsNotPem, &["a web page"]);
    }
}

#[test]
fn a_checksum_of_nothing_and_roots_that_are_not_known() {
    let f = judged(empty(), &empty().sha256, "strict");
    expect(&f, Status::False, Severity::Error, ReasonCode::CaCertsEmpty, &["that of no bytes at all"]);
    assert!(!f.message.contains("does not match"), "{f:#?}");
    for mode in ["", "system-store"] {
        let f = judged(empty().with(|ca| ca.system_trusts_chain = unknown(UnknownCause::IoError)), "", mode);
        assert_eq!((f.status, f.severity), (Status::Unknown, Severity::Warn), "{f:#?}");
    }
}

/// Rancher redirects /cacerts as it redirects `/` where the header does not arrive, and never /ping: the pair tells whether
/// it is a matter of this path.
#[test]
fn what_comes_to_the_root_path_as_well_is_no_matter_of_cacerts() {
    let judged = |root: HttpAnswer, cacerts: HttpAnswer| {
        let status = cacerts.status;
        let tried = vec![
            probe(K::Ping, Balancer, LB, Some(http(200, "", "pong"))),
            probe(K::Root, Balancer, LB, Some(root)),
            probe(K::CaCerts, Balancer, LB, Some(cacerts)),
        ];
        of(balancer(tried).with(|b| b.ca = Some(known(published().with(|ca| ca.status = status)))))
    };
    let away = |path: &str| http(302, &format!("https://login.x{path}"), "");
    let to_self = |path: &str| http(302, &format!("https://rancher.x{path}"), "");
    for (root, cacerts) in [
        (to_self("/"), to_self("/cacerts")),
        (world::endless(302), to_self("/cacerts")),
        (away("/"), away("/cacerts")),
        (http(404, "", ""), http(404, "", "")),
        (http(403, "", ""), http(401, "", "")),
        (http(503, "", ""), http(502, "", "")),
    ] {
        let words = [&format!("answered {}", cacerts.status), "see LoadBalancerForwarding"];
        let f = judged(root, cacerts.clone());
        expect(&f, Status::Unknown, Severity::Info, ReasonCode::InvalidAnswer, &words.map(|w| w as &str));
    }
    for root in [http(200, "", ""), to_self("/dashboard/"), http(404, "", "")] {
        let f = judged(root, to_self("/cacerts"));
        expect(&f, Status::False, Severity::Error, ReasonCode::CaCertsNotPem, &["singles that path out"]);
    }
}

/// Neither the dates of what is served nor a wrong checksum hide that the published CA has ended.
#[test]
fn the_end_of_the_published_ca_is_said_whatever_else_is_wrong() {
    const DATES: &str = "the certificate expired 3 days ago by this clock";
    let ended = |why: &str| {
        published().with(|ca| {
            ca.certificates = known(vec![world::authority(-9)]);
            ca.trusts_chain = known(why.into());
        })
    };
    let reason = ReasonCode::CertificateAuthorityEnding;
    for mode in ["", "strict"] {
        for why in ["", DATES] {
            let f = judged(ended(why), &right(), mode);
            expect(
                &f,
                Status::False,
                Severity::Error,
                reason.clone(),
                &["CN=rke2-server-ca", "Issue a new CA"],
            );
            let f = judged(ended(why), &wrong(), mode);
            let words = ["does not match given --ca-checksum", "ended on", "Issue a new CA"];
            expect(&f, Status::False, Severity::Error, ReasonCode::CaChecksumMismatch, &words);
        }
    }
    // Of one that did not issue what is served the end does not matter.
    let f = judged(ended("unknown issuer"), "", "strict");
    expect(&f, Status::False, Severity::Error, ReasonCode::CaChainMismatch, &["unknown issuer"]);
    assert!(!f.message.contains("ended on"), "{f:#?}");
    // Nor of an old one beside it, whose dates are not those that are wrong.
    let f = of(balancer(vec![probe(K::Root, Balancer, LB, Some(http(200, "", ""))).with(|p| {
        if let Fact::Known { value, .. } = &mut p.tls {
            value.chain[0].issuer = "CN=now".into();
        }
    })])
    .with(|b| {
        let ca = |subject: &str, days| CertificateFacts {
            subject: subject.into(),
            sha256: subject.into(),
            ..world::authority(days)
        };
        b.ca = Some(known(published().with(|p| {
            p.certificates = known(vec![ca("CN=now", 3000), ca("CN=old", -3)]);
            p.trusts_chain = known(DATES.into());
        })));
    }));
    expect(&f, Status::True, Severity::Info, reason, &["CN=old"]);
}
