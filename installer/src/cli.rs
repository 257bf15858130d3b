//! The command line as people type it. Help texts here are also the man pages and `docs/cli.md`.

mod install;
mod node;
mod sync;
mod userdata;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use outrider_agent::capture::check_of;
use outrider_protocol::Check;

pub(crate) use self::install::{InstallArgs, UninstallArgs, WorkingArgs};
pub(crate) use self::node::NodeArgs;
pub(crate) use self::sync::{
    HostedArgs, SyncArgs, SyncCommand, SyncExplainArgs, SyncPlanArgs, SyncSimulateArgs,
};
pub(crate) use self::userdata::{
    FormArgs, NetworkArgs, OursArgs, RenderFormat, UserdataArgs, UserdataCommand, UserdataLintArgs,
    UserdataMergeArgs, UserdataRenderArgs,
};
use crate::output::{Format, FormatParser};

/// The variables the program reads.
const ENVIRONMENT: &str = "\
Environment:
  OUTRIDER_URL     Coordinator to talk to, https://host[:port], instead of the context in use
  OUTRIDER_TOKEN   Operator token for it
  NO_COLOR         Any value but the empty one: no colour, not even on a terminal
  XDG_CONFIG_HOME  contexts.toml lies in outrider below it [default: ~/.config]
  XDG_STATE_HOME   The state of `outrider up` lies in outrider below it [default: ~/.local/state]
  HTTPS_PROXY, NO_PROXY
                   The proxy on the way to the coordinator, and for whom there is none";

/// Look at nodes of SUSE Virtualization, Rancher and hosted clusters: what is wrong, in numbers, and what to do
///
/// Exit codes: `check` is a monitoring plugin and ends with 0 when all is well, 1 for a warning, 2 for an error and 3
/// when something could not be read or the command was called wrongly; 2 goes before 3, and 3 before 1. Every other command ends with 0 when it did
/// its work, 1 when it could not (`userdata lint`: when it found an error), and 64 when it was called wrongly.
#[derive(Debug, Parser)]
#[command(name = "outrider", version, propagate_version = true, disable_help_subcommand = true)]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
#[command(after_long_help = ENVIRONMENT)]
pub struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Coordinator to talk to, by the name it was logged in under
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub(crate) context: Option<String>,
    /// Say on standard error what goes on; twice for more
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
}

/// One command a capability.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything in one process: a coordinator, the agent of this machine, simulated nodes
    ///
    /// State is kept, so that a second run picks up where the first ended. Ctrl-C ends it. While it runs, `outrider
    /// get nodes` and its relatives reach it without a login; where another context is in use, with `--context up`.
    Up(UpArgs),
    /// Look at this machine once, without a coordinator
    ///
    /// Ends as a monitoring plugin does: 0 ok, 1 warning, 2 error, 3 unknown or called wrongly. An error goes before
    /// unknown, and unknown before a warning: behind what could not be read may lie an error. A condition that is Unknown
    /// counts from severity warn on. A check named with --only that does not apply here is unknown as well; certificates
    /// and credentials are judged with the clock read, for an end told by a wrong clock is none. A caller without root gets the last verdict of the daemon on this machine where one answers, and is told so.
    Check(CheckArgs),
    /// Print the facts this machine yields, as JSON; no secrets are in them
    Facts(FactsArgs),
    /// Judge captured facts, offline: facts of one or many nodes in, conditions out
    ///
    /// Nodes that name the same cluster are judged together as well. The same facts always yield the same bytes.
    Diagnose(DiagnoseArgs),
    /// Make this machine a managed node: programs, configuration, token, service
    ///
    /// Looks first and changes nothing when something stands in the way. What is done is written into a receipt before it
    /// is done, so that a run that was ended anywhere is simply repeated, and `outrider uninstall` finds the way back.
    Install(Box<InstallArgs>),
    /// Take away what `outrider install` made, and nothing else
    Uninstall(UninstallArgs),
    /// Make, list and revoke enrolment tokens
    Token(TokenArgs),
    /// Let a node in that waits for approval
    Approve(ApproveArgs),
    /// Take a node's right to speak away, for good
    ///
    /// From now on its certificate opens nothing and renews nothing, its open connections are closed, and its key never
    /// gets in again. What it reported stays to be read, its name is free, and nothing on the machine itself is changed.
    /// To let the machine back in, have its agent make a new key (stop it, empty its state folder) and give it a new token.
    Revoke(RevokeArgs),
    /// Set and remove labels of a node, for -l to select by
    ///
    /// KEY=VALUE sets a label and KEY- removes one; the others stay. A label that has another value already is changed
    /// only with --overwrite.
    Label(LabelArgs),
    /// List nodes, clusters or conditions of the fleet
    Get(GetArgs),
    /// Show all that is known of one node or cluster
    Describe(DescribeArgs),
    /// Say what a reason or a condition means and what to do, offline
    Explain(ExplainArgs),
    /// Follow the fleet: one line for every transition
    Watch(WatchArgs),
    /// Say of a hosted cluster (EKS, AKS, GKE) who owns each field, and what becomes of a change
    ///
    /// Offline: a file or a pipe in, and nothing is written anywhere.
    Sync(SyncArgs),
    /// Judge cloud-init userdata, add to it, and write it
    ///
    /// Offline: a file or a pipe in, and nothing is sent anywhere; `--agent coordinator` alone asks one for SHA-256.
    Userdata(Box<UserdataArgs>),
    /// Remember a coordinator and its operator token
    ///
    /// A token of the form OR1<hash>::<id>:<secret> pins the coordinator's certificate authority; the first one lies
    /// in the coordinator's state folder, readable by its owner alone.
    Login(LoginArgs),
    /// Show and choose the coordinators logged in to
    Context(ContextArgs),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
    /// Write man pages, completions and the reference into a source tree
    #[command(hide = true)]
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Play this many more nodes: kept readings through the real rules, with faults that come and go
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub(crate) simulate: u32,
    /// End by itself after this time, such as 20s or 5m, and print the fleet
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) limit: Option<std::time::Duration>,
    /// Address the coordinator listens at; port 0 takes a free one [default: 127.0.0.1:8440, or a free port]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Folder for the state of coordinator and agent [default: outrider below $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Configuration of this machine's agent, instead of the installed one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// How the fleet is printed; json, yaml and name at the end
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::SHOW)]
    pub(crate) output: Format,
}

/// Which sensors run, and with what configuration.
#[derive(Debug, Args)]
pub(crate) struct SensorArgs {
    /// Only these checks: host, clock, cloud-init, guest-agent, etcd, load-balancer, certificates, credentials, kubernetes, dns, rancher-agent
    #[arg(long, value_name = "CHECK,…", value_delimiter = ',', value_parser = check_of)]
    pub(crate) only: Vec<Check>,
    /// Read this one file instead of agent.toml and its drop-ins
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) sensors: SensorArgs,
    /// How the conditions are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::CHECK)]
    pub(crate) output: Format,
    /// Also write the facts that were judged, for `outrider diagnose`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) facts_out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FactsArgs {
    #[command(flatten)]
    pub(crate) sensors: SensorArgs,
    /// How the facts are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "json", value_parser = FormatParser::DOCUMENT)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct DiagnoseArgs {
    /// Files with captured facts; - reads standard input; a file may hold several documents
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// How the conditions are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::SHOW)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token that lets machines ask to be nodes; it is shown this once
    Create(TokenCreateArgs),
    /// List tokens, without their secrets
    List {
        /// How the tokens are printed
        #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::SHOW)]
        output: Format,
    },
    /// End tokens at once; nodes already enrolled stay
    Revoke {
        /// Public parts of the tokens, as `outrider token list` shows them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// Live as long as a node pool, so that a replacement machine months later still joins
    #[arg(long)]
    pub(crate) pool: bool,
    /// Life of the token, such as 24h or 90d [default: 24h; with --pool, no end]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<std::time::Duration>,
    /// Nodes it admits [default: 1; with --pool, no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) uses: Option<u32>,
    /// Node names it may be used for, as a glob such as 'pool1-*'
    #[arg(long, value_name = "GLOB", default_value = "")]
    pub(crate) name_pattern: String,
    /// New nodes an hour that the pattern admits without approval; 0 means that each waits for `outrider approve`
    #[arg(long, value_name = "N", default_value_t = 0, requires = "name_pattern")]
    pub(crate) rate_per_hour: u32,
    /// Admit a machine without approval when the coordinator sees it at Harvester: one running VM of this name with its MAC or
    /// system UUID, which no living node is
    #[arg(long, requires_all = ["pool", "name_pattern"])]
    pub(crate) admit_seen_vm: bool,
    /// Cluster its nodes are shown under
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) cluster: String,
    /// How the token is printed; table prints the token alone
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::DESCRIBE)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// Names of nodes that wait
    #[arg(required = true, value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// Names of the nodes
    #[arg(required = true, value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
    /// How they are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::ACT)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    /// Name of the node
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Labels to set and to remove
    #[arg(required = true, value_name = "KEY=VALUE|KEY-")]
    pub(crate) changes: Vec<String>,
    /// Change labels that have another value already
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// How the node is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::ACT)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// What to list: nodes, clusters or conditions
    #[arg(value_name = "KIND")]
    pub(crate) kind: Kind,
    /// Only these, by name; for conditions, those of these nodes or clusters
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// How they are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::LIST)]
    pub(crate) output: Format,
    /// Only nodes with these labels, such as 'team=a,tier!=test'; conditions follow their nodes
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// Go on and print what changes
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Leave the title row out
    #[arg(long)]
    pub(crate) no_headers: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// Node or cluster
    #[arg(value_name = "KIND")]
    pub(crate) kind: Described,
    /// Its name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// How it is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::DESCRIBE)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The reason, such as EtcdQuorumLost, or the condition, such as EtcdQuorum, as tables show it
    #[arg(value_name = "REASON")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// How transitions are printed; json is one document a line
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::DESCRIBE)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// https://host[:port] of the coordinator
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Operator token; without it $OUTRIDER_TOKEN or one line of standard input is used, which no process list shows
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// SHA-256 of the coordinator's root certificate (DER), in hex, to hold against the one that the token pins
    #[arg(long, value_name = "HEX")]
    pub(crate) ca_checksum: Option<String>,
    /// Name to remember it by [default: its host]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    #[command(subcommand)]
    pub(crate) command: ContextCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List the coordinators logged in to; * marks the one in use
    List {
        /// How they are printed
        #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::SHOW)]
        output: Format,
    },
    /// Use this one from now on
    Use {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Forget this one and its token
    Remove {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Root of the source tree
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
}

/// What `get` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Nodes
    #[value(alias = "node", alias = "no")]
    Nodes,
    /// Clusters
    #[value(alias = "cluster")]
    Clusters,
    /// Conditions of nodes and clusters
    #[value(alias = "condition")]
    Conditions,
    /// Virtual machines of Harvester, and which node each is
    #[value(alias = "machine", alias = "vms")]
    Machines,
    /// Node pools of guest clusters at Harvester: wanted, present, being replaced
    #[value(alias = "pool")]
    Pools,
}

/// What `describe` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Described {
    /// A node
    #[value(alias = "nodes", alias = "no")]
    Node,
    /// A cluster
    #[value(alias = "clusters")]
    Cluster,
}

/// `20s`, `5m`, `24h`, `90d`, `1h30m`. A bare number could be meant in any unit, and is refused.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    let refuse = || format!("{text:?} is no duration; write for example 20s, 5m, 1h30m or 90d");
    let parse = |digits: &str| digits.parse::<u64>().map_err(|_| refuse());
    let mut seconds: u64 = 0;
    let mut digits = String::new();
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                digits.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(refuse()),
        };
        let part = parse(&digits)?.checked_mul(unit).ok_or_else(refuse)?;
        seconds = seconds.checked_add(part).ok_or_else(refuse)?;
        digits.clear();
    }
    if !digits.is_empty() {
        return Err(match digits.len() == text.len() {
            true => format!("{text:?} has no unit; write {text}s, {text}m or {text}h"),
            false => refuse(),
        });
    }
    // Ten years: anything longer is a slip of the hand, and far below what a timer can hold.
    match seconds {
        1..=315_360_000 => Ok(std::time::Duration::from_secs(seconds)),
        0 => Err(format!("{text:?} is no time at all; it must be longer than zero, for example 20s or 5m")),
        _ => Err(format!("{text:?} is longer than ten years; write for example 20s, 5m, 1h30m or 90d")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_read_or_refused() {
        for (text, seconds) in [("20s", 20), ("5m", 300), ("1h30m", 5400), ("90d", 7_776_000)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "0s", "s", "5", "-5s", "5x", "1h30", "99999999999999999999s", "9999999d"] {
            assert!(duration(text).is_err(), "{text:?} was taken");
        }
        for (text, why) in [
            ("0s", "longer than zero"),
            ("5", "\"5\" has no unit; write 5s, 5m or 5h"),
            ("1h30", "is no duration"),
            ("9999d", "ten years"),
        ] {
            assert!(duration(text).unwrap_err().contains(why), "{text}");
        }
    }
}
