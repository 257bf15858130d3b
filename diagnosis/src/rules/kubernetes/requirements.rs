//! The machine against what the documents ask of it. Only what they ask: an operating system that a support matrix does
//! not name is not judged, for the matrix changes monthly and every page says that other systems should work; disks are
//! not judged, for neither kind nor IOPS can be read (`EtcdDisk` measures what matters of them).

use std::time::Duration;

use outrider_protocol::{
    ConditionType, Distribution, Fact, KubernetesFacts, KubernetesRole, Profile, ReasonCode as R, Severity,
    Status, Timestamp,
};

use crate::finding::Finding;
use crate::wording::Short;

/// Hardware does not flap; a configuration that is being written does.
const RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(60);

/// A machine sold with 4 GiB shows the kernel about 3.8 of them: asked for are decimal gigabytes, less 7 %.
const SLACK: f64 = 0.93;
const GB: u64 = 1_000_000_000;

/// Least processors and memory, and who asks for them.
struct Minimum {
    cpus: u32,
    bytes: u64,
    source: &'static str,
}

/// Who asks for what of this node.
fn minimum(k: &KubernetesFacts, profile: &Profile) -> Option<Minimum> {
    let of = |cpus, bytes, source| Some(Minimum { cpus, bytes, source });
    match (&k.distribution, &k.role, profile) {
        (_, _, Profile::RancherHaServer) => {
            of(4, 16 * GB, "Rancher's requirements for a node that runs Rancher, size Small")
        }
        (Distribution::Rke2, ..) => of(2, 4 * GB, "RKE2's requirements"),
        (Distribution::K3s, KubernetesRole::Server, _) => of(2, 2 * GB, "K3s' requirements for a server"),
        (Distribution::K3s, KubernetesRole::Agent, _) => of(1, 512_000_000, "K3s' requirements for an agent"),
        _ => None,
    }
}

/// One thing that is not as asked.
struct Problem {
    severity: Severity,
    reason: R,
    what: String,
    advice: &'static str,
}

pub(super) fn judge(k: &KubernetesFacts, profile: &Profile, at: Timestamp) -> Finding {
    let mut problems = hardware(k, profile);
    problems.extend(system(k, profile));
    problems.extend(network_manager(k));
    problems.sort_by_key(|p| std::cmp::Reverse(p.severity));
    let about = about(k);
    let finding = |severity, reason, message: String| {
        Finding::new(ConditionType::KubernetesReady, Status::True, severity, reason, at, message)
            .subject("requirements")
            .waits(RAISE, CLEAR)
    };
    let Some(first) = problems.first() else {
        let asked = minimum(k, profile).map_or(String::new(), |m| {
            format!(" {} ask for {} processors and {} of memory.", m.source, m.cpus, Short(m.bytes))
        });
        return finding(Severity::Ok, R::RequirementsMet, format!("{about}.{asked}"));
    };
    let all: Vec<&str> = problems.iter().map(|p| p.what.as_str()).collect();
    let mut advice: Vec<&str> = Vec::new();
    for p in &problems {
        if !advice.contains(&p.advice) {
            advice.push(p.advice);
        }
    }
    finding(first.severity, first.reason.clone(), format!("{}. {about}.", all.join(". ")))
        .advice(advice.join(" "))
}

fn hardware(k: &KubernetesFacts, profile: &Profile) -> Vec<Problem> {
    const ADVICE: &str = "Give the machine what is asked for, or move the role to one that has it.";
    let mut problems = Vec::new();
    let Some(m) = minimum(k, profile) else { return problems };
    let below = |what: String| Problem {
        severity: Severity::Warn,
        reason: R::RequirementsNotMet,
        what,
        advice: ADVICE,
    };
    if let Some(cpus) = k.machine.cpus.value().filter(|n| **n < m.cpus) {
        problems.push(below(format!("{cpus} of {} processors that {} ask for", m.cpus, m.source)));
    }
    if let Some(bytes) = k.machine.memory_bytes.value().filter(|b| (**b as f64) < m.bytes as f64 * SLACK) {
        problems.push(below(format!(
            "{} of the {} of memory that {} ask for",
            Short(*bytes),
            Short(m.bytes),
            m.source
        )));
    }
    problems
}

fn system(k: &KubernetesFacts, profile: &Profile) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |severity, what: String, advice| {
        problems.push(Problem { severity, reason: R::RequirementsNotMet, what, advice });
    };
    if let Some(word) = k.machine.architecture.value() {
        let is_64 = matches!(word.as_str(), "x86_64" | "aarch64");
        if k.distribution == Distribution::Rke2 && !is_64 {
            add(
                Severity::Warn,
                format!("RKE2 exists for x86_64 and aarch64, and this machine is {word}"),
                "Use another machine for this role.",
            );
        } else if *profile == Profile::RancherHaServer && word != "x86_64" {
            add(
                Severity::Info,
                format!("Rancher's requirements name x86_64; on {word} Rancher is experimental"),
                "Use x86_64 for the nodes that run Rancher in production.",
            );
        }
    }
    if k.machine.cgroup_v2.value() == Some(&false) {
        // kubernetes/enhancements: KEP-5573.
        add(
            Severity::Info,
            "cgroup v1 is mounted, and the kubelet of Kubernetes 1.35 and later refuses to start on it"
                .to_owned(),
            "Boot with the unified hierarchy (systemd.unified_cgroup_hierarchy=1) before that upgrade.",
        );
    }
    // Before its start a distribution has not set it yet.
    let runs = k.kubelet.as_ref().is_some_and(|fact| fact.value().is_some());
    if runs && k.machine.forwarding.value() == Some(&false) {
        add(
            Severity::Warn,
            "net.ipv4.conf.all.forwarding is 0 while Kubernetes runs: packets of pods are not forwarded"
                .to_owned(),
            "See who resets it (RKE2's known issues name Wicked) and set net.ipv4.conf.all.forwarding=1 in a file below \
             /etc/sysctl.d.",
        );
    }
    problems
}

/// RKE2's known issues: NetworkManager rewrites routes of CNI interfaces it is not told to leave alone, and
/// nm-cloud-setup adds a routing table that no setting avoids. K3s' requirements name only the latter, for systems
/// older than RHEL 8.4.
fn network_manager(k: &KubernetesFacts) -> Vec<Problem> {
    let Some(manager) = k.network_manager.value().filter(|m| m.active) else { return Vec::new() };
    let overlays = k.network.value().map_or(&[][..], |n| n.overlays.as_slice());
    let by_cilium = !overlays.is_empty() && overlays.iter().all(|o| o.cni == "cilium");
    let mut problems = Vec::new();
    let mut add =
        |severity, reason, what: String, advice| problems.push(Problem { severity, reason, what, advice });
    if k.distribution == Distribution::Rke2 && !by_cilium && !manager.manages.is_empty() {
        let prefixes: Vec<String> = manager.manages.iter().map(|p| format!("{p}*")).collect();
        add(
            Severity::Warn,
            R::NetworkManagerInterferes,
            format!("NetworkManager runs and is not told to leave {} alone", prefixes.join(" and ")),
            "Put unmanaged-devices=interface-name:cali*;interface-name:flannel* under [keyfile] in a file below \
             /etc/NetworkManager/conf.d; where RKE2 is installed already it takes effect at the next boot of the node.",
        );
    }
    if !manager.cloud_setup.is_empty() {
        let (severity, reason) = match k.distribution {
            Distribution::Rke2 => (Severity::Warn, R::NetworkManagerInterferes),
            _ => (Severity::Info, R::RequirementsNotMet),
        };
        add(
            severity,
            reason,
            format!("{} adds a routing table beside the CNI's", manager.cloud_setup.join(" and ")),
            "Disable nm-cloud-setup.service and nm-cloud-setup.timer; before NetworkManager 1.30.0-11.el8_4 a reboot must \
             follow.",
        );
    }
    problems
}

/// The machine in a sentence.
fn about(k: &KubernetesFacts) -> String {
    let m = &k.machine;
    let mut words = vec![format!("{} {}", k.distribution, k.role)];
    words.extend(m.cpus.value().map(|n| format!("{n} processors")));
    words.extend(m.memory_bytes.value().map(|b| format!("{} of memory", Short(*b))));
    words.extend(m.architecture.value().cloned());
    words.extend(m.os.value().cloned());
    words.extend(m.runtimes.value().map(|r| r.join(" and ")));
    words.extend(m.confinement.value().cloned());
    let unread: Vec<&str> = [("processors", is_unknown(&m.cpus)), ("memory", is_unknown(&m.memory_bytes))]
        .into_iter()
        .filter_map(|(name, unknown)| unknown.then_some(name))
        .collect();
    if !unread.is_empty() {
        words.push(format!("{} could not be read", unread.join(" and ")));
    }
    words.join(", ").trim_end_matches('.').to_owned()
}

fn is_unknown<T>(fact: &Fact<T>) -> bool {
    matches!(fact, Fact::Unknown { .. })
}
