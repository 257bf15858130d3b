//! Facts of etcd, of certificates and of Kubernetes.

use outrider_protocol::*;
use proptest::prelude::*;

use super::{fact, word};
use crate::world::{self, Change};

pub(super) fn etcd() -> impl Strategy<Value = EtcdFacts> {
    let member = (any::<bool>(), any::<bool>(), any::<bool>());
    let status = (any::<[i64; 3]>(), any::<u64>(), 0u8..6).prop_map(|([size, used, quota], index, kind)| {
        world::status(1).with(|s| {
            (s.db_size_bytes, s.db_in_use_bytes, s.quota_bytes, s.raft_index) = (size, used, quota, index);
            match kind {
                0 => s.leader.clear(),
                1 => s.errors = vec!["memberID:1 alarm:NOSPACE ".into()],
                2 => s.errors = vec!["etcdserver: something else".into()],
                3 => s.cluster_id = "c9".into(),
                4 => s.is_learner = true,
                _ => {}
            }
        })
    });
    let endpoint = (fact(status), fact(any::<f64>()), prop::option::of(0u64..5000), any::<bool>());
    let scrape = (any::<[u64; 3]>(), 0u64..1000).prop_map(|([a, b, count], ago)| {
        let mut s = world::scrape(ago, a % 1000, b % 1000);
        if count % 5 == 0 {
            s.wal_fsync.count = count;
        }
        s
    });
    let metrics = (prop::option::of(scrape.clone()), scrape)
        .prop_map(|(earlier, latest)| EtcdMetrics { earlier, latest });
    let alarms = prop::collection::vec((1usize..7, word(&["NOSPACE", "CORRUPT", "7"])), 0..3);
    (
        prop::collection::vec(member, 0..7),
        prop::collection::vec(endpoint, 0..7),
        fact(alarms),
        fact(metrics),
        fact(prop::collection::vec(word(&["n1", "n2", "n3", ""]), 0..4)),
        fact(any::<bool>()),
        0u64..4000,
    )
        .prop_map(|(members, endpoints, alarms, metrics, nodes, linearizable, learner_age)| {
            let mut e = world::etcd(members.len());
            let list: Vec<Member> = members
                .iter()
                .enumerate()
                .map(|(i, (learner, unnamed, hidden))| {
                    let mut m = world::member(i + 1);
                    m.is_learner = *learner;
                    if *unnamed && *hidden {
                        m.name.clear();
                    }
                    if *hidden {
                        m.client_urls.clear();
                    }
                    if *learner {
                        e.learners_since.insert(m.id.clone(), world::ago(learner_age));
                    }
                    m
                })
                .collect();
            e.members = linearizable.map(|linearizable| MemberList {
                cluster_id: "c1".into(),
                linearizable,
                members: list,
            });
            e.endpoints = endpoints
                .into_iter()
                .enumerate()
                .map(|(i, (status, read, down, local))| {
                    let mut at = world::endpoint(i + 1, local);
                    at.status = status.map(|mut s| {
                        s.member_id = at.member_id.clone();
                        s
                    });
                    (at.linearizable_read, at.down_since) = (read, down.map(world::ago));
                    at
                })
                .collect();
            e.alarms = alarms.map(|all| {
                all.into_iter().map(|(n, kind)| AlarmFacts { member_id: world::member(n).id, kind }).collect()
            });
            (e.metrics, e.kubernetes_nodes) = (metrics, nodes);
            e
        })
}

pub(super) fn certificates() -> impl Strategy<Value = CertificatesFacts> {
    let file = (
        any::<bool>(),
        0usize..3,
        fact(prop::collection::vec(-400i64..4000, 0..3)),
        prop::option::of(-9000i64..9000),
        fact(Just(String::new())),
    );
    let file = file.prop_map(|(same, place, chain, modified, issuer)| {
        let path =
            ["server/tls/client-ca.nochain.crt", "agent/serving-kubelet.crt", "server/tls/x.crt"][place];
        let name = if same { "etcd" } else { "other" };
        let chain = chain.map(|days| days.into_iter().map(|days| world::leaf(name, days)).collect());
        let mut file = world::certificate_file(path, CertificateUse::Server, vec![]);
        (file.certificates, file.issuer) = (chain, issuer);
        file.modified =
            modified.map(|hours| Timestamp::from_millis(world::now().as_millis() + hours * 3_600_000));
        file
    });
    let files = prop::collection::vec((file, prop::sample::select(CertificateUse::ALL)), 0..6);
    let port = (
        word(&["etcd", "kubelet", "supervisor"]),
        fact(prop::collection::vec(-400i64..4000, 0..3)),
        fact(Just(String::new())),
        any::<bool>(),
    );
    let port = port.prop_map(|(name, chain, issuer, with_file)| {
        let mut served = world::served(&name, 1, if with_file { "server/tls/x.crt" } else { "" }, vec![]);
        served.chain = chain.map(|days| days.into_iter().map(|days| world::leaf("etcd", days)).collect());
        served.issuer = issuer;
        served
    });
    (
        prop::sample::select(Distribution::ALL),
        any::<bool>(),
        fact(word(&["v1.33.1-rke2r1", "v1.29.9", "odd", "v2.0.0"])),
        files,
        prop::collection::vec(port, 0..4),
        word(&["10.0.0.1", "10.0.0.9", "n1"]),
    )
        .prop_map(|(distribution, server, version, files, served, name)| CertificatesFacts {
            distribution,
            server,
            version,
            node_names: vec![name],
            wanted_names: vec![],
            files: files
                .into_iter()
                .map(|(mut file, usage)| {
                    file.usage = usage;
                    file
                })
                .collect(),
            served,
            ..world::certificates("", 300)
        })
}

pub(super) fn kubernetes() -> impl Strategy<Value = KubernetesFacts> {
    let answer = || {
        (100u16..600, word(&["", "ok", "[-]etcd failed"]))
            .prop_map(|(status, said)| ComponentAnswer { status, said })
    };
    let firewall =
        (word(&["firewalld", "ufw", "nftables"]), any::<bool>()).prop_map(|(name, active)| FirewallFacts {
            evidence: format!("{name}.service is {}", if active { "active" } else { "inactive" }),
            name,
            active,
        });
    let manager = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(active, manages, cloud)| {
        NetworkManagerFacts {
            active,
            manages: if manages { vec!["cali".into()] } else { vec![] },
            cloud_setup: if cloud { vec!["nm-cloud-setup.timer".into()] } else { vec![] },
        }
    });
    let signs = || prop::collection::vec(word(&["process etcd (pid 1)", "folder /opt/rke"]), 0..3);
    (
        (
            prop::sample::select(Distribution::ALL),
            prop::sample::select(KubernetesRole::ALL),
            signs(),
            signs(),
        ),
        (
            fact(0u32..8),
            fact(0u64..40_000_000_000),
            fact(any::<bool>()),
            fact(any::<bool>()),
            fact(word(&["x86_64", "aarch64", "s390x"])),
        ),
        (fact(prop::collection::vec(firewall, 0..3)), fact(manager)),
        (
            prop::option::of(fact(answer())),
            prop::option::of(fact(answer())),
            fact(crate::kubernetes::any_network()),
        ),
    )
        .prop_map(
            |(
                (distribution, role, running, on_disk),
                (cpus, memory, forwarding, cgroup, arch),
                (firewalls, manager),
                (kubelet, apiserver, network),
            )| {
                world::kubernetes().with(|k| {
                    (k.distribution, k.role) = (distribution, role);
                    k.rke1 = Rke1Facts { running, on_disk };
                    (k.machine.cpus, k.machine.memory_bytes, k.machine.architecture) = (cpus, memory, arch);
                    (k.machine.forwarding, k.machine.cgroup_v2) = (forwarding, cgroup);
                    (k.firewalls, k.network_manager) = (firewalls, manager);
                    (k.kubelet, k.apiserver, k.network) = (kubelet, apiserver, network);
                })
            },
        )
}
