//! A second balancer, and a virtual address that keepalived moves between the two by VRRP.

use std::net::IpAddr;

use anyhow::{Context, Result};

use super::machines::{Machine, Service};
use super::{Bed, Setup, published};
use crate::beds::network::Namespace;

/// The program that moves the address.
pub const KEEPALIVED: &str = "keepalived";

const SECOND: u8 = 13;
const VIRTUAL: u8 = 15;

/// The second machine, and keepalived on both.
pub(super) struct Pair {
    second: Machine,
    keepers: Vec<crate::programs::Process>,
}

impl Bed {
    /// The address that both may hold.
    pub fn virtual_address(&self) -> IpAddr {
        self.network.other(VIRTUAL, false)
    }

    /// Puts a second balancer beside the first, set up in the same way, and keepalived on both. The first is the master.
    pub fn pair(&mut self, setup: &Setup) -> Result<()> {
        let leaf = self.certificates.files(setup.certificate)?;
        let nodes: Vec<IpAddr> = self.nodes.iter().map(|n| n.space.address(false)).collect();
        let at = self.folder.path().join("second");
        std::fs::create_dir_all(&at)?;
        let mut second = Machine::new(self.network.namespace(SECOND)?);
        let service: Vec<Service> = setup.balancer(&at, &leaf, &nodes)?.into_iter().collect();
        second.run(service, false)?;
        let mut keepers = Vec::new();
        let (address, folder) = (self.virtual_address(), self.folder.path());
        for (space, name, priority) in [(&self.balancer.space, "first", 150), (&second.space, "second", 100)]
        {
            let file = folder.join(format!("keepalived-{name}.conf"));
            let text = published("keepalived.conf")?
                .replace("192.0.2.10/24", &format!("{address}/24"))
                .replace("router_id balancer1", &format!("router_id {name}"))
                .replace("priority 150", &format!("priority {priority}"));
            std::fs::write(&file, text)?;
            let log = std::fs::File::create(folder.join(format!("keepalived-{name}.log")))?;
            let mut command = space.command(KEEPALIVED);
            command.args(["--dont-fork", "--log-console", "--vrrp", "--use-file"]).arg(&file);
            command.arg("--pid").arg(folder.join(format!("keepalived-{name}.pid")));
            command.arg("--vrrp_pid").arg(folder.join(format!("keepalived-{name}.vrrp.pid")));
            command.stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log);
            keepers.push(crate::programs::Process::spawn(&mut command)?);
        }
        self.pair = Some(Pair { second, keepers });
        Ok(())
    }

    /// The second balancer's machine.
    pub fn second_balancer(&self) -> Result<&Namespace> {
        Ok(&self.pair.as_ref().context("there is no pair")?.second.space)
    }

    /// Ends HAProxy or nginx on the first balancer, or starts it again.
    pub fn first_balances(&mut self, setup: &Setup, runs: bool) -> Result<()> {
        let leaf = self.certificates.files(setup.certificate)?;
        let nodes: Vec<IpAddr> = self.nodes.iter().map(|n| n.space.address(false)).collect();
        let service = setup.balancer(&self.folder.path().join("balancer"), &leaf, &nodes)?;
        self.balancer.run(service.into_iter().collect(), !runs)?;
        Ok(())
    }

    /// What keepalived said last, for a failure's message.
    pub fn keepers_said(&self) -> String {
        let log = |name: &str| super::tail(&self.folder.path().join(format!("keepalived-{name}.log")));
        format!("first:\n{}\nsecond:\n{}", log("first"), log("second"))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for keeper in &mut self.keepers {
            // Its child, which speaks VRRP, ends with it only when it is asked.
            let _ = keeper.terminate(std::time::Duration::from_secs(5));
        }
        self.second.stop();
    }
}
