//! Rancher behind an ingress on three nodes, and a balancer in front of them, each a machine of its own in network
//! namespaces: HAProxy or nginx, set up by the very files of `docs/load-balancer/`; nginx or Traefik as ingress; and behind
//! it a program that answers with Rancher's own code (`tests/tools/rancher-backend`).
//!
//! A [`Setup`] says what is to stand, [`Bed::arrange`] makes it so and leaves running what did not change: a suite makes
//! thirty faults one after another in one bed. It needs the namespaces that `tests/suites/way-in.sh` runs it in.
//!
//! Tour: `setup` (what can differ, and the agent's configuration), `machines` (the processes of a node and of the
//! balancer), `ingress` (nginx, Traefik), `tls` (certificates right and wrong), this file (network, order, waiting).

mod ingress;
mod machines;
mod pair;
mod setup;
mod tls;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

pub use self::ingress::Ingress;
use self::machines::{Machine, Service};
pub use self::pair::KEEPALIVED;
use self::pair::Pair;
pub use self::setup::{API_TOKEN, Address, BACKEND, Balancer, Edit, Layer, Root, Setup, TRAEFIK, missing};
pub use self::tls::Certificate;
use super::network::{Namespace, Network};

/// Name that Rancher has in this bed, as in the files of `docs/load-balancer/`.
pub const HOST: &str = "rancher.example.com";
/// Nodes behind the balancer.
pub const NODES: u8 = 3;

const BALANCER: u8 = 11;
const CLIENT: u8 = 21;
/// Addresses of the balancer beside its first.
const SECOND: u8 = 12;
/// Nobody has this one.
const NOBODY: u8 = 99;

/// The machines; dropping it ends what runs on them.
pub struct Bed {
    nodes: Vec<Machine>,
    balancer: Machine,
    client: Namespace,
    preserving: bool,
    pair: Option<Pair>,
    certificates: tls::Certificates,
    // The last to go: what the others hang from and write to.
    network: Network,
    folder: TempDir,
}

impl Bed {
    /// The machines, with nothing on them.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("outrider-rancher-").tempdir()?;
        let network = Network::new()?;
        let machine = |i| Ok::<_, anyhow::Error>(Machine::new(network.namespace(i)?));
        let nodes = (1..=NODES).map(machine).collect::<Result<Vec<_>>>()?;
        let balancer = machine(BALANCER)?;
        let second = format!("{}/24", network.other(SECOND, false));
        balancer.space.ip(&format!("address add {second} dev eth0\n"))?;
        let client = network.namespace(CLIENT)?;
        let certificates = tls::Certificates::new(folder.path())?;
        Ok(Self { nodes, balancer, client, preserving: false, pair: None, certificates, network, folder })
    }

    /// Makes everything as `setup` says and waits until it listens; what is as it was goes on running.
    pub fn arrange(&mut self, setup: &Setup) -> Result<()> {
        let leaf = self.certificates.files(setup.certificate)?;
        let mut changed = false;
        for (i, node) in self.nodes.iter_mut().enumerate() {
            let number = i + 1;
            let at = self.folder.path().join(format!("node{number}"));
            std::fs::create_dir_all(&at)?;
            let services = vec![
                setup.backend(number, &at, &self.certificates.root())?,
                setup.ingress(&at, &leaf, self.balancer.space.address(false))?,
            ];
            changed |= node.run(services, setup.dead.contains(&number))?;
        }
        let mut doors: Vec<(IpAddr, u16)> = Vec::new();
        for (_, node) in self.nodes.iter().enumerate().filter(|(i, _)| !setup.dead.contains(&(i + 1))) {
            doors.extend(setup.node_ports().iter().map(|port| (node.space.address(false), *port)));
        }
        // A balancer that saw its nodes come and go has an opinion of them for many seconds.
        if changed {
            self.balancer.stop();
            self.wait(&doors)?;
        }
        let at = self.folder.path().join("balancer");
        std::fs::create_dir_all(&at)?;
        let nodes: Vec<IpAddr> = self.nodes.iter().map(|n| n.space.address(false)).collect();
        let service = setup.balancer(&at, &leaf, &nodes)?;
        self.balancer.run(service.into_iter().collect(), false)?;
        self.route(&nodes, setup.balancer == Balancer::Preserving)?;
        let first = self.address(Address::First);
        self.wait(&setup.balancer_ports().iter().map(|port| (first, *port)).collect::<Vec<_>>())
    }

    /// The agent's configuration for `setup`, as a file.
    pub fn agent(&self, setup: &Setup) -> Result<PathBuf> {
        let nodes: Vec<IpAddr> = self.nodes.iter().map(|n| n.space.address(false)).collect();
        let (ca, root) = (self.certificates.ca(), self.certificates.root());
        let addresses: Vec<IpAddr> = setup.addresses.iter().map(|which| self.address(*which)).collect();
        let text = setup.agent(&addresses, &nodes, &ca, &root)?;
        let file = self.folder.path().join("agent.toml");
        std::fs::write(&file, text)?;
        Ok(file)
    }

    /// An address of Rancher's name.
    pub fn address(&self, which: Address) -> IpAddr {
        match which {
            Address::First => self.balancer.space.address(false),
            Address::Second => self.network.other(SECOND, false),
            Address::Ipv6 => self.balancer.space.address(true),
            Address::DeadIpv6 => self.network.other(NOBODY, true),
        }
    }

    /// The root below which everything right is signed, as a file.
    pub fn ca(&self) -> PathBuf {
        self.certificates.ca()
    }

    /// The checksum of what Rancher serves at `/cacerts` where that is right.
    pub fn ca_checksum(&self) -> String {
        setup::checksum(&self.certificates.root())
    }

    /// From now on whatever the test sends to the balancer is lost on the way, without a word.
    pub fn forget(&self) -> Result<()> {
        self.balancer.space.lose_from(&[self.network.hub(false)])
    }

    /// Ends that.
    pub fn remember(&self) -> Result<()> {
        self.balancer.space.heal()
    }

    /// The balancer's machine.
    pub fn balancer(&self) -> &Namespace {
        &self.balancer.space
    }

    /// Another machine of the network, connected, with nothing on it.
    pub fn machine(&self, last: u8) -> Result<Namespace> {
        self.network.namespace(last)
    }

    /// Another machine, in another network on the same cable. The nodes answer it by the balancer, which alone it asks.
    pub fn machine_elsewhere(&self, last: u8) -> Result<Namespace> {
        let (space, theirs) = self.network.namespace_elsewhere(last)?;
        self.balancer.space.ip(&format!("route replace {theirs} dev eth0\n"))?;
        let balancer = self.address(Address::First);
        for node in &self.nodes {
            node.space.ip(&format!("route replace {theirs} via {balancer} dev eth0\n"))?;
        }
        Ok(space)
    }

    /// Address of the test and of the coordinator.
    pub fn hub(&self) -> IpAddr {
        self.network.hub(false)
    }

    /// The User-Agent of every request that came as far as Rancher on the nodes.
    pub fn asked(&self) -> Result<Vec<String>> {
        let mut agents = Vec::new();
        for number in 1..=NODES {
            let log = std::fs::read_to_string(self.folder.path().join(format!("node{number}/rancher.log")))?;
            let asked = log.lines().filter_map(|line| line.split_once("asked for ")?.1.split_once(" by "));
            agents.extend(asked.map(|(_, agent)| agent.trim_matches('"').to_owned()));
        }
        Ok(agents)
    }

    /// A machine that is neither node nor balancer.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// Node `number`, from 1.
    pub fn node(&self, number: usize) -> &Namespace {
        &self.nodes[number - 1].space
    }

    /// Lets the kernel of the balancer's machine pass connections on, and the nodes answer by it; or neither.
    fn route(&mut self, nodes: &[IpAddr], preserving: bool) -> Result<()> {
        if self.preserving == preserving {
            return Ok(());
        }
        let (balancer, all) = (self.address(Address::First), self.network.other(0, false));
        for node in &self.nodes {
            node.space.ip(&if preserving {
                format!("route add {balancer} dev eth0\nroute replace {all}/24 via {balancer} dev eth0\n")
            } else {
                format!("route del {all}/24 via {balancer}\nroute del {balancer} dev eth0\nroute add {all}/24 dev eth0\n")
            })?;
        }
        if preserving {
            self.balancer.space.forward(balancer, &[80, 443], nodes)?;
        } else {
            self.balancer.space.heal()?;
        }
        self.preserving = preserving;
        Ok(())
    }

    fn wait(&mut self, doors: &[(IpAddr, u16)]) -> Result<()> {
        let start = Instant::now();
        for (ip, port) in doors {
            let address = SocketAddr::new(*ip, *port);
            while !is_ready(address) {
                for machine in self.nodes.iter_mut().chain([&mut self.balancer]) {
                    machine.ended()?;
                }
                if start.elapsed() > Duration::from_secs(60) {
                    bail!("nobody listens at {address}:{}", self.logs());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    fn logs(&self) -> String {
        self.nodes.iter().chain([&self.balancer]).map(Machine::logs).collect()
    }
}

/// Whether somebody listens there; at Traefik's port for that, whether Rancher answers by its rules.
fn is_ready(address: SocketAddr) -> bool {
    let limit = Duration::from_secs(1);
    let Ok(mut stream) = TcpStream::connect_timeout(&address, limit) else { return false };
    if address.port() != ingress::READY {
        return true;
    }
    let mut answer = String::new();
    let asked = stream.set_read_timeout(Some(limit)).and_then(|()| {
        stream.write_all(b"GET /ping HTTP/1.0\r\n\r\n")?;
        stream.read_to_string(&mut answer)
    });
    asked.is_ok() && answer.ends_with("pong")
}

/// The last lines of a file.
fn tail(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// A file of `docs/load-balancer/`, as it is published.
fn published(name: &str) -> Result<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/load-balancer").join(name);
    std::fs::read_to_string(&file).with_context(|| file.display().to_string())
}

/// A service whose configuration is `text`, in the file `name` of `folder`; `{FILE}` in the arguments is that file.
fn configured(program: OsString, arguments: &[&str], folder: &Path, name: &str, text: String) -> Service {
    let file = folder.join(name);
    let path = file.display().to_string();
    let arguments = arguments.iter().map(|a| a.replace("{FILE}", &path)).collect();
    Service { program, arguments, files: vec![(file, text)], log: folder.join(format!("{name}.log")) }
}

/// nginx as one process that ends when it is killed. What a configuration does not place elsewhere it writes below
/// `/var/log/nginx` and `/var/lib/nginx`, where the suite has mounted folders of its own.
fn nginx(folder: &Path, name: &str, text: String) -> Service {
    let at = folder.display();
    let alone = format!("daemon off; master_process off; pid {at}/{name}.pid;");
    let errors = format!("{at}/{name}.log");
    configured("nginx".into(), &["-e", &errors, "-g", &alone, "-c", "{FILE}"], folder, name, text)
}
