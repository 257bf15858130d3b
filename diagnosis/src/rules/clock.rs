//! `ClockSynchronized`: the kernel's own word and the offset to the coordinator.

use std::time::Duration;

use outrider_protocol::{
    ClockFacts, ClockOffset, ConditionType, Fact, KernelClock, NodeFacts, ReasonCode, Severity, Status,
    Timestamp,
};

use super::unread;
use crate::finding::Finding;
use crate::wording::Span;

const TYPE: ConditionType = ConditionType::ClockSynchronized;
const RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(60);

/// A clock is given this long after boot to find its servers.
const BOOT_GRACE_SECONDS: u64 = 300;

pub(super) fn judge(clock: &ClockFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
    let limits = &facts.thresholds;
    let keeper = match &clock.service {
        Fact::Known { value, .. } => format!("kept by {value}"),
        _ => "no time service found".to_owned(),
    };
    let offset = clock.coordinator.value();
    if let Some(offset) = offset {
        // No truer than its uncertainty: what may be the network is not held against the clock.
        let certain = offset.offset_ms.saturating_abs().saturating_sub(offset.uncertainty_ms.max(0));
        if certain > limits.clock_warn_ms {
            let severity = if certain > limits.clock_error_ms { Severity::Error } else { Severity::Warn };
            let message = format!(
                "This clock is {}; limits {} ms and {} ms; {keeper}.",
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

    let by_peer = offset.map(|o| format!("; {}", Offset(o))).unwrap_or_default();
    match &clock.kernel {
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
            // An offset that was measured and is small is the better evidence; without one nobody vouches.
            let severity = if offset.is_some() || young { Severity::Info } else { Severity::Warn };
            let since_boot =
                uptime.map(|s| format!(", {} after boot", Span(Duration::from_secs(*s)))).unwrap_or_default();
            let message = format!(
                "Nobody disciplines the kernel's clock (maximum error {} us){since_boot}; {keeper}{by_peer}.",
                kernel.maximum_error_us
            );
            Finding::new(TYPE, Status::False, severity, ReasonCode::ClockUnsynchronized, at, message)
                .waits(RAISE, CLEAR)
                .advice(
                    "See whether a time service runs and reaches its servers (timedatectl, chronyc sources); in a \
                     container the host keeps the time.",
                )
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

struct Offset<'a>(&'a ClockOffset);

impl std::fmt::Display for Offset<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ClockOffset { offset_ms, uncertainty_ms, peer } = self.0;
        let side = if *offset_ms < 0 { "behind" } else { "ahead of" };
        write!(
            f,
            "{} ms {side} that of {peer} (give or take {uncertainty_ms} ms)",
            offset_ms.saturating_abs()
        )
    }
}
