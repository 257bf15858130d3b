//! The command line of `outrider-coordinator`: `serve`, `token`, `ca`, `backup`.
//!
//! `token` and `ca` speak to the coordinator that runs on the state folder, or, when none does, work on the folder
//! themselves. Exit codes follow sysexits, as the agent's do ([`EXIT_CODES`]).

mod api_client;
mod backup;
mod ca;
pub(crate) mod logging;
mod reach;
mod serve;
mod tokens;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use outrider_coordinator::store::sqlite::OpenError;
use outrider_coordinator::{BindError, StartError};

/// What the exit codes say.
const EXIT_CODES: &str = "\
Exit codes:
  64  called wrongly
  66  the database is missing or empty where a coordinator has run; nothing was touched
  69  a coordinator runs on the state folder and cannot be asked
  70  a failure inside, or a state folder that cannot be used as it is
  73  a file cannot be made or written
  75  the address or the state folder is in use by another process: try again when it has ended";

const EX_USAGE: u8 = 64;
const EX_NOINPUT: u8 = 66;
const EX_UNAVAILABLE: u8 = 69;
const EX_SOFTWARE: u8 = 70;
const EX_CANTCREAT: u8 = 73;
const EX_TEMPFAIL: u8 = 75;

/// The coordinator of Outrider: takes reports, judges the fleet, answers people.
#[derive(Debug, Parser)]
#[command(name = "outrider-coordinator", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Folder of the database, the CA and the first operator token.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "STATE_DIRECTORY",
        default_value = "/var/lib/outrider-coordinator"
    )]
    state_dir: PathBuf,
    /// How much is logged.
    #[arg(long, global = true, value_name = "LEVEL", env = "OUTRIDER_LOG", default_value = "info",
        value_parser = ["error", "warn", "info", "debug", "trace"])]
    log_level: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service.
    Serve(ServeArgs),
    /// Enrolment tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// The certificate authority.
    #[command(subcommand)]
    Ca(CaCommand),
    /// Copy the database to FILE and the CA's keys to FILE.ca, while the service runs.
    Backup(BackupArgs),
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Address to listen on; may be given more than once. Port 0 takes a free one [default: every address, 8440].
    #[arg(long, value_name = "ADDRESS:PORT", env = "OUTRIDER_LISTEN", value_delimiter = ',')]
    listen: Vec<SocketAddr>,
    /// DNS name or IP address it is reached by, the preferred one first; may be given more than once.
    #[arg(long = "name", value_name = "NAME", env = "OUTRIDER_NAMES", value_delimiter = ',')]
    names: Vec<String>,
    /// Life of a node's certificate: 90s, 15m, 24h, 7d.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    certificate_lifetime: Duration,
    /// How long after its end a certificate may still be renewed.
    #[arg(long, value_name = "DURATION", default_value = "45d", value_parser = duration)]
    renewal_grace: Duration,
    /// How long transitions are kept.
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = duration)]
    history: Duration,
    /// Begin a new database where the old one is lost though its CA is there: every node must enrol anew.
    #[arg(long)]
    begin_anew: bool,
    /// A node not heard for so many of its heartbeat intervals is silent.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    silent_after: u32,
    /// Folder of packages for new machines, served below /install/; `install` in the state folder goes before it.
    #[arg(long, value_name = "DIR", env = "OUTRIDER_INSTALL", default_value = outrider_coordinator::INSTALL_DIR)]
    install_dir: PathBuf,
    /// Kubeconfig of the Harvester cluster whose virtual machines the nodes are; it is only read.
    #[arg(long, value_name = "FILE", env = "OUTRIDER_HARVESTER_KUBECONFIG")]
    harvester_kubeconfig: Option<PathBuf>,
    /// Namespace of Harvester to read; may be given more than once [default: that of the kubeconfig's context, or every one].
    #[arg(
        long = "harvester-namespace",
        value_name = "NAMESPACE",
        env = "OUTRIDER_HARVESTER_NAMESPACES",
        value_delimiter = ',',
        requires = "harvester_kubeconfig"
    )]
    harvester_namespaces: Vec<String>,
    /// Guest cluster whose machines are expected as nodes, by Rancher's name, besides those of nodes and tokens; may be given
    /// more than once.
    #[arg(
        long = "harvester-cluster",
        value_name = "NAME",
        env = "OUTRIDER_HARVESTER_CLUSTERS",
        value_delimiter = ',',
        requires = "harvester_kubeconfig"
    )]
    harvester_clusters: Vec<String>,
    /// Kubeconfig of the cluster that Rancher runs in: how many machines it wants of each node pool; it is only read.
    #[arg(long, value_name = "FILE", env = "OUTRIDER_RANCHER_KUBECONFIG", requires = "harvester_kubeconfig")]
    rancher_kubeconfig: Option<PathBuf>,
    /// Namespace of Rancher's clusters.provisioning.cattle.io.
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "OUTRIDER_RANCHER_NAMESPACE",
        default_value = "fleet-default",
        requires = "rancher_kubeconfig"
    )]
    rancher_namespace: String,
    /// Most connections at once [default: as many as files may be open, less a reserve].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    max_connections: usize,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token that lets machines ask to be nodes; it is shown this once.
    Create(CreateArgs),
    /// List tokens without their secrets.
    List {
        /// How to print them.
        #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
        output: String,
    },
    /// End tokens at once; nodes already enrolled stay.
    Revoke {
        /// Public parts of the tokens, as `token list` shows them.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Live as long as a node pool, so that a replacement machine months later still joins.
    #[arg(long)]
    pool: bool,
    /// Life of the token, such as 24h or 90d [default: 24h; with --pool, no end].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Duration>,
    /// Nodes it admits [default: 1; with --pool, no limit].
    #[arg(long, value_name = "N")]
    uses: Option<u32>,
    /// Node names it may be used for, as a glob such as 'pool1-*'.
    #[arg(long, value_name = "GLOB", default_value = "")]
    name_pattern: String,
    /// New nodes an hour that the pattern admits without approval; 0 means that each waits for `outrider approve`.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "name_pattern")]
    rate_per_hour: u32,
    /// Admit a machine without approval when Harvester shows it: one running VM of this name with its MAC or system UUID, which
    /// no living node is.
    #[arg(long, requires_all = ["pool", "name_pattern"])]
    admit_seen_vm: bool,
    /// Cluster its nodes are shown under.
    #[arg(long, value_name = "NAME", default_value = "")]
    cluster: String,
}

#[derive(Debug, Subcommand)]
enum CaCommand {
    /// Show what is trusted, and which nodes have not renewed since a rotation.
    Show {
        /// How to print it.
        #[arg(short, long, default_value = "table", value_parser = ["table", "json", "pem"])]
        output: String,
    },
    /// Make a new root; the one before stays trusted until it is retired.
    Rotate,
    /// End the trust in the root before the active one.
    Retire {
        /// Its generation, as `ca show` prints it.
        generation: u32,
        /// Leave out nodes that have not renewed: they must enrol anew.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
struct BackupArgs {
    /// Where to; nothing may be there.
    file: PathBuf,
    /// Leave the CA's keys out; without them every node must enrol anew after a restore.
    #[arg(long)]
    without_ca: bool,
}

impl Arguments {
    /// The level asked for.
    pub(crate) fn log_level(&self) -> log::LevelFilter {
        self.log_level.parse().unwrap_or(log::LevelFilter::Info)
    }
}

/// Does what was asked.
pub(crate) fn execute(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { command, state_dir, .. } = arguments;
    let mut runtime = match command {
        Command::Serve(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        match command {
            Command::Serve(args) => serve::run(args, state_dir).await,
            Command::Token(command) => tokens::run(command, &state_dir).await,
            Command::Ca(command) => ca::run(command, &state_dir).await,
            Command::Backup(args) => backup::run(&args, &state_dir).await,
        }
    })
}

/// Prints help or what is wrong with the command line; the exit code.
pub(crate) fn usage(answer: &clap::Error) -> ExitCode {
    // Nobody is left to be told of a closed terminal.
    let _ = answer.print();
    if answer.use_stderr() { ExitCode::from(EX_USAGE) } else { ExitCode::SUCCESS }
}

/// The exit code of a failure.
pub(crate) fn exit_code_of(error: &anyhow::Error) -> ExitCode {
    let code =
        if let Some(StartError::Bind(BindError::InUse { .. }) | StartError::Open(OpenError::InUse { .. })) =
            error.downcast_ref()
        {
            EX_TEMPFAIL
        } else if let Some(StartError::DatabaseLost { .. }) = error.downcast_ref() {
            EX_NOINPUT
        } else if error.is::<reach::NotReachable>() {
            EX_UNAVAILABLE
        } else if error.chain().any(|cause| cause.is::<io::Error>()) {
            EX_CANTCREAT
        } else {
            EX_SOFTWARE
        };
    ExitCode::from(code)
}

/// `90s`, `15m`, `24h`, `7d`, or a number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(format!("{unit:?} is no unit; write 90s, 15m, 24h or 7d")),
    };
    let number: u64 = number.parse().map_err(|_| "write 90s, 15m, 24h or 7d".to_owned())?;
    match number.checked_mul(factor) {
        Some(seconds) if seconds > 0 && seconds <= 100 * 365 * 86_400 => Ok(Duration::from_secs(seconds)),
        _ => Err("more than 0 and at most 100 years is allowed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn durations() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in ["", "d", "0s", "1w", "-1s", "99999999999999999999s", "200000d"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
