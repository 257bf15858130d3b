//! ntpd (ntp.org and NTPsec), by the control messages that ntpq sends (RFC 9327): variables of the system, and of the
//! associations. Reading them is allowed from the machine itself unless somebody took that away (`restrict … noquery`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use outrider_protocol::{NtpSource, NtpState, TimeSource, Timestamp, UnknownCause};

use super::MAX_SOURCES;
use super::udp::Socket;

const PORT: u16 = 123;
const HEADER: usize = 12;
/// Operations.
const READ_STATUS: u8 = 1;
const READ_VARIABLES: u8 = 2;
/// Variables that are asked for: all of them would not fit into one message.
const SYSTEM: &str = "leap,stratum,refid,reftime,offset,rootdelay,rootdisp";
const PEER: &str = "srcadr,stratum,reach,offset";
/// Seconds from 1900, where NTP counts from, to 1970.
const EPOCH: i64 = 2_208_988_800;

type Failed = (UnknownCause, String);

/// What ntpd says of its sources and of the clock.
pub(super) fn read(now: Timestamp) -> Result<TimeSource, Failed> {
    let mut socket = Socket::open(&[
        (IpAddr::V4(Ipv4Addr::LOCALHOST), PORT).into(),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), PORT).into(),
    ]);
    let system = ask(&mut socket, READ_VARIABLES, 0, SYSTEM)?;
    let mut found = system_of(&variables(&system), now);
    let peers = ask(&mut socket, READ_STATUS, 0, "")?;
    for peer in peers.chunks_exact(4).take(MAX_SOURCES as usize) {
        let association = u16::from_be_bytes([peer[0], peer[1]]);
        let text = ask(&mut socket, READ_VARIABLES, association, PEER)?;
        found.sources.push(source(&variables(&text), peer[2]));
    }
    if let Some(selected) = found.sources.iter().find(|source| source.state == NtpState::Selected) {
        found.selected.clone_from(&selected.address);
    } else {
        found.selected.clear();
    }
    Ok(found)
}

/// The data of an answer, which fits into one message.
fn ask(socket: &mut Socket, operation: u8, association: u16, names: &str) -> Result<Vec<u8>, Failed> {
    let sequence: u16 = rand::random();
    let mut request = vec![0; HEADER];
    // Version 2, mode 6.
    request[0] = 2 << 3 | 6;
    request[1] = operation;
    request[2..4].copy_from_slice(&sequence.to_be_bytes());
    request[6..8].copy_from_slice(&association.to_be_bytes());
    request[11] = u8::try_from(names.len()).unwrap_or_default();
    request.extend(names.bytes());
    request.resize(request.len().next_multiple_of(4), 0);
    let is_ours = |answer: &[u8]| {
        answer.len() >= HEADER && answer[0] & 7 == 6 && answer[1] & 0x80 != 0 && answer[2..4] == request[2..4]
    };
    let answer = socket.exchange(&request, is_ours)?;
    if answer[1] & 0x40 != 0 {
        return Err((UnknownCause::Forbidden, format!("ntpd refuses the question (code {})", answer[4])));
    }
    let length = usize::from(u16::from_be_bytes([answer[10], answer[11]]));
    let data = answer.get(HEADER..HEADER + length);
    Ok(data.ok_or_else(|| (UnknownCause::InvalidAnswer, "the answer is too short".to_owned()))?.to_vec())
}

/// `name=value, name="a, b"`.
fn variables(text: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(text);
    let mut all = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '"';
        match all.last_mut() {
            Some(part) if c != ',' || quoted => part.push(c),
            _ => all.push(String::new()),
        }
    }
    let pair = |part: &String| {
        let (name, value) = part.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
    };
    all.iter().filter_map(pair).collect()
}

fn text<'a>(all: &'a [(String, String)], name: &str) -> &'a str {
    all.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
}

fn number(all: &[(String, String)], name: &str) -> Option<f64> {
    text(all, name).parse().ok().filter(|number: &f64| number.is_finite())
}

fn system_of(all: &[(String, String)], now: Timestamp) -> TimeSource {
    let stratum = number(all, "stratum").map_or(16, |stratum| stratum as u32);
    let is_set = text(all, "leap") != "3" && text(all, "leap") != "11" && stratum < 16;
    // Sixteen hex digits after `0x`, in two halves: seconds since 1900 and their fraction.
    let reference = text(all, "reftime").trim_start_matches("0x").split('.').next().unwrap_or_default();
    let seconds = i64::from_str_radix(reference, 16).ok().map(|seconds| seconds - EPOCH);
    let uncertainty = number(all, "rootdisp").zip(number(all, "rootdelay").or(Some(0.0)));
    TimeSource {
        service: "ntpd".to_owned(),
        selected: text(all, "refid").to_owned(),
        stratum,
        updated_at: seconds.filter(|s| is_set && *s > 0).map(|s| Timestamp::from_seconds(s).min(now)),
        // Milliseconds; what has to be added to the clock.
        offset_ms: number(all, "offset").filter(|_| is_set).map(|ms| -ms),
        uncertainty_ms: uncertainty.filter(|_| is_set).map(|(dispersion, delay)| dispersion + delay / 2.0),
        sources: Vec::new(),
    }
}

/// `status` is the first byte of the peer's status word; its lowest three bits say what came of the selection.
fn source(all: &[(String, String)], status: u8) -> NtpSource {
    let answered = text(all, "reach");
    let answered = match answered.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => u32::from_str_radix(answered, 8),
    };
    let answered = answered.unwrap_or(0).count_ones().min(8);
    let state = match status & 7 {
        6 | 7 => NtpState::Selected,
        1 => NtpState::FalseTicker,
        4 | 5 => NtpState::Candidate,
        2 | 3 => NtpState::Unsteady,
        _ => NtpState::Unusable,
    };
    NtpSource {
        address: text(all, "srcadr").chars().take(64).collect(),
        state,
        stratum: number(all, "stratum").map_or(16, |stratum| stratum as u32),
        answered,
        seconds_ago: None,
        offset_ms: number(all, "offset").filter(|_| answered > 0).map(|ms| -ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_told_apart() {
        let all = variables(b"version=\"ntpd ntpsec-1.2.3, x\", leap=0, stratum=3,\r\noffset=-0.25, reftime=0xeb6c5b9a.9f0c6b1e");
        assert_eq!(text(&all, "version"), "ntpd ntpsec-1.2.3, x");
        let found = system_of(&all, Timestamp::from_seconds(4_000_000_000));
        assert_eq!((found.stratum, found.offset_ms), (3, Some(0.25)));
        assert_eq!(found.updated_at, Some(Timestamp::from_seconds(0xeb6c_5b9a - EPOCH)));
        let unset = system_of(&variables(b"leap=3, stratum=16, offset=1"), Timestamp::default());
        assert_eq!((unset.updated_at, unset.offset_ms), (None, None));
    }

    #[test]
    fn answers_of_the_last_eight_are_counted() {
        let all = variables(b"srcadr=192.0.2.1, reach=0x3, stratum=2, offset=4.0");
        let found = source(&all, 0x96);
        assert_eq!(
            (found.address.as_str(), found.answered, found.state),
            ("192.0.2.1", 2, NtpState::Selected)
        );
        assert_eq!(source(&variables(b"reach=377"), 0x94).answered, 8);
        assert_eq!(source(&variables(b"reach=0"), 0x80).state, NtpState::Unusable);
    }
}
