//! The rules of the check `dns` about who is asked.

use outrider_protocol::*;

use crate::dns::{about, servers, silent};
use crate::expect;
use crate::world::{self, CLUSTER, Change, FIRST, SECOND, absent, dns_answer, known, unknown};

#[test]
fn names_that_cannot_exist() {
    let f = servers(|d| d.servers[0].nonsense = known(dns_answer("NOERROR", &["203.0.113.1"])));
    let words = ["outrider-1.invalid cannot exist", "10.0.0.2 says 203.0.113.1"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::DnsAnswersEverything, &words);
    let f = servers(|d| d.nonsense = known(vec!["198.51.100.9".into()]));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::SearchDomainWildcard,
        &["corp.example", "198.51.100.9"],
    );
}

/// The server and its answers are silent.
fn kill(d: &mut DnsFacts, server: &str) {
    for s in d.servers.iter_mut().filter(|s| s.address == server) {
        s.nonsense = unknown(UnknownCause::TimedOut);
    }
    for answer in d.names.iter_mut().flat_map(|n| &mut n.answers).filter(|a| a.server == server) {
        *answer = silent(server);
    }
}

#[test]
fn a_dead_server_costs_by_its_place() {
    let f = servers(|d| kill(d, FIRST));
    let words = ["10.0.0.2 does not answer (silent)", "waits 5 s", "1 of 2 do"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::DnsServerDown, &words);
    let f = servers(|d| kill(d, SECOND));
    expect(&f, Status::True, Severity::Warn, ReasonCode::DnsServerDown, &["10.0.0.3", "spare"]);
    let f = servers(|d| {
        kill(d, FIRST);
        kill(d, SECOND);
    });
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::DnsServerDown,
        &["No DNS server of this node answers"],
    );
    // The name itself is well as long as one answers.
    let f = about(world::dns().with(|d| kill(d, FIRST)), "rancher.example");
    assert_eq!(f.severity, Severity::Ok);
}

#[test]
fn a_silent_cluster_dns_is_an_error_only_where_its_address_is_known() {
    let f = servers(|d| kill(d, CLUSTER));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::DnsServerDown,
        &["The cluster DNS 10.43.0.10", "CoreDNS"],
    );
    let f = servers(|d| {
        kill(d, CLUSTER);
        d.servers[2].assumed = true;
    });
    expect(&f, Status::True, Severity::Info, ReasonCode::DnsServerDown, &["default"]);
}

#[test]
fn what_pods_are_given() {
    let with = |pods: Fact<ResolvConf>| servers(|d| d.pods = pods);
    let f = with(known(world::resolv_conf(&["127.0.0.53"])));
    let words = ["127.0.0.53", "Loop", "/run/systemd/resolve/resolv.conf"];
    expect(&f, Status::False, Severity::Error, ReasonCode::PodResolverUnfit, &words);
    let path = "/var/lib/rancher/rke2/agent/etc/resolv.conf".to_owned();
    let f = with(known(ResolvConf { path, ..world::resolv_conf(&["8.8.8.8"]) }));
    expect(&f, Status::True, Severity::Warn, ReasonCode::PodResolverUnfit, &["8.8.8.8", "loopback"]);
    let f = with(known(world::resolv_conf(&[])));
    expect(&f, Status::False, Severity::Error, ReasonCode::PodResolverUnfit, &["names no server"]);
    let f = with(absent("/etc/k8s.conf"));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::PodResolverUnfit,
        &["/etc/k8s.conf", "no such file"],
    );
    // Somebody's own choice of 8.8.8.8 is nobody's fallback.
    assert_eq!(with(known(world::resolv_conf(&["8.8.8.8"]))).severity, Severity::Ok);
}

#[test]
fn more_than_three_servers_and_lines_without_effect() {
    let f = servers(|d| {
        d.resolv_conf = known(world::resolv_conf(&["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]))
    });
    let words = ["names 4 servers", "10.0.0.5 never is"];
    expect(&f, Status::True, Severity::Info, ReasonCode::DnsServersIgnored, &words);
    let f = servers(|d| {
        let problems = vec!["line 3: \"dns.example\" is no address".into()];
        d.resolv_conf = known(ResolvConf { problems, ..world::resolv_conf(&["10.0.0.2"]) });
    });
    expect(&f, Status::True, Severity::Warn, ReasonCode::DnsServersIgnored, &["line 3"]);
}

#[test]
fn a_server_that_refuses_every_question() {
    let failing = |codes: &[&str]| {
        servers(|d| {
            for (i, code) in codes.iter().enumerate() {
                d.servers[i].nonsense = known(dns_answer(code, &[]));
                let address = d.servers[i].address.clone();
                for answer in d.names.iter_mut().flat_map(|n| &mut n.answers).filter(|a| a.server == address)
                {
                    *answer = world::server_answer(&address, code, &[]);
                }
            }
        })
    };
    let words = ["1 of 2 DNS servers", "10.0.0.2 with REFUSED", "allow-query"];
    expect(&failing(&["REFUSED"]), Status::True, Severity::Warn, ReasonCode::DnsServerFailing, &words);
    let words = ["2 of 2 DNS servers", "10.0.0.3 with SERVFAIL"];
    let f = failing(&["REFUSED", "SERVFAIL"]);
    expect(&f, Status::False, Severity::Error, ReasonCode::DnsServerFailing, &words);
    // One that does not know a name serves all the same.
    assert_eq!(failing(&["NXDOMAIN"]).reason, ReasonCode::NamesResolve);
}

#[test]
fn a_server_that_is_named_twice() {
    let f = servers(|d| d.resolv_conf = known(world::resolv_conf(&["10.0.0.2", "10.0.0.2"])));
    let words = ["names 10.0.0.2 more than once", "no second server"];
    expect(&f, Status::True, Severity::Info, ReasonCode::DnsServersIgnored, &words);
}
