//! systemd-timesyncd, by `timedatectl show-timesync`, whose `Name=value` lines are made for programs.

use std::time::{Duration, SystemTime};

use outrider_protocol::{NtpSource, NtpState, TimeSource, Timestamp, UnknownCause};

use super::TIMESYNCD_MARKER;
use crate::sense::{SenseContext, systemd};

const PROPERTIES: &str =
    "SystemNTPServers,FallbackNTPServers,LinkNTPServers,ServerName,ServerAddress,NTPMessage";

/// It asks its server every 34 minutes at least (`PollIntervalMaxSec=2048`), and touches its marker each time.
const LATELY: Duration = Duration::from_secs(2 * 3600);

/// The marker is fresh: all is well, and a program of systemd's costs more than all the rest of this check.
pub(super) fn has_set_lately(cx: &SenseContext) -> bool {
    let touched = std::fs::metadata(cx.path(TIMESYNCD_MARKER)).and_then(|meta| meta.modified());
    touched.is_ok_and(|at| cx.now().since(Timestamp::from(at)) < LATELY)
}

/// What timesyncd says of its server. When it last set the clock stands nowhere but in the age of its marker.
pub(super) fn read(cx: &SenseContext) -> Result<TimeSource, (UnknownCause, String)> {
    let all = systemd::show_timesync(cx, PROPERTIES)?;
    let text = |name: &str| all.get(name).map(String::as_str).unwrap_or_default();
    let marker = std::fs::metadata(cx.path(TIMESYNCD_MARKER)).and_then(|meta| meta.modified());
    Ok(of(&text, marker.ok(), cx.now()))
}

fn of<'a>(text: &dyn Fn(&str) -> &'a str, marker: Option<SystemTime>, now: Timestamp) -> TimeSource {
    let (name, address) = (text("ServerName"), text("ServerAddress"));
    let message = Message(text("NTPMessage"));
    let answers = message.number("PacketCount").unwrap_or(0) > 0 && message.field("Ignored") != Some("yes");
    let server =
        if name.is_empty() || name == address { address.to_owned() } else { format!("{name} ({address})") };
    let stratum = message.number("Stratum").unwrap_or(0);
    let mut sources = Vec::new();
    if !server.is_empty() {
        let state = if answers { NtpState::Selected } else { NtpState::Unusable };
        sources.push(NtpSource {
            address: server.clone(),
            state,
            stratum,
            answered: u32::from(answers),
            seconds_ago: None,
            offset_ms: None,
        });
    }
    // Those it goes through when one is silent.
    let known = [text("LinkNTPServers"), text("SystemNTPServers"), text("FallbackNTPServers")];
    let list = known.into_iter().find(|list| !list.is_empty()).unwrap_or_default();
    for other in list.split_ascii_whitespace().filter(|other| *other != name && *other != address) {
        if sources.len() >= super::MAX_SOURCES as usize {
            break;
        }
        sources.push(NtpSource {
            address: other.to_owned(),
            state: NtpState::Candidate,
            stratum: 0,
            answered: 0,
            seconds_ago: None,
            offset_ms: None,
        });
    }
    TimeSource {
        service: "systemd-timesyncd".to_owned(),
        selected: if answers { server } else { String::new() },
        // Its own is one more than its server's.
        stratum: if answers { stratum.saturating_add(1) } else { 0 },
        updated_at: marker.map(|at| Timestamp::from(at).min(now)),
        offset_ms: None,
        uncertainty_ms: None,
        sources,
    }
}

/// `{ Leap=0, Version=4, …, PacketCount=3, Jitter=1.2ms }`.
struct Message<'a>(&'a str);

impl<'a> Message<'a> {
    fn field(&self, name: &str) -> Option<&'a str> {
        let inner = self.0.trim().trim_start_matches('{').trim_end_matches('}');
        inner
            .split(',')
            .filter_map(|part| part.trim().split_once('='))
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v)
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.field(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &'static str, marker: Option<SystemTime>) -> TimeSource {
        let text = |name: &str| {
            lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
        };
        of(&text, marker, Timestamp::from_seconds(2_000_000_000))
    }

    #[test]
    fn a_server_that_answers_is_told_by_its_message() {
        let found = read(
            "SystemNTPServers=ntp1.example ntp2.example\nServerName=ntp1.example\nServerAddress=192.0.2.1\n\
             NTPMessage={ Leap=0, Version=4, Mode=4, Stratum=2, Precision=-25, RootDelay=1.5ms, RootDispersion=2ms, \
             Reference=C0000201, Ignored=no, PacketCount=7, Jitter=310us }",
            Some(SystemTime::UNIX_EPOCH),
        );
        assert_eq!((found.selected.as_str(), found.stratum), ("ntp1.example (192.0.2.1)", 3));
        assert_eq!(found.updated_at, Some(Timestamp::from_seconds(0)));
        assert_eq!(found.sources.len(), 2);
    }

    #[test]
    fn a_server_that_is_silent_sets_no_clock() {
        let found = read("FallbackNTPServers=0.example\nServerName=0.example\nServerAddress=192.0.2.9", None);
        assert_eq!((found.selected.as_str(), found.updated_at), ("", None));
        assert_eq!(found.sources[0].state, NtpState::Unusable);
        assert!(read("", None).sources.is_empty());
    }
}
