//! The store, with a stopwatch and an eye on whether it works: `/readyz` and `/metrics` know of it from here.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use outrider_protocol::{SequencedTransition, Timestamp};
use tokio::time::Instant;
use uuid::Uuid;

use crate::latches::{Latch, Latches};
use crate::metrics::Metrics;
use crate::store::{
    Appended, Event, EventFilter, Expect, History, HistoryError, Origin, Page, Store, StoreError,
    StoreResult, Watch,
};

/// Measures every call to what it wraps.
pub(crate) struct Measured<T: ?Sized> {
    inner: Arc<T>,
    metrics: Arc<Metrics>,
    latches: Arc<Latches>,
}

impl<T: ?Sized> Measured<T> {
    pub(crate) fn new(inner: Arc<T>, metrics: Arc<Metrics>, latches: Arc<Latches>) -> Arc<Self> {
        Arc::new(Self { inner, metrics, latches })
    }

    async fn call<V, E: Failing>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        let start = Instant::now();
        let result = call.await;
        let failure = result.as_ref().err().and_then(E::failure);
        self.metrics.store_call(operation, start.elapsed(), failure.is_some());
        match failure {
            Some(error) => {
                let why = error.to_string();
                if self.latches.raise(Latch::Store, &why) {
                    log::error!("{why}; what is in memory is still judged and shown");
                }
            }
            None => {
                if self.latches.clear(Latch::Store) {
                    log::info!("the store works again");
                }
            }
        }
        result
    }
}

/// Errors that tell a store that does not work from an answer.
trait Failing {
    fn failure(&self) -> Option<&StoreError>;
}

impl Failing for StoreError {
    fn failure(&self) -> Option<&StoreError> {
        let is_failure =
            matches!(self, StoreError::DiskFull { .. } | StoreError::Failed { .. } | StoreError::Closed);
        is_failure.then_some(self)
    }
}

impl Failing for HistoryError {
    fn failure(&self) -> Option<&StoreError> {
        match self {
            HistoryError::Store(error) => error.failure(),
            _ => None,
        }
    }
}

impl<T: Store + ?Sized> Store for Measured<T> {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, StoreResult<Option<crate::store::Entry>>> {
        self.call("get", self.inner.get(key)).boxed()
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, expect: Expect) -> BoxFuture<'a, StoreResult<u64>> {
        self.call("put", self.inner.put(key, value, expect)).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str, expect: Expect) -> BoxFuture<'a, StoreResult<()>> {
        self.call("delete", self.inner.delete(key, expect)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str, after: &'a str, limit: usize) -> BoxFuture<'a, StoreResult<Page>> {
        self.call("list", self.inner.list(prefix, after, limit)).boxed()
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: u64) -> BoxFuture<'a, StoreResult<Watch>> {
        self.call("watch", self.inner.watch(prefix, from)).boxed()
    }
}

impl<T: History + ?Sized> History for Measured<T> {
    fn append<'a>(
        &'a self,
        origin: &'a Origin,
        epoch: Uuid,
        transitions: &'a [SequencedTransition],
        received_at: Timestamp,
    ) -> BoxFuture<'a, Result<Appended, HistoryError>> {
        let appended = self.call("append", self.inner.append(origin, epoch, transitions, received_at));
        appended
            .map(|result| {
                result.inspect(|a| {
                    self.metrics.transitions.inc_by(a.stored.len() as u64);
                })
            })
            .boxed()
    }

    fn acknowledged<'a>(&'a self, uid: &'a str, epoch: Uuid) -> BoxFuture<'a, Result<u64, HistoryError>> {
        self.call("acknowledged", self.inner.acknowledged(uid, epoch)).boxed()
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, HistoryError>> {
        self.call("events", self.inner.events(filter, after, limit)).boxed()
    }

    fn latest<'a>(
        &'a self,
        filter: &'a EventFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, HistoryError>> {
        self.call("latest", self.inner.latest(filter, limit)).boxed()
    }

    fn position<'a>(&'a self) -> BoxFuture<'a, Result<u64, HistoryError>> {
        self.call("position", self.inner.position()).boxed()
    }

    fn prune<'a>(&'a self, before: Timestamp) -> BoxFuture<'a, Result<u64, HistoryError>> {
        self.call("prune", self.inner.prune(before)).boxed()
    }

    fn subscribe(&self) -> tokio::sync::broadcast::Receiver<Arc<Event>> {
        self.inner.subscribe()
    }
}
