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
mod setup;
mod tls;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

pub use self::ingress::Ingress;
use self::machines::{Machine, Service};
pub use self::setup::{BACKEND, Balancer, Edit, Layer, Root, Setup, TRAEFIK, missing};
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
        Ok(Self { nodes, balancer, client, certificates, network, folder })
    }

    /// Makes everything as `setup` says and waits until it listens; what is as it was goes on running.
    pub fn arrange(&mut self, setup: &Setup) -> Result<()> {
        let leaf = self.certificates.files(setup.certificate)?;
        for (i, node) in self.nodes.iter_mut().enumerate() {
            let number = i + 1;
            let at = self.folder.path().join(format!("node{number}"));
            std::fs::create_dir_all(&at)?;
            let services = vec![
                setup.backend(number, &at, &self.certificates.root())?,
                setup.ingress(&at, &leaf, self.balancer.space.address(false))?,
            ];
            node.run(services, setup.dead == Some(number))?;
        }
        let at = self.folder.path().join("balancer");
        std::fs::create_dir_all(&at)?;
        let nodes: Vec<IpAddr> = self.nodes.iter().map(|n| n.space.address(false)).collect();
        let service = setup.balancer(&at, &leaf, &nodes)?;
        self.balancer.run(service.into_iter().collect(), false)?;
        self.wait(setup)
    }

    /// Ends everything that runs on the machines and heals their network.
    pub fn clear(&mut self) -> Result<()> {
        for machine in self.nodes.iter_mut().chain([&mut self.balancer]) {
            machine.stop();
            machine.space.heal()?;
        }
        Ok(())
    }

    /// The agent's configuration for `setup`, as a file.
    pub fn agent(&self, setup: &Setup) -> Result<PathBuf> {
        let nodes: Vec<IpAddr> = self.nodes.iter().map(|n| n.space.address(false)).collect();
        let (ca, root) = (self.certificates.ca(), self.certificates.root());
        let text = setup.agent(&[self.address()], &nodes, &ca, &root)?;
        let file = self.folder.path().join("agent.toml");
        std::fs::write(&file, text)?;
        Ok(file)
    }

    /// The balancer's first address.
    pub fn address(&self) -> IpAddr {
        self.balancer.space.address(false)
    }

    /// The balancer's second address.
    pub fn second_address(&self) -> IpAddr {
        self.network.other(SECOND, false)
    }

    /// An address of the network that nobody has.
    pub fn nobody(&self, ipv6: bool) -> IpAddr {
        self.network.other(NOBODY, ipv6)
    }

    /// A machine that is neither node nor balancer.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// Node `number`, from 1.
    pub fn node(&self, number: usize) -> &Namespace {
        &self.nodes[number - 1].space
    }

    /// The balancer's machine.
    pub fn balancer(&self) -> &Namespace {
        &self.balancer.space
    }

    /// Where the bed's files lie.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn wait(&mut self, setup: &Setup) -> Result<()> {
        let mut doors: Vec<(IpAddr, u16)> = Vec::new();
        for (i, node) in self.nodes.iter().enumerate() {
            if setup.dead != Some(i + 1) {
                doors.extend(setup.node_ports().iter().map(|port| (node.space.address(false), *port)));
            }
        }
        doors.extend(setup.balancer_ports().iter().map(|port| (self.address(), *port)));
        let start = Instant::now();
        for (ip, port) in doors {
            let address = SocketAddr::new(ip, port);
            while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
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

/// nginx as one process that ends when it is killed, with everything it writes in `folder`.
fn nginx(folder: &Path, name: &str, text: String) -> Service {
    let at = folder.display();
    let (alone, errors) =
        (format!("daemon off; master_process off; pid {at}/{name}.pid;"), format!("{at}/{name}.log"));
    configured(
        "nginx".into(),
        &["-p", &at.to_string(), "-e", &errors, "-g", &alone, "-c", "{FILE}"],
        folder,
        name,
        text,
    )
}
