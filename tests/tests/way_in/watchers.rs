//! Agents on the machines of the bed and a coordinator that hears them all.

use std::time::{Duration, Instant};

use outrider_protocol::{ClusterView, Condition};
use outrider_tests::agent::AgentHome;
use outrider_tests::beds::network::Namespace;
use outrider_tests::beds::rancher::{Bed, Setup};
use outrider_tests::coordinator::{Coordinator, Launch};
use outrider_tests::programs::Process;

/// Ten passes that meet time-outs, the report, hysteresis, and a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
pub(crate) const CLUSTER: &str = "rancher";
const REACHABLE: &str = "LoadBalancerReachable";

/// Where an agent runs.
pub(crate) enum Place {
    /// On a node behind the balancer, from 1.
    Node(usize),
    /// On a machine of its own.
    Machine(Namespace),
}

pub(crate) struct Watcher {
    pub(crate) name: String,
    pub(crate) place: Place,
    home: AgentHome,
    agent: Option<Process>,
}

/// The bed with its agents.
pub(crate) struct Watched {
    pub(crate) watchers: Vec<Watcher>,
    coordinator: Coordinator,
    pub(crate) runtime: tokio::runtime::Runtime,
    address: std::net::SocketAddr,
    _folder: tempfile::TempDir,
    // Last: the agents end before their machines do.
    pub(crate) bed: Bed,
}

impl Watched {
    /// A coordinator, and no agent yet.
    pub(crate) fn new(bed: Bed) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut launch = Launch::new(&folder.path().join("coordinator")).unwrap();
        launch.address.set_ip(bed.hub());
        let coordinator = runtime.block_on(launch.start()).unwrap_or_else(|e| panic!("{e:#}"));
        Self { watchers: Vec::new(), coordinator, runtime, address: launch.address, _folder: folder, bed }
    }

    /// Starts an agent; `more` is its configuration beside the balancer, whose setup is `setup`.
    pub(crate) fn add(&mut self, name: &str, place: Place, setup: &Setup, more: &str) {
        let home = AgentHome::new(&self._folder.path().join(name), name).unwrap();
        let root = home.root();
        std::fs::create_dir_all(root.join("sys/class")).unwrap();
        for (link, target) in [("sys/class/net", "/sys/class/net"), ("proc/net", "/proc/net")] {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        // An agent below a root of its own reads the balancer's CA there too.
        let ca = self.bed.ca();
        let below = root.join(ca.strip_prefix("/").unwrap());
        std::fs::create_dir_all(below.parent().unwrap()).unwrap();
        std::fs::copy(ca, below).unwrap();
        let token = self.runtime.block_on(self.coordinator.operator.once_token()).unwrap();
        home.put("token", &token).unwrap();
        let profile = match place {
            Place::Node(_) => "rancher-ha-server",
            Place::Machine(_) => "rancher-ha-agent",
        };
        let balancer = std::fs::read_to_string(self.bed.agent(setup).unwrap()).unwrap();
        let configuration = format!(
            "[node]\nname = {name:?}\ncluster = \"{CLUSTER}\"\nprofile = \"{profile}\"\n[coordinator]\n\
             urls = [\"https://{}\"]\ntoken_file = {:?}\n{more}\n{balancer}",
            self.address,
            root.join("token"),
        );
        home.configure(&configuration).unwrap();
        self.watchers.push(Watcher { name: name.to_owned(), place, home, agent: None });
        self.start(name);
    }

    pub(crate) fn space(&self, name: &str) -> &Namespace {
        match &self.watchers.iter().find(|w| w.name == name).unwrap().place {
            Place::Node(number) => self.bed.node(*number),
            Place::Machine(space) => space,
        }
    }

    pub(crate) fn start(&mut self, name: &str) {
        let watcher = self.watchers.iter().find(|w| w.name == name).unwrap();
        let mut command = self.space(name).inside(&watcher.home.command("run").unwrap());
        command.stdin(std::process::Stdio::null());
        watcher.home.logged(&mut command).unwrap();
        let agent = Process::spawn(&mut command).unwrap();
        self.watchers.iter_mut().find(|w| w.name == name).unwrap().agent = Some(agent);
    }

    pub(crate) fn stop(&mut self, name: &str) {
        self.watchers.iter_mut().find(|w| w.name == name).unwrap().agent = None;
    }

    pub(crate) fn cluster(&self) -> Option<ClusterView> {
        self.runtime.block_on(self.coordinator.operator.get(&format!("/v1/clusters/{CLUSTER}"))).ok()
    }

    pub(crate) fn condition(&self) -> Option<Condition> {
        let conditions = self.cluster()?.conditions;
        conditions.into_iter().find(|c| c.condition_type.as_str() == REACHABLE && c.subject == "rancher")
    }

    /// A condition of one node.
    pub(crate) fn of_node(&self, name: &str, kind: &str) -> Option<Condition> {
        let path = format!("/v1/nodes/{name}");
        let view: outrider_protocol::NodeView =
            self.runtime.block_on(self.coordinator.operator.get(&path)).ok()?;
        view.conditions.into_iter().find(|c| c.condition_type.as_str() == kind)
    }

    /// Waits until what `look` finds has this reason and says all of `words`; every other reason that was seen meanwhile.
    pub(crate) fn see_in(
        &self,
        look: impl Fn() -> Option<Condition>,
        reason: &str,
        words: &[&str],
    ) -> (Duration, Condition, Vec<String>) {
        let (start, mut others) = (Instant::now(), Vec::new());
        loop {
            let found = look();
            if let Some(c) = &found {
                if c.reason.as_str() == reason && words.iter().all(|w| c.message.contains(w)) {
                    return (start.elapsed(), c.clone(), others);
                }
                let other = c.reason.to_string();
                if other != reason && others.last() != Some(&other) {
                    others.push(other);
                }
            }
            if start.elapsed() > LIMIT {
                let matrix = self.cluster().map(|c| c.paths);
                let logs: Vec<String> = self.watchers.iter().map(|w| w.home.log()).collect();
                panic!(
                    "no {reason} with {words:?} within {LIMIT:?}; last seen: {found:#?}\n{matrix:#?}\n{}",
                    logs.join("\n---\n")
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The same of the whole cluster's verdict.
    pub(crate) fn see(&self, reason: &str, words: &[&str]) -> (Duration, Condition, Vec<String>) {
        self.see_in(|| self.condition(), reason, words)
    }
}
