//! Checks: when each sensor runs, apart from the others, and what becomes of one that hangs or panics.
//!
//! A pass of a check is a task of its own ([`pass`]). It ends as a [`Reading`], within its limit: a hang is
//! `Unknown (TimedOut)`, a panic `Unknown (Panicked)`, and neither holds up anybody else. Readings go to the one loop
//! through a [`Mailbox`] that keeps the newest a check.

mod certificates;
mod credentials;
mod etcd;
mod idle;
mod kubernetes;
mod load_balancer;
mod mailbox;
mod moves;
mod pass;
mod sensors;

use std::time::Duration;

use outrider_protocol::{
    CertificatesFacts, Check, CheckFacts, ClockFacts, CloudInitFacts, CredentialsFacts, DnsFacts, EtcdFacts,
    Fact, GuestAgentFacts, HostFacts, KubernetesFacts, LoadBalancerFacts, RancherAgentFacts, Timestamp,
    TopologyFacts, UnknownCause,
};

pub use mailbox::{Ended, Mailbox};
pub use pass::{Slot, SlotGuard, pass};
pub use sensors::{Machine, PassContext, PassFuture, Sensors};

/// What one pass of one check read.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "a variant a check")]
pub enum Reading {
    Host(Fact<HostFacts>),
    Clock(Fact<ClockFacts>),
    CloudInit(Fact<CloudInitFacts>),
    GuestAgent(Fact<GuestAgentFacts>),
    Etcd(Fact<EtcdFacts>),
    LoadBalancer(Fact<Vec<LoadBalancerFacts>>),
    Certificates(Fact<CertificatesFacts>),
    Credentials(Fact<CredentialsFacts>),
    Kubernetes(Fact<KubernetesFacts>),
    Dns(Fact<DnsFacts>),
    RancherAgent(Fact<RancherAgentFacts>),
    Topology(Fact<TopologyFacts>),
}

/// Does the same with the fact of whichever check it is.
macro_rules! each {
    ($reading:expr, $fact:ident => $body:expr) => {
        match $reading {
            Reading::Host($fact) => $body,
            Reading::Clock($fact) => $body,
            Reading::CloudInit($fact) => $body,
            Reading::GuestAgent($fact) => $body,
            Reading::Etcd($fact) => $body,
            Reading::LoadBalancer($fact) => $body,
            Reading::Certificates($fact) => $body,
            Reading::Credentials($fact) => $body,
            Reading::Kubernetes($fact) => $body,
            Reading::Dns($fact) => $body,
            Reading::RancherAgent($fact) => $body,
            Reading::Topology($fact) => $body,
        }
    };
}

/// Makes a reading of `check` from an expression that fits every type of fact.
macro_rules! reading_of {
    ($check:expr, $fact:expr) => {
        match $check {
            Check::Host => Some(Reading::Host($fact)),
            Check::Clock => Some(Reading::Clock($fact)),
            Check::CloudInit => Some(Reading::CloudInit($fact)),
            Check::GuestAgent => Some(Reading::GuestAgent($fact)),
            Check::Etcd => Some(Reading::Etcd($fact)),
            Check::LoadBalancer => Some(Reading::LoadBalancer($fact)),
            Check::Certificates => Some(Reading::Certificates($fact)),
            Check::Credentials => Some(Reading::Credentials($fact)),
            Check::Kubernetes => Some(Reading::Kubernetes($fact)),
            Check::Dns => Some(Reading::Dns($fact)),
            Check::RancherAgent => Some(Reading::RancherAgent($fact)),
            Check::Topology => Some(Reading::Topology($fact)),
            Check::Agent | Check::Other(_) => None,
        }
    };
}

/// How long a pass of `check` may go on beyond its limit while it merely waits for news.
pub fn waits_for_news(check: &Check) -> Duration {
    match check {
        Check::Etcd => etcd::WATCHES,
        Check::Topology => crate::sense::topology::WAITS,
        _ => Duration::ZERO,
    }
}

impl Reading {
    /// The check it belongs to.
    pub fn check(&self) -> Check {
        match self {
            Reading::Host(_) => Check::Host,
            Reading::Clock(_) => Check::Clock,
            Reading::CloudInit(_) => Check::CloudInit,
            Reading::GuestAgent(_) => Check::GuestAgent,
            Reading::Etcd(_) => Check::Etcd,
            Reading::LoadBalancer(_) => Check::LoadBalancer,
            Reading::Certificates(_) => Check::Certificates,
            Reading::Credentials(_) => Check::Credentials,
            Reading::Kubernetes(_) => Check::Kubernetes,
            Reading::Dns(_) => Check::Dns,
            Reading::RancherAgent(_) => Check::RancherAgent,
            Reading::Topology(_) => Check::Topology,
        }
    }

    /// A whole check that could not be read; `None` for a check that no sensor serves.
    pub fn unknown(check: &Check, cause: UnknownCause, detail: &str, at: Timestamp) -> Option<Self> {
        reading_of!(check, Fact::unknown(cause, detail, format!("check {check}"), at))
    }

    /// A check with nothing to look at; `None` for a check that no sensor serves.
    pub fn not_applicable(check: &Check, reason: &str, at: Timestamp) -> Option<Self> {
        reading_of!(check, Fact::not_applicable(reason, at))
    }

    /// When it was read.
    pub fn at(&self) -> Timestamp {
        each!(self, fact => fact.at())
    }

    /// Why the whole check is unknown, when it is.
    pub fn failure(&self) -> Option<&UnknownCause> {
        each!(self, fact => match fact {
            Fact::Unknown { cause, .. } => Some(cause),
            _ => None,
        })
    }

    /// Puts it into the facts, in place of the earlier reading.
    pub fn store(self, facts: &mut CheckFacts) {
        match self {
            Reading::Host(fact) => facts.host = Some(fact),
            Reading::Clock(fact) => facts.clock = Some(fact),
            Reading::CloudInit(fact) => facts.cloud_init = Some(fact),
            Reading::GuestAgent(fact) => facts.guest_agent = Some(fact),
            Reading::Etcd(fact) => facts.etcd = Some(fact),
            Reading::LoadBalancer(fact) => facts.load_balancer = Some(fact),
            Reading::Certificates(fact) => facts.certificates = Some(fact),
            Reading::Credentials(fact) => facts.credentials = Some(fact),
            Reading::Kubernetes(fact) => facts.kubernetes = Some(fact),
            Reading::Dns(fact) => facts.dns = Some(fact),
            Reading::RancherAgent(fact) => facts.rancher_agent = Some(fact),
            Reading::Topology(fact) => facts.topology = Some(fact),
        }
    }
}
