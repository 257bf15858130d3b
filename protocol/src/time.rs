//! Instants on the wire.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant in milliseconds since the Unix epoch (UTC), written as RFC 3339 with three decimals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant `ms` milliseconds after the Unix epoch; values outside years -9999..9999 are clamped.
    pub fn from_millis(ms: i64) -> Self {
        let (min, max) = (jiff::Timestamp::MIN.as_second() * 1000, jiff::Timestamp::MAX.as_second() * 1000);
        Self(ms.clamp(min, max))
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
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let parsed = s.parse::<jiff::Timestamp>();
        parsed.map(|t| Self(t.as_millisecond())).map_err(|e| format!("{s:?} is no RFC 3339 time: {e}"))
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
    fn a_clock_that_steps_back_yields_zero_not_a_panic() {
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
        let last = Timestamp::from_millis(i64::MAX).to_string();
        assert!(last.starts_with("9999"), "{last}");
    }
}
