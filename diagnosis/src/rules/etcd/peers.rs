//! Recorded peer URLs against those that a member means to have, and the kind of difference (D11, D12, D13).
//!
//! etcd refuses to start when the two differ ("not a member of the etcd cluster; found X expect Y"), so a difference
//! under a running member is an outage at its next start. etcd resolves names before it compares
//! (etcd-io/etcd:pkg/netutil); here nobody resolves, so a name against an address is no difference that can be told.

use core::net::IpAddr;
use std::collections::BTreeMap;

use outrider_protocol::{
    ConditionType, EtcdFacts, Fact, Member, MemberList, ReasonCode as R, Severity, Status, Timestamp,
};

use super::quorum::Tally;
use super::removal;
use super::urls::{is_loopback, split};
use super::view::{answers_itself, display_name, endpoints_of, with_id};
use crate::finding::Finding;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::EtcdMembership;
const NAMED: usize = 3;
/// Peers listen here unless they are told otherwise.
const PORT: u16 = 2380;
/// The same as it stands in a URL.
const DEFAULT_PORT: &str = "2380";

/// How two URLs differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Brackets,
    Scheme,
    Family,
    Address,
    Port,
    Number,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Brackets => "an IPv6 address without brackets",
            Kind::Scheme => "scheme",
            Kind::Family => "address family",
            Kind::Address => "address",
            Kind::Port => "port",
            Kind::Number => "how many there are",
        }
    }
}

/// The parts of a URL that etcd compares.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Peer<'a> {
    scheme: &'a str,
    host: Host<'a>,
    port: &'a str,
    /// An IPv6 address stands in it without brackets.
    bare: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Host<'a> {
    Address(IpAddr),
    Name(&'a str),
}

impl Peer<'_> {
    /// Whether the two are the same without anybody resolving a name.
    fn is_surely(&self, other: &Peer<'_>) -> bool {
        match (&self.host, &other.host) {
            (Host::Address(a), Host::Address(b)) => a == b,
            (Host::Name(a), Host::Name(b)) => a.eq_ignore_ascii_case(b),
            _ => false,
        }
    }
}

fn parse(url: &str) -> Peer<'_> {
    let (scheme, rest) = url.trim().split_once("://").unwrap_or(("", url.trim()));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let bracketed = authority.strip_prefix('[').is_some_and(|rest| rest.contains(']'));
    let (host, port) = split(authority, PORT);
    let port = port.filter(|port| !bracketed || !port.is_empty());
    let bare = !bracketed && authority.matches(':').count() > 1;
    Peer { scheme, host: host_of(host), port: port.unwrap_or(DEFAULT_PORT), bare }
}

fn host_of(host: &str) -> Host<'_> {
    // The zone of a link-local address names an interface of one machine.
    match host.split('%').next().unwrap_or(host).parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) => Host::Address(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)),
        Ok(address) => Host::Address(address),
        Err(_) => Host::Name(host),
    }
}

/// The kinds of difference, empty when etcd would take the two for one.
fn differences(recorded: &Peer<'_>, expected: &Peer<'_>) -> Vec<Kind> {
    let mut kinds = Vec::new();
    if recorded.bare || expected.bare {
        kinds.push(Kind::Brackets);
    }
    if !recorded.scheme.eq_ignore_ascii_case(expected.scheme) {
        kinds.push(Kind::Scheme);
    }
    match (&recorded.host, &expected.host) {
        (Host::Address(a), Host::Address(b)) if a.is_ipv4() != b.is_ipv4() => kinds.push(Kind::Family),
        (Host::Address(a), Host::Address(b)) if a != b => kinds.push(Kind::Address),
        (Host::Name(a), Host::Name(b)) if !a.eq_ignore_ascii_case(b) => kinds.push(Kind::Address),
        // Of a name and an address only a resolver can say whether they are one.
        _ => {}
    }
    if recorded.port != expected.port {
        kinds.push(Kind::Port);
    }
    kinds
}

/// What is wrong with the list by itself; `lives` says whether a member answers.
pub(crate) fn listed(list: &MemberList, lives: impl Fn(&Member) -> bool, at: Timestamp) -> Vec<Finding> {
    duplicates(list, lives, at).into_iter().chain(bare(list, at)).collect()
}

/// What came of holding the recorded URLs of the local member against the expected ones.
pub(crate) enum Compared {
    /// There was nothing to compare.
    Not,
    /// They are the same.
    Same,
    /// A name stands against an address, in words: etcd resolves names, here nobody does.
    Untold(String),
    /// They differ.
    Different(Box<Finding>),
}

/// The member on this node: by what its endpoint told, else by the name its configuration gives.
fn local_member<'a>(etcd: &EtcdFacts, list: &'a MemberList) -> Option<&'a Member> {
    let told = etcd.endpoints.iter().filter(|e| e.local).find_map(|e| match e.status.value() {
        Some(status) if !status.member_id.is_empty() => Some(status.member_id.as_str()),
        _ => Some(e.member_id.as_str()).filter(|id| !id.is_empty()),
    });
    let by_id = told.and_then(|id| list.members.iter().find(|m| m.id == id));
    by_id.or_else(|| {
        let name = etcd.expected.as_ref()?.value().map(|e| e.name.as_str()).filter(|n| !n.is_empty())?;
        list.members.iter().find(|m| m.name == name)
    })
}

/// The local member's recorded URLs against those of its configuration.
pub(crate) fn local(etcd: &EtcdFacts, list: &MemberList, tally: &Tally<'_>, at: Timestamp) -> Compared {
    let expected = etcd.expected.as_ref().and_then(Fact::value).filter(|e| !e.peer_urls.is_empty());
    let (Some(expected), Some(member)) = (expected, local_member(etcd, list)) else { return Compared::Not };
    let running = endpoints_of(etcd, member).any(|e| e.local && answers_itself(e, member));
    let whose = format!("its configuration expects {}", names(&expected.peer_urls, NAMED));
    let ranchers = etcd.distribution.is_ranchers();
    compare(member, &expected.peer_urls, &whose, (running, ranchers), (tally, at))
}

/// The URLs of the member of an RKE2 or K3s node against the one that its addresses, the first family first, give it: the
/// first of them, over TLS, at the port of peers (k3s-io/k3s:pkg/etcd/etcd.go). An address of any of them will do, for
/// what Kubernetes calls the first one need not be what etcd takes.
pub(crate) fn by_node(
    member: &Member,
    node: &str,
    addresses: &[String],
    running: bool,
    (tally, at): (&Tally<'_>, Timestamp),
) -> Option<Finding> {
    let addresses: Vec<IpAddr> = addresses.iter().filter_map(|a| a.parse().ok()).collect();
    let recorded: Vec<Peer<'_>> = member.peer_urls.iter().map(|u| parse(u)).collect();
    let recorded_at = |a: &&IpAddr| recorded.iter().any(|p| p.host == Host::Address(**a));
    let address = addresses.iter().find(recorded_at).or(addresses.first())?;
    let expected = match address {
        IpAddr::V4(v4) => format!("https://{v4}:{DEFAULT_PORT}"),
        IpAddr::V6(v6) => format!("https://[{v6}]:{DEFAULT_PORT}"),
    };
    let whose = format!("the address of node {node} gives {expected}");
    match compare(member, std::slice::from_ref(&expected), &whose, (running, true), (tally, at)) {
        Compared::Different(finding) => Some(*finding),
        _ => None,
    }
}

fn compare(
    member: &Member,
    expected: &[String],
    whose: &str,
    (running, ranchers): (bool, bool),
    (tally, at): (&Tally<'_>, Timestamp),
) -> Compared {
    // Of an empty one the rule of URLs that nobody can use tells.
    let is_blank = |url: &String| url.trim().is_empty();
    if member.peer_urls.is_empty() || member.peer_urls.iter().chain(expected).any(is_blank) {
        return Compared::Not;
    }
    let recorded: Vec<Peer<'_>> = member.peer_urls.iter().map(|u| parse(u)).collect();
    let wanted: Vec<Peer<'_>> = expected.iter().map(|u| parse(u)).collect();
    let unmatched = |of: &[Peer<'_>], among: &[Peer<'_>]| -> Vec<usize> {
        (0..of.len()).filter(|i| among.iter().all(|p| !differences(&of[*i], p).is_empty())).collect()
    };
    let (left, right) = (unmatched(&recorded, &wanted), unmatched(&wanted, &recorded));
    let mut kinds = match (left.first(), right.first()) {
        (Some(&i), Some(&j)) => differences(&recorded[i], &wanted[j]),
        // One more or one less than recorded is a difference to etcd as well.
        (Some(_), None) | (None, Some(_)) => Vec::new(),
        (None, None) => {
            // No difference was seen; a name against an address shows none.
            let untold = recorded.iter().enumerate().find(|(_, r)| wanted.iter().all(|w| !r.is_surely(w)));
            return untold.map_or(Compared::Same, |(i, _)| {
                let against = names(expected, NAMED);
                Compared::Untold(format!(
                    "{} against {against}, a name against an address",
                    member.peer_urls[i]
                ))
            });
        }
    };
    if left.len() != right.len() {
        kinds.push(Kind::Number);
    }
    kinds.sort_unstable();
    let name = display_name(member);
    let words = names(kinds.iter().map(|k| k.word()), 6);
    let effect = if running {
        "it runs now and will not come back from its next start"
    } else {
        "etcd refuses to start with it (\"not a member of the etcd cluster\")"
    };
    let found = names(&member.peer_urls, NAMED);
    let message = format!(
        "Member {name} is recorded with peer URL {found} and {whose}; what differs: {words}; {effect}."
    );
    let severity = if running { Severity::Warn } else { Severity::Error };
    let advice = format!(
        "{} {} Outrider does not update members.",
        steps(&kinds, member, (&left, &right), expected, ranchers),
        removal::rejoin(tally, member, running, at)
    );
    let finding = Finding::new(TYPE, Status::False, severity, R::EtcdPeerUrlMismatch, at, message);
    Compared::Different(Box::new(finding.advice(advice)))
}

/// How the recorded URLs of a member stand to the address of a node, for a sentence: of a ghost of that node.
pub(crate) fn against_node(member: &Member, addresses: &[String]) -> Option<String> {
    let url = member.peer_urls.first()?;
    let recorded = parse(url);
    let Host::Address(host) = recorded.host else { return None };
    let addresses: Vec<IpAddr> = addresses.iter().filter_map(|a| a.parse().ok()).collect();
    let first = addresses.first()?;
    Some(if addresses.contains(&host) {
        format!("recorded at {url}, the node's own address (duplicate)")
    } else if addresses.iter().any(|a| a.is_ipv4() == host.is_ipv4()) {
        format!("recorded at {url}, another address than the node's {first}")
    } else {
        format!("recorded at {url}, of another address family than the node's {first}")
    })
}

/// A step for each kind of difference: what is recorded stays, except where it is what nobody can use.
fn steps(
    kinds: &[Kind],
    member: &Member,
    (left, right): (&[usize], &[usize]),
    expected: &[String],
    ranchers: bool,
) -> String {
    let name = display_name(member);
    let first = |places: &[usize]| places.first().copied().unwrap_or_default();
    let (recorded, wanted) = (member.peer_urls[first(left)].as_str(), expected[first(right)].as_str());
    let setting = if ranchers { "node-ip" } else { "--initial-advertise-peer-urls" };
    let step = |kind: &Kind| match kind {
        Kind::Brackets => format!(
            "Write the IPv6 address in brackets, as in https://[fd00::1]:2380; {} has none.",
            if parse(wanted).bare { wanted } else { recorded }
        ),
        // Of the two schemes the one with TLS is right: that is how the others talk, and RKE2 and K3s know no other.
        Kind::Scheme if parse(recorded).scheme.eq_ignore_ascii_case("http") => format!(
            "{recorded} is recorded in plain HTTP: a person changes the record to https while quorum holds (etcdctl member update \
             {}), before {name} is started again.",
            member.id
        ),
        Kind::Scheme => format!("Let {name}'s configuration use the scheme of {recorded} again."),
        Kind::Family if ranchers => format!(
            "etcd is never dual-stack: the first address of node-ip decides. Put the address of {recorded} first in node-ip; an \
             upgrade may have turned the order."
        ),
        Kind::Family | Kind::Address => format!(
            "Give the machine the address of {recorded} again, or name that address first in {setting}."
        ),
        Kind::Port => format!("Let {name} listen for peers at the port of {recorded} again."),
        Kind::Number if right.is_empty() => format!(
            "{} of {name} {} recorded and not expected. etcd compares them all: {}",
            names(left.iter().map(|i| &member.peer_urls[*i]), NAMED),
            if left.len() == 1 { "is" } else { "are" },
            match ranchers {
                true =>
                    "RKE2 and K3s give a member one peer URL, so a person changes the record to that one while quorum holds \
                         (etcdctl member update).",
                false => "name all that are recorded in --initial-advertise-peer-urls again.",
            }
        ),
        Kind::Number => format!(
            "Not all that {name}'s configuration expects is recorded. etcd compares them all: let it name {} and no other.",
            names(&member.peer_urls, NAMED)
        ),
    };
    kinds.iter().map(step).collect::<Vec<_>>().join(" ")
}

/// URLs that two members record: one of them is the same machine built a second time.
fn duplicates(list: &MemberList, lives: impl Fn(&Member) -> bool, at: Timestamp) -> Option<Finding> {
    let mut by_place: BTreeMap<(Host<'_>, &str), Vec<(usize, &str)>> = BTreeMap::new();
    for (i, m) in list.members.iter().enumerate() {
        for url in m.peer_urls.iter().filter(|url| !url.trim().is_empty()) {
            let peer = parse(url);
            let at_place = by_place.entry((peer.host, peer.port)).or_default();
            if at_place.iter().all(|(member, _)| *member != i) {
                at_place.push((i, url));
            }
        }
    }
    // By the places of the members in the list, so that the words do not change from turn to turn.
    let twice: BTreeMap<Vec<usize>, &str> = by_place
        .into_values()
        // Loopback is every machine's own.
        .filter(|who| who.len() > 1 && !is_loopback(who[0].1))
        .map(|who| (who.iter().map(|(i, _)| *i).collect(), who[0].1))
        .collect();
    if twice.is_empty() {
        return None;
    }
    let with_id = |i: &usize| with_id(&list.members[*i]);
    let pairs: Vec<String> = twice
        .iter()
        .map(|(who, url)| format!("{url} of {}", join_and(who.iter().take(NAMED).map(with_id))))
        .collect();
    let message = format!("Members share a peer URL (duplicate): {}.", names(&pairs, NAMED));
    // Only where one answers and the others do not is it told which one is the machine that runs.
    let told: Vec<(String, String)> = twice
        .keys()
        .filter_map(|who| {
            let (living, dead): (Vec<&usize>, Vec<&usize>) =
                who.iter().partition(|i| lives(&list.members[**i]));
            let [living] = living.as_slice() else { return None };
            Some((with_id(living), join_and(dead.into_iter().take(NAMED).map(with_id))))
        })
        .take(NAMED)
        .collect();
    let sure = "etcdctl endpoint status shows the id";
    let which = if told.is_empty() {
        format!(
            "A person finds out which of the members is the living one ({sure}) and removes the one that is not"
        )
    } else {
        let seen = told.iter().map(|(living, dead)| format!("{living} answers, {dead} does not."));
        let gone = told.iter().map(|(living, dead)| format!("{dead} (and not {living})"));
        format!(
            "{} A person makes sure of it ({sure}) and removes {}",
            seen.collect::<Vec<_>>().join(" "),
            join_and(gone)
        )
    };
    Some(Finding::new(TYPE, Status::False, Severity::Error, R::EtcdPeerUrlMismatch, at, message).advice(format!(
        "One machine stands twice in the list, as it does when it was built anew under its old address. {which}, while quorum \
         holds. Outrider does not remove members."
    )))
}

/// "a and b", "a, b and c".
fn join_and(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    match all.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// IPv6 without brackets in the list itself.
fn bare(list: &MemberList, at: Timestamp) -> Option<Finding> {
    let bad: Vec<(&str, &str)> = list
        .members
        .iter()
        .flat_map(|m| m.peer_urls.iter().filter(|u| parse(u).bare).map(|u| (u.as_str(), display_name(m))))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let message = format!(
        "Peer URLs hold an IPv6 address without brackets, so nobody can tell its port: {}.",
        names(bad.iter().map(|(url, name)| format!("{url} of {name}")), NAMED)
    );
    Some(Finding::new(TYPE, Status::False, Severity::Error, R::EtcdPeerUrlMismatch, at, message).advice(format!(
        "Write the address in brackets, as in https://[fd00::1]:2380, in the configuration of {}; see the member list \
         afterwards. Outrider does not update members.",
        names(bad.iter().map(|(_, name)| name), NAMED)
    )))
}
