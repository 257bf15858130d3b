//! A client of the coordinator's HTTP API: small, over the same network code as the agent.

mod watch;

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use outrider_agent::net::{Answer, Connection, Dialer, Failure, Limits, ProxySettings, Resolve, tls};
use outrider_protocol::{ApiError, List};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::contexts::Endpoint;
pub(crate) use watch::Watch;
pub use watch::{EventReader, Happening};

/// A page of a thousand nodes with all their conditions stays far below.
const LIMITS: Limits = Limits { body: 64 << 20, deadline: Duration::from_secs(30) };

/// Objects asked for at a time.
const PAGE: usize = 500;

/// The coordinator answered, and refused.
#[derive(Debug, thiserror::Error)]
#[error("{}", text(.0))]
pub(crate) struct Refused(pub(crate) ApiError);

/// The coordinator could not be asked, or did not answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unreachable(String);

fn text(error: &ApiError) -> String {
    let advice = if error.advice.is_empty() { String::new() } else { format!(". {}", error.advice) };
    format!("({}): {}{advice}", error.reason, error.message.trim_end_matches('.'))
}

/// A coordinator and, once it was asked, an open connection to it.
pub(crate) struct Client {
    endpoint: Endpoint,
    dialer: Dialer,
    connection: Option<Connection>,
}

impl Client {
    /// A client; nothing is sent yet.
    pub(crate) async fn new(endpoint: Endpoint) -> anyhow::Result<Self> {
        let verifier = match endpoint.pin {
            Some(pin) => tls::Pinned::new(pin, false),
            None => tls::trusting(tokio::task::spawn_blocking(tls::system_roots).await?)?,
        };
        let dialer = Dialer {
            tls: tls::client_config(verifier, None, &[])?,
            proxy: ProxySettings::from_env(),
            resolve: Resolve::new(),
            limit: Duration::from_secs(10),
        };
        Ok(Self { endpoint, dialer, connection: None })
    }

    /// Reads the document at `path`.
    pub(crate) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<T> {
        let answer = self.exchange(Method::GET, path, Bytes::new()).await?;
        self.document(path, &answer)
    }

    /// Reads every page of the list at `path`; the revision is the first page's, so that a watch from there misses
    /// nothing that changed while the others were read.
    pub(crate) async fn list<T: DeserializeOwned>(
        &mut self,
        path: &str,
        query: &str,
    ) -> anyhow::Result<List<T>> {
        let address = |token: &str| {
            let mut parts = vec![format!("limit={PAGE}")];
            if !query.is_empty() {
                parts.push(query.to_owned());
            }
            if !token.is_empty() {
                parts.push(format!("continue={}", percent_encoded(token)));
            }
            format!("{path}?{}", parts.join("&"))
        };
        let mut list: List<T> = self.get(&address("")).await?;
        while !list.continue_token.is_empty() {
            let page: List<T> = self.get(&address(&list.continue_token)).await?;
            list.continue_token = page.continue_token;
            list.items.extend(page.items);
        }
        Ok(list)
    }

    /// Posts `document` and reads the answer.
    pub(crate) async fn post<T: DeserializeOwned>(
        &mut self,
        path: &str,
        document: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.send(Method::POST, path, document).await
    }

    /// Sends `document` and reads the answer.
    pub(crate) async fn send<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        document: &impl Serialize,
    ) -> anyhow::Result<T> {
        let answer = self.exchange(method, path, serde_json::to_vec(document)?.into()).await?;
        self.document(path, &answer)
    }

    /// Asks for something to be done that answers nothing of interest.
    pub(crate) async fn order(&mut self, method: Method, path: &str) -> anyhow::Result<()> {
        self.exchange(method, path, Bytes::new()).await.map(drop)
    }

    /// Follows `/v1/watch` after the position `after`.
    pub(crate) async fn watch(&self, after: Option<u64>) -> anyhow::Result<Watch> {
        let connection = self.open().await?;
        Watch::start(connection, self.request(Method::GET, "/v1/watch", Bytes::new())?, after)
    }

    async fn open(&self) -> anyhow::Result<Connection> {
        self.dialer.open(&self.endpoint.url).await.map_err(|failure| self.unreachable(&failure))
    }

    fn unreachable(&self, failure: &Failure) -> anyhow::Error {
        let Endpoint { url, chosen_by, pin, .. } = &self.endpoint;
        let trust = match pin {
            None if failure.cause == outrider_protocol::UnknownCause::TlsFailed => {
                "; the system's authorities were trusted, because neither token nor --ca-checksum pins another"
            }
            _ => "",
        };
        let instead = self.endpoint.instead();
        Unreachable(format!(
            "cannot talk to the coordinator at {url} ({chosen_by}): {failure}{trust}{instead}"
        ))
        .into()
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Request<Bytes>> {
        Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::AUTHORIZATION, format!("Bearer {}", self.endpoint.token.expose()))
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, text/event-stream")
            .body(body)
            .map_err(|e| match e.to_string() {
                what if what.contains("header") => {
                    anyhow::anyhow!("the token has characters that no token has")
                }
                what => anyhow::anyhow!("{path:?} is no path of the API: {what}"),
            })
    }

    /// One exchange, on the connection kept where it is still open. A refusal is an error.
    async fn exchange(&mut self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Answer> {
        let request = self.request(method, path, body)?;
        let mut connection = match self.connection.take().filter(Connection::is_open) {
            Some(open) => open,
            None => self.open().await?,
        };
        let answer =
            connection.exchange(request, LIMITS).await.map_err(|failure| self.unreachable(&failure))?;
        self.connection = Some(connection);
        match answer.head.status {
            status if status.is_success() => Ok(answer),
            status => Err(refusal(status, &answer.body)),
        }
    }

    fn document<T: DeserializeOwned>(&self, path: &str, answer: &Answer) -> anyhow::Result<T> {
        serde_json::from_slice(&answer.body).with_context(|| {
            format!("the answer of {}{path} makes no sense to this version", self.endpoint.url)
        })
    }
}

/// The error behind an answer that is no success; what is no document of ours came from something in between.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> anyhow::Error {
    match serde_json::from_slice::<ApiError>(body) {
        Ok(error) => Refused(error).into(),
        Err(_) => anyhow::anyhow!(
            "something that is no coordinator answers HTTP {status}; check the address, and that no balancer or proxy \
             in between ends TLS"
        ),
    }
}

/// A refusal in the words of this program: the API's advice is for whoever calls it, and for agents. `name` is what the
/// person asked about.
pub(crate) fn in_our_words(error: anyhow::Error, name: &str) -> anyhow::Error {
    let Some(Refused(refused)) = error.downcast_ref::<Refused>() else { return error };
    let mut refused = refused.clone();
    match refused.reason.as_str() {
        "NodeUnknown" | "NotFound" => {
            refused.message = format!("there is no node {name:?}");
            refused.advice = "`outrider get nodes` lists the names.".to_owned();
        }
        "TokenUnknown" => {
            refused.message = format!("there is no token {name:?}");
            refused.advice = "`outrider token list` shows their ids.".to_owned();
        }
        "BadTokenRequest" => {
            refused.advice = "See `outrider token create --help`; no token was made.".to_owned()
        }
        _ => return error,
    }
    Refused(refused).into()
}

/// `text` as one segment of a path or value of a query.
pub(crate) fn percent_encoded(text: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
