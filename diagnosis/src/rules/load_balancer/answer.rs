//! One try in a word.

use outrider_protocol::{Fact, HttpAnswer, Probe, UnknownCause};

/// What became of one try.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer<'a> {
    /// 2xx, or a redirect to another path of the same host.
    Good,
    /// A redirect to another host, which Rancher does not make.
    Away(&'a str),
    /// A redirect to the very thing that was asked for; or, with the number that was followed, redirects without end.
    Loop(&'a str, usize),
    /// 404.
    NotFound,
    /// 5xx.
    ServerError(u16),
    /// Any other 4xx.
    Refused(u16),
    /// No answer came.
    Silent(&'a UnknownCause, &'a str),
}

impl Answer<'_> {
    /// The peer failed to serve: an error of its own, or silence.
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Answer::ServerError(_) | Answer::Silent(..))
    }
}

impl std::fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Answer::Good => f.write_str("a good answer"),
            Answer::Loop(location, _) | Answer::Away(location) => write!(f, "a redirect to {location}"),
            Answer::NotFound => f.write_str("404"),
            Answer::ServerError(code) | Answer::Refused(code) => write!(f, "{code}"),
            Answer::Silent(cause, _) => write!(f, "no answer ({cause})"),
        }
    }
}

/// What became of `probe`, which asked for `/` of `host` or a fixed path; `None` when it tells nothing about the peer
/// (nothing was asked, or the failure is ours).
pub(super) fn of<'a>(probe: &'a Probe, host: &str) -> Option<Answer<'a>> {
    if let Some(silent) = silence(&probe.tcp).or_else(|| silence(&probe.tls)).or_else(|| silence(&probe.http))
    {
        return Some(silent);
    }
    let answer = probe.http.value()?;
    Some(match answer.status {
        // An API server that asks who somebody is answers: anonymous callers are shut out of /readyz on RKE2.
        401 | 403
            if answer.body_start.contains("\"kind\":\"Status\"")
                || answer.body_start.contains("\"kind\": \"Status\"") =>
        {
            Answer::Good
        }
        300..=399 if leads_back(&answer.location, host) => Answer::Loop(&answer.location, 0),
        // Each to another path: a loop all the same, for it never arrives.
        300..=399 if answer.redirects_without_end() => Answer::Loop(&answer.location, answer.followed.len()),
        300..=399 if let Some(location) = leaves(answer, host) => Answer::Away(location),
        404 => Answer::NotFound,
        400..=499 => Answer::Refused(answer.status),
        500..=599 => Answer::ServerError(answer.status),
        _ => Answer::Good,
    })
}

fn silence<T>(fact: &Fact<T>) -> Option<Answer<'_>> {
    match fact {
        Fact::Unknown { cause, detail, .. } if is_of_peer(cause) => Some(Answer::Silent(cause, detail)),
        _ => None,
    }
}

/// Causes that lie with the peer or the way to it, not with this program.
pub(crate) fn is_of_peer(cause: &UnknownCause) -> bool {
    matches!(
        cause,
        UnknownCause::ConnectionRefused
            | UnknownCause::TimedOut
            | UnknownCause::Unreachable
            | UnknownCause::Unavailable
            | UnknownCause::TlsFailed
            | UnknownCause::InvalidAnswer
            // The tries show no credential: only a peer that wants a client certificate refuses one.
            | UnknownCause::Unauthenticated
    )
}

/// Whether `location`, answered to `GET /` of `host`, asks for the same again. The port does not count: Rancher's
/// redirect mangles it. Plain http of the same host counts, for it leads back to https.
fn leads_back(location: &str, host: &str) -> bool {
    let location = location.trim();
    let rest = match location.split_once("://") {
        Some((scheme, rest))
            if scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http") =>
        {
            rest
        }
        Some(_) => return false,
        None => match location.strip_prefix("//") {
            Some(rest) => rest,
            None => return is_root(location) && !location.is_empty(),
        },
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    host_of(authority).eq_ignore_ascii_case(host_of(host)) && is_root(path)
}

/// Where the redirect, or the chain that it begins, leaves `host` for another.
fn leaves<'a>(answer: &'a HttpAnswer, host: &str) -> Option<&'a str> {
    let last =
        answer.followed.last().map_or((answer.status, &answer.location), |hop| (hop.status, &hop.location));
    let is_away =
        |location: &str| redirect_host(location).is_some_and(|to| !to.eq_ignore_ascii_case(host_of(host)));
    let (status, location) = last;
    ((300..400).contains(&status) && is_away(location)).then_some(location)
}

/// The host that a `Location` names; none where it leads to another path of the same.
pub(super) fn redirect_host(location: &str) -> Option<&str> {
    let location = location.trim();
    let rest = location.split_once("://").map(|(_, rest)| rest).or(location.strip_prefix("//"))?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    (!authority.is_empty()).then_some(host_of(authority))
}

fn is_root(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    path.is_empty() || path == "/"
}

/// The host of `host:port` or `[address]:port`, without brackets; a bare address or name stays as it is.
pub(crate) fn host_of(authority: &str) -> &str {
    if let Some(inner) = authority.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    match authority.split_once(':') {
        // More than one colon and no brackets: a bare IPv6 address.
        Some((host, port)) if !port.contains(':') => host,
        _ => authority,
    }
}

/// Whether `peer` (`address:port`) is at `port`.
pub(crate) fn is_at_port(peer: &str, port: u16) -> bool {
    peer.rsplit_once(':').and_then(|(_, p)| p.parse::<u16>().ok()) == Some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_to_the_same_thing_is_told_from_one_that_leads_on() {
        for back in [
            "https://rancher.x/",
            "https://rancher.x",
            "https://RANCHER.x:8443/",
            "http://rancher.x/",
            "/",
            "//rancher.x/",
            "https://rancher.x/?a=1",
            "/?x",
        ] {
            assert!(leads_back(back, "rancher.x"), "{back}");
        }
        for on in [
            "/dashboard/",
            "https://rancher.x/dashboard/",
            "https://login.x/",
            "",
            "dashboard",
            "ftp://rancher.x/",
        ] {
            assert!(!leads_back(on, "rancher.x"), "{on}");
        }
        assert!(leads_back("https://[2001:db8::1]:443/", "2001:db8::1"));
    }

    #[test]
    fn hosts_lose_their_port_only() {
        assert_eq!(host_of("10.0.0.1:80"), "10.0.0.1");
        assert_eq!(host_of("[2001:db8::1]:443"), "2001:db8::1");
        assert_eq!(host_of("2001:db8::1"), "2001:db8::1");
        assert!(is_at_port("[2001:db8::1]:443", 443) && !is_at_port("10.0.0.1:80", 443));
    }
}
