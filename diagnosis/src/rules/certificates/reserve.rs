//! What a restart of this server takes from etcd's quorum: advice to restart has to agree with `EtcdQuorum`, which names
//! whom not to restart.
//!
//! A restart takes this server's member away for a while. That is safe where the other voters are a quorum by themselves,
//! and takes nothing where the member is out already, whatever else is true. Nobody restarts blindly: where it cannot be
//! told, that is said first.

use outrider_protocol::{CertificateUse, CertificatesFacts, Fact, NodeFacts, UnknownCause};

use crate::rules::etcd::quorum::{Health, Proof, Tally, quorum_of};
use crate::rules::etcd::view;
use crate::wording::{names, upper};

const NAMED: usize = 7;
/// Where all have ended no server is healthy before most are through: to wait for the first would be to wait for ever.
const GO_ON: &str = "One server after the other; where those of the others have ended too, go on to the next without waiting \
                     for this one to be healthy, for quorum is back only when most of them show new certificates.";

/// What a restart of this server does to etcd.
pub(super) enum Reserve {
    /// No quorum hangs on this server.
    Free,
    /// The other voters are a quorum without this one.
    Held { member: String, is_out: bool, numbers: String, others: usize, quorum: usize },
    /// It stops for as long as the restart takes, however well all are: one voter, or two.
    Always { member: String, voters: usize },
    /// It stops, and would not if those that are away were back.
    Needed { member: String, numbers: String, away: String },
    /// Quorum is lost already, and this member is not in it.
    Lost { member: String, numbers: String, away: String },
    /// What etcd shows here has ended, for this reason, and no read gets past it: nobody loses by a restart.
    Shut { why: String },
    /// Nobody knows.
    Unknown { why: String },
}

impl Reserve {
    pub(super) fn of(facts: &NodeFacts, certificates: &CertificatesFacts) -> Self {
        let etcd = match &facts.checks.etcd {
            Some(Fact::Known { value, .. }) => value,
            Some(Fact::Absent { .. } | Fact::NotApplicable { .. }) => return Self::Free,
            Some(Fact::Unknown { detail, .. }) => {
                return Self::Unknown {
                    why: format!("etcd could not be read here ({})", detail.trim_end_matches('.')),
                };
            }
            None if !has_member(certificates) => return Self::Free,
            None => {
                return Self::Unknown {
                    why: "etcd was not looked at here (outrider check --only etcd)".to_owned(),
                };
            }
        };
        let Some(list) = etcd.members.value() else {
            return Self::Unknown { why: "its member list could not be read here".to_owned() };
        };
        let (list, _) = view::distinct(list);
        let mut local = etcd.endpoints.iter().filter(|e| e.local);
        let own = local.find_map(|e| {
            view::member_of(e)
                .or_else(|| list.members.iter().find(|m| view::publishes(m, e)).map(|m| m.id.as_str()))
        });
        let Some(own) = own else {
            return Self::Unknown { why: "which member runs on this server is not known here".to_owned() };
        };
        if list.members.iter().any(|m| m.id == own && m.is_learner) {
            return Self::Free;
        }
        let tally = view::tally(etcd, &list, facts.now);
        Self::weigh(&tally, own)
    }

    fn weigh(tally: &Tally<'_>, own: &str) -> Self {
        let Some(this) = tally.voters.iter().find(|v| v.id == own) else {
            return Self::Unknown { why: "this server's member is not among the voters".to_owned() };
        };
        let others = || tally.voters.iter().filter(|v| v.id != own);
        let count = |health| others().filter(|v| v.health == health).count();
        let (voters, quorum) = (tally.voters.len(), quorum_of(tally.voters.len()));
        let (healthy, unknown) = (count(Health::Healthy), count(Health::Unknown));
        let is_out = matches!(this.health, Health::Down | Health::NoLeader);
        let (member, numbers) = (this.name.to_string(), tally.numbers());
        let lost = is_out && healthy + unknown < quorum;
        if lost {
            let away = others().filter(|v| v.health == Health::Down && v.may_return()).map(|v| &*v.name);
            return Self::Lost { member, numbers, away: names(away, NAMED) };
        }
        if let Proof::Failed(why) = &tally.proof {
            return Self::Unknown { why: format!("a linearizable read fails ({why})") };
        }
        if healthy >= quorum {
            return Self::Held { member, is_out, numbers, others: healthy, quorum };
        }
        if healthy + unknown >= quorum {
            let unseen = others().filter(|v| v.health == Health::Unknown).map(|v| &*v.name);
            return Self::Unknown { why: format!("{} could not be asked", names(unseen, NAMED)) };
        }
        if healthy + 1 == voters {
            return Self::Always { member, voters };
        }
        let away = others().filter(|v| v.health != Health::Healthy && v.may_return()).map(|v| &*v.name);
        Self::Needed { member, numbers, away: names(away, NAMED) }
    }

    /// `advice`, which names a restart of this server, with what has to be so before it.
    pub(super) fn before(&self, advice: String, trouble: Option<&str>) -> String {
        let why = trouble.map_or_else(String::new, |trouble| {
            format!(": {trouble}, so that the restart of exactly this server is its way back")
        });
        match self {
            Self::Free => advice,
            Self::Held { member, is_out: true, others, quorum, .. } => format!(
                "{advice} It takes nothing from etcd: {others} other healthy voters hold the quorum of {quorum} without \
                 {member}{why}."
            ),
            Self::Held { numbers, .. } => {
                format!(
                    "{advice} etcd bears it now ({numbers}); wait for this one to be healthy again before the next."
                )
            }
            Self::Always { member, voters: 1 } => format!(
                "{advice} {member} is the only voter, so etcd is away while it restarts: choose the minute, with a fresh \
                 snapshot."
            ),
            Self::Always { member, voters } => format!(
                "{advice} With {voters} voters etcd has no quorum while {member} restarts (tolerates 0): choose the minute, \
                 or add a third server first."
            ),
            Self::Needed { member, numbers, away } => {
                let first = match away.as_str() {
                    "" => "First win tolerance back as EtcdQuorum tells".to_owned(),
                    away => format!("First bring {away} back (EtcdQuorum)"),
                };
                format!(
                    "Not yet: without {member} of this server etcd has no quorum ({numbers}). {first}; whatever is restarted \
                     then is restarted one server at a time. {advice}"
                )
            }
            Self::Lost { member, numbers, away } => {
                let Some(trouble) = trouble else {
                    return format!(
                        "Quorum first: it is lost ({numbers}), and no certificate of etcd here is known to be why, so that a \
                         restart brings it no nearer. EtcdQuorum says who has to come back and whom to leave as it is. After that: \
                         {advice}"
                    );
                };
                let others = match away.as_str() {
                    "" => String::new(),
                    away => format!(
                        " By itself that brings no quorum back: {away} answered nothing either (EtcdQuorum)."
                    ),
                };
                format!(
                    "{advice} It takes nothing from etcd: quorum is lost already ({numbers}), and {member} is not in it: \
                     {trouble}, so that it joins no quorum before the restart of exactly this server.{others}"
                )
            }
            Self::Shut { why } => format!(
                "{advice} {}: nobody who verifies it can use this etcd, so the restart of exactly this server is the cure and \
                 needs no member list. {GO_ON}",
                upper(why)
            ),
            Self::Unknown { why } => format!(
                "First see that etcd tolerates a restart (EtcdQuorum: at least 1 more), for {why}; whatever is restarted then is \
                 restarted one server at a time. {advice}"
            ),
        }
    }

    /// `advice`, which names a restart of this server, behind `hindrances` that have to go first. How the quorum stands
    /// then nobody knows now.
    pub(super) fn after(&self, hindrances: &str, advice: &str) -> String {
        let again = match self {
            Self::Free => "",
            _ => " See EtcdQuorum again before it.",
        };
        format!("No restart yet: {hindrances}. After that: {advice}{again}")
    }

    /// Whether quorum is lost already.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// What ends the outage where only a restart of this server does, in place of advice that asks etcd first.
    pub(super) fn cure(&self) -> Option<String> {
        let Self::Shut { why } = self else { return None };
        Some(format!(
            "{}: nobody who verifies it can use this etcd, and etcdctl fails for the same reason. The restart of exactly this \
             server is the cure (CertificatesValid says how). {GO_ON}",
            upper(why)
        ))
    }

    /// Whether a restart of this server takes nothing from etcd because its member is out.
    pub(super) fn out(&self) -> Option<&str> {
        match self {
            Self::Held { member, is_out: true, .. } | Self::Lost { member, .. } => Some(member),
            _ => None,
        }
    }
}

/// Whether no client gets past the TLS of this server's etcd: neither its members nor its own state could be read.
pub(super) fn is_refused(facts: &NodeFacts) -> bool {
    match &facts.checks.etcd {
        Some(Fact::Unknown { cause, .. }) => *cause == UnknownCause::TlsFailed,
        Some(Fact::Known { value: etcd, .. }) => {
            matches!(&etcd.members, Fact::Unknown { cause: UnknownCause::TlsFailed, .. })
                && etcd.local_status().is_none()
        }
        _ => false,
    }
}

/// Whether the files and ports are those of a server with a member of etcd.
fn has_member(certificates: &CertificatesFacts) -> bool {
    let by_port = certificates.served.iter().any(|s| s.name.starts_with("etcd"));
    by_port
        || certificates.files.iter().any(|file| {
            file.usage == CertificateUse::Server && file.path.ends_with("/etcd/server-client.crt")
        })
}
