//! The built program as people and scripts call it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly, its helpers as well")]

mod fleet;
mod local;
mod support;
mod sync;
mod up;
mod userdata;
