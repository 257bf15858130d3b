//! One kubeconfig of this node: what is in it, when it ends, and what its server said.

use outrider_protocol::{
    CredentialCall, CredentialKind as Kind, Fact, KubeconfigContent, KubeconfigFacts,
    KubeconfigPurpose as Purpose, ReasonCode as R, Severity, Status, TokenFacts, TokenForm, UnknownCause,
};

use super::end::End;
use super::{Verdict, View};
use crate::wording::{Count, Moment, Span};

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
    let mut verdict = by_the_answer(found, content, written);
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
fn renewal(found: &KubeconfigFacts, content: &KubeconfigContent) -> &'static str {
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
    if !token.fault.is_empty() && !is_accepted(found) {
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

fn is_accepted(found: &KubeconfigFacts) -> bool {
    found.call.value().is_some_and(|call| (200..300).contains(&call.status))
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

/// The answer counts before what is written.
fn by_the_answer(found: &KubeconfigFacts, content: &KubeconfigContent, written: Verdict) -> Verdict {
    let server = &content.server;
    let is_tried = matches!(found.call, Fact::Known { .. } | Fact::Unknown { .. });
    let is_open = written.reason == R::CredentialEndUnknown;
    let written = match is_tried && is_open && content.token.is_some() {
        true => Verdict {
            advice: "Look at the token where it was made (in Rancher: Account & API Keys).".into(),
            ..written
        },
        false => written,
    };
    match &found.call {
        Fact::Known { value, .. } => answer(found, content, value, written),
        Fact::Unknown { cause: UnknownCause::Unauthenticated, detail, .. }
            if content.certificate.is_some() =>
        {
            let message = format!(
                "{server} does not accept the client certificate in {}: {}.",
                found.path,
                detail.trim_end_matches('.')
            );
            if written.reason == R::CredentialExpired {
                return written.also(&message).answered();
            }
            let message = format!("{message} {}", why_no_certificate(&written));
            Verdict::new(Status::False, Severity::Error, R::CredentialRefused, message)
                .advice(renewal(found, content))
                .answered()
        }
        // That it has ended is known whoever answers.
        Fact::Unknown { cause, detail, .. } if written.status == Status::True || is_open => {
            let message = format!(
                "{} {server} could not be asked whether it accepts it: {}.",
                written.message,
                detail.trim_end_matches('.')
            );
            Verdict::unknown(cause, written.severity.max(Severity::Warn), message)
                .advice(no_answer_advice(cause, &written))
        }
        Fact::Unknown { detail, .. } => {
            let words = format!("{server} could not be asked: {}.", detail.trim_end_matches('.'));
            Verdict { answered: true, ..written }.also(&words)
        }
        Fact::NotApplicable { reason, .. } if !reason.is_empty() => {
            written.also(&format!("It was not tried: {}.", reason.trim_end_matches('.')))
        }
        _ => written,
    }
}

fn no_answer_advice(cause: &UnknownCause, written: &Verdict) -> String {
    let way = match cause {
        UnknownCause::TlsFailed => {
            "The server's certificate is not the one that the kubeconfig trusts: compare certificate-authority-data with \
             what the server shows. That says nothing of the credential."
        }
        UnknownCause::NameNotResolved => {
            "The server's name does not resolve on this node: correct the resolver first."
        }
        UnknownCause::InvalidAnswer => {
            "Something else answers at the server's address, a login page or a proxy: see where the address leads and whether \
             it ends in the path of the cluster. That says nothing of the credential."
        }
        UnknownCause::Unauthenticated => {
            "The server, or a balancer before it, wants a client certificate at the TLS handshake, which this kubeconfig does \
             not hold: see whether the address is the right one, and who ends TLS there."
        }
        UnknownCause::ConnectionRefused => "Nothing listens at the server's address: see whether it runs.",
        _ => "See the way from this node to the server: route, firewall, its virtual address.",
    };
    if written.advice.is_empty() { way.to_owned() } else { format!("{way} {}", written.advice) }
}

fn answer(
    found: &KubeconfigFacts,
    content: &KubeconfigContent,
    call: &CredentialCall,
    written: Verdict,
) -> Verdict {
    let (server, path) = (&content.server, &found.path);
    let asked = format!("{} at {server}", call.request);
    let said =
        if call.said.is_empty() { String::new() } else { format!(" ({})", call.said.trim_end_matches('.')) };
    let advice = renewal(found, content);
    match call.status {
        200..=299 => accepted(call, written, &asked),
        401 => {
            let tries = Count(call.calls as usize, "try");
            let of = if call.calls == 1 { "1 try".to_owned() } else { format!("{} tries", tries.0) };
            let message = format!(
                "{server} does not accept the credential in {path}: 401 to {} of {of}{said}.",
                call.refused
            );
            if written.reason == R::CredentialExpired {
                return written.also(&message).answered();
            }
            let why = why_refused(content, &written);
            Verdict::new(Status::False, Severity::Error, R::CredentialRefused, format!("{message} {why}"))
                .advice(advice)
                .answered()
        }
        403 => {
            let message =
                format!("The credential in {path} is valid and lacks a right: {asked} is forbidden{said}.");
            let advice = "The words of the server name the verb and the resource. Give the role behind it that right, or put \
                          the kubeconfig of the right kind there: the cloud provider's is a limited ServiceAccount, a node \
                          driver's needs broad rights. A new token of the same kind would be refused as well.";
            Verdict::new(Status::False, Severity::Warn, R::CredentialForbidden, message)
                .advice(advice)
                .answered()
                .beside(written)
        }
        404 | 410 => {
            let message = format!(
                "What the credential in {path} leads to is gone: {asked} answers {}{said}. A cluster that was removed from \
                 Rancher looks so, and so does another server at that address.",
                call.status
            );
            Verdict::new(Status::False, Severity::Error, R::CredentialGone, message)
                .advice(advice)
                .answered()
                .beside(written)
        }
        status => {
            let cause = if status == 429 || status >= 500 {
                UnknownCause::Unavailable
            } else {
                UnknownCause::InvalidAnswer
            };
            let message = format!(
                "Whether the credential in {path} is accepted cannot be told: {asked} answers {status}{said}."
            );
            Verdict::unknown(&cause, Severity::Warn, message).beside(written)
        }
    }
}

/// What 401 may mean, by what the credential says of itself (F9): ended, unknown to this server, or deleted.
fn why_refused(content: &KubeconfigContent, written: &Verdict) -> String {
    let Some(token) = content.token.as_ref().and_then(Fact::value) else {
        return why_no_certificate(written);
    };
    let other = match token.form {
        TokenForm::Rancher => {
            return "Rancher answers 401 to a token that has expired, was purged or deleted, and to one of another Rancher (after \
                    a restore, say); over HTTP they cannot be told apart."
                .to_owned();
        }
        TokenForm::ServiceAccount => {
            "the ServiceAccount or its Secret was deleted, or the server signs with another key (after a restore or a new \
             installation)"
        }
        TokenForm::Jwt => "it was revoked, or this server does not take tokens of its issuer",
        _ => {
            return "It says nothing of itself: it has ended, was deleted, or is of another server (or of this one before a \
                    restore)."
                .to_owned();
        }
    };
    if written.reason == R::CredentialClockUnsure {
        return format!("{} That may be why; or {other}.", written.message);
    }
    if !token.fault.is_empty() {
        return format!("Whether it has ended it does not tell ({}). It has, or {other}.", token.fault);
    }
    let end = if token.expires_at.is_some() { "It has not ended" } else { "It has no end" };
    format!("{end} by its own claims: {other}.")
}

/// Why a server may refuse a client certificate.
fn why_no_certificate(written: &Verdict) -> String {
    let why = "Its authority is none that this server takes client certificates from, or it has ended by the server's clock.";
    match written.reason {
        R::CredentialClockUnsure => format!("{why} {}", written.message),
        _ => why.to_owned(),
    }
}

/// The server took it: it is good now, whatever a clock says; what is known of its end still counts.
fn accepted(call: &CredentialCall, written: Verdict, asked: &str) -> Verdict {
    let ok = format!("It is accepted ({asked}).");
    if call.refused > 0 {
        let message = format!(
            "{} It is accepted, but only {} of {} tries were: the others got 401 ({asked}).",
            written.message,
            call.calls.saturating_sub(call.refused),
            call.calls
        );
        let severity = written.severity.max(Severity::Warn);
        return Verdict::new(Status::True, severity, R::CredentialRefused, message)
            .advice("Several servers behind one address may not know the same tokens: see whether each of them is in order.")
            .answered();
    }
    match written.reason {
        R::CredentialExpired => {
            let message = format!(
                "{} And yet it is accepted ({asked}): one of the two clocks is wrong.",
                written.message
            );
            Verdict::new(Status::True, Severity::Warn, R::CredentialEnding, message)
                .advice(written.advice)
                .answered()
        }
        R::CredentialEndUnknown => Verdict::new(
            Status::True,
            Severity::Info,
            R::CredentialsGood,
            format!("{ok} {}", written.message),
        )
        .answered(),
        // Rancher calls it switched off or gone.
        R::CredentialRefused | R::CredentialGone => {
            let words = format!("And yet it is accepted ({asked}): that need not last.");
            let lasting = Verdict { status: Status::True, severity: Severity::Warn, ..written };
            lasting.also(&words).answered()
        }
        _ => written.also(&ok),
    }
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
