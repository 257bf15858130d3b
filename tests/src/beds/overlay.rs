//! Nodes of a cluster as network namespaces around a router: real VXLAN devices of the kernel as a CNI makes them, real
//! packet filters, real MTU. nginx stands in for kubelet, API server and supervisor, on their ports.
//!
//! The thread that builds the bed enters the router's namespace, and with it all that it starts: there runs the
//! coordinator. Overlay, devices and processes go when the bed is dropped, or with the namespaces that
//! `tests/beds/enclosed.sh` runs the suite in. Beds in several threads do not see each other.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};
use tempfile::TempDir;

use super::network::{enclosed, inside, ip, rules, run, within};
use super::pki::{Authority, DAY};
use crate::agent::AgentHome;
use crate::programs::{Process, until};

/// Address of the router, and of the coordinator on it.
pub const ROUTER: &str = "10.99.0.1";

/// One node.
pub struct Node {
    /// Its name.
    pub name: String,
    namespace: String,
    number: u8,
    /// Its agent's folders.
    pub home: AgentHome,
    agent: Option<Process>,
    services: Option<Process>,
}

/// A router and nodes around it.
pub struct Overlay {
    /// The nodes.
    pub nodes: Vec<Node>,
    router: String,
    /// The thread's own namespace, to go back to.
    before: File,
    dir: TempDir,
}

static BEDS: AtomicU8 = AtomicU8::new(1);

impl Overlay {
    /// A router and `count` nodes, each with a VXLAN device that knows the others, as flannel sets it up.
    pub fn start(count: u8) -> Result<Self> {
        enclosed()?;
        let dir = tempfile::Builder::new().prefix("outrider-nodes-").tempdir()?;
        let unique = format!("or{}", BEDS.fetch_add(1, Ordering::Relaxed));
        let before = File::open("/proc/thread-self/ns/net")?;
        let mut bed = Self { nodes: Vec::new(), router: format!("{unique}r"), before, dir };
        ip(None, &format!("netns add {}\n", bed.router))?;
        ip(Some(&bed.router), &format!("link set lo up\naddress add {ROUTER}/32 dev lo\n"))?;
        let mut sysctl = within(&bed.router, "sysctl");
        sysctl.args(["-qw", "net.ipv4.ip_forward=1"]);
        run(sysctl, "")?;
        // A chain of two, as a kubelet shows its own and its CA's.
        let ca = Authority::new("kubelet-ca", 3650 * DAY)?;
        let leaf = ca.issue("kubelet", &["kubelet.test"], -DAY, 365 * DAY)?;
        leaf.write(&bed.dir.path().join("chain.pem"), &bed.dir.path().join("key.pem"))?;
        std::fs::write(bed.dir.path().join("chain.pem"), leaf.certificate + &ca.pem())?;
        for number in 1..=count {
            let name = format!("n{number}");
            let home = AgentHome::new(&bed.dir.path().join(&name), &name)?;
            let namespace = format!("{unique}n{number}");
            bed.nodes.push(Node { name, namespace, number, home, agent: None, services: None });
            bed.wire(number)?;
        }
        for node in &bed.nodes {
            node.overlay(&bed.nodes, 1450)?;
        }
        setns(File::open(format!("/run/netns/{}", bed.router))?, CloneFlags::CLONE_NEWNET)?;
        for i in 0..bed.nodes.len() {
            bed.serve(i)?;
        }
        Ok(bed)
    }

    /// A cable between the router and a node, and the node's default route over it.
    fn wire(&self, number: u8) -> Result<()> {
        let namespace = &self.node(number)?.namespace;
        ip(None, &format!("netns add {namespace}\n"))?;
        ip(
            Some(&self.router),
            &format!(
                "link add to{number} type veth peer name eth0 netns {namespace}\n\
                 address add 10.99.{number}.1/24 dev to{number}\nlink set to{number} up\n"
            ),
        )?;
        ip(
            Some(namespace),
            &format!(
                "link set lo up\naddress add 10.99.{number}.2/24 dev eth0\nlink set eth0 up\n\
                 route add default via 10.99.{number}.1\n"
            ),
        )
    }

    fn node(&self, number: u8) -> Result<&Node> {
        self.nodes.iter().find(|n| n.number == number).context("no such node")
    }

    /// Runs what stands in for kubelet, API server and supervisor on a node.
    pub fn serve(&mut self, index: usize) -> Result<()> {
        let (folder, log) = (self.dir.path().to_owned(), self.dir.path().join(format!("nginx{index}.log")));
        let node = self.nodes.get_mut(index).context("no such node")?;
        let config = folder.join(format!("nginx{index}.conf"));
        std::fs::write(&config, nginx(&folder, index))?;
        let mut command = within(&node.namespace, "nginx");
        command.arg("-c").arg(&config).arg("-p").arg(&folder);
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        node.services = Some(Process::spawn(&mut command)?);
        let namespace = node.namespace.clone();
        until("nginx listens", Duration::from_secs(20), || {
            let listens = within(&namespace, "ss").arg("-ltnH").output().ok()?;
            String::from_utf8_lossy(&listens.stdout).contains(":10250").then_some(())
        })
        .with_context(|| std::fs::read_to_string(&log).unwrap_or_default())?;
        Ok(())
    }

    /// Starts the agent of a node with `configuration`.
    pub fn start_agent(&mut self, index: usize, configuration: &str) -> Result<()> {
        let node = self.nodes.get_mut(index).context("no such node")?;
        node.home.configure(configuration)?;
        let root = node.home.root();
        std::fs::create_dir_all(root.join("sys/class"))?;
        for (link, target) in [("sys/class/net", "/sys/class/net"), ("proc/net", "/proc/net")] {
            let link = root.join(link);
            if !link.exists() {
                std::os::unix::fs::symlink(target, link)?;
            }
        }
        let mut command = inside(&node.namespace, &node.home.command("run")?);
        command.stdin(Stdio::null());
        node.home.logged(&mut command)?;
        node.agent = Some(Process::spawn(&mut command)?);
        Ok(())
    }

    /// Kills the agent and the services of a node and takes its cable out: a machine that lost its power.
    pub fn power_off(&mut self, index: usize) -> Result<()> {
        let node = self.nodes.get_mut(index).context("no such node")?;
        (node.agent, node.services) = (None, None);
        ip(Some(&self.router), &format!("link set to{} down\n", node.number))
    }

    /// MTU of the router's interface towards a node.
    pub fn path_mtu(&self, index: usize, mtu: u32) -> Result<()> {
        let node = self.nodes.get(index).context("no such node")?;
        ip(Some(&self.router), &format!("link set to{} mtu {mtu}\n", node.number))
    }

    /// Makes the router drop packets of the overlay towards a node that are longer than `most`, as a tunnel or a provider's
    /// network of smaller MTU does that tells nobody. Its MTU alone would not do: the kernel learns it from the machines'
    /// own connections and obeys it inside the VXLAN, too.
    pub fn drop_large_overlay(&self, index: usize, most: u32) -> Result<()> {
        let node = self.nodes.get(index).context("no such node")?;
        let rule = format!("ip daddr {} udp dport 8472 meta length > {most} drop", node.address());
        rules(&self.router, &chain("forward", &rule))
    }

    /// Takes every rule of the router out again.
    pub fn unfilter_router(&self) -> Result<()> {
        rules(&self.router, "")
    }

    /// Makes the router say nothing when a packet is too large.
    pub fn silence_icmp(&self) -> Result<()> {
        rules(&self.router, &chain("output", "icmp type destination-unreachable drop"))
    }
}

/// A packet filter of one rule.
fn chain(hook: &str, rule: &str) -> String {
    format!("table inet outrider {{ chain {hook} {{ type filter hook {hook} priority 0; {rule}\n }}\n }}")
}

impl Node {
    /// The node's own address.
    pub fn address(&self) -> String {
        format!("10.99.{}.2", self.number)
    }

    /// One line of `ip -batch`, on the node.
    pub fn ip(&self, line: &str) -> Result<()> {
        ip(Some(&self.namespace), &format!("{line}\n"))
    }

    /// A rule of the node's packet filter, on packets that come in, in the place of the one before.
    pub fn filter(&self, rule: &str) -> Result<()> {
        rules(&self.namespace, &chain("input", rule))
    }

    /// Takes it out again.
    pub fn unfilter(&self) -> Result<()> {
        rules(&self.namespace, "")
    }

    /// The VXLAN device as flannel makes it: learning off, neighbours and forwarding entries set by hand.
    fn overlay(&self, all: &[Node], mtu: u32) -> Result<()> {
        let mac = |n: u8| format!("0a:00:00:00:00:{n:02x}");
        let (number, address) = (self.number, self.address());
        let mut batch = format!(
            "link add flannel.1 address {} mtu {mtu} type vxlan id 1 dev eth0 local {address} dstport 8472 nolearning\n\
             address add 10.42.{number}.0/32 dev flannel.1\nlink set flannel.1 up\n",
            mac(number),
        );
        for other in all.iter().filter(|n| n.number != number) {
            let (n, mac) = (other.number, mac(other.number));
            let _ = write!(
                batch,
                "route add 10.42.{n}.0/24 via 10.42.{n}.0 dev flannel.1 onlink\n\
                 neigh add 10.42.{n}.0 lladdr {mac} dev flannel.1 nud permanent\n"
            );
        }
        ip(Some(&self.namespace), &batch)?;
        for other in all.iter().filter(|n| n.number != number) {
            let (mac, address) = (mac(other.number), other.address());
            let mut bridge = within(&self.namespace, "bridge");
            bridge.args(["fdb", "append", &mac, "dev", "flannel.1", "dst", &address]);
            run(bridge, "")?;
        }
        Ok(())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            (node.agent, node.services) = (None, None);
        }
        // The thread goes back first: a namespace lives as long as somebody is in it.
        let _ = setns(&self.before, CloneFlags::CLONE_NEWNET);
        for namespace in self.nodes.iter().map(|n| &n.namespace).chain([&self.router]) {
            let _ = ip(None, &format!("netns del {namespace}\n"));
        }
    }
}

/// kubelet's `healthz` and port, API server and supervisor: 401 without a credential, as RKE2 answers.
fn nginx(folder: &Path, index: usize) -> String {
    let folder = folder.display();
    let tls = format!("ssl_certificate {folder}/chain.pem; ssl_certificate_key {folder}/key.pem;");
    let server = |port: u16| {
        format!("server {{ listen {port} ssl; {tls} location / {{ return 401 'Unauthorized'; }} }}")
    };
    format!(
        "daemon off; master_process off; pid {folder}/nginx{index}.pid; error_log stderr error;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {folder}/t{index}; proxy_temp_path {folder}/t{index};\n\
         fastcgi_temp_path {folder}/t{index}; uwsgi_temp_path {folder}/t{index}; scgi_temp_path {folder}/t{index};\n\
         server {{ listen 127.0.0.1:10248; location / {{ return 200 'ok'; }} }}\n{}\n{}\n{} }}\n",
        server(6443),
        server(9345),
        server(10250)
    )
}
