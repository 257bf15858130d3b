//! Names as programs of this machine resolve them, and the way to the addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Instant;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use outrider_protocol::{AddressWay, Fact, HostAnswer, UnknownCause};

use crate::sense::SenseContext;

/// Most addresses that are kept.
const MAX: usize = 32;
const SOURCE: &str = "getaddrinfo(3)";

/// One lookup as glibc does it: nsswitch, hosts file, search domains, both families. Blocks for as long as it takes,
/// which is bounded by `resolv.conf` alone.
pub(super) fn lookup(cx: &SenseContext, name: &str) -> Fact<HostAnswer> {
    let start = Instant::now();
    // Without AI_ADDRCONFIG: what the resolver knows, not what this machine has a use for.
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    match getaddrinfo(Some(name), None, Some(hints)) {
        Ok(found) => {
            let mut addresses: Vec<String> = Vec::new();
            for info in found.flatten() {
                let ip = info.sockaddr.ip().to_string();
                if addresses.len() < MAX && !addresses.contains(&ip) {
                    addresses.push(ip);
                }
            }
            let ms = u32::try_from(start.elapsed().as_millis()).unwrap_or(u32::MAX);
            Fact::known(HostAnswer { addresses, ms }, SOURCE, cx.now())
        }
        Err(error) => match error.kind() {
            LookupErrorKind::NoName | LookupErrorKind::NoData => Fact::absent(SOURCE, cx.now()),
            LookupErrorKind::Again => {
                let detail = "no server gave an answer (EAI_AGAIN: a time-out, or SERVFAIL)";
                Fact::unknown(UnknownCause::NameNotResolved, detail, SOURCE, cx.now())
            }
            _ => {
                let detail = std::io::Error::from(error).to_string();
                Fact::unknown(UnknownCause::NameNotResolved, detail, SOURCE, cx.now())
            }
        },
    }
}

/// The way to `address`: the kernel says which of our addresses packets would carry. Nothing is sent.
pub(super) fn way(cx: &SenseContext, address: &str) -> AddressWay {
    let source = "connect(2) of a UDP socket";
    let from = match address.parse::<IpAddr>() {
        Ok(ip) => match route(ip) {
            Ok(from) => Fact::known(from.to_string(), source, cx.now()),
            Err(e) if no_route(&e) => Fact::absent(format!("{source}: {e}"), cx.now()),
            Err(e) => Fact::from_io(&e, source, cx.now()),
        },
        Err(_) => Fact::unknown(UnknownCause::InvalidAnswer, "no address", source, cx.now()),
    };
    AddressWay { address: address.to_owned(), from }
}

fn route(ip: IpAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((ip, 443))?;
    Ok(socket.local_addr()?.ip())
}

/// The kernel has no route, or no such family, or no address of it to send from.
fn no_route(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error();
    [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL]
        .iter()
        .any(|known| errno == Some(*known))
}

#[cfg(test)]
mod tests {
    use super::super::super::prepared::Machine;
    use super::*;

    #[test]
    fn localhost_is_found_and_a_name_that_cannot_exist_is_not_there() {
        let cx = Machine::new().cx();
        let found = lookup(&cx, "localhost");
        assert!(found.value().is_some_and(|a| a.addresses.iter().any(|ip| ip == "127.0.0.1" || ip == "::1")));
        // Without any server it is "again"; with one it does not exist. It is never known.
        assert!(lookup(&cx, "outrider-test.invalid").value().is_none());
    }

    #[test]
    fn the_way_to_ourselves_is_from_ourselves() {
        let cx = Machine::new().cx();
        assert_eq!(way(&cx, "127.0.0.1").from.value().map(String::as_str), Some("127.0.0.1"));
        assert!(matches!(way(&cx, "x").from, Fact::Unknown { .. }));
    }
}
