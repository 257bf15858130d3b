//! What agents ask: enrol, renew, report, and that they live.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::Body;
use outrider_protocol::{EnrollRequest, EnrollResponse, NodeReport, RenewRequest, ReportAck};

use super::body::Bounds;
use super::error::{Answer, Failure};
use super::heartbeat::{Beat, HeldAnswer};
use super::{body, heartbeat as beats, node_of, node_pace, report as reports};
use crate::app::App;
use crate::enrol::{EnrolError, Sighting};
use crate::server::connections::Connection;

/// Bytes of an enrolment: anybody may send one.
const ENROLL_BYTES: usize = 32 << 10;

impl From<EnrolError> for Failure {
    fn from(error: EnrolError) -> Self {
        let failure = Failure::from(error.to_api());
        match error {
            EnrolError::Store(_) => failure.retry_after(std::time::Duration::from_secs(2)),
            _ => failure,
        }
    }
}

/// A token and a certificate request in, a certificate out.
pub(super) async fn enroll(State(app): State<Arc<App>>, request: Request) -> Answer<Response> {
    let (parts, content) = request.into_parts();
    let bounds = Bounds {
        bytes: ENROLL_BYTES,
        time: app.limits.body_time,
        if_larger: "An enrolment is a token and a certificate request, a few KiB together: look at what is sent here. \
                    Nobody was enrolled.",
    };
    let bytes = body::read(&parts.headers, content, bounds).await?;
    let request: EnrollRequest = body::document("EnrollRequest", &bytes)?;
    let response = app.registrar.enroll(&request, app.clock().now()).await?;
    app.follow(&response.node_uid);
    let status = if response.certificate.is_empty() { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(response)).into_response())
}

/// A new certificate for the key of the current one.
pub(super) async fn renew(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Answer<Json<EnrollResponse>> {
    let (parts, content) = request.into_parts();
    let peer = node_of(&app, &connection, &parts.headers)?;
    let bounds = Bounds {
        bytes: app.limits.body_bytes,
        time: app.limits.body_time,
        if_larger: "A renewal is one certificate request, a few KiB: look at what is sent here. Nothing was renewed.",
    };
    let bytes = body::read(&parts.headers, content, bounds).await?;
    let request: RenewRequest = body::document("RenewRequest", &bytes)?;
    Ok(Json(app.registrar.renew(&peer.certificate, &request, app.clock().now()).await?))
}

/// Transitions and state.
pub(super) async fn report(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Answer<Json<ReportAck>> {
    let (parts, content) = request.into_parts();
    let peer = node_of(&app, &connection, &parts.headers)?;
    let bounds = Bounds {
        bytes: app.limits.report_bytes,
        time: app.limits.body_time,
        if_larger: "Send fewer transitions a report; nothing of it was stored.",
    };
    let bytes = body::read(&parts.headers, content, bounds).await?;
    let report: NodeReport = body::document("NodeReport", &bytes)?;
    drop(bytes);
    app.sight(
        peer,
        &Sighting {
            boot_id: &report.boot_id,
            epoch: report.epoch,
            identity: report.state.as_ref().map(|s| &s.identity),
            interval: None,
            at: app.clock().now(),
        },
    )?;
    let has_state = report.state.is_some();
    let ack = reports::take(&app, peer, report).await?;
    if has_state {
        connection.asked_resync.store(false, std::sync::atomic::Ordering::Relaxed);
    }
    Ok(Json(ack))
}

/// Takes a heartbeat in. The door is passed here, not in the router.
pub(super) async fn hear<B>(
    app: &App,
    connection: &Connection,
    request: http::Request<B>,
) -> Answer<HeldAnswer>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    let (parts, content) = request.into_parts();
    let peer = node_of(app, connection, &parts.headers)?;
    node_pace(app, peer)?;
    peer.check(app)?;
    let bounds = Bounds {
        bytes: beats::MAX_BYTES,
        time: app.limits.body_time,
        if_larger: "A heartbeat is a few hundred bytes: what a node has to say goes into a report.",
    };
    let bytes = body::read(&parts.headers, content, bounds).await?;
    beats::hear(app, peer, connection, &Beat::read(&bytes)?)
}

/// A heartbeat that came through the router: only another way to write its path leads there.
pub(super) async fn heartbeat(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Answer<Response> {
    let held = hear(&app, &connection, request).await?;
    answered(&held.wait(&app, &connection).await?)
}

/// The answer to a heartbeat.
pub(super) fn answered(ack: &ReportAck) -> Answer<Response> {
    let body = serde_json::to_vec(ack).map_err(|_| super::internal("the answer cannot be written"))?;
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
