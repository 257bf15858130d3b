//! The faults, and what must be said of each: the condition that is not well, its reason, and words that no neighbour's
//! message has.

mod http;

use outrider_tests::beds::rancher::{Address, Balancer, Certificate, Edit, Layer, Root, Setup};

/// Where the check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// On a machine that is neither node nor balancer.
    Outside,
    /// On the first node behind the balancer.
    Node,
}

/// One fault.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) made: &'static str,
    pub(crate) setup: Setup,
    pub(crate) from: From,
    /// Type and reason of the condition that tells it.
    pub(crate) kind: &'static str,
    pub(crate) reason: &'static str,
    /// In its message.
    pub(crate) words: &'static [&'static str],
}

const FORWARDING: &str = "LoadBalancerForwarding";
const REACHABLE: &str = "LoadBalancerReachable";
const WEB_SOCKET: &str = "LoadBalancerWebSocket";
const CA: &str = "RancherCA";

const NO_HEALTH_CHECK: Edit = (" check inter 10s fastinter 2s fall 3 rise 2", "");
const CHECKED_AT_ONCE: Edit =
    (" check inter 10s fastinter 2s fall 3 rise 2", " check inter 200ms fall 1 rise 2");
const REDIRECTS_PING: Edit = (
    "location / { proxy_pass http://rancher; }",
    "location / { proxy_pass http://rancher; }\n  location = /ping { return 308 https://$host$request_uri; }",
);
const TRAEFIK_TRUSTS_NOBODY: Edit = ("      trustedIPs:", "      insecure: false\n      # trustedIPs:");

fn fault(
    name: &'static str,
    made: &'static str,
    (kind, reason): (&'static str, &'static str),
    words: &'static [&'static str],
    setup: Setup,
) -> Fault {
    Fault { name, made, setup, from: From::Outside, kind, reason, words }
}

fn l4() -> Setup {
    Setup::new(Layer::L4, Balancer::Haproxy)
}

fn l7() -> Setup {
    Setup::new(Layer::L7, Balancer::Haproxy)
}

fn l7_nginx() -> Setup {
    Setup::new(Layer::L7, Balancer::Nginx)
}

fn balancer(setup: Setup, edits: &[Edit]) -> Setup {
    Setup { balancer_edits: edits.to_vec(), ..setup }
}

fn ingress(setup: Setup, edits: &[Edit]) -> Setup {
    Setup { ingress_edits: edits.to_vec(), ..setup }
}

/// All of them, in parts that are made side by side; neighbours that are easily taken for one another stand together.
pub(crate) fn parts() -> [Vec<Fault>; 4] {
    let join = |parts: [Vec<Fault>; 2]| parts.into_iter().flatten().collect();
    [
        join([http::headers(), http::web_sockets()]),
        join([http::proxy_protocol(), backends()]),
        join([certificates(), authorities()]),
        join([ways(), answers()]),
    ]
}

fn backends() -> Vec<Fault> {
    vec![
        fault(
            "a dead backend is still used",
            "nothing runs on a node, HAProxy without checks",
            (FORWARDING, "DeadBackendInUse"),
            &["1 of 3"],
            Setup { dead: vec![2], ..balancer(l7(), &[NO_HEALTH_CHECK]) },
        ),
        fault(
            "a dead backend is taken out",
            "nothing runs on a node, nginx tries the next",
            (FORWARDING, "BackendDown"),
            &["1 of 3"],
            Setup { dead: vec![2], ..l7_nginx() },
        ),
        fault(
            "no backend lives",
            "nothing runs on any node",
            (FORWARDING, "BackendDown"),
            &["Every backend"],
            Setup { dead: vec![1, 2, 3], ..l4() },
        ),
        fault(
            "the balancer asks another port than the ingress listens on",
            "HAProxy with port 8081, without checks",
            (FORWARDING, "BackendError"),
            &["503"],
            balancer(
                l7(),
                &[
                    NO_HEALTH_CHECK,
                    ("timeout connect 5s", "timeout connect 5s\n    retries 0"),
                    (".11:80", ".11:8081"),
                    (".12:80", ".12:8081"),
                    (".13:80", ".13:8081"),
                ],
            ),
        ),
        fault(
            "no ingress for this Host: 404 of the default backend",
            "the ingress has Rancher under another name",
            (FORWARDING, "HostNotRouted"),
            &["404"],
            ingress(l4(), &[("server_name rancher.example.com", "server_name other.example.com")]),
        ),
        fault(
            "no ingress for this Host: 200 of a default backend",
            "the same, and a default backend that answers 200",
            (FORWARDING, "HostNotRouted"),
            &["200"],
            ingress(
                l4(),
                &[
                    ("server_name rancher.example.com", "server_name other.example.com"),
                    ("return 404 'default backend - 404'", "return 200 'welcome'"),
                ],
            ),
        ),
        fault(
            "/ping is redirected by the balancer",
            "HAProxy: redirect scheme https of /ping, on port 443 too",
            (FORWARDING, "NotRancher"),
            &["a redirect rule of the balancer singles /ping out"],
            balancer(
                l7(),
                &[(
                    "    http-request set-header X-Forwarded-Proto",
                    "    http-request redirect scheme https code 302 if { path /ping }\n    http-request set-header X-Forwarded-Proto",
                )],
            ),
        ),
        fault(
            "/ping is redirected by the ingress",
            "nginx as ingress: return 308 for /ping, HAProxy without checks",
            (FORWARDING, "NotRancher"),
            &["a redirect rule of the ingress singles /ping out"],
            ingress(balancer(l7(), &[NO_HEALTH_CHECK]), &[REDIRECTS_PING]),
        ),
        fault(
            "/ping is redirected by the ingress, and the balancer's check asks for it",
            "the same, HAProxy with its checks, five a second",
            (FORWARDING, "BackendError"),
            &["503", "/ping is redirected (3 of 3), by a rule of the ingress"],
            ingress(balancer(l7(), &[CHECKED_AT_ONCE]), &[REDIRECTS_PING]),
        ),
        fault(
            "something other than Rancher",
            "the ingress answers every path but nonsense by itself",
            (FORWARDING, "NotRancher"),
            &["not Rancher"],
            ingress(
                l4(),
                &[(
                    "  location / { proxy_pass http://rancher; }",
                    "  location / { return 404; }\n  location = / { return 200 hello; }\n  location = /ping { return 200 OK; }",
                )],
            ),
        ),
    ]
}

fn certificates() -> Vec<Fault> {
    let shows = |certificate| Setup { certificate, ..l4() };
    vec![
        fault(
            "a certificate for another name",
            "a SAN that does not match",
            (REACHABLE, "BalancerCertificateWrong"),
            &["does not cover"],
            shows(Certificate::OtherName),
        ),
        fault(
            "a certificate that is not valid yet",
            "begins tomorrow",
            (REACHABLE, "BalancerCertificateWrong"),
            &["not valid before"],
            shows(Certificate::NotYet),
        ),
        fault(
            "an expired certificate",
            "ended yesterday",
            (REACHABLE, "BalancerCertificateEnding"),
            &["ended"],
            shows(Certificate::Expired),
        ),
        fault(
            "a certificate that ends soon",
            "five days of ninety are left",
            (REACHABLE, "BalancerCertificateEnding"),
            &["ends in"],
            shows(Certificate::Ending),
        ),
        fault(
            "the intermediate is missing",
            "the leaf alone is sent",
            (REACHABLE, "BalancerChainIncomplete"),
            &["bed intermediate"],
            shows(Certificate::NoIntermediate),
        ),
        fault(
            "an unknown CA",
            "a whole chain below another root",
            (REACHABLE, "BalancerCaUnknown"),
            &["unknown"],
            shows(Certificate::UnknownRoot),
        ),
    ]
}

fn authorities() -> Vec<Fault> {
    let cacerts = |text: &str| Setup { cacerts: Some(text.to_owned()), ..l4() };
    vec![
        fault(
            "the CA checksum is of another CA",
            "ca_checksum of something else",
            (CA, "CaChecksumMismatch"),
            &["00112233"],
            Setup {
                agent_edits: vec![(
                    "ca_checksum = \"",
                    "ca_checksum = \"0011223300112233001122330011223300112233001122330011223300112233\" # ",
                )],
                ..l4()
            },
        ),
        fault(
            "the CA checksum is of the same CA with a final newline",
            "/cacerts without the newline that the file has",
            (CA, "CaChecksumMismatch"),
            &["with one final newline"],
            cacerts("{ROOT}"),
        ),
        fault(
            "the CA checksum is cut",
            "ca_checksum of 40 digits",
            ("ConfigValid", "ConfigRejected"),
            &["40 hex digits"],
            Setup {
                agent_edits: vec![(
                    "ca_checksum = \"",
                    "ca_checksum = \"0011223300112233001122330011223300112233\" # ",
                )],
                ..l4()
            },
        ),
        fault(
            "/cacerts is empty, and agents are strict",
            "no cacerts at Rancher",
            (CA, "CaCertsEmpty"),
            &["A checksum is given"],
            cacerts(""),
        ),
        fault(
            "/cacerts is empty, and agents are strict without a checksum",
            "no cacerts at Rancher, no ca_checksum",
            (CA, "CaCertsEmpty"),
            &["strict"],
            Setup { agent_edits: vec![("ca_checksum = \"", "# ca_checksum = \"")], ..cacerts("") },
        ),
        fault(
            "/cacerts is a web page",
            "HTML at /cacerts",
            (CA, "CaCertsNotPem"),
            &["a web page"],
            cacerts("<!doctype html><html><title>Welcome</title></html>\n"),
        ),
    ]
}

/// Addresses, ports, routes.
fn ways() -> Vec<Fault> {
    vec![
        fault(
            "nobody listens",
            "no balancer runs",
            (REACHABLE, "BalancerDown"),
            &[],
            Setup::new(Layer::L4, Balancer::Nothing),
        ),
        fault(
            "an IPv6 address that is dead",
            "AAAA of a machine that does not exist",
            (REACHABLE, "BalancerPartlyDown"),
            &["1 of 2 addresses"],
            Setup { addresses: vec![Address::First, Address::DeadIpv6], ..l4() },
        ),
        Fault {
            from: From::Node,
            ..fault(
                "hairpin",
                "the balancer keeps the client's address, and the client is a node behind it",
                (REACHABLE, "BalancerPartlyDown"),
                &["is itself a backend"],
                Setup::new(Layer::L4, Balancer::Preserving),
            )
        },
        fault(
            "port 80 is closed",
            "HAProxy without its frontend on 80",
            (FORWARDING, "RedirectMissing"),
            &["ConnectionRefused"],
            balancer(l7(), &[("bind :80\n", "bind :8081\n"), ("bind :::80 v6only\n", "\n")]),
        ),
        fault(
            "plain http on the https port",
            "HAProxy: bind :443 without ssl",
            (REACHABLE, "TlsFailed"),
            &["does not speak TLS"],
            balancer(l7(), &[("bind :443 ssl crt /etc/haproxy/rancher.pem alpn h2,http/1.1", "bind :443")]),
        ),
        fault(
            "another layer than the configuration says",
            "mode = \"l4\" before a balancer that ends TLS",
            (FORWARDING, "BalancerModeDiffers"),
            &[],
            Setup { agent_edits: vec![("mode = \"l7\"", "mode = \"l4\""), (":80\"", ":443\"")], ..l7() },
        ),
    ]
}

/// Answers that are slow or large.
fn answers() -> Vec<Fault> {
    vec![fault(
        "the answer comes byte by byte",
        "a byte a second, without end",
        (FORWARDING, "BackendError"),
        &["TimedOut"],
        Setup { root: Root::Slow, ..l7() },
    )]
}
