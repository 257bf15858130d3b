//! What delivery does beside its own loop: exchanges with the coordinator and work on the disk. Each is a task that
//! ends in one [`Done`]; none touches delivery's state.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use outrider_protocol::{
    ClockOffset, EnrollRequest, EnrollResponse, Fact, Heartbeat, Identity as Marks, NodeConfig, NodeReport,
    Peers, RenewRequest, ReportAck, SequencedTransition, Timestamp, TypeMeta,
};
use rustls::ClientConfig;
use uuid::Uuid;

use super::client::{ANSWER_LIMIT, Addresses, ExchangeError, Exchanged, clock_offset, get, post};
use super::disk::{self, Disk};
use super::identity::{Identity, Ledger};
use super::outbox::{Target, TokenSource};
use super::refused;
use super::spool::{Spool, SpoolError};
use super::transport::Transport;
use super::{Clock, Token};
use crate::capture::VERSION;
use crate::net::{Connection, Failure, tls};
use crate::sense::file;

/// File with the desired configuration last received.
pub(super) const DESIRED: &str = "desired.json";
/// Limit of the question for neighbours: the acknowledgement of a report must not wait long for it.
const PEERS_LIMIT: Duration = Duration::from_secs(5);
/// Bounds of one report.
const BATCH_COUNT: usize = 100;
const BATCH_BYTES: usize = 128 << 10;
/// Bytes of a token file; a token has some hundred.
const TOKEN_LIMIT: u64 = 8 << 10;

/// How an errand ended.
pub(super) enum Done {
    Opened(Result<Enrolled, String>),
    Enrolled(Result<EnrolOutcome, ExchangeError>),
    Renewed(Result<Enrolled, ExchangeError>),
    Reported(Reported),
    Beaten(Beaten),
    Spooled(SpoolView),
    /// A desired configuration is on disk, or could not be put there.
    Desired(NodeConfig),
}

/// What delivery needs of the identity.
pub(super) struct Enrolled {
    pub(super) ledger: Option<Ledger>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// What was set aside; empty when nothing was.
    pub(super) found: String,
    pub(super) clock_offset: Option<Fact<ClockOffset>>,
    /// The coordinator's clock when it answered; `None` when the identity was read from disk.
    pub(super) server_time: Option<Timestamp>,
}

/// The coordinator's answer to an enrolment.
pub(super) enum EnrolOutcome {
    Enrolled(Enrolled),
    Pending { text: String, retry_after: Duration, clock_offset: Option<Fact<ClockOffset>> },
}

/// How a report ended.
pub(super) struct Reported {
    pub(super) result: Result<(ReportAck, Option<Fact<ClockOffset>>), ExchangeError>,
    pub(super) epoch: Uuid,
    /// Digest of the state that went with it.
    pub(super) digest: Option<String>,
    /// How many transitions went with it.
    pub(super) transitions: usize,
    /// Sequence of the first of them.
    pub(super) first: Option<u64>,
    /// Neighbours, where they were asked for.
    pub(super) peers: Option<Box<Result<Peers, ExchangeError>>>,
    /// The connection, when the heartbeat may go on with it.
    pub(super) connection: Option<Connection>,
}

/// How a heartbeat ended.
pub(super) struct Beaten {
    pub(super) result: Result<ReportAck, ExchangeError>,
    pub(super) epoch: Uuid,
    pub(super) connection: Option<Connection>,
}

/// What delivery sees of the spool without touching it.
#[derive(Clone, Debug, Default)]
pub(super) struct SpoolView {
    pub(super) epoch: Uuid,
    pub(super) last_sequence: u64,
    pub(super) len: u64,
    pub(super) merged: u64,
    pub(super) problem: String,
    pub(super) durable: bool,
    /// The next transitions to be sent; marked as possibly sent.
    pub(super) batch: Vec<SequencedTransition>,
}

/// Work on the spool.
pub(super) enum SpoolWork {
    Append(Vec<outrider_protocol::Transition>, Vec<outrider_protocol::Latch>),
    Acknowledge(u64),
    /// The oldest transition, with this sequence, is refused for good; and why.
    SetAside(u64, String),
    NewEpoch,
    Retry,
}

/// The spool, shared with the threads that may block on it.
pub(super) type SharedSpool = Arc<Mutex<Spool>>;

/// Looks at the spool; `deliver` says whether what it gives will be sent. Without, everything is dropped once it is on
/// disk: nobody is to be told, and only the latches matter.
pub(super) fn view(spool: &mut Spool, deliver: bool) -> SpoolView {
    if !deliver {
        let last = spool.last_sequence();
        spool.acknowledge(last);
    }
    let batch = spool.batch(BATCH_COUNT, BATCH_BYTES);
    if let Some(last) = batch.last() {
        spool.sending(last.sequence);
    }
    SpoolView {
        epoch: spool.epoch(),
        last_sequence: spool.last_sequence(),
        len: spool.len() as u64,
        merged: spool.merged(),
        problem: spool.problem(),
        durable: spool.is_durable(),
        batch,
    }
}

/// Does work on the spool where it may block.
pub(super) async fn spool_work(
    spool: SharedSpool,
    blocks: bool,
    work: Vec<SpoolWork>,
    deliver: bool,
) -> Done {
    let run = move || {
        let mut spool = spool.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for item in work {
            let result: Result<(), SpoolError> = match item {
                SpoolWork::Append(transitions, latches) => spool.append(transitions, latches),
                SpoolWork::Acknowledge(through) => {
                    spool.acknowledge(through);
                    Ok(())
                }
                SpoolWork::SetAside(sequence, why) => {
                    refused::set_aside(&mut spool, sequence, &why);
                    Ok(())
                }
                SpoolWork::NewEpoch => spool.new_epoch(),
                SpoolWork::Retry => spool.retry(),
            };
            if let Err(SpoolError(error)) = result {
                log::debug!("the spool cannot be written: {error}");
            }
        }
        view(&mut spool, deliver)
    };
    Done::Spooled(on_a_thread(blocks, run).await)
}

/// Runs blocking work on its own thread, or here when it does not block.
pub(super) async fn on_a_thread<T: Send + 'static>(
    blocks: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if !blocks {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        // The set of tasks sees the panic as this task's own.
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await,
        },
    }
}

/// What every exchange needs.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) addresses: Addresses,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) clock: Clock,
}

impl Line {
    async fn open(&self, tls: Arc<ClientConfig>) -> Result<Connection, ExchangeError> {
        self.addresses.open(&*self.transport, tls).await
    }
}

/// Reads the identity, or makes its key.
pub(super) async fn open_identity(disk: Arc<dyn Disk>, clock: Clock) -> Done {
    let blocks = disk.blocks();
    let read = move || {
        let identity = Identity::open(&*disk, clock()).map_err(|e| e.to_string())?;
        enrolled(&identity, None, None).map_err(|e| e.to_string())
    };
    Done::Opened(on_a_thread(blocks, read).await)
}

fn enrolled(
    identity: &Identity,
    clock_offset: Option<Fact<ClockOffset>>,
    server_time: Option<Timestamp>,
) -> Result<Enrolled, Failure> {
    let tls = identity.tls()?;
    Ok(Enrolled {
        server_time,
        ledger: identity.ledger().cloned(),
        tls,
        found: identity.found.clone(),
        clock_offset,
    })
}

fn unprepared(error: impl std::fmt::Display) -> ExchangeError {
    ExchangeError::Unprepared(error.to_string())
}

/// Asks for a certificate. The key is on disk before; the answer is on disk after.
pub(super) async fn enrol(
    line: Line,
    disk: Arc<dyn Disk>,
    target: Target,
    marks: Marks,
    anew: bool,
) -> Result<EnrolOutcome, ExchangeError> {
    let (source, clock, store) = (target.token.clone(), line.clock.clone(), disk.clone());
    let prepare = move || {
        let token = read_token(&source)?;
        let mut identity = Identity::open(&*store, clock()).map_err(unprepared)?;
        if anew {
            identity.forget(&*store, clock()).map_err(unprepared)?;
        }
        let csr = identity.request().map_err(unprepared)?;
        Ok::<_, ExchangeError>((token, identity, csr))
    };
    let (token, mut identity, csr) = on_a_thread(disk.blocks(), prepare).await?;
    let pin = agreed_pin(&token, target.ca_checksum.as_deref())?;
    let verifier = tls::Pinned::new(pin, true);
    let mut connection = line.open(tls::client_config(verifier.clone(), None, &[])?).await?;
    if let Some(skew) = verifier.clock_skew() {
        let direction = if skew.seconds > 0 { "ahead" } else { "behind" };
        log::warn!(
            "by the coordinator's certificate this clock is at least {} s {direction}",
            skew.seconds.abs()
        );
    }
    let request = EnrollRequest {
        meta: TypeMeta::new("EnrollRequest"),
        token: token.expose().to_owned(),
        csr,
        node: target.node.clone(),
        identity: marks,
        agent_version: VERSION.to_owned(),
        sent_at: (line.clock)(),
    };
    let exchanged: Exchanged<EnrollResponse> =
        post(&mut connection, "/v1/enroll", &request, "EnrollResponse", ANSWER_LIMIT, &*line.clock).await?;
    let server_time = exchanged.answer.server_time;
    let offset = offset_of(&exchanged, server_time, &line);
    let response = exchanged.answer;
    if exchanged.status == StatusCode::ACCEPTED || response.certificate.is_empty() {
        let retry_after =
            Duration::from_secs(response.retry_after_seconds.unwrap_or(30).clamp(1, 600).into());
        return Ok(EnrolOutcome::Pending { text: response.pending, retry_after, clock_offset: Some(offset) });
    }
    let blocks = disk.blocks();
    let store = move || {
        identity.take(&*disk, &response, &token.id).map_err(unprepared)?;
        enrolled(&identity, Some(offset), Some(server_time)).map_err(ExchangeError::from)
    };
    Ok(EnrolOutcome::Enrolled(on_a_thread(blocks, store).await?))
}

fn offset_of<T>(
    exchanged: &Exchanged<T>,
    server_time: outrider_protocol::Timestamp,
    line: &Line,
) -> Fact<ClockOffset> {
    clock_offset(server_time, exchanged.ended, exchanged.round_trip, &line.addresses.current())
}

fn read_token(source: &TokenSource) -> Result<Token, ExchangeError> {
    match source {
        TokenSource::Given(token) => Ok(token.clone()),
        TokenSource::None => Err(ExchangeError::Token(
            "no token is given; set coordinator.token_file to a file with what `outrider token create` printed"
                .to_owned(),
        )),
        TokenSource::File(path) => {
            let unusable = |why: String| ExchangeError::Token(format!("the token file {}: {why}", path.display()));
            warn_if_open_to_all(path);
            let text = file::read_text(path, TOKEN_LIMIT).map_err(|e| unusable(format!("cannot be read: {e}")))?;
            Token::parse(&text).map_err(|e| unusable(e.to_string()))
        }
    }
}

/// A token opens nothing but a request, but that is no reason to show it to every user.
fn warn_if_open_to_all(path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o007 != 0 {
        log::warn!("the token file {} is open to every user; make it 0640, root:outrider", path.display());
    }
}

/// The one checksum of token and configuration.
fn agreed_pin(token: &Token, configured: Option<&str>) -> Result<[u8; 32], ExchangeError> {
    if let Some(configured) = configured.filter(|configured| *configured != token.pin) {
        return Err(ExchangeError::Token(format!(
            "coordinator.ca_checksum is {configured} and the token pins {}; one of them is of another coordinator",
            token.pin
        )));
    }
    let mut pin = [0; 32];
    for (i, byte) in pin.iter_mut().enumerate() {
        let digits = token.pin.get(2 * i..2 * i + 2).unwrap_or_default();
        *byte =
            u8::from_str_radix(digits, 16).map_err(|_| unprepared("the token's CA checksum is no hex"))?;
    }
    Ok(pin)
}

/// Renews the certificate with the same key, also when it has ended.
pub(super) async fn renew(
    line: Line,
    disk: Arc<dyn Disk>,
    tls: Arc<ClientConfig>,
) -> Result<Enrolled, ExchangeError> {
    let (clock, store) = (line.clock.clone(), disk.clone());
    let prepare = move || {
        let identity = Identity::open(&*store, clock()).map_err(unprepared)?;
        let csr = identity.request().map_err(unprepared)?;
        Ok::<_, ExchangeError>((identity, csr))
    };
    let (mut identity, csr) = on_a_thread(disk.blocks(), prepare).await?;
    let mut connection = line.open(tls).await?;
    let request = RenewRequest { meta: TypeMeta::new("RenewRequest"), csr };
    let exchanged: Exchanged<EnrollResponse> =
        post(&mut connection, "/v1/renew", &request, "EnrollResponse", ANSWER_LIMIT, &*line.clock).await?;
    let server_time = exchanged.answer.server_time;
    let offset = offset_of(&exchanged, server_time, &line);
    let blocks = disk.blocks();
    let store = move || {
        let token = identity.ledger().map(|ledger| ledger.token_id.clone()).unwrap_or_default();
        identity.take(&*disk, &exchanged.answer, &token).map_err(unprepared)?;
        enrolled(&identity, Some(offset), Some(server_time)).map_err(ExchangeError::from)
    };
    on_a_thread(blocks, store).await
}

/// Sends a report, on the connection given or one of its own.
pub(super) async fn report(
    line: Line,
    tls: Arc<ClientConfig>,
    kept: Option<Connection>,
    report: NodeReport,
    keep: bool,
    peers: Option<Vec<String>>,
) -> Reported {
    let (epoch, digest) = (report.epoch, report.state.as_ref().map(|state| state.digest.clone()));
    let transitions = report.transitions.len();
    let first = report.transitions.first().map(|entry| entry.sequence);
    let exchange = async {
        let mut connection = reuse_or_open(&line, tls, kept).await?;
        let exchanged: Exchanged<ReportAck> =
            post(&mut connection, "/v1/reports", &report, "ReportAck", ANSWER_LIMIT, &*line.clock).await?;
        let offset = offset_of(&exchanged, exchanged.answer.server_time, &line);
        let peers = match peers {
            Some(failing) => Some(Box::new(ask_for_peers(&mut connection, &failing, &line).await)),
            None => None,
        };
        Ok((exchanged.answer, offset, peers, connection))
    };
    match exchange.await {
        Ok((ack, offset, peers, connection)) => Reported {
            result: Ok((ack, Some(offset))),
            epoch,
            digest,
            transitions,
            first,
            peers,
            // One that a question for neighbours broke is of no more use.
            connection: (keep && connection.is_open()).then_some(connection),
        },
        Err(error) => {
            Reported { result: Err(error), epoch, digest, transitions, first, peers: None, connection: None }
        }
    }
}

/// Asks which neighbours to try; those named in `failing` are to stay among them.
async fn ask_for_peers(
    connection: &mut Connection,
    failing: &[String],
    line: &Line,
) -> Result<Peers, ExchangeError> {
    // Names are the coordinator's own words for its nodes: letters, digits, '-', '.' and '_'.
    let path = match failing {
        [] => "/v1/peers".to_owned(),
        names => format!("/v1/peers?keep={}", names.join(",")),
    };
    let exchanged = get(connection, &path, "Peers", PEERS_LIMIT, &*line.clock).await?;
    Ok(exchanged.answer)
}

async fn reuse_or_open(
    line: &Line,
    tls: Arc<ClientConfig>,
    kept: Option<Connection>,
) -> Result<Connection, ExchangeError> {
    match kept.filter(Connection::is_open) {
        Some(connection) => Ok(connection),
        None => line.open(tls).await,
    }
}

/// Sends a heartbeat and waits for its held answer.
pub(super) async fn heartbeat(
    line: Line,
    tls: Arc<ClientConfig>,
    kept: Option<Connection>,
    beat: Heartbeat,
) -> Beaten {
    let epoch = beat.epoch;
    let deadline = Duration::from_secs(beat.hold_seconds.into()) + ANSWER_LIMIT;
    let exchange = async {
        let mut connection = reuse_or_open(&line, tls, kept).await?;
        let exchanged: Exchanged<ReportAck> =
            post(&mut connection, "/v1/heartbeat", &beat, "ReportAck", deadline, &*line.clock).await?;
        Ok((exchanged.answer, connection))
    };
    match exchange.await {
        Ok((ack, connection)) => Beaten { result: Ok(ack), epoch, connection: Some(connection) },
        Err(error) => Beaten { result: Err(error), epoch, connection: None },
    }
}

/// Puts a desired configuration on disk before it is put in force, so that a restart changes nothing.
pub(super) async fn keep_desired(disk: Arc<dyn Disk>, config: NodeConfig) -> Done {
    let blocks = disk.blocks();
    let write = move || {
        let bytes = serde_json::to_vec_pretty(&config).map_err(std::io::Error::from);
        if let Err(error) = bytes.and_then(|bytes| disk::replace(&*disk, DESIRED, &bytes)) {
            log::warn!("the desired configuration is in force but not on disk: {error}");
        }
        config
    };
    Done::Desired(on_a_thread(blocks, write).await)
}
