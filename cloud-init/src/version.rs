//! Releases of cloud-init, and which of them a finding concerns.

use std::fmt;
use std::str::FromStr;

/// A release: `24.4`, `22.4.2`, or as a distribution writes it (`v25.1-0ubuntu1~22.04.1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    year: u16,
    minor: u16,
    patch: u16,
}

impl Version {
    /// Year, minor and patch number.
    pub const fn new(year: u16, minor: u16, patch: u16) -> Self {
        Self { year, minor, patch }
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no release of cloud-init; write for example 24.4 or 22.4.2");
        let end = |c: char| matches!(c, '-' | '+' | '~');
        let word = text.trim().trim_start_matches('v').split(end).next().unwrap_or_default();
        let mut numbers = Vec::new();
        for part in word.split('.') {
            let digits = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            numbers.push(part.parse::<u16>().ok().filter(|_| digits).ok_or_else(refuse)?);
        }
        match *numbers.as_slice() {
            [year, minor] => Ok(Self::new(year, minor, 0)),
            [year, minor, patch] | [year, minor, patch, _] => Ok(Self::new(year, minor, patch)),
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.year, self.minor)?;
        if self.patch == 0 { Ok(()) } else { write!(f, ".{}", self.patch) }
    }
}

/// Which releases a finding concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// Every one.
    #[default]
    All,
    /// Those before this one.
    Before(Version),
    /// This one and later ones.
    From(Version),
}

impl Versions {
    /// Whether `version` is among them; an unknown version may be.
    pub fn concern(self, version: Option<Version>) -> bool {
        match (self, version) {
            (Self::All, _) | (_, None) => true,
            (Self::Before(first), Some(version)) => version < first,
            (Self::From(first), Some(version)) => version >= first,
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Before(version) => write!(f, "before {version}"),
            Self::From(version) => write!(f, "from {version}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_as_distributions_write_them() {
        for (text, want) in [
            ("24.4", Version::new(24, 4, 0)),
            ("22.4.2", Version::new(22, 4, 2)),
            ("22.4.2-1+deb12u4", Version::new(22, 4, 2)),
            ("v25.1.4-0ubuntu0~24.04.1", Version::new(25, 1, 4)),
            ("0.7.9", Version::new(0, 7, 9)),
            ("23.4.7.1", Version::new(23, 4, 7)),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
        for text in ["", "24", "x.y", "24.", "-1.2", "24.4.1.2.3", "99999.1", "24,4", "２４.4"] {
            assert!(text.parse::<Version>().is_err(), "{text:?}");
        }
        assert!(Version::new(9, 4, 0) < Version::new(22, 1, 0));
        assert!(Versions::Before(Version::new(21, 4, 0)).concern(None));
        assert!(!Versions::Before(Version::new(21, 4, 0)).concern(Some(Version::new(21, 4, 0))));
        assert!(Versions::From(Version::new(21, 4, 0)).concern(Some(Version::new(21, 4, 0))));
    }
}
