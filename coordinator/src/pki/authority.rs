//! The authority: roots on disk, certificates for nodes and for the coordinator itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use outrider_protocol::{Timestamp, hex};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
    SubjectPublicKeyInfo,
};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::root::{BACKDATE, Root, date, making, pem, serial};
use super::server::CurrentCertificate;
use super::verifier::NodeVerifier;
use super::{PeerCertificate, Pin, PkiError, VerifiedRequest, files};

/// How often [`Authority::keep_fresh`] looks whether the server's certificate is due.
const REFRESH_CHECK: Duration = Duration::from_secs(600);

/// How long certificates live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// A root's; ten years by default.
    pub root: Duration,
    /// The server certificate's; 30 days by default. Its key never leaves memory.
    pub server: Duration,
    /// A node's; 24 hours by default.
    pub client: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let days = |n: u64| Duration::from_secs(n * 24 * 3600);
        Self { root: days(3650), server: days(30), client: days(1) }
    }
}

/// A certificate for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The leaf, PEM.
    pub certificate: String,
    /// Serial number, hex.
    pub serial: String,
    /// Last instant of validity.
    pub not_after: Timestamp,
    /// Two thirds of its life: when to renew.
    pub renew_at: Timestamp,
    /// Generation of the root that signed it.
    pub generation: u32,
}

/// A trusted root, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootView {
    /// 1 for the first, one more with each rotation.
    pub generation: u32,
    /// Its pin.
    pub pin: Pin,
    /// Whether it issues; the other is trusted while a rotation overlaps.
    pub active: bool,
    /// Last instant of validity.
    pub not_after: Timestamp,
}

#[derive(Debug)]
struct State {
    active: Arc<Root>,
    previous: Option<Arc<Root>>,
    clients: Arc<dyn ClientCertVerifier>,
    server: Arc<CertifiedKey>,
    server_issued: Timestamp,
    server_renew_at: Timestamp,
}

/// The coordinator's certificate authority; cheap to share, safe to use from any thread.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    lifetimes: Lifetimes,
    names: Vec<SanType>,
    provider: Arc<CryptoProvider>,
    state: RwLock<State>,
}

impl Authority {
    /// Opens the authority in `folder`, or makes one there. `names`: DNS names and IP addresses of the coordinator.
    ///
    /// Reads and writes files: call it before serving, or where blocking is allowed.
    pub fn open(
        folder: &Path,
        names: &[String],
        lifetimes: Lifetimes,
        now: Timestamp,
    ) -> Result<Arc<Self>, PkiError> {
        files::private_folder(folder)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let names = alternative_names(names)?;
        let (active, previous) = load_or_make(folder, lifetimes, now)?;
        let state = make_state(&provider, &names, lifetimes, now, active, previous)?;
        let authority =
            Self { folder: folder.to_owned(), lifetimes, names, provider, state: RwLock::new(state) };
        authority.write_bundle()?;
        Ok(Arc::new(authority))
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(
        &self,
        now: Timestamp,
        active: Arc<Root>,
        previous: Option<Arc<Root>>,
    ) -> Result<(), PkiError> {
        let state = make_state(&self.provider, &self.names, self.lifetimes, now, active, previous)?;
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(())
    }

    /// The pin for new tokens: the active root's.
    pub fn pin(&self) -> Pin {
        self.state().active.pin()
    }

    /// Every trusted root, the active one first.
    pub fn roots(&self) -> Vec<RootView> {
        let state = self.state();
        let view = |root: &Root, active| RootView {
            generation: root.generation,
            pin: root.pin(),
            active,
            not_after: root.not_after,
        };
        let mut roots = vec![view(&state.active, true)];
        roots.extend(state.previous.as_ref().map(|root| view(root, false)));
        roots
    }

    /// Whether a token that pins `pin` leads to us.
    pub fn trusts(&self, pin: &Pin) -> bool {
        let state = self.state();
        state.active.pin() == *pin || state.previous.as_ref().is_some_and(|root| root.pin() == *pin)
    }

    /// Every trusted root, PEM, the active one first.
    pub fn bundle_pem(&self) -> String {
        let state = self.state();
        let mut bundle = pem(&state.active.certificate);
        if let Some(previous) = &state.previous {
            bundle.push_str(&pem(&previous.certificate));
        }
        bundle
    }

    /// How long a client certificate lives.
    pub fn client_lifetime(&self) -> Duration {
        self.lifetimes.client
    }

    /// A client certificate for node `uid` and the key of `request`; what else the request asks for is ignored.
    pub fn issue(&self, request: &VerifiedRequest, uid: &str, now: Timestamp) -> Result<Issued, PkiError> {
        let root = self.state().active.clone();
        let (mut params, not_after) = leaf(&root, now, self.lifetimes.client)?;
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, uid);
        params.distinguished_name = name;
        let uri = PeerCertificate::uri(uid).try_into().map_err(making)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = SubjectPublicKeyInfo::from_der(request.public_key()).map_err(making)?;
        let serial = params.serial_number.as_ref().map(|s| hex(&s.to_bytes())).unwrap_or_default();
        let certificate = params.signed_by(&key, &root.issuer).map_err(making)?;
        Ok(Issued {
            certificate: pem(certificate.der()),
            serial,
            not_after,
            renew_at: two_thirds(now, not_after),
            generation: root.generation,
        })
    }

    /// Makes a new root that issues from now on; the old one stays trusted until [`Authority::retire`].
    ///
    /// Writes files; a crash at any point leaves either the old state or the new.
    pub fn rotate(&self, now: Timestamp) -> Result<RootView, PkiError> {
        let (old, previous) = {
            let state = self.state();
            (state.active.clone(), state.previous.clone())
        };
        if let Some(previous) = previous {
            return Err(PkiError::RotationUnderWay { active: old.generation, previous: previous.generation });
        }
        let new = Arc::new(Root::make(old.generation + 1, now, self.lifetimes.root, Some(&old))?);
        new.save(&self.folder)?;
        self.replace(now, new.clone(), Some(old))?;
        self.write_bundle()?;
        Ok(RootView { generation: new.generation, pin: new.pin(), active: true, not_after: new.not_after })
    }

    /// Ends the trust in the root before the active one. Who knows only that one can no longer verify the coordinator
    /// and must enrol again; ask [`crate::enrol::Registrar::nodes_of_root`] first.
    ///
    /// Its file moves to `retired/`, from where it could be brought back.
    pub fn retire(&self, generation: u32, now: Timestamp) -> Result<(), PkiError> {
        let (active, previous) = {
            let state = self.state();
            (state.active.clone(), state.previous.clone())
        };
        let problem = if generation == active.generation {
            "it is the active root; rotate first"
        } else if previous.is_none_or(|p| p.generation != generation) {
            "no such root is trusted"
        } else {
            let retired = self.folder.join("retired");
            files::private_folder(&retired)?;
            let (from, to) = (Root::path(&self.folder, generation), Root::path(&retired, generation));
            fs::rename(&from, &to).map_err(|source| PkiError::Io {
                verb: "move",
                path: from.clone(),
                source,
            })?;
            files::sync_folder(&to)?;
            files::sync_folder(&from)?;
            self.replace(now, active, None)?;
            return self.write_bundle();
        };
        Err(PkiError::NotRetirable { generation, problem })
    }

    /// Reads the roots again: another process (`outrider-coordinator ca rotate`) may have changed them.
    pub fn reload(&self, now: Timestamp) -> Result<(), PkiError> {
        let (active, previous) = load_or_make(&self.folder, self.lifetimes, now)?;
        self.replace(now, active, previous)
    }

    /// Makes a new server certificate if two thirds of the current one's life are over, or the clock stepped back
    /// before its beginning; whether it did.
    pub fn refresh_server(&self, now: Timestamp) -> Result<bool, PkiError> {
        let (active, previous) = {
            let state = self.state();
            if now >= state.server_issued.before(BACKDATE) && now < state.server_renew_at {
                return Ok(false);
            }
            (state.active.clone(), state.previous.clone())
        };
        self.replace(now, active, previous)?;
        Ok(true)
    }

    /// Keeps the server's certificate fresh, for as long as the coordinator runs; never returns.
    pub async fn keep_fresh(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(REFRESH_CHECK);
        loop {
            ticks.tick().await;
            match self.refresh_server(SystemTime::now().into()) {
                Ok(true) => log::info!("the server's certificate was renewed"),
                Ok(false) => {}
                Err(e) => log::error!("the server's certificate cannot be renewed: {e}"),
            }
        }
    }

    /// The certificate the server shows now: leaf, then what leads to each trusted root, and the roots themselves.
    pub(super) fn server_certificate(&self) -> Arc<CertifiedKey> {
        self.state().server.clone()
    }

    pub(super) fn client_roots(&self) -> Arc<dyn ClientCertVerifier> {
        self.state().clients.clone()
    }

    /// TLS for the server: our certificate as it is at each handshake, client certificates optional, HTTP/1.1.
    pub fn server_config(self: &Arc<Self>) -> Result<rustls::ServerConfig, PkiError> {
        let verifier = NodeVerifier {
            authority: self.clone(),
            algorithms: self.provider.signature_verification_algorithms,
        };
        let mut config = rustls::ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| PkiError::Making { detail: e.to_string() })?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(CurrentCertificate(self.clone())));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// `ca.pem`: the bundle for people and tools; nothing reads it back.
    fn write_bundle(&self) -> Result<(), PkiError> {
        files::write_whole(&self.folder.join("ca.pem"), self.bundle_pem().as_bytes(), 0o644)
    }
}

/// Two thirds of the time from `now` to `end`.
fn two_thirds(now: Timestamp, end: Timestamp) -> Timestamp {
    now.after(end.since(now) * 2 / 3)
}

/// DNS names and addresses for the server's certificate, each once.
fn alternative_names(names: &[String]) -> Result<Vec<SanType>, PkiError> {
    let unique: BTreeSet<&str> =
        names.iter().map(|n| n.trim_start_matches('[').trim_end_matches(']')).collect();
    let name = |n: &str| {
        let bad = || PkiError::BadName { name: n.to_owned() };
        match n.parse() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            // What a client compares with is a DNS name in the strict sense; anything else would never match.
            Err(_) => match rustls_pki_types::DnsName::try_from(n) {
                Ok(_) => Ok(SanType::DnsName(n.try_into().map_err(|_| bad())?)),
                Err(_) => Err(bad()),
            },
        }
    };
    unique.into_iter().map(name).collect()
}

/// What every leaf has in common, and its end: `lifetime` from `now`, but no later than its root's.
fn leaf(root: &Root, now: Timestamp, lifetime: Duration) -> Result<(CertificateParams, Timestamp), PkiError> {
    if now < root.not_before || now >= root.not_after {
        let advice = if now < root.not_before {
            "set the clock; if it is right now, the root was made while it was wrong: rotate the CA"
        } else {
            "set the clock if it is wrong, otherwise rotate the CA"
        };
        let (not_before, not_after) = (root.not_before, root.not_after);
        return Err(PkiError::RootNotValid { not_before, not_after, now, advice });
    }
    // Whole seconds, as the certificate has them.
    let end = now.after(lifetime).min(root.not_after);
    let not_after = Timestamp::from_seconds(end.as_millis().div_euclid(1000));
    let mut params = CertificateParams::default();
    params.not_before = date(now.before(BACKDATE).max(root.not_before))?;
    params.not_after = date(not_after)?;
    params.serial_number = Some(serial());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    Ok((params, not_after))
}

type Trusted = (Arc<Root>, Option<Arc<Root>>);

/// The newest root of the folder and the one before, or a first one made now.
fn load_or_make(folder: &Path, lifetimes: Lifetimes, now: Timestamp) -> Result<Trusted, PkiError> {
    let io = |source| PkiError::Io { verb: "read", path: folder.to_owned(), source };
    let mut generations = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let number: Option<u32> =
            name.to_str().and_then(|n| n.strip_prefix("root-")?.strip_suffix(".pem")?.parse().ok());
        generations.extend(number);
    }
    generations.sort_unstable_by(|a, b| b.cmp(a));
    let Some(newest) = generations.first() else {
        let root = Root::make(1, now, lifetimes.root, None)?;
        root.save(folder)?;
        return Ok((Arc::new(root), None));
    };
    let previous = generations.get(1).map(|n| Root::load(folder, *n)).transpose()?;
    Ok((Arc::new(Root::load(folder, *newest)?), previous.map(Arc::new)))
}

fn make_state(
    provider: &Arc<CryptoProvider>,
    names: &[SanType],
    lifetimes: Lifetimes,
    now: Timestamp,
    active: Arc<Root>,
    previous: Option<Arc<Root>>,
) -> Result<State, PkiError> {
    let detail = |e: &dyn std::fmt::Display| PkiError::Making { detail: e.to_string() };
    let mut trusted = RootCertStore::empty();
    for root in [Some(&active), previous.as_ref()].into_iter().flatten() {
        trusted.add(root.certificate.clone()).map_err(|e| detail(&e))?;
    }
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), provider.clone())
        .build()
        .map_err(|e| detail(&e))?;

    let (mut params, not_after) = leaf(&active, now, lifetimes.server)?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "Outrider coordinator");
    params.distinguished_name = name;
    params.subject_alt_names = names.to_vec();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(making)?;
    let certificate = params.signed_by(&key, &active.issuer).map_err(making)?.der().clone();
    let mut chain: Vec<CertificateDer<'static>> = vec![certificate];
    if previous.is_some() {
        chain.extend(active.crossed.clone());
    }
    chain.push(active.certificate.clone());
    chain.extend(previous.as_ref().map(|root| root.certificate.clone()));
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let signer = provider.key_provider.load_private_key(key).map_err(|e| detail(&e))?;
    Ok(State {
        active,
        previous,
        clients,
        server: Arc::new(CertifiedKey::new(chain, signer)),
        server_issued: now,
        server_renew_at: two_thirds(now, not_after),
    })
}
