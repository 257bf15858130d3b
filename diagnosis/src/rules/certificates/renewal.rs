//! What renews a certificate, and whether it would now.
//!
//! - RKE2 and K3s renew their servers' certificates only at a start, and only when the end is near: 90 days, and 120 from
//!   v1.30.13, v1.31.9, v1.32.5 and v1.33.1 on (k3s-io/k3s#12171 and its backports; k3s-io/docs#424). That RKE2 changed
//!   with the same versions is inferred (`facts/etcd.md`, section 8; rancher/rke2#8430 shows it for v1.32.5).
//! - An agent's come from a server anew at every start (k3s-io/k3s, `pkg/agent/config/config.go`).
//! - The supervisor's listener renews its own while it runs, and looks every six hours (rancher/dynamiclistener).
//! - kubeadm renews at an upgrade or by command; RKE1 by command or from Rancher; neither by a restart.
//! - Of anybody else nothing is known, and nothing is promised.

use std::time::Duration;

use outrider_protocol::{CertificateFile, CertificateUse as Use, Distribution, Fact, Timestamp};

use super::View;
use crate::wording::Moment;

const DAY: Duration = Duration::from_secs(86_400);

/// How many days before the end a start renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// This many.
    Days(u32),
    /// 90 or 120: the version is not known.
    Either,
}

/// The window of a version such as `v1.33.1+rke2r1`.
pub(crate) fn window(version: Option<&str>) -> Window {
    let Some((major, minor, patch)) = version.and_then(numbers) else { return Window::Either };
    let wide = match (major, minor) {
        (1, 30) => patch >= 13,
        (1, 31) => patch >= 9,
        (1, 32) => patch >= 5,
        (1, 33) => patch >= 1,
        (1, minor) => minor > 33,
        (major, _) => major > 1,
    };
    Window::Days(if wide { 120 } else { 90 })
}

/// Major, minor, patch.
pub(super) fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.strip_prefix('v').unwrap_or(version).split('.');
    let (major, minor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let patch = parts.next()?;
    let digits = patch.bytes().take_while(u8::is_ascii_digit).count();
    Some((major, minor, patch[..digits].parse().ok()?))
}

/// The unit whose start renews here.
pub(super) fn unit(view: &View<'_>) -> &'static str {
    match (&view.facts.distribution, view.facts.server) {
        (Distribution::Rke2, true) => "rke2-server",
        (Distribution::Rke2, false) => "rke2-agent",
        (Distribution::K3s, true) => "k3s",
        (Distribution::K3s, false) => "k3s-agent",
        _ => "the service",
    }
}

/// Whether RKE2 or K3s made the certificates here, of which it is known what a start of theirs renews.
pub(super) fn is_rancher(view: &View<'_>) -> bool {
    view.facts.distribution.is_ranchers()
}

/// What to do about a certificate of this use that ends on `end`.
pub(super) fn advice(view: &View<'_>, usage: &Use, end: Timestamp) -> String {
    match (&view.facts.distribution, usage) {
        (Distribution::Rke1, Use::SelfMade) | (Distribution::Kubeadm, Use::SelfMade) => {
            "The kubelet made it for itself and does not renew it; the API server does not verify it unless told to. To \
             have a new one, a person removes kubelet.crt and kubelet.key beside it and restarts the kubelet."
                .to_owned()
        }
        (Distribution::Kubeadm, _) => view.weighed(
            "By itself a restart renews nothing. On this control-plane node: kubeadm certs renew all, then restart the static pods \
             (kube-apiserver, kube-controller-manager, kube-scheduler, etcd), one node after the other; kubeadm upgrade \
             renews as well."
                .to_owned(),
        ),
        (Distribution::Rke1, _) => view.weighed(
            "By itself a restart renews nothing: rotate them with rke cert rotate where cluster.yml lies, or in Rancher with Rotate \
             Certificates. RKE1 has been out of support since July 2025: plan the move to RKE2 or K3s."
                .to_owned(),
        ),
        _ if !is_rancher(view) => view.weighed(format!(
            "What renews it is not known here ({}), and a restart by itself is not known to: whoever made this certificate has to issue a \
             new one. A process that holds the old one then has to be started again, one node after the other.",
            view.facts.distribution
        )),
        (_, Use::Agent) => view.weighed(format!(
            "A restart of {} renews it: the agent fetches it anew at every start, so one of the servers has to answer.",
            unit(view)
        )),
        (_, Use::SelfMade) => view.weighed(format!(
            "A restart alone does not renew it. Rancher's Rotate Certificates does; by hand, a person removes this pair of \
             .crt and .key and restarts {}.",
            unit(view)
        )),
        _ => at_a_start(view, end),
    }
}

fn at_a_start(view: &View<'_>, end: Timestamp) -> String {
    let unit = unit(view);
    let version = view.facts.version.value().map(String::as_str);
    let left = end.since(view.now);
    let from = |days: u32| end.before(DAY * days);
    let inside = |days: u32| left <= DAY * days;
    match window(version) {
        Window::Days(days) if inside(days) => view.weighed(format!(
            "A restart of {unit} renews it: {} renews at a start only, from {days} days before the end. One server after \
             the other.",
            version.unwrap_or("this version")
        )),
        Window::Days(days) => format!(
            "A restart does not help yet: {} renews at a start only, and only from {days} days before the end. A restart \
             of {unit} renews it from {} on.",
            version.unwrap_or("this version"),
            Moment(from(days))
        ),
        Window::Either if inside(90) => view.weighed(format!(
            "A restart of {unit} renews it: every version renews at a start from 90 days before the end. One server after \
             the other."
        )),
        Window::Either if inside(120) => view.weighed(format!(
            "A restart of {unit} renews it if its version is at least v1.30.13, v1.31.9, v1.32.5 or v1.33.1 (120 days \
             before the end); with an older one a restart does not help before {} (90 days). The version could not be read.",
            Moment(from(90))
        )),
        Window::Either => format!(
            "A restart does not help yet. A restart of {unit} renews it from {} on (120 days before the end, from v1.30.13, \
             v1.31.9, v1.32.5 and v1.33.1 on), with an older version from {} on (90 days). The version could not be read.",
            Moment(from(120)),
            Moment(from(90))
        ),
    }
}

/// What to do about the supervisor's certificate, which is renewed without a restart.
pub(super) fn supervisor(view: &View<'_>, end: Timestamp) -> String {
    if !is_rancher(view) {
        return advice(view, &Use::Server, end);
    }
    let unit = unit(view);
    let days = match window(view.facts.version.value().map(String::as_str)) {
        Window::Days(days) => days,
        Window::Either => 90,
    };
    if end.since(view.now) > DAY * days {
        return format!(
            "Nothing to do: {unit} renews it by itself while it runs, from {} on at the latest.",
            Moment(end.before(DAY * days))
        );
    }
    view.weighed(format!(
        "{unit} renews it by itself while it runs, looking every six hours, and has not: look for dynamiclistener in its \
         journal (journalctl -u {unit}). A restart of {unit} tries again."
    ))
}

/// The last start of the service that went well, by what it writes anew at every start. A service that fails to start
/// again and again writes that too, so it must be seen to run: a server by its supervisor. On a node that was a server and
/// is an agent now, the agent's start counts, long after the server's last. Where a server has no such file, the newest
/// certificate of its own tells of a start that renewed.
pub(super) fn last_start(view: &View<'_>) -> Option<Timestamp> {
    let newest = |of: &dyn Fn(&CertificateFile) -> bool| {
        let written = view.facts.files.iter().filter(|file| of(file)).filter_map(|file| file.modified);
        written.filter(|at| *at <= view.now).max()
    };
    let ends_with = |suffix: &'static str| move |file: &CertificateFile| file.path.ends_with(suffix);
    let shows = |name: &str| view.facts.served.iter().any(|s| s.name == name && s.chain.value().is_some());
    let server =
        newest(&ends_with("/client-ca.nochain.crt")).max(newest(&ends_with("/server-ca.nochain.crt")));
    let agent = newest(&ends_with("/agent/serving-kubelet.crt"));
    if shows("supervisor") {
        let renewed = || newest(&|file| file.usage == Use::Server);
        return server.or_else(renewed).max(agent);
    }
    let agent_only = server.is_none_or(|server| agent.is_some_and(|agent| agent.since(server) > DAY));
    agent.filter(|_| shows("kubelet") && agent_only)
}

/// Whether a start that would have renewed this file left it alone: then nothing uses it any more (D16; such as
/// `client-kube-proxy.crt` of older versions, k3s-io/k3s#12534). The narrower window counts, for the version may have
/// been another one then; a file written with or after the others (a copy, a backup put back) tells nothing.
pub(super) fn left_alone(view: &View<'_>, usage: &Use, modified: Option<Timestamp>, end: Timestamp) -> bool {
    let (Some(start), Some(modified)) = (last_start(view), modified) else { return false };
    // What an agent fetches it may also have failed to fetch: that is no leftover.
    let due = *usage == Use::Server && end.before(DAY * 90) <= start;
    // What a start writes, it writes within minutes.
    is_rancher(view) && due && start.since(modified) > Duration::from_secs(600)
}

/// The version in words, for a message.
pub(super) fn version_words(view: &View<'_>) -> String {
    match &view.facts.version {
        Fact::Known { value, .. } => format!("{} {value}", view.facts.distribution),
        _ => view.facts.distribution.to_string(),
    }
}
