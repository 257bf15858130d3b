//! Virtual machines as operators see them. What was read of Harvester is in memory; nothing is asked of it here.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{StatusCode, Uri};
use outrider_protocol::{List, MachineView, PoolView, TypeMeta};
use serde::Deserialize;

use super::error::{Answer, Failure};
use super::nodes::{decode_continue, page_size};
use crate::app::App;
use crate::harvester::{Harvester, Readable};

/// Query of `GET /v1/machines`.
#[derive(Debug, Deserialize)]
struct ListQuery {
    limit: Option<usize>,
    #[serde(default, rename = "continue")]
    continue_token: String,
}

/// A page of machines by namespace and name. Where none could be read yet that is an error, not an empty list.
pub(super) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Answer<Json<List<MachineView>>> {
    let Query(query) = Query::<ListQuery>::try_from_uri(&uri)
        .map_err(|e| super::not_understood(e.status(), &e.body_text()))?;
    let (limit, after) = (page_size(query.limit)?, decode_continue(&query.continue_token)?);
    let harvester = readable(&app)?;
    let revision = app.fleet.position();
    let mut items = harvester.machines_after(&after, limit + 1);
    let mut continue_token = String::new();
    if items.len() > limit {
        items.truncate(limit);
        let last = items.last().map(|machine| format!("{}/{}", machine.namespace, machine.name));
        continue_token = URL_SAFE_NO_PAD.encode(last.unwrap_or_default());
    }
    Ok(Json(List { meta: TypeMeta::new("MachineList"), revision, continue_token, items }))
}

/// Every pool by cluster and name. Where no machine could be read yet that is an error, not an empty list.
pub(super) async fn pools(State(app): State<Arc<App>>) -> Answer<Json<List<PoolView>>> {
    let harvester = readable(&app)?;
    let (revision, items) = (app.fleet.position(), harvester.pools());
    Ok(Json(List { meta: TypeMeta::new("PoolList"), revision, continue_token: String::new(), items }))
}

/// Harvester, once it was read to its end.
fn readable(app: &App) -> Answer<&Harvester> {
    let Some(harvester) = &app.harvester else {
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            "HarvesterNotConfigured",
            "this coordinator is given no Harvester, so that it knows of no virtual machines",
            "Start it with --harvester-kubeconfig FILE; docs/harvester.md says which rights that needs.",
        ));
    };
    if let Readable::NotYet(why) = harvester.readable() {
        return Err(Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "HarvesterNotReadable",
            format!("no virtual machine has been read yet, which does not mean that there is none: {why}"),
            "GET /v1/coordinator has the condition HarvesterReadable with its advice.",
        )
        .retry_after(Duration::from_secs(5)));
    }
    Ok(harvester)
}
