//! What is in a certificate file.

use std::io;

use outrider_protocol::{CertificateFacts, CertificateFile, CertificateUse, Fact, Timestamp, UnknownCause};
use rustls::pki_types::CertificateDer;

use super::node::Wanted;
use super::{key, node};
use crate::net::{Failure, certificate};
use crate::sense::{SenseContext, file};

/// Most certificates of one file or handshake.
const MAX_CHAIN: usize = 8;
/// Most alternative names of one certificate that are kept, those of this node first.
const MAX_SANS: usize = 32;
/// Longest name that is kept, in characters.
const MAX_NAME: usize = 256;

/// A file, and its certificates in DER for whoever checks signatures.
pub(super) struct Read {
    pub(super) file: CertificateFile,
    pub(super) chain: Vec<CertificateDer<'static>>,
}

impl Read {
    /// One that could not be read.
    pub(super) fn failed(
        path: &str,
        usage: CertificateUse,
        certificates: Fact<Vec<CertificateFacts>>,
        now: Timestamp,
    ) -> Self {
        let issuer = Fact::not_applicable("no certificate was read", now);
        let file =
            CertificateFile { path: path.to_owned(), usage, modified: None, certificates, issuer, key: None };
        Self { file, chain: Vec::new() }
    }
}

/// Reads one file. Blocking.
pub(super) fn read(cx: &SenseContext, wanted: &Wanted, names: &[String]) -> Read {
    let path = wanted.path.display().to_string();
    let opened = cx.opener.open(&wanted.path).and_then(|open| {
        let modified = open.metadata().and_then(|meta| meta.modified()).ok().map(Timestamp::from);
        Ok((modified, file::read_bounded(open, file::SMALL)?))
    });
    let (modified, bytes) = match opened {
        Ok(opened) => opened,
        Err(e) => return Read::failed(&path, wanted.usage.clone(), unread(&e, &path, cx.now()), cx.now()),
    };
    let parsed = parse(&bytes).and_then(|chain| Ok((facts(&chain, names)?, chain)));
    let (certificates, chain) = match parsed {
        Ok((facts, chain)) => (Fact::known(facts, path.as_str(), cx.now()), chain),
        Err(failure) => {
            (Fact::unknown(UnknownCause::InvalidInput, failure.detail, path.as_str(), cx.now()), Vec::new())
        }
    };
    let mut read = Read::failed(&path, wanted.usage.clone(), certificates, cx.now());
    read.file.modified = modified;
    read.file.key = key::beside(&wanted.path)
        .filter(|_| !matches!(wanted.usage, CertificateUse::Authority | CertificateUse::Foreign))
        .and_then(|key| Some(key::belongs(cx, &key, chain.first()?)))
        // A copy that a person left here may well have none.
        .filter(|key| !matches!(key, Fact::Absent { .. }) || node::is_known(&wanted.path));
    read.chain = chain;
    read
}

fn unread(error: &io::Error, path: &str, now: Timestamp) -> Fact<Vec<CertificateFacts>> {
    // Too large to be looked at says nothing of what is in it.
    if error.kind() == io::ErrorKind::InvalidInput && error.to_string().starts_with("larger than") {
        return Fact::unknown(UnknownCause::Unsupported, "larger than 64 KiB, not read", path, now);
    }
    Fact::from_io(error, path, now)
}

/// The certificates of a PEM file. The error says what the file holds instead, and shows none of it.
fn parse(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let invalid = |what: &str| Failure::new(UnknownCause::InvalidInput, what);
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(invalid("the file is empty"));
    }
    // An ASN.1 sequence: Go's programs, all of Kubernetes among them, read PEM only.
    if bytes.first() == Some(&0x30) && certificate::facts(bytes).is_ok() {
        return Err(invalid("a certificate in DER; what uses this file reads PEM only"));
    }
    let mut chain = certificate::certificates(bytes)?;
    chain.truncate(MAX_CHAIN);
    Ok(chain)
}

/// What the certificates say, bounded; the first that is none is named by its number.
pub(super) fn facts(
    chain: &[CertificateDer<'static>],
    names: &[String],
) -> Result<Vec<CertificateFacts>, Failure> {
    let all = chain.iter().take(MAX_CHAIN).enumerate().map(|(i, der)| {
        let facts = certificate::facts(der);
        facts.map(|facts| bounded(facts, names)).map_err(|e| {
            if chain.len() == 1 { e } else { e.during(format_args!("block {} of {}", i + 1, chain.len())) }
        })
    });
    all.collect()
}

/// The same with few and short names; which of this node's it has must not be lost by that.
fn bounded(mut facts: CertificateFacts, names: &[String]) -> CertificateFacts {
    let cut = |text: &mut String| {
        if let Some((end, _)) = text.char_indices().nth(MAX_NAME) {
            text.truncate(end);
            text.push('…');
        }
    };
    cut(&mut facts.subject);
    cut(&mut facts.issuer);
    facts.sans.sort_by_key(|san| !names.contains(san));
    facts.sans.truncate(MAX_SANS);
    facts.sans.iter_mut().for_each(cut);
    facts.sans.shrink_to_fit();
    facts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn der(names: Vec<String>) -> Vec<u8> {
        let params = rcgen::CertificateParams::new(names).unwrap();
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn what_is_no_pem_certificate_is_named() {
        for (bytes, words) in [
            (b"".to_vec(), "empty"),
            (b" \n".to_vec(), "empty"),
            (b"hello".to_vec(), "no PEM certificate"),
            (der(vec!["a".into()]), "DER"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(), "no X.509"),
            (b"-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n".to_vec(), "not PEM"),
        ] {
            let failure = parse(&bytes).and_then(|chain| facts(&chain, &[])).unwrap_err();
            assert!(failure.detail.contains(words), "{words}: {failure}");
        }
    }

    #[test]
    fn a_block_that_is_none_among_others_is_named_by_its_number() {
        let good = rcgen::CertificateParams::new(vec!["n1".to_owned()]).unwrap();
        let good = good.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
        let block = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        for (text, words) in [
            (format!("{good}{}", block("AAAA")), "block 2 of 2: "),
            (format!("{}{good}", block("AAAA")), "block 1 of 2: "),
            (format!("{good}{good}{}", block("%%%")), "block 3: not PEM"),
        ] {
            let failure = parse(text.as_bytes()).and_then(|chain| facts(&chain, &[])).unwrap_err();
            assert!(failure.detail.starts_with(words), "{words}: {failure}");
        }
    }

    #[test]
    fn names_are_few_and_those_of_this_node_stay() {
        let mut names: Vec<String> = (0..200).map(|n| format!("n{n}.example")).collect();
        names.push("10.9.8.7".to_owned());
        let chain = [CertificateDer::from(der(names))];
        let read = facts(&chain, &["10.9.8.7".to_owned()]).unwrap();
        assert_eq!(read[0].sans.len(), MAX_SANS);
        assert_eq!(read[0].sans[0], "10.9.8.7");
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes).and_then(|chain| facts(&chain, &[]));
        }
    }
}
