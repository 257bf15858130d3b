//! The certificate that is seen at the balancer.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::{Backend, Balancer};
use outrider_protocol::*;

use crate::balancer::{LB, reachable};
use crate::world::{self, Change, DAY, ago, ahead, balancer, http, known, probe, unknown};
use crate::{expect, only};

fn with_certificate(change: impl Fn(&mut TlsFacts)) -> Finding {
    let mut p = probe(K::Connect, Balancer, LB, None);
    if let Fact::Known { value, .. } = &mut p.tls {
        change(value);
    }
    reachable(balancer(vec![probe(K::Root, Balancer, LB, Some(http(200, "", ""))), p]))
}

#[test]
fn a_clock_that_is_known_to_be_wrong_ends_no_certificate() {
    let mut p = probe(K::Connect, Balancer, LB, None);
    if let Fact::Known { value, .. } = &mut p.tls {
        value.chain[0].not_after = ago(3 * DAY);
        value.trust = known("the certificate expired 3 days ago by this clock (is a clock wrong?)".into());
    }
    let judged = |ahead_ms| {
        let mut clock = world::clock();
        clock.coordinator =
            known(ClockOffset { offset_ms: ahead_ms, uncertainty_ms: 20, peer: "c.example".into() });
        let checks = CheckFacts {
            load_balancer: Some(known(vec![balancer(vec![p.clone()])])),
            clock: Some(known(clock)),
            ..CheckFacts::default()
        };
        only(&judge(&world::node_facts(checks)), ConditionType::LoadBalancerReachable)
    };
    assert_eq!(judged(0).reason, ReasonCode::BalancerCertificateEnding);
    let f = judged(50 * 86_400_000);
    expect(
        &f,
        Status::Unknown,
        Severity::Error,
        ReasonCode::CertificateClockUnsure,
        &["By this clock", "50 days ahead of that of c.example", "Correct the clock first"],
    );
}

#[test]
fn certificates_name_trust_and_time() {
    expect(
        &with_certificate(|_| {}),
        Status::True,
        Severity::Ok,
        ReasonCode::BalancerAnswers,
        &["2 of 2 tries"],
    );
    let f = with_certificate(|t| {
        t.name_matches = false;
        t.chain[0].sans = vec!["other.x".into(), "10.0.0.9".into()];
    });
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::BalancerCertificateWrong,
        &["rancher.x", "other.x, 10.0.0.9"],
    );
    let f = with_certificate(|t| t.trust = known("unable to get local issuer".into()));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::BalancerCaUnknown,
        &["unable to get local issuer", "ca in", "CN=ca"],
    );
    let f = with_certificate(|t| t.trust = unknown(UnknownCause::IoError));
    let words = ["cannot be told", "IoError", "ca in"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::BalancerCaUnknown, &words);
    let f = with_certificate(|t| t.chain[0].not_after = ago(3 * DAY));
    expect(&f, Status::False, Severity::Error, ReasonCode::BalancerCertificateEnding, &["ended 3 days ago"]);
    let f = with_certificate(|t| t.chain[0].not_before = ahead(3600));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::BalancerCertificateWrong,
        &["not valid before", "60 min", "clock"],
    );
}

/// One that has ended and is sent along ends nothing where the chain is trusted without it.
#[test]
fn an_issuer_that_has_ended_counts_where_the_chain_hangs_on_it() {
    let ended = |subject: &'static str, trust: &'static str| {
        with_certificate(|t| {
            let issuer = t.chain[0].clone();
            let other = CertificateFacts {
                subject: subject.into(),
                issuer: subject.into(),
                not_after: ago(3 * DAY),
                sha256: "old".into(),
                ..issuer.clone()
            };
            t.chain[0].issuer = "CN=ca".into();
            t.chain.push(other);
            t.trust = known(trust.into());
        })
    };
    use ReasonCode::BalancerCertificateEnding as Ending;
    let f = ended("CN=ca", "the certificate expired 3 days ago by this clock");
    expect(&f, Status::False, Severity::Error, Ending, &["An issuer's certificate", "Renew it"]);
    let f = ended("CN=ca", "");
    expect(
        &f,
        Status::True,
        Severity::Warn,
        Ending,
        &["is sent along", "a newer one in its place", "needs no change"],
    );
    let f = ended("CN=other", "");
    expect(&f, Status::True, Severity::Info, Ending, &["it issued none of the others", "CN=other"]);
    // One that issued nothing does not explain why the chain is not trusted.
    assert_eq!(ended("CN=other", "unknown issuer").reason, ReasonCode::BalancerChainIncomplete);
}

#[test]
fn a_certificate_for_clients_is_told_from_an_unknown_authority() {
    let f = with_certificate(|t| t.trust = known("its extended key usage allows clients only".into()));
    let words = ["not made for servers", "serverAuth"];
    expect(&f, Status::False, Severity::Error, ReasonCode::BalancerCertificateWrong, &words);
}

#[test]
fn a_handshake_that_fails_by_the_certificate_is_no_plain_http() {
    let failed = |detail: &str| {
        let p = probe(K::Connect, Balancer, LB, None)
            .with(|p| p.tls = Fact::unknown(UnknownCause::TlsFailed, detail, "", world::now()));
        reachable(balancer(vec![p])).advice
    };
    assert!(failed("the certificate has an RSA key of 1024 bits").contains("2048 bits"));
    assert!(failed("the peer does not speak TLS on this port").contains("plain http on the https port"));
}

#[test]
fn certificates_of_a_year_and_of_ninety_days() {
    let left = |life: u64, left: u64| {
        with_certificate(|t| {
            t.chain[0].not_after = ahead(left * DAY);
            t.chain[0].not_before = ahead(left * DAY).before(std::time::Duration::from_secs(life * DAY));
        })
    };
    let severity = |life, days| {
        let f = left(life, days);
        assert!(f.status == Status::True);
        assert_eq!(f.severity == Severity::Ok, f.reason == ReasonCode::BalancerAnswers);
        f.severity
    };
    assert_eq!(
        [severity(365, 121), severity(365, 119), severity(365, 29), severity(365, 6)],
        [Severity::Ok, Severity::Info, Severity::Warn, Severity::Error]
    );
    // Renewed with a third of its life left: no word before that.
    assert_eq!(
        [severity(90, 31), severity(90, 29), severity(90, 21), severity(90, 6)],
        [Severity::Ok, Severity::Info, Severity::Warn, Severity::Error]
    );
}

#[test]
fn a_missing_intermediate_is_told_from_an_authority_that_is_not_known() {
    let between = |t: &mut TlsFacts| {
        t.trust = known("unknown issuer".into());
        t.chain[0].issuer = "CN=middle".into();
    };
    let middle = || CertificateFacts {
        subject: "CN=middle".into(),
        sha256: "m".into(),
        ..world::certificate("middle")
    };
    let root =
        || CertificateFacts { subject: "CN=r".into(), issuer: "CN=r".into(), sha256: "r".into(), ..middle() };
    let expect = |f: &Finding, reason, words: &[&str]| {
        expect(f, Status::True, Severity::Warn, reason, words);
    };
    use ReasonCode::{BalancerCaUnknown as Unknown, BalancerChainIncomplete as Incomplete};
    // Nothing tells: both are said.
    expect(&with_certificate(between), Unknown, &["CN=middle", "not sent", "intermediate"]);
    // The certificate itself says where its issuer's is to be had.
    let f = with_certificate(|t| {
        between(t);
        t.issuer_at = "http://ca.example/middle.crt".into();
    });
    expect(&f, Incomplete, &["http://ca.example/middle.crt", "fullchain", "tls-rancher-ingress"]);
    let f = with_certificate(|t| {
        between(t);
        t.chain[0].issuer = "CN=Example Issuing CA 3".into();
    });
    expect(&f, Incomplete, &["by its name"]);
    // An intermediate of another chain was sent.
    let f = with_certificate(|t| {
        between(t);
        t.chain.push(CertificateFacts { subject: "CN=old middle".into(), ..middle() });
    });
    expect(&f, Incomplete, &["did not issue"]);
    // The whole chain was sent; its root is nobody's.
    let f = with_certificate(|t| {
        between(t);
        t.chain.push(CertificateFacts { issuer: "CN=r".into(), ..middle() });
        t.chain.push(root());
    });
    expect(&f, Unknown, &["leads to CN=r"]);
    let f = with_certificate(|t| {
        t.trust = known("unknown issuer".into());
        t.chain[0].issuer = t.chain[0].subject.clone();
    });
    expect(&f, Unknown, &["signed itself", "default certificate of the ingress"]);

    // Another address sends what this one leaves out.
    let with = |change: &dyn Fn(&mut TlsFacts)| {
        let mut p = probe(K::Connect, Balancer, LB, None);
        if let Fact::Known { value, .. } = &mut p.tls {
            change(value);
        }
        p
    };
    let mut whole = with(&|t| {
        t.chain[0].issuer = "CN=middle".into();
        t.chain.push(CertificateFacts { issuer: "CN=r".into(), ..middle() });
    });
    whole.peer = "192.0.2.11:443".into();
    expect(&reachable(balancer(vec![with(&between), whole])), Incomplete, &["192.0.2.11:443 sends it"]);

    // Rancher knows the authority.
    let b = balancer(vec![with(&between)]).with(|b| {
        b.ca = Some(known(
            world::published().with(|ca| ca.certificates = known(vec![root().named("CN=middle")])),
        ));
    });
    expect(&reachable(b), Unknown, &["publishes it at /cacerts"]);
}

trait Named {
    fn named(self, subject: &str) -> Self;
}

impl Named for CertificateFacts {
    fn named(mut self, subject: &str) -> Self {
        (self.subject, self.issuer) = (subject.into(), subject.into());
        self
    }
}

#[test]
fn names_that_nearly_cover_the_host() {
    for (sans, word) in
        [(vec!["*.x"], "its names: *.x"), (vec!["other.x"], "other.x"), (vec![], "none (CN=rancher.x)")]
    {
        let f = with_certificate(|t| {
            t.name_matches = false;
            t.chain[0].sans = sans.iter().map(|s| (*s).to_owned()).collect();
        });
        expect(&f, Status::False, Severity::Error, ReasonCode::BalancerCertificateWrong, &[word]);
    }
    let of = |host: &str, san: &str| {
        let mut p = probe(K::Connect, Balancer, LB, None);
        if let Fact::Known { value, .. } = &mut p.tls {
            value.name_matches = false;
            value.chain[0].sans = vec![san.into()];
        }
        reachable(balancer(vec![p]).with(|b| b.host = host.into())).message
    };
    assert!(of("a.b.x", "*.x").contains("one label only"));
    assert!(of("10.0.0.1", "10.0.0.1").contains("as a DNS name"));
    assert!(of("10.0.0.1", "rancher.x").contains("entry of its own"));
    assert!(of("2001:db8::1", "rancher.x").contains("entry of its own"));
}

/// In L4 clients see the certificate of the backend that they come to.
#[test]
fn in_l4_the_certificate_of_each_backend_counts() {
    let mut p = probe(K::Connect, Backend, "10.0.0.2:443", None);
    if let Fact::Known { value, .. } = &mut p.tls {
        value.chain[0].not_after = ago(DAY);
    }
    let judged = |mode| {
        let probes = vec![probe(K::Connect, Balancer, LB, None), p.clone()];
        reachable(balancer(probes).with(|b| b.mode = mode))
    };
    let f = judged(BalancerMode::L4);
    expect(&f, Status::False, Severity::Error, ReasonCode::BalancerCertificateEnding, &["10.0.0.2:443"]);
    assert_eq!(judged(BalancerMode::L7).reason, ReasonCode::BalancerAnswers);
}

#[test]
fn a_configured_ca_that_cannot_be_used_is_named() {
    let f = with_certificate(|tls| {
        let why = "/etc/outrider/ca.pem: no PEM certificate (-----BEGIN CERTIFICATE-----) in it";
        tls.trust = Fact::unknown(UnknownCause::InvalidInput, why, "", world::now());
    });
    let words = ["cannot be told", "/etc/outrider/ca.pem: no PEM certificate", "ca in [[load_balancer]]"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::BalancerCaUnknown, &words);
}

/// A certificate is issued anew with all that is wrong with it in view (E17).
#[test]
fn one_fault_of_a_certificate_does_not_hide_another() {
    use ReasonCode::{BalancerCertificateEnding as Ending, BalancerCertificateWrong as Wrong};
    let expired = |t: &mut TlsFacts| {
        t.chain[0].not_after = ago(29 * DAY);
        t.trust = known("the certificate expired 29 days ago by this clock".into());
    };
    let misnamed = |t: &mut TlsFacts| {
        t.name_matches = false;
        t.chain[0].sans = vec!["other.x".into()];
    };
    let foreign = |t: &mut TlsFacts| t.trust = known("unknown issuer".into());
    let soon = |t: &mut TlsFacts| t.chain[0].not_after = ahead(5 * DAY);
    let of = |changes: &[&dyn Fn(&mut TlsFacts)]| with_certificate(|t| changes.iter().for_each(|c| c(t)));
    let error =
        |f: &Finding, reason, words: &[&str]| expect(f, Status::False, Severity::Error, reason, words);
    let (ended, renew) = ("ended 29 days ago", "Renew it");
    let (names, issue) = ("its names: other.x", "subject alternative names");
    let (root, ca) = ("unknown issuer", "With a private CA");
    error(&of(&[&expired]), Ending, &[ended, renew]);
    error(&of(&[&expired, &misnamed]), Ending, &[ended, renew, names, issue]);
    error(&of(&[&expired, &foreign]), Ending, &[ended, renew, root, ca]);
    error(&of(&[&expired, &misnamed, &foreign]), Ending, &[ended, names, root, issue, ca]);
    error(&of(&[&misnamed, &foreign]), Wrong, &[names, issue, root, ca]);
    error(&of(&[&misnamed, &soon]), Wrong, &[names, issue, "ends in 5 days", renew]);
    let f = of(&[&foreign, &soon]);
    expect(&f, Status::True, Severity::Error, Ending, &["ends in 5 days", renew, root, ca]);
    let early = of(&[&|t: &mut TlsFacts| t.chain[0].not_before = ahead(3600), &misnamed, &foreign]);
    error(&early, Wrong, &["not valid before", "clock", names, issue, root]);
    let clients =
        of(&[&expired, &|t: &mut TlsFacts| t.trust = known("its extended key usage allows clients".into())]);
    error(&clients, Ending, &[ended, "not made for servers"]);
    // The dates are told once.
    assert_eq!(of(&[&expired]).message.matches("29 days").count(), 1);
}

/// What an authority that has ended issues is trusted by nobody, so it comes first.
#[test]
fn a_certificate_is_not_renewed_from_an_authority_that_has_ended() {
    let ca = |days: i64, name: &str| CertificateFacts {
        subject: "CN=ca".into(),
        issuer: "CN=ca".into(),
        sha256: name.into(),
        ..world::authority(days)
    };
    let judged = |sent: Vec<CertificateFacts>, published: Vec<CertificateFacts>| {
        let mut p = probe(K::Connect, Balancer, LB, None);
        if let Fact::Known { value, .. } = &mut p.tls {
            value.chain[0].not_after = ago(3 * DAY);
            value.chain.extend(sent);
            value.trust = known("the certificate expired 3 days ago by this clock".into());
        }
        reachable(balancer(vec![p]).with(|b| {
            b.ca = Some(known(world::published().with(|ca| ca.certificates = known(published))));
        }))
    };
    let words = ["ended 3 days ago", "(CN=ca) ended too, 9 days ago", "First issue a new CA", "RancherCA"];
    for (sent, published) in [
        (vec![], vec![ca(-9, "a")]),
        (vec![ca(-9, "a")], vec![]),
        (vec![ca(-9, "a")], vec![ca(-9, "a")]),
        (vec![ca(-9, "a")], vec![ca(-20, "b")]),
    ] {
        let f = judged(sent, published);
        expect(&f, Status::False, Severity::Error, ReasonCode::BalancerCertificateEnding, &words);
    }
    // One of the same name that goes on is the one that renews.
    for (sent, published) in
        [(vec![], vec![ca(900, "a")]), (vec![ca(-9, "a")], vec![ca(900, "b")]), (vec![], vec![])]
    {
        let f = judged(sent, published);
        expect(&f, Status::False, Severity::Error, ReasonCode::BalancerCertificateEnding, &["Renew it"]);
        assert!(!f.advice.contains("new CA"), "{f:#?}");
    }
}
