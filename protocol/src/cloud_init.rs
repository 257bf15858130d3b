//! Facts of the check `cloud-init`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

open_enum! {
    /// What cloud-init says of itself (`cloud-init status`, `/run/cloud-init/{status,result}.json`).
    CloudInitStatus {
        /// Has not begun in this boot.
        NotRun = "not run",
        /// A stage is under way.
        Running = "running",
        /// All stages ended.
        Done = "done",
        /// A stage failed.
        Error = "error",
        /// Switched off for this machine.
        Disabled = "disabled",
    }
}

/// What cloud-init did in this boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudInitFacts {
    /// The status in a word.
    pub status: CloudInitStatus,
    /// The status in two words, such as `degraded done`; empty where the version has none.
    #[serde(default)]
    pub extended_status: String,
    /// Exit code of `cloud-init status` for this state: 0 done, 1 failed, 2 done with warnings; absent when only the
    /// result files were read and do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The stage under way, such as `modules-config`; empty when none is.
    #[serde(default)]
    pub stage: String,
    /// Seconds since the stage under way began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_seconds: Option<u64>,
    /// Failures, as cloud-init wrote them.
    #[serde(default)]
    pub errors: Vec<String>,
    /// Failures that did not stop it, by log level (`WARNING`, `DEPRECATED`, …).
    #[serde(default)]
    pub recoverable_errors: BTreeMap<String, Vec<String>>,
    /// The data source in use, such as `DataSourceNoCloud`; empty when none was found.
    #[serde(default)]
    pub datasource: String,
    /// Version of cloud-init, where it is known.
    #[serde(default)]
    pub version: String,
}
