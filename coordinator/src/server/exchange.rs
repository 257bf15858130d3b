//! Requests and answers on a connection, and the rest between them.
//!
//! A connection mostly waits: for the answer to a held heartbeat, or for the next request. Meanwhile hyper and its
//! buffers (16 KiB) are let go, only the TLS stream and the little that the wait needs stay; hyper takes the stream up
//! again with the first byte of the next request. That is what makes 50,000 agents fit.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connection::Open;
use super::connections::{Caller, Connection};
use super::tap::{Answered, Asked, Progress, Tap};
use super::{Server, Stream, unreadable};
use crate::api::{self, HeldAnswer};

/// How long a connection that was asked to end may take for the answer it is at.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the answer to a held heartbeat may take to be written.
const WRITE: Duration = Duration::from_secs(20);

/// A stream on which nothing is under way, and what was read of it ahead.
struct Resting {
    stream: Stream,
    ahead: Bytes,
}

impl Resting {
    /// What hyper gives back: what it read and did not use, then what it did not even read of what lay in front.
    /// Copied, because even an empty piece of hyper's buffer keeps all of it.
    fn after<S>(parts: http1::Parts<Tap, S>) -> Self {
        let (stream, unread) = parts.io.into_parts();
        Self { stream, ahead: [&parts.read_buf[..], &unread[..]].concat().into() }
    }
}

/// How requests ended.
enum Next {
    /// All are answered, and none follows yet.
    Rest(Resting),
    /// The last one is a heartbeat whose answer is to be held.
    Hold(Resting, HeldAnswer),
    /// The connection is over.
    End,
}

/// Serves a connection until either side has enough.
pub(super) async fn serve(open: Open) {
    let Open { server, stream, registered, _pass } = open;
    let connection = &registered.connection;
    let mut resting = Resting { stream, ahead: Bytes::new() };
    loop {
        if resting.ahead.is_empty() {
            match first_byte(&server, &mut resting.stream, connection).await {
                Some(byte) => resting.ahead = byte,
                None => return,
            }
        }
        resting = match Box::pin(requests(&server, resting, connection)).await {
            Next::Rest(next) => next,
            Next::Hold(next, held) => match hold(&server, next, held, connection).await {
                Some(next) => next,
                None => return,
            },
            Next::End => return,
        };
    }
}

/// Waits for the next request to begin; `None` when there will be none.
async fn first_byte(server: &Server, stream: &mut Stream, connection: &Connection) -> Option<Bytes> {
    let limits = &server.app.limits;
    let limit = if let Caller::Node(_) = connection.caller { limits.idle } else { limits.handshake };
    let mut byte = [0];
    if !connection.must_close() {
        tokio::select! {
            biased;
            read = stream.read(&mut byte) => return match read {
                Ok(1) => Some(Bytes::copy_from_slice(&byte)),
                Ok(_) => {
                    end(stream).await;
                    None
                }
                Err(_) => None,
            },
            () = connection.closed() => {}
            () = tokio::time::sleep(limit) => {}
        }
    }
    end(stream).await;
    None
}

/// Says goodbye. Whether that is heard is the peer's affair.
async fn end(stream: &mut Stream) {
    let _ = tokio::time::timeout(DRAIN, stream.shutdown()).await;
}

/// Answers requests until there is none to answer.
async fn requests(server: &Arc<Server>, resting: Resting, connection: &Arc<Connection>) -> Next {
    let limits = &server.app.limits;
    let progress = Arc::new(Progress::default());
    let service = {
        let (server, connection, progress) = (server.clone(), connection.clone(), progress.clone());
        service_fn(move |request: Request<Incoming>| {
            let request = request.map(|body| Asked::new(body, progress.clone()));
            let answer = api::answer(server.clone(), connection.clone(), request);
            let progress = progress.clone();
            async move { Ok::<_, Infallible>(answer.await.map(|body| Answered::new(body, progress))) }
        })
    };
    let mut serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.handshake)
        .max_buf_size(limits.header_bytes.max(8192))
        .serve_connection(Tap::new(resting.stream, resting.ahead, progress.clone()), service);
    let ended = tokio::select! {
        // In this order: what hyper did in its turn decides whether it rests, and a heartbeat that was parked is never
        // left behind for a connection that is to end.
        biased;
        ended = &mut serving => ended,
        held = connection.parked() => {
            // Read to its end, and hyper took it only after the answer before was out: it holds nothing but what was
            // sent ahead.
            return Next::Hold(Resting::after(serving.into_parts()), held);
        }
        () = poll_fn(|_| if progress.rests() { Poll::Ready(()) } else { Poll::Pending }) => {
            return Next::Rest(Resting::after(serving.into_parts()));
        }
        () = connection.closed() => {
            std::pin::Pin::new(&mut serving).graceful_shutdown();
            match tokio::time::timeout(DRAIN, &mut serving).await {
                Ok(ended) => ended,
                Err(_) => return Next::End,
            }
        }
    };
    if let Err(error) = ended {
        log::debug!("a connection of {} ended: {error}", connection.remote);
        let parts = serving.into_parts();
        if parts.io.is_silenced() {
            let limit = limits.header_bytes.max(8192);
            let answer = unreadable::answer(error.is_parse_too_large(), &parts.read_buf, limit);
            refuse(parts.io.into_parts().0, answer).await;
        }
    }
    Next::End
}

/// Answers what could not be read, and ends the connection so that the answer arrives.
async fn refuse(mut stream: Stream, answer: Response) {
    if let Ok(Ok(())) = tokio::time::timeout(WRITE, write(&mut stream, answer)).await {
        end(&mut stream).await;
        unreadable::read_the_rest(&mut stream).await;
    }
}

/// Holds a heartbeat, then answers it; `None` when the connection has ended.
async fn hold(
    server: &Server,
    mut resting: Resting,
    held: HeldAnswer,
    connection: &Connection,
) -> Option<Resting> {
    let stream = &mut resting.stream;
    let mut byte = [0];
    // Half a connection is none: whoever ends its half while it is held waits for nothing (hyper has it so too).
    let answer = {
        let answer = held.wait(&server.app, connection);
        tokio::pin!(answer);
        if resting.ahead.is_empty() {
            tokio::select! {
                answer = answer.as_mut() => answer,
                read = stream.read(&mut byte) => match read {
                    Ok(1) => {
                        // The next request has begun before this one is answered: it waits its turn.
                        resting.ahead = Bytes::copy_from_slice(&byte);
                        answer.await
                    }
                    // Gone: nobody waits for the answer.
                    Ok(_) => {
                        end(stream).await;
                        return None;
                    }
                    Err(_) => return None,
                },
            }
        } else {
            answer.await
        }
    };
    let response = api::heartbeat_answered(server, connection, answer);
    let is_last = api::asks_to_close(response.headers());
    match tokio::time::timeout(WRITE, Box::pin(write(stream, response))).await {
        Ok(Ok(())) if !is_last && !connection.must_close() => Some(resting),
        Ok(Ok(())) => {
            end(stream).await;
            None
        }
        _ => None,
    }
}

/// Writes an answer as hyper would.
async fn write(stream: &mut Stream, response: Response<Body>) -> std::io::Result<()> {
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    let mut text = Vec::with_capacity(256 + body.len());
    text.extend_from_slice(format!("HTTP/1.1 {}\r\n", parts.status).as_bytes());
    for (name, value) in &parts.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(format!("date: {}\r\n\r\n", http_date(jiff::Timestamp::now())).as_bytes());
    text.extend_from_slice(&body);
    stream.write_all(&text).await?;
    stream.flush().await
}

/// An instant as HTTP's `Date` has it.
fn http_date(now: jiff::Timestamp) -> impl std::fmt::Display {
    now.strftime("%a, %d %b %Y %H:%M:%S GMT")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_date_is_one_of_http() {
        let date = super::http_date(jiff::Timestamp::from_second(784_111_777).unwrap());
        assert_eq!(date.to_string(), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
