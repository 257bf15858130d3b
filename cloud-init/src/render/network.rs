//! Network data for NoCloud: version 2 without the wrapper `network:`, which is not taken everywhere
//! (`facts/cloud-init.md`, section 9).

use std::net::IpAddr;

use super::{Problem, quote};

/// How the interface is found in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// By its MAC address, which is the same outside and inside.
    Mac(String),
    /// By its name in the guest, which differs between images (`eth0`, `enp1s0`).
    Name(String),
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Which.
    pub interface: Interface,
    /// Addresses with their prefix; none: DHCP.
    pub addresses: Vec<String>,
    /// Gateways, one a family.
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    pub nameservers: Vec<IpAddr>,
    /// Search domains.
    pub search: Vec<String>,
}

impl Network {
    /// The document, or every reason why not.
    pub fn render(&self) -> Result<String, Vec<Problem>> {
        let problems = self.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut out = "version: 2\nethernets:\n".to_owned();
        match &self.interface {
            Interface::Mac(mac) => {
                let mac = mac.to_ascii_lowercase().replace('-', ":");
                out.push_str(&format!("  nic0:\n    match:\n      macaddress: '{mac}'\n"));
            }
            Interface::Name(name) => out.push_str(&format!("  {}:\n", quote::yaml(name))),
        }
        if self.addresses.is_empty() {
            out.push_str("    dhcp4: true\n");
        } else {
            out.push_str("    dhcp4: false\n    addresses:\n");
            self.addresses.iter().for_each(|address| out.push_str(&format!("      - '{address}'\n")));
        }
        if !self.gateways.is_empty() {
            out.push_str("    routes:\n");
        }
        for gateway in &self.gateways {
            // `default` is not understood by every release; the prefix is.
            let to = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            out.push_str(&format!("      - to: '{to}'\n        via: '{gateway}'\n"));
        }
        if !self.nameservers.is_empty() || !self.search.is_empty() {
            out.push_str("    nameservers:\n");
        }
        if !self.nameservers.is_empty() {
            out.push_str("      addresses:\n");
            self.nameservers.iter().for_each(|server| out.push_str(&format!("        - '{server}'\n")));
        }
        if !self.search.is_empty() {
            out.push_str("      search:\n");
            self.search
                .iter()
                .for_each(|domain| out.push_str(&format!("        - {}\n", quote::yaml(domain))));
        }
        Ok(out)
    }

    fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        match &self.interface {
            Interface::Mac(mac) => {
                let parts: Vec<&str> = mac.split([':', '-']).collect();
                let hex = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
                if parts.len() != 6 || !parts.iter().all(hex) {
                    out.push(Problem::new(
                        "mac",
                        format!("{mac:?} is no MAC address such as 52:54:00:12:34:56"),
                    ));
                } else if u8::from_str_radix(parts[0], 16).is_ok_and(|first| first & 1 == 1) {
                    let message = format!(
                        "{mac:?} is the address of a group (its first number is odd), which no interface has"
                    );
                    out.push(Problem::new("mac", message));
                }
            }
            Interface::Name(name) => {
                let fine = (1..=15).contains(&name.len()) && super::plain(name, "-_.");
                if !fine || crate::scalar::meaning(name) != crate::scalar::Meaning::Text {
                    out.push(Problem::new("interface", format!("{name:?} is no name of an interface")));
                }
            }
        }
        let mut subnets = Vec::new();
        for address in &self.addresses {
            match Subnet::read(address) {
                Err(message) => out.push(Problem::new("address", message)),
                Ok(subnet) => subnets.push(subnet),
            }
        }
        if subnets.len() == self.addresses.len() && !subnets.is_empty() {
            let outside = self.gateways.iter().filter(|gateway| !reaches(&subnets, **gateway));
            out.extend(outside.map(|gateway| {
                let message = format!(
                    "{gateway} lies in the subnet of none of the addresses, or is one of them; nothing would get out"
                );
                Problem::new("gateway", message)
            }));
        }
        if !self.gateways.is_empty() && self.addresses.is_empty() {
            out.push(Problem::new("gateway", "DHCP brings its own; give an address too, or leave it out"));
        }
        for domain in self.search.iter().filter(|domain| !super::plain(domain, "-.")) {
            out.push(Problem::new("search", format!("{domain:?} is no domain")));
        }
        out
    }
}

/// An address with the network it is in.
struct Subnet {
    address: IpAddr,
    /// Bits behind the prefix.
    host_bits: u32,
}

impl Subnet {
    /// Reads `address/prefix`, which a host can have; refused in words.
    fn read(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no address with its prefix, such as 192.0.2.10/24");
        let (address, prefix) = text.split_once('/').ok_or_else(refuse)?;
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let prefix: u32 = prefix.parse().map_err(|_| refuse())?;
        let width: u32 = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = width.checked_sub(prefix).ok_or_else(refuse)?;
        let subnet = Self { address, host_bits };
        if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            return Err(format!("{text:?} is no address that an interface of a machine has"));
        }
        // With one bit or none there is no network and no broadcast address (RFC 3021, RFC 6164).
        let (host, ones) = (bits(address) & !subnet.mask(), !subnet.mask());
        if host_bits > 1 && (host == 0 || (address.is_ipv4() && host == ones)) {
            return Err(format!(
                "{text:?} is the address of the network itself, or its broadcast; give the host's own"
            ));
        }
        Ok(subnet)
    }

    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(self.host_bits).unwrap_or(0)
    }

    fn holds(&self, other: IpAddr) -> bool {
        self.address.is_ipv4() == other.is_ipv4()
            && self.address != other
            && bits(self.address) & self.mask() == bits(other) & self.mask()
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// Whether a gateway is a neighbour: in one of the subnets, or one of the link's own.
fn reaches(subnets: &[Subnet], gateway: IpAddr) -> bool {
    let own = subnets.iter().any(|subnet| subnet.address == gateway);
    let link = matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local());
    !own && (link || subnets.iter().any(|subnet| subnet.holds(gateway)))
}
