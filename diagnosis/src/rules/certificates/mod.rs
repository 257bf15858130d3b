//! `CertificatesValid`: what the ports show against what lies on disk, and when it ends (`facts/etcd.md`, section 8).
//!
//! A subject a port, one for the files that no port shows (`files`), one for the authorities (`ca`). Advice must be true
//! before it is given: what a restart renews hangs on the distribution, its version and the days left (`renewal`), and a
//! file that the last start left alone although it was due is no reason to wake anybody (D16).

mod authority;
mod dates;
mod files;
mod renewal;
mod served;

use std::time::Duration;

use outrider_protocol::{
    CertificateFacts, CertificateFile, CertificateUse, CertificatesFacts, ConditionType, NodeFacts, Timestamp,
};

use crate::candidate::{Candidate, first};
use crate::finding::{Finding, Judgement};
use crate::rules::clock::Trust;

const TYPE: ConditionType = ConditionType::CertificatesValid;
/// A second look has to confirm what may be a renewal under way; it follows within a minute.
const RAISE: Duration = Duration::from_secs(90);
const CLEAR: Duration = Duration::from_secs(30);
/// Files quoted in a message.
const QUOTED: usize = 4;

pub(super) fn judge(out: &mut Judgement, certificates: &CertificatesFacts, at: Timestamp, facts: &NodeFacts) {
    let view = View {
        facts: certificates,
        at,
        now: facts.now,
        days: facts.thresholds.certificate_days,
        clock: dates::trust(facts, certificates),
    };
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
}

impl<'a> View<'a> {
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

/// The worst of `candidates` as the finding about `subject`. What could not be read beside it must not soften what was read,
/// so the graver goes first.
fn worst(subject: String, at: Timestamp, mut candidates: Vec<Candidate>) -> Option<Finding> {
    candidates.sort_by_key(|candidate| std::cmp::Reverse((candidate.severity, candidate.badness())));
    first(TYPE, subject, at, CLEAR, candidates)
}
