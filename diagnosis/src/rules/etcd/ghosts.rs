//! Ghosts: voters that count and that nobody is behind any more (D17), and what their removal needs and costs.

use outrider_protocol::{ConditionType, ReasonCode as R, Severity, Status, Timestamp};

use super::quorum::{self, Ghost, Health, Tally, Voter, quorum_of, tolerated};
use crate::finding::Finding;
use crate::wording::{Count, names};

const TYPE: ConditionType = ConditionType::EtcdMembership;
const NAMED: usize = 7;

/// What a removal needs before `then`, a clause about a person's step: etcd agrees on it by a quorum.
pub(crate) fn removal_needs(quorum: Status, then: &str) -> String {
    match quorum {
        Status::True => then.to_owned(),
        Status::False => {
            format!("a removal needs a quorum, and none holds now, so first see EtcdQuorum; then {then}")
        }
        Status::Unknown => format!(
            "a removal needs a quorum, and whether one holds is not known now (see EtcdQuorum); only while one does, {then}"
        ),
    }
}

/// Whether quorum holds, in the one way that `EtcdQuorum` tells it.
pub(crate) fn standing(tally: &Tally<'_>, at: Timestamp) -> Status {
    quorum::judge(tally, at).status
}

/// With the whole id: it is what the command takes that a person will type.
fn named(v: &Voter<'_>) -> String {
    match v.name.split_once(" (id ") {
        Some((name, _)) => format!("{name} with id {}", v.id),
        None => format!("{} with id {}", v.name, v.id),
    }
}

/// Who answers without a leader lacks nothing but the quorum.
fn lives(v: &Voter<'_>) -> bool {
    matches!(v.health, Health::Healthy | Health::NoLeader)
}

pub(crate) fn ghosts(tally: &Tally<'_>, at: Timestamp) -> Option<Finding> {
    let ghosts: Vec<(&Voter<'_>, &Ghost)> =
        tally.voters.iter().filter_map(|v| Some((v, v.ghost.as_ref()?))).collect();
    if ghosts.is_empty() {
        return None;
    }
    let voters = tally.voters.len();
    let left = voters - ghosts.len();
    let list = names(
        ghosts.iter().map(|(v, ghost)| {
            let state = match v.health {
                Health::Healthy | Health::NoLeader => "still answers",
                Health::Unknown => "not asked",
                Health::Down => "does not answer",
            };
            match ghost {
                Ghost::WithoutNode => format!("{} ({state}), without a Kubernetes node", named(v)),
                Ghost::Retired { machine, peers } => format!(
                    "{} ({state}), at {peers}, whose machine {machine} was deleted at Harvester",
                    named(v)
                ),
                Ghost::Rebuilt { node, living } => format!(
                    "{} ({state}), left over from before node {node} was built anew, whose living member is {living}",
                    named(v)
                ),
            }
        }),
        NAMED,
    );
    let several = ghosts.len() > 1;
    let message = format!(
        "Ghost {}: {list}; the cluster of {left} counts as {voters}, quorum {} of {voters}, tolerates {} more; after removal \
         of the {}: {}.",
        if several { "members" } else { "member" },
        quorum_of(voters),
        tolerated(voters, tally.count(Health::Healthy)),
        if several { "ghosts" } else { "ghost" },
        after_removal(tally, left)
    );
    let is_dead = |v: &Voter<'_>| v.health == Health::Down;
    let (dead, alive): (Vec<_>, Vec<_>) = ghosts.into_iter().partition(|(v, _)| is_dead(v));
    let mut advice: Vec<String> = Vec::new();
    if !dead.is_empty() {
        advice.push(remove_dead(tally, &dead, at));
    }
    if !alive.is_empty() {
        advice.push(beware_living(tally, &alive));
    }
    advice.push("Outrider does not remove members.".to_owned());
    let finding = Finding::new(TYPE, Status::False, Severity::Warn, R::EtcdGhostMember, at, message);
    Some(finding.advice(advice.join(" ")))
}

/// What the cluster would be without its ghosts, of which `left` voters are none.
fn after_removal(tally: &Tally<'_>, left: usize) -> String {
    let rest = || tally.voters.iter().filter(|v| v.ghost.is_none());
    let living = rest().filter(|v| lives(v)).count();
    let unknown = rest().filter(|v| v.health == Health::Unknown).count();
    let quorum = quorum_of(left);
    let verdict = match left {
        0 => "and nobody left".to_owned(),
        _ if living >= quorum => format!("tolerates {}", tolerated(left, living)),
        _ if living + unknown >= quorum => format!("of which only {living} are known to live"),
        _ => format!("of which only {living} live, so no quorum"),
    };
    format!("{}, quorum {quorum}, {verdict}", Count(left, "voter"))
}

/// Ghosts that do not answer: what a person makes sure of before removing them, and what that needs.
fn remove_dead(tally: &Tally<'_>, dead: &[(&Voter<'_>, &Ghost)], at: Timestamp) -> String {
    let (voters, several) = (tally.voters.len(), dead.len() > 1);
    let all = names(dead.iter().map(|(v, _)| named(v)), NAMED);
    let mut living: Vec<&str> = dead
        .iter()
        .filter_map(|(_, ghost)| match ghost {
            Ghost::Rebuilt { living, .. } => Some(living.as_str()),
            Ghost::WithoutNode | Ghost::Retired { .. } => None,
        })
        .collect();
    let retired: Vec<&Voter<'_>> =
        dead.iter().filter(|(_, ghost)| matches!(ghost, Ghost::Retired { .. })).map(|(v, _)| *v).collect();
    let kubelet = match living.len() {
        rebuilt if rebuilt + retired.len() == dead.len() => "",
        // One node's list may be behind; over a cluster all lists were compared.
        _ if tally.seen_from.is_empty() => {
            " (a server without kubelet has no Kubernetes node either, and one server's list may be behind: see kubectl get nodes on \
             another)"
        }
        _ => " (a server without kubelet has no Kubernetes node either)",
    };
    // A node that was built anew twice has two ghosts and one living member.
    living.dedup();
    let stays = match names(&living, NAMED) {
        stay if stay.is_empty() => String::new(),
        stay => format!(", and not {stay},"),
    };
    let first = match standing(tally, at) {
        Status::True => String::new(),
        Status::Unknown => {
            " Whether a quorum holds is not known now (see EtcdQuorum), and a removal needs one.".to_owned()
        }
        Status::False => {
            let back = tally.voters.iter().filter(|v| v.may_return() && v.health != Health::NoLeader);
            match names(back.map(|v| &*v.name), NAMED) {
                back if back.is_empty() => {
                    " No quorum holds now, and a removal needs one: see EtcdQuorum for what is left."
                        .to_owned()
                }
                back if tally.in_reach() < quorum_of(voters) => format!(
                    " No quorum holds now, and a removal needs one: with {back} back only {} of the {} that are needed would \
                     answer, so none of them can be removed. See EtcdQuorum for what is left.",
                    tally.in_reach(),
                    quorum_of(voters)
                ),
                back => format!(" No quorum holds now, and a removal needs one: first bring back {back}."),
            }
        }
    };
    // That a machine of that name was deleted is known; what else a person needs is the command.
    let command = match retired.as_slice() {
        [] => String::new(),
        some => format!(
            " By etcdctl (docs/etcdctl.md) on a server that lives: {}.",
            names(some.iter().map(|v| format!("etcdctl member remove {}", v.id)), NAMED)
        ),
    };
    format!(
        "A person makes sure that the {} of {all} {} gone for good{kubelet}, then removes {}{stays} while quorum holds ({} of \
         {voters} healthy voters needed now).{first}{command}",
        if several { "machines" } else { "machine" },
        if several { "are" } else { "is" },
        if several { "those members, one at a time" } else { "that member" },
        quorum_of(voters),
    )
}

/// Ghosts that answer, or that nobody could ask: their machines run, or may.
fn beware_living(tally: &Tally<'_>, ghosts: &[(&Voter<'_>, &Ghost)]) -> String {
    let answering: Vec<String> = ghosts.iter().filter(|(v, _)| lives(v)).map(|(v, _)| named(v)).collect();
    let unasked = names(ghosts.iter().filter(|(v, _)| !lives(v)).map(|(v, _)| named(v)), NAMED);
    let mut out = Vec::new();
    if !answering.is_empty() {
        let who = names(&answering, NAMED);
        let cost = of_stopping(tally, answering.len());
        out.push(if answering.len() == 1 {
            format!(
                "Do not remove {who} while it answers: a machine runs there and votes. Find that machine: a server without \
                 kubelet, or one whose Node object was deleted, has no Kubernetes node either and belongs to the cluster. Only \
                 one that is to go is stopped first, and removed once it no longer answers: {cost}."
            )
        } else {
            format!(
                "Do not remove {who} while they answer: machines run there and vote. Find those machines: a server without \
                 kubelet, or one whose Node object was deleted, has no Kubernetes node either and belongs to the cluster. Only \
                 those that are to go are stopped, one at a time: stop one, remove it once it no longer answers, and only then \
                 the next; {cost}."
            )
        });
    }
    if !unasked.is_empty() {
        out.push(format!(
            "Whether {unasked} lives is not known, for it could not be asked; see that first, and do not remove it before."
        ));
    }
    out.join(" ")
}

/// What is left when `ghosts` living ones are stopped and removed one after the other. One that is stopped counts in the
/// quorum until it is removed, and its removal needs that quorum.
fn of_stopping(tally: &Tally<'_>, ghosts: usize) -> String {
    let voters = tally.voters.len();
    let living = tally.voters.iter().filter(|v| lives(v)).count();
    let bears = |gone: usize| living - gone > quorum_of(voters - gone);
    let first = format!("quorum stays {} of {voters} until it is removed", quorum_of(voters));
    let safe = (0..ghosts).take_while(|gone| bears(*gone)).count();
    let away = tally.voters.iter().filter(|v| v.may_return() && !lives(v)).map(|v| &*v.name);
    let help = match names(away, NAMED) {
        away if away.is_empty() => "first have one server more".to_owned(),
        away => format!("first have {away} back"),
    };
    if safe == 0 {
        return format!(
            "{first}, and with it stopped only {} of {voters} would be known to live: the cluster stops, and nothing can be \
             removed any more, so {help}",
            living - 1
        );
    }
    let enough = format!("{first}, and with it stopped {} of {voters} live", living - 1);
    if safe == ghosts {
        return enough;
    }
    let (voters, living) = (voters - safe, living - safe);
    format!(
        "{enough}. After {safe} of them the next that is stopped would leave {} of {voters}, quorum {}: the cluster would stop, \
         so {help}",
        living - 1,
        quorum_of(voters)
    )
}
