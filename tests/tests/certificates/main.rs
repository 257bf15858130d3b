//! The check `certificates` as a person runs it, on an RKE2 server's files and ports: a real etcd on 2379 and 2380, a real
//! kube-apiserver on 6443 where that could be built (`kube_apiserver`), and `openssl s_server` standing in for the
//! supervisor and the kubelet, and for an API server that has what no real one would take (like them it reads its files
//! when it starts; unlike the newer of them, never again).
//!
//! Everything lies at its usual path and listens at its usual port, in a mount and a network namespace of the test's own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod files;
mod kube_apiserver;
mod node;
mod others;
mod ports;
mod screens;
