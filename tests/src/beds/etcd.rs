//! A real etcd cluster with mutual TLS, a member a process, on loopback addresses of its own.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::pki::{Authority, DAY};

/// What may differ between clusters.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Quota of the database in bytes; etcd's default when 0.
    pub quota_bytes: u64,
    /// Further flags for every member.
    pub flags: Vec<String>,
    /// The first member listens at `https://127.0.0.1:2379` as well, as the distributions' do.
    pub on_localhost: bool,
}

/// A cluster; dropping it ends its processes and removes its files.
pub struct EtcdCluster {
    dir: TempDir,
    members: Vec<Member>,
    options: Options,
}

struct Member {
    name: String,
    ip: Ipv4Addr,
    process: Option<Child>,
    /// Grows with every change of the cluster a member is started into.
    initial_cluster: String,
    state: &'static str,
}

/// The version of the installed etcd, or why there is none.
pub fn installed() -> Result<String, String> {
    match Command::new("etcd").arg("--version").output() {
        Ok(output) => {
            Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
        }
        Err(e) => Err(format!("etcd is not installed ({e})")),
    }
}

impl EtcdCluster {
    /// Starts `n` members and waits until a quorum answers. Every cluster gets addresses in 127.0.0.0/8 at random, so
    /// that several run side by side on the usual ports.
    pub fn start(n: u8, options: Options) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("outrider-etcd-").tempdir()?;
        let net: [u8; 2] = [rand::random_range(16..=250), rand::random_range(1..=250)];
        let members: Vec<(String, Ipv4Addr)> =
            (1..=n).map(|i| (format!("m{i}"), Ipv4Addr::new(127, net[0], net[1], i))).collect();
        let initial_cluster: Vec<String> =
            members.iter().map(|(name, ip)| format!("{name}=https://{ip}:2380")).collect();
        write_certificates(dir.path(), &members)?;
        let members = members
            .into_iter()
            .map(|(name, ip)| Member {
                name,
                ip,
                process: None,
                initial_cluster: initial_cluster.join(","),
                state: "new",
            })
            .collect();
        let mut cluster = Self { dir, members, options };
        for i in 0..cluster.members.len() {
            cluster.restart(i)?;
        }
        cluster.wait_for_quorum(0)?;
        Ok(cluster)
    }

    /// How many members have been set up.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Client URL of member `i`.
    pub fn endpoint(&self, i: usize) -> String {
        format!("https://{}:2379", self.members[i].ip)
    }

    /// Client URLs of all members.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|i| self.endpoint(i)).collect()
    }

    /// Name of member `i`.
    pub fn name(&self, i: usize) -> &str {
        &self.members[i].name
    }

    /// CA file.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// Client certificate.
    pub fn client_certificate(&self) -> PathBuf {
        self.dir.path().join("client.crt")
    }

    /// Key of the client certificate.
    pub fn client_key(&self) -> PathBuf {
        self.dir.path().join("client.key")
    }

    /// Kills member `i` (SIGKILL) and waits for its end.
    pub fn kill(&mut self, i: usize) {
        if let Some(mut process) = self.members[i].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Kills member `i`, empties its data folder and lets it begin a cluster of its own at the same addresses.
    pub fn begin_anew_alone(&mut self, i: usize) -> Result<()> {
        self.kill(i);
        let member = &mut self.members[i];
        std::fs::remove_dir_all(self.dir.path().join(&member.name))?;
        member.initial_cluster = format!("{}=https://{}:2380", member.name, member.ip);
        member.state = "new";
        self.restart(i)?;
        self.wait_for_quorum(i)
    }

    /// Stops member `i` in its tracks, or lets it go on: a peer that takes connections and never answers.
    pub fn freeze(&self, i: usize, frozen: bool) {
        use nix::sys::signal::{Signal, kill};
        if let Some(process) = &self.members[i].process {
            let signal = if frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
            let _ = kill(nix::unistd::Pid::from_raw(process.id() as i32), signal);
            // The signal is on its way; every thread has to have heard of it before anybody looks.
            let stopped = || {
                let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).into_iter().flatten();
                tasks.flatten().all(|task| {
                    let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
                })
            };
            let start = std::time::Instant::now();
            while frozen && !stopped() && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Starts member `i` (again) with its data.
    pub fn restart(&mut self, i: usize) -> Result<()> {
        let pki = |file: String| self.dir.path().join(file).display().to_string();
        let member = &self.members[i];
        let (name, ip) = (&member.name, member.ip);
        let log = File::options().create(true).append(true).open(self.log(i))?;
        let localhost = if self.options.on_localhost && i == 0 { ",https://127.0.0.1:2379" } else { "" };
        let listen_client = format!("https://{ip}:2379{localhost}");
        let mut command = Command::new("etcd");
        command
            .args(["--name", name, "--logger", "zap", "--log-level", "warn"])
            .args(["--data-dir", &self.dir.path().join(name).display().to_string()])
            .args(["--listen-peer-urls", &format!("https://{ip}:2380")])
            .args(["--initial-advertise-peer-urls", &format!("https://{ip}:2380")])
            .args(["--listen-client-urls", &listen_client])
            .args(["--advertise-client-urls", &format!("https://{ip}:2379")])
            .args(["--listen-metrics-urls", &format!("http://{ip}:2381")])
            .args(["--initial-cluster", &member.initial_cluster, "--initial-cluster-state", member.state])
            .args(["--initial-cluster-token", "outrider-bed"])
            .args(["--cert-file", &pki(format!("{name}.crt")), "--key-file", &pki(format!("{name}.key"))])
            .args(["--client-cert-auth", "--trusted-ca-file", &pki("ca.crt".into())])
            .args([
                "--peer-cert-file",
                &pki(format!("{name}.crt")),
                "--peer-key-file",
                &pki(format!("{name}.key")),
            ])
            .args(["--peer-client-cert-auth", "--peer-trusted-ca-file", &pki("ca.crt".into())])
            .args(["--heartbeat-interval", "100", "--election-timeout", "1000"])
            .args(&self.options.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if self.options.quota_bytes > 0 {
            command.args(["--quota-backend-bytes", &self.options.quota_bytes.to_string()]);
        }
        self.members[i].process = Some(command.spawn().context("starting etcd")?);
        Ok(())
    }

    /// Adds a learner and starts it; its index is the answer.
    pub fn add_learner(&mut self) -> Result<usize> {
        let i = self.members.len();
        let [a, b, c, _] = self.members[0].ip.octets();
        let (name, ip) = (format!("m{}", i + 1), Ipv4Addr::new(a, b, c, i as u8 + 1));
        self.etcdctl(
            0,
            &["member", "add", &name, "--learner", "--peer-urls", &format!("https://{ip}:2380")],
        )?;
        let initial_cluster = format!("{},{name}=https://{ip}:2380", self.members[0].initial_cluster);
        self.members.push(Member { name, ip, process: None, initial_cluster, state: "existing" });
        self.restart(i)?;
        Ok(i)
    }

    /// `etcdctl` against member `i`; its standard output.
    pub fn etcdctl(&self, i: usize, arguments: &[&str]) -> Result<String> {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--command-timeout=2s", "--dial-timeout=1s", "--endpoints", &self.endpoint(i)])
            .args(["--cacert", &self.ca().display().to_string()])
            .args(["--cert", &self.client_certificate().display().to_string()])
            .args(["--key", &self.client_key().display().to_string()])
            .args(arguments)
            .output()
            .context("etcdctl")?;
        if !output.status.success() {
            bail!("etcdctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until member `i` answers a linearizable read.
    pub fn wait_for_quorum(&self, i: usize) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.etcdctl(i, &["get", "k"]) {
                Ok(_) => return Ok(()),
                Err(e) if start.elapsed() > Duration::from_secs(60) => {
                    let log = std::fs::read_to_string(self.log(i)).unwrap_or_default();
                    let tail: Vec<&str> = log.lines().rev().take(5).collect();
                    return Err(e.context(format!("member {i} has no quorum; its log ends in {tail:#?}")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn log(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("{}.log", self.members[i].name))
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for i in 0..self.members.len() {
            self.kill(i);
        }
    }
}

/// A CA, a certificate a member (up to nine, so that members can be added) and one for clients.
fn write_certificates(dir: &Path, members: &[(String, Ipv4Addr)]) -> Result<()> {
    let ca = Authority::new("etcd-ca", 3650 * DAY)?;
    std::fs::write(dir.join("ca.crt"), ca.pem())?;
    let [a, b, c, _] = members.first().context("a cluster has members")?.1.octets();
    let names = (1..=9).map(|i| (format!("m{i}"), Ipv4Addr::new(a, b, c, i).to_string()));
    for (name, san) in names.chain([("client".to_owned(), "client".to_owned())]) {
        // Members check the address a peer comes from, which is 127.0.0.1 whatever it listens on.
        let issued = ca.issue(&name, &[&san, "127.0.0.1"], -DAY, 365 * DAY)?;
        issued.write(&dir.join(format!("{name}.crt")), &dir.join(format!("{name}.key")))?;
    }
    Ok(())
}
