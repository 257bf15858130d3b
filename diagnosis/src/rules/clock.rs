//! `ClockSynchronized`: the kernel's own word, the offset to the coordinator, and what other machines' clocks say of who is
//! wrong.

mod peers;
mod service;

use std::time::Duration;

use outrider_protocol::{
    ClockFacts, ClockOffset, ConditionType, Fact, KernelClock, NodeFacts, ReasonCode, Severity, Status,
    Timestamp,
};

use self::peers::Whose;
use super::{certificates, unread};
use crate::finding::Finding;
use crate::wording::{Moment, Span, names};

const TYPE: ConditionType = ConditionType::ClockSynchronized;
const RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(60);

/// A clock is given this long after boot to find its servers.
const BOOT_GRACE_SECONDS: u64 = 300;

pub(super) fn judge(clock: &ClockFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
    let limits = &facts.thresholds;
    let keeper = service::keeper(clock);
    let offset = clock.coordinator.value();
    let others = peers::of(facts);
    if let Some(offset) = offset {
        // No truer than its uncertainty: what may be the network is not held against the clock.
        let certain = offset.offset_ms.saturating_abs().saturating_sub(offset.uncertainty_ms.max(0));
        if certain > limits.clock_warn_ms {
            let whose = peers::whose(offset, &others, limits.clock_warn_ms);
            if let Whose::Coordinators(agree) = &whose {
                let message = format!(
                    "This clock is {}, and {agree} agree with this one: it is the coordinator's that is wrong; {keeper}.",
                    Offset(offset)
                );
                return peer_wrong(at, message);
            }
            let severity = if certain > limits.clock_error_ms { Severity::Error } else { Severity::Warn };
            let who = match &whose {
                Whose::Ours(agree) => {
                    format!("; {agree} agree with that one, so it is this clock that is wrong")
                }
                _ if others.is_empty() => String::new(),
                _ => "; other clocks do not tell which of the two is wrong".to_owned(),
            };
            let message = format!(
                "This clock is {}; limits {} ms and {} ms; {keeper}{who}.",
                Offset(offset),
                limits.clock_warn_ms,
                limits.clock_error_ms
            );
            return Finding::new(TYPE, Status::False, severity, ReasonCode::ClockSkewed, at, message)
                .waits(RAISE, CLEAR)
                .advice(
                    "Find out which of the two clocks is wrong (chronyc tracking, timedatectl) and repair its time \
                     service. Certificates look expired or not yet valid until then; do not judge tokens by this clock.",
                );
        }
    }

    let own = service::source(clock);
    if let (None, Some(off)) =
        (offset, own.and_then(|own| service::off_by_own_word(own, limits.clock_warn_ms)))
    {
        let severity =
            if off.abs() > limits.clock_error_ms as f64 { Severity::Error } else { Severity::Warn };
        let way = if off < 0.0 { "behind" } else { "ahead of" };
        let message = format!(
            "This clock is {} {way} the true time by its own service's word; {keeper}.",
            By(off as i64)
        );
        return Finding::new(TYPE, Status::False, severity, ReasonCode::ClockSkewed, at, message)
            .waits(RAISE, CLEAR)
            .advice(
                "The service sets it right little by little: chronyc makestep does so at once, on etcd servers one at a time. \
                 Where it may not set the clock (a container; chronyd -x), repair the host's.",
            );
    }
    let off = peers::off(&others, limits.clock_warn_ms);
    if let (None, Some((by_ms, who))) = (offset, peers::against_us(&others, limits.clock_warn_ms)) {
        let severity =
            if by_ms.saturating_abs() > limits.clock_error_ms { Severity::Error } else { Severity::Warn };
        let way = if by_ms < 0 { "behind" } else { "ahead of" };
        let message = format!(
            "This clock is {} {way} those of {who}, which agree with each other (by the Date of their answers); {keeper}.",
            By(by_ms)
        );
        return Finding::new(TYPE, Status::False, severity, ReasonCode::ClockSkewed, at, message)
            .waits(RAISE, CLEAR)
            .advice("Repair this machine's time service (chronyc tracking, timedatectl); judge no end by this clock until then.");
    }
    let is_kept = matches!(&clock.kernel, Fact::Known { value, .. } if value.synchronized);
    if !off.is_empty() && (offset.is_some() || is_kept) {
        let who = names(off.iter().map(|peer| format!("{} ({} ms)", peer.name, peer.offset_ms)), 4);
        let vouch = if offset.is_some() { "agrees with the coordinator's" } else { "is kept" };
        let message = format!(
            "This clock {vouch} and differs from those of {who}, by the Date of their answers; {keeper}."
        );
        return peer_wrong(at, message);
    }
    if let Some((path, by)) = certificates::written_ahead(facts) {
        // Certificates that begin in its future too leave no doubt who is wrong.
        let severity = if peers::begins_latest(facts).is_some() { Severity::Error } else { Severity::Warn };
        let kept = if is_kept { "the kernel calls it synchronised" } else { "nobody disciplines it" };
        let message = format!(
            "{path} was written {by} ahead of this clock: it is behind, or was ahead then; {kept}, {keeper}."
        );
        return Finding::new(TYPE, Status::False, severity, ReasonCode::ClockSkewed, at, message)
            .waits(RAISE, CLEAR)
            .advice(format!(
                "Compare this clock with another (date -u; here it is {}). If it is behind, repair this machine's time service \
                 (chronyc tracking, timedatectl) and judge no end by this clock until then. If it is right, the date of that \
                 file is wrong (stat {path}): nothing else follows from it, and touch puts it right.",
                Moment(facts.now)
            ));
    }
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
            let calm = (offset.is_some() || agreed || asked || young) && early.is_empty();
            let severity = if calm { Severity::Info } else { Severity::Warn };
            let witnesses = match (offset, agreed, asked) {
                (None, true, _) => {
                    format!("; it agrees with {}", names(others.iter().map(|peer| &peer.name), 4))
                }
                (None, _, true) => "; the coordinator has not been heard yet".to_owned(),
                _ => String::new(),
            };
            let service = own.map(|own| format!(" {} {}.", own.service, service::standing(own))).unwrap_or_default();
            let since_boot =
                uptime.map(|s| format!(", {} after boot", Span(Duration::from_secs(*s)))).unwrap_or_default();
            let message = format!(
                "Nobody disciplines the kernel's clock (maximum error {} us){since_boot}; {keeper}{by_peer}{witnesses}.{service}{early}",
                kernel.maximum_error_us
            );
            Finding::new(TYPE, Status::False, severity, ReasonCode::ClockUnsynchronized, at, message)
                .waits(RAISE, CLEAR)
                .advice(service::advice(clock))
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
    let limit = facts.thresholds.clock_warn_ms;
    let others = peers::of(facts);
    let clock = facts.checks.clock.as_ref().and_then(Fact::value);
    if let Some(offset) = clock.and_then(|clock| clock.coordinator.value()) {
        let ours_is_right = matches!(peers::whose(offset, &others, limit), Whose::Coordinators(_))
            && offset.offset_ms.saturating_abs() > limit;
        return Some(if ours_is_right {
            ClockOffset { offset_ms: 0, ..offset.clone() }
        } else {
            offset.clone()
        });
    }
    let (offset_ms, peer) = peers::against_us(&others, limit)?;
    Some(ClockOffset { offset_ms, uncertainty_ms: 1000, peer })
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

/// Whether this machine's clock may be believed where an end hangs on it (`facts/credentials.md`, 7).
pub(super) enum Trust {
    /// Nothing speaks against it.
    Believed,
    /// It differs from the coordinator's: what the time would be by that one, and how far off this one is.
    Skewed { now: Timestamp, why: String },
    /// Something speaks against it, and the right time is not known; that it is behind may be.
    Doubtful { why: String, behind: bool },
    /// Its state is not known.
    Unread { why: String },
}

impl Trust {
    /// What the check `clock` says of it.
    pub(super) fn of(facts: &NodeFacts) -> Self {
        let clock = facts.checks.clock.as_ref().and_then(Fact::value);
        if let Some(offset) = clock.and_then(|clock| clock.coordinator.value()) {
            let certain = offset.offset_ms.saturating_abs().saturating_sub(offset.uncertainty_ms.max(0));
            if certain > facts.thresholds.clock_error_ms {
                let now = Timestamp::from_millis(facts.now.as_millis().saturating_sub(offset.offset_ms));
                let off = Span(Duration::from_millis(offset.offset_ms.unsigned_abs()));
                let way = if offset.offset_ms > 0 { "ahead of" } else { "behind" };
                return Trust::Skewed {
                    now,
                    why: format!("this clock is {off} {way} that of {}", offset.peer),
                };
            }
            // What agrees with the coordinator is right, whoever sets it.
            return Trust::Believed;
        }
        match clock.map(|clock| &clock.kernel) {
            Some(Fact::Known { value: kernel, .. }) if kernel.synchronized => Trust::Believed,
            Some(Fact::Known { .. }) => Trust::Doubtful {
                why: "nobody keeps this clock (the kernel calls it unsynchronised)".to_owned(),
                behind: false,
            },
            _ => Trust::Unread { why: "whether anybody keeps this clock is not known".to_owned() },
        }
    }
}

/// How far a clock is off, either way, in milliseconds: told in seconds from ten on, and from hours on in what people count
/// as well ("3456000 s, 40 days").
struct By(i64);

impl std::fmt::Display for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.unsigned_abs() {
            ms @ ..10_000 => write!(f, "{ms} ms"),
            ms @ ..7_200_000 => write!(f, "{} s", ms / 1000),
            ms => write!(f, "{} s, {},", ms / 1000, Span(Duration::from_millis(ms))),
        }
    }
}

struct Offset<'a>(&'a ClockOffset);

impl std::fmt::Display for Offset<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ClockOffset { offset_ms, uncertainty_ms, peer } = self.0;
        let side = if *offset_ms < 0 { "behind" } else { "ahead of" };
        write!(f, "{} {side} that of {peer} (give or take {uncertainty_ms} ms)", By(*offset_ms))
    }
}
