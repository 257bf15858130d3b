//! What Harvester shows of a machine that asks to enrol.

use outrider_protocol::Identity;

use super::Harvester;
use super::inventory::Entry;
use crate::enrol::vouching::{SeenVm, Witness, shares_mark};

impl std::fmt::Debug for Harvester {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Harvester").finish_non_exhaustive()
    }
}

impl Witness for Harvester {
    fn machines_of(&self, identity: &Identity) -> Result<Vec<SeenVm>, String> {
        let inventory = self.inventory();
        // What was read before may be of a machine that is gone.
        if !inventory.is_current() {
            return Err("its virtual machines are not read now (HarvesterReadable)".to_owned());
        }
        let all = inventory.machines.iter().map(|(key, entry)| seen(key, entry));
        Ok(all.filter(|vm| shares_mark(identity, vm)).collect())
    }
}

fn seen(key: &str, entry: &Entry) -> SeenVm {
    let marks = entry.marks();
    let vm = entry.joined().unwrap_or_default();
    SeenVm {
        key: key.to_owned(),
        name: marks.name.to_owned(),
        cluster: marks.cluster.to_owned(),
        macs: marks.macs.iter().map(|mac| (*mac).to_owned()).collect(),
        system_uuid: marks.system_uuid.to_owned(),
        is_running: vm.deleted_at.is_none() && vm.instance.is_some_and(|instance| instance.is_running()),
    }
}
