//! What is to stand, and how the agent is told of it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};

use super::ingress::{self, Ingress};
use super::machines::Service;
use super::tls::{Certificate, Files};
use super::{HOST, published};
use crate::programs::has_command;

/// Path of the program of `tests/tools/rancher-backend`, given by `tests/suites/way-in.sh`.
pub const BACKEND: &str = "OUTRIDER_RANCHER_BACKEND";
/// Path of Traefik, given by the same; without it no setup may want it.
pub const TRAEFIK: &str = "OUTRIDER_TRAEFIK";
/// Token of a user of that Rancher.
pub const API_TOKEN: &str = "token-tests:a-users-secret";
/// Where Rancher listens on its node.
pub(super) const RANCHER: &str = "127.0.0.1:8080";

/// Where TLS ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// At the ingress.
    L4,
    /// At the balancer.
    L7,
}

/// Which balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
    /// The kernel: every connection goes on to a node with the client's address kept.
    Preserving,
    /// None: nobody listens there.
    Nothing,
}

/// An address of Rancher's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// The balancer's.
    First,
    /// Another of the same balancer.
    Second,
    /// The balancer's IPv6 address.
    Ipv6,
    /// An IPv6 address that nobody has.
    DeadIpv6,
}

/// A passage of a configuration and what stands there instead. A passage that is not there is an error: the fault would
/// not be made.
pub type Edit = (&'static str, &'static str);

/// What `/` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Root {
    /// What Rancher does.
    #[default]
    Rancher,
    /// A byte a second.
    Slow,
    /// 4 MB, several times what the agent reads; the ingress keeps all of it in a file for each client.
    Huge,
    /// Redirects, each to another path.
    Redirects,
}

/// Everything that can differ; right unless changed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where TLS ends.
    pub layer: Layer,
    /// Which balancer.
    pub balancer: Balancer,
    /// Changes to its published configuration.
    pub balancer_edits: Vec<Edit>,
    /// Which ingress.
    pub ingress: Ingress,
    /// Changes to its configuration.
    pub ingress_edits: Vec<Edit>,
    /// What Rancher's `/` answers.
    pub root: Root,
    /// What Rancher serves at `/cacerts`, `{ROOT}` in it being the root's certificate without its final newline; that
    /// certificate as it is when left out.
    pub cacerts: Option<String>,
    /// What is shown where TLS ends.
    pub certificate: Certificate,
    /// Nodes on which nothing runs, from 1.
    pub dead: Vec<usize>,
    /// Addresses of Rancher's name, as the agent is told.
    pub addresses: Vec<Address>,
    /// Changes to the agent's configuration.
    pub agent_edits: Vec<Edit>,
}

/// Why this bed cannot run here, if it cannot.
pub fn missing() -> Option<String> {
    let given = std::env::var_os(BACKEND).is_some_and(|path| Path::new(&path).is_file());
    let absent = ["haproxy", "nginx", "ip", "nft"].into_iter().find(|program| !has_command(program));
    match (given, absent) {
        (false, _) => Some(format!("{BACKEND} names no program (run tests/run --suite way-in)")),
        (true, Some(program)) => Some(format!("{program} is not installed")),
        (true, None) => None,
    }
}

impl Setup {
    /// All right.
    pub fn new(layer: Layer, balancer: Balancer) -> Self {
        Self {
            layer,
            balancer,
            balancer_edits: Vec::new(),
            ingress: Ingress::Nginx,
            ingress_edits: Vec::new(),
            root: Root::Rancher,
            cacerts: None,
            certificate: Certificate::Right,
            dead: Vec::new(),
            addresses: vec![Address::First],
            agent_edits: Vec::new(),
        }
    }

    pub(super) fn backend(&self, number: usize, at: &Path, root: &str) -> Result<Service> {
        let cacerts = at.join("cacerts");
        // Not part of the service: it is read at every request.
        let served = self.cacerts.as_deref().map(|text| text.replace("{ROOT}", root.trim_end()));
        std::fs::write(&cacerts, served.as_deref().unwrap_or(root))?;
        let root = match self.root {
            Root::Rancher => "rancher",
            Root::Slow => "slow",
            Root::Huge => "huge",
            Root::Redirects => "redirects",
        };
        let arguments = [
            format!("-http={RANCHER}"),
            format!("-cacerts={}", cacerts.display()),
            format!("-name=node{number}"),
            format!("-root={root}"),
            "-token=an-agents-token".to_owned(),
            format!("-api-token={API_TOKEN}"),
        ];
        let program = std::env::var_os(BACKEND).unwrap_or_else(|| OsString::from("rancher-backend"));
        Ok(Service { program, arguments: arguments.into(), files: Vec::new(), log: at.join("rancher.log") })
    }

    pub(super) fn ingress(&self, at: &Path, leaf: &Files, balancer: IpAddr) -> Result<Service> {
        ingress::service(self, at, leaf, balancer)
    }

    pub(super) fn edited_ingress(&self, text: String) -> Result<String> {
        edited(text, &self.ingress_edits)
    }

    /// The balancer, by the published file with the addresses and certificates of this bed in it.
    pub(super) fn balancer(&self, at: &Path, leaf: &Files, nodes: &[IpAddr]) -> Result<Option<Service>> {
        let layer = if self.layer == Layer::L4 { "l4" } else { "l7" };
        let name = match self.balancer {
            Balancer::Haproxy => format!("{layer}-haproxy.cfg"),
            Balancer::Nginx => format!("{layer}-nginx.conf"),
            Balancer::Preserving | Balancer::Nothing => return Ok(None),
        };
        let mut text = edited(published(&name)?, &self.balancer_edits)?;
        for (i, node) in nodes.iter().enumerate() {
            text = text.replace(&format!("192.0.2.{}", 11 + i), &node.to_string());
        }
        for (place, file) in [
            ("/etc/haproxy/rancher.pem", &leaf.both),
            ("/etc/nginx/rancher.crt", &leaf.chain),
            ("/etc/nginx/rancher.key", &leaf.key),
        ] {
            text = text.replace(place, &file.display().to_string());
        }
        Ok(Some(match self.balancer {
            Balancer::Haproxy => {
                super::configured("haproxy".into(), &["-db", "-f", "{FILE}"], at, &name, text)
            }
            _ => super::nginx(at, &name, text),
        }))
    }

    /// Ports that listen on a node that lives, the one that opens last at the end.
    pub(super) fn node_ports(&self) -> &'static [u16] {
        match self.ingress {
            Ingress::Nginx => &[80, 443],
            Ingress::Traefik => &[80, 443, ingress::READY],
        }
    }

    /// Ports that listen at the balancer.
    pub(super) fn balancer_ports(&self) -> &'static [u16] {
        match self.balancer {
            Balancer::Nothing => &[],
            _ => &[443],
        }
    }

    /// The agent's configuration.
    pub(super) fn agent(
        &self,
        addresses: &[IpAddr],
        nodes: &[IpAddr],
        ca: &Path,
        root: &str,
    ) -> Result<String> {
        let (mode, port) = if self.layer == Layer::L4 { ("l4", 443) } else { ("l7", 80) };
        let backends: Vec<String> = nodes.iter().map(|node| format!("{node}:{port}")).collect();
        let checksum = checksum(root);
        let text = format!(
            "[[load_balancer]]\nname = \"rancher\"\nurl = \"https://{HOST}\"\nmode = \"{mode}\"\nca = {ca:?}\n\
             ca_checksum = \"{checksum}\"\nbackends = {backends:?}\nagent_tls_mode = \"strict\"\n\
             [load_balancer.resolve]\n\"{HOST}\" = {addresses:?}\n",
            addresses = addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>(),
        );
        edited(text, &self.agent_edits)
    }
}

/// SHA-256, hex.
pub(super) fn checksum(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn edited(mut text: String, edits: &[Edit]) -> Result<String> {
    for (passage, instead) in edits {
        ensure!(text.contains(passage), "{passage:?} is not in\n{text}");
        text = text.replace(passage, instead);
    }
    Ok(text)
}
