//! Operator tokens: who may ask the API. Stored as hashes under `operators/<id>`, held in memory for every request.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use outrider_protocol::Timestamp;
use serde::{Deserialize, Serialize};

use super::{EnrolError, TokenText};
use crate::pki::{Pin, files};
use crate::store::{self, Expect, Store};

const PREFIX: &str = "operators/";
/// The name of the operator whose token lies in the state folder.
const FIRST: &str = "first";

/// A person or tool that may ask the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operator {
    /// Public part of the token.
    pub id: String,
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// SHA-256 of the secret, hex.
    pub secret_hash: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Every operator token.
#[derive(Debug, Default)]
pub(super) struct Operators {
    known: RwLock<HashMap<String, Operator>>,
}

fn key(id: &str) -> String {
    format!("{PREFIX}{id}")
}

impl Operators {
    /// Reads them all; a record that cannot be read opens nothing and is said.
    pub(super) async fn load(store: &dyn Store) -> Result<Self, EnrolError> {
        let (entries, _) = store::list_all(store, PREFIX).await?;
        let operators = Self::default();
        for entry in entries {
            match serde_json::from_slice::<Operator>(&entry.value) {
                Ok(operator) => operators.remember(operator),
                Err(e) => log::error!("{} cannot be read and opens nothing: {e}", entry.key),
            }
        }
        Ok(operators)
    }

    fn remember(&self, operator: Operator) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(operator.id.clone(), operator);
    }

    /// Stores the hash of `text`.
    pub(super) async fn add(
        &self,
        store: &dyn Store,
        text: &TokenText,
        name: &str,
        now: Timestamp,
    ) -> Result<(), EnrolError> {
        let operator = Operator {
            id: text.id.clone(),
            name: name.to_owned(),
            secret_hash: text.secret_hash(),
            created_at: now,
        };
        let value = serde_json::to_vec(&operator).unwrap_or_default();
        store.put(&key(&operator.id), Bytes::from(value), Expect::Any).await?;
        self.remember(operator);
        Ok(())
    }

    /// Forgets an operator token; whether there was one.
    pub(super) async fn remove(&self, store: &dyn Store, id: &str) -> Result<bool, EnrolError> {
        store.delete(&key(id), Expect::Any).await?;
        Ok(self.known.write().unwrap_or_else(PoisonError::into_inner).remove(id).is_some())
    }

    pub(super) fn list(&self) -> Vec<Operator> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Operator> = known.values().cloned().collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Who shows this token.
    pub(super) fn check(&self, token: &str) -> Result<Operator, EnrolError> {
        let refused = |problem: String| EnrolError::Unauthenticated { problem };
        let text: TokenText = token.parse().map_err(|e| refused(format!("no operator token: {e}")))?;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(&text.id) {
            Some(operator) if text.matches(&operator.secret_hash) => Ok(operator.clone()),
            _ => Err(refused(format!("no operator token {} with this secret is known here", text.id))),
        }
    }

    /// The token in `file`, made and written (0600) when there is none.
    ///
    /// Who can write that file owns the coordinator, so it rules: a token in it that the store does not know (the
    /// database was lost and begun anew) is known from now on, after a CA rotation it gets the new pin, and a token that
    /// lay there before another one opens nothing any more.
    pub(super) async fn ensure_file(
        &self,
        store: &dyn Store,
        file: &Path,
        pin: Pin,
        now: Timestamp,
    ) -> Result<TokenText, EnrolError> {
        let found = files::read_own(file)?;
        let text = match found.as_deref().map(str::parse::<TokenText>) {
            Some(Ok(text)) => text.with_pin(pin),
            Some(Err(e)) => {
                log::warn!("{}: {e}; a new operator token is written there", file.display());
                TokenText::generate(pin)
            }
            None => TokenText::generate(pin),
        };
        if self.check(&text.reveal()).is_err() {
            self.add(store, &text, FIRST, now).await?;
        }
        // Whoever replaced the file's token distrusts the one before.
        let before = self.list().into_iter().filter(|o| o.name == FIRST && o.id != text.id);
        for operator in before {
            self.remove(store, &operator.id).await?;
            log::warn!("operator token {} is no longer in {} and opens nothing", operator.id, file.display());
        }
        // The hash is stored first: a file without its hash would be a token that opens nothing.
        let content = format!("{}\n", text.reveal());
        if found.as_ref() != Some(&content) {
            files::write_whole(file, content.as_bytes(), 0o600)?;
        }
        Ok(text)
    }
}
