//! A name that leads to this node alone.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::dns::{about, all_say, judged, name};
use crate::expect;
use crate::world::{self, Change, known};

/// The one address of the name is this node's.
fn own(n: &mut NameFacts) {
    n.host = known(HostAnswer { addresses: vec!["10.0.0.1".into()], ms: 0 });
    n.ways = vec![AddressWay { address: "10.0.0.1".into(), from: known("10.0.0.1".into()) }];
}

#[test]
fn this_node_alone_is_an_error_by_the_hosts_file_and_a_word_by_dns() {
    let f = name(|n| {
        own(n);
        n.answers.clear();
        n.hosts_file = vec!["10.0.0.1".into()];
    });
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::NameIsThisNode,
        &["this node alone", "DNS does not say so"],
    );
    let everywhere = world::dns().with(|d| {
        own(&mut d.names[0]);
        all_say(&mut d.names[0], "NOERROR", &["10.0.0.1"]);
    });
    let f = about(everywhere.clone(), "rancher.example");
    expect(&f, Status::True, Severity::Info, ReasonCode::NameIsThisNode, &["single server"]);
    let ha = judged(everywhere, Profile::RancherHaServer);
    assert_eq!((ha[0].severity, &ha[0].reason), (Severity::Warn, &ReasonCode::NameIsThisNode));
}

/// Several servers are known of, whatever the profile says (E20). Not so by an address that is no member's: a virtual one is
/// at this node today.
#[test]
fn this_node_alone_is_an_error_beside_other_voters_of_etcd() {
    let beside = |wanted_by: &str, etcd: EtcdFacts| -> Finding {
        let dns = world::dns().with(|d| {
            own(&mut d.names[0]);
            all_say(&mut d.names[0], "NOERROR", &["10.0.0.1"]);
            d.names[0].wanted_by = vec![wanted_by.into()];
        });
        let checks = CheckFacts { dns: Some(known(dns)), etcd: Some(known(etcd)), ..CheckFacts::default() };
        let found = judge(&world::node_facts(checks)).findings;
        found.into_iter().find(|f| f.subject == "rancher.example").unwrap()
    };
    let reason = || ReasonCode::NameIsThisNode;
    for by in ["load balancer rancher", "rancher-system-agent"] {
        let words = ["one of 3 voters of etcd", "to a balancer in front of the servers"];
        expect(&beside(by, world::etcd(3)), Status::False, Severity::Error, reason(), &words);
    }
    let f = beside("server of rke2", world::etcd(3));
    expect(&f, Status::True, Severity::Warn, reason(), &["one of 3 voters of etcd"]);
    let f = beside("load balancer rancher", world::etcd(1));
    expect(&f, Status::True, Severity::Info, reason(), &["single server"]);
    let change = |change: fn(usize, &mut Member)| {
        let mut etcd = world::etcd(3);
        if let Fact::Known { value, .. } = &mut etcd.members {
            value.members.iter_mut().enumerate().for_each(|(i, m)| change(i, m));
        }
        beside("load balancer rancher", etcd).severity
    };
    assert_eq!(change(|i, m| m.is_learner = i > 0), Severity::Info);
    let elsewhere = change(|_, m| {
        for url in m.peer_urls.iter_mut().chain(&mut m.client_urls) {
            *url = url.replace("10.0.0.1:", "10.0.0.9:");
        }
    });
    assert_eq!(elsewhere, Severity::Info);
}
