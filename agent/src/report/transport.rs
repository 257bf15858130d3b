//! How a connection to the coordinator is opened: over the network, or however a test or a load generator likes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::net::{Connection, Dialer, Failure, ProxySettings, Url};

/// Limit for connecting to one address.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A connection on its way.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Connection, Failure>> + Send + 'a>>;

/// Opens connections.
pub trait Transport: Send + Sync {
    /// A connection to the server of `url`, with `tls` for trust and identity.
    fn open<'a>(&'a self, url: &'a Url, tls: Arc<ClientConfig>) -> Opening<'a>;
}

/// The network, through a proxy where one is set.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Proxies.
    pub proxy: ProxySettings,
}

impl Transport for Network {
    fn open<'a>(&'a self, url: &'a Url, tls: Arc<ClientConfig>) -> Opening<'a> {
        let dialer =
            Dialer { tls, proxy: self.proxy.clone(), resolve: Default::default(), limit: CONNECT_LIMIT };
        Box::pin(async move { dialer.open(url).await })
    }
}
