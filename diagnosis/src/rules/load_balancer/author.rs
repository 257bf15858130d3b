//! Who wrote an answer: Rancher, or what stands in front of it, and by which words that is known.
//!
//! A proxy puts its own `Server` header on what it passes on, so the header alone tells who passed an answer, not who
//! wrote it. The words of a body do: every proxy has pages of its own, and so has Rancher.

use std::fmt;

use outrider_protocol::HttpAnswer;

/// A product whose settings the advice can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// Rancher itself.
    Rancher,
    /// nginx, ingress-nginx included.
    Nginx,
    /// HAProxy.
    Haproxy,
    /// Traefik.
    Traefik,
    /// Another product, by its name.
    Other(&'static str),
    /// Something that asks for a login.
    Login,
    /// Nobody that is known here.
    Unknown,
}

impl Author {
    /// Another than Rancher, known by its words.
    pub(super) fn is_proxy(self) -> bool {
        !matches!(self, Author::Rancher | Author::Unknown)
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Author::Rancher => "Rancher",
            Author::Nginx => "nginx",
            Author::Haproxy => "HAProxy",
            Author::Traefik => "Traefik",
            Author::Other(name) => name,
            Author::Login => "a login page or an authenticating proxy",
            Author::Unknown => "somebody whose words are not known here",
        })
    }
}

/// Who wrote `answer`, and how that is known, as a clause; the clause is empty for nobody known.
pub(super) fn of(answer: &HttpAnswer) -> (Author, &'static str) {
    let body = answer.body_start.to_ascii_lowercase();
    let body = body.trim();
    let server = answer.server.to_ascii_lowercase();
    let says = |word: &str| body.contains(word);
    if says("origin not allowed") {
        return (Author::Rancher, "its refusal of a foreign origin");
    }
    if says("failed authentication") || says("must authenticate") {
        return (Author::Rancher, "its words for a caller without a token");
    }
    if body == "pong" && answer.status == 200 {
        return (Author::Rancher, "its answer to /ping");
    }
    if !answer.self_link.is_empty() || says("\"type\":\"error\"") || says("\"basetype\":\"error\"") {
        return (Author::Rancher, "the form of its API");
    }
    if says("<center>nginx")
        || says("<center>openresty")
        || (says("<center><h1>") && server.contains("nginx"))
    {
        return (Author::Nginx, "an error page of nginx");
    }
    if says("default backend - 404") {
        return (Author::Nginx, "the words of the default backend");
    }
    if body.starts_with("<html><body><h1>") {
        return (Author::Haproxy, "an error page of HAProxy");
    }
    if says("guru meditation")
        || says("varnish cache server")
        || server.contains("varnish") && answer.status >= 400
    {
        return (Author::Other("Varnish"), "an error page of Varnish");
    }
    if says("upstream connect error") || says("no healthy upstream") {
        return (Author::Other("Envoy"), "the words of Envoy");
    }
    if server.starts_with("awselb") {
        return (Author::Other("an AWS load balancer"), "its Server header");
    }
    if server.starts_with("cloudflare") {
        return (Author::Other("Cloudflare"), "its Server header");
    }
    if says("<!doctype html public \"-//ietf//dtd html 2.0//en\">") {
        return (Author::Other("Apache"), "an error page of Apache");
    }
    let plain = [
        "bad gateway",
        "gateway timeout",
        "service unavailable",
        "no available server",
        "404 page not found",
    ];
    if server.is_empty() && plain.contains(&body) {
        return (Author::Traefik, "the bare words that Traefik uses");
    }
    if !answer.challenge.is_empty() {
        return (Author::Login, "its WWW-Authenticate header, which Rancher does not send");
    }
    if answer.status < 400 && (says("<form") || says("sign in") || says("log in")) {
        return (Author::Login, "the words of the page");
    }
    (Author::Unknown, "")
}

/// How it is known that `words`, answered with `status`, are a proxy's own, as a clause; `None` where they are not known as
/// such.
pub(crate) fn words_of_a_proxy(status: u16, words: &str) -> Option<String> {
    let answer = HttpAnswer { status, body_start: words.to_owned(), ..HttpAnswer::default() };
    let (author, how) = of(&answer);
    author.is_proxy().then(|| format!("by {author} (known by {how})"))
}

/// The ingress that answers straight at a backend, where its words or its header tell.
pub(super) fn ingress<'a>(answers: impl Iterator<Item = &'a HttpAnswer>) -> Author {
    let mut by_header = Author::Unknown;
    for answer in answers {
        if let author @ (Author::Nginx | Author::Traefik) = of(answer).0 {
            return author;
        }
        let server = answer.server.to_ascii_lowercase();
        if server.contains("nginx") {
            by_header = Author::Nginx;
        } else if server.contains("traefik") {
            by_header = Author::Traefik;
        }
    }
    by_header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_who_wrote_them() {
        let answer = |status, server: &str, body: &str| HttpAnswer {
            status,
            server: server.into(),
            body_start: body.into(),
            ..HttpAnswer::default()
        };
        for (status, server, body, author) in [
            (401, "nginx", "failed authentication", Author::Rancher),
            (
                403,
                "",
                "{\"Code\":{\"Code\":\"PermissionDenied\",\"Status\":403},\"Message\":\"origin not allowed\"",
                Author::Rancher,
            ),
            (
                401,
                "",
                "{\"type\":\"error\",\"status\":\"401\",\"message\":\"must authenticate\"}",
                Author::Rancher,
            ),
            (
                502,
                "nginx/1.26.3",
                "<html>\u{fffd}<head><title>502 Bad Gateway</title></head>\u{fffd}<body>\u{fffd}<center><h1>502 Bad Gateway</h1></center>",
                Author::Nginx,
            ),
            (404, "", "default backend - 404", Author::Nginx),
            (
                400,
                "",
                "<html><body><h1>400 Bad request</h1>\u{fffd}Your browser sent an invalid request.",
                Author::Haproxy,
            ),
            (502, "", "Bad Gateway", Author::Traefik),
            (404, "", "404 page not found", Author::Traefik),
            (404, "nginx", "404 page not found", Author::Unknown),
            (503, "envoy", "no healthy upstream", Author::Other("Envoy")),
            (502, "awselb/2.0", "<html>", Author::Other("an AWS load balancer")),
            (401, "nginx", "no token", Author::Unknown),
            (200, "", "<html><form action=login>", Author::Login),
        ] {
            assert_eq!(of(&answer(status, server, body)).0, author, "{body}");
        }
        let login = HttpAnswer { challenge: "Basic realm=x".into(), ..answer(401, "", "") };
        assert_eq!(of(&login).0, Author::Login);
        let seen = [answer(200, "nginx", "pong"), answer(404, "", "404 page not found")];
        assert_eq!(ingress(seen.iter()), Author::Traefik);
        assert_eq!(ingress(seen[..1].iter()), Author::Nginx);
        assert_eq!(ingress([].iter()), Author::Unknown);
    }
}
