//! Machines with a pool token: let in where Harvester vouches for them, and otherwise told what is missing.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use outrider_protocol::EnrollResponse;
use outrider_tests::simulated::Applicant;
use outrider_tests::table::Table;

use crate::bed::{Bed, LIMIT, Made};

/// A machine that asks again and again.
pub(crate) struct Asking {
    applicant: Applicant,
    token: String,
}

impl Asking {
    async fn new(bed: &Bed, name: &str, number: u32, mac: &str) -> Result<Self> {
        let mut applicant = Applicant::new(name, number)?;
        applicant.identity.macs = vec![mac.to_owned()];
        let token = bed.coordinator.operator.seen_vm_token("adm-*", "prod").await?;
        Ok(Self { applicant, token })
    }

    /// Asks until the answer is as wanted: words of the reason, or none of it, which is a certificate.
    async fn until(&self, bed: &Bed, wanted: Option<&str>) -> Result<Duration> {
        let start = Instant::now();
        loop {
            let mut stranger = bed.coordinator.operator.connect().await?;
            let answer = self.applicant.apply(&mut stranger, &self.token).await?;
            // 202 while it waits.
            ensure!(answer.head.status.is_success(), "{}", String::from_utf8_lossy(&answer.body));
            let answer: EnrollResponse = serde_json::from_slice(&answer.body)?;
            let is_in = !answer.certificate.is_empty();
            if wanted.map_or(is_in, |words| !is_in && answer.pending.contains(words)) {
                return Ok(start.elapsed());
            }
            ensure!(!is_in && start.elapsed() < LIMIT, "wanted {wanted:?}, and got {:?}", answer.pending);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
}

/// Before Harvester is read.
pub(crate) async fn unread(bed: &Bed) -> Result<Asking> {
    let asking = Asking::new(bed, "adm-1", 51, "52:54:00:00:33:01").await?;
    asking.until(bed, Some("not read now")).await?;
    Ok(asking)
}

pub(crate) async fn rows(bed: &Bed, one: &Asking, table: &mut Table) -> Result<()> {
    let vm = Made { name: "adm-1", cluster: "prod", mac: "52:54:00:00:33:01", uuid: "", pool: "pool1" };
    one.until(bed, Some("no virtual machine at Harvester")).await?;
    vm.create(bed)?;
    one.until(bed, Some("machine prod/adm-1 does not run")).await?;
    let copy = Made { name: "adm-copy", ..vm.clone() };
    copy.create(bed)?;
    one.until(bed, Some("2 virtual machines at Harvester")).await?;
    copy.remove_stopped(bed)?;
    let raised = one.until(bed, Some("does not run")).await?;
    vm.run(bed, 0)?;
    let cleared = one.until(bed, None).await?;
    table.timed(
        "a machine with a pool token that nobody approved",
        "Harvester not read, no VM, a stopped one, two of one MAC; then one runs",
        "waits for approval, and says for what; then it is let in",
        raised,
        Some(cleared),
    );

    // A node that lives under another name has this machine's MAC already.
    let taken = Made { name: "adm-2", mac: "52:54:00:00:33:02", ..vm.clone() };
    taken.create(bed)?;
    taken.run(bed, 0)?;
    bed.enrol("somebody", 52, taken.mac).await?;
    let two = Asking::new(bed, "adm-2", 53, taken.mac).await?;
    two.until(bed, Some("is node somebody already, which lives")).await?;
    let renamed = Asking::new(bed, "adm-3", 54, "52:54:00:00:33:09").await?;
    renamed.until(bed, Some("no virtual machine")).await?;
    let other = Made { name: "adm-3", cluster: "test", mac: "52:54:00:00:33:09", ..vm.clone() };
    other.create(bed)?;
    other.run(bed, 0)?;
    renamed.until(bed, Some("guest cluster test")).await?;
    table.row(
        "machines that Harvester does not vouch for",
        "a VM that a living node is, a name alone, a VM of another cluster",
        "wait for approval, each with its reason",
    );
    for made in [&vm, &taken, &other] {
        made.remove(bed)?;
    }
    Ok(())
}
