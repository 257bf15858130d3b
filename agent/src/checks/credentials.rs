//! What one look at the credentials leaves for the next.

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{CredentialsFacts, Fact};
use tokio::sync::Mutex;

use crate::config::CredentialSettings;
use crate::sense::{SenseContext, credentials};

/// Shared by the looks, which follow one another.
#[derive(Clone, Default)]
pub(super) struct CredentialsWatch(Arc<Mutex<credentials::Memory>>);

impl CredentialsWatch {
    /// Reads kubeconfigs and, where that is configured, Rancher's credentials, within `limit`.
    pub(super) async fn look(
        &self,
        cx: &SenseContext,
        settings: &CredentialSettings,
        limit: Duration,
    ) -> Fact<CredentialsFacts> {
        credentials::read(cx, settings, limit, &mut *self.0.lock().await).await
    }
}
