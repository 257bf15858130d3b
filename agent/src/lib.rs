//! The node agent: sense -> decide -> act -> report.

pub mod act;
pub mod capture;
pub mod checks;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod journal;
pub mod local;
pub mod metrics;
pub mod net;
pub mod notify;
pub mod privileged;
pub mod report;
pub mod sense;
pub mod setup;
pub mod timer;

pub use capture::capture;
pub use daemon::{Embedding, RunError, RunOptions, run};
