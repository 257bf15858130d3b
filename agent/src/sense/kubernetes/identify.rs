//! Who runs Kubernetes here, by units and by what each leaves on disk (`facts/rke2-k3s-on-disk.md`).

use std::io;
use std::path::Path;

use outrider_protocol::{Distribution, KubernetesRole, Rke1Facts, UnitFacts};

use crate::sense::SenseContext;

/// A distribution that is here.
pub(super) struct Here {
    pub(super) distribution: Distribution,
    pub(super) role: KubernetesRole,
    pub(super) by: String,
}

/// What the search came to.
pub(super) enum Found {
    Here(Here),
    Nothing,
    /// A folder that decides could not be read.
    Unreadable(io::Error, String),
}

/// Units by which RKE2 and K3s run, and what a node with them is.
const UNITS: [(&str, Distribution, KubernetesRole); 4] = [
    ("rke2-server.service", Distribution::Rke2, KubernetesRole::Server),
    ("rke2-agent.service", Distribution::Rke2, KubernetesRole::Agent),
    ("k3s.service", Distribution::K3s, KubernetesRole::Server),
    ("k3s-agent.service", Distribution::K3s, KubernetesRole::Agent),
];

/// Searches: a unit that runs or is to be started tells most, then data folders, then RKE1 and kubeadm. The package of
/// RKE2 brings both of its units, so that a unit which is merely installed tells nothing.
pub(super) fn identify(cx: &SenseContext, units: &[UnitFacts], rke1: &Rke1Facts) -> Found {
    let runs = |u: &UnitFacts| matches!(u.active_state.as_str(), "active" | "activating" | "reloading");
    let starts = |u: &UnitFacts| u.unit_file_state == "enabled";
    for wanted in [&runs as &dyn Fn(&UnitFacts) -> bool, &starts] {
        for (name, distribution, role) in &UNITS {
            if let Some(unit) = units.iter().find(|u| u.name == *name && wanted(u)) {
                let by = format!("{name} ({}, {})", unit.active_state, unit.unit_file_state);
                return Found::Here(Here { distribution: distribution.clone(), role: role.clone(), by });
            }
        }
    }
    let mut unreadable = None;
    for (data, distribution) in
        [("/var/lib/rancher/rke2", Distribution::Rke2), ("/var/lib/rancher/k3s", Distribution::K3s)]
    {
        match list(cx, data) {
            Ok(Some(names)) if names.iter().any(|n| n == "server" || n == "agent") => {
                let is_server = names.iter().any(|n| n == "server");
                let role = if is_server { KubernetesRole::Server } else { KubernetesRole::Agent };
                return Found::Here(Here { distribution, role, by: data.to_owned() });
            }
            Ok(_) => {}
            Err(error) => {
                unreadable.get_or_insert((error, data.to_owned()));
            }
        }
    }
    if let Some(sign) = rke1.running.first().or(rke1.on_disk.first()) {
        // The role of an RKE1 node lies in its containers: on a control plane the API server is among them.
        let is_server = rke1.running.iter().any(|s| s.contains("kube-apiserver"));
        let role = if is_server { KubernetesRole::Server } else { KubernetesRole::Unknown };
        return Found::Here(Here { distribution: Distribution::Rke1, role, by: sign.clone() });
    }
    let manifests = "/etc/kubernetes/manifests";
    match list(cx, manifests) {
        Ok(Some(names)) if names.iter().any(|n| n == "kube-apiserver.yaml") => {
            let by = format!("{manifests}/kube-apiserver.yaml");
            return Found::Here(Here {
                distribution: Distribution::Kubeadm,
                role: KubernetesRole::Server,
                by,
            });
        }
        Ok(_) if cx.path("/var/lib/kubelet/config.yaml").exists() => {
            let by = "/var/lib/kubelet/config.yaml".to_owned();
            return Found::Here(Here {
                distribution: Distribution::Kubeadm,
                role: KubernetesRole::Agent,
                by,
            });
        }
        Ok(_) => {}
        Err(error) => {
            unreadable.get_or_insert((error, manifests.to_owned()));
        }
    }
    unreadable.map_or(Found::Nothing, |(error, path)| Found::Unreadable(error, path))
}

/// Names in a folder; `None` when it is not there.
pub(super) fn list(cx: &SenseContext, path: &str) -> io::Result<Option<Vec<String>>> {
    match cx.opener.list(Path::new(path)) {
        Ok(names) => Ok(Some(names)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::prepared::Machine;
    use super::*;

    fn unit(name: &str, active: &str, file: &str) -> UnitFacts {
        UnitFacts {
            name: name.into(),
            load_state: "loaded".into(),
            active_state: active.into(),
            sub_state: String::new(),
            unit_file_state: file.into(),
        }
    }

    fn here(
        machine: &Machine,
        units: &[UnitFacts],
        rke1: &Rke1Facts,
    ) -> Option<(Distribution, KubernetesRole)> {
        match identify(&machine.cx(), units, rke1) {
            Found::Here(here) => Some((here.distribution, here.role)),
            _ => None,
        }
    }

    #[test]
    fn a_running_unit_tells_more_than_folders() {
        let machine = Machine::new();
        std::fs::create_dir_all(machine.path("/var/lib/rancher/rke2/server")).unwrap();
        let none = Rke1Facts::default();
        let installed = [
            unit("rke2-server.service", "inactive", "disabled"),
            unit("k3s-agent.service", "active", "enabled"),
        ];
        assert_eq!(here(&machine, &installed, &none), Some((Distribution::K3s, KubernetesRole::Agent)));
        assert_eq!(
            here(&machine, &installed[..1], &none),
            Some((Distribution::Rke2, KubernetesRole::Server))
        );
    }

    #[test]
    fn folders_tell_servers_from_agents_and_an_empty_one_tells_nothing() {
        let machine = Machine::new();
        let none = Rke1Facts::default();
        std::fs::create_dir_all(machine.path("/var/lib/rancher/k3s")).unwrap();
        assert_eq!(here(&machine, &[], &none), None);
        std::fs::create_dir_all(machine.path("/var/lib/rancher/k3s/agent")).unwrap();
        assert_eq!(here(&machine, &[], &none), Some((Distribution::K3s, KubernetesRole::Agent)));
        machine.write("/etc/kubernetes/manifests/kube-apiserver.yaml", "");
        assert_eq!(here(&machine, &[], &none), Some((Distribution::K3s, KubernetesRole::Agent)));
    }

    #[test]
    fn rke1_and_kubeadm_come_last() {
        let machine = Machine::new();
        machine.write("/etc/kubernetes/manifests/kube-apiserver.yaml", "");
        assert_eq!(
            here(&machine, &[], &Rke1Facts::default()),
            Some((Distribution::Kubeadm, KubernetesRole::Server))
        );
        let rke1 = Rke1Facts { running: vec!["process kube-apiserver (pid 7)".into()], on_disk: vec![] };
        assert_eq!(here(&machine, &[], &rke1), Some((Distribution::Rke1, KubernetesRole::Server)));
    }
}
