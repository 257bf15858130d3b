//! Facts of a healthy world, for tests and benchmarks to break one thing at a time.
#![allow(dead_code, unreachable_pub, clippy::panic)]

use std::collections::BTreeMap;

use outrider_protocol::*;

mod etcd;
mod names;
mod topology;

pub use etcd::*;
pub use names::*;
pub use topology::*;

/// The instant of every judgement unless a test moves it.
pub fn now() -> Timestamp {
    Timestamp::from_seconds(1_796_000_000)
}

pub fn ago(seconds: u64) -> Timestamp {
    now().before(std::time::Duration::from_secs(seconds))
}

pub fn ahead(seconds: u64) -> Timestamp {
    now().after(std::time::Duration::from_secs(seconds))
}

pub const DAY: u64 = 86_400;

pub fn known<T>(value: T) -> Fact<T> {
    Fact::known(value, "test", now())
}

pub fn absent<T>(source: &str) -> Fact<T> {
    Fact::absent(source, now())
}

pub fn unknown<T>(cause: UnknownCause) -> Fact<T> {
    Fact::unknown(cause, "it failed", "test", now())
}

impl Change for EtcdFacts {}
impl Change for EndpointFacts {}

/// Breaks a world in place.
pub trait Change: Sized {
    fn with(mut self, f: impl FnOnce(&mut Self)) -> Self {
        f(&mut self);
        self
    }
}
impl Change for HostFacts {}
impl Change for ClockFacts {}
impl Change for CloudInitFacts {}
impl Change for GuestAgentFacts {}
impl Change for NodeFacts {}
impl Change for CredentialsFacts {}
impl Change for AgentFacts {}
impl Change for LoadBalancerFacts {}
impl Change for FilesystemFacts {}
impl Change for CertificatesFacts {}
impl Change for EndpointStatus {}
impl Change for KubernetesFacts {}
impl Change for NodeNetwork {}
impl Change for NeighbourFacts {}
impl Change for DnsFacts {}
impl Change for NameFacts {}
impl Change for DnsAnswer {}
impl Change for RancherAgentFacts {}
impl Change for SystemAgent {}
impl Change for TopologyFacts {}
impl Change for ProxyEnvironment {}
impl Change for KubeconfigContent {}
impl Change for TokenFacts {}
impl Change for CloudCredential {}
impl Change for RancherToken {}

pub fn node_facts(checks: CheckFacts) -> NodeFacts {
    NodeFacts {
        meta: TypeMeta::new("NodeFacts"),
        node: NodeRef {
            name: "n1".into(),
            uid: String::new(),
            cluster: "c".into(),
            profile: Profile::Generic,
            simulated: false,
        },
        agent_version: "0.1.0".into(),
        now: now(),
        thresholds: Thresholds::default(),
        latches: Vec::new(),
        checks,
    }
}

// ---- host and clock ----

pub fn filesystem(mount: &str, free_percent: u64) -> FilesystemFacts {
    FilesystemFacts {
        mount: mount.into(),
        device: "/dev/vda1".into(),
        fs_type: "ext4".into(),
        total_bytes: 100_000_000_000,
        available_bytes: free_percent * 1_000_000_000,
        inodes_total: 1_000_000,
        inodes_free: 900_000,
        read_only: false,
    }
}

pub fn host() -> HostFacts {
    HostFacts {
        hostname: known("n1".into()),
        machine_id_hash: known("00".repeat(32)),
        system_uuid: known("4c4c4544-0000-1000-8000-000000000001".into()),
        boot_id: known("b".into()),
        instance_id: absent("/run/cloud-init"),
        os: known(OsRelease { id: "debian".into(), ..OsRelease::default() }),
        kernel: known("6.1.0".into()),
        architecture: known("x86_64".into()),
        virtualization: known("kvm".into()),
        cpus: known(4),
        uptime_seconds: known(90_000),
        memory: known(MemoryFacts {
            total_bytes: 16_000_000_000,
            available_bytes: 8_000_000_000,
            swap_total_bytes: 0,
            swap_free_bytes: 0,
        }),
        load: known([0.1, 0.2, 0.3]),
        pressure: known(PressureFacts { cpu: 1.0, memory: 0.0, io: 2.0 }),
        filesystems: known(vec![filesystem("/", 60), filesystem("/var/lib/rancher", 50)]),
        interfaces: known(vec![InterfaceFacts {
            name: "enp1s0".into(),
            mac: "52:54:00:00:00:01".into(),
            addresses: vec!["192.168.30.139/24".into(), "fe80::1/64".into()],
            up: true,
            is_virtual: false,
        }]),
    }
}

pub fn clock() -> ClockFacts {
    ClockFacts {
        kernel: known(KernelClock { synchronized: true, estimated_error_us: 120, maximum_error_us: 20_000 }),
        service: known("chronyd".into()),
        source: None,
        coordinator: known(ClockOffset { offset_ms: 12, uncertainty_ms: 500, peer: "c.example".into() }),
    }
}

// ---- cloud-init and guest agent ----

pub fn cloud_init(status: &str, exit_code: Option<i32>) -> CloudInitFacts {
    CloudInitFacts {
        status: status.into(),
        extended_status: String::new(),
        exit_code,
        stage: String::new(),
        stage_seconds: None,
        errors: Vec::new(),
        recoverable_errors: BTreeMap::new(),
        datasource: "DataSourceNoCloud".into(),
        version: "23.4".into(),
    }
}

pub fn unit(name: &str, load: &str, active: &str, file: &str) -> UnitFacts {
    UnitFacts {
        name: name.into(),
        load_state: load.into(),
        active_state: active.into(),
        sub_state: String::new(),
        unit_file_state: file.into(),
    }
}

pub fn guest_agent() -> GuestAgentFacts {
    GuestAgentFacts {
        port: known("/dev/virtio-ports/org.qemu.guest_agent.0".into()),
        binary: known("/usr/sbin/qemu-ga".into()),
        units: known(vec![unit("qemu-guest-agent.service", "loaded", "active", "static")]),
        process: known(ProcessFacts { pid: 512, name: "qemu-ga".into(), seconds: 80_000 }),
        uptime_seconds: known(90_000),
        rpc_lists: Some(known(Vec::new())),
        denials: Some(Fact::not_applicable("SELinux is not in use", now())),
        setup: Some(absent("/run/outrider-guest-agent/status.json")),
    }
}

// ---- load balancer ----

pub fn certificate(host: &str) -> CertificateFacts {
    CertificateFacts {
        subject: format!("CN={host}"),
        issuer: "CN=ca".into(),
        sans: vec![host.into()],
        not_before: ago(100 * DAY),
        not_after: ahead(265 * DAY),
        sha256: "ab".repeat(32),
        is_ca: false,
        signature: "ecdsa-with-SHA256".into(),
    }
}

pub fn tls(host: &str) -> TlsFacts {
    TlsFacts {
        version: "TLSv1.3".into(),
        alpn: String::new(),
        cipher: String::new(),
        chain: vec![certificate(host)],
        trust: known(String::new()),
        name_matches: true,
        issuer_at: String::new(),
    }
}

pub fn http(status: u16, location: &str, body: &str) -> HttpAnswer {
    HttpAnswer {
        status,
        location: location.into(),
        body_start: body.into(),
        body_bytes: body.len() as u64,
        ms: 3.0,
        ..HttpAnswer::default()
    }
}

/// A redirect, followed to another path each time until it was given up.
pub fn endless(status: u16) -> HttpAnswer {
    let hop = |n: usize| Hop { status, location: format!("/step/{n}") };
    HttpAnswer { followed: (1..=MAX_REDIRECTS).map(hop).collect(), ..http(status, "/step/0", "") }
}

pub fn probe(kind: ProbeKind, target: ProbeTarget, peer: &str, answer: Option<HttpAnswer>) -> Probe {
    let is_tls = peer.ends_with(":443");
    Probe {
        kind,
        target,
        peer: peer.into(),
        at: now(),
        tcp: known(0.8),
        tls: if is_tls { known(tls("rancher.x")) } else { Fact::not_applicable("plain port", now()) },
        http: match answer {
            Some(a) => known(a),
            None => Fact::not_applicable("nothing asked", now()),
        },
        raw: String::new(),
    }
}

pub fn dead(kind: ProbeKind, target: ProbeTarget, peer: &str, cause: UnknownCause) -> Probe {
    let mut p = probe(kind, target, peer, None);
    p.tcp = unknown(cause);
    p.tls = Fact::not_applicable("not connected", now());
    p
}

pub fn balancer(probes: Vec<Probe>) -> LoadBalancerFacts {
    LoadBalancerFacts {
        name: "rancher".into(),
        url: "https://rancher.x".into(),
        host: "rancher.x".into(),
        port: 443,
        http_port: 80,
        service: BalancerService::Rancher,
        mode: BalancerMode::L7,
        found_mode: BalancerMode::Auto,
        found_by: String::new(),
        addresses: known(vec!["192.0.2.10".into()]),
        probes,
        backends: None,
        connections: 0,
        ca_checksum: String::new(),
        agent_tls_mode: String::new(),
        ca: None,
        gaps: Vec::new(),
        neighbours: Vec::new(),
        moves: Vec::new(),
        idle: None,
    }
}

/// What `/cacerts` holds: a CA to which the chain leads, and which this machine does not know.
pub fn published() -> CaFacts {
    CaFacts {
        peer: "192.0.2.10:443".into(),
        status: 200,
        bytes: 600,
        sha256: "11".repeat(32),
        body_start: "-----BEGIN CERTIFICATE-----".into(),
        certificates: known(vec![authority(3000)]),
        candidates: Vec::new(),
        trusts_chain: known(String::new()),
        system_trusts_chain: known("the certificate leads to no trusted authority".into()),
    }
}

impl Change for CaFacts {}
impl Change for HttpAnswer {}
impl Change for Probe {}

// ---- certificates ----

pub const TLS: &str = "/var/lib/rancher/rke2/server/tls";

/// A leaf of `CN=rke2-server-ca` that ends in so many days; its fingerprint is its name.
pub fn leaf(name: &str, days: i64) -> CertificateFacts {
    CertificateFacts {
        subject: format!("CN={name}"),
        issuer: "CN=rke2-server-ca".into(),
        sans: vec!["n1".into(), "10.0.0.1".into(), "127.0.0.1".into()],
        not_before: ago(100 * DAY),
        not_after: in_days(days),
        sha256: name.into(),
        is_ca: false,
        signature: "ecdsa-with-SHA256".into(),
    }
}

pub fn in_days(days: i64) -> Timestamp {
    Timestamp::from_millis(now().as_millis() + days * 86_400_000)
}

pub fn authority(days: i64) -> CertificateFacts {
    CertificateFacts {
        subject: "CN=rke2-server-ca".into(),
        sans: vec![],
        not_before: ago(1000 * DAY),
        not_after: in_days(days),
        sha256: "ca".into(),
        is_ca: true,
        ..leaf("ca", days)
    }
}

pub fn certificate_file(path: &str, usage: CertificateUse, chain: Vec<CertificateFacts>) -> CertificateFile {
    CertificateFile {
        path: path.into(),
        usage,
        modified: Some(ago(100 * DAY)),
        certificates: known(chain),
        issuer: known(format!("{TLS}/server-ca.crt")),
        key: None,
    }
}

pub fn served(name: &str, port: u16, file: &str, chain: Vec<CertificateFacts>) -> ServedCertificate {
    ServedCertificate {
        name: name.into(),
        port,
        peer: format!("127.0.0.1:{port}"),
        file: file.into(),
        authority: format!("{TLS}/server-ca.crt"),
        chain: known(chain),
        issuer: known(format!("{TLS}/server-ca.crt")),
    }
}

/// An RKE2 server of this version whose certificates end in so many days.
pub fn certificates(version: &str, days: i64) -> CertificatesFacts {
    use CertificateUse as Use;
    let etcd = format!("{TLS}/etcd/server-client.crt");
    CertificatesFacts {
        distribution: Distribution::Rke2,
        found_by: TLS.into(),
        server: true,
        version: if version.is_empty() { absent("data") } else { known(version.into()) },
        node_names: vec!["n1".into(), "10.0.0.1".into()],
        wanted_names: Vec::new(),
        files: vec![
            certificate_file(&format!("{TLS}/server-ca.crt"), Use::Authority, vec![authority(3000)]),
            certificate_file(&etcd, Use::Server, vec![leaf("etcd", days)]),
            certificate_file(&format!("{TLS}/client-admin.crt"), Use::Server, vec![leaf("admin", days)]),
            certificate_file(
                "/var/lib/rancher/rke2/agent/client-kubelet.crt",
                Use::Agent,
                vec![leaf("kubelet", days)],
            ),
        ],
        files_left_out: 0,
        served: vec![
            served("etcd", 2379, &etcd, vec![leaf("etcd", days)]),
            served("supervisor", 9345, "", vec![leaf("rke2", days)]),
        ],
    }
}

// ---- whole nodes ----

pub fn agent() -> AgentFacts {
    AgentFacts {
        coordinator: "https://c.example".into(),
        enrolment: "enrolled".into(),
        certificate_not_after: Some(ahead(20 * DAY)),
        ..AgentFacts::default()
    }
}

/// An etcd server with every check read and nothing wrong.
pub fn server(members: usize) -> NodeFacts {
    use ProbeKind as K;
    use ProbeTarget::{Backend, Balancer};
    let ok = || Some(http(200, "", ""));
    let mut probes = vec![
        probe(K::Connect, Balancer, "192.0.2.10:443", None),
        probe(K::Ping, Balancer, "192.0.2.10:443", Some(http(200, "", "pong"))),
        probe(K::Root, Balancer, "192.0.2.10:443", ok()),
        probe(K::Redirect, Balancer, "192.0.2.10:80", Some(http(301, "https://rancher.x/", ""))),
        probe(
            K::WebSocketOrigin,
            Balancer,
            "192.0.2.10:443",
            Some(http(
                403,
                "",
                "{\"Code\":{\"Code\":\"PermissionDenied\",\"Status\":403},\"Message\":\"origin not allowed\"",
            )),
        ),
    ];
    for n in 1..=3 {
        probes.push(probe(K::ForwardedRoot, Backend, &format!("10.0.0.{n}:80"), ok()));
    }
    node_facts(CheckFacts {
        host: Some(known(host())),
        clock: Some(known(clock())),
        cloud_init: Some(known(cloud_init("done", Some(0)))),
        guest_agent: Some(known(guest_agent())),
        etcd: Some(known(etcd(members))),
        load_balancer: Some(known(vec![balancer(probes).with(|b| b.ca = Some(known(published())))])),
        certificates: Some(known(certificates("v1.33.1-rke2r1", 265))),
        credentials: Some(known(credentials())),
        kubernetes: Some(known(kubernetes())),
        dns: Some(known(dns())),
        rancher_agent: Some(known(rancher_agent())),
        topology: Some(known(topology())),
        agent: Some(known(agent())),
    })
}

// ---- credentials ----

/// The cloud provider's kubeconfig with a token that has no end, accepted.
/// One request with a credential, and the answer to it.
pub fn credential_call(status: u16) -> CredentialCall {
    CredentialCall {
        request: "GET /version".into(),
        status,
        calls: 1,
        refused: 0,
        said: String::new(),
        token: None,
    }
}

pub fn credentials() -> CredentialsFacts {
    let token = TokenFacts {
        form: TokenForm::ServiceAccount,
        name: "system:serviceaccount:prod:csi".into(),
        issuer: "kubernetes/serviceaccount".into(),
        not_before: None,
        expires_at: None,
        fault: String::new(),
    };
    let content = KubeconfigContent {
        current_context: "default".into(),
        contexts: 1,
        user: "default".into(),
        namespace: "prod".into(),
        server: "https://192.0.2.20:6443".into(),
        kinds: vec![CredentialKind::Token],
        token: Some(known(token)),
        ..KubeconfigContent::default()
    };
    let kubeconfig = KubeconfigFacts {
        path: "/etc/kubernetes/cloud-config".into(),
        purpose: KubeconfigPurpose::CloudProvider,
        world_readable: false,
        content: known(content),
        call: known(credential_call(200)),
    };
    let rancher = Fact::not_applicable("[credentials] names no rancher_kubeconfig", now());
    CredentialsFacts { kubeconfigs: vec![kubeconfig], rancher, rancher_cluster: None }
}

// ---- kubernetes ----

pub fn port_try(port: TriedPort, peer: &str, reach: Reach, failures: u32) -> PortTry {
    let interface = if port == TriedPort::Overlay { "flannel.1".into() } else { String::new() };
    PortTry { port, peer: peer.into(), interface, reach, ms: 3, failures, at: now() }
}

/// An RKE2 server that answers everywhere.
pub fn neighbour(n: usize) -> NeighbourFacts {
    let tries = [
        (TriedPort::Apiserver, format!("192.0.2.{n}:6443")),
        (TriedPort::Supervisor, format!("192.0.2.{n}:9345")),
        (TriedPort::Kubelet, format!("192.0.2.{n}:10250")),
        (TriedPort::Overlay, format!("10.42.{n}.0:10250")),
    ];
    NeighbourFacts {
        name: format!("n{n}"),
        role: KubernetesRole::Server,
        tries: tries.into_iter().map(|(port, peer)| port_try(port, &peer, Reach::Answered, 0)).collect(),
    }
}

/// Node `n` of an RKE2 cluster that reaches `neighbours`.
pub fn network(n: usize, neighbours: Vec<NeighbourFacts>) -> NodeNetwork {
    NodeNetwork {
        distribution: Distribution::Rke2,
        role: KubernetesRole::Server,
        addresses: vec![format!("192.0.2.{n}")],
        mtu: Some(1500),
        overlays: vec![OverlayFacts {
            interface: "flannel.1".into(),
            cni: "canal or flannel".into(),
            encapsulation: Encapsulation::Vxlan,
            port: 8472,
            mtu: Some(1450),
            addresses: vec![format!("10.42.{n}.0")],
        }],
        firewalls: vec![],
        others: Some(neighbours.len() as u32),
        neighbours,
    }
}

pub fn kubernetes() -> KubernetesFacts {
    KubernetesFacts {
        distribution: Distribution::Rke2,
        role: KubernetesRole::Server,
        found_by: "rke2-server.service (active, enabled)".into(),
        rke1: Rke1Facts::default(),
        machine: MachineFacts {
            cpus: known(4),
            memory_bytes: known(16_700_000_000),
            architecture: known("x86_64".into()),
            os: known("SUSE Linux Enterprise Server 15 SP6".into()),
            runtimes: known(vec!["containerd of RKE2 or K3s (/run/k3s/containerd/containerd.sock)".into()]),
            cgroup_v2: known(true),
            forwarding: known(true),
            confinement: known("SELinux enforcing".into()),
            units: known(vec![unit("rke2-server.service", "loaded", "active", "enabled")]),
        },
        firewalls: known(vec![]),
        network_manager: absent("systemctl"),
        kubelet: Some(known(ComponentAnswer { status: 200, said: "ok".into() })),
        apiserver: Some(known(ComponentAnswer { status: 401, said: "Unauthorized".into() })),
        network: known(network(1, vec![neighbour(2), neighbour(3)])),
    }
}
