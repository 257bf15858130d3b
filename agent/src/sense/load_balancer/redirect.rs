//! Where the `Location` of an answer leads, as far as it is followed.
//!
//! A redirect loop need not come back to where it began: a login page that is never reached, a path or a query that
//! changes every time. So a chain is followed to other paths of the same host, and one that does not end is a loop
//! (`facts/rancher-load-balancer.md`, E1). Scheme and port of the Location do not count: Rancher's redirect mangles the
//! port, and plain http of the same host is what leads back to https.

/// The path to ask for next, after `asked` was answered with `location`; `None` where it leads to another host, to
/// nothing that can be asked for, or to `/`, which was asked for first and needs no chain to be a loop.
pub(super) fn next_path(location: &str, asked: &str, host: &str) -> Option<String> {
    let location = location.trim().split('#').next().unwrap_or_default();
    let absolute = match location.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            let known = scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http");
            Some(known.then_some(rest)?)
        }
        _ => location.strip_prefix("//"),
    };
    let path = match absolute {
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            if !host_of(authority).eq_ignore_ascii_case(host) {
                return None;
            }
            if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
        }
        None if location.is_empty() => return None,
        None if location.starts_with('/') => location.to_owned(),
        None => {
            let path = asked.split('?').next().unwrap_or_default();
            if location.starts_with('?') {
                format!("{path}{location}")
            } else {
                let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
                format!("{folder}{location}")
            }
        }
    };
    (path != "/" && !path.starts_with("/?")).then_some(path)
}

/// The host of `host[:port]`, IPv6 without its brackets.
fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or(inner),
        None => authority.split(':').next().unwrap_or(authority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_paths_of_the_same_host_are_followed() {
        for (location, asked, next) in [
            ("/dashboard/", "/", Some("/dashboard/")),
            ("https://rancher.x/a?b=1#c", "/", Some("/a?b=1")),
            ("HTTP://Rancher.X:8080/a", "/", Some("/a")),
            ("//rancher.x/a", "/", Some("/a")),
            ("b", "/a/x?y", Some("/a/b")),
            ("?n=2", "/a?n=1", Some("/a?n=2")),
            ("/login?back=https://rancher.x/", "/", Some("/login?back=https://rancher.x/")),
            ("https://rancher.x/", "/a", None),
            ("https://rancher.x?n=1", "/", None),
            ("https://login.x/a", "/", None),
            ("ftp://rancher.x/a", "/", None),
            ("", "/", None),
        ] {
            assert_eq!(next_path(location, asked, "rancher.x").as_deref(), next, "{location}");
        }
        assert_eq!(next_path("https://[2001:db8::1]:443/a", "/", "2001:db8::1").as_deref(), Some("/a"));
    }

    proptest::proptest! {
        #[test]
        fn whatever_the_location_the_next_path_begins_at_the_root(location in "\\PC{0,40}", asked in "/[a-z/?]{0,9}") {
            if let Some(path) = next_path(&location, &asked, "rancher.x") {
                proptest::prop_assert!(path.starts_with('/'), "{}", path);
            }
        }
    }
}
