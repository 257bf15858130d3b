//! Instants on the wire.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant in milliseconds since the Unix epoch (UTC), written as RFC 3339 with three decimals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The last instant that RFC 3339 can write, 9999-12-31T23:59:59.999Z; its second is how a certificate says that it has
    /// no end (RFC 5280, section 4.1.2.5).
    const LAST: i64 = 253_402_300_799_999;

    /// The instant `ms` milliseconds after the Unix epoch; values outside years -9999..9999 are clamped.
    pub fn from_millis(ms: i64) -> Self {
        Self(ms.clamp(jiff::Timestamp::MIN.as_second() * 1000, Self::LAST))
    }

    /// The instant `seconds` seconds after the Unix epoch.
    pub fn from_seconds(seconds: i64) -> Self {
        Self::from_millis(seconds.saturating_mul(1000))
    }

    /// Milliseconds since the Unix epoch.
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Time passed since `earlier`; zero when `earlier` lies ahead (clocks step back).
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This instant plus `d`.
    pub fn after(self, d: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This instant minus `d`.
    pub fn before(self, d: Duration) -> Self {
        Self::from_millis(self.0.saturating_sub(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// jiff's timestamps end 26 hours before the year 9999 does, so that every time zone can write them; its times without a
/// zone do not.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// A UTC time of those hours.
fn of_the_last_hours(s: &str) -> Option<Timestamp> {
    let civil = s.strip_suffix(['Z', 'z'])?.parse::<DateTime>().ok()?;
    let ms = i64::try_from(civil.duration_since(EPOCH).as_millis()).ok()?;
    (ms > jiff::Timestamp::MAX.as_millisecond()).then_some(Timestamp(ms))
}

/// Whether a time ends as RFC 3339, section 5.6, has it: `Z`, or hours up to 23 and minutes up to 59.
fn has_offset(s: &str) -> bool {
    if s.ends_with(['Z', 'z']) {
        return true;
    }
    let Some(&[sign, h1, h2, b':', m1, m2]) = s.as_bytes().last_chunk::<6>() else { return false };
    let number = |tens: u8, ones: u8| {
        let digit = |b: u8| b.is_ascii_digit().then(|| b - b'0');
        Some(digit(tens)? * 10 + digit(ones)?)
    };
    matches!(sign, b'+' | b'-')
        && number(h1, h2).is_some_and(|h| h < 24)
        && number(m1, m2).is_some_and(|m| m < 60)
}

impl From<std::time::SystemTime> for Timestamp {
    fn from(t: std::time::SystemTime) -> Self {
        match t.duration_since(std::time::UNIX_EPOCH) {
            Ok(d) => Self::from_millis(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)),
            Err(e) => Self::from_millis(-i64::try_from(e.duration().as_millis()).unwrap_or(i64::MAX)),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => f.pad(&format!("{t:.3}")),
            Err(_) => f.pad(&format!("{:.3}Z", EPOCH.saturating_add(SignedDuration::from_millis(self.0)))),
        }
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        // The parser takes offsets that no place on earth has, such as +25:00.
        if !has_offset(s) {
            return Err(format!(
                "{s:?} is no RFC 3339 time: it ends neither in Z nor in an offset such as +01:00"
            ));
        }
        let parsed = s.parse::<jiff::Timestamp>().map(|t| Self(t.as_millisecond()));
        parsed.or_else(|e| of_the_last_hours(s).ok_or_else(|| format!("{s:?} is no RFC 3339 time: {e}")))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_three_decimals_and_reads_them_back() {
        let t = Timestamp::from_millis(1_796_000_000_120);
        assert_eq!(t.to_string().parse::<Timestamp>(), Ok(t));
        assert!(t.to_string().ends_with(".120Z"), "{t}");
    }

    #[test]
    fn offsets_are_those_of_rfc_3339() {
        let at = Timestamp::from_millis(1_796_000_000_000);
        for (text, minutes) in [
            ("Z", 0),
            ("z", 0),
            ("+00:00", 0),
            ("-00:00", 0),
            ("+14:00", 840),
            ("-12:00", -720),
            ("+05:45", 345),
        ] {
            let local = Timestamp::from_millis(at.as_millis() + minutes * 60_000).to_string();
            assert_eq!(format!("{}{text}", local.trim_end_matches('Z')).parse(), Ok(at), "{text}");
        }
        let local = at.to_string();
        for text in [
            "",
            "+25:00",
            "+24:00",
            "-99:00",
            "+14:60",
            "+1:00",
            "+0100",
            "+01",
            "+01:00:00",
            "Z[UTC]",
            "+01:00[+01:00]",
        ] {
            assert!(format!("{}{text}", local.trim_end_matches('Z')).parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_second_of_the_calendar_is_a_time() {
        for text in ["9999-12-31T23:59:59.000Z", "9999-12-30T23:00:00.000Z", "9999-12-31T23:59:59.999Z"] {
            let t: Timestamp = text.parse().unwrap();
            assert_eq!(t.to_string(), text);
            assert_eq!(Timestamp::from_millis(t.as_millis()), t);
        }
        assert_eq!("9999-12-31T23:59:59Z".parse(), Ok(Timestamp::from_seconds(253_402_300_799)));
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
        for text in ["10000-01-01T00:00:00Z", "9999-12-31T23:59:59", "2026-11-29Z", "9999-13-01T00:00:00Z"] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_yields_zero_not_a_panic() {
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
        let last = Timestamp::from_millis(i64::MAX).to_string();
        assert!(last.starts_with("9999"), "{last}");
    }
}
