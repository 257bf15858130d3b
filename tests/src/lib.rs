//! outrider-tests
