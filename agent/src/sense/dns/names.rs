//! Which names this node depends on, and who says so.

use std::net::IpAddr;

use crate::config::Settings;
use crate::net::{Url, UrlError};
use crate::sense::cluster::Cluster;

use super::idn;

/// Most names; each costs two questions a server and pass.
const MAX_NAMES: usize = 12;

/// A name to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// In lower case, in punycode, without a final dot.
    pub(super) name: String,
    /// As written, where that differs.
    pub(super) written: String,
    pub(super) by: Vec<String>,
    /// Why it cannot be looked up.
    pub(super) problem: String,
}

/// The names, and how many were left out. An address is no name.
pub(super) fn wanted(
    settings: &Settings,
    cluster: &Cluster,
    agent_server: Option<&str>,
) -> (Vec<Wanted>, u32) {
    let balancers = settings.load_balancers.iter();
    let mut asked: Vec<(String, String)> =
        balancers.map(|b| (b.url.clone(), format!("load balancer {}", b.name))).collect();
    asked.extend(settings.coordinator.urls.iter().map(|url| (url.clone(), "the coordinator".to_owned())));
    if let Some(server) = &cluster.server {
        let program = cluster.distribution.as_ref().map_or("kubernetes", |d| d.as_str());
        asked.push((server.clone(), format!("server of {program}")));
    }
    asked.extend(agent_server.map(|server| (server.to_owned(), "rancher-system-agent".to_owned())));
    let names = settings.dns.names.iter();
    asked.extend(names.map(|name| (format!("https://{name}"), "[checks.dns] names".to_owned())));

    let mut found: Vec<Wanted> = Vec::new();
    let mut left_out = 0;
    for (url, by) in asked {
        let Some(mut wanted) = name_of(&url) else { continue };
        if let Some(earlier) = found.iter_mut().find(|earlier| earlier.name == wanted.name) {
            if !earlier.by.contains(&by) {
                earlier.by.push(by);
            }
        } else if found.len() >= MAX_NAMES {
            left_out += 1;
        } else {
            wanted.by.push(by);
            found.push(wanted);
        }
    }
    (found, left_out)
}

/// The name in a URL; none for an address. The text of a URL is not repeated: it may carry a password.
fn name_of(url: &str) -> Option<Wanted> {
    let bare = |name: String| Wanted { name, written: String::new(), by: Vec::new(), problem: String::new() };
    match Url::parse(url) {
        Ok(parsed) if parsed.host.parse::<IpAddr>().is_ok() => None,
        Ok(parsed) => {
            let written = host_part(url);
            let differs = !written.eq_ignore_ascii_case(&parsed.host);
            Some(Wanted { written: if differs { written } else { String::new() }, ..bare(parsed.host) })
        }
        Err(UrlError::NotAscii(..)) => {
            let written = host_part(url);
            let trimmed = written.strip_suffix('.').unwrap_or(&written);
            Some(match idn::to_ascii(trimmed) {
                Ok(name) => Wanted { written, ..bare(name) },
                Err(why) => Wanted { problem: why, ..bare(written) },
            })
        }
        Err(UrlError::Credentials) => {
            let problem = "the URL carries a user name or password".to_owned();
            Some(Wanted { problem, ..bare(host_part(url)) })
        }
        Err(_) => {
            let problem = "there is no usable host name in the URL".to_owned();
            Some(Wanted { problem, ..bare(host_part(url)) })
        }
    }
}

/// Host of a URL as written, at most 253 characters of it.
fn host_part(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = if host.starts_with('[') { host } else { host.split(':').next().unwrap_or_default() };
    host.chars().filter(|c| !c.is_control()).take(253).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_gathered_once_and_addresses_are_none() {
        let mut settings = Settings::default();
        settings.coordinator.urls = vec!["https://R.example:8440".into(), "https://[fd00::1]".into()];
        settings.dns.names = vec!["registry.example".into()];
        let cluster = Cluster { server: Some("https://r.example.:9345".into()), ..Cluster::default() };
        let (names, left_out) = wanted(&settings, &cluster, Some("https://192.0.2.1"));
        assert_eq!(left_out, 0);
        let seen: Vec<(&str, usize)> = names.iter().map(|w| (w.name.as_str(), w.by.len())).collect();
        assert_eq!(seen, [("r.example", 2), ("registry.example", 1)]);
    }

    #[test]
    fn odd_names_are_kept_with_what_is_odd() {
        let dotted = name_of("https://r.example.:9345").unwrap();
        assert_eq!((dotted.name.as_str(), dotted.written.as_str()), ("r.example", "r.example."));
        let idn = name_of("https://bücher.example:9345/x").unwrap();
        assert_eq!((idn.name.as_str(), idn.written.as_str()), ("xn--bcher-kva.example", "bücher.example"));
        let combining = name_of("https://bu\u{308}cher.example").unwrap();
        assert!(combining.problem.contains("punycode"), "{combining:?}");
        let secret = name_of("https://user:s3cret@r.example").unwrap();
        assert!(!format!("{secret:?}").contains("s3cret") && !secret.problem.is_empty());
        assert!(!name_of("nonsense").unwrap().problem.is_empty());
        assert!(name_of("https://10.0.0.1:9345").is_none());
    }

    #[test]
    fn there_is_an_end() {
        let mut settings = Settings::default();
        settings.dns.names = (0..40).map(|i| format!("n{i}.example")).collect();
        let (names, left_out) = wanted(&settings, &Cluster::default(), None);
        assert_eq!((names.len(), left_out), (MAX_NAMES, 40 - MAX_NAMES as u32));
    }
}
