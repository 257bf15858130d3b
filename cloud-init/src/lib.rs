//! cloud-init userdata: what the first bytes mean and what fits where. Pure functions over bytes.
//!
//! Userdata is half ignored without a word when its header is wrong; [`header`] says which half and why. [`size`]
//! counts what KubeVirt counts; [`lint`](mod@lint) reads the whole document the way cloud-init's PyYAML does.

pub mod header;
pub mod lint;
pub mod merge;
pub mod scalar;
pub mod size;
pub mod yaml;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing to do.
    Ok,
    /// Works on some versions or in some places only.
    Warn,
    /// Ignored, dropped or refused.
    Error,
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
}

impl Finding {
    pub(crate) fn error(
        code: &'static str,
        line: usize,
        message: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Error, code, line, column: 0, message: message.into(), cure: cure.into() }
    }

    pub(crate) fn warn(
        code: &'static str,
        line: usize,
        message: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warn, ..Self::error(code, line, message, cure) }
    }

    pub(crate) fn at(mut self, node: &yaml::Node) -> Self {
        (self.line, self.column) = (node.line, node.column);
        self
    }
}
