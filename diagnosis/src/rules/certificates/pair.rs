//! A certificate and a key of different pairs, and signatures that nobody accepts any more.
//!
//! Go's programs, etcd and all of Kubernetes among them, end at their start when the two do not belong together
//! (`crypto/tls`, `X509KeyPair`); one that runs goes on with what it holds, except that etcd reads both at every handshake
//! and then fails each of them (etcd-io/etcd, `client/pkg/transport/listener.go`).

use outrider_protocol::{
    CertificateFile, CertificateUse, Distribution, Fact, ReasonCode as R, ServedCertificate, Severity,
    Status, UnknownCause,
};

use super::{Candidate, Link, RAISE, View, quoted, renewal};
use crate::finding::advice_for_cause;
use crate::wording::{Count, upper};

/// Whether the key beside `file` is another's.
pub(super) fn is_mismatched(file: &CertificateFile) -> bool {
    matches!(file.key, Some(Fact::Known { value: false, .. }))
}

/// Whether `file` has no key beside it: none is there, or what is there is none.
pub(super) fn has_no_key(file: &CertificateFile) -> bool {
    matches!(&file.key, Some(Fact::Absent { .. } | Fact::Unknown { cause: UnknownCause::InvalidInput, .. }))
}

/// What is said of it at the port that should show it, when that answers in any way.
pub(super) fn at_port(view: &View<'_>, served: &ServedCertificate) -> Option<Candidate> {
    let file = view.file(&served.file).filter(|file| is_mismatched(file))?;
    Some(mismatch(view, file, &[], Some(served)))
}

/// The port that should show `file`, where that answers in any way.
pub(super) fn told_at<'a>(view: &View<'a>, file: &CertificateFile) -> Option<&'a ServedCertificate> {
    let at = view.facts.served.iter().find(|served| served.file == file.path);
    at.filter(|served| matches!(served.chain, Fact::Known { .. } | Fact::Unknown { .. }))
}

/// What is said of the others.
pub(super) fn in_files(view: &View<'_>) -> Option<Candidate> {
    let of_no_port = |file: &&CertificateFile| is_mismatched(file) && told_at(view, file).is_none();
    let bad: Vec<&CertificateFile> = view.facts.files.iter().filter(of_no_port).collect();
    // What nobody can start with first.
    let of_port = |file: &&&CertificateFile| view.facts.served.iter().any(|served| served.file == file.path);
    let first = bad.iter().find(of_port).or(bad.first())?;
    let more: Vec<&CertificateFile> = bad.iter().copied().filter(|file| file.path != first.path).collect();
    let served = view.facts.served.iter().find(|served| served.file == first.path);
    Some(mismatch(view, first, &more, served))
}

fn key_of(file: &CertificateFile) -> &str {
    match &file.key {
        Some(Fact::Known { source, .. } | Fact::Unknown { source, .. } | Fact::Absent { source, .. }) => {
            source
        }
        _ => "its key",
    }
}

fn mismatch(
    view: &View<'_>,
    file: &CertificateFile,
    more: &[&CertificateFile],
    served: Option<&ServedCertificate>,
) -> Candidate {
    let key = key_of(file);
    let leaf = file.certificates.value().and_then(|chain| chain.first());
    let so = match served {
        None => "what is given this pair does not start".to_owned(),
        Some(served) => {
            let (name, peer) = (&served.name, &served.peer);
            match &served.chain {
                Fact::Known { value, .. } if value.first().map(|l| &l.sha256) == leaf.map(|l| &l.sha256) => {
                    format!(
                        "{name} at {peer} still serves it with the key it holds, and does not start again with this pair"
                    )
                }
                Fact::Known { .. } => {
                    format!(
                        "{name} at {peer} still serves the pair it holds, and does not start again with this one"
                    )
                }
                Fact::Unknown { detail, .. } => {
                    format!("{name} at {peer} gives no certificate ({})", detail.trim_end_matches(['.', '?']))
                }
                _ => format!("nobody listens at {peer}: {name} does not start with this pair"),
            }
        }
    };
    let also = match more.len() {
        0 => String::new(),
        _ => format!(" The same holds for {}.", quoted(more.iter().copied())),
    };
    let message = format!("{} and {key} are of different pairs: {so}.{also}", file.path);
    Candidate::new(Status::False, Severity::Error, R::CertificateKeyMismatch, message)
        .after(RAISE)
        .advice(advice(view, file, key))
}

fn advice(view: &View<'_>, file: &CertificateFile, key: &str) -> String {
    let path = &file.path;
    let keep = match has_no_key(file) {
        true => format!(
            "Restart nothing with this pair. See what became of {key} (ls -l {key}), and put back from a backup the one that belongs \
             to {path} (openssl x509 -noout -pubkey -in {path} and openssl pkey -pubout -in {key} must print the same)"
        ),
        false => format!(
            "Restart nothing with this pair. See which of the two was written last (ls -l --time-style=full-iso {path} {key}), and \
         put the one back from a backup that belongs to the other (openssl x509 -noout -pubkey -in {path} and openssl pkey \
         -pubout -in {key} must print the same)"
        ),
    };
    // Only what restarts a server is weighed against the quorum; putting a file back takes nothing from it.
    let restarted = |makes: &str| {
        let unit = renewal::unit(view);
        let anew = view.weighed_but(path, format!("Move both away and restart {unit}, which {makes}."));
        format!("{keep}. Without one: {anew}")
    };
    match (&view.facts.distribution, &file.usage) {
        (Distribution::Rke2 | Distribution::K3s, CertificateUse::Agent) => {
            restarted("fetches a new pair from a server")
        }
        (Distribution::Rke2 | Distribution::K3s, _) => restarted("makes a new pair"),
        (Distribution::Kubeadm, _) => format!("{keep}, or have kubeadm certs renew make a new pair."),
        (Distribution::Rke1, _) => format!("{keep}, or have rke cert rotate make a new pair."),
        _ => format!("{keep}, or have both issued anew."),
    }
}

/// Keys without which nothing starts: files that hold none, and those that are not there.
pub(super) fn no_key<'a>(
    view: &View<'_>,
    in_use: impl Iterator<Item = &'a CertificateFile>,
) -> Option<Candidate> {
    let bad: Vec<&CertificateFile> = in_use.filter(|file| has_no_key(file)).collect();
    let of_port = |file: &&&CertificateFile| view.facts.served.iter().any(|served| served.file == file.path);
    // What nobody can start with first, and what is wrong beyond doubt before what may be put in place this moment.
    let is_there = |file: &&&CertificateFile| matches!(file.key, Some(Fact::Unknown { .. }));
    let of_ports = bad.iter().find(|file| of_port(file) && is_there(file)).or(bad.iter().find(of_port));
    let first = of_ports.or(bad.iter().find(is_there)).or(bad.first())?;
    let key = key_of(first);
    let why = match &first.key {
        Some(Fact::Unknown { detail, .. }) => format!("{key} holds no private key ({detail})"),
        _ => format!("the private key {key} is missing"),
    };
    let more: Vec<&CertificateFile> = bad.iter().copied().filter(|file| file.path != first.path).collect();
    let also = match more.len() {
        0 => String::new(),
        _ => format!(" The same holds for the key of {}.", quoted(more.into_iter())),
    };
    let message = format!("{}: what is given it with {} does not start.{also}", upper(&why), first.path);
    Some(
        Candidate::new(Status::False, Severity::Error, R::CertificateUnreadable, message)
            .after(RAISE)
            .advice(advice(view, first, key)),
    )
}

/// Keys of which nobody could tell whether they belong to their certificates.
pub(super) fn unread<'a>(in_use: impl Iterator<Item = &'a CertificateFile>) -> Option<Candidate> {
    let unread: Vec<(&CertificateFile, &UnknownCause, &str)> = in_use
        .filter_map(|file| match &file.key {
            Some(Fact::Unknown { cause, detail, .. }) if !has_no_key(file) => {
                Some((file, cause, detail.as_str()))
            }
            _ => None,
        })
        .collect();
    let (first, cause, why) = *unread.first()?;
    let (key, path) = (key_of(first), &first.path);
    let which = match unread.len() {
        1 => format!("Whether {key} is the key of {path}"),
        n => format!("Whether {} belong to their certificates, {key} first,", Count(n, "private key")),
    };
    let message = format!("{which} is not known: {}.", why.trim_end_matches('.'));
    let by_hand = format!(
        "openssl x509 -noout -pubkey -in {path} and openssl pkey -pubout -in {key}, as root, must print the same."
    );
    let advice = match cause {
        UnknownCause::PermissionDenied => format!("{} Until then: {by_hand}", advice_for_cause(cause)),
        _ => format!("Look at it by hand (ls -lL {key}): {by_hand}"),
    };
    let reason = R::from(cause);
    Some(Candidate::new(Status::Unknown, Severity::Warn, reason, message).after(RAISE).advice(advice))
}

/// A signature on the way to the authority that Go's programs refuse. What signed itself is trusted for what it is.
pub(super) fn weak(path: &[Link<'_>], what: &str) -> Option<Candidate> {
    let refused = |link: &&Link<'_>| {
        let name = link.certificate.signature.to_ascii_lowercase();
        let is_own = link.certificate.issuer == link.certificate.subject;
        !is_own && (name.contains("sha1") || name.starts_with("md"))
    };
    let link = path.iter().find(refused)?;
    let (algorithm, subject, issuer) =
        (&link.certificate.signature, &link.certificate.subject, &link.certificate.issuer);
    let message = format!(
        "{what} hangs on a signature by {algorithm} ({subject}, signed by {issuer}): etcd and Kubernetes, built with Go 1.18 or \
         newer, refuse it."
    );
    Some(Candidate::new(Status::True, Severity::Warn, R::CertificateSignatureWeak, message).advice(format!(
        "Have {subject} signed anew by {issuer} with SHA-256 or better (openssl x509 -noout -text shows the algorithm), before \
         the next upgrade: Go up to 1.23 could be told to accept SHA-1, newer ones cannot."
    )))
}
