//! What one look at the certificates leaves for the next.

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{CertificatesFacts, Fact};
use tokio::sync::Mutex;

use crate::sense::{SenseContext, certificates};

/// Shared by the looks, which follow one another.
#[derive(Clone, Default)]
pub(super) struct CertificatesWatch(Arc<Mutex<certificates::Memory>>);

impl CertificatesWatch {
    /// Reads files and ports within `limit`.
    pub(super) async fn look(&self, cx: &SenseContext, limit: Duration) -> Fact<CertificatesFacts> {
        certificates::read(cx, limit, &mut *self.0.lock().await).await
    }
}
