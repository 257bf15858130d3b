//! What RKE2 chooses for its pods.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use outrider_tests::table::Table;

use crate::bed::*;

/// An RKE2 agent node of files: the configuration, rancher-system-agent's files, and no systemd.
fn rke2(node: &Node, resolv_conf: &str) {
    let put = |path: &str, text: &str| {
        fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    put("/etc/rancher/rke2/config.yaml", &format!("server: https://{NAME}:9345\ntoken: s3cret\n"));
    fs::create_dir_all("/var/lib/rancher/rke2/agent").unwrap();
    node.write("/etc/resolv.conf", resolv_conf);
}

#[test]
#[ignore = "needs root, dnsmasq and ip"]
fn what_pods_are_given_is_judged_by_what_rke2_chooses() {
    on_a_machine_of_its_own(|node| {
        let mut table = Table::new("dns: what RKE2 gives to pods");
        let options = good();
        let _first = node.server(FIRST, &words(&options));
        rke2(node, &format!("nameserver {FIRST}\n"));
        let checked = node.check();
        let condition = about(&checked, "servers");
        assert_eq!(condition.reason.as_str(), "PodResolverUnfit", "{}", checked.lines());
        assert!(condition.message.contains("8.8.8.8"), "{}", checked.lines());
        table.row(
            "a server on loopback",
            "resolv.conf of an RKE2 node",
            format!("{} {}", condition.severity, condition.reason),
        );
        fs::write("/etc/rancher/rke2/pods.conf", format!("nameserver {FIRST}\n")).unwrap();
        fs::create_dir_all("/etc/rancher/rke2/config.yaml.d").unwrap();
        fs::write(
            "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
            r#"{"resolv-conf": "/etc/rancher/rke2/pods.conf"}"#,
        )
        .unwrap();
        let checked = node.check();
        let condition = about(&checked, "servers");
        assert_eq!(condition.reason.as_str(), "PodResolverUnfit", "{}", checked.lines());
        assert!(condition.message.contains("Loop"), "{}", checked.lines());
        table.row(
            "the same file named on purpose",
            "resolv-conf in config.yaml.d",
            format!("{} {}", condition.severity, condition.reason),
        );
        let name = about(&checked, NAME);
        assert!(name.message.contains("server of rke2"), "{}", checked.lines());
    });
}
