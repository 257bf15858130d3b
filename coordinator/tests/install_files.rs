//! `/install/…` over real TLS: who gets what is served, whole and in parts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail loudly

mod support;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Full};
use outrider_protocol::hex;
use sha2::{Digest, Sha256};
use support::*;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const TAR: &str = "/install/outrider-agent-x86_64.tar.gz";

fn content() -> Vec<u8> {
    (0..300_000u32).map(|n| (n % 251) as u8).collect()
}

/// A coordinator with an archive and a package to serve, and one of another version.
async fn bed() -> Bed {
    let bed = Bed::start().await;
    let folder = bed.folder.path().join("install");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join(format!("outrider-agent-{VERSION}-x86_64.tar.gz")), content()).unwrap();
    std::fs::write(folder.join(format!("outrider-agent_{VERSION}-1_arm64.deb")), "deb").unwrap();
    std::fs::write(folder.join("outrider-agent_0.0.0-1_amd64.deb"), "of another version").unwrap();
    bed
}

async fn ask(bed: &Bed, method: Method, path: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, Bytes) {
    let mut connection = bed.stranger().open().await;
    let mut request = http::Request::builder().method(method).uri(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::default()).unwrap();
    let response =
        tokio::time::timeout(PATIENCE, connection.sender.send_request(request)).await.unwrap().unwrap();
    let (head, body) = response.into_parts();
    (head.status.as_u16(), head.headers, body.collect().await.unwrap().to_bytes())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().unwrap()
}

fn reason(body: &[u8]) -> String {
    serde_json::from_slice::<serde_json::Value>(body).unwrap()["reason"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_and_in_parts() {
    let bed = bed().await;
    let bearer = format!("Bearer {}", bed.token(1).await);
    let auth = ("authorization", bearer.as_str());
    let sum = hex(&Sha256::digest(content()));
    let etag = format!("\"{sum}\"");

    let (status, _, body) = ask(&bed, Method::GET, "/install/index.json", &[auth]).await;
    let index: outrider_protocol::InstallIndex = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, index.version.as_str(), index.items.len()), (200, VERSION, 2));
    let tar = index.items.iter().find(|item| item.family == "tar").unwrap();
    assert_eq!((tar.sha256.as_str(), tar.size, tar.architecture.as_str()), (sum.as_str(), 300_000, "x86_64"));

    let (status, headers, body) = ask(&bed, Method::GET, TAR, &[auth]).await;
    assert_eq!((status, &body[..]), (200, &content()[..]));
    assert_eq!(
        (headers["etag"].to_str().unwrap(), text(&headers, "accept-ranges")),
        (etag.as_str(), "bytes")
    );
    let by_file = format!("/install/outrider-agent-{VERSION}-x86_64.tar.gz");
    assert_eq!(ask(&bed, Method::GET, &by_file, &[auth]).await.2, body);

    let (status, headers, body) = ask(&bed, Method::HEAD, TAR, &[auth]).await;
    assert_eq!((status, body.len(), text(&headers, "content-length")), (200, 0, "300000"));

    let (status, headers, _) = ask(&bed, Method::HEAD, TAR, &[auth, ("range", "bytes=0-9")]).await;
    assert_eq!(
        (status, text(&headers, "content-length")),
        (200, "300000"),
        "a part is asked for by GET alone"
    );

    let (status, headers, body) = ask(&bed, Method::GET, TAR, &[auth, ("range", "bytes=299990-")]).await;
    assert_eq!((status, &body[..]), (206, &content()[299_990..]));
    assert_eq!(headers["content-range"], "bytes 299990-299999/300000");
    let ours = [auth, ("range", "bytes=0-9"), ("if-range", etag.as_str())];
    assert_eq!(ask(&bed, Method::GET, TAR, &ours).await.2.len(), 10);
    let others = [auth, ("range", "bytes=0-9"), ("if-range", "\"of another release\"")];
    assert_eq!(ask(&bed, Method::GET, TAR, &others).await.2.len(), 300_000);
    let (status, headers, _) = ask(&bed, Method::GET, TAR, &[auth, ("range", "bytes=300000-")]).await;
    assert_eq!((status, text(&headers, "content-range")), (416, "bytes */300000"));
    let (status, _, body) = ask(&bed, Method::GET, TAR, &[auth, ("if-none-match", &etag)]).await;
    assert_eq!((status, body.len()), (304, 0));

    let (status, _, body) = ask(&bed, Method::GET, "/install/", &[]).await;
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(status == 200 && text.contains(bed.coordinator.ca_checksum().as_str()), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_for_who_may_become_a_node() {
    let bed = bed().await;
    let token = bed.token(1).await;
    let status = async |bearer: &str| {
        let bearer = format!("Bearer {bearer}");
        let (status, _, body) = ask(&bed, Method::GET, TAR, &[("authorization", &bearer)]).await;
        (status, if status == 200 { String::new() } else { reason(&body) })
    };
    let refused = |reason: &str| (401, reason.to_owned());
    assert_eq!(status(&token).await, (200, String::new()));
    assert_eq!(status(bed.coordinator.operator_token()).await, (200, String::new()));
    let (code, _, body) = ask(&bed, Method::GET, TAR, &[]).await;
    assert_eq!((code, reason(&body).as_str()), (401, "Unauthenticated"));

    let mut wrong = token.clone();
    wrong.replace_range(token.len() - 3.., "xyz");
    assert_eq!(status(&wrong).await, refused("TokenUnknown"));
    let foreign = format!("OR1{}{}", "0".repeat(64), &token[67..]);
    assert_eq!(status(&foreign).await, refused("CaMismatch"));
    assert_eq!(status("garbage").await, (400, "TokenMalformed".to_owned()));

    // What was downloaded is no use of it; what enrolled is.
    let spent = bed.token(1).await;
    assert_eq!(status(&spent).await.0, 200);
    let agent = bed.enrol_by(&spent, "n1", "").await;
    assert_eq!(status(&spent).await, refused("TokenUsedUp"));
    // The node itself has its certificate now.
    assert_eq!(agent.client.get("/install/index.json").await.0, 200);

    let id = token[69..].split_once(':').unwrap().0.to_owned();
    assert_eq!(
        bed.operator().open().await.call(Method::DELETE, &format!("/v1/tokens/{id}"), None).await.0,
        200
    );
    assert_eq!(status(&token).await, refused("TokenRevoked"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_name_leads_elsewhere() {
    let bed = bed().await;
    let bearer = format!("Bearer {}", bed.coordinator.operator_token());
    for path in [
        "/install/..%2Foperator.token",
        "/install/%2e%2e%2fca%2fca.pem",
        "/install/../operator.token",
        "/install/outrider-agent_0.0.0-1_amd64.deb",
        "/install/%00",
        "/install/a/b",
    ] {
        let (status, _, body) = ask(&bed, Method::GET, path, &[("authorization", &bearer)]).await;
        assert!([400, 404].contains(&status), "{path}: {status}");
        assert!(!String::from_utf8_lossy(&body).contains("OR1"), "{path}");
    }
}
