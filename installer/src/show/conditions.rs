//! Conditions of many nodes and clusters as rows.

use outrider_protocol::{Condition, Timestamp, TypeMeta};
use serde::Serialize;

use crate::output::{Cell, Column, text};

/// A condition and whose it is (`kind: ObjectCondition`), as `outrider get conditions` lists them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Owned {
    /// `apiVersion` and `kind`.
    #[serde(flatten)]
    pub(crate) meta: TypeMeta,
    /// `node/NAME` or `cluster/NAME`.
    pub(crate) object: String,
    /// The owner is simulated.
    pub(crate) simulated: bool,
    /// The condition itself.
    #[serde(flatten)]
    pub(crate) condition: Condition,
}

impl Owned {
    /// The condition of `object`.
    pub(crate) fn new(object: String, simulated: bool, condition: &Condition) -> Self {
        Self { meta: TypeMeta::new("ObjectCondition"), object, simulated, condition: condition.clone() }
    }
}

/// The worst first, then by owner, type and subject.
pub(crate) fn sort(conditions: &mut [Owned]) {
    conditions.sort_by(|a, b| {
        let by_severity = b.condition.severity.cmp(&a.condition.severity);
        by_severity
            .then_with(|| a.object.cmp(&b.object))
            .then_with(|| a.condition.key().cmp(&b.condition.key()))
    });
}

/// Columns of `outrider get conditions`; ages are counted to `now`.
pub(crate) fn columns(now: Timestamp) -> Vec<Column<Owned>> {
    vec![
        Column::new("SEVERITY", |o: &Owned| Cell::toned(o.condition.severity.as_str(), o.condition.severity)),
        Column::new("OBJECT", |o: &Owned| o.object.clone()),
        Column::new("TYPE", |o: &Owned| o.condition.condition_type.to_string()),
        // Coloured by what it means here: a status of True with a warning is no green.
        Column::new("STATUS", |o: &Owned| Cell::toned(o.condition.status.as_str(), o.condition.severity)),
        Column::new("SUBJECT", |o: &Owned| o.condition.subject.clone()),
        Column::new("SIMULATED", |o: &Owned| if o.simulated { "yes" } else { "no" }),
        Column::new("SINCE", move |o: &Owned| text::since(Some(o.condition.last_transition_time), now)),
        Column::wide("OBSERVED", move |o: &Owned| text::since(Some(o.condition.observed_at), now)),
        Column::new("REASON", |o: &Owned| o.condition.reason.to_string()),
        Column::wide("ADVICE", |o: &Owned| o.condition.advice.clone()),
        Column::new("MESSAGE", |o: &Owned| o.condition.message.clone()),
    ]
}
