//! Everything the loop owns, and one turn of it: facts -> judgement -> latches -> transitions.

use std::sync::Arc;
use std::time::Duration;

use outrider_diagnosis as diagnosis;
use outrider_protocol::{
    AgentFacts, Check, CheckFacts, Condition, Fact, Identity, InterfaceFacts, Latch, NodeConditions,
    NodeFacts, NodeNetwork, NodeRef, NodeState, Severity, Timestamp, Transition, TypeMeta, UnknownCause,
};

use super::paths::PathMemory;
use crate::act::{AgentStatus, CheckStatus};
use crate::capture::{VERSION, node_ref};
use crate::checks::Reading;
use crate::config::{Loaded, Settings};
use crate::report::DeliveryStatus;

/// What the loop knows.
pub(super) struct State {
    /// Settings in force: the node's own and what the coordinator desires over them.
    pub(super) settings: Arc<Settings>,
    /// The node's own settings: the last good ones.
    pub(super) own: Settings,
    pub(super) config_files: Vec<String>,
    pub(super) config_problems: Vec<String>,
    pub(super) node: NodeRef,
    pub(super) delivery: DeliveryStatus,
    pub(super) generation: u64,
    pub(super) started_at: Timestamp,
    /// Problems of the state folder that are not the spool's; empty when there are none.
    pub(super) storage_problem: String,
    latches: Vec<Latch>,
    /// Time from the last judgement to the end of the first wait in it: then the same findings are shown otherwise.
    pub(super) waits: Option<Duration>,
    /// What tries at balancers came to lately.
    paths: PathMemory,
    /// The facts, as of the last turn with the latches before it: judged again, they give the verdict byte for byte.
    /// Readings go in just before they are judged, in the same turn.
    pub(super) facts: NodeFacts,
    pub(super) verdict: NodeConditions,
}

impl State {
    /// The state at start: no readings yet, and the latches of the process before.
    pub(super) fn new(loaded: &Loaded, latches: Vec<Latch>, now: Timestamp) -> Self {
        let node = node_ref(&loaded.settings);
        let facts = NodeFacts {
            meta: TypeMeta::new("NodeFacts"),
            node: node.clone(),
            agent_version: VERSION.to_owned(),
            now,
            thresholds: loaded.settings.thresholds.clone(),
            latches: Vec::new(),
            checks: CheckFacts::default(),
        };
        let verdict = NodeConditions {
            meta: TypeMeta::new("NodeConditions"),
            node: node.clone(),
            conditions: latches.iter().map(|latch| latch.condition.clone()).collect(),
            not_applicable: Vec::new(),
        };
        let mut state = Self {
            settings: Arc::new(loaded.settings.clone()),
            own: loaded.settings.clone(),
            config_files: Vec::new(),
            config_problems: Vec::new(),
            node,
            delivery: DeliveryStatus::default(),
            generation: 0,
            started_at: now,
            storage_problem: String::new(),
            latches,
            waits: None,
            paths: PathMemory::default(),
            facts,
            verdict,
        };
        state.take_config(loaded, true);
        state
    }

    /// Takes over a configuration. With problems, the last good one stays in force, but for a first start, which takes
    /// the defaults and what is valid: one bad key must not blind a fleet.
    pub(super) fn take_config(&mut self, loaded: &Loaded, first: bool) {
        self.config_problems = loaded.problems.iter().map(ToString::to_string).collect();
        if loaded.problems.is_empty() || first {
            self.own = loaded.settings.clone();
            self.take_settings(loaded.settings.clone());
            self.config_files = loaded.files.iter().map(|file| file.display().to_string()).collect();
        }
    }

    /// Puts effective settings in force.
    pub(super) fn take_settings(&mut self, settings: Settings) {
        let uid = std::mem::take(&mut self.node.uid);
        let simulated = self.node.simulated;
        self.node = NodeRef { uid, simulated, ..node_ref(&settings) };
        self.settings = Arc::new(settings);
    }

    /// Takes over how delivery stands.
    pub(super) fn take_delivery(&mut self, status: DeliveryStatus) {
        self.node.uid.clone_from(&status.node_uid);
        self.delivery = status;
    }

    /// Delivery ended inside: nothing will be delivered until the daemon is started anew.
    pub(super) fn delivery_ended(&mut self, now: Timestamp) {
        "delivery failed inside Outrider; restart the agent and report its journal"
            .clone_into(&mut self.delivery.error);
        self.delivery.failing_since.get_or_insert(now);
    }

    /// Whether any check has been read.
    pub(super) fn has_read(&self) -> bool {
        self.readings().iter().any(|(check, ..)| self.settings.checks.get(check).is_some_and(|c| c.enabled))
    }

    /// Whether this machine can say who it is. A host that cannot be read, or is not to be, is not waited for for ever.
    pub(super) fn knows_itself(&self, running: Duration) -> bool {
        self.facts.checks.host.is_some() || running >= Duration::from_secs(15)
    }

    /// Puts a reading in place of the earlier one.
    pub(super) fn take_reading(&mut self, reading: Reading) {
        if let Reading::LoadBalancer(fact) = &reading {
            self.paths.take(fact);
        }
        reading.store(&mut self.facts.checks);
    }

    /// Judges what is known at `now`; gives what changed. The facts stay where they are: with every check active they
    /// are large, and a turn comes every second.
    pub(super) fn judge(&mut self, now: Timestamp) -> Vec<Transition> {
        let agent = self.agent_facts();
        let facts = &mut self.facts;
        facts.checks.agent = Some(Fact::known(agent, "outrider-agent", now));
        facts.node.clone_from(&self.node);
        facts.now = now;
        facts.thresholds.clone_from(&self.settings.thresholds);
        facts.latches = std::mem::take(&mut self.latches);
        let judgement = diagnosis::judge(facts);
        let latched = diagnosis::latch(&facts.latches, &judgement, now);
        self.latches = latched.latches;
        self.waits = latched.due.map(|due| due.since(now));
        self.verdict.node.clone_from(&self.node);
        self.verdict.conditions = latched.conditions;
        self.verdict.not_applicable = judgement.not_applicable;
        latched.transitions
    }

    /// Latches after the last turn.
    pub(super) fn latches(&self) -> &[Latch] {
        &self.latches
    }

    /// The agent about itself.
    pub(super) fn agent_facts(&self) -> AgentFacts {
        let problem = [self.storage_problem.as_str(), self.delivery.spool_problem.as_str()];
        AgentFacts {
            config_problems: self.config_problems.clone(),
            coordinator: self.delivery.coordinator.clone(),
            enrolment: if self.delivery.enrolment.is_empty() {
                "none".to_owned()
            } else {
                self.delivery.enrolment.clone()
            },
            delivery_error: self.delivery.error.clone(),
            delivery_failing_since: self.delivery.failing_since,
            untried: !self.delivery.tried,
            spooled: self.delivery.spooled,
            merged: self.delivery.merged,
            spool_problem: problem.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join("; "),
            certificate_not_after: self.delivery.certificate_not_after,
            failing_checks: self.failing_checks(),
        }
    }

    fn failing_checks(&self) -> Vec<Check> {
        let broken = |cause: Option<UnknownCause>| {
            matches!(cause, Some(UnknownCause::Panicked | UnknownCause::TimedOut))
        };
        self.readings().into_iter().filter(|(_, _, cause)| broken(cause.clone())).map(|(c, ..)| c).collect()
    }

    /// Every check that has a reading: when it was made, and why it failed as a whole.
    fn readings(&self) -> Vec<(Check, Timestamp, Option<UnknownCause>)> {
        fn of<T>(check: Check, fact: Option<&Fact<T>>) -> Option<(Check, Timestamp, Option<UnknownCause>)> {
            let fact = fact?;
            let cause = match fact {
                Fact::Unknown { cause, .. } => Some(cause.clone()),
                _ => None,
            };
            Some((check, fact.at(), cause))
        }
        let c = &self.facts.checks;
        let all = [
            of(Check::Host, c.host.as_ref()),
            of(Check::Clock, c.clock.as_ref()),
            of(Check::CloudInit, c.cloud_init.as_ref()),
            of(Check::GuestAgent, c.guest_agent.as_ref()),
            of(Check::Etcd, c.etcd.as_ref()),
            of(Check::LoadBalancer, c.load_balancer.as_ref()),
            of(Check::Certificates, c.certificates.as_ref()),
            of(Check::Credentials, c.credentials.as_ref()),
            of(Check::Kubernetes, c.kubernetes.as_ref()),
            of(Check::Dns, c.dns.as_ref()),
            of(Check::RancherAgent, c.rancher_agent.as_ref()),
            of(Check::Topology, c.topology.as_ref()),
        ];
        all.into_iter().flatten().collect()
    }

    /// What the coordinator is to know; `None` while it knows that already by its digest.
    pub(super) fn node_state(&self, known_digest: Option<&str>) -> Option<NodeState> {
        let checks = &self.facts.checks;
        let identity = identity_of(checks);
        let paths = self.paths.totals();
        let digest =
            NodeState::digest_with(&identity, &self.verdict.conditions, checks.etcd.as_ref(), &paths);
        (known_digest != Some(digest.as_str())).then(|| NodeState {
            digest,
            identity,
            conditions: self.verdict.conditions.clone(),
            etcd: checks.etcd.clone(),
            paths,
            network: network_of(checks),
            zone: String::new(),
            region: String::new(),
        })
    }

    /// One line for `systemctl status`: the worst first.
    pub(super) fn summary(&self) -> String {
        let conditions = &self.verdict.conditions;
        let count = |severity| conditions.iter().filter(|c| c.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warn));
        let worst = conditions.iter().max_by_key(|c| c.severity).filter(|c| c.severity >= Severity::Warn);
        let mut line = format!("{errors} errors, {warnings} warnings in {} conditions", conditions.len());
        if let Some(worst) = worst {
            line.push_str(&format!("; {}={} ({})", crate::journal::name(worst), worst.status, worst.reason));
        }
        let delivery = match (self.delivery.coordinator.as_str(), self.delivery.enrolment.as_str()) {
            ("", _) => "no coordinator",
            (_, "enrolled") if !self.delivery.tried => "coordinator not tried yet",
            (_, "enrolled") if self.delivery.error.is_empty() => "reports delivered",
            (_, "enrolled") => "coordinator unreachable",
            (_, "pending") => "enrolment waits for approval",
            (_, "refused") => "enrolment refused",
            (_, "token-unusable") => "enrolment token unusable",
            _ if !self.delivery.tried => "coordinator not tried yet",
            _ => "not enrolled yet",
        };
        format!("{line}; {delivery}")
    }

    /// The document of the status file and of `outrider-agent status`.
    pub(super) fn status(&self, now: Timestamp) -> AgentStatus {
        let readings = self.readings();
        let checks = self.settings.checks.iter().map(|(check, values)| {
            let reading = readings.iter().find(|(c, ..)| c == check);
            CheckStatus {
                check: check.to_string(),
                enabled: values.enabled,
                interval_seconds: values.interval.as_secs(),
                read_at: reading.map(|(_, at, _)| *at),
                failure: reading
                    .and_then(|(.., cause)| cause.as_ref())
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            }
        });
        AgentStatus {
            meta: TypeMeta::new("AgentStatus"),
            node: self.node.clone(),
            agent_version: VERSION.to_owned(),
            pid: std::process::id(),
            started_at: self.started_at,
            written_at: now,
            summary: self.summary(),
            config_files: self.config_files.clone(),
            generation: self.generation,
            agent: self.agent_facts(),
            checks: checks.collect(),
            conditions: self.conditions().to_vec(),
            not_applicable: self.verdict.not_applicable.clone(),
        }
    }

    pub(super) fn conditions(&self) -> &[Condition] {
        &self.verdict.conditions
    }
}

/// This node on its cluster's network, where it is in one.
pub(super) fn network_of(checks: &CheckFacts) -> Option<NodeNetwork> {
    checks.kubernetes.as_ref()?.value()?.network.value().cloned()
}

/// Beginnings of the names of interfaces whose addresses are a container network's and not the machine's.
const CONTAINER_NETWORKS: [&str; 11] =
    ["cali", "cilium", "cni", "docker", "flannel", "kube-", "lxc", "nodelocaldns", "podman", "tunl", "vxlan"];
/// Addresses that are told.
const MAX_ADDRESSES: usize = 32;

/// The machine's addresses, those of hardware first: a bond, a VLAN or a bridge has no device behind it and holds the
/// address of many a server.
fn addresses_of(interfaces: &[InterfaceFacts]) -> Vec<String> {
    let is_containers =
        |i: &&InterfaceFacts| CONTAINER_NETWORKS.iter().any(|begin| i.name.starts_with(begin));
    let hardware = interfaces.iter().filter(|i| !i.is_virtual);
    let software = interfaces.iter().filter(|i| i.is_virtual && !is_containers(i));
    hardware.chain(software).flat_map(|i| i.addresses.iter().cloned()).take(MAX_ADDRESSES).collect()
}

/// The marks of this machine; empty ones where nothing is known.
pub(super) fn identity_of(checks: &CheckFacts) -> Identity {
    let Some(host) = checks.host.as_ref().and_then(Fact::value) else { return Identity::default() };
    let text = |fact: &Fact<String>| fact.value().cloned().unwrap_or_default();
    let interfaces = host.interfaces.value().map(Vec::as_slice).unwrap_or_default();
    let real = interfaces.iter().filter(|i| !i.is_virtual);
    Identity {
        machine_id_hash: text(&host.machine_id_hash),
        system_uuid: text(&host.system_uuid),
        macs: real.map(|i| i.mac.clone()).filter(|mac| !mac.is_empty()).collect(),
        boot_id: text(&host.boot_id),
        instance_id: text(&host.instance_id),
        addresses: addresses_of(interfaces),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bonds_address_is_the_machines_and_a_container_networks_is_not() {
        let interface = |name: &str, is_virtual, address: &str| InterfaceFacts {
            name: name.into(),
            mac: String::new(),
            addresses: vec![address.into()],
            up: true,
            is_virtual,
        };
        let found = addresses_of(&[
            interface("bond0", true, "10.0.0.1/24"),
            interface("cni0", true, "10.42.0.1/24"),
            interface("ens3", false, "192.0.2.1/24"),
            interface("flannel.1", true, "10.42.0.0/32"),
            interface("kube-ipvs0", true, "10.43.0.1/32"),
        ]);
        assert_eq!(found, ["192.0.2.1/24", "10.0.0.1/24"]);
        let many: Vec<_> = (0..99).map(|i| interface("ens3", false, &format!("10.0.0.{i}/24"))).collect();
        assert_eq!(addresses_of(&many).len(), MAX_ADDRESSES);
    }
}
