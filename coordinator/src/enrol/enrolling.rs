//! Enrolment and renewal: from a token and a certificate request to a certificate.

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{EnrollRequest, EnrollResponse, RenewRequest, Timestamp, TokenKind, TypeMeta};

use super::admission::{Admission, Admits, Candidate, Holder, decide};
use super::index::{Index, Known};
use super::registrar::{Registrar, decode, encode, standing};
use super::tokens::name_problem;
use super::vouching::{Asks, SeenVm, shares_mark, vouch};
use super::{EnrolError, Enrolment, NodeRecord, TokenRecord, TokenText};
use crate::pki::{Issued, PeerCertificate, VerifiedRequest};
use crate::store::{Expect, StoreError};

/// Seconds after which a machine that waits for approval asks again.
const ASK_AGAIN_SECONDS: u32 = 30;
/// Machines that may wait for approval with one token: a token from userdata must not fill the registry.
const MOST_PENDING: u32 = 500;
/// A clock this far off at first contact is worth a line in the log.
const SKEW_WORTH_SAYING_MS: i64 = 5_000;

/// An enrolment on its way.
struct Asked<'a> {
    request: &'a EnrollRequest,
    key: VerifiedRequest,
    key_hash: String,
    uid: String,
    token: TokenRecord,
    now: Timestamp,
}

impl Registrar {
    /// Lets a machine in, or has it wait (`certificate` is empty then), or says why not. Safe to repeat.
    pub async fn enroll(
        &self,
        request: &EnrollRequest,
        now: Timestamp,
    ) -> Result<EnrollResponse, EnrolError> {
        let text: TokenText = request.token.parse()?;
        if !self.authority.trusts(&text.pin) {
            return Err(EnrolError::CaMismatch { pinned: text.pin, ours: self.authority.pin() });
        }
        let (token, _) = self.token(&text.id).await?;
        token.check(&text)?;
        let key = VerifiedRequest::from_pem(&request.csr)?;
        let name = &request.node.name;
        if let Some(problem) = name_problem(name) {
            let name = name.chars().take(64).collect();
            return Err(EnrolError::NameInvalid { name, problem });
        }
        token.check_name(name)?;
        let key_hash = key.key_hash();
        let uid = NodeRecord::uid_of(&token.id, &key_hash);
        self.admit(&Asked { request, key, key_hash, uid, token, now }).await
    }

    async fn admit(&self, asked: &Asked<'_>) -> Result<EnrollResponse, EnrolError> {
        match self.claim(asked)? {
            (Admission::Refuse { what, holder }, _) => Err(self.in_use(what, &holder, asked.now)),
            (Admission::Barred { holder }, _) => Err(self.barred(&holder)),
            (_, Some(record)) => self.store_new(asked, record).await,
            (Admission::Pend { why, .. }, None) => {
                self.note_why(asked, &why).await?;
                Ok(self.wait(asked))
            }
            (Admission::Admit { supersedes }, None) => {
                self.admit_waiting(asked).await?;
                self.reissue(asked, &supersedes).await
            }
            (Admission::Reissue { supersedes }, None) => self.reissue(asked, &supersedes).await,
        }
    }

    /// Decides, and claims name and use for a new node, under one lock: of two machines that ask for a name at once one
    /// sees the other.
    fn claim(&self, asked: &Asked<'_>) -> Result<(Admission, Option<NodeRecord>), EnrolError> {
        let Asked { request, token, uid, now, .. } = asked;
        let mut index = self.index_mut();
        // A record at revision 0 is this same enrolment on another connection, not stored yet: no node so far.
        let revision = index.get(uid).map(|known| known.revision);
        let known = revision.is_some_and(|revision| revision > 0);
        if revision.is_none() {
            token.check_new(index.uses(&token.id), *now)?;
        }
        let mut related = index.related(uid, &request.node.name, &asked.key_hash, &request.identity);
        related.retain(|other| known || other.record.uid != *uid);
        let admits = self.admits(asked, &index);
        let is_seen = admits == Admits::Seen;
        let decision = self.decide(asked, &related, admits);
        let (enrolment, why, supersedes) = match &decision {
            Admission::Admit { supersedes } => (Enrolment::Approved, "", supersedes),
            Admission::Pend { why, supersedes } => (Enrolment::Pending, why.as_str(), supersedes),
            _ => return Ok((decision, None)),
        };
        if known {
            return Ok((decision, None));
        }
        let pending = index.pending(&token.id);
        if enrolment == Enrolment::Pending && pending >= MOST_PENDING {
            return Err(EnrolError::TooManyPending { id: token.id.clone(), pending });
        }
        let predecessor = related
            .iter()
            .map(|other| &other.record)
            .find(|record| record.name == request.node.name && supersedes.contains(&record.uid));
        let mut record = new_record(asked, enrolment, why, supersedes, predecessor);
        // The rate is for those whom nobody vouches for.
        record.admitted_by_rate &= !is_seen;
        index.insert(Arc::new(record.clone()), 0);
        Ok((decision, Some(record)))
    }

    /// What lets a machine in without an operator: Harvester's word where its token goes by that, or else the rate.
    fn admits(&self, asked: &Asked<'_>, index: &Index) -> Admits {
        let Asked { request, token, uid, now, .. } = asked;
        let has_room =
            !token.name_pattern.is_empty() && index.within_rate(&token.id, token.rate_per_hour, *now);
        if !token.admit_seen_vm {
            return if has_room { Admits::Rate } else { Admits::Nothing };
        }
        let seen = match self.witness() {
            Some(witness) => witness.machines_of(&request.identity),
            None => Err("this coordinator reads none (--harvester-kubeconfig)".to_owned()),
        };
        let claimed = |vm: &SeenVm| {
            let is_other =
                |known: &&Known| known.record.uid != *uid && shares_mark(&known.record.identity, vm);
            let lives = |known: &&Known| {
                known.record.enrolment == Enrolment::Approved
                    && now.since(self.heard(known)) < self.silent_after(known)
            };
            index.all().filter(is_other).find(lives).map(|known| known.record.name.clone())
        };
        let cluster = cluster(token, request);
        let asks = Asks { name: &request.node.name, cluster: &cluster, identity: &request.identity };
        match vouch(asks, seen.as_deref().map_err(String::as_str), claimed) {
            Ok(machine) => {
                log::info!("machine {machine} at Harvester vouches for {} ({uid})", request.node.name);
                Admits::Seen
            }
            Err(_) if has_room => Admits::Rate,
            Err(why) => Admits::NotSeen(why),
        }
    }

    /// What is missing of a machine that waits may be another thing than when it asked first.
    async fn note_why(&self, asked: &Asked<'_>, why: &str) -> Result<(), EnrolError> {
        if asked.token.admit_seen_vm {
            self.update(&asked.uid, |record| {
                if record.enrolment == Enrolment::Pending {
                    why.clone_into(&mut record.pending_why);
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// A machine that waited for approval, and is vouched for by now.
    async fn admit_waiting(&self, asked: &Asked<'_>) -> Result<(), EnrolError> {
        let record = self
            .update(&asked.uid, |record| {
                if record.enrolment == Enrolment::Pending {
                    record.enrolment = Enrolment::Approved;
                    record.pending_why.clear();
                }
                standing(record)
            })
            .await?;
        self.say_enrolled(&record);
        Ok(())
    }

    fn decide(&self, asked: &Asked<'_>, related: &[Known], admits: Admits) -> Admission {
        let holders: Vec<Holder<'_>> = related
            .iter()
            .map(|known| Holder {
                uid: &known.record.uid,
                name: &known.record.name,
                key_hash: &known.record.key_hash,
                identity: &known.record.identity,
                enrolment: known.record.enrolment,
                heard: self.heard(known),
                silent_after: self.silent_after(known),
            })
            .collect();
        let candidate = Candidate {
            uid: &asked.uid,
            name: &asked.request.node.name,
            key_hash: &asked.key_hash,
            identity: &asked.request.identity,
            token: &asked.token.kind,
            admits,
        };
        decide(&candidate, &holders, asked.now)
    }

    /// Writes a claimed record; the claim goes when that fails.
    async fn store_new(
        &self,
        asked: &Asked<'_>,
        mut record: NodeRecord,
    ) -> Result<EnrollResponse, EnrolError> {
        let stored = self.write_new(asked, &mut record).await;
        let (issued, revision) = match stored {
            Ok(stored) => stored,
            Err(e) => {
                self.drop_claim(&asked.uid);
                if let EnrolError::Store(StoreError::Conflict { .. }) = e {
                    // The same enrolment was stored by another request or before a crash: it is the answer.
                    return self.adopt(asked).await;
                }
                return Err(e);
            }
        };
        let record = Arc::new(record);
        self.index_mut().insert(record.clone(), revision);
        if record.enrolment == Enrolment::Approved {
            for old in &record.supersedes {
                self.supersede(old, &record.uid, asked.now).await?;
            }
        }
        self.say_enrolled(&record);
        Ok(match issued {
            Some(issued) => self.answer(&asked.uid, issued, asked.now),
            None => self.wait(asked),
        })
    }

    /// Takes back a claim that did not reach the store.
    fn drop_claim(&self, uid: &str) {
        let mut index = self.index_mut();
        if index.get(uid).is_some_and(|known| known.revision == 0) {
            index.remove(uid);
        }
    }

    async fn write_new(
        &self,
        asked: &Asked<'_>,
        record: &mut NodeRecord,
    ) -> Result<(Option<Issued>, u64), EnrolError> {
        let issued = match record.enrolment {
            Enrolment::Approved => Some(self.authority.issue(&asked.key, &asked.uid, asked.now)?),
            _ => None,
        };
        if let Some(issued) = &issued {
            record.add_certificate(issued);
        }
        let key = NodeRecord::key(&asked.uid);
        let revision = self.store.put(&key, encode(record)?, Expect::Absent).await?;
        Ok((issued, revision))
    }

    async fn adopt(&self, asked: &Asked<'_>) -> Result<EnrollResponse, EnrolError> {
        let unknown = || EnrolError::NodeUnknown { node: asked.uid.clone() };
        let entry = self.store.get(&NodeRecord::key(&asked.uid)).await?.ok_or_else(unknown)?;
        let record: NodeRecord = decode(&entry)?;
        let enrolment = record.enrolment;
        self.index_mut().insert(Arc::new(record), entry.revision);
        match enrolment {
            Enrolment::Pending => Ok(self.wait(asked)),
            _ => self.reissue(asked, &[]).await,
        }
    }

    /// A certificate anew for a node that is one already.
    async fn reissue(&self, asked: &Asked<'_>, supersedes: &[String]) -> Result<EnrollResponse, EnrolError> {
        let issued = self.authority.issue(&asked.key, &asked.uid, asked.now)?;
        let request = asked.request;
        self.update(&asked.uid, |record| {
            standing(record)?;
            record.name.clone_from(&request.node.name);
            record.cluster = cluster(&asked.token, request);
            record.cluster_bound = !asked.token.cluster.is_empty();
            record.profile = request.node.profile.clone();
            record.agent_version.clone_from(&request.agent_version);
            record.identity.clone_from(&request.identity);
            record.add_certificate(&issued);
            Ok(())
        })
        .await?;
        for old in supersedes {
            self.supersede(old, &asked.uid, asked.now).await?;
        }
        Ok(self.answer(&asked.uid, issued, asked.now))
    }

    /// A new certificate for the holder of an old one, expired or not, within the grace; the key stays.
    pub async fn renew(
        &self,
        peer: &PeerCertificate,
        request: &RenewRequest,
        now: Timestamp,
    ) -> Result<EnrollResponse, EnrolError> {
        self.holder(peer)?;
        let grace = self.settings.renewal_grace;
        if let Some(since) = peer.expired_since(now).filter(|since| now.since(*since) > grace) {
            return Err(EnrolError::GraceOver { since, grace });
        }
        let key = VerifiedRequest::from_pem(&request.csr)?;
        if key.key_hash() != peer.key_hash {
            return Err(EnrolError::KeyChanged);
        }
        let issued = self.authority.issue(&key, &peer.uid, now)?;
        self.update(&peer.uid, |record| {
            standing(record)?;
            record.add_certificate(&issued);
            Ok(())
        })
        .await?;
        Ok(self.answer(&peer.uid, issued, now))
    }

    fn answer(&self, uid: &str, issued: Issued, now: Timestamp) -> EnrollResponse {
        EnrollResponse {
            meta: TypeMeta::new("EnrollResponse"),
            node_uid: uid.to_owned(),
            certificate: issued.certificate,
            ca_bundle: self.authority.bundle_pem(),
            renew_at: Some(issued.renew_at),
            retry_after_seconds: None,
            pending: String::new(),
            server_time: now,
        }
    }

    fn wait(&self, asked: &Asked<'_>) -> EnrollResponse {
        let known = self.index().get(&asked.uid).cloned();
        if let Some(known) = &known {
            known.life().heard = Some(asked.now);
        }
        let record = known.map(|known| known.record);
        let why = record.as_ref().map(|r| r.pending_why.as_str()).unwrap_or_default();
        let name = &asked.request.node.name;
        EnrollResponse {
            meta: TypeMeta::new("EnrollResponse"),
            node_uid: asked.uid.clone(),
            certificate: String::new(),
            ca_bundle: self.authority.bundle_pem(),
            renew_at: None,
            retry_after_seconds: Some(ASK_AGAIN_SECONDS),
            pending: format!("an operator has to run `outrider approve {name}`: {why}"),
            server_time: asked.now,
        }
    }

    fn in_use(&self, what: String, holder: &str, now: Timestamp) -> EnrolError {
        let known = self.index().get(holder).cloned();
        let (name, ago, silent_after) = known
            .map_or((String::new(), Duration::ZERO, Duration::ZERO), |known| {
                (known.record.name.clone(), now.since(self.heard(&known)), self.silent_after(&known))
            });
        log::warn!("a machine that asks to enrol was refused: {what} is in use by node {name} ({holder})");
        let free_in = silent_after.saturating_sub(ago);
        EnrolError::IdentityInUse { what, name, uid: holder.to_owned(), ago, free_in }
    }

    fn barred(&self, holder: &str) -> EnrolError {
        let refused = self.node(holder).and_then(|record| standing(&record).err());
        refused.unwrap_or_else(|| EnrolError::NodeUnknown { node: holder.to_owned() })
    }

    fn say_enrolled(&self, record: &NodeRecord) {
        let NodeRecord { name, uid, token_id, clock_skew_ms, .. } = record;
        match record.enrolment {
            Enrolment::Approved => log::info!("node {name} ({uid}) enrolled with token {token_id}"),
            _ => log::info!("node {name} ({uid}) waits for approval: {}", record.pending_why),
        }
        if clock_skew_ms.abs() > SKEW_WORTH_SAYING_MS {
            log::warn!("the clock of node {name} is {clock_skew_ms} ms off ours; nothing sets it from here");
        }
    }
}

/// A node that asks for the first time; labels and desired configuration come from the node of its name before it.
fn new_record(
    asked: &Asked<'_>,
    enrolment: Enrolment,
    pending_why: &str,
    supersedes: &[String],
    predecessor: Option<&Arc<NodeRecord>>,
) -> NodeRecord {
    let Asked { request, now, token, .. } = asked;
    NodeRecord {
        uid: asked.uid.clone(),
        name: request.node.name.clone(),
        cluster: cluster(token, request),
        cluster_bound: !token.cluster.is_empty(),
        profile: request.node.profile.clone(),
        simulated: request.node.simulated,
        identity: request.identity.clone(),
        labels: predecessor.map(|old| old.labels.clone()).unwrap_or_default(),
        enrolment,
        pending_why: pending_why.to_owned(),
        enrolled_at: *now,
        token_id: token.id.clone(),
        admitted_by_rate: token.kind == TokenKind::Pool && enrolment == Enrolment::Approved,
        key_hash: asked.key_hash.clone(),
        certificates: Vec::new(),
        agent_version: request.agent_version.clone(),
        clock_skew_ms: request.sent_at.as_millis().saturating_sub(now.as_millis()),
        desired: predecessor.map_or_else(NodeRecord::undesired, |old| old.desired.clone()),
        supersedes: supersedes.to_vec(),
        ended: None,
        clone: None,
    }
}

/// The cluster a node is shown under: the token's, where it names one.
fn cluster(token: &TokenRecord, request: &EnrollRequest) -> String {
    let named = if token.cluster.is_empty() { &request.node.cluster } else { &token.cluster };
    named.chars().filter(|c| !c.is_control()).take(253).collect()
}
