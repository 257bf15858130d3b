//! A real HAProxy in front of two real nginx that answer as Rancher behind an ingress does
//! (`facts/rancher-load-balancer.md`): layer 4 and layer 7 side by side, on loopback addresses of their own.

use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::pki::{Authority, DAY};

/// Name that Rancher has in this bed.
pub const HOST: &str = "rancher.test";

/// What may differ.
#[derive(Clone, Debug)]
pub struct Options {
    /// The layer-7 side sets `X-Forwarded-Proto: https`.
    pub forwarded_proto: bool,
    /// The ingress trusts that header.
    pub ingress_trusts: bool,
    /// The balancer takes dead backends out.
    pub health_checks: bool,
    /// Name in the certificates.
    pub certificate_name: String,
    /// Host that the ingress routes.
    pub ingress_host: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            forwarded_proto: true,
            ingress_trusts: true,
            health_checks: true,
            certificate_name: HOST.to_owned(),
            ingress_host: HOST.to_owned(),
        }
    }
}

/// A balancer with two backends; dropping it ends its processes and removes its files.
pub struct Balancer {
    dir: TempDir,
    net: [u8; 2],
    processes: Vec<(String, Child)>,
}

/// Why this bed cannot run here, if it cannot.
pub fn missing() -> Option<String> {
    let absent = |program: &str, flag: &str| {
        let found = Command::new(program).arg(flag).stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.err().map(|e| format!("{program} is not installed ({e})"))
    };
    absent("haproxy", "-v").or_else(|| absent("nginx", "-v"))
}

impl Balancer {
    /// Starts everything and waits until it listens.
    pub fn start(options: &Options) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("outrider-balancer-").tempdir()?;
        let net = [rand::random_range(16..=250), rand::random_range(1..=250)];
        let mut bed = Self { dir, net, processes: Vec::new() };
        write_certificates(bed.dir.path(), &options.certificate_name)?;
        for i in 0..2 {
            std::fs::write(bed.path(&format!("nginx{i}.conf")), bed.nginx(i, options))?;
            bed.start_backend(i)?;
        }
        std::fs::write(bed.path("haproxy.cfg"), bed.haproxy(options))?;
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(bed.path("haproxy.cfg"));
        bed.spawn("haproxy", command)?;
        for address in [bed.l4(), bed.l4_http(), bed.l7(), bed.l7_http()] {
            bed.wait_for(address)?;
        }
        Ok(bed)
    }

    /// Layer 4, https.
    pub fn l4(&self) -> SocketAddr {
        self.at(1, 8443)
    }

    /// Layer 4, plain http.
    pub fn l4_http(&self) -> SocketAddr {
        self.at(1, 8080)
    }

    /// Layer 7, https.
    pub fn l7(&self) -> SocketAddr {
        self.at(2, 8443)
    }

    /// Layer 7, plain http.
    pub fn l7_http(&self) -> SocketAddr {
        self.at(2, 8080)
    }

    /// Backend `i`, https.
    pub fn backend(&self, i: u8) -> SocketAddr {
        self.at(11 + i, 8443)
    }

    /// Backend `i`, plain http.
    pub fn backend_http(&self, i: u8) -> SocketAddr {
        self.at(11 + i, 8080)
    }

    /// An address of this bed where nobody listens.
    pub fn nobody(&self) -> SocketAddr {
        self.at(99, 8443)
    }

    /// CA that signed all certificates.
    pub fn ca(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// Kills backend `i` (SIGKILL) and waits for its end.
    pub fn kill_backend(&mut self, i: u8) {
        let name = format!("nginx{i}");
        self.processes.retain_mut(|(running, process)| {
            if *running == name {
                let _ = process.kill();
                let _ = process.wait();
            }
            *running != name
        });
    }

    /// Starts backend `i` (again).
    pub fn start_backend(&mut self, i: u8) -> Result<()> {
        let mut command = Command::new("nginx");
        command.arg("-p").arg(self.dir.path()).arg("-c").arg(self.path(&format!("nginx{i}.conf")));
        command.arg("-e").arg(self.path(&format!("nginx{i}.err")));
        self.spawn(&format!("nginx{i}"), command)?;
        self.wait_for(self.backend(i))?;
        self.wait_for(self.backend_http(i))
    }

    fn at(&self, last: u8, port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(127, self.net[0], self.net[1], last), port))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn spawn(&mut self, name: &str, mut command: Command) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.path(&format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().with_context(|| format!("starting {name}"))?;
        self.processes.push((name.to_owned(), process));
        Ok(())
    }

    fn wait_for(&self, address: SocketAddr) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if start.elapsed() > Duration::from_secs(30) {
                let mut logs = String::new();
                for (name, _) in &self.processes {
                    let text = std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
                    let _ = write!(logs, "\n{name}: {text}");
                }
                bail!("nobody listens at {address}:{logs}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Rancher behind an ingress: redirects what does not say that it came over https, except on a few paths; another
    /// Host meets the default backend.
    fn nginx(&self, i: u8, options: &Options) -> String {
        let (http, https) = (self.backend_http(i), self.backend(i));
        let plain = if options.ingress_trusts { "https 0; wss 0;" } else { "" };
        let rancher = "\
            location = /ping { return 200 pong; }\n\
            location = /healthz { return 200 ok; }\n\
";
        // As Rancher does it: only /ping and the like are answered to who does not say that it came over https.
        let guarded = |guard: &str| {
            format!(
                "location = /cacerts {{ {guard} alias {ca}; }}\n\
                 location = /v3/connect {{ {guard} return 401 'no token'; }}\n",
                ca = self.path("ca.crt").display()
            )
        };
        let (plain_paths, tls_paths) =
            (guarded("if ($plain) { return 302 https://$host$uri; }"), guarded(""));
        format!(
            "daemon off; master_process off; pid nginx{i}.pid; error_log nginx{i}.err; events {{}}\n\
             http {{\n\
             access_log off; default_type text/plain; client_body_temp_path body{i}; proxy_temp_path proxy{i};\n\
             fastcgi_temp_path fcgi{i}; uwsgi_temp_path uwsgi{i}; scgi_temp_path scgi{i};\n\
             map $http_x_forwarded_proto $plain {{ default 1; {plain} }}\n\
             ssl_certificate server.crt; ssl_certificate_key server.key;\n\
             server {{ listen {http} default_server; listen {https} ssl default_server;\n\
               return 404 'default backend - 404'; }}\n\
             server {{ listen {http}; server_name {host}; {rancher}{plain_paths}\n\
               location = / {{ if ($plain) {{ return 302 https://$host/; }} return 200 'Rancher on {i}'; }}\n\
               location / {{ if ($plain) {{ return 302 https://$host/; }} return 404 'not found'; }} }}\n\
             server {{ listen {https} ssl; server_name {host}; {rancher}{tls_paths}\n\
               location = / {{ return 200 'Rancher on {i}'; }} location / {{ return 404 'not found'; }} }}\n\
             }}\n",
            host = options.ingress_host,
        )
    }

    fn haproxy(&self, options: &Options) -> String {
        let check = if options.health_checks { " check inter 200ms" } else { "" };
        let servers = |port: fn(&Self, u8) -> SocketAddr| {
            (0..2).fold(String::new(), |mut text, i| {
                let _ = writeln!(text, "  server b{i} {}{check}", port(self, i));
                text
            })
        };
        let header =
            if options.forwarded_proto { "  http-request set-header X-Forwarded-Proto https\n" } else { "" };
        let pem = self.path("balancer.pem");
        format!(
            "defaults\n  timeout connect 1s\n  timeout client 10s\n  timeout server 10s\n  retries 0\n\
             listen l4\n  mode tcp\n  bind {}\n{}\
             listen l4-http\n  mode http\n  http-request set-header X-Forwarded-Proto http\n  bind {}\n{}\
             frontend l7\n  mode http\n  bind {} ssl crt {}\n{header}  default_backend plain\n\
             backend plain\n  mode http\n  balance roundrobin\n{}\
             frontend l7-http\n  mode http\n  bind {}\n  http-request redirect scheme https code 301\n",
            self.l4(),
            servers(Self::backend),
            self.l4_http(),
            servers(Self::backend_http),
            self.l7(),
            pem.display(),
            servers(Self::backend_http),
            self.l7_http(),
        )
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        for (_, process) in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A CA, one certificate for the backends and another for the balancer.
fn write_certificates(dir: &Path, name: &str) -> Result<()> {
    let ca = Authority::new("bed-ca", 3650 * DAY)?;
    std::fs::write(dir.join("ca.crt"), ca.pem())?;
    let leaf = || ca.issue(name, &[name], -DAY, 365 * DAY);
    leaf()?.write(&dir.join("server.crt"), &dir.join("server.key"))?;
    let leaf = leaf()?;
    let mut file = File::options().create_new(true).write(true).mode(0o600).open(dir.join("balancer.pem"))?;
    std::io::Write::write_all(&mut file, format!("{}{}", leaf.certificate, leaf.key).as_bytes())?;
    Ok(())
}
