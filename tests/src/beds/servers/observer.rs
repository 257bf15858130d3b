//! What the coordinator shows: the verdict over the cluster, the conditions of its nodes, the history.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use outrider_protocol::{ClusterView, Condition, EventView, List, NodeView, Severity, Status};
use tokio::runtime::Runtime;

use crate::simulated::Operator;

/// Time between looks: the resolution of every time that is told.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Everything shown at one moment.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Conditions over the cluster.
    pub cluster: Vec<Condition>,
    /// Conditions of each node.
    pub nodes: BTreeMap<String, Vec<Condition>>,
}

impl Seen {
    /// The cluster's condition of this type.
    pub fn of_cluster(&self, kind: &str) -> Option<&Condition> {
        self.cluster.iter().find(|c| c.condition_type.as_str() == kind)
    }

    /// The node's condition of this type.
    pub fn of_node(&self, node: &str, kind: &str) -> Option<&Condition> {
        self.nodes.get(node)?.iter().find(|c| c.condition_type.as_str() == kind)
    }

    /// The first condition of this reason, the cluster's own before those of nodes, and whose it is.
    pub fn find(&self, reason: &str) -> Option<(&str, &Condition)> {
        let of_cluster = self.cluster.iter().map(|c| ("cluster", c));
        let of_nodes = self.nodes.iter().flat_map(|(node, all)| all.iter().map(move |c| (node.as_str(), c)));
        of_cluster.chain(of_nodes).find(|(_, c)| c.reason.as_str() == reason)
    }

    /// Whether the cluster's and every node's conditions of etcd are as good as they get; how fast the disk of this
    /// machine is aside, and that leaders changed, which is told for a while after every fault that made them.
    pub fn is_well(&self, nodes: usize) -> bool {
        let good = |c: &Condition| {
            c.status == Status::True && c.severity <= Severity::Info
                || c.condition_type.as_str() == "EtcdDisk"
                || c.reason.as_str() == "EtcdLeaderUnstable"
        };
        let etcd = |all: &[Condition]| {
            let mut of_etcd = all.iter().filter(|c| c.condition_type.as_str().starts_with("Etcd")).peekable();
            of_etcd.peek().is_some() && of_etcd.all(good)
        };
        self.nodes.len() == nodes && etcd(&self.cluster) && self.nodes.values().all(|all| etcd(all))
    }

    /// Conditions of etcd as lines, for a failure's message.
    pub fn lines(&self) -> String {
        let mut out = String::new();
        let mut say = |whose: &str, all: &[Condition]| {
            for c in all.iter().filter(|c| c.condition_type.as_str().starts_with("Etcd")) {
                let _ = writeln!(out, "{whose}: {}: {}", said(c), c.message);
            }
        };
        say("cluster", &self.cluster);
        self.nodes.iter().for_each(|(node, all)| say(node, all));
        out
    }
}

/// Type, status, reason and severity.
pub fn said(c: &Condition) -> String {
    format!("{} {} {} ({})", c.condition_type, c.status, c.reason, c.severity)
}

/// An operator who looks all the time.
pub(super) struct Observer {
    pub(super) operator: Operator,
    connection: Option<outrider_agent::net::Connection>,
    cluster: String,
    /// What was told last, where `OUTRIDER_TRACE` asks for every change.
    told: Option<String>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Observer {
    pub(super) fn new(operator: Operator, cluster: &str) -> Self {
        let trace = std::env::var_os("OUTRIDER_TRACE").map(|_| String::new());
        Self { operator, connection: None, cluster: cluster.to_owned(), told: trace }
    }

    /// Prints what is shown whenever it changes.
    fn trace(&mut self, seen: &Seen, took: Duration) {
        let Some(told) = &mut self.told else { return };
        let now = seen.lines();
        if *told != now {
            let before: Vec<String> = told.lines().map(str::to_owned).collect();
            *told = now;
            for line in told.lines().filter(|line| !before.iter().any(|b| b == line)) {
                let _ = writeln!(std::io::stdout(), "{:8.2} {line}", took.as_secs_f64());
            }
        }
    }

    async fn get<T: serde::de::DeserializeOwned>(&mut self, path: &str) -> Result<T> {
        // A kept connection may have ended while nobody asked.
        if let Some(mut kept) = self.connection.take()
            && let Ok(answer) = self.operator.get_over(&mut kept, path).await
        {
            self.connection = Some(kept);
            return Ok(answer);
        }
        let mut connection = self.operator.connect().await?;
        let answer = self.operator.get_over(&mut connection, path).await?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// Everything shown now. A cluster that is not known yet has no conditions.
    pub(super) async fn look(&mut self) -> Result<Seen> {
        let path = format!("/v1/clusters/{}", self.cluster);
        let cluster = self.get::<ClusterView>(&path).await.map(|view| view.conditions).unwrap_or_default();
        let list: List<NodeView> = self.get("/v1/nodes?limit=100").await?;
        let nodes = list.items.into_iter().map(|node| (node.name, node.conditions)).collect();
        Ok(Seen { cluster, nodes })
    }

    /// Looks until `good`; how long that took since `start`, and what was seen.
    pub(super) fn until(
        &mut self,
        runtime: &Runtime,
        what: &str,
        start: Instant,
        limit: Duration,
        mut good: impl FnMut(&Seen) -> bool,
    ) -> Result<(Duration, Seen)> {
        loop {
            let seen = runtime.block_on(self.look())?;
            let took = start.elapsed();
            self.trace(&seen, took);
            if good(&seen) {
                return Ok((took, seen));
            }
            if took > limit {
                bail!("{what}: not within {limit:?}; shown last:\n{}", seen.lines());
            }
            runtime.block_on(async { tokio::time::sleep(LOOK_EVERY).await });
        }
    }

    /// Position of the newest event.
    pub(super) async fn position(&mut self) -> Result<u64> {
        let list: List<EventView> = self.get("/v1/events?limit=1").await?;
        Ok(list.items.last().map_or(0, |event| event.id))
    }

    /// Events after this position, of nodes and of the cluster.
    pub(super) async fn events(&mut self, after: u64) -> Result<Vec<EventView>> {
        let list: List<EventView> = self.get(&format!("/v1/events?after={after}&limit=1000")).await?;
        Ok(list.items)
    }
}
