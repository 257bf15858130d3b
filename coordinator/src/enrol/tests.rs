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

#[tokio::test]
async fn a_once_token_lets_one_machine_in_and_survives_repeats() {
    let mut bed = Bed::new().await;
    let token = bed.token(TokenKind::Once, |t| t.cluster = "prod".to_owned()).await;
    let m = Machine::new("n1", "a");
    let first = bed.admitted(&m, &token, now()).await;
    let record = bed.registrar.authenticate(&first, now()).unwrap();
    assert_eq!((record.name.as_str(), record.cluster.as_str()), ("n1", "prod"));
    // The answer was lost: the same key is the same node, also after the token's end and a restart.
    bed.restart(now().after(DAY * 2)).await;
    let again = bed.admitted(&m, &token, now().after(DAY * 2)).await;
    assert_eq!(again.uid, first.uid);
    assert_ne!(again.serial, first.serial);
    assert_eq!(reason(bed.enroll(&Machine::new("n2", "b"), &token, now()).await), "TokenUsedUp");
    let view = &bed.registrar.tokens().await.unwrap()[0];
    assert_eq!((view.uses_left, view.token.as_str()), (Some(0), ""));
    assert_eq!(bed.registrar.nodes().len(), 1);
}

#[tokio::test]
async fn every_refusal_of_a_token_has_its_own_name() {
    let bed = Bed::new().await;
    let m = Machine::new("n1", "a");
    let short = bed.token(TokenKind::Once, |t| t.ttl_seconds = Some(60)).await;
    let late = now().after(Duration::from_secs(61));
    let error = bed.enroll(&m, &short, late).await.unwrap_err();
    assert_eq!(error.reason(), "TokenExpired");
    let since = now().after(Duration::from_secs(60)).to_string();
    assert!(error.to_string().contains(&since), "{error} names since when");

    let token = bed.many().await;
    let id = token.parse::<TokenText>().unwrap().id;
    let stranger = TokenText::generate(bed.authority.pin()).reveal();
    assert_eq!(reason(bed.enroll(&m, &stranger, now()).await), "TokenUnknown");
    let guessed = format!("OR1{}::{id}:{}", bed.authority.pin(), "A".repeat(32));
    assert_eq!(reason(bed.enroll(&m, &guessed, now()).await), "TokenUnknown");
    assert_eq!(reason(bed.enroll(&m, "OR1", now()).await), "TokenMalformed");
    let foreign = token.parse::<TokenText>().unwrap().with_pin(Pin::of(b"another root")).reveal();
    let error = bed.enroll(&m, &foreign, now()).await.unwrap_err();
    assert_eq!(error.reason(), "CaMismatch");
    for pin in [Pin::of(b"another root"), bed.authority.pin()] {
        assert!(error.to_string().contains(&pin.to_string()), "{error} shows both");
    }
    let named = bed.token(TokenKind::Once, |t| t.name_pattern = "db-*".to_owned()).await;
    assert_eq!(reason(bed.enroll(&m, &named, now()).await), "NameNotAllowed");
    bed.registrar.revoke_token(&id, now()).await.unwrap();
    assert_eq!(reason(bed.enroll(&m, &token, now()).await), "TokenRevoked");
    assert_eq!(reason(bed.registrar.revoke_token("nobody", now()).await), "TokenUnknown");
    assert_eq!(bed.registrar.nodes().len(), 0, "a refusal leaves nothing");
}

#[tokio::test]
async fn bad_names_and_requests_are_refused() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    for name in ["", "a/b", "-x", "a b", "a\n", &"x".repeat(254)] {
        assert_eq!(
            reason(bed.enroll(&Machine::new(name, "a"), &token, now()).await),
            "NameInvalid",
            "{name:?}"
        );
    }
    let mut request = Machine::new("n1", "a").request(&token, now());
    request.csr = "nothing".to_owned();
    assert_eq!(reason(bed.registrar.enroll(&request, now()).await), "RequestInvalid");
}

#[tokio::test]
async fn no_secret_is_stored() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let operator = bed.registrar.create_operator("me", now()).await.unwrap().reveal();
    bed.admitted(&Machine::new("n1", "a"), &token, now()).await;
    let (entries, _) = store::list_all(&*bed.store, "").await.unwrap();
    assert_eq!(entries.len(), 3);
    for text in [token, operator] {
        let secret = text.rsplit(':').next().unwrap().to_owned();
        for entry in &entries {
            assert!(!String::from_utf8_lossy(&entry.value).contains(&secret), "{}", entry.key);
        }
    }
}

#[tokio::test]
async fn a_pool_admits_by_rate_and_otherwise_asks() {
    let mut bed = Bed::new().await;
    let token = bed
        .token(TokenKind::Pool, |t| {
            t.name_pattern = "pool1-*".to_owned();
            t.rate_per_hour = 2;
        })
        .await;
    for n in ["pool1-a", "pool1-b"] {
        bed.admitted(&Machine::new(n, n), &token, now()).await;
    }
    let third = Machine::new("pool1-c", "c");
    let asked = bed.enroll(&third, &token, now()).await.unwrap();
    assert_eq!(asked.certificate, "");
    assert!(asked.pending.contains("outrider approve pool1-c") && asked.retry_after_seconds.is_some());
    assert!(!asked.ca_bundle.is_empty());
    // It asks again and again; the rate that is free an hour later is for new machines, an operator answers this one.
    let later = now().after(HOUR * 2);
    bed.restart(later).await;
    assert_eq!(bed.enroll(&third, &token, later).await.unwrap().node_uid, asked.node_uid);
    bed.admitted(&Machine::new("pool1-d", "d"), &token, later).await;
    bed.registrar.approve("pool1-c", later).await.unwrap();
    let admitted = bed.admitted(&third, &token, later).await;
    assert_eq!(admitted.uid, asked.node_uid);
    bed.registrar.authenticate(&admitted, later).unwrap();
    // Months later a replacement still joins.
    bed.admitted(&Machine::new("pool1-e", "e"), &token, now().after(DAY * 200)).await;
    assert_eq!(reason(bed.enroll(&Machine::new("db-1", "f"), &token, now()).await), "NameNotAllowed");
}

#[tokio::test]
async fn a_pool_without_a_rate_only_asks() {
    let bed = Bed::new().await;
    let token = bed.token(TokenKind::Pool, |_| {}).await;
    let m = Machine::new("n1", "a");
    let asked = bed.enroll(&m, &token, now()).await.unwrap();
    assert_eq!(asked.certificate, "");
    let record = bed.registrar.find("n1").unwrap();
    assert_eq!((record.enrolment, record.certificates.len()), (Enrolment::Pending, 0));
    bed.registrar.revoke("n1", "who is this", now()).await.unwrap();
    let error = bed.enroll(&m, &token, now()).await.unwrap_err();
    assert_eq!(error.reason(), "NodeRevoked");
    assert!(error.to_string().contains("who is this"));
}

#[tokio::test]
async fn a_failing_store_burns_no_token_and_keeps_no_name() {
    let bed = Bed::new().await;
    let token = bed.token(TokenKind::Once, |_| {}).await;
    let m = Machine::new("n1", "a");
    bed.store.broken.store(true, Ordering::SeqCst);
    let error = bed.enroll(&m, &token, now()).await.unwrap_err();
    assert_eq!((error.reason(), error.to_api().code), ("DiskFull", 507));
    bed.store.broken.store(false, Ordering::SeqCst);
    // Another machine may take name and use: the first one holds neither.
    bed.admitted(&Machine::new("n1", "b"), &token, now()).await;
    assert_eq!(reason(bed.enroll(&m, &token, now()).await), "TokenUsedUp");
}

#[tokio::test]
async fn an_enrolment_stored_before_a_crash_is_found_again() {
    let bed = Bed::new().await;
    let token = bed.token(TokenKind::Once, |_| {}).await;
    let m = Machine::new("n1", "a");
    // A registrar that has not seen it, as one that died after the write would not have.
    let (store, authority) = (bed.store.clone(), bed.authority.clone());
    let blind = Registrar::open(store, authority, Settings::default(), now()).await.unwrap();
    let first = bed.admitted(&m, &token, now()).await;
    let again = blind.enroll(&m.request(&token, now()), now()).await.unwrap();
    assert_eq!(again.node_uid, first.uid);
}

#[tokio::test]
async fn of_two_machines_that_ask_for_a_name_at_once_one_gets_it() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let (a, b) = (Machine::new("n1", "a"), Machine::new("n1", "b"));
    let (one, two) = tokio::join!(bed.enroll(&a, &token, now()), bed.enroll(&b, &token, now()));
    assert_eq!([one.is_ok(), two.is_ok()].iter().filter(|ok| **ok).count(), 1, "{one:?} {two:?}");
    assert_eq!(bed.registrar.nodes().len(), 1);
    // One machine on two connections is one node.
    let c = Machine::new("n2", "c");
    let (one, two) = tokio::join!(bed.enroll(&c, &token, now()), bed.enroll(&c, &token, now()));
    assert_eq!(one.unwrap().node_uid, two.unwrap().node_uid);
    assert_eq!(bed.registrar.nodes().len(), 2);
}

#[tokio::test]
async fn a_living_node_keeps_its_name_and_a_rebuilt_machine_gets_it_back() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    let m = Machine::new("n1", "a");
    let old = bed.admitted(&m, &token, now()).await;
    bed.registrar.set_labels("n1", &[("zone".to_owned(), "z1".to_owned())].into()).await.unwrap();
    let spec = NodeConfigSpec { heartbeat_seconds: Some(5), ..NodeConfigSpec::default() };
    assert_eq!(bed.registrar.set_config("n1", &spec, Some(0)).await.unwrap().generation, 1);
    bed.sight(&old.uid, "boot-a", now()).unwrap();

    let soon = now().after(Duration::from_secs(10));
    let stranger = Machine::new("n1", "b");
    let error = bed.enroll(&stranger, &token, soon).await.unwrap_err();
    let api = error.to_api();
    assert_eq!((api.code, api.reason.as_str()), (409, "IdentityInUse"));
    assert!(api.message.contains("n1") && api.message.contains(&old.uid) && api.message.contains("10 s ago"));
    assert!(api.advice.contains("in 80 s"), "{}", api.advice);

    // The disk was lost, the hardware is the same.
    let mut departures = bed.registrar.departures();
    let rebuilt = Machine { key: key(), ..Machine::new("n1", "a") };
    let new = bed.admitted(&rebuilt, &token, soon).await;
    assert_ne!(new.uid, old.uid);
    assert_eq!(departures.try_recv().unwrap(), Departure { uid: old.uid.clone(), reason: "NodeSuperseded" });
    assert_eq!(reason(bed.registrar.authenticate(&old, soon)), "NodeSuperseded");
    assert_eq!(reason(bed.enroll(&m, &token, soon).await), "NodeSuperseded");
    let record = bed.registrar.find("n1").unwrap();
    assert_eq!((record.uid.as_str(), record.desired.generation), (new.uid.as_str(), 1));
    assert_eq!(record.labels["zone"], "z1");

    // A restart knows all that, and gives a name free only after its node had time to be heard.
    bed.restart(soon).await;
    assert_eq!(bed.registrar.nodes().len(), 1);
    assert_eq!(reason(bed.registrar.authenticate(&old, soon)), "NodeSuperseded");
    assert_eq!(reason(bed.enroll(&stranger, &token, soon).await), "IdentityInUse");
    let silent = soon.after(Duration::from_secs(90));
    let third = bed.admitted(&stranger, &token, silent).await;
    assert_eq!(bed.registrar.find("n1").unwrap().uid, third.uid);
}

#[tokio::test]
async fn what_a_crash_left_half_done_is_finished() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    let old = bed.admitted(&Machine::new("n1", "a"), &token, now()).await;
    let later = now().after(HOUR);
    let new = bed.admitted(&Machine::new("n1", "b"), &token, later).await;
    // As it was between the two writes.
    let key = NodeRecord::key(&old.uid);
    let entry = bed.store.get(&key).await.unwrap().unwrap();
    let mut record: NodeRecord = serde_json::from_slice(&entry.value).unwrap();
    assert_eq!(record.enrolment, Enrolment::Superseded);
    (record.enrolment, record.ended) = (Enrolment::Approved, None);
    bed.store.put(&key, serde_json::to_vec(&record).unwrap().into(), Expect::Any).await.unwrap();
    bed.restart(later).await;
    assert_eq!(bed.registrar.find("n1").unwrap().uid, new.uid);
    assert_eq!(bed.registrar.node(&old.uid).unwrap().enrolment, Enrolment::Superseded);
}

#[tokio::test]
async fn certificates_renew_before_and_a_while_after_their_end() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let m = Machine::new("n1", "a");
    let first = bed.admitted(&m, &token, now()).await;
    let due = now().after(HOUR * 16);
    let renewed = bed.registrar.renew(&first, &m.renewal(), due).await.unwrap();
    assert_eq!(renewed.renew_at, Some(due.after(HOUR * 16)));
    let second = peer(&renewed);
    assert_eq!(second.uid, first.uid);

    let month = now().after(DAY * 31);
    assert_eq!(reason(bed.registrar.authenticate(&second, month)), "CertificateExpired");
    let back = peer(&bed.registrar.renew(&second, &m.renewal(), month).await.unwrap());
    bed.registrar.authenticate(&back, month).unwrap();
    assert_eq!(bed.registrar.find("n1").unwrap().certificates.len(), 2, "the newest are remembered");

    let too_late = now().after(DAY * 100);
    assert_eq!(reason(bed.registrar.renew(&back, &m.renewal(), too_late).await), "CertificateGraceOver");
    let thief = Machine::new("n1", "a");
    assert_eq!(reason(bed.registrar.renew(&back, &thief.renewal(), month).await), "KeyChanged");
    let forged = PeerCertificate { key_hash: "0".repeat(64), ..back.clone() };
    assert_eq!(reason(bed.registrar.authenticate(&forged, month)), "CertificateUnknown");
    let nobody = PeerCertificate { uid: "nobody".to_owned(), ..back };
    assert_eq!(reason(bed.registrar.authenticate(&nobody, month)), "NodeUnknown");
}

#[tokio::test]
async fn a_revoked_node_is_shut_out_at_once_and_for_good() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    let m = Machine::new("n1", "a");
    let certificate = bed.admitted(&m, &token, now()).await;
    let mut departures = bed.registrar.departures();
    bed.registrar.revoke("n1", "stolen", now()).await.unwrap();
    assert_eq!(
        departures.recv().await.unwrap(),
        Departure { uid: certificate.uid.clone(), reason: "NodeRevoked" }
    );
    bed.restart(now()).await;
    let error = bed.registrar.authenticate(&certificate, now()).unwrap_err();
    assert!(error.reason() == "NodeRevoked" && error.to_string().contains("stolen"), "{error}");
    assert_eq!(reason(bed.registrar.renew(&certificate, &m.renewal(), now()).await), "NodeRevoked");
    assert_eq!(reason(bed.enroll(&m, &token, now()).await), "NodeRevoked");
    // The same key with another token is still the same key.
    assert_eq!(reason(bed.enroll(&m, &bed.many().await, now()).await), "NodeRevoked");
    assert_eq!(reason(bed.registrar.approve("n1", now()).await), "NodeRevoked");
    // A new key and an operator's token: somebody decided so.
    let again = Machine { key: key(), ..Machine::new("n1", "a") };
    let admitted = bed.admitted(&again, &token, now()).await;
    assert_eq!(bed.registrar.find("n1").unwrap().uid, admitted.uid);
}

#[tokio::test]
async fn two_living_machines_with_one_certificate_are_a_clone() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    let uid = bed.admitted(&Machine::new("n1", "a"), &token, now()).await.uid;
    let at = |seconds| now().after(Duration::from_secs(seconds));
    assert_eq!(bed.registrar.identity_condition(&uid, at(0)).status, Status::True);
    bed.sight(&uid, "boot-a", at(0)).unwrap();
    bed.sight(&uid, "boot-b", at(10)).unwrap();
    bed.sight(&uid, "boot-a", at(30)).unwrap();
    let error = bed.sight(&uid, "boot-b", at(40)).unwrap_err();
    assert_eq!((error.reason(), error.to_api().code), ("IdentityCloned", 409));
    assert!(error.to_string().contains("boot-a") && error.to_string().contains("boot-b"), "{error}");
    // The rightful one goes on, also after a reboot; the twin stays stopped.
    bed.sight(&uid, "boot-a", at(60)).unwrap();
    bed.sight(&uid, "boot-a2", at(90)).unwrap();
    assert_eq!(reason(bed.sight(&uid, "boot-b", at(100))), "IdentityCloned");
    let condition = bed.registrar.identity_condition(&uid, at(100));
    assert_eq!((condition.status, &condition.reason), (Status::False, &ReasonCode::IdentityCloned));
    assert_eq!(condition.last_transition_time, at(40));
    assert!(condition.message.contains("n1") && !condition.advice.is_empty());

    // A restart forgets the sightings and keeps the verdict.
    bed.registrar.save_found().await;
    bed.restart(at(110)).await;
    assert_eq!(bed.registrar.identity_condition(&uid, at(110)).status, Status::False);
    assert_eq!(reason(bed.sight(&uid, "boot-b", at(120))), "IdentityCloned");
    bed.sight(&uid, "boot-a2", at(125)).unwrap();
    // The twin is gone for the whole window: clear again, and stored so.
    bed.sight(&uid, "boot-a2", at(700)).unwrap();
    assert_eq!(bed.registrar.identity_condition(&uid, at(700)).status, Status::False);
    bed.sight(&uid, "boot-a2", at(721)).unwrap();
    assert_eq!(bed.registrar.identity_condition(&uid, at(721)).status, Status::True);
    bed.registrar.save_found().await;
    assert_eq!(bed.registrar.node(&uid).unwrap().clone, None);
}

#[tokio::test]
async fn of_a_clone_the_one_that_lives_on_may_stay() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let uid = bed.admitted(&Machine::new("n1", "a"), &token, now()).await.uid;
    let at = |seconds| now().after(Duration::from_secs(seconds));
    for (boot, second) in [("boot-a", 0), ("boot-b", 10), ("boot-a", 30)] {
        bed.sight(&uid, boot, at(second)).unwrap();
    }
    assert!(bed.sight(&uid, "boot-b", at(40)).is_err());
    // The original is deleted, the copy goes on asking.
    assert!(bed.sight(&uid, "boot-b", at(600)).is_err());
    bed.sight(&uid, "boot-b", at(631)).unwrap();
    assert_eq!(bed.registrar.identity_condition(&uid, at(631)).status, Status::True);
}

#[tokio::test]
async fn reboots_and_restored_snapshots_are_no_clones() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let uid = bed.admitted(&Machine::new("n1", "a"), &token, now()).await.uid;
    for (n, boot) in ["a", "b", "c", "b", "d", "e", "d", "f"].into_iter().enumerate() {
        bed.sight(&uid, boot, now().after(Duration::from_secs(n as u64 * 20))).unwrap();
        bed.sight(&uid, "", now().after(Duration::from_secs(n as u64 * 20 + 1))).unwrap();
    }
    assert_eq!(bed.registrar.identity_condition(&uid, now()).status, Status::True);
}

#[tokio::test]
async fn nodes_of_one_template_may_not_both_live() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let template = |name: &str, mark: &str| {
        let mut m = Machine::new(name, mark);
        m.identity.machine_id_hash = "from the template".to_owned();
        m
    };
    let (a, b) = (template("n1", "a"), template("n2", "b"));
    let first = bed.admitted(&a, &token, now()).await.uid;
    let error = bed.enroll(&b, &token, now().after(Duration::from_secs(5))).await.unwrap_err();
    assert!(error.reason() == "IdentityInUse" && error.to_string().contains("machine-id"), "{error}");
    // The first is silent for a while and comes back: then both live.
    let later = now().after(HOUR);
    let second = bed.admitted(&b, &token, later).await.uid;
    bed.sight(&second, "boot-b", later).unwrap();
    bed.sight(&first, "boot-a", later).unwrap();
    let error = bed.sight(&second, "boot-b", later).unwrap_err();
    assert!(error.reason() == "IdentityCloned" && error.to_string().contains("n1"), "{error}");
    for uid in [&first, &second] {
        let condition = bed.registrar.identity_condition(uid, later);
        assert_eq!(condition.status, Status::False);
        assert!(
            condition.message.contains("n1") && condition.message.contains("n2"),
            "{}",
            condition.message
        );
    }
    // It gets a machine-id of its own and says so with its next report.
    let own = Identity { machine_id_hash: "its own".to_owned(), ..b.identity.clone() };
    let sighting = Sighting {
        boot_id: "boot-b2",
        epoch: Uuid::from_u128(1),
        identity: Some(&own),
        interval: Some(Duration::from_secs(30)),
        at: later,
    };
    bed.registrar.observe(&second, &sighting).unwrap();
    bed.registrar.save_found().await;
    bed.sight(&second, "boot-b2", later).unwrap();
    for uid in [&first, &second] {
        assert_eq!(bed.registrar.identity_condition(uid, later).status, Status::True);
    }
}

#[tokio::test]
async fn desired_configuration_changes_by_generation() {
    let bed = Bed::new().await;
    bed.admitted(&Machine::new("n1", "a"), &bed.many().await, now()).await;
    let spec = |n| NodeConfigSpec { heartbeat_seconds: Some(n), ..NodeConfigSpec::default() };
    assert_eq!(bed.registrar.set_config("n1", &spec(5), None).await.unwrap().generation, 1);
    assert_eq!(bed.registrar.set_config("n1", &spec(5), Some(1)).await.unwrap().generation, 1, "no change");
    assert_eq!(reason(bed.registrar.set_config("n1", &spec(6), Some(0)).await), "ConfigChanged");
    assert_eq!(bed.registrar.set_config("n1", &spec(6), Some(1)).await.unwrap().generation, 2);
    assert_eq!(reason(bed.registrar.set_config("n9", &spec(6), None).await), "NodeUnknown");
}

#[tokio::test]
async fn operators_are_known_by_their_tokens() {
    use std::os::unix::fs::PermissionsExt;
    let mut bed = Bed::new().await;
    let file = bed.folder.path().join("operator.token");
    let first = bed.registrar.ensure_operator_token(&file, now()).await.unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), first.reveal());
    assert_eq!(bed.registrar.check_operator(&first.reveal()).unwrap().id, first.id);
    // A restart keeps it; a database begun anew learns it from the file; a rotation gives it the new pin.
    bed.restart(now()).await;
    assert_eq!(bed.registrar.ensure_operator_token(&file, now()).await.unwrap(), first);
    bed.store = Arc::default();
    bed.restart(now()).await;
    assert!(bed.registrar.check_operator(&first.reveal()).is_err());
    bed.authority.rotate(now()).unwrap();
    let rotated = bed.registrar.ensure_operator_token(&file, now()).await.unwrap();
    assert_eq!(rotated, first.with_pin(bed.authority.pin()));
    bed.registrar.check_operator(&first.reveal()).unwrap();

    let second = bed.registrar.create_operator("ci", now()).await.unwrap();
    assert_eq!(bed.registrar.operators().len(), 2);
    assert!(bed.registrar.revoke_operator(&second.id).await.unwrap());
    assert!(!bed.registrar.revoke_operator(&second.id).await.unwrap());
    for wrong in ["", "x", &second.reveal(), &bed.many().await] {
        let error = bed.registrar.check_operator(wrong).unwrap_err();
        assert_eq!((error.reason(), error.to_api().code), ("Unauthenticated", 401));
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(bed.registrar.ensure_operator_token(&file, now()).await.is_err());
}

#[tokio::test]
async fn a_retirement_is_told_whom_it_would_leave_out() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let (a, b) = (Machine::new("n1", "a"), Machine::new("n2", "b"));
    let first = bed.admitted(&a, &token, now()).await;
    bed.admitted(&b, &token, now()).await;
    bed.authority.rotate(now()).unwrap();
    assert_eq!(bed.registrar.nodes_of_root(1).len(), 2);
    let renewed = bed.registrar.renew(&first, &a.renewal(), now()).await.unwrap();
    assert_eq!(
        renewed.ca_bundle.matches("BEGIN CERTIFICATE").count(),
        2,
        "agents learn both roots by renewal"
    );
    let left: Vec<String> = bed.registrar.nodes_of_root(1).iter().map(|r| r.name.clone()).collect();
    assert_eq!(left, ["n2"]);
    // Tokens of before the rotation still lead to us, until the old root is retired.
    bed.admitted(&Machine::new("n3", "c"), &token, now()).await;
    bed.authority.retire(1, now()).unwrap();
    assert_eq!(reason(bed.enroll(&Machine::new("n4", "d"), &token, now()).await), "CaMismatch");
}

#[tokio::test]
async fn the_registry_forgets_what_is_over() {
    let mut bed = Bed::new().await;
    let token = bed.token(TokenKind::Once, |t| t.uses = Some(3)).await;
    let pool = bed.token(TokenKind::Pool, |t| t.ttl_seconds = Some(10 * 24 * 3600)).await;
    let old = bed.admitted(&Machine::new("n1", "a"), &token, now()).await;
    let later = now().after(HOUR);
    bed.admitted(&Machine::new("n1", "b"), &token, later).await;
    let ending = bed.registrar.tokens_ending(later).await.unwrap();
    assert_eq!(ending.iter().map(|t| &t.id).collect::<Vec<_>>(), [&pool.parse::<TokenText>().unwrap().id]);

    bed.registrar.tend(later).await.unwrap();
    assert!(bed.registrar.node(&old.uid).is_some());
    assert_eq!(bed.registrar.tokens().await.unwrap().len(), 2);
    let much_later = now().after(DAY * 61 + HOUR * 2);
    bed.registrar.tend(much_later).await.unwrap();
    bed.restart(much_later).await;
    assert!(bed.registrar.node(&old.uid).is_none());
    assert!(bed.registrar.find("n1").is_ok());
    assert_eq!(bed.registrar.tokens().await.unwrap().len(), 1, "the once token ended 60 days ago");
}

#[tokio::test]
async fn records_that_cannot_be_read_harm_no_other() {
    let mut bed = Bed::new().await;
    let token = bed.many().await;
    bed.admitted(&Machine::new("n1", "a"), &token, now()).await;
    for key in ["nodes/broken", "tokens/broken", "operators/broken"] {
        bed.store.put(key, Bytes::from_static(b"{"), Expect::Any).await.unwrap();
    }
    bed.restart(now()).await;
    assert_eq!(bed.registrar.nodes().len(), 1);
    assert_eq!(bed.registrar.tokens().await.unwrap().len(), 1);
    bed.admitted(&Machine::new("n2", "b"), &token, now()).await;
    assert!(bed.store.get("nodes/broken").await.unwrap().is_some(), "left where it is");
}

#[tokio::test]
async fn a_clock_that_is_years_off_is_let_in_and_said() {
    let bed = Bed::new().await;
    let token = bed.many().await;
    let m = Machine::new("n1", "a");
    let mut request = m.request(&token, now().before(DAY * 3650));
    let answer = bed.registrar.enroll(&request, now()).await.unwrap();
    assert_eq!(answer.server_time, now());
    assert_eq!(bed.registrar.find("n1").unwrap().clock_skew_ms, -(DAY.as_millis() as i64) * 3650);
    request.sent_at = Timestamp::from_millis(i64::MAX);
    bed.registrar.enroll(&request, now()).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_request_makes_enrolment_panic(name in ".{0,300}", csr in ".{0,200}", marks in ".{0,50}", once in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let bed = Bed::new().await;
            let token = bed.token(if once { TokenKind::Once } else { TokenKind::Pool }, |_| {}).await;
            let mut request = Machine::new(&name, &marks).request(&token, now());
            let _ = bed.registrar.enroll(&request, now()).await;
            request.csr = csr;
            request.node.name = "n".to_owned();
            let _ = bed.registrar.enroll(&request, now()).await;
        });
    }
}
