//! The first bytes of a connection: TLS, or something that tells what stands in front of the port.

use tokio::net::TcpStream;

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// A TLS record, or too little to say otherwise: the handshake decides.
    Tls,
    /// Plain HTTP.
    Http,
    /// The PROXY protocol of a balancer.
    ProxyProtocol,
    /// Nothing that belongs on this port.
    Foreign,
    /// Closed without a byte, as health checks of balancers do.
    Nothing,
}

const METHODS: [&[u8]; 9] = [b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "];
/// Beginning of the binary PROXY protocol.
const PROXY_V2: &[u8] = b"\r\n\r\n";

impl Hello {
    /// Waits for the first bytes and reads them without taking them.
    pub(crate) async fn of(stream: &TcpStream) -> std::io::Result<Self> {
        let mut first = [0; 4];
        let n = stream.peek(&mut first).await?;
        Ok(Self::read(first.get(..n).unwrap_or_default()))
    }

    fn read(first: &[u8]) -> Self {
        // A client that sends its first bytes one by one is no HTTP client of ours: TLS will wait for the rest.
        match first {
            [] => Hello::Nothing,
            [0x16, ..] => Hello::Tls,
            b"PROX" => Hello::ProxyProtocol,
            head if head == PROXY_V2 => Hello::ProxyProtocol,
            head if METHODS.contains(&head) => Hello::Http,
            head if head.len() < 4 => Hello::Tls,
            _ => Hello::Foreign,
        }
    }
}

/// The whole answer to plain HTTP on this port.
pub(crate) fn plain_http_answer() -> Vec<u8> {
    let error = outrider_protocol::ApiError::new(
        400,
        "TlsExpected",
        "this port speaks TLS and was sent plain HTTP",
        "Use https:// in the URL. If it says so already, a balancer or ingress in front ends TLS: agents show a \
         client certificate, so the port needs TCP pass-through (L4).",
    );
    let body = serde_json::to_string(&error).unwrap_or_default();
    let length = body.len();
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_stands_in_front() {
        for (first, hello) in [
            (&b"\x16\x03\x01\x02"[..], Hello::Tls),
            (b"\x16", Hello::Tls),
            (b"GET ", Hello::Http),
            (b"POST", Hello::Http),
            (b"PRI ", Hello::Http),
            (b"PROX", Hello::ProxyProtocol),
            (b"\r\n\r\n", Hello::ProxyProtocol),
            (b"SSH-", Hello::Foreign),
            (b"", Hello::Nothing),
        ] {
            assert_eq!(Hello::read(first), hello, "{first:?}");
        }
    }

    #[test]
    fn the_plain_answer_is_whole() {
        let answer = String::from_utf8(plain_http_answer()).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        assert!(serde_json::from_str::<outrider_protocol::ApiError>(body).is_ok());
    }
}
