//! What holds readiness back, by name: `/readyz` answers 200 only when every latch has dropped.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The reasons why a coordinator may not be ready. The words are part of `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Latch {
    /// The store answers and takes writes.
    Store,
    /// Every listener accepts connections.
    Listeners,
    /// Files can still be opened.
    OpenFiles,
    /// The fleet was read from the store.
    Fleet,
}

impl Latch {
    /// Every latch, in the order in which `/readyz?verbose` names them.
    pub(crate) const ALL: [Latch; 4] = [Latch::Store, Latch::Listeners, Latch::OpenFiles, Latch::Fleet];

    /// The word for people and tools.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Latch::Store => "store",
            Latch::Listeners => "listeners",
            Latch::OpenFiles => "open-files",
            Latch::Fleet => "fleet",
        }
    }
}

/// The latches that hold, each with its cause.
#[derive(Debug, Default)]
pub(crate) struct Latches(Mutex<BTreeMap<Latch, String>>);

impl Latches {
    /// Latches as they stand before anything has started.
    pub(crate) fn at_start() -> Self {
        let waiting =
            [(Latch::Listeners, "not yet listening"), (Latch::Fleet, "not yet read from the store")];
        Self(Mutex::new(waiting.into_iter().map(|(latch, why)| (latch, why.to_owned())).collect()))
    }

    /// Raises a latch; true when it did not hold before, so that the caller logs it once.
    pub(crate) fn raise(&self, latch: Latch, why: impl Into<String>) -> bool {
        self.lock().insert(latch, why.into()).is_none()
    }

    /// Drops a latch; true when it held.
    pub(crate) fn clear(&self, latch: Latch) -> bool {
        self.lock().remove(&latch).is_some()
    }

    /// Why this latch holds; `None` when it does not.
    pub(crate) fn why(&self, latch: Latch) -> Option<String> {
        self.lock().get(&latch).cloned()
    }

    /// `name: cause` of every latch that holds.
    pub(crate) fn held(&self) -> Vec<String> {
        self.lock().iter().map(|(latch, why)| format!("{}: {why}", latch.as_str())).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Latch, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
