//! What a peer said first, kept for the case that it was not what was expected.
//!
//! A port that was to speak TLS and answers `HTTP/1.1 400 Bad Request` says whose fault it is in those very bytes; a TLS
//! library only says that they were no TLS.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are kept; an error page of nginx fits.
const KEPT: usize = 512;

/// A stream whose first bytes are kept as they are read.
#[derive(Debug)]
pub struct Heard<S> {
    inner: S,
    kept: Listened,
}

/// The first bytes of a [`Heard`] stream, also after the stream was given away.
#[derive(Clone, Debug, Default)]
pub struct Listened(Arc<Mutex<Vec<u8>>>);

impl Listened {
    /// What has come so far, at most 512 bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = KEPT.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..wanted]);
    }
}

impl<S> Heard<S> {
    /// Listens to `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner, kept: Listened::default() }
    }

    /// A handle on what is heard.
    pub fn listened(&self) -> Listened {
        self.kept.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if let Some(new) = buffer.filled().get(before..).filter(|new| !new.is_empty()) {
            self.kept.keep(new);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn keeps_the_beginning_and_passes_everything_on() {
        let (near, mut far) = duplex(4096);
        let mut stream = Heard::new(near);
        let listened = stream.listened();
        far.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
        far.write_all(&[b'x'; 1000]).await.unwrap();
        let mut all = vec![0; 1026];
        stream.read_exact(&mut all).await.unwrap();
        stream.write_all(b"ok").await.unwrap();
        let mut back = [0; 2];
        far.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"ok");
        drop(stream);
        assert_eq!(listened.bytes(), all[..KEPT]);
    }
}
