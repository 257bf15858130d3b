//! Reading bodies within limits of size and time, and the documents in them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use outrider_protocol::TypeMeta;
use serde::de::DeserializeOwned;

use super::error::{Answer, Failure};

/// A body that is too large is read and thrown away up to this size, so that the caller, busy sending, still gets the
/// answer instead of a reset connection.
const DISCARD_BYTES: usize = 64 << 20;

/// Reads a whole body of at most `limit` bytes within `time`.
pub(crate) async fn read<B>(headers: &HeaderMap, body: B, limit: usize, time: Duration) -> Answer<Bytes>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    match tokio::time::timeout(time, collect(headers, body, limit)).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "BodyTimedOut",
            format!("the body was not complete after {} s", time.as_secs()),
            "Send it faster, or in smaller reports; nothing of it was stored.",
        )
        .closing()),
    }
}

async fn collect<B>(headers: &HeaderMap, mut body: B, limit: usize) -> Answer<Bytes>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let announced = body.size_hint().exact();
    if announced.is_some_and(|n| n > limit as u64) {
        // Who asks first (`Expect: 100-continue`) has sent nothing yet and is answered at once.
        if !headers.contains_key(header::EXPECT) {
            discard(&mut body).await;
        }
        return Err(too_large(announced, limit));
    }
    let first = match body.frame().await {
        None => return Ok(Bytes::new()),
        Some(frame) => frame.map_err(|e| cut_short(&e))?.into_data().unwrap_or_default(),
    };
    if body.is_end_stream() {
        return if first.len() > limit { Err(too_large(announced, limit)) } else { Ok(first) };
    }
    let mut all = BytesMut::from(first);
    loop {
        if all.len() > limit {
            drop(all);
            discard(&mut body).await;
            return Err(too_large(announced, limit));
        }
        match body.frame().await {
            None => return Ok(all.freeze()),
            Some(frame) => {
                all.extend_from_slice(&frame.map_err(|e| cut_short(&e))?.into_data().unwrap_or_default())
            }
        }
    }
}

async fn discard<B: Body<Data = Bytes> + Unpin>(body: &mut B) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = body.frame().await {
        discarded += frame.data_ref().map_or(0, Bytes::len);
        if discarded > DISCARD_BYTES {
            return;
        }
    }
}

fn too_large(announced: Option<u64>, limit: usize) -> Failure {
    let size = announced.map_or_else(|| format!("more than {limit} bytes"), |n| format!("{n} bytes"));
    Failure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "TooLarge",
        format!("the body has {size}; the limit is {limit} bytes"),
        "Send fewer transitions a report; nothing of it was stored.",
    )
    .closing()
}

fn cut_short(error: &dyn std::fmt::Display) -> Failure {
    Failure::bad_request(
        "BodyTruncated",
        format!("the body ended early: {error}"),
        "Send it again; nothing of it was stored.",
    )
    .closing()
}

/// A document of `kind` in `bytes`.
pub(crate) fn document<T: DeserializeOwned>(kind: &str, bytes: &[u8]) -> Answer<T> {
    let advice = || format!("Send a {kind} as JSON; its schema is in /v1/openapi.json.");
    if bytes.is_empty() {
        return Err(Failure::bad_request("BodyMissing", format!("a {kind} is expected as body"), advice()));
    }
    // The header first: of a document of another kind, the first missing field would be reported instead.
    if let Ok(meta) = serde_json::from_slice::<TypeMeta>(bytes) {
        meta.expect(kind).map_err(|problem| Failure::bad_request("WrongKind", problem, advice()))?;
    }
    serde_json::from_slice(bytes).map_err(|e| {
        let what = if e.is_eof() { "is cut short" } else { "cannot be read" };
        Failure::bad_request("InvalidDocument", format!("the {kind} {what}: {e}"), advice())
    })
}
