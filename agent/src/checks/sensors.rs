//! Which sensor serves which check.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{Check, ClockOffset, Fact, Peers, UnknownCause};
use tokio::sync::Mutex;

use super::certificates::CertificatesWatch;
use super::credentials::CredentialsWatch;
use super::etcd::EtcdWatch;
use super::kubernetes::NeighbourWatch;
use super::load_balancer::BalancerWatch;
use super::{Reading, SlotGuard};
use crate::act::labels::Ledger;
use crate::config::Settings;
use crate::sense::{self, SenseContext};

/// Limit of a check that has none of its own.
const LIMIT: Duration = Duration::from_secs(30);

/// What a pass is given beside the machine.
#[derive(Clone)]
pub struct PassContext {
    /// Settings in force.
    pub settings: Arc<Settings>,
    /// Our clock against the coordinator's, as delivery last saw it.
    pub clock_offset: Option<Fact<ClockOffset>>,
    /// Neighbours to try, as the coordinator last named them.
    pub peers: Option<Arc<Peers>>,
}

/// A pass under way; `None` when everything is as the last reading says.
pub type PassFuture = Pin<Box<dyn Future<Output = Option<Reading>> + Send>>;

/// Runs one pass of a check. [`Machine`] asks this machine; tests play a script.
pub trait Sensors: Send + Sync {
    /// Begins a pass. The guard is held for as long as anything of it runs, on whatever thread.
    fn pass(&self, check: &Check, context: PassContext, guard: SlotGuard) -> PassFuture;
}

/// The sensors of this machine.
pub struct Machine {
    cx: SenseContext,
    etcd: EtcdWatch,
    balancers: BalancerWatch,
    certificates: CertificatesWatch,
    credentials: CredentialsWatch,
    neighbours: NeighbourWatch,
    guest_agent: Arc<Mutex<sense::guest_agent::Memory>>,
    dns: Arc<Mutex<sense::dns::Memory>>,
    rancher_agent: Arc<Mutex<sense::rancher_agent::Memory>>,
    topology: Arc<Mutex<sense::topology::Memory>>,
}

impl Machine {
    /// Sensors that read through `cx`.
    pub fn new(cx: SenseContext) -> Self {
        Self::with(cx, Arc::default())
    }

    /// The same, whose writes of labels `ledger` keeps.
    pub fn with(cx: SenseContext, ledger: Arc<Ledger>) -> Self {
        Self {
            cx,
            etcd: EtcdWatch::default(),
            balancers: BalancerWatch::default(),
            certificates: CertificatesWatch::default(),
            credentials: CredentialsWatch::default(),
            neighbours: NeighbourWatch::default(),
            guest_agent: Arc::default(),
            dns: Arc::default(),
            // The environment of this process is read once, here at its start.
            rancher_agent: Arc::new(Mutex::new(sense::rancher_agent::Memory::of_this_process())),
            topology: Arc::new(Mutex::new(sense::topology::Memory::with(ledger))),
        }
    }
}

impl Sensors for Machine {
    fn pass(&self, check: &Check, context: PassContext, guard: SlotGuard) -> PassFuture {
        let cx = self.cx.clone();
        let check = check.clone();
        match check {
            Check::Host => blocking(guard, move || Reading::Host(sense::host::read(&cx))),
            Check::Clock => {
                blocking(guard, move || Reading::Clock(sense::clock::read(&cx, context.clock_offset)))
            }
            Check::CloudInit => blocking(guard, move || Reading::CloudInit(sense::cloud_init::read(&cx))),
            Check::GuestAgent => {
                let memory = self.guest_agent.clone();
                blocking(guard, move || {
                    let memory = &mut *memory.blocking_lock();
                    Reading::GuestAgent(sense::guest_agent::read(&cx, memory))
                })
            }
            Check::Etcd => {
                let etcd = self.etcd.clone();
                Box::pin(async move {
                    let _guard = guard;
                    let settings = &context.settings;
                    let interval = settings.checks.get(&Check::Etcd).map_or(Duration::ZERO, |c| c.interval);
                    let poll = settings.etcd_poll;
                    etcd.look(&cx, &settings.etcd, interval, poll).await.map(Reading::Etcd)
                })
            }
            Check::LoadBalancer => {
                let balancers = self.balancers.clone();
                Box::pin(async move {
                    let _guard = guard;
                    let settings = &context.settings;
                    let limit =
                        settings.checks.get(&Check::LoadBalancer).map_or(LIMIT, |check| check.timeout);
                    if let (true, refused @ 1..) =
                        (settings.load_balancers.is_empty(), settings.load_balancers_refused)
                    {
                        let detail = format!("{refused} configured, none usable as written; see ConfigValid");
                        let cause = UnknownCause::InvalidInput;
                        let unknown = Fact::unknown(cause, detail, "[[load_balancer]]", cx.now());
                        return Some(Reading::LoadBalancer(unknown));
                    }
                    let per_minute = settings.probes_per_minute;
                    let read = balancers.look(&cx, &settings.load_balancers, per_minute, limit);
                    Some(Reading::LoadBalancer(read.await))
                })
            }
            Check::Certificates => {
                let certificates = self.certificates.clone();
                Box::pin(async move {
                    let _guard = guard;
                    let settings = &context.settings;
                    let limit =
                        settings.checks.get(&Check::Certificates).map_or(LIMIT, |check| check.timeout);
                    Some(Reading::Certificates(certificates.look(&cx, limit).await))
                })
            }
            Check::Credentials => {
                let credentials = self.credentials.clone();
                Box::pin(async move {
                    let _guard = guard;
                    let settings = &context.settings;
                    let limit = settings.checks.get(&Check::Credentials).map_or(LIMIT, |check| check.timeout);
                    Some(Reading::Credentials(credentials.look(&cx, &settings.credentials, limit).await))
                })
            }
            Check::Kubernetes => {
                let neighbours = self.neighbours.clone();
                Box::pin(async move {
                    let _guard = guard;
                    let every = context.settings.neighbour_interval;
                    Some(Reading::Kubernetes(neighbours.look(&cx, context.peers.as_deref(), every).await))
                })
            }
            Check::Dns => {
                let dns = self.dns.clone();
                Box::pin(async move {
                    let _guard = guard;
                    let settings = &context.settings;
                    let limit = settings.checks.get(&Check::Dns).map_or(LIMIT, |check| check.timeout);
                    Some(Reading::Dns(sense::dns::read(&cx, settings, limit, &mut *dns.lock().await).await))
                })
            }
            Check::RancherAgent => {
                let memory = self.rancher_agent.clone();
                blocking(guard, move || {
                    let memory = &mut *memory.blocking_lock();
                    Reading::RancherAgent(sense::rancher_agent::read(&cx, &context.settings, memory))
                })
            }
            Check::Topology => {
                let topology = self.topology.clone();
                Box::pin(async move {
                    let _guard = guard;
                    let settings = &context.settings;
                    let limit = settings.checks.get(&Check::Topology).map_or(LIMIT, |check| check.timeout);
                    let memory = &mut *topology.lock().await;
                    sense::topology::look(&cx, &settings.topology, limit, memory).await.map(Reading::Topology)
                })
            }
            check => Box::pin(async move {
                let _guard = guard;
                Reading::unknown(
                    &check,
                    UnknownCause::NotYetRead,
                    "this version has no such sensor",
                    cx.now(),
                )
            }),
        }
    }
}

/// A sensor that makes system calls, on a thread where it may block.
fn blocking(guard: SlotGuard, read: impl FnOnce() -> Reading + Send + 'static) -> PassFuture {
    Box::pin(async move {
        let read = move || {
            let _guard = guard;
            read()
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(reading) => Some(reading),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => None,
            },
        }
    })
}
