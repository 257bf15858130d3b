//! `/metrics` of the agent (`report.metrics_listen`): what the textfile holds, for a Prometheus that scrapes by itself.
//!
//! Plain HTTP without authentication, so it listens on loopback unless the operator gives another address. It answers
//! from the last verdict; a scrape reads nothing of the machine. Clients are bounded in number and time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::local::{Ask, Question};

/// Scrapers served at the same time.
const CLIENTS: usize = 4;
/// How long a connection may last.
const CONNECTION: Duration = Duration::from_secs(60);
/// Between tries to take a port that is in use.
const RETRY: Duration = Duration::from_secs(30);

/// Serves until dropped. A port that cannot be taken is said and tried again: it is no reason to stop watching.
pub async fn serve(address: SocketAddr, questions: mpsc::Sender<Question>) {
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                log::error!("report.metrics_listen {address} cannot be taken: {error}; trying again")
            }
        }
        sleep(RETRY).await;
    };
    log::info!("metrics at http://{address}/metrics");
    let clients = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok(permit) = clients.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let questions = questions.clone();
                tokio::spawn(async move {
                    let _permit = permit;
                    let _ = timeout(CONNECTION, connection(stream, questions)).await;
                });
            }
            Err(error) => {
                log::debug!("a scraper cannot be accepted: {error}");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, questions: mpsc::Sender<Question>) {
    let service = service_fn(move |request| answer(request, questions.clone()));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10)).max_buf_size(8192);
    // A client that breaks off is its own affair.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    questions: mpsc::Sender<Question>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => match ask(questions).await {
            Some(text) => (StatusCode::OK, Bytes::from(text)),
            None => (StatusCode::SERVICE_UNAVAILABLE, Bytes::from_static(b"the agent is stopping\n")),
        },
        (&Method::GET, _) => (StatusCode::NOT_FOUND, Bytes::from_static(b"only /metrics is here\n")),
        _ => (StatusCode::METHOD_NOT_ALLOWED, Bytes::from_static(b"only GET is allowed\n")),
    };
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}

async fn ask(questions: mpsc::Sender<Question>) -> Option<Vec<u8>> {
    let (sender, receiver) = oneshot::channel();
    questions.send(Question { ask: Ask::Metrics, answer: sender }).await.ok()?;
    receiver.await.ok()
}
