//! chronyd, by the protocol that chronyc speaks (chrony: candm.h, version 6): from its own machine it answers questions over
//! UDP without asking who that is. Nothing but three questions is ever sent, none of which changes anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use outrider_protocol::{NtpSource, NtpState, TimeSource, Timestamp, UnknownCause};

use super::MAX_SOURCES;
use super::udp::{self, Asked};

const PORT: u16 = 323;
/// A request has to be as long as its answer may be, so that nobody is flooded through chronyd: the longest is of tracking.
const LENGTH: usize = 104;
/// Where data begins in a request and in an answer.
const ASKS: usize = 20;
const ANSWERS: usize = 28;
/// Questions, and the kinds of their answers.
const N_SOURCES: (u16, u16) = (14, 2);
const SOURCE_DATA: (u16, u16) = (15, 3);
const TRACKING: (u16, u16) = (33, 5);

/// What chronyd says of its sources and of the clock.
pub(super) fn read(now: Timestamp) -> Result<TimeSource, (UnknownCause, String)> {
    let mut socket = udp::Socket::open(&[
        (IpAddr::V4(Ipv4Addr::LOCALHOST), PORT).into(),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), PORT).into(),
    ]);
    let mut found = tracking(&ask(&mut socket, TRACKING, 0)?, now)?;
    let count = number(&ask(&mut socket, N_SOURCES, 0)?, 0, 4)?;
    for index in 0..u32::try_from(count).unwrap_or(0).min(MAX_SOURCES) {
        found.sources.push(source(&ask(&mut socket, SOURCE_DATA, index)?)?);
    }
    if let Some(selected) = found.sources.iter().find(|source| source.state == NtpState::Selected) {
        found.selected.clone_from(&selected.address);
    }
    Ok(found)
}

/// The data of the answer to one question.
fn ask(socket: &mut udp::Socket, (command, reply): (u16, u16), index: u32) -> Asked {
    let sequence: u32 = rand::random();
    let mut request = vec![0; LENGTH];
    // Version, and that it is a request.
    request[..2].copy_from_slice(&[6, 1]);
    request[4..6].copy_from_slice(&command.to_be_bytes());
    request[8..12].copy_from_slice(&sequence.to_be_bytes());
    request[ASKS..ASKS + 4].copy_from_slice(&index.to_be_bytes());
    let is_ours = |answer: &[u8]| answer.get(1) == Some(&2) && answer.get(16..20) == Some(&request[8..12]);
    let answer = socket.exchange(&request, is_ours)?;
    let status = number(&answer, 8, 2)?;
    if status != 0 || number(&answer, 6, 2)? != u64::from(reply) {
        // 18: an other version than 6.
        let cause = if status == 18 { UnknownCause::Unsupported } else { UnknownCause::InvalidAnswer };
        return Err((cause, format!("chronyd answers question {command} with status {status}")));
    }
    Ok(answer.get(ANSWERS..).unwrap_or_default().to_vec())
}

fn tracking(data: &[u8], now: Timestamp) -> Result<TimeSource, (UnknownCause, String)> {
    // Leap status 3: not synchronised.
    let is_set = number(data, 26, 2)? != 3;
    let seconds = (number(data, 28, 4)? << 32 | number(data, 32, 4)?) as i64;
    // The upper half is noughts, or ones where the time is 32 bits wide.
    let seconds = if seconds >> 32 == i64::from(i32::MAX) { seconds & 0xffff_ffff } else { seconds };
    let at = Timestamp::from_seconds(seconds);
    let (delay, dispersion) = (float(data, 64)?, float(data, 68)?);
    Ok(TimeSource {
        service: "chronyd".to_owned(),
        selected: if is_set {
            address(data, 4)?.unwrap_or_else(|| reference(data.get(..4)))
        } else {
            String::new()
        },
        stratum: number(data, 24, 2)? as u32,
        updated_at: (is_set && seconds > 0).then_some(at.min(now)),
        // chronyd tells what has to be added to the clock.
        offset_ms: if is_set { Some(-1000.0 * float(data, 40)?) } else { None },
        uncertainty_ms: is_set.then_some(1000.0 * (delay / 2.0 + dispersion)),
        sources: Vec::new(),
    })
}

fn source(data: &[u8]) -> Result<NtpSource, (UnknownCause, String)> {
    let state = match number(data, 24, 2)? {
        0 => NtpState::Selected,
        2 => NtpState::FalseTicker,
        3 => NtpState::Unsteady,
        4 | 5 => NtpState::Candidate,
        _ => NtpState::Unusable,
    };
    let answered = (number(data, 30, 2)? as u8).count_ones();
    let (ago, ahead) = (number(data, 32, 4)?, float(data, 36)?);
    Ok(NtpSource {
        address: address(data, 0)?.unwrap_or_else(|| match number(data, 16, 2) {
            // A name that was never resolved has a number in its stead.
            Ok(3) => String::new(),
            _ => reference(data.get(..4)),
        }),
        state,
        stratum: number(data, 22, 2)? as u32,
        answered,
        seconds_ago: (answered > 0 && ago != u64::from(u32::MAX)).then_some(ago),
        // Here, other than in tracking, it tells how far the clock is ahead (chronyc(1), `sources`).
        offset_ms: (answered > 0).then_some(1000.0 * ahead),
    })
}

/// An address, with its family behind it; none where it is none.
fn address(data: &[u8], at: usize) -> Result<Option<String>, (UnknownCause, String)> {
    let bytes = data.get(at..at + 16).ok_or_else(short)?;
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| short())?;
    Ok(match number(data, at + 16, 2)? {
        1 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).to_string()),
        2 => Some(Ipv6Addr::from(bytes).to_string()),
        _ => None,
    })
}

/// Name of a reference clock such as `PHC0`: four characters.
fn reference(id: Option<&[u8]>) -> String {
    let plain = id.unwrap_or_default().iter().filter(|byte| byte.is_ascii_graphic());
    plain.map(|byte| char::from(*byte)).collect()
}

fn number(data: &[u8], at: usize, length: usize) -> Result<u64, (UnknownCause, String)> {
    let bytes = data.get(at..at + length).ok_or_else(short)?;
    Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// chrony's own: seven bits of exponent, twenty-five of coefficient, each with a sign (candm.h, `Float`).
fn float(data: &[u8], at: usize) -> Result<f64, (UnknownCause, String)> {
    let bits = number(data, at, 4)? as i64;
    let sign = |value: i64, width: u32| if value >= 1 << (width - 1) { value - (1 << width) } else { value };
    let (exponent, coefficient) = (sign(bits >> 25, 7), sign(bits & 0x01ff_ffff, 25));
    Ok(coefficient as f64 * f64::powi(2.0, i32::try_from(exponent - 25).unwrap_or(0)))
}

fn short() -> (UnknownCause, String) {
    (UnknownCause::InvalidAnswer, "the answer is too short".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As chronyd writes it (util.c, `UTI_FloatHostToNetwork`): 0.5 is 2^23 times 2^-24.
    #[test]
    fn numbers_are_read_as_chronyd_writes_them() {
        let word = |exponent: u32, coefficient: u32| {
            ((exponent & 0x7f) << 25 | coefficient & 0x01ff_ffff).to_be_bytes()
        };
        let read = |bytes: [u8; 4]| float(&bytes, 0).unwrap();
        assert_eq!(read(word(0, 0)), 0.0);
        assert_eq!(read(word(1, 1 << 23)), 0.5);
        assert_eq!(read(word(1, 0u32.wrapping_sub(1 << 23))), -0.5);
        assert!((read(word(0u32.wrapping_sub(9), 1 << 23)) - 0.000_488_281_25).abs() < 1e-12);
    }

    #[test]
    fn an_answer_that_is_cut_short_is_no_answer() {
        for length in 0..76 {
            assert!(tracking(&vec![0; length], Timestamp::default()).is_err() || length >= 72, "{length}");
        }
        assert!(source(&[0; 40]).is_ok() && source(&[0; 39]).is_err());
    }
}
