//! What one server said of one name, in one word each.

use outrider_protocol::{
    DnsAnswer, DnsCode, DnsFacts, DnsServer, DnsServerRole, Fact, NameFacts, ServerAnswer, UnknownCause,
};

/// One server's word, both families taken together.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    /// Addresses, sorted.
    Yes(Vec<String>),
    /// The name exists and has no address.
    NoAddress,
    /// The name does not exist.
    NoName,
    /// An alias that ends nowhere.
    BrokenAlias,
    /// The server answers and does not serve: its code.
    Failing(String),
    /// No answer at all.
    Silent(String),
    /// Too long for UDP, and over TCP it does not come.
    Cut,
    /// It was not asked, or not in earnest.
    Untold,
}

/// A server and its word.
pub(super) struct Said<'a> {
    pub(super) server: &'a DnsServer,
    pub(super) answer: &'a ServerAnswer,
    pub(super) word: Word,
}

impl Said<'_> {
    pub(super) fn is_cluster(&self) -> bool {
        self.server.role == DnsServerRole::Cluster
    }

    /// The server in a message: its address, and what it is where that is no matter of course.
    pub(super) fn title(&self) -> String {
        title(self.server)
    }

    /// What it said, for a list of who said what.
    pub(super) fn line(&self) -> String {
        let title = self.title();
        match &self.word {
            Word::Yes(addresses) => format!("{title} says {}", addresses.join(", ")),
            Word::NoAddress => format!("{title} says that it exists and has no address"),
            Word::NoName => format!("{title} says that it does not exist (NXDOMAIN)"),
            Word::BrokenAlias => format!("{title} gives an alias that leads nowhere"),
            Word::Failing(code) => format!("{title} answers {code}"),
            Word::Silent(why) => format!("{title} does not answer ({why})"),
            Word::Cut => format!("{title} gives an answer that is too long for UDP, and none over TCP"),
            Word::Untold => format!("{title} was not asked"),
        }
    }
}

pub(super) fn title(server: &DnsServer) -> String {
    let address = server.address.strip_suffix(":53").unwrap_or(&server.address);
    match server.role {
        DnsServerRole::Cluster => format!("the cluster DNS {address}"),
        DnsServerRole::Stub => format!("the local resolver {address}"),
        _ => address.to_owned(),
    }
}

/// Every server's word about `name`.
pub(super) fn all<'a>(dns: &'a DnsFacts, name: &'a NameFacts) -> Vec<Said<'a>> {
    let pairs = name.answers.iter().filter_map(|answer| {
        let server = dns.servers.iter().find(|s| s.address == answer.server)?;
        Some(Said { server, answer, word: word(answer) })
    });
    pairs.collect()
}

fn word(answer: &ServerAnswer) -> Word {
    let both = [&answer.a, &answer.aaaa];
    let known: Vec<&DnsAnswer> = both.iter().filter_map(|fact| fact.value()).collect();
    let mut addresses: Vec<String> = known.iter().flat_map(|a| a.addresses.clone()).collect();
    if !addresses.is_empty() {
        addresses.sort();
        addresses.dedup();
        return Word::Yes(addresses);
    }
    if known.iter().any(|a| a.alias_loop || is_dangling(a)) {
        return Word::BrokenAlias;
    }
    // What one family tells for certain counts more than the failure of the other.
    if known.iter().any(|a| a.code == DnsCode::NxDomain) {
        return Word::NoName;
    }
    if let Some(failing) = known.iter().find(|a| a.code != DnsCode::NoError) {
        return Word::Failing(failing.code.to_string());
    }
    if known.iter().any(|a| !a.tcp_failure.is_empty()) {
        return Word::Cut;
    }
    if known.len() == 2 {
        return Word::NoAddress;
    }
    both.iter().find_map(|fact| silence(fact)).map_or(Word::Untold, Word::Silent)
}

/// The alias exists and its target does not.
pub(super) fn is_dangling(answer: &DnsAnswer) -> bool {
    !answer.aliases.is_empty() && answer.addresses.is_empty() && matches!(answer.code, DnsCode::NxDomain)
}

/// Why a question had no answer, in a few words.
pub(super) fn silence<T>(fact: &Fact<T>) -> Option<String> {
    let Fact::Unknown { cause, detail, .. } = fact else { return None };
    Some(match cause {
        UnknownCause::TimedOut => "silent".to_owned(),
        UnknownCause::ConnectionRefused => "nothing listens there".to_owned(),
        UnknownCause::Unreachable => "unreachable".to_owned(),
        _ => detail.trim_end_matches('.').to_owned(),
    })
}
