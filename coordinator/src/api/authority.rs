//! The certificate authority, as operators tend it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use http::StatusCode;
use outrider_protocol::{List, RootView, TypeMeta};
use serde::Deserialize;

use super::error::{Answer, Failure};
use crate::app::App;
use crate::enrol::EnrolError;
use crate::pki::{PkiError, RootView as Root};

/// Nodes named in a refusal.
const NAMED: usize = 10;

/// Trusted roots.
pub(super) async fn list(State(app): State<Arc<App>>) -> Json<List<RootView>> {
    Json(roots(&app))
}

fn roots(app: &App) -> List<RootView> {
    let items = app.authority.roots().iter().map(|root| view(app, root)).collect();
    let revision = app.fleet.position();
    List { meta: TypeMeta::new("RootList"), revision, continue_token: String::new(), items }
}

fn view(app: &App, root: &Root) -> RootView {
    let left_out = if root.active { Vec::new() } else { app.registrar.nodes_of_root(root.generation) };
    RootView {
        meta: TypeMeta::new("Root"),
        generation: root.generation,
        checksum: root.pin.to_string(),
        active: root.active,
        not_after: root.not_after,
        nodes: left_out.iter().map(|record| record.name.clone()).collect(),
    }
}

/// Makes a new root.
pub(super) async fn rotate(State(app): State<Arc<App>>) -> Answer<(StatusCode, Json<RootView>)> {
    let authority = app.authority.clone();
    let now = app.clock().now();
    let root = blocking(move || authority.rotate(now)).await?;
    log::warn!("root {} issues from now on; CA {}", root.generation, root.pin);
    follow(&app).await;
    Ok((StatusCode::CREATED, Json(view(&app, &root))))
}

/// Query of a retirement.
#[derive(Debug, Deserialize)]
pub(super) struct RetireQuery {
    #[serde(default)]
    force: bool,
}

/// Ends the trust in a root.
pub(super) async fn retire(
    State(app): State<Arc<App>>,
    Path(generation): Path<u32>,
    Query(query): Query<RetireQuery>,
) -> Answer<Json<List<RootView>>> {
    let known = app.authority.roots().into_iter().find(|r| r.generation == generation && !r.active);
    let left_out = known.map_or_else(Vec::new, |_| app.registrar.nodes_of_root(generation));
    if !left_out.is_empty() && !query.force {
        let names: Vec<&str> = left_out.iter().take(NAMED).map(|record| record.name.as_str()).collect();
        let more = if left_out.len() > NAMED { ", …" } else { "" };
        return Err(Failure::new(
            StatusCode::CONFLICT,
            "RootInUse",
            format!(
                "{} nodes have not renewed since root {generation}: {}{more}",
                left_out.len(),
                names.join(", ")
            ),
            "Wait until they have (two thirds of a certificate's life), or give force=true: they must enrol anew then.",
        ));
    }
    let authority = app.authority.clone();
    let now = app.clock().now();
    blocking(move || authority.retire(generation, now)).await?;
    log::warn!("root {generation} is no longer trusted");
    follow(&app).await;
    Ok(Json(roots(&app)))
}

/// What carries the pin follows at once. The CA has changed whether that works or not, so a failure is only said; the
/// registry is tended every hour and tries again.
async fn follow(app: &App) {
    if let Err(error) = app.registrar.follow_authority(app.clock().now()).await {
        log::warn!("the operator token's file could not follow the CA yet: {error}");
    }
}

/// Files are written: not on a thread that serves.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PkiError> + Send + 'static,
) -> Answer<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error @ (PkiError::RotationUnderWay { .. } | PkiError::NotRetirable { .. }))) => {
            let advice = "GET /v1/ca/roots shows what is trusted.";
            Err(Failure::new(StatusCode::CONFLICT, "NotNow", error.to_string(), advice))
        }
        Ok(Err(error)) => Err(EnrolError::from(error).into()),
        Err(_) => Err(super::internal("the work on the CA was interrupted")),
    }
}
