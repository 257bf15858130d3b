//! The check `load-balancer`: tries against the way in to Rancher, and past it (`facts/rancher-load-balancer.md`).
//!
//! Nothing is judged here: every try is written down with what TCP, TLS and HTTP each came to, for the address it
//! went to. The tries are few, spread over the pass, go past any proxy, send no secret and read bounded bodies; a
//! redirect of `/` is followed to other paths of the same host, at the same peer, a few times (`redirect`); all of them together keep to one time limit, and what there was no time for is not in the list.
//!
//! Tour: `plan` (which requests go where), `probe` (one connection), `redirect` (where a Location leads), this file (addresses, backends, mode, time).

mod plan;
mod probe;
mod redirect;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use outrider_protocol::{BalancerMode, Fact, LoadBalancerFacts, Probe, ProbeKind, ProbeTarget, UnknownCause};
use rustls::RootCertStore;
use tokio::time::Instant;

use self::plan::{backend_tries, https_asks, plain_asks, web_socket};
use self::probe::{Prober, Side};
use super::{SenseContext, file};
use crate::config::LoadBalancerSettings;
use crate::net::{Failure, Url, certificate, resolve, tls};

/// Limit of one step: connecting, the handshake, one request.
const STEP: Duration = Duration::from_secs(3);
/// Most addresses of one name that are tried; a name with more is a farm that one node need not try whole.
const MAX_ADDRESSES: usize = 8;
/// Pause between two tries at one address.
const SPREAD: Duration = Duration::from_millis(300);

/// One pass over all balancers, side by side, within `limit`.
pub async fn read(
    cx: &SenseContext,
    balancers: &[LoadBalancerSettings],
    limit: Duration,
) -> Fact<Vec<LoadBalancerFacts>> {
    if balancers.is_empty() {
        return Fact::not_applicable("no load balancer is configured", cx.now());
    }
    // A tenth is kept for what is not waiting: the facts must be there before the limit, not at it.
    let deadline = Instant::now() + limit.mul_f64(0.9);
    let step = STEP.min(limit / 4);
    let facts = join_all(balancers.iter().map(|balancer| one(cx, balancer, deadline, step))).await;
    Fact::known(facts, "[[load_balancer]]", cx.now())
}

async fn one(
    cx: &SenseContext,
    balancer: &LoadBalancerSettings,
    deadline: Instant,
    step: Duration,
) -> LoadBalancerFacts {
    let ((roots, ca_failure), addresses) = join(
        trusted_roots(cx, balancer.ca.clone()),
        resolve(&balancer.host, balancer.port, &balancer.resolve, step),
    )
    .await;
    let url = Url { tls: true, host: balancer.host.clone(), port: balancer.port, path: "/".into() };
    let prober = Prober { cx, url, roots, ca_failure, deadline, step };
    let tried = addresses.as_deref().unwrap_or_default();
    let (through, behind) = join(
        join_all(tried.iter().take(MAX_ADDRESSES).map(|a| through(&prober, balancer, a.ip()))),
        backends(&prober, balancer),
    )
    .await;
    let through: Vec<Probe> = through.into_iter().flatten().collect();
    let mode = match &balancer.mode {
        BalancerMode::Auto => mode_of(&through, &behind),
        given => given.clone(),
    };
    LoadBalancerFacts {
        name: balancer.name.clone(),
        url: balancer.url.clone(),
        host: balancer.host.clone(),
        port: balancer.port,
        http_port: balancer.http_port,
        mode,
        addresses: addresses_fact(cx, balancer, addresses),
        probes: through.into_iter().chain(behind).collect(),
    }
}

fn addresses_fact(
    cx: &SenseContext,
    balancer: &LoadBalancerSettings,
    addresses: Result<Vec<SocketAddr>, Failure>,
) -> Fact<Vec<String>> {
    let fixed = balancer.resolve.contains_key(&balancer.host);
    let source = if fixed { "resolve of [[load_balancer]]" } else { "resolver of this machine" };
    match addresses {
        Ok(found) => Fact::known(found.iter().map(|a| a.ip().to_string()).collect(), source, cx.now()),
        Err(failure) if names_nothing(&failure) => Fact::absent(source, cx.now()),
        Err(failure) => failure.into_fact(source, cx.now()),
    }
}

/// The resolver said that there is no such name, or no address to it; any other failure leaves that open. The words
/// are those of `gai_strerror` for EAI_NONAME and EAI_NODATA, which the standard library passes without the code.
fn names_nothing(failure: &Failure) -> bool {
    const WORDS: [&str; 4] = [
        "Name or service not known",
        "No address associated with hostname",
        "Name does not resolve",
        "has no address",
    ];
    failure.cause == UnknownCause::NameNotResolved && WORDS.iter().any(|words| failure.detail.contains(words))
}

/// The system's roots and the balancer's CA; or why the CA is of no use.
async fn trusted_roots(cx: &SenseContext, ca: Option<PathBuf>) -> (Arc<RootCertStore>, Option<Failure>) {
    let opener = cx.opener.clone();
    let read = tokio::task::spawn_blocking(move || {
        let system = tls::system_roots();
        let Some(path) = ca else { return (system, None) };
        let extended = opener
            .open(&path)
            .and_then(|open| file::read_bounded(open, file::LARGE))
            .map_err(Failure::from)
            .and_then(|pem| tls::extended(&system, &certificate::certificates(&pem)?));
        match extended {
            Ok(roots) => (roots, None),
            Err(failure) => (system, Some(failure.during(path.display()))),
        }
    });
    read.await.unwrap_or_else(|e| {
        (Arc::new(RootCertStore::empty()), Some(Failure::new(UnknownCause::Panicked, e.to_string())))
    })
}

/// All tries at one address of the balancer: https and plain http side by side.
async fn through(prober: &Prober<'_>, balancer: &LoadBalancerSettings, ip: IpAddr) -> Vec<Probe> {
    let side =
        |port, secure| Side { target: ProbeTarget::Balancer, address: SocketAddr::new(ip, port), secure };
    let https = async {
        let side = side(balancer.port, true);
        let mut probes: Vec<Probe> = prober.connect_only(&side).await.into_iter().collect();
        for number in 0..balancer.tries.max(1) {
            if number > 0 && !prober.pause(SPREAD).await {
                break;
            }
            probes.extend(prober.converse(&side, https_asks(number)).await);
        }
        probes.extend(prober.converse(&side, web_socket()).await);
        probes
    };
    let plain = async {
        if balancer.http_port == 0 {
            return Vec::new();
        }
        let side = side(balancer.http_port, false);
        let mut probes: Vec<Probe> = prober.connect_only(&side).await.into_iter().collect();
        probes.extend(prober.converse(&side, plain_asks()).await);
        probes
    };
    let (mut probes, plain) = join(https, plain).await;
    probes.extend(plain);
    probes
}

/// Tries past the balancer, at every backend at once.
async fn backends(prober: &Prober<'_>, balancer: &LoadBalancerSettings) -> Vec<Probe> {
    let tries = balancer.backends.iter().map(|backend| async move {
        let mut probes = Vec::new();
        for one in backend_tries(*backend, &balancer.mode, balancer.backend_http_port) {
            let side = Side { target: ProbeTarget::Backend, address: one.address, secure: one.secure };
            probes.extend(prober.connect_only(&side).await);
            probes.extend(prober.converse(&side, one.asks).await);
        }
        probes
    });
    join_all(tries).await.into_iter().flatten().collect()
}

/// Where TLS ends, by who shows which certificate: a backend that shows the balancer's own leaf has the TLS passed
/// through to it. Left open where no backend was given or none told.
fn mode_of(through: &[Probe], behind: &[Probe]) -> BalancerMode {
    let leaf = |probe: &Probe| Some(probe.tls.value()?.chain.first()?.sha256.clone());
    let at_balancer: Vec<String> = through.iter().filter_map(leaf).collect();
    let at_backends: Vec<String> = behind.iter().filter_map(leaf).collect();
    if at_balancer.is_empty() {
        return BalancerMode::Auto;
    }
    if at_backends.iter().any(|sha256| at_balancer.contains(sha256)) {
        return BalancerMode::L4;
    }
    let plain_answers = behind.iter().any(|probe| {
        matches!(probe.kind, ProbeKind::ForwardedRoot | ProbeKind::PlainRoot) && probe.http.value().is_some()
    });
    if !at_backends.is_empty() || plain_answers { BalancerMode::L7 } else { BalancerMode::Auto }
}
