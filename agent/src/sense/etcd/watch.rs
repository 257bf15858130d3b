//! Between two passes: is quorum there, and has anything about the others changed?
//!
//! Every second or so the local member is asked for one linearizable read. Whether the others are still there comes almost
//! for free: a kept connection that ends (a process that died, a machine that was cut off: the kernel asks an idle peer
//! every few seconds, see `client`) says so by itself, an election shows in the raft term that comes with every read,
//! and every few seconds one question goes round: the local member's list, then the status of each member in turn. What
//! it says of a learner on its way is kept; whatever else differs from the last pass makes a new pass due.
//!
//! HTTP/2 pings would be no cheaper and do harm: etcd takes pings without a call under way for abuse and closes the
//! connection (grpc-go, `keepalive.EnforcementPolicy`, `PermitWithoutStream` is off in etcd).

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{EndpointFacts, EtcdFacts, Fact, LearnerProgress, Member, Timestamp, UnknownCause};
use rustls::ClientConfig;
use tokio::time::{Instant, timeout};

use super::client::{Client, Read};
use super::facts::{fact_of, member_facts, status_facts};
use super::is_transport;
use super::memory::Memory;
use super::wire::StatusResponse;
use crate::config::EtcdSettings;
use crate::net::{Failure, Url};
use crate::sense::SenseContext;
use crate::timer::KernelTimer;

/// Limit of a poll: what it does not hear, a pass asks again, so that a slow disk is no loss of quorum.
const POLL: Duration = Duration::from_millis(500);
/// Time between two questions of the round.
const EVERY: Duration = Duration::from_secs(5);

/// What a look came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// As the last pass left it.
    Same(Timestamp),
    /// Quorum is there, and something else is not as it was; in words.
    Changed(Timestamp, String),
    /// The local member does not confirm quorum, or there is no way to ask it.
    Lost,
}

/// Where the round is.
#[derive(Debug, Default)]
pub(super) struct Round {
    next: usize,
    asked: Option<Instant>,
    /// The raft term of the last answer; 0 when none is known.
    pub(super) term: u64,
}

impl Round {
    /// The place in the round whose turn has come.
    fn turn(&mut self, places: usize) -> Option<usize> {
        let asked = *self.asked.get_or_insert_with(Instant::now);
        if asked.elapsed() < EVERY {
            return None;
        }
        self.asked = Some(Instant::now());
        let place = self.next % places.max(1);
        self.next = place + 1;
        Some(place)
    }
}

/// One cheap look; `facts` are those of the last pass and take what was heard.
pub async fn watch(
    cx: &SenseContext,
    settings: &EtcdSettings,
    memory: &mut Memory,
    facts: &mut EtcdFacts,
) -> Watched {
    let Some(local) = memory.local_url(settings) else { return Watched::Lost };
    let ended = take_ended(memory, &local);
    let question = question(memory, &local, facts);
    let tls = memory.grpc_tls();
    let Some(endpoint) = facts.endpoints.iter_mut().find(|endpoint| endpoint.local) else {
        return Watched::Lost;
    };
    let learner = endpoint.status.value().is_some_and(|status| status.is_learner);
    if !learner && endpoint.linearizable_read.value().is_none() {
        return Watched::Lost;
    }
    let kept = memory.connections.remove(&local).filter(|client| !client.is_closed());
    // On the connection that the poll has: were it opened twice, etcd would have two to keep.
    let on_local = kept.clone();
    let began = cx.now();
    let mut timer = std::mem::take(&mut memory.timer);
    let polled = poll(&local, kept, tls.clone(), learner, &mut timer);
    let ((outcome, client), answer) = tokio::join!(polled, ask(question, memory, on_local, tls));
    memory.timer = timer;
    memory.connections.extend(client.map(|client| (local.clone(), client)));
    let at = cx.now();
    memory.note_read(outcome.is_ok(), began);
    let Ok(read) = outcome else { return Watched::Lost };
    if !learner {
        endpoint.linearizable_read = Fact::known(read.ms, format!("KV/Range at {local}"), at);
    }
    let heard = answer.and_then(|answer| hear(answer, memory, facts, at));
    let mut election = None;
    if read.raft_term != 0 {
        let term = std::mem::replace(&mut memory.round.term, read.raft_term);
        election = (term != 0 && term != read.raft_term)
            .then(|| format!("there was an election: raft term {term} became {}", read.raft_term));
    }
    match ended.or(election).or(heard) {
        Some(why) => Watched::Changed(at, why),
        None => Watched::Same(at),
    }
}

/// One linearizable read at the local member, in milliseconds, on the connection of the last pass. `None` where the last
/// pass found no etcd or no way in, or the settings have changed since.
pub async fn poll_local(
    cx: &SenseContext,
    settings: &EtcdSettings,
    memory: &mut Memory,
) -> Option<Fact<f64>> {
    let url = memory.local_url(settings)?;
    let kept = memory.connections.remove(&url);
    let (outcome, client) = poll(&url, kept, memory.grpc_tls(), false, &mut memory.timer).await;
    memory.connections.extend(client.map(|client| (url.clone(), client)));
    Some(fact_of(outcome.map(|read| read.ms), format!("KV/Range at {url}"), cx.now()))
}

/// One call: a read, or at a learner, which answers none, its status.
async fn poll(
    url: &Url,
    kept: Option<Client>,
    tls: Option<Arc<ClientConfig>>,
    learner: bool,
    timer: &mut KernelTimer,
) -> (Result<Read, Failure>, Option<Client>) {
    let mut open = None;
    let polled = async {
        if let Some(client) = kept.filter(|client| !client.is_closed()) {
            let outcome = call(open.insert(client), learner).await;
            // A kept connection that has died meanwhile says nothing about etcd: one new one is tried.
            if !matches!(&outcome, Err(failure) if is_transport(failure)) {
                return outcome;
            }
            open = None;
        }
        let client = Client::connect(url, tls, POLL).await?;
        call(open.insert(client), learner).await
    };
    let outcome = timer.within(POLL, polled).await;
    (outcome.unwrap_or_else(|| Err(Failure::timed_out("linearizable read", POLL))), open)
}

async fn call(client: &mut Client, learner: bool) -> Result<Read, Failure> {
    if learner {
        let status = client.status().await?;
        return Ok(Read { ms: 0.0, raft_term: status.raft_term });
    }
    client.linearizable_read().await
}

/// Drops connections that have ended; the first of them in words.
fn take_ended(memory: &mut Memory, local: &Url) -> Option<String> {
    let ended: Vec<Url> = memory
        .connections
        .iter()
        .filter(|(url, client)| *url != local && client.is_closed())
        .map(|(url, _)| url.clone())
        .collect();
    memory.connections.retain(|url, _| !ended.contains(url));
    ended.first().map(|url| format!("the connection to {url} has ended"))
}

/// One question of the round.
enum Question {
    List,
    /// Of the local member, on the poll's connection, or of another.
    Status(Url, bool),
}

fn question(memory: &mut Memory, local: &Url, facts: &EtcdFacts) -> Option<Question> {
    let mut others = memory.known_urls();
    others.retain(|url| !turned_away(facts, &url.to_string()));
    match memory.round.turn(others.len() + 2)? {
        0 => Some(Question::List),
        1 => Some(Question::Status(local.clone(), true)),
        n => others.get(n - 2).cloned().map(|url| Question::Status(url, false)),
    }
}

/// Whether the endpoint did not take us for who we are: asking again would only fill its log, and the next pass does.
fn turned_away(facts: &EtcdFacts, endpoint: &str) -> bool {
    let endpoint = facts.endpoints.iter().find(|known| known.endpoint == endpoint);
    endpoint.is_some_and(|known| matches!(&known.status, Fact::Unknown { cause, .. } if is_refusal(cause)))
}

/// A failure that is about who we are or what is there, and that time alone does not mend.
pub(crate) fn is_refusal(cause: &UnknownCause) -> bool {
    use UnknownCause as C;
    matches!(cause, C::TlsFailed | C::Unauthenticated | C::Forbidden | C::InvalidInput | C::InvalidAnswer)
}

enum Answer {
    List(Result<Vec<Member>, Failure>),
    Status(Url, Result<StatusResponse, Failure>),
}

/// Asks one question, on a kept connection where there is one.
async fn ask(
    question: Option<Question>,
    memory: &mut Memory,
    on_local: Option<Client>,
    tls: Option<Arc<ClientConfig>>,
) -> Option<Answer> {
    match question? {
        Question::List => {
            let mut client = on_local?;
            let list = timeout(POLL, client.member_list(false)).await;
            let list = list.unwrap_or_else(|_| Err(Failure::timed_out("Cluster/MemberList", POLL)));
            Some(Answer::List(list.map(|list| list.members.iter().map(member_facts).collect())))
        }
        Question::Status(url, true) => {
            let mut client = on_local?;
            let status = timeout(POLL, client.status()).await;
            let status = status.unwrap_or_else(|_| Err(Failure::timed_out("Maintenance/Status", POLL)));
            Some(Answer::Status(url, status))
        }
        Question::Status(url, false) => {
            let kept = memory.connections.remove(&url).filter(|client| !client.is_closed());
            let mut open = None;
            let asked = async {
                let client = match kept {
                    Some(client) => client,
                    None => Client::connect(&url, tls, POLL).await?,
                };
                open.insert(client).status().await
            };
            let status = timeout(POLL, asked).await;
            let status = status.unwrap_or_else(|_| Err(Failure::timed_out("Maintenance/Status", POLL)));
            memory.connections.extend(open.map(|client| (url.clone(), client)));
            Some(Answer::Status(url, status))
        }
    }
}

/// Puts an answer into the facts; what is not as it was, in words.
fn hear(answer: Answer, memory: &mut Memory, facts: &mut EtcdFacts, at: Timestamp) -> Option<String> {
    match answer {
        // A learner may not be asked, and a slow member is what the pass is for.
        Answer::List(Err(_)) => None,
        Answer::List(Ok(members)) => match facts.members.value() {
            Some(list) if same_members(&list.members, &members) => None,
            _ => Some(format!("the member list is not as it was: {} members now", members.len())),
        },
        Answer::Status(url, status) => {
            let name = url.to_string();
            let front = facts.endpoints.iter().filter_map(|e| e.status.value()).map(|s| s.raft_index).max();
            let endpoint = facts.endpoints.iter_mut().find(|endpoint| endpoint.endpoint == name)?;
            match status {
                Ok(status) => {
                    let point = LearnerProgress {
                        at,
                        index: status.raft_index,
                        front: front.unwrap_or_default().max(status.raft_index),
                    };
                    let why = heard_status(endpoint, status, at);
                    memory.learners.seen(&endpoint.member_id, point);
                    facts.learner_progress = memory.learners.progress.clone();
                    why
                }
                Err(failure) => {
                    let answered = endpoint.status.value().is_some();
                    answered.then(|| format!("{url} does not answer: {}", failure.detail))
                }
            }
        }
    }
}

fn heard_status(endpoint: &mut EndpointFacts, status: StatusResponse, at: Timestamp) -> Option<String> {
    let url = &endpoint.endpoint;
    let Some(before) = endpoint.status.value() else { return Some(format!("{url} answers again")) };
    let quota = (before.quota_bytes > 0).then_some(before.quota_bytes);
    let now = status_facts(status, quota);
    let same = (
        &before.member_id,
        &before.cluster_id,
        &before.leader,
        &before.version,
        before.is_learner,
        &before.errors,
    ) == (&now.member_id, &now.cluster_id, &now.leader, &now.version, now.is_learner, &now.errors);
    let why = (!same).then(|| format!("{url} is not as it was"));
    endpoint.status = Fact::known(now, format!("Maintenance/Status at {url}"), at);
    why
}

/// Whether two lists name the same members, in whatever order.
fn same_members(a: &[Member], b: &[Member]) -> bool {
    a.len() == b.len() && a.iter().all(|member| b.contains(member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_round_asks_one_question_at_a_time_and_comes_to_everybody() {
        let mut round = Round::default();
        assert_eq!(round.turn(3), None, "not at once after a pass");
        let mut turns = Vec::new();
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(1)).await;
            turns.extend(round.turn(3));
        }
        assert_eq!(turns, [0, 1, 2, 0]);
        tokio::time::advance(EVERY).await;
        assert_eq!(round.turn(1), Some(0), "fewer members than before");
    }

    #[test]
    fn lists_are_compared_whatever_their_order() {
        let member = |id: &str, is_learner| Member {
            id: id.into(),
            name: id.into(),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner,
        };
        let (a, b) = (member("a", false), member("b", true));
        assert!(same_members(&[a.clone(), b.clone()], &[b.clone(), a.clone()]));
        assert!(!same_members(&[a.clone(), b.clone()], &[a.clone(), member("b", false)]), "a promotion");
        assert!(!same_members(std::slice::from_ref(&a), &[a.clone(), b]));
    }
}
