//! `outrider userdata` as people type it.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use outrider_cloud_init::render::Profile;
use outrider_cloud_init::{Field, Platform, Version};

use super::node::NodeArgs;
use crate::output::{Format, FormatParser};

#[derive(Debug, Args)]
pub(crate) struct UserdataArgs {
    #[command(subcommand)]
    pub(crate) command: UserdataCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserdataCommand {
    /// Find what cloud-init would ignore, drop or misread, with its place and the cure
    ///
    /// Ends with 1 when something is an error, and with --strict also for a warning. Every finding names the releases of
    /// cloud-init it concerns. Secrets are told by their kind and place, never shown.
    Lint(UserdataLintArgs),
    /// Add ours to theirs: one cloud-config, with everything that was there as it was written
    ///
    /// Each FILE is added to those before it: lists are appended to without duplicates, mappings key by key; comments and
    /// untouched values stay as they are. In runcmd what is added goes before Rancher's script, which stays last. A
    /// multipart is taken apart. With --profile, or with one FILE, what `render` makes is added at the end (without
    /// --profile that of harvester-vm). Merging the result again changes nothing. What two files set differently, and
    /// what cannot be added to safely, is refused with its place.
    Merge(Box<UserdataMergeArgs>),
    /// Write userdata that makes a machine a node: guest agent, agent, its configuration and token
    ///
    /// Nothing in it waits while the machine boots. Without --agent the image is taken to hold the agent.
    Render(Box<UserdataRenderArgs>),
}

/// What is to be ours.
#[derive(Debug, Default, Args)]
pub(crate) struct OursArgs {
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// Load balancer in front of Rancher that the node watches (profiles rancher-ha-server, rancher-ha-agent, k3s-server)
    #[arg(long, value_name = "URL")]
    pub(crate) load_balancer: Option<String>,
    /// Where the agent comes from: image (installed there), package or package:NAME (of a repository the image knows, or --repo),
    /// coordinator or coordinator:tar|deb|rpm (the first coordinator serves it, and is asked now for its SHA-256), the path of
    /// a .tar.gz, .deb or .rpm in the image, or the https URL of one, in which {arch} is what `uname -m` says. At the
    /// coordinator's own host and port the CA is the one that the token pins, and the token is shown [default: image]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) agent: Option<String>,
    /// SHA-256 of what is downloaded; of several architectures each as x86_64=HEX. With --agent coordinator nobody is asked then
    #[arg(long, value_name = "[ARCH=]HEX")]
    pub(crate) sha256: Vec<String>,
    /// Signed repository that `--agent package` comes from, as packaging/repository makes it (below the URL deb/ for apt, rpm/ for
    /// zypper and dnf): the document sets it up, for every family, and installs from it
    #[arg(long, value_name = "URL", requires = "repo_key")]
    pub(crate) repo: Option<String>,
    /// Its public key in ASCII armour: a file, which goes into the document, or a URL and the SHA-256 of what lies there
    #[arg(long, value_name = "FILE|URL#SHA256", requires = "repo")]
    pub(crate) repo_key: Option<String>,
    /// Where the QEMU guest agent comes from: package, image, the path of a .deb or .rpm in the image, or none
    /// [default: package; none for eksa-node and eksa-admin]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) guest_agent: Option<String>,
}

impl OursArgs {
    /// Whether any of it was given.
    pub(crate) fn given(&self) -> bool {
        let options = [&self.load_balancer, &self.agent, &self.repo, &self.repo_key, &self.guest_agent];
        self.node.given() || options.iter().any(|option| option.is_some()) || !self.sha256.is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct UserdataMergeArgs {
    /// Userdata, theirs first; - reads standard input
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Add what `render` makes for this profile
    #[arg(long, value_name = "PROFILE", value_parser = profile())]
    pub(crate) profile: Option<Profile>,
    #[command(flatten)]
    pub(crate) ours: OursArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

/// How userdata is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RenderFormat {
    /// The document itself
    Userdata,
    /// For a field that is decoded once, such as userDataBase64
    Base64,
    /// A Kubernetes Secret with the keys userdata and networkdata
    Secret,
    /// userData and networkData of a Rancher machine pool on Harvester (HarvesterConfig)
    RancherMachinePool,
    /// Terraform: a local and a harvester_cloudinit_secret
    Terraform,
    /// Network data alone, for what --mac or --interface names
    Network,
}

#[derive(Debug, Args)]
pub(crate) struct UserdataRenderArgs {
    /// What the machine is; only --format network does without
    #[arg(long, value_name = "PROFILE", value_parser = profile(), required_unless_present_any = ["mac", "interface"])]
    pub(crate) profile: Option<Profile>,
    #[command(flatten)]
    pub(crate) ours: OursArgs,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

/// Form and place of the output.
#[derive(Debug, Args)]
pub(crate) struct FormArgs {
    /// Form of the output
    #[arg(long, value_name = "FORMAT", default_value = "userdata")]
    pub(crate) format: RenderFormat,
    /// Name of the object that secret, rancher-machine-pool and terraform make
    #[arg(long, value_name = "NAME", default_value = "outrider-userdata")]
    pub(crate) name: String,
    /// Its namespace [default: default; fleet-default for rancher-machine-pool]
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Write to this file (mode 0600) instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,
}

/// Network data of one interface.
#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// MAC address of the interface that network data sets up; the same outside and inside the guest
    #[arg(long, value_name = "MAC", conflicts_with = "interface", help_heading = "Network data")]
    pub(crate) mac: Option<String>,
    /// Its name in the guest instead, which differs between images (eth0, enp1s0)
    #[arg(long, value_name = "NAME", help_heading = "Network data")]
    pub(crate) interface: Option<String>,
    /// Address with its prefix, such as 192.0.2.10/24; may be repeated [default: DHCP]
    #[arg(long, value_name = "CIDR", help_heading = "Network data")]
    pub(crate) address: Vec<String>,
    /// Gateway; one a family
    #[arg(long, value_name = "IP", help_heading = "Network data")]
    pub(crate) gateway: Vec<std::net::IpAddr>,
    /// Name server; may be repeated
    #[arg(long, value_name = "IP", help_heading = "Network data")]
    pub(crate) nameserver: Vec<std::net::IpAddr>,
    /// Search domain; may be repeated
    #[arg(long, value_name = "DOMAIN", help_heading = "Network data")]
    pub(crate) search: Vec<String>,
}

fn profile() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(Profile::all().map(Profile::as_str)).try_map(|name| Profile::from_str(&name))
}

/// Where userdata lies in a VM's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FieldArg {
    /// userData: plain text
    Plain,
    /// userDataBase64: encoded once
    Base64,
    /// A Secret that the spec refers to
    Secret,
}

impl From<FieldArg> for Field {
    fn from(field: FieldArg) -> Self {
        match field {
            FieldArg::Plain => Field::Plain,
            FieldArg::Base64 => Field::Base64,
            FieldArg::Secret => Field::Secret,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct UserdataLintArgs {
    /// The userdata; - reads standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Who takes it: its limits and habits are held against the document
    #[arg(long, value_name = "PLATFORM", value_parser = platform())]
    pub(crate) platform: Option<Platform>,
    /// Where it lies in a VM's spec; base64 is decoded, and what counts is what it decodes to
    #[arg(long, value_name = "FIELD")]
    pub(crate) field: Option<FieldArg>,
    /// The image's release of cloud-init, such as 22.4.2: what does not concern it is left out
    #[arg(long = "cloud-init", value_name = "VERSION", value_parser = Version::from_str)]
    pub(crate) cloud_init: Option<Version>,
    /// Ask `cloud-init schema` as well, where it is installed, and tell where the two differ
    #[arg(long)]
    pub(crate) verify: bool,
    /// End with 1 for a warning too
    #[arg(long)]
    pub(crate) strict: bool,
    /// How the findings are printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = FormatParser::SHOW)]
    pub(crate) output: Format,
}

/// The platforms by name; a few other names are understood and not listed.
fn platform() -> impl TypedValueParser<Value = Platform> {
    let names = Platform::names().map(clap::builder::PossibleValue::new);
    let aliases = [("aws", "ec2"), ("gce", "gcp"), ("rancher-machine", "rancher"), ("vmware", "vsphere")];
    let values: Vec<_> = names
        .map(|value| {
            let alias = aliases.iter().find(|(name, _)| *name == value.get_name()).map(|(_, alias)| *alias);
            match alias {
                Some(alias) => value.alias(alias),
                None => value,
            }
        })
        .collect();
    PossibleValuesParser::new(values).try_map(|name| Platform::from_str(&name))
}
