//! Who is asked, in which order, and what came of it.
//!
//! First the local member, whatever is configured and the members of the last list, all at once; then the member list,
//! from the best of those that answered; then members not heard yet. Each endpoint answers for itself and has its own
//! second, so a pass costs a second when somebody is silent, and two when that one is new.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use outrider_protocol::{Timestamp, UnknownCause};
use rustls::ClientConfig;
use tokio::time::Instant;

use super::client::Client;
use super::discover::Found;
use super::wire::{AlarmMember, Member, StatusResponse};
use super::{CALL, is_transport};
use crate::net::{Failure, Url, UrlError};
use crate::sense::SenseContext;

/// More members than any sound cluster has; a list beyond it is asked in part.
const MAX_ENDPOINTS: usize = 16;

/// Connections kept between passes, by endpoint.
pub(super) type Connections = BTreeMap<Url, Client>;

/// One endpoint, asked by itself.
pub(super) struct Look {
    pub(super) url: Url,
    /// `Maintenance/Status`.
    pub(super) status: Result<StatusResponse, Failure>,
    /// A linearizable read, in milliseconds.
    pub(super) read: Result<f64, Failure>,
    pub(super) at: Timestamp,
    client: Option<Client>,
}

impl Look {
    /// The member that answered.
    pub(super) fn answered_by(&self) -> Option<u64> {
        Some(self.status.as_ref().ok()?.header.as_ref()?.member_id)
    }

    /// The cluster of the member that answered.
    fn cluster_id(&self) -> Option<u64> {
        Some(self.status.as_ref().ok()?.header.as_ref()?.cluster_id)
    }
}

/// The member list as it came.
pub(super) struct List {
    pub(super) cluster_id: u64,
    pub(super) members: Vec<Member>,
    /// A quorum stood behind it.
    pub(super) linearizable: bool,
    pub(super) via: Url,
}

/// A client URL in the list that cannot be asked.
pub(super) struct BadUrl {
    pub(super) text: String,
    pub(super) member_id: u64,
    pub(super) error: UrlError,
}

/// All that one pass learnt over gRPC.
pub(super) struct Survey {
    /// The first is the local member's endpoint.
    pub(super) looks: Vec<Look>,
    pub(super) bad_urls: Vec<BadUrl>,
    pub(super) list: Result<List, Failure>,
    pub(super) alarms: Result<Vec<AlarmMember>, Failure>,
    /// The cluster it is about; `None` where that could not be told.
    pub(super) cluster: Option<u64>,
}

impl Survey {
    /// Whether another cluster answered there, or one of several of which none is known to be this node's.
    pub(super) fn is_foreign(&self, look: &Look) -> bool {
        look.cluster_id().is_some_and(|id| Some(id) != self.cluster)
    }

    /// A client behind which a quorum stands, and where it leads; or why there is none.
    pub(super) fn voice(&self) -> Result<(Client, &Url), Failure> {
        voice(&self.looks, self.cluster)
    }
}

/// What earlier passes left for a survey.
pub(super) struct Known {
    /// Client URLs of the other members in the last list.
    pub(super) urls: Vec<Url>,
    /// The local member's id.
    pub(super) own: Option<u64>,
    /// The local member's cluster.
    pub(super) cluster: Option<u64>,
}

/// Asks everybody.
pub(super) async fn survey(
    cx: &SenseContext,
    found: &Found,
    tls: Option<Arc<ClientConfig>>,
    connections: &mut Connections,
    known: &Known,
) -> Survey {
    let mut asked = Asker { cx, tls, connections, looks: Vec::new() };
    asked.look_at(found.endpoints.iter().chain(&known.urls).cloned()).await;
    if let (Some(other), Some(Look { status: Err(failure), .. })) =
        (&found.local_alternative, asked.looks.first())
        && failure.cause == UnknownCause::ConnectionRefused
    {
        asked.look_instead(other.clone()).await;
    }
    let cluster = cluster_of(&asked.looks, known.cluster);
    let list = asked.member_list(cluster).await;
    let mut bad_urls = Vec::new();
    let mut rest = Vec::new();
    for member in list.iter().flat_map(|list| &list.members) {
        if asked.looks.iter().any(|look| look.answered_by() == Some(member.id)) {
            continue;
        }
        // One that hangs hangs at its other addresses too: that is not worth a second more.
        if known.own == Some(member.id) && asked.local_hangs() {
            continue;
        }
        for text in &member.client_urls {
            match Url::parse(text) {
                Ok(url) => rest.push(url),
                Err(error) => bad_urls.push(BadUrl { text: text.clone(), member_id: member.id, error }),
            }
        }
    }
    let voice = voice(&asked.looks, cluster).map(|(client, _)| client);
    let (alarms, ()) = tokio::join!(alarms(voice), asked.look_at(rest));
    let mut looks = asked.looks;
    if let Ok(list) = &list {
        // What the list no longer names belongs to a member that is gone, unless somebody wants it asked.
        let named: BTreeSet<Url> = list
            .members
            .iter()
            .flat_map(|m| &m.client_urls)
            .filter_map(|text| Url::parse(text).ok())
            .collect();
        let mut first = true;
        looks.retain(|look| {
            std::mem::take(&mut first) || found.endpoints.contains(&look.url) || named.contains(&look.url)
        });
    }
    let current: BTreeSet<Url> = looks.iter().map(|look| look.url.clone()).collect();
    connections.retain(|url, _| current.contains(url));
    Survey { looks, bad_urls, list, alarms, cluster }
}

/// etcd answers alarms by consensus, so without quorum the call would only wait for its limit.
async fn alarms(voice: Result<Client, Failure>) -> Result<Vec<AlarmMember>, Failure> {
    let mut client =
        voice.map_err(|failure| failure.during("no member with a quorum behind it could be asked"))?;
    let answer = limited("Maintenance/Alarm", Instant::now() + CALL, client.alarms()).await?;
    Ok(answer.alarms)
}

struct Asker<'a> {
    cx: &'a SenseContext,
    tls: Option<Arc<ClientConfig>>,
    connections: &'a mut Connections,
    looks: Vec<Look>,
}

impl Asker<'_> {
    /// Asks the endpoints that have not been asked yet, all at once.
    async fn look_at(&mut self, urls: impl IntoIterator<Item = Url>) {
        let mut fresh: Vec<Url> = Vec::new();
        for url in urls {
            if !fresh.contains(&url)
                && !self.looks.iter().any(|look| look.url == url)
                && self.looks.len() + fresh.len() < MAX_ENDPOINTS
            {
                fresh.push(url);
            }
        }
        let looks = join_all(fresh.into_iter().map(|url| {
            let kept = self.connections.remove(&url);
            look(self.cx, url, kept, self.tls.clone())
        }));
        for look in looks.await {
            self.keep(&look);
            self.looks.push(look);
        }
    }

    /// Asks the local member under another address and takes that when somebody is there.
    async fn look_instead(&mut self, url: Url) {
        let kept = self.connections.remove(&url);
        let other = look(self.cx, url, kept, self.tls.clone()).await;
        let nobody = matches!(&other.status, Err(f)
            if matches!(f.cause, UnknownCause::ConnectionRefused | UnknownCause::Unreachable));
        if let (false, Some(local)) = (nobody, self.looks.first_mut()) {
            *local = other;
            if let (Some(client), url) = (&local.client, &local.url) {
                self.connections.insert(url.clone(), client.clone());
            }
        }
    }

    /// Whether the local member took the question and gave no answer.
    fn local_hangs(&self) -> bool {
        let local = self.looks.first().map(|look| &look.status);
        matches!(local, Some(Err(failure)) if failure.cause == UnknownCause::TimedOut)
    }

    fn keep(&mut self, look: &Look) {
        if let Some(client) = &look.client {
            self.connections.insert(look.url.clone(), client.clone());
        }
    }

    async fn member_list(&self, cluster: Option<u64>) -> Result<List, Failure> {
        let mut first_failure = None;
        for look in sources(&self.looks, cluster) {
            let Some(mut client) = look.client.clone() else { continue };
            // etcd 3.4 answers from what the member holds, whatever is asked; the read just before proves that it
            // holds what a quorum agreed on.
            let mut linearizable = look.read.is_ok();
            let mut answer = ask_list(&mut client, linearizable).await;
            if linearizable && answer.is_err() {
                linearizable = false;
                answer = ask_list(&mut client, false).await;
            }
            match answer {
                Ok((cluster_id, members)) => {
                    return Ok(List { cluster_id, members, linearizable, via: look.url.clone() });
                }
                Err(failure) => first_failure = first_failure.or(Some(failure)),
            }
        }
        Err(first_failure.unwrap_or_else(|| first_failure_of(&self.looks)))
    }
}

/// The cluster that this node's member belongs to: by its own word, else by what it said last, else the one cluster of
/// which all others are. Where those are of several, nobody can say here which of them is the member's own.
fn cluster_of(looks: &[Look], before: Option<u64>) -> Option<u64> {
    let own = looks.first().and_then(Look::cluster_id);
    own.or(before).or_else(|| {
        let mut all = looks.iter().filter_map(Look::cluster_id);
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    })
}

/// Looks that answered, best source of a list first: with a quorum behind them, the local one before others. One of another
/// cluster (begun anew at the old address, restored alone, named by mistake) is no source for this one.
fn sources(looks: &[Look], cluster: Option<u64>) -> Vec<&Look> {
    let answered = |look: &&Look| look.client.is_some() && look.status.as_ref().is_ok_and(|s| !s.is_learner);
    let this_cluster = |look: &&Look| cluster.is_some() && look.cluster_id() == cluster;
    let mut sources: Vec<&Look> = looks.iter().filter(answered).filter(this_cluster).collect();
    sources.sort_by_key(|look| look.read.is_err());
    sources.truncate(2);
    sources
}

fn voice(looks: &[Look], cluster: Option<u64>) -> Result<(Client, &Url), Failure> {
    let mut why = None;
    for look in sources(looks, cluster) {
        match (&look.read, &look.client) {
            (Ok(_), Some(client)) => return Ok((client.clone(), &look.url)),
            (Err(failure), _) => why = why.or(Some(failure.clone())),
            _ => {}
        }
    }
    Err(why.unwrap_or_else(|| first_failure_of(looks)))
}

fn first_failure_of(looks: &[Look]) -> Failure {
    let failure = looks.first().and_then(|look| match (&look.status, &look.read) {
        (Err(failure), _) | (_, Err(failure)) => Some(failure.clone()),
        _ => None,
    });
    failure.unwrap_or_else(|| Failure::new(UnknownCause::NotYetRead, "no endpoint was asked"))
}

async fn ask_list(client: &mut Client, linearizable: bool) -> Result<(u64, Vec<Member>), Failure> {
    let answer =
        limited("Cluster/MemberList", Instant::now() + CALL, client.member_list(linearizable)).await?;
    Ok((answer.header.unwrap_or_default().cluster_id, answer.members))
}

/// Asks one endpoint for status and a linearizable read at once, within a second, connecting where needed.
async fn look(cx: &SenseContext, url: Url, kept: Option<Client>, tls: Option<Arc<ClientConfig>>) -> Look {
    let deadline = Instant::now() + CALL;
    if let Some(client) = kept.filter(|client| !client.is_closed()) {
        let look = ask(cx, &url, client, deadline).await;
        // A connection that died since the last pass says nothing about the endpoint: one new one is tried.
        if !matches!(&look.status, Err(failure) if is_transport(failure)) {
            return look;
        }
    }
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    match Client::connect(&url, tls, left).await {
        Ok(client) => ask(cx, &url, client, deadline).await,
        Err(failure) => {
            Look { url, status: Err(failure.clone()), read: Err(failure), at: cx.now(), client: None }
        }
    }
}

async fn ask(cx: &SenseContext, url: &Url, client: Client, deadline: Instant) -> Look {
    let (mut for_status, mut for_read) = (client.clone(), client.clone());
    let (status, read) = tokio::join!(
        limited("Maintenance/Status", deadline, for_status.status()),
        limited("linearizable read", deadline, for_read.linearizable_read()),
    );
    // What is no etcd vouches for no quorum.
    let read = match &status {
        Err(failure) if failure.cause == UnknownCause::InvalidAnswer => Err(failure.clone()),
        _ => read.map(|read| read.ms),
    };
    let client = status.is_ok().then_some(client);
    Look { url: url.clone(), status, read, at: cx.now(), client }
}

pub(super) async fn limited<T>(
    what: &str,
    deadline: Instant,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout_at(deadline, call).await.unwrap_or_else(|_| Err(Failure::timed_out(what, CALL)))
}
