//! TLS as a client: whom to trust, who we are, and what a probe may see.
//!
//! Three verifiers: roots (ordinary trust), [`Pinned`] (a chain that holds one known root, for the coordinator) and
//! [`Observing`] (accepts everything and writes down the verdict, for probes that must see a broken certificate).
//! All use the ring provider, passed explicitly; nothing process-wide is installed.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use outrider_protocol::UnknownCause;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ResolvesClientCert, Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor,
    verify_server_name,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, OtherError, RootCertStore,
    SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

use super::{Failure, certificate};

/// The provider of all our TLS.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    PROVIDER.clone()
}

/// A client certificate with its key.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// From PEM texts; errors name neither content. Whether the two belong together shows in [`client_config`].
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Failure> {
        Ok(Self {
            chain: certificate::certificates(certificate).map_err(|e| e.during("client certificate"))?,
            key: certificate::private_key(key).map_err(|e| e.during("client key"))?,
        })
    }

    /// From DER, leaf first.
    pub fn from_der(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key }
    }
}

/// The system's roots, read at first use and again when older than an hour.
///
/// Reads files, so call it where blocking is allowed. A system without any root yields an empty store: every public
/// certificate is then untrusted, which is what every other program on that machine says too.
pub fn system_roots() -> Arc<RootCertStore> {
    static ROOTS: Mutex<Option<(Instant, Arc<RootCertStore>)>> = Mutex::new(None);
    let mut cache = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, roots)) = cache.as_ref().filter(|(at, _)| at.elapsed() < Duration::from_secs(3600)) {
        return roots.clone();
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let roots = Arc::new(roots);
    *cache = Some((Instant::now(), roots.clone()));
    roots
}

/// A store of exactly these roots.
pub fn roots_of(certificates: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, Failure> {
    extended(&RootCertStore::empty(), certificates)
}

/// `base` and these roots.
pub fn extended(
    base: &RootCertStore,
    certificates: &[CertificateDer<'static>],
) -> Result<Arc<RootCertStore>, Failure> {
    let mut roots = base.clone();
    for certificate in certificates {
        roots
            .add(certificate.clone())
            .map_err(|e| Failure::new(UnknownCause::InvalidInput, format!("unusable CA certificate: {e}")))?;
    }
    Ok(Arc::new(roots))
}

/// Ordinary trust in `roots`, name included.
pub fn trusting(roots: Arc<RootCertStore>) -> Result<Arc<dyn ServerCertVerifier>, Failure> {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|e| Failure::new(UnknownCause::InvalidInput, format!("no usable CA certificate: {e}")))?;
    Ok(verifier)
}

/// A client configuration; fails when certificate and key do not belong together.
pub fn client_config(
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Option<&Identity>,
    alpn: &[&[u8]],
) -> Result<Arc<ClientConfig>, Failure> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some(identity) => builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    // A resumed session shows no certificates, and kept tickets cost memory; connections here live long instead.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The handshake with `host` (name, or IP address without brackets) on `stream`. Bound it with [`super::within`].
pub async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: Arc<ClientConfig>,
    host: &str,
) -> Result<TlsStream<S>, Failure> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        Failure::new(UnknownCause::InvalidInput, format!("{host:?} is no name or address for TLS"))
    })?;
    let wanted =
        Arc::new(Wanted { identity: config.client_auth_cert_resolver.clone(), shown: OnceLock::new() });
    let mut config = ClientConfig::clone(&config);
    config.client_auth_cert_resolver = wanted.clone();
    let shaken = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    shaken.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Failure::new(UnknownCause::TlsFailed, "the peer closed the connection during the TLS handshake")
        }
        _ => wanted.refusal(&error).unwrap_or_else(|| Failure::from(error)),
    })
}

/// Whether the server asked for a client certificate in one handshake, and was shown one. Up to TLS 1.2 a server that
/// gets none, or not the one it wants, ends the handshake with whatever alert it likes: OpenSSL with the one that also means
/// that the two sides have no algorithm in common. What tells them apart is that this server had asked.
#[derive(Debug)]
struct Wanted {
    identity: Arc<dyn ResolvesClientCert>,
    shown: OnceLock<bool>,
}

impl Wanted {
    /// What an alert means that came after the server had asked.
    fn refusal(&self, error: &std::io::Error) -> Option<Failure> {
        use rustls::AlertDescription as A;
        let shown = *self.shown.get()?;
        let Some(TlsError::AlertReceived(alert)) = error.get_ref()?.downcast_ref() else { return None };
        if !shown {
            let detail = format!("the peer wants a client certificate, and none was shown ({alert:?})");
            return Some(Failure::new(UnknownCause::Unauthenticated, detail));
        }
        (*alert == A::HandshakeFailure).then(|| {
            let detail = format!("the peer refused our client certificate ({alert:?})");
            Failure::new(UnknownCause::Unauthenticated, detail)
        })
    }
}

impl ResolvesClientCert for Wanted {
    fn resolve(&self, hints: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let identity = self.identity.resolve(hints, schemes);
        self.shown.get_or_init(|| identity.is_some());
        identity
    }

    fn has_certs(&self) -> bool {
        self.identity.has_certs()
    }
}

/// The methods of a verifier that know nothing of trust: signatures count as they do for everybody.
macro_rules! signatures_as_usual {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, TlsError> {
            let algorithms = provider().signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, cert, dss, &algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, TlsError> {
            let algorithms = provider().signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, cert, dss, &algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            provider().signature_verification_algorithms.supported_schemes()
        }
    };
}

/// How far a clock is off at least, by a certificate that is otherwise right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    /// Seconds our clock is at least ahead (positive) or behind (negative).
    pub seconds: i64,
}

/// Accepts a chain that holds the certificate with one SHA-256 and leads to it.
///
/// With `forgive_time`, a chain that is right in all but its validity times passes and the skew is kept: for the
/// first contact of a machine whose clock is wrong, and for nothing else.
pub struct Pinned {
    sha256: [u8; 32],
    forgive_time: bool,
    seen: Mutex<(Option<ClockSkew>, Option<CertificateDer<'static>>)>,
}

impl Pinned {
    /// Pins the root whose DER has this SHA-256.
    pub fn new(sha256: [u8; 32], forgive_time: bool) -> Arc<Self> {
        Arc::new(Self { sha256, forgive_time, seen: Mutex::default() })
    }

    /// The skew that the last handshake forgave.
    pub fn clock_skew(&self) -> Option<ClockSkew> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// The pinned root, once a server has shown it.
    pub fn root(&self) -> Option<CertificateDer<'static>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the CA does not match: expected SHA-256 {expected}, the server showed {}", shown.join(", "))]
struct PinMismatch {
    expected: String,
    shown: Vec<String>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(root) = intermediates.iter().find(|c| certificate::sha256(c) == self.sha256) else {
            // The leaf is named only when it came alone: what is pinned is a root.
            let shown = if intermediates.is_empty() { std::slice::from_ref(leaf) } else { intermediates };
            let mismatch = PinMismatch {
                expected: certificate::hex(&self.sha256),
                shown: shown.iter().map(|c| certificate::hex(&certificate::sha256(c))).collect(),
            };
            return Err(TlsError::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(
                mismatch,
            )))));
        };
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned())?;
        let parsed = ParsedCertificate::try_from(leaf)?;
        verify_server_name(&parsed, name)?;
        let verify = |at| {
            let algorithms = provider().signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, at, algorithms)
        };
        let skew = match verify(now) {
            Ok(()) => None,
            Err(error) if self.forgive_time && is_about_time(&error) => {
                let (at, skew) = common_validity(leaf, intermediates, root, now).ok_or(error)?;
                verify(at)?;
                Some(skew)
            }
            Err(error) => return Err(error),
        };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = (skew, Some(root.clone().into_owned()));
        Ok(ServerCertVerified::assertion())
    }

    signatures_as_usual!();
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({})", certificate::hex(&self.sha256))
    }
}

fn is_about_time(error: &TlsError) -> bool {
    use CertificateError as E;
    matches!(
        error,
        TlsError::InvalidCertificate(
            E::Expired | E::ExpiredContext { .. } | E::NotValidYet | E::NotValidYetContext { .. }
        )
    )
}

/// An instant at which leaf and intermediates are all valid, and how far `now` is from there at least.
fn common_validity(
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    root: &CertificateDer<'_>,
    now: UnixTime,
) -> Option<(UnixTime, ClockSkew)> {
    let (mut from, mut to) = (i64::MIN, i64::MAX);
    for certificate in intermediates.iter().filter(|c| *c != root).chain([leaf]) {
        let facts = certificate::facts(certificate).ok()?;
        from = from.max(facts.not_before.as_millis().div_euclid(1000));
        to = to.min(facts.not_after.as_millis().div_euclid(1000));
    }
    let now = i64::try_from(now.as_secs()).ok()?;
    if from > to {
        return None;
    }
    let at = now.clamp(from, to);
    let at_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at).ok()?));
    Some((at_time, ClockSkew { seconds: now - at }))
}

/// Whether `chain`, leaf first and as a peer sent it, leads to one of `roots` now; the name is not looked at.
pub fn verify(chain: &[CertificateDer<'_>], roots: &RootCertStore) -> Result<(), Failure> {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return Err(Failure::new(UnknownCause::TlsFailed, "the peer sent no certificate"));
    };
    let parsed = ParsedCertificate::try_from(leaf)?;
    Ok(verify_as_clients_do(leaf, &parsed, intermediates, roots, UnixTime::now())?)
}

/// [`verify_at`] this moment. Wrong dates stand in the certificates for everybody to see, and hide what else is wrong; so that
/// is looked for at a moment when the dates were right, and is the verdict where it is found.
fn verify_as_clients_do(
    leaf: &CertificateDer<'_>,
    parsed: &ParsedCertificate<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
) -> Result<(), TlsError> {
    let verify = |at| verify_at(leaf, parsed, intermediates, roots, at);
    let Err(error) = verify(now) else { return Ok(()) };
    if !is_about_time(&error) {
        return Err(error);
    }
    // One that is sent along and was never valid together with the leaf is left out.
    let of_all = common_validity(leaf, intermediates, leaf, now);
    let (at, _) = match of_all.or_else(|| common_validity(leaf, &[], leaf, now)) {
        Some(then) => then,
        None => return Err(error),
    };
    match verify(at) {
        Err(other) if !is_about_time(&other) => Err(other),
        _ => Err(error),
    }
}

/// Whether the chain leads to a root, or its leaf is one: Go (crypto/x509:verify.go, `opts.Roots.contains`) and curl trust
/// a certificate that is itself among the roots, a CA's too, which this verifier alone refuses.
fn verify_at(
    leaf: &CertificateDer<'_>,
    parsed: &ParsedCertificate<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
) -> Result<(), TlsError> {
    let algorithms = provider().signature_verification_algorithms.all;
    let verdict = verify_server_cert_signed_by_trust_anchor(parsed, roots, intermediates, now, algorithms);
    let Err(error) = verdict else { return Ok(()) };
    let mut alone = RootCertStore::empty();
    let is_root = alone.add(leaf.clone().into_owned()).is_ok()
        && alone.roots.iter().all(|root| roots.roots.contains(root));
    let (true, Ok(facts)) = (is_root, certificate::facts(leaf)) else { return Err(error) };
    let at = |time: outrider_protocol::Timestamp| {
        let seconds = time.as_millis().div_euclid(1000);
        UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    };
    let (not_before, not_after) = (at(facts.not_before), at(facts.not_after));
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
    }
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
    }
    Ok(())
}

/// What an [`Observing`] handshake saw.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Certificates in the order sent, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Whether the chain, as sent, leads to one of the roots now.
    pub trust: Result<(), Failure>,
    /// Whether a SAN of the leaf covers the name asked for.
    pub name_matches: bool,
}

/// A chain, leaf first, and whether it leads to a root.
type Verdict = (Vec<CertificateDer<'static>>, Result<(), Failure>);

/// Roots, with what they said of the chains of one pass: most tries are shown the same one, and to verify it costs a tenth of
/// what the pass does. A verdict is of its moment, so this is not to be kept for longer than a pass.
#[derive(Debug)]
pub struct Anchors {
    roots: Arc<RootCertStore>,
    verdicts: Mutex<Vec<Verdict>>,
}

impl Anchors {
    /// Chains that are remembered: two addresses and three backends, each with one of its own, and a few more.
    const CHAINS: usize = 8;

    /// No verdict yet.
    pub fn new(roots: Arc<RootCertStore>) -> Arc<Self> {
        Arc::new(Self { roots, verdicts: Mutex::new(Vec::new()) })
    }

    fn verdict(
        &self,
        parsed: &ParsedCertificate<'_>,
        chain: &[CertificateDer<'static>],
        now: UnixTime,
    ) -> Result<(), Failure> {
        let Some((leaf, intermediates)) = chain.split_first().filter(|_| !self.roots.is_empty()) else {
            return Err(TlsError::from(CertificateError::UnknownIssuer).into());
        };
        let verdicts = || self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, verdict)) = verdicts().iter().find(|(known, _)| known == chain) {
            return verdict.clone();
        }
        let verdict =
            verify_as_clients_do(leaf, parsed, intermediates, &self.roots, now).map_err(Failure::from);
        let mut verdicts = verdicts();
        if verdicts.len() < Self::CHAINS {
            verdicts.push((chain.to_vec(), verdict.clone()));
        }
        verdict
    }
}

/// Accepts every certificate and writes down what ordinary trust would have said. For probes, which send no secret.
#[derive(Debug)]
pub struct Observing {
    anchors: Arc<Anchors>,
    seen: Mutex<Option<Observation>>,
}

impl Observing {
    /// Judges, without consequence, by `anchors`.
    pub fn new(anchors: Arc<Anchors>) -> Arc<Self> {
        Arc::new(Self { anchors, seen: Mutex::new(None) })
    }

    /// Looks at what is shown and asks no root about it.
    pub fn without_roots() -> Arc<Self> {
        Self::new(Anchors::new(Arc::new(RootCertStore::empty())))
    }

    /// What the last handshake showed; taken, so that a handshake that failed early shows nothing old.
    pub fn take(&self) -> Option<Observation> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ServerCertVerifier for Observing {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let chain: Vec<_> = [leaf].into_iter().chain(intermediates).map(|c| c.clone().into_owned()).collect();
        let (trust, name_matches) = match ParsedCertificate::try_from(leaf) {
            Ok(parsed) => {
                (self.anchors.verdict(&parsed, &chain, now), verify_server_name(&parsed, name).is_ok())
            }
            Err(error) => (Err(Failure::from(error)), false),
        };
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Observation { chain, trust, name_matches });
        Ok(ServerCertVerified::assertion())
    }

    signatures_as_usual!();
}
