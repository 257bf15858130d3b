//! outrider-cloud-init
