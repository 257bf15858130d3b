//! What is said to a request that cannot be read: too long, or no HTTP at all.
//!
//! hyper answers such a request with a bare status and lets the connection go, with the rest of the request unread: most
//! callers then see a connection that was reset, and no answer. Its own is kept back ([`super::tap::Tap`]), and one with a
//! reason, the number and what to do is written in its place; what the caller still sends is read for a while and dropped.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use tokio::io::AsyncReadExt;

use super::Stream;
use crate::api::error::Failure;

/// How much of a request that was refused is read, and for how long, before the connection is let go.
const REST_BYTES: usize = 1 << 20;
const REST_TIME: Duration = Duration::from_secs(2);

/// The head of an answer that hyper gives by itself (hyper: proto/h1/role.rs, `on_error`); ours have a body.
pub(super) fn is_hypers_own(written: &[u8]) -> bool {
    let statuses: [&[u8]; 3] = [b"HTTP/1.1 400 ", b"HTTP/1.1 414 ", b"HTTP/1.1 431 "];
    statuses.iter().any(|status| written.starts_with(status)) && {
        let head = String::from_utf8_lossy(written).to_ascii_lowercase();
        head.contains("connection: close\r\n") && head.contains("content-length: 0\r\n")
    }
}

/// The answer to a request of which `read` was read, where its head may have `limit` bytes.
pub(super) fn answer(too_large: bool, read: &[u8], limit: usize) -> Response {
    let line = read.iter().position(|byte| *byte == b'\n');
    let failure = match (too_large, line) {
        (true, None) => Failure::new(
            StatusCode::URI_TOO_LONG,
            "TooLarge",
            format!(
                "the first line of the request, its path and query, is longer than {limit} bytes, the limit"
            ),
            "Ask for less at a time: fewer names in a selector, or page by page (limit, continue).",
        ),
        (true, Some(_)) => Failure::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "TooLarge",
            format!("the headers of the request have more than {limit} bytes, the limit, or are too many"),
            "Leave out what is not needed, such as cookies and what a proxy adds.",
        ),
        (false, _) => Failure::bad_request(
            "InvalidRequest",
            "what was sent is no request of HTTP/1.1",
            "Speak HTTP/1.1 over TLS; blanks and other odd characters of a path or query are written as %20.",
        ),
    };
    failure.closing().into_response()
}

/// Reads what the caller still sends, so that he comes to read the answer instead of hearing of a reset.
pub(super) async fn read_the_rest(stream: &mut Stream) {
    let mut left = REST_BYTES;
    let mut buffer = vec![0; 16 << 10];
    let reading = async {
        while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
            left = left.saturating_sub(bytes);
            if left == 0 {
                break;
            }
        }
    };
    // What comes later than that is lost to the caller's own slowness.
    let _ = tokio::time::timeout(REST_TIME, reading).await;
}

#[cfg(test)]
mod tests {
    use super::is_hypers_own;

    #[test]
    fn ours_are_told_from_hypers() {
        for (head, own) in [
            (
                "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                true,
            ),
            ("HTTP/1.1 414 URI Too Long\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", true),
            (
                "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 90\r\n\r\n{}",
                false,
            ),
            ("HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", false),
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", false),
            ("", false),
        ] {
            assert_eq!(is_hypers_own(head.as_bytes()), own, "{head}");
        }
    }
}
