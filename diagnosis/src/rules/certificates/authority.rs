//! Subject `ca`: the authorities' own end.
//!
//! Replacing an authority is a piece of work over every node, so it is told earlier than a leaf: informed at three times
//! the days of a leaf, warned at the days that inform of a leaf, an error at those that warn.

use outrider_protocol::{
    CertificateFacts, CertificateFile, CertificateUse, Distribution, ReasonCode as R, Severity, Status,
};

use super::dates::{Verdict, dated};
use super::{Candidate, Link, Part, View, worst};
use crate::finding::Finding;
use crate::wording::{Count, Moment, Span, names};

const SUBJECT: &str = "ca";

pub(super) fn judge(view: &View<'_>) -> Option<Finding> {
    // The same authority lies in several files.
    let mut all: Vec<(&CertificateFile, &CertificateFacts)> = Vec::new();
    for file in view.facts.files.iter().filter(|file| file.usage == CertificateUse::Authority) {
        // The first signs; what it leads to inside the file ends it too. Others are there to be trusted a while longer.
        for link in view.path_of(file.certificates.value().map_or(&[], Vec::as_slice)) {
            if !all.iter().any(|(_, known)| known.sha256 == link.certificate.sha256) {
                all.push((file, link.certificate));
            }
        }
    }
    let [info, warn, _] = view.days;
    let days = [info.saturating_mul(3), info, warn];
    let rank = |certificate: &CertificateFacts, now| {
        let link = Link { certificate, part: Part::Leaf };
        dated(&[link], now, days).map(|dated| dated.verdict)
    };
    let (file, first) = all.iter().copied().min_by_key(|(_, certificate)| {
        (std::cmp::Reverse(rank(certificate, view.now)), certificate.not_after)
    })?;
    let verdict = rank(first, view.now)?;
    let outlived: Vec<&str> = outlived_by(view, first);
    let and = match outlived.len() {
        0 => String::new(),
        _ => format!("; it ends before {}, which it signed", names(&outlived, 3)),
    };
    let (end, subject) = (first.not_after, &first.subject);
    let left = Span(end.since(view.now));
    let message = match verdict {
        Verdict::Ended => format!(
            "The authority in {} ended {} ago, on {} ({subject}): nothing it signed is valid any more.",
            file.path,
            Span(view.now.since(end)),
            Moment(end)
        ),
        Verdict::NotYet => format!(
            "The authority in {} is not valid before {} ({subject}).",
            file.path,
            Moment(first.not_before)
        ),
        Verdict::Ending(_) => {
            format!("The authority in {} ends in {left}, on {} ({subject}){and}.", file.path, Moment(end))
        }
        Verdict::Good => format!(
            "{} {} good for {left} more, the first until {} ({}).",
            Count(all.len(), "authority certificate"),
            if all.len() == 1 { "is" } else { "are" },
            Moment(end),
            file.path
        ),
    };
    let there =
        |now| all.iter().filter_map(|(_, certificate)| rank(certificate, now)).max().unwrap_or(verdict);
    let candidate = match (view.clock.doubt(verdict, there), verdict) {
        (Some(doubt), _) => {
            let severity = verdict.severity().max(Severity::Warn);
            let message = doubt.on(&message);
            Candidate::new(Status::Unknown, severity, R::CertificateClockUnsure, message).advice(doubt.advice(""))
        }
        (_, Verdict::Good) => Candidate::new(Status::True, Severity::Ok, R::CertificatesInDate, message),
        (_, Verdict::Ending(severity)) => {
            Candidate::new(Status::True, severity, R::CertificateAuthorityEnding, message)
                .advice(advice(view, false))
        }
        (_, Verdict::NotYet) => {
            Candidate::new(Status::False, Severity::Error, R::CertificateNotYetValid, message)
                .advice(format!(
                    "Compare the clocks first (date -u; here it is {}): a clock that is behind makes every authority look so.",
                    Moment(view.now)
                ))
        }
        (_, Verdict::Ended) => {
            Candidate::new(Status::False, Severity::Error, R::CertificateAuthorityEnding, message)
                .advice(advice(view, true))
        }
    };
    worst(SUBJECT.to_owned(), view.at, vec![candidate])
}

/// Files whose certificate this authority signed and does not outlive.
fn outlived_by<'a>(view: &View<'a>, authority: &CertificateFacts) -> Vec<&'a str> {
    let leaves = view.facts.files.iter().filter(|file| file.usage != CertificateUse::Authority);
    leaves
        .filter(|file| {
            let leaf = file.certificates.value().and_then(|chain| chain.first());
            leaf.is_some_and(|leaf| leaf.issuer == authority.subject && leaf.not_after > authority.not_after)
        })
        .map(|file| file.path.as_str())
        .collect()
}

/// How an authority is replaced. With one that has ended nothing can be cross-signed to any use: who trusts it trusts
/// nothing that leads to it any more, so the new one has to be brought to every node.
pub(super) fn advice(view: &View<'_>, ended: bool) -> String {
    if ended {
        let how = match view.facts.distribution {
            Distribution::Rke2 => {
                " Start at RKE2's documentation of certificate rotate-ca, where it replaces authorities without \
                 cross-signing."
            }
            Distribution::K3s => {
                " Start at K3s' documentation of certificate rotate-ca, where it replaces authorities without \
                 cross-signing."
            }
            Distribution::Rke1 => {
                " rke cert rotate --rotate-ca makes one; RKE1 is out of support: move to RKE2 or K3s instead."
            }
            _ => " Start at the manual rotation of CA certificates in the Kubernetes documentation.",
        };
        return format!(
            "No restart renews an authority, and nothing the ended one signs helps. A new authority, and certificates that \
             it signed, have to be brought to every node, kubeconfig and join token: a person's step, planned over the \
             whole cluster, with a backup of these files and of etcd first.{how}"
        );
    }
    let how = match view.facts.distribution {
        Distribution::Rke2 => "rke2 certificate rotate-ca, with an authority cross-signed by the old one",
        Distribution::K3s => "k3s certificate rotate-ca, with an authority cross-signed by the old one",
        Distribution::Rke1 => {
            "rke cert rotate --rotate-ca; RKE1 is out of support: move to RKE2 or K3s instead"
        }
        _ => "the manual rotation of CA certificates of the Kubernetes documentation",
    };
    format!(
        "No restart renews an authority. Plan its replacement while it is still valid ({how}); it reaches every node, \
         kubeconfig and join token, so try it on another cluster first."
    )
}
