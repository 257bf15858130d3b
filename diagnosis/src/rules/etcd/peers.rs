//! Recorded peer URLs against those that a member means to have, and the kind of difference (D11, D12, D13).
//!
//! etcd refuses to start when the two differ ("not a member of the etcd cluster; found X expect Y"), so a difference
//! under a running member is an outage at its next start. etcd resolves names before it compares
//! (etcd-io/etcd:pkg/netutil); here nobody resolves, so a name against an address is no difference that can be told.

use core::net::{IpAddr, Ipv6Addr};

use outrider_protocol::{
    ConditionType, EtcdFacts, Fact, Member, MemberList, ReasonCode as R, Severity, Status, Timestamp,
};

use super::view::{display_name, endpoints_of};
use crate::finding::Finding;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::EtcdMembership;
const NAMED: usize = 3;
/// Peers listen here unless they are told otherwise.
const DEFAULT_PORT: &str = "2380";

/// How two URLs differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Brackets,
    Scheme,
    Family,
    Address,
    Port,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Brackets => "an IPv6 address without brackets",
            Kind::Scheme => "scheme",
            Kind::Family => "address family",
            Kind::Address => "address",
            Kind::Port => "port",
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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host<'a> {
    Address(IpAddr),
    Name(&'a str),
}

fn parse(url: &str) -> Peer<'_> {
    let (scheme, rest) = url.trim().split_once("://").unwrap_or(("", url.trim()));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if let Some((host, after)) = authority.strip_prefix('[').and_then(|a| a.split_once(']')) {
        let port = after.strip_prefix(':').filter(|p| !p.is_empty()).unwrap_or(DEFAULT_PORT);
        return Peer { scheme, host: host_of(host), port, bare: false };
    }
    if authority.matches(':').count() > 1 {
        // "fd00::1:2380" may be read with and without a port; a port of peers at its end is one.
        let split = authority.rsplit_once(':').filter(|(host, port)| {
            host.parse::<Ipv6Addr>().is_ok()
                && (*port == DEFAULT_PORT || authority.parse::<Ipv6Addr>().is_err())
        });
        let (host, port) = split.unwrap_or((authority, DEFAULT_PORT));
        return Peer { scheme, host: host_of(host), port, bare: true };
    }
    let (host, port) = authority.split_once(':').unwrap_or((authority, DEFAULT_PORT));
    Peer { scheme, host: host_of(host), port, bare: false }
}

fn host_of(host: &str) -> Host<'_> {
    match host.parse::<IpAddr>() {
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

/// Everything that is wrong with peer URLs, as this node's list records and its configuration expects them.
pub(super) fn judge(etcd: &EtcdFacts, list: &MemberList, at: Timestamp) -> Vec<Finding> {
    let mut found = listed(list, at);
    found.extend(local(etcd, list, at));
    found
}

/// What is wrong with the list by itself.
pub(crate) fn listed(list: &MemberList, at: Timestamp) -> Vec<Finding> {
    duplicates(list, at).into_iter().chain(bare(list, at)).collect()
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
pub(crate) fn local(etcd: &EtcdFacts, list: &MemberList, at: Timestamp) -> Option<Finding> {
    let expected = etcd.expected.as_ref()?.value().filter(|e| !e.peer_urls.is_empty())?;
    let member = local_member(etcd, list)?;
    if member.peer_urls.is_empty() {
        return None;
    }
    let recorded: Vec<Peer<'_>> = member.peer_urls.iter().map(|u| parse(u)).collect();
    let wanted: Vec<Peer<'_>> = expected.peer_urls.iter().map(|u| parse(u)).collect();
    let unmatched = |of: &[Peer<'_>], among: &[Peer<'_>]| -> Vec<usize> {
        (0..of.len()).filter(|i| among.iter().all(|p| !differences(&of[*i], p).is_empty())).collect()
    };
    let (left, right) = (unmatched(&recorded, &wanted), unmatched(&wanted, &recorded));
    let (&i, &j) = match (left.first(), right.first()) {
        (Some(i), Some(j)) => (i, j),
        // One more or one less than recorded is a difference to etcd as well.
        (Some(i), None) => (i, &0),
        (None, Some(j)) => (&0, j),
        (None, None) => return None,
    };
    let mut kinds = differences(&recorded[i], &wanted[j]);
    kinds.sort_unstable();
    let running = endpoints_of(etcd, member).any(|e| e.local && e.status.value().is_some());
    let name = display_name(member);
    let words = match kinds.as_slice() {
        [] => "how many there are".to_owned(),
        kinds => names(kinds.iter().map(|k| k.word()), 5),
    };
    let effect = if running {
        "it runs now and will not come back from its next start"
    } else {
        "etcd refuses to start with it (\"not a member of the etcd cluster\")"
    };
    let (found, expect) = (names(&member.peer_urls, NAMED), names(&expected.peer_urls, NAMED));
    let message = format!(
        "Member {name} is recorded with peer URL {found} and its configuration expects {expect}; what differs: {words}; \
         {effect}."
    );
    let severity = if running { Severity::Warn } else { Severity::Error };
    let advice = advice(&kinds, &member.peer_urls[i], &expected.peer_urls[j], name);
    Some(Finding::new(TYPE, Status::False, severity, R::EtcdPeerUrlMismatch, at, message).advice(advice))
}

fn advice(kinds: &[Kind], recorded: &str, expected: &str, name: &str) -> String {
    let first = kinds.first().copied().unwrap_or(Kind::Address);
    let step = match first {
        Kind::Brackets => format!(
            "Write the IPv6 address in brackets, as in https://[fd00::1]:2380; {} has none.",
            if parse(expected).bare { expected } else { recorded }
        ),
        Kind::Scheme => format!("Let {name}'s configuration use the scheme of {recorded} again."),
        Kind::Family => format!(
            "etcd is never dual-stack: the first address of node-ip decides. Put the address of {recorded} first in node-ip; \
             an upgrade may have turned the order."
        ),
        Kind::Address => format!(
            "Give the machine the address of {recorded} again, or name that address first in node-ip."
        ),
        Kind::Port => format!("Let {name} listen for peers at the port of {recorded} again."),
    };
    format!(
        "{step} If that cannot be, a person removes member {name} while quorum holds, empties its data folder and lets it \
         join again. Outrider does not update members."
    )
}

/// URLs that two members record: one of them is the same machine built a second time.
fn duplicates(list: &MemberList, at: Timestamp) -> Option<Finding> {
    let mut twice = Vec::new();
    for (i, a) in list.members.iter().enumerate() {
        for b in &list.members[i + 1..] {
            for url in &a.peer_urls {
                let peer = parse(url);
                let same = |other: Peer<'_>| other.host == peer.host && other.port == peer.port;
                if b.peer_urls.iter().any(|u| same(parse(u))) {
                    twice.push(format!("{url} of {} and {}", display_name(a), display_name(b)));
                }
            }
        }
    }
    if twice.is_empty() {
        return None;
    }
    let message = format!("Members share a peer URL (duplicate): {}.", names(&twice, NAMED));
    Some(Finding::new(TYPE, Status::False, Severity::Error, R::EtcdPeerUrlMismatch, at, message).advice(format!(
        "One machine stands twice in the list, as it does when it was built anew under its old address. A person finds out \
         which of the two members of {} is the living one (etcdctl endpoint status shows its id) and removes the other \
         while quorum holds.",
        names(&twice, NAMED)
    )))
}

/// IPv6 without brackets in the list itself.
fn bare(list: &MemberList, at: Timestamp) -> Option<Finding> {
    let bad: Vec<String> = list
        .members
        .iter()
        .flat_map(|m| {
            m.peer_urls.iter().filter(|u| parse(u).bare).map(|u| format!("{u} of {}", display_name(m)))
        })
        .collect();
    if bad.is_empty() {
        return None;
    }
    let message = format!(
        "Peer URLs hold an IPv6 address without brackets, so nobody can tell its port: {}.",
        names(&bad, NAMED)
    );
    Some(Finding::new(TYPE, Status::False, Severity::Error, R::EtcdPeerUrlMismatch, at, message).advice(format!(
        "Write the address in brackets, as in https://[fd00::1]:2380, in the configuration of {}; see the member list \
         afterwards. Outrider does not update members.",
        names(&bad, NAMED)
    )))
}

/// Whether the sensor looked for what the local member should be.
pub(crate) fn is_compared(etcd: &EtcdFacts) -> bool {
    matches!(&etcd.expected, Some(Fact::Known { value, .. }) if !value.peer_urls.is_empty())
}
