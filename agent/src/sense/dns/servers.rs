//! Who is asked: the servers of this machine, those behind a stub, those that pods end up at, and the cluster DNS.

use std::net::SocketAddr;

use outrider_protocol::{DnsServerRole as Role, Fact, ResolvConf};

use super::resolv_conf::{self, ASKED};
use crate::sense::SenseContext;
use crate::sense::cluster::Cluster;

/// Most servers.
const MAX_SERVERS: usize = 8;
/// Where local resolvers write the servers they ask themselves: systemd-resolved, NetworkManager with a resolver of its own.
const BEHIND: [&str; 2] = ["/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"];

/// One server to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) socket: SocketAddr,
    pub(super) role: Role,
    pub(super) position: u32,
    pub(super) assumed: bool,
}

fn is_loopback(word: &str) -> bool {
    resolv_conf::server(word, 53).is_some_and(|s| s.ip().to_canonical().is_loopback())
}

/// The servers behind a stub. A machine whose `resolv.conf` names none asks 127.0.0.1 (resolv.conf(5)).
pub(super) fn upstreams(cx: &SenseContext, conf: &Fact<ResolvConf>) -> Fact<ResolvConf> {
    let Some(known) = conf.value() else {
        return Fact::not_applicable("/etc/resolv.conf is not known", cx.now());
    };
    if !known.nameservers.iter().any(|word| is_loopback(word)) {
        return Fact::not_applicable("no nameserver of this machine is a stub on loopback", cx.now());
    }
    let read = BEHIND.iter().map(|path| resolv_conf::read(cx, path));
    let read: Vec<Fact<ResolvConf>> = read.filter(|fact| !matches!(fact, Fact::Absent { .. })).collect();
    read.into_iter().next().unwrap_or_else(|| Fact::absent(BEHIND.join(", "), cx.now()))
}

/// What the kubelet gives to pods: the file it was told, else the one RKE2 and K3s choose (k3s-io/k3s:
/// pkg/agent/config/config.go): the first of two in which every nameserver is global, else a file they write with 8.8.8.8.
pub(super) fn pods(cx: &SenseContext, cluster: &Cluster, host: &Fact<ResolvConf>) -> Fact<ResolvConf> {
    let Some(distribution) = &cluster.distribution else {
        return Fact::not_applicable("no Kubernetes on this machine", cx.now());
    };
    let written = cluster.data.join("agent/etc/resolv.conf").display().to_string();
    let fallback = || {
        let known = resolv_conf::parse(&written, "nameserver 8.8.8.8\n");
        Fact::known(known, format!("{written} (written by {distribution})"), cx.now())
    };
    if let Some(path) = &cluster.resolv_conf {
        return match resolv_conf::read(cx, path) {
            // Root's alone to read, and known all the same.
            Fact::Unknown { .. } if *path == written => fallback(),
            fact => fact,
        };
    }
    if !distribution.is_ranchers() {
        return host.clone();
    }
    let behind = resolv_conf::read(cx, BEHIND[0]);
    match [host, &behind].into_iter().find(|fact| fact.value().is_some_and(is_taken)) {
        Some(fact) => fact.clone(),
        None => fallback(),
    }
}

/// Whether RKE2 and K3s take the file: it has nameservers, and each is a global address or a cloud's 169.254.169.254.
fn is_taken(conf: &ResolvConf) -> bool {
    let is_global = |word: &String| {
        resolv_conf::server(word, 53).is_some_and(|server| {
            let ip = server.ip();
            let is_local = match ip {
                std::net::IpAddr::V4(v4) => v4.is_link_local() && v4.octets() != [169, 254, 169, 254],
                std::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
            };
            !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_local)
        })
    };
    !conf.nameservers.is_empty() && conf.nameservers.iter().all(is_global)
}

/// The servers to ask, each once, and the cluster DNS.
pub(super) fn list(
    cx: &SenseContext,
    cluster: &Cluster,
    [host, behind, pods]: [&Fact<ResolvConf>; 3],
    configured: &[SocketAddr],
) -> (Vec<Server>, Fact<String>) {
    let mut list: Vec<Server> = Vec::new();
    let mut add = |socket: SocketAddr, role: Role, position: usize, assumed: bool| {
        if list.len() < MAX_SERVERS && list.iter().all(|s| s.socket != socket) {
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            list.push(Server { socket, role, position, assumed });
        }
    };
    // Without a file or a line glibc asks this machine itself.
    let default = || vec!["127.0.0.1".to_owned()];
    let own = match host {
        Fact::Known { value, .. } if value.nameservers.is_empty() => default(),
        Fact::Known { value, .. } => value.nameservers.clone(),
        Fact::Absent { .. } => default(),
        _ => Vec::new(),
    };
    for (i, word) in own.iter().take(ASKED).enumerate() {
        let is_stub = is_loopback(word) && behind.value().is_some();
        let role = if is_stub { Role::Stub } else { Role::Nameserver };
        if let Some(socket) = resolv_conf::server(word, 53) {
            add(socket, role, i + 1, false);
        }
    }
    for conf in [behind, pods].into_iter().filter_map(Fact::value) {
        for (i, word) in conf.nameservers.iter().take(ASKED).enumerate() {
            if let Some(socket) = resolv_conf::server(word, 53) {
                add(socket, Role::Upstream, i + 1, false);
            }
        }
    }
    for socket in configured {
        add(*socket, Role::Configured, 0, false);
    }
    let cluster_dns = match &cluster.dns {
        _ if cluster.distribution.is_none() => {
            Fact::not_applicable("no Kubernetes on this machine", cx.now())
        }
        _ if !cluster.runs => Fact::not_applicable("no kubelet runs on this machine", cx.now()),
        Some(told) => match resolv_conf::server(&told.value, 53) {
            Some(socket) => {
                add(socket, Role::Cluster, 0, told.assumed);
                Fact::known(told.value.clone(), "configuration of the kubelet", cx.now())
            }
            None => Fact::not_applicable("the configured cluster DNS is no address", cx.now()),
        },
        None => Fact::not_applicable("nothing here says where the cluster DNS is", cx.now()),
    };
    (list, cluster_dns)
}

#[cfg(test)]
mod tests {
    use outrider_protocol::Distribution;

    use super::super::super::prepared::Machine;
    use super::*;
    use crate::sense::cluster::Told;

    fn rke2() -> Cluster {
        Cluster {
            distribution: Some(Distribution::Rke2),
            runs: true,
            dns: Some(Told { value: "10.43.0.10".into(), assumed: true }),
            data: "/var/lib/rancher/rke2".into(),
            ..Cluster::default()
        }
    }

    fn roles(machine: &Machine, cluster: &Cluster) -> Vec<(String, Role)> {
        let cx = machine.cx();
        let host = resolv_conf::read(&cx, "/etc/resolv.conf");
        let (behind, pods) = (upstreams(&cx, &host), pods(&cx, cluster, &host));
        let (list, _) = list(&cx, cluster, [&host, &behind, &pods], &["192.0.2.9:5353".parse().unwrap()]);
        list.into_iter().map(|s| (s.socket.to_string(), s.role)).collect()
    }

    #[test]
    fn servers_behind_a_stub_and_the_cluster_dns_are_asked_too() {
        let machine = Machine::new();
        machine.write("/etc/resolv.conf", "nameserver 127.0.0.53\n");
        machine.write("/run/systemd/resolve/resolv.conf", "nameserver 10.0.0.2\nnameserver 10.0.0.3\n");
        let expected = [
            ("127.0.0.53:53", Role::Stub),
            ("10.0.0.2:53", Role::Upstream),
            ("10.0.0.3:53", Role::Upstream),
            ("192.0.2.9:5353", Role::Configured),
            ("10.43.0.10:53", Role::Cluster),
        ];
        assert_eq!(roles(&machine, &rke2()), expected.map(|(a, r)| (a.to_owned(), r)));
        let stopped = Cluster { runs: false, ..rke2() };
        assert!(roles(&machine, &stopped).iter().all(|(_, role)| *role != Role::Cluster));
    }

    #[test]
    fn pods_get_what_rke2_chooses() {
        let machine = Machine::new();
        let given = |machine: &Machine, cluster: &Cluster| {
            let cx = machine.cx();
            let host = resolv_conf::read(&cx, "/etc/resolv.conf");
            pods(&cx, cluster, &host).value().map(|c| (c.path.clone(), c.nameservers.join(" "))).unwrap()
        };
        machine.write("/etc/resolv.conf", "nameserver 10.0.0.2\n");
        assert_eq!(given(&machine, &rke2()), ("/etc/resolv.conf".into(), "10.0.0.2".into()));
        // One server on loopback is enough to refuse the whole file.
        machine.write("/etc/resolv.conf", "nameserver 127.0.0.1\nnameserver 10.0.0.2\n");
        let written = "/var/lib/rancher/rke2/agent/etc/resolv.conf";
        assert_eq!(given(&machine, &rke2()), (written.into(), "8.8.8.8".into()));
        machine.write("/run/systemd/resolve/resolv.conf", "nameserver 10.0.0.7\n");
        let behind = "/run/systemd/resolve/resolv.conf";
        assert_eq!(given(&machine, &rke2()), (behind.into(), "10.0.0.7".into()));
        // kubeadm hands on what it is told, whatever stands in it.
        let kubeadm = Cluster { distribution: Some(Distribution::Kubeadm), ..Cluster::default() };
        assert_eq!(given(&machine, &kubeadm).1, "127.0.0.1 10.0.0.2");
        let told = Cluster { resolv_conf: Some("/etc/k8s.conf".into()), ..rke2() };
        machine.write("/etc/k8s.conf", "nameserver 127.0.0.53\n");
        assert_eq!(given(&machine, &told).1, "127.0.0.53");
    }

    #[test]
    fn without_a_resolv_conf_glibc_asks_this_machine() {
        assert_eq!(
            roles(&Machine::new(), &Cluster::default())[0],
            ("127.0.0.1:53".to_owned(), Role::Nameserver)
        );
        let machine = Machine::new();
        machine.write("/etc/resolv.conf", "search example\n");
        assert_eq!(roles(&machine, &Cluster::default())[0].0, "127.0.0.1:53");
    }

    #[test]
    fn more_than_three_are_not_asked() {
        let machine = Machine::new();
        machine.write(
            "/etc/resolv.conf",
            "nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n",
        );
        let asked: Vec<String> = roles(&machine, &Cluster::default()).into_iter().map(|(a, _)| a).collect();
        assert!(!asked.contains(&"10.0.0.4:53".to_owned()), "{asked:?}");
    }
}
