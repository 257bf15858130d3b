//! Lists of the Kubernetes API, page by page and bounded.

use serde_json::Value;
use tokio::time::Instant;

use super::access::{Access, object};
use crate::net::Failure;
use outrider_protocol::UnknownCause;

/// Bytes of one page, and pages of a list.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
const PAGES: usize = 50;
/// Metadata alone, where nothing else is looked at (Kubernetes API concepts, "Receiving resources as metadata").
pub(super) const METADATA: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// The objects whole.
pub(super) const WHOLE: &str = "application/json";

/// What is listed.
pub(super) struct List<'a> {
    /// Path, and query without `limit`.
    pub(super) path: &'a str,
    /// [`METADATA`] or [`WHOLE`].
    pub(super) accept: &'static str,
    /// Objects of a page.
    pub(super) page: usize,
}

/// Calls `take` with every object of a list; false when there is no such list.
pub(super) async fn each(
    access: &Access,
    list: List<'_>,
    deadline: Instant,
    mut take: impl FnMut(Value) -> Result<(), Failure>,
) -> Result<bool, Failure> {
    let List { path, accept, page } = list;
    let join = if path.contains('?') { '&' } else { '?' };
    let mut next = String::new();
    for _ in 0..PAGES {
        let answer =
            access.get_as(&format!("{path}{join}limit={page}{next}"), accept, PAGE_BYTES, deadline).await?;
        let Some(mut list) = object(&answer)? else { return Ok(false) };
        drop(answer);
        let token = list.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
        // Written by the server in base64; anything else is not followed.
        let plain =
            token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'=' | b'.'));
        next = if token.is_empty() || !plain { String::new() } else { format!("&continue={token}") };
        let items = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            // As a server in Go writes a list without anything in it.
            Some(Value::Null) if is_list(&list) => Vec::new(),
            _ => {
                let path = path.split('?').next().unwrap_or(path);
                let why = format!("what {path} answers is no list");
                return Err(Failure::new(UnknownCause::InvalidAnswer, why));
            }
        };
        for item in items {
            take(item)?;
        }
        if next.is_empty() {
            return Ok(true);
        }
    }
    let most = page * PAGES;
    Err(Failure::new(UnknownCause::Unsupported, format!("more than {most} objects at {path}")))
}

fn is_list(answer: &Value) -> bool {
    answer.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"))
}
