//! The network as sensors and delivery use it: one way to connect, to trust, to ask, and to fail.
//!
//! Everything here has a limit: an address that swallows packets, a server that drips bytes and a body without end
//! cost their time and size and no more. Every error becomes a [`Failure`], a cause from the protocol's list and a
//! sentence, in one place, so that "refused" means the same at etcd, at a load balancer and at the coordinator.
//!
//! The tour: [`Url`] (what is accepted as an address), [`resolve`] and [`connect`], [`tls`] (roots, pins, observing),
//! [`Connection`] (HTTP/1.1 on one connection), [`Http2`] (HTTP/2 on one), [`Grpc`] (calls on one), [`Heard`] (what a peer said first), [`proxy`] (CONNECT and NO_PROXY), [`Dialer`] (all of them in a row).

mod alert;
#[cfg(test)]
pub(crate) mod authority;
pub mod certificate;
mod connect;
mod dial;
mod failure;
mod grpc;
mod heard;
mod http;
mod http2;
pub mod proxy;
pub mod tls;
#[cfg(test)]
mod tls_tests;
mod url;

pub use connect::{Resolve, Silence, connect, resolve};
pub use dial::{BoxedStream, Dialer, Stream, open, open_watched};
pub use failure::{Failure, within};
pub use grpc::{Grpc, NoMessage, Refusal};
pub use heard::{Heard, Listened};
pub use http::{Answer, Connection, Head, Limits, USER_AGENT};
pub use http2::Http2;
pub use proxy::ProxySettings;
pub use url::{Url, UrlError, without_query};
