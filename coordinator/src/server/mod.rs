//! The listeners: TLS with an optional client certificate, HTTP/1.1, and limits on everything a caller can send.
//!
//! The way of a connection: [`gate`] gives it a place, [`hello`] looks what it begins with, the handshake tells who it
//! is ([`connection`], [`peer`]), [`exchange`] serves its requests. [`connections`] knows all of them, so that a revocation or a
//! shutdown reaches them.

mod connection;
pub(crate) mod connections;
mod exchange;
pub(crate) mod gate;
mod hello;
mod listener;
pub(crate) mod pace;
pub(crate) mod peer;
mod tap;
mod unreadable;

pub(crate) use gate::Gate;
pub use gate::Limits;
pub use listener::BindError;
pub(crate) use listener::{accept, bind};
pub use pace::Rate;

use std::sync::Arc;

use crate::app::App;

/// The TLS stream of a connection; boxed, so that it is handed on without being copied.
pub(crate) type Stream = Box<tokio_rustls::server::TlsStream<tokio::net::TcpStream>>;

/// What every connection serves.
pub(crate) struct Server {
    pub(crate) app: Arc<App>,
    pub(crate) router: axum::Router,
}

impl Server {
    /// The whole API over the parts of `app`.
    pub(crate) fn new(app: Arc<App>) -> Arc<Self> {
        Arc::new(Self { router: crate::api::router(app.clone()), app })
    }
}
