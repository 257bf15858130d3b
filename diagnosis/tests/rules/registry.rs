//! Every verdict of every rule lies within what the registry allows, and carries words.

use outrider_diagnosis::{Finding, fleet, judge, latch};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::world::{self, Change, known, unknown};

fn check(f: &Finding) -> Result<(), TestCaseError> {
    let info = f.reason.info();
    prop_assert!(info.is_some(), "{} is not registered", f.reason);
    let (lowest, highest) = info.unwrap().severities;
    prop_assert!(
        f.severity >= lowest && f.severity <= highest,
        "{} has {}: {}",
        f.reason,
        f.severity,
        f.message
    );
    prop_assert!(f.message.ends_with('.') && f.message.len() > 10, "{}: {:?}", f.reason, f.message);
    prop_assert!(!f.message.contains("  ") && !f.advice.contains("  "), "{:?} {:?}", f.message, f.advice);
    // No hole where a name or a list was to stand.
    let holes =
        ["()", "( ", " )", " ,", " ;", " . ", ", ,", ",.", ":.", "; .", " of.", " at.", " of,", " to,"];
    if f.condition_type.as_str().starts_with("Etcd") {
        let hole = holes.iter().find(|hole| f.message.contains(**hole) || f.advice.contains(**hole));
        prop_assert!(hole.is_none(), "{hole:?}: {:?} {:?}", f.message, f.advice);
    }
    // Whoever is told to look has to be told where.
    prop_assert!(f.severity < Severity::Warn || !f.advice.is_empty(), "{} without advice", f.reason);
    prop_assert!(f.status != Status::False || f.severity > Severity::Ok, "{} is False and ok", f.reason);
    Ok(())
}

fn cause() -> impl Strategy<Value = UnknownCause> {
    prop::sample::select(UnknownCause::ALL)
}

/// A fact in any state, its value from `value`.
pub(crate) fn fact<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Fact<T>> {
    (value, 0u8..8, cause()).prop_map(|(value, state, cause)| match state {
        0 => unknown(cause),
        1 => world::absent("somewhere"),
        2 => Fact::not_applicable("no such thing", world::now()),
        _ => known(value),
    })
}

pub(crate) fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

fn host() -> impl Strategy<Value = HostFacts> {
    let fs = (
        word(&["/", "/var", "/var/lib/rancher", "/boot", "/snap/x"]),
        word(&["ext4", "overlay", "squashfs"]),
        any::<[u64; 4]>(),
        any::<bool>(),
    );
    let fs = fs.prop_map(|(mount, fs_type, [total, free, inodes, inodes_free], read_only)| FilesystemFacts {
        mount,
        device: "/dev/vda".into(),
        fs_type,
        total_bytes: total,
        available_bytes: free,
        inodes_total: inodes,
        inodes_free,
        read_only,
    });
    let memory = any::<[u64; 2]>().prop_map(|[total_bytes, available_bytes]| MemoryFacts {
        total_bytes,
        available_bytes,
        ..MemoryFacts::default()
    });
    let pressure = any::<[f64; 3]>().prop_map(|[cpu, memory, io]| PressureFacts { cpu, memory, io });
    (
        fact(prop::collection::vec(fs, 0..4)),
        fact(memory),
        fact(pressure),
        fact(word(&["kvm", "none", "vmware"])),
        fact(0u64..2000),
    )
        .prop_map(|(filesystems, memory, pressure, virtualization, uptime_seconds)| {
            world::host().with(|h| {
                (h.filesystems, h.memory, h.pressure) = (filesystems, memory, pressure);
                (h.virtualization, h.uptime_seconds) = (virtualization, uptime_seconds);
            })
        })
}

fn clock() -> impl Strategy<Value = ClockFacts> {
    let kernel = (any::<bool>(), any::<i64>()).prop_map(|(synchronized, e)| KernelClock {
        synchronized,
        estimated_error_us: e,
        maximum_error_us: e,
    });
    let offset = any::<[i64; 2]>().prop_map(|[offset_ms, uncertainty_ms]| ClockOffset {
        offset_ms,
        uncertainty_ms,
        peer: "p".into(),
    });
    (fact(kernel), fact(word(&["chronyd"])), fact(offset))
        .prop_map(|(kernel, service, coordinator)| ClockFacts { kernel, service, coordinator })
}

fn cloud_init() -> impl Strategy<Value = CloudInitFacts> {
    let status = word(&["not run", "running", "done", "error", "disabled", "new word"]);
    let code = prop::option::of(0i32..4);
    (
        status,
        code,
        prop::collection::vec(".*", 0..3),
        prop::option::of(any::<u64>()),
        word(&["", "degraded done"]),
        any::<bool>(),
    )
        .prop_map(|(status, code, errors, stage_seconds, extended, warned)| {
            world::cloud_init(&status, code).with(|c| {
                (c.errors, c.stage_seconds, c.extended_status) = (
                    errors.iter().map(|e| format!("e {}", e.trim())).map(|e| e.replace("  ", " ")).collect(),
                    stage_seconds,
                    extended,
                );
                if warned {
                    c.recoverable_errors.insert("WARNING".into(), vec!["w".into()]);
                }
            })
        })
}

fn guest_agent() -> impl Strategy<Value = GuestAgentFacts> {
    let unit = (
        word(&["qemu-ga.service", "qemu-guest-agent.service"]),
        word(&["loaded", "masked", "not-found", ""]),
        word(&["active", "inactive", "failed", "activating"]),
        word(&["static", "masked", ""]),
    );
    let units = prop::collection::vec(unit.prop_map(|(n, l, a, f)| world::unit(&n, &l, &a, &f)), 0..3);
    let process = Just(ProcessFacts { pid: 1, name: "qemu-ga".into(), seconds: 3 });
    (
        fact(Just("/dev/x".to_owned())),
        fact(Just("/usr/bin/qemu-ga".to_owned())),
        fact(units),
        fact(process),
        fact(0u64..1000),
    )
        .prop_map(|(port, binary, units, process, uptime_seconds)| GuestAgentFacts {
            port,
            binary,
            units,
            process,
            uptime_seconds,
        })
}

fn etcd() -> impl Strategy<Value = EtcdFacts> {
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

fn balancer() -> impl Strategy<Value = LoadBalancerFacts> {
    let kinds = prop::sample::select(ProbeKind::ALL);
    let targets = prop::sample::select(ProbeTarget::ALL);
    let peer = word(&["192.0.2.10:443", "192.0.2.10:80", "10.0.0.1:80", "[2001:db8::1]:443", "odd"]);
    let location = word(&["", "/", "https://rancher.x/", "/dashboard/", "http://x/"]);
    let bodies = word(&[
        "",
        "pong",
        "<html>\u{e9}",
        "failed authentication",
        "origin not allowed",
        "404 page not found",
    ]);
    let links = word(&[
        "",
        "https://rancher.x",
        "http://rancher.x:80",
        "https://[2001:db8::1]",
        "odd://",
        "https://",
    ]);
    let answer = (100u16..600, location, bodies, links, prop::option::of(any::<bool>())).prop_map(
        |(s, l, b, link, fits)| world::http(s, &l, &b).with(|a| (a.self_link, a.accept_fits) = (link, fits)),
    );
    let tls = (any::<bool>(), any::<[i64; 2]>(), fact(word(&["", "untrusted"])), any::<bool>()).prop_map(
        |(chain, [from, to], trust, name_matches)| {
            let mut t = world::tls("rancher.x");
            (t.trust, t.name_matches) = (trust, name_matches);
            t.chain[0].not_before =
                Timestamp::from_millis(world::now().as_millis().saturating_add(from % 40_000_000_000));
            t.chain[0].not_after =
                Timestamp::from_millis(world::now().as_millis().saturating_add(to % 40_000_000_000));
            if !chain {
                t.chain.clear();
            }
            t
        },
    );
    let probe = (kinds, targets, peer, fact(any::<f64>()), fact(tls), fact(answer)).prop_map(
        |(kind, target, peer, tcp, tls, http)| {
            let raw = if peer == "odd" { "HTTP/1.1 400 \u{fffd}".to_owned() } else { String::new() };
            Probe { kind, target, peer, at: world::now(), tcp, tls, http, raw }
        },
    );
    let ca = (
        prop::sample::select(&[200u16, 204, 302, 404]),
        word(&["", "aa", "bb"]),
        fact(prop::collection::vec((-40i64..4000).prop_map(world::authority), 0..2)),
        fact(word(&["", "unknown issuer", "expired by this clock"])),
        fact(word(&["", "unknown issuer"])),
    );
    let ca = ca.prop_map(|(status, sha256, certificates, trusts, system)| {
        world::published().with(|ca| {
            (ca.status, ca.sha256, ca.certificates) = (status, sha256, certificates);
            (ca.trusts_chain, ca.system_trusts_chain) = (trusts, system);
        })
    });
    let modes = || prop::sample::select(BalancerMode::ALL);
    let settings =
        (word(&["", "aa", "\u{e9}"]), word(&["", "strict", "system-store", "odd"]), modes(), modes());
    (
        prop::collection::vec(probe, 0..12),
        fact(prop::collection::vec(word(&["192.0.2.10"]), 0..2)),
        word(&["a", "b"]),
        prop::option::of(fact(ca)),
        settings,
    )
        .prop_map(|(probes, addresses, name, ca, (checksum, tls_mode, mode, found))| {
            world::balancer(probes).with(|b| {
                (b.addresses, b.name, b.ca) = (addresses, name, ca);
                (b.ca_checksum, b.agent_tls_mode, b.mode, b.found_mode) = (checksum, tls_mode, mode, found);
            })
        })
}

fn agent() -> impl Strategy<Value = AgentFacts> {
    let texts = (
        word(&["", "https://c"]),
        word(&["enrolled", "pending", "refused", "token-unusable", "none", "odd"]),
        word(&["", "refused."]),
        word(&["", "disk full"]),
    );
    (texts, any::<[u64; 2]>(), prop::option::of(0u64..4000), prop::option::of(any::<i64>()), 0usize..9)
        .prop_map(
            |(
                (coordinator, enrolment, delivery_error, spool_problem),
                [spooled, merged],
                since,
                end,
                problems,
            )| AgentFacts {
                config_problems: (0..problems).map(|n| format!("a.toml:{n}: odd")).collect(),
                coordinator,
                enrolment,
                delivery_error,
                delivery_failing_since: since.map(world::ago),
                untried: spooled % 2 == 0,
                spooled,
                merged: if merged % 2 == 0 { 0 } else { merged },
                spool_problem,
                certificate_not_after: end.map(|ms| {
                    Timestamp::from_millis(world::now().as_millis().saturating_add(ms % 4_000_000_000))
                }),
                failing_checks: vec![],
            },
        )
}

fn certificates() -> impl Strategy<Value = CertificatesFacts> {
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

fn kubernetes() -> impl Strategy<Value = KubernetesFacts> {
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

fn node() -> impl Strategy<Value = NodeFacts> {
    use prop::option::of;
    (
        (of(fact(host())), of(fact(clock())), of(fact(cloud_init())), of(fact(guest_agent()))),
        (
            of(fact(etcd())),
            of(fact(prop::collection::vec(balancer(), 0..3))),
            of(fact(certificates())),
            of(fact(crate::credentials::any_credentials())),
            of(fact(kubernetes())),
            of(fact(crate::dns::any_dns())),
            of(fact(crate::rancher_agent::any_rancher_agent())),
            of(fact(agent())),
        ),
        prop::sample::select(Profile::ALL),
    )
        .prop_map(
            |(
                (host, clock, cloud_init, guest_agent),
                (etcd, load_balancer, certificates, credentials, kubernetes, dns, rancher_agent, agent),
                profile,
            )| {
                let checks = CheckFacts {
                    host,
                    clock,
                    cloud_init,
                    guest_agent,
                    etcd,
                    load_balancer,
                    certificates,
                    credentials,
                    kubernetes,
                    dns,
                    rancher_agent,
                    agent,
                };
                world::node_facts(checks).with(|f| f.node.profile = profile)
            },
        )
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn whatever_the_facts_a_verdict_stays_within_the_registry(facts in node()) {
        let judgement = judge(&facts);
        for f in &judgement.findings {
            check(f)?;
        }
        let latched = latch(&facts.latches, &judgement, facts.now);
        for c in &latched.conditions {
            let (lowest, highest) = c.reason.info().unwrap().severities;
            prop_assert!(c.severity >= lowest && c.severity <= highest, "{:?}", c);
        }
        // A check that was read shows something or says why it does not; one that was not read shows nothing.
        let read = [
            (Check::Host, facts.checks.host.is_some()),
            (Check::Clock, facts.checks.clock.is_some()),
            (Check::CloudInit, facts.checks.cloud_init.is_some()),
            (Check::GuestAgent, facts.checks.guest_agent.is_some()),
            (Check::Etcd, facts.checks.etcd.is_some()),
            (Check::LoadBalancer, facts.checks.load_balancer.is_some()),
            (Check::Certificates, facts.checks.certificates.is_some()),
            (Check::Credentials, facts.checks.credentials.is_some()),
            (Check::Kubernetes, facts.checks.kubernetes.is_some()),
            (Check::Dns, facts.checks.dns.is_some()),
            (Check::RancherAgent, facts.checks.rancher_agent.is_some()),
            (Check::Agent, facts.checks.agent.is_some()),
        ];
        for (check, was_read) in read {
            let said = latched.conditions.iter().any(|c| c.condition_type.check_of(&c.subject) == check)
                || judgement.not_applicable.iter().any(|n| n.check == check);
            // All parts of the host may be missing at once; nothing else may.
            if check != Check::Host || !was_read {
                prop_assert_eq!(said, was_read, "{}", check);
            }
        }
    }

    #[test]
    fn fleet_verdicts_stay_within_the_registry(all in prop::collection::vec((fact(etcd()), 0u8..3, word(&["", "a", "b", "c"]), prop::option::of(crate::kubernetes::any_network())), 0..6)) {
        let names: Vec<String> = (1..=all.len()).map(|n| format!("n{n}")).collect();
        let members: Vec<fleet::Member<'_>> = all.iter().zip(&names).map(|((etcd, ready, zone, network), name)| fleet::Member {
            name,
            ready: [Status::True, Status::True, Status::Unknown][usize::from(*ready)],
            zone,
            region: "",
            etcd: Some(etcd),
            network: network.as_ref(),
            received: None,
            addresses: &[],
            paths: &[],
        }).collect();
        for f in fleet::judge_cluster("c", &members, world::now()).findings {
            check(&f)?;
            prop_assert_eq!(f.subject, "c");
        }
    }
}
