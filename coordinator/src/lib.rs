//! The coordinator: enrolment and certificates, reports and what is judged of a fleet, and the API to see and steer it.
//!
//! The tour: [`start`] makes a [`Coordinator`] of its parts. [`store`] is what must not be lost, [`pki`] and [`enrol`]
//! say who may speak, `fleet` holds every node in memory and judges, `server` takes connections and `api` answers them,
//! `feed` tells watchers, `install` holds what new machines install, `harvester` sees the virtual machines that nodes are.
//! Reads and alarms come from memory, so that they go on while the store is away.

mod api;
mod app;
mod background;
pub mod enrol;
mod feed;
mod fleet;
mod harvester;
mod install;
mod latches;
mod measured;
mod metrics;
mod names;
mod options;
pub mod pki;
mod said;
mod server;
mod service;
pub mod store;

pub use api::{Beat, Listing, Selector, SelectorError, openapi};
pub use harvester::{HarvesterOptions, RancherOptions};
pub use options::{DEFAULT_PORT, INSTALL_DIR, Options, StartError};
pub use server::{BindError, Limits, Rate};
pub use service::{Coordinator, ENDPOINT_FILE, OPERATOR_TOKEN_FILE, refuse_lost_database, start, start_on};
