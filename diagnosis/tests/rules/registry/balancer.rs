//! Facts of a load balancer.

use outrider_protocol::*;
use proptest::prelude::*;

use super::{fact, word};
use crate::world::{self, Change};

pub(super) fn balancer() -> impl Strategy<Value = LoadBalancerFacts> {
    let kinds = prop::sample::select(ProbeKind::ALL);
    let targets = prop::sample::select(ProbeTarget::ALL);
    let peer = word(&["192.0.2.10:443", "192.0.2.10:80", "10.0.0.1:80", "[2001:db8::1]:443", "odd"]);
    let location = word(&["", "/", "https://rancher.x/", "/dashboard/", "http://x/"]);
    let bodies = word(&[
        "",
        "pong",
        "<html>\u{e9}",
        "failed authentication",
        "origin not allowed",
        "404 page not found",
    ]);
    let links = word(&[
        "",
        "https://rancher.x",
        "http://rancher.x:80",
        "https://[2001:db8::1]",
        "odd://",
        "https://",
    ]);
    let answer = (100u16..600, location, bodies, links, prop::option::of(any::<bool>())).prop_map(
        |(s, l, b, link, fits)| world::http(s, &l, &b).with(|a| (a.self_link, a.accept_fits) = (link, fits)),
    );
    let tls = (any::<bool>(), any::<[i64; 2]>(), fact(word(&["", "untrusted"])), any::<bool>()).prop_map(
        |(chain, [from, to], trust, name_matches)| {
            let mut t = world::tls("rancher.x");
            (t.trust, t.name_matches) = (trust, name_matches);
            t.chain[0].not_before =
                Timestamp::from_millis(world::now().as_millis().saturating_add(from % 40_000_000_000));
            t.chain[0].not_after =
                Timestamp::from_millis(world::now().as_millis().saturating_add(to % 40_000_000_000));
            if !chain {
                t.chain.clear();
            }
            t
        },
    );
    let probe = (kinds, targets, peer, fact(any::<f64>()), fact(tls), fact(answer)).prop_map(
        |(kind, target, peer, tcp, tls, http)| {
            let raw = if peer == "odd" { "HTTP/1.1 400 \u{fffd}".to_owned() } else { String::new() };
            Probe { kind, target, peer, at: world::now(), tcp, tls, http, raw }
        },
    );
    let ca = (
        prop::sample::select(&[200u16, 204, 302, 404]),
        word(&["", "aa", "bb"]),
        fact(prop::collection::vec((-40i64..4000).prop_map(world::authority), 0..2)),
        fact(word(&["", "unknown issuer", "expired by this clock"])),
        fact(word(&["", "unknown issuer"])),
    );
    let ca = ca.prop_map(|(status, sha256, certificates, trusts, system)| {
        world::published().with(|ca| {
            (ca.status, ca.sha256, ca.certificates) = (status, sha256, certificates);
            (ca.trusts_chain, ca.system_trusts_chain) = (trusts, system);
        })
    });
    let modes = || prop::sample::select(BalancerMode::ALL);
    let settings =
        (word(&["", "aa", "\u{e9}"]), word(&["", "strict", "system-store", "odd"]), modes(), modes());
    (
        prop::collection::vec(probe, 0..12),
        fact(prop::collection::vec(word(&["192.0.2.10"]), 0..2)),
        word(&["a", "b"]),
        prop::option::of(fact(ca)),
        settings,
    )
        .prop_map(|(probes, addresses, name, ca, (checksum, tls_mode, mode, found))| {
            world::balancer(probes).with(|b| {
                (b.addresses, b.name, b.ca) = (addresses, name, ca);
                (b.ca_checksum, b.agent_tls_mode, b.mode, b.found_mode) = (checksum, tls_mode, mode, found);
            })
        })
}
