//! Where TLS ends, by who shows which certificate, and how that is known.

use outrider_protocol::{BalancerMode, Fact, Probe, ProbeKind, TlsFacts, UnknownCause};

/// The mode, and how it is known or why it is not, as a clause.
///
/// A balancer that passes TLS through shows a backend's certificate, for the backend itself shows it. One that ends TLS may
/// hold the same certificate; the parameters that the two negotiate may tell even then. That it shows another one
/// proves something only when every backend has shown its own.
pub(super) fn find(through: &[Probe], behind: &[Probe]) -> (BalancerMode, String) {
    let seen: Vec<(&str, &TlsFacts)> = handshakes(through).collect();
    let Some((_, first)) = seen.first() else {
        return (BalancerMode::Auto, "no certificate was seen through the balancer".to_owned());
    };
    let Some(first_leaf) = first.chain.first() else {
        return (BalancerMode::Auto, "the balancer showed no certificate".to_owned());
    };
    if behind.is_empty() {
        return (BalancerMode::Auto, "no backend was tried to compare certificates with".to_owned());
    }
    let straight: Vec<(&str, &TlsFacts)> = handshakes(behind).collect();
    let mut alike = None;
    for (peer, backend) in &straight {
        for (_, balancer) in &seen {
            if leaf(balancer).is_none() || leaf(balancer) != leaf(backend) {
                continue;
            }
            if parameters(balancer) == parameters(backend) {
                let text = format!(
                    "backend {peer} shows the very certificate that the balancer shows (sha256 {}…)",
                    short(&first_leaf.sha256)
                );
                return (BalancerMode::L4, text);
            }
            alike.get_or_insert((*peer, *balancer, *backend));
        }
    }
    if let Some((peer, balancer, backend)) = alike {
        let text = format!(
            "backend {peer} shows the same certificate, but agrees on {} where the balancer agrees on {}: two ends of \
             TLS that hold one certificate",
            said(backend),
            said(balancer)
        );
        return (BalancerMode::L7, text);
    }
    let untold: Vec<&str> = backends(behind).filter(|peer| !tells(behind, peer)).collect();
    if let Some(peer) = untold.first() {
        let text = format!(
            "the balancer's certificate (sha256 {}…) is none of those seen at backends, but {} of them showed none \
             ({peer})",
            short(&first_leaf.sha256),
            untold.len()
        );
        return (BalancerMode::Auto, text);
    }
    let text = match straight.first() {
        Some((peer, other)) => format!(
            "the balancer shows a certificate of its own (sha256 {}…), backend {peer} another (sha256 {}…)",
            short(&first_leaf.sha256),
            short(leaf(other).unwrap_or_default())
        ),
        None => {
            "the balancer speaks TLS, and its backends answer plain http where they were tried".to_owned()
        }
    };
    (BalancerMode::L7, text)
}

fn handshakes(probes: &[Probe]) -> impl Iterator<Item = (&str, &TlsFacts)> {
    let connects = probes.iter().filter(|p| p.kind == ProbeKind::Connect);
    connects.filter_map(|p| Some((p.peer.as_str(), p.tls.value()?)))
}

fn leaf(tls: &TlsFacts) -> Option<&str> {
    Some(tls.chain.first()?.sha256.as_str())
}

fn parameters(tls: &TlsFacts) -> (&str, &str, &str) {
    (&tls.version, &tls.cipher, &tls.alpn)
}

fn said(tls: &TlsFacts) -> String {
    let alpn = if tls.alpn.is_empty() { "no ALPN" } else { &tls.alpn };
    format!("{} {} {alpn}", tls.version, tls.cipher)
}

/// The hosts of the backends, each once.
fn backends(behind: &[Probe]) -> impl Iterator<Item = &str> {
    let mut seen = std::collections::BTreeSet::new();
    behind.iter().map(|p| host(&p.peer)).filter(move |host| seen.insert(*host))
}

fn host(peer: &str) -> &str {
    peer.rsplit_once(':').map_or(peer, |(host, _)| host)
}

/// Whether a backend showed a certificate, or has no TLS and answers plain http.
fn tells(behind: &[Probe], backend: &str) -> bool {
    let its = || behind.iter().filter(|p| host(&p.peer) == backend);
    let shows = its().any(|p| p.tls.value().is_some());
    // Silence may be a firewall's; refused, or another protocol, is an answer.
    let might_speak_tls = its().any(|p| match (&p.tcp, &p.tls) {
        (_, Fact::Unknown { cause, .. }) => *cause != UnknownCause::TlsFailed,
        (Fact::Unknown { cause, .. }, _) => *cause != UnknownCause::ConnectionRefused,
        _ => false,
    });
    let plain = its().any(|p| p.http.value().is_some() && p.tls.value().is_none());
    shows || (plain && !might_speak_tls)
}

fn short(sha256: &str) -> &str {
    sha256.get(..12).unwrap_or(sha256)
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{CertificateFacts, HttpAnswer, ProbeTarget, Timestamp};

    use super::*;

    fn tls(sha256: &str, cipher: &str) -> TlsFacts {
        TlsFacts {
            version: "TLSv1.3".into(),
            alpn: "h2".into(),
            cipher: cipher.into(),
            chain: vec![CertificateFacts {
                subject: String::new(),
                issuer: String::new(),
                sans: vec![],
                not_before: Timestamp::default(),
                not_after: Timestamp::default(),
                sha256: sha256.into(),
                is_ca: false,
                signature: String::new(),
            }],
            trust: Fact::known(String::new(), "", Timestamp::default()),
            name_matches: true,
            issuer_at: String::new(),
        }
    }

    fn probe(kind: ProbeKind, peer: &str, seen: Result<TlsFacts, UnknownCause>) -> Probe {
        let at = Timestamp::default();
        let refused = matches!(seen, Err(UnknownCause::ConnectionRefused | UnknownCause::TimedOut));
        Probe {
            kind,
            target: ProbeTarget::Backend,
            peer: peer.into(),
            at,
            tcp: match &seen {
                Err(cause) if refused => Fact::unknown(cause.clone(), "", "", at),
                _ => Fact::known(1.0, "", at),
            },
            tls: match seen {
                Ok(tls) => Fact::known(tls, "", at),
                Err(_) if refused => Fact::not_applicable("", at),
                Err(cause) => Fact::unknown(cause, "", "", at),
            },
            http: Fact::not_applicable("", at),
            raw: String::new(),
        }
    }

    fn connect(peer: &str, seen: Result<TlsFacts, UnknownCause>) -> Probe {
        probe(ProbeKind::Connect, peer, seen)
    }

    fn plain(peer: &str) -> Probe {
        let at = Timestamp::default();
        let http = Fact::known(HttpAnswer { status: 302, ..HttpAnswer::default() }, "", at);
        let tls = Fact::not_applicable("plain http", at);
        Probe { http, tls, ..probe(ProbeKind::PlainRoot, peer, Err(UnknownCause::TlsFailed)) }
    }

    #[test]
    fn the_mode_is_told_by_certificates_and_never_guessed() {
        use UnknownCause as C;
        let through = [connect("192.0.2.1:443", Ok(tls("aa", "x")))];
        let (own, same) = (|| Ok(tls("bb", "x")), || Ok(tls("aa", "x")));
        let cases: Vec<(&str, Vec<Probe>, BalancerMode, &str)> = vec![
            (
                "one backend of three shows it",
                vec![connect("10.0.0.1:443", own()), connect("10.0.0.2:443", same())],
                BalancerMode::L4,
                "10.0.0.2",
            ),
            (
                "all show others",
                vec![connect("10.0.0.1:443", own()), connect("10.0.0.2:443", own())],
                BalancerMode::L7,
                "of its own",
            ),
            (
                "one is silent",
                vec![connect("10.0.0.1:443", own()), connect("10.0.0.2:443", Err(C::TimedOut))],
                BalancerMode::Auto,
                "1 of them",
            ),
            (
                "no TLS behind",
                vec![connect("10.0.0.1:443", Err(C::ConnectionRefused)), plain("10.0.0.1:80")],
                BalancerMode::L7,
                "plain http",
            ),
            ("plain port only, as configured", vec![plain("10.0.0.1:80")], BalancerMode::L7, "plain http"),
            (
                "443 behind a firewall",
                vec![connect("10.0.0.1:443", Err(C::TimedOut)), plain("10.0.0.1:80")],
                BalancerMode::Auto,
                "1 of them",
            ),
            (
                "one certificate, two ends",
                vec![connect("10.0.0.1:443", Ok(tls("aa", "y")))],
                BalancerMode::L7,
                "two ends",
            ),
            (
                "all are dead",
                vec![connect("10.0.0.1:443", Err(C::ConnectionRefused))],
                BalancerMode::Auto,
                "1 of them",
            ),
            ("nobody to compare with", vec![], BalancerMode::Auto, "no backend"),
        ];
        for (what, behind, mode, word) in cases {
            let (found, why) = find(&through, &behind);
            assert_eq!(found, mode, "{what}: {why}");
            assert!(why.contains(word), "{what}: {why}");
        }
        assert_eq!(find(&[], &[connect("10.0.0.1:443", own())]).0, BalancerMode::Auto);
    }
}
