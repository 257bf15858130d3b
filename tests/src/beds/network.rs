//! Machines of a network: a namespace each, a bridge between them, and rules that drop what a broken network loses.
//!
//! All of it is made inside the namespaces that `tests/beds/enclosed.sh` runs the suite in (mounts, network, processes):
//! whatever ends the suite, be it SIGKILL, ends these too, and nothing of them is seen from the machine itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result, bail, ensure};

/// Set by `tests/beds/enclosed.sh` inside.
pub const ENCLOSED: &str = "OUTRIDER_ENCLOSED";

/// Last part of the bridge's own address, where the coordinator listens.
const HUB: u8 = 254;

static NETWORKS: AtomicU8 = AtomicU8::new(1);

/// A bridge that the namespaces hang from; the test itself is on it too.
#[derive(Debug)]
pub struct Network {
    number: u8,
}

impl Network {
    /// A new one, with addresses of its own.
    pub fn new() -> Result<Self> {
        enclosed()?;
        let network = Self { number: NETWORKS.fetch_add(1, Ordering::Relaxed) };
        let (bridge, v4, v6) = (network.bridge(), network.address(HUB, false), network.address(HUB, true));
        ip(
            None,
            &format!(
                "link add {bridge} type bridge\naddress add {v4}/24 dev {bridge}\n\
                 address add {v6}/64 dev {bridge} nodad\nlink set {bridge} up\nlink set lo up\n"
            ),
        )?;
        Ok(network)
    }

    /// Address of the test and of what it starts outside the namespaces.
    pub fn hub(&self, ipv6: bool) -> IpAddr {
        self.address(HUB, ipv6)
    }

    /// Machine `i` (from 1), connected.
    pub fn namespace(&self, i: u8) -> Result<Namespace> {
        let (bridge, number) = (self.bridge(), self.number);
        let space = Namespace {
            name: format!("or{number}-{i}"),
            ipv4: self.address(i, false),
            ipv6: self.address(i, true),
        };
        let (name, v4, v6) = (&space.name, space.ipv4, space.ipv6);
        ip(
            None,
            &format!(
                "netns add {name}\nlink add v{name} type veth peer name eth0 netns {name}\n\
                 link set v{name} master {bridge} up\n"
            ),
        )?;
        ip(
            Some(name),
            &format!(
                "link set lo up\naddress add {v4}/24 dev eth0\naddress add {v6}/64 dev eth0 nodad\nlink set eth0 up\n"
            ),
        )?;
        Ok(space)
    }

    /// Machine `i` on the same cable in another network, and that network; what it asks of this one it asks directly.
    pub fn namespace_elsewhere(&self, i: u8) -> Result<(Namespace, String)> {
        let n = self.number;
        let mut space = self.namespace(i)?;
        let (own, ours) = (space.ipv4, self.address(0, false));
        let (theirs, there) = (Ipv4Addr::new(10, 88, n, 0), Ipv4Addr::new(10, 88, n, i));
        space.ip(&format!(
            "address del {own}/24 dev eth0\naddress add {there}/24 dev eth0\nroute add {ours}/24 dev eth0\n"
        ))?;
        ip(None, &format!("route replace {theirs}/24 dev {}\n", self.bridge()))?;
        space.ipv4 = there.into();
        Ok((space, format!("{theirs}/24")))
    }

    /// An address of this network that no namespace was given.
    pub fn other(&self, last: u8, ipv6: bool) -> IpAddr {
        self.address(last, ipv6)
    }

    fn bridge(&self) -> String {
        format!("or{}", self.number)
    }

    fn address(&self, last: u8, ipv6: bool) -> IpAddr {
        let n = self.number;
        match ipv6 {
            false => Ipv4Addr::new(10, 77, n, last).into(),
            true => Ipv6Addr::new(0xfd77, n.into(), 0, 0, 0, 0, 0, last.into()).into(),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = ip(None, &format!("link del {}\n", self.bridge()));
    }
}

/// A machine of the network; it is gone when this value and the processes in it are.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    ipv4: IpAddr,
    ipv6: IpAddr,
}

impl Namespace {
    /// Its address.
    pub fn address(&self, ipv6: bool) -> IpAddr {
        if ipv6 { self.ipv6 } else { self.ipv4 }
    }

    /// `program` inside; its process id is that of the child.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        within(&self.name, program)
    }

    /// Lines of `ip -batch`, inside.
    pub fn ip(&self, batch: &str) -> Result<()> {
        ip(Some(&self.name), batch)
    }

    /// What `command` would start, inside. Streams must be set on the answer.
    pub fn inside(&self, command: &Command) -> Command {
        inside(&self.name, command)
    }

    /// From now on whatever comes from `others` is lost, and what is sent to them arrives: loss in one direction.
    pub fn lose_from(&self, others: &[IpAddr]) -> Result<()> {
        let mut rules = String::new();
        for other in others {
            let family = if other.is_ipv6() { "ip6" } else { "ip" };
            let _ = writeln!(rules, "{family} saddr {other} drop");
        }
        self.rules(&format!(
            "table inet outrider {{ chain in {{ type filter hook input priority 0; policy accept; {rules} }}\n }}"
        ))
    }

    /// From now on what comes in here and matches is lost (nft's words for it).
    pub fn drop_in(&self, matches: &str) -> Result<()> {
        self.rules(&format!(
            "table inet outrider {{ chain in {{ type filter hook input priority 0; policy accept; {matches} drop\n }}\n }}"
        ))
    }

    /// From now on whatever comes from `others` for this TCP port is lost; everything else passes.
    pub fn close_port_to(&self, port: u16, others: &[IpAddr]) -> Result<()> {
        let mut rules = String::new();
        for other in others {
            let family = if other.is_ipv6() { "ip6" } else { "ip" };
            let _ = writeln!(rules, "{family} saddr {other} tcp dport {port} drop");
        }
        self.rules(&format!(
            "table inet outrider {{ chain in {{ type filter hook input priority 0; policy accept; {rules} }}\n }}"
        ))
    }

    /// New connections from here to `peers`' port go to `local` instead; what comes in for `alias` reaches the port.
    pub fn detour(&self, peers: &[(IpAddr, u16)], port: u16, alias: u16) -> Result<()> {
        let mut rules = String::new();
        for (peer, local) in peers {
            let family = if peer.is_ipv6() { "ip6" } else { "ip" };
            let _ = writeln!(rules, "{family} daddr {peer} tcp dport {port} redirect to :{local}");
        }
        self.rules(&format!(
            "table inet outrider {{ chain out {{ type nat hook output priority -100; {rules} }}\n\
             chain in {{ type nat hook prerouting priority -100; tcp dport {alias} redirect to :{port}\n }}\n }}"
        ))
    }

    /// What comes in for `ports` of `address` goes on to the same port of `nodes`, one after another, with the sender's
    /// address kept, as cloud balancers do that preserve the client's address. The nodes must answer by this machine.
    pub fn forward(&self, address: IpAddr, ports: &[u16], nodes: &[IpAddr]) -> Result<()> {
        let family = if address.is_ipv6() { "ip6" } else { "ip" };
        let map =
            nodes.iter().enumerate().map(|(i, node)| format!("{i} : {node}")).collect::<Vec<_>>().join(", ");
        let mut rules = String::new();
        for port in ports {
            let n = nodes.len();
            let _ = writeln!(
                rules,
                "{family} daddr {address} tcp dport {port} dnat {family} to numgen inc mod {n} map {{ {map} }}"
            );
        }
        let mut forwarding = self.command("sysctl");
        forwarding.args(["-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.send_redirects=0"]);
        forwarding.args(["net.ipv4.conf.eth0.send_redirects=0"]);
        run(forwarding, "")?;
        self.rules(&format!(
            "table inet outrider {{ chain in {{ type nat hook prerouting priority -100; {rules} }}\n }}"
        ))
    }

    /// Counts the connections that others begin at `ports` here, by their address; until it is healed.
    pub fn count_from(&self, others: &[IpAddr], ports: &[u16]) -> Result<()> {
        let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let mut rules = String::new();
        for other in others {
            let family = if other.is_ipv6() { "ip6" } else { "ip" };
            let _ = writeln!(
                rules,
                "{family} saddr {other} tcp dport {{ {ports} }} tcp flags & (syn | ack) == syn counter comment \"{other}\""
            );
        }
        self.rules(&format!(
            "table inet outrider {{ chain in {{ type filter hook input priority 0; policy accept; {rules} }}\n }}"
        ))
    }

    /// What was counted since, by address.
    pub fn counted(&self) -> Result<BTreeMap<String, u64>> {
        let mut nft = self.command("nft");
        let output = nft.args(["-j", "list", "table", "inet", "outrider"]).output()?;
        ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let all = document["nftables"].as_array().context("no nftables in the answer")?;
        let rules = all.iter().filter_map(|one| one.get("rule"));
        let counted = rules.filter_map(|rule| {
            let counter = rule["expr"].as_array()?.iter().find_map(|e| e.get("counter"))?;
            Some((rule["comment"].as_str()?.to_owned(), counter["packets"].as_u64()?))
        });
        Ok(counted.collect())
    }

    /// The network is sound again.
    pub fn heal(&self) -> Result<()> {
        self.rules("")
    }

    fn rules(&self, text: &str) -> Result<()> {
        rules(&self.name, text)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(None, &format!("netns del {}\n", self.name));
    }
}

/// `program` in a namespace; its process id is that of the child.
pub(super) fn within(namespace: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

/// What `command` would start, in a namespace. Streams must be set on the answer.
pub(super) fn inside(namespace: &str, command: &Command) -> Command {
    let mut inside = within(namespace, command.get_program());
    inside.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside
}

/// Replaces our packet filter in a namespace by `text`, at once.
pub(super) fn rules(namespace: &str, text: &str) -> Result<()> {
    let mut nft = within(namespace, "nft");
    nft.args(["-f", "-"]);
    run(nft, &format!("table inet outrider\ndelete table inet outrider\n{text}\n"))
}

/// Lines of `ip -batch`, in a namespace or in that of the test.
pub(super) fn ip(namespace: Option<&str>, batch: &str) -> Result<()> {
    let mut ip = Command::new("ip");
    if let Some(namespace) = namespace {
        ip.args(["-n", namespace]);
    }
    ip.args(["-batch", "-"]);
    run(ip, batch)
}

/// Runs `command` to its end, with `input`.
pub(super) fn run(mut command: Command, input: &str) -> Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    child.stdin.take().context("no pipe")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{input}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}

/// An error unless we run in namespaces that end with the suite: nothing is changed on the machine itself.
pub(super) fn enclosed() -> Result<()> {
    let devices = std::fs::read_to_string("/proc/net/dev")?;
    let foreign = devices
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim())
        .find(|name| !(*name == "lo" || name.starts_with("or") || name.starts_with("vor")));
    if std::env::var_os(ENCLOSED).is_none() || foreign.is_some() {
        bail!("this bed changes the network: run its suite with tests/run, which gives it one of its own");
    }
    Ok(())
}
