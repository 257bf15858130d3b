//! outrider-cli
