//! Splitting `http(s)://host[:port][/path]`, with clear texts for what cannot be used.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// An `http` or `https` address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Url {
    /// `https`.
    pub tls: bool,
    /// Name or IP address, without brackets, in lower case.
    pub host: String,
    /// Port; 443 or 80 when left out.
    pub port: u16,
    /// Path and query, starting with `/`.
    pub path: String,
}

/// What is wrong with an address; the text never repeats credentials, nor a query, which may be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not `http://` or `https://`.
    #[error("{0:?} does not start with http:// or https://")]
    Scheme(String),
    /// `user:password@`.
    #[error("the URL carries a user name or password; give it without")]
    Credentials,
    /// An IPv6 address that is not in brackets.
    #[error("{text:?} has an IPv6 address without brackets; write {instead:?}")]
    Unbracketed {
        /// As written.
        text: String,
        /// How it should have been written.
        instead: String,
    },
    /// Neither a name nor an address.
    #[error("{0:?} has no usable host name or address")]
    Host(String),
    /// A name with letters that DNS does not have.
    #[error("the host name in {0:?} has {1:?} in it; write such a name as DNS has it, in punycode (xn--…)")]
    NotAscii(String, char),
    /// Not a number from 1 to 65535.
    #[error("{0:?} has no usable port: give a number from 1 to 65535")]
    Port(String),
    /// Spaces or control characters.
    #[error("{0:?} has spaces or control characters in it")]
    Characters(String),
}

impl Url {
    /// Splits `text`.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let shown = &without_query(text);
        let (tls, rest) = match (strip_scheme(text, "https://"), strip_scheme(text, "http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            // Without a scheme there may be credentials in front of an @; do not repeat them.
            _ if text.contains('@') => return Err(UrlError::Credentials),
            _ => return Err(UrlError::Scheme(shown.clone())),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::Credentials);
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(UrlError::Characters(shown.clone()));
        }
        let (host, port) = split_authority(shown, tls, authority)?;
        // A fragment is for the client alone and never sent.
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { tls, host, port, path })
    }

    /// The same server, another path.
    pub fn with_path(&self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }

    /// `host[:port]` as in a `Host` header: IPv6 in brackets, no default port.
    pub fn authority(&self) -> String {
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => bracketed(&self.host),
            (_, port) => format!("{}:{port}", bracketed(&self.host)),
        }
    }

    /// `host:port`, IPv6 in brackets.
    pub fn host_and_port(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }

    /// The host as an IP address, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path == "/" { "" } else { &self.path };
        write!(f, "{}://{}{path}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

/// `text` for people and for facts: what follows a `?` or a `#` is often a secret (a token, a code of a login).
pub fn without_query(text: &str) -> String {
    match text.find(['?', '#']) {
        Some(at) => format!("{}{}…", &text[..at], &text[at..=at]),
        None => text.to_owned(),
    }
}

fn strip_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let head = text.get(..scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then(|| &text[scheme.len()..])
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn split_authority(text: &str, tls: bool, authority: &str) -> Result<(String, u16), UrlError> {
    let bad_host = || UrlError::Host(text.to_owned());
    let (host, port) = if let Some(inner) = authority.strip_prefix('[') {
        let (host, after) = inner.split_once(']').ok_or_else(bad_host)?;
        let address: Ipv6Addr = host.parse().map_err(|_| bad_host())?;
        let port = match after {
            "" => None,
            _ => Some(after.strip_prefix(':').ok_or_else(bad_host)?),
        };
        (address.to_string(), port)
    } else if authority.matches(':').count() > 1 {
        return Err(unbracketed(text, tls, authority));
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        if let Some(foreign) = host.chars().find(|c| !c.is_ascii()) {
            return Err(UrlError::NotAscii(text.to_owned(), foreign));
        }
        (usable_name(host).ok_or_else(bad_host)?, port)
    };
    let port = match port {
        None => {
            if tls {
                443
            } else {
                80
            }
        }
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits.parse().ok().filter(|p| *p != 0).ok_or_else(|| UrlError::Port(text.to_owned()))?
        }
        Some(_) => return Err(UrlError::Port(text.to_owned())),
    };
    Ok((host, port))
}

/// The error for several colons outside brackets, with the spelling that was probably meant.
fn unbracketed(text: &str, tls: bool, authority: &str) -> UrlError {
    let scheme = if tls { "https" } else { "http" };
    // `fd00::1:2379` is an address as well as an address and a port; the port was meant when it looks like one.
    let (address, port) = match authority.rsplit_once(':') {
        Some((address, port))
            if looks_like_a_port(authority, port) && address.parse::<Ipv6Addr>().is_ok() =>
        {
            (address, Some(port))
        }
        _ => (authority, None),
    };
    if address.parse::<Ipv6Addr>().is_err() {
        return UrlError::Host(text.to_owned());
    }
    let port = port.map(|p| format!(":{p}")).unwrap_or_default();
    UrlError::Unbracketed { text: text.to_owned(), instead: format!("{scheme}://[{address}]{port}") }
}

/// Whether the last group of `authority` is more likely a port than part of the address.
fn looks_like_a_port(authority: &str, group: &str) -> bool {
    let is_number = !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit());
    is_number && (group.len() >= 4 || matches!(group, "80" | "443") || authority.parse::<Ipv6Addr>().is_err())
}

fn usable_name(host: &str) -> Option<String> {
    let name = host.strip_suffix('.').unwrap_or(host);
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    (name.len() <= 253 && name.split('.').all(label)).then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn splits_what_operators_write() {
        assert_eq!(
            url("https://Rancher.Example"),
            Url { tls: true, host: "rancher.example".into(), port: 443, path: "/".into() }
        );
        assert_eq!(url("http://10.0.0.1:2381/metrics").host_and_port(), "10.0.0.1:2381");
        assert_eq!(url("https://[fd00::1]:2379").authority(), "[fd00::1]:2379");
        assert_eq!(url("HTTPS://[FD00:0::1]").to_string(), "https://[fd00::1]");
        assert_eq!(url("https://a?x=1#frag").path, "/?x=1");
        assert_eq!(url("https://a.:8443/").host, "a");
    }

    #[test]
    fn an_unbracketed_ipv6_address_is_named_with_its_cure() {
        let error = Url::parse("https://fd00::10:2379").unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"https://fd00::10:2379\" has an IPv6 address without brackets; write \"https://[fd00::10]:2379\""
        );
        for (text, instead) in [
            ("https://fd00::10", "https://[fd00::10]"),
            ("https://::1:443", "https://[::1]:443"),
            ("https://::1", "https://[::1]"),
            ("http://fd00::1:80/x", "http://[fd00::1]:80"),
            ("https://1:2:3:4:5:6:7:8:99", "https://[1:2:3:4:5:6:7:8]:99"),
            ("https://fd00::dead", "https://[fd00::dead]"),
        ] {
            let said = Url::parse(text).unwrap_err().to_string();
            assert!(said.ends_with(&format!("write {instead:?}")), "{said}");
        }
    }

    #[test]
    fn a_name_beyond_ascii_is_asked_for_in_punycode() {
        let said = Url::parse("https://münchen.example").unwrap_err().to_string();
        assert!(said.contains("'ü'") && said.contains("punycode"), "{said}");
        assert!(Url::parse("https://xn--mnchen-3ya.example").is_ok());
    }

    #[test]
    fn refuses_the_rest_and_repeats_no_password() {
        for text in [
            "",
            "a",
            "ftp://a",
            "https://",
            "https://:1",
            "https://a:",
            "https://a:0",
            "https://a:65536",
            "https://a:+1",
            "https://[::1",
            "https://[::1]1",
            "https://[fe80::1%eth0]",
            "https://a b",
            "https://a..b",
            "https://a:b:c",
        ] {
            assert!(Url::parse(text).is_err(), "{text:?}");
        }
        for text in ["https://u:secret@a", "u:secret@a", "http://secret@a:1"] {
            assert!(!Url::parse(text).unwrap_err().to_string().contains("secret"), "{text:?}");
        }
    }

    #[test]
    fn a_query_is_never_repeated() {
        for (text, shown) in [
            ("https://h/a?token=S3CRET", "https://h/a?…"),
            ("https://h#access_token=S3CRET", "https://h#…"),
            ("https://h/a", "https://h/a"),
        ] {
            assert_eq!(without_query(text), shown);
        }
        for wrong in [
            "h?token=S3CRET",
            "https://h:0/?token=S3CRET",
            "https://?token=S3CRET",
            "https://h/?token=S3CRET x",
            "https://fd00::1/?token=S3CRET",
            "https://hä/?token=S3CRET",
        ] {
            let error = Url::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("S3CRET"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = Url::parse(&text);
        }

        #[test]
        fn what_is_printed_is_read_back(text in "https?://(\\[([0-9a-f]{0,4}:){1,7}[0-9a-f]{0,4}\\]|[a-z0-9.-]{1,20})(:[0-9]{1,5})?(/[a-z?&=]{0,9})?") {
            if let Ok(url) = Url::parse(&text) {
                prop_assert_eq!(Url::parse(&url.to_string()).unwrap(), url);
            }
        }
    }
}
