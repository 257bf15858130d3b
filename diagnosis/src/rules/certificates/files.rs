//! Subject `files`: every certificate that no port shows, and every file that cannot be read.

use outrider_protocol::{
    CertificateFile, CertificateUse as Use, Distribution, Fact, ReasonCode as R, Severity, Status, Timestamp,
    UnknownCause,
};

use super::dates::{Dated, Verdict, at_most, candidate, dated};
use super::hindered::holds_none;
use super::{Candidate, Part, TYPE, View, authority, pair, quoted, renewal, worst};
use crate::finding::Finding;
use crate::wording::{Count, Moment, lower};

const SUBJECT: &str = "files";

/// A readable file of a leaf and what its dates say.
struct Looked<'a> {
    file: &'a CertificateFile,
    dated: Dated<'a>,
}

pub(super) fn judge(view: &View<'_>) -> Finding {
    let mut candidates = Vec::new();
    candidates.extend(unreadable(view));
    candidates.extend(unread(view));
    candidates.extend(missing(view));
    candidates.extend(left_out(view));
    let looked = looked(view);
    let (left, alive): (Vec<&Looked<'_>>, Vec<&Looked<'_>>) =
        looked.iter().partition(|l| is_left_over(view, l));
    candidates.extend(pair::in_files(view));
    // Of a leftover nobody needs the key.
    let in_use = || view.facts.files.iter().filter(|file| !is_left(view, file));
    candidates.extend(pair::no_key(view, in_use()));
    candidates.extend(pair::unread(in_use()));
    candidates.extend(wrong_issuer(view, &alive));
    candidates.extend(weak(view, &alive));
    candidates.extend(by_dates(view, &alive));
    candidates.extend(left_over(view, &left));
    worst(SUBJECT.to_owned(), view.at, candidates).unwrap_or_else(|| without_candidates(view))
}

/// What is said where no file gave anything to say: each is shown by a port, or none was there to be read.
fn without_candidates(view: &View<'_>) -> Finding {
    let new = |status, severity, reason, message: String| {
        Finding::new(TYPE, status, severity, reason, view.at, message).subject(SUBJECT)
    };
    let leaves = view.facts.files.iter().filter(|file| file.usage != Use::Authority).count();
    let below = &view.facts.found_by;
    match (leaves, view.facts.files.len()) {
        (0, authorities) => {
            let but = if authorities == 0 { "" } else { " but authorities" };
            let message =
                format!("No certificate file was read below {below}{but}: how they stand is not known.");
            new(Status::Unknown, Severity::Warn, R::CertificateUnreadable, message).advice(format!(
                "See what lies there (ls -lR {below}) and whether this is still the folder of this node's certificates; Outrider's \
                 user, or its root helper, has to be able to list and read it."
            ))
        }
        _ => {
            let message = "Every certificate file belongs to a port, judged there.".to_owned();
            new(Status::True, Severity::Ok, R::CertificatesInDate, message)
        }
    }
}

/// Leaves that no port shows, each with the worst of its dates.
fn looked<'a>(view: &View<'a>) -> Vec<Looked<'a>> {
    let shown = |path: &str| view.facts.served.iter().any(|s| s.file == path && s.chain.value().is_some());
    let leaves = view.facts.files.iter().filter(|file| file.usage != Use::Authority && !shown(&file.path));
    leaves
        .filter_map(|file| {
            let path = view.path_of(file.certificates.value()?);
            Some(Looked { file, dated: dated(&path, view.now, view.days)? })
        })
        .collect()
}

/// Whether nothing here uses this file any more.
pub(super) fn is_left(view: &View<'_>, file: &CertificateFile) -> bool {
    file.usage == Use::Foreign
        || looked(view).iter().any(|looked| looked.file.path == file.path && is_left_over(view, looked))
}

fn is_left_over(view: &View<'_>, looked: &Looked<'_>) -> bool {
    let leaf = looked.dated.link;
    if looked.dated.verdict == Verdict::Good || leaf.part != Part::Leaf {
        return false;
    }
    // A key pair of another node lies here for whoever made them all; this node serves nothing with it.
    looked.file.usage == Use::Foreign
        || renewal::left_alone(view, &looked.file.usage, looked.file.modified, leaf.certificate.not_after)
}

/// Files whose content is no certificate.
fn unreadable(view: &View<'_>) -> Option<Candidate> {
    let bad: Vec<(&CertificateFile, &str)> = view
        .facts
        .files
        .iter()
        .filter_map(|file| match &file.certificates {
            Fact::Unknown { detail, .. } if holds_none(file) => Some((file, detail.as_str())),
            _ => None,
        })
        .collect();
    let needed = |file: &CertificateFile| {
        file.usage == Use::Authority || view.facts.served.iter().any(|served| served.file == file.path)
    };
    let (first, why) = bad.iter().find(|(file, _)| needed(file)).or(bad.first())?;
    let path = &first.path;
    let more = match bad.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let why = why.trim_end_matches(['.', '?']);
    let message = match why.starts_with("block ") {
        // The others of its blocks are certificates.
        true => format!("{}{more} cannot be read whole: {why}.", first.path),
        false => format!("{}{more} holds no certificate: {why}.", first.path),
    };
    let severity = if needed(first) { Severity::Error } else { Severity::Warn };
    let fails = format!("What uses {path} fails at its next start, and no start renews what it cannot read.");
    let advice = match (&first.usage, &view.facts.distribution) {
        (Use::Authority, _) => format!("{fails} {}", same_authority(view, path)),
        (_, Distribution::Rke2 | Distribution::K3s) => view.weighed_but(
            path,
            format!(
                "{fails} Put the certificate back from a backup. Where there is none, a person moves it and its key away and \
                 restarts {}, which makes a new pair.",
                renewal::unit(view)
            ),
        ),
        _ => format!("{fails} Put the certificate back from a backup."),
    };
    Some(Candidate::new(Status::False, severity, R::CertificateUnreadable, message).advice(advice))
}

/// What to do about an authority that is gone.
fn same_authority(view: &View<'_>, which: &str) -> String {
    format!(
        "Put {which} back from a backup, or from another server of this cluster: what was not replaced needs the very same \
         one. Let nothing make a new authority in its place, and do not restart {} before.",
        renewal::unit(view)
    )
}

/// Files and folders that could not be opened.
fn unread(view: &View<'_>) -> Option<Candidate> {
    let failed: Vec<(&CertificateFile, &UnknownCause, &str)> = view
        .facts
        .files
        .iter()
        .filter_map(|file| match &file.certificates {
            Fact::Unknown { cause, detail, .. } if *cause != UnknownCause::InvalidInput => {
                Some((file, cause, detail.as_str()))
            }
            _ => None,
        })
        .collect();
    let (first, cause, why) = failed.first()?;
    let count = Count(failed.len(), "certificate path");
    let message = format!("{count} could not be read: {}: {}.", first.path, why.trim_end_matches('.'));
    let finding = Finding::unknown(TYPE, cause, Severity::Warn, view.at, message);
    let candidate = Candidate::new(Status::Unknown, finding.severity, finding.reason, finding.message);
    let path = &first.path;
    let advice = match cause {
        UnknownCause::Unsupported => format!(
            "See what was put there (ls -lL {path}): a file of certificates has a few kB. What is in it tells openssl x509 -noout \
             -enddate -in {path}."
        ),
        UnknownCause::IoError => format!(
            "Look at it by hand: namei -l {path} names every folder and link on the way to it, ls -l {path} what lies there. If those \
             are as they should be, see dmesg for errors of the disk."
        ),
        _ => finding.advice,
    };
    Some(candidate.advice(advice).after(super::RAISE))
}

/// Files that are wanted here and are not there. A second look confirms: one that is being replaced is gone for a moment.
fn missing(view: &View<'_>) -> Option<Candidate> {
    let gone: Vec<&CertificateFile> =
        view.facts.files.iter().filter(|file| matches!(file.certificates, Fact::Absent { .. })).collect();
    let is = match gone.len() {
        0 => return None,
        1 => "is",
        _ => "are",
    };
    let message = format!("{} {is} missing, or a link that leads nowhere.", quoted(gone.iter().copied()));
    let authority = gone.iter().any(|file| file.usage == Use::Authority);
    let unit = renewal::unit(view);
    let advice = if authority {
        same_authority(view, &quoted(gone.iter().copied().filter(|file| file.usage == Use::Authority)))
    } else {
        let what = if gone.len() == 1 { "it" } else { "them" };
        let back = format!("See what removed {what}, and put {what} back from a backup with the key.");
        match view.facts.distribution {
            Distribution::Rke2 | Distribution::K3s => view.weighed(format!(
                "{back} {unit} makes what is missing at a start, while its authorities are there; where this node has another \
                 role now, it needs none."
            )),
            _ => back,
        }
    };
    // The next start makes an authority of its own, which nothing else trusts.
    let severity = if authority { Severity::Error } else { Severity::Warn };
    let gone = Candidate::new(Status::False, severity, R::CertificateUnreadable, message);
    Some(gone.after(super::RAISE).advice(advice))
}

/// Of files that were not read nothing is known.
fn left_out(view: &View<'_>) -> Option<Candidate> {
    let number = view.facts.files_left_out as usize;
    if number == 0 {
        return None;
    }
    let was = if number == 1 { "was" } else { "were" };
    let message =
        format!("{} {was} not read: there are too many.", Count(number, "further certificate file"));
    let finding = Finding::unknown(TYPE, &UnknownCause::InvalidInput, Severity::Warn, view.at, message);
    let candidate = Candidate::new(Status::Unknown, finding.severity, finding.reason, finding.message);
    Some(candidate.advice(
        "Move copies and backups of certificates out of these folders, so that those in use can all be read; look at the \
         others by hand (openssl x509 -noout -enddate -in FILE).",
    ))
}

/// The first signature that is refused, and how many more there are.
fn weak(view: &View<'_>, alive: &[&Looked<'_>]) -> Option<Candidate> {
    let mut found = alive.iter().filter_map(|looked| {
        let path = view.path_of(looked.file.certificates.value()?);
        Some((looked.file, pair::weak(&path, &format!("The certificate in {}", looked.file.path))?))
    });
    let (_, mut first) = found.next()?;
    let more: Vec<&CertificateFile> = found.map(|(file, _)| file).collect();
    if !more.is_empty() {
        first.message = format!("{} The same holds for {}.", first.message, quoted(more.into_iter()));
    }
    Some(first)
}

fn wrong_issuer(view: &View<'_>, alive: &[&Looked<'_>]) -> Option<Candidate> {
    let foreign: Vec<&&Looked<'_>> =
        alive.iter().filter(|looked| matches!(looked.file.issuer, Fact::Absent { .. })).collect();
    let first = foreign.first()?;
    let issuer = first.file.certificates.value().and_then(|chain| chain.first()).map(|leaf| &leaf.issuer);
    let message = format!(
        "No authority on this node signed {} (issuer {}): it belongs to another authority or another cluster.",
        quoted(foreign.iter().map(|looked| looked.file)),
        issuer.map_or("unknown", String::as_str)
    );
    Some(Candidate::new(Status::False, Severity::Error, R::CertificateWrong, message).advice(format!(
        "A folder copied or put back from another cluster, or an authority replaced and not all it signed. See what was \
         changed below {} last (ls -lt); do not replace an authority because of this.",
        view.facts.found_by
    )))
}

/// The first end among the files that matter, and how many share its verdict.
fn by_dates(view: &View<'_>, alive: &[&Looked<'_>]) -> Option<Candidate> {
    let rank = |looked: &Looked<'_>| {
        let severity = match looked.dated.verdict {
            Verdict::Ending(severity) => severity,
            Verdict::Good => Severity::Ok,
            Verdict::NotYet | Verdict::Ended => Severity::Error,
        };
        (severity.min(at_most(&looked.file.usage)), looked.dated.verdict)
    };
    let end = |looked: &Looked<'_>| looked.dated.link.certificate.not_after;
    let worst = alive.iter().min_by_key(|looked| (std::cmp::Reverse(rank(looked)), end(looked)))?;
    let alike: Vec<&CertificateFile> = alive
        .iter()
        .filter(|looked| rank(looked) == rank(worst) && looked.file.path != worst.file.path)
        .map(|looked| looked.file)
        .collect();
    let path = view.path_of(worst.file.certificates.value()?);
    let what = format!("The certificate in {}", worst.file.path);
    let mut found =
        candidate(view, &path, &what, at_most(&worst.file.usage), |dated| match dated.link.part {
            Part::Authority => authority::advice(view, dated.verdict == Verdict::Ended),
            _ => renewal::advice(view, &worst.file.usage, dated.link.certificate.not_after),
        })?;
    let total = alive.len();
    if found.severity == Severity::Ok {
        found.message = format!(
            "{} without a port, the first of them: {}",
            Count(total, "certificate file"),
            lower(&found.message)
        );
    } else if !alike.is_empty() {
        let more = quoted(alike.iter().copied());
        found.message =
            format!("{} The same holds for {} more of {total} files: {more}.", found.message, alike.len());
    }
    Some(found)
}

fn left_over(view: &View<'_>, left: &[&Looked<'_>]) -> Option<Candidate> {
    let first = left.iter().min_by_key(|looked| looked.dated.link.certificate.not_after)?;
    let end = first.dated.link.certificate.not_after;
    let others: Vec<&CertificateFile> =
        left.iter().filter(|l| l.file.path != first.file.path).map(|l| l.file).collect();
    let more = match others.len() {
        0 => String::new(),
        _ => format!(" (so are {})", quoted(others.iter().copied())),
    };
    let verb = if end <= view.now { "ended" } else { "ends" };
    let why = match (renewal::last_start(view), &first.file.usage) {
        (_, Use::Foreign) => "it bears the address of another node".to_owned(),
        (Some(start), _) => format!(
            "the service's last start on {} would have renewed it and left it as it was on {}",
            Moment(start),
            Moment(first.file.modified.unwrap_or(Timestamp::default()))
        ),
        (None, _) => "nothing renews it".to_owned(),
    };
    let message = format!(
        "{} {verb} on {} and is probably not used any more: {why}{more}.",
        first.file.path,
        Moment(end)
    );
    let version = renewal::version_words(view);
    Some(Candidate::new(Status::True, Severity::Info, R::CertificateLeftOver, message).advice(format!(
        "Leftover file: no restart renews it ({version}). See that nothing was given this path; then it may be moved away."
    )))
}
