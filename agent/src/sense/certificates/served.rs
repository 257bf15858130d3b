//! What a port shows: one TLS handshake that ends cleanly, with nothing sent after it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use outrider_protocol::{CertificateFacts, Fact, ServedCertificate, UnknownCause};
use rustls::pki_types::CertificateDer;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::files;
use super::issuer::{Authority, signer};
use super::node::Port;
use crate::net::{Failure, connect, tls, within};
use crate::sense::SenseContext;

/// Limit for TCP, and again for the handshake.
const STEP: Duration = Duration::from_secs(3);

/// Asks one port, at the first of `addresses` where somebody listens.
pub(super) async fn look(
    cx: &SenseContext,
    port: &Port,
    addresses: &[IpAddr],
    authorities: &[Authority],
    names: &[String],
    deadline: Instant,
) -> ServedCertificate {
    let (peer, shown) = show(port.port, addresses, deadline).await;
    let chain = match &shown {
        Ok(Some(chain)) => match files::facts(chain, names) {
            Ok(facts) => Fact::known(facts, peer.as_str(), cx.now()),
            Err(failure) => failure.into_fact(peer.as_str(), cx.now()),
        },
        Ok(None) => Fact::not_applicable(format!("nobody listens at {peer}"), cx.now()),
        Err(failure) => failure.clone().into_fact(peer.as_str(), cx.now()),
    };
    let issuer = issuer(cx, port, shown.ok().flatten().as_deref(), &chain, authorities);
    ServedCertificate {
        name: port.name.to_owned(),
        port: port.port,
        peer,
        file: port.file_text(),
        authority: port.authority_text(),
        chain,
        issuer,
    }
}

fn issuer(
    cx: &SenseContext,
    port: &Port,
    shown: Option<&[CertificateDer<'static>]>,
    chain: &Fact<Vec<CertificateFacts>>,
    authorities: &[Authority],
) -> Fact<String> {
    let wanted = port.authority_text();
    let (Some(shown), Some(_)) = (shown, chain.value()) else {
        return Fact::not_applicable("no certificate was seen", cx.now());
    };
    if wanted.is_empty() {
        return Fact::not_applicable("made by the process for itself", cx.now());
    }
    let Some(at) = authorities.iter().position(|authority| authority.path() == wanted) else {
        let detail = format!("the authority's file {wanted} is missing or could not be read");
        return Fact::unknown(UnknownCause::InvalidInput, detail, wanted, cx.now());
    };
    match signer(shown, &authorities[at..=at]) {
        Ok(Some(path)) => Fact::known(path.to_owned(), wanted, cx.now()),
        Ok(None) => Fact::absent(wanted, cx.now()),
        Err(failure) => failure.into_fact(wanted, cx.now()),
    }
}

type Shown = Result<Option<Vec<CertificateDer<'static>>>, Failure>;

/// The chain that was sent; `None` when nobody listens.
async fn show(port: u16, addresses: &[IpAddr], deadline: Instant) -> (String, Shown) {
    let mut asked = Vec::new();
    for ip in addresses {
        let address = SocketAddr::new(*ip, port);
        asked.push(address.to_string());
        let left = || deadline.saturating_duration_since(Instant::now()).min(STEP);
        match connect(address, left()).await {
            Ok(stream) => return (address.to_string(), handshake(stream, *ip, left()).await.map(Some)),
            // An address family this machine lacks, or one that is not its own, has nobody either.
            Err(failure) if is_nobody(&failure) => {}
            Err(failure) => return (address.to_string(), Err(closes(failure))),
        }
    }
    (asked.join(", "), Ok(None))
}

fn is_nobody(failure: &Failure) -> bool {
    // A reset is somebody's: it tells nothing of the certificate, and clears nothing.
    failure.cause == UnknownCause::ConnectionRefused
        || failure.detail.contains("Network is unreachable")
        || failure.detail.contains("Cannot assign requested address")
        || failure.detail.contains("Address family not supported")
}

/// A reset, or an end before the handshake's, in words; it may come while connecting already.
fn closes(failure: Failure) -> Failure {
    match failure.cause {
        UnknownCause::Unreachable => failure.during("it closes at once"),
        _ => failure,
    }
}

async fn handshake(
    stream: tokio::net::TcpStream,
    ip: IpAddr,
    limit: Duration,
) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let observer = tls::Observing::without_roots();
    let config = tls::client_config(observer.clone(), None, &[])?;
    // By address: no server name is sent, see the module above.
    let name = ip.to_string();
    let shaken = within(limit, "TLS handshake", tls::handshake(stream, config, &name)).await;
    let seen = observer.take().map(|seen| seen.chain);
    match (shaken, seen) {
        (Ok(mut stream), Some(chain)) => {
            // The certificate is what we came for; a peer that does not wait for the goodbye has shown it all the same.
            let _ = tokio::time::timeout(Duration::from_millis(200), stream.shutdown()).await;
            Ok(chain)
        }
        // A port that wants a certificate of ours says so only after it has shown its own.
        (Err(failure), Some(chain)) if failure.detail.starts_with("the peer") => Ok(chain),
        // Of a certificate that was shown only the handshake's signature is verified, with its own key.
        (Err(failure), Some(chain)) if failure.cause == UnknownCause::TlsFailed => {
            Err(unverified(chain.first(), failure))
        }
        (Err(failure), _) => Err(closes(failure)),
        (Ok(_), None) => {
            Err(Failure::new(UnknownCause::TlsFailed, "the handshake ended without a certificate"))
        }
    }
}

/// Why the handshake's signature was not accepted: a kind of key that cannot be verified here, or another key.
fn unverified(leaf: Option<&CertificateDer<'static>>, failure: Failure) -> Failure {
    let parsed = leaf.and_then(|der| X509Certificate::from_der(der).ok());
    let key = parsed.as_ref().and_then(|(_, leaf)| leaf.public_key().parsed().ok());
    let odd = match &key {
        Some(PublicKey::RSA(key)) if key.key_size() < 2048 => {
            Some(format!("an RSA key of {} bits", key.key_size()))
        }
        Some(PublicKey::RSA(_)) => None,
        // With the byte in front, the two coordinates: 65 bytes on P-256, 97 on P-384.
        Some(PublicKey::EC(point)) if matches!(point.data().len(), 65 | 97) => None,
        Some(PublicKey::EC(point)) if point.data().len() == 133 => Some("an ECDSA key on P-521".to_owned()),
        Some(PublicKey::EC(_)) => Some("an ECDSA key on an unusual curve".to_owned()),
        // Ed25519 (RFC 8410) is verified, and not known to the parser.
        Some(PublicKey::Unknown(_)) | None => None,
        Some(_) => Some("a key of an unusual kind".to_owned()),
    };
    match odd {
        Some(kind) => Failure::new(
            UnknownCause::Unsupported,
            format!("its certificate has {kind}, whose signatures cannot be verified here"),
        ),
        None if failure.detail.contains("BadSignature") => Failure::new(
            UnknownCause::TlsFailed,
            "the signature of its handshake does not fit the key in its certificate (BadSignature): it was given another key",
        ),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    /// Certificates of keys that this build of rustls has no use for; their keys were thrown away.
    const RSA_1024: &str = "-----BEGIN CERTIFICATE-----
MIIB9DCCAV2gAwIBAgIULhw7UNcTTqw6n7v5Lxg+MJ48RIEwDQYJKoZIhvcNAQEL
BQAwDDEKMAgGA1UEAwwBbjAeFw0yNjExMjkxOTA2NTBaFw0zNjExMjYxOTA2NTBa
MAwxCjAIBgNVBAMMAW4wgZ8wDQYJKoZIhvcNAQEBBQADgY0AMIGJAoGBAMDr83Is
eeHrUXQG67Q/DPmBnr5Z9bImbsx3480ZLXkf64TiCW7EFI22F/xby5Bj7OFO2aNq
mijXm2zx3KiARXgUzQ3/L9kcDn66xQ42ICGHVeQ/dJCTT5dUcmhBf+gTLT1p6dhF
DX020LOTIOFtowRzR9R/rx0cZ3ZxutyPmW1/AgMBAAGjUzBRMB0GA1UdDgQWBBRw
zMMMq4U6ArWXiaTXCG1YPGMtgzAfBgNVHSMEGDAWgBRwzMMMq4U6ArWXiaTXCG1Y
PGMtgzAPBgNVHRMBAf8EBTADAQH/MA0GCSqGSIb3DQEBCwUAA4GBAJUWZFS+rULK
GOEXufZeZ8NbfBHgmrzVC0nEM3YmHjq/eD86yKewy/Vw9iNHvcePDE5OgLFV0z4X
sDv9/Bjnl8H76C1PB/zOU5a7jsuQXGuwTWrNBpn4+nuycqoCBgm4ujDKFJh1WomZ
rqMGW7vd2zIPcLVz3OzSzeRBhhv/YB/t
-----END CERTIFICATE-----";
    const P_521: &str = "-----BEGIN CERTIFICATE-----
MIIB9DCCAVagAwIBAgIUOB3AerUUrmmP2mt2iHaetUdXM/0wCgYIKoZIzj0EAwQw
DDEKMAgGA1UEAwwBbjAeFw0yNjExMjkxOTA2NTBaFw0zNjExMjYxOTA2NTBaMAwx
CjAIBgNVBAMMAW4wgZswEAYHKoZIzj0CAQYFK4EEACMDgYYABADzLbkvCLtei0hW
T+JkFNGCw+yyjQipUV2i5sRfnB7qLgCAH/GYQ125EdUc8IXox30G/EKY5tL/JtFz
tr3DnNiJIADCWW1eVEnGy0APfQaKgFIKCBdpOiPxPYerazgLaHHqCWwahA+eT3bO
9dOV3+NeaFlE69FN7dKmKg3rtX379lls+aNTMFEwHQYDVR0OBBYEFFn7+A3R5XyG
RLC7Hfd2Sp+nJdp7MB8GA1UdIwQYMBaAFFn7+A3R5XyGRLC7Hfd2Sp+nJdp7MA8G
A1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwQDgYsAMIGHAkF/irYEf5gpvoZwLlpC
v5aXhlxsA8PAftQ9hy6we432Fz4KPIC4RanIO6U8/c9Z0loirCu0MrLL+r2XmtWN
++slnwJCAI56wr+X+6wNU9etad2o2UPT5g4i/xCb5LY+eEyRvWeAQb5UWvvtxaBa
z0OsjYC3o8/J1wnD81rx5ef61o1aH/8H
-----END CERTIFICATE-----";

    const HERE: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

    #[tokio::test]
    async fn a_closed_port_has_nobody() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (peer, shown) = show(port, &HERE, soon()).await;
        assert_eq!((peer, shown), (format!("127.0.0.1:{port}"), Ok(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_hangs_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (_, shown) = show(port, &HERE, soon()).await;
        assert_eq!(shown.unwrap_err().cause, UnknownCause::TimedOut);
    }

    #[tokio::test]
    async fn a_port_that_speaks_no_tls_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream
        };
        let ((_, shown), _) = tokio::join!(show(port, &HERE, soon()), server);
        assert_eq!(shown.unwrap_err().cause, UnknownCause::TlsFailed);
    }

    #[tokio::test]
    async fn a_reset_is_somebody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_zero_linger().unwrap();
        };
        let ((_, shown), ()) = tokio::join!(show(port, &HERE, soon()), server);
        let failure = shown.unwrap_err();
        assert_eq!(failure.cause, UnknownCause::Unreachable);
        assert!(failure.detail.contains("closes at once"), "{failure}");
        assert!(!is_nobody(&Failure::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset))));
    }

    #[test]
    fn a_key_that_cannot_be_verified_is_named_and_another_key_is_told() {
        let bad = || Failure::new(UnknownCause::TlsFailed, "does not fit the authority (BadSignature)");
        let of = |algorithm| {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let params = rcgen::CertificateParams::new(vec!["n1".to_owned()]).unwrap();
            unverified(Some(params.self_signed(&key).unwrap().der()), bad())
        };
        let p256 = of(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert!(p256.detail.contains("another key"), "{p256}");
        // Ed25519 is verified like the others.
        assert!(of(&rcgen::PKCS_ED25519).detail.contains("another key"));
        for (pem, words) in [(RSA_1024, "an RSA key of 1024 bits"), (P_521, "an ECDSA key on P-521")] {
            let chain = crate::net::certificate::certificates(pem.as_bytes()).unwrap();
            let odd = unverified(chain.first(), bad());
            assert_eq!(odd.cause, UnknownCause::Unsupported, "{odd}");
            assert!(odd.detail.contains(words), "{odd}");
        }
    }
}
