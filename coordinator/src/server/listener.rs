//! Binding and accepting.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::net::{TcpListener, TcpSocket};

use super::{Server, connection};
use crate::latches::Latch;

/// Connections that wait to be accepted: a whole fleet reconnects at once after a restart.
const BACKLOG: u32 = 4096;
/// First and longest pause after a failed accept.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error(
        "{address} is in use by another process (`ss -ltnp 'sport = :{}'` names it); stop it, or listen elsewhere with \
         --listen", address.port()
    )]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// Low ports are root's.
    #[error(
        "{address} may not be listened on: ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one"
    )]
    Forbidden {
        /// The address.
        address: SocketAddr,
    },
    /// No interface has it.
    #[error("no interface of this machine has the address {}; use one it has, or 0.0.0.0 or [::] for all", address.ip())]
    NotHere {
        /// The address.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("cannot listen on {address}")]
    Other {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Listens on `address`; port 0 takes a free one.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restart must not wait for old connections in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        io::ErrorKind::AddrNotAvailable => BindError::NotHere { address },
        io::ErrorKind::PermissionDenied => BindError::Forbidden { address },
        _ => BindError::Other { address, source },
    })
}

/// Accepts connections until it is dropped. When files run out it waits, says so once, and goes on when some are free.
pub(crate) async fn accept(server: Arc<Server>, listener: TcpListener) {
    let app = &server.app;
    let mut pause = PAUSES.0;
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                if pause != PAUSES.0 {
                    pause = PAUSES.0;
                    if app.latches.clear(Latch::OpenFiles) {
                        log::info!("connections are accepted again");
                    }
                }
                connection::spawn(server.clone(), stream, remote);
            }
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                let why = format!("accepting connections fails: {error}");
                if app.latches.raise(Latch::OpenFiles, &why) {
                    log::error!("{why}; raise LimitNOFILE= of the unit; trying again");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

/// The connection ended before it was accepted; the listener is well.
fn is_of_the_connection(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(
            Errno::ECONNABORTED
                | Errno::ECONNRESET
                | Errno::EPROTO
                | Errno::EINTR
                | Errno::ENETDOWN
                | Errno::EHOSTUNREACH
        )
    )
}
