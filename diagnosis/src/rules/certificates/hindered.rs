//! What stands against a restart of this server apart from etcd's quorum (`reserve`): the states of etcd that forbid one or
//! that it does not come back from (`rules::etcd::restart`), and files here with which what is started fails, or makes an
//! authority of its own.

use outrider_protocol::{CertificateFile, CertificateUse, Distribution, Fact, NodeFacts, UnknownCause};

use super::{Part, View, files, pair, quoted, renewal};
use crate::rules::etcd::restart::{self, Hindrance};

const NAMED: usize = 3;

/// What is to be settled before a restart of this server, the gravest first; empty where nothing is.
#[derive(Default)]
pub(super) struct Hindered(Vec<(Option<String>, Hindrance)>);

impl Hindered {
    pub(super) fn of(view: &View<'_>, facts: &NodeFacts) -> Self {
        let mut all: Vec<(Option<String>, Hindrance)> = Vec::new();
        all.extend(authorities(view).map(|hindrance| (None, hindrance)));
        all.extend(ended_authority(view).map(|hindrance| (None, hindrance)));
        all.extend(view.facts.files.iter().filter_map(|file| {
            let why = useless(view, file)?;
            Some((Some(file.path.clone()), Hindrance { why, see: subject_of(view, file) }))
        }));
        if let Some(etcd) = facts.checks.etcd.as_ref().and_then(Fact::value) {
            all.extend(restart::hindrances(etcd, facts.now).into_iter().map(|hindrance| (None, hindrance)));
        }
        Self(all)
    }

    /// What stands against it in words, without what is said of the file `but`; `None` if nothing.
    pub(super) fn words(&self, but: &str) -> Option<String> {
        let of_others =
            |(path, _): &&(Option<String>, Hindrance)| path.as_deref().is_none_or(|path| path != but);
        let words: Vec<String> = self
            .0
            .iter()
            .filter(of_others)
            .map(|(_, hindrance)| format!("{} (see {})", hindrance.why, hindrance.see))
            .take(NAMED)
            .collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

/// Authorities that are missing or unreadable: RKE2 and K3s make new ones at a start, which nothing else trusts.
fn authorities(view: &View<'_>) -> Option<Hindrance> {
    let gone = |file: &&CertificateFile| {
        file.usage == CertificateUse::Authority && (is_missing(file) || holds_none(file))
    };
    let gone: Vec<&CertificateFile> = view.facts.files.iter().filter(gone).collect();
    let effect = match view.facts.distribution {
        Distribution::Rke2 | Distribution::K3s => {
            format!("{} fails with that or makes another, which nothing else trusts", renewal::unit(view))
        }
        _ => "what is started without it fails".to_owned(),
    };
    let which = match gone.len() {
        0 => return None,
        1 => format!("the authority {} is missing or unreadable", gone[0].path),
        _ => format!("authorities are missing or unreadable ({})", quoted(gone.into_iter())),
    };
    Some(Hindrance { why: format!("{which}: {effect}"), see: "CertificatesValid/files".to_owned() })
}

/// An authority of etcd's that has ended: no start renews one, and what is started takes none of its peers' certificates.
fn ended_authority(view: &View<'_>) -> Option<Hindrance> {
    let ended = view.etcd_ports().filter_map(|served| view.ended(served));
    let why = ended.filter(|ended| ended.part == Part::Authority).map(|ended| ended.why).next()?;
    let why = format!("{why}, which no restart renews");
    Some(Hindrance { why, see: "CertificatesValid/ca".to_owned() })
}

/// Why what is given this file does not start.
fn useless(view: &View<'_>, file: &CertificateFile) -> Option<String> {
    let path = &file.path;
    let is_of_a_port = || view.facts.served.iter().any(|served| served.file == *path);
    if file.usage == CertificateUse::Foreign {
        None
    } else if pair::is_mismatched(file) {
        Some(format!("{path} and its key are of different pairs, with which nothing starts"))
    } else if pair::has_no_key(file) && !files::is_left(view, file) {
        Some(match &file.key {
            Some(Fact::Absent { .. }) => {
                format!("the key of {path} is missing, without which nothing starts")
            }
            _ => format!("the key of {path} is none, with which nothing starts"),
        })
    } else if holds_none(file) && file.usage != CertificateUse::Authority && is_of_a_port() {
        Some(format!("{path} holds no certificate, with which nothing starts"))
    } else {
        None
    }
}

/// The condition that tells of a file.
fn subject_of(view: &View<'_>, file: &CertificateFile) -> String {
    match pair::told_at(view, file).filter(|_| pair::is_mismatched(file)) {
        Some(served) => format!("CertificatesValid/{}:{}", served.name, served.port),
        None => "CertificatesValid/files".to_owned(),
    }
}

fn is_missing(file: &CertificateFile) -> bool {
    matches!(file.certificates, Fact::Absent { .. })
}

/// Whether the file was read and holds something else.
pub(super) fn holds_none(file: &CertificateFile) -> bool {
    matches!(file.certificates, Fact::Unknown { cause: UnknownCause::InvalidInput, .. })
}
