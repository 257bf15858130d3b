//! `outrider install` and `uninstall` as people type them.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use outrider_protocol::Profile;

use super::node::NodeArgs;
use crate::output::{Format, FormatParser};

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// Name of the node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// What the machine is [default: generic]
    #[arg(long, value_name = "PROFILE", value_parser = PossibleValuesParser::new(Profile::ALL.iter().map(Profile::as_str)))]
    pub(crate) profile: Option<String>,
    /// Where the programs come from: the folder that holds a release's usr, or its .tar.gz [default: the release that this
    /// program lies in; where the machine has the programs already, none]
    #[arg(long, value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) working: WorkingArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Take settings, token, identity and users too: nothing is left, and the machine needs a new token to be a node again
    #[arg(long)]
    pub(crate) purge: bool,
    #[command(flatten)]
    pub(crate) working: WorkingArgs,
}

/// On what, how far, and how it is told.
#[derive(Debug, Args)]
pub(crate) struct WorkingArgs {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Work on the tree of an image in this folder instead of this machine
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true, value_hint = ValueHint::DirPath)]
    pub(crate) root: PathBuf,
    /// How it is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::DESCRIBE)]
    pub(crate) output: Format,
}
