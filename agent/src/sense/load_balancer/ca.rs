//! What `/cacerts` publishes, and the checksums that people take for its.
//!
//! Rancher's agents compare the SHA-256 of the very bytes (`facts/rancher-load-balancer.md`, 6). A checksum that fits
//! none of them is often that of something near: the file with another line end, one certificate of several, a
//! fingerprint. Those are computed where a checksum is configured and does not fit, so that the report can say which.

use std::sync::Arc;

use outrider_protocol::{CaCandidate, CaFacts, CertificateFacts, Fact, HttpAnswer, Timestamp, UnknownCause};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use crate::net::{Failure, certificate, tls};

/// Certificates that become facts.
const MAX_CERTIFICATES: usize = 10;
/// Certificates that are trusted; a bundle of every public authority has less than two hundred.
const MAX_ROOTS: usize = 400;
/// Candidates that become facts.
const MAX_CANDIDATES: usize = 40;

/// An answer of `/cacerts` with what came with it.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) peer: String,
    pub(super) answer: HttpAnswer,
    pub(super) body: Vec<u8>,
    pub(super) chain: Arc<[CertificateDer<'static>]>,
}

/// The facts. `system` are this machine's own roots; `expected` is the configured checksum, `file` what a configured CA
/// file holds, with its name.
pub(super) fn facts(
    published: &Published,
    system: &RootCertStore,
    expected: Option<&str>,
    file: Option<(&str, &[u8])>,
    now: Timestamp,
) -> CaFacts {
    let Published { peer, answer, body, chain } = published;
    let source = format!("https://{peer}/cacerts");
    let parsed = if body.iter().all(u8::is_ascii_whitespace) {
        Err(Failure::new(UnknownCause::InvalidInput, "it is empty"))
    } else {
        certificate::certificates(body)
    };
    let certificates = match &parsed {
        Ok(ders) => read(ders, &source, now),
        Err(failure) => Fact::absent(failure.detail.clone(), now),
    };
    let trusts_chain = match &parsed {
        Ok(ders) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(ders.iter().take(MAX_ROOTS).cloned());
            trust(chain, &roots, &source, now)
        }
        Err(failure) => {
            Fact::known(format!("/cacerts holds no certificate: {}", failure.detail), &*source, now)
        }
    };
    let fits = expected.is_none_or(|expected| expected == answer.body_sha256);
    let candidates =
        if fits { Vec::new() } else { candidates(body, parsed.as_deref().unwrap_or_default(), chain, file) };
    CaFacts {
        peer: peer.clone(),
        status: answer.status,
        bytes: answer.body_bytes,
        sha256: answer.body_sha256.clone(),
        body_start: answer.body_start.clone(),
        certificates,
        candidates,
        trusts_chain,
        system_trusts_chain: trust(chain, system, "roots of this machine", now),
    }
}

fn read(ders: &[CertificateDer<'_>], source: &str, now: Timestamp) -> Fact<Vec<CertificateFacts>> {
    let read: Result<Vec<_>, _> =
        ders.iter().take(MAX_CERTIFICATES).map(|der| certificate::facts(der)).collect();
    match read {
        Ok(certificates) => Fact::known(certificates, source, now),
        Err(failure) => Fact::absent(failure.detail, now),
    }
}

fn trust(chain: &[CertificateDer<'_>], roots: &RootCertStore, source: &str, now: Timestamp) -> Fact<String> {
    if roots.is_empty() {
        return Fact::known("there is no root to trust".to_owned(), source, now);
    }
    match tls::verify(chain, roots) {
        Ok(()) => Fact::known(String::new(), source, now),
        Err(failure) => Fact::known(failure.detail, source, now),
    }
}

fn candidates(
    body: &[u8],
    ders: &[CertificateDer<'_>],
    chain: &[CertificateDer<'_>],
    file: Option<(&str, &[u8])>,
) -> Vec<CaCandidate> {
    let mut found: Vec<CaCandidate> = Vec::new();
    let mut add = |what: String, bytes: &[u8]| {
        let sha256 = certificate::hex(&certificate::sha256(bytes));
        if found.len() < MAX_CANDIDATES && found.iter().all(|c| c.sha256 != sha256) {
            found.push(CaCandidate { what, sha256 });
        }
    };
    let bare = body.trim_ascii_end();
    let with_newline = [bare, b"\n"].concat();
    add("the bytes of /cacerts without a final newline".to_owned(), bare);
    add("the bytes of /cacerts with one final newline".to_owned(), &with_newline);
    let unix: Vec<u8> = with_newline.iter().copied().filter(|b| *b != b'\r').collect();
    add("the bytes of /cacerts with the line ends of Unix".to_owned(), &unix);
    let windows: Vec<u8> =
        unix.iter().flat_map(|b| if *b == b'\n' { vec![b'\r', b'\n'] } else { vec![*b] }).collect();
    add("the bytes of /cacerts with the line ends of Windows".to_owned(), &windows);
    if let Some((path, bytes)) = file {
        add(format!("the file {path}"), bytes);
        add(format!("the file {path} with one final newline"), &[bytes.trim_ascii_end(), b"\n"].concat());
    }
    let name = |der: &[u8]| certificate::facts(der).map_or_else(|_| "?".to_owned(), |c| c.subject);
    for (i, block) in blocks(&unix).into_iter().take(MAX_CERTIFICATES).enumerate() {
        let what = format!("certificate {} of {} in /cacerts alone", i + 1, ders.len());
        add(what.clone(), &[block, b"\n"].concat());
        add(format!("{what}, without a final newline"), block);
    }
    for der in ders.iter().take(MAX_CERTIFICATES) {
        add(format!("the fingerprint of {} in /cacerts (of its DER, not of the file)", name(der)), der);
    }
    for der in chain.iter().take(MAX_CERTIFICATES) {
        add(format!("the fingerprint of {}, which the server shows", name(der)), der);
    }
    found
}

/// The PEM blocks of certificates, each from its first to its last dash.
fn blocks(pem: &[u8]) -> Vec<&[u8]> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    const END: &[u8] = b"-----END CERTIFICATE-----";
    let find = |from: usize, what: &[u8]| {
        pem.get(from..)?.windows(what.len()).position(|w| w == what).map(|at| from + at)
    };
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(begin) = find(from, BEGIN)
        && let Some(end) = find(begin, END)
        && found.len() < MAX_CERTIFICATES
    {
        from = end + END.len();
        found.extend(pem.get(begin..from));
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::net::authority::authority;

    fn published(body: &[u8], chain: Vec<CertificateDer<'static>>) -> Published {
        let body_sha256 = certificate::hex(&certificate::sha256(body));
        Published {
            peer: "192.0.2.1:443".into(),
            answer: HttpAnswer { status: 200, body_sha256, ..HttpAnswer::default() },
            body: body.to_vec(),
            chain: chain.into(),
        }
    }

    fn of(published: &Published, expected: &str) -> CaFacts {
        let file = Some(("/etc/ca.pem", &b"file"[..]));
        facts(published, &RootCertStore::empty(), Some(expected), file, Timestamp::default())
    }

    #[test]
    fn the_near_misses_are_all_there() {
        let (ours, other) = (authority("ours"), authority("other"));
        let text = format!("{}{}", ours.pem(), other.pem()).replace("\r\n", "\n");
        let text = text.trim_end().to_owned();
        let leaf = CertificateParams::new(vec!["r.example".into()]).unwrap();
        let leaf = leaf.signed_by(&KeyPair::generate().unwrap(), &ours).unwrap();
        let seen = published(text.as_bytes(), vec![leaf.der().clone()]);
        let first = text.find("-----END CERTIFICATE-----").unwrap() + 25;
        for (expected, word) in [
            (format!("{text}\n").into_bytes(), "with one final newline"),
            (text.replace('\n', "\r\n").into_bytes(), ""),
            (format!("{}\r\n", text.replace('\n', "\r\n")).into_bytes(), "Windows"),
            (format!("{}\n", &text[..first]).into_bytes(), "certificate 1 of 2"),
            (text.as_bytes()[..first].to_vec(), "without a final newline"),
            (ours.der().to_vec(), "fingerprint of CN=ours"),
            (leaf.der().to_vec(), "which the server shows"),
            (b"file".to_vec(), "the file /etc/ca.pem"),
        ] {
            let sha256 = certificate::hex(&certificate::sha256(&expected));
            let facts = of(&seen, &sha256);
            let hit = facts.candidates.iter().find(|c| c.sha256 == sha256);
            assert_eq!(hit.is_some(), !word.is_empty(), "{word}");
            assert!(hit.is_none_or(|c| c.what.contains(word)), "{word}: {hit:?}");
        }
        let right = of(&seen, &seen.answer.body_sha256);
        assert!(right.candidates.is_empty());
        assert_eq!(right.certificates.value().unwrap().len(), 2);
        assert_eq!(right.trusts_chain.value().unwrap(), "");
        assert!(!right.system_trusts_chain.value().unwrap().is_empty());
        let foreign = published(other.pem().as_bytes(), vec![leaf.der().clone()]);
        assert!(of(&foreign, "").trusts_chain.value().unwrap().contains("no trusted authority"));
    }

    #[test]
    fn what_is_no_certificate_is_absent_with_its_reason() {
        for (body, word) in [
            (&b""[..], "empty"),
            (b"\n\n", "empty"),
            (b"<html>", "no PEM certificate"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n", "END"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "X.509"),
        ] {
            let facts = of(&published(body, vec![]), "00");
            match facts.certificates {
                Fact::Absent { source, .. } => assert!(source.contains(word), "{source}"),
                other => panic!("{other:?}"),
            }
            assert!(!facts.trusts_chain.value().unwrap().is_empty());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..400), n in 0usize..30) {
            let text = b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".repeat(n);
            let facts = of(&published(&[text, bytes].concat(), vec![]), "00");
            prop_assert!(facts.candidates.len() <= MAX_CANDIDATES);
        }
    }
}
