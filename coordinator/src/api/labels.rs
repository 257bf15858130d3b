//! Labels of nodes: what people group a fleet by, and selectors select.
//!
//! Written as Kubernetes writes them, so that what is known from there holds here: a key is `[prefix/]name`, a label that
//! has another value is changed only on request.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use outrider_protocol::{NodeLabels, NodeView};

use super::error::{Answer, Failure};
use super::nodes::{BY_ITSELF, document, find};
use crate::app::App;

/// Labels of one node.
const MOST: usize = 64;
/// Longest name of a key and longest value.
const LONGEST: usize = 63;
/// Longest prefix of a key: a DNS name.
const LONGEST_PREFIX: usize = 253;

/// Sets and removes labels of a node.
pub(super) async fn change(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Json<NodeView>> {
    let change: NodeLabels = document(&app, "NodeLabels", request).await?;
    for (key, value) in &change.labels {
        key_problem(key).or_else(|| value.as_deref().and_then(value_problem)).map_or(Ok(()), |problem| {
            let key: String = key.chars().take(64).collect();
            Err(Failure::bad_request(
                "InvalidLabel",
                format!("labels.{key}: {problem}"),
                "Write labels as for kubectl label: [prefix/]name=value. Nothing was changed.",
            ))
        })?;
    }
    let uid = find(&app, &name)?.uid.clone();
    app.registrar.change_labels(&uid, &change.labels, change.overwrite, MOST).await?;
    let node = app.follow(&uid).ok_or_else(|| super::internal("the node is gone"))?;
    Ok(Json(app.fleet.view(&node)))
}

/// What is wrong with a label's key.
fn key_problem(key: &str) -> Option<String> {
    if BY_ITSELF.contains(&key) {
        return Some(match key {
            "cluster" => "cluster is no label: set spec.cluster of the node's configuration".to_owned(),
            _ => format!(
                "{key} is what the node is by itself; a label of that name would hide it from selectors"
            ),
        });
    }
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_dns = |prefix: &str| {
        prefix.len() <= LONGEST_PREFIX
            && prefix.split('.').all(|part| {
                part.starts_with(lower) && part.ends_with(lower) && part.chars().all(|c| lower(c) || c == '-')
            })
    };
    if prefix.is_some_and(|prefix| !is_dns(prefix)) {
        return Some("what is before the '/' must be a DNS name in lower case".to_owned());
    }
    if name.is_empty() {
        return Some("the name of the key is empty".to_owned());
    }
    word_problem(name).map(|problem| format!("the name of the key {problem}"))
}

/// What is wrong with a label's value.
fn value_problem(value: &str) -> Option<String> {
    word_problem(value).map(|problem| format!("the value {problem}"))
}

fn word_problem(word: &str) -> Option<String> {
    let outer = |c: char| c.is_ascii_alphanumeric();
    if word.len() > LONGEST {
        Some(format!("has {} bytes; at most {LONGEST} are taken", word.len()))
    } else if !word.chars().all(|c| outer(c) || matches!(c, '-' | '_' | '.')) {
        Some("may hold letters, digits, '-', '_' and '.'".to_owned())
    } else if !(word.is_empty() || word.starts_with(outer) && word.ends_with(outer)) {
        Some("must begin and end with a letter or digit".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_as_kubernetes_takes_them() {
        for key in ["a", "team", "Team_1.x-y", "example.com/team", "a-b.c/x"] {
            assert_eq!(key_problem(key), None, "{key}");
        }
        let long = "k".repeat(64);
        for key in
            ["", "-a", "a-", "a b", "/a", "a/", "A.com/x", "a/b/c", "ä", &long, "cluster", "ready", "zone"]
        {
            assert!(key_problem(key).is_some(), "{key}");
        }
        for value in ["", "a", "A_1.b-c", "2026"] {
            assert_eq!(value_problem(value), None, "{value}");
        }
        for value in ["a b", "-a", "a=b", "a/b", &long] {
            assert!(value_problem(value).is_some(), "{value}");
        }
    }
}
