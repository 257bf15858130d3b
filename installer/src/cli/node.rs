//! What makes a machine a node, as people type it: for `outrider install` and for userdata.

use std::path::PathBuf;

use clap::{Args, ValueHint};

#[derive(Debug, Default, Args)]
pub(crate) struct NodeArgs {
    /// Coordinator, https://host[:port]; may be repeated, the first one is tried first
    #[arg(long, value_name = "URL")]
    pub(crate) coordinator: Vec<String>,
    /// Enrolment token, as `outrider token create` printed it; every process sees a command line, --token-file does not show it
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    pub(crate) token: Option<String>,
    /// File with the enrolment token; - reads standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Cluster that the node says it is of; a token that names one decides
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
}

impl NodeArgs {
    /// Whether any of it was given.
    pub(crate) fn given(&self) -> bool {
        let options = [self.token.is_some(), self.token_file.is_some(), self.cluster.is_some()];
        options.contains(&true) || !self.coordinator.is_empty()
    }
}
