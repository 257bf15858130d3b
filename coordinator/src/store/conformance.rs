//! The one suite every implementation of [`Store`](super::Store) and [`History`](super::History) passes.
