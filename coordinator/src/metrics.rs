//! OpenMetrics. Labels come from enums and registries only, so that no caller can make the series grow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outrider_protocol::{Condition, ConditionType};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::fleet::Fleet;
use crate::harvester::Harvester;
use crate::latches::{Latch, Latches};
use crate::server::Gate;

/// Media type of `/metrics`.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OneLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

/// Everything that is counted as it happens.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    refused: Family<OneLabel, Counter>,
    handshakes: Family<OneLabel, Counter>,
    store_seconds: Family<OperationLabel, Histogram>,
    store_errors: Family<OperationLabel, Counter>,
    /// Transitions stored, each once.
    pub(crate) transitions: Counter,
    /// Callers of `/v1/watch`.
    pub(crate) watchers: Gauge,
    /// Set once, after the parts that are counted from the start.
    harvester: Arc<OnceLock<Arc<Harvester>>>,
}

fn store_histogram() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0])
}

impl Metrics {
    /// Counters at zero, and what is read at each scrape from the parts that know it.
    pub(crate) fn new(fleet: Arc<Fleet>, gate: Arc<Gate>, latches: Arc<Latches>) -> Self {
        let mut registry = Registry::with_prefix("outrider_coordinator");
        let requests = Family::default();
        registry.register("requests", "Requests by endpoint and class of answer", requests.clone());
        let refused = Family::default();
        registry.register("connections_refused", "Connections closed before TLS", refused.clone());
        let handshakes = Family::default();
        registry.register("handshakes_failed", "Connections that came to no request", handshakes.clone());
        let store_seconds = Family::new_with_constructor(store_histogram as fn() -> Histogram);
        registry.register("store_seconds", "Time of calls to the store", store_seconds.clone());
        let store_errors = Family::default();
        registry.register("store_errors", "Calls to the store that failed", store_errors.clone());
        let transitions = Counter::default();
        registry.register("transitions_stored", "Transitions stored, each once", transitions.clone());
        let watchers = Gauge::default();
        registry.register("watchers", "Callers of /v1/watch", watchers.clone());
        let harvester = Arc::<OnceLock<Arc<Harvester>>>::default();
        registry.register_collector(Box::new(Present { fleet, gate, latches, harvester: harvester.clone() }));
        Self {
            registry,
            requests,
            refused,
            handshakes,
            store_seconds,
            store_errors,
            transitions,
            watchers,
            harvester,
        }
    }

    /// Has the machines of a Harvester counted too.
    pub(crate) fn watch_harvester(&self, harvester: Arc<Harvester>) {
        // It is set once, at the start.
        let _ = self.harvester.set(harvester);
    }

    /// A request was answered.
    pub(crate) fn request(&self, route: &'static str, code: u16) {
        let class = match code {
            ..200 => "1xx",
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
        self.requests.get_or_create(&RequestLabels { route, class }).inc();
    }

    /// A connection was closed before TLS.
    pub(crate) fn refused(&self, kind: &'static str) {
        self.refused.get_or_create(&OneLabel { kind }).inc();
    }

    /// A connection came to no request.
    pub(crate) fn handshake_failed(&self, kind: &'static str) {
        self.handshakes.get_or_create(&OneLabel { kind }).inc();
    }

    /// A call to the store ended after `took`.
    pub(crate) fn store_call(&self, operation: &'static str, took: Duration, failed: bool) {
        let label = OperationLabel { operation };
        self.store_seconds.get_or_create(&label).observe(took.as_secs_f64());
        if failed {
            self.store_errors.get_or_create(&label).inc();
        }
    }

    /// The metrics as text.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// What is counted at each scrape, in one pass over the fleet.
struct Present {
    fleet: Arc<Fleet>,
    gate: Arc<Gate>,
    latches: Arc<Latches>,
    harvester: Arc<OnceLock<Arc<Harvester>>>,
}

impl fmt::Debug for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Present").finish_non_exhaustive()
    }
}

/// Labels of one series of conditions.
type ConditionLabels = [(&'static str, &'static str); 5];

fn labels_of(scope: &'static str, condition: &Condition) -> ConditionLabels {
    // Words of a later version are counted together: their number is the agents' to choose.
    let known: Option<&'static ConditionType> =
        ConditionType::ALL.iter().find(|t| **t == condition.condition_type);
    let reason = condition.reason.info().map_or("other", |info| info.code);
    [
        ("scope", scope),
        ("type", known.map_or("other", |t| t.as_str())),
        ("status", condition.status.as_str()),
        ("severity", condition.severity.as_str()),
        ("reason", reason),
    ]
}

impl Collector for Present {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut nodes: BTreeMap<[(&'static str, &'static str); 3], u64> = BTreeMap::new();
        let mut conditions: BTreeMap<ConditionLabels, u64> = BTreeMap::new();
        for node in self.fleet.nodes() {
            let inner = node.inner();
            let labels = [
                ("ready", inner.ready().as_str()),
                ("enrolment", inner.record.enrolment.as_str()),
                ("simulated", if inner.is_simulated() { "true" } else { "false" }),
            ];
            *nodes.entry(labels).or_default() += 1;
            inner.each_condition(|c| *conditions.entry(labels_of("node", c)).or_default() += 1);
        }
        let clusters = self.fleet.clusters();
        for cluster in &clusters {
            cluster.each_condition(|c| *conditions.entry(labels_of("cluster", c)).or_default() += 1);
        }
        if let Some(harvester) = self.harvester.get() {
            harvester.each_condition(|scope, c| *conditions.entry(labels_of(scope, c)).or_default() += 1);
            let (states, ignored) = harvester.count();
            let states = states.into_iter().map(|(state, n)| ([("state", state)], n));
            gauges(&mut encoder, "machines", "Virtual machines that are nodes, or should be", states)?;
            let help = "Virtual machines of others, which are left alone";
            gauge(&mut encoder, "machines_ignored", help, ignored)?;
        }
        gauges(&mut encoder, "nodes", "Nodes by readiness", nodes)?;
        gauges(&mut encoder, "conditions", "Conditions in force", conditions)?;
        let held = Latch::ALL.map(|l| ([("latch", l.as_str())], u64::from(self.latches.why(l).is_some())));
        gauges(&mut encoder, "latch_held", "1 for a latch that holds readiness back", held)?;
        gauge(&mut encoder, "clusters", "Clusters with members", clusters.len() as u64)?;
        gauge(&mut encoder, "connections", "Open connections", self.gate.open() as u64)?;
        let dropped = self.fleet.announcements.dropped();
        gauge(
            &mut encoder,
            "announcements_dropped",
            "The coordinator's own transitions lost to a long store outage",
            dropped,
        )
    }
}

fn gauge(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn gauges<const N: usize>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'static str, &'static str); N], u64)>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
