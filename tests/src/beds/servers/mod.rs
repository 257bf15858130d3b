//! Servers of one cluster, as RKE2 lays them out: a network namespace each with a real etcd member over TLS and a real
//! `outrider-agent`, and a real coordinator on the bridge between them, where the test watches what is reported.

mod member;
mod observer;
mod pki;
mod programs;

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use outrider_protocol::EventView;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub use self::member::Server;
use self::member::Start;
use self::observer::Observer;
pub use self::observer::{Seen, said};
pub use self::pki::Pki;
pub use self::programs::Etcd;
use crate::beds::network::{Namespace, Network};
use crate::coordinator::{Coordinator, Launch};
use crate::programs::{Process, program, until};

/// How long a cluster may take to come up and be reported well, on a busy machine.
const UP: Duration = Duration::from_secs(90);

/// etcd's heartbeat and election timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Milliseconds between heartbeats.
    pub heartbeat_ms: u32,
    /// Milliseconds without one until an election.
    pub election_ms: u32,
}

impl Timing {
    /// etcd's own.
    pub const DEFAULT: Self = Self { heartbeat_ms: 100, election_ms: 1000 };
    /// What RKE2 and K3s set.
    pub const RKE2: Self = Self { heartbeat_ms: 500, election_ms: 5000 };

    /// The election timeout.
    pub fn election(self) -> Duration {
        Duration::from_millis(self.election_ms.into())
    }
}

impl std::fmt::Display for Timing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} ms", self.heartbeat_ms, self.election_ms)
    }
}

/// What may differ between clusters.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which etcd.
    pub etcd: Etcd,
    /// How many members.
    pub members: u8,
    /// Their timing.
    pub timing: Timing,
    /// IPv6 between them.
    pub ipv6: bool,
    /// Quota of the database; etcd's default when 0.
    pub quota_bytes: u64,
    /// More of every agent's configuration.
    pub agent: String,
}

impl Options {
    /// Three members over IPv4 with etcd's default timing.
    pub fn new(etcd: &Etcd) -> Self {
        Self {
            etcd: etcd.clone(),
            members: 3,
            timing: Timing::DEFAULT,
            ipv6: false,
            quota_bytes: 0,
            agent: String::new(),
        }
    }
}

/// The servers; dropping them ends their processes and removes their files.
pub struct Servers {
    servers: Vec<Server>,
    options: Options,
    initial_cluster: String,
    observer: Observer,
    detours: Vec<Process>,
    pki: Pki,
    // In this order: first the processes above, then what they live in.
    _coordinator: Coordinator,
    runtime: Runtime,
    network: Network,
    folder: TempDir,
}

impl Servers {
    /// Starts everything and waits until the coordinator shows that all is well.
    pub fn start(options: &Options) -> Result<Self> {
        let mut bed = Self::start_quietly(options)?;
        let nodes = bed.servers.len();
        bed.until("all is well", Instant::now(), UP, |seen| seen.is_well(nodes))?;
        Ok(bed)
    }

    /// Starts everything; nobody has looked yet.
    pub fn start_quietly(options: &Options) -> Result<Self> {
        let network = Network::new()?;
        let folder = tempfile::Builder::new().prefix("outrider-servers-").tempdir()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut launch = Launch::new(&folder.path().join("coordinator"))?;
        launch.address = (network.hub(options.ipv6), 8440).into();
        let coordinator = runtime.block_on(launch.start())?;
        let observer = Observer::new(coordinator.operator.clone(), "bed");
        let mut bed = Self {
            servers: Vec::new(),
            options: options.clone(),
            initial_cluster: String::new(),
            observer,
            detours: Vec::new(),
            pki: Pki::new()?,
            _coordinator: coordinator,
            runtime,
            network,
            folder,
        };
        for i in 1..=options.members {
            bed.add_server(i)?;
        }
        let all: Vec<String> =
            bed.servers.iter().map(|s| format!("{}={}", s.member, s.peer_url(2380))).collect();
        bed.initial_cluster = all.join(",");
        for i in 0..bed.servers.len() {
            bed.start_etcd(i)?;
        }
        for i in 0..bed.servers.len() {
            bed.wait_for_quorum(i)?;
        }
        for i in 0..bed.servers.len() {
            bed.servers[i].start_agent()?;
        }
        Ok(bed)
    }

    /// The programs and numbers it was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The election timeout.
    pub fn election(&self) -> Duration {
        self.options.timing.election()
    }

    /// Server `i`, from 0.
    pub fn server(&mut self, i: usize) -> &mut Server {
        &mut self.servers[i]
    }

    /// How many servers.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Who signs.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// Starts member `i` with the data that lies there.
    pub fn start_etcd(&mut self, i: usize) -> Result<()> {
        self.start_etcd_as(i, false)
    }

    fn start_etcd_as(&mut self, i: usize, force_new: bool) -> Result<()> {
        let start = Start {
            programs: &self.options.etcd,
            timing: self.options.timing,
            quota_bytes: self.options.quota_bytes,
            initial_cluster: &self.initial_cluster,
            state: if i < usize::from(self.options.members) { "new" } else { "existing" },
            force_new,
        };
        self.servers[i].start_etcd(&start)
    }

    /// One more server, added as a learner and started with its agent; its index.
    pub fn join_learner(&mut self) -> Result<usize> {
        let i = self.servers.len();
        self.add_server(u8::try_from(i)? + 1)?;
        let (member, url) = (self.servers[i].member.clone(), self.servers[i].peer_url(2380));
        // etcd refuses ("unhealthy cluster") until every member has been connected for some seconds.
        let add = ["member", "add", &member, "--learner", "--peer-urls", &url];
        until("member add", UP, || self.etcdctl(0, &add).ok())?;
        self.initial_cluster.push_str(&format!(",{member}={url}"));
        self.start_etcd(i)?;
        self.servers[i].start_agent()?;
        Ok(i)
    }

    fn add_server(&mut self, number: u8) -> Result<()> {
        let space: Namespace = self.network.namespace(number)?;
        let server = Server::new(self.folder.path(), number.into(), space, self.options.ipv6)?;
        self.pki.write(&server.tls(), server.address)?;
        let token = self.runtime.block_on(self.observer.operator.once_token())?;
        let token_file = self.folder.path().join(format!("token-{number}"));
        std::fs::write(&token_file, token)?;
        let timing = match self.options.timing {
            // What the agent takes an RKE2 member to have; others are told.
            Timing::RKE2 => String::new(),
            other => format!("[etcd]\nelection_timeout = \"{}ms\"\n", other.election_ms),
        };
        server.home.configure(&format!(
            "[node]\nname = \"{}\"\ncluster = \"bed\"\nprofile = \"rancher-ha-server\"\n\
             [coordinator]\nurls = [\"https://{}\"]\ntoken_file = {token_file:?}\n{timing}{}",
            server.node, self.observer.operator.target.address, self.options.agent,
        ))?;
        self.servers.push(server);
        Ok(())
    }

    /// `etcdctl` at member `i`.
    pub fn etcdctl(&self, i: usize, arguments: &[&str]) -> Result<String> {
        self.servers[i].etcdctl(&self.options.etcd, arguments)
    }

    /// Puts a value of any size through member `i`.
    pub fn put(&self, i: usize, key: &str, value: &[u8]) -> Result<()> {
        self.servers[i].put(&self.options.etcd, key, value)
    }

    /// Waits until member `i` answers a linearizable read.
    pub fn wait_for_quorum(&self, i: usize) -> Result<()> {
        let answers = || self.etcdctl(i, &["get", "k"]).ok();
        until("a linearizable read", UP, answers).map(drop).with_context(|| {
            format!("{} has no quorum; it said last: {}", self.servers[i].node, self.servers[i].etcd_said())
        })
    }

    /// Id of member `i` as etcdctl takes it.
    pub fn member_id(&self, i: usize) -> Result<String> {
        let list = self.etcdctl(0, &["member", "list"])?;
        let name = &self.servers[i].member;
        let url = self.servers[i].peer_url(2380);
        let line = list.lines().find(|line| line.contains(name.as_str()) || line.contains(&url));
        let id = line.and_then(|line| line.split(',').next());
        id.map(|id| id.trim().to_owned()).with_context(|| format!("no {name} in {list}"))
    }

    /// The raft term of member `i`: one that stays the same means that no election took place.
    pub fn term(&self, i: usize) -> Result<u64> {
        self.status(i)?["raftTerm"].as_u64().context("no raftTerm")
    }

    /// Makes member `i` the leader.
    pub fn lead(&self, i: usize) -> Result<()> {
        let leads = self.status(i)?["leader"].as_u64().context("no leader")?;
        for from in (0..self.servers.len()).filter(|from| *from != i) {
            if self.status(from)?["header"]["member_id"].as_u64() == Some(leads) {
                self.etcdctl(from, &["move-leader", &self.member_id(i)?])?;
            }
        }
        Ok(())
    }

    fn status(&self, i: usize) -> Result<serde_json::Value> {
        let list: serde_json::Value =
            serde_json::from_str(&self.etcdctl(i, &["endpoint", "status", "-w", "json"])?)?;
        Ok(list[0]["Status"].clone())
    }

    /// Splits the network between the members into these groups; the coordinator is still reached by all.
    pub fn partition(&self, groups: &[&[usize]]) -> Result<()> {
        self.between(groups, |server, others| server.space.lose_from(others))
    }

    /// Closes this port of every server to those of other groups.
    pub fn close_port(&self, port: u16, groups: &[&[usize]]) -> Result<()> {
        self.between(groups, |server, others| server.space.close_port_to(port, others))
    }

    /// Does something to each server in these groups, given the addresses in the other ones.
    fn between(&self, groups: &[&[usize]], cut: impl Fn(&Server, &[IpAddr]) -> Result<()>) -> Result<()> {
        for group in groups {
            let others = groups.iter().filter(|g| *g != group).flat_map(|g| g.iter());
            let others: Vec<IpAddr> = others.map(|i| self.address(*i)).collect();
            for i in *group {
                cut(&self.servers[*i], &others)?;
            }
        }
        Ok(())
    }

    /// Address of server `i`.
    pub fn address(&self, i: usize) -> IpAddr {
        self.servers[i].address
    }

    /// The network is sound again.
    pub fn heal(&mut self) -> Result<()> {
        self.detours.clear();
        self.servers.iter().try_for_each(|server| server.space.heal())
    }

    /// Puts `delay` on all that member `i` and the others tell each other, each way, with proxies of our own (the kernel
    /// may lack netem). Member `i` is started anew, so that no connection stays on the straight way.
    pub fn delay_peer(&mut self, i: usize, delay: Duration) -> Result<()> {
        self.servers[i].stop_etcd()?;
        const ALIAS: u16 = 12380;
        for from in 0..self.servers.len() {
            let far = |to: usize| (from == i) != (to == i);
            let to: Vec<usize> = (0..self.servers.len()).filter(|to| far(*to)).collect();
            let mut detours = Vec::new();
            for to in to {
                let local = 9000 + u16::try_from(to)?;
                let target = std::net::SocketAddr::from((self.address(to), ALIAS));
                // A connection that is redirected where it was made goes to loopback.
                let listen = std::net::SocketAddr::from((self.servers[from].loopback(), local));
                let mut command = self.servers[from].space.command(program("delay")?);
                command.args([listen.to_string(), target.to_string(), delay.as_millis().to_string()]);
                command.stdin(Stdio::null());
                self.detours.push(Process::spawn(&mut command)?);
                detours.push((self.address(to), local));
            }
            self.servers[from].space.detour(&detours, 2380, ALIAS)?;
        }
        self.start_etcd(i)
    }

    /// What the coordinator shows now.
    pub fn look(&mut self) -> Result<Seen> {
        self.runtime.block_on(self.observer.look())
    }

    /// What `outrider describe cluster` shows a person now.
    pub fn described(&self) -> Result<String> {
        let mut command = std::process::Command::new(program("outrider")?);
        command.args(["describe", "cluster", "bed"]).env("HOME", self.folder.path()).env("COLUMNS", "200");
        self.observer.operator.told_to(&mut command);
        member::output(command)
    }

    /// Looks until `good`; how long that took since `start`, and what was seen.
    pub fn until(
        &mut self,
        what: &str,
        start: Instant,
        limit: Duration,
        good: impl FnMut(&Seen) -> bool,
    ) -> Result<(Duration, Seen)> {
        let found = self.observer.until(&self.runtime, what, start, limit, good);
        found.with_context(|| {
            let logs = self.servers.iter().map(|s| format!("{}:\n{}\n", s.node, s.agent_log()));
            format!("{what}; the agents said last:\n{}", logs.collect::<String>())
        })
    }

    /// Position of the newest event.
    pub fn position(&mut self) -> Result<u64> {
        self.runtime.block_on(self.observer.position())
    }

    /// Events after this position, oldest first.
    pub fn events(&mut self, after: u64) -> Result<Vec<EventView>> {
        self.runtime.block_on(self.observer.events(after))
    }

    /// Writes Kubernetes nodes into etcd, as far as Outrider looks: keys below `/registry/minions/`.
    pub fn put_nodes(&self, names: &[&str]) -> Result<()> {
        for name in names {
            self.etcdctl(0, &["put", &format!("/registry/minions/{name}"), "k8s\0"])?;
        }
        Ok(())
    }

    /// Writes through member `i`, a key a few times a second, until the value is dropped.
    pub fn write_all_the_time(&self, i: usize) -> Result<Process> {
        self.servers[i].write_all_the_time(&self.options.etcd)
    }

    /// Lets member `i`'s fsync take `delay` longer, until the value is dropped: strace holds it in the system call.
    pub fn slow_disk(&self, i: usize, delay: Duration) -> Result<Process> {
        let micros = delay.as_micros();
        let mut strace = std::process::Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=fdatasync,fsync", "-e"]);
        strace.arg(format!("inject=fdatasync,fsync:delay_exit={micros}")).args(["-o", "/dev/null", "-p"]);
        strace.arg(self.servers[i].etcd_pid()?.to_string()).stdin(Stdio::null());
        let mut process = Process::spawn(&mut strace)?;
        std::thread::sleep(Duration::from_millis(200));
        ensure!(process.is_running(), "strace cannot attach to etcd");
        Ok(process)
    }

    /// Restores a snapshot of the cluster on server `i` alone: a cluster of its own with another id.
    pub fn restore_alone(&mut self, i: usize) -> Result<()> {
        let file = self.folder.path().join("snapshot").display().to_string();
        self.etcdctl(0, &["snapshot", "save", &file])?;
        self.servers[i].stop_etcd()?;
        let server = &self.servers[i];
        let (name, url) = (server.member.clone(), server.peer_url(2380));
        let alone = format!("{name}={url}");
        let restored = self.folder.path().join("restored");
        let folder = restored.display().to_string();
        let arguments = [
            "snapshot",
            "restore",
            &file,
            "--data-dir",
            &folder,
            "--name",
            &name,
            "--initial-cluster",
            &alone,
            "--initial-advertise-peer-urls",
            &url,
            "--initial-cluster-token",
            "alone",
        ];
        self.etcdctl(i, &arguments)?;
        let data = server.etcd_data();
        std::fs::rename(data.join("member"), data.join("member-before"))?;
        std::fs::rename(restored.join("member"), data.join("member"))?;
        self.start_etcd(i)
    }

    /// Begins a cluster anew on server `i` from its own data, while the others go on: one more under the same id.
    pub fn begin_anew(&mut self, i: usize) -> Result<()> {
        self.servers[i].stop_etcd()?;
        let data = self.servers[i].etcd_data();
        let copied =
            Command::new("cp").arg("-a").arg(data.join("member")).arg(data.join("member-before")).status()?;
        ensure!(copied.success(), "the data could not be copied");
        self.start_etcd_as(i, true)
    }

    /// Puts back what lay there before the restore, or before it was begun anew.
    pub fn return_from_restore(&mut self, i: usize) -> Result<()> {
        self.servers[i].stop_etcd()?;
        let data = self.servers[i].etcd_data();
        std::fs::remove_dir_all(data.join("member"))?;
        std::fs::rename(data.join("member-before"), data.join("member"))?;
        self.start_etcd(i)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // All at once: a member that waits for others to end would take its time.
        for server in &mut self.servers {
            server.kill_agent();
            server.kill_etcd();
        }
        self.detours.clear();
    }
}
