//! What this node is told of its cluster's network: the server it joined, the networks of pods and services, the cluster
//! DNS, and the `resolv.conf` that pods are given.
//!
//! What the running kubelet was told counts first (its command line, its configuration), then what RKE2 or K3s was told
//! (`rancher`), then their defaults (k3s-io/k3s: pkg/cli/cmds/server.go: 10.42.0.0/16, 10.43.0.0/16, 10.43.0.10).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use outrider_protocol::Distribution;
use serde_json::Value;

use super::rancher::{self, K3S, Opened, Options, RKE2};
use super::{SenseContext, file, process};

/// Largest configuration file.
const MAX_CONFIG: u64 = 256 * 1024;
/// Most files of one drop-in folder.
const MAX_FILES: usize = 32;
/// Most networks of one kind.
const MAX_NETWORKS: usize = 4;

/// A value and whether something on this node says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) value: String,
    /// True for a default that nothing here confirms: on an agent node the server may have told otherwise.
    pub(crate) assumed: bool,
}

/// What is known of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// Whose files lie here.
    pub(crate) distribution: Option<Distribution>,
    /// A kubelet, or a K3s with one in it, runs.
    pub(crate) runs: bool,
    /// URL of the server that RKE2 or K3s joined, as written.
    pub(crate) server: Option<String>,
    /// Address of the cluster DNS; the first, where there are several.
    pub(crate) dns: Option<Told>,
    /// Networks of pods, and of services, each a CIDR.
    pub(crate) pods: Vec<Told>,
    pub(crate) services: Vec<Told>,
    /// Domain of the cluster's names.
    pub(crate) domain: String,
    /// The `resolv.conf` the kubelet was told; none means that it finds one itself.
    pub(crate) resolv_conf: Option<String>,
    /// RKE2's or K3s' data folder.
    pub(crate) data: PathBuf,
}

/// Reads it. Blocking.
pub(crate) fn read(cx: &SenseContext) -> Cluster {
    let kubelet = process::find(cx, &["kubelet", "k3s-server", "k3s-agent"]);
    let runs = kubelet.value().is_some();
    for program in [&RKE2, &K3S] {
        let told = rancher::read(&Opened(&*cx.opener), program);
        let data = told.data_dir(program);
        let is_here = ["agent", "server"].iter().any(|part| cx.path(&data).join(part).exists());
        if is_here || !told.options.is_empty() {
            return of_rancher(
                cx,
                program.distribution.clone(),
                &told.options,
                data,
                kubelet.value().map(|p| p.pid),
            );
        }
    }
    let is_rke1 = cx.path("/etc/kubernetes/ssl").exists();
    if !runs && !is_rke1 && !cx.path("/var/lib/kubelet/config.yaml").exists() {
        return Cluster::default();
    }
    let mut cluster = Cluster {
        distribution: Some(if is_rke1 { Distribution::Rke1 } else { Distribution::Kubeadm }),
        runs,
        domain: "cluster.local".to_owned(),
        ..Cluster::default()
    };
    if is_rke1 {
        let default = |value: &str| Told { value: value.to_owned(), assumed: true };
        (cluster.pods, cluster.services) = (vec![default("10.42.0.0/16")], vec![default("10.43.0.0/16")]);
        cluster.dns = Some(default("10.43.0.10"));
    }
    take_kubelet(&mut cluster, yaml(cx, Path::new("/var/lib/kubelet/config.yaml")).as_ref());
    if let Some(process) = kubelet.value() {
        take_flags(cx, &mut cluster, process.pid);
    }
    cluster
}

fn of_rancher(
    cx: &SenseContext,
    distribution: Distribution,
    options: &Options,
    data: PathBuf,
    pid: Option<i32>,
) -> Cluster {
    // Only servers have these settings; an agent is told by its server, and what stands here is a guess then.
    let is_server = cx.path(&data).join("server").exists();
    let told = |value: &str| Told { value: value.to_owned(), assumed: false };
    let networks = |given: &mut dyn Iterator<Item = &str>, default: &str| -> Vec<Told> {
        let given: Vec<Told> = given.take(MAX_NETWORKS).map(told).collect();
        let default = || vec![Told { value: default.to_owned(), assumed: !is_server }];
        if given.is_empty() { default() } else { given }
    };
    let services = networks(&mut options.service_networks(), "10.43.0.0/16");
    let first = || {
        let network = services.first()?;
        Some(Told { value: tenth(&network.value)?, assumed: network.assumed })
    };
    let mut cluster = Cluster {
        distribution: Some(distribution),
        runs: pid.is_some(),
        server: options.server().map(str::to_owned),
        dns: options.cluster_dns().next().map(told).or_else(first),
        pods: networks(&mut options.pod_networks(), "10.42.0.0/16"),
        services,
        domain: options.cluster_domain().unwrap_or("cluster.local").to_owned(),
        resolv_conf: options.resolv_conf().map(str::to_owned),
        data,
    };
    let folder = cluster.data.join("agent/etc/kubelet.conf.d");
    let mut names = cx.opener.list(&folder).unwrap_or_default();
    names.retain(|name| name.ends_with(".conf"));
    names.sort();
    for name in names.iter().take(MAX_FILES) {
        take_kubelet(&mut cluster, yaml(cx, &folder.join(name)).as_ref());
    }
    if let Some(pid) = pid {
        take_flags(cx, &mut cluster, pid);
    }
    cluster
}

/// The tenth address of a network, which RKE2 and K3s give to the cluster DNS.
fn tenth(network: &str) -> Option<String> {
    let (base, _) = network.split_once('/')?;
    Some(match base.parse::<IpAddr>().ok()? {
        IpAddr::V4(v4) => IpAddr::from(u32::from(v4).checked_add(10)?.to_be_bytes()).to_string(),
        IpAddr::V6(v6) => IpAddr::from(u128::from(v6).checked_add(10)?.to_be_bytes()).to_string(),
    })
}

fn yaml(cx: &SenseContext, path: &Path) -> Option<BTreeMap<String, Value>> {
    let bytes = file::read_bounded(cx.opener.open(path).ok()?, MAX_CONFIG).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    serde_saphyr::from_str::<Option<BTreeMap<String, Value>>>(&text).ok()?
}

/// Values of a key that may be one, several with commas, or a list.
fn words(values: &BTreeMap<String, Value>, key: &str) -> Vec<String> {
    let Some(value) = values.get(key) else { return Vec::new() };
    let texts: Vec<&str> = match value {
        Value::String(text) => vec![text],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let words = texts.iter().flat_map(|t| t.split(',')).map(str::trim).filter(|w| !w.is_empty());
    words.map(str::to_owned).take(MAX_NETWORKS).collect()
}

/// What a KubeletConfiguration says.
fn take_kubelet(cluster: &mut Cluster, config: Option<&BTreeMap<String, Value>>) {
    let Some(config) = config else { return };
    if let Some(value) = words(config, "clusterDNS").into_iter().next() {
        cluster.dns = Some(Told { value, assumed: false });
    }
    let text =
        |key: &str| config.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
    cluster.domain = text("clusterDomain").unwrap_or(std::mem::take(&mut cluster.domain));
    cluster.resolv_conf = text("resolvConf").or(cluster.resolv_conf.take());
}

/// What the command line of the running kubelet says; that of K3s says nothing, because K3s overwrites it.
fn take_flags(cx: &SenseContext, cluster: &mut Cluster, pid: i32) {
    let path = cx.path(format!("/proc/{pid}/cmdline"));
    let Ok(line) = file::read_text(&path, file::SMALL) else { return };
    let arguments: Vec<&str> = line.split('\0').collect();
    let flag = |name: &str| {
        let mut found = None;
        for (i, argument) in arguments.iter().enumerate() {
            let Some(rest) = argument.strip_prefix("--").and_then(|a| a.strip_prefix(name)) else { continue };
            match rest.strip_prefix('=') {
                Some(value) => found = Some(value),
                None if rest.is_empty() => found = arguments.get(i + 1).copied(),
                None => {}
            }
        }
        found.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    if let Some(value) = flag("cluster-dns").and_then(|v| v.split(',').next().map(str::to_owned)) {
        cluster.dns = Some(Told { value, assumed: false });
    }
    cluster.domain = flag("cluster-domain").unwrap_or(std::mem::take(&mut cluster.domain));
    cluster.resolv_conf = flag("resolv-conf").or(cluster.resolv_conf.take());
}

#[cfg(test)]
mod tests {
    use super::super::prepared::Machine;
    use super::*;

    fn running(machine: &Machine, name: &str, line: &str) {
        machine.write("/proc/uptime", "1000.0 1.0");
        machine.write("/proc/1/stat", "1 (systemd) S 0 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 2 0 0 1 1");
        machine.write("/proc/9/comm", &format!("{name}\n"));
        machine.write("/proc/9/stat", &format!("9 ({name}) S 1 9 9 0 -1 0 1 0 0 0 0 0 0 0 20 0 2 0 100 1 1"));
        machine.write("/proc/9/cmdline", &line.replace(' ', "\0"));
    }

    #[test]
    fn nothing_here_is_nothing() {
        assert_eq!(read(&Machine::new().cx()), Cluster::default());
    }

    #[test]
    fn a_server_without_settings_has_the_defaults_and_an_agent_only_assumes_them() {
        let machine = Machine::new();
        machine.write("/etc/rancher/rke2/config.yaml", "server: https://r.example:9345\ntoken: x\n");
        std::fs::create_dir_all(machine.path("/var/lib/rancher/rke2/agent")).unwrap();
        let agent = read(&machine.cx());
        assert_eq!(agent.dns, Some(Told { value: "10.43.0.10".into(), assumed: true }));
        assert_eq!((agent.server.as_deref(), agent.runs), (Some("https://r.example:9345"), false));
        std::fs::create_dir_all(machine.path("/var/lib/rancher/rke2/server")).unwrap();
        assert_eq!(read(&machine.cx()).dns, Some(Told { value: "10.43.0.10".into(), assumed: false }));
    }

    #[test]
    fn networks_move_the_cluster_dns_and_the_kubelet_knows_best() {
        let machine = Machine::new();
        machine.write("/etc/rancher/k3s/config.yaml", "service-cidr: 10.143.0.0/16,fd00:43::/112\n");
        machine.write(
            "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml",
            r#"{"cluster-cidr": "10.142.0.0/16", "kubelet-arg": ["max-pods=250", "resolv-conf=/etc/k8s-resolv.conf"]}"#,
        );
        let cluster = read(&machine.cx());
        assert_eq!(cluster.dns.map(|d| d.value).as_deref(), Some("10.143.0.10"));
        assert_eq!(cluster.services.len(), 2);
        assert_eq!(cluster.pods[0].value, "10.142.0.0/16");
        assert_eq!(cluster.resolv_conf.as_deref(), Some("/etc/k8s-resolv.conf"));
        machine.write(
            "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf",
            "clusterDNS:\n- 10.99.0.10\nclusterDomain: corp.local\nresolvConf: /run/systemd/resolve/resolv.conf\n",
        );
        let cluster = read(&machine.cx());
        assert_eq!(cluster.dns, Some(Told { value: "10.99.0.10".into(), assumed: false }));
        assert_eq!(cluster.domain, "corp.local");
        assert_eq!(cluster.resolv_conf.as_deref(), Some("/run/systemd/resolve/resolv.conf"));
    }

    #[test]
    fn the_unit_and_its_environment_tell_as_much_as_the_configuration() {
        let machine = Machine::new();
        machine.write(
            "/etc/systemd/system/k3s-agent.service",
            "[Service]\nEnvironmentFile=-/etc/systemd/system/k3s-agent.service.env\n\
             ExecStart=/usr/local/bin/k3s \\\n    agent \\\n\t'--kubelet-arg' \\\n\t'resolv-conf=/etc/k8s-resolv.conf' \\\n",
        );
        machine.write("/etc/systemd/system/k3s-agent.service.env", "K3S_URL='https://10.0.0.1:6443'\n");
        let cluster = read(&machine.cx());
        assert_eq!(cluster.distribution, Some(Distribution::K3s));
        assert_eq!(cluster.server.as_deref(), Some("https://10.0.0.1:6443"));
        assert_eq!(cluster.resolv_conf.as_deref(), Some("/etc/k8s-resolv.conf"));
    }

    #[test]
    fn flags_of_a_running_kubelet_are_read() {
        let machine = Machine::new();
        machine.write(
            "/var/lib/kubelet/config.yaml",
            "clusterDNS: [10.96.0.10]\nresolvConf: /etc/resolv.conf\n",
        );
        running(&machine, "kubelet", "/usr/bin/kubelet --cluster-dns=10.96.0.53,fd00::53 --resolv-conf /x");
        let cluster = read(&machine.cx());
        assert!(cluster.runs);
        assert_eq!(cluster.distribution, Some(Distribution::Kubeadm));
        assert_eq!(cluster.dns.map(|d| d.value).as_deref(), Some("10.96.0.53"));
        assert_eq!(cluster.resolv_conf.as_deref(), Some("/x"));
    }

    #[test]
    fn the_tenth_address() {
        assert_eq!(tenth("10.43.0.0/16").as_deref(), Some("10.43.0.10"));
        assert_eq!(tenth("fd00:43::/112").as_deref(), Some("fd00:43::a"));
        assert_eq!((tenth("10.43.0.0"), tenth("x/1"), tenth("255.255.255.255/32")), (None, None, None));
    }
}
