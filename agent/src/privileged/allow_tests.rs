use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;

use super::*;

/// A machine's root with trusted modes.
struct Root {
    dir: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
        let root = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::set_permissions(root.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        root
    }

    fn write(&self, path: &str, text: &str, mode: u32) {
        let file = self.dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn load(&self) -> (AllowList, Vec<String>) {
        AllowList::load(self.dir.path(), nix::unistd::geteuid().as_raw())
    }
}

fn allowed(list: &AllowList, path: &str) -> bool {
    list.find(Kind::File, path).is_some()
}

#[test]
fn the_clients_keys_are_on_the_list_and_the_servers_are_not() {
    let (list, problems) = Root::new().load();
    assert_eq!(problems, Vec::<String>::new());
    for path in [
        "/var/lib/rancher/rke2/server/tls/etcd/client.key",
        "/var/lib/rancher/k3s/server/tls/etcd/client.crt",
        "/var/lib/rancher/rke2/server/tls/etcd/server-ca.crt",
        "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
        "/etc/kubernetes/ssl/kube-etcd-10-0-0-1-key.pem",
        "/etc/kubernetes/pki/etcd/healthcheck-client.key",
        "/sys/devices/virtual/dmi/id/product_uuid",
        "/var/lib/rancher/rke2/server/tls/serving-kube-apiserver.crt",
        "/var/lib/rancher/rke2/server/tls/kube-scheduler/kube-scheduler.crt",
        "/var/lib/rancher/k3s/agent/serving-kubelet.crt",
        "/etc/kubernetes/ssl/kube-apiserver.pem",
        "/var/lib/kubelet/pki/kubelet.crt",
    ] {
        assert!(allowed(&list, path), "{path}");
    }
    for path in [
        "/etc/shadow",
        "/var/lib/rancher/rke2/server/tls/etcd/peer-server-client.key",
        "/var/lib/rancher/rke2/server/tls/etcd/server-ca.key",
        "/var/lib/rancher/rke2/server/tls/client-admin.key",
        "/var/lib/rancher/rke2/server/token",
        "/etc/rancher/rke2/config.yaml",
        "/etc/rancher/rke2/rke2.yaml",
        "/etc/kubernetes/admin.conf",
        "/etc/kubernetes/pki/ca.key",
        "/etc/kubernetes/ssl/kube-apiserver-key.pem",
        "/etc/kubernetes/ssl/kube-controller-manager-key.pem",
        "/var/lib/rancher/rke2/server/tls/kube-scheduler/kube-scheduler.key",
        "/var/lib/rancher/rke2/server/tls/dynamic-cert.json",
        "/var/lib/rancher/rke2/agent/serving-kubelet.key",
        "/var/lib/kubelet/pki/kubelet.key",
        "/var/lib/rancher/rke2/server/tls/etcd/sub/x.crt",
        "/var/lib/rancher/rke2/server/tls/etcd/../../token",
        "/var/lib/rancher/rke2//server/tls/etcd/client.key",
        "/var/lib/rancher/rke2/server/tls/etcd/client.key/",
        "var/lib/rancher/rke2/server/tls/etcd/client.key",
        "/var/lib/rancher/rke2/server/tls/etcd/client.key\0",
        "/",
        "",
    ] {
        assert!(!allowed(&list, path), "{path:?}");
    }
    // Of servers' keys the fingerprint of the public half, of authorities' not even that.
    let public = |path: &str| list.find(Kind::Excerpt(Document::PublicKey), path).is_some();
    for path in [
        "/var/lib/rancher/rke2/server/tls/etcd/peer-server-client.key",
        "/var/lib/rancher/k3s/server/tls/client-k3s-cloud-controller.key",
        "/var/lib/rancher/rke2/server/tls/kube-scheduler/kube-scheduler.key",
        "/var/lib/rancher/rke2/agent/serving-kubelet.key",
        "/etc/kubernetes/ssl/kube-apiserver-key.pem",
        "/etc/kubernetes/pki/apiserver-kubelet-client.key",
        "/etc/kubernetes/pki/etcd/peer.key",
    ] {
        assert!(public(path) && !allowed(&list, path), "{path}");
    }
    for path in [
        "/var/lib/rancher/rke2/server/tls/etcd/server-ca.key",
        "/var/lib/rancher/rke2/server/tls/client-ca.key",
        "/var/lib/rancher/rke2/server/tls/service.key",
        "/etc/kubernetes/ssl/kube-ca-key.pem",
        "/etc/kubernetes/pki/ca.key",
        "/etc/kubernetes/pki/etcd/ca.key",
        "/etc/kubernetes/pki/sa.key",
    ] {
        assert!(!public(path), "{path}");
    }
    assert!(list.find(Kind::Folder, "/var/lib/rancher/rke2/server/tls/etcd").is_some());
    assert!(list.find(Kind::Folder, "/etc/kubernetes/ssl").is_some());
    for folder in ["agent", "agent/pod-manifests", "data", "server/tls/kube-scheduler"] {
        assert!(list.find(Kind::Folder, &format!("/var/lib/rancher/rke2/{folder}")).is_some(), "{folder}");
    }
    assert!(list.find(Kind::Folder, "/root").is_none());
    for excerpt in ["/etc/rancher/rke2/config.yaml", "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"] {
        assert!(list.find(Kind::Excerpt(Document::Rancher), excerpt).is_some(), "{excerpt}");
    }
    // Who a member means to be, in part only, and folders without what lies in them.
    for (document, path) in [
        (Document::EtcdConfig, "/var/lib/rancher/k3s/server/db/etcd/config"),
        (Document::EtcdPod, "/etc/kubernetes/manifests/etcd.yaml"),
    ] {
        assert!(list.find(Kind::Excerpt(document), path).is_some(), "{path}");
        assert!(!allowed(&list, path), "{path}");
    }
    let snapshots = "/var/lib/rancher/rke2/server/db/snapshots";
    assert!(list.find(Kind::Folder, snapshots).is_some());
    assert!(!allowed(&list, &format!("{snapshots}/etcd-snapshot-n1-1700000000")));
}

#[test]
fn a_configured_data_folder_is_on_the_list() {
    let root = Root::new();
    root.write("/etc/rancher/rke2/config.yaml", "token: K10secret\ndata-dir: /data/old\n", 0o600);
    root.write("/etc/rancher/rke2/config.yaml.d/50-rancher.yaml", r#"{"data-dir":"/data/rke2"}"#, 0o600);
    root.write("/etc/rancher/rke2/config.yaml.d/90-more.yaml", "node-label:\n - a=b\n", 0o600);
    let (list, problems) = root.load();
    assert_eq!(problems, Vec::<String>::new());
    let found = list.find(Kind::File, "/data/rke2/server/tls/etcd/client.key");
    assert_eq!(found, Some((Path::new("/data/rke2"), PathBuf::from("server/tls/etcd/client.key"))));
    assert!(allowed(&list, "/var/lib/rancher/rke2/server/tls/etcd/client.key"));
    assert!(!allowed(&list, "/data/old/server/tls/etcd/client.key"));
    assert!(list.find(Kind::Excerpt(Document::EtcdConfig), "/data/rke2/server/db/etcd/config").is_some());
}

#[test]
fn what_the_unit_says_counts_like_the_configuration() {
    let root = Root::new();
    root.write(
        "/etc/systemd/system/k3s.service",
        "[Service]\nEnvironmentFile=-/etc/systemd/system/k3s.service.env\nEnvironmentFile=/etc/*\n\
         ExecStart=/usr/local/bin/k3s server --data-dir /data/k3s --config=/opt/k3s.yaml --token K10secret\n",
        0o644,
    );
    root.write("/opt/k3s.yaml.d/x.yml", "etcd-snapshot-dir: /mnt/backup/etcd\n", 0o600);
    let (list, problems) = root.load();
    assert_eq!(problems, Vec::<String>::new());
    assert!(allowed(&list, "/data/k3s/server/tls/etcd/client.key"));
    assert!(list.find(Kind::Folder, "/mnt/backup/etcd").is_some());
    for (document, path) in [
        (Document::Rancher, "/opt/k3s.yaml"),
        (Document::Rancher, "/opt/k3s.yaml.d/x.yml"),
        (Document::Rancher, "/etc/rancher/k3s/config.yaml.d/x.yml"),
        (Document::Unit, "/etc/systemd/system/k3s.service"),
        (Document::Unit, "/usr/lib/systemd/system/rke2-server.service.d/override.conf"),
        (Document::Environment, "/etc/systemd/system/k3s.service.env"),
    ] {
        assert!(list.find(Kind::Excerpt(document), path).is_some(), "{path}");
        assert!(!allowed(&list, path), "{path}");
    }
    for path in ["/etc/shadow", "/etc/systemd/system/sshd.service", "/etc/default/other"] {
        let found = |document| list.find(Kind::Excerpt(document), path).is_some();
        assert!(![Document::Rancher, Document::Unit, Document::Environment].into_iter().any(found), "{path}");
    }
    // Others may write it: it says nothing, and that is told.
    root.write("/etc/systemd/system/k3s.service.d/x.conf", "[Service]\nEnvironmentFile=/etc/shadow\n", 0o666);
    let (list, problems) = root.load();
    assert!(list.find(Kind::Excerpt(Document::Environment), "/etc/shadow").is_none());
    assert!(problems.iter().any(|p| p.contains("x.conf")), "{problems:?}");
}

#[test]
fn a_configured_folder_of_snapshots_may_be_listed_and_nothing_in_it_opened() {
    let root = Root::new();
    root.write("/etc/rancher/k3s/config.yaml", "etcd-snapshot-dir: /mnt/backup/etcd\n", 0o600);
    root.write("/etc/rancher/rke2/config.yaml", "etcd-snapshot-dir: ../../etc\ndata-dir: ''\n", 0o600);
    let (list, problems) = root.load();
    assert_eq!(
        list.find(Kind::Folder, "/mnt/backup/etcd"),
        Some((Path::new("/mnt/backup/etcd"), PathBuf::new()))
    );
    assert!(!allowed(&list, "/mnt/backup/etcd/snapshot") && list.find(Kind::Folder, "/mnt/backup").is_none());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("etcd-snapshot-dir"), "{problems:?}");
    root.write("/etc/rancher/k3s/config.yaml", "etcd-snapshot-dir: /mnt/backup/etcd\n", 0o666);
    assert!(
        root.load().0.find(Kind::Folder, "/mnt/backup/etcd").is_none(),
        "not from a file others may write"
    );
}

#[test]
fn broken_configuration_is_named_without_its_text() {
    let root = Root::new();
    root.write("/etc/rancher/rke2/config.yaml", "token: [K10secret\n", 0o600);
    root.write("/etc/rancher/k3s/config.yaml", "data-dir: ../../root\n", 0o600);
    root.write("/etc/rancher/k3s/config.yaml.d/x.yaml", "data-dir: /\n", 0o666);
    let (_, problems) = root.load();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems.iter().all(|p| !p.contains("K10secret")), "{problems:?}");
}

#[test]
fn additions_count_only_from_files_of_the_owner() {
    let root = Root::new();
    root.write(
        "/etc/outrider/helper.d/a.conf",
        "# ours\n/etc/pki/etcd/ca.pem # the CA\n/srv/certs/*.pem\n",
        0o644,
    );
    root.write("/etc/outrider/helper.d/b.conf", "/etc/shadow\n", 0o666);
    root.write("/etc/outrider/helper.d/c.conf", "etc/x\n/etc/../etc/shadow\n/a/*/b\n/top\n", 0o644);
    root.write("/etc/outrider/helper.d/ignored.txt", "/etc/shadow\n", 0o644);
    root.write("/etc/outrider/agent.toml", "[etcd]\nkey = \"/etc/pki/etcd/client.key\"\n", 0o600);
    root.write("/etc/outrider/agent.toml.d/x.toml", "[etcd]\nkey = \"/etc/shadow\"\n", 0o664);
    let (list, problems) = root.load();
    for path in ["/etc/pki/etcd/ca.pem", "/srv/certs/a.pem", "/etc/pki/etcd/client.key"] {
        assert!(allowed(&list, path), "{path}");
    }
    for path in ["/etc/shadow", "/srv/certs/sub/a.pem", "/a/x/b", "/top"] {
        assert!(!allowed(&list, path), "{path}");
    }
    // Two files others may write, and four lines that are no usable path.
    assert_eq!(problems.len(), 6, "{problems:#?}");
}

#[test]
fn a_link_planted_by_another_user_is_not_configuration() {
    let root = Root::new();
    root.write("/srv/open/evil.conf", "/etc/shadow\n", 0o644);
    std::fs::set_permissions(root.dir.path().join("srv/open"), std::fs::Permissions::from_mode(0o1777))
        .unwrap();
    std::fs::create_dir_all(root.dir.path().join("etc/outrider")).unwrap();
    symlink("/srv/open", root.dir.path().join("etc/outrider/helper.d")).unwrap();
    let (list, problems) = root.load();
    assert!(!allowed(&list, "/etc/shadow"));
    assert!(problems.iter().any(|p| p.contains("written by others")), "{problems:?}");
}

#[test]
fn stars_match_inside_one_name() {
    for (pattern, name, expected) in [
        ("*", "", true),
        ("a*c", "abc", true),
        ("a*c", "ac", true),
        ("a*c", "ab", false),
        ("*.pem", ".pem", true),
        ("*a*b*", "xaxb", true),
        ("*a*b", "ba", false),
        ("aa*aa", "aaa", false),
        ("", "", true),
        ("", "x", false),
    ] {
        assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
    }
}

proptest! {
    /// Whatever is let through has only plain names and lies where an entry says, at the entry's depth.
    #[test]
    fn nothing_escapes_the_bases(path in "(/(\\.\\.|\\.|server|tls|etcd|client\\.key|[a-z.*]{0,6})){1,9}") {
        let (list, _) = AllowList::load(Path::new("/nonexistent"), 0);
        for asked in [path.clone(), format!("/var/lib/rancher/rke2{path}"), format!("/etc/kubernetes/pki{path}")] {
            let excerpts = [Document::Rancher, Document::EtcdConfig, Document::EtcdPod].map(Kind::Excerpt);
            for kind in excerpts.into_iter().chain([Kind::File, Kind::Folder]) {
                if let Some((base, below)) = list.find(kind, &asked) {
                    prop_assert!(below.components().all(|c| matches!(c, std::path::Component::Normal(_))));
                    prop_assert_eq!(base.join(&below), PathBuf::from(&asked));
                    prop_assert!(!asked.contains(".."));
                }
            }
        }
    }

    #[test]
    fn a_name_pattern_without_stars_is_equality(pattern in "[a-z.]{0,8}", name in "[a-z.]{0,8}") {
        prop_assert_eq!(name_matches(&pattern, &name), pattern == name);
    }
}

#[test]
fn kubeconfigs_are_passed_as_excerpts_unless_root_says_otherwise() {
    let root = Root::new();
    let excerpt =
        |list: &AllowList, path: &str| list.find(Kind::Excerpt(Document::Kubeconfig), path).is_some();
    root.write("/etc/rancher/rke2/config.yaml", "data-dir: /data/rke2\n", 0o600);
    let (list, _) = root.load();
    for path in [
        "/etc/rancher/rke2/rke2.yaml",
        "/etc/rancher/k3s/k3s.yaml",
        "/etc/kubernetes/admin.conf",
        "/etc/kubernetes/cloud-config",
        "/var/lib/rancher/k3s/etc/config-files/cloud-provider-config",
        "/data/rke2/etc/config-files/cloud-provider-config",
    ] {
        assert!(excerpt(&list, path) && !allowed(&list, path), "{path}");
    }
    assert!(!excerpt(&list, "/root/.kube/config"));
    let config = "[credentials]\nkubeconfigs = ['/root/.kube/config']\nrancher_kubeconfig = '/etc/rancher/rke2/rke2.yaml'\n\
        [topology]\nharvester_kubeconfig = '/etc/kubernetes/cloud-config'\n";
    root.write("/etc/outrider/agent.toml", config, 0o644);
    let (list, problems) = root.load();
    assert_eq!(problems, Vec::<String>::new());
    assert!(excerpt(&list, "/root/.kube/config") && !allowed(&list, "/root/.kube/config"));
    assert!(allowed(&list, "/etc/rancher/rke2/rke2.yaml"));
    assert!(allowed(&list, "/etc/kubernetes/cloud-config"));
    // Not root's own file: it opens nothing.
    root.write("/etc/outrider/agent.toml", config, 0o666);
    assert!(!allowed(&root.load().0, "/etc/rancher/rke2/rke2.yaml"));
}
