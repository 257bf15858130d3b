//! Local questions over `/run/outrider/agent.sock`: what the daemon knows, without asking the machine again.
//!
//! One line of JSON in, one line of JSON out, then the connection is closed:
//!
//! | request | answer |
//! |---|---|
//! | `{"ask":"status"}` | `kind: AgentStatus` |
//! | `{"ask":"conditions"}` | `kind: NodeConditions` |
//! | `{"ask":"facts"}` | `kind: NodeFacts` of the last turn, with `now` and the latches before it: judged again it gives the same conditions, byte for byte |
//! | anything else | `kind: Status`, an error |
//!
//! Who may ask: root, the daemon's own user, and members of the group that owns the socket (`outrider`, mode 0660). The
//! kernel refuses others at `connect`; the credentials of the peer are checked besides, for a socket whose mode was
//! widened by hand. Facts carry no secrets, but they map the cluster.
//!
//! Clients are bounded: at most [`CLIENTS`] at a time, [`REQUEST_LIMIT`] bytes and [`PATIENCE`] each.

use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::ApiError;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

/// Clients served at the same time; more wait in the kernel's queue.
pub const CLIENTS: usize = 8;
/// Bytes a request may have.
pub const REQUEST_LIMIT: u64 = 4096;
/// Time a client has to ask, and to take its answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes an answer may have, for our own client.
const ANSWER_LIMIT: u64 = 16 << 20;

/// What may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// The agent itself, its checks and conditions.
    Status,
    /// The conditions in force.
    Conditions,
    /// The facts of the last turn.
    Facts,
    /// The metrics page, for our own `/metrics`; not on the socket.
    #[serde(skip)]
    Metrics,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    ask: Ask,
}

/// A question on its way to the loop.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub ask: Ask,
    /// Takes the answer, a JSON document.
    pub answer: oneshot::Sender<Vec<u8>>,
}

/// The socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon answers there.
    #[error("another agent listens at {0}; stop it first (`systemctl stop outrider-agent`)")]
    InUse(PathBuf),
    /// The file is not a socket of ours.
    #[error("{0} is there and is no socket; move it away")]
    NotASocket(PathBuf),
    /// The operating system refused.
    #[error("the socket {0} cannot be opened")]
    Io(PathBuf, #[source] io::Error),
}

/// The open socket; its file goes when this is dropped.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens the socket, in place of one that a killed daemon left behind.
pub fn open(path: &Path) -> Result<Socket, SocketError> {
    let failed = |error| SocketError::Io(path.to_owned(), error);
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.to_owned()));
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => return Err(SocketError::InUse(path.to_owned())),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let socket = Socket { listener, path: path.to_owned() };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(failed)?;
    Ok(socket)
}

impl Socket {
    /// Serves clients until dropped; questions go to the loop through `questions`.
    pub async fn serve(self, questions: mpsc::Sender<Question>) {
        let clients = Arc::new(Semaphore::new(CLIENTS));
        let group = std::fs::metadata(&self.path).map(|m| m.gid()).ok();
        loop {
            let Ok(permit) = clients.clone().acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let questions = questions.clone();
                    tokio::spawn(async move {
                        let _permit = permit;
                        if timeout(PATIENCE * 2, client(stream, group, questions)).await.is_err() {
                            log::debug!("a local client took too long and was dropped");
                        }
                    });
                }
                Err(error) => {
                    // Out of descriptors: others need them more than a question does.
                    log::warn!("the local socket cannot accept: {error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

async fn client(mut stream: UnixStream, group: Option<u32>, questions: mpsc::Sender<Question>) {
    let answer = match admitted(&stream, group) {
        Ok(()) => answer(&mut stream, &questions).await,
        Err(error) => Err(*error),
    };
    // Bytes left unread would turn the close into a reset, and the answer would be lost with it.
    let mut rest = [0; 1024];
    let _ = (0..64).take_while(|_| matches!(stream.try_read(&mut rest), Ok(n) if n > 0)).count();
    let mut bytes = answer.unwrap_or_else(|error| serde_json::to_vec(&error).unwrap_or_default());
    bytes.push(b'\n');
    let _ = timeout(PATIENCE, async {
        stream.write_all(&bytes).await?;
        stream.shutdown().await
    })
    .await;
}

async fn answer(stream: &mut UnixStream, questions: &mpsc::Sender<Question>) -> Result<Vec<u8>, ApiError> {
    let bad = |message: &str| {
        let advice = r#"Send one line: {"ask":"status"}, {"ask":"conditions"} or {"ask":"facts"}."#;
        ApiError::new(400, "BadRequest", message, advice)
    };
    let mut line = Vec::new();
    let mut reader = BufReader::with_capacity(512, stream.take(REQUEST_LIMIT));
    match timeout(PATIENCE, reader.read_until(b'\n', &mut line)).await {
        Ok(Ok(_)) if line.len() as u64 >= REQUEST_LIMIT => {
            return Err(bad("the request is longer than 4096 bytes"));
        }
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(bad(&format!("the request could not be read: {error}"))),
        Err(_) => return Err(bad("no request came within 5 s")),
    }
    let request: Request =
        serde_json::from_slice(&line).map_err(|e| bad(&format!("the request is not understood: {e}")))?;
    let (sender, receiver) = oneshot::channel();
    let busy =
        || ApiError::new(503, "AgentBusy", "the agent does not answer now", "Try again in some seconds.");
    questions.send(Question { ask: request.ask, answer: sender }).await.map_err(|_| busy())?;
    receiver.await.map_err(|_| busy())
}

fn admitted(stream: &UnixStream, group: Option<u32>) -> Result<(), Box<ApiError>> {
    let refused = |message: String| {
        let advice = "Ask as root or as a member of the group `outrider`.";
        Box::new(ApiError::new(403, "NotAdmitted", message, advice))
    };
    let peer =
        stream.peer_cred().map_err(|e| refused(format!("the caller's credentials cannot be read: {e}")))?;
    let own = nix::unistd::geteuid().as_raw();
    let in_group = || {
        group.is_some_and(|group| peer.gid() == group || supplementary_groups(peer.pid()).contains(&group))
    };
    if peer.uid() == 0 || peer.uid() == own || in_group() {
        return Ok(());
    }
    Err(refused(format!("user {} may not ask the agent", peer.uid())))
}

/// Supplementary groups of a process, from `/proc`; none when they cannot be read.
fn supplementary_groups(pid: Option<i32>) -> Vec<u32> {
    let status =
        pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok()).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// A question could not be put or was refused.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens: the daemon does not run.
    #[error("no agent listens at {0}")]
    NotRunning(PathBuf),
    /// The daemon refused or could not answer.
    #[error("the agent answers {}: {}; {}", .0.reason, .0.message, .0.advice)]
    Refused(Box<ApiError>),
    /// The socket failed.
    #[error("the agent at {0} cannot be asked")]
    Io(PathBuf, #[source] io::Error),
}

/// Asks the daemon behind the socket at `path`; gives its JSON document.
pub async fn ask(path: &Path, ask: Ask) -> Result<serde_json::Value, AskError> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => AskError::NotRunning(path.to_owned()),
        _ => AskError::Io(path.to_owned(), error),
    };
    let exchange = async {
        let mut stream = UnixStream::connect(path).await?;
        let mut line = serde_json::to_vec(&Request { ask })?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_LIMIT).read_to_end(&mut answer).await?;
        Ok::<serde_json::Value, io::Error>(serde_json::from_slice(&answer)?)
    };
    let answer = timeout(PATIENCE * 2, exchange)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(ErrorKind::TimedOut, "no answer within 10 s")))
        .map_err(failed)?;
    if answer["kind"] == "Status" {
        let error = serde_json::from_value(answer).map_err(|e| failed(io::Error::from(e)))?;
        return Err(AskError::Refused(Box::new(error)));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket whose questions are answered with their name.
    async fn served(folder: &Path) -> (PathBuf, tokio::task::JoinHandle<()>) {
        let path = folder.join("agent.sock");
        let (ask, mut questions) = mpsc::channel::<Question>(CLIENTS);
        let socket = open(&path).unwrap();
        let served = tokio::spawn(async move {
            let serve = socket.serve(ask);
            tokio::pin!(serve);
            loop {
                tokio::select! {
                    () = &mut serve => return,
                    Some(question) = questions.recv() => {
                        let document = format!("{{\"kind\":\"Of{:?}\"}}", question.ask);
                        let _ = question.answer.send(document.into_bytes());
                    }
                }
            }
        });
        (path, served)
    }

    async fn raw(path: &Path, request: &[u8]) -> serde_json::Value {
        let mut stream = UnixStream::connect(path).await.unwrap();
        // A server that has heard enough may close while we still write.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        serde_json::from_slice(&answer).unwrap()
    }

    #[tokio::test]
    async fn asks_and_answers() {
        let folder = tempfile::tempdir().unwrap();
        let (path, served) = served(folder.path()).await;
        assert_eq!(ask(&path, Ask::Facts).await.unwrap()["kind"], "OfFacts");
        assert_eq!(ask(&path, Ask::Status).await.unwrap()["kind"], "OfStatus");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        served.abort();
        let _ = served.await;
        assert!(!path.exists(), "the socket goes with its owner");
        assert!(matches!(ask(&path, Ask::Facts).await, Err(AskError::NotRunning(_))));
    }

    #[tokio::test]
    async fn what_is_not_understood_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _served) = served(folder.path()).await;
        let cases: [(&[u8], &str); 6] = [
            (b"hello\n", "not understood"),
            (b"{\"ask\":\"secrets\"}\n", "unknown variant"),
            (b"{\"ask\":\"metrics\"}\n", "unknown variant"),
            (b"{\"ask\":\"facts\",\"as\":\"root\"}\n", "unknown field"),
            (b"\xff\xfe\n", "not understood"),
            (&[b'x'; 5_000], "longer than 4096 bytes"),
        ];
        for (request, why) in cases {
            let answer = raw(&path, request).await;
            assert_eq!(answer["kind"], "Status");
            let message = answer["message"].as_str().unwrap();
            assert!(message.contains(why), "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_clients_are_dropped_and_others_served_after() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _served) = served(folder.path()).await;
        let mut silent = Vec::new();
        for _ in 0..2 * CLIENTS {
            silent.push(UnixStream::connect(&path).await.unwrap());
        }
        tokio::time::sleep(PATIENCE * 3).await;
        assert_eq!(raw(&path, b"{\"ask\":\"facts\"}\n").await["kind"], "OfFacts");
        let mut answer = String::new();
        silent[0].read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("no request came within 5 s"), "{answer}");
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(open(&path), Err(SocketError::NotASocket(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn groups_of_a_process_are_read() {
        let own = supplementary_groups(i32::try_from(std::process::id()).ok());
        let expected: Vec<u32> =
            nix::unistd::getgroups().unwrap().into_iter().map(nix::unistd::Gid::as_raw).collect();
        assert_eq!(own, expected);
        assert!(supplementary_groups(Some(-1)).is_empty());
    }
}
