//! JSON Schemas of the documents, generated from the types into `protocol/schema/`.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};

/// A document's kind and its schema.
pub type NamedSchema = (&'static str, Schema);

fn of<T: JsonSchema>(kind: &'static str) -> NamedSchema {
    (kind, SchemaGenerator::new(SchemaSettings::draft2020_12()).into_root_schema_for::<T>())
}

/// The schema of every document that leaves a program, by kind.
pub fn documents() -> Vec<NamedSchema> {
    vec![
        of::<crate::NodeFacts>("NodeFacts"),
        of::<crate::NodeConditions>("NodeConditions"),
        of::<crate::Plan>("Plan"),
        of::<crate::Outcome>("Outcome"),
        of::<crate::NodeConfig>("NodeConfig"),
        of::<crate::EnrollRequest>("EnrollRequest"),
        of::<crate::EnrollResponse>("EnrollResponse"),
        of::<crate::RenewRequest>("RenewRequest"),
        of::<crate::NodeReport>("NodeReport"),
        of::<crate::ReportAck>("ReportAck"),
        of::<crate::Peers>("Peers"),
        of::<crate::Heartbeat>("Heartbeat"),
        of::<crate::ApiError>("Status"),
        of::<crate::NodeView>("Node"),
        of::<crate::List<crate::NodeView>>("NodeList"),
        of::<crate::ClusterView>("Cluster"),
        of::<crate::MachineView>("Machine"),
        of::<crate::PoolView>("Pool"),
        of::<crate::CoordinatorView>("Coordinator"),
        of::<crate::InstallIndex>("InstallIndex"),
        of::<crate::Fleet>("Fleet"),
        of::<crate::TokenView>("Token"),
        of::<crate::TokenRequest>("TokenRequest"),
        of::<crate::NodeLabels>("NodeLabels"),
        of::<crate::EventView>("Event"),
        of::<crate::RootView>("Root"),
    ]
}
