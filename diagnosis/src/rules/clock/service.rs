//! What the time service says of where it has the time from: who keeps this clock, whether it has lost its sources, and what
//! to do where it has none.

use outrider_protocol::{ClockFacts, Fact, NtpState, TimeSource, Timestamp};

use crate::wording::{Count, Moment, Span, names};

const NAMED: usize = 4;
/// The longest that chronyd and ntpd wait between questions is 1024 s, and systemd-timesyncd 2048 s: nothing heard for two
/// hours is three questions of the slowest without an answer.
const LOST_AFTER_SECONDS: u64 = 7200;

/// Who keeps time, as a clause: `kept by chronyd from 192.0.2.1 (stratum 3, last set 2026-11-29 18:05 UTC, 0.4 ms off by its
/// own word)`. Instants and not ages: it reads the same at the next look.
pub(super) fn keeper(clock: &ClockFacts) -> String {
    let Some(service) = clock.service.value() else { return "no time service found".to_owned() };
    let Some(source) = source(clock).filter(|source| !source.selected.is_empty()) else {
        return match clock.source.as_ref() {
            Some(Fact::Known { .. }) => format!("{service} runs and follows no source"),
            Some(Fact::Unknown { detail, .. }) => {
                format!("kept by {service}, which does not say from where ({})", detail.trim_end_matches('.'))
            }
            _ => format!("kept by {service}"),
        };
    };
    let mut told = vec![format!("stratum {}", source.stratum)];
    told.extend(source.updated_at.map(|at| format!("last set {}", Moment(at))));
    told.extend(source.offset_ms.map(|ms| format!("{:.1} ms off by its own word", ms.abs())));
    format!("kept by {service} from {} ({})", source.selected, told.join(", "))
}

/// What the service said, where it did.
pub(super) fn source(clock: &ClockFacts) -> Option<&TimeSource> {
    clock.source.as_ref().and_then(Fact::value)
}

/// How far this clock is off for certain, by its own service's word: it is about to be set right, or may not be set.
pub(super) fn off_by_own_word(source: &TimeSource, limit: i64) -> Option<f64> {
    let offset = source.offset_ms.filter(|_| !source.selected.is_empty())?;
    (offset.abs() - source.uncertainty_ms.unwrap_or(0.0).max(0.0) > limit as f64).then_some(offset)
}

/// The sources have fallen silent, though the kernel still calls the clock synchronised: it does so for hours.
pub(super) fn lost(source: &TimeSource, now: Timestamp) -> Option<String> {
    let since = source.updated_at.map(|at| now.since(at).as_secs());
    let silent = source.selected.is_empty() && source.sources.iter().all(|one| one.answered == 0);
    let stale = since.is_some_and(|seconds| seconds > LOST_AFTER_SECONDS);
    (silent || stale).then(|| {
        let ago = since
            .map(|s| format!(", and last set the clock {} ago", Span(std::time::Duration::from_secs(s))));
        format!("{} {}{}", source.service, standing(source), ago.unwrap_or_default())
    })
}

/// What stands in the way of a source, as a clause about the service.
pub(super) fn standing(source: &TimeSource) -> String {
    let all = &source.sources;
    let named = |state: &NtpState| {
        let of = all.iter().filter(|one| one.state == *state && !one.address.is_empty());
        names(of.map(|one| &one.address), NAMED)
    };
    let unresolved = all.iter().filter(|one| one.address.is_empty()).count();
    if all.is_empty() {
        return "has no source at all".to_owned();
    }
    if unresolved == all.len() {
        return format!("could not resolve the {} of its sources", Count(unresolved, "name"));
    }
    if all.iter().all(|one| one.answered == 0) {
        let heard = names(all.iter().filter(|one| !one.address.is_empty()).map(|one| &one.address), NAMED);
        return format!("hears nothing from its {} ({heard})", Count(all.len(), "source"));
    }
    if all.iter().any(|one| one.state == NtpState::FalseTicker) {
        return format!("finds its sources at odds with each other ({})", named(&NtpState::FalseTicker));
    }
    match source.selected.as_str() {
        "" => format!("has chosen none of its {} yet", Count(all.len(), "source")),
        selected => format!("follows {selected}"),
    }
}

/// What to do where the clock follows nobody.
pub(super) fn advice(clock: &ClockFacts) -> String {
    let service = clock.service.value().map(String::as_str);
    let Some(source) = source(clock) else {
        return match service {
            None if matches!(clock.service, Fact::Absent { .. }) => {
                "Enable one time service (chronyd or systemd-timesyncd) and give it a server that this machine reaches; in a \
                 container the host keeps the time."
                    .to_owned()
            }
            _ => "See whether the time service reaches its servers (timedatectl, chronyc sources); in a container the host \
                  keeps the time."
                .to_owned(),
        };
    };
    let file = match source.service.as_str() {
        "chronyd" => "chrony.conf (/etc/chrony.conf or /etc/chrony/chrony.conf: `server NAME iburst`)",
        "systemd-timesyncd" => "/etc/systemd/timesyncd.conf (`NTP=NAME`)",
        _ => "ntp.conf (`server NAME iburst`)",
    };
    let all = &source.sources;
    if all.is_empty() {
        return format!(
            "Name a time server that this machine reaches in {file}, and restart {}.",
            source.service
        );
    }
    if all.iter().all(|one| one.address.is_empty()) {
        return format!(
            "Let this machine resolve the names of its time servers (check dns), or name others in {file}."
        );
    }
    if all.iter().all(|one| one.answered == 0) {
        return format!(
            "Let UDP port 123 out from this machine to its time servers, and their answers back in, or name a server inside \
             your network in {file}."
        );
    }
    if all.iter().any(|one| one.state == NtpState::FalseTicker) {
        return format!(
            "Find out which of the time servers is wrong; with two nobody can tell, so name at least three, or one that you \
             trust, in {file}."
        );
    }
    format!(
        "{} hears its sources: it follows one within minutes, or may not set this clock (a container; chronyd -x). Ask it \
         what it waits for.",
        source.service
    )
}
