//! Hosted clusters (EKS, AKS, GKE): who owns a field, what a refresh adopts, what a push would do, and what is lost.
//!
//! Names, as in `facts/hosted-sync.md`: **S** the desired spec (`spec.eksConfig` and its likes), **A** the spec last
//! applied, **U** the cloud's view as last read (`upstreamSpec`), **L** the cloud's live view at the time of a push.
//! Null and absent both mean unmanaged; `[]`, `{}`, `""`, `false` and `0` are managed values.
//!
//! - [`fields`]: every field of the three providers, how it compares, and what is special about it
//! - [`compare`]: equality a field; versions as versions, lists as sets, pools by name
//! - [`refresh`](mod@refresh): adopting upstream into managed fields while nothing is in flight, by our rules
//! - [`plan`](mod@plan): what a push would send, in order, and why each write is held
//! - [`timeline`]: which writes were, or may be, lost
//! - [`simulate`](mod@simulate): a timeline played under both sets of rules
//! - [`rancher`]: refresh and push as Rancher makes them, to show what it will do next
//! - [`object`]: a cluster as Rancher keeps it, read from what kubectl prints
//! - [`explain`](mod@explain): a row a field, with who owns it and what becomes of a change

pub mod compare;
pub mod explain;
pub mod fields;
pub mod object;
pub mod plan;
pub mod rancher;
pub mod refresh;
pub mod simulate;
pub mod timeline;

pub use fields::Provider;

/// A document: top-level fields of a hosted cluster's configuration.
pub type Document = serde_json::Map<String, serde_json::Value>;

/// The value of a field, unless it is null or absent.
pub fn known<'a>(document: &'a Document, field: &str) -> Option<&'a serde_json::Value> {
    document.get(field).filter(|value| !value.is_null())
}

/// What is in force: S where it manages a field, else U.
pub fn effective(spec: &Document, upstream: &Document) -> Document {
    let mut out = upstream.clone();
    for (field, value) in spec {
        if !value.is_null() || !out.contains_key(field) {
            out.insert(field.clone(), value.clone());
        }
    }
    out
}
