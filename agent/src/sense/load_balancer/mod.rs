//! The check `load-balancer`: tries against the way in to Rancher, and past it (`facts/rancher-load-balancer.md`).
//!
//! Nothing is judged here: every try is written down with what TCP, TLS and HTTP each came to, for the address it
//! went to. The tries are few, spread over the pass, go past any proxy, send no secret, say who asks (`User-Agent:
//! outrider/VERSION`) and read bounded bodies; a redirect of `/` is followed to other paths of the same host, at the
//! same peer, a few times (`redirect`); all of them together keep to one time limit, and what there was no time for
//! is not in the list. Some tries are made only after others failed: what they tell is whose fault that is.
//!
//! Tour: `plan` (which requests go where), `probe` (connections and tries), `line` (one request), `redirect` (where a
//! Location leads), `mode` (L4 or L7), `ca` (`/cacerts`), `gap` (a
//! moment's silence), `idle` (how long silence is borne), this file (addresses, backends, time).

mod ca;
mod gap;
mod idle;
mod line;
mod mode;
mod plan;
mod probe;
mod redirect;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{join, join_all};
use outrider_protocol::{
    BalancerMode, BalancerService, CaFacts, Fact, LoadBalancerFacts, Probe, ProbeTarget, UnknownCause,
};
use rustls::RootCertStore;
use tokio::time::Instant;

pub use self::idle::measure as measure_idle;
use self::plan::{
    BackendTry, backend_tries, bears_out, http2_asks, https_asks, looks_like_proxy_protocol, other_layer,
    plain_asks, proxy_asks, wants_second_point, web_socket,
};
use self::probe::{Manner, PLAIN, Prober, Side};
use super::{SenseContext, file};
use crate::config::LoadBalancerSettings;
use crate::net::{Failure, Url, certificate, resolve, tls};

/// Limit of one step: connecting, the handshake, one request.
const STEP: Duration = Duration::from_secs(3);
/// Most addresses of one name that are tried; a name with more is a farm that one node need not try whole.
const MAX_ADDRESSES: usize = 8;
/// Pause between two tries at one address.
const SPREAD: Duration = Duration::from_millis(300);
/// Most backends that are tried by themselves.
const MAX_BACKENDS: usize = 16;
/// Most peers at which a failure is looked into further.
const MAX_FOLLOWED: usize = 3;

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
    let (trusted, addresses) = join(
        trusted_roots(cx, balancer.ca.clone()),
        resolve(&balancer.host, balancer.port, &balancer.resolve, step),
    )
    .await;
    let url = Url { tls: true, host: balancer.host.clone(), port: balancer.port, path: "/".into() };
    let prober = Prober {
        cx,
        url,
        anchors: tls::Anchors::new(trusted.roots.clone()),
        ca_failure: trusted.failure.clone(),
        published: Mutex::new(None),
        connections: AtomicU32::new(0),
        deadline,
        step,
    };
    let tried = addresses.as_deref().unwrap_or_default();
    let began = cx.now();
    let (through, behind) = join(
        join_all(tried.iter().take(MAX_ADDRESSES).map(|a| through(&prober, balancer, a.ip()))),
        backends(&prober, balancer),
    )
    .await;
    let through: Vec<Probe> = through.into_iter().flatten().collect();
    let further = further(&prober, &through, &behind).await;
    let (again, gaps) = gap::look_again(&prober, balancer, &through, began).await;
    let neighbours = gap::neighbours(cx, tried).await;
    let (found_mode, found_by) = mode::find(&through, &behind);
    let mode = match &balancer.mode {
        BalancerMode::Auto => found_mode.clone(),
        given => given.clone(),
    };
    let connections = prober.connections.into_inner();
    let published = prober.published.into_inner().unwrap_or_else(PoisonError::into_inner);
    LoadBalancerFacts {
        name: balancer.name.clone(),
        url: balancer.url.clone(),
        host: balancer.host.clone(),
        port: balancer.port,
        http_port: balancer.http_port,
        service: balancer.service.clone(),
        mode,
        found_mode,
        found_by,
        addresses: addresses_fact(cx, balancer, addresses),
        probes: through.into_iter().chain(behind).chain(further).chain(again).collect(),
        backends: Some(backends_fact(cx, balancer)),
        connections,
        ca_checksum: balancer.ca_checksum.clone().unwrap_or_default(),
        agent_tls_mode: balancer.agent_tls_mode.clone().unwrap_or_default(),
        ca: published.map(|published| ca_fact(cx, balancer, &published, &trusted)),
        gaps,
        neighbours,
        moves: Vec::new(),
        idle: None,
    }
}

fn ca_fact(
    cx: &SenseContext,
    balancer: &LoadBalancerSettings,
    published: &ca::Published,
    trusted: &Trusted,
) -> Fact<CaFacts> {
    let path = balancer.ca.as_ref().map(|path| path.display().to_string());
    let file = path.as_deref().map(|path| (path, &trusted.file[..]));
    let expected = balancer.ca_checksum.as_deref();
    let facts = ca::facts(published, &trusted.system, expected, file, cx.now());
    Fact::known(facts, format!("https://{}/cacerts", published.peer), cx.now())
}

fn backends_fact(cx: &SenseContext, balancer: &LoadBalancerSettings) -> Fact<Vec<String>> {
    let source = "backends of [[load_balancer]]";
    if balancer.backends.is_empty() {
        Fact::absent(source, cx.now())
    } else if !balancer.try_backends {
        Fact::not_applicable("backends are tried from server nodes only", cx.now())
    } else {
        Fact::known(balancer.backends.iter().map(ToString::to_string).collect(), source, cx.now())
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

/// Whom to trust.
struct Trusted {
    /// The system's roots.
    system: Arc<RootCertStore>,
    /// The same and the balancer's CA.
    roots: Arc<RootCertStore>,
    /// Why the CA is of no use.
    failure: Option<Failure>,
    /// The CA as it is in its file; empty when there is none.
    file: Vec<u8>,
}

async fn trusted_roots(cx: &SenseContext, ca: Option<PathBuf>) -> Trusted {
    let opener = cx.opener.clone();
    let read = tokio::task::spawn_blocking(move || {
        let system = tls::system_roots();
        let Some(path) = ca else {
            return Trusted { roots: system.clone(), system, failure: None, file: Vec::new() };
        };
        let read = opener.open(&path).and_then(|open| file::read_bounded(open, file::LARGE));
        let (file, extended) = match read {
            Ok(pem) => {
                let extended =
                    certificate::certificates(&pem).and_then(|found| tls::extended(&system, &found));
                (pem, extended)
            }
            Err(error) => (Vec::new(), Err(Failure::from(error))),
        };
        match extended {
            Ok(roots) => Trusted { system, roots, failure: None, file },
            Err(failure) => {
                let failure = Some(failure.during(path.display()));
                Trusted { roots: system.clone(), system, failure, file }
            }
        }
    });
    read.await.unwrap_or_else(|e| {
        let none = Arc::new(RootCertStore::empty());
        let failure = Some(Failure::new(UnknownCause::Panicked, e.to_string()));
        Trusted { system: none.clone(), roots: none, failure, file: Vec::new() }
    })
}

/// All tries at one address of the balancer: https and plain http side by side.
async fn through(prober: &Prober<'_>, balancer: &LoadBalancerSettings, ip: IpAddr) -> Vec<Probe> {
    let side =
        |port, secure| Side { target: ProbeTarget::Balancer, address: SocketAddr::new(ip, port), secure };
    let is_rancher = balancer.service == BalancerService::Rancher;
    let https = async {
        let side = side(balancer.port, true);
        let one = Manner::default();
        let (first, mut line) = prober.connect(&side, Manner::BOTH).await;
        let mut probes: Vec<Probe> = first.into_iter().collect();
        if let Some(http2) = line.take_if(|line| line.is_http2())
            && is_rancher
        {
            probes.extend(prober.converse(&side, Manner::BOTH, Some(http2), http2_asks()).await);
        }
        for number in 0..balancer.tries.max(1) {
            if number > 0 && !prober.pause(SPREAD).await {
                break;
            }
            probes.extend(
                prober.converse(&side, one, line.take(), https_asks(number, &balancer.service)).await,
            );
        }
        if is_rancher {
            probes.extend(prober.converse(&side, one, None, web_socket()).await);
        }
        probes
    };
    let plain = async {
        if balancer.http_port == 0 {
            return Vec::new();
        }
        let side = side(balancer.http_port, false);
        let (first, line) = prober.connect(&side, Manner::default()).await;
        let mut probes: Vec<Probe> = first.into_iter().collect();
        probes.extend(prober.converse(&side, Manner::default(), line, plain_asks()).await);
        probes
    };
    let (mut probes, plain) = join(https, plain).await;
    probes.extend(plain);
    probes
}

/// Tries past the balancer, at every backend at once.
async fn backends(prober: &Prober<'_>, balancer: &LoadBalancerSettings) -> Vec<Probe> {
    let tried = balancer.backends.iter().take(if balancer.try_backends { MAX_BACKENDS } else { 0 });
    let tries = tried.map(|backend| async move {
        let mut probes = Vec::new();
        for one in backend_tries(*backend, &balancer.mode, balancer.backend_http_port, &balancer.service) {
            let seen = backend_try(prober, &one).await;
            let other = match other_layer(&one, &seen) {
                Some(other) => backend_try(prober, &other).await,
                None => Vec::new(),
            };
            probes.extend(seen);
            probes.extend(if bears_out(&other) { other } else { Vec::new() });
        }
        probes
    });
    join_all(tries).await.into_iter().flatten().collect()
}

async fn backend_try(prober: &Prober<'_>, one: &BackendTry) -> Vec<Probe> {
    let side = Side { target: ProbeTarget::Backend, address: one.address, secure: one.secure };
    let (first, line) = prober.connect(&side, Manner::BOTH).await;
    let asked = prober.converse(&side, Manner::BOTH, line, one.asks.clone()).await;
    first.into_iter().chain(asked).collect()
}

/// Tries that tell whose a fault is that others have shown.
async fn further(prober: &Prober<'_>, through: &[Probe], behind: &[Probe]) -> Vec<Probe> {
    let web_sockets = async {
        if !through.iter().any(wants_second_point) {
            return Vec::new();
        }
        let straight =
            join_all(sides(behind, |_| true).into_iter().map(|side| async move {
                prober.converse(&side, Manner::default(), None, web_socket()).await
            }));
        straight.await.into_iter().flatten().collect::<Vec<_>>()
    };
    let proxy = async {
        let manner = Manner { proxy_protocol: true, ..Manner::default() };
        let failing = sides(through, looks_like_proxy_protocol);
        // What fails only through the balancer is compared with what a backend says to such a header.
        let backends = sides(behind, |p| !failing.is_empty() || looks_like_proxy_protocol(p));
        let asked = failing.into_iter().chain(backends);
        let tries = asked.map(|side| async move { prober.converse(&side, manner, None, proxy_asks()).await });
        join_all(tries).await.into_iter().flatten().collect::<Vec<_>>()
    };
    let (mut probes, proxied) = join(web_sockets, proxy).await;
    probes.extend(proxied);
    probes
}

/// The peers of `probes` that took a connection and of which a try is `such`, each once and only a few.
fn sides(probes: &[Probe], such: impl Fn(&Probe) -> bool) -> Vec<Side> {
    let mut found: Vec<Side> = Vec::new();
    for probe in probes.iter().filter(|p| p.tcp.value().is_some() && such(p)) {
        let Ok(address) = probe.peer.parse::<SocketAddr>() else { continue };
        if found.len() < MAX_FOLLOWED && found.iter().all(|side| side.address != address) {
            found.push(Side { target: probe.target.clone(), address, secure: !is_plain(probe) });
        }
    }
    found
}

/// The try was made over plain http.
fn is_plain(probe: &Probe) -> bool {
    matches!(&probe.tls, Fact::NotApplicable { reason, .. } if reason == PLAIN)
}
