//! HTTP proxies: which one the environment names for a URL, and the tunnel through it.
//!
//! The rules are those of Go's `httpproxy`, so that Outrider and Rancher's own agents take the same way: `NO_PROXY`
//! entries are `*`, an IP address, a CIDR, `name` (it and everything below), `.name` and `*.name` (only below), each
//! with an optional port; loopback is never proxied. A CIDR speaks about addresses in URLs, not about what a name
//! resolves to.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{HOST, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT as USER_AGENT_HEADER};
use http::{Method, Request};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use outrider_protocol::UnknownCause;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Failure, USER_AGENT, Url, within};

/// The proxies of a process, read once at its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProxySettings {
    http: Option<Proxy>,
    https: Option<Proxy>,
    no_proxy: NoProxy,
    /// What could not be used as it was written, without credentials; it had no effect.
    pub problems: Vec<String>,
}

/// One proxy.
#[derive(Clone, PartialEq)]
pub struct Proxy {
    /// Where it listens.
    pub url: Url,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({})", self.url)
    }
}

impl ProxySettings {
    /// No proxy.
    pub fn none() -> Self {
        Self::default()
    }

    /// From `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, in capitals or not. Call it once, at the start of the program.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// From variables that `get` knows.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Self {
        let either = |upper: &str| {
            let lower = upper.to_ascii_lowercase();
            [upper, &lower].into_iter().find_map(|name| get(name).filter(|v| !v.trim().is_empty()))
        };
        let mut problems = Vec::new();
        let mut proxy = |name: &str| match Proxy::parse(&either(name)?) {
            Ok(proxy) => Some(proxy),
            Err(why) => {
                problems.push(format!("{name}: {why}"));
                None
            }
        };
        let (http, https) = (proxy("HTTP_PROXY"), proxy("HTTPS_PROXY"));
        let (no_proxy, bad) = NoProxy::parse(&either("NO_PROXY").unwrap_or_default());
        problems
            .extend(bad.into_iter().map(|entry| format!("NO_PROXY: {entry:?} is no name, address or CIDR")));
        Self { http, https, no_proxy, problems }
    }

    /// The proxy to take to `url`.
    pub fn for_url(&self, url: &Url) -> Option<&Proxy> {
        let proxy = if url.tls { self.https.as_ref() } else { self.http.as_ref() }?;
        (!is_loopback(url) && !self.no_proxy.matches(&url.host, url.port)).then_some(proxy)
    }
}

fn is_loopback(url: &Url) -> bool {
    url.host == "localhost" || url.ip().is_some_and(|ip| ip.to_canonical().is_loopback())
}

impl Proxy {
    /// `[http[s]://][user:password@]host[:port]`. The error never repeats the text: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let (scheme, rest) = with_scheme.split_once("://").unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            // What stands in a scheme's place may be the beginning of a password.
            let is_word = scheme.bytes().all(|b| b.is_ascii_alphanumeric()) && scheme.len() <= 8;
            let named = if is_word { scheme } else { "such" };
            return Err(format!("{named} proxies are not supported; give an http or https proxy"));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, authority),
        };
        if path.contains('@') {
            return Err(
                "a user name or password with '/', '?' or '#' in it has to be percent-encoded".to_owned()
            );
        }
        let url = Url::parse(&format!("{scheme}://{host}{path}")).map_err(|e| e.to_string())?;
        let authorization = credentials
            .map(|credentials| {
                let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
                let plain = [percent_decoded(user), b":".to_vec(), percent_decoded(password)].concat();
                let mut value = HeaderValue::try_from(format!("Basic {}", BASE64.encode(plain)))
                    .map_err(|_| "unusable credentials".to_owned())?;
                value.set_sensitive(true);
                Ok::<_, String>(value)
            })
            .transpose()?;
        Ok(Self { url, authorization })
    }

    /// Asks the proxy on `stream` for a tunnel to `target` (`host:port`) within `limit`.
    pub async fn tunnel<S>(
        &self,
        stream: S,
        target: &str,
        limit: Duration,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static + use<S>, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let what = format!("CONNECT {target} at the proxy {}", self.url);
        within(limit, &what, async {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            // Ends with the tunnel: it owns the stream until the upgrade hands it over.
            tokio::spawn(async move { drop(connection.with_upgrades().await) });
            let mut request = Request::builder()
                .method(Method::CONNECT)
                .uri(target)
                .header(HOST, target)
                .header(USER_AGENT_HEADER, USER_AGENT);
            if let Some(authorization) = &self.authorization {
                request = request.header(PROXY_AUTHORIZATION, authorization);
            }
            let request = request
                .body(Empty::<Bytes>::new())
                .map_err(|e| Failure::new(UnknownCause::InvalidInput, e.to_string()))?;
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            if !status.is_success() {
                let cause = match status.as_u16() {
                    407 => UnknownCause::Unauthenticated,
                    403 => UnknownCause::Forbidden,
                    502..=504 => UnknownCause::Unreachable,
                    _ => UnknownCause::InvalidAnswer,
                };
                return Err(Failure::new(cause, format!("the proxy answered {status}")));
            }
            Ok(TokioIo::new(hyper::upgrade::on(answer).await?))
        })
        .await
        .map_err(|failure| match failure.cause {
            UnknownCause::TimedOut => failure,
            _ => failure.during(what),
        })
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let escaped = (bytes[i] == b'%')
            .then(|| text.get(i + 1..i + 3).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit())))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        plain.push(escaped.unwrap_or(bytes[i]));
        i += if escaped.is_some() { 3 } else { 1 };
    }
    plain
}

/// The parsed `NO_PROXY`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoProxy {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Everything,
    Network {
        network: IpAddr,
        prefix: u8,
    },
    Address {
        ip: IpAddr,
        port: Option<u16>,
    },
    /// `below_only`: `.name` and `*.name`.
    Name {
        name: String,
        below_only: bool,
        port: Option<u16>,
    },
}

impl NoProxy {
    /// Reads the comma-separated entries; the second part lists those that mean nothing.
    pub fn parse(text: &str) -> (Self, Vec<String>) {
        let mut rules = Vec::new();
        let mut bad = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
            match Rule::parse(&entry.to_ascii_lowercase()) {
                Some(rule) => rules.push(rule),
                None => bad.push(entry.to_owned()),
            }
        }
        (Self { rules }, bad)
    }

    /// Whether `host` (name, or IP address without brackets) at `port` is reached without a proxy.
    pub fn matches(&self, host: &str, port: u16) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let ip = host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
        self.rules.iter().any(|rule| rule.matches(&host, ip, port))
    }

    /// Whether every address of `network`/`prefix` is reached without a proxy.
    pub fn covers(&self, network: IpAddr, prefix: u8) -> bool {
        self.rules.iter().any(|rule| match rule {
            Rule::Everything => true,
            Rule::Network { network: wider, prefix: shorter } => {
                *shorter <= prefix && in_network(network, *wider, *shorter)
            }
            Rule::Address { .. } | Rule::Name { .. } => false,
        })
    }
}

/// Whether `host` is reached without a proxy by the plain reading, which wget, Python's urllib and curl before 7.86 have:
/// entries set apart by commas or spaces, each the end of a name (with or without a leading dot) or a whole address;
/// neither CIDR nor `*.` nor a port means anything, `*` stands alone (curl: lib/noproxy.c before 7.86).
pub fn plainly_direct(no_proxy: &str, host: &str) -> bool {
    if no_proxy.trim() == "*" {
        return true;
    }
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    no_proxy.split([',', ' ', '\t']).any(|entry| {
        let entry = entry.trim().to_ascii_lowercase();
        let name = entry.strip_prefix('.').unwrap_or(&entry);
        !name.is_empty() && (host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')))
    })
}

impl Rule {
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Rule::Everything);
        }
        if let Some((network, prefix)) = entry.split_once('/') {
            let network: IpAddr = network.parse().ok()?;
            let prefix: u8 = digits(prefix)?;
            return (prefix <= if network.is_ipv4() { 32 } else { 128 })
                .then_some(Rule::Network { network, prefix });
        }
        // Go takes an address in brackets with a port only; alone it is a name that nothing has.
        if let Ok(ip) = entry.parse::<IpAddr>() {
            return Some(Rule::Address { ip: ip.to_canonical(), port: None });
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(digits(port)?)),
            None => (entry, None),
        };
        if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Some(Rule::Address { ip: ip.to_canonical(), port });
        }
        let below = host.strip_prefix("*.").or_else(|| host.strip_prefix('.'));
        let name = below.unwrap_or(host);
        // Go takes the final dot off the host that is asked for and not off the entry, which then fits nothing.
        let usable =
            !name.is_empty() && !name.ends_with('.') && !name.contains(['*', '/', '[', ']', ':', '@']);
        usable.then(|| Rule::Name { name: name.to_owned(), below_only: below.is_some(), port })
    }

    fn matches(&self, host: &str, ip: Option<IpAddr>, port: u16) -> bool {
        let port_fits = |wanted: &Option<u16>| wanted.is_none_or(|p| p == port);
        match self {
            Rule::Everything => true,
            Rule::Network { network, prefix } => ip.is_some_and(|ip| in_network(ip, *network, *prefix)),
            Rule::Address { ip: wanted, port } => ip == Some(*wanted) && port_fits(port),
            Rule::Name { name, below_only, port } => {
                let below = host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'));
                (below || (!below_only && host == name)) && port_fits(port)
            }
        }
    }
}

/// A number of digits alone: Rust would also read `+8`.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn in_network(ip: IpAddr, network: IpAddr, prefix: u8) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            u32::from(ip) & mask == u32::from(network) & mask
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            u128::from(ip) & mask == u128::from(network) & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_proxy_follows_go() {
        for (rules, host, direct) in [
            ("*", "anything", true),
            ("example.com", "example.com", true),
            ("example.com", "a.example.com", true),
            ("example.com", "notexample.com", false),
            (".example.com", "example.com", false),
            (".example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("EXAMPLE.com ", "Example.COM.", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("0.0.0.0/0", "11.1.2.3", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "fe80::1", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("[fd00::1]:6443", "fd00::1", true),
            ("fd00::1", "fd00::1", true),
            ("10.0.0.1:6443", "10.0.0.1", true),
            ("10.0.0.1:443", "10.0.0.1", false),
            ("a.example:6443", "a.example", true),
            ("a.example:443", "a.example", false),
            ("x, y ,example.com", "example.com", true),
            ("", "example.com", false),
        ] {
            let (no_proxy, bad) = NoProxy::parse(rules);
            assert!(bad.is_empty(), "{rules}");
            assert_eq!(no_proxy.matches(host, 6443), direct, "{host} against {rules:?}");
        }
        let (_, bad) = NoProxy::parse("10.0.0.0/33,a*b,ok,host:port,10.0.0/8,10.0.0.0/+8,a:+1,a.,[::1]");
        assert_eq!(
            bad,
            ["10.0.0.0/33", "a*b", "host:port", "10.0.0/8", "10.0.0.0/+8", "a:+1", "a.", "[::1]"]
        );
    }

    #[test]
    fn the_plain_reading_is_another() {
        for (rules, host, direct) in [
            ("*", "anything", true),
            ("*.example.com", "a.example.com", false),
            (".example.com", "example.com", true),
            ("example.com", "a.example.com", true),
            ("example.com", "notexample.com", false),
            ("a.example b.example", "b.example", true),
            ("a.example:443", "a.example", false),
            ("10.0.0.0/8", "10.1.2.3", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("Example.com.", "EXAMPLE.com", false),
            ("", "a", false),
            (",. ,", "a", false),
        ] {
            assert_eq!(plainly_direct(rules, host), direct, "{host} against {rules:?}");
        }
    }

    #[test]
    fn a_network_is_covered_as_a_whole() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (rules, network, prefix, covered) in [
            ("10.0.0.0/8", "10.42.0.0", 16, true),
            ("10.42.0.0/24", "10.42.0.0", 16, false),
            ("10.43.0.0/16", "10.42.0.0", 16, false),
            ("*", "10.42.0.0", 16, true),
            ("0.0.0.0/0", "10.42.0.0", 16, true),
            ("fd00::/8", "fd00:42::", 56, true),
            ("10.42.0.0", "10.42.0.0", 16, false),
        ] {
            assert_eq!(
                NoProxy::parse(rules).0.covers(ip(network), prefix),
                covered,
                "{network}/{prefix} by {rules}"
            );
        }
    }

    fn settings(pairs: &[(&str, &str)]) -> ProxySettings {
        ProxySettings::from_variables(|name| {
            pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn picks_by_scheme_and_never_for_loopback() {
        let settings = settings(&[("https_proxy", "proxy.example:3128"), ("NO_PROXY", "direct.example")]);
        let url = |text: &str| Url::parse(text).unwrap();
        let proxy = settings.for_url(&url("https://c.example")).unwrap();
        assert_eq!(proxy.url, url("http://proxy.example:3128"));
        for direct in [
            "http://c.example",
            "https://direct.example",
            "https://127.0.0.1:1",
            "https://[::1]",
            "https://localhost",
        ] {
            assert_eq!(settings.for_url(&url(direct)), None, "{direct}");
        }
    }

    #[test]
    fn credentials_are_decoded_and_never_shown() {
        let settings = settings(&[("HTTPS_PROXY", "http://us%40er:p%3ass@proxy.example")]);
        let proxy = settings.for_url(&Url::parse("https://c.example").unwrap()).unwrap();
        let expected = format!("Basic {}", BASE64.encode("us@er:p:ss"));
        assert_eq!(proxy.authorization.as_ref().unwrap().to_str().unwrap(), expected);
        let shown = format!("{settings:?}");
        assert!(!shown.contains("ss@") && !shown.contains("Basic"), "{shown}");
    }

    #[test]
    fn an_unusable_proxy_is_a_problem_without_its_password() {
        let settings =
            settings(&[("HTTPS_PROXY", "socks5://u:secret@p:1080"), ("HTTP_PROXY", "u:secret@p:x")]);
        assert_eq!(settings.problems.len(), 2);
        for text in ["http://u:secret/@p:1", "u:secret?x@p", "u:secret://x@p", "secret#@p"] {
            assert!(Proxy::parse(text).is_err_and(|why| !why.contains("secret")), "{text}");
        }
        assert!(settings.problems.iter().all(|p| !p.contains("secret")), "{:?}", settings.problems);
        assert!(settings.for_url(&Url::parse("https://c.example").unwrap()).is_none());
    }

    proptest! {
        #[test]
        fn never_panics(rules in ".*", host in ".*", proxy in ".*") {
            NoProxy::parse(&rules).0.matches(&host, 443);
            let _ = Proxy::parse(&proxy);
        }

        #[test]
        fn an_address_is_in_every_network_made_from_it(bits in any::<u128>(), prefix in 0u8..=128) {
            let ip = std::net::Ipv6Addr::from(bits);
            let (no_proxy, bad) = NoProxy::parse(&format!("{ip}/{prefix}"));
            prop_assert!(bad.is_empty());
            // An IPv4-mapped address is an IPv4 address, which no IPv6 network holds.
            prop_assume!(ip.to_canonical().is_ipv6());
            prop_assert!(no_proxy.matches(&ip.to_string(), 1));
        }
    }
}
