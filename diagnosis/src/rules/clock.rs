//! `ClockSynchronized`: the kernel's own word, the offset to the coordinator, and what other machines' clocks say of who is
//! wrong.

mod peers;
mod service;
mod standing;
mod trust;

use std::time::Duration;

use outrider_protocol::{
    ClockFacts, ClockOffset, ConditionType, Fact, KernelClock, NodeFacts, ReasonCode, Severity, Status,
    Timestamp,
};

use self::peers::Whose;
use self::standing::Standing;
pub(super) use self::trust::{Doubt, Trust, Validity};
use super::unread;
use crate::finding::Finding;
use crate::wording::{Moment, Skew, Span, names};

const TYPE: ConditionType = ConditionType::ClockSynchronized;
const RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(60);

/// A clock is given this long after boot to find its servers.
const BOOT_GRACE_SECONDS: u64 = 300;

const REPAIR: &str = "Repair this machine's time service (chronyc tracking, timedatectl); judge no end by this clock until then.";

pub(super) fn judge(clock: &ClockFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
    let limits = &facts.thresholds;
    let keeper = service::keeper(clock);
    let skewed = |severity, message: String, advice: String| {
        Finding::new(TYPE, Status::False, severity, ReasonCode::ClockSkewed, at, message)
            .waits(RAISE, CLEAR)
            .advice(advice)
    };
    let by_size = |ms: i64| if ms > limits.clock_error_ms { Severity::Error } else { Severity::Warn };
    match Standing::of(facts) {
        Standing::CoordinatorWrong { offset, agree } => {
            let message = format!(
                "This clock is {}, and {agree} agree with this one: it is the coordinator's that is wrong; {keeper}.",
                Offset(offset)
            );
            peer_wrong(at, message)
        }
        Standing::Differs { offset, certain_ms, whose } => {
            let who = match &whose {
                Whose::Ours(agree) => {
                    format!("; {agree} agree with that one, so it is this clock that is wrong")
                }
                _ if peers::of(facts).is_empty() => String::new(),
                _ => "; other clocks do not tell which of the two is wrong".to_owned(),
            };
            let message = format!(
                "This clock is {}; limits {} ms and {} ms; {keeper}{who}.",
                Offset(offset),
                limits.clock_warn_ms,
                limits.clock_error_ms
            );
            let advice = match whose {
                Whose::Ours(_) => REPAIR,
                _ => {
                    "Find out which of the two clocks is wrong (chronyc tracking, timedatectl) and repair its time service. \
                     Certificates look expired or not yet valid until then; do not judge tokens by this clock."
                }
            };
            skewed(by_size(certain_ms), message, advice.to_owned())
        }
        Standing::OffByService(off) => {
            let way = if off < 0.0 { "behind" } else { "ahead of" };
            let message = format!(
                "This clock is {} {way} the true time by its own service's word; {keeper}.",
                Skew(off as i64)
            );
            skewed(
                by_size(off.abs() as i64),
                message,
                "The service sets it right little by little: chronyc makestep does so at once, on etcd servers one at a time. \
                 Where it may not set the clock (a container; chronyd -x), repair the host's."
                    .to_owned(),
            )
        }
        Standing::OffFromPeers { by_ms, who } => {
            let way = if by_ms < 0 { "behind" } else { "ahead of" };
            let message = format!(
                "This clock is {} {way} those of {who}, which agree with each other (by the Date of their answers); {keeper}.",
                Skew(by_ms)
            );
            skewed(by_size(by_ms.saturating_abs()), message, REPAIR.to_owned())
        }
        Standing::WrittenAhead { path, by } => {
            // Certificates that begin in its future too leave no doubt who is wrong.
            let severity =
                if peers::begins_latest(facts).is_some() { Severity::Error } else { Severity::Warn };
            let kept =
                if is_kept(clock) { "the kernel calls it synchronised" } else { "nobody disciplines it" };
            let message = format!(
                "{path} was written {by} ahead of this clock: it is behind, or was ahead then; {kept}, {keeper}."
            );
            let advice = format!(
                "Compare this clock with another (date -u; here it is {}). If it is behind, repair this machine's time service \
                 (chronyc tracking, timedatectl) and judge no end by this clock until then. If it is right, the date of that \
                 file is wrong (stat {path}): nothing else follows from it, and touch puts it right.",
                Moment(facts.now)
            );
            skewed(severity, message, advice)
        }
        Standing::Agrees(offset) => unopposed(clock, at, facts, &keeper, Some(offset)),
        Standing::Alone => unopposed(clock, at, facts, &keeper, None),
    }
}

fn is_kept(clock: &ClockFacts) -> bool {
    matches!(&clock.kernel, Fact::Known { value, .. } if value.synchronized)
}

/// Nothing is known for certain against this clock; `offset` is the coordinator's, where that was heard.
fn unopposed(
    clock: &ClockFacts,
    at: Timestamp,
    facts: &NodeFacts,
    keeper: &str,
    offset: Option<&ClockOffset>,
) -> Finding {
    let others = peers::of(facts);
    let off = peers::off(&others, facts.thresholds.clock_warn_ms);
    if !off.is_empty() && (offset.is_some() || is_kept(clock)) {
        let vouch = if offset.is_some() { "agrees with the coordinator's" } else { "is kept" };
        let message = format!(
            "This clock {vouch}, and by the Date of the answers it is {}; {keeper}.",
            peers::apart(&off)
        );
        return peer_wrong(at, message);
    }
    let own = service::source(clock);
    let early = peers::begins_latest(facts).map_or_else(String::new, |from| {
        format!(
            " A certificate met here begins only in {} by this clock: it may well be behind.",
            Span(from.since(facts.now))
        )
    });
    let by_peer = offset.map(|o| format!("; {}", Offset(o))).unwrap_or_default();
    let lost = own.and_then(|own| service::lost(own, facts.now));
    match &clock.kernel {
        Fact::Known { value: kernel, .. } if kernel.synchronized && lost.is_some() => {
            let message = format!(
                "The clock still counts as synchronised (estimated error {} us), but {}{by_peer}.",
                kernel.estimated_error_us,
                lost.unwrap_or_default()
            );
            Finding::new(TYPE, Status::True, Severity::Warn, ReasonCode::ClockSourceLost, at, message)
                .waits(RAISE, CLEAR)
                .advice(service::advice(clock))
        }
        Fact::Known { value: KernelClock { synchronized: true, estimated_error_us, .. }, .. } => Finding::new(
            TYPE,
            Status::True,
            Severity::Ok,
            ReasonCode::ClockInSync,
            at,
            format!("The kernel's clock is synchronised, estimated error {estimated_error_us} us, {keeper}{by_peer}."),
        )
        .waits(RAISE, CLEAR),
        Fact::Known { value: kernel, .. } => {
            let uptime = facts.checks.host.as_ref().and_then(Fact::value).and_then(|h| h.uptime_seconds.value());
            let young = uptime.is_some_and(|s| *s < BOOT_GRACE_SECONDS);
            // An offset that was measured and is small is the better evidence, the coordinator's or another machine's; while
            // the first is on its way there is nothing to be said against this clock yet.
            let agreed = off.is_empty() && !others.is_empty();
            let asked = offset.is_none() && is_asked(facts);
            let calm =
                (offset.is_some() || agreed || asked || young) && off.is_empty() && early.is_empty();
            let severity = if calm { Severity::Info } else { Severity::Warn };
            let unheard = "; the coordinator has not been heard yet";
            let witnesses = match (offset, agreed, asked) {
                _ if !off.is_empty() => format!(
                    "; by the Date of the answers it is {}, and nothing tells which is right{}",
                    peers::apart(&off),
                    if asked { unheard } else { "" }
                ),
                (None, true, _) => {
                    format!("; it agrees with {}", names(others.iter().map(|peer| &peer.name), 4))
                }
                (None, _, true) => unheard.to_owned(),
                _ => String::new(),
            };
            let service = own.map(|own| format!(" {} {}.", own.service, service::standing(own))).unwrap_or_default();
            let since_boot =
                uptime.map(|s| format!(", {} after boot", Span(Duration::from_secs(*s)))).unwrap_or_default();
            let message = format!(
                "Nobody disciplines the kernel's clock (maximum error {} us){since_boot}; {keeper}{by_peer}{witnesses}.{service}{early}",
                kernel.maximum_error_us
            );
            let compare = if off.is_empty() {
                String::new()
            } else {
                format!(
                    "Compare this clock with a third one (date -u; here it is {}) and judge no end by it until then. ",
                    Moment(facts.now)
                )
            };
            Finding::new(TYPE, Status::False, severity, ReasonCode::ClockUnsynchronized, at, message)
                .waits(RAISE, CLEAR)
                .advice(compare + &service::advice(clock))
        }
        other => match (unread(TYPE, "The kernel's clock state", other, Severity::Warn), offset) {
            (_, Some(offset)) => Finding::new(
                TYPE,
                Status::True,
                Severity::Ok,
                ReasonCode::ClockInSync,
                at,
                format!("This clock is {}; the kernel's own state could not be read; {keeper}.", Offset(offset)),
            )
            .waits(RAISE, CLEAR),
            (Some(finding), None) if !off.is_empty() => {
                let by = peers::apart(&off);
                let message = format!("{} By the Date of the answers this clock is {by}.", finding.message);
                Finding { message, ..finding }
            }
            (Some(finding), None) => finding,
            (None, None) => Finding::unknown(
                TYPE,
                &outrider_protocol::UnknownCause::Unsupported,
                Severity::Info,
                at,
                "This system tells nothing about its clock, and no coordinator was heard.",
            ),
        },
    }
}

/// How far this machine's clock is off, and against whom, as far as its own facts tell: by the coordinator's clock, unless
/// others agree that this one is wrong, else by those that agree with each other.
pub(crate) fn offset(facts: &NodeFacts) -> Option<ClockOffset> {
    match Standing::of(facts) {
        Standing::Agrees(offset) | Standing::Differs { offset, .. } => Some(offset.clone()),
        Standing::CoordinatorWrong { offset, .. } => Some(ClockOffset { offset_ms: 0, ..offset.clone() }),
        Standing::OffFromPeers { by_ms, who } => {
            Some(ClockOffset { offset_ms: by_ms, uncertainty_ms: 1000, peer: who })
        }
        Standing::OffByService(_) | Standing::WrittenAhead { .. } | Standing::Alone => None,
    }
}

/// Whether the clock is kept by a time service, by the kernel's word, and nothing speaks against it: then it needs no measuring.
pub(crate) fn keeps_time(facts: &NodeFacts) -> bool {
    let clock = facts.checks.clock.as_ref().and_then(Fact::value);
    clock.is_some_and(is_kept) && matches!(Standing::of(facts), Standing::Alone)
}

/// The agent has a coordinator, and the first word of it is on its way.
fn is_asked(facts: &NodeFacts) -> bool {
    let agent = facts.checks.agent.as_ref().and_then(Fact::value);
    agent.is_some_and(|agent| agent.untried && !agent.coordinator.is_empty())
}

/// Another machine's clock is wrong, by all that is known here: this one holds.
fn peer_wrong(at: Timestamp, message: String) -> Finding {
    Finding::new(TYPE, Status::True, Severity::Warn, ReasonCode::ClockOfPeerWrong, at, message)
        .waits(RAISE, CLEAR)
        .advice(
            "Look at the time service of the machine that is named: it takes new certificates for not yet valid, or old ones \
             for good, and its tokens end at another time. Leave this machine's clock as it is.",
        )
}

struct Offset<'a>(&'a ClockOffset);

impl std::fmt::Display for Offset<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ClockOffset { offset_ms, uncertainty_ms, peer } = self.0;
        let side = if *offset_ms < 0 { "behind" } else { "ahead of" };
        write!(f, "{} {side} that of {peer} (give or take {uncertainty_ms} ms)", Skew(*offset_ms))
    }
}
