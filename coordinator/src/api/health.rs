//! `/healthz`, `/readyz`, `/metrics`, `/v1/ca`, `/v1/coordinator`: how the coordinator itself fares.

use std::fmt::Write;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use outrider_protocol::{CoordinatorView, TypeMeta};

use super::error::{Answer, Failure};
use crate::app::App;
use crate::latches::Latch;
use crate::metrics::OPEN_METRICS;

/// The process lives and answers.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Every latch that holds, with its cause; all of them with `?verbose`.
pub(super) async fn readyz(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Response {
    let verbose = query.is_some_and(|q| q.split('&').any(|p| p == "verbose" || p.starts_with("verbose=")));
    let mut text = String::new();
    let mut ready = true;
    for latch in Latch::ALL {
        match app.latches.why(latch) {
            Some(why) => {
                ready = false;
                let _ = writeln!(text, "[-]{}: {why}", latch.as_str());
            }
            None if verbose => {
                let _ = writeln!(text, "[+]{} ok", latch.as_str());
            }
            None => {}
        }
    }
    let _ = writeln!(text, "{}", if ready { "ready" } else { "not ready" });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}

/// OpenMetrics.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Answer<Response> {
    let text = app.metrics.text().map_err(|_| {
        let (code, advice) = (StatusCode::INTERNAL_SERVER_ERROR, "This is a fault of Outrider; report it.");
        Failure::new(code, "MetricsFailed", "the metrics cannot be written", advice)
    })?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

/// Every trusted root.
pub(super) async fn ca(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/x-pem-file")], app.authority.bundle_pem()).into_response()
}

/// Who answers.
pub(super) async fn coordinator(State(app): State<Arc<App>>) -> Json<CoordinatorView> {
    Json(view(&app))
}

/// The coordinator as it is shown.
pub(crate) fn view(app: &App) -> CoordinatorView {
    CoordinatorView {
        meta: TypeMeta::new("Coordinator"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        url: app.url.clone(),
        ca_checksum: app.authority.pin().to_string(),
        started_at: app.started_at,
        not_ready: app.latches.held(),
        conditions: app.harvester.as_ref().map(|harvester| harvester.conditions()).unwrap_or_default(),
    }
}
