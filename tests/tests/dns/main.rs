//! The checks `dns` and `rancher-agent` as a person runs them, against real dnsmasq: each fault is made for real, in a
//! network and a mount namespace of the test's own, so that `/etc/resolv.conf`, `/etc/hosts` and port 53 are the ones
//! glibc uses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod bed;
mod failing;
mod faults;
mod pods;
mod screen;
mod stand_ins;
