//! A real kube-apiserver as RKE2 and K3s run it: in front of a real etcd with TLS, with authorities, serving certificate
//! and service-account keys of its own, the Node and RBAC authorizers, NodeRestriction, and nobody let in without a name.
//!
//! It is built by Go from what `tests/tools/kube-apiserver` pins ([`program`]); where that cannot be done the suites say so
//! and go without it. Ready in some seconds, about 300 MiB.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rcgen::KeyPair;
use tempfile::TempDir;

use super::pki::{Authority, DAY};
use crate::programs::Process;

/// Path of the program, given from outside: where it is built before, or elsewhere.
const GIVEN: &str = "OUTRIDER_KUBE_APISERVER";

/// The program, built on the first call and kept between runs (`tests/tools/build`); or why there is none. Minutes, the
/// first time; and it needs the network, so ask before a namespace is entered.
pub fn program() -> Result<PathBuf, String> {
    if let Some(given) = std::env::var_os(GIVEN).filter(|given| !given.is_empty()) {
        return Ok(given.into());
    }
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build");
    let output = Command::new(&build).arg("kube-apiserver").stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| format!("{}: {e}", build.display()))?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).trim().into()),
        // It has said why.
        _ => Err("no kube-apiserver could be built".to_owned()),
    }
}

/// How it reaches its etcd.
#[derive(Clone, Debug)]
pub struct Etcd {
    /// Client URLs.
    pub endpoints: Vec<String>,
    /// Authority of the client port.
    pub ca: PathBuf,
    /// Client certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What may differ between servers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its etcd.
    pub etcd: Etcd,
    /// Where it listens.
    pub listen: SocketAddr,
    /// What it serves with, and its authority: certificate, key, authority. One of its own where there is none.
    pub serving: Option<(PathBuf, PathBuf, PathBuf)>,
    /// Further flags.
    pub flags: Vec<String>,
}

/// A running server; dropping it ends it and removes its files.
pub struct KubeApiserver {
    settings: Settings,
    program: PathBuf,
    folder: TempDir,
    process: Option<Process>,
    clients: Authority,
    /// Who signed what it serves.
    server_ca: PathBuf,
}

/// A client's certificate, key and kubeconfig.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Certificate.
    pub certificate: PathBuf,
    /// Key.
    pub key: PathBuf,
    /// With the paths of the other two in it.
    pub kubeconfig: PathBuf,
}

impl KubeApiserver {
    /// Starts `program`; it is not ready yet.
    pub fn start(program: &Path, settings: Settings) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("outrider-kube-apiserver-").tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let clients = Authority::new("kube-client-ca", 3650 * DAY)?;
        fs::write(at("client-ca.crt"), clients.pem())?;
        // The signer takes the key, and whoever verifies the public one.
        let tokens = KeyPair::generate()?;
        fs::write(at("service-account.key"), tokens.serialize_pem())?;
        fs::write(at("service-account.pub"), tokens.public_key_pem())?;
        let server_ca = match &settings.serving {
            Some((_, _, ca)) => ca.clone(),
            None => {
                let authority = Authority::new("kube-server-ca", 3650 * DAY)?;
                fs::write(at("server-ca.crt"), authority.pem())?;
                let address = settings.listen.ip().to_string();
                let names = ["kubernetes", "kubernetes.default.svc", "localhost", "10.43.0.1", &address];
                let issued = authority.issue("kube-apiserver", &names, -3600, 365 * DAY)?;
                issued.write(&at("serving.crt"), &at("serving.key"))?;
                at("server-ca.crt")
            }
        };
        let mut server =
            Self { settings, program: program.to_owned(), folder, process: None, clients, server_ca };
        server.restart()?;
        Ok(server)
    }

    /// Starts it, again where it ran.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        let at = |name: &str| self.folder.path().join(name);
        let (certificate, key) = match &self.settings.serving {
            Some((certificate, key, _)) => (certificate.clone(), key.clone()),
            None => (at("serving.crt"), at("serving.key")),
        };
        let log = File::options().create(true).append(true).open(self.log())?;
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let (ip, etcd) = (self.settings.listen.ip(), &self.settings.etcd);
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--etcd-servers={}", etcd.endpoints.join(",")))
            .args([flag("etcd-cafile", &etcd.ca), flag("etcd-certfile", &etcd.certificate)])
            .arg(flag("etcd-keyfile", &etcd.key))
            .args([format!("--bind-address={ip}"), format!("--secure-port={}", self.settings.listen.port())])
            // An address of its own in the cluster is nothing that a test asks for, and must not be loopback.
            .args(["--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1"])
            .args([flag("tls-cert-file", &certificate), flag("tls-private-key-file", &key)])
            .arg(flag("client-ca-file", &at("client-ca.crt")))
            .arg(flag("service-account-signing-key-file", &at("service-account.key")))
            .arg(flag("service-account-key-file", &at("service-account.pub")))
            .args(["--service-account-issuer=https://kubernetes.default.svc.cluster.local"])
            .args(["--service-cluster-ip-range=10.43.0.0/16", "--allow-privileged=true"])
            // As RKE2 and K3s start it.
            .args(["--anonymous-auth=false", "--authorization-mode=Node,RBAC"])
            .arg("--enable-admission-plugins=NodeRestriction")
            .args(&self.settings.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.process = Some(Process::spawn(&mut command).context("starting kube-apiserver")?);
        Ok(())
    }

    /// SIGKILL, and wait for its end.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Stops it in its tracks, or lets it go on.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        use nix::sys::signal::Signal;
        let process = self.process.as_ref().context("it does not run")?;
        Ok(process.signal(if frozen { Signal::SIGSTOP } else { Signal::SIGCONT })?)
    }

    /// Waits until `/readyz` says ok to `who`; how long that took.
    pub fn wait_until_ready(&mut self, who: &Identity, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        loop {
            let last = match self.request(who, "GET", "/readyz", None) {
                Ok((200, _)) => return Ok(start.elapsed()),
                Ok((status, body)) => format!("{status}: {body}"),
                Err(e) => format!("{e:#}"),
            };
            let runs = self.process.as_mut().is_some_and(Process::is_running);
            if !runs || start.elapsed() > limit {
                let log = fs::read_to_string(self.log()).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(8).collect();
                let how = if runs { "is not ready" } else { "has ended" };
                bail!("kube-apiserver {how} after {:?} ({last}); its log ends in {tail:#?}", start.elapsed());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whoever may do everything.
    pub fn admin(&self) -> Result<Identity> {
        self.identity("admin", &["system:masters"])
    }

    /// The kubelet of the Node `node`.
    pub fn kubelet(&self, node: &str) -> Result<Identity> {
        self.identity(&format!("system:node:{node}"), &["system:nodes"])
    }

    /// Any user, in these groups.
    pub fn identity(&self, name: &str, groups: &[&str]) -> Result<Identity> {
        let stem = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let at = |end: &str| self.folder.path().join(format!("{stem}.{end}"));
        let identity = Identity { certificate: at("crt"), key: at("key"), kubeconfig: at("kubeconfig") };
        self.clients.user(name, groups)?.write(&identity.certificate, &identity.key)?;
        // JSON is YAML.
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {
                "server": self.url(), "certificate-authority": self.server_ca}}],
            "users": [{"name": name, "user": {
                "client-certificate": identity.certificate, "client-key": identity.key}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": name}}],
            "current-context": "local",
        });
        fs::write(&identity.kubeconfig, serde_json::to_vec_pretty(&kubeconfig)?)?;
        Ok(identity)
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        let mut listen = self.settings.listen;
        if listen.ip().is_unspecified() {
            listen.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        format!("https://{listen}")
    }

    /// One request with `curl`: its status and its body. `body` is a media type and what to send.
    pub fn request(
        &self,
        who: &Identity,
        method: &str,
        path: &str,
        body: Option<(&str, &str)>,
    ) -> Result<(u16, String)> {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--max-time", "10", "--write-out", "\n%{http_code}"])
            .arg("--cacert")
            .arg(&self.server_ca)
            .arg("--cert")
            .arg(&who.certificate)
            .arg("--key")
            .arg(&who.key)
            .args(["--request", method]);
        if let Some((media, text)) = body {
            command.args(["--header", &format!("Content-Type: {media}"), "--data-binary", text]);
        }
        let output = command.arg(format!("{}{path}", self.url())).output().context("curl")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').context("curl gave no status")?;
        Ok((status.parse()?, body.to_owned()))
    }

    /// Its log, from all its starts.
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}
