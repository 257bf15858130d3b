//! cloud-init userdata: what the first bytes mean and what fits where. Pure functions over bytes.
//!
//! Userdata is half ignored without a word when its header is wrong; [`header`] says which half and why. [`size`]
//! counts what KubeVirt counts; [`lint`](mod@lint) reads the whole document the way cloud-init's PyYAML does.

pub mod construct;
pub mod gzip;
pub mod header;
pub mod lint;
pub mod merge;
pub mod mime;
pub mod platform;
pub mod render;
pub mod scalar;
pub mod schema;
pub mod size;
pub mod version;
pub mod yaml;

pub use platform::Platform;
pub use size::Field;
pub use version::{Version, Versions};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing to do.
    Ok,
    /// Good to know.
    Info,
    /// Works on some versions or in some places only.
    Warn,
    /// Ignored, dropped or refused.
    Error,
}

impl Severity {
    /// One word for it, as everywhere in Outrider.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// One thing found in userdata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// CamelCase code.
    pub code: &'static str,
    /// Line, from 1; 0 for the whole document.
    pub line: usize,
    /// Column in characters, from 1; 0 for the whole line.
    pub column: usize,
    /// What is wrong and what it does.
    pub message: String,
    /// What to write instead.
    pub cure: String,
    /// The releases of cloud-init it concerns.
    pub versions: Versions,
}

impl Finding {
    pub(crate) fn error(
        code: &'static str,
        line: usize,
        message: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            code,
            line,
            column: 0,
            message: message.into(),
            cure: cure.into(),
            versions: Versions::All,
        }
    }

    pub(crate) fn warn(
        code: &'static str,
        line: usize,
        message: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warn, ..Self::error(code, line, message, cure) }
    }

    pub(crate) fn info(code: &'static str, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { severity: Severity::Info, ..Self::error(code, 0, message, cure) }
    }

    pub(crate) fn of(mut self, versions: Versions) -> Self {
        self.versions = versions;
        self
    }

    pub(crate) fn at(mut self, node: &yaml::Node) -> Self {
        (self.line, self.column) = (node.line, node.column);
        self
    }
}
