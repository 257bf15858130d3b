//! One server: an etcd member laid out and configured as RKE2 does, in a network namespace, with the agent beside it.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::Timing;
use super::programs::Etcd;
use crate::agent::AgentHome;
use crate::beds::network::Namespace;
use crate::programs::Process;

/// RKE2's data folder, below the root of the machine.
pub(super) const DATA: &str = "var/lib/rancher/rke2";
const ETCD: &str = "server/db/etcd";

/// A server.
#[derive(Debug)]
pub struct Server {
    /// Name of the node.
    pub node: String,
    /// Name of the member: the node's with eight digits of a UUID, as K3s and RKE2 make it.
    pub member: String,
    /// Where it runs.
    pub space: Namespace,
    pub(super) home: AgentHome,
    pub(super) address: IpAddr,
    pub(super) etcd: Option<Process>,
    pub(super) agent: Option<Process>,
    folder: PathBuf,
}

/// What its member is started with.
pub(super) struct Start<'a> {
    pub(super) programs: &'a Etcd,
    pub(super) timing: Timing,
    pub(super) quota_bytes: u64,
    pub(super) initial_cluster: &'a str,
    pub(super) state: &'static str,
    /// Begins a cluster of its own from the data that lies there.
    pub(super) force_new: bool,
}

impl Server {
    pub(super) fn new(folder: &Path, i: usize, space: Namespace, ipv6: bool) -> Result<Self> {
        let node = format!("server-{i}");
        let folder = folder.join(&node);
        let address = space.address(ipv6);
        let home = AgentHome::new(&folder, &node)?;
        let member = format!("{node}-{:08x}", rand::random::<u32>());
        let server = Self { node, member, space, home, address, etcd: None, agent: None, folder };
        server.home.put("etc/rancher/rke2/config.yaml", &format!("node-ip: {address}\n"))?;
        server.home.put(&format!("{DATA}/{ETCD}/name"), &server.member)?;
        server.home.put(
            &format!("{DATA}/server/db/snapshots/etcd-snapshot-{}-1796000000", server.node),
            &"x".repeat(4 * 4096),
        )?;
        Ok(server)
    }

    /// The machine's RKE2 folder.
    pub fn data(&self) -> PathBuf {
        self.home.root().join(DATA)
    }

    /// The member's data folder.
    pub fn etcd_data(&self) -> PathBuf {
        self.data().join(ETCD)
    }

    /// Its etcd certificates.
    pub fn tls(&self) -> PathBuf {
        self.data().join("server/tls/etcd")
    }

    /// Loopback of its family.
    pub(super) fn loopback(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        }
    }

    /// What it says to be reached at by its peers, with this port.
    pub fn peer_url(&self, port: u16) -> String {
        format!("https://{}", at(self.address, port))
    }

    /// Starts the member with the data that lies there, configured as RKE2 configures it (k3s-io/k3s: pkg/etcd/etcd.go,
    /// pkg/daemons/executor): both addresses, metrics on loopback, a configuration file in the data folder.
    pub(super) fn start_etcd(&mut self, start: &Start<'_>) -> Result<()> {
        let loopback = self.loopback();
        let both = |port: u16| format!("https://{},https://{}", at(loopback, port), at(self.address, port));
        let tls = format!("/{DATA}/server/tls/etcd");
        let mut config = format!(
            "name: {name}\ndata-dir: /{DATA}/{ETCD}\nlogger: zap\nlog-level: warn\nlog-outputs: [stderr]\n\
             listen-client-urls: {clients}\nadvertise-client-urls: https://{client}\n\
             listen-peer-urls: {peers}\ninitial-advertise-peer-urls: {peer}\nlisten-metrics-urls: http://{metrics}\n\
             initial-cluster: {cluster}\ninitial-cluster-state: {state}\ninitial-cluster-token: outrider-bed\n\
             heartbeat-interval: {heartbeat}\nelection-timeout: {election}\n\
             client-transport-security:\n  client-cert-auth: true\n  cert-file: {tls}/server-client.crt\n\
             \x20 key-file: {tls}/server-client.key\n  trusted-ca-file: {tls}/server-ca.crt\n\
             peer-transport-security:\n  client-cert-auth: true\n  cert-file: {tls}/peer-server-client.crt\n\
             \x20 key-file: {tls}/peer-server-client.key\n  trusted-ca-file: {tls}/peer-ca.crt\n",
            name = self.member,
            clients = both(2379),
            client = at(self.address, 2379),
            peers = both(2380),
            peer = self.peer_url(2380),
            metrics = at(loopback, 2381),
            cluster = start.initial_cluster,
            state = start.state,
            heartbeat = start.timing.heartbeat_ms,
            election = start.timing.election_ms,
        );
        if start.quota_bytes > 0 {
            config.push_str(&format!("quota-backend-bytes: {}\n", start.quota_bytes));
        }
        if start.force_new {
            config.push_str("force-new-cluster: true\n");
        }
        self.home.put(&format!("{DATA}/{ETCD}/config"), &config)?;
        let log = File::options().create(true).append(true).open(self.etcd_log_file())?;
        // `ip netns exec` gives it mounts of its own: there the machine's folder lies where RKE2 has it.
        let mut command = self.space.command("sh");
        command
            .arg("-ec")
            .arg("mount -t tmpfs tmpfs /var/lib; mkdir /var/lib/rancher; mount --rbind \"$1\" /var/lib/rancher; shift; exec \"$@\"")
            .arg("etcd")
            .arg(self.home.root().join("var/lib/rancher"))
            .arg(&start.programs.etcd)
            .arg("--config-file")
            .arg(format!("/{DATA}/{ETCD}/config"))
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH.replace("aarch64", "arm64"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.etcd = Some(Process::spawn(&mut command)?);
        Ok(())
    }

    /// Kills the member (SIGKILL).
    pub fn kill_etcd(&mut self) {
        self.etcd = None;
    }

    /// Ends the member as systemd or the kubelet would.
    pub fn stop_etcd(&mut self) -> Result<()> {
        if let Some(mut process) = self.etcd.take() {
            process.terminate(Duration::from_secs(20))?;
        }
        Ok(())
    }

    /// Stops the member in its tracks, or lets it go on.
    pub fn freeze_etcd(&self, frozen: bool) -> Result<()> {
        let process = self.etcd.as_ref().context("no etcd runs there")?;
        Ok(process.signal(if frozen { Signal::SIGSTOP } else { Signal::SIGCONT })?)
    }

    /// Whether the member runs.
    pub fn etcd_runs(&mut self) -> bool {
        self.etcd.as_mut().is_some_and(Process::is_running)
    }

    /// Process id of the member.
    pub fn etcd_pid(&self) -> Result<u32> {
        Ok(self.etcd.as_ref().context("no etcd runs there")?.pid())
    }

    /// Starts the agent, in the same namespace.
    pub fn start_agent(&mut self) -> Result<()> {
        let mut command = self.space.inside(&self.home.command("run")?);
        command.stdin(Stdio::null());
        self.home.logged(&mut command)?;
        self.agent = Some(Process::spawn(&mut command)?);
        Ok(())
    }

    /// Kills the agent.
    pub fn kill_agent(&mut self) {
        self.agent = None;
    }

    /// Writes through the member, a key a few times a second, until the value is dropped.
    pub fn write_all_the_time(&self, programs: &Etcd) -> Result<Process> {
        let mut command = self.space.command("sh");
        command.args(["-c", "while :; do \"$@\" >/dev/null 2>&1; sleep 0.1; done", "writer"]);
        let etcdctl = self.etcdctl_command(programs, &["put", "outrider-bed", "x"]);
        command.arg(etcdctl.get_program()).args(etcdctl.get_args()).env("ETCDCTL_API", "3");
        command.stdin(Stdio::null());
        Ok(Process::spawn(&mut command)?)
    }

    /// `etcdctl` beside the member, at its loopback address, with the cluster's client certificate.
    pub fn etcdctl(&self, programs: &Etcd, arguments: &[&str]) -> Result<String> {
        let inside = self.etcdctl_command(programs, arguments);
        output(self.space.inside(&inside))
    }

    /// Puts a value of any size.
    pub(super) fn put(&self, programs: &Etcd, key: &str, value: &[u8]) -> Result<()> {
        let inside = self.etcdctl_command(programs, &["put", key]);
        let mut command = self.space.inside(&inside);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        // One that does not take it all tells why when it ends.
        let written = child.stdin.take().context("no pipe")?.write_all(value);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("put {key}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(written?)
    }

    fn etcdctl_command(&self, programs: &Etcd, arguments: &[&str]) -> Command {
        let loopback = format!("https://{}", at(self.loopback(), 2379));
        let tls = self.tls();
        let mut command = Command::new(&programs.etcdctl);
        command
            .env("ETCDCTL_API", "3")
            .args(["--command-timeout=5s", "--dial-timeout=2s", "--endpoints", &loopback])
            .arg("--cacert")
            .arg(tls.join("server-ca.crt"))
            .arg("--cert")
            .arg(tls.join("client.crt"))
            .arg("--key")
            .arg(tls.join("client.key"))
            .args(arguments);
        command
    }

    /// What its agent said last, for a failure's message.
    pub fn agent_log(&self) -> String {
        tail(&self.home.log(), 15)
    }

    /// What its member said last.
    pub fn etcd_said(&self) -> String {
        tail(&self.etcd_log(), 5)
    }

    /// All that its member said.
    pub fn etcd_log(&self) -> String {
        fs::read_to_string(self.etcd_log_file()).unwrap_or_default()
    }

    fn etcd_log_file(&self) -> PathBuf {
        self.folder.join("etcd.log")
    }
}

/// Standard output of a command that succeeds.
pub(super) fn output(mut command: Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{:?}: {}", command.get_args().last(), String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn at(address: IpAddr, port: u16) -> std::net::SocketAddr {
    (address, port).into()
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
