//! `DnsResolves`: a subject a name, and `servers` for who is asked (`facts/rancher-load-balancer.md`, section 7 and E18 to
//! E20).
//!
//! A name is judged by comparison: what this machine makes of it (hosts file, search domains and all), what each server
//! says of it, and what the cluster DNS tells the pods. Who says what stands in every message: the difference is the fault.

mod addresses;
mod compare;
mod name;
mod said;
mod search;
mod servers;

use std::time::Duration;

use outrider_protocol::{ConditionType, DnsFacts, Fact, NodeFacts, Timestamp};

pub(super) use self::compare::is_private;
use crate::candidate::worst;
use crate::finding::Judgement;

const TYPE: ConditionType = ConditionType::DnsResolves;
/// One lost look is no news; the next follows within a minute.
const RAISE: Duration = Duration::from_secs(70);
const CLEAR: Duration = Duration::from_secs(30);
/// The subject of everything that is not about one name.
const SERVERS: &str = "servers";

pub(super) fn judge(out: &mut Judgement, dns: &DnsFacts, at: Timestamp, facts: &NodeFacts) {
    let view = View { dns, facts };
    for name in &dns.names {
        out.findings.extend(worst(TYPE, name.name.clone(), at, CLEAR, name::candidates(&view, name)));
    }
    out.findings.extend(worst(TYPE, SERVERS.to_owned(), at, CLEAR, servers::candidates(&view)));
}

/// All that the parts of this rule look at.
struct View<'a> {
    dns: &'a DnsFacts,
    facts: &'a NodeFacts,
}

impl View<'_> {
    /// Whether pods run here that have to resolve the names, too.
    fn has_pods(&self) -> bool {
        !matches!(self.dns.pods, Fact::NotApplicable { .. })
    }

    /// Whether a program of Rancher reaches `name` through a proxy, which then resolves it for that program.
    fn is_proxied(&self, name: &str) -> bool {
        let rancher = self.facts.checks.rancher_agent.as_ref().and_then(Fact::value);
        let readings = rancher.into_iter().flat_map(|r| &r.proxies).flat_map(|p| &p.readings);
        readings.into_iter().any(|r| r.host == name && !r.go)
    }
}
