//! `GET /v1/peers`: the neighbours of the node that asks.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::{Extension, Json};
use http::HeaderMap;
use outrider_protocol::Peers;
use serde::Deserialize;

use super::error::Answer;
use super::node_of;
use crate::app::App;
use crate::server::connections::Connection;

/// Query of `GET /v1/peers`.
#[derive(Debug, Deserialize)]
pub(super) struct PeersQuery {
    #[serde(default)]
    keep: String,
}

/// Neighbours to try, of the node's own cluster.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    Query(query): Query<PeersQuery>,
    headers: HeaderMap,
) -> Answer<Json<Peers>> {
    let peer = node_of(&app, &connection, &headers)?;
    let keep: Vec<&str> = query.keep.split(',').filter(|name| !name.is_empty()).collect();
    Ok(Json(app.fleet.peers_of(&peer.node, &keep, app.clock().now())))
}
