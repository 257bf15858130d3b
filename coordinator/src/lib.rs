//! outrider-coordinator
