//! The certificates that the balancer shows: validity, name, trust, time left.

use std::time::Duration;

use outrider_protocol::{
    BalancerMode, BalancerService, CertificateFacts, ConditionType, Fact, LoadBalancerFacts, NodeFacts,
    ProbeTarget, ReasonCode as R, Severity, Status, Timestamp, TlsFacts,
};

use super::chain;
use crate::finding::Finding;
use crate::rules::clock::{Trust, Validity};
use crate::wording::{Span, names};

const TYPE: ConditionType = ConditionType::LoadBalancerReachable;
const DAY: Duration = Duration::from_secs(86_400);

/// The worst finding over every handshake; `None` when no certificate was seen or all are good.
pub(super) fn judge(b: &LoadBalancerFacts, at: Timestamp, facts: &NodeFacts) -> Option<Finding> {
    let clock = Trust::of(facts);
    // In L4 clients are shown what the backend shows that they come to.
    let is_shown = |target: &ProbeTarget| match target {
        ProbeTarget::Balancer => true,
        _ => b.mode == BalancerMode::L4,
    };
    let seen = b.probes.iter().filter(|p| is_shown(&p.target));
    let seen = seen.filter_map(|p| p.tls.value().map(|tls| (p.peer.as_str(), tls)));
    let found = seen.filter_map(|(peer, tls)| handshake(b, peer, tls, at, facts, &clock));
    // The first of the worst, so that tries in another order do not change the words.
    found.fold(None, |worst: Option<Finding>, f| match &worst {
        Some(w) if (w.status == Status::False, w.severity) >= (f.status == Status::False, f.severity) => {
            worst
        }
        _ => Some(f),
    })
}

fn handshake(
    b: &LoadBalancerFacts,
    peer: &str,
    tls: &TlsFacts,
    at: Timestamp,
    facts: &NodeFacts,
    clock: &Trust,
) -> Option<Finding> {
    let leaf = tls.chain.first()?;
    let new =
        |status, severity, reason, message: String| Finding::new(TYPE, status, severity, reason, at, message);
    let days = facts.thresholds.certificate_days;
    let needed = needed(tls, at);
    let dated = dated(&needed, facts.now, days)?;
    let words = dated.words(peer, facts.now, leaf);
    let doubt = clock.doubt(dated.validity, |now| {
        self::dated(&needed, now, days).map_or(dated.validity, |there| there.validity)
    });
    let mut all = Vec::new();
    match (dated.validity, &doubt) {
        (Validity::Ended, None) => {
            let ended = |words, advice| {
                new(Status::False, Severity::Error, R::BalancerCertificateEnding, words).advice(advice)
            };
            all.push(match ended_authority(b, tls, facts.now) {
                Some(ca) => ended(
                    format!(
                        "{words} The authority that issued it ({}) ended too, {} ago.",
                        ca.subject,
                        Span(facts.now.since(ca.not_after))
                    ),
                    format!("First issue a new CA: what the old one issues is trusted by nobody, see RancherCA. Then: {RENEW}"),
                ),
                None => ended(words.clone(), RENEW.to_owned()),
            });
        }
        (Validity::NotYet, None) => {
            let early = new(Status::False, Severity::Error, R::BalancerCertificateWrong, words.clone());
            all.push(early.advice(
                "Compare the clocks first (ClockSynchronized): a clock that is behind makes every new certificate look so.",
            ));
        }
        _ => {}
    }
    if !tls.name_matches {
        let message = format!(
            "The certificate at {peer} does not cover {}; its names: {}{}.",
            b.host,
            sans(leaf),
            near_miss(leaf, &b.host)
        );
        all.push(new(Status::False, Severity::Error, R::BalancerCertificateWrong, message).advice(
            "Issue a certificate whose subject alternative names hold the Rancher host name (and its address, if \
             people use that), or correct the URL.",
        ));
    } else if let Some(doubt) = &doubt {
        // Whatever the clock says of it, one with another name is replaced.
        let severity = dated.validity.severity().max(Severity::Warn);
        let if_right = if dated.validity == Validity::Ended { RENEW } else { "" };
        all.push(
            new(Status::Unknown, severity, R::CertificateClockUnsure, doubt.on(&words))
                .advice(doubt.advice(if_right)),
        );
    }
    let is_in_date = matches!(dated.validity, Validity::Good | Validity::Ending(_)) && doubt.is_none();
    all.extend(trust(b, peer, tls, leaf, is_in_date, at));
    if let (Validity::Ending(severity), None) = (dated.validity, &doubt) {
        all.push(
            new(Status::True, severity, R::BalancerCertificateEnding, words)
                .advice("Renew it where TLS ends, then see that the new one is served here too: renewed on disk is not served."),
        );
    }
    // One fault does not hide another: what is issued anew has to be right in all of them (E17).
    all.into_iter().reduce(Finding::beside).or_else(|| left_over(tls, peer, at, facts.now))
}

/// Whether the chain leads to somebody who is trusted here. Wrong dates are told by the caller where they show in what was
/// sent.
fn trust(
    b: &LoadBalancerFacts,
    peer: &str,
    tls: &TlsFacts,
    leaf: &CertificateFacts,
    is_in_date: bool,
    at: Timestamp,
) -> Option<Finding> {
    let new =
        |status, severity, reason, message: String| Finding::new(TYPE, status, severity, reason, at, message);
    // A cluster's own ports are served by its own CA, which this machine need not know.
    if b.service != BalancerService::Rancher {
        return None;
    }
    match &tls.trust {
        Fact::Known { value: why, .. } if why.is_empty() => None,
        Fact::Known { value: why, .. } if why.contains(NOT_FOR_SERVERS) => {
            let message =
                format!("The certificate at {peer} ({}) is not made for servers: {why}.", leaf.subject);
            Some(new(Status::False, Severity::Error, R::BalancerCertificateWrong, message).advice(
                "Issue one with the extended key usage serverAuth (TLS Web Server Authentication), or without that extension, \
                 and give it to whoever ends TLS.",
            ))
        }
        Fact::Known { value: why, .. } if why.contains("by this clock") => {
            if !is_in_date {
                return None;
            }
            let message = format!("By its dates the certificate at {peer} is not trusted: {why}.");
            let clock = "Compare the clocks first (ClockSynchronized): by their own dates, all that were sent are good now. If \
                         this clock is right, the root has ended that this machine knows: renew it in its store, or in ca of \
                         [[load_balancer]].";
            Some(new(Status::True, Severity::Warn, R::BalancerCertificateWrong, message).advice(clock))
        }
        Fact::Known { value: why, .. } => Some(chain::judge(b, peer, tls, why, at)),
        Fact::Unknown { cause, detail, .. } => {
            let message = format!(
                "Whether the certificate at {peer} leads to a trusted authority cannot be told: the configured CA is of no use \
                 ({cause}): {detail}."
            );
            Some(new(Status::True, Severity::Warn, R::BalancerCaUnknown, message).advice(
                "Let ca in [[load_balancer]] name a PEM file with the certificate of the CA, which Outrider may read.",
            ))
        }
        _ => None,
    }
}

/// An authority on the way from the leaf that has ended, as it was sent or as Rancher publishes it; of two of one name, the
/// one that ends last counts.
fn ended_authority<'a>(
    b: &'a LoadBalancerFacts,
    tls: &'a TlsFacts,
    now: Timestamp,
) -> Option<&'a CertificateFacts> {
    path(&tls.chain).into_iter().find_map(|one| {
        let published = chain::published_certificates(b).into_iter().flatten();
        let issuers =
            tls.chain.iter().chain(published).filter(|c| c.subject == one.issuer && c.sha256 != one.sha256);
        issuers.max_by_key(|c| c.not_after).filter(|c| c.not_after <= now)
    })
}

/// What the agent says of a certificate whose extended key usage leaves servers out.
const NOT_FOR_SERVERS: &str = "extended key usage";

/// The certificates whose dates count: where the machine trusts the chain, only the leaf's own and what was good at that time;
/// otherwise those on the way from the leaf to its issuers.
fn needed(tls: &TlsFacts, at: Timestamp) -> Vec<&CertificateFacts> {
    let leaf = tls.chain.first();
    let trusted = tls.trust.value().is_some_and(String::is_empty);
    let good = |c: &CertificateFacts| c.not_before <= at && at < c.not_after;
    let path = path(&tls.chain);
    let counts =
        |c: &&CertificateFacts| leaf.is_some_and(|leaf| std::ptr::eq(leaf, *c)) || !trusted || good(c);
    path.into_iter().filter(counts).collect()
}

/// From the leaf from issuer to issuer as far as they were sent; of two of one name, the one that ends last.
fn path(chain: &[CertificateFacts]) -> Vec<&CertificateFacts> {
    let mut path: Vec<&CertificateFacts> = chain.first().into_iter().collect();
    while let Some(last) = path.last().filter(|c| c.subject != c.issuer) {
        let issuers =
            chain.iter().filter(|c| c.subject == last.issuer && path.iter().all(|p| p.sha256 != c.sha256));
        match issuers.max_by_key(|c| c.not_after) {
            Some(issuer) => path.push(issuer),
            None => break,
        }
    }
    path
}

/// A certificate that has ended is sent along, and nobody needs it.
fn left_over(tls: &TlsFacts, peer: &str, at: Timestamp, now: Timestamp) -> Option<Finding> {
    let ended = tls.chain.iter().skip(1).find(|c| c.not_after <= now)?;
    let issued = path(&tls.chain).iter().any(|c| c.sha256 == ended.sha256);
    let (severity, why) = match issued {
        // Old clients go by what is sent and never look for another way (as with AddTrust in 2020).
        true => (Severity::Warn, "the machine knows a newer one in its place; old clients may not"),
        false => (Severity::Info, "it issued none of the others"),
    };
    let message = format!(
        "A certificate that ended {} ago ({}) is sent along at {peer}, and the chain is trusted without it: {why}.",
        Span(now.since(ended.not_after)),
        ended.subject
    );
    let found = Finding::new(TYPE, Status::True, severity, R::BalancerCertificateEnding, at, message);
    Some(found.advice(
        "Take it out of the file where TLS ends (the balancer in L7, the ingress in L4), or put the newer one in its place. \
         The server's own certificate needs no change.",
    ))
}

const RENEW: &str = "Renew it where TLS ends (the balancer in L7, Rancher's ingress in L4). If it looks valid elsewhere, check this \
                     clock.";

/// What the dates of a chain say at one moment, and the certificate that decides.
struct Dated<'a> {
    validity: Validity,
    certificate: &'a CertificateFacts,
}

fn dated<'a>(chain: &[&'a CertificateFacts], now: Timestamp, days: [i64; 3]) -> Option<Dated<'a>> {
    let of = |validity, certificate: &&'a CertificateFacts| Some(Dated { validity, certificate });
    if let Some(ended) = chain.iter().find(|c| c.not_after <= now) {
        return of(Validity::Ended, ended);
    }
    if let Some(early) = chain.iter().find(|c| c.not_before > now) {
        return of(Validity::NotYet, early);
    }
    let leaf = chain.first()?;
    let left = leaf.not_after.since(now);
    let life = leaf.not_after.since(leaf.not_before);
    // Fixed numbers of days suit certificates of a year; one of 90 days is renewed with 30 left and must not warn then.
    let limit = |days: i64, share: u32| {
        (DAY * u32::try_from(days.clamp(0, 36_500)).unwrap_or_default()).min(life / share)
    };
    let validity = if left <= limit(days[2], 12) {
        Validity::Ending(Severity::Error)
    } else if left <= limit(days[1], 4) {
        Validity::Ending(Severity::Warn)
    } else if left <= limit(days[0], 3) {
        Validity::Ending(Severity::Info)
    } else {
        Validity::Good
    };
    of(validity, leaf)
}

impl Dated<'_> {
    fn words(&self, peer: &str, now: Timestamp, leaf: &CertificateFacts) -> String {
        let Dated { certificate, validity } = self;
        let (from, end, subject) = (certificate.not_before, certificate.not_after, &certificate.subject);
        let which =
            if std::ptr::eq(*certificate, leaf) { "The certificate" } else { "An issuer's certificate" };
        match validity {
            Validity::Ended => {
                format!("{which} at {peer} ended {} ago, on {end} ({subject}).", Span(now.since(end)))
            }
            Validity::NotYet => {
                let to_come = Span(from.since(now));
                format!(
                    "{which} at {peer} is not valid before {from}, {to_come} from now by this clock ({subject})."
                )
            }
            _ => format!(
                "{which} at {peer} ends in {}, on {end} ({subject}; it was made for {}).",
                Span(end.since(now)),
                Span(end.since(from))
            ),
        }
    }
}

fn sans(leaf: &CertificateFacts) -> String {
    if leaf.sans.is_empty() { format!("none ({})", leaf.subject) } else { names(&leaf.sans, 8) }
}

/// Why a name that looks covered is not, as a clause.
fn near_miss(leaf: &CertificateFacts, host: &str) -> String {
    if host.parse::<core::net::IpAddr>().is_ok() {
        return match leaf.sans.iter().any(|name| name == host) {
            true => {
                "; the address stands there as a DNS name, which does not count for an address".to_owned()
            }
            false => "; it is an address, and needs an entry of its own (IP:)".to_owned(),
        };
    }
    let too_deep = leaf.sans.iter().find(|name| {
        name.strip_prefix("*.").is_some_and(|domain| {
            host.strip_suffix(domain)
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| rest.contains('.'))
        })
    });
    match too_deep {
        Some(wildcard) => format!("; {wildcard} stands for one label only"),
        None => String::new(),
    }
}
