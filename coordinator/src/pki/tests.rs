use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::Timestamp;
use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};
use rustls_pki_types::pem::PemObject;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn now() -> Timestamp {
    Timestamp::from_seconds(1_800_000_000)
}

fn open_at(folder: &Path, now: Timestamp) -> Result<Arc<Authority>, PkiError> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned(), "localhost".to_owned()];
    Authority::open(folder, &names, Lifetimes::default(), now)
}

fn open(folder: &Path) -> Arc<Authority> {
    open_at(folder, now()).expect("an authority")
}

/// A node's key and its certificate request.
fn request() -> (KeyPair, VerifiedRequest) {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let pem = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    (key, VerifiedRequest::from_pem(&pem).unwrap())
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().unwrap()
}

/// A clock that stands, for both sides of a handshake.
#[derive(Debug)]
struct Clock(Timestamp);

impl rustls::time_provider::TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(self.0.as_millis() as u64)))
    }
}

/// A handshake in memory at `at`: what the server saw of the client, or the first error of either side.
fn handshake(
    authority: &Arc<Authority>,
    trusted: &[CertificateDer<'static>],
    client: Option<(&Issued, &KeyPair)>,
    at: Timestamp,
) -> Result<Option<PeerCertificate>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in trusted {
        roots.add(root.clone()).unwrap();
    }
    let builder = ClientConfig::builder_with_details(provider, Arc::new(Clock(at)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        Some((issued, key)) => {
            let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
            builder.with_client_auth_cert(certificates(&issued.certificate), key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    let mut server_config = authority.server_config().unwrap();
    server_config.time_provider = Arc::new(Clock(at));
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server_config)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut &wire[..]).unwrap();
        server.process_new_packets().map_err(|e| format!("server: {e}"))?;
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut &wire[..]).unwrap();
        client.process_new_packets().map_err(|e| format!("client: {e}"))?;
    }
    let shown = server.peer_certificates().and_then(|chain| chain.first());
    Ok(shown.map(|leaf| PeerCertificate::read(leaf).unwrap()))
}

/// What a client that knows only a pin does: takes the certificate of that hash out of the chain as its root.
fn pinned(authority: &Arc<Authority>, pin: Pin) -> Option<CertificateDer<'static>> {
    authority.server_certificate().cert.iter().find(|der| Pin::of(der) == pin).cloned()
}

#[test]
fn a_node_gets_a_certificate_that_says_who_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path());
    let (key, request) = request();
    let issued = authority.issue(&request, "uid-1", now()).unwrap();
    assert_eq!(issued.not_after, now().after(DAY));
    assert_eq!(issued.renew_at, now().after(DAY * 2 / 3));
    let root = pinned(&authority, authority.pin()).expect("the root in the chain");
    let peer = handshake(&authority, &[root], Some((&issued, &key)), now()).unwrap().unwrap();
    assert_eq!(peer.uid, "uid-1");
    assert_eq!(peer.serial, issued.serial);
    assert_eq!(peer.key_hash, request.key_hash());
    assert_eq!(peer.not_after, issued.not_after);
    // Not-before is backdated an hour: a node whose clock is behind can use it at once.
    assert_eq!(peer.not_before, now().before(Duration::from_secs(3600)));
    let other = authority.issue(&request, "uid-1", now()).unwrap();
    assert_ne!(other.serial, issued.serial);
}

#[test]
fn operators_need_no_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path());
    let root = certificates(&authority.bundle_pem());
    assert_eq!(handshake(&authority, &root, None, now()), Ok(None));
}

#[test]
fn an_expired_certificate_passes_the_handshake_and_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let (key, request) = request();
    let issued = open(folder.path()).issue(&request, "uid-1", now()).unwrap();
    let later = now().after(DAY * 31);
    let authority = open_at(folder.path(), later).unwrap();
    let root = certificates(&authority.bundle_pem());
    let peer = handshake(&authority, &root, Some((&issued, &key)), later).unwrap().unwrap();
    assert_eq!(peer.expired_since(later), Some(issued.not_after));
    assert_eq!(peer.expired_since(now()), None);
    // Our own clock stepped back: certificates of later are not the nodes' fault.
    let earlier = now().before(Duration::from_secs(3000));
    let issued = authority.issue(&request, "uid-1", later).unwrap();
    let authority = open_at(folder.path(), earlier).unwrap();
    let peer = handshake(&authority, &root, Some((&issued, &key)), earlier).unwrap().unwrap();
    assert_eq!(peer.expired_since(earlier), None);
}

#[test]
fn certificates_of_others_do_not_pass() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (authority, other) = (open(ours.path()), open(theirs.path()));
    let root = certificates(&authority.bundle_pem());
    let (key, request) = request();
    let foreign = other.issue(&request, "uid-1", now()).unwrap();
    let refused = handshake(&authority, &root, Some((&foreign, &key)), now()).unwrap_err();
    assert!(refused.starts_with("server: invalid peer certificate"), "{refused}");
    let long_ended = handshake(&authority, &root, Some((&foreign, &key)), now().after(DAY * 5)).unwrap_err();
    assert!(long_ended.contains("invalid peer certificate"), "{long_ended}");
    // A server's certificate is no node's.
    let stolen = handshake(&other, &root, None, now()).unwrap_err();
    assert!(stolen.starts_with("client: invalid peer certificate"), "{stolen}");
}

#[test]
fn a_certificate_without_its_key_is_useless() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path());
    let root = certificates(&authority.bundle_pem());
    let issued = authority.issue(&request().1, "uid-1", now()).unwrap();
    let (thief, _) = request();
    // Shown with another key: rustls' client refuses such a pair, so the pair is made by hand.
    let provider = rustls::crypto::ring::default_provider();
    let signer =
        provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(thief.serialize_der().into())).unwrap();
    #[derive(Debug)]
    struct Stolen(Arc<rustls::sign::CertifiedKey>);
    impl rustls::client::ResolvesClientCert for Stolen {
        fn resolve(
            &self,
            _: &[&[u8]],
            _: &[rustls::SignatureScheme],
        ) -> Option<Arc<rustls::sign::CertifiedKey>> {
            Some(self.0.clone())
        }
        fn has_certs(&self) -> bool {
            true
        }
    }
    let pair = rustls::sign::CertifiedKey::new(certificates(&issued.certificate), signer);
    let mut roots = RootCertStore::empty();
    roots.add(root[0].clone()).unwrap();
    let config = ClientConfig::builder_with_details(Arc::new(provider), Arc::new(Clock(now())))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(Stolen(Arc::new(pair))));
    let mut server_config = authority.server_config().unwrap();
    server_config.time_provider = Arc::new(Clock(now()));
    let mut client =
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::new(server_config)).unwrap();
    let mut refused = None;
    for _ in 0..4 {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut &wire[..]).unwrap();
        if let Err(e) = server.process_new_packets() {
            refused = Some(e);
            break;
        }
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut &wire[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    assert!(refused.is_some_and(|e| e.to_string().contains("BadSignature")));
}

#[test]
fn a_rotation_breaks_nobody_and_retiring_ends_the_old_root() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path());
    let (key, request) = request();
    let (old_pin, old_bundle) = (authority.pin(), certificates(&authority.bundle_pem()));
    let of_old = authority.issue(&request, "uid-1", now()).unwrap();
    assert!(authority.retire(1, now()).is_err(), "the active root is not retired");

    let new = authority.rotate(now()).unwrap();
    assert_eq!((new.generation, new.active), (2, true));
    assert!(matches!(authority.rotate(now()), Err(PkiError::RotationUnderWay { .. })));
    let of_new = authority.issue(&request, "uid-1", now()).unwrap();
    assert_eq!((of_old.generation, of_new.generation), (1, 2));
    let both = certificates(&authority.bundle_pem());
    let new_root = both[0].clone();
    assert_eq!((both.len(), Pin::of(&new_root)), (2, authority.pin()));

    let check_overlap = |authority: &Arc<Authority>| {
        assert!(authority.trusts(&old_pin) && authority.trusts(&new.pin));
        for trusted in [&old_bundle[..], std::slice::from_ref(&new_root), &both[..]] {
            for issued in [&of_old, &of_new] {
                let peer = handshake(authority, trusted, Some((issued, &key)), now()).unwrap().unwrap();
                assert_eq!(peer.serial, issued.serial);
            }
        }
        for pin in [old_pin, new.pin] {
            let root = pinned(authority, pin).expect("both pins are found in the chain");
            assert_eq!(handshake(authority, &[root], None, now()), Ok(None));
        }
    };
    check_overlap(&authority);
    // A restart in the middle changes nothing, nor does another process that rotated.
    check_overlap(&open(folder.path()));

    assert!(authority.retire(7, now()).is_err());
    authority.retire(1, now()).unwrap();
    for authority in [authority.clone(), open(folder.path())] {
        assert!(!authority.trusts(&old_pin));
        assert_eq!(authority.roots().len(), 1);
        assert_eq!(pinned(&authority, old_pin), None);
        assert!(handshake(&authority, &both, Some((&of_old, &key)), now()).is_err());
        assert!(handshake(&authority, &both, Some((&of_new, &key)), now()).unwrap().is_some());
        assert!(handshake(&authority, &old_bundle, None, now()).is_err());
    }
    assert_eq!(authority.rotate(now()).unwrap().generation, 3);
}

#[test]
fn what_another_process_rotated_is_picked_up() {
    let folder = tempfile::tempdir().unwrap();
    let (running, other) = (open(folder.path()), open(folder.path()));
    other.rotate(now()).unwrap();
    running.reload(now()).unwrap();
    assert_eq!(running.pin(), other.pin());
    assert_eq!(running.roots().len(), 2);
}

#[test]
fn the_servers_certificate_is_renewed_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path());
    let root = certificates(&authority.bundle_pem());
    let first = authority.server_certificate().cert[0].clone();
    assert!(!authority.refresh_server(now().after(DAY * 19)).unwrap());
    assert_eq!(authority.server_certificate().cert[0], first);
    let due = now().after(DAY * 20);
    assert!(authority.refresh_server(due).unwrap());
    assert_ne!(authority.server_certificate().cert[0], first);
    assert_eq!(handshake(&authority, &root, None, due.after(DAY * 25)), Ok(None));
    assert!(handshake(&authority, &root, None, due.after(DAY * 31)).is_err());
    // The clock steps back by more than the backdating.
    assert!(authority.refresh_server(due.before(DAY)).unwrap());
}

#[test]
fn no_leaf_outlives_its_root() {
    let folder = tempfile::tempdir().unwrap();
    let authority = open(folder.path());
    let end = authority.roots()[0].not_after;
    let (_, request) = request();
    let issued = authority.issue(&request, "uid", end.before(Duration::from_secs(3600))).unwrap();
    assert_eq!(issued.not_after, end);
    for (wrong, advice) in [(end.after(DAY), "rotate"), (now().before(DAY), "set the clock")] {
        let error = authority.issue(&request, "uid", wrong).unwrap_err();
        assert!(
            matches!(error, PkiError::RootNotValid { .. }) && error.to_string().contains(advice),
            "{error}"
        );
    }
}

#[test]
fn the_key_is_for_the_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("ca");
    let authority = open(&state);
    let file = state.join("root-1.pem");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&state), mode(&file), mode(&state.join("ca.pem"))), (0o700, 0o600, 0o644));
    let bundle = fs::read_to_string(state.join("ca.pem")).unwrap();
    assert_eq!(bundle, authority.bundle_pem());
    assert!(!bundle.contains("PRIVATE"));
    assert!(!format!("{authority:?}").contains("PRIVATE"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let error = open_at(&state, now()).unwrap_err().to_string();
    assert!(error.contains("root-1.pem") && error.contains("0640") && error.contains("chmod 600"), "{error}");
}

#[test]
fn damaged_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let file = folder.path().join("root-1.pem");
    let good = fs::read_to_string(&file).unwrap();
    let key_at = good.find("-----BEGIN PRIVATE").unwrap();
    let (certificate, key) = good.split_at(key_at);
    let other = tempfile::tempdir().unwrap();
    drop(open(other.path()));
    let other = fs::read_to_string(other.path().join("root-1.pem")).unwrap();
    let other_key = &other[other.find("-----BEGIN PRIVATE").unwrap()..];
    let cases = [
        (String::new(), "no certificate"),
        (certificate.to_owned(), "no private key"),
        (key.to_owned(), "no certificate"),
        (format!("{certificate}{other_key}"), "does not belong"),
        (good.replace("MIG", "!!!"), "cannot be read"),
        ("\0".repeat(3000), "no certificate"),
        ("x".repeat(300_000), "more than"),
    ];
    for (content, expected) in cases {
        fs::write(&file, &content).unwrap();
        let error = open_at(folder.path(), now()).unwrap_err().to_string();
        assert!(
            error.contains("root-1.pem") && error.contains(expected),
            "{error:?} instead of {expected:?}"
        );
    }
    fs::write(&file, &good).unwrap();
    open(folder.path());
}

#[test]
fn names_that_no_certificate_carries_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["", "a b", "https://x", "ü.example", "-x"] {
        let error =
            Authority::open(folder.path(), &[name.to_owned()], Lifetimes::default(), now()).unwrap_err();
        assert!(matches!(error, PkiError::BadName { .. }), "{name:?}: {error}");
    }
}

/// Made by `openssl req -new -newkey rsa:1024`.
const RSA_REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
     MIIBTDCBtgIBADANMQswCQYDVQQDDAJuMTCBnzANBgkqhkiG9w0BAQEFAAOBjQAw\n\
     gYkCgYEAqI3U0SmgTfH21Jv7hSpTtLVUnKwaLb1gzD7ikus1TBuimkWYenlVsduK\n\
     VXiBq7AiUDupqyaE/E2FD+tV1OnY+1QunJf9dUp+Oos2BUIvc1e6CHW0BrG31PJm\n\
     cgv//ZeFO7ydWposweQdmUyLjRAb35Es/4dETX8NEhOQOPSWDjsCAwEAAaAAMA0G\n\
     CSqGSIb3DQEBCwUAA4GBAB4RmZ1W9VwV6r1OA6PUJN9AL8GBcQ4RNrUtT5XtfV8H\n\
     Z6RGvEKA/1VCQd6SU4GeNTcC3J8kBR0VzBBQwfAiV5G+eos3lTgGW9neWMQ7AQ4j\n\
     4L+buQuZjS05OC6atVpCCnoX6flBBj40fm7uMkA48V0bmxmn4OZXR6+Pgh+0ZF6k\n\
     -----END CERTIFICATE REQUEST-----\n";

#[test]
fn requests_are_checked() {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let good = CertificateParams::default().serialize_request(&key).unwrap();
    let pem = good.pem().unwrap();
    assert_eq!(VerifiedRequest::from_pem(&pem).unwrap().key_hash().len(), 64);

    let mut forged = good.der().to_vec();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let p384 = CertificateParams::default().serialize_request(&p384).unwrap();
    let ed = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let ed = CertificateParams::default().serialize_request(&ed).unwrap();
    let mut long = good.der().to_vec();
    long.push(0);
    assert_eq!(VerifiedRequest::from_der(&forged), Err(RequestError::BadSignature));
    let algorithm = |result| match result {
        Err(RequestError::UnsupportedKey { algorithm }) => algorithm,
        other => panic!("{other:?}"),
    };
    assert_eq!(algorithm(VerifiedRequest::from_der(p384.der())), "ECDSA P-384");
    assert_eq!(algorithm(VerifiedRequest::from_der(ed.der())), "Ed25519");
    assert_eq!(algorithm(VerifiedRequest::from_pem(RSA_REQUEST)), "RSA");
    assert!(matches!(VerifiedRequest::from_der(&long), Err(RequestError::NotPkcs10 { .. })));
    assert!(matches!(VerifiedRequest::from_pem(""), Err(RequestError::NotPem { .. })));
    assert!(matches!(VerifiedRequest::from_pem(&"x".repeat(20_000)), Err(RequestError::TooLarge { .. })));
}

proptest! {
    #[test]
    fn no_bytes_make_a_request_or_certificate_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = VerifiedRequest::from_der(&bytes);
        let _ = VerifiedRequest::from_pem(&String::from_utf8_lossy(&bytes));
        let _ = PeerCertificate::read(&bytes);
    }

    #[test]
    fn no_flipped_byte_passes_as_a_request(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut der = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
        let good = VerifiedRequest::from_der(&der).unwrap();
        let at = at.index(der.len());
        der[at] ^= flip;
        // Whatever still passes is the same key: nothing else of a request is used.
        if let Ok(passed) = VerifiedRequest::from_der(&der) {
            prop_assert_eq!(passed.key_hash(), good.key_hash());
        }
    }

    #[test]
    fn pins_survive_their_text(bytes in any::<[u8; 32]>(), junk in ".{0,80}") {
        let pin = Pin(bytes);
        prop_assert_eq!(pin.to_string().parse::<Pin>(), Ok(pin));
        prop_assert_eq!(pin.to_string().to_uppercase().parse::<Pin>(), Ok(pin));
        let _ = junk.parse::<Pin>();
    }
}
