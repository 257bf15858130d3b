//! The OpenAPI 3.1 document, made from the table of endpoints and the schemas of the protocol's types.

use http::header;
use outrider_protocol::{
    ApiError, ClusterView, CoordinatorView, EnrollRequest, EnrollResponse, EventView, Heartbeat,
    InstallIndex, List, MachineView, NodeConfig, NodeLabels, NodeReport, NodeView, Peers, PoolView,
    RenewRequest, ReportAck, RootView, TokenRequest, TokenView,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::routes::{Access, Content, ENDPOINTS, Endpoint};

/// `GET /v1/openapi.json`.
pub(super) async fn serve() -> ([(header::HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "application/json")], document().to_string())
}

/// The document; its text is kept as `coordinator/openapi.json`.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.definitions_path = "/components/schemas".into());
    let mut schemas = SchemaGenerator::new(settings);
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in ENDPOINTS {
        let operation = operation(endpoint, &mut schemas);
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_lowercase()] = operation;
    }
    let error = reference::<ApiError>(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Outrider coordinator",
            "version": outrider_protocol::API_VERSION,
            "description": "Agents speak over mTLS with a certificate of the coordinator's own CA; people and tools show \
                            an operator token. Every error is an ApiError.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": Value::Object(schemas.take_definitions(true)),
            "responses": {
                "Error": {
                    "description": "What is wrong, where, and what to do.",
                    "content": { "application/json": { "schema": error } },
                },
            },
            "securitySchemes": {
                "node": { "type": "mutualTLS", "description": "Client certificate of the coordinator's CA." },
                "operator": { "type": "http", "scheme": "bearer", "description": "Operator token." },
                "enrolment": {
                    "type": "http", "scheme": "bearer",
                    "description": "Enrolment token that would still let a node in; it is not used up by this.",
                },
            },
        },
    })
}

fn operation(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let in_path = endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(endpoint.query.iter().map(|(name, kind, description)| {
        json!({ "name": name, "in": "query", "description": description, "schema": { "type": kind } })
    }));
    let mut responses = Map::new();
    for (status, content, description) in endpoint.answers {
        let mut response = json!({ "description": description });
        if let Some(content) = media(*content, schemas) {
            response["content"] = content;
        }
        responses.insert(status.to_string(), response);
    }
    responses.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Error" }));
    let security = match endpoint.access {
        Access::Open => json!([]),
        Access::Operator => json!([{ "operator": [] }]),
        Access::Installer => json!([{ "enrolment": [] }, { "node": [] }, { "operator": [] }]),
        Access::Node | Access::NodeEvenExpired => json!([{ "node": [] }]),
    };
    let mut operation = json!({
        "operationId": endpoint.route.as_str(),
        "summary": endpoint.summary.trim(),
        "security": security,
        "responses": responses,
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(content) = media(endpoint.request, schemas) {
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

fn media(content: Content, schemas: &mut SchemaGenerator) -> Option<Value> {
    match content {
        Content::Empty => None,
        Content::Text(media) => Some(json!({ media: { "schema": { "type": "string" } } })),
        Content::Json(name) => {
            let schema = schema(name, schemas);
            Some(json!({ "application/json": { "schema": schema } }))
        }
    }
}

fn reference<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// The schema of a document that the table names.
fn schema(name: &str, schemas: &mut SchemaGenerator) -> Option<Schema> {
    let of = match name {
        "EnrollRequest" => reference::<EnrollRequest>,
        "EnrollResponse" => reference::<EnrollResponse>,
        "RenewRequest" => reference::<RenewRequest>,
        "NodeReport" => reference::<NodeReport>,
        "ReportAck" => reference::<ReportAck>,
        "Heartbeat" => reference::<Heartbeat>,
        "Peers" => reference::<Peers>,
        "CoordinatorView" => reference::<CoordinatorView>,
        "InstallIndex" => reference::<InstallIndex>,
        "NodeView" => reference::<NodeView>,
        "NodeList" => reference::<List<NodeView>>,
        "ClusterView" => reference::<ClusterView>,
        "ClusterList" => reference::<List<ClusterView>>,
        "MachineList" => reference::<List<MachineView>>,
        "PoolList" => reference::<List<PoolView>>,
        "EventList" => reference::<List<EventView>>,
        "TokenView" => reference::<TokenView>,
        "TokenList" => reference::<List<TokenView>>,
        "TokenRequest" => reference::<TokenRequest>,
        "RootView" => reference::<RootView>,
        "RootList" => reference::<List<RootView>>,
        "NodeConfig" => reference::<NodeConfig>,
        "NodeLabels" => reference::<NodeLabels>,
        _ => return None,
    };
    Some(of(schemas))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(target)) = map.get("$ref") {
                    found.insert(target.clone());
                }
                map.values().for_each(|v| references(v, found));
            }
            Value::Array(items) => items.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for target in found {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target} leads nowhere");
        }
    }

    #[test]
    fn the_document_on_disk_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
        let on_disk: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let refresh = "refresh: cargo run -p outrider-coordinator --example openapi";
        assert!(on_disk == document(), "coordinator/openapi.json differs from the API; {refresh}");
    }

    #[test]
    fn every_document_the_table_names_has_a_schema() {
        let mut schemas = SchemaGenerator::default();
        for endpoint in ENDPOINTS {
            for content in endpoint.answers.iter().map(|(_, c, _)| *c).chain([endpoint.request]) {
                if let Content::Json(name) = content {
                    assert!(schema(name, &mut schemas).is_some(), "{name} of {}", endpoint.path);
                }
            }
        }
    }

    #[test]
    fn every_endpoint_stands_in_the_document_once() {
        let document = document();
        let mut operations = BTreeSet::new();
        for endpoint in ENDPOINTS {
            let method = endpoint.method.as_str().to_lowercase();
            let operation = &document["paths"][endpoint.path][method];
            assert_eq!(operation["operationId"], endpoint.route.as_str());
            assert!(operations.insert(endpoint.route.as_str()), "{} twice", endpoint.route.as_str());
        }
        let written: usize =
            document["paths"].as_object().unwrap().values().map(|p| p.as_object().unwrap().len()).sum();
        assert_eq!(written, ENDPOINTS.len());
    }
}
