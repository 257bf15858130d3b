//! An RKE2 server without its programs: the files it leaves on disk below a folder that stands for `/`, those of
//! rancher-system-agent, and a real nginx that shows its certificates at its ports; beside it a real dnsmasq. All in a network
//! and with a `resolv.conf` of this process's own.
//!
//! For measurements: everything that an agent reads on such a node is there and well.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::pki::{Authority, DAY};
use crate::programs::{Process, until};

/// An address of this machine that is not loopback, on its loopback interface.
const ADDRESS: &str = "10.9.8.7";
/// Below the root.
const DATA: &str = "var/lib/rancher/rke2";
/// What RKE2 1.33 leaves in `server/tls` of a server (`facts/rke2-k3s-on-disk.md`, section 3), without the authorities.
const LEAVES: [&str; 13] = [
    "server/tls/client-admin",
    "server/tls/client-auth-proxy",
    "server/tls/client-controller",
    "server/tls/client-kube-apiserver",
    "server/tls/client-kube-proxy",
    "server/tls/client-rke2-cloud-controller",
    "server/tls/client-rke2-controller",
    "server/tls/client-scheduler",
    "server/tls/client-supervisor",
    "server/tls/serving-kube-apiserver",
    "agent/client-kube-proxy",
    "agent/client-rke2-controller",
    "agent/serving-kubelet",
];

/// Moves this process into a network of its own, where the usual ports are free, in which names are asked for at
/// [`name_server`]. Call it before any thread is started. The folder that comes with it is to be kept.
pub fn own_network() -> Result<tempfile::TempDir> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).context("a network of its own needs root")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("resolv.conf");
    fs::write(&file, "nameserver 127.0.0.1\n")?;
    mount(Some(&file), "/etc/resolv.conf", None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .context("resolv.conf")?;
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"])?;
    Ok(folder)
}

/// A dnsmasq at 127.0.0.1 that knows one name.
pub fn name_server(name: &str, address: std::net::IpAddr) -> Result<Process> {
    let mut command = Command::new("dnsmasq");
    command.args([
        "--keep-in-foreground",
        "--no-resolv",
        "--no-hosts",
        "--conf-file=/dev/null",
        "--user=root",
    ]);
    command.args(["--bind-interfaces", "--no-daemon", "--local-ttl=60", "--pid-file=", "--local=/#/"]);
    command.args(["--listen-address=127.0.0.1", &format!("--host-record={name},{address}")]);
    let process = Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    until("dnsmasq", Duration::from_secs(20), || std::net::TcpStream::connect(("127.0.0.1", 53)).ok())?;
    Ok(process)
}

fn ip(arguments: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(arguments).status().context("ip")?;
    ensure!(status.success(), "ip {arguments:?}: {status}");
    Ok(())
}

/// The server.
#[derive(Debug)]
pub struct Rke2 {
    folder: PathBuf,
    _ports: Process,
}

impl Rke2 {
    /// Lays out its files below `folder` and listens.
    pub fn start(folder: &Path) -> Result<Self> {
        let data = folder.join(DATA);
        fs::create_dir_all(data.join("data/v1.33.1-rke2r1-eef53a0d1ec2"))?;
        certificates(&data)?;
        for pod in ["etcd", "kube-apiserver"] {
            let pods = data.join("agent/pod-manifests");
            fs::create_dir_all(&pods)?;
            fs::write(pods.join(format!("{pod}.yaml")), "kind: Pod\n")?;
        }
        Ok(Self { folder: folder.to_owned(), _ports: listen(folder, &data)? })
    }

    /// The machine below `root`, as one more node with an identity of its own, whose rancher-system-agent finds Rancher at
    /// `rancher`. What it has besides is this machine's.
    pub fn machine(&self, root: &Path, rancher: &str) -> Result<()> {
        for folder in ["etc/rancher/rke2", "etc/rancher/agent", "var/lib"] {
            fs::create_dir_all(root.join(folder))?;
        }
        self.kubeconfig(&root.join("etc/rancher/rke2/rke2.yaml"), "https://127.0.0.1:6443", true)?;
        let connection = root.join("etc/rancher/agent/connection");
        self.kubeconfig(&connection, rancher, false)?;
        let document = serde_json::json!({
            "kubeConfig": fs::read_to_string(&connection)?, "namespace": "fleet-default", "secretName": "m-plan",
        });
        fs::write(&connection, document.to_string())?;
        fs::write(
            root.join("etc/rancher/agent/config.yaml"),
            "remoteEnabled: true\nconnectionInfoFile: /etc/rancher/agent/connection\n",
        )?;
        for own in
            ["proc", "sys", "usr", "tmp", "etc/os-release", "etc/hostname", "etc/resolv.conf", "etc/hosts"]
        {
            symlink(Path::new("/").join(own), root.join(own))?;
        }
        symlink(self.folder.join("var/lib/rancher"), root.join("var/lib/rancher"))?;
        fs::write(root.join("etc/machine-id"), format!("{}\n", uuid::Uuid::new_v4().simple()))?;
        Ok(fs::write(root.join("etc/rancher/rke2/config.yaml"), format!("node-ip: {ADDRESS}\n"))?)
    }

    /// A kubeconfig for `server`, with the administrator's certificate where that is wanted.
    fn kubeconfig(&self, path: &Path, server: &str, admin: bool) -> Result<()> {
        let data = |file: &str| -> Result<String> {
            Ok(BASE64.encode(fs::read(self.folder.join(DATA).join("server/tls").join(file))?))
        };
        let user = if admin {
            serde_json::json!({
                "client-certificate-data": data("client-admin.crt")?, "client-key-data": data("client-admin.key")?,
            })
        } else {
            serde_json::json!({ "token": "not-a-token" })
        };
        let document = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "default",
            "clusters": [{ "name": "default", "cluster": {
                "server": server, "certificate-authority-data": data("server-ca.crt")?,
            } }],
            "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default" } }],
            "users": [{ "name": "default", "user": user }],
        });
        fs::write(path, document.to_string())?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o600))?)
    }
}

fn certificates(data: &Path) -> Result<()> {
    let authority = |name: &str| Authority::new(name, 3000 * DAY);
    let (server, client) = (authority("rke2-server-ca@1")?, authority("rke2-client-ca@1")?);
    let put = |issuer: &Authority, path: &str| -> Result<()> {
        let issued = issuer.issue(path, &[ADDRESS, "127.0.0.1", "localhost"], -DAY, 300 * DAY)?;
        let file = data.join(path);
        issued.write(&file.with_extension("crt"), &file.with_extension("key"))?;
        // As RKE2 does: the authority stands behind every leaf.
        Ok(fs::write(file.with_extension("crt"), issued.certificate + &issuer.pem())?)
    };
    for leaf in LEAVES {
        put(if leaf.contains("serving") { &server } else { &client }, leaf)?;
    }
    for folder in ["server/tls", "agent"] {
        fs::write(data.join(folder).join("server-ca.crt"), server.pem())?;
        fs::write(data.join(folder).join("client-ca.crt"), client.pem())?;
    }
    fs::write(data.join("server/tls/request-header-ca.crt"), authority("rke2-request-header-ca@1")?.pem())?;
    let etcd = data.join("server/tls/etcd");
    fs::create_dir_all(&etcd)?;
    for (name, leaf) in [("server-ca", "server-client"), ("peer-ca", "peer-server-client")] {
        let authority = authority(name)?;
        fs::write(etcd.join(format!("{name}.crt")), authority.pem())?;
        put(&authority, &format!("server/tls/etcd/{leaf}"))?;
    }
    Ok(())
}

/// Kubelet, API server and supervisor: 401 without a credential, as RKE2 answers; etcd's ports show a certificate.
fn listen(folder: &Path, data: &Path) -> Result<Process> {
    let own = folder.join("nginx");
    fs::create_dir_all(&own)?;
    let server = |port: u16, file: &str| {
        let (tls, answer) = (data.join(file), "location / { return 401 'Unauthorized'; }");
        format!(
            "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {tls}.crt; ssl_certificate_key {tls}.key; {answer} }}\n",
            tls = tls.display()
        )
    };
    let own = own.display();
    let config = format!(
        "daemon off; master_process off; pid {own}/pid;\nerror_log stderr error;\nevents {{ }}\n\
         http {{ access_log off; client_body_temp_path {own}/t; proxy_temp_path {own}/t; fastcgi_temp_path {own}/t;\n\
         uwsgi_temp_path {own}/t; scgi_temp_path {own}/t;\n\
         server {{ listen 127.0.0.1:10248; location / {{ return 200 'ok'; }} }}\n{}{}{}{}{} }}\n",
        server(6443, "server/tls/serving-kube-apiserver"),
        server(9345, "server/tls/serving-kube-apiserver"),
        server(10250, "agent/serving-kubelet"),
        server(2379, "server/tls/etcd/server-client"),
        server(2380, "server/tls/etcd/peer-server-client"),
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, config)?;
    let mut command = Command::new("nginx");
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").arg("-c").arg(&file).args(["-g", "user root;"]);
    command.stdin(Stdio::null()).stderr(fs::File::create(folder.join("nginx.log"))?);
    let process = Process::spawn(&mut command)?;
    until("nginx on the ports of RKE2", Duration::from_secs(20), || {
        std::net::TcpStream::connect(("127.0.0.1", 10250)).ok().map(drop)
    })?;
    Ok(process)
}
