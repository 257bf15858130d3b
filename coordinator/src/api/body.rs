//! Reading bodies within limits of size and time, and the documents in them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body::Body;
use http_body_util::BodyExt;
use outrider_protocol::TypeMeta;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::error::{Answer, Failure};
use super::strict;

/// What comes of a body that is too large is read and thrown away up to this size, beside the answer, so that a caller
/// who is busy sending still gets the answer instead of a reset connection.
const DISCARD_BYTES: usize = 64 << 20;
/// A caller who has sent nothing for so long is not busy sending.
const DISCARD_SILENCE: Duration = Duration::from_secs(2);

/// What a body may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Most bytes.
    pub(crate) bytes: usize,
    /// Longest time until it is complete.
    pub(crate) time: Duration,
    /// What to do about one that is larger.
    pub(crate) if_larger: &'static str,
}

/// Reads a whole body within its bounds.
pub(crate) async fn read<B>(headers: &HeaderMap, body: B, bounds: Bounds) -> Answer<Bytes>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    match tokio::time::timeout(bounds.time, collect(headers, body, bounds)).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "BodyTimedOut",
            format!("the body was not complete after {} s", bounds.time.as_secs()),
            "Send all that Content-Length announces, and faster; nothing of it was stored.",
        )
        .closing()),
    }
}

async fn collect<B>(headers: &HeaderMap, mut body: B, bounds: Bounds) -> Answer<Bytes>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    let limit = bounds.bytes;
    let announced = body.size_hint().exact();
    if announced.is_some_and(|n| n > limit as u64) {
        // Who asks first (`Expect: 100-continue`) has sent nothing yet, and will not.
        if !headers.contains_key(header::EXPECT) {
            discard(body, bounds.time);
        }
        return Err(too_large(announced, bounds));
    }
    let first = match body.frame().await {
        None => return Ok(Bytes::new()),
        Some(frame) => frame.map_err(|e| cut_short(&e))?.into_data().unwrap_or_default(),
    };
    if body.is_end_stream() {
        return if first.len() > limit { Err(too_large(announced, bounds)) } else { Ok(first) };
    }
    let mut all = BytesMut::from(first);
    loop {
        if all.len() > limit {
            discard(body, bounds.time);
            return Err(too_large(announced, bounds));
        }
        match body.frame().await {
            None => return Ok(all.freeze()),
            Some(frame) => {
                all.extend_from_slice(&frame.map_err(|e| cut_short(&e))?.into_data().unwrap_or_default())
            }
        }
    }
}

/// Reads on beside the answer, which goes out at once: the connection, which ends with it, is kept until the body has
/// ended, or its sender has fallen silent.
fn discard<B: Body<Data = Bytes> + Unpin + Send + 'static>(mut body: B, time: Duration) {
    tokio::spawn(tokio::time::timeout(time, async move {
        let mut discarded = 0;
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(DISCARD_SILENCE, body.frame()).await {
            discarded += frame.data_ref().map_or(0, Bytes::len);
            if discarded > DISCARD_BYTES {
                return;
            }
        }
    }));
}

fn too_large(announced: Option<u64>, bounds: Bounds) -> Failure {
    let limit = bounds.bytes;
    let size = announced.map_or_else(|| format!("more than {limit} bytes"), |n| format!("{n} bytes"));
    Failure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "TooLarge",
        format!("the body has {size}; the limit is {limit} bytes"),
        bounds.if_larger,
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

/// A document of `kind` in `bytes`, as a node sends it: what it knows more than this coordinator is left alone.
pub(crate) fn document<T: DeserializeOwned>(kind: &str, bytes: &[u8]) -> Answer<T> {
    head(kind, bytes)?;
    serde_json::from_slice(bytes).map_err(|e| unreadable(kind, &e))
}

/// A document of `kind` in `bytes`, as a person writes it: what is not known is a slip, and everything that is wrong is
/// named at once.
pub(crate) fn written<T: DeserializeOwned + JsonSchema>(kind: &str, bytes: &[u8]) -> Answer<T> {
    head(kind, bytes)?;
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| unreadable(kind, &e))?;
    let problems = strict::problems::<T>(&value);
    if !problems.is_empty() {
        return Err(Failure::bad_request(
            "InvalidDocument",
            format!("the {kind} cannot be taken: {}", problems.join("; ")),
            "Correct what is named; nothing was changed. The schema is in /v1/openapi.json.",
        ));
    }
    serde_json::from_value(value).map_err(|e| unreadable(kind, &e))
}

fn advice(kind: &str) -> String {
    format!("Send a {kind} as JSON; its schema is in /v1/openapi.json.")
}

/// Refuses what is no document, or one of another kind.
fn head(kind: &str, bytes: &[u8]) -> Answer<()> {
    if bytes.is_empty() {
        return Err(Failure::bad_request(
            "BodyMissing",
            format!("a {kind} is expected as body"),
            advice(kind),
        ));
    }
    // The header first: of a document of another kind, the first missing field would be reported instead.
    if let Ok(meta) = serde_json::from_slice::<TypeMeta>(bytes) {
        meta.expect(kind).map_err(|problem| Failure::bad_request("WrongKind", problem, advice(kind)))?;
    }
    Ok(())
}

fn unreadable(kind: &str, error: &serde_json::Error) -> Failure {
    let what = if error.is_eof() { "is cut short" } else { "cannot be read" };
    Failure::bad_request("InvalidDocument", format!("the {kind} {what}: {error}"), advice(kind))
}
