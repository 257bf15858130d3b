//! Credentials of every kind: kubeconfigs on a disk and a server over TLS that accepts, refuses or has forgotten them.
//!
//! The sensor is the agent's own, the verdict that of the real rules by a clock that is kept (this machine's may not be).
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod bed;
mod cloud;
mod files;
mod kubeconfigs;
mod rancher_cluster;
