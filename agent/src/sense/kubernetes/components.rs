//! The kubelet and the API server of this node, asked on loopback as Rancher's own probes do
//! (`facts/rke2-k3s-on-disk.md`, section 8; rancher/rancher: pkg/capr/planner/probe.go).
//!
//! We show no credential: with `anonymous-auth=false`, as RKE2 and K3s set it, the API server answers 401, and that is
//! an answer of a living server.

use std::time::Duration;

use bytes::Bytes;
use outrider_protocol::{ComponentAnswer, Fact};

use crate::net::{Dialer, Failure, Limits, ProxySettings, Resolve, Url, tls};
use crate::sense::SenseContext;

const LIMIT: Duration = Duration::from_secs(3);
const BODY: usize = 64 * 1024;
/// Characters of an answer that are kept.
const SAID: usize = 200;

/// `healthz` of the kubelet.
pub(super) async fn kubelet(cx: &SenseContext) -> Fact<ComponentAnswer> {
    ask(cx, "http://127.0.0.1:10248", "/healthz").await
}

/// `readyz` of the API server.
pub(super) async fn apiserver(cx: &SenseContext) -> Fact<ComponentAnswer> {
    ask(cx, "https://127.0.0.1:6443", "/readyz").await
}

async fn ask(cx: &SenseContext, base: &str, path: &str) -> Fact<ComponentAnswer> {
    match answer(base, path).await {
        Ok(answer) => Fact::known(answer, format!("{base}{path}"), cx.now()),
        Err(failure) => failure.into_fact(format!("{base}{path}"), cx.now()),
    }
}

async fn answer(base: &str, path: &str) -> Result<ComponentAnswer, Failure> {
    let url = Url::parse(base)
        .map_err(|e| Failure::new(outrider_protocol::UnknownCause::InvalidInput, e.to_string()))?;
    let observing = tls::Observing::without_roots();
    let dialer = Dialer {
        tls: tls::client_config(observing, None, &[b"http/1.1"])?,
        proxy: ProxySettings::default(),
        resolve: Resolve::new(),
        limit: LIMIT,
    };
    let mut connection = dialer.open(&url).await?;
    let request = http::Request::get(path)
        .body(Bytes::new())
        .map_err(|e| Failure::new(outrider_protocol::UnknownCause::InvalidInput, e.to_string()))?;
    let answer = connection.exchange(request, Limits { body: BODY, deadline: LIMIT }).await?;
    let text = String::from_utf8_lossy(&answer.body);
    let said = text.trim().chars().take(SAID).map(|c| if c.is_control() { ' ' } else { c }).collect();
    Ok(ComponentAnswer { status: answer.head.status.as_u16(), said })
}

#[cfg(test)]
mod tests {
    use outrider_protocol::UnknownCause;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn any_answer_is_an_answer_and_nobody_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 12\r\n\r\nUnauthorized";
            stream.write_all(answer).await.unwrap();
        });
        let cx = super::super::super::prepared::Machine::new().cx();
        let fact = ask(&cx, &base, "/readyz").await;
        assert_eq!(fact.value(), Some(&ComponentAnswer { status: 401, said: "Unauthorized".into() }));
        server.await.unwrap();
        let Fact::Unknown { cause, .. } = ask(&cx, &base, "/readyz").await else { panic!("nobody is there") };
        assert_eq!(cause, UnknownCause::ConnectionRefused);
    }
}
