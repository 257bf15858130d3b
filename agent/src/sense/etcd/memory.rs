//! What one pass leaves for the next: connections, who is who, since when something is down.

use std::collections::BTreeMap;
use std::sync::Arc;

use outrider_protocol::{LearnerProgress, Timestamp};
use rustls::ClientConfig;

use super::credentials::{Credentials, Material};
use super::discover::Found;
use super::disk::DiskFacts;
use super::hex_id;
use super::learners::Learners;
use super::metrics::Scrapes;
use super::nodes::Nodes;
use super::survey::{Connections, Look, Survey};
use super::watch::Round;
use crate::config::EtcdSettings;
use crate::net::{Failure, Url};
use crate::timer::KernelTimer;

/// What the check remembers between passes.
#[derive(Default)]
pub struct Memory {
    settings: EtcdSettings,
    found: Option<Found>,
    credentials: Option<Credentials>,
    pub(super) connections: Connections,
    /// The member a client URL belongs to, by the last list that came.
    owners: BTreeMap<Url, u64>,
    /// The id of the member on this node, once it or its name has told.
    pub(super) local_member: Option<u64>,
    /// The cluster of the member on this node, by its last word.
    pub(super) cluster: Option<u64>,
    pub(super) down_since: BTreeMap<String, Timestamp>,
    pub(super) learners: Learners,
    /// Since when no linearizable read has been answered.
    pub(super) no_read_since: Option<Timestamp>,
    pub(super) scrapes: Scrapes,
    /// The metrics URL that worked last.
    pub(super) metrics_url: Option<Url>,
    /// The last look at this node's own files.
    pub(super) disk: Option<DiskFacts>,
    /// Names of the Kubernetes Nodes.
    pub(super) nodes: Nodes,
    /// The cheap looks between passes.
    pub(super) round: Round,
    /// What the looks between passes wait by.
    pub timer: KernelTimer,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("found", &self.found).finish_non_exhaustive()
    }
}

impl Memory {
    /// Takes what a search found; forgets what belongs to another place.
    pub(super) fn prepare(
        &mut self,
        settings: &EtcdSettings,
        found: Found,
        material: Option<Material>,
    ) -> Result<(), (Failure, String)> {
        if self.found.as_ref().is_some_and(|before| before.found_by != found.found_by)
            || self.settings != *settings
        {
            *self = Self::default();
        }
        self.settings = settings.clone();
        let Some(material) = material else {
            self.credentials = None;
            self.found = Some(found);
            return Ok(());
        };
        if !self.credentials.as_ref().is_some_and(|kept| kept.made_of(&material)) {
            // Connections made with the old files would hide that the new ones do not work.
            self.close();
            self.credentials = Some(Credentials::new(&material)?);
        }
        self.found = Some(found);
        Ok(())
    }

    /// Forgets the way in; what is known of the cluster stays.
    pub(super) fn close(&mut self) {
        self.connections.clear();
        self.credentials = None;
        self.found = None;
    }

    pub(super) fn grpc_tls(&self) -> Option<Arc<ClientConfig>> {
        self.credentials.as_ref().map(|c| c.grpc.clone())
    }

    pub(super) fn http_tls(&self) -> Option<Arc<ClientConfig>> {
        self.credentials.as_ref().map(|c| c.http.clone())
    }

    /// Client URLs of the other members in the last list.
    pub(super) fn known_urls(&self) -> Vec<Url> {
        let others = self.owners.iter().filter(|(_, owner)| Some(**owner) != self.local_member);
        others.map(|(url, _)| url.clone()).collect()
    }

    /// The local member's endpoint, if a pass with these settings has found one.
    pub(super) fn local_url(&self, settings: &EtcdSettings) -> Option<Url> {
        let found = self.found.as_ref().filter(|_| self.settings == *settings)?;
        found.endpoints.first().cloned()
    }

    /// Updates everything a pass has shown.
    pub(super) fn remember(&mut self, found: &Found, survey: &Survey, now: Timestamp) {
        if let Some(look) = survey.looks.first() {
            // An IPv6-only node answers at the other loopback address: the next pass starts there.
            if let Some(kept) = &mut self.found
                && kept.endpoints.first() != Some(&look.url)
                && let Some(first) = kept.endpoints.first_mut()
            {
                let before = std::mem::replace(first, look.url.clone());
                kept.local_alternative = Some(before);
            }
            self.local_member = look.answered_by().or(self.local_member);
            self.round.term = look.status.as_ref().map_or(0, |status| status.raft_term);
        }
        self.cluster = survey.cluster.or(self.cluster);
        if let Ok(list) = &survey.list {
            self.owners.clear();
            for member in &list.members {
                for url in member.client_urls.iter().filter_map(|text| Url::parse(text).ok()) {
                    self.owners.insert(url, member.id);
                }
            }
            let named = found.local_name.as_ref().and_then(|name| {
                list.members.iter().find(|member| member.name == *name).map(|member| member.id)
            });
            self.local_member = self.local_member.or(named);
            self.learners.listed(list.members.iter().filter(|m| m.is_learner).map(|m| hex_id(m.id)), now);
        }
        // Indexes of another cluster are on another scale.
        let ours = || survey.looks.iter().filter(|look| !survey.is_foreign(look));
        let answers = || ours().filter_map(|look| Some((look.answered_by()?, look.status.as_ref().ok()?)));
        let front = answers().map(|(_, status)| status.raft_index).max().unwrap_or_default();
        for (id, status) in answers() {
            self.learners.seen(&hex_id(id), LearnerProgress { at: now, index: status.raft_index, front });
        }
        let failing: Vec<String> = (survey.looks.iter().filter(|look| look.status.is_err()))
            .map(|look| look.url.to_string())
            .chain(survey.bad_urls.iter().map(|bad| bad.text.clone()))
            .collect();
        self.down_since.retain(|url, _| failing.contains(url));
        for url in failing {
            self.down_since.entry(url).or_insert(now);
        }
    }

    /// Takes whether a linearizable read that began then was answered by anybody.
    pub(super) fn note_read(&mut self, answered: bool, began: Timestamp) {
        self.no_read_since = if answered { None } else { self.no_read_since.or(Some(began)) };
    }

    /// The member an endpoint belongs to: by the list, by its own word, or because it is ours.
    pub(super) fn owner_of(&self, look: &Look, local: bool) -> Option<u64> {
        if local {
            return look.answered_by().or(self.local_member).or_else(|| self.owners.get(&look.url).copied());
        }
        self.owners.get(&look.url).copied().or_else(|| look.answered_by())
    }
}
