//! Userdata that makes a machine a node: one plain cloud-config by profile, from the files in `templates/`.
//!
//! It installs the guest agent where the profile wants it and the agent from where it is told, writes its configuration and
//! its token (mode 0600), and never waits: what takes time is a service of its own, started without blocking, so that
//! Rancher's script and the end of the boot come when they would have come anyway.

mod format;
mod network;
mod quote;
mod repository;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

pub use format::{Named, base64, machine_pool, secret, terraform};
pub use network::{Interface, Network};
pub use repository::{Key, Repository};

/// What the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A VM of SUSE Virtualization (Harvester).
    HarvesterVm,
    /// A server of the cluster that Rancher runs on.
    RancherHaServer,
    /// An agent node of that cluster.
    RancherHaAgent,
    /// A K3s server.
    K3sServer,
    /// A node of an EKS Anywhere cluster.
    EksaNode,
    /// The admin machine of EKS Anywhere.
    EksaAdmin,
}

const PROFILES: [(Profile, &str, &str); 6] = [
    (Profile::HarvesterVm, "harvester-vm", include_str!("../templates/harvester-vm.yaml")),
    (Profile::RancherHaServer, "rancher-ha-server", include_str!("../templates/rancher-ha-server.yaml")),
    (Profile::RancherHaAgent, "rancher-ha-agent", include_str!("../templates/rancher-ha-agent.yaml")),
    (Profile::K3sServer, "k3s-server", include_str!("../templates/k3s-server.yaml")),
    (Profile::EksaNode, "eksa-node", include_str!("../templates/eksa-node.yaml")),
    (Profile::EksaAdmin, "eksa-admin", include_str!("../templates/eksa-admin.yaml")),
];

impl Profile {
    /// Every one.
    pub fn all() -> impl Iterator<Item = Self> {
        PROFILES.iter().map(|(profile, ..)| *profile)
    }

    /// Its name, as in `agent.toml`.
    pub fn as_str(self) -> &'static str {
        PROFILES.iter().find(|(profile, ..)| *profile == self).map_or("", |(_, name, _)| name)
    }

    fn template(self) -> &'static str {
        PROFILES.iter().find(|(profile, ..)| *profile == self).map_or("", |(.., text)| text)
    }

    /// Whether its machines are VMs whose host learns their addresses from the guest agent.
    fn wants_guest_agent(self) -> bool {
        !matches!(self, Self::EksaNode | Self::EksaAdmin)
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        PROFILES.iter().find(|(_, name, _)| *name == text).map(|(profile, ..)| *profile).ok_or_else(|| {
            let names: Vec<&str> = PROFILES.iter().map(|(_, name, _)| *name).collect();
            format!("there is no profile {text:?}; the profiles are {}", names.join(", "))
        })
    }
}

/// Where the agent comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Agent {
    /// It is installed in the image, with its units.
    #[default]
    Image,
    /// A package of a repository that the image knows, or that [`Request::repository`] sets up.
    Package(String),
    /// An archive or package that lies in the image: `.tar.gz`, `.deb` or `.rpm`.
    File(String),
    /// The same from a URL, in which `{arch}` stands for what `uname -m` says.
    Url(String),
}

/// Where the QEMU guest agent comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestAgent {
    /// `packages:` installs it.
    Package,
    /// It is in the image, and is started.
    Image,
    /// A package that lies in the image: `.deb` or `.rpm`.
    File(String),
    /// Not our business.
    None,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `https://host[:port]` of coordinators; none: the agent judges its machine all the same.
    pub coordinators: Vec<String>,
    /// Enrolment token.
    pub token: Option<String>,
    /// Cluster the node says it is of.
    pub cluster: Option<String>,
    /// URL of a load balancer that the node watches.
    pub load_balancer: Option<String>,
    /// Where the agent comes from.
    pub agent: Agent,
    /// SHA-256 of what is downloaded: by architecture as `uname -m` names it, or one for all.
    pub sha256: Vec<(Option<String>, String)>,
    /// Repository that the agent's package comes from; left out: the image knows one.
    pub repository: Option<Repository>,
    /// Where the guest agent comes from; left out: a package where the profile wants it.
    pub guest_agent: Option<GuestAgent>,
}

/// Something that cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which part of the request.
    pub what: &'static str,
    /// What is wrong and what to give instead; no secret.
    pub message: String,
}

impl Problem {
    fn new(what: &'static str, message: impl Into<String>) -> Self {
        Self { what, message: message.into() }
    }
}

/// The userdata for `profile`, or every reason why not.
pub fn render(profile: Profile, request: &Request) -> Result<String, Vec<Problem>> {
    let problems = problems(profile, request);
    if !problems.is_empty() {
        return Err(problems);
    }
    let (flags, values) = bindings(profile, request);
    let text = template::fill(profile.template(), &flags, &values)
        .map_err(|message| vec![Problem::new("template", message)])?;
    // A template that lint refuses would be our fault, and is caught before anybody boots with it.
    let errors =
        crate::lint::lint(text.as_bytes()).into_iter().filter(|f| f.severity == crate::Severity::Error);
    let problems: Vec<Problem> =
        errors.map(|f| Problem::new("template", format!("line {}: {}", f.line, f.message))).collect();
    if problems.is_empty() { Ok(text) } else { Err(problems) }
}

/// What every place in a template accepts without quoting: no blanks, quotes, `$` or line ends.
fn plain(text: &str, more: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

/// `host[:port]` of an `https` URL without user, query or fragment; blanks and quotes have no place in it.
fn authority(url: &str) -> Option<&str> {
    authority_of(url.strip_prefix("https://")?)
}

/// The same of what stands behind `://`.
fn authority_of(rest: &str) -> Option<&str> {
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            port.parse::<u16>().ok().filter(|port| *port > 0)?;
            host
        }
        _ => authority,
    };
    let ipv6 = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).is_some_and(|h| plain(h, ":."));
    (ipv6 || (plain(host, "-._") && !host.starts_with('-'))).then_some(authority)
}

const ARCHIVES: [&str; 4] = [".tar.gz", ".tgz", ".deb", ".rpm"];
const PACKAGES: [&str; 2] = [".deb", ".rpm"];

fn problems(profile: Profile, request: &Request) -> Vec<Problem> {
    let mut out = Vec::new();
    for url in &request.coordinators {
        if authority(url).is_none_or(|authority| url.trim_end_matches('/').len() != 8 + authority.len()) {
            out.push(Problem::new("coordinator", format!("{url:?} is no https://host[:port]")));
        }
    }
    if let Some(token) = &request.token {
        let parts = token.strip_prefix("OR1").and_then(|rest| rest.split_once("::"));
        let pinned =
            parts.is_some_and(|(pin, _)| pin.len() == 64 && pin.bytes().all(|b| b.is_ascii_hexdigit()));
        if !pinned || !plain(token, ":-_.~+/=") || token.ends_with(':') {
            let message = "it is no enrolment token; give the one line that `outrider token create` printed";
            out.push(Problem::new("token", message));
        }
        if request.coordinators.is_empty() {
            out.push(Problem::new("coordinator", "a token is of no use without a coordinator; name it"));
        }
    }
    if let Some(cluster) = request.cluster.as_ref().filter(|name| !plain(name, "-._")) {
        out.push(Problem::new(
            "cluster",
            format!("{cluster:?} has other characters than letters, digits, - . _"),
        ));
    }
    if let Some(url) = &request.load_balancer {
        out.extend(load_balancer_problem(profile, url));
    }
    agent_problems(request, &mut out);
    if let Some(GuestAgent::File(path)) = &request.guest_agent {
        out.extend(file_problem("guest-agent", path, &PACKAGES));
    }
    out
}

fn load_balancer_problem(profile: Profile, url: &str) -> Option<Problem> {
    let takes = |profile: &Profile| profile.template().contains("{{load_balancer}}");
    if !takes(&profile) {
        let others: Vec<&str> = Profile::all().filter(takes).map(Profile::as_str).collect();
        let message =
            format!("{} watches none; the profiles that do are {}", profile.as_str(), others.join(", "));
        return Some(Problem::new("load-balancer", message));
    }
    let fine = authority(url).is_some() && plain(url, ":/-._~%[]");
    (!fine).then(|| {
        Problem::new("load-balancer", format!("{url:?} is no https://host[:port], with a path at most"))
    })
}

fn file_problem(what: &'static str, path: &str, endings: &[&str]) -> Option<Problem> {
    let straight = path.split('/').skip(1).all(|name| !matches!(name, "" | "." | ".."));
    let fine = path.starts_with('/')
        && straight
        && plain(path, "/-._+~")
        && endings.iter().any(|end| path.ends_with(end));
    (!fine).then(|| {
        Problem::new(what, format!("{path:?} is no path in the image that ends in {}", endings.join(", ")))
    })
}

fn agent_problems(request: &Request, out: &mut Vec<Problem>) {
    match &request.agent {
        Agent::Image => {}
        Agent::Package(name) => {
            if !plain(name, "-._+") || name.starts_with('-') {
                out.push(Problem::new("agent", format!("{name:?} is no name of a package")));
            }
        }
        Agent::File(path) => out.extend(file_problem("agent", path, &ARCHIVES)),
        Agent::Url(url) => {
            let ends = ARCHIVES.iter().any(|end| url.ends_with(end));
            // Brackets have a place in an address alone: in a path they are a pattern to curl.
            let path = authority(url).is_some_and(|authority| {
                plain(&url["https://".len() + authority.len()..].replace("{arch}", ""), ":/-._~%+=")
            });
            if !ends || !path {
                let message =
                    format!("{url:?} is no https URL of a file that ends in {}", ARCHIVES.join(", "));
                out.push(Problem::new("agent", message));
            }
            if request.sha256.is_empty() {
                out.push(Problem::new(
                    "sha256",
                    "what is downloaded is checked; give its SHA-256, as sha256sum prints it",
                ));
            }
        }
    }
    if let Some(repository) = &request.repository {
        if !matches!(request.agent, Agent::Package(_)) {
            out.push(Problem::new("repo", "it is for an agent from a package; add --agent package"));
        }
        repository.problems(out);
    }
    if !matches!(request.agent, Agent::Url(_)) && !request.sha256.is_empty() {
        out.push(Problem::new(
            "sha256",
            "it is for an agent that is downloaded; name its URL, or leave it out",
        ));
    }
    for (arch, sum) in &request.sha256 {
        if sum.len() != 64 || !sum.bytes().all(|b| b.is_ascii_hexdigit()) {
            out.push(Problem::new("sha256", format!("{sum:?} is no SHA-256: 64 hex digits")));
        }
        if arch.as_ref().is_some_and(|arch| !plain(arch, "_-")) {
            out.push(Problem::new(
                "sha256",
                "the architecture is what uname -m says, such as x86_64 or aarch64",
            ));
        }
    }
    if request.sha256.len() > 1 && request.sha256.iter().any(|(arch, _)| arch.is_none()) {
        out.push(Problem::new("sha256", "with several, each needs its architecture: x86_64=…, aarch64=…"));
    }
}

type Bindings = (BTreeSet<&'static str>, BTreeMap<&'static str, String>);

fn bindings(profile: Profile, request: &Request) -> Bindings {
    let mut flags = BTreeSet::new();
    let mut values = BTreeMap::new();
    let urls: Vec<&str> = request.coordinators.iter().map(|url| url.trim_end_matches('/')).collect();
    if let Some(first) = urls.first() {
        flags.insert("coordinator");
        values.insert("coordinator", (*first).to_owned());
        values.insert(
            "urls",
            urls.iter().map(|url| format!("\"{}\"", quote::toml(url))).collect::<Vec<_>>().join(", "),
        );
    }
    let cluster = request.cluster.as_deref().map(quote::toml);
    let load_balancer = request.load_balancer.as_deref().map(quote::toml);
    for (name, value) in
        [("token", request.token.clone()), ("cluster", cluster), ("load_balancer", load_balancer)]
    {
        if let Some(value) = value {
            flags.insert(name);
            values.insert(name, value);
        }
    }
    let default = if profile.wants_guest_agent() { GuestAgent::Package } else { GuestAgent::None };
    match request.guest_agent.as_ref().unwrap_or(&default) {
        GuestAgent::Package => flags.extend(["packages", "guest_agent_package", "guest_agent_start"]),
        GuestAgent::Image => flags.extend(["guest_agent_start"]),
        GuestAgent::File(path) => {
            flags.insert("guest_agent_file");
            let install = if path.ends_with(".deb") { "dpkg -i" } else { "rpm -U" };
            values.insert("guest_agent_install", format!("{install} {path}"));
        }
        GuestAgent::None => {}
    }
    match &request.agent {
        Agent::Image => flags.extend(["present"]),
        Agent::Package(name) => match &request.repository {
            Some(repository) => repository.bind(name, &mut flags, &mut values),
            None => {
                flags.extend(["packages", "agent_package", "present"]);
                values.insert("package", quote::yaml(name));
            }
        },
        Agent::File(path) => {
            flags.extend(["install", "file"]);
            unpack(path, path, &mut flags, &mut values);
        }
        Agent::Url(url) => {
            flags.extend(["install", "download"]);
            let own = urls.iter().any(|known| authority(known) == authority(url));
            match request.token.as_ref().filter(|_| own) {
                Some(_) => {
                    flags.insert("pinned");
                    values.insert("trust", " --cacert pem -K-".to_owned());
                }
                None => drop(values.insert("trust", String::new())),
            }
            values.insert("url", url.replace("{arch}", "$(uname -m)"));
            values.insert("sums", sums(&request.sha256));
            unpack(url, "x", &mut flags, &mut values);
        }
    }
    (flags, values)
}

/// The lines that set `s` to what is expected.
fn sums(sums: &[(Option<String>, String)]) -> String {
    if let [(None, sum)] = sums {
        return format!("      s={}", sum.to_ascii_lowercase());
    }
    let mut out = "      case $(uname -m) in\n".to_owned();
    for (arch, sum) in sums {
        out.push_str(&format!(
            "      {}) s={};;\n",
            arch.as_deref().unwrap_or("*"),
            sum.to_ascii_lowercase()
        ));
    }
    out + "      *) echo no build for it; exit;;\n      esac"
}

/// How `file`, which is called `name` where it comes from, is installed.
fn unpack(
    name: &str,
    file: &str,
    flags: &mut BTreeSet<&'static str>,
    values: &mut BTreeMap<&'static str, String>,
) {
    let command = match name {
        _ if name.ends_with(".deb") => format!("dpkg -i {file}"),
        _ if name.ends_with(".rpm") => format!("rpm -U --replacepkgs {file}"),
        _ => {
            flags.insert("archive");
            values.insert("from", file.to_owned());
            return;
        }
    };
    flags.extend(["packed", "package_file"]);
    values.insert("unpack", command);
}

#[cfg(test)]
mod tests;
