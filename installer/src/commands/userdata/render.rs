//! `outrider userdata render`.

use outrider_cloud_init::render::{self, Interface, Named, Network};

use super::{deliver, ours};
use crate::cli::{NetworkArgs, RenderFormat, UserdataRenderArgs};
use crate::exit::Exit;
use crate::output::{Screen, UsageError};

/// Runs the command.
pub(super) async fn run(args: &UserdataRenderArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let network = network(&args.network)?;
    let text = match (args.format, args.profile) {
        (RenderFormat::Network, _) => network.ok_or_else(|| {
            UsageError("--format network: name the interface with --mac or --interface".to_owned())
        })?,
        (_, None) => return Err(UsageError("--profile: say what the machine is".to_owned()).into()),
        (format, Some(profile)) => {
            let userdata = ours::rendered(profile, &args.ours).await?;
            let default =
                if format == RenderFormat::RancherMachinePool { "fleet-default" } else { "default" };
            let namespace = args.namespace.as_deref().unwrap_or(default);
            let named = Named {
                name: object_name("name", &args.name)?,
                namespace: object_name("namespace", namespace)?,
            };
            let network = network.as_deref();
            match format {
                RenderFormat::Userdata | RenderFormat::Base64 if network.is_some() => {
                    let message = "network data is a document of its own: ask for it with --format network, or for both \
                                   with secret, rancher-machine-pool or terraform";
                    return Err(UsageError(message.to_owned()).into());
                }
                RenderFormat::Base64 => render::base64(&userdata),
                RenderFormat::Secret => render::secret(named, &userdata, network),
                RenderFormat::RancherMachinePool => render::machine_pool(named, &userdata, network),
                RenderFormat::Terraform => render::terraform(named, &userdata, network),
                RenderFormat::Userdata | RenderFormat::Network => userdata,
            }
        }
    };
    deliver(&text, args.out.as_deref(), screen)?;
    Ok(Exit::Ok)
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
