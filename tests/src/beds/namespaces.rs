//! Nodes of a cluster as network namespaces around a router: real VXLAN devices of the kernel as a CNI makes them, real
//! packet filters, real MTU. nginx stands in for kubelet, API server and supervisor, on their ports.
//!
//! The thread that builds the bed enters the router's namespace, and with it all that it starts: there runs the
//! coordinator. Namespaces, devices and processes go when the bed is dropped.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CloneFlags, setns};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

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
pub struct Namespaces {
    /// The nodes.
    pub nodes: Vec<Node>,
    router: String,
    /// The thread's own namespace, to go back to.
    before: File,
    dir: TempDir,
}

/// Why this bed cannot run here, if it cannot.
pub fn missing() -> Option<String> {
    let runs = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let status = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|s| s.success())
    };
    if !nix::unistd::geteuid().is_root() {
        return Some("only root makes network namespaces".into());
    }
    for (program, argument) in [("ip", "-V"), ("nft", "-v"), ("nginx", "-v")] {
        if !runs(program, &[argument]) {
            return Some(format!("{program} is not installed"));
        }
    }
    let probe = format!("orp{:x}", std::process::id());
    if !runs("ip", &["netns", "add", &probe]) {
        return Some("no network namespaces can be made here".into());
    }
    let vxlan = [
        "netns", "exec", &probe, "ip", "link", "add", "v0", "type", "vxlan", "id", "9", "dstport", "8472",
        "dev", "lo",
    ];
    let has_vxlan = runs("ip", &vxlan);
    runs("ip", &["netns", "del", &probe]);
    (!has_vxlan).then(|| "this kernel has no VXLAN".into())
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), said.trim());
    Ok(())
}

/// One command line in a namespace.
fn within(namespace: &str, line: &str) -> Result<()> {
    let mut arguments = vec!["netns", "exec", namespace];
    arguments.extend(line.split_whitespace());
    run("ip", &arguments)
}

impl Namespaces {
    /// A router and `count` nodes, each with a VXLAN device that knows the others, as flannel sets it up.
    pub fn start(count: u8) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("outrider-nodes-").tempdir()?;
        let unique = format!("or{:x}{:02x}", std::process::id(), rand::random::<u8>());
        let before = File::open("/proc/thread-self/ns/net")?;
        let mut bed = Self { nodes: Vec::new(), router: format!("{unique}r"), before, dir };
        run("ip", &["netns", "add", &bed.router])?;
        for line in [
            "ip link set lo up",
            &format!("ip addr add {ROUTER}/32 dev lo"),
            "sysctl -qw net.ipv4.ip_forward=1",
        ] {
            within(&bed.router, line)?;
        }
        write_certificate(bed.dir.path())?;
        for number in 1..=count {
            let name = format!("n{number}");
            let home = AgentHome::new(&bed.dir.path().join(&name), &name)?;
            let namespace = format!("{unique}{number}");
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
        run("ip", &["netns", "add", namespace])?;
        let far = format!("to{number}");
        within(&self.router, &format!("ip link add {far} type veth peer name eth0 netns {namespace}"))?;
        for line in [format!("ip addr add 10.99.{number}.1/24 dev {far}"), format!("ip link set {far} up")] {
            within(&self.router, &line)?;
        }
        for line in [
            "ip link set lo up".to_owned(),
            format!("ip addr add 10.99.{number}.2/24 dev eth0"),
            "ip link set eth0 up".to_owned(),
            format!("ip route add default via 10.99.{number}.1"),
            "nft add table inet test".to_owned(),
        ] {
            within(namespace, &line)?;
        }
        Ok(())
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
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &node.namespace, "nginx", "-c"]).arg(&config).arg("-p").arg(&folder);
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        node.services = Some(Process::spawn(&mut command)?);
        let namespace = node.namespace.clone();
        until("nginx listens", Duration::from_secs(20), || {
            let listens =
                Command::new("ip").args(["netns", "exec", &namespace, "ss", "-ltnH"]).output().ok()?;
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
        let plain = node.home.command("run")?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &node.namespace]).arg(plain.get_program()).args(plain.get_args());
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM").stdin(Stdio::null());
        node.home.logged(&mut command)?;
        node.agent = Some(Process::spawn(&mut command)?);
        Ok(())
    }

    /// Kills the agent and the services of a node and takes its cable out: a machine that lost its power.
    pub fn power_off(&mut self, index: usize) -> Result<()> {
        let node = self.nodes.get_mut(index).context("no such node")?;
        (node.agent, node.services) = (None, None);
        within(&self.router, &format!("ip link set to{} down", node.number))
    }

    /// Puts the cable back in.
    pub fn cable(&self, index: usize) -> Result<()> {
        let node = self.nodes.get(index).context("no such node")?;
        within(&self.router, &format!("ip link set to{} up", node.number))
    }

    /// MTU of the router's interface towards a node.
    pub fn path_mtu(&self, index: usize, mtu: u32) -> Result<()> {
        let node = self.nodes.get(index).context("no such node")?;
        within(&self.router, &format!("ip link set to{} mtu {mtu}", node.number))
    }

    /// Makes the router drop packets of the overlay towards a node that are longer than `most`, as a tunnel or a provider's
    /// network of smaller MTU does that tells nobody. Its MTU alone would not do: the kernel learns it from the machines'
    /// own connections and obeys it inside the VXLAN, too.
    pub fn drop_large_overlay(&self, index: usize, most: u32) -> Result<()> {
        let node = self.nodes.get(index).context("no such node")?;
        within(&self.router, "nft add table ip test")?;
        let rule = format!("ip daddr {} udp dport 8472 meta length > {most} drop", node.address());
        filter(&self.router, "ip", "forward", 0, &rule)
    }

    /// Takes every rule of the router out again.
    pub fn unfilter_router(&self) -> Result<()> {
        within(&self.router, "nft flush ruleset")
    }

    /// Makes the router say nothing when a packet is too large.
    pub fn silence_icmp(&self) -> Result<()> {
        within(&self.router, "nft add table ip test")?;
        filter(&self.router, "ip", "output", 0, "icmp type destination-unreachable drop")
    }
}

/// A chain of its own with one rule: nft takes its script as one argument.
fn filter(namespace: &str, family: &str, hook: &str, priority: i32, rule: &str) -> Result<()> {
    let chain = format!("c{}", hook.len());
    for script in [
        format!("add chain {family} test {chain} {{ type filter hook {hook} priority {priority}; }}"),
        format!("add rule {family} test {chain} {rule}"),
    ] {
        run("ip", &["netns", "exec", namespace, "nft", &script])?;
    }
    Ok(())
}

impl Node {
    /// The node's own address.
    pub fn address(&self) -> String {
        format!("10.99.{}.2", self.number)
    }

    /// One command line on the node.
    pub fn run(&self, line: &str) -> Result<()> {
        within(&self.namespace, line)
    }

    /// A rule of the node's packet filter, on packets that come in.
    pub fn filter(&self, rule: &str) -> Result<()> {
        filter(&self.namespace, "inet", "input", 0, rule)
    }

    /// Takes every rule out again.
    pub fn unfilter(&self) -> Result<()> {
        self.run("nft flush ruleset")?;
        self.run("nft add table inet test")
    }

    /// The VXLAN device as flannel makes it: learning off, neighbours and forwarding entries set by hand.
    fn overlay(&self, all: &[Node], mtu: u32) -> Result<()> {
        let mac = |n: u8| format!("0a:00:00:00:00:{n:02x}");
        self.run(&format!(
            "ip link add flannel.1 address {} mtu {mtu} type vxlan id 1 dev eth0 local {} dstport 8472 nolearning",
            mac(self.number),
            self.address()
        ))?;
        self.run(&format!("ip addr add 10.42.{}.0/32 dev flannel.1", self.number))?;
        self.run("ip link set flannel.1 up")?;
        for other in all.iter().filter(|n| n.number != self.number) {
            let n = other.number;
            self.run(&format!("ip route add 10.42.{n}.0/24 via 10.42.{n}.0 dev flannel.1 onlink"))?;
            self.run(&format!("ip neigh add 10.42.{n}.0 lladdr {} dev flannel.1 nud permanent", mac(n)))?;
            self.run(&format!("bridge fdb append {} dev flannel.1 dst {}", mac(n), other.address()))?;
        }
        Ok(())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            (node.agent, node.services) = (None, None);
        }
        // The thread goes back first: a namespace lives as long as somebody is in it.
        let _ = setns(&self.before, CloneFlags::CLONE_NEWNET);
        for namespace in self.nodes.iter().map(|n| &n.namespace).chain([&self.router]) {
            let _ = run("ip", &["netns", "del", namespace]);
        }
    }
}

/// A chain of two certificates with large keys, as a kubelet shows its own and its CA's.
fn write_certificate(folder: &Path) -> Result<()> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec!["kubelet.test".to_owned()])?.signed_by(&key, &ca)?;
    std::fs::write(folder.join("chain.pem"), format!("{}{}", leaf.pem(), ca.pem()))?;
    std::fs::write(folder.join("key.pem"), key.serialize_pem())?;
    if !folder.join("chain.pem").is_file() {
        bail!("no certificate");
    }
    Ok(())
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
