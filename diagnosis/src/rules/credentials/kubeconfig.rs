//! One kubeconfig of this node: what is in it, when it ends, and what its server said.

use outrider_protocol::{
    CredentialKind as Kind, Fact, KubeconfigContent, KubeconfigFacts, KubeconfigPurpose as Purpose,
    ReasonCode as R, Severity, Status, TokenFacts, TokenForm, UnknownCause,
};

use super::end::End;
use super::{Verdict, View, answer};
use crate::wording::{Moment, Span};

pub(super) fn judge(view: &View, found: &KubeconfigFacts) -> Verdict {
    let content = match &found.content {
        Fact::Known { value, .. } => value,
        Fact::Unknown { cause: UnknownCause::InvalidInput, detail, .. } => {
            let message = format!("{} cannot be used: {}.", found.path, detail.trim_end_matches('.'));
            return unusable(found, message);
        }
        Fact::Unknown { cause, detail, .. } => {
            let message = format!("{} could not be read: {}.", found.path, detail.trim_end_matches('.'));
            return Verdict::unknown(cause, Severity::Warn, message);
        }
        Fact::Absent { .. } => {
            let message = format!("{} is named in [credentials] and is not there.", found.path);
            return Verdict::new(Status::False, Severity::Warn, R::CredentialUnusable, message).advice(
                "Correct the path in [credentials] of Outrider's configuration, or put the file there.",
            );
        }
        Fact::NotApplicable { reason, .. } => {
            return Verdict::new(
                Status::Unknown,
                Severity::Info,
                R::CredentialEndUnknown,
                format!("{reason}."),
            );
        }
    };
    if !content.fault.is_empty() {
        return unusable(found, format!("No client can use {}: {}.", found.path, content.fault));
    }
    let written = by_what_is_written(view, found, content);
    let mut verdict = answer::judge(found, content, written);
    if found.purpose == Purpose::CloudProvider && is_through_rancher(content) {
        let message = format!(
            "{} holds a kubeconfig through Rancher ({}), where the cloud provider needs a ServiceAccount's of Harvester \
             itself; Rancher's tokens end.",
            found.path, content.server
        );
        let wrong = Verdict::new(Status::False, Severity::Warn, R::CredentialWrongKind, message);
        verdict = wrong.advice(WRONG_KIND_ADVICE).beside(verdict);
    }
    verdict.also(&remarks(found, content))
}

fn unusable(found: &KubeconfigFacts, message: String) -> Verdict {
    let (severity, advice) = match found.purpose {
        Purpose::CloudProvider => (
            Severity::Error,
            "Harvester's cloud provider and CSI driver read this file: make it anew with Harvester's kubeconfig API (a \
             ServiceAccount of the guest cluster's namespace) and restart the provider's pod.",
        ),
        _ => (Severity::Warn, "Make the file anew from where it came, or correct what is named."),
    };
    Verdict::new(Status::False, severity, R::CredentialUnusable, message).advice(advice)
}

/// What renews a kubeconfig, by its place.
pub(super) fn renewal(found: &KubeconfigFacts, content: &KubeconfigContent) -> &'static str {
    let is_ranchers =
        content.token.as_ref().and_then(Fact::value).is_some_and(|t| t.form == TokenForm::Rancher);
    match found.purpose {
        Purpose::CloudProvider if is_ranchers => WRONG_KIND_ADVICE,
        Purpose::CloudProvider => {
            "Make a new kubeconfig for the guest cluster's ServiceAccount with Harvester's kubeconfig API, put it in the \
             place of this one on every node that has it, and restart the cloud provider's pod."
        }
        Purpose::Admin => {
            "RKE2 and K3s write it anew at a start, with a client certificate that is renewed then when its end is near; \
             kubeadm does so with kubeadm certs renew. The condition CertificatesValid says what a restart renews here."
        }
        _ if is_ranchers => {
            "Download a new kubeconfig from Rancher and put it in the place of this one. Rancher's setting \
             kubeconfig-default-token-ttl-minutes says how long the new one will live."
        }
        _ => "Get a new one from where it came and put it in its place.",
    }
}

const WRONG_KIND_ADVICE: &str = "Give the cloud provider a kubeconfig of its own kind: a ServiceAccount's, made with Harvester's kubeconfig API for the \
     guest cluster, whose token has no end and whose server is Harvester's own address. A kubeconfig downloaded from Rancher \
     ends after kubeconfig-default-token-ttl-minutes.";

fn by_what_is_written(view: &View, found: &KubeconfigFacts, content: &KubeconfigContent) -> Verdict {
    let advice = renewal(found, content);
    let mut verdicts = Vec::new();
    match &content.token {
        Some(Fact::Known { value, .. }) => verdicts.push(token(view, found, value, advice)),
        Some(Fact::Absent { source, .. }) => {
            verdicts.push(unusable(found, format!("The token's file {source} is not there.")));
        }
        Some(Fact::Unknown { cause, detail, source, .. }) => {
            let message = format!("The token's file {source} could not be read: {detail}.");
            verdicts.push(Verdict::unknown(cause, Severity::Warn, message));
        }
        _ => {}
    }
    match &content.certificate {
        Some(Fact::Known { value, .. }) => {
            let what = format!("The client certificate in {}", found.path);
            let end = End::At(value.not_after, format!("as it says itself ({})", value.subject));
            verdicts.push(end.judge(view, &what, advice));
        }
        Some(Fact::Absent { source, .. }) => {
            verdicts.push(unusable(found, format!("The client certificate {source} is not there.")));
        }
        Some(Fact::Unknown { cause: UnknownCause::InvalidInput, detail, source, .. }) => {
            verdicts.push(unusable(found, format!("The client certificate in {source} is none: {detail}.")));
        }
        Some(Fact::Unknown { cause, detail, source, .. }) => {
            let message = format!("The client certificate {source} could not be read: {detail}.");
            verdicts.push(Verdict::unknown(cause, Severity::Warn, message));
        }
        _ => {}
    }
    verdicts.into_iter().reduce(Verdict::beside).unwrap_or_else(|| without_an_end(found, content))
}

fn token(view: &View, found: &KubeconfigFacts, token: &TokenFacts, advice: &str) -> Verdict {
    // What its server takes can be used, whatever is made of its claims here.
    if !token.fault.is_empty() && !is_known(found) {
        return unusable(found, format!("The token in {} cannot be used: {}.", found.path, token.fault));
    }
    let what = match token.form {
        TokenForm::ServiceAccount => format!("The ServiceAccount token in {} ({})", found.path, token.name),
        TokenForm::Rancher => format!("Rancher's token {} in {}", token.name, found.path),
        _ => format!("The token in {}", found.path),
    };
    if let Some(from) = token.not_before.filter(|from| *from > view.now) {
        let by = Span(from.since(view.now));
        let message =
            format!("{what} is not valid before {}, {by} from now: a clock is wrong.", Moment(from));
        return Verdict::new(Status::Unknown, Severity::Warn, R::CredentialClockUnsure, message).advice(
            "Compare this clock with another (date -u): a clock that is behind makes every new token look so.",
        );
    }
    let end = match (&token.form, token.expires_at) {
        _ if !token.fault.is_empty() => End::Unknown(token.fault.clone()),
        (_, Some(end)) => End::At(end, "by its claim exp".to_owned()),
        (TokenForm::ServiceAccount | TokenForm::Jwt, None) => End::Never("its claims name none"),
        (TokenForm::Rancher, None) => by_rancher(found),
        _ => End::Unknown("the token says nothing of itself".to_owned()),
    };
    end.judge(view, &what, advice)
}

/// 403 is given to whom the server knows.
fn is_known(found: &KubeconfigFacts) -> bool {
    found.call.value().is_some_and(|call| matches!(call.status, 200..=299 | 403))
}

/// Rancher's own word on its token, where it was asked with the token itself.
fn by_rancher(found: &KubeconfigFacts) -> End {
    match found.call.value().and_then(|call| call.token.as_ref()) {
        Some(Fact::Known { value, .. }) => End::of_token(value),
        Some(Fact::Unknown { detail, .. }) => End::Unknown(format!(
            "only Rancher knows the end of its tokens, and could not be asked for it: {}",
            detail.trim_end_matches('.')
        )),
        _ => End::Unknown("only Rancher knows the end of its tokens".to_owned()),
    }
}

/// No token and no certificate.
fn without_an_end(found: &KubeconfigFacts, content: &KubeconfigContent) -> Verdict {
    let path = &found.path;
    let unknown =
        |message: String| Verdict::new(Status::Unknown, Severity::Info, R::CredentialEndUnknown, message);
    if content.kinds.contains(&Kind::Exec) {
        return unknown(format!("{path} names the program {:?}, which makes a credential when one is needed.", content.exec))
            .advice("Outrider never runs such a program; see its own documentation for how long its credentials live.");
    }
    if content.kinds.contains(&Kind::Basic) || content.kinds.contains(&Kind::AuthProvider) {
        let what = if content.kinds.contains(&Kind::Basic) {
            "a user name and password, which Kubernetes has not taken since 1.19"
        } else {
            "an auth provider, which clients have not known since Kubernetes 1.26"
        };
        return unusable(found, format!("{path} holds {what}."));
    }
    unusable(
        found,
        format!("The user {:?} in {path} has no credential: requests go as nobody.", content.user),
    )
}

fn remarks(found: &KubeconfigFacts, content: &KubeconfigContent) -> String {
    let mut words = Vec::new();
    if content.contexts > 1 {
        words.push(format!(
            "Only the current context {:?} of {} was looked at.",
            content.current_context, content.contexts
        ));
    }
    if found.world_readable {
        words.push("Every user of this machine may read the file.".to_owned());
    }
    words.join(" ")
}

/// Whether this is a kubeconfig through Rancher, whose token ends, where a ServiceAccount's belongs (G6).
pub(super) fn is_through_rancher(content: &KubeconfigContent) -> bool {
    content.server.contains("/k8s/clusters/")
        || content.token.as_ref().and_then(Fact::value).is_some_and(|token| token.form == TokenForm::Rancher)
}
