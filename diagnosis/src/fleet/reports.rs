//! All reports of one cluster, sorted and sorted out: whose count, by whose clock, and what each says of whom.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{
    BalancerPaths, EndpointFacts, EtcdFacts, Fact, Member as EtcdMember, MemberList, NodeNetwork, Status,
    Timestamp, UnknownCause,
};

use super::{NAMED, join, snapshots};
use crate::rules::etcd::quorum::Tally;
use crate::rules::etcd::rebuilt::{has_node, is_of_node, kubernetes_nodes};
use crate::rules::etcd::rivals;
use crate::rules::etcd::view;
use crate::wording::names;

/// A reading this old is stale even from a node that is heard: whole states are sent again more often than that.
const STALE_AFTER: Duration = Duration::from_secs(3600);

/// One node of a cluster, as the coordinator knows it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Whether it is heard: `True` while it reports in time.
    pub ready: Status,
    /// Zone; empty when unknown.
    pub zone: &'a str,
    /// Region; empty when unknown.
    pub region: &'a str,
    /// Its last report's view of etcd; `None` for a node that has none.
    pub etcd: Option<&'a Fact<EtcdFacts>>,
    /// Its last report of where it stands on the network and whom it reaches; `None` for a node without Kubernetes.
    pub network: Option<&'a NodeNetwork>,
    /// When that report came in; `None` where nobody received it, as with a captured file: the node's clock is taken
    /// for ours then, as far as it is not ahead.
    pub received: Option<Received>,
    /// When anything was last heard of it, a heartbeat too; `None` where nobody listens.
    pub heard: Option<Timestamp>,
    /// Its virtual machine as `namespace/name`, where that was deleted: while the node is silent nothing waits for it.
    pub retired: Option<&'a str>,
    /// Its own addresses with prefix length.
    pub addresses: &'a [String],
    /// Its last report of what its tries at load balancers came to.
    pub paths: &'a [BalancerPaths],
}

/// When a report came in, by both clocks: how old its readings are does not hang on whether the node's clock is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// By the clock of whoever judges.
    pub at: Timestamp,
    /// By the node's clock, when it sent it.
    pub sent_at: Timestamp,
}

impl<'a> Member<'a> {
    /// Its deleted machine, while the node is silent.
    pub(super) fn retired_as(&self) -> Option<&'a str> {
        self.retired.filter(|_| self.ready != Status::True)
    }
}

/// Id of the member that a node last reported as its own.
fn last_member(etcd: &Fact<EtcdFacts>) -> Option<&str> {
    let etcd = etcd.value()?;
    let mut local = etcd.endpoints.iter().filter(|e| e.local).map(|e| e.member_id.as_str());
    etcd.local_status().map(|s| s.member_id.as_str()).or_else(|| local.rfind(|id| !id.is_empty()))
}

/// One report that counts.
pub(crate) struct View<'a> {
    pub(super) node: &'a str,
    pub(super) etcd: &'a EtcdFacts,
    /// When it was read, by our clock.
    pub(super) at: Timestamp,
    /// Our clock minus its, in milliseconds.
    offset_ms: i64,
    /// Nothing that it tells happened later, by our clock.
    heard: Timestamp,
    /// Member on this node; empty when it could not be told.
    pub(super) local_id: &'a str,
    /// Cluster id; empty when it could not be told.
    pub(super) cluster_id: &'a str,
    /// Its member follows a rival of the leader that most follow, so what it reads is another quorum's word.
    pub(super) is_rival: bool,
}

impl<'a> View<'a> {
    fn of(
        node: &'a str,
        etcd: &'a EtcdFacts,
        read: Timestamp,
        received: Option<Received>,
        now: Timestamp,
    ) -> Self {
        let status = etcd.local_status();
        let matched =
            etcd.endpoints.iter().filter(|e| e.local).map(|e| e.member_id.as_str()).find(|id| !id.is_empty());
        let between = |ours: Timestamp, its: Timestamp| ours.as_millis().saturating_sub(its.as_millis());
        let (heard, offset_ms) = match received {
            Some(r) => (r.at.min(now), between(r.at, r.sent_at)),
            None => (now, between(now, read).min(0)),
        };
        let mut view = Self {
            node,
            etcd,
            at: read,
            offset_ms,
            heard,
            local_id: status.map(|s| s.member_id.as_str()).or(matched).unwrap_or_default(),
            cluster_id: view::cluster_id(etcd),
            is_rival: false,
        };
        view.at = view.by_our_clock(read);
        view
    }

    pub(super) fn list(&self) -> Option<&'a MemberList> {
        view::listed(self.etcd).filter(|l| self.cluster_id.is_empty() || l.cluster_id == self.cluster_id)
    }

    /// A time that this report tells, by our clock: one clock that is ahead must not make a loss newer than every answer.
    pub(super) fn by_our_clock(&self, told: Timestamp) -> Timestamp {
        self.dated(told).min(self.heard)
    }

    /// The date of a file of that machine, by our clock; one that lies ahead stays ahead.
    pub(super) fn dated(&self, told: Timestamp) -> Timestamp {
        Timestamp::from_millis(told.as_millis().saturating_add(self.offset_ms))
    }

    /// A time of ours, by its clock: what it tells is held against that.
    pub(super) fn by_its_clock(&self, ours: Timestamp) -> Timestamp {
        Timestamp::from_millis(ours.as_millis().saturating_sub(self.offset_ms))
    }

    /// Whether the member on this node answered its own agent and saw no leader.
    pub(super) fn sees_no_leader(&self) -> bool {
        let local = self.etcd.endpoints.iter().filter(|e| e.local);
        local.filter_map(|e| e.status.value()).any(view::lacks_leader)
    }

    /// Whether the member on this node answered its own agent.
    pub(super) fn lives(&self) -> bool {
        self.etcd.local_status().is_some()
    }
}

/// A node with etcd whose report does not count.
pub(super) struct Quiet<'a> {
    pub(super) node: &'a str,
    /// Because it is not heard.
    pub(super) is_silent: bool,
    pub(super) why: Cow<'a, str>,
    /// Why its agent could not read etcd, where it reports so.
    pub(super) unread: Option<&'a UnknownCause>,
    detail: &'a str,
}

impl Quiet<'_> {
    /// Why, with what the agent says to it.
    pub(super) fn words(&self) -> String {
        if self.detail.is_empty() { self.why.to_string() } else { format!("{}: {}", self.why, self.detail) }
    }
}

/// The Kubernetes nodes by one report.
struct Nodes<'a> {
    /// Whose report.
    by: &'a str,
    names: &'a [String],
    /// Members that the same report lists, in order.
    listed: Vec<&'a str>,
}

/// What a report says of a member: the report's place in the group, and the endpoint.
pub(super) type Said<'a> = (usize, &'a EndpointFacts);

/// All reports of one cluster, sorted and sorted out.
pub(crate) struct Joined<'a> {
    /// Every node, by name, each once.
    pub(super) members: Vec<&'a Member<'a>>,
    /// Reports of the cluster that most nodes belong to, by node.
    pub(super) group: Vec<View<'a>>,
    /// Reports of nodes that belong to other clusters.
    pub(super) others: Vec<View<'a>>,
    pub(super) quiet: Vec<Quiet<'a>>,
    /// Silent nodes whose machines were deleted, each with its machine and the id of its last member, where that was told.
    retired: Vec<(&'a str, &'a str, &'a str)>,
    /// Names under which more than one machine was told, with how many.
    doubled: Vec<(&'a str, usize)>,
    /// The member list that counts, each member once; `None` when no report has one.
    pub(super) list: Option<Cow<'a, MemberList>>,
    /// Member ids that the list names more than once, in words.
    pub(super) repeated: Vec<String>,
    /// What is said of each member, by its id: looked up, for lists and reports may be many.
    said: BTreeMap<&'a str, Vec<Said<'a>>>,
    /// What only a published URL tells of a member: that of endpoints without an id, and of those at which another member
    /// answers.
    unnamed: Vec<Said<'a>>,
    /// Names of Kubernetes nodes with which members can be matched, the newest first; of equal ones the newest.
    nodes: Vec<Nodes<'a>>,
    /// When the newest report was read.
    pub(super) at: Timestamp,
    pub(super) now: Timestamp,
}

impl<'a> Joined<'a> {
    pub(super) fn of(members: &'a [Member<'a>], now: Timestamp) -> Self {
        let (sorted, doubled) = each_once(members);
        let (mut views, mut quiet) = (Vec::with_capacity(sorted.len()), Vec::new());
        let mut retired = Vec::new();
        for m in &sorted {
            let is_silent = m.ready != Status::True;
            if let Some(machine) = m.retired_as() {
                retired.push((m.name, machine, m.etcd.and_then(last_member).unwrap_or_default()));
                continue;
            }
            let mut not_counted = |why: Cow<'a, str>| {
                quiet.push(Quiet { node: m.name, is_silent, why, unread: None, detail: "" })
            };
            match m.etcd {
                None | Some(Fact::NotApplicable { .. } | Fact::Absent { .. }) => {}
                Some(_) if is_silent => not_counted("silent".into()),
                Some(Fact::Known { value, at, .. }) => {
                    let view = View::of(m.name, value, *at, m.received, now);
                    if now.since(view.at) <= STALE_AFTER {
                        views.push(view);
                    } else {
                        not_counted("stale".into());
                    }
                }
                Some(Fact::Unknown { cause, detail, .. }) => {
                    let (why, unread) = (Cow::Borrowed(cause.as_str()), Some(cause));
                    quiet.push(Quiet { node: m.name, is_silent, why, unread, detail });
                }
            }
        }
        let at = views.iter().map(|v| v.at).max().unwrap_or(now);
        let (mut group, others) = by_cluster(views);
        mark_rivals(&mut group);
        let (list, repeated) = match newest_list(&group) {
            Some(list) => {
                let (list, repeated) = view::distinct(list);
                (Some(list), repeated)
            }
            None => (None, Vec::new()),
        };
        let sole = list.as_deref().map(view::sole_of_their_nodes).unwrap_or_default();
        let (mut said, mut unnamed) = (BTreeMap::new(), Vec::new());
        for (place, e) in
            group.iter().enumerate().flat_map(|(i, v)| v.etcd.endpoints.iter().map(move |e| (i, e)))
        {
            match view::member_of(e) {
                Some(id) => {
                    if e.status.value().is_some() && !sole.contains(id) {
                        unnamed.push((place, e));
                    }
                    said.entry(id).or_insert_with(|| Vec::with_capacity(group.len())).push((place, e))
                }
                None => unnamed.push((place, e)),
            }
        }
        let nodes = lists_of_nodes(&group);
        Self {
            members: sorted,
            group,
            others,
            quiet,
            retired,
            doubled,
            list,
            repeated,
            said,
            unnamed,
            nodes,
            at,
            now,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.group.is_empty() && self.others.is_empty() && self.quiet.is_empty()
    }

    /// The node of this name.
    pub(super) fn node(&self, name: &str) -> Option<&'a Member<'a>> {
        self.members.binary_search_by(|m| m.name.cmp(name)).ok().map(|i| self.members[i])
    }

    /// The deleted machine of the silent node that `member` was of: by what the node last told, else by the member's name.
    pub(super) fn retired_of(&self, member: &EtcdMember) -> Option<&'a str> {
        let told = |id: &str| !id.is_empty();
        let by_id = self.retired.iter().find(|(_, _, id)| told(id) && *id == member.id);
        let by_name =
            || self.retired.iter().find(|(node, _, id)| !told(id) && is_of_node(&member.name, node));
        by_id.or_else(by_name).map(|(_, machine, _)| *machine)
    }

    /// The report of the node of this name.
    pub(super) fn view_of(&self, node: &str) -> Option<&View<'a>> {
        self.group.binary_search_by(|v| v.node.cmp(node)).ok().map(|i| &self.group[i])
    }

    /// The report of the node that runs this member.
    pub(super) fn own_view(&self, id: &str) -> Option<&View<'a>> {
        let said = self.said.get(id)?;
        said.iter().map(|(place, _)| &self.group[*place]).find(|v| v.local_id == id)
    }

    /// Everything that is said of `member`, the words of one report together.
    pub(super) fn said_of(&self, member: &EtcdMember) -> Cow<'_, [Said<'a>]> {
        let by_id = self.said.get(member.id.as_str()).map_or(&[][..], Vec::as_slice);
        let list = self.list.as_deref();
        let by_url = |e: &EndpointFacts| {
            view::member_of(e) != Some(member.id.as_str()) && view::tells_of(e, member, list)
        };
        let by_url: Vec<Said<'a>> = self.unnamed.iter().filter(|(_, e)| by_url(e)).copied().collect();
        if by_url.is_empty() {
            return Cow::Borrowed(by_id);
        }
        let mut all = [by_id, &by_url].concat();
        all.sort_by_key(|(place, _)| *place);
        Cow::Owned(all)
    }

    /// Whether Kubernetes has the member's node: by the reports that know the nodes and list the member, which have to agree.
    /// A node that is heard stands by its last list, whose age therefore tells nothing.
    pub(super) fn kubernetes_node(&self, member: &EtcdMember) -> Status {
        match self.with_and_without(member) {
            (Some(_), None) => Status::True,
            (None, Some(_)) => Status::False,
            _ => Status::Unknown,
        }
    }

    /// Whose list of Kubernetes nodes has the member's node, and whose lacks it. A member without a name has never started, so
    /// no node can be told by it.
    pub(super) fn with_and_without(&self, member: &EtcdMember) -> (Option<&'a str>, Option<&'a str>) {
        let (mut with, mut without) = (None, None);
        let know = self.nodes.iter().filter(|n| n.listed.binary_search(&member.id.as_str()).is_ok());
        for nodes in know.filter(|_| !member.name.is_empty()) {
            let side = if has_node(&member.name, nodes.names) { &mut with } else { &mut without };
            side.get_or_insert(nodes.by);
        }
        (with, without)
    }

    /// Names of nodes that are known, to us or to Kubernetes.
    pub(super) fn node_names(&self) -> impl Iterator<Item = &'a str> + Clone {
        let told = self.nodes.first().map_or(&[][..], |nodes| nodes.names);
        self.members.iter().map(|m| m.name).chain(told.iter().map(String::as_str))
    }

    pub(super) fn tally<'s>(&'s self, list: &'s MemberList) -> Tally<'s> {
        let mut tally = join::tally(self, list);
        tally.seen_from = self.seen_from();
        tally.snapshot = snapshots::known_words(self);
        tally.elsewhere = self.others.iter().map(|v| (v.cluster_id, v.node)).collect();
        tally
    }

    fn seen_from(&self) -> String {
        let mut out = format!("; by the reports of {}", names(self.group.iter().map(|v| v.node), NAMED));
        if !self.quiet.is_empty() {
            out.push_str("; no report counts of ");
            out.push_str(&names(self.quiet.iter().map(|q| format!("{} ({})", q.node, q.why)), NAMED));
        }
        if !self.others.is_empty() {
            out.push_str("; of another cluster, so not counted: ");
            out.push_str(&names(self.others.iter().map(|v| v.node), NAMED));
        }
        if !self.doubled.is_empty() {
            let all = self.doubled.iter().map(|(node, machines)| format!("{machines} as {node}"));
            out.push_str(&format!(
                "; several machines report under one name ({}), of which one report each counts",
                names(all, NAMED)
            ));
        }
        out
    }
}

/// By name; of two of one name (the same file given twice) the one that is heard, then the one that was read last. And the
/// names of several machines, by their members of etcd: nobody's word is dropped without a word.
fn each_once<'a>(members: &'a [Member<'a>]) -> (Vec<&'a Member<'a>>, Vec<(&'a str, usize)>) {
    let mut sorted: Vec<&Member<'a>> = members.iter().collect();
    let read = |m: &Member<'_>| m.etcd.map(Fact::at);
    sorted.sort_by(|a, b| {
        let better = |m: &Member<'_>| (m.ready == Status::True, read(m));
        a.name.cmp(b.name).then_with(|| better(b).cmp(&better(a)))
    });
    let machines = |same: &[&Member<'a>]| {
        let mut own: Vec<&str> = same.iter().filter_map(|m| own_endpoint(m)).collect();
        own.sort_unstable();
        own.dedup();
        own.len()
    };
    let of_one_name = sorted.chunk_by(|a, b| a.name == b.name).filter(|same| same.len() > 1);
    let doubled =
        of_one_name.map(|same| (same[0].name, machines(same))).filter(|(_, machines)| *machines > 1);
    let doubled = doubled.collect();
    sorted.dedup_by_key(|m| m.name);
    (sorted, doubled)
}

/// The member of etcd on this machine: by its id, else by where it is asked.
fn own_endpoint<'a>(m: &Member<'a>) -> Option<&'a str> {
    let mut local = m.etcd?.value()?.endpoints.iter().filter(|e| e.local);
    local.find_map(|e| view::member_of(e).or(Some(e.endpoint.as_str())))
}

/// Where members under one id follow different leaders, the word of those that most do not follow is another quorum's.
fn mark_rivals(group: &mut [View<'_>]) {
    let own = group.iter().filter_map(|v| v.etcd.local_status());
    let rivals: Vec<&str> = rivals::camps(own, "").iter().skip(1).map(|camp| camp.leader).collect();
    for v in group.iter_mut().filter(|_| !rivals.is_empty()) {
        v.is_rival =
            v.etcd.local_status().is_some_and(|s| !s.is_learner && rivals.contains(&s.leader.as_str()));
    }
}

/// The reports of this quorum: what a rival's node reads or lists is another's.
pub(super) fn counted<'v, 'a>(group: &'v [View<'a>]) -> impl Iterator<Item = &'v View<'a>> {
    group.iter().filter(|v| !v.is_rival)
}

/// The newest list that a quorum vouched for, else the newest of any.
fn newest_list<'a>(group: &[View<'a>]) -> Option<&'a MemberList> {
    let lists = counted(group).filter_map(|v| v.list().map(|l| (l.linearizable, v.at, l)));
    lists
        .filter(|(_, _, l)| !l.members.is_empty())
        .max_by_key(|(vouched, at, _)| (*vouched, *at))
        .map(|(_, _, l)| l)
}

fn lists_of_nodes<'a>(group: &[View<'a>]) -> Vec<Nodes<'a>> {
    let mut views: Vec<&View<'a>> = group.iter().collect();
    views.sort_by_key(|v| std::cmp::Reverse(v.at));
    let mut out: Vec<Nodes<'a>> = Vec::new();
    for v in views {
        let Some((names, list)) = kubernetes_nodes(v.etcd).zip(v.list()) else { continue };
        let mut listed: Vec<&str> = list.members.iter().map(|m| m.id.as_str()).collect();
        listed.sort_unstable();
        listed.dedup();
        if !out.iter().any(|known| known.names == names && known.listed == listed) {
            out.push(Nodes { by: v.node, names, listed });
        }
    }
    out
}

/// The reports of the cluster that most nodes belong to, and those of others. A report without an id goes with the
/// majority; of groups of one size the one with the longest list, for who was begun anew alone has the shorter one, then
/// the one whose id sorts first, so that the answer does not change from turn to turn.
fn by_cluster(views: Vec<View<'_>>) -> (Vec<View<'_>>, Vec<View<'_>>) {
    let mut ids: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for v in views.iter().filter(|v| !v.cluster_id.is_empty()) {
        let (reports, listed) = ids.entry(v.cluster_id).or_default();
        *reports += 1;
        *listed = (*listed).max(v.list().map_or(0, |l| l.members.len()));
    }
    let main = ids.iter().max_by(|a, b| a.1.cmp(b.1).then(b.0.cmp(a.0))).map_or("", |(id, _)| *id);
    views.into_iter().partition(|v| v.cluster_id.is_empty() || v.cluster_id == main)
}
