//! `/install/…`: the agent for new machines, to whoever may become a node.

use std::io::{self, SeekFrom};
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use outrider_protocol::{InstallFile, InstallIndex, TypeMeta};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::OwnedSemaphorePermit;

use super::error::{Answer, Failure};
use super::operators;
use crate::app::App;
use crate::install::{Opened, VERSION};
use crate::server::connections::{Caller, Connection};

/// Bytes read and sent at a time: all that a download holds in memory, whatever the file's size.
const PIECE: usize = 64 << 10;

/// Lets in whoever holds an enrolment token that would still admit a node, a node, and an operator. Tokens are compared
/// in constant time, and an address asks no more often than every stranger may.
pub(super) async fn check(app: &App, connection: Option<&Connection>, headers: &HeaderMap) -> Answer<()> {
    if let Some(Caller::Node(peer)) = connection.map(|c| &c.caller) {
        return peer.check(app);
    }
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token =
        bearer.and_then(|value| value.split_once(' ')).filter(|(s, _)| s.eq_ignore_ascii_case("bearer"));
    let Some((_, token)) = token else {
        return Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "Unauthenticated",
            "what is installed from here is for machines that may become nodes, and no token was given",
            "Give an enrolment token (`outrider token create`): `Authorization: Bearer OR1…`.",
        ));
    };
    match app.registrar.check_enrolment(token.trim(), app.clock().now()).await {
        Ok(()) => Ok(()),
        // An operator's token has the same form and is no enrolment token.
        Err(refused) => operators::check(app, headers).map_err(|_| refused.into()),
    }
}

/// What to type on a machine, a block a family.
pub(super) async fn instructions(State(app): State<Arc<App>>) -> String {
    let (url, pin) = (&app.url, app.authority.pin());
    format!(
        "Outrider {VERSION}: the node agent, served to whoever holds an enrolment token (outrider token create).\n\
         As root, with the token in the file token (mode 0600):\n\
         \n\
         curl -fsSk {url}/v1/ca -o ca.pem\n\
         openssl x509 -in ca.pem -outform DER | sha256sum      # must be what stands in the token between OR1 and ::\n\
         get() {{ printf 'header = \"Authorization: Bearer %s\"\\n' \"$(cat token)\" | curl -fsS --cacert ca.pem -K - \"$@\"; }}\n\
         get {url}/install/index.json                          # names, sizes and SHA-256\n\
         \n\
         # Debian, Ubuntu\n\
         get {url}/install/outrider-agent-$(uname -m).deb -O && dpkg -i outrider-agent-$(uname -m).deb\n\
         # SUSE, RHEL and their kin\n\
         get {url}/install/outrider-agent-$(uname -m).rpm -O && rpm -U outrider-agent-$(uname -m).rpm\n\
         # anything else with systemd\n\
         get {url}/install/outrider-agent-$(uname -m).tar.gz | tar -xz -C / --no-same-owner &&\n\
         systemd-sysusers outrider.conf && systemd-tmpfiles --create outrider.conf\n\
         \n\
         install -o root -g outrider -m 0640 token /etc/outrider/token\n\
         printf '[coordinator]\\nurls = [\"{url}\"]\\ntoken_file = \"/etc/outrider/token\"\\n' >/etc/outrider/agent.toml.d/50-coordinator.toml\n\
         systemctl daemon-reload\n\
         systemctl enable outrider-helper.socket outrider-agent.service\n\
         systemctl restart --no-block outrider-helper.socket outrider-agent.service\n\
         \n\
         The CA of this coordinator has the SHA-256 {pin}; trust that word only if it reached you another way.\n"
    )
}

/// What is served.
pub(super) async fn index(State(app): State<Arc<App>>) -> Answer<Json<InstallIndex>> {
    let reader = app.clone();
    let (items, unreadable) = blocking(move || reader.install.list()).await?;
    for why in &unreadable {
        log::warn!("a package for new machines cannot be served: {why}");
    }
    let meta = TypeMeta::new("InstallIndex");
    Ok(Json(InstallIndex { meta, version: VERSION.to_owned(), items, unreadable }))
}

/// A file, or the part of it that was asked for.
pub(super) async fn file(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    method: Method,
    mut headers: HeaderMap,
) -> Answer<Response> {
    // A part is asked for by GET alone (RFC 9110, 14.2).
    if method != Method::GET {
        headers.remove(header::RANGE);
    }
    let place = app.install.place().ok_or_else(|| {
        let (code, advice) = (StatusCode::SERVICE_UNAVAILABLE, "Wait as long as Retry-After says.");
        let failure = Failure::new(code, "TooManyDownloads", "too many downloads are under way", advice);
        failure.retry_after(std::time::Duration::from_secs(5))
    })?;
    let (reader, wanted) = (app.clone(), name.clone());
    let Some(Opened { file, about }) = blocking(move || reader.install.open(&wanted)).await? else {
        let shown: String = name.chars().take(64).collect();
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            "NoSuchPackage",
            format!(
                "there is no {shown:?} here: this coordinator serves version {VERSION}, and GET /install/index.json lists it"
            ),
            format!(
                "Put what packaging/build made of version {VERSION} into {} of the coordinator.",
                app.install.folders()
            ),
        ));
    };
    answer(file.into(), &about, &headers, place).await
}

async fn answer(
    mut file: tokio::fs::File,
    about: &InstallFile,
    headers: &HeaderMap,
    place: OwnedSemaphorePermit,
) -> Answer<Response> {
    let etag = format!("\"{}\"", about.sha256);
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let known = text(header::IF_NONE_MATCH).is_some_and(|tags| {
        tags.trim() == "*" || tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag)
    });
    // A part is only worth having of the file that the caller has the rest of.
    let whole = text(header::IF_RANGE).is_some_and(|tag| tag.trim() != etag);
    let range = text(header::RANGE).filter(|_| !whole).map_or(Part::Whole, |range| part(range, about.size));
    let (status, first, length) = match range {
        _ if known => (StatusCode::NOT_MODIFIED, 0, 0),
        Part::Whole => (StatusCode::OK, 0, about.size),
        Part::Bytes { first, length } => (StatusCode::PARTIAL_CONTENT, first, length),
        Part::Beyond => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
    };
    if first > 0 {
        file.seek(SeekFrom::Start(first)).await.map_err(|error| unreadable(&error))?;
    }
    let mut response = match length {
        0 => Response::new(Body::empty()),
        _ => Response::new(Body::from_stream(pieces(file, length, place))),
    };
    *response.status_mut() = status;
    let out = response.headers_mut();
    let value =
        |text: String| HeaderValue::try_from(text).map_err(|_| super::internal("a header cannot be written"));
    out.insert(header::ETAG, value(etag)?);
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if status != StatusCode::NOT_MODIFIED {
        out.insert(header::CONTENT_LENGTH, length.into());
        out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        out.insert(header::CONTENT_DISPOSITION, value(format!("attachment; filename=\"{}\"", about.file))?);
    }
    match status {
        StatusCode::PARTIAL_CONTENT => {
            let last = first + length - 1;
            out.insert(header::CONTENT_RANGE, value(format!("bytes {first}-{last}/{}", about.size))?);
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            out.insert(header::CONTENT_RANGE, value(format!("bytes */{}", about.size))?);
        }
        _ => {}
    }
    Ok(response)
}

/// What of a file is wanted (RFC 9110, 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    Bytes { first: u64, length: u64 },
    Beyond,
}

/// One range; what is several, or no range of bytes, is answered with the whole, as the RFC lets us.
fn part(range: &str, size: u64) -> Part {
    let parsed = || -> Option<(Option<u64>, Option<u64>)> {
        let (unit, range) = range.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let number = |text: &str| match text {
            "" => Some(None),
            digits if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok().map(Some),
            _ => None,
        };
        Some((number(first)?, number(last)?))
    };
    match parsed() {
        Some((Some(first), last)) if last.is_none_or(|last| last >= first) => {
            if first >= size {
                return Part::Beyond;
            }
            let last = last.unwrap_or(u64::MAX).min(size - 1);
            Part::Bytes { first, length: last - first + 1 }
        }
        Some((None, Some(0))) => Part::Beyond,
        Some((None, Some(_))) if size == 0 => Part::Beyond,
        Some((None, Some(last))) => Part::Bytes { first: size - last.min(size), length: last.min(size) },
        _ => Part::Whole,
    }
}

/// `length` bytes of the file from where it stands, a piece at a time. A file that has become shorter ends the connection:
/// its length was promised.
fn pieces(
    file: tokio::fs::File,
    length: u64,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold((file, length, place), |(mut file, left, place)| async move {
        if left == 0 {
            return None;
        }
        let most = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let mut piece = BytesMut::with_capacity(most);
        let read = (&mut file).take(most as u64).read_buf(&mut piece).await;
        let (piece, left) = match read {
            Ok(0) => (Err(io::ErrorKind::UnexpectedEof.into()), 0),
            Ok(n) => (Ok(piece.freeze()), left.saturating_sub(n as u64)),
            Err(error) => (Err(error), 0),
        };
        Some((piece, (file, left, place)))
    })
}

async fn blocking<T: Send + 'static>(read: impl FnOnce() -> io::Result<T> + Send + 'static) -> Answer<T> {
    match tokio::task::spawn_blocking(read).await {
        Ok(read) => read.map_err(|error| unreadable(&error)),
        Err(_) => Err(super::internal("reading the packages ended early")),
    }
}

fn unreadable(error: &io::Error) -> Failure {
    log::warn!("packages for new machines cannot be read: {error}");
    let advice = "Let the coordinator's user read the folder and its files; they are to be files, not links.";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "PackagesUnreadable", error.to_string(), advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let bytes = |first, length| Part::Bytes { first, length };
        for (range, expected) in [
            ("bytes=0-0", bytes(0, 1)),
            ("bytes=2-", bytes(2, 8)),
            ("Bytes = 2-4", bytes(2, 3)),
            ("bytes=2-99", bytes(2, 8)),
            ("bytes=-3", bytes(7, 3)),
            ("bytes=-99", bytes(0, 10)),
            ("bytes=10-", Part::Beyond),
            ("bytes=-0", Part::Beyond),
            ("bytes=4-2", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("bytes=99999999999999999999-", Part::Whole),
            ("lines=1-2", Part::Whole),
            ("", Part::Whole),
        ] {
            assert_eq!(part(range, 10), expected, "{range}");
        }
        assert_eq!(part("bytes=-1", 0), Part::Beyond);
        assert_eq!(part("bytes=0-", 0), Part::Beyond);
    }
}
