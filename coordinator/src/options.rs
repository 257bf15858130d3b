//! How a coordinator is to run, and why it may not start.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::enrol::EnrolError;
use crate::harvester::HarvesterOptions;
use crate::pki::PkiError;
use crate::server::{BindError, Limits};
use crate::store::sqlite::OpenError;
use crate::store::{HistoryError, StoreError};

/// The port agents and people reach a coordinator at, unless told otherwise.
pub const DEFAULT_PORT: u16 = 8440;

/// Where packages for new machines lie, unless told otherwise.
pub const INSTALL_DIR: &str = "/usr/share/outrider/install";

/// How a coordinator is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses to listen on; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Folder of database, CA and first operator token; made if it is not there.
    pub state_dir: PathBuf,
    /// DNS names and IP addresses it is reached by, the preferred one first; those of this machine are added.
    pub names: Vec<String>,
    /// Life of a node's certificate.
    pub certificate_lifetime: Duration,
    /// How long after its end a certificate may still be renewed.
    pub renewal_grace: Duration,
    /// A node that is not heard for so many of its heartbeat intervals is silent.
    pub silent_after_intervals: u32,
    /// How long transitions are kept.
    pub history: Duration,
    /// Begin a new database where the old one is lost though its CA is there; refused otherwise.
    pub begin_anew: bool,
    /// Folder of packages for new machines; one named `install` in the state folder goes before it.
    pub install_dir: PathBuf,
    /// The Harvester whose virtual machines are read; none is.
    pub harvester: Option<HarvesterOptions>,
    /// Limits on callers.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        let days = |n: u64| Duration::from_secs(n * 24 * 3600);
        Self {
            listen: vec![(Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into()],
            state_dir: PathBuf::from("/var/lib/outrider-coordinator"),
            names: Vec::new(),
            certificate_lifetime: days(1),
            renewal_grace: days(45),
            silent_after_intervals: 3,
            history: days(90),
            begin_anew: false,
            install_dir: PathBuf::from(INSTALL_DIR),
            harvester: None,
            limits: Limits::default(),
        }
    }
}

impl Options {
    /// A coordinator on a free loopback port: for tests and development.
    pub fn on_loopback(state_dir: impl Into<PathBuf>) -> Self {
        Self { listen: vec![(Ipv4Addr::LOCALHOST, 0).into()], state_dir: state_dir.into(), ..Self::default() }
    }
}

/// Why a coordinator did not start. Nothing of it is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No address was given.
    #[error("no address to listen on; give --listen ADDRESS:PORT")]
    NoAddress,
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The database cannot be opened, or another coordinator has the state folder.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no database where one has been.
    #[error(
        "{} is {}, but {} shows that a coordinator has run here: the database is lost, or its disk is not mounted. \
         Nothing was touched; nodes keep their certificates and what they have to report. Restore the database (a copy \
         made by `outrider-coordinator backup` goes in its place) and start again. Only if there is no copy: \
         `outrider-coordinator serve --begin-anew` once; every node is then unknown and must enrol with a new token",
        path.display(), if *is_empty { "empty" } else { "missing" }, beside.display()
    )]
    DatabaseLost {
        /// The database.
        path: PathBuf,
        /// It is there, without a byte in it.
        is_empty: bool,
        /// What shows that there was one.
        beside: PathBuf,
    },
    /// Opening the database ended early.
    #[error("opening the database was interrupted: {detail}")]
    Interrupted {
        /// Why.
        detail: String,
    },
    /// The certificate authority cannot be opened.
    #[error("the certificate authority cannot be used")]
    Pki(#[from] PkiError),
    /// The store cannot be opened.
    #[error("the store cannot be used")]
    Store(#[from] StoreError),
    /// The history cannot be read.
    #[error("the history cannot be used")]
    History(#[from] HistoryError),
    /// The registry of nodes cannot be opened.
    #[error("the registry of nodes cannot be used")]
    Enrol(#[from] EnrolError),
}
