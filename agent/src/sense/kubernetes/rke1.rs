//! What says RKE1 (`facts/rke2-k3s-on-disk.md`, section 9): processes that run with its certificates, and what lies on
//! disk. Which of the two it is decides between "runs here" and "was not cleaned away".

use outrider_protocol::Rke1Facts;

use super::identify::list;
use crate::sense::{SenseContext, file, process};

/// Where RKE1 keeps the certificates of every component.
const CERTIFICATES: &str = "/etc/kubernetes/ssl";
/// Components that RKE1 runs as containers, by command name as the kernel keeps it (15 bytes).
const COMPONENTS: [&str; 8] = [
    "kubelet",
    "kube-apiserver",
    "kube-controller",
    "kube-scheduler",
    "kube-proxy",
    "etcd",
    "hyperkube",
    "nginx-proxy",
];
/// Folders only RKE1 makes.
const FOLDERS: [&str; 3] = ["/var/lib/rancher/rke", "/opt/rke", "/etc/kubernetes/ssl/certs"];
/// Docker's list of images, root's to read.
const IMAGES: &str = "/var/lib/docker/image/overlay2/repositories.json";
/// Images only RKE1 uses (rancher/kontainer-driver-metadata: `hyperkube`, `rke-tools`).
const IMAGE_NAMES: [&str; 2] = ["rancher/hyperkube", "rancher/rke-tools"];
/// Signs of a kind that are named.
const NAMED: usize = 8;

/// Looks for them. Blocking.
pub(super) fn read(cx: &SenseContext) -> Rke1Facts {
    let mut running = processes(cx);
    running.truncate(NAMED);
    Rke1Facts { running, on_disk: on_disk(cx) }
}

/// Where Docker lies, in whose containers all of RKE1 runs.
const DOCKER: [&str; 5] = [
    "/usr/bin/dockerd",
    "/usr/sbin/dockerd",
    "/usr/local/bin/dockerd",
    "/snap/bin/docker",
    "/var/lib/docker",
];

/// Whether what lies here of RKE1 was left behind: nothing of it runs, and Docker, without which it cannot, is gone. False
/// where that cannot be told: Docker may merely be stopped, or `/proc` hides who runs.
pub(crate) fn is_left_over(cx: &SenseContext) -> bool {
    // PID 1 always lives, and is root's.
    cx.path("/proc/1").exists()
        && processes(cx).is_empty()
        && !DOCKER.iter().any(|path| cx.path(path).symlink_metadata().is_ok())
}

/// Processes whose command line names RKE1's certificates. A command line may hold secrets: only the path is repeated.
fn processes(cx: &SenseContext) -> Vec<String> {
    let mut found = Vec::new();
    // A folder that cannot be read shows nobody.
    let _ = process::each(&cx.path("/proc"), |pid, name, folder| {
        let Some(name) = COMPONENTS.iter().find(|component| component.as_bytes() == name) else { return };
        // Arguments are set apart by zero bytes; a very long command line is cut, not refused.
        let Ok(line) = file::open_regular(&folder.join("cmdline")) else { return };
        let mut bytes = Vec::new();
        if std::io::Read::read_to_end(&mut std::io::Read::take(line, file::SMALL), &mut bytes).is_err() {
            return;
        }
        let line = String::from_utf8_lossy(&bytes);
        let is_rke1 = line.contains("/etc/kubernetes/ssl/") || *name == "hyperkube" || *name == "nginx-proxy";
        if is_rke1 {
            let path =
                line.split(['\0', '=', ',', ' ']).find(|word| word.starts_with("/etc/kubernetes/ssl/"));
            let with =
                path.map(|p| format!(" with {}", p.chars().filter(|c| !c.is_control()).collect::<String>()));
            found.push((pid, format!("process {name} (pid {pid}){}", with.unwrap_or_default())));
        }
    });
    found.sort();
    found.into_iter().map(|(_, sign)| sign).collect()
}

fn on_disk(cx: &SenseContext) -> Vec<String> {
    let mut signs = Vec::new();
    // kubespray and others use the folder, too: RKE1's certificates carry these names.
    let mut names = list(cx, CERTIFICATES).ok().flatten().unwrap_or_default();
    names.retain(|n| n.starts_with("kube-") && n.ends_with(".pem") || n.starts_with("kubecfg-"));
    names.sort();
    if !names.is_empty() {
        let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
        signs.push(format!(
            "{CERTIFICATES}: {}{more}",
            names.iter().take(3).cloned().collect::<Vec<_>>().join(", ")
        ));
    }
    signs.extend(FOLDERS.iter().filter(|f| cx.path(f).is_dir()).map(|f| format!("folder {f}")));
    if let Ok(text) = file::read_text(&cx.path(IMAGES), file::LARGE) {
        signs.extend(IMAGE_NAMES.iter().filter(|n| text.contains(*n)).map(|n| format!("image {n}")));
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::super::super::prepared::Machine;
    use super::*;

    #[test]
    fn left_over_is_only_what_cannot_run() {
        let machine = Machine::new();
        assert!(!is_left_over(&machine.cx()), "who runs is hidden");
        machine.write("/proc/1/comm", "systemd\n");
        assert!(is_left_over(&machine.cx()));
        machine.write("/proc/9/comm", "etcd\n");
        machine.write("/proc/9/cmdline", "etcd\0--cert-file=/etc/kubernetes/ssl/kube-etcd-10-0-0-1.pem\0");
        assert!(!is_left_over(&machine.cx()));
        machine.write("/proc/9/comm", "sh\n");
        machine.write("/var/lib/docker/engine-id", "");
        assert!(!is_left_over(&machine.cx()), "Docker may be stopped");
    }

    #[test]
    fn processes_with_its_certificates_are_running_signs() {
        let machine = Machine::new();
        let process = |pid: u32, name: &str, line: &[u8]| {
            machine.write(&format!("/proc/{pid}/comm"), &format!("{name}\n"));
            machine.write_bytes(&format!("/proc/{pid}/cmdline"), line);
        };
        process(9, "kubelet", b"kubelet\0--kubeconfig=/etc/kubernetes/ssl/kubecfg-kube-node.yaml\0--v=2\0");
        process(10, "etcd", b"etcd\0--key-file=/var/lib/rancher/rke2/server/tls/etcd/server-client.key\0");
        process(
            11,
            "etcd",
            b"/usr/local/bin/etcd\0--peer-cert-file=/etc/kubernetes/ssl/kube-etcd-192-0-2-1.pem\0",
        );
        process(12, "bash", b"vi\0/etc/kubernetes/ssl/x\0");
        let signs = read(&machine.cx());
        assert_eq!(
            signs.running,
            [
                "process kubelet (pid 9) with /etc/kubernetes/ssl/kubecfg-kube-node.yaml",
                "process etcd (pid 11) with /etc/kubernetes/ssl/kube-etcd-192-0-2-1.pem",
            ]
        );
        assert!(signs.on_disk.is_empty());
    }

    #[test]
    fn files_folders_and_images_are_signs_on_disk() {
        let machine = Machine::new();
        for name in
            ["kube-ca.pem", "kube-node.pem", "kube-node-key.pem", "kubecfg-kube-node.yaml", "other.txt"]
        {
            machine.write(&format!("/etc/kubernetes/ssl/{name}"), "x");
        }
        std::fs::create_dir_all(machine.path("/opt/rke")).unwrap();
        machine.write(IMAGES, r#"{"Repositories":{"rancher/hyperkube":{}}}"#);
        let signs = read(&machine.cx());
        assert_eq!(
            signs.on_disk,
            [
                "/etc/kubernetes/ssl: kube-ca.pem, kube-node-key.pem, kube-node.pem and 1 more",
                "folder /opt/rke",
                "image rancher/hyperkube",
            ]
        );
        assert!(signs.running.is_empty());
    }

    #[test]
    fn another_clusters_folder_of_that_name_is_no_sign() {
        let machine = Machine::new();
        machine.write("/etc/kubernetes/ssl/apiserver.pem", "x");
        assert_eq!(read(&machine.cx()), Rke1Facts::default());
    }
}
