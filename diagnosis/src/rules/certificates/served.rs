//! What one port shows: its dates, whether it is what lies on disk, who signed it, and whether it covers this node.

use std::time::Duration;

use outrider_protocol::{
    CertificateFacts, CertificateUse as Use, Distribution, Fact, ReasonCode as R, ServedCertificate,
    Severity, Status, UnknownCause,
};

use super::dates::{Dated, Verdict, at_most, candidate};
use super::{Candidate, Part, RAISE, TYPE, View, authority, dates, dialled, pair, renewal, worst};
use crate::finding::Finding;
use crate::wording::{Moment, Span, names};

pub(super) fn judge(view: &View<'_>, served: &ServedCertificate) -> Option<Finding> {
    let subject = format!("{}:{}", served.name, served.port);
    let chain = match &served.chain {
        Fact::Known { value, .. } => value,
        Fact::Unknown { cause, detail, at, .. } => {
            if let Some(mismatch) = pair::at_port(view, served) {
                return worst(subject, view.at, vec![mismatch]);
            }
            let message = format!(
                "{} at {} shows no certificate: {}.",
                served.name,
                served.peer,
                detail.trim_end_matches(['.', '?'])
            );
            let finding = Finding::unknown(TYPE, cause, Severity::Warn, *at, message).subject(subject);
            return Some(finding.advice(no_answer(served, cause, detail)).waits(RAISE, super::CLEAR));
        }
        // Nobody listens: not this node's role, or down, which other checks tell.
        Fact::Absent { .. } | Fact::NotApplicable { .. } => return None,
    };
    let Some(leaf) = chain.first() else {
        let message =
            format!("{} at {} ended the handshake without a certificate.", served.name, served.peer);
        let cause = UnknownCause::InvalidAnswer;
        return Some(Finding::unknown(TYPE, &cause, Severity::Warn, view.at, message).subject(subject));
    };
    let on_disk = view.file(&served.file).and_then(|file| file.certificates.value()?.first());
    let usage = usage(view, served);
    let what = format!("The certificate that {} shows at {}", served.name, served.peer);
    let mut candidates: Vec<Candidate> = Vec::new();
    let dated = candidate(view, &view.path_of(chain), &what, at_most(&usage), |dated| {
        remedy(view, served, &usage, on_disk, leaf, dated)
    });
    candidates.extend(dated);
    candidates.extend(pair::at_port(view, served));
    candidates.extend(pair::weak(&view.path_of(chain), &what));
    candidates.extend(wrong_issuer(served, leaf));
    candidates.extend(on_disk.and_then(|file| differs(view, served, leaf, file)));
    candidates.extend(dialled::uncovered(view, served, leaf).or_else(|| wrong_names(view, served, leaf)));
    candidates.extend(missing_names(view, served, leaf));
    worst(subject, view.at, candidates)
}

/// What to do about a port that shows nothing, by how it failed.
fn no_answer(served: &ServedCertificate, cause: &UnknownCause, detail: &str) -> String {
    let who = format!("ss -ltnp 'sport = :{}'", served.port);
    match cause {
        UnknownCause::TimedOut => format!(
            "Somebody listens and does not answer: see whether the process hangs, waits for its disk or has no processor \
             time, and what its log says last ({who} names it)."
        ),
        UnknownCause::TlsFailed if detail.contains("does not speak TLS") => format!(
            "Find out who listens there ({who}): another program has the port, or {} was told to serve without TLS.",
            served.name
        ),
        UnknownCause::Unreachable => format!(
            "Somebody listens and closes at once: see whether it is {} ({who}), whether that is starting or ending, and \
             what its log says.",
            served.name
        ),
        UnknownCause::Unsupported => format!(
            "Look by hand (openssl s_client -connect {} -showcerts </dev/null | openssl x509 -noout -enddate -text). A \
             certificate with an RSA key of 2048 bits or more, or an ECDSA key on P-256 or P-384, can be judged here.",
            served.peer
        ),
        UnknownCause::TlsFailed | UnknownCause::InvalidInput => format!(
            "See which certificate and key {} was given ({}): a key that does not belong to its certificate, or a file it \
             cannot read, ends the handshake. Its log says which.",
            served.name,
            if served.file.is_empty() { who.as_str() } else { &served.file }
        ),
        _ => format!("See whether {} runs ({who}) and what its log says.", served.name),
    }
}

fn usage(view: &View<'_>, served: &ServedCertificate) -> Use {
    match view.file(&served.file) {
        Some(file) => file.usage.clone(),
        None if served.authority.is_empty() => Use::SelfMade,
        None => Use::Server,
    }
}

fn remedy(
    view: &View<'_>,
    served: &ServedCertificate,
    usage: &Use,
    on_disk: Option<&CertificateFacts>,
    leaf: &CertificateFacts,
    dated: &Dated<'_>,
) -> String {
    if dated.link.part == Part::Authority {
        return authority::advice(view, dated.verdict == Verdict::Ended);
    }
    match on_disk {
        Some(file) if file.sha256 != leaf.sha256 && file.not_after > leaf.not_after => restart(view, served),
        _ if served.file.is_empty() && served.name == "supervisor" => {
            renewal::supervisor(view, dated.link.certificate.not_after)
        }
        _ => renewal::advice(view, usage, dated.link.certificate.not_after),
    }
}

fn wrong_issuer(served: &ServedCertificate, leaf: &CertificateFacts) -> Option<Candidate> {
    let message = match &served.issuer {
        Fact::Absent { .. } => format!(
            "{} did not sign the certificate that {} shows at {} (it names {} as its issuer): it belongs to another \
             authority or another cluster.",
            served.authority, served.name, served.peer, leaf.issuer
        ),
        Fact::Unknown { cause, detail, at, .. } => {
            let message = format!(
                "Who signed the certificate that {} shows at {} cannot be told: {}.",
                served.name,
                served.peer,
                detail.trim_end_matches('.')
            );
            let unknown = Finding::unknown(TYPE, cause, Severity::Warn, *at, message);
            let candidate =
                Candidate::new(Status::Unknown, unknown.severity, unknown.reason, unknown.message);
            return Some(candidate.after(RAISE).advice(unknown.advice));
        }
        _ => return None,
    };
    let wrong = Candidate::new(Status::False, Severity::Error, R::CertificateWrong, message);
    Some(wrong.after(RAISE).advice(format!(
        "Find out who listens there (ss -ltnp 'sport = :{}') and which files it was given. A copied disk or a folder put \
         back from another cluster brings its certificates along. Do not replace an authority because of this.",
        served.port
    )))
}

/// Served and on disk are two.
fn differs(
    view: &View<'_>,
    served: &ServedCertificate,
    leaf: &CertificateFacts,
    file: &CertificateFacts,
) -> Option<Candidate> {
    if leaf.sha256 == file.sha256 {
        return None;
    }
    let shows = format!("{} at {} shows a certificate", served.name, served.peer);
    if leaf.not_after > file.not_after && dates::has_ended(view, file) {
        let message = format!(
            "{shows} that ends on {}, and the one in {}, which it may take at its next start, ended {} ago, on {}.",
            Moment(leaf.not_after),
            served.file,
            Span(view.now.since(file.not_after)),
            Moment(file.not_after)
        );
        let ending = Candidate::new(Status::True, Severity::Warn, R::CertificateEnding, message);
        return Some(ending.after(RAISE).advice(format!(
            "Compare what {} was given with {}: if it is another file, this one is a leftover and may be moved away. If it is \
             this one: {}",
            served.name,
            served.file,
            renewal::advice(view, &usage(view, served), file.not_after)
        )));
    }
    if leaf.not_after > file.not_after {
        let message = format!(
            "{shows} that ends on {}, later than that in {} (on {}): the file is possibly not used.",
            Moment(leaf.not_after),
            served.file,
            Moment(file.not_after)
        );
        return Some(Candidate::new(Status::True, Severity::Info, R::CertificateLeftOver, message).after(RAISE).advice(
            format!(
                "Leftover file, or one put back from a backup. Compare what {} was given with {}: at its next start it may take this \
                 older file, which ends on {}.",
                served.name,
                served.file,
                Moment(file.not_after)
            ),
        ));
    }
    let when = if leaf.not_after <= view.now {
        format!("ended {} ago", Span(view.now.since(leaf.not_after)))
    } else {
        format!("ends in {}", Span(leaf.not_after.since(view.now)))
    };
    let message = format!(
        "{shows} that {when} and not the one in {}, which ends on {}.",
        served.file,
        Moment(file.not_after)
    );
    // What takes it by itself is given the time, and nobody is woken for it.
    let severity = if reloads(view, served) == Reloads::Soon { Severity::Info } else { Severity::Warn };
    let candidate = Candidate::new(Status::True, severity, R::CertificateNotServed, message);
    Some(candidate.after(RAISE).advice(restart(view, served)))
}

/// Whether a process takes a new file while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reloads {
    /// Not that we know of.
    No,
    /// It does, and has had no time to.
    Soon,
    /// It does, and has not.
    HasNot,
}

/// kube-apiserver takes one at once, and a minute after it lost sight of the file (kubernetes/kubernetes,
/// `dynamiccertificates/dynamic_serving_content.go`); a kubelet that was given files the same way from v1.31 on
/// (`ReloadKubeletServerCertificateFile`). RKE1 has none as new.
fn reloads(view: &View<'_>, served: &ServedCertificate) -> Reloads {
    let by_itself = match served.name.as_str() {
        "kube-apiserver" => true,
        "kubelet" => {
            !served.authority.is_empty() && view.facts.version.value().is_some_and(|v| is_from(v, 31))
        }
        _ => false,
    };
    let age = view.file(&served.file).and_then(|file| file.modified).map(|at| view.now.since(at));
    match (by_itself, age) {
        (false, _) => Reloads::No,
        (true, Some(age)) if age <= RELOAD => Reloads::Soon,
        (true, _) => Reloads::HasNot,
    }
}

/// Twice the minute, and the time of a look.
const RELOAD: Duration = Duration::from_secs(150);

fn is_from(version: &str, minor: u32) -> bool {
    renewal::numbers(version).is_some_and(|(major, of, _)| major > 1 || (major == 1 && of >= minor))
}

/// How the process is made to read its file.
fn restart(view: &View<'_>, served: &ServedCertificate) -> String {
    if reloads(view, served) == Reloads::Soon {
        return format!(
            "Nothing to do yet: {} takes a new file by itself, within a minute or two of its being written.",
            served.name
        );
    }
    let how = match (&view.facts.distribution, served.name.as_str()) {
        (Distribution::Rke1, "etcd" | "etcd-peer") => "docker restart etcd, one node after the other".to_owned(),
        (Distribution::Rke1, name) => format!("docker restart {name}"),
        (Distribution::Kubeadm, "kubelet") => "systemctl restart kubelet".to_owned(),
        (Distribution::Kubeadm, _) => {
            "its static pod: move the manifest out of /etc/kubernetes/manifests, wait until it is gone, move it back"
                .to_owned()
        }
        _ if renewal::is_rancher(view) => {
            format!("systemctl restart {}, one node after the other", renewal::unit(view))
        }
        (_, name) => format!("that of {name}, one node after the other"),
    };
    let weighed = |advice: String| if stops_etcd(view, served) { view.weighed(advice) } else { advice };
    if reloads(view, served) == Reloads::HasNot {
        let file = &served.file;
        if view.file(file).is_some_and(|file| matches!(file.key, Some(Fact::Known { value: true, .. }))) {
            return weighed(format!(
                "{} takes a new file by itself within a minute, and has not, though {file} and its key belong together: see which \
                 files it was given, and what its log says since this one was written. Then restart it ({how}).",
                served.name
            ));
        }
        return weighed(format!(
            "{} takes a new file by itself within a minute, and has not: the key beside it is not its own, or the process \
             was given other files. Compare first, for with such a pair it does not start again: openssl x509 -noout -pubkey \
             -in {file} against openssl pkey -pubout -in {}, and what its log says since the file was written. If they are \
             alike, restart it ({how}).",
            served.name,
            key_beside(file)
        ));
    }
    if served.name.starts_with("etcd") {
        return weighed(format!(
            "Restart needed ({how}): etcd reads its files at every handshake, and does not see this one. A file that is mounted \
             into a container by itself stays the old one there when it is replaced. If it still differs then, etcd was given \
             other files.",
        ));
    }
    weighed(format!("Restart needed: the process holds the old one ({how})."))
}

/// Whether that restart takes etcd's member away: RKE2's and K3s' services run it, elsewhere it is a process of its own.
fn stops_etcd(view: &View<'_>, served: &ServedCertificate) -> bool {
    match view.facts.distribution {
        Distribution::Rke1 | Distribution::Kubeadm => served.name.starts_with("etcd"),
        _ => view.facts.server,
    }
}

/// Where the key of a certificate lies: `x.key` beside `x.crt`, and `x-key.pem` beside `x.pem` on RKE1.
fn key_beside(certificate: &str) -> String {
    match (certificate.strip_suffix(".crt"), certificate.strip_suffix(".pem")) {
        (Some(stem), _) => format!("{stem}.key"),
        (_, Some(stem)) => format!("{stem}-key.pem"),
        _ => "its key".to_owned(),
    }
}

fn wrong_names(view: &View<'_>, served: &ServedCertificate, leaf: &CertificateFacts) -> Option<Candidate> {
    // What a kubelet made for itself names what it likes; nobody verifies it.
    if served.authority.is_empty() || !knows_its_address(&view.facts.node_names) {
        return None;
    }
    if view.facts.node_names.iter().any(|name| leaf.sans.iter().any(|san| covers(san, name))) {
        return None;
    }
    let asked = address_of(&served.peer);
    let here = leaf.sans.iter().any(|san| san == asked);
    let (status, severity) =
        if here { (Status::True, Severity::Warn) } else { (Status::False, Severity::Error) };
    let message = format!(
        "The certificate that {} shows at {} covers none of this node's names ({}); it covers {}.",
        served.name,
        served.peer,
        names(&view.facts.node_names, 4),
        if leaf.sans.is_empty() { "no name at all".to_owned() } else { names(&leaf.sans, 6) }
    );
    Some(Candidate::new(status, severity, R::CertificateWrong, message).after(RAISE).advice(
        match view.facts.distribution {
            Distribution::Rke2 | Distribution::K3s => view.weighed(format!(
                "See whether the address or name of {0} has changed, or its disk is a copy of another node's. {1} issues a new one \
                 at a start when node-ip, node-external-ip or tls-san name what is missing.",
                names(&view.facts.node_names, 4),
                renewal::unit(view)
            )),
            _ => format!(
                "See whether the address or name of {} has changed, or its disk is a copy of another node's. After the address is \
                 corrected, {}.",
                names(&view.facts.node_names, 4),
                match view.facts.distribution {
                    Distribution::Rke1 => "rke cert rotate issues a new one",
                    Distribution::Kubeadm => "kubeadm certs renew issues a new one",
                    _ => "whoever made the certificate has to issue a new one",
                }
            ),
        },
    ))
}

/// Names that were asked for in the configuration and are not in the certificate; of the ports that have them.
fn missing_names(view: &View<'_>, served: &ServedCertificate, leaf: &CertificateFacts) -> Option<Candidate> {
    if !matches!(served.name.as_str(), "kube-apiserver" | "supervisor") {
        return None;
    }
    let wanted = view.facts.wanted_names.iter().map(String::as_str);
    let missing: Vec<&str> = wanted.filter(|name| !leaf.sans.iter().any(|san| covers(san, name))).collect();
    if missing.is_empty() {
        return None;
    }
    let message = format!(
        "The certificate that {} shows at {} does not cover {}, which the configuration asks for (tls-san, \
         node-external-ip, advertise-address): who comes by that name is warned of the certificate.",
        served.name,
        served.peer,
        names(&missing, 4)
    );
    let unit = renewal::unit(view);
    Some(Candidate::new(Status::True, Severity::Warn, R::CertificateWrong, message).after(RAISE).advice(view.weighed(
        format!(
            "A restart of {unit} issues a new one with {}, whatever its end. Where {unit} has started since the configuration \
             was changed, see whether it reads that file.",
            names(&missing, 4)
        ),
    )))
}

/// Whether an address is among the names by which others reach this node.
fn knows_its_address(names: &[String]) -> bool {
    names.iter().any(|name| name.parse::<core::net::IpAddr>().is_ok_and(|ip| !ip.is_loopback()))
}

/// A name against an alternative name: the same, or one label for the star.
pub(in crate::rules) fn covers(san: &str, name: &str) -> bool {
    let ip = |text: &str| text.parse::<core::net::IpAddr>().ok();
    if san.eq_ignore_ascii_case(name) || ip(name).is_some_and(|name| ip(san) == Some(name)) {
        return true;
    }
    let suffix = san.strip_prefix('*');
    let rest = name.find('.').map(|dot| &name[dot..]);
    matches!((suffix, rest), (Some(suffix), Some(rest)) if suffix.eq_ignore_ascii_case(rest))
}

/// `127.0.0.1` of `127.0.0.1:2379`, `::1` of `[::1]:2379`.
fn address_of(peer: &str) -> &str {
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
