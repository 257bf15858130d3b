//! Harvester's virtual machines, read from its API: read only, kept small, and judged beside what their nodes say.
//!
//! The tour: [`access`] makes a client of the kubeconfig, and of the next one that is put in its place; [`reading`] lists and
//! watches one resource, [`failure`] says in words why it could not; [`inventory`] holds what was read and remembers what
//! must outlive a flap; [`keeper`] is the loop that says which node each machine is, judges and latches; [`seen`] remembers
//! what a machine was when it is gone, [`witness`] tells enrolment of one that asks, [`pools`] what became of the machines of each node pool. What Rancher wants of pools is
//! read by the same code, where a kubeconfig of its cluster is given as well. Without a kubeconfig nothing of this runs.

mod access;
mod failure;
mod inventory;
mod keeper;
mod pools;
mod reading;
mod retired;
mod seen;
mod view;
mod witness;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outrider_protocol::{Condition, Latch, Timestamp};
use serde::Serialize;
use tokio::sync::Notify;

use access::{Access, Client};
use failure::Failure;
use inventory::{Inventory, Machine};
use pools::{Key, Pool};
use seen::StoredMachine;

use crate::fleet::Retired;

pub(crate) use keeper::keep;
pub(crate) use pools::POOLS;
use reading::Resource;
pub(crate) use reading::read;
pub(crate) use retired::RETIRED;
pub(crate) use seen::Stored;
pub(crate) use view::Readable;

/// Where latches of machines lie in the store.
pub(crate) const MACHINES: &str = "machines/";

/// How Harvester is read.
#[derive(Clone, Debug)]
pub struct HarvesterOptions {
    /// Kubeconfig of the Harvester cluster.
    pub kubeconfig: PathBuf,
    /// Namespaces to read; none means that of the kubeconfig's context, or, where it has none, every one.
    pub namespaces: Vec<String>,
    /// Guest clusters whose machines are expected as nodes, besides those of the fleet.
    pub clusters: Vec<String>,
    /// Rancher, where what it wants of node pools is to be read as well.
    pub rancher: Option<RancherOptions>,
}

/// How Rancher is read.
#[derive(Clone, Debug)]
pub struct RancherOptions {
    /// Kubeconfig of the cluster that Rancher runs in.
    pub kubeconfig: PathBuf,
    /// Namespace of its `clusters.provisioning.cattle.io`.
    pub namespace: String,
}

/// What an earlier run left in the store.
#[derive(Default)]
pub(crate) struct Left {
    /// Machines by `namespace/name`.
    pub(crate) machines: BTreeMap<Arc<str>, Stored>,
    /// Pools by `cluster/pool`.
    pub(crate) pools: BTreeMap<String, Pool>,
    /// Nodes whose machines are deleted, by uid.
    pub(crate) retired: BTreeMap<Arc<str>, Retired>,
}

/// What is known of Harvester.
pub(crate) struct Harvester {
    access: Access,
    rancher: Option<Access>,
    clusters: Vec<String>,
    inventory: Mutex<Inventory>,
    judged: Mutex<Judged>,
    /// Rung when something was read.
    bell: Notify,
}

/// What was made of it.
#[derive(Default)]
struct Judged {
    /// Latches over the API itself.
    source: Vec<Latch>,
    /// Machines were judged, once, as a whole.
    is_judged: bool,
    /// Machines of this fleet by `namespace/name`.
    machines: BTreeMap<Arc<str>, Arc<Machine>>,
    /// Which VMs were read when they were judged.
    scope: Arc<str>,
    /// They are read now as well, and no others.
    is_same_scope: bool,
    /// Machines of an earlier run, until they are read.
    stored: BTreeMap<Arc<str>, StoredMachine>,
    pools: BTreeMap<Key, Pool>,
    /// Nodes whose machines are deleted, by uid.
    retired: BTreeMap<Arc<str>, Arc<Retired>>,
    /// The fleet was told of those of an earlier run.
    is_told: bool,
    /// Documents that are newer than the store's, by their key there; `None` of what is no more.
    unsaved: BTreeMap<String, Option<Vec<u8>>>,
    /// VMs of others that were left alone.
    ignored: usize,
}

impl Harvester {
    /// Harvester as it is before anything was read.
    pub(crate) fn new(options: HarvesterOptions, left: Left) -> Arc<Self> {
        let rancher = options.rancher.map(|rancher| Access::new(rancher.kubeconfig, vec![rancher.namespace]));
        let stored = left.machines.into_iter().map(|(key, stored)| (key, stored.into())).collect();
        let of_pool = |(key, pool): (String, Pool)| {
            key.split_once('/').map(|(cluster, name)| ((cluster.to_owned(), name.to_owned()), pool))
        };
        let retired = left.retired.into_iter().map(|(uid, retired)| (uid, Arc::new(retired))).collect();
        let pools = left.pools.into_iter().filter_map(of_pool).collect();
        Arc::new(Self {
            access: Access::new(options.kubeconfig, options.namespaces),
            inventory: Mutex::new(Inventory::new(rancher.is_some())),
            rancher,
            clusters: options.clusters,
            judged: Mutex::new(Judged { stored, pools, retired, ..Judged::default() }),
            bell: Notify::new(),
        })
    }

    /// What is read, each by a task of its own.
    pub(crate) fn resources(&self) -> impl Iterator<Item = Resource> + use<> {
        Resource::OF_HARVESTER.into_iter().chain(self.rancher.is_some().then_some(Resource::Clusters))
    }

    /// A client of the kubeconfig that leads to a resource, as it is now.
    async fn client(&self, resource: Resource) -> Result<Client, Failure> {
        match (resource, &self.rancher) {
            (Resource::Clusters, Some(rancher)) => rancher.client().await,
            _ => self.access.client().await,
        }
    }

    fn inventory(&self) -> MutexGuard<'_, Inventory> {
        self.inventory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judged(&self) -> MutexGuard<'_, Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Conditions over the API itself.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        self.judged().source.iter().map(|latch| latch.condition.clone()).collect()
    }

    /// Documents that are newer than the store's, by their key there; `None` of what is no more.
    pub(crate) fn take_unsaved(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        std::mem::take(&mut self.judged().unsaved)
    }

    /// This could not be stored, and waits again unless something newer does.
    pub(crate) fn put_back(&self, key: String, document: Option<Vec<u8>>) {
        self.judged().unsaved.entry(key).or_insert(document);
    }
}

impl Judged {
    /// Has `document` stored under `key`.
    fn store(&mut self, key: String, document: &impl Serialize) {
        // Of these types, all with text as keys, none fails to be written.
        if let Ok(document) = serde_json::to_vec(document) {
            self.unsaved.insert(key, Some(document));
        }
    }
}

/// The time when something was read, as far as the wall clock knows.
fn now() -> Timestamp {
    std::time::SystemTime::now().into()
}
