//! Network data for NoCloud: version 2 without the wrapper `network:`, which is not taken everywhere
//! (`facts/cloud-init.md`, section 9).

use std::net::IpAddr;

use super::Problem;

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
            Interface::Name(name) => out.push_str(&format!("  {name}:\n")),
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
            self.search.iter().for_each(|domain| out.push_str(&format!("        - {domain}\n")));
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
                }
            }
            Interface::Name(name) => {
                let fine = (1..=15).contains(&name.len()) && super::plain(name, "-_.");
                if !fine || crate::scalar::meaning(name) != crate::scalar::Meaning::Text {
                    out.push(Problem::new("interface", format!("{name:?} is no name of an interface")));
                }
            }
        }
        for address in &self.addresses {
            let parts = address.split_once('/');
            let ip =
                parts.and_then(|(ip, bits)| Some((ip.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?)));
            if ip.is_none_or(|(ip, bits)| bits > if ip.is_ipv4() { 32 } else { 128 }) {
                let message = format!("{address:?} is no address with its prefix, such as 192.0.2.10/24");
                out.push(Problem::new("address", message));
            }
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
