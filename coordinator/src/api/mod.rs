//! The HTTP API: one table of endpoints ([`routes`]), one door that every request passes, one file a subject.
//!
//! The door checks who asks and how often, counts, and turns every failure into an
//! [`ApiError`](outrider_protocol::ApiError). Heartbeats, which are nearly all of a fleet's requests, go round the
//! router.

mod agents;
mod authority;
pub(crate) mod body;
pub(crate) mod error;
mod events;
mod health;
mod heartbeat;
mod install;
mod labels;
mod machines;
mod nodes;
mod openapi;
mod operators;
mod peers;
mod query;
mod report;
mod routes;
mod selector;
mod strict;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::State;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use bytes::Bytes;
use http::{Method, StatusCode, Version, header};
use outrider_protocol::ReportAck;
use tower::ServiceExt;

use crate::app::App;
use crate::server::Server;
use crate::server::connections::{Caller, Connection};
use crate::server::peer::Peer;
use crate::store::StoreError;
use error::{Answer, Failure};
pub(crate) use health::view as coordinator_view;
pub use heartbeat::Beat;
pub(crate) use heartbeat::HeldAnswer;
pub use nodes::Listing;
pub use openapi::document as openapi;
use routes::{Access, ENDPOINTS, Endpoint, Route};
pub use selector::{Selector, SelectorError};

const HEARTBEAT: &str = "/v1/heartbeat";

/// The router of everything but heartbeats, which have a way of their own.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for endpoint in ENDPOINTS {
        let door = middleware::from_fn_with_state((app.clone(), endpoint), door);
        router = router.route(endpoint.path, handler(endpoint.route).route_layer(door));
    }
    router.fallback(no_such_path).method_not_allowed_fallback(no_such_method).with_state(app)
}

fn handler(route: Route) -> MethodRouter<Arc<App>> {
    match route {
        Route::Enroll => post(agents::enroll),
        Route::Renew => post(agents::renew),
        Route::Report => post(agents::report),
        Route::Heartbeat => post(agents::heartbeat),
        Route::ListPeers => get(peers::list),
        Route::GetCoordinator => get(health::coordinator),
        Route::ListNodes => get(nodes::list),
        Route::GetNode => get(nodes::get),
        Route::ApproveNode => post(operators::approve),
        Route::RevokeNode => post(operators::revoke),
        Route::ListNodeEvents => get(events::list_of_node),
        Route::GetNodeConfig => get(nodes::config),
        Route::PutNodeConfig => put(operators::configure),
        Route::PatchNodeLabels => patch(labels::change),
        Route::ListClusters => get(nodes::clusters),
        Route::GetCluster => get(nodes::cluster),
        Route::ListMachines => get(machines::list),
        Route::ListPools => get(machines::pools),
        Route::ListEvents => get(events::list),
        Route::ListTokens => get(operators::tokens),
        Route::CreateToken => post(operators::create_token),
        Route::RevokeToken => delete(operators::revoke_token),
        Route::Watch => get(watch::watch),
        Route::GetOpenApi => get(openapi::serve),
        Route::GetCa => get(health::ca),
        Route::ListRoots => get(authority::list),
        Route::RotateCa => post(authority::rotate),
        Route::RetireRoot => delete(authority::retire),
        Route::GetInstall => get(install::instructions),
        Route::GetInstallIndex => get(install::index),
        Route::GetInstallFile => get(install::file),
        Route::Healthz => get(health::healthz),
        Route::Readyz => get(health::readyz),
        Route::Metrics => get(health::metrics),
    }
}

/// Answers one request of a connection. The answer to a heartbeat that is held is not given here: the connection is
/// parked with it.
pub(crate) async fn answer<B>(
    server: Arc<Server>,
    connection: Arc<Connection>,
    request: http::Request<B>,
) -> Response
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError> + std::fmt::Display,
{
    if request.method() == Method::POST && request.uri().path() == HEARTBEAT {
        // Not where hyper may still be writing `100 Continue`.
        let can_park = request.version() == Version::HTTP_11
            && !asks_to_close(request.headers())
            && !request.headers().contains_key(header::EXPECT);
        // Boxed: what reading takes must not make every connection larger.
        let answer = match Box::pin(agents::hear(&server.app, &connection, request)).await {
            Ok(held) if can_park && !held.is_due() && !connection.must_close() => {
                connection.park(held);
                std::future::pending().await
            }
            Ok(held) => Box::pin(held.wait(&server.app, &connection)).await,
            Err(failure) => Err(failure),
        };
        return heartbeat_answered(&server, &connection, answer);
    }
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(connection.clone());
    match Box::pin(server.router.clone().oneshot(request)).await {
        Ok(response) => closing(&connection, response),
        Err(never) => match never {},
    }
}

/// Whether `close` is among the connection's options, in whichever line (RFC 9110, 7.6.1).
pub(crate) fn asks_to_close(headers: &http::HeaderMap) -> bool {
    let lines = headers.get_all(header::CONNECTION).iter().map(http::HeaderValue::as_bytes);
    lines
        .flat_map(|line| line.split(|b| *b == b','))
        .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// The answer to a heartbeat as it goes out, counted.
pub(crate) fn heartbeat_answered(
    server: &Server,
    connection: &Connection,
    answer: Answer<ReportAck>,
) -> Response {
    let response = answer.and_then(|ack| agents::answered(&ack)).unwrap_or_else(IntoResponse::into_response);
    server.app.metrics.request(Route::Heartbeat.as_str(), response.status().as_u16());
    closing(connection, response)
}

/// Says so when the connection ends with this answer.
fn closing(connection: &Connection, mut response: Response) -> Response {
    if connection.must_close() {
        response.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("close"));
    }
    response
}

/// What every request passes: who asks, how often, and the count of the answer.
async fn door(
    State((app, endpoint)): State<(Arc<App>, &'static Endpoint)>,
    request: Request,
    next: Next,
) -> Response {
    let mut admitted = admit(&app, endpoint, &request);
    if admitted.is_ok() && endpoint.access == Access::Installer {
        let connection = request.extensions().get::<Arc<Connection>>().cloned();
        let headers = request.headers().clone();
        admitted = install::check(&app, connection.as_deref(), &headers).await;
    }
    let response = match admitted {
        Ok(()) => in_our_words(next.run(request).await).await,
        Err(failure) => failure.into_response(),
    };
    app.metrics.request(endpoint.route.as_str(), response.status().as_u16());
    response
}

/// A path or query that the router could not read, as an `ApiError` like every other failure.
async fn in_our_words(response: Response) -> Response {
    let is_text =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"text/plain"));
    if !response.status().is_client_error() || !is_text {
        return response;
    }
    let status = response.status();
    let message = axum::body::to_bytes(response.into_body(), 4096).await.unwrap_or_default();
    not_understood(status, &String::from_utf8_lossy(&message)).into_response()
}

/// A path or query that cannot be read.
fn not_understood(status: StatusCode, message: &str) -> Failure {
    let advice = "GET /v1/openapi.json has every path with its parameters.";
    Failure::new(status, "InvalidRequest", message, advice)
}

fn admit(app: &App, endpoint: &Endpoint, request: &Request) -> Answer<()> {
    let Some(connection) = request.extensions().get::<Arc<Connection>>() else {
        return Err(internal("the request came without its connection"));
    };
    match &connection.caller {
        Caller::Node(peer) => node_pace(app, peer)?,
        Caller::Stranger | Caller::Unknown(_) => app
            .gate
            .stranger_asks(connection.remote.ip(), app.clock().elapsed())
            .map_err(|wait| too_many("this address", wait))?,
    }
    match endpoint.access {
        // A token's standing lies in the store: asked for in the door itself.
        Access::Open | Access::Installer => {}
        Access::Operator => operators::check(app, request.headers())?,
        Access::Node => node_of(app, connection, request.headers())?.check(app)?,
        Access::NodeEvenExpired => node_of(app, connection, request.headers())?.check_standing(app)?,
    }
    query::check(endpoint, request.uri())
}

/// Counts a request of a node against its rate.
fn node_pace(app: &App, peer: &Peer) -> Answer<()> {
    let pace = peer.node.pace.take(app.clock().elapsed(), app.limits.node_rate);
    pace.map_err(|wait| too_many("this node", wait))
}

fn too_many(who: &str, wait: std::time::Duration) -> Failure {
    Failure::new(
        StatusCode::TOO_MANY_REQUESTS,
        "TooManyRequests",
        format!("{who} asks too often; the next request is taken in {} ms", wait.as_millis()),
        "Wait as long as Retry-After says.",
    )
    .retry_after(wait)
}

/// The node whose certificate the connection showed; without one, what most likely became of it.
pub(crate) fn node_of<'a>(
    app: &App,
    connection: &'a Connection,
    headers: &http::HeaderMap,
) -> Answer<&'a Peer> {
    let (reason, message, advice) = match &connection.caller {
        Caller::Node(peer) => return Ok(peer),
        Caller::Unknown(uid) => match app.begun_anew {
            Some(at) => (
                "NodeUnknown",
                format!(
                    "the certificate is of node {uid}, which is not known here: this coordinator lost its database and \
                     began a new one at {at}"
                ),
                "Enrol the machine anew with a token, or restore the coordinator's database from a backup.",
            ),
            None => (
                "NodeUnknown",
                format!("the certificate is of node {uid}, which is not known here"),
                "Enrol the machine anew with a token.",
            ),
        },
        Caller::Stranger => match ["x-forwarded-for", "x-forwarded-proto", "forwarded", "via"]
            .into_iter()
            .find(|name| headers.contains_key(*name))
        {
            Some(header) => (
                "TlsEndedInFront",
                format!(
                    "no client certificate came, and the request carries {header}: a proxy in front of {} ends TLS",
                    connection.remote
                ),
                "The agents' port needs TCP pass-through (L4), so that the certificate reaches the coordinator.",
            ),
            None => (
                "ClientCertificateMissing",
                "this endpoint is for nodes, and no client certificate was shown".to_owned(),
                "Enrol first: POST /v1/enroll. If the agent did show one, a balancer in front ends TLS: the port needs \
                 TCP pass-through (L4).",
            ),
        },
    };
    Err(Failure::new(StatusCode::UNAUTHORIZED, reason, message, advice).closing())
}

/// What a store that does not work answers.
pub(crate) fn store_failure(error: &StoreError) -> Failure {
    let (code, reason) = match error {
        StoreError::DiskFull { .. } => (StatusCode::INSUFFICIENT_STORAGE, "DiskFull"),
        StoreError::Conflict { .. } => (StatusCode::CONFLICT, "Conflict"),
        StoreError::Invalid { .. } => (StatusCode::BAD_REQUEST, "InvalidDocument"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "StoreUnavailable"),
    };
    Failure::new(
        code,
        reason,
        error.to_string(),
        "Repeat the request; nothing of it was acknowledged. /readyz and the coordinator's log say more.",
    )
    .retry_after(std::time::Duration::from_secs(2))
}

/// A fault of ours.
pub(crate) fn internal(what: &str) -> Failure {
    Failure::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "Internal",
        what,
        "This is a fault of Outrider; report it.",
    )
}

async fn no_such_path(request: Request) -> Response {
    Failure::new(
        StatusCode::NOT_FOUND,
        "NoSuchPath",
        format!("there is no {}", request.uri().path()),
        "GET /v1/openapi.json lists every path.",
    )
    .into_response()
}

async fn no_such_method(request: Request) -> Response {
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "NoSuchMethod",
        format!("{} does not take {}", request.uri().path(), request.method()),
        "GET /v1/openapi.json lists every path with its methods.",
    )
    .into_response()
}
