//! `resolv.conf` and the hosts file as glibc reads them (resolv.conf(5), hosts(5)).

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use outrider_protocol::{Fact, ResolvConf};

use crate::sense::{SenseContext, file};

/// Most search domains and servers that are kept: Kubernetes takes 32 domains, glibc three servers.
const MAX: usize = 32;
/// Servers glibc asks (MAXNS).
pub(super) const ASKED: usize = 3;

/// Reads the file at `path`.
pub(super) fn read(cx: &SenseContext, path: &str) -> Fact<ResolvConf> {
    match file::read_text(&cx.path(path), file::SMALL) {
        Ok(text) => Fact::known(parse(path, &text), path, cx.now()),
        Err(e) => Fact::from_io(&e, path, cx.now()),
    }
}

/// What `text` says; a directive counts only at the beginning of its line.
pub fn parse(path: &str, text: &str) -> ResolvConf {
    let mut conf = ResolvConf {
        path: path.to_owned(),
        ndots: 1,
        timeout_seconds: 5,
        attempts: 2,
        ..ResolvConf::default()
    };
    for (number, line) in text.lines().enumerate() {
        let mut problem = |what: String| {
            if conf.problems.len() < 4 {
                conf.problems.push(format!("line {}: {what}", number + 1));
            }
        };
        let mut words = line.split_whitespace();
        let Some(keyword) = words.next().filter(|_| !line.starts_with(['#', ';'])) else { continue };
        match keyword {
            "nameserver" | "search" | "domain" | "options" if line.starts_with(char::is_whitespace) => {
                problem(format!("{keyword} is indented, so that glibc does not see it"));
            }
            "nameserver" => match words.next() {
                Some(word) if server(word, 53).is_some() && conf.nameservers.len() < MAX => {
                    conf.nameservers.push(word.to_owned());
                }
                Some(word) if server(word, 53).is_none() => {
                    problem(format!("{} is no address", file::excerpt(word)));
                }
                Some(_) => {}
                None => problem("nameserver without an address".to_owned()),
            },
            // The last of both kinds counts.
            "search" | "domain" => {
                let most = if keyword == "domain" { 1 } else { MAX };
                let domains = words.map(|w| w.trim_end_matches('.').to_ascii_lowercase());
                conf.search = domains.filter(|w| !w.is_empty()).take(most).collect();
            }
            "options" => {
                for word in words {
                    let value = |name: &str, most: u32| {
                        let digits = word.strip_prefix(name)?.strip_prefix(':')?;
                        digits.parse::<u32>().ok().map(|n| n.min(most))
                    };
                    conf.ndots = value("ndots", 15).unwrap_or(conf.ndots);
                    conf.timeout_seconds = value("timeout", 30).unwrap_or(conf.timeout_seconds);
                    conf.attempts = value("attempts", 5).unwrap_or(conf.attempts);
                }
            }
            _ => {}
        }
    }
    conf
}

/// The socket address of a `nameserver`, which may have a zone (`fe80::1%eth0`).
pub(super) fn server(word: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(ip) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, port));
    }
    let (ip, zone) = word.split_once('%')?;
    let ip: Ipv6Addr = ip.parse().ok()?;
    let index = zone.parse().ok().or_else(|| nix::net::if_::if_nametoindex(zone).ok())?;
    Some(SocketAddrV6::new(ip, port, 0, index).into())
}

/// Addresses that the hosts file `text` has for `name`, in its order.
pub fn hosts(text: &str, name: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(ip) = words.next().and_then(|word| word.split('%').next()?.parse::<IpAddr>().ok()) else {
            continue;
        };
        let is_it = words.any(|word| word.eq_ignore_ascii_case(name));
        if is_it && found.len() < MAX && !found.contains(&ip.to_string()) {
            found.push(ip.to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_search_counts_and_what_glibc_ignores_is_told() {
        let conf = parse(
            "/etc/resolv.conf",
            "# by hand\n; also\ndomain old.example\nnameserver 10.0.0.2 # office\nnameserver dns.example\n\
             search Corp.Example. example\n  nameserver 10.0.0.9\noptions ndots:5 timeout:99 attempts:1 rotate ndots:x\n\
             nameserver\nnameserver fd00::53\nsortlist 1\n",
        );
        assert_eq!(conf.nameservers, ["10.0.0.2", "fd00::53"]);
        assert_eq!(conf.search, ["corp.example", "example"]);
        assert_eq!((conf.ndots, conf.timeout_seconds, conf.attempts), (5, 30, 1));
        assert_eq!(conf.problems.len(), 3, "{:?}", conf.problems);
        assert!(conf.problems[0].starts_with("line 5") && conf.problems[1].contains("indented"));
        let plain = parse("", "");
        assert_eq!((plain.ndots, plain.timeout_seconds, plain.attempts), (1, 5, 2));
    }

    #[test]
    fn servers_may_have_a_zone() {
        assert_eq!(server("10.0.0.1", 53), "10.0.0.1:53".parse().ok());
        assert_eq!(server("::1", 5353), "[::1]:5353".parse().ok());
        assert!(
            server("fe80::1%1", 53).is_some_and(|s| matches!(s, SocketAddr::V6(v6) if v6.scope_id() == 1))
        );
        assert_eq!(server("10.0.0.1:53", 53), None);
    }

    #[test]
    fn the_hosts_file_is_read_by_name_and_alias() {
        let text = "127.0.0.1 localhost\n127.0.1.1\tRancher.Example rancher\n#10.0.0.1 rancher.example\n\
                    10.0.0.2 other rancher.example # twice\nbad rancher.example\nfe80::1%eth0 rancher.example\n";
        assert_eq!(hosts(text, "rancher.example"), ["127.0.1.1", "10.0.0.2", "fe80::1"]);
        assert!(hosts(text, "rancher.example.").is_empty());
        assert!(hosts(text, "example").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic_and_bounded(text in "[ -~\\n\\t\u{e9}]{0,400}") {
            let conf = parse("x", &text);
            prop_assert!(conf.nameservers.len() <= MAX && conf.search.len() <= MAX && conf.problems.len() <= 4);
            let _ = hosts(&text, "a");
        }
    }
}
