//! Whether a private key belongs to the certificate beside it, by their public halves: a Go program given another's key
//! does not start ("tls: private key does not match public key").

use std::path::{Path, PathBuf};

use outrider_protocol::{Fact, UnknownCause};

use crate::net::{Failure, certificate};
use crate::sense::{SenseContext, file};

/// Begins an excerpt with the fingerprint of a key's public half…
const HALF: &str = "public key sha256:";
/// …one of a key that cannot be judged here…
const UNSUPPORTED: &str = "unsupported: ";
/// …and one of a file that holds no key.
const INVALID: &str = "invalid: ";

/// Where the key of a certificate lies: `x.key` beside `x.crt`, and `x-key.pem` beside `x.pem` on RKE1.
pub(super) fn beside(certificate: &Path) -> Option<PathBuf> {
    let stem = certificate.file_stem()?.to_str()?;
    match certificate.extension()?.to_str()? {
        "crt" => Some(certificate.with_file_name(format!("{stem}.key"))),
        "pem" => Some(certificate.with_file_name(format!("{stem}-key.pem"))),
        _ => None,
    }
}

/// All that may be known of a private key's file: the fingerprint of its public half, which the certificate shows to
/// everybody, or why it has none.
pub(crate) fn excerpt(text: &str) -> String {
    match half(text) {
        Ok(half) => format!("{HALF}{half}\n"),
        Err(failure) if failure.cause == UnknownCause::Unsupported => {
            format!("{UNSUPPORTED}{}\n", failure.detail)
        }
        Err(failure) => format!("{INVALID}{}\n", failure.detail),
    }
}

/// The fingerprint, out of a key or out of the excerpt of one.
fn half(text: &str) -> Result<String, Failure> {
    let told = |cause, detail: &str| Err(Failure::new(cause, detail.trim_end()));
    if let Some(half) = text.strip_prefix(HALF).map(str::trim_end) {
        let is_one = half.len() == 64 && half.bytes().all(|b| b.is_ascii_hexdigit());
        return if is_one {
            Ok(half.to_owned())
        } else {
            told(UnknownCause::InvalidInput, "no private key in it")
        };
    }
    if let Some(why) = text.strip_prefix(UNSUPPORTED) {
        return told(UnknownCause::Unsupported, why);
    }
    match text.strip_prefix(INVALID) {
        Some(why) => told(UnknownCause::InvalidInput, why),
        None => certificate::public_half(text.as_bytes()),
    }
}

/// Whether the key at `path` is that of `leaf`. Blocking.
pub(in crate::sense) fn belongs(cx: &SenseContext, path: &Path, leaf: &[u8]) -> Fact<bool> {
    let source = path.display().to_string();
    let read = cx.opener.open(path).and_then(|open| file::read_bounded(open, file::SMALL));
    let bytes = match read {
        Ok(bytes) => bytes,
        // Whoever opens a folder, a pipe or a device finds no key in it.
        Err(e) if is_no_file(&e) => {
            return Fact::unknown(UnknownCause::InvalidInput, e.to_string(), source, cx.now());
        }
        // A link that is not followed, a file too large: what may not be read says nothing of what is in it.
        Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => {
            return Fact::unknown(UnknownCause::Unsupported, e.to_string(), source, cx.now());
        }
        Err(e) => return Fact::from_io(&e, source, cx.now()),
    };
    // What is no text is no PEM either, and what it says of the rest stands.
    match half(&String::from_utf8_lossy(&bytes)) {
        Ok(half) => {
            Fact::known(certificate::public_key(leaf).is_some_and(|public| public == half), source, cx.now())
        }
        Err(failure) => failure.into_fact(source, cx.now()),
    }
}

/// Whether the opener, or the root helper for it, found something there that is no regular file.
fn is_no_file(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::InvalidInput && error.to_string().ends_with("not a regular file")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::CertificateDer;

    use super::*;
    use crate::sense::prepared::Machine;

    fn pair(algorithm: &'static rcgen::SignatureAlgorithm) -> (CertificateDer<'static>, String) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new(vec!["n1".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().der().clone(), key.serialize_pem())
    }

    #[test]
    fn a_key_of_every_kind_is_known_by_its_public_half_whole_and_as_an_excerpt() {
        let machine = Machine::new();
        let kinds = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519];
        for (kind, other) in kinds.into_iter().zip(kinds.into_iter().cycle().skip(1)) {
            let (leaf, key) = pair(kind);
            for (written, belongs_to_it) in
                [(key.clone(), true), (pair(kind).1, false), (pair(other).1, false)]
            {
                for text in [written.clone(), excerpt(&written)] {
                    machine.write("/a.key", &text);
                    let fact = belongs(&machine.cx(), Path::new("/a.key"), &leaf);
                    assert_eq!(fact.value(), Some(&belongs_to_it), "{fact:?}");
                }
            }
            let told = excerpt(&key);
            assert!(!told.contains("BEGIN") && told.len() < 100, "{told}");
            assert_eq!(excerpt(&told), told);
        }
    }

    #[test]
    fn what_holds_no_key_is_told_from_one_that_is_not_there_or_cannot_be_judged() {
        let machine = Machine::new();
        let (leaf, _) = pair(&rcgen::PKCS_ECDSA_P256_SHA256);
        let at = |path: &str| belongs(&machine.cx(), Path::new(path), &leaf);
        assert!(matches!(at("/none.key"), Fact::Absent { .. }));
        for text in ["", "garbage", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"] {
            for text in [text.to_owned(), excerpt(text)] {
                machine.write("/a.key", &text);
                let told = format!("{:?}", at("/a.key"));
                assert!(told.contains("Unknown") && !told.contains("c2Vj"), "{told}");
            }
        }
        machine.write("/a.key", "garbage");
        assert!(matches!(at("/a.key"), Fact::Unknown { cause: UnknownCause::InvalidInput, .. }));
    }

    #[test]
    fn what_is_no_regular_file_holds_no_key_and_what_may_not_be_read_is_not_known() {
        let machine = Machine::new();
        let (leaf, key) = pair(&rcgen::PKCS_ECDSA_P256_SHA256);
        let at = |path: &str| belongs(&machine.cx(), Path::new(path), &leaf);
        let on_disk = |path: &str| machine.cx().path(path);
        machine.write("/folder.key/x", "");
        nix::unistd::mkfifo(&on_disk("/pipe.key"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        std::os::unix::fs::symlink("/dev/zero", on_disk("/zero.key")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(on_disk("/socket.key")).unwrap();
        for (path, words) in [
            ("/folder.key", "a folder"),
            ("/pipe.key", "a pipe"),
            ("/zero.key", "a device"),
            ("/socket.key", "a socket"),
        ] {
            let fact = at(path);
            assert!(
                matches!(&fact, Fact::Unknown { cause: UnknownCause::InvalidInput, detail, .. } if detail.starts_with(words)),
                "{fact:?}"
            );
        }
        machine.write("/large.key", &format!("{key}{}", " ".repeat(file::SMALL as usize)));
        assert!(matches!(at("/large.key"), Fact::Unknown { cause: UnknownCause::Unsupported, .. }));
        std::os::unix::fs::symlink("nowhere", on_disk("/gone.key")).unwrap();
        assert!(matches!(at("/gone.key"), Fact::Absent { .. }));
    }

    #[test]
    fn keys_lie_beside_their_certificates() {
        let at = |path: &str| beside(Path::new(path)).map(|p| p.display().to_string());
        assert_eq!(at("/tls/etcd/server-client.crt").as_deref(), Some("/tls/etcd/server-client.key"));
        assert_eq!(at("/ssl/kube-etcd-10-0-0-1.pem").as_deref(), Some("/ssl/kube-etcd-10-0-0-1-key.pem"));
        assert_eq!(at("/x"), None);
    }

    proptest! {
        #[test]
        fn an_excerpt_never_shows_what_it_was_given(text in "[ -~\n]{0,200}") {
            let told = excerpt(&text);
            prop_assert!(told.len() < 200, "{told}");
            prop_assert_eq!(excerpt(&told), told);
        }
    }
}
