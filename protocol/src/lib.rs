//! The nouns of Outrider and the documents that travel between its programs.
//!
//! Start with [`Fact`] (what a sensor read), [`Condition`] (the judgement, in Kubernetes terms), [`ReasonCode`]
//! (why, from one registry), [`Plan`] and [`Outcome`] (what we would do and what it did), [`NodeFacts`] (everything one
//! node knows, judged again anywhere) and [`NodeReport`] (what a node tells the coordinator). No I/O lives here.
//!
//! Every document carries `apiVersion` and `kind`. Readers ignore fields they do not know and keep words they do not
//! know ([`open_enum`](mod@open_enum)), so that an agent and a coordinator one version apart understand each other.

#[macro_use]
pub mod open_enum;

mod api;
mod certificates;
mod cloud_init;
mod condition;
mod config;
mod credentials;
mod dns;
mod etcd;
mod etcd_cluster;
mod fact;
mod facts;
mod guest_agent;
mod host;
mod kubernetes;
mod load_balancer;
mod machines;
mod paths;
mod plan;
mod rancher_agent;
mod rancher_cluster;
mod reasons;
mod report;
pub mod schema;
mod time;
mod topology;

pub use api::*;
pub use certificates::*;
pub use cloud_init::*;
pub use condition::*;
pub use config::*;
pub use credentials::*;
pub use dns::*;
pub use etcd::*;
pub use etcd_cluster::*;
pub use fact::*;
pub use facts::*;
pub use guest_agent::*;
pub use host::*;
pub use kubernetes::*;
pub use load_balancer::*;
pub use machines::*;
pub use paths::*;
pub use plan::*;
pub use rancher_agent::*;
pub use rancher_cluster::*;
pub use reasons::*;
pub use report::*;
pub use time::*;
pub use topology::*;

/// The version every document of this release carries in `apiVersion`.
pub const API_VERSION: &str = "outrider.internal/v1alpha1";

/// `apiVersion` and `kind`, the first two fields of every document.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypeMeta {
    /// The version of the vocabulary, [`API_VERSION`] when we wrote it.
    pub api_version: String,
    /// Which document this is, such as `NodeFacts`.
    pub kind: String,
}

impl TypeMeta {
    /// The header of a document of this `kind`, in the version we speak.
    pub fn new(kind: &str) -> Self {
        Self { api_version: API_VERSION.to_owned(), kind: kind.to_owned() }
    }

    /// Says what is wrong with the header when a document of `kind` was expected, and what to give instead.
    pub fn expect(&self, kind: &str) -> Result<(), String> {
        if self.kind != kind {
            return Err(format!("kind is {:?}; expected {kind:?}", self.kind));
        }
        if self.api_version != API_VERSION {
            return Err(format!(
                "apiVersion is {:?}; this outrider reads only {API_VERSION:?}, what another release wrote is for that release",
                self.api_version
            ));
        }
        Ok(())
    }
}
