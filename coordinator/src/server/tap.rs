//! What lies between hyper and the stream, to know when hyper has nothing left to do.
//!
//! hyper tells no one that it rests between two requests. It does rest when every request was answered to its end and
//! the last thing it did with the stream was a flush that succeeded: [`Progress`] keeps all of it, the stream
//! ([`Tap`]), the bodies of requests ([`Asked`]) and of answers ([`Answered`]) report to it.

use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;

use super::{Stream, unreadable};

/// How far the requests that one hyper connection took have come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Requests taken.
    taken: AtomicU32,
    /// Answers whose body hyper has let go.
    answered: AtomicU32,
    /// Bodies of requests that are still being read: the rest of one that is too large is read beside its answer.
    reading: AtomicU32,
    /// Something was written and not yet flushed.
    unflushed: AtomicBool,
    /// A request was not read to its end, so that only hyper knows where the next one begins; or hyper said goodbye.
    torn: AtomicBool,
}

impl Progress {
    /// True when the stream can be taken from hyper without loss.
    pub(super) fn rests(&self) -> bool {
        let taken = self.taken.load(Ordering::Acquire);
        taken > 0
            && taken == self.answered.load(Ordering::Acquire)
            && self.reading.load(Ordering::Acquire) == 0
            && !self.unflushed.load(Ordering::Acquire)
            && !self.torn.load(Ordering::Acquire)
    }
}

/// The stream, with bytes in front that were read from it before.
pub(super) struct Tap {
    io: TokioIo<Stream>,
    ahead: Bytes,
    progress: Arc<Progress>,
    /// hyper could not read a request, and what it said of that was kept back.
    silenced: bool,
}

impl Tap {
    pub(super) fn new(stream: Stream, ahead: Bytes, progress: Arc<Progress>) -> Self {
        Self { io: TokioIo::new(stream), ahead, progress, silenced: false }
    }

    /// The stream again, and what of the bytes in front nobody has read.
    pub(super) fn into_parts(self) -> (Stream, Bytes) {
        (self.io.into_inner(), self.ahead)
    }

    /// Whether the last request still wants its answer: hyper's own was kept back, and so was its goodbye.
    pub(super) fn is_silenced(&self) -> bool {
        self.silenced
    }
}

impl Read for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let length = self.ahead.len().min(buf.remaining());
        buf.put_slice(self.ahead.get(..length).unwrap_or_default());
        self.ahead.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl Write for Tap {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if unreadable::is_hypers_own(buf) {
            self.silenced = true;
            self.progress.torn.store(true, Ordering::Release);
            return Poll::Ready(Ok(buf.len()));
        }
        self.progress.unflushed.store(true, Ordering::Release);
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        self.progress.unflushed.store(true, Ordering::Release);
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        self.progress.unflushed.store(false, Ordering::Release);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.progress.torn.store(true, Ordering::Release);
        if self.silenced {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// A body that reports to [`Progress`] as `M` has it when it is let go.
pub(crate) struct Reporting<B: Body, M: Report> {
    body: B,
    /// Read to its end; a chunked body knows that only from having been read.
    ended: bool,
    progress: Arc<Progress>,
    _what: PhantomData<M>,
}

/// What a body reports.
pub(crate) trait Report: Unpin {
    /// It begins.
    fn begun(progress: &Progress);
    /// It was let go, read to its end or not.
    fn gone(progress: &Progress, ended: bool);
}

/// The body of a request.
pub(crate) type Asked<B> = Reporting<B, Request>;
/// The body of an answer.
pub(super) type Answered<B> = Reporting<B, Answer>;

/// Of a request: it counts, and what is not read to its end tears the connection.
pub(crate) enum Request {}

impl Report for Request {
    fn begun(progress: &Progress) {
        progress.reading.fetch_add(1, Ordering::AcqRel);
        progress.taken.fetch_add(1, Ordering::AcqRel);
    }

    fn gone(progress: &Progress, ended: bool) {
        if !ended {
            progress.torn.store(true, Ordering::Release);
        }
        progress.reading.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Of an answer: it is given.
pub(crate) enum Answer {}

impl Report for Answer {
    fn begun(_: &Progress) {}

    fn gone(progress: &Progress, _: bool) {
        progress.answered.fetch_add(1, Ordering::AcqRel);
    }
}

impl<B: Body, M: Report> Reporting<B, M> {
    pub(super) fn new(body: B, progress: Arc<Progress>) -> Self {
        M::begun(&progress);
        Self { body, ended: false, progress, _what: PhantomData }
    }
}

impl<B: Body, M: Report> Drop for Reporting<B, M> {
    fn drop(&mut self) {
        M::gone(&self.progress, self.ended || self.body.is_end_stream());
    }
}

impl<B: Body + Unpin, M: Report> Body for Reporting<B, M> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.ended |= frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
