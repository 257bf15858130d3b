//! Nodes and clusters as operators see them. Reads come from memory: they go on while the store is away.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, Request, State};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use outrider_protocol::{ClusterView, List, NodeConfig, NodeView, TypeMeta};
use serde::Deserialize;

use super::error::{Answer, Failure};
use super::selector::Selector;
use crate::app::App;
use crate::fleet::Node;

/// Most nodes of one page, and how many without a `limit`.
const MAX_PAGE: usize = 1000;
/// Nodes looked at under one lock while a selector is applied.
const CHUNK: usize = 500;

/// Query of `GET /v1/nodes`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListQuery {
    #[serde(default)]
    label_selector: String,
    limit: Option<usize>,
    #[serde(default, rename = "continue")]
    continue_token: String,
}

/// A `limit` within its bounds.
pub(super) fn page_size(limit: Option<usize>) -> Answer<usize> {
    match limit {
        None => Ok(MAX_PAGE),
        Some(n) if (1..=MAX_PAGE).contains(&n) => Ok(n),
        Some(n) => Err(Failure::bad_request(
            "InvalidLimit",
            format!("limit is {n}; 1 to {MAX_PAGE} is allowed"),
            "Ask for fewer and follow `continue`.",
        )),
    }
}

/// What a list of nodes is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Which nodes.
    pub selector: Selector,
    /// Nodes of one page at most.
    pub limit: usize,
    /// The name after which the page begins.
    pub after: String,
}

impl Listing {
    /// Reads the query of `uri`.
    pub fn read(uri: &Uri) -> Answer<Self> {
        let Query(query) = Query::<ListQuery>::try_from_uri(uri)
            .map_err(|e| super::not_understood(e.status(), &e.body_text()))?;
        let selector = Selector::parse(&query.label_selector).map_err(|e| {
            Failure::bad_request(
                "InvalidSelector",
                format!("labelSelector {:?}: {e}", query.label_selector),
                "Write it as for kubectl -l: a=b, a!=b, a in (x,y), a notin (x,y), a, !a.",
            )
        })?;
        let (limit, after) = (page_size(query.limit)?, decode_continue(&query.continue_token)?);
        Ok(Self { selector, limit, after })
    }
}

/// A page of nodes by name.
pub(super) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Answer<Json<List<NodeView>>> {
    let Listing { selector, limit, mut after } = Listing::read(&uri)?;
    // Taken first: what changes while the page is made is seen again by a watch from here.
    let revision = app.fleet.position();
    let (mut items, mut continue_token) = (Vec::new(), String::new());
    'pages: loop {
        let chunk = app.fleet.nodes_after(&after, CHUNK);
        let is_last = chunk.len() < CHUNK;
        for node in chunk {
            if items.len() == limit {
                continue_token = URL_SAFE_NO_PAD.encode(&after);
                break 'pages;
            }
            let view = app.fleet.view(&node);
            after.clone_from(&view.name);
            if selects(&selector, &view) {
                items.push(view);
            }
        }
        if is_last {
            break;
        }
    }
    Ok(Json(List { meta: TypeMeta::new("NodeList"), revision, continue_token, items }))
}

pub(super) fn decode_continue(token: &str) -> Answer<String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    bytes.and_then(|b| String::from_utf8(b).ok()).ok_or_else(|| {
        Failure::bad_request(
            "InvalidContinue",
            format!("{token:?} is no place to continue"),
            "Give `continue` of the page before as it was.",
        )
    })
}

/// What selectors know of a node besides its labels.
pub(super) const BY_ITSELF: [&str; 9] = [
    "cluster",
    "profile",
    "ready",
    "enrolment",
    "simulated",
    "zone",
    "region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// Labels of people go before what the node is by itself, of which [`BY_ITSELF`] has the words.
fn selects(selector: &Selector, view: &NodeView) -> bool {
    selector.selects(|key| {
        if let Some(value) = view.labels.get(key) {
            return Some(value.as_str());
        }
        match key {
            "cluster" => Some(view.cluster.as_str()).filter(|v| !v.is_empty()),
            "profile" => Some(view.profile.as_str()),
            "ready" => Some(view.ready.as_str()),
            "enrolment" => Some(view.enrolment.as_str()),
            "simulated" => Some(if view.simulated { "true" } else { "false" }),
            "zone" | "topology.kubernetes.io/zone" => Some(view.zone.as_str()).filter(|v| !v.is_empty()),
            "region" | "topology.kubernetes.io/region" => {
                Some(view.region.as_str()).filter(|v| !v.is_empty())
            }
            _ => None,
        }
    })
}

/// The node of this name.
pub(super) fn find(app: &App, name: &str) -> Answer<Arc<Node>> {
    app.fleet.by_name(name).ok_or_else(|| Failure::not_found("node", name))
}

/// One node.
pub(super) async fn get(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<NodeView>> {
    let node = find(&app, &name)?;
    Ok(Json(app.fleet.view(&node)))
}

/// Every cluster.
pub(super) async fn clusters(State(app): State<Arc<App>>) -> Json<List<ClusterView>> {
    let revision = app.fleet.position();
    let items = app.fleet.clusters().iter().map(|c| app.fleet.cluster_view(c)).collect();
    Json(List { meta: TypeMeta::new("ClusterList"), revision, continue_token: String::new(), items })
}

/// One cluster.
pub(super) async fn cluster(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Answer<Json<ClusterView>> {
    let cluster = app.fleet.cluster(&name).ok_or_else(|| Failure::not_found("cluster", &name))?;
    Ok(Json(app.fleet.cluster_view(&cluster)))
}

/// What is desired of a node.
pub(super) async fn config(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Answer<Json<NodeConfig>> {
    let node = find(&app, &name)?;
    let desired = node.inner().record.desired.clone();
    Ok(Json(desired))
}

/// Reads the body of an operator's request as a document of `kind`.
pub(super) async fn document<T: serde::de::DeserializeOwned + schemars::JsonSchema>(
    app: &App,
    kind: &str,
    request: Request,
) -> Answer<T> {
    let (parts, body) = request.into_parts();
    let bounds = super::body::Bounds {
        bytes: app.limits.body_bytes,
        time: app.limits.body_time,
        if_larger: "Send one document of the kind this endpoint takes, and nothing else; nothing was changed.",
    };
    let bytes = super::body::read(&parts.headers, body, bounds).await?;
    super::body::written(kind, &bytes)
}
