//! A running coordinator: opened, started, stopped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use outrider_protocol::{CoordinatorView, NodeView, Status, Timestamp, TokenRequest, TokenView};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::App;
use crate::background;
use crate::enrol::{EnrolError, Registrar, Settings};
use crate::feed::Feed;
use crate::fleet::saver::{CLUSTERS, STATES, SavedNode};
use crate::fleet::{Clock, Fleet};
use crate::harvester::{Harvester, Left, MACHINES, POOLS, RETIRED};
use crate::install::Catalogue;
use crate::latches::{Latch, Latches};
use crate::measured::Measured;
use crate::metrics::Metrics;
use crate::names;
use crate::options::{Options, StartError};
use crate::pki::{Authority, Lifetimes, PkiError, files};
use crate::server::{Gate, Server, accept, bind};
use crate::store::sqlite::{FILE_NAME, SqliteStore};
use crate::store::{Expect, History, Store, list_all};

/// How long connections may take to end at shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// The first operator token, in the state folder.
pub const OPERATOR_TOKEN_FILE: &str = "operator.token";

/// Where it is remembered that a database took the place of a lost one.
const BEGUN_ANEW_KEY: &str = "coordinator/begun-anew";

/// The address of the coordinator that runs on the state folder, for tools on the same machine.
pub const ENDPOINT_FILE: &str = "endpoint";

/// A running coordinator. Dropping it ends it at once; [`Coordinator::shutdown`] ends it in order.
pub struct Coordinator {
    app: Arc<App>,
    addresses: Vec<SocketAddr>,
    operator_token: String,
    listeners: JoinSet<()>,
    tasks: JoinSet<()>,
    progress: watch::Receiver<u64>,
    database: Option<Arc<SqliteStore>>,
    endpoint: PathBuf,
}

/// Starts a coordinator on the current runtime, with its database in the state folder; it answers when this returns.
pub async fn start(options: Options) -> Result<Coordinator, StartError> {
    let listeners = listen(&options)?;
    let is_lost = match refuse_lost_database(&options.state_dir) {
        Ok(()) => false,
        Err(_) if options.begin_anew => true,
        Err(lost) => return Err(lost),
    };
    let database = open_store(&options.state_dir).await?;
    if is_lost {
        begin_anew(&*database).await?;
    }
    let mut coordinator = assemble(options, listeners, database.clone()).await?;
    coordinator.database = Some(database);
    Ok(coordinator)
}

/// Refuses a state folder whose CA is there and whose database is not: started on, it would silently be a coordinator
/// that knows no node, and agents whose certificate nobody knows give it up. A first start writes the database before
/// the CA, so that one that was cut short is not taken for a loss.
pub fn refuse_lost_database(state_dir: &Path) -> Result<(), StartError> {
    let path = state_dir.join(FILE_NAME);
    let size = std::fs::metadata(&path).map(|metadata| metadata.len()).ok();
    if size.is_some_and(|bytes| bytes > 0) {
        return Ok(());
    }
    let marks = [state_dir.join("ca").join("ca.pem"), state_dir.join(OPERATOR_TOKEN_FILE)];
    match marks.into_iter().find(|mark| mark.exists()) {
        Some(beside) => Err(StartError::DatabaseLost { path, is_empty: size.is_some(), beside }),
        None => Ok(()),
    }
}

/// Remembers in a new database that it is not the first one, for those whom it does not know.
async fn begin_anew(store: &dyn Store) -> Result<(), StartError> {
    let at = Timestamp::from(std::time::SystemTime::now());
    log::error!(
        "the database was lost and a new one begins, as asked for: no node is known any more; each must enrol with a \
         new token (`outrider token create`), and tokens made before open nothing"
    );
    store.put(BEGUN_ANEW_KEY, serde_json::json!({ "at": at }).to_string().into(), Expect::Any).await?;
    Ok(())
}

/// When this database took the place of a lost one, if it did.
async fn begun_anew(store: &dyn Store) -> Result<Option<Timestamp>, StartError> {
    let entry = store.get(BEGUN_ANEW_KEY).await?;
    let value: Option<serde_json::Value> = entry.and_then(|entry| serde_json::from_slice(&entry.value).ok());
    Ok(value.and_then(|value| value.get("at")?.as_str()?.parse().ok()))
}

/// Starts a coordinator over another store than the embedded one; the state folder holds the CA and the first token.
pub async fn start_on<S: Store + History>(
    options: Options,
    store: Arc<S>,
) -> Result<Coordinator, StartError> {
    let listeners = listen(&options)?;
    assemble(options, listeners, store).await
}

/// Listens first: an address in use is the commonest failure, and nothing has been touched yet.
fn listen(options: &Options) -> Result<Vec<TcpListener>, StartError> {
    if options.listen.is_empty() {
        return Err(StartError::NoAddress);
    }
    Ok(options.listen.iter().map(|address| bind(*address)).collect::<Result<_, _>>()?)
}

async fn assemble<S: Store + History>(
    options: Options,
    listeners: Vec<TcpListener>,
    store: Arc<S>,
) -> Result<Coordinator, StartError> {
    files::private_folder(&options.state_dir)?;
    let open_files = raise_open_files();
    let addresses: Vec<SocketAddr> = listeners.iter().filter_map(|l| l.local_addr().ok()).collect();

    let clock = Clock::start();
    let now = clock.now();
    let latches = Arc::new(Latches::at_start());
    let limits = options.limits.resolve(open_files);
    let gate = Gate::new(limits);
    let fleet = Fleet::new(clock, options.silent_after_intervals);
    let metrics = Arc::new(Metrics::new(fleet.clone(), gate.clone(), latches.clone()));
    let measured = Measured::new(store, metrics.clone(), latches.clone());
    let (store, history): (Arc<dyn Store>, Arc<dyn History>) = (measured.clone(), measured);

    let lifetimes = Lifetimes { client: options.certificate_lifetime, ..Lifetimes::default() };
    let certificate_names = names::certificate_names(&options.names, &addresses);
    let authority = Authority::open(&options.state_dir.join("ca"), &certificate_names, lifetimes, now)?;
    let settings = Settings {
        renewal_grace: options.renewal_grace,
        silent_after_intervals: options.silent_after_intervals,
        ..Settings::default()
    };
    let registrar = Arc::new(Registrar::open(store.clone(), authority.clone(), settings, now).await?);
    let operator_file = options.state_dir.join(OPERATOR_TOKEN_FILE);
    let operator_token = registrar.ensure_operator_token(&operator_file, now).await?.reveal();

    let begun_anew = begun_anew(&*store).await?;
    load(&fleet, &*store, &*history, &registrar).await?;
    latches.clear(Latch::Fleet);
    let harvester = match options.harvester {
        Some(harvester) => Some(Harvester::new(harvester, left_machines(&*store).await?)),
        None => None,
    };
    if let Some(harvester) = &harvester {
        metrics.watch_harvester(harvester.clone());
        registrar.ask_witness(harvester.clone());
    }

    let app = Arc::new(App {
        feed: Arc::new(Feed::default()),
        tls: Arc::new(tls(&authority)?),
        url: names::url(&options.names, &addresses),
        started_at: now,
        stopping: AtomicBool::new(false),
        following: Mutex::default(),
        said: Default::default(),
        install: Catalogue::new(vec![options.state_dir.join("install"), options.install_dir]),
        begun_anew,
        harvester,
        connections: Arc::default(),
        fleet,
        store,
        history,
        authority,
        registrar,
        limits,
        gate,
        metrics,
        latches,
    });
    let (progress_sender, progress) = watch::channel(0);
    let tasks = background::spawn(&app, options.history, progress_sender);
    let server = Server::new(app.clone());
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(server.clone(), listener));
    }
    app.latches.clear(Latch::Listeners);
    let endpoint = options.state_dir.join(ENDPOINT_FILE);
    if let Some(address) = addresses.first() {
        files::write_whole(&endpoint, format!("{}\n", names::local(*address)).as_bytes(), 0o600)?;
    }
    log::info!("listening on {addresses:?} as {}; CA {}", app.url, app.authority.pin());
    Ok(Coordinator {
        app,
        addresses,
        operator_token,
        listeners: accepting,
        tasks,
        progress,
        database: None,
        endpoint,
    })
}

impl Coordinator {
    /// `https://host:port` it is reached at.
    pub fn url(&self) -> String {
        self.app.url.clone()
    }

    /// Addresses it listens on, with their real ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// SHA-256 of the root certificate's DER, hex: the pin.
    pub fn ca_checksum(&self) -> String {
        self.app.authority.pin().to_string()
    }

    /// The first operator token, `OR1<pin>::<id>:<secret>`.
    pub fn operator_token(&self) -> &str {
        &self.operator_token
    }

    /// Makes an enrolment token.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<TokenView, EnrolError> {
        self.app.registrar.create_token(request, self.app.clock().now()).await
    }

    /// Who answers, as `GET /v1/coordinator` shows it.
    pub fn view(&self) -> CoordinatorView {
        crate::api::coordinator_view(&self.app)
    }

    /// Every node, by name, as `GET /v1/nodes` shows it.
    pub fn nodes(&self) -> Vec<NodeView> {
        self.app.fleet.nodes().iter().map(|node| self.app.fleet.view(node)).collect()
    }

    /// How many nodes are ready, and how many there are.
    pub fn count_nodes(&self) -> (usize, usize) {
        let mut nodes = self.app.fleet.nodes();
        nodes.retain(|node| node.inner().retired_as().is_none());
        let ready = nodes.iter().filter(|node| node.inner().ready() == Status::True).count();
        (ready, nodes.len())
    }

    /// Forgets simulated nodes that were revoked, with all that is known of them but their transitions.
    pub async fn forget_simulated(&self) -> Result<(), EnrolError> {
        for uid in self.app.registrar.forget_simulated().await? {
            self.app.fleet.forget(&uid);
            self.app.store.delete(&format!("{STATES}{uid}"), Expect::Any).await?;
        }
        Ok(())
    }

    /// Counts the turns of the main loop: a watchdog is fed while it grows.
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.progress.clone()
    }

    /// Reads the CA's files again, after `outrider-coordinator ca` changed them.
    pub fn reload(&self) -> Result<(), PkiError> {
        self.app.authority.reload(self.app.clock().now())
    }

    /// Has what carries the CA's pin follow the CA, at once: the operator token's file.
    pub async fn follow_authority(&self) -> Result<(), EnrolError> {
        self.app.registrar.follow_authority(self.app.clock().now()).await
    }

    /// Stops accepting, answers held heartbeats, lets requests end (for at most five seconds), and writes what is not
    /// yet written.
    pub async fn shutdown(mut self) {
        log::info!("stopping");
        self.app.stopping.store(true, Ordering::Release);
        self.listeners.shutdown().await;
        self.app.connections.close_all();
        if tokio::time::timeout(DRAIN, self.app.connections.drained()).await.is_err() {
            log::warn!("some connections did not end within {} s and are cut", DRAIN.as_secs());
        }
        self.tasks.shutdown().await;
        background::finish(&self.app).await;
        if let Some(database) = self.database.take() {
            database.close().await;
        }
        // Left behind by a crash, it is wrong until the next start, and the tools say so.
        let _ = std::fs::remove_file(&self.endpoint);
        log::info!("stopped");
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.app.stopping.store(true, Ordering::Release);
        self.app.connections.close_all();
    }
}

/// TLS without resumption: a resumed session would skip the check against the roots that are trusted now, and a fleet
/// of which each node keeps one connection gains nothing by it.
fn tls(authority: &Arc<Authority>) -> Result<rustls::ServerConfig, PkiError> {
    let mut tls = authority.server_config()?;
    tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    Ok(tls)
}

/// Raises the soft limit of open files to the hard one; how many there may be.
fn raise_open_files() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    usize::try_from(if raised { hard } else { soft }).unwrap_or(usize::MAX)
}

/// Opens the store, which is also the lock on the state folder.
async fn open_store(state_dir: &Path) -> Result<Arc<SqliteStore>, StartError> {
    let folder = state_dir.to_owned();
    // The whole file is read once to prove it sound.
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&folder)).await;
    let opened = opened.map_err(|e| StartError::Interrupted { detail: e.to_string() })??;
    Ok(Arc::new(opened.store))
}

/// What is remembered of machines and pools, as it was last written.
async fn left_machines(store: &dyn Store) -> Result<Left, StartError> {
    // One that cannot be read is judged anew.
    async fn read<K: for<'a> From<&'a str> + Ord, T: serde::de::DeserializeOwned>(
        store: &dyn Store,
        below: &str,
    ) -> Result<BTreeMap<K, T>, StartError> {
        let (entries, _) = list_all(store, below).await?;
        let one = |entry: &crate::store::Entry| {
            Some((entry.key.strip_prefix(below)?.into(), serde_json::from_slice(&entry.value).ok()?))
        };
        Ok(entries.iter().filter_map(one).collect())
    }
    Ok(Left {
        machines: read(store, MACHINES).await?,
        pools: read(store, POOLS).await?,
        retired: read(store, RETIRED).await?,
    })
}

/// Reads the fleet as it was when it was last written.
async fn load(
    fleet: &Arc<Fleet>,
    store: &dyn Store,
    history: &dyn History,
    registrar: &Registrar,
) -> Result<(), StartError> {
    fleet.advance(history.position().await?);
    let (states, _) = list_all(store, STATES).await?;
    let mut saved: std::collections::HashMap<String, SavedNode> = states
        .iter()
        .filter_map(|entry| {
            let uid = entry.key.strip_prefix(STATES)?.to_owned();
            Some((uid, SavedNode::read(entry)?))
        })
        .collect();
    drop(states);
    for record in registrar.nodes() {
        let saved = saved.remove(&record.uid).unwrap_or_default();
        fleet.enrol(record, || saved);
    }
    let (clusters, _) = list_all(store, CLUSTERS).await?;
    for entry in clusters {
        let Some(name) = entry.key.strip_prefix(CLUSTERS) else { continue };
        match serde_json::from_slice::<Vec<outrider_protocol::Latch>>(&entry.value) {
            Ok(latches) => fleet.found(name).restore(latches),
            Err(e) => log::warn!("{} cannot be read and is judged anew: {e}", entry.key),
        }
    }
    Ok(())
}
