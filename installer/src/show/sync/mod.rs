//! Hosted clusters as documents and tables: fields, plans, played timelines.

pub(crate) mod explained;
pub(crate) mod planned;
pub(crate) mod played;

use outrider_sync::hosted::explain::Risk;
use serde_json::Value;

use crate::output::{Tone, text};

pub(crate) use explained::Explained;
pub(crate) use planned::Planned;
pub(crate) use played::Played;

fn tone(risk: Risk) -> Tone {
    match risk {
        Risk::Safe => Tone::Good,
        Risk::Adopted | Risk::Superseded => Tone::Notice,
        Risk::Unknown | Risk::AtRisk => Tone::Warn,
        Risk::WouldLose | Risk::RolledBack | Risk::Lost => Tone::Bad,
    }
}

/// Widest value in a table, in columns.
const VALUE: usize = 24;

/// A value for a cell: lists of pools by their number, the rest as JSON, cut.
fn value(path: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(plain) => text::cut(plain, VALUE),
        Value::Array(pools) if matches!(path, "nodeGroups" | "nodePools") => text::count(pools.len(), "pool"),
        Value::Object(_) if path.contains('/') => "pool".to_owned(),
        other => text::cut(&other.to_string(), VALUE),
    }
}

/// A value as JSON, cut.
fn short(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        other => text::cut(&text::printable(&other.to_string()), 2 * VALUE),
    }
}
