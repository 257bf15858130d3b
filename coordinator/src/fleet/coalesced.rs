//! Things to be looked at, each once however often it was named.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A set by key with a bell.
pub(crate) struct Coalesced<T> {
    waiting: Mutex<HashMap<Arc<str>, Arc<T>>>,
    bell: Notify,
}

impl<T> Default for Coalesced<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), bell: Notify::new() }
    }
}

impl<T> Coalesced<T> {
    /// Adds one and rings.
    pub(crate) fn add(&self, key: &Arc<str>, item: &Arc<T>) {
        self.lock().insert(key.clone(), item.clone());
        self.bell.notify_one();
    }

    /// Takes everything that waits, in no order.
    pub(crate) fn take(&self) -> Vec<Arc<T>> {
        std::mem::take(&mut *self.lock()).into_values().collect()
    }

    /// Returns when something was added since the last time. Cancel-safe.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
