//! `EtcdQuorum`: the verdict over a tally, the same for one node's view and for a whole fleet's.

use std::time::Duration;

use outrider_protocol::{ConditionType, ReasonCode as R, Severity, Status, Timestamp};

use super::lost;
use super::split::Split;
pub(super) use super::tally::NAMED;
pub(crate) use super::tally::{Ghost, Health, Proof, Tally, Voter, label, quorum_of, tolerated};
use crate::finding::{Finding, within_range};
use crate::wording::{Count, names};

const TYPE: ConditionType = ConditionType::EtcdQuorum;

/// A rolling upgrade restarts one member after another and shall page nobody.
const REDUCED_RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(5);

/// Every health but the best.
const AWAY: [Health; 3] = [Health::Down, Health::NoLeader, Health::Unknown];

pub(crate) const NO_MEMBERS_ADVICE: &str = "An empty answer is no healthy one: ask a member itself (etcdctl member list) with the client certificate of \
     this node.";

/// The verdict over `tally`, whose facts were read at `at`.
pub(crate) fn judge(tally: &Tally<'_>, at: Timestamp) -> Finding {
    let voters = tally.voters.len();
    if voters == 0 {
        let message = match tally.learners {
            0 => "The member list is empty: nobody knows the quorum.".to_owned(),
            n => format!(
                "The member list has no voter, only {}: nobody knows the quorum.",
                Count(n, "learner")
            ),
        };
        return Finding::new(TYPE, Status::Unknown, Severity::Warn, R::EtcdNoMembers, at, message)
            .advice(NO_MEMBERS_ADVICE);
    }
    let quorum = quorum_of(voters);
    let (healthy, unknown) = (tally.count(Health::Healthy), tally.count(Health::Unknown));
    let answering = healthy + tally.count(Health::NoLeader);
    let finding = match &tally.proof {
        Proof::Read { .. } => holds(tally, at),
        Proof::Failed(_) if healthy >= quorum => reads_fail(tally, at),
        Proof::None if healthy >= quorum => holds(tally, at),
        // A voter that sees no leader is in no working quorum; one that could not be asked may be.
        _ if healthy + unknown >= quorum => untold(tally, at),
        _ if answering >= quorum => no_leader(tally, at),
        _ => lost(tally, at),
    };
    match tally.reset_on.as_slice() {
        servers @ [_, ..] if finding.status != Status::True => finding.advice(after_reset(servers)),
        _ => finding,
    }
}

/// The quorum of before a reset is not to come back by its old members (D19): what happens next one condition alone says.
fn after_reset(servers: &[&str]) -> String {
    let who = names(servers, NAMED);
    format!(
        "The cluster was reset on {who}: EtcdMemberHealthy of {} says whose data counts and who is started first. Do not reset \
         again, and bring no other member back with its old data before that.",
        if servers.len() > 1 { "these" } else { &who }
    )
}

fn holds(tally: &Tally<'_>, at: Timestamp) -> Finding {
    let voters = tally.voters.len();
    let (healthy, unknown) = (tally.count(Health::Healthy), tally.count(Health::Unknown));
    let numbers = tally.numbers();
    let read = match &tally.proof {
        Proof::Read { ms, against: None } => format!("; a linearizable read took {ms:.1} ms"),
        Proof::Read { ms, against: Some((by, without)) } => {
            format!("; a linearizable read of {by} took {ms:.1} ms after {without} had lost theirs")
        }
        _ => String::new(),
    };
    let read = format!("{read}{}", tally.leader);
    // Nobody who had a quorum has lost it: there is nothing that has to settle before the doubt ends.
    let clear = match &tally.proof {
        Proof::Read { against: Some(_), .. } => Duration::ZERO,
        _ => CLEAR,
    };
    let from = &tally.seen_from;
    let new =
        |severity, reason, message: String| Finding::new(TYPE, Status::True, severity, reason, at, message);

    if healthy == voters {
        // Who is of another cluster is no server to be added, and none that is one too many.
        if let Some(split) = Split::of(tally) {
            let (severity, reason) = match voters {
                1 => (Severity::Info, R::EtcdSingleVoter),
                n if n.is_multiple_of(2) => (Severity::Warn, R::EtcdEvenVoters),
                _ => (Severity::Ok, R::EtcdQuorumMet),
            };
            let words = split.words();
            let message =
                format!("Quorum holds in cluster {}: {numbers}{read}{from}. {words}", tally.cluster_id);
            let advice = if severity > Severity::Ok { split.advice() } else { String::new() };
            return new(severity, reason, message).waits(REDUCED_RAISE, clear).advice(advice);
        }
        let finding = match voters {
            1 => new(
                Severity::Info,
                R::EtcdSingleVoter,
                format!("Quorum holds, with nothing in reserve: {numbers}{read}{from}."),
            )
            .advice(match tally.learners {
                0 => format!(
                    "1 voter tolerates 0 failures, 3 tolerate 1: where an outage matters, and no other server runs a cluster of its \
                     own, add two servers; keep etcd snapshots off {}.",
                    tally.named(&[Health::Healthy])
                ),
                on_their_way => format!(
                    "1 voter tolerates 0 failures. {}",
                    with_learners(voters, on_their_way)
                ),
            }),
            n if n % 2 == 0 => new(
                Severity::Warn,
                R::EtcdEvenVoters,
                format!(
                    "Quorum holds: {numbers}; {n} voters tolerate no more than {} would{read}{from}.",
                    n - 1
                ),
            )
            .advice(format!(
                "{n} voters are no better than {}{}. {}",
                n - 1,
                if n == 2 { ": neither may fail" } else { ", and one more can fail" },
                match tally.learners {
                    0 => format!(
                        "Add one server to make {} voters, which tolerate {}, or take one away on purpose.",
                        n + 1,
                        tolerated(n + 1, n + 1)
                    ),
                    on_their_way => with_learners(n, on_their_way),
                }
            )),
            _ => new(Severity::Ok, R::EtcdQuorumMet, format!("Quorum holds: {numbers}{read}{from}.")),
        };
        // To add or take away servers is no answer to an alarm, and may spread or lose what it is about.
        let advice = match finding.advice.as_str() {
            advice if tally.alarmed && !advice.is_empty() => {
                format!(
                    "First see EtcdSpace, for an alarm is set while which writes are refused. After that: {advice}"
                )
            }
            advice => advice.to_owned(),
        };
        return finding.waits(REDUCED_RAISE, clear).advice(advice);
    }

    let unhealthy = tally.unhealthy();
    let message = format!("Quorum holds: {numbers}; {unhealthy}{read}{from}.");
    let seen_enough = healthy >= quorum_of(voters);
    let (at_least, at_best) = (tolerated(voters, healthy), tolerated(voters, healthy + unknown));
    // Who could not be asked counts neither as healthy nor as lost.
    let more = if at_least == at_best { at_best.to_string() } else { format!("{at_least} to {at_best}") };
    let foreign = tally.voters.iter().filter(|v| v.foreign.is_some()).count();
    if voters - foreign < quorum_of(voters) {
        // No quorum of this list can have answered: whatever did has another list.
        let message = format!(
            "Whether quorum holds cannot be told: a linearizable read was answered, and {foreign} of {voters} voters are of other \
             clusters, so no quorum of this list answered it: {numbers}; {unhealthy}{read}{from}."
        );
        return Finding::new(TYPE, Status::Unknown, Severity::Error, R::EtcdVotersUnknown, at, message)
            .waits(REDUCED_RAISE, clear)
            .advice(tally.of_others().trim_start());
    }
    if !seen_enough || (unknown > 0 && healthy + unknown == voters) {
        // At best as bad as no tolerance: either the way to the others is closed, or the read was the last one.
        let severity = if at_best == 0 { Severity::Error } else { Severity::Warn };
        let is_to_ask = |v: &&Voter<'_>| v.foreign.is_none() && v.unstarted.is_none() && !v.is_dead_ghost();
        let unseen = tally.voters.iter().filter(|v| v.health != Health::Healthy && v.spoilt.is_none());
        let ask = names(unseen.filter(is_to_ask).map(|v| &*v.name), NAMED);
        let who = if from.is_empty() { "this node" } else { "a node that reports" };
        return new(severity, R::EtcdVotersUnseen, message).waits(REDUCED_RAISE, clear).advice(format!(
            "Let {who} reach the client port (2379) of {} with its client certificate; until then it is not known here that more \
             than {at_least} of {voters} may fail, and at best it is {at_best}.{}",
            if ask.is_empty() { tally.named(&AWAY) } else { ask },
            tally.of_others()
        ));
    }
    if at_best > 0 {
        let back = tally.returning(&AWAY);
        let advice = if back.is_empty() {
            format!("{more} more of {voters} may fail. Do not reset the cluster.{}", tally.of_others())
        } else {
            format!(
                "Bring {} back: {more} more of {voters} may fail until then. Do not remove a member or reset the cluster \
                 while its machine may return.{}",
                names(back, NAMED),
                tally.of_others()
            )
        };
        return new(Severity::Warn, R::EtcdToleranceReduced, message)
            .waits(REDUCED_RAISE, clear)
            .advice(advice);
    }
    // A ghost will not come back and was counted against the cluster all along: a standing fault, not an incident.
    let only_ghosts = tally.voters.iter().all(|v| v.health == Health::Healthy || v.ghost.is_some());
    let severity = if only_ghosts { Severity::Warn } else { Severity::Error };
    let away = tally.named(&AWAY);
    let returning = tally.returning(&AWAY);
    let back = names(&returning, NAMED);
    let advice = if only_ghosts {
        format!(
            "Ghosts still count ({away}), so quorum is {} of {voters}. A person who has made sure that no machine is behind them \
             removes them, as EtcdMembership tells; Outrider does not.",
            quorum_of(voters)
        )
    } else if back.is_empty() {
        format!(
            "The next loss stops the cluster: restart, drain or upgrade none of {}, and do not reset the cluster.{}",
            tally.named(&[Health::Healthy]),
            tally.of_others()
        )
    } else {
        format!(
            "The next loss stops the cluster: bring {back} back first, and restart, drain or upgrade none of {} until then. \
             Do not remove {back} while {}, and do not reset the cluster.{}",
            tally.named(&[Health::Healthy]),
            if returning.len() > 1 { "they may come back as they are" } else { "it may come back as it is" },
            tally.of_others().replace("see EtcdMembership", "see EtcdMembership after that")
        )
    };
    let message = format!("The next loss stops the cluster: {numbers}; {unhealthy}{read}{from}.");
    new(severity, R::EtcdNoTolerance, message).waits(REDUCED_RAISE, clear).advice(advice)
}

/// What to do about few or even voters while learners join: one that is on its way is the server that would be added (D6).
fn with_learners(voters: usize, learners: usize) -> String {
    let then = voters + learners;
    let who = if learners == 1 { "the learner that joins" } else { "the learners that join" };
    let more = match then {
        n if n.is_multiple_of(2) => {
            format!(
                " After that one more server makes {}, which tolerate {}.",
                n + 1,
                tolerated(n + 1, n + 1)
            )
        }
        _ => String::new(),
    };
    format!(
        "Wait for {who}, which makes {then} voters that tolerate {}, and add or take away no other server before: EtcdMembership says \
         how far it is, and what it lacks if it does not come on.{more}",
        tolerated(then, then)
    )
}

fn lost(tally: &Tally<'_>, at: Timestamp) -> Finding {
    let from = match tally.may_be_cut_off() {
        true if tally.seen_from.is_empty() => {
            "; seen from this node alone, to which nothing comes back from them"
        }
        true => &format!("{}; nothing comes back to the one that reports from the others", tally.seen_from),
        false => tally.seen_from.as_str(),
    };
    let message = format!("Quorum is lost: {}; {}{from}.", tally.numbers(), tally.unhealthy());
    certain_later(tally, Finding::new(TYPE, Status::False, Severity::Error, R::EtcdQuorumLost, at, message))
        .advice(lost::advice(tally))
}

fn no_leader(tally: &Tally<'_>, at: Timestamp) -> Finding {
    let message = format!(
        "Enough voters answer, but no leader serves them and nothing can be read or written: {}; {}{}.",
        tally.numbers(),
        tally.unhealthy(),
        tally.seen_from
    );
    certain_later(tally, Finding::new(TYPE, Status::False, Severity::Error, R::EtcdNoLeader, at, message)).advice(format!(
        "An election takes {0} ms or a little more. If it does not end: check port 2380 between {1} both ways, their clocks \
         and the disk latency. Do not restart {1} because there is no leader.{2}",
        tally.election_timeout.as_millis(),
        tally.named(&[Health::Healthy, Health::NoLeader]),
        tally.of_others()
    ))
}

/// Suspected at once and only as a warning, as grave as it is after etcd's own limit: an election is no outage.
fn certain_later(tally: &Tally<'_>, finding: Finding) -> Finding {
    finding
        .waits(tally.election_timeout, CLEAR)
        .holds_since(tally.no_read_since)
        .suspected_as(R::EtcdQuorumSuspected)
}

fn reads_fail(tally: &Tally<'_>, at: Timestamp) -> Finding {
    let why = match &tally.proof {
        Proof::Failed(why) => why.as_str(),
        _ => "",
    };
    let away = match tally.unhealthy() {
        away if away.is_empty() => away,
        away => format!("; {away}"),
    };
    let message = format!(
        "Enough voters answer, but a linearizable read fails ({why}): {}{away}{}.",
        tally.numbers(),
        tally.seen_from
    );
    let (voters, healthy) = (tally.voters.len(), tally.count(Health::Healthy));
    let first = match names(tally.returning(&AWAY), NAMED) {
        back if back.is_empty() => "See".to_owned(),
        back => format!(
            "Bring {back} back: {} of the {healthy} that answer have to answer in time for every read, and {} may be slow. Then \
             see",
            quorum_of(voters),
            match tolerated(voters, healthy) {
                0 => "none".to_owned(),
                spare => format!("no more than {spare}"),
            }
        ),
    };
    let finding = Finding::new(TYPE, Status::Unknown, Severity::Error, R::EtcdQuorumSuspected, at, message);
    certain_later(tally, finding).advice(format!(
        "{first} whether the leader changes again and again (EtcdMemberHealthy) and how slow the disks of {0} are \
         (EtcdDisk); check port 2380 between them. Do not restart {0} because of a slow answer.{1}",
        tally.named(&[Health::Healthy]),
        tally.of_others()
    ))
}

/// Neither holds nor lost can be said.
fn untold(tally: &Tally<'_>, at: Timestamp) -> Finding {
    let message = format!(
        "Whether quorum holds cannot be told: {}; {}{}.",
        tally.numbers(),
        tally.unhealthy(),
        tally.seen_from
    );
    let leaderless = tally.count(Health::NoLeader) > 0 && tally.count(Health::Healthy) == 0;
    let failed = matches!(tally.proof, Proof::Failed(_));
    let reason = if leaderless || failed { R::EtcdQuorumSuspected } else { R::EtcdVotersUnknown };
    let wanted = if failed || tally.count(Health::Healthy) == 0 { Severity::Error } else { Severity::Warn };
    let severity = within_range(&reason, wanted);
    let is_suspicion = reason == R::EtcdQuorumSuspected;
    let unseen = tally.voters.iter().filter(|v| v.health == Health::Unknown).count();
    let finding = Finding::new(TYPE, Status::Unknown, severity, reason, at, message);
    // Who is known to be away has to come back whatever the others turn out to be.
    let away = match names(tally.returning(&[Health::Down, Health::NoLeader]), NAMED) {
        away if away.is_empty() => away,
        away => format!(" Down or without a leader, and needed back in any case: {away}."),
    };
    let finding = finding.waits(tally.election_timeout, CLEAR).advice(format!(
        "{unseen} of {voters} voters could not be asked. Let {0} be asked: client port 2379, this node's client certificate, \
         the right CA. What is said of {0} is of the question, not of the members.{away}{1}",
        tally.named(&[Health::Unknown]),
        tally.of_others(),
        voters = tally.voters.len(),
    ));
    // A suspicion is shown at once; how grave it is shows after an election's time.
    if is_suspicion { finding.suspected_as(R::EtcdQuorumSuspected) } else { finding }
}
