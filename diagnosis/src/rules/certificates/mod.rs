//! `CertificatesValid`: what the ports show against what lies on disk, and when it ends (`facts/etcd.md`, section 8).
//!
//! A subject a port, one for the files that no port shows (`files`), one for the authorities (`ca`). Advice must be true
//! before it is given: what a restart renews hangs on the distribution, its version and the days left (`renewal`), and a
//! file that the last start left alone although it was due is no reason to wake anybody (D16). And no restart is advised
//! without what it takes from etcd's quorum (`reserve`) and what else stands against it (`hindered`).

mod authority;
mod dates;
mod dialled;
mod files;
mod hindered;
mod pair;
mod renewal;
mod reserve;
mod served;

use std::time::Duration;

use outrider_protocol::{
    CertificateFacts, CertificateFile, CertificateUse, CertificatesFacts, ConditionType, Fact, NodeFacts,
    ServedCertificate, Severity, Timestamp,
};

pub(super) use self::dates::written_ahead;
use self::hindered::Hindered;
use self::reserve::Reserve;
pub(super) use self::served::covers;
use crate::candidate::{self, Candidate};
use crate::finding::{Finding, Judgement};
use crate::rules::clock::Trust;
use crate::wording::{Moment, names, upper};

const TYPE: ConditionType = ConditionType::CertificatesValid;
/// A second look has to confirm what may be a renewal under way; it follows within a minute.
const RAISE: Duration = Duration::from_secs(90);
const CLEAR: Duration = Duration::from_secs(30);
/// Files quoted in a message.
const QUOTED: usize = 4;

pub(super) fn judge(out: &mut Judgement, certificates: &CertificatesFacts, at: Timestamp, facts: &NodeFacts) {
    let view = View::of(certificates, at, facts);
    out.findings.extend(certificates.served.iter().filter_map(|served| served::judge(&view, served)));
    out.findings.push(files::judge(&view));
    out.findings.extend(authority::judge(&view));
}

/// All that the parts of this rule look at.
struct View<'a> {
    facts: &'a CertificatesFacts,
    at: Timestamp,
    now: Timestamp,
    days: [i64; 3],
    clock: Trust,
    reserve: Reserve,
    hindered: Hindered,
    own: Option<dialled::Own<'a>>,
}

impl<'a> View<'a> {
    fn of(certificates: &'a CertificatesFacts, at: Timestamp, facts: &'a NodeFacts) -> Self {
        let mut view = Self {
            facts: certificates,
            at,
            now: facts.now,
            days: facts.thresholds.certificate_days,
            clock: Trust::of(facts),
            reserve: Reserve::of(facts, certificates),
            hindered: Hindered::default(),
            own: dialled::Own::of(facts),
        };
        if matches!(view.reserve, Reserve::Unknown { .. }) && reserve::is_refused(facts) {
            let ended = view.etcd_ports().find_map(|served| view.ended(served));
            view.reserve = ended.map_or(view.reserve, |ended| Reserve::Shut { why: ended.why });
        }
        view.hindered = Hindered::of(&view, facts);
        view
    }

    /// `advice`, which names a restart of this server, with what stands against one and what etcd's quorum has to say to it.
    fn weighed(&self, advice: String) -> String {
        self.weighed_but("", advice)
    }

    /// The same of advice that is about the file `of` and says itself what to do about it first.
    fn weighed_but(&self, of: &str, advice: String) -> String {
        match self.hindered.words(of) {
            Some(words) => self.reserve.after(&words, &advice),
            None => self.reserve.before(advice, self.trouble().as_deref()),
        }
    }

    /// Why nobody takes this server's member of etcd for what it is, in words that follow a colon.
    fn trouble(&self) -> Option<String> {
        self.etcd_ports().find_map(|served| match self.file(&served.file) {
            Some(file) if pair::is_mismatched(file) => {
                Some(format!("{} and its key are of different pairs", file.path))
            }
            _ => self.ended(served).map(|ended| ended.why),
        })
    }

    fn etcd_ports(&self) -> impl Iterator<Item = &'a ServedCertificate> + use<'a> {
        self.facts.served.iter().filter(|served| served.name.starts_with("etcd"))
    }

    /// Whether the certificate of this port or one above it has ended: by a clock that may be believed, or by one that nobody
    /// keeps, which is then said. Not by one that is known to be wrong.
    fn ended(&self, served: &ServedCertificate) -> Option<Ended> {
        let shown = served.chain.value().filter(|chain| !chain.is_empty());
        let chain = shown.or_else(|| self.file(&served.file)?.certificates.value())?;
        let (link, if_right) = dates::ended(self, &self.path_of(chain))?;
        let of = match shown {
            Some(_) => format!("{} at {}", served.name, served.peer),
            None => served.file.clone(),
        };
        let (what, end) =
            (link.part.of(&format!("the certificate of {of}")), Moment(link.certificate.not_after));
        let unsure = if if_right { "if this clock is right, " } else { "" };
        Some(Ended { why: format!("{unsure}{what} ended on {end}"), part: link.part })
    }

    fn file(&self, path: &str) -> Option<&'a CertificateFile> {
        self.facts.files.iter().find(|file| file.path == path)
    }

    /// Certificates of every authority on this node.
    fn authorities(&self) -> impl Iterator<Item = &'a CertificateFacts> + use<'a> {
        let files = self.facts.files.iter().filter(|file| file.usage == CertificateUse::Authority);
        files.filter_map(|file| file.certificates.value()).flatten()
    }

    /// `chain`, its first certificate first, and on to the authority on this node.
    fn path_of(&self, chain: &'a [CertificateFacts]) -> Vec<Link<'a>> {
        let mut path: Vec<Link<'a>> = Vec::new();
        let mut next = chain.first().map(|leaf| Link { certificate: leaf, part: Part::Leaf });
        while let Some(link) = next.take() {
            let seen = path.iter().any(|earlier| earlier.certificate.sha256 == link.certificate.sha256);
            if seen || path.len() >= 6 {
                break;
            }
            let issuer = &link.certificate.issuer;
            let at_end = link.part == Part::Authority || *issuer == link.certificate.subject;
            path.push(link);
            if at_end {
                break;
            }
            // Of several of one name (an authority renewed under its name) the one that lives longest.
            let authority =
                self.authorities().filter(|ca| ca.subject == *issuer).max_by_key(|ca| ca.not_after);
            let sent = chain.iter().skip(1).find(|other| other.subject == *issuer);
            next = authority
                .map(|certificate| Link { certificate, part: Part::Authority })
                .or(sent.map(|certificate| Link { certificate, part: Part::Intermediate }));
        }
        path
    }
}

/// `finding` of this server's etcd, and where a certificate of its member is why, that: its advice to restart nothing must
/// not stand against the one restart that helps.
pub(super) fn beside(mut finding: Finding, facts: &NodeFacts) -> Finding {
    let certificates = facts.checks.certificates.as_ref().and_then(Fact::value);
    let Some(certificates) = certificates.filter(|_| finding.severity > Severity::Info) else {
        return finding;
    };
    let view = View::of(certificates, facts.now, facts);
    // Of its own pair CertificatesValid says how a restart helps.
    let own = view.etcd_ports().filter_map(|served| view.file(&served.file));
    let own = own.filter(|file| pair::is_mismatched(file)).map(|file| file.path.as_str()).next();
    let is_hindered = view.hindered.words(own.unwrap_or_default()).is_some();
    if let Some(cure) = view.reserve.cure().filter(|_| !is_hindered) {
        return finding.advice(cure);
    }
    let Some(trouble) = view.trouble() else { return finding };
    let what = match view.reserve.out() {
        _ if is_hindered => {
            format!(
                "{}: CertificatesValid says what to do, and what has to be done before a restart",
                upper(&trouble)
            )
        }
        Some(member) if view.reserve.is_lost() => format!(
            "{}: the one exception is the restart of exactly {member}'s server, which CertificatesValid names; it takes nothing from \
             a quorum that is lost, and brings none back by itself",
            upper(&trouble)
        ),
        Some(member) => format!(
            "{}: CertificatesValid says what to do, and the restart of exactly {member}'s server that it names takes nothing from \
             the quorum",
            upper(&trouble)
        ),
        None => format!("{}: see CertificatesValid too", upper(&trouble)),
    };
    finding.advice = format!("{} {what}.", finding.advice).trim_start().to_owned();
    finding
}

/// Paths in a message, few of them.
fn quoted<'a>(files: impl Iterator<Item = &'a CertificateFile>) -> String {
    names(files.map(|file| file.path.as_str()), QUOTED)
}

/// One certificate on the way from a leaf to its authority.
#[derive(Clone, Copy)]
struct Link<'a> {
    certificate: &'a CertificateFacts,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Leaf,
    Intermediate,
    Authority,
}

impl Part {
    /// What this part is of a leaf that `leaf` names.
    fn of(self, leaf: &str) -> String {
        match self {
            Part::Leaf => leaf.to_owned(),
            Part::Intermediate => format!("an intermediate of {leaf}"),
            Part::Authority => format!("the authority behind {leaf}"),
        }
    }
}

/// That what a port of etcd shows has ended.
struct Ended {
    /// In words that follow a colon.
    why: String,
    /// What of it: no restart renews an authority.
    part: Part,
}

/// The worst of `candidates` as the finding about `subject`.
fn worst(subject: String, at: Timestamp, candidates: Vec<Candidate>) -> Option<Finding> {
    candidate::worst(TYPE, subject, at, CLEAR, candidates)
}
