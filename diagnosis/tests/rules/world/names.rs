//! Names, servers, rancher-system-agent and proxies, all well.

use outrider_protocol::*;

use super::{DAY, absent, ago, authority, known, now, unknown};

// ---- dns ----

pub const FIRST: &str = "10.0.0.2:53";
pub const SECOND: &str = "10.0.0.3:53";
pub const CLUSTER: &str = "10.43.0.10:53";

/// An answer of this code with these addresses.
pub fn dns_answer(code: &str, addresses: &[&str]) -> DnsAnswer {
    DnsAnswer {
        code: DnsCode::from(code),
        addresses: addresses.iter().map(|a| (*a).to_owned()).collect(),
        aliases: vec![],
        alias_loop: false,
        ttl: Some(60),
        recursive: true,
        truncated: false,
        tcp_failure: String::new(),
        ms: 2,
    }
}

pub fn server_answer(server: &str, code: &str, addresses: &[&str]) -> ServerAnswer {
    let v6: Vec<&str> = addresses.iter().copied().filter(|a| a.contains(':')).collect();
    let v4: Vec<&str> = addresses.iter().copied().filter(|a| !a.contains(':')).collect();
    ServerAnswer {
        server: server.into(),
        a: known(dns_answer(code, &v4)),
        aaaa: known(dns_answer(code, &v6)),
    }
}

/// A server that gives no answer to anything.
pub fn no_answer(server: &str, cause: UnknownCause) -> ServerAnswer {
    ServerAnswer { server: server.into(), a: unknown(cause.clone()), aaaa: unknown(cause) }
}

pub fn dns_server(address: &str, role: DnsServerRole, position: u32) -> DnsServer {
    let nonsense = known(dns_answer("NXDOMAIN", &[]));
    DnsServer { address: address.into(), role, position, assumed: false, nonsense }
}

pub fn resolv_conf(nameservers: &[&str]) -> ResolvConf {
    ResolvConf {
        path: "/etc/resolv.conf".into(),
        nameservers: nameservers.iter().map(|n| (*n).to_owned()).collect(),
        search: vec!["corp.example".into()],
        ndots: 1,
        timeout_seconds: 5,
        attempts: 2,
        problems: vec![],
    }
}

pub fn rancher_name() -> NameFacts {
    NameFacts {
        name: "rancher.example".into(),
        written: String::new(),
        wanted_by: vec!["load balancer rancher".into()],
        problem: String::new(),
        host: known(HostAnswer { addresses: vec!["192.0.2.10".into()], ms: 3 }),
        hosts_file: vec![],
        answers: [FIRST, SECOND, CLUSTER]
            .map(|server| server_answer(server, "NOERROR", &["192.0.2.10"]))
            .to_vec(),
        ways: vec![AddressWay { address: "192.0.2.10".into(), from: known("10.0.0.1".into()) }],
    }
}

/// A node with two servers and a cluster DNS that all agree.
pub fn dns() -> DnsFacts {
    DnsFacts {
        resolv_conf: known(resolv_conf(&["10.0.0.2", "10.0.0.3"])),
        upstreams: Fact::not_applicable("no stub", now()),
        pods: known(resolv_conf(&["10.0.0.2", "10.0.0.3"])),
        servers: vec![
            dns_server(FIRST, DnsServerRole::Nameserver, 1),
            dns_server(SECOND, DnsServerRole::Nameserver, 2),
            dns_server(CLUSTER, DnsServerRole::Cluster, 0),
        ],
        cluster_dns: known("10.43.0.10".into()),
        nonsense: absent("getaddrinfo(3)"),
        nonsense_name: "outrider-1.invalid".into(),
        appended: vec![],
        names: vec![rancher_name()],
        names_left_out: 0,
    }
}

// ---- rancher-system-agent and proxies ----

pub fn guarded(path: &str) -> GuardedFile {
    GuardedFile { path: path.into(), mode: 0o600, uid: 0, gid: 0, modified: ago(DAY) }
}

pub fn system_agent() -> SystemAgent {
    SystemAgent {
        unit: ServiceUnit {
            name: "rancher-system-agent.service".into(),
            load_state: "loaded".into(),
            active_state: "active".into(),
            sub_state: "running".into(),
            unit_file_state: "enabled".into(),
            result: "success".into(),
            exit_status: 0,
            restarts: 0,
            pid: 812,
            started_seconds_ago: Some(90_000),
        },
        earlier: Some(RestartCount { restarts: 0, at: ago(600) }),
        strict_verify: known(true),
        config: known(SystemAgentConfig {
            file: guarded("/etc/rancher/agent/config.yaml"),
            remote: true,
            local: false,
            connection_file: "/var/lib/rancher/agent/rancher2_connection_info.json".into(),
        }),
        connection: known(RancherConnection {
            file: guarded("/var/lib/rancher/agent/rancher2_connection_info.json"),
            server: "https://rancher.example".into(),
            namespace: "fleet-default".into(),
            secret_name: "custom-1-machine-plan".into(),
            authorities: known(vec![authority(3000)]),
        }),
        plans: known(PlanFacts { begun: 3, last_begun: Some(ago(DAY)), ..PlanFacts::default() }),
    }
}

pub fn proxy_variable(name: &str, value: &str) -> ProxyVariable {
    ProxyVariable {
        name: name.into(),
        value: value.into(),
        problem: String::new(),
        credentials: false,
        source: "/etc/default/rke2-server".into(),
    }
}

pub fn proxies(
    program: &str,
    variables: Vec<ProxyVariable>,
    readings: Vec<ProxyReading>,
) -> ProxyEnvironment {
    ProxyEnvironment {
        program: program.into(),
        read_from: ProxySource::Unit,
        variables: known(variables),
        readings,
        newer_files: vec![],
        ignored: vec![],
    }
}

pub fn proxy_reading(host: &str, kind: DirectKind, go: bool, plain: bool) -> ProxyReading {
    ProxyReading { host: host.into(), kind, what: "a thing".into(), go, plain }
}

pub fn rancher_agent() -> RancherAgentFacts {
    RancherAgentFacts {
        agent: known(system_agent()),
        proxies: vec![proxies("outrider", vec![], vec![]), proxies("rancher-system-agent", vec![], vec![])],
    }
}
