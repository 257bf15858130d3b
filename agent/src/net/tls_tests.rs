//! Verifiers against real handshakes over an in-memory pipe.

use std::sync::Arc;

use outrider_protocol::UnknownCause;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use super::authority::authority;
use super::tls::*;
use super::{Failure, certificate};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        Self(authority(name))
    }

    fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A leaf for `name`, valid from year to year.
    fn leaf(&self, name: &str, years: (i32, i32)) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap().der().clone();
        (leaf, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

const NOW: (i32, i32) = (2020, 2999);

fn server(ca: &Authority, name: &str, years: (i32, i32)) -> Arc<ServerConfig> {
    let (leaf, key) = ca.leaf(name, years);
    let config =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_no_client_auth().with_single_cert(vec![leaf, ca.der()], key).unwrap())
}

async fn handshake_with(
    server: Arc<ServerConfig>,
    client: Arc<rustls::ClientConfig>,
    name: &str,
) -> Result<(), Failure> {
    use tokio::io::AsyncReadExt;
    let (near, far) = tokio::io::duplex(16 * 1024);
    let peer = tokio::spawn(async move {
        if let Ok(mut stream) = tokio_rustls::TlsAcceptor::from(server).accept(far).await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"!").await;
            let _ = stream.read_u8().await;
        }
    });
    let done = async {
        let mut stream = handshake(near, client, name).await?;
        // In TLS 1.3 a refused client certificate shows at the first read only.
        stream.read_u8().await?;
        Ok(())
    }
    .await;
    peer.await.unwrap();
    done
}

#[tokio::test]
async fn trusts_its_roots_and_checks_the_name() {
    let (ca, other) = (Authority::new("a"), Authority::new("b"));
    let client =
        |ca: &Authority| client_config(trusting(roots_of(&[ca.der()]).unwrap()).unwrap(), None, &[]).unwrap();
    handshake_with(server(&ca, "r.example", NOW), client(&ca), "r.example").await.unwrap();
    handshake_with(server(&ca, "127.0.0.1", NOW), client(&ca), "127.0.0.1").await.unwrap();
    for (client, name) in [(client(&other), "r.example"), (client(&ca), "s.example")] {
        let failure = handshake_with(server(&ca, "r.example", NOW), client, name).await.unwrap_err();
        assert_eq!(failure.cause, UnknownCause::TlsFailed, "{failure}");
    }
}

#[tokio::test]
async fn a_pin_takes_its_root_only_and_a_mismatch_shows_both() {
    let (ca, other) = (Authority::new("a"), Authority::new("a"));
    let pin = |ca: &Authority| Pinned::new(certificate::sha256(&ca.der()), false);
    let good = pin(&ca);
    let config = client_config(good.clone(), None, &[]).unwrap();
    handshake_with(server(&ca, "c.example", NOW), config.clone(), "c.example").await.unwrap();
    assert_eq!((good.root(), good.clock_skew()), (Some(ca.der()), None));
    let failure = handshake_with(server(&ca, "c.example", NOW), config, "d.example").await.unwrap_err();
    assert_eq!(failure.cause, UnknownCause::TlsFailed);

    let config = client_config(pin(&other), None, &[]).unwrap();
    let failure = handshake_with(server(&ca, "c.example", NOW), config, "c.example").await.unwrap_err();
    for ca in [&ca, &other] {
        let shown = certificate::hex(&certificate::sha256(&ca.der()));
        assert!(failure.detail.contains(&shown), "{failure}");
    }
}

#[tokio::test]
async fn showing_the_pinned_root_is_not_enough_the_chain_must_lead_to_it() {
    let (ca, forger) = (Authority::new("a"), Authority::new("a"));
    let (leaf, key) = forger.leaf("c.example", NOW);
    let config =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let server = Arc::new(config.with_no_client_auth().with_single_cert(vec![leaf, ca.der()], key).unwrap());
    let pinned = Pinned::new(certificate::sha256(&ca.der()), true);
    let config = client_config(pinned.clone(), None, &[]).unwrap();
    let failure = handshake_with(server, config, "c.example").await.unwrap_err();
    assert_eq!((failure.cause, pinned.root()), (UnknownCause::TlsFailed, None));
}

#[tokio::test]
async fn a_wrong_clock_is_forgiven_only_when_asked_and_never_a_wrong_name() {
    let ca = Authority::new("a");
    let sha256 = certificate::sha256(&ca.der());
    let past = || server(&ca, "c.example", (2001, 2002));
    let future = || server(&ca, "c.example", (2998, 2999));

    let strict = client_config(Pinned::new(sha256, false), None, &[]).unwrap();
    let failure = handshake_with(past(), strict, "c.example").await.unwrap_err();
    assert!(failure.detail.contains("expired"), "{failure}");

    let forgiving = Pinned::new(sha256, true);
    let config = client_config(forgiving.clone(), None, &[]).unwrap();
    handshake_with(past(), config.clone(), "c.example").await.unwrap();
    assert!(forgiving.clock_skew().unwrap().seconds > 0);
    handshake_with(future(), config.clone(), "c.example").await.unwrap();
    assert!(forgiving.clock_skew().unwrap().seconds < 0);
    handshake_with(past(), config, "d.example").await.unwrap_err();
}

#[tokio::test]
async fn an_observer_accepts_everything_and_says_what_is_wrong() {
    let (ca, other) = (Authority::new("a"), Authority::new("b"));
    let anchors = |roots: &Authority| Anchors::new(roots_of(&[roots.der()]).unwrap());
    // Shared by all tries of a pass: what was said of one chain is not said of another.
    let (by_ca, by_other) = (anchors(&ca), anchors(&other));
    let again = server(&ca, "r.example", NOW);
    for (roots, server_name, years, trusted, matches) in [
        (&ca, "r.example", NOW, true, true),
        (&ca, "s.example", NOW, true, false),
        (&other, "r.example", NOW, false, true),
        (&ca, "r.example", (2001, 2002), false, true),
    ] {
        let is_ca = std::ptr::eq(roots, &ca);
        let observer = Observing::new(if is_ca { by_ca.clone() } else { by_other.clone() });
        let config = client_config(observer.clone(), None, &[]).unwrap();
        handshake_with(server(&ca, server_name, years), config.clone(), "r.example").await.unwrap();
        let seen = observer.take().unwrap();
        assert_eq!((seen.trust.is_ok(), seen.name_matches), (trusted, matches), "{seen:?}");
        assert_eq!(seen.chain.len(), 2);
        assert!(observer.take().is_none());
        for _ in 0..2 {
            handshake_with(again.clone(), config.clone(), "r.example").await.unwrap();
            assert_eq!(observer.take().unwrap().trust.is_ok(), is_ca);
        }
    }
}

/// The dates of a certificate are seen by everybody; whom it leads to is not.
#[tokio::test]
async fn wrong_dates_do_not_hide_who_issued_a_certificate() {
    let (ca, other) = (Authority::new("a"), Authority::new("b"));
    for (roots, years, words) in [
        (&ca, (2001, 2002), "by this clock"),
        (&ca, (2998, 2999), "by this clock"),
        (&other, (2001, 2002), "no trusted authority"),
        (&other, (2998, 2999), "no trusted authority"),
        (&other, NOW, "no trusted authority"),
    ] {
        let observer = Observing::new(Anchors::new(roots_of(&[roots.der()]).unwrap()));
        let config = client_config(observer.clone(), None, &[]).unwrap();
        handshake_with(server(&ca, "r.example", years), config, "r.example").await.unwrap();
        let seen = observer.take().unwrap();
        let failure = seen.trust.clone().unwrap_err();
        assert!(failure.detail.contains(words), "{years:?}: {failure}");
        let again = verify(&seen.chain, &roots_of(&[roots.der()]).unwrap()).unwrap_err();
        assert!(again.detail.contains(words), "{years:?}: {again}");
        // Without what is sent along.
        let alone = verify(&seen.chain[..1], &roots_of(&[roots.der()]).unwrap()).unwrap_err();
        assert!(alone.detail.contains(words), "{years:?}: {alone}");
    }
}

#[tokio::test]
async fn a_refused_client_certificate_is_unauthenticated() {
    let (ca, other) = (Authority::new("a"), Authority::new("b"));
    let (leaf, key) = ca.leaf("c.example", NOW);
    let clients = WebPkiClientVerifier::builder_with_provider(roots_of(&[ca.der()]).unwrap(), provider());
    let config =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(clients.build().unwrap());
    let server = Arc::new(config.with_single_cert(vec![leaf], key).unwrap());
    let trust = || trusting(roots_of(&[ca.der()]).unwrap()).unwrap();

    let (leaf, key) = ca.leaf("client.example", NOW);
    let good = client_config(trust(), Some(&Identity::from_der(vec![leaf], key)), &[]).unwrap();
    handshake_with(server.clone(), good, "c.example").await.unwrap();

    let (leaf, key) = other.leaf("client.example", NOW);
    let wrong = client_config(trust(), Some(&Identity::from_der(vec![leaf], key)), &[]).unwrap();
    let none = client_config(trust(), None, &[]).unwrap();
    for config in [wrong, none] {
        let failure = handshake_with(server.clone(), config, "c.example").await.unwrap_err();
        assert_eq!(failure.cause, UnknownCause::Unauthenticated, "{failure}");
    }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let ca = Authority::new("a");
    let ((leaf, _), (_, key)) = (ca.leaf("a", NOW), ca.leaf("a", NOW));
    let trust = trusting(roots_of(&[ca.der()]).unwrap()).unwrap();
    let failure = client_config(trust, Some(&Identity::from_der(vec![leaf], key)), &[]).unwrap_err();
    assert_eq!(failure.cause, UnknownCause::InvalidInput);
    assert_eq!(failure.detail, "the private key does not belong to the certificate");
}

/// One self-signed certificate of a CA, for the server and for trust alike.
fn self_signed(years: (i32, i32)) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(vec!["r.example".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

#[test]
fn a_leaf_that_is_itself_a_root_is_trusted_while_its_dates_fit() {
    let (good, other, past) = (self_signed(NOW), self_signed(NOW), self_signed((2001, 2002)));
    let verdict = |leaf: &CertificateDer<'static>, root: &CertificateDer<'static>| {
        verify(std::slice::from_ref(leaf), &roots_of(std::slice::from_ref(root)).unwrap())
    };
    verdict(&good, &good).unwrap();
    // The same name with another key is another certificate.
    verdict(&good, &other).unwrap_err();
    let failure = verdict(&past, &past).unwrap_err();
    assert!(failure.detail.contains("expired"), "{failure}");
    let future = self_signed((2998, 2999));
    assert!(verdict(&future, &future).unwrap_err().detail.contains("valid only in"));
}

/// Up to TLS 1.2, and as OpenSSL does it: `alert` in the clear, in answer to the flight with the client's certificate or to
/// that with its hello.
async fn refused_by_alert(
    ca: &Authority,
    client: Arc<rustls::ClientConfig>,
    asks: bool,
    alert: rustls::AlertDescription,
) -> Failure {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (leaf, key) = ca.leaf("r.example", NOW);
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap();
    let roots = roots_of(&[ca.der()]).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build().unwrap();
    let config =
        config.with_client_cert_verifier(verifier).with_single_cert(vec![leaf, ca.der()], key).unwrap();
    let (near, mut far) = tokio::io::duplex(16 * 1024);
    let peer = tokio::spawn(async move {
        let mut server = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut flight = [0; 16 * 1024];
        let n = far.read(&mut flight).await.unwrap();
        if asks {
            server.read_tls(&mut &flight[..n]).unwrap();
            server.process_new_packets().unwrap();
            let mut answer = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut answer).unwrap();
            }
            far.write_all(&answer).await.unwrap();
            let _ = far.read(&mut flight).await.unwrap();
        }
        far.write_all(&[21, 3, 3, 0, 2, 2, u8::from(alert)]).await.unwrap();
        let _ = far.read(&mut flight).await;
    });
    let failure = handshake(near, client, "r.example").await.err().unwrap();
    peer.await.unwrap();
    failure
}

#[tokio::test]
async fn an_alert_after_a_certificate_was_asked_for_is_about_that_certificate() {
    use rustls::AlertDescription as A;
    let ca = Authority::new("a");
    let client =
        |identity| client_config(trusting(roots_of(&[ca.der()]).unwrap()).unwrap(), identity, &[]).unwrap();
    let (leaf, key) = ca.leaf("n1", NOW);
    let identity = Identity::from_der(vec![leaf], key);
    for (identity, asks, alert, cause, words) in [
        (None, true, A::HandshakeFailure, UnknownCause::Unauthenticated, "none was shown (HandshakeFailure)"),
        // Go says so of none at all.
        (None, true, A::BadCertificate, UnknownCause::Unauthenticated, "none was shown (BadCertificate)"),
        (
            Some(&identity),
            true,
            A::HandshakeFailure,
            UnknownCause::Unauthenticated,
            "refused our client certificate (HandshakeFailure)",
        ),
        (Some(&identity), true, A::InternalError, UnknownCause::TlsFailed, "ended the TLS handshake"),
        (
            None,
            false,
            A::HandshakeFailure,
            UnknownCause::TlsFailed,
            "ended the TLS handshake (HandshakeFailure)",
        ),
        (Some(&identity), false, A::HandshakeFailure, UnknownCause::TlsFailed, "ended the TLS handshake"),
    ] {
        let failure = refused_by_alert(&ca, client(identity), asks, alert).await;
        assert_eq!(failure.cause, cause, "{failure}");
        assert!(failure.detail.contains(words), "{failure}");
    }
}
