//! Who of a member list is healthy, as one node's endpoints show it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use outrider_protocol::{
    Distribution, EndpointFacts, EndpointStatus, EtcdFacts, Fact, Member, MemberList, Timestamp, UnknownCause,
};

use super::alarms;
use super::quorum::{Ghost, Health, Proof, Tally, Voter, label};
use super::rebuilt::{Rebuilt, has_node, kubernetes_nodes, stem};
use super::rivals::{self, Camp};
use super::spoilt;
use super::urls::is_loopback;
use crate::wording::{Count, Span};

/// etcd's own default, and what RKE2 and K3s set (`facts/etcd.md`, section 2).
const ELECTION: Duration = Duration::from_secs(1);
const ELECTION_OF_RANCHER: Duration = Duration::from_secs(5);
/// etcd refuses to start with a longer one (etcd-io/etcd:server/embed/config.go, `maxElectionMs`).
const ELECTION_AT_MOST: Duration = Duration::from_secs(50);

/// The name people know a member by; its id until it has started once.
pub(crate) fn display_name(member: &Member) -> &str {
    if member.name.is_empty() { &member.id } else { &member.name }
}

/// Name and id, as a person who types the command needs them.
pub(crate) fn with_id(member: &Member) -> String {
    if member.name.is_empty() { member.id.clone() } else { format!("{} with id {}", member.name, member.id) }
}

/// The name of the member with `id`, or the id itself when the list does not have it.
pub(crate) fn name_of<'a>(list: Option<&'a MemberList>, id: &'a str) -> &'a str {
    list.and_then(|l| l.members.iter().find(|m| m.id == id)).map_or(id, display_name)
}

/// The election timeout that `etcd` runs with. One of 0 was not told: certainty must not come at once because of it.
pub(crate) fn election_timeout(etcd: &EtcdFacts) -> Duration {
    match etcd.election_timeout_ms {
        0 if etcd.distribution.is_ranchers() => ELECTION_OF_RANCHER,
        0 => ELECTION,
        ms => Duration::from_millis(u64::from(ms)).min(ELECTION_AT_MOST),
    }
}

/// The list with each member once, and in words the ids that it names more often. Of two of one id that differ the one
/// that votes counts, for a voter too many is the safer error.
pub(crate) fn distinct(list: &MemberList) -> (Cow<'_, MemberList>, Vec<String>) {
    // As good as always, and a fleet is thousands of lists.
    let mut ids: Vec<&str> = list.members.iter().map(|m| m.id.as_str()).collect();
    ids.sort_unstable();
    if ids.windows(2).all(|two| two[0] != two[1]) {
        return (Cow::Borrowed(list), Vec::new());
    }
    let mut places: HashMap<&str, Vec<usize>> = HashMap::with_capacity(list.members.len());
    for (i, m) in list.members.iter().enumerate() {
        places.entry(&m.id).or_default().push(i);
    }
    let mut repeated = Vec::new();
    let mut members = Vec::with_capacity(places.len());
    for (i, m) in list.members.iter().enumerate() {
        let same = places.get(m.id.as_str()).map_or(&[][..], Vec::as_slice);
        if same.first() != Some(&i) {
            continue;
        }
        let all = || same.iter().map(|p| &list.members[*p]);
        if same.len() > 1 {
            let mut named: Vec<&str> = all().map(display_name).collect();
            named.dedup();
            repeated.push(format!("{} {} times, as {}", m.id, same.len(), crate::wording::names(named, 3)));
        }
        members.extend(all().find(|m| !m.is_learner).or_else(|| all().next()).cloned());
    }
    (Cow::Owned(MemberList { members, ..list.clone() }), repeated)
}

/// The list that was read, unless no etcd gives such a one.
pub(crate) fn listed(etcd: &EtcdFacts) -> Option<&MemberList> {
    etcd.members.value().filter(|list| nonsense(list).is_none())
}

/// Why no etcd gives this list: a member without an id can be held against no answer, and a cluster without a voter cannot be
/// (etcd starts as one, and removes or demotes no last one).
fn nonsense(list: &MemberList) -> Option<String> {
    let nameless = list.members.iter().filter(|m| m.id.trim().is_empty()).count();
    let learners = list.members.iter().filter(|m| m.is_learner).count();
    if nameless > 0 {
        Some(format!("it has {} members, {nameless} of them without an id", list.members.len()))
    } else if learners > 0 && learners == list.members.len() {
        Some(format!("it has no voter, only {}, and a cluster has one at least", Count(learners, "learner")))
    } else {
        None
    }
}

/// The same facts with the list that [`listed`] refuses as an answer that is none; `None` where there is nothing to refuse.
pub(crate) fn without_bad_list(etcd: &EtcdFacts) -> Option<EtcdFacts> {
    let Fact::Known { value: list, source, at } = &etcd.members else { return None };
    let detail = nonsense(list)?;
    let members = Fact::unknown(UnknownCause::InvalidAnswer, detail, source.clone(), *at);
    Some(EtcdFacts { members, ..etcd.clone() })
}

/// Counts the voters of `list`, each of which it names once, by what `etcd`'s endpoints answered.
pub(crate) fn tally<'a>(etcd: &'a EtcdFacts, list: &'a MemberList, now: Timestamp) -> Tally<'a> {
    let nodes = kubernetes_nodes(etcd);
    let seen = |m: &Member| {
        let seen = health(endpoints_of(etcd, m), &list.cluster_id, m, now);
        behind_a_closed_port(etcd, m, &seen).unwrap_or(seen)
    };
    let seen: Vec<Seen> = list.members.iter().map(seen).collect();
    let rebuilt =
        Rebuilt::among(list, |i| seen[i].health, nodes.unwrap_or_default().iter().map(String::as_str));
    let no_node = |m: &Member| nodes.is_some_and(|nodes| !m.name.is_empty() && !has_node(&m.name, nodes));
    let voters = list.members.iter().zip(seen).enumerate().filter(|(_, (m, _))| !m.is_learner);
    let voters = voters.map(|(i, (m, seen))| {
        let ghost = if no_node(m) { Some(Ghost::WithoutNode) } else { rebuilt.ghost(i) };
        Voter::new(m, seen, ghost)
    });
    let mut voters: Vec<Voter<'_>> = voters.collect();
    label(&mut voters);
    spoilt::mark(&mut voters, etcd, list);
    rivals::mark(&mut voters, &camps(etcd, list), list);
    Tally {
        voters,
        cluster_id: &list.cluster_id,
        elsewhere: Vec::new(),
        learners: list.members.iter().filter(|m| m.is_learner).count(),
        proof: proof(etcd),
        election_timeout: election_timeout(etcd),
        no_read_since: etcd.no_read_since,
        list_may_be_stale: !list.linearizable,
        leader: String::new(),
        looks: 1,
        seen_from: String::new(),
        alarmed: alarms::stop_writes(etcd),
        reset_on: if spoilt::is_reset(etcd) { vec!["this server"] } else { Vec::new() },
        snapshot: etcd.snapshots.as_ref().and_then(Fact::value).and_then(super::snapshots::known_words),
    }
}

/// Whom the voters of `list` follow, as one look at the endpoints shows it.
pub(crate) fn camps<'a>(etcd: &'a EtcdFacts, list: &'a MemberList) -> Vec<Camp<'a>> {
    let own =
        |m: &'a Member| endpoints_of(etcd, m).filter(|e| answers_itself(e, m)).find_map(|e| e.status.value());
    let voters = list.members.iter().filter(|m| !m.is_learner);
    rivals::camps(voters.filter_map(own), &list.cluster_id)
}

/// The id of the member that an endpoint belongs to: who answered decides, then what the sensor matched.
pub(crate) fn member_of(e: &EndpointFacts) -> Option<&str> {
    let told = e.status.value().map(|s| s.member_id.as_str()).filter(|id| !id.is_empty());
    told.or(Some(e.member_id.as_str()).filter(|id| !id.is_empty()))
}

/// Whether the member publishes the endpoint's URL. An empty one is nobody's.
pub(crate) fn publishes(member: &Member, e: &EndpointFacts) -> bool {
    let endpoint = e.endpoint.trim_end_matches('/');
    !endpoint.is_empty() && member.client_urls.iter().any(|url| url.trim_end_matches('/') == endpoint)
}

/// Whether the endpoint tells of `member` of `list`: by its id; by the published URL where no id is known, and where another
/// member answers there, for then this one does not (D10).
pub(crate) fn tells_of(e: &EndpointFacts, member: &Member, list: Option<&MemberList>) -> bool {
    match member_of(e) {
        Some(id) => id == member.id || (publishes(member, e) && took_its_place(e, id, member, list)),
        None => publishes(member, e),
    }
}

/// Whether the member `id` that answers at the URL of `member` stands in its place: one that the list does not have, or
/// one of the same node. Two members of different nodes that publish one URL are a fault of the URL.
fn took_its_place(e: &EndpointFacts, id: &str, member: &Member, list: Option<&MemberList>) -> bool {
    let (Some(status), Some(list)) = (e.status.value(), list) else { return false };
    // On loopback everybody answers for himself.
    if status.member_id.is_empty() || is_loopback(&e.endpoint) {
        return false;
    }
    match list.members.iter().find(|m| m.id == id) {
        Some(other) => !member.name.is_empty() && stem(&other.name) == stem(&member.name),
        None => true,
    }
}

/// Ids of the members none of which has another of its own node beside it in `list`.
pub(crate) fn sole_of_their_nodes(list: &MemberList) -> HashSet<&str> {
    let mut by_node: Vec<(String, &Member)> = list.members.iter().map(|m| (stem(&m.name), m)).collect();
    by_node.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let alone = by_node.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() == 1 || same[0].0.is_empty());
    alone.flatten().map(|(_, m)| m.id.as_str()).collect()
}

/// Whether `member` itself answered at the endpoint, which tells of it.
pub(crate) fn answers_itself(e: &EndpointFacts, member: &Member) -> bool {
    e.status.value().is_some_and(|s| s.member_id.is_empty() || s.member_id == member.id)
}

/// Endpoints that tell of `member`, as [`tells_of`] has it.
pub(crate) fn endpoints_of<'a>(
    etcd: &'a EtcdFacts,
    member: &'a Member,
) -> impl Iterator<Item = &'a EndpointFacts> {
    let list = etcd.members.value();
    etcd.endpoints.iter().filter(move |e| tells_of(e, member, list))
}

/// What is seen of one member.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) health: Health,
    /// Why that is not better, to follow the member's name in a sentence.
    pub(crate) why: String,
    /// It answers for another cluster, that of this id.
    pub(crate) foreign: Option<String>,
    /// Another member answers at its address: it does not come back.
    pub(crate) replaced: bool,
    /// Nothing came back from it: it may well serve others.
    pub(crate) unreached: bool,
}

impl Seen {
    pub(crate) fn new(health: Health, why: impl Into<String>) -> Self {
        Self { health, why: why.into(), foreign: None, replaced: false, unreached: false }
    }
}

/// The best that any of `endpoints`, which are those of `member`, showed.
pub(crate) fn health<'e>(
    endpoints: impl Iterator<Item = &'e EndpointFacts>,
    cluster_id: &str,
    member: &Member,
    now: Timestamp,
) -> Seen {
    let seen = endpoints.map(|e| endpoint_health(e, cluster_id, member, now));
    seen.max_by_key(|seen| seen.health).unwrap_or_else(|| {
        if member.name.is_empty() {
            Seen::new(Health::Down, "was added and has never started")
        } else if member.client_urls.is_empty() {
            Seen::new(Health::Down, "publishes no client address")
        } else {
            Seen::new(Health::Unknown, "was not asked")
        }
    })
}

/// What a silence is worth whose member its peers reach all the while: it lives and votes, and how it is cannot be told.
pub(crate) fn behind_a_closed_port(etcd: &EtcdFacts, member: &Member, seen: &Seen) -> Option<Seen> {
    if seen.health != Health::Down || seen.foreign.is_some() || !only_client_port_is_closed(etcd, member) {
        return None;
    }
    let why = format!("{}; its raft connection on port 2380 stands, so it lives", seen.why);
    Some(Seen::new(Health::Unknown, why))
}

/// Whether this node gets no answer from the member's client port while its own member hears it on port 2380.
pub(crate) fn only_client_port_is_closed(etcd: &EtcdFacts, member: &Member) -> bool {
    let mut since = None;
    for e in endpoints_of(etcd, member) {
        match &e.status {
            Fact::Unknown { cause, .. } if is_down(cause) && !e.local => since = since.max(e.down_since),
            _ => return false,
        }
    }
    etcd.link_after(&member.id, since) == Some(true)
}

/// How long an endpoint has been silent; `None` where it was asked once, for one look tells no duration.
pub(crate) fn down_for(e: &EndpointFacts, now: Timestamp) -> Option<Duration> {
    let since = e.down_since.filter(|since| e.status.at() > *since)?;
    Some(now.since(since)).filter(|d| *d >= Duration::from_secs(1))
}

/// " for 10 min", or nothing while the silence is as young as the question.
pub(crate) fn silent_for(e: &EndpointFacts, now: Timestamp) -> String {
    down_for(e, now).map(|d| format!(" for {}", Span(d))).unwrap_or_default()
}

fn endpoint_health(e: &EndpointFacts, cluster_id: &str, member: &Member, now: Timestamp) -> Seen {
    let since = silent_for(e, now);
    match &e.status {
        Fact::Known { value: other, .. } if !answers_itself(e, member) => {
            let foreign = Some(&other.cluster_id).filter(|id| !id.is_empty() && *id != cluster_id);
            let of = if other.cluster_id.is_empty() { "an unknown cluster" } else { "cluster" };
            let why = format!(
                "does not run any more: another member, id {} of {}, answers at its address {}",
                other.member_id,
                [of, &other.cluster_id].join(" ").trim_end(),
                e.endpoint
            );
            let foreign = foreign.filter(|_| !cluster_id.is_empty()).cloned();
            Seen { foreign, replaced: true, ..Seen::new(Health::Down, why) }
        }
        Fact::Known { value: status, .. } => status_health(status, cluster_id),
        Fact::Unknown { cause, detail, .. } if is_down(cause) => {
            let hangs = match Silence::of(e) {
                Some(Silence::Hangs) => ", though it takes the connection",
                _ => "",
            };
            let why = format!("does not answer at {}{since}{hangs}: {cause}, {detail}", e.endpoint);
            let unreached = matches!(Silence::of(e), Some(Silence::NoConnection | Silence::Unreachable));
            Seen { unreached: unreached && !e.local, ..Seen::new(Health::Down, why) }
        }
        Fact::Unknown { cause, detail, .. } => {
            Seen::new(Health::Unknown, format!("could not be asked at {}: {cause}, {detail}", e.endpoint))
        }
        Fact::Absent { .. } => Seen::new(Health::Down, format!("is not there at {}{since}", e.endpoint)),
        Fact::NotApplicable { reason, .. } => {
            Seen::new(Health::Unknown, format!("was not asked at {}: {reason}", e.endpoint))
        }
    }
}

/// What a member's answer says of it.
pub(super) fn status_health(status: &EndpointStatus, cluster_id: &str) -> Seen {
    if is_of_another(status, cluster_id) {
        let why = format!("belongs to another cluster ({})", status.cluster_id);
        return Seen { foreign: Some(status.cluster_id.clone()), ..Seen::new(Health::Down, why) };
    }
    if lacks_leader(status) {
        return Seen::new(Health::NoLeader, "answers and sees no leader");
    }
    match status.errors.iter().find(|e| !is_alarm(e)) {
        Some(error) => Seen::new(Health::Down, format!("answers with an error: {error}")),
        None => Seen::new(Health::Healthy, ""),
    }
}

/// Whether the member sees no leader: nothing can be written through it.
pub(crate) fn lacks_leader(status: &EndpointStatus) -> bool {
    status.leader.is_empty() || status.leader == "0" || status.errors.iter().any(|e| e.contains("no leader"))
}

/// Status lists alarms among its errors; an alarm says nothing about whether the member answers (D5).
fn is_alarm(error: &str) -> bool {
    error.contains("alarm:")
        || error.contains("NOSPACE")
        || error.contains("CORRUPT")
        || error.contains("space exceeded")
}

/// Causes that are the peer's silence. The others are ours, and say nothing about the member.
pub(crate) fn is_down(cause: &UnknownCause) -> bool {
    matches!(
        cause,
        UnknownCause::ConnectionRefused
            | UnknownCause::TimedOut
            | UnknownCause::Unreachable
            | UnknownCause::Unavailable
    )
}

/// Whether nothing at all is heard from the endpoint, through no fault of the question.
pub(crate) fn is_silent(e: &EndpointFacts) -> bool {
    match &e.status {
        Fact::Absent { .. } => true,
        Fact::Unknown { cause, .. } => is_down(cause),
        Fact::Known { .. } | Fact::NotApplicable { .. } => false,
    }
}

/// How an endpoint is silent: where a person looks first hangs on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Nobody listens.
    Refuses,
    /// The connection stands and no answer comes: the process is there and does not get on.
    Hangs,
    /// Nothing came back, be it for packets that are dropped or for a process that hangs before TLS is up.
    NoConnection,
    /// The way there is cut, or the peer cut it.
    Unreachable,
    /// It says itself that it cannot serve.
    Unavailable,
}

impl Silence {
    /// `None` where the endpoint answers or could not be asked.
    pub(crate) fn of(e: &EndpointFacts) -> Option<Self> {
        Some(match &e.status {
            Fact::Absent { .. } => Self::Refuses,
            Fact::Unknown { cause: UnknownCause::ConnectionRefused, .. } => Self::Refuses,
            // On this machine nothing is dropped on the way: what takes no connection there hangs.
            Fact::Unknown { cause: UnknownCause::TimedOut, detail, .. }
                if !e.local && detail.starts_with("connecting") =>
            {
                Self::NoConnection
            }
            Fact::Unknown { cause: UnknownCause::TimedOut, .. } => Self::Hangs,
            Fact::Unknown { cause: UnknownCause::Unreachable, .. } => Self::Unreachable,
            Fact::Unknown { cause: UnknownCause::Unavailable, .. } => Self::Unavailable,
            _ => return None,
        })
    }
}

/// What runs etcd on a server of this kind, as a person names it to systemd or the container runtime.
pub(crate) fn service(distribution: &Distribution) -> &'static str {
    match distribution {
        Distribution::Rke2 => "rke2-server (and its static pod etcd)",
        Distribution::K3s => "k3s",
        Distribution::Rke1 => "the container etcd",
        Distribution::Kubeadm => "the static pod etcd",
        _ => "etcd's service",
    }
}

/// "rpc not supported for learner": the peer is there, and a learner (D7).
pub(crate) fn refused_by_learner<T>(fact: &Fact<T>) -> bool {
    matches!(fact, Fact::Unknown { cause: UnknownCause::Unsupported, detail, .. } if detail.contains("for learner"))
}

/// The cluster of this node's member: by its own word, now or before it fell silent, else by the list that was read.
pub(crate) fn cluster_id(etcd: &EtcdFacts) -> &str {
    let own = etcd.local_status().map(|s| s.cluster_id.as_str()).filter(|id| !id.is_empty());
    own.or(etcd.cluster_id.as_deref().filter(|id| !id.is_empty()))
        .or(etcd.members.value().map(|l| l.cluster_id.as_str()))
        .unwrap_or_default()
}

/// Whether `e` answered as a member of another cluster than `id` (a data folder begun anew at the old address, D10).
pub(crate) fn is_foreign(e: &EndpointFacts, id: &str) -> bool {
    e.status.value().is_some_and(|s| is_of_another(s, id))
}

/// Whether this answer is of another cluster than `id`, as far as both are told.
pub(crate) fn is_of_another(status: &EndpointStatus, id: &str) -> bool {
    !id.is_empty() && !status.cluster_id.is_empty() && status.cluster_id != id
}

/// The endpoints without those of another cluster: what such a one says of reads, alarms, sizes and indexes is its own.
pub(crate) fn ours(etcd: &EtcdFacts) -> impl Iterator<Item = &EndpointFacts> {
    let id = cluster_id(etcd);
    etcd.endpoints.iter().filter(move |e| !is_foreign(e, id))
}

/// How long a linearizable read took that was answered, in milliseconds; `None` where it was not, and where what is told is no
/// time: it proves nothing then.
pub(crate) fn read_ms(e: &EndpointFacts) -> Option<f64> {
    e.linearizable_read.value().copied().filter(|ms| is_time(*ms))
}

/// A day is longer than any client waits.
pub(super) fn is_time(ms: f64) -> bool {
    (0.0..=86_400_000.0).contains(&ms)
}

/// What the linearizable reads prove: one that ends needs a quorum; failing at members that see a leader hints at none.
pub(crate) fn proof(etcd: &EtcdFacts) -> Proof {
    let mut failed = None;
    for e in ours(etcd) {
        match &e.linearizable_read {
            Fact::Known { value, .. } if is_time(*value) => return Proof::Read { ms: *value, against: None },
            // Learners refuse such reads (D7), a refused credential proves nothing, and a member cut off from the
            // leader fails by itself while the others go on.
            Fact::Unknown { cause, detail, .. }
                if is_down(cause) && e.status.value().is_some_and(|s| !s.is_learner && !lacks_leader(s)) =>
            {
                failed.get_or_insert_with(|| format!("{cause}, {detail} at {}", e.endpoint));
            }
            _ => {}
        }
    }
    failed.map_or(Proof::None, Proof::Failed)
}
