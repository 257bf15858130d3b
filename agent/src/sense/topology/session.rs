//! Requests to an API server of Kubernetes on one kept connection: reads, and watches of one object.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use kube::core::WatchEvent;
use outrider_protocol::UnknownCause;
use serde_json::Value;

use crate::net::{Connection, Failure, Limits};
use crate::sense::credentials::{Access, Answered, object};

/// Limit of one request that is answered at once.
pub(crate) const STEP: Duration = Duration::from_secs(4);
/// Largest object, and largest page of a list, in bytes.
const LARGEST: usize = 4 * 1024 * 1024;
/// How long one watch lasts, in seconds; then the object is read anew. A server that hangs is noticed within that time, and
/// what was missed is seen.
pub(super) const WATCH: u32 = 50;

/// The connection to one server.
pub(crate) struct Session {
    access: Access,
    connection: Option<Connection>,
}

impl Session {
    pub(crate) fn new(access: Access) -> Self {
        Self { access, connection: None }
    }

    pub(crate) fn server(&self) -> String {
        self.access.server()
    }

    /// One request; what its answer says, whatever its status.
    pub(crate) async fn send(
        &mut self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Answered, Failure> {
        let is_kept = self.connection.is_some();
        let request = self.ready(request).await?;
        match self.exchange(request.clone()).await {
            // A server may close what it kept open, at any time; that says nothing of the next connection.
            Err(failure) if is_kept && failure.cause == UnknownCause::Unreachable => {
                self.connection = Some(self.access.open().await?);
                self.exchange(request).await
            }
            outcome => outcome,
        }
    }

    async fn exchange(&mut self, request: http::Request<Bytes>) -> Result<Answered, Failure> {
        let connection = self.connection.as_mut().ok_or_else(closed)?;
        let limits = Limits { body: LARGEST, deadline: STEP };
        match connection.exchange(request, limits).await {
            Ok(answer) => Ok(self.access.answered(answer)),
            Err(failure) => {
                self.connection = None;
                Err(self.access.without_secret(failure))
            }
        }
    }

    /// The object in the answer; none for 404. The failure of any other answer names the request.
    pub(super) async fn read(
        &mut self,
        what: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Option<Value>, Failure> {
        let answered = self.send(request).await?;
        object(&answered).map_err(|failure| failure.during(what))
    }

    /// Follows a watch until it ends; what is `Err` has to be read anew after a pause.
    pub(super) async fn watch(
        &mut self,
        what: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        mut on: impl FnMut(WatchEvent<Value>),
    ) -> Result<(), Failure> {
        let request = self.ready(request).await?;
        let connection = self.connection.as_mut().ok_or_else(closed)?;
        let limit = Duration::from_secs(WATCH.into()) + STEP;
        let (mut rest, mut refused) = (Vec::new(), None);
        let head = connection
            .exchange_into(request, limit, |chunk| {
                rest.extend_from_slice(chunk);
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    match serde_json::from_slice::<WatchEvent<Value>>(&line) {
                        Ok(WatchEvent::Error(status)) => refused = Some(status),
                        Ok(event) => on(event),
                        // An answer that is no watch is judged by its status, below.
                        Err(_) => rest.extend(line),
                    }
                    if refused.is_some() || rest.ends_with(b"\n") {
                        break;
                    }
                }
                if rest.len() > LARGEST || refused.is_some() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })
            .await;
        let head = match head {
            Ok(head) => head,
            Err(failure) => {
                self.connection = None;
                return Err(self.access.without_secret(failure));
            }
        };
        if head.status != StatusCode::OK {
            let answered = self.access.answered(crate::net::Answer { head, body: rest.into() });
            return match object(&answered) {
                Err(failure) => Err(failure.during(what)),
                Ok(_) => {
                    Err(Failure::new(UnknownCause::InvalidAnswer, format!("{what}: no watch came of it")))
                }
            };
        }
        match refused {
            // Too old a version: it is read anew, which is no failure.
            Some(status) if status.code == 410 => Ok(()),
            Some(status) => {
                let why = format!("{what} ended with {}: {}", status.code, status.message);
                Err(Failure::new(UnknownCause::Unavailable, why))
            }
            None => Ok(()),
        }
    }

    async fn ready(
        &mut self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<http::Request<Bytes>, Failure> {
        let unusable =
            |e: String| Failure::new(UnknownCause::InvalidInput, format!("no request to make: {e}"));
        let request = request.map_err(|e| unusable(e.to_string()))?;
        if !self.connection.as_ref().is_some_and(Connection::is_open) {
            self.connection = Some(self.access.open().await?);
        }
        self.access.signed(request)
    }
}

fn closed() -> Failure {
    Failure::new(UnknownCause::Unreachable, "the connection is closed")
}
