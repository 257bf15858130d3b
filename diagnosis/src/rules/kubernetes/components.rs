//! The kubelet and the API server of this node (`facts/rke2-k3s-on-disk.md`, section 8).

use std::time::Duration;

use outrider_protocol::{
    ComponentAnswer, ConditionType, Distribution, Fact, KubernetesFacts, KubernetesRole, ReasonCode as R,
    Severity, Status, UnknownCause,
};

use crate::finding::Finding;

const TYPE: ConditionType = ConditionType::KubernetesReady;

/// A restart or an upgrade takes this long and is no fault.
const RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(10);

/// How one component stands.
enum Standing {
    Answers(String),
    Fails(String),
    Unread(UnknownCause, String),
}

pub(super) fn judge(k: &KubernetesFacts) -> Option<Finding> {
    let kubelet = k.kubelet.as_ref()?;
    let at = kubelet.at();
    let api = k.apiserver.as_ref();
    let standings =
        [Some(standing("the kubelet", kubelet)), api.map(|fact| standing("the API server", fact))];
    let units = units(k);
    let fails = |i: usize| match standings.get(i) {
        Some(Some(Standing::Fails(why))) => Some(why.clone()),
        _ => None,
    };
    let wrong = [(fails(0), R::KubeletDown), (fails(1), R::ApiserverDown)];
    if let Some((Some(first), reason)) = wrong.iter().find(|(why, _)| why.is_some()).cloned() {
        let also = if reason == R::KubeletDown { fails(1).map(|why| format!(" {why}.")) } else { None };
        // An etcd-only server of K3s has no kubelet, and a unit that starts is on its way.
        let may_be_meant = k.distribution == Distribution::K3s && k.role == KubernetesRole::Server;
        let starting =
            k.machine.units.value().is_some_and(|u| u.iter().any(|u| u.active_state == "activating"));
        let severity = if may_be_meant || starting { Severity::Warn } else { Severity::Error };
        let message = format!("{}.{}{units}", capital(&first), also.unwrap_or_default());
        return Some(
            Finding::new(TYPE, Status::False, severity, reason, at, message)
                .advice(
                    "Read the journal of the unit that runs Kubernetes here (rke2-server, rke2-agent, k3s, k3s-agent, \
                     kubelet) from its last start on. On an etcd-only server of K3s no kubelet is expected. Outrider \
                     does not restart it.",
                )
                .waits(RAISE, CLEAR),
        );
    }
    let unread = standings.iter().flatten().find_map(|s| match s {
        Standing::Unread(cause, why) => Some((cause, why)),
        _ => None,
    });
    if let Some((cause, why)) = unread {
        let message = format!("{}.", capital(why));
        return Some(Finding::unknown(TYPE, cause, Severity::Warn, at, message));
    }
    let said = standings.iter().flatten().filter_map(|s| match s {
        Standing::Answers(what) => Some(what.as_str()),
        _ => None,
    });
    let message = format!("{}.{units}", capital(&said.collect::<Vec<_>>().join("; ")));
    Some(
        Finding::new(TYPE, Status::True, Severity::Ok, R::KubernetesAnswers, at, message).waits(RAISE, CLEAR),
    )
}

/// 401 and 403 are answers of a living server: with `anonymous-auth=false`, as RKE2 and K3s set it, every question
/// without a credential gets 401.
fn standing(name: &str, fact: &Fact<ComponentAnswer>) -> Standing {
    match fact {
        Fact::Known { value, source, .. } => match value.status {
            200 => Standing::Answers(format!("{name} answers at {source}")),
            401 | 403 => Standing::Answers(format!(
                "{name} answers at {source} ({} without a credential)",
                value.status
            )),
            status => {
                let said = value.said.trim_end_matches('.');
                let said = if said.is_empty() { String::new() } else { format!(": {said}") };
                Standing::Fails(format!("{name} answers {status} at {source}{said}"))
            }
        },
        Fact::Unknown { cause, detail, source, .. } => {
            let detail = detail.trim_end_matches('.');
            match cause {
                UnknownCause::ConnectionRefused => {
                    Standing::Fails(format!("nobody listens at {source}, where {name} should"))
                }
                UnknownCause::TimedOut => {
                    Standing::Fails(format!("{name} does not answer at {source}: {detail}"))
                }
                cause => {
                    Standing::Unread(cause.clone(), format!("{name} could not be asked: {detail} ({source})"))
                }
            }
        }
        Fact::Absent { source, .. } => Standing::Answers(format!("{name} is not asked ({source})")),
        Fact::NotApplicable { reason, .. } => Standing::Answers(format!("{name} is not asked ({reason})")),
    }
}

/// What systemd says of the units that matter, as one more sentence.
fn units(k: &KubernetesFacts) -> String {
    let Some(units) = k.machine.units.value() else { return String::new() };
    let wanted = units.iter().filter(|u| !matches!(u.name.as_str(), "docker.service" | "containerd.service"));
    let wanted = wanted.filter(|u| u.active_state != "inactive" || u.unit_file_state == "enabled");
    let words: Vec<String> = wanted.map(|u| format!("{} is {}", u.name, u.active_state)).collect();
    if words.is_empty() { String::new() } else { format!(" {}.", words.join(", ")) }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
