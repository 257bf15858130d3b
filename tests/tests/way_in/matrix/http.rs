//! Faults of what is passed on: headers, upgrades, the PROXY protocol.

use outrider_tests::beds::rancher::{Edit, Ingress, Root, Setup};

use super::{
    FORWARDING, Fault, NO_HEALTH_CHECK, TRAEFIK_TRUSTS_NOBODY, WEB_SOCKET, balancer, fault, ingress, l4, l7,
    l7_nginx,
};

/// Headers that do not arrive, or arrive wrong.
pub(super) fn headers() -> Vec<Fault> {
    vec![
        fault(
            "X-Forwarded-Proto is not sent",
            "HAProxy without set-header X-Forwarded-Proto",
            (FORWARDING, "ForwardedHeaderMissing"),
            &["does not send the header"],
            balancer(l7(), &[("http-request set-header X-Forwarded-Proto https\n", "\n")]),
        ),
        fault(
            "X-Forwarded-Proto is replaced by the ingress (nginx)",
            "the ingress sets $scheme, as with use-forwarded-headers off",
            (FORWARDING, "ForwardedHeaderIgnored"),
            &["does not trust or forward"],
            ingress(l7(), &[("$proto { default $http_x_forwarded_proto;", "$proto { default $scheme;")]),
        ),
        fault(
            "X-Forwarded-Proto is replaced by the ingress (Traefik)",
            "Traefik without trustedIPs",
            (FORWARDING, "ForwardedHeaderIgnored"),
            &["does not trust or forward"],
            Setup { ingress: Ingress::Traefik, ..ingress(l7(), &[TRAEFIK_TRUSTS_NOBODY]) },
        ),
        fault(
            "X-Forwarded-Proto is sent on the first request of a connection only",
            "HAProxy: set-header … if { http_first_req }",
            (FORWARDING, "ForwardedHeaderFirstOnly"),
            &["first"],
            balancer(
                l7(),
                &[("X-Forwarded-Proto https\n", "X-Forwarded-Proto https if { http_first_req }\n")],
            ),
        ),
        fault(
            "X-Forwarded-Port is another",
            "HAProxy sets 8443",
            (FORWARDING, "ForwardedAddressWrong"),
            &["X-Forwarded-Port", "8443", "the balancer writes it"],
            balancer(l7(), &[("X-Forwarded-Port 443", "X-Forwarded-Port 8443")]),
        ),
        fault(
            "X-Forwarded-Port is replaced by the ingress",
            "the ingress sets 8443, whatever came",
            (FORWARDING, "ForwardedAddressWrong"),
            &["X-Forwarded-Port", "8443", "the ingress writes it"],
            ingress(l7(), &[("$port { default $http_x_forwarded_port;", "$port { default 8443;")]),
        ),
        fault(
            "X-Forwarded-Host is another",
            "HAProxy sets a name of its own",
            (FORWARDING, "ForwardedAddressWrong"),
            &["X-Forwarded-Host", "inner.example.com", "the balancer writes it"],
            balancer(l7(), &[("X-Forwarded-Host %[req.hdr(Host)]", "X-Forwarded-Host inner.example.com")]),
        ),
        fault(
            "X-Forwarded-Proto is a list",
            "HAProxy sets \"https, http\", as two proxies in a row make it",
            (FORWARDING, "ForwardedHeaderMissing"),
            &["does not send the header"],
            balancer(l7(), &[("X-Forwarded-Proto https\n", "X-Forwarded-Proto 'https, http'\n")]),
        ),
        fault(
            "X-Forwarded-Proto is added, not set",
            "HAProxy: http-request add-header behind what a client sent",
            (FORWARDING, "ForwardedHeaderForged"),
            &["writes into X-Forwarded-Proto reaches", "does not set them"],
            balancer(
                l7(),
                &[("set-header X-Forwarded-Proto https\n", "add-header X-Forwarded-Proto https\n")],
            ),
        ),
        fault(
            "X-Forwarded-Host and -Port are not sent",
            "HAProxy without set-header of both: a client's own pass",
            (FORWARDING, "ForwardedHeaderForged"),
            &["X-Forwarded-Host, X-Forwarded-Port", "outrider.invalid:61443", "does not set them"],
            balancer(
                l7(),
                &[
                    ("    http-request set-header X-Forwarded-Port 443\n", ""),
                    ("    http-request set-header X-Forwarded-Host %[req.hdr(Host)]\n", ""),
                ],
            ),
        ),
        fault(
            "the ingress trusts every client, L4",
            "nginx as with use-forwarded-headers on, behind TCP",
            (FORWARDING, "ForwardedHeaderForged"),
            &["the ingress trusts every client"],
            ingress(
                l4(),
                &[
                    (
                        "$port { default $server_port; }",
                        "$port { default $http_x_forwarded_port; '' $server_port; }",
                    ),
                    (
                        "$name { default $http_host; }",
                        "$name { default $http_x_forwarded_host; '' $http_host; }",
                    ),
                ],
            ),
        ),
        fault(
            "the Host is replaced",
            "HAProxy sets Host and X-Forwarded-Host to a name of its own",
            (FORWARDING, "HostNotRouted"),
            &["but not straight at a backend"],
            balancer(
                l7(),
                &[("set-header X-Forwarded-Host %[req.hdr(Host)]", "set-header Host inner.example.com")],
            ),
        ),
        fault(
            "a client may claim https on plain http",
            "HAProxy passes port 80 on and leaves the client's header as it is",
            (FORWARDING, "ForwardedHeaderForged"),
            &["who claims https is believed"],
            balancer(l7(), &[("http-request redirect scheme https code 301", "default_backend rancher")]),
        ),
        fault(
            "the balancer redirects https to https",
            "HAProxy redirects on port 443 too",
            (FORWARDING, "RedirectLoop"),
            &["the balancer itself redirects"],
            balancer(
                l7(),
                &[(
                    "    http-request set-header X-Forwarded-Proto https",
                    "    http-request redirect code 302 location https://rancher.example.com/ if { path / }\n    http-request set-header X-Forwarded-Proto https",
                )],
            ),
        ),
        fault(
            "redirects without end, each to another path",
            "what answers / redirects to a new path every time",
            (FORWARDING, "RedirectLoop"),
            &["without end"],
            Setup { root: Root::Redirects, ..l7() },
        ),
    ]
}

pub(super) fn web_sockets() -> Vec<Fault> {
    const UPGRADE: Edit = ("proxy_set_header Upgrade $http_upgrade;\n", "\n");
    const CONNECTION: Edit = ("proxy_set_header Connection $connection_upgrade;\n", "\n");
    vec![
        fault(
            "no upgrade headers",
            "nginx without proxy_set_header Upgrade and Connection",
            (WEB_SOCKET, "WebSocketUpgradeLost"),
            &[],
            balancer(l7_nginx(), &[UPGRADE, CONNECTION]),
        ),
        fault(
            "HTTP/1.0 to the ingress",
            "nginx without proxy_http_version 1.1 and without the headers: its default",
            (WEB_SOCKET, "WebSocketUpgradeLost"),
            &[],
            balancer(l7_nginx(), &[UPGRADE, CONNECTION, ("proxy_http_version 1.1;\n", "\n")]),
        ),
        fault(
            "WebSockets are refused by the balancer",
            "HAProxy denies requests with an Upgrade header",
            (WEB_SOCKET, "WebSocketRefused"),
            &["HAProxy"],
            balancer(
                l7(),
                &[(
                    "    http-request set-header X-Forwarded-Proto",
                    "    http-request deny if { req.hdr(Upgrade) -m found }\n    http-request set-header X-Forwarded-Proto",
                )],
            ),
        ),
        fault(
            "WebSockets end nowhere",
            "HAProxy sends them to a backend without servers",
            (WEB_SOCKET, "WebSocketFails"),
            &["503"],
            balancer(
                l7(),
                &[(
                    "    default_backend rancher\n",
                    "    use_backend none if { req.hdr(Upgrade) -m found }\n    default_backend rancher\n\nbackend none\n",
                )],
            ),
        ),
    ]
}

pub(super) fn proxy_protocol() -> Vec<Fault> {
    vec![
        fault(
            "PROXY protocol at the balancer only, L4",
            "HAProxy send-proxy, nginx as ingress",
            (FORWARDING, "ProxyProtocolUnexpected"),
            &[],
            balancer(l4(), &[("default-server check", "default-server send-proxy check")]),
        ),
        fault(
            "PROXY protocol at the ingress only, L4",
            "nginx: listen 443 ssl proxy_protocol, HAProxy without send-proxy",
            (FORWARDING, "ProxyProtocolMissing"),
            &[],
            ingress(
                l4(),
                &[
                    ("listen 443 ssl", "listen 443 ssl proxy_protocol"),
                    ("listen 80", "listen 80 proxy_protocol"),
                ],
            ),
        ),
        fault(
            "PROXY protocol at the balancer only, L7",
            "HAProxy send-proxy, nginx as ingress",
            (FORWARDING, "ProxyProtocolUnexpected"),
            &[],
            balancer(l7(), &[("default-server check", "default-server send-proxy no-check")]),
        ),
        fault(
            "PROXY protocol at the ingress only, L7",
            "nginx: listen 80 proxy_protocol, HAProxy without send-proxy or checks",
            (FORWARDING, "ProxyProtocolMissing"),
            &[],
            Setup {
                balancer_edits: vec![NO_HEALTH_CHECK],
                ..ingress(
                    l7(),
                    &[
                        ("listen 443 ssl", "listen 443 ssl proxy_protocol"),
                        ("listen 80", "listen 80 proxy_protocol"),
                    ],
                )
            },
        ),
        fault(
            "PROXY protocol expected by the balancer's own front",
            "HAProxy: bind accept-proxy",
            (FORWARDING, "ProxyProtocolMissing"),
            &["front"],
            balancer(
                l4(),
                &[("bind :443\n", "bind :443 accept-proxy\n"), ("bind :80\n", "bind :80 accept-proxy\n")],
            ),
        ),
    ]
}
