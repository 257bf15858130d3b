//! What the server of a kubeconfig answered to the credential in it: that counts before what is written.

use outrider_protocol::{
    CredentialCall, Fact, KubeconfigContent, KubeconfigFacts, ReasonCode as R, Severity, Status, TokenForm,
    UnknownCause,
};

use super::Verdict;
use super::kubeconfig::renewal;
use crate::rules::load_balancer;
use crate::wording::Count;

pub(super) fn judge(found: &KubeconfigFacts, content: &KubeconfigContent, written: Verdict) -> Verdict {
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
        Fact::Known { value, .. } => {
            let verdict = answer(found, content, value, written);
            match now_and_then(value) {
                Some(flaw) => verdict.beside(flaw),
                None => verdict,
            }
        }
        Fact::Unknown { cause: UnknownCause::Unauthenticated, detail, .. }
            if content.certificate.is_some() =>
        {
            let message = format!(
                "{server} does not accept the client certificate in {}: {}.",
                found.path,
                detail.trim_end_matches('.')
            );
            let why = why_no_certificate(&written);
            refused(message, &why, written, renewal(found, content))
        }
        // That it has ended is known whoever answers.
        Fact::Unknown { cause, detail, .. } if written.status == Status::True || is_open => {
            let message = format!(
                "{} {server} could not be asked whether it accepts it: {}.",
                written.message,
                detail.trim_end_matches('.')
            );
            let advice = format!("{} {}", no_answer_advice(cause), written.advice);
            Verdict::unknown(cause, written.severity.max(Severity::Warn), message).advice(advice.trim_end())
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

fn no_answer_advice(cause: &UnknownCause) -> &'static str {
    match cause {
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
    }
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
    if let Some(whose) = by_another(call) {
        let message = format!(
            "Whether the credential in {path} is accepted cannot be told: {asked} answers {}{said}, {whose}.",
            call.status
        );
        let cause = UnknownCause::InvalidAnswer;
        let unknown = Verdict::unknown(&cause, Severity::Warn, message).advice(no_answer_advice(&cause));
        return unknown.beside(written);
    }
    match call.status {
        200..=299 => {
            taken(written, &format!("it is accepted ({asked})"), &format!("It is accepted ({asked})."))
                .answered()
        }
        401 => {
            let tries = Count(call.calls as usize, "try");
            let of = if call.calls == 1 { "1 try".to_owned() } else { format!("{} tries", tries.0) };
            let message = format!(
                "{server} does not accept the credential in {path}: 401 to {} of {of}{said}.",
                call.refused
            );
            let why = why_refused(content, &written);
            refused(message, &why, written, advice)
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
                .beside(taken(written, "the server knows who asks", ""))
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

/// Why a refusal is none by the server of the kubeconfig, as a clause: a proxy in front of it knows no credential, and
/// one that leads the address elsewhere answers 404 to everybody.
fn by_another(call: &CredentialCall) -> Option<String> {
    match call.status {
        401 | 403 | 404 | 410 if let Some(how) = load_balancer::words_of_a_proxy(call.status, &call.said) => {
            Some(format!("which is {how} and not the server behind it"))
        }
        401 | 403 | 404 | 410 if call.said.starts_with('<') => {
            Some("which is a page and no answer of Kubernetes or Rancher".to_owned())
        }
        404 | 410 if call.said.is_empty() => {
            Some("and who answers is not said: Kubernetes and Rancher name what they do not find".to_owned())
        }
        _ => None,
    }
}

/// The server does not take it.
fn refused(message: String, why: &str, written: Verdict, renewal: &str) -> Verdict {
    if written.reason == R::CredentialExpired {
        return written.also(&message).answered();
    }
    let advice = match written.reason {
        R::CredentialClockUnsure => {
            format!("{} If it is refused with the right time as well: {renewal}", written.advice)
        }
        _ => renewal.to_owned(),
    };
    Verdict::new(Status::False, Severity::Error, R::CredentialRefused, format!("{message} {why}"))
        .advice(advice)
        .answered()
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

/// What is written of a credential that its server knows, by 200 or by 403: it is good now, whatever a clock says; what is
/// known of its end still counts. `how` is a clause, `plainly` the sentence where nothing contradicts it.
fn taken(written: Verdict, how: &str, plainly: &str) -> Verdict {
    match written.reason {
        R::CredentialExpired => {
            let message = format!("{} And yet {how}: one of the two clocks is wrong.", written.message);
            Verdict::new(Status::True, Severity::Warn, R::CredentialEnding, message).advice(format!(
                "Compare this clock and the server's with another (date -u; ClockSynchronized) and correct the one that is \
                 wrong. If it is the server's, the credential is refused from then on: {}",
                written.advice
            ))
        }
        R::CredentialClockUnsure => {
            let severity = written.severity.min(Severity::Warn);
            let words = format!("And yet {how}, so it is good now.");
            Verdict { status: Status::True, severity, ..written }.also(&words)
        }
        R::CredentialEndUnknown => {
            let message = format!("{plainly} {}", written.message);
            Verdict::new(Status::True, Severity::Info, R::CredentialsGood, message.trim_start())
        }
        // Rancher calls it switched off or gone.
        R::CredentialRefused | R::CredentialGone => {
            let words = format!("And yet {how}: that need not last.");
            Verdict { status: Status::True, severity: Severity::Warn, ..written }.also(&words)
        }
        _ => written.also(plainly),
    }
}

/// Some of the tries got 401 and the last did not (G7).
fn now_and_then(call: &CredentialCall) -> Option<Verdict> {
    if call.refused == 0 || call.status == 401 {
        return None;
    }
    let message = format!(
        "401 came to {} of {} tries; only {} of {} got another answer ({}).",
        call.refused,
        call.calls,
        call.calls.saturating_sub(call.refused),
        call.calls,
        call.status
    );
    let flaw = Verdict::new(Status::True, Severity::Warn, R::CredentialRefused, message);
    Some(flaw.answered().advice(
        "Several servers behind one address may not know the same tokens: see whether each of them is in order.",
    ))
}
