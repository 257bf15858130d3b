//! URLs in the member list that nobody can use: what each lacks, and what stands there instead.
//!
//! etcd takes `http` and `https` with host and port, and sockets of its own machine (etcd-io/etcd:client/pkg/types/urls.go);
//! what a member publishes for clients it does not check against anything (D11, D13).

use core::net::{IpAddr, Ipv6Addr};
use std::collections::{BTreeMap, BTreeSet};

use outrider_protocol::{ConditionType, Member, MemberList, ReasonCode as R, Severity, Status, Timestamp};

use super::rebuilt::stem;
use super::view::{display_name, with_id};
use crate::finding::Finding;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::EtcdMembership;
const NAMED: usize = 5;

/// Whom a URL is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Peers,
    Clients,
}

impl Use {
    fn word(self) -> &'static str {
        match self {
            Self::Peers => "peer",
            Self::Clients => "client",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Peers => 2380,
            Self::Clients => 2379,
        }
    }

    fn of(self, member: &Member) -> &[String] {
        match self {
            Self::Peers => &member.peer_urls,
            Self::Clients => &member.client_urls,
        }
    }
}

/// Why a URL is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Flaw<'a> {
    Empty,
    Blank,
    NoScheme,
    Scheme(&'a str),
    Socket,
    NoHost,
    Wildcard,
    Loopback,
    /// Plain HTTP among members that use TLS.
    Mixed,
    Host(&'a str),
    Bare,
    NoPort,
    Port(&'a str),
    Path(&'a str),
}

impl Flaw<'_> {
    fn words(&self) -> String {
        match self {
            Self::Empty => "empty".to_owned(),
            Self::Blank => "a blank in it".to_owned(),
            Self::NoScheme => "no scheme".to_owned(),
            Self::Scheme(scheme) => format!("scheme {scheme}, which etcd does not speak"),
            Self::Socket => "a socket, which no other machine reaches".to_owned(),
            Self::NoHost => "no host".to_owned(),
            Self::Wildcard => "an address that is no machine's".to_owned(),
            Self::Loopback => "an address that only its own machine reaches".to_owned(),
            Self::Mixed => "scheme http, and other members use https".to_owned(),
            Self::Host(host) => format!("host {host}, which is neither address nor name"),
            Self::Bare => "an IPv6 address without brackets".to_owned(),
            Self::NoPort => "no port".to_owned(),
            Self::Port(port) => format!("port {port}, and ports go from 1 to 65535"),
            Self::Path(path) => format!("path {path}, where etcd wants none"),
        }
    }
}

/// A URL taken apart: what of it is sound, and what is not.
struct Parts<'a> {
    http: bool,
    host: Option<&'a str>,
    port: Option<u16>,
    flaws: Vec<Flaw<'a>>,
}

fn parts(url: &str, of: Use) -> Parts<'_> {
    let mut parts = Parts { http: false, host: None, port: None, flaws: Vec::new() };
    let text = url.trim();
    if text.is_empty() {
        parts.flaws.push(Flaw::Empty);
        return parts;
    }
    if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        parts.flaws.push(Flaw::Blank);
    }
    let rest = match text.split_once("://") {
        None => {
            parts.flaws.push(Flaw::NoScheme);
            text.trim_start_matches('/')
        }
        Some((scheme, rest)) => {
            parts.http = scheme.eq_ignore_ascii_case("http");
            if scheme.eq_ignore_ascii_case("unix") || scheme.eq_ignore_ascii_case("unixs") {
                parts.flaws.push(Flaw::Socket);
                return parts;
            }
            if scheme.is_empty() {
                parts.flaws.push(Flaw::NoScheme);
            } else if !parts.http && !scheme.eq_ignore_ascii_case("https") {
                parts.flaws.push(Flaw::Scheme(scheme));
            }
            rest
        }
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, port) = split(authority, of.port());
    match host {
        "" => parts.flaws.push(Flaw::NoHost),
        host => match host_flaw(host, authority) {
            Some(Flaw::Bare) => {
                parts.host = Some(host);
                parts.flaws.push(Flaw::Bare);
            }
            Some(flaw) => parts.flaws.push(flaw),
            None if is_own_host(host) => parts.flaws.push(Flaw::Loopback),
            None => parts.host = Some(host),
        },
    }
    match port {
        None | Some("") => parts.flaws.push(Flaw::NoPort),
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => parts.port = Some(number),
            _ => parts.flaws.push(Flaw::Port(port)),
        },
    }
    if !matches!(path, "" | "/") {
        parts.flaws.push(Flaw::Path(path));
    }
    parts
}

/// Host, without brackets, and port of an authority; `usual` is the port that such a URL has as a rule.
pub(crate) fn split(authority: &str, usual: u16) -> (&str, Option<&str>) {
    if let Some((host, after)) = authority.strip_prefix('[').and_then(|a| a.split_once(']')) {
        return (host, after.strip_prefix(':'));
    }
    if authority.matches(':').count() > 1 {
        // "fd00::1:2380" may be read with and without a port; the usual one at its end is one.
        let split = authority.rsplit_once(':').filter(|(host, port)| {
            host.parse::<Ipv6Addr>().is_ok()
                && (port.parse() == Ok(usual) || authority.parse::<Ipv6Addr>().is_err())
        });
        return split.map_or((authority, None), |(host, port)| (host, Some(port)));
    }
    authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
}

fn host_flaw<'a>(host: &'a str, authority: &str) -> Option<Flaw<'a>> {
    let bracketed = authority.starts_with('[');
    let address = host.split('%').next().unwrap_or(host).parse::<IpAddr>();
    match address {
        Ok(address) if address.is_unspecified() => Some(Flaw::Wildcard),
        Ok(IpAddr::V6(_)) => (!bracketed).then_some(Flaw::Bare),
        Ok(IpAddr::V4(_)) => bracketed.then_some(Flaw::Host(host)),
        Err(_) => {
            let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
            // A last label of digits alone is an address's, and this is none.
            let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or(host);
            let numeric = last.bytes().all(|b| b.is_ascii_digit());
            (bracketed || numeric || !host.bytes().all(is_name)).then_some(Flaw::Host(host))
        }
    }
}

/// Whether a URL leads to the machine that uses it, whichever that is.
pub(crate) fn is_loopback(url: &str) -> bool {
    parts(url, Use::Clients).flaws.contains(&Flaw::Loopback)
}

fn is_own_host(host: &str) -> bool {
    // "localhost" and what ends in it is loopback everywhere (RFC 6761, section 6.3).
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|a| a.to_canonical().is_loopback())
}

/// What is to stand there: the sound parts of the URL, and for the others those of the member's other URLs.
fn instead(url: &str, member: &Member, of: Use, tls: bool) -> String {
    let own = parts(url, of);
    let others = [Use::Peers, Use::Clients]
        .into_iter()
        .flat_map(|u| u.of(member).iter().map(move |url| parts(url, u)));
    let sound: Vec<Parts<'_>> = others.filter(|p| p.flaws.is_empty()).collect();
    let http = own.http || (!url.contains("://") && !sound.is_empty() && sound.iter().all(|p| p.http));
    let scheme = if http && !tls { "http" } else { "https" };
    let host = match own.host.or(sound.iter().find_map(|p| p.host)) {
        Some(host) if host.contains(':') => format!("[{host}]"),
        Some(host) => host.to_owned(),
        None => format!("<address of {}>", display_name(member)),
    };
    format!("{scheme}://{host}:{}", own.port.unwrap_or(of.port()))
}

/// One URL of no use, in words.
struct Useless<'a> {
    member: &'a Member,
    words: String,
    instead: String,
    /// Its scheme is all that is wrong with it.
    mixed: bool,
}

/// Whether every member records loopback addresses alone, each its own: a quorum that met that way runs on one machine, where
/// they are right (etcd's own local set-up). Two of the same address are two machines that nobody else reaches.
fn on_one_machine(list: &MemberList, of: Use) -> bool {
    let all = || list.members.iter().flat_map(|m| of.of(m)).map(|url| url.trim_end_matches('/'));
    let distinct: BTreeSet<&str> = all().collect();
    // Who was added and has not started has published nothing yet.
    let waits = |m: &Member| of == Use::Clients && m.name.is_empty();
    distinct.len() == all().count()
        && !distinct.is_empty()
        && list.members.iter().all(|m| !of.of(m).is_empty() || waits(m))
        && distinct.iter().all(|url| parts(url, of).flaws == [Flaw::Loopback])
}

/// The URLs of a member list, each taken apart once: a fleet is thousands of lists.
pub(crate) struct Urls<'a> {
    list: &'a MemberList,
    peers: Vec<Parts<'a>>,
    clients: Vec<Parts<'a>>,
}

impl<'a> Urls<'a> {
    pub(crate) fn of(list: &'a MemberList) -> Self {
        let all = |of: Use| list.members.iter().flat_map(move |m| of.of(m)).map(move |url| parts(url, of));
        Self { list, peers: all(Use::Peers).collect(), clients: all(Use::Clients).collect() }
    }

    /// URLs that nobody can use, and client URLs that do not tell whose they are.
    pub(crate) fn judge(&self, at: Timestamp) -> Vec<Finding> {
        let useless = [Use::Peers, Use::Clients].into_iter().filter_map(|of| finding(self, of, false, at));
        useless.chain(shared(self, at)).collect()
    }

    /// Plain HTTP among members that use TLS, unless `found` has told of a member's scheme already.
    pub(crate) fn mixed(&self, found: &[Finding], at: Timestamp) -> Vec<Finding> {
        if found.iter().any(|f| f.reason == R::EtcdPeerUrlMismatch) {
            return Vec::new();
        }
        [Use::Peers, Use::Clients].into_iter().filter_map(|of| finding(self, of, true, at)).collect()
    }
}

fn useless<'a>(urls: &Urls<'a>, of: Use) -> Vec<Useless<'a>> {
    let list = urls.list;
    let (mut sound, mut tls, mut http) = (true, false, false);
    for p in if of == Use::Peers { &urls.peers } else { &urls.clients } {
        match p.flaws.is_empty() {
            true if p.http => http = true,
            true => tls = true,
            false => sound = false,
        }
    }
    // As good as always.
    let missing = of == Use::Peers && list.members.iter().any(|m| m.peer_urls.is_empty());
    if sound && !missing && !(tls && http) {
        return Vec::new();
    }
    let alone = list.members.len() < 2 || on_one_machine(list, of);
    let mut found = Vec::new();
    for member in &list.members {
        let urls = of.of(member);
        if urls.is_empty() && of == Use::Peers {
            let instead = instead("", member, of, tls);
            let words = format!("none of {} (none recorded; instead {instead})", display_name(member));
            found.push(Useless { member, words, instead, mixed: false });
        }
        let usable = urls.iter().any(|url| parts(url, of).flaws.is_empty());
        for url in urls {
            let mut flaws = parts(url, of).flaws;
            // Alone, or beside a way for others, a socket harms nobody; peer URLs without brackets have a rule of their own.
            flaws.retain(|flaw| match flaw {
                Flaw::Socket | Flaw::Loopback => !alone && !usable,
                Flaw::Bare => of == Use::Clients,
                // etcd itself wants one; what reads it without takes the usual one.
                Flaw::NoPort => !parts(url, of).flaws.contains(&Flaw::Bare),
                _ => true,
            });
            let mixed = flaws.is_empty() && tls && parts(url, of).http;
            if mixed {
                flaws.push(Flaw::Mixed);
            }
            if flaws.is_empty() {
                continue;
            }
            let instead = instead(url, member, of, tls);
            let shown: String = url.chars().filter(|c| !c.is_control()).take(120).collect();
            let shown = if shown.trim().is_empty() { "\"\"".to_owned() } else { shown.trim().to_owned() };
            let kinds = names(flaws.iter().map(Flaw::words), 4);
            let words = format!("{shown} of {} ({kinds}; instead {instead})", display_name(member));
            found.push(Useless { member, words, instead, mixed });
        }
    }
    found
}

/// Client URLs that members of several machines publish: whoever asks there reaches one of them and takes it for the other.
/// Loopback is everybody's own, and of a machine that was built anew ghosts and peer URLs tell.
fn shared(urls: &Urls<'_>, at: Timestamp) -> Option<Finding> {
    let mut places: BTreeMap<(String, u16), Vec<&Member>> = BTreeMap::new();
    let members = urls.list.members.iter().flat_map(|m| m.client_urls.iter().map(move |_| m));
    for (member, parts) in members.zip(&urls.clients) {
        let Some(host) = parts.host else { continue };
        let place = (host.to_ascii_lowercase(), parts.port.unwrap_or(Use::Clients.port()));
        let members = places.entry(place).or_default();
        let is_known = |known: &&Member| {
            let one_node = !member.name.is_empty() && stem(&known.name) == stem(&member.name);
            one_node || known.id == member.id || known.peer_urls.iter().any(|u| member.peer_urls.contains(u))
        };
        if !members.iter().any(is_known) {
            members.push(member);
        }
    }
    places.retain(|_, members| members.len() > 1);
    if places.is_empty() {
        return None;
    }
    let all = places.iter().map(|((host, port), members)| {
        format!("{host}:{port} of {}", names(members.iter().map(|m| with_id(m)), NAMED))
    });
    let message = format!("Members publish one client URL (duplicate): {}.", names(all, NAMED));
    Some(Finding::new(TYPE, Status::False, Severity::Warn, R::EtcdUrlUnusable, at, message).advice(
        "Whoever asks there reaches one of them and takes it for the other, so that what is said of the two may be of one. See \
         which member answers there (etcdctl endpoint status shows the id) and give the other its own address in \
         --advertise-client-urls (RKE2 and K3s: from the first node-ip); it is published anew when that member starts.",
    ))
}

fn finding(urls: &Urls<'_>, of: Use, mixed: bool, at: Timestamp) -> Option<Finding> {
    let found: Vec<Useless<'_>> = useless(urls, of).into_iter().filter(|u| u.mixed == mixed).collect();
    if found.is_empty() {
        return None;
    }
    let what = if mixed { "of mixed schemes" } else { "that nobody can use" };
    let message = format!(
        "The member list records {} URLs {what}: {}.",
        of.word(),
        names(found.iter().map(|u| &u.words), NAMED)
    );
    let wanted = names(found.iter().map(|u| format!("{} for {}", u.instead, with_id(u.member))), NAMED);
    let (severity, advice) = match of {
        Use::Peers => (
            if mixed { Severity::Warn } else { Severity::Error },
            format!(
                "Members reach each other by peer URLs alone: {wanted}. RKE2 and K3s take it from the first node-ip, others from \
                 --initial-advertise-peer-urls; what is recorded already a person changes while quorum holds. Outrider does not \
                 update members."
            ),
        ),
        Use::Clients => (
            Severity::Warn,
            format!(
                "Clients, Outrider among them, do not find the member by it: {wanted}. It stands in --advertise-client-urls \
                 (RKE2 and K3s: from the first node-ip) and is published anew when that member starts."
            ),
        ),
    };
    Some(Finding::new(TYPE, Status::False, severity, R::EtcdUrlUnusable, at, message).advice(advice))
}
