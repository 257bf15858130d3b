//! One question at one server: UDP, twice at most, and TCP when the answer came cut.
//!
//! The kernel picks the source port and the number is random; what does not carry our number and our question is waited
//! past, so that nobody who cannot see the question can answer it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use outrider_protocol::{DnsAnswer, UnknownCause};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use super::message::{Family, Read, answer, question};
use crate::net::{Failure, within};

/// How long one try waits; a question is tried [`TRIES`] times, for one lost packet is no news.
const TRY: Duration = Duration::from_millis(1500);
const TRIES: u32 = 2;
/// Datagrams that are not ours before a server is given up: a flood must not keep us busy.
const MAX_FOREIGN: usize = 64;

/// Asks `server` for the addresses of `name`, which is taken as absolute.
pub(super) async fn ask(server: SocketAddr, name: &str, family: Family) -> Result<DnsAnswer, Failure> {
    let start = Instant::now();
    let id: u16 = rand::random();
    let bytes = question(id, name, family).map_err(|why| Failure::new(UnknownCause::InvalidInput, why))?;
    let mut found = over_udp(server, &bytes, id, name, family).await?;
    if found.truncated {
        match within(TRY * TRIES, "TCP", over_tcp(server, &bytes, id, name, family)).await {
            Ok(whole) => found = DnsAnswer { truncated: true, ..whole },
            Err(failure) => found.tcp_failure = failure.detail,
        }
    }
    found.ms = u32::try_from(start.elapsed().as_millis()).unwrap_or(u32::MAX);
    Ok(found)
}

async fn over_udp(
    server: SocketAddr,
    bytes: &[u8],
    id: u16,
    name: &str,
    family: Family,
) -> Result<DnsAnswer, Failure> {
    let any: SocketAddr =
        if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).await?;
    // Connected: only this server's packets come in, and a closed port is told to us.
    socket.connect(server).await?;
    let mut buffer = [0; 4096];
    let mut foreign = 0;
    for _ in 0..TRIES {
        socket.send(bytes).await?;
        let deadline = Instant::now() + TRY;
        while let Ok(received) = timeout_at(deadline, socket.recv(&mut buffer)).await {
            match answer(&buffer[..received?], id, name, family) {
                Read::Answer(found) => return Ok(*found),
                Read::Broken(why) => return Err(Failure::new(UnknownCause::InvalidAnswer, why)),
                Read::Foreign if foreign >= MAX_FOREIGN => {
                    let detail = format!("{foreign} datagrams that answer another question");
                    return Err(Failure::new(UnknownCause::InvalidAnswer, detail));
                }
                Read::Foreign => foreign += 1,
            }
        }
    }
    let mut failure = Failure::timed_out(format!("{server}, asked {TRIES} times"), TRY * TRIES);
    if foreign > 0 {
        failure.detail = format!("{}; {foreign} datagrams answered another question", failure.detail);
    }
    Err(failure)
}

async fn over_tcp(
    server: SocketAddr,
    bytes: &[u8],
    id: u16,
    name: &str,
    family: Family,
) -> Result<DnsAnswer, Failure> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len())
        .map_err(|_| Failure::new(UnknownCause::InvalidInput, "the question is too long"))?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    // The length is the server's word, and at most 65535.
    let length = stream.read_u16().await?;
    let mut whole = vec![0; usize::from(length)];
    stream.read_exact(&mut whole).await?;
    match answer(&whole, id, name, family) {
        Read::Answer(found) => Ok(*found),
        Read::Broken(why) => Err(Failure::new(UnknownCause::InvalidAnswer, why)),
        Read::Foreign => Err(Failure::new(UnknownCause::InvalidAnswer, "the answer is to another question")),
    }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::DnsCode;
    use tokio::net::TcpListener;

    use super::*;

    /// The question turned into an answer with `flags` and no record.
    fn answered(question: &[u8], flags: [u8; 2]) -> Vec<u8> {
        let mut bytes = question.to_vec();
        bytes[2..4].copy_from_slice(&flags);
        bytes
    }

    async fn server(answers: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((n, peer)) = socket.recv_from(&mut buffer).await {
                for answer in answers(&buffer[..n]) {
                    let _ = socket.send_to(&answer, peer).await;
                }
            }
        });
        address
    }

    #[tokio::test]
    async fn a_foreign_number_is_waited_past() {
        let address = server(|question| {
            let good = answered(question, [0x81, 0x83]);
            let mut bad = answered(question, [0x81, 0x80]);
            bad[0] ^= 0xff;
            vec![bad, b"junk".to_vec(), good]
        })
        .await;
        assert_eq!(ask(address, "a.example", Family::V4).await.unwrap().code, DnsCode::NxDomain);
    }

    #[tokio::test]
    async fn a_closed_port_is_told_from_silence_and_a_flood_is_given_up() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let failure = ask(silent.local_addr().unwrap(), "a.example", Family::V4).await.unwrap_err();
        assert_eq!(failure.cause, UnknownCause::TimedOut, "{failure}");
        let closed = silent.local_addr().unwrap();
        drop(silent);
        let failure = ask(closed, "a.example", Family::V4).await.unwrap_err();
        assert_eq!(failure.cause, UnknownCause::ConnectionRefused, "{failure}");
        let flood = server(|question| {
            let mut bad = answered(question, [0x81, 0x80]);
            bad[1] ^= 0xff;
            vec![bad; 100]
        })
        .await;
        let failure = ask(flood, "a.example", Family::V4).await.unwrap_err();
        assert_eq!(failure.cause, UnknownCause::InvalidAnswer, "{failure}");
    }

    #[tokio::test]
    async fn a_cut_answer_is_asked_again_over_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(address).await.unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((n, peer)) = socket.recv_from(&mut buffer).await {
                let _ = socket.send_to(&answered(&buffer[..n], [0x83, 0x80]), peer).await;
            }
        });
        let tcp = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let length = stream.read_u16().await.unwrap();
            let mut question = vec![0; length.into()];
            stream.read_exact(&mut question).await.unwrap();
            let whole = answered(&question, [0x81, 0x83]);
            stream.write_u16(length).await.unwrap();
            stream.write_all(&whole).await.unwrap();
        });
        let found = ask(address, "a.example", Family::V6).await.unwrap();
        assert_eq!((found.code, found.truncated, found.tcp_failure.as_str()), (DnsCode::NxDomain, true, ""));
        tcp.await.unwrap();
        let found = ask(address, "a.example", Family::V6).await.unwrap();
        assert!(found.truncated && !found.tcp_failure.is_empty(), "{found:?}");
    }
}
