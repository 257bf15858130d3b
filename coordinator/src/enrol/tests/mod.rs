//! The registrar over a store in memory and a real authority.

mod clones;
mod nodes;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use outrider_protocol::{
    EnrollRequest, EnrollResponse, Identity, NodeConfigSpec, NodeRef, Profile, ReasonCode, RenewRequest,
    Status, Timestamp, TokenKind, TokenRequest, TypeMeta,
};
use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use uuid::Uuid;

use super::*;
use crate::pki::{Authority, Lifetimes, PeerCertificate, Pin};
use crate::store::memory::MemoryStore;
use crate::store::{self, Entry, Expect, Page, Store, StoreError, StoreResult, Watch};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn now() -> Timestamp {
    Timestamp::from_seconds(1_800_000_000)
}

/// A store whose writes take a moment, and can be made to fail.
#[derive(Default)]
struct Frail {
    inner: MemoryStore,
    broken: AtomicBool,
}

impl Frail {
    fn broken<T: Send + 'static>(&self) -> Option<BoxFuture<'static, StoreResult<T>>> {
        let error = StoreError::DiskFull { path: "test".into() };
        self.broken.load(Ordering::SeqCst).then(|| ready(Err(error)).boxed())
    }
}

impl Store for Frail {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, StoreResult<Option<Entry>>> {
        self.inner.get(key)
    }
    fn put<'a>(&'a self, key: &'a str, value: Bytes, expect: Expect) -> BoxFuture<'a, StoreResult<u64>> {
        let broken = self.broken();
        async move {
            tokio::task::yield_now().await;
            match broken {
                Some(error) => error.await,
                None => self.inner.put(key, value, expect).await,
            }
        }
        .boxed()
    }
    fn delete<'a>(&'a self, key: &'a str, expect: Expect) -> BoxFuture<'a, StoreResult<()>> {
        self.broken().unwrap_or_else(|| self.inner.delete(key, expect))
    }
    fn list<'a>(&'a self, prefix: &'a str, after: &'a str, limit: usize) -> BoxFuture<'a, StoreResult<Page>> {
        self.inner.list(prefix, after, limit)
    }
    fn watch<'a>(&'a self, prefix: &'a str, from: u64) -> BoxFuture<'a, StoreResult<Watch>> {
        self.inner.watch(prefix, from)
    }
}

struct Bed {
    folder: tempfile::TempDir,
    store: Arc<Frail>,
    authority: Arc<Authority>,
    registrar: Registrar,
}

impl Bed {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names = ["localhost".to_owned()];
        let authority =
            Authority::open(&folder.path().join("ca"), &names, Lifetimes::default(), now()).unwrap();
        let store = Arc::new(Frail::default());
        let registrar =
            Registrar::open(store.clone(), authority.clone(), Settings::default(), now()).await.unwrap();
        Self { folder, store, authority, registrar }
    }

    /// As after a restart of the coordinator at `at`.
    async fn restart(&mut self, at: Timestamp) {
        let (store, authority) = (self.store.clone(), self.authority.clone());
        self.registrar = Registrar::open(store, authority, Settings::default(), at).await.unwrap();
    }

    async fn token(&self, kind: TokenKind, change: impl FnOnce(&mut TokenRequest)) -> String {
        let mut request = TokenRequest {
            meta: TypeMeta::new("TokenRequest"),
            token_kind: kind,
            ttl_seconds: None,
            uses: None,
            name_pattern: String::new(),
            rate_per_hour: 0,
            admit_seen_vm: false,
            cluster: String::new(),
        };
        change(&mut request);
        self.registrar.create_token(&request, now()).await.unwrap().token
    }

    async fn many(&self) -> String {
        self.token(TokenKind::Once, |t| t.uses = Some(100)).await
    }

    async fn enroll(&self, m: &Machine, token: &str, at: Timestamp) -> Result<EnrollResponse, EnrolError> {
        self.registrar.enroll(&m.request(token, at), at).await
    }

    /// Enrols a machine that is let in; the certificate it then shows.
    async fn admitted(&self, m: &Machine, token: &str, at: Timestamp) -> PeerCertificate {
        let answer = self.enroll(m, token, at).await.expect("an answer");
        assert_eq!(answer.pending, "");
        peer(&answer)
    }

    fn sight(&self, uid: &str, boot_id: &str, at: Timestamp) -> Result<(), EnrolError> {
        let epoch = Uuid::from_u128(1);
        self.registrar.observe(uid, &Sighting { boot_id, epoch, identity: None, interval: None, at })
    }
}

fn peer(answer: &EnrollResponse) -> PeerCertificate {
    let der = CertificateDer::from_pem_slice(answer.certificate.as_bytes()).expect("a certificate");
    PeerCertificate::read(&der).unwrap()
}

struct Machine {
    name: String,
    key: KeyPair,
    identity: Identity,
}

impl Machine {
    /// A machine whose marks are made of `mark`.
    fn new(name: &str, mark: &str) -> Self {
        let identity = Identity {
            machine_id_hash: format!("machine-{mark}"),
            system_uuid: format!("uuid-{mark}"),
            macs: vec![format!("mac-{mark}")],
            boot_id: format!("boot-{mark}"),
            ..Identity::default()
        };
        Self { name: name.to_owned(), key: key(), identity }
    }

    fn csr(&self) -> String {
        CertificateParams::default().serialize_request(&self.key).unwrap().pem().unwrap()
    }

    fn request(&self, token: &str, at: Timestamp) -> EnrollRequest {
        EnrollRequest {
            meta: TypeMeta::new("EnrollRequest"),
            token: token.to_owned(),
            csr: self.csr(),
            node: NodeRef {
                name: self.name.clone(),
                uid: String::new(),
                cluster: "c1".to_owned(),
                profile: Profile::Generic,
                simulated: false,
            },
            identity: self.identity.clone(),
            agent_version: "0.1.0".to_owned(),
            sent_at: at,
        }
    }

    fn renewal(&self) -> RenewRequest {
        RenewRequest { meta: TypeMeta::new("RenewRequest"), csr: self.csr() }
    }
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

fn reason<T: std::fmt::Debug>(result: Result<T, EnrolError>) -> &'static str {
    result.expect_err("a refusal").reason()
}
