//! A refusal read before it is lost.
//!
//! In TLS 1.3 a server judges the client's certificate after the handshake has ended for the client. It sends its
//! alert and closes while the client is already writing; the write then fails with a broken pipe, and whoever stops
//! there never reads why. [`AlertFirst`] looks for the alert at that moment and lets the write fail with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TLS stream whose failing writes tell the peer's alert, if it sent one.
#[derive(Debug)]
pub(super) struct AlertFirst<S> {
    inner: S,
    broken: Broken,
    /// What was read while looking for an alert and was data after all.
    found: Option<u8>,
}

/// Whether writing has failed.
#[derive(Debug)]
enum Broken {
    No,
    /// It has; why is being read.
    Asking(io::Error),
    /// It has, and the reason was told.
    Told,
}

impl<S: AsyncRead + Unpin> AlertFirst<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, broken: Broken::No, found: None }
    }

    /// Keeps a failure back until the peer's last word has been read. That word is on its way or there: the peer has
    /// closed, so the read ends, if only with the end of the stream.
    fn explained<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        use io::ErrorKind as K;
        match (result, &self.broken) {
            (Poll::Ready(Err(error)), Broken::No)
                if matches!(error.kind(), K::BrokenPipe | K::ConnectionReset | K::ConnectionAborted) =>
            {
                self.broken = Broken::Asking(error);
                self.ask(cx)
            }
            (result, _) => result,
        }
    }

    fn ask<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let word = ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buffer));
        self.found = buffer.filled().first().copied();
        let broken = std::mem::replace(&mut self.broken, Broken::Told);
        Poll::Ready(Err(match (word, broken) {
            (Err(alert), _) if alert.get_ref().is_some_and(|e| e.is::<rustls::Error>()) => alert,
            (_, Broken::Asking(error)) => error,
            _ => io::ErrorKind::BrokenPipe.into(),
        }))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AlertFirst<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(byte) = self.found.take()
        {
            buffer.put_slice(&[byte]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for AlertFirst<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if let Broken::Asking(_) = self.broken {
            return self.ask(cx);
        }
        let result = Pin::new(&mut self.inner).poll_write(cx, data);
        self.explained(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Broken::Asking(_) = self.broken {
            return self.ask(cx);
        }
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.explained(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Refuses to be written to; what is read is given, and only at the second try.
    struct Closed(Option<io::Result<Vec<u8>>>, bool);

    impl AsyncRead for Closed {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if !std::mem::replace(&mut self.1, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.0.take() {
                Some(Ok(mut bytes)) => {
                    let rest = bytes.split_off(bytes.len().min(buffer.remaining()));
                    buffer.put_slice(&bytes);
                    self.0 = (!rest.is_empty()).then_some(Ok(rest));
                    Poll::Ready(Ok(()))
                }
                Some(Err(error)) => Poll::Ready(Err(error)),
                None => Poll::Ready(Ok(())),
            }
        }
    }

    impl AsyncWrite for Closed {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_failing_write_tells_the_alert() {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA);
        let inner = Closed(Some(Err(io::Error::new(io::ErrorKind::InvalidData, alert))), false);
        let error = AlertFirst::new(inner).write_all(b"x").await.unwrap_err();
        assert_eq!(crate::net::Failure::from(error).cause, outrider_protocol::UnknownCause::Unauthenticated);
    }

    #[tokio::test]
    async fn without_an_alert_the_write_fails_as_it_did_and_nothing_read_is_lost() {
        let mut stream = AlertFirst::new(Closed(Some(Ok(b"early answer".to_vec())), false));
        assert_eq!(stream.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(stream.flush().await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "early answer");
    }
}
