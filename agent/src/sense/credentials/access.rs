//! One request with a credential: bounded, never to a server that is not verified, and never told of but by its outcome.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::StatusCode;
use http::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use outrider_protocol::{CredentialCall, Fact, RancherToken, UnknownCause};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::kubeconfig::{Chosen, Secrets};
use super::{rancher_token, token};
use crate::net::{
    Answer, Connection, Dialer, Failure, Limits, ProxySettings, Resolve, Url, certificate, tls, within,
};
use crate::sense::{SenseContext, file};

/// Limit of connecting, and of one request.
const STEP: Duration = Duration::from_secs(4);
/// Refusals that are tried again before they are believed (G7), and the pause between.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(400);
/// Bytes of an answer that is shown.
const BODY: usize = 64 * 1024;
const JSON: &str = "application/json";
/// Characters of what a refusal says that are kept.
const SAID: usize = 240;

/// The way to the server of a kubeconfig with its credential.
#[derive(Clone)]
pub(crate) struct Access {
    dialer: Dialer,
    url: Url,
    authorization: Option<HeaderValue>,
    /// Rancher's name of the token, where it is one of Rancher's.
    token_name: Option<String>,
    /// What no word of a server's may repeat.
    secret: Secret,
    /// Tells one credential from another.
    pub(super) digest: [u8; 32],
}

/// The token of a request, to be taken out of what its server answers: some echo the headers of what they refuse.
#[derive(Clone, Default)]
struct Secret(Arc<[String]>);

impl Secret {
    /// Shorter parts are no secret, and taking them out would spoil every word.
    const SHORTEST: usize = 4;

    fn of(token: &str) -> Self {
        let key = token::rancher_name(token).and_then(|_| token.split_once(':')).map(|(_, key)| key);
        // Of a JSON web token the signature is what is secret; the claims are cut out with it.
        let of_jwt = if token.starts_with("ey") { token.split('.').collect() } else { Vec::new() };
        let parts = std::iter::once(token).chain(key).chain(of_jwt);
        Self(parts.filter(|part| part.len() >= Self::SHORTEST).map(str::to_owned).collect())
    }

    fn taken_out(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, part| text.replace(part.as_str(), "[secret]"))
    }
}

/// An answer in JSON, or none in time.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    secret: Secret,
}

impl Answered {
    /// What a server says of a refusal: the message of Kubernetes' Status, or the beginning of the text; without the token.
    pub(crate) fn said(&self) -> String {
        let message = serde_json::from_slice::<Value>(&self.body)
            .ok()
            .and_then(|value| value.get("message").and_then(Value::as_str).map(str::to_owned));
        let text = message.unwrap_or_else(|| String::from_utf8_lossy(&self.body).into_owned());
        // Before anything is cut off, or half of a token would stay.
        let text = self.secret.taken_out(&text);
        let plain = text.trim().chars().take(SAID).map(|c| if c.is_control() { ' ' } else { c });
        plain.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Access {
    /// The error says why no request is made. Blocking.
    pub(super) fn new(cx: &SenseContext, chosen: &Chosen<'_>, secrets: Secrets) -> Result<Self, String> {
        let cluster = chosen.cluster;
        let mut url = Url::parse(&cluster.server).map_err(|_| "its server is no address".to_owned())?;
        // As clients of Kubernetes do (client-go, `rest.NewRESTClient`); and a query may hold a secret.
        url.path.truncate(url.path.find('?').unwrap_or(url.path.len()));
        if !url.tls {
            return Err(
                "its server is plain http: the credential would go over the wire in the open".to_owned()
            );
        }
        if cluster.insecure {
            return Err("it does not verify its server (insecure-skip-tls-verify): the credential would go to whoever \
                        answers"
                .to_owned());
        }
        if cluster.has_proxy || !cluster.tls_server_name.is_empty() {
            return Err(
                "it has a proxy or a TLS server name of its own, which Outrider does not follow".to_owned()
            );
        }
        let has_certificate = !secrets.certificate.is_empty();
        if secrets.token.is_empty() && !has_certificate {
            return Err("it holds neither a token nor a client certificate".to_owned());
        }
        let mut digest = Sha256::new();
        for part in [
            cluster.server.as_bytes(),
            secrets.token.as_bytes(),
            &secrets.certificate,
            cluster.ca_data.as_bytes(),
        ] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let words = |failure: Failure| failure.detail;
        let roots = if !cluster.ca_data.is_empty() {
            let data: String = cluster.ca_data.split_ascii_whitespace().collect();
            let pem =
                BASE64.decode(data).map_err(|_| "its certificate-authority-data is no base64".to_owned())?;
            tls::roots_of(&certificate::certificates(&pem).map_err(words)?).map_err(words)?
        } else if !cluster.ca_file.is_empty() {
            let read =
                cx.opener.open(Path::new(&cluster.ca_file)).and_then(|f| file::read_bounded(f, file::LARGE));
            let pem = read.map_err(|e| {
                format!("its certificate authority {} could not be read: {e}", cluster.ca_file)
            })?;
            tls::roots_of(&certificate::certificates(&pem).map_err(words)?).map_err(words)?
        } else {
            tls::system_roots()
        };
        let identity = match has_certificate {
            true => Some(tls::Identity::from_pem(&secrets.certificate, &secrets.key).map_err(words)?),
            false => None,
        };
        let trust = tls::trusting(roots).map_err(words)?;
        let config = tls::client_config(trust, identity.as_ref(), &[b"http/1.1"]).map_err(words)?;
        let authorization = match secrets.token.as_str() {
            "" => None,
            token => {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| "its token has characters that no header can carry".to_owned())?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let token_name = token::rancher_name(&secrets.token).map(str::to_owned);
        let dialer =
            Dialer { tls: config, proxy: ProxySettings::from_env(), resolve: Resolve::new(), limit: STEP };
        let secret = Secret::of(&secrets.token);
        Ok(Self { dialer, url, authorization, token_name, secret, digest: digest.finalize().into() })
    }

    /// The server, for sources and messages.
    pub(crate) fn server(&self) -> String {
        format!("https://{}{}", self.url.host_and_port(), self.url.path.trim_end_matches('/'))
    }

    /// A connection to the server, for several requests.
    pub(crate) async fn open(&self) -> Result<Connection, Failure> {
        self.dialer.open(&self.url).await.map_err(|failure| self.without_secret(failure))
    }

    /// A request for a path below the server, as the server takes it, with the credential.
    pub(crate) fn signed(
        &self,
        mut request: http::Request<Vec<u8>>,
    ) -> Result<http::Request<Bytes>, Failure> {
        let path = format!("{}{}", self.url.path.trim_end_matches('/'), request.uri());
        *request.uri_mut() =
            path.parse().map_err(|_| Failure::new(UnknownCause::InvalidInput, "no path to ask for"))?;
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        Ok(request.map(Bytes::from))
    }

    /// An answer to such a request.
    pub(crate) fn answered(&self, answer: Answer) -> Answered {
        Answered { status: answer.head.status, body: answer.body, secret: self.secret.clone() }
    }

    /// A failure that repeats no secret.
    pub(crate) fn without_secret(&self, failure: Failure) -> Failure {
        Failure { detail: self.secret.taken_out(&failure.detail), ..failure }
    }

    /// `path` below the server of the kubeconfig.
    pub(super) async fn get(&self, path: &str, body: usize, deadline: Instant) -> Result<Answered, Failure> {
        self.get_as(path, JSON, body, deadline).await
    }

    /// The same, as the media type `accept`.
    pub(super) async fn get_as(
        &self,
        path: &str,
        accept: &'static str,
        body: usize,
        deadline: Instant,
    ) -> Result<Answered, Failure> {
        self.ask(&format!("{}{path}", self.url.path.trim_end_matches('/')), accept, body, deadline).await
    }

    async fn ask(
        &self,
        path: &str,
        accept: &'static str,
        body: usize,
        deadline: Instant,
    ) -> Result<Answered, Failure> {
        let left = deadline.saturating_duration_since(Instant::now()).min(STEP * 2);
        let what = format!("GET {path}");
        within(left, &what, async {
            let mut connection = self.dialer.open(&self.url).await?;
            let mut request = http::Request::get(path).header(ACCEPT, accept);
            if let Some(value) = &self.authorization {
                request = request.header(AUTHORIZATION, value.clone());
            }
            let request = request
                .body(Bytes::new())
                .map_err(|e| Failure::new(UnknownCause::InvalidInput, e.to_string()))?;
            let answer = connection.exchange(request, Limits { body, deadline: STEP }).await?;
            Ok(self.answered(answer))
        })
        .await
        .map_err(|failure| self.without_secret(failure))
    }

    /// Tries the credential: `GET /version`, and where Rancher made the token, what it says of the token's end.
    pub(super) async fn verify(&self, cx: &SenseContext, deadline: Instant) -> Fact<CredentialCall> {
        let source = format!("GET {}/version", self.server());
        let mut call = CredentialCall {
            request: "GET /version".to_owned(),
            status: 0,
            calls: 0,
            refused: 0,
            said: String::new(),
            token: None,
        };
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep_until((Instant::now() + PAUSE).min(deadline)).await;
            }
            match self.get("/version", BODY, deadline).await {
                Ok(answer) if answer.status.is_success() && !is_version(&answer.body) => {
                    let why = format!(
                        "GET /version is answered with {} and no version of Kubernetes: {}",
                        answer.status.as_u16(),
                        answer.said()
                    );
                    return Failure::new(UnknownCause::InvalidAnswer, why).into_fact(source, cx.now());
                }
                Ok(answer) => {
                    call.calls += 1;
                    call.status = answer.status.as_u16();
                    call.said = if answer.status.is_success() { String::new() } else { answer.said() };
                    if answer.status != StatusCode::UNAUTHORIZED {
                        break;
                    }
                    call.refused += 1;
                }
                // What was answered before stands.
                Err(_) if call.calls > 0 => break,
                Err(failure) => return failure.into_fact(source, cx.now()),
            }
        }
        if let (Some(name), true) = (&self.token_name, (200..300).contains(&call.status)) {
            call.token = Some(self.own_token(cx, name, deadline).await);
        }
        Fact::known(call, source, cx.now())
    }

    /// Rancher's word on the token, asked with the token itself.
    async fn own_token(&self, cx: &SenseContext, name: &str, deadline: Instant) -> Fact<RancherToken> {
        let path = format!("/v3/tokens/{name}");
        let source = format!("GET https://{}{path}", self.url.host_and_port());
        let answer = match self.ask(&path, JSON, BODY, deadline).await {
            Ok(answer) => answer,
            Err(failure) => return failure.into_fact(source, cx.now()),
        };
        object(&answer)
            .and_then(|value| match value {
                Some(value) => rancher_token::norman(&value).map(Some),
                None => Ok(None),
            })
            .map_or_else(
                |failure| failure.into_fact(source.as_str(), cx.now()),
                |token| match token {
                    Some(token) => Fact::known(token, source.as_str(), cx.now()),
                    None => Fact::absent(source.as_str(), cx.now()),
                },
            )
    }
}

/// Whether this is what Kubernetes answers to `GET /version` (`version.Info`): a login page is answered with 200 as well.
fn is_version(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body)
        .is_ok_and(|value| value.get("gitVersion").and_then(Value::as_str).is_some_and(|v| !v.is_empty()))
}

/// The object in an answer; none for 404. Other answers are failures, each with its own cause.
pub(crate) fn object(answer: &Answered) -> Result<Option<Value>, Failure> {
    use UnknownCause as C;
    let cause = match answer.status.as_u16() {
        200..=299 => {
            let value = serde_json::from_slice(&answer.body)
                .map_err(|_| Failure::new(C::InvalidAnswer, "the answer is no JSON"))?;
            return Ok(Some(value));
        }
        404 | 410 => return Ok(None),
        401 => C::Unauthenticated,
        403 => C::Forbidden,
        429 | 500..=599 => C::Unavailable,
        _ => C::InvalidAnswer,
    };
    Err(Failure::new(cause, format!("{}: {}", answer.status.as_u16(), answer.said())))
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
