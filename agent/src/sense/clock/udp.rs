//! One question to a service of this machine, and its answer.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use outrider_protocol::UnknownCause;

/// An answer, or why there is none.
pub(super) type Asked = Result<Vec<u8>, (UnknownCause, String)>;

/// Wait for one answer, and questions that are asked again.
const WAIT: Duration = Duration::from_millis(250);
const TRIES: u32 = 2;

/// Asks at the first of several addresses that answers.
pub(super) struct Socket {
    addresses: Vec<SocketAddr>,
    open: Option<UdpSocket>,
}

impl Socket {
    pub(super) fn open(addresses: &[SocketAddr]) -> Self {
        Self { addresses: addresses.to_vec(), open: None }
    }

    /// The first answer that is ours.
    pub(super) fn exchange(&mut self, request: &[u8], is_ours: impl Fn(&[u8]) -> bool) -> Asked {
        if let Some(socket) = &self.open {
            return once(socket, request, &is_ours);
        }
        let mut last = (UnknownCause::Unreachable, "no address to ask".to_owned());
        for address in &self.addresses {
            let socket = match connected(*address) {
                Ok(socket) => socket,
                Err(e) => {
                    last = failed(*address, &e);
                    continue;
                }
            };
            match once(&socket, request, &is_ours) {
                Ok(answer) => {
                    self.open = Some(socket);
                    return Ok(answer);
                }
                // Of two addresses the one that says more is told of.
                Err(e) if last.0 != UnknownCause::TimedOut => last = e,
                Err(_) => {}
            }
        }
        Err(last)
    }
}

fn connected(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let own: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(own)?;
    socket.connect(address)?;
    Ok(socket)
}

fn once(socket: &UdpSocket, request: &[u8], is_ours: &impl Fn(&[u8]) -> bool) -> Asked {
    let peer = socket.peer_addr().map_or_else(|_| "the service".to_owned(), |peer| peer.to_string());
    let io = |e: &std::io::Error| match socket.peer_addr() {
        Ok(address) => failed(address, e),
        Err(_) => (UnknownCause::IoError, e.to_string()),
    };
    let mut buffer = [0; 2048];
    for _ in 0..TRIES {
        socket.send(request).map_err(|e| io(&e))?;
        let end = Instant::now() + WAIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left)).map_err(|e| io(&e))?;
            match socket.recv(&mut buffer) {
                Ok(length) if is_ours(&buffer[..length]) => return Ok(buffer[..length].to_vec()),
                // An answer to an earlier question.
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(e) => return Err(io(&e)),
            }
        }
    }
    Err((UnknownCause::TimedOut, format!("{peer}/udp does not answer")))
}

fn failed(address: SocketAddr, error: &std::io::Error) -> (UnknownCause, String) {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            (UnknownCause::ConnectionRefused, format!("nothing listens at {address}/udp"))
        }
        ErrorKind::PermissionDenied => (UnknownCause::PermissionDenied, format!("{address}/udp: {error}")),
        _ => (UnknownCause::Unreachable, format!("{address}/udp: {error}")),
    }
}
