//! What operators change: nodes' standing, desired configuration, tokens.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use http::{HeaderMap, StatusCode, header};
use outrider_protocol::{
    Check, List, NodeConfig, NodeConfigSpec, NodeView, TokenRequest, TokenView, TypeMeta,
};

use super::error::{Answer, Failure};
use super::nodes::{document, find};
use super::strict::meant;
use crate::app::App;
use crate::enrol::EnrolError;

/// Refuses a request without a good operator token.
pub(super) fn check(app: &App, headers: &HeaderMap) -> Answer<()> {
    let unauthenticated = |problem: &str| EnrolError::Unauthenticated { problem: problem.to_owned() };
    let value = headers
        .get(header::AUTHORIZATION)
        .ok_or_else(|| unauthenticated("this endpoint is for operators, and no token was given"))?;
    let value = value.to_str().map_err(|_| unauthenticated("the Authorization header is no text"))?;
    let token = match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => return Err(unauthenticated("the Authorization header is not `Bearer <token>`").into()),
    };
    app.registrar.check_operator(token)?;
    Ok(())
}

/// Lets a waiting node in.
pub(super) async fn approve(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<NodeView>> {
    let record = app.registrar.approve(&name, app.clock().now()).await?;
    shown(&app, &record.uid)
}

/// Takes a node's right to speak away.
pub(super) async fn revoke(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<NodeView>> {
    let record = app.registrar.revoke(&name, "", app.clock().now()).await?;
    let shown = shown(&app, &record.uid);
    if let Some(node) = app.fleet.by_uid(&record.uid) {
        app.connections.close_node(&node);
    }
    shown
}

fn shown(app: &App, uid: &str) -> Answer<Json<NodeView>> {
    let node = app.follow(uid).ok_or_else(|| super::internal("the node is gone"))?;
    Ok(Json(app.fleet.view(&node)))
}

/// Sets what is desired of a node, if `generation` is the current one.
pub(super) async fn configure(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<Json<NodeConfig>> {
    let config: NodeConfig = document(&app, "NodeConfig", request).await?;
    valid(&config.spec).map_err(|problem| {
        Failure::bad_request("InvalidConfig", problem, "Correct the field; nothing was changed.")
    })?;
    let uid = find(&app, &name)?.uid.clone();
    let config = app.registrar.set_config(&uid, &config.spec, Some(config.generation)).await?;
    app.follow(&uid);
    Ok(Json(config))
}

fn valid(spec: &NodeConfigSpec) -> Result<(), String> {
    let within = |field: &str, value: Option<u32>, most: u32| match value {
        Some(n) if !(1..=most).contains(&n) => Err(format!("{field} is {n}; 1 to {most} is allowed")),
        _ => Ok(()),
    };
    within("spec.heartbeatSeconds", spec.heartbeat_seconds, 3600)?;
    let probes = spec.load_balancer.as_ref().and_then(|balancer| balancer.probes_per_minute);
    within("spec.loadBalancer.probesPerMinute", probes, 600)?;
    for (name, check) in spec.checks.iter().flatten() {
        if let Check::Other(_) = Check::from(name.as_str()) {
            let known: Vec<&str> = Check::ALL.iter().map(Check::as_str).collect();
            let meant = meant(name, &known);
            return Err(format!("spec.checks has no check {name:?}{meant}; there are {}", known.join(", ")));
        }
        within(&format!("spec.checks.{name}.intervalSeconds"), check.interval_seconds, 86_400)?;
    }
    match &spec.cluster {
        Some(c) if c.len() > 253 || c.chars().any(|c| c.is_control() || c.is_whitespace() || c == '/') => {
            Err("spec.cluster: at most 253 characters without blanks and slashes".to_owned())
        }
        _ => Ok(()),
    }
}

/// Every enrolment token.
pub(super) async fn tokens(State(app): State<Arc<App>>) -> Answer<Json<List<TokenView>>> {
    let revision = app.fleet.position();
    let items = app.registrar.tokens().await?;
    Ok(Json(List { meta: TypeMeta::new("TokenList"), revision, continue_token: String::new(), items }))
}

/// Makes an enrolment token.
pub(super) async fn create_token(
    State(app): State<Arc<App>>,
    request: Request,
) -> Answer<(StatusCode, Json<TokenView>)> {
    let request: TokenRequest = document(&app, "TokenRequest", request).await?;
    let token = app.registrar.create_token(&request, app.clock().now()).await?;
    Ok((StatusCode::CREATED, Json(token)))
}

/// Revokes an enrolment token.
pub(super) async fn revoke_token(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Answer<Json<TokenView>> {
    Ok(Json(app.registrar.revoke_token(&id, app.clock().now()).await?))
}

#[cfg(test)]
mod tests {
    use outrider_protocol::CheckConfig;

    use super::*;

    #[test]
    fn a_config_that_no_agent_could_take_is_refused_by_field() {
        let spec = |json: serde_json::Value| serde_json::from_value::<NodeConfigSpec>(json).unwrap();
        for (json, field) in [
            (serde_json::json!({ "heartbeatSeconds": 0 }), "spec.heartbeatSeconds"),
            (serde_json::json!({ "checks": { "etdc": {} } }), "etdc"),
            (serde_json::json!({ "checks": { "etcd": { "intervalSeconds": 86_401 } } }), "spec.checks.etcd"),
            (serde_json::json!({ "cluster": "a/b" }), "spec.cluster"),
            (
                serde_json::json!({ "loadBalancer": { "probesPerMinute": 0 } }),
                "spec.loadBalancer.probesPerMinute",
            ),
        ] {
            let problem = valid(&spec(json)).unwrap_err();
            assert!(problem.contains(field), "{problem}");
        }
        let check = CheckConfig { enabled: Some(false), interval_seconds: Some(60) };
        let checks = Some([("etcd".to_owned(), check)].into());
        let good = NodeConfigSpec { heartbeat_seconds: Some(5), checks, ..NodeConfigSpec::default() };
        assert_eq!(valid(&good), Ok(()));
    }
}
