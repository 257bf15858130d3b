//! `outrider sync` as people type it.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::duration;
use crate::output::{Format, FormatParser};

#[derive(Debug, Args)]
pub(crate) struct SyncArgs {
    #[command(subcommand)]
    pub(crate) command: SyncCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SyncCommand {
    /// A row a field and a row a pool: desired, upstream, whose it is, what comes next, what may be lost
    ///
    /// The table shows what is managed or differs, and why wherever something may be lost; -o wide and -o json show all.
    /// Only that is claimed which the object proves; what would be needed to know more is said.
    Explain(SyncExplainArgs),
    /// What a push would write and delete, and why each write is held
    Plan(SyncPlanArgs),
    /// Play a timeline of changes, and tell which are lost under Rancher's loops and under ours
    ///
    /// TIMELINE has the keys provider (EKS, AKS, GKE), desired (the managed fields), upstream (where the cloud differs at
    /// the beginning), origin (created, imported), interval, firstRefresh, until and events. An event has a source
    /// (cloud, console or terraform; rancher; restart; refresh), start, end, field and value; visible is when a read of the cloud
    /// first shows what Rancher wrote. Times are all 11:01, 11:01:30 or all RFC 3339. The start of an edit in Rancher is when its form was opened.
    Simulate(SyncSimulateArgs),
}

/// Which hosted cluster, and by whose rules.
#[derive(Debug, Args)]
pub(crate) struct HostedArgs {
    /// What `kubectl get clusters.management.cattle.io NAME -o yaml` prints, or an EKSClusterConfig and its likes; - reads
    /// standard input
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The cloud's view as it is now, with the fields of an upstreamSpec, where it is newer than the object's own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) upstream: Option<PathBuf>,
    /// By whose rules refresh and push are told: outrider, or rancher as its code does it
    #[arg(long = "as", value_name = "RULES", default_value = "outrider", value_parser = ["outrider", "rancher"])]
    pub(crate) rules: String,
    /// Time between two refreshes, as Rancher's settings eks-refresh, aks-refresh and gke-refresh have it
    #[arg(long, value_name = "DURATION", default_value = "300s", value_parser = duration)]
    pub(crate) interval: std::time::Duration,
    /// Judge as of this time (RFC 3339) instead of now, for an object that was saved earlier
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<outrider_protocol::Timestamp>,
}

#[derive(Debug, Args)]
pub(crate) struct SyncExplainArgs {
    #[command(flatten)]
    pub(crate) hosted: HostedArgs,
    /// How the fields are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::SHOW)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct SyncPlanArgs {
    #[command(flatten)]
    pub(crate) hosted: HostedArgs,
    /// Plan as if this field or pool were confirmed, such as tags or nodeGroups/n2; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) confirm: Vec<String>,
    /// How the plan is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::SHOW)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct SyncSimulateArgs {
    /// The timeline, YAML or JSON; - reads standard input
    #[arg(value_name = "TIMELINE", value_hint = ValueHint::FilePath)]
    pub(crate) timeline: PathBuf,
    /// The cluster it happens to, as for `explain`; the timeline then says only what differs
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// How the writes are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::SHOW)]
    pub(crate) output: Format,
}
