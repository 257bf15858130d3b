//! What runs on a node: RKE1, requirements, firewalls, kubelet and API server.

use super::*;

#[test]
fn rke1_is_a_warning_with_its_dates_and_signs() {
    let k = world::kubernetes().with(|k| {
        (k.distribution, k.role) = (Distribution::Rke1, KubernetesRole::Server);
        k.rke1.running =
            vec!["process kubelet (pid 9) with /etc/kubernetes/ssl/kubecfg-kube-node.yaml".into()];
        k.rke1.on_disk = vec!["folder /opt/rke".into()];
    });
    let f = ready(k, "rke1");
    let words = [
        "2025-07-31",
        "process kubelet (pid 9)",
        "folder /opt/rke",
        "2.12",
        "Replatform",
        "RKE2",
        "days ago",
    ];
    expect(&f, Status::True, Severity::Warn, ReasonCode::Rke1EndOfLife, &words);
    let days: i64 =
        f.message.split("2025-07-31, ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(days, (world::now().as_millis() / 1000 - 1_753_920_000) / 86_400);
}

#[test]
fn what_an_rke1_left_behind_is_another_thing() {
    let k = world::kubernetes().with(|k| k.rke1.on_disk = vec!["folder /opt/rke".into()]);
    expect(
        &ready(k.clone(), "rke1"),
        Status::True,
        Severity::Info,
        ReasonCode::Rke1Remains,
        &["rke2", "/opt/rke"],
    );
    let both = k.with(|k| k.rke1.running = vec!["process etcd (pid 3)".into()]);
    assert_eq!(ready(both, "rke1").reason, ReasonCode::Rke1EndOfLife);
    assert!(
        find(&judged(world::kubernetes(), Profile::Generic), ConditionType::KubernetesReady, "rke1")
            .is_none()
    );
}

#[test]
fn an_rke1_that_is_not_seen_running_is_said_to_be_so() {
    let k = world::kubernetes().with(|k| {
        k.distribution = Distribution::Rke1;
        k.rke1.on_disk = vec!["/etc/kubernetes/ssl: kube-ca.pem".into()];
    });
    expect(
        &ready(k, "rke1"),
        Status::True,
        Severity::Warn,
        ReasonCode::Rke1EndOfLife,
        &["none of its processes is seen"],
    );
}

#[test]
fn minimums_are_those_of_the_documents_by_profile_and_role() {
    let gb = 1_000_000_000u64;
    let case = |distribution: Distribution, role: KubernetesRole, profile: Profile, cpus: u32, bytes: u64| {
        let k = world::kubernetes().with(|k| {
            (k.distribution, k.role) = (distribution, role);
            (k.machine.cpus, k.machine.memory_bytes) = (known(cpus), known(bytes));
        });
        find(&judged(k, profile), ConditionType::KubernetesReady, "requirements").unwrap()
    };
    use Distribution as D;
    use KubernetesRole as Role;
    // A machine sold with 4 GiB shows 3.8 of them.
    let four = 3_900_000_000;
    assert_eq!(case(D::Rke2, Role::Server, Profile::Generic, 2, four).severity, Severity::Ok);
    let small = case(D::Rke2, Role::Server, Profile::RancherHaServer, 2, four);
    expect(
        &small,
        Status::True,
        Severity::Warn,
        ReasonCode::RequirementsNotMet,
        &["2 of 4 processors", "3.9 GB of the 16.0 GB", "Rancher"],
    );
    assert_eq!(
        case(D::Rke2, Role::Agent, Profile::Generic, 1, 8 * gb).reason,
        ReasonCode::RequirementsNotMet
    );
    assert_eq!(case(D::K3s, Role::Server, Profile::Generic, 2, 2 * gb).severity, Severity::Ok);
    assert_eq!(case(D::K3s, Role::Server, Profile::Generic, 1, 2 * gb).severity, Severity::Warn);
    assert_eq!(case(D::K3s, Role::Agent, Profile::Generic, 1, 500_000_000).severity, Severity::Ok);
    assert_eq!(case(D::K3s, Role::Agent, Profile::Generic, 1, 400_000_000).severity, Severity::Warn);
    // Nobody says anything of kubeadm here.
    assert_eq!(case(D::Kubeadm, Role::Agent, Profile::Generic, 1, gb).severity, Severity::Ok);
}

#[test]
fn an_unknown_system_is_not_failed_and_unread_hardware_is_not_small() {
    let k = world::kubernetes().with(|k| {
        k.machine.os = known("Some Linux 1".into());
        (k.machine.cpus, k.machine.memory_bytes) =
            (unknown(UnknownCause::IoError), unknown(UnknownCause::IoError));
    });
    let f = ready(k, "requirements");
    expect(
        &f,
        Status::True,
        Severity::Ok,
        ReasonCode::RequirementsMet,
        &["Some Linux 1", "processors and memory could not be read"],
    );
}

#[test]
fn forwarding_counts_once_kubernetes_runs_and_cgroup_v1_is_told_before_it_bites() {
    let k = world::kubernetes().with(|k| k.machine.forwarding = known(false));
    expect(
        &ready(k.clone(), "requirements"),
        Status::True,
        Severity::Warn,
        ReasonCode::RequirementsNotMet,
        &["forwarding is 0"],
    );
    let before = k.with(|k| k.kubelet = Some(unknown(UnknownCause::ConnectionRefused)));
    assert_eq!(ready(before, "requirements").severity, Severity::Ok);
    let old = world::kubernetes().with(|k| k.machine.cgroup_v2 = known(false));
    expect(
        &ready(old, "requirements"),
        Status::True,
        Severity::Info,
        ReasonCode::RequirementsNotMet,
        &["1.35"],
    );
}

#[test]
fn network_manager_is_to_leave_the_cni_alone() {
    let manager = |active, manages: &[&str], cloud: &[&str]| {
        known(NetworkManagerFacts {
            active,
            manages: manages.iter().map(|s| (*s).to_owned()).collect(),
            cloud_setup: cloud.iter().map(|s| (*s).to_owned()).collect(),
        })
    };
    let k = world::kubernetes();
    let of = |k: KubernetesFacts, m| ready(k.with(|k| k.network_manager = m), "requirements");
    let f = of(k.clone(), manager(true, &["cali", "flannel"], &[]));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::NetworkManagerInterferes,
        &["cali* and flannel*", "unmanaged-devices"],
    );
    assert_eq!(of(k.clone(), manager(false, &["cali"], &[])).severity, Severity::Ok);
    assert_eq!(of(k.clone(), manager(true, &[], &[])).severity, Severity::Ok);
    let f = of(k.clone(), manager(true, &[], &["nm-cloud-setup.timer"]));
    expect(&f, Status::True, Severity::Warn, ReasonCode::NetworkManagerInterferes, &["nm-cloud-setup.timer"]);
    let k3s = k.clone().with(|k| k.distribution = Distribution::K3s);
    assert_eq!(
        of(k3s.clone(), manager(true, &["cali", "flannel"], &[])).severity,
        Severity::Ok,
        "K3s does not ask for it"
    );
    assert_eq!(of(k3s, manager(true, &[], &["nm-cloud-setup.timer"])).severity, Severity::Info);
    let cilium = k.with(|k| {
        let mut network = world::network(1, vec![]);
        network.overlays[0].cni = "cilium".into();
        k.network = known(network);
    });
    assert_eq!(of(cilium, manager(true, &["cali", "flannel"], &[])).severity, Severity::Ok);
}

fn firewall(name: &str, active: bool) -> FirewallFacts {
    FirewallFacts {
        name: name.into(),
        active,
        evidence: format!("{name}.service is {}", if active { "active" } else { "inactive" }),
    }
}

#[test]
fn a_firewall_warns_only_where_a_document_or_a_try_says_so() {
    let k = |name: &str, distribution: Distribution| {
        world::kubernetes().with(|k| {
            k.firewalls = known(vec![firewall(name, true)]);
            k.distribution = distribution;
        })
    };
    let of = |k: KubernetesFacts, profile| {
        find(&judged(k, profile), ConditionType::KubernetesReady, "firewall").unwrap()
    };
    let f = of(k("firewalld", Distribution::Rke2), Profile::Generic);
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::FirewallConflicts,
        &["firewalld.service is active", "RKE2's known issues"],
    );
    let f = of(k("firewalld", Distribution::K3s), Profile::Generic);
    expect(&f, Status::True, Severity::Info, ReasonCode::FirewallActive, &["not known"]);
    let f = of(k("firewalld", Distribution::K3s), Profile::RancherHaServer);
    expect(&f, Status::True, Severity::Warn, ReasonCode::FirewallConflicts, &["Rancher's requirements"]);
    let f = of(k("nftables", Distribution::Rke2), Profile::RancherHaServer);
    assert_eq!((f.severity, f.reason), (Severity::Info, ReasonCode::FirewallActive));
    let joined = k("nftables", Distribution::Rke2).with(|k| {
        k.network = known(world::network(1, vec![with(2, &[(TriedPort::Overlay, Reach::Silent, 2)])]))
    });
    expect(
        &of(joined, Profile::Generic),
        Status::True,
        Severity::Warn,
        ReasonCode::FirewallActive,
        &["tries of n2 fail"],
    );
}

#[test]
fn what_could_not_be_read_of_the_firewall_is_unknown_and_not_off() {
    let k = world::kubernetes().with(|k| k.firewalls = unknown(UnknownCause::TimedOut));
    let f = ready(k, "firewall");
    assert_eq!((f.status, f.reason), (Status::Unknown, ReasonCode::TimedOut));
    let none = world::kubernetes().with(|k| k.firewalls = world::absent("systemd"));
    assert!(find(&judged(none, Profile::Generic), ConditionType::KubernetesReady, "firewall").is_none());
    let off = world::kubernetes().with(|k| k.firewalls = known(vec![firewall("ufw", false)]));
    expect(
        &ready(off, "firewall"),
        Status::True,
        Severity::Ok,
        ReasonCode::FirewallClear,
        &["ufw.service is inactive"],
    );
}

#[test]
fn kubelet_and_api_server_answer_or_not() {
    let down = world::kubernetes().with(|k| k.kubelet = Some(unknown(UnknownCause::ConnectionRefused)));
    expect(
        &ready(down.clone(), ""),
        Status::False,
        Severity::Error,
        ReasonCode::KubeletDown,
        &["rke2-server.service is active"],
    );
    let starting = down.with(|k| {
        k.machine.units = known(vec![world::unit("rke2-server.service", "loaded", "activating", "enabled")])
    });
    assert_eq!(ready(starting, "").severity, Severity::Warn);
    let sick = world::kubernetes()
        .with(|k| k.apiserver = Some(known(ComponentAnswer { status: 500, said: "[-]etcd failed".into() })));
    expect(
        &ready(sick, ""),
        Status::False,
        Severity::Error,
        ReasonCode::ApiserverDown,
        &["500", "[-]etcd failed"],
    );
    let blind = world::kubernetes().with(|k| k.kubelet = Some(unknown(UnknownCause::InvalidAnswer)));
    assert_eq!(ready(blind, "").reason, ReasonCode::InvalidAnswer);
}
