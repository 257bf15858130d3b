//! One name: whether it resolves here, and everywhere alike.

use outrider_protocol::{Fact, NameFacts, ReasonCode as R, Severity, Status, UnknownCause};

use super::said::{self, Said, Word};
use super::{RAISE, View, addresses, compare, search};
use crate::candidate::Candidate;
use crate::wording::names;

/// Servers quoted in a message.
pub(super) const QUOTED: usize = 5;

pub(super) fn candidates(view: &View<'_>, name: &NameFacts) -> Vec<Candidate> {
    if !name.problem.is_empty() {
        let message = format!("{} (for {}) cannot be looked up: {}.", name.name, wanted(name), name.problem);
        return vec![Candidate::fault(Severity::Error, R::NameNotResolved, message).advice(
            "Write the name as DNS has it: letters, digits and hyphens, anything else in punycode (xn--…).",
        )];
    }
    let said = said::all(view.dns, name);
    let mut all = Vec::new();
    all.extend(missing(view, name, &said));
    // Of equals the first is shown: what is wrong with an answer by itself explains why answers differ.
    all.extend(answers(name, &said));
    all.extend(addresses::candidates(view, name, &said));
    all.extend(compare::candidates(view, name, &said));
    all.extend(search::candidates(view, name, &said));
    all.push(good(name, &said));
    all
}

pub(super) fn wanted(name: &NameFacts) -> String {
    names(&name.wanted_by, 3)
}

/// Who said what.
pub(super) fn lines<'a>(said: impl IntoIterator<Item = &'a Said<'a>>) -> String {
    names(said.into_iter().map(Said::line), QUOTED)
}

/// The name does not resolve on this machine.
fn missing(view: &View<'_>, name: &NameFacts, said: &[Said<'_>]) -> Option<Candidate> {
    let host = match &name.host {
        Fact::Known { value, .. } if !value.addresses.is_empty() => return None,
        Fact::Unknown { detail, .. } => detail.trim_end_matches('.').to_owned(),
        _ => "it is told not to exist".to_owned(),
    };
    let outside: Vec<&Said<'_>> = said.iter().filter(|s| !s.is_cluster()).collect();
    let has = |wanted: &dyn Fn(&Word) -> bool| outside.iter().any(|s| wanted(&s.word));
    let who = lines(outside.iter().copied());
    let title = format!("{} (for {})", name.name, wanted(name));
    let severity = if view.is_proxied(&name.name) { Severity::Warn } else { Severity::Error };
    let proxied = match severity {
        Severity::Warn => " Programs that reach it through a proxy do not need it: the proxy resolves it.",
        _ => "",
    };
    let fault = |reason, message: String| {
        Candidate::fault(severity, reason, format!("{message}{proxied}")).after(RAISE)
    };
    if has(&|w| matches!(w, Word::Yes(_))) {
        let message = format!("{title} does not resolve on this host ({host}), and yet {who}.");
        let tail = match name.name.rsplit('.').next() {
            Some("local") => " Names below .local are left to mDNS by many hosts: choose another name.",
            _ => "",
        };
        return Some(fault(R::NameNotResolved, message).advice(format!(
            "Look at the line `hosts:` of /etc/nsswitch.conf and at the local resolver (resolvectl query {}); a server that \
             says no before one that says yes ends the search.{tail}",
            name.name
        )));
    }
    if has(&|w| *w == Word::NoName) {
        let message = format!("{title} does not exist: {who}.");
        return Some(fault(R::NameNotResolved, message).advice(
            "Add the record where nodes, pods and people all look, or correct the name. An entry in /etc/hosts would hide \
             the fault here and leave it to the pods.",
        ));
    }
    if has(&|w| *w == Word::NoAddress) {
        let message = format!("{title} exists and has neither an A nor an AAAA record: {who}.");
        return Some(fault(R::NameNotResolved, message).advice("Add an A or AAAA record to the name."));
    }
    if has(&|w| matches!(w, Word::Failing(_))) {
        let message = format!("{title} cannot be resolved, for the servers fail: {who}.");
        return Some(fault(R::DnsServerFailing, message).advice(failing_advice(&codes(&outside))));
    }
    if has(&|w| matches!(w, Word::Silent(_))) {
        let message = format!("{title} cannot be resolved, for no server answers: {who}.");
        return Some(fault(R::DnsServerDown, message).advice(
            "See whether the servers run and whether port 53 (UDP and TCP) is open from this node; correct the nameserver \
             lines if they are the wrong ones.",
        ));
    }
    // A broken alias and a cut answer speak for themselves; otherwise nobody could be asked.
    if has(&|w| matches!(w, Word::BrokenAlias | Word::Cut)) {
        return None;
    }
    let message = format!("{title} does not resolve on this host ({host}), and no server could be asked.");
    let reason = R::from(&UnknownCause::NameNotResolved);
    let unknown = Candidate::new(Status::Unknown, Severity::Warn, reason, message).after(RAISE);
    Some(unknown.advice("Look at /etc/resolv.conf: no server in it could be asked."))
}

/// The codes of servers that fail.
pub(super) fn codes(said: &[&Said<'_>]) -> Vec<String> {
    let code = |s: &&Said<'_>| if let Word::Failing(code) = &s.word { Some(code.clone()) } else { None };
    said.iter().filter_map(code).collect()
}

pub(super) fn failing_advice(codes: &[String]) -> String {
    let is = |code: &str| codes.iter().any(|c| c == code);
    if is("REFUSED") {
        "REFUSED: the server does not serve this client. Let this node's network ask it (allow-query, allow-recursion, \
         access-control), or give the node another server."
            .to_owned()
    } else if is("SERVFAIL") {
        "SERVFAIL: the server cannot get the answer itself. Ask it directly (dig NAME @SERVER, and with +cd): its own \
         upstream, the zone's servers, or DNSSEC are at fault."
            .to_owned()
    } else {
        "The server does not understand a plain question: see what answers at port 53 there.".to_owned()
    }
}

/// What is wrong with answers by themselves.
fn answers(name: &NameFacts, said: &[Said<'_>]) -> Vec<Candidate> {
    let mut all = Vec::new();
    let answer_of = |s: &Said<'_>| [s.answer.a.value().cloned(), s.answer.aaaa.value().cloned()];
    let broken = said.iter().find_map(|s| {
        let found = answer_of(s).into_iter().flatten().find(|a| a.alias_loop || said::is_dangling(a))?;
        Some((s, found))
    });
    if let Some((s, answer)) = broken {
        let chain = names(std::iter::once(&name.name).chain(&answer.aliases), 6).replace(", ", " -> ");
        let (what, advice) = if answer.alias_loop {
            (
                "goes round in a circle",
                "Correct the CNAME records: one of them must name a host with an address.",
            )
        } else {
            (
                "ends at a name that does not exist",
                "Correct the CNAME's target, or add the record it points to.",
            )
        };
        let message = format!("{} is an alias that {what}, says {}: {chain}.", name.name, s.title());
        all.push(Candidate::fault(Severity::Error, R::DnsAliasBroken, message).advice(advice).after(RAISE));
    }
    for s in said {
        if let Some(answer) = answer_of(s).into_iter().flatten().find(|a| !a.tcp_failure.is_empty()) {
            let severity = if answer.addresses.is_empty() { Severity::Error } else { Severity::Warn };
            let message = format!(
                "The answer of {} about {} is too long for UDP ({} addresses came), and over TCP it does not come: {}.",
                s.title(),
                name.name,
                answer.addresses.len(),
                answer.tcp_failure.trim_end_matches('.')
            );
            all.push(Candidate::fault(severity, R::DnsAnswerTruncated, message).after(RAISE).advice(
                "Open TCP port 53 to the server: DNS needs both. Clients that do not ask again take the part that came.",
            ));
        }
    }
    all.extend(said.iter().find_map(|s| families(name, s)));
    all.extend(failing(name, said));
    all
}

/// A server that has addresses of one family and denies the name, or fails, for the other (RFC 4074).
fn families(name: &NameFacts, s: &Said<'_>) -> Option<Candidate> {
    let pairs = [(&s.answer.a, &s.answer.aaaa, "A", "AAAA"), (&s.answer.aaaa, &s.answer.a, "AAAA", "A")];
    pairs.into_iter().find_map(|(one, other, has, lacks)| {
        let addresses = one.value().filter(|a| !a.addresses.is_empty())?.addresses.join(", ");
        let what = match other {
            Fact::Known { value, .. } if value.code != outrider_protocol::DnsCode::NoError => {
                format!("answers {}", value.code)
            }
            Fact::Unknown { cause: UnknownCause::TimedOut, .. } => "does not answer".to_owned(),
            _ => return None,
        };
        let message = format!(
            "{} has {has} records of {} ({addresses}) and {what} when asked for {lacks}.",
            s.title(),
            name.name
        );
        Some(Candidate::fault(Severity::Warn, R::DnsFamiliesDisagree, message).after(RAISE).advice(format!(
            "Repair the server (a load balancer that plays DNS, often): a name without {lacks} records is answered NOERROR \
             without an answer. Resolvers that ask for both families fail or wait here, musl in containers first."
        )))
    })
}

/// Some servers fail and others answer.
fn failing(name: &NameFacts, said: &[Said<'_>]) -> Option<Candidate> {
    let bad: Vec<&Said<'_>> = said.iter().filter(|s| matches!(s.word, Word::Failing(_))).collect();
    let good = said.iter().any(|s| matches!(s.word, Word::Yes(_)));
    if bad.is_empty() || !good {
        return None;
    }
    // Pods have no other server.
    let severity = if bad.iter().any(|s| s.is_cluster()) { Severity::Error } else { Severity::Warn };
    let message = format!("Of {}, {}.", name.name, lines(bad.iter().copied()));
    let candidate = Candidate::fault(severity, R::DnsServerFailing, message).after(RAISE);
    Some(candidate.advice(failing_advice(&codes(&bad))))
}

fn good(name: &NameFacts, said: &[Said<'_>]) -> Candidate {
    let (addresses, ms) = name.host.value().map_or((String::new(), 0), |h| (names(&h.addresses, 4), h.ms));
    let asked = said.iter().filter(|s| s.word != Word::Untold).count();
    let yes = said.iter().filter(|s| matches!(s.word, Word::Yes(_))).count();
    let answers = || said.iter().flat_map(|s| [s.answer.a.value(), s.answer.aaaa.value()]).flatten();
    let ttl = answers().filter_map(|a| a.ttl).min().map(|t| format!(", to live {t} s")).unwrap_or_default();
    let alias =
        answers().find_map(|a| a.aliases.last()).map(|a| format!(", alias of {a}")).unwrap_or_default();
    let written =
        if name.written.is_empty() { String::new() } else { format!(", written {:?}", name.written) };
    let message = format!(
        "{} (for {}{written}) resolves to {addresses} here in {ms} ms, and at {yes} of {asked} servers{ttl}{alias}.",
        name.name,
        wanted(name)
    );
    Candidate::new(Status::True, Severity::Ok, R::NamesResolve, message)
}
