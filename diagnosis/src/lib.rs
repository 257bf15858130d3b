//! outrider-diagnosis
