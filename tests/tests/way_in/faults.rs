//! The matrix: what is published is good, and every fault is told from its neighbours. Its parts run side by side, each in a
//! bed of its own.

use std::collections::BTreeMap;

use outrider_tests::beds::rancher::{Address, Balancer, Bed, Ingress, Layer, Root, Setup, TRAEFIK, missing};
use outrider_tests::table::Table;

use crate::matrix::{Fault, From, parts};
use crate::{chosen, pass, said};

/// What must be well, and why it might not be taken for it.
fn good() -> Vec<(&'static str, Setup)> {
    let mut all = Vec::new();
    for (layer, balancer, name) in [
        (Layer::L4, Balancer::Haproxy, "l4-haproxy.cfg"),
        (Layer::L4, Balancer::Nginx, "l4-nginx.conf"),
        (Layer::L7, Balancer::Haproxy, "l7-haproxy.cfg"),
        (Layer::L7, Balancer::Nginx, "l7-nginx.conf"),
    ] {
        let setup = Setup {
            addresses: vec![Address::First, Address::Second, Address::Ipv6],
            ..Setup::new(layer, balancer)
        };
        all.push((name, setup));
    }
    let haproxy = |layer| Setup::new(layer, Balancer::Haproxy);
    all.push(("l4-haproxy.cfg, Traefik", Setup { ingress: Ingress::Traefik, ..haproxy(Layer::L4) }));
    all.push(("l7-haproxy.cfg, Traefik", Setup { ingress: Ingress::Traefik, ..haproxy(Layer::L7) }));
    all.push(("client addresses preserved, from outside", Setup::new(Layer::L4, Balancer::Preserving)));
    // Rancher leaves 80 and 443 out of its links, so neither does harm; nor does a port that nobody sends.
    for (name, edit) in [
        ("X-Forwarded-Port 80 beside https", ("X-Forwarded-Port 443", "X-Forwarded-Port 80")),
        ("X-Forwarded-Port taken off", ("set-header X-Forwarded-Port 443", "del-header X-Forwarded-Port")),
        ("X-Forwarded-For taken off", ("set-header X-Forwarded-For %[src]", "del-header X-Forwarded-For")),
    ] {
        all.push((name, Setup { balancer_edits: vec![edit], ..haproxy(Layer::L7) }));
    }
    all.push(("4 MB at /", Setup { root: Root::Huge, ..haproxy(Layer::L7) }));
    all
}

/// Whether this setup can stand here.
fn can_stand(setup: &Setup) -> bool {
    let given = std::env::var_os(TRAEFIK).is_some_and(|path| !path.is_empty());
    let stream = std::path::Path::new("/usr/lib/nginx/modules/ngx_stream_module.so").exists();
    (setup.ingress != Ingress::Traefik || given)
        && (setup.balancer != Balancer::Nginx || setup.layer != Layer::L4 || stream)
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn what_is_published_is_good() {
    let mut table = Table::new("the way in: what is published");
    let mut bed = bed();
    let mut wrong = Vec::new();
    for (name, setup) in good().into_iter().filter(|(name, _)| chosen(name)) {
        if !can_stand(&setup) {
            table.row("none", name, "left out: the program is missing here");
            continue;
        }
        bed.arrange(&setup).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        let (checked, took) = pass(&bed, &setup, From::Outside);
        let seen = checked.condition("LoadBalancerForwarding").map(said).unwrap_or_default();
        table.timed("none", name, seen, took, None);
        if checked.code != 0 {
            wrong.push(format!("{name} as published: exit {}\n{}", checked.code, checked.lines()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn bed() -> Bed {
    if let Some(why) = missing() {
        panic!("{why}");
    }
    Bed::new().expect("a bed")
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn each_fault_of_headers_and_web_sockets_is_told() {
    let [faults, _, _, _] = parts();
    told("headers and WebSockets", faults);
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn each_fault_of_proxy_protocol_and_backends_is_told() {
    let [_, faults, _, _] = parts();
    told("PROXY protocol and backends", faults);
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn each_fault_of_certificates_and_authorities_is_told() {
    let [_, _, faults, _] = parts();
    told("certificates and CAs", faults);
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn each_fault_of_ways_and_answers_is_told() {
    let [_, _, _, faults] = parts();
    told("addresses, ports, answers", faults);
}

/// Makes the faults one after another; of each the right condition must say the right thing, with advice.
fn told(of: &str, faults: Vec<Fault>) {
    let mut table = Table::new(&format!("the way in: each fault ({of})"));
    let mut bed = bed();
    let mut wrong = Vec::new();
    for fault in faults.into_iter().filter(|f| chosen(f.name)) {
        let Fault { name, made, setup, from, kind, reason, words } = fault;
        if !can_stand(&setup) {
            table.row(name, made, "left out: the program is missing here");
            continue;
        }
        bed.arrange(&setup).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        let (checked, took) = pass(&bed, &setup, from);
        let condition = checked.condition(kind);
        table.timed(name, made, condition.map(said).unwrap_or_default(), took, None);
        let right = condition.is_some_and(|c| {
            c.reason.as_str() == reason && !c.advice.is_empty() && words.iter().all(|w| c.message.contains(w))
        });
        if !right {
            wrong.push(format!("{name}: wanted {kind} {reason} {words:?}, got\n{}", checked.lines()));
        }
        if checked.code == 0 {
            wrong.push(format!("{name}: exit 0\n{}", checked.lines()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// What is told of each is what `told` saw. Another fault with the same reason must differ in its subject or in words that the
/// message holds, whichever test made it.
#[test]
#[ignore = "run by tests/run --suite way-in"]
fn every_fault_is_told_from_its_neighbours() {
    let mut verdicts: BTreeMap<(&str, String), &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for fault in parts().into_iter().flatten() {
        let Fault { name, kind, reason, words, .. } = fault;
        if let Some(other) = verdicts.insert((kind, format!("{reason} {words:?}")), name)
            && !same_cause(name, other)
        {
            wrong.push(format!("{name} and {other} are both {kind} {reason} {words:?}"));
        }
    }
    assert!(verdicts.len() > 40 && wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Faults that are one and the same for whoever looks from outside: which program replaces a header, on which layer a PROXY
/// header is not expected, whether nginx took off the upgrade by its own default or by HTTP/1.0.
fn same_cause(one: &str, other: &str) -> bool {
    let alike = [
        [
            "X-Forwarded-Proto is replaced by the ingress (nginx)",
            "X-Forwarded-Proto is replaced by the ingress (Traefik)",
        ],
        ["X-Forwarded-Proto is not sent", "X-Forwarded-Proto is a list"],
        ["no upgrade headers", "HTTP/1.0 to the ingress"],
        ["PROXY protocol at the balancer only, L4", "PROXY protocol at the balancer only, L7"],
        ["PROXY protocol at the ingress only, L4", "PROXY protocol at the ingress only, L7"],
    ];
    alike.iter().any(|pair| pair.contains(&one) && pair.contains(&other))
}
