//! cloud-init userdata: what the first bytes mean and what fits where. Pure functions over bytes.
//!
//! Userdata is half ignored without a word when its header is wrong; [`header`] says which half and why. [`size`]
//! counts what KubeVirt counts.

pub mod header;
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
    /// What is wrong and what it does.
    pub message: String,
    /// What to write instead.
    pub cure: String,
}
