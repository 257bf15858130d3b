//! Every answer that is no success: an [`ApiError`] with a reason, a message and what to do.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use outrider_protocol::ApiError;

/// What a handler returns instead of an answer.
#[derive(Debug)]
pub struct Failure {
    /// Boxed so that a result stays small on the way that mostly succeeds.
    error: Box<ApiError>,
    retry_after: Option<Duration>,
    close: bool,
}

/// The result of a handler.
pub(crate) type Answer<T> = Result<T, Failure>;

impl Failure {
    /// A failure with this status, reason, message and advice.
    pub(crate) fn new(
        code: StatusCode,
        reason: &str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        ApiError::new(code.as_u16(), reason, message, advice).into()
    }

    /// 400: the request cannot be understood.
    pub(crate) fn bad_request(reason: &str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason, message, advice)
    }

    /// 404: there is no such thing.
    pub(crate) fn not_found(kind: &str, name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            format!("no {kind} {name:?} is known"),
            format!("List what there is: GET /v1/{kind}s."),
        )
    }

    /// Says when to try again, in whole seconds rounded up.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Says that the same would be refused again.
    pub(crate) fn permanent(mut self) -> Self {
        self.error.permanent = true;
        self
    }

    /// Ends the connection after the answer.
    pub(crate) fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// The error as it will be sent.
    pub fn error(&self) -> &ApiError {
        &self.error
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self { error: Box::new(error), retry_after: None, close: false }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = Bytes::from(serde_json::to_vec(&*self.error).unwrap_or_default());
        let mut response = Response::new(body.into());
        *response.status_mut() =
            StatusCode::from_u16(self.error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(60)));
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.error.code == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
