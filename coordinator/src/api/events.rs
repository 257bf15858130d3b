//! History, as operators read it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use outrider_protocol::{EventView, List, TypeMeta};
use serde::Deserialize;

use super::error::Answer;
use super::nodes::page_size;
use super::store_failure;
use crate::app::App;
use crate::feed::event_view;
use crate::store::{EventFilter, HistoryError};

/// Query of an events list.
#[derive(Debug, Deserialize)]
pub(super) struct EventsQuery {
    after: Option<u64>,
    limit: Option<usize>,
}

/// Events of the whole fleet.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Query(query): Query<EventsQuery>,
) -> Answer<Json<List<EventView>>> {
    page(&app, EventFilter::default(), &query).await
}

/// Events of one name, also those of a node that had it before.
pub(super) async fn list_of_node(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Query(query): Query<EventsQuery>,
) -> Answer<Json<List<EventView>>> {
    page(&app, EventFilter { name: Some(name), ..EventFilter::default() }, &query).await
}

async fn page(app: &App, filter: EventFilter, query: &EventsQuery) -> Answer<Json<List<EventView>>> {
    let limit = page_size(query.limit)?;
    let events = match query.after {
        Some(after) => app.history.events(&filter, after, limit).await,
        None => app.history.latest(&filter, limit).await,
    };
    let events = events.map_err(|e| match e {
        HistoryError::Store(error) => store_failure(&error),
        other => store_failure_of(&other),
    })?;
    let is_full = events.len() == limit;
    let items: Vec<EventView> = events.iter().map(event_view).collect();
    // Going on is `after=<id of the last>`; only a page that was cut says so.
    let last = items.last().filter(|_| is_full && query.after.is_some());
    let continue_token = last.map_or_else(String::new, |e| e.id.to_string());
    let revision = app.fleet.position();
    Ok(Json(List { meta: TypeMeta::new("EventList"), revision, continue_token, items }))
}

fn store_failure_of(error: &HistoryError) -> super::error::Failure {
    super::error::Failure::new(
        http::StatusCode::INTERNAL_SERVER_ERROR,
        "HistoryFailed",
        error.to_string(),
        "This is a fault of Outrider; report it.",
    )
}
