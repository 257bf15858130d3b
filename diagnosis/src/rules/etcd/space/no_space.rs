//! A NOSPACE alarm and the cure that helps: by the figures of the member it is set on, never by another's.

use outrider_protocol::{EtcdFacts, Member, ReasonCode as R, Severity, Status, Thresholds, Timestamp};

use super::super::alarms::Alarmed;
use super::super::quorum::Tally;
use super::super::view::{cluster_id, endpoints_of, health, name_of};
use super::TYPE;
use super::figures::{Quota, Space};
use super::room::defrag_needs;
use super::weighed::{Cure, Takes};
use crate::finding::Finding;
use crate::wording::{Bytes, Count, Short, names};

const NAMED: usize = 7;

/// A member with the alarm whose figures nobody has.
struct Unseen<'a> {
    name: &'a str,
    /// Why, to follow its name in a sentence.
    why: String,
    listed: Option<&'a Member>,
    /// Why nobody will ever see them, in a sentence; empty for one that may yet answer, or whom nobody could look up.
    gone: String,
}

impl Unseen<'_> {
    fn of<'a>(etcd: &'a EtcdFacts, id: &'a str, tally: Option<&Tally<'_>>, now: Timestamp) -> Unseen<'a> {
        let name = name_of(etcd.members.value(), id);
        let listed = etcd.members.value().map(|l| l.members.iter().find(|m| m.id == id));
        let why = match listed {
            None => {
                "is the id in the alarm, and the member list that would tell more was not read".to_owned()
            }
            Some(None) => "is the id in the alarm, and the member list does not have it any more".to_owned(),
            Some(Some(m)) => {
                let why = health(endpoints_of(etcd, m), cluster_id(etcd), m, now).why;
                if why.is_empty() { "answers and told no size that can be one".to_owned() } else { why }
            }
        };
        let is_ghost = tally.is_some_and(|t| t.voters.iter().any(|v| v.id == id && v.is_dead_ghost()));
        let gone = match listed {
            Some(Some(_)) if is_ghost => format!(
                "{name} is a ghost that does not answer: a person removes it as EtcdMembership tells, and its alarm stays set."
            ),
            Some(None) => format!(
                "Find out who {name} is (etcdctl alarm list, etcdctl member list): an alarm stays when its member is removed."
            ),
            _ => String::new(),
        };
        Unseen { name, why, listed: listed.flatten(), gone }
    }

    /// Where its figures are to be had: the URL that it publishes.
    fn place(&self) -> String {
        let url = self.listed.and_then(|m| m.client_urls.iter().find(|url| !url.is_empty()));
        url.map(|url| format!(" --endpoints={url}")).unwrap_or_default()
    }
}

pub(super) fn judge(
    etcd: &EtcdFacts,
    alarmed: &Alarmed,
    spaces: &[Space<'_>],
    tally: Option<&Tally<'_>>,
    (at, now): (Timestamp, Timestamp),
    limits: &Thresholds,
) -> Cure {
    let ids: Vec<&str> = alarmed.named().map(String::as_str).collect();
    let seen: Vec<&Space<'_>> = spaces.iter().filter(|s| ids.contains(&s.id)).collect();
    let unseen: Vec<Unseen<'_>> = ids
        .iter()
        .filter(|id| !seen.iter().any(|s| s.id == **id))
        .map(|id| Unseen::of(etcd, id, tally, now))
        .collect();
    let listed = etcd.members.value().map_or(&[][..], |l| &l.members);
    let known = ids.iter().filter(|id| listed.iter().any(|m| m.id == **id)).count();
    let of_members = match listed.len() {
        members if members == 0 || known == 0 => String::new(),
        members => format!(" ({known} of {})", Count(members, "member")),
    };
    let set = format!("A NOSPACE alarm is set on {}{of_members}", alarmed.who(etcd));
    // Where no member is named, any may be the one: the fullest tells the worst, and says that it is only the fullest.
    let candidates: Vec<&Space<'_>> = if ids.is_empty() { spaces.iter().collect() } else { seen };
    // Of several the one that a defragmentation does not help, for its cure helps the others too.
    let used_up = |s: &Space<'_>| s.is_used_up(limits.etcd_space_warn_percent);
    let fullest = candidates
        .iter()
        .max_by(|a, b| used_up(a).cmp(&used_up(b)).then(a.fullness().total_cmp(&b.fullness())));
    let figures = Figures { etcd, alarmed, set: &set, candidates: &candidates, spaces, unseen: &unseen };
    match fullest {
        Some(space) => figures.cure(space, limits).at(at),
        None if unseen.is_empty() => Told {
            reason: R::EtcdNoSpace,
            takes: Takes::AtLast,
            message: format!("{set}: writes are refused for the whole cluster. No member told its size."),
            advice: format!(
                "Do not restart etcd. Read size and in-use size of each member (etcdctl endpoint status --cluster -w json; \
                 of {} asked from here none told them) before choosing a cure.",
                names(etcd.endpoints.iter().map(|e| &e.endpoint), NAMED)
            ),
        }
        .at(at),
        None => without_figures(&set, &unseen, spaces).at(at),
    }
}

/// What is said, and what the cure takes.
struct Told {
    reason: R,
    takes: Takes,
    message: String,
    advice: String,
}

impl Told {
    fn at(self, at: Timestamp) -> Cure {
        let finding = Finding::new(TYPE, Status::False, Severity::Error, self.reason, at, self.message);
        Cure { finding: finding.advice(self.advice), takes: self.takes }
    }
}

const REFUSED: &str = "writes are refused for the whole cluster although health checks may pass";

/// None of the alarmed members told its figures: what the others told chooses no cure for it.
fn without_figures(set: &str, unseen: &[Unseen<'_>], others: &[Space<'_>]) -> Told {
    let whose = names(unseen.iter().map(|u| u.name), NAMED);
    let why = unseen.iter().map(|u| format!("{} {}", u.name, u.why)).collect::<Vec<_>>().join("; ");
    let told = match others.iter().map(Space::numbers).collect::<Vec<_>>() {
        all if all.is_empty() => String::new(),
        all => format!(" Figures of others, which choose no cure for {whose}: {}.", all.join("; ")),
    };
    let message = format!("{set}: {REFUSED}. The figures of {whose} are not known: {why}.{told}");
    let listed: Vec<&Unseen<'_>> =
        unseen.iter().filter(|u| u.listed.is_some() && u.gone.is_empty()).collect();
    let (takes, advice) = if listed.is_empty() {
        gone_advice(unseen, others)
    } else {
        let who = names(listed.iter().map(|u| u.name), NAMED);
        let read: Vec<String> =
            listed.iter().map(|u| format!("etcdctl endpoint status -w json{}", u.place())).collect();
        let advice = format!(
            "Restart no member for the alarm. A person goes in this order. First {who} has to answer, and its size, bytes in \
             use and quota are read ({}; metric etcd_server_quota_backend_bytes): with a full file etcd may not come up \
             before its --quota-backend-bytes is larger. Then, where most of the file is in use, objects are removed and \
             compacted, or the quota made larger. Then {who} is defragmented, and last the alarm is cleared (etcdctl alarm \
             disarm): before {who} has room it comes back.{}",
            names(&read, NAMED),
            of_gone(unseen)
        );
        (Takes::AtLast, advice)
    };
    Told { reason: R::EtcdNoSpace, takes, message, advice }
}

/// Whose alarm is cleared without figures of their own, to follow a sentence.
fn of_gone(unseen: &[Unseen<'_>]) -> String {
    unseen.iter().filter(|u| !u.gone.is_empty()).map(|u| format!(" {}", u.gone)).collect()
}

/// Alarms of members that nobody lists any more, or that are dead ghosts.
fn gone_advice(unseen: &[Unseen<'_>], others: &[Space<'_>]) -> (Takes, String) {
    let (takes, by_figures) = match others.iter().max_by(|a, b| a.fullness().total_cmp(&b.fullness())) {
        Some(fullest) if others.iter().all(Space::has_room) => (
            Takes::Nothing,
            format!(
                "The fullest member that told its figures, {}, has room, so nothing else may be left of it than the alarm, which a \
                 person then clears (etcdctl alarm disarm)",
                fullest.name
            ),
        ),
        Some(fullest) if fullest.disproved().is_some() => (
            Takes::AtLast,
            format!(
                "Whether {} has room is not known, for its quota is not: look it up first (metric \
                 etcd_server_quota_backend_bytes). Where every member has room, a person clears the alarm (etcdctl alarm disarm)",
                fullest.name
            ),
        ),
        Some(fullest) => (
            Takes::AtLast,
            format!(
                "{} is near its quota as well: it is cured first (where most is in use, objects removed and compacted or the quota \
                 made larger; then defragmented), and only then a person clears the alarm (etcdctl alarm disarm)",
                fullest.name
            ),
        ),
        None => (
            Takes::Nothing,
            "Where every member has room, only the alarm is left of it, which a person then clears (etcdctl alarm disarm)"
                .to_owned(),
        ),
    };
    let unlisted = names(unseen.iter().filter(|u| u.gone.is_empty()).map(|u| u.name), NAMED);
    let who = match unlisted.as_str() {
        "" => String::new(),
        who => format!(
            " Find out who {who} is (etcdctl alarm list, etcdctl member list): an alarm stays when its member is removed."
        ),
    };
    (takes, format!("Do not restart etcd.{who}{} {by_figures}.", of_gone(unseen)))
}

/// The alarm, and the figures by which it is cured.
struct Figures<'a> {
    etcd: &'a EtcdFacts,
    alarmed: &'a Alarmed,
    /// That the alarm is set, and on whom.
    set: &'a str,
    /// Who may be meant by it: the alarmed members that told their figures; everybody where no member is named.
    candidates: &'a [&'a Space<'a>],
    spaces: &'a [Space<'a>],
    unseen: &'a [Unseen<'a>],
}

impl Figures<'_> {
    /// The cure by the figures of `space`, the fullest of those that may be meant.
    fn cure(&self, space: &Space<'_>, limits: &Thresholds) -> Told {
        let Self { etcd, alarmed, set, candidates, spaces, unseen } = *self;
        let who = alarmed.who(etcd);
        let numbers = space.numbers();
        let used_up = space.is_used_up(limits.etcd_space_warn_percent);
        let named = alarmed.named().next().is_some();
        let listed = etcd.members.value().map(|l| l.members.as_slice());
        let unknown = unseen.iter().filter(|u| u.gone.is_empty());
        let all_told = unknown.clone().next().is_none()
            && (named || listed.is_some_and(|all| all.iter().all(|m| spaces.iter().any(|s| s.id == m.id))));
        let room_everywhere = spaces.iter().all(Space::has_room) && !used_up;

        // Alarmed as well, and nobody has seen its figures: the cure of one is not the other's.
        let also = match names(unseen.iter().map(|u| format!("{} {}", u.name, u.why)), NAMED) {
            none if none.is_empty() => String::new(),
            why => format!(" The figures of the others that are alarmed are not known: {why}."),
        };
        let before = match names(unknown.map(|u| u.name), NAMED) {
            none if none.is_empty() => of_gone(unseen),
            rest => format!(
                " The alarm of {rest} is cleared only once size, bytes in use and quota there are known, and are cured too.{}",
                of_gone(unseen)
            ),
        };

        // The alarm is the one sign that the quota may be smaller than one that the alarmed member did not tell itself, be it
        // the default or another member's, by which there would be room.
        let assumed = names(candidates.iter().filter(|s| s.quota.is_assumed()).map(|s| s.name), NAMED);
        // One of the alarmed that told its own is enough to say that there it is left over; the others are named.
        let told_itself = named && candidates.iter().any(|s| !s.quota.is_assumed());
        if !assumed.is_empty() && !told_itself && room_everywhere {
            let by = match space.quota {
                Quota::AsOn(other, Some(_)) => format!("by that of {other}"),
                Quota::AsOn(other, None) => format!("with it switched off, as {other} has it,"),
                _ => "by the default".to_owned(),
            };
            let message = format!(
                "{set}: {REFUSED}; the quota of {assumed} is not known here, and {by} there is room. {numbers}.{also}"
            );
            let advice = format!(
                "Do not restart etcd. First look up the quota of {assumed} (--quota-backend-bytes, metric \
             etcd_server_quota_backend_bytes). Where the file is near it and little of it is in use, a person defragments one \
             member after the other{}, then clears the alarm; where most is in use, objects are removed and compacted or the \
             quota made larger before that. Where there is room by it, only the alarm is left over.{before}",
                defrag_needs(space, true)
            );
            return Told { reason: R::EtcdNoSpace, takes: Takes::AtLast, message, advice };
        }
        if all_told && room_everywhere {
            let first = if assumed.is_empty() {
                String::new()
            } else {
                format!(
                    " First look up the quota of {assumed}, which is not known here (metric etcd_server_quota_backend_bytes): where \
                 it is smaller, space is not back there."
                )
            };
            return Told {
                reason: R::EtcdAlarmLeftOver,
                takes: Takes::Nothing,
                message: format!(
                    "{set} although space is back ({numbers}): writes stay refused for the whole cluster."
                ),
                advice: format!(
                    "The alarm is still set on {who}; a person clears it (etcdctl alarm disarm). Outrider does not, and a restart \
                 does not help.{first}{}",
                    of_gone(unseen)
                ),
            };
        }
        let cured =
            if named { names(candidates.iter().map(|s| s.name), NAMED) } else { space.name.to_owned() };
        // A file at its quota sets the alarm anew with the next write, whoever it is set on now.
        let is_cured =
            |s: &Space<'_>| if named { candidates.iter().any(|c| c.id == s.id) } else { s.id == space.id };
        let near: Vec<&str> =
            spaces.iter().filter(|s| !s.has_room() && !is_cured(s)).map(|s| s.name).collect();
        let others = match names(&near, NAMED) {
            none if none.is_empty() => String::new(),
            near => format!(", and {near} as well, whose file is near its quota too"),
        };
        let several = near.len() + if named { candidates.len() } else { 1 } > 1;
        let alone = listed.is_some_and(|all| all.len() == 1);
        let unnamed = if named {
            String::new()
        } else {
            format!(
                " On which member it is set is not told; {cured} is the fullest of those that told their figures."
            )
        };
        let (takes, message, advice) = match space.freeable() {
            Some(freed) if !used_up => (
                Takes::AtOnce,
                format!(
                    "{set}: {REFUSED}. {numbers}; defragmentation frees about {}.{also}{unnamed}",
                    Bytes(freed)
                ),
                match alone {
                    true => format!(
                        "Do not restart etcd. A person defragments {cured}{}, then clears the alarm.{before}",
                        defrag_needs(space, false)
                    ),
                    false => format!(
                        "Do not restart etcd. A person defragments one member after the other, {cured} first{}, then clears the \
                         alarm.{before}",
                        defrag_needs(space, true)
                    ),
                },
            ),
            Some(freed) => (
                Takes::AtLast,
                format!(
                    "{set}: {REFUSED}. {numbers}; defragmentation frees only about {}.{also}{unnamed}",
                    Bytes(freed)
                ),
                format!(
                    "Do not restart etcd; defragmentation alone does not help. A person removes objects and compacts, or raises \
                 the quota; then defragments {cured}{others}{}{}; then clears the alarm, in this order.{before}",
                    if several { ", one member after the other" } else { "" },
                    defrag_needs(space, several)
                ),
            ),
            None => (
                Takes::AtLast,
                format!("{set}: {REFUSED}. {numbers}.{also}{unnamed}"),
                format!(
                    "Do not restart etcd. Find out how much of the {} of {} is in use (metric \
                 etcd_mvcc_db_total_size_in_use_in_bytes): near the quota, remove objects and compact or raise the quota \
                 first; then, or else at once, defragment {cured}{others}; then clear the alarm.{before}",
                    Short(space.size),
                    space.name
                ),
            ),
        };
        Told { reason: R::EtcdNoSpace, takes, message, advice }
    }
}
