//! outrider-sync
