//! Rancher's cloud credentials. Four sources, the better before the worse: the token object, the mark that Rancher made the
//! token last, the annotation on the credential (which may be stale), nothing.

use std::time::Duration;

use outrider_protocol::{
    CloudCredential, CloudCredentials, CloudKind, Fact, KubeconfigContent, ReasonCode as R, Severity, Status,
    Timestamp, TokenForm, UnknownCause,
};

use super::end::End;
use super::{TYPE, Verdict, View, kubeconfig};
use crate::finding::{Finding, Judgement};
use crate::rules::clock::Validity;
use crate::wording::{Count, Moment, Span, names};

/// Subject of what is about all of them.
pub(super) const ALL: &str = "cloud credentials";
const NAMED: usize = 8;
/// The longest that STS gives a key for (`GetSessionToken`).
const STS_AT_MOST: Duration = Duration::from_secs(36 * 3600);

pub(super) fn judge(out: &mut Judgement, view: &View, all: &CloudCredentials) {
    for credential in &all.credentials {
        let verdict = one(view, all, credential);
        out.findings.push(verdict.into_finding(view).subject(subject(credential)));
    }
    if all.credentials.is_empty() || all.left_out > 0 {
        let others = Count(all.others as usize, "credential");
        let (status, severity, reason, message) = if all.left_out > 0 {
            let message = format!(
                "{} of Harvester and AWS at {} are too many to look at: {} were left out.",
                all.credentials.len() + all.left_out as usize,
                all.server,
                all.left_out
            );
            (Status::Unknown, Severity::Info, R::CredentialEndUnknown, message)
        } else {
            let message = format!(
                "{} holds no credential of Harvester or AWS, and {others} of other clouds.",
                all.server
            );
            (Status::True, Severity::Ok, R::CredentialsGood, message)
        };
        out.findings.push(Finding::new(TYPE, status, severity, reason, view.at, message).subject(ALL));
    }
}

fn subject(credential: &CloudCredential) -> String {
    match credential.name.as_str() {
        "" => format!("cloud credential {}", credential.id),
        name => format!("cloud credential {name} ({})", credential.id),
    }
}

/// What to do about a read that failed.
pub(super) fn access_advice(cause: &UnknownCause) -> &'static str {
    match cause {
        UnknownCause::Unauthenticated => "credentials.rancher_kubeconfig is not accepted: give one that is.",
        UnknownCause::Forbidden => {
            "credentials.rancher_kubeconfig lacks the right named above; docs/rancher-access/reader.yaml gives all that are wanted \
             and none beyond (for cloud credentials: list secrets in cattle-global-data, get tokens.management.cattle.io, list \
             clusters.provisioning.cattle.io)."
        }
        UnknownCause::InvalidInput | UnknownCause::PermissionDenied => {
            "Correct credentials.rancher_kubeconfig in a file of the configuration that only root may write; the root helper \
             opens it then."
        }
        _ => "See the way from this node to the server of credentials.rancher_kubeconfig.",
    }
}

fn one(view: &View, all: &CloudCredentials, credential: &CloudCredential) -> Verdict {
    let verdict = match credential.kind {
        CloudKind::Amazon => amazon(view, credential),
        _ => harvester(view, all, credential),
    };
    let users = used_by(credential);
    // What nobody uses harms nobody.
    let is_unused = matches!(&credential.used_by, Fact::Known { value, .. } if value.is_empty());
    let severity = if is_unused { verdict.severity.min(Severity::Warn) } else { verdict.severity };
    Verdict { severity, ..verdict }.also(&users)
}

fn used_by(credential: &CloudCredential) -> String {
    match &credential.used_by {
        Fact::Known { value, .. } if value.is_empty() => "No cluster uses it.".to_owned(),
        Fact::Known { value, .. } => format!(
            "{} {} it: {}.",
            Count(value.len(), "cluster"),
            if value.len() == 1 { "uses" } else { "use" },
            names(value, NAMED)
        ),
        Fact::Unknown { detail, .. } => {
            format!("Which clusters use it could not be read: {}.", detail.trim_end_matches('.'))
        }
        _ => String::new(),
    }
}

/// Long-lived keys say nothing of an end; a temporary one does by its first letters (G8).
fn amazon(view: &View, credential: &CloudCredential) -> Verdict {
    let key = match credential.key_hint.as_str() {
        "" => "Its access key id cannot be read".to_owned(),
        hint => format!("Its access key id ends in {hint}"),
    };
    let age = credential.created_at.map_or_else(String::new, |made| {
        format!("; the credential was made {} ago", Span(view.now.since(made)))
    });
    if credential.temporary {
        // The credential is no older than its key, unless it was edited since; by how much is not told.
        let ended = credential.created_at.is_some_and(|made| {
            let validity = |now: Timestamp| match now.since(made) > STS_AT_MOST {
                true => Validity::Ended,
                false => Validity::Good,
            };
            validity(view.now) == Validity::Ended && view.doubt(Validity::Ended, validity).is_none()
        });
        let (severity, end) = match ended {
            true => (
                Severity::Error,
                "such a key lasts 36 h at most, so it has ended if the credential was not edited since",
            ),
            false => (Severity::Warn, "it ends within hours"),
        };
        let message = format!(
            "{key} and is a temporary one of AWS STS{age}: {end}, and Rancher keeps it as if it lasted."
        );
        return Verdict::new(Status::False, severity, R::CredentialTemporary, message)
            .advice("Give Rancher the long-lived key of a user made for it, and edit the cloud credential to hold that.");
    }
    let message = format!("{key}{age}. AWS keys have no end of their own.");
    Verdict::new(Status::True, Severity::Ok, R::CredentialsGood, message)
}

const RENEW: &str = "Without it no machine is made or deleted. Download a new kubeconfig of the Harvester cluster in Rancher \
     and put it into this cloud credential, or make a new credential and edit the clusters that use it to name that one; set \
     kubeconfig-default-token-ttl-minutes to 0 before, or the new one ends as well (Rancher v2.12 and later make the token \
     last by themselves). Delete no credential that a cluster still names.";

fn harvester(view: &View, all: &CloudCredentials, credential: &CloudCredential) -> Verdict {
    let content = match &credential.kubeconfig {
        Some(Fact::Known { value, .. }) if value.fault.is_empty() => value,
        Some(Fact::Known { value, .. }) => return unusable(&value.fault),
        Some(Fact::Unknown { detail, .. }) => return unusable(detail),
        _ => return unusable("there is none in it"),
    };
    let what = match token_name(content) {
        Some(name) => format!("Its token {name}"),
        None => "Its credential".to_owned(),
    };
    let mut verdict = end(view, credential, content).judge(view, &what, RENEW).also(&stale(credential));
    if let Fact::Unknown { cause, detail, .. } = &credential.token {
        verdict = by_hearsay(verdict, credential, content, detail, access_advice(cause));
    }
    let also = [wrong_kind(content), shared(all, credential, content)];
    also.into_iter().flatten().fold(verdict, Verdict::beside)
}

/// `verdict` where the token itself could not be read: it rests on the annotation, or on nothing (G2).
fn by_hearsay(
    verdict: Verdict,
    credential: &CloudCredential,
    content: &KubeconfigContent,
    why: &str,
    access: &str,
) -> Verdict {
    if verdict.reason == R::CredentialEndUnknown {
        return verdict.advice(access);
    }
    if credential.expiration.is_none() || credential.made_to_last || token_name(content).is_none() {
        return verdict;
    }
    let words = format!(
        "The annotation may be left over from before a renewal, and the token itself could not be read: {}.",
        why.trim_end_matches('.')
    );
    let advice = match verdict.severity {
        Severity::Ok => access.to_owned(),
        _ if verdict.reason == R::CredentialClockUnsure => verdict.advice.clone(),
        _ => {
            format!("See first what the token itself says. {access} If it bears that out: {}", verdict.advice)
        }
    };
    Verdict { severity: verdict.severity.max(Severity::Info), ..verdict }.also(&words).advice(advice)
}

fn unusable(fault: &str) -> Verdict {
    let message = format!("The kubeconfig in it cannot be used: {}.", fault.trim_end_matches('.'));
    Verdict::new(Status::False, Severity::Error, R::CredentialUnusable, message).advice(RENEW)
}

fn token_name(content: &KubeconfigContent) -> Option<&str> {
    let token = content.token.as_ref()?.value()?;
    (token.form == TokenForm::Rancher).then_some(token.name.as_str())
}

fn end(view: &View, credential: &CloudCredential, content: &KubeconfigContent) -> End {
    let annotation = credential.expiration.as_deref().map(End::of_annotation);
    match (&credential.token, token_name(content)) {
        (Fact::Known { value, .. }, _) => End::of_token(value),
        (Fact::Absent { .. }, Some(name)) => End::Gone(format!(
            "Rancher has no token {name} any more (an expired one is purged within the hour, and the credential stays)"
        )),
        _ if credential.made_to_last => End::Never("Rancher has made the token in it last"),
        (Fact::Unknown { detail, .. }, Some(name)) => {
            let unread = format!("the token {name} could not be read: {}", detail.trim_end_matches('.'));
            match annotation {
                None => End::Unknown(unread),
                Some(End::Unknown(why)) => End::Unknown(format!("{unread}; and {why}")),
                Some(end) => end,
            }
        }
        _ => match content.token.as_ref().and_then(Fact::value) {
            Some(token) if token.form == TokenForm::ServiceAccount || token.form == TokenForm::Jwt => {
                let early = token.not_before.filter(|from| *from > view.now);
                match token.expires_at {
                    _ if !token.fault.is_empty() => End::Unknown(token.fault.clone()),
                    _ if early.is_some() => End::Unknown(format!(
                        "its token is not valid before {}, which is still to come: a clock is wrong",
                        Moment(early.unwrap_or_default())
                    )),
                    Some(end) => End::At(end, "by its claim exp".to_owned()),
                    None => End::Never("its claims name none"),
                }
            }
            _ => match content.certificate.as_ref().and_then(Fact::value) {
                Some(certificate) => {
                    End::At(certificate.not_after, "as its client certificate says".to_owned())
                }
                None => annotation.unwrap_or_else(|| {
                    End::Unknown("neither a token of Rancher nor an annotation tells it".to_owned())
                }),
            },
        },
    }
}

/// The annotation is left over where the token object says otherwise (G2).
fn stale(credential: &CloudCredential) -> String {
    let (Some(text), Some(token)) = (&credential.expiration, credential.token.value()) else {
        return String::new();
    };
    let (annotated, real) = (End::of_annotation(text), End::of_token(token));
    let differs = match (&annotated, &real) {
        (End::At(a, _), End::At(b, _)) => a.as_millis().abs_diff(b.as_millis()) > 60_000,
        (End::At(..) | End::Gone(_), End::Never(_)) | (End::Gone(_), End::At(..)) => true,
        _ => false,
    };
    if differs {
        format!("Its annotation rancher.io/expiration-timestamp, {text:?}, says otherwise and is stale.")
    } else {
        String::new()
    }
}

/// A node driver needs broad rights through Rancher; a cloud provider's limited ServiceAccount is not enough (G6).
fn wrong_kind(content: &KubeconfigContent) -> Option<Verdict> {
    let is_service_account =
        content.token.as_ref().and_then(Fact::value).is_some_and(|t| t.form == TokenForm::ServiceAccount);
    (is_service_account && !kubeconfig::is_through_rancher(content)).then(|| {
        let message = format!(
            "It holds a ServiceAccount's kubeconfig of {}, as a cloud provider has it; a node driver needs one through \
             Rancher, with broad rights.",
            content.server
        );
        Verdict::new(Status::False, Severity::Warn, R::CredentialWrongKind, message).advice(
            "Download the Harvester cluster's kubeconfig in Rancher (Virtualization Management) and put it into this \
             credential. See first whether machines can be made with the one it has: a ServiceAccount may have been given the \
             rights.",
        )
    })
}

/// Rancher refuses a token that another credential holds (G5).
fn shared(
    all: &CloudCredentials,
    credential: &CloudCredential,
    content: &KubeconfigContent,
) -> Option<Verdict> {
    let name = token_name(content)?;
    let holds = |other: &&CloudCredential| {
        let content = other.kubeconfig.as_ref().and_then(Fact::value);
        other.id != credential.id && content.and_then(token_name) == Some(name)
    };
    let others: Vec<String> = all.credentials.iter().filter(holds).map(subject).collect();
    if others.is_empty() {
        return None;
    }
    let message = format!(
        "Its token {name} is held by {} too; Rancher refuses such a credential when it is edited.",
        names(others, NAMED)
    );
    Some(Verdict::new(Status::True, Severity::Warn, R::CredentialShared, message).advice(
        "Give each credential a kubeconfig of its own: deleting one of them may take the token, and with it the other.",
    ))
}
