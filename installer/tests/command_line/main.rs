//! The built program as people and scripts call it.

mod fleet;
mod local;
mod support;
mod up;
