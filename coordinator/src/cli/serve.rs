//! `outrider-coordinator serve`: the service, and what the service manager hears of it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use outrider_coordinator::{
    Coordinator, DEFAULT_PORT, HarvesterOptions, Limits, Options, RancherOptions, start,
};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::ServeArgs;

/// Time between looks at what the service manager should hear.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A main loop that has not turned for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(15);

/// Runs until SIGTERM or SIGINT.
pub(super) async fn run(args: ServeArgs, state_dir: PathBuf) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let listen = if args.listen.is_empty() { vec![everywhere()] } else { args.listen };
    let namespace = args.rancher_namespace;
    let rancher = args.rancher_kubeconfig.map(|kubeconfig| RancherOptions { kubeconfig, namespace });
    let options = Options {
        listen,
        state_dir,
        names: args.names,
        certificate_lifetime: args.certificate_lifetime,
        renewal_grace: args.renewal_grace,
        silent_after_intervals: args.silent_after,
        history: args.history,
        begin_anew: args.begin_anew,
        install_dir: args.install_dir,
        harvester: args.harvester_kubeconfig.map(|kubeconfig| HarvesterOptions {
            kubeconfig,
            namespaces: args.harvester_namespaces,
            clusters: args.harvester_clusters,
            rancher,
        }),
        limits: Limits { connections: args.max_connections, ..Limits::default() },
    };
    let coordinator = start(options).await?;
    notify(&[NotifyState::Ready]);
    watch_over(&coordinator, &mut signals).await;
    notify(&[NotifyState::Stopping]);
    coordinator.shutdown().await;
    Ok(())
}

/// Tells the service manager how it goes, until a signal ends it.
async fn watch_over(coordinator: &Coordinator, signals: &mut Signals) {
    let watchdog = sd_notify::watchdog_enabled();
    let mut looks = interval(watchdog.map_or(LOOK_EVERY, |limit| LOOK_EVERY.min(limit / 3)));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut progress = coordinator.progress();
    let (mut turned_at, mut said) = (Instant::now(), String::new());
    loop {
        tokio::select! {
            _ = looks.tick() => {
                if progress.has_changed().unwrap_or(false) {
                    progress.mark_unchanged();
                    turned_at = Instant::now();
                }
                // Fed by the progress of the main loop alone: one that hangs is to be restarted.
                if watchdog.is_some() && turned_at.elapsed() < HANGS_AFTER {
                    notify(&[NotifyState::Watchdog]);
                }
                let status = status(coordinator);
                if status != said {
                    notify(&[NotifyState::Status(&status)]);
                    said = status;
                }
            }
            _ = signals.hangup.recv() => match coordinator.reload() {
                Ok(()) => {
                    log::info!("the certificate authority was read again");
                    if let Err(error) = coordinator.follow_authority().await {
                        log::warn!("the operator token's file could not follow the CA yet: {error}");
                    }
                }
                Err(error) => log::error!("the certificate authority could not be read again: {error}"),
            },
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
        }
    }
}

fn status(coordinator: &Coordinator) -> String {
    let view = coordinator.view();
    let (ready, all) = coordinator.count_nodes();
    match view.not_ready.first() {
        None => format!("{ready} of {all} nodes ready; {}", view.url),
        Some(first) => format!("not ready: {first}; {ready} of {all} nodes ready"),
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::debug!("the service manager does not listen: {error}");
    }
}

/// All addresses of both families, where the kernel has both.
fn everywhere() -> SocketAddr {
    if Path::new("/proc/net/if_inet6").exists() {
        (Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into()
    }
}
