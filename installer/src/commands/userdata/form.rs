//! The form in which userdata is handed over, and the network data beside it.

use outrider_cloud_init::render::{self, Interface, Named, Network};

use super::ours;
use crate::cli::{FormArgs, NetworkArgs, RenderFormat};
use crate::output::UsageError;

/// What was asked for, looked at before anything is made.
pub(super) struct Form<'a> {
    format: RenderFormat,
    named: Named<'a>,
    /// Network data, if it was asked for.
    pub(super) network: Option<String>,
}

impl<'a> Form<'a> {
    pub(super) fn new(args: &'a FormArgs) -> anyhow::Result<Self> {
        let network = network(&args.network)?;
        let format = args.format;
        if matches!(format, RenderFormat::Userdata | RenderFormat::Base64) && network.is_some() {
            let message = "network data is a document of its own: ask for it with --format network, or for both \
                           with secret, rancher-machine-pool or terraform";
            return Err(UsageError(message.to_owned()).into());
        }
        let default = if format == RenderFormat::RancherMachinePool { "fleet-default" } else { "default" };
        let namespace = args.namespace.as_deref().unwrap_or(default);
        let named =
            Named { name: object_name("name", &args.name)?, namespace: object_name("namespace", namespace)? };
        Ok(Self { format, named, network })
    }

    /// `userdata`, with the network data where the form has a place for it.
    pub(super) fn of(&self, userdata: String) -> String {
        let network = self.network.as_deref();
        match self.format {
            RenderFormat::Base64 => render::base64(&userdata),
            RenderFormat::Secret => render::secret(self.named, &userdata, network),
            RenderFormat::RancherMachinePool => render::machine_pool(self.named, &userdata, network),
            RenderFormat::Terraform => render::terraform(self.named, &userdata, network),
            RenderFormat::Userdata | RenderFormat::Network => userdata,
        }
    }
}

/// A name that Kubernetes takes (RFC 1123).
fn object_name<'a>(option: &str, name: &'a str) -> anyhow::Result<&'a str> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if name.len() <= 253 && name.chars().all(inner) && ends(name.chars().next()) && ends(name.chars().last())
    {
        return Ok(name);
    }
    let message =
        format!("--{option}: {name:?} is no name of an object: lower-case letters, digits, - and .");
    Err(UsageError(message).into())
}

/// The network data that was asked for, if it was.
fn network(args: &NetworkArgs) -> anyhow::Result<Option<String>> {
    let interface = match (&args.mac, &args.interface) {
        (Some(mac), _) => Interface::Mac(mac.clone()),
        (None, Some(name)) => Interface::Name(name.clone()),
        (None, None) => {
            let rest = args.gateway.len() + args.nameserver.len() + args.address.len() + args.search.len();
            if rest > 0 {
                let message = "network data needs its interface: --mac or --interface";
                return Err(UsageError(message.to_owned()).into());
            }
            return Ok(None);
        }
    };
    let network = Network {
        interface,
        addresses: args.address.clone(),
        gateways: args.gateway.clone(),
        nameservers: args.nameserver.clone(),
        search: args.search.clone(),
    };
    network.render().map(Some).map_err(|problems| ours::refused(&problems))
}
