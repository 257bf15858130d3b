//! A machine that looks like an RKE2 server, with a real etcd behind it: what only a distribution's own etcd is asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use outrider_agent::config::EtcdSettings;
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::SenseContext;
use outrider_agent::sense::etcd::{Memory, read};
use outrider_protocol::{Distribution, EtcdFacts, Fact, UnknownCause};
use outrider_tests::beds::etcd::{EtcdCluster, Options};

use super::{cluster, context};

const DATA: &str = "var/lib/rancher/rke2/server";

/// A folder that stands for `/` of an RKE2 server with this cluster's certificates.
fn rke2(cluster: &EtcdCluster, root: &Path) -> SenseContext {
    let tls = root.join(DATA).join("tls/etcd");
    let etcd = root.join(DATA).join("db/etcd");
    std::fs::create_dir_all(&tls).unwrap();
    std::fs::create_dir_all(etcd.join("member/wal")).unwrap();
    for (from, to) in [
        (cluster.ca(), "server-ca.crt"),
        (cluster.client_certificate(), "client.crt"),
        (cluster.client_key(), "client.key"),
    ] {
        std::fs::copy(from, tls.join(to)).unwrap();
    }
    std::fs::write(etcd.join("name"), cluster.name(0)).unwrap();
    let config = format!("name: {}\nelection-timeout: 1500\nheartbeat-interval: 100\n", cluster.name(0));
    std::fs::write(etcd.join("config"), config).unwrap();
    SenseContext {
        root: root.to_owned(),
        opener: Arc::new(DirectOpener::below(PathBuf::from(root))),
        ..context()
    }
}

async fn facts(cx: &SenseContext, memory: &mut Memory) -> EtcdFacts {
    match read(cx, &EtcdSettings::default(), memory).await {
        Fact::Known { value, .. } => value,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn names_of_nodes_come_from_the_registry_and_nothing_else_does() {
    let options = Options { on_localhost: true, ..Options::default() };
    let Some(cluster) = cluster(1, options) else { return };
    let folder = tempfile::tempdir().unwrap();
    let cx = rke2(&cluster, folder.path());
    let mut memory = Memory::default();

    // An apiserver with another prefix, or none yet: unknown, never "no nodes".
    let first = facts(&cx, &mut memory).await;
    assert_eq!((first.distribution, first.election_timeout_ms), (Distribution::Rke2, 1500));
    assert!(first.endpoints[0].linearizable_read.value().is_some(), "{:?}", first.endpoints);
    match &first.kubernetes_nodes {
        Fact::Unknown { cause: UnknownCause::InvalidAnswer, detail, .. } => {
            assert!(detail.contains("--etcd-prefix"), "{detail}");
        }
        other => panic!("{other:?}"),
    }

    for key in ["minions/m1", "minions/worker-1", "minion/no", "minions0", "secrets/kube-system/s3cret"] {
        cluster.etcdctl(0, &["put", &format!("/registry/{key}"), "s3cret"]).unwrap();
    }
    let mut memory = Memory::default();
    let second = facts(&cx, &mut memory).await;
    assert_eq!(second.kubernetes_nodes.value(), Some(&vec!["m1".to_owned(), "worker-1".to_owned()]));
    assert!(!serde_json::to_string(&second).unwrap().contains("s3cret"));

    // Asked seldom: a Node that is added does not show in the next pass.
    cluster.etcdctl(0, &["put", "/registry/minions/worker-2", ""]).unwrap();
    let third = facts(&cx, &mut memory).await;
    assert_eq!(third.kubernetes_nodes, second.kubernetes_nodes);
}
