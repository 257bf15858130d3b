//! The names a coordinator answers to: what stands in its certificate, and the one in its URL.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Names for the certificate: what was given, what is listened on, and this machine's own.
pub(crate) fn certificate_names(given: &[String], listening: &[SocketAddr]) -> Vec<String> {
    let mut names: BTreeSet<String> = given.iter().cloned().collect();
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    for address in listening {
        if address.ip().is_unspecified() {
            names.extend(own_addresses().map(|ip| ip.to_string()));
            names.extend(host_name());
        } else {
            names.insert(address.ip().to_string());
        }
    }
    names.into_iter().collect()
}

/// Where people and agents reach it: the first given name, else the address that is listened on, else the host's name.
pub(crate) fn url(given: &[String], listening: &[SocketAddr]) -> String {
    let first = listening.first();
    let port = first.map_or(super::options::DEFAULT_PORT, SocketAddr::port);
    let listened = first.map(SocketAddr::ip).filter(|ip| !ip.is_unspecified());
    let host = match (given.first(), listened) {
        (Some(name), _) => name.clone(),
        (None, Some(ip)) => ip.to_string(),
        (None, None) => host_name().unwrap_or_else(|| "localhost".to_owned()),
    };
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => format!("https://[{ip}]:{port}"),
        _ => format!("https://{host}:{port}"),
    }
}

/// How this machine itself reaches what listens on `address`.
pub(crate) fn local(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

/// The host's name, where it can stand in a certificate.
fn host_name() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    rustls_pki_types::DnsName::try_from(name.as_str()).is_ok().then_some(name)
}

fn own_addresses() -> impl Iterator<Item = IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().inspect_err(|error| {
        log::warn!(
            "this machine's addresses cannot be read ({error}); give those it is reached by with --name"
        );
    });
    interfaces.into_iter().flatten().filter_map(|interface| {
        let address = interface.address?;
        if let Some(v4) = address.as_sockaddr_in() {
            return Some(IpAddr::V4(v4.ip()));
        }
        let v6 = address.as_sockaddr_in6()?.ip();
        // A link-local address needs a scope, which no certificate can carry.
        (!v6.is_unicast_link_local()).then_some(IpAddr::V6(v6))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_prefers_what_was_given() {
        let loopback: SocketAddr = "127.0.0.1:8440".parse().unwrap();
        assert_eq!(url(&[], &[loopback]), "https://127.0.0.1:8440");
        assert_eq!(url(&["fleet.example".into()], &[loopback]), "https://fleet.example:8440");
        assert_eq!(url(&[], &["[::1]:1".parse().unwrap()]), "https://[::1]:1");
        assert_eq!(url(&["2001:db8::1".into()], &[loopback]), "https://[2001:db8::1]:8440");
    }

    #[test]
    fn a_loopback_certificate_names_the_loopback_only() {
        let names = certificate_names(&["fleet.example".into()], &["127.0.0.1:0".parse().unwrap()]);
        assert_eq!(names, ["127.0.0.1", "::1", "fleet.example", "localhost"]);
    }
}
