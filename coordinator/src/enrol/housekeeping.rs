//! What the registrar does on its own: saves what requests found, forgets what is over, warns of what ends.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use outrider_protocol::{Timestamp, TokenKind, TokenView};

use super::registrar::Registrar;
use super::{EnrolError, Enrolment, NodeRecord, TokenRecord};
use crate::store::{Expect, StoreError};

/// How often the registry is tended.
const TEND_EVERY: Duration = Duration::from_secs(3600);
/// Records saved at a time after a whole fleet rebooted.
const SAVES_AT_ONCE: usize = 64;

impl Registrar {
    /// Tends the registry for as long as the coordinator runs; never returns.
    pub async fn run(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(TEND_EVERY);
        loop {
            tokio::select! {
                () = self.unsaved_bell.notified() => self.save_found().await,
                _ = ticks.tick() => {
                    if let Err(e) = self.tend(SystemTime::now().into()).await {
                        log::warn!("the registry could not be tended: {e}");
                    }
                }
            }
        }
    }

    /// Stores what sightings found: changed marks, clones that began or ended.
    pub async fn save_found(&self) {
        let uids = std::mem::take(&mut *self.unsaved.lock().unwrap_or_else(PoisonError::into_inner));
        let failed: Vec<String> = stream::iter(uids)
            .map(|uid| async move {
                match self.save_one(&uid).await {
                    Ok(()) | Err(EnrolError::NodeUnknown { .. }) => None,
                    Err(e) => {
                        log::warn!("what was found of node {uid} could not be stored yet: {e}");
                        Some(uid)
                    }
                }
            })
            .buffer_unordered(SAVES_AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        // Tried again with the next find, or when the registry is tended.
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).extend(failed);
    }

    async fn save_one(&self, uid: &str) -> Result<(), EnrolError> {
        let Some(known) = self.index().get(uid).cloned() else {
            return Ok(());
        };
        let (identity, clone) = {
            let mut life = known.life();
            (life.identity.take(), life.clone.clone())
        };
        let saved = self
            .update(uid, |record| {
                if let Some(identity) = &identity {
                    record.identity.clone_from(identity);
                }
                record.clone.clone_from(&clone);
                Ok(())
            })
            .await;
        if saved.is_err() {
            let mut life = known.life();
            life.identity = life.identity.take().or(identity);
        }
        saved.map(drop)
    }

    /// Pool and once tokens in force that end within [`Settings::warn_before`](super::Settings::warn_before).
    pub async fn tokens_ending(&self, now: Timestamp) -> Result<Vec<TokenView>, EnrolError> {
        let horizon = now.after(self.settings.warn_before);
        let ends_soon = |r: &TokenRecord| {
            // A once token is meant to end; it is a pool that silently stops to grow.
            r.kind == TokenKind::Pool
                && r.revoked_at.is_none()
                && r.expires_at.is_some_and(|end| end > now && end <= horizon)
        };
        let records = self.token_records().await?;
        let index = self.index();
        Ok(records.iter().filter(|r| ends_soon(r)).map(|r| r.view(index.uses(&r.id))).collect())
    }

    /// Saves what could not be saved, warns of tokens that end, forgets superseded nodes, requests that nobody repeats and
    /// long-ended tokens.
    pub async fn tend(&self, now: Timestamp) -> Result<(), EnrolError> {
        self.save_found().await;
        self.follow_authority(now).await?;
        for token in self.tokens_ending(now).await? {
            let end = token.expires_at.unwrap_or(now);
            log::warn!("pool token {} ends at {end}; machines of the pool cannot join after that", token.id);
        }
        let before = now.before(self.settings.superseded_kept);
        let mut live_tokens = BTreeSet::new();
        for record in self.token_records().await? {
            let ended = record.revoked_at.or(record.expires_at);
            if ended.is_some_and(|end| end < before) {
                let gone = self.store.delete(&TokenRecord::key(&record.id), Expect::Any).await;
                gone.map_err(EnrolError::from)?;
            } else if record.uses.is_some() {
                live_tokens.insert(record.id);
            }
        }
        let over: Vec<(String, u64)> = {
            let index = self.index();
            let forgotten = index.all().filter(|k| match k.record.enrolment {
                Enrolment::Superseded => {
                    k.record.ended.as_ref().is_none_or(|e| e.at < before)
                        // A token's uses are counted from the records it made.
                        && !live_tokens.contains(&k.record.token_id)
                }
                Enrolment::Pending => now.since(self.heard(k)) > self.settings.pending_kept,
                _ => false,
            });
            forgotten.map(|k| (k.record.uid.clone(), k.revision)).collect()
        };
        for (uid, revision) in over {
            match self.store.delete(&NodeRecord::key(&uid), Expect::Revision(revision)).await {
                Ok(()) => self.index_mut().remove(&uid),
                Err(StoreError::Conflict { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}
