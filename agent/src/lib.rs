//! The node agent: sense -> decide -> act -> report.

pub mod config;
pub mod sense;
