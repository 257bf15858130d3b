//! Harvester's virtual machines, read from its API: read only, kept small, and judged beside what their nodes say.
//!
//! The tour: [`access`] makes a client of the kubeconfig, and of the next one that is put in its place; [`reading`] lists and
//! watches one resource, [`failure`] says in words why it could not; [`inventory`] holds what was read and remembers what
//! must outlive a flap; [`keeper`] is the loop that says which node each machine is, judges and latches. Without a
//! kubeconfig nothing of this runs.

mod access;
mod failure;
mod inventory;
mod keeper;
mod reading;
mod view;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outrider_protocol::{Condition, Latch, Timestamp};
use tokio::sync::Notify;

use access::Access;
use inventory::{Inventory, Machine};

pub(crate) use keeper::keep;
pub(crate) use reading::{Resource, read};
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
}

/// What is known of Harvester.
pub(crate) struct Harvester {
    access: Access,
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
    /// Latches of an earlier run, until their machines are read.
    stored: BTreeMap<Arc<str>, Vec<Latch>>,
    /// Machines whose latches are newer than the store's.
    unsaved: BTreeMap<Arc<str>, Option<Vec<Latch>>>,
    /// VMs of others that were left alone.
    ignored: usize,
}

impl Harvester {
    /// Harvester as it is before anything was read. `stored` are latches of an earlier run, by `namespace/name`.
    pub(crate) fn new(options: HarvesterOptions, stored: BTreeMap<Arc<str>, Vec<Latch>>) -> Arc<Self> {
        Arc::new(Self {
            access: Access::new(options.kubeconfig, options.namespaces),
            clusters: options.clusters,
            inventory: Mutex::default(),
            judged: Mutex::new(Judged { stored, ..Judged::default() }),
            bell: Notify::new(),
        })
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

    /// Latches that are newer than the store's, by key; `None` of a machine that is gone.
    pub(crate) fn take_unsaved(&self) -> BTreeMap<Arc<str>, Option<Vec<Latch>>> {
        std::mem::take(&mut self.judged().unsaved)
    }

    /// These could not be stored, and wait again unless something newer does.
    pub(crate) fn put_back(&self, key: Arc<str>, latches: Option<Vec<Latch>>) {
        self.judged().unsaved.entry(key).or_insert(latches);
    }
}

/// The time when something was read, as far as the wall clock knows.
fn now() -> Timestamp {
    std::time::SystemTime::now().into()
}
