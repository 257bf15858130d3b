//! Whether the own Node waits for a cloud provider. Its taint is never taken away by us: the provider does that when it has
//! set addresses and labels (C8).

use std::time::Duration;

use outrider_protocol::{ConditionType, NodeTopology, ReasonCode as R, Severity, Status, Timestamp};

use crate::finding::Finding;
use crate::wording::Span;

/// A provider that runs initialises a node within seconds.
const WARN: Duration = Duration::from_secs(120);
const ERROR: Duration = Duration::from_secs(600);

pub(super) fn judge(node: &NodeTopology, at: Timestamp, now: Timestamp) -> Finding {
    let of = |status, severity, reason, message: String| {
        Finding::new(ConditionType::NodeInitialized, status, severity, reason, at, message)
    };
    if !node.uninitialized {
        let message = match node.provider_id.as_str() {
            "" => format!("The Node {} has no taint of a cloud provider, and no provider's name.", node.name),
            id => format!("A cloud provider has initialised the Node {} ({id}).", node.name),
        };
        return of(Status::True, Severity::Ok, R::NodeInitialized, message);
    }
    let age = node.uninitialized_since.map_or(Duration::ZERO, |since| now.since(since));
    let severity = match age {
        age if age >= ERROR => Severity::Error,
        age if age >= WARN => Severity::Warn,
        _ => Severity::Info,
    };
    let provider = match node.provider_id.as_str() {
        "" => "no provider has named it yet".to_owned(),
        id => format!("it was initialised before, as {id}"),
    };
    let message = format!(
        "The Node {} has had the taint node.cloudprovider.kubernetes.io/uninitialized for at least {}; {provider}. Pods that do not \
         tolerate it stay away.",
        node.name,
        Span(age)
    );
    of(Status::False, severity, R::NodeUninitialized, message).advice(
        "Three things have to hold: the cloud provider's pod runs (on the host network, for a CNI may wait for this very taint), its log \
         shows no error, and the name of the Node is that of its virtual machine. Do not take the taint away by hand: the provider does so \
         when it has set addresses and labels.",
    )
}
