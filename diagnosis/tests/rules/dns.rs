//! The rules of the check `dns`: every kind of fault, told from its neighbours.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::expect;
use crate::registry::{fact, word};
use crate::world::{self, CLUSTER, Change, FIRST, SECOND, absent, dns_answer, known, server_answer, unknown};

pub(crate) fn judged(dns: DnsFacts, profile: Profile) -> Vec<Finding> {
    let checks = CheckFacts { dns: Some(known(dns)), ..CheckFacts::default() };
    judge(&world::node_facts(checks).with(|f| f.node.profile = profile)).findings
}

#[track_caller]
pub(crate) fn about(dns: DnsFacts, subject: &str) -> Finding {
    let found = judged(dns, Profile::Generic);
    found.into_iter().find(|f| f.subject == subject).expect("a finding")
}

/// The finding about the name, with its facts changed.
#[track_caller]
pub(crate) fn name(change: impl FnOnce(&mut NameFacts)) -> Finding {
    about(world::dns().with(|d| change(&mut d.names[0])), "rancher.example")
}

#[track_caller]
pub(crate) fn servers(change: impl FnOnce(&mut DnsFacts)) -> Finding {
    about(world::dns().with(change), "servers")
}

/// Every server says the same.
pub(crate) fn all_say(name: &mut NameFacts, code: &str, addresses: &[&str]) {
    for answer in &mut name.answers {
        *answer = server_answer(&answer.server.clone(), code, addresses);
    }
}

pub(crate) fn silent(server: &str) -> ServerAnswer {
    world::no_answer(server, UnknownCause::TimedOut)
}

#[test]
fn a_healthy_node_has_a_row_a_name_and_one_for_the_servers() {
    let found = judged(world::dns(), Profile::Generic);
    let rows: Vec<_> = found.iter().map(|f| (f.subject.as_str(), f.severity)).collect();
    assert_eq!(rows, [("rancher.example", Severity::Ok), ("servers", Severity::Ok)]);
    expect(
        &found[0],
        Status::True,
        Severity::Ok,
        ReasonCode::NamesResolve,
        &["192.0.2.10", "3 of 3", "60 s"],
    );
    expect(&found[1], Status::True, Severity::Ok, ReasonCode::NamesResolve, &["3 DNS servers", "10.43.0.10"]);
}

#[test]
fn no_such_name_no_address_failing_refusing_and_silent_servers_are_told_apart() {
    let lost = |n: &mut NameFacts| n.host = absent("getaddrinfo(3)");
    let f = name(|n| {
        lost(n);
        all_say(n, "NXDOMAIN", &[]);
    });
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::NameNotResolved,
        &["does not exist", "NXDOMAIN", "10.0.0.2"],
    );
    let f = name(|n| {
        lost(n);
        all_say(n, "NOERROR", &[]);
    });
    expect(&f, Status::False, Severity::Error, ReasonCode::NameNotResolved, &["neither an A nor an AAAA"]);
    for (code, words) in [("SERVFAIL", "DNSSEC"), ("REFUSED", "allow-query"), ("FORMERR", "plain question")] {
        let f = name(|n| {
            n.host = unknown(UnknownCause::NameNotResolved);
            all_say(n, code, &[]);
        });
        expect(&f, Status::False, Severity::Error, ReasonCode::DnsServerFailing, &[code, words]);
    }
    let f = name(|n| {
        n.host = unknown(UnknownCause::NameNotResolved);
        n.answers = vec![silent(FIRST), world::no_answer(SECOND, UnknownCause::ConnectionRefused)];
    });
    let words = ["10.0.0.2 does not answer (silent)", "10.0.0.3 does not answer (nothing listens there)"];
    expect(&f, Status::False, Severity::Error, ReasonCode::DnsServerDown, &words);
}

#[test]
fn a_name_that_only_this_host_misses_names_the_host() {
    let f = name(|n| n.host = absent("getaddrinfo(3)"));
    let words = ["does not resolve on this host", "10.0.0.2 says 192.0.2.10", "nsswitch"];
    expect(&f, Status::False, Severity::Error, ReasonCode::NameNotResolved, &words);
}

#[test]
fn the_hosts_file_alone_is_an_error_where_pods_are_and_a_warning_elsewhere() {
    let only_here = |n: &mut NameFacts| {
        n.hosts_file = vec!["192.0.2.10".into()];
        all_say(n, "NXDOMAIN", &[]);
    };
    let words = ["/etc/hosts alone", "Pods of this node cannot", "NXDOMAIN"];
    expect(&name(only_here), Status::False, Severity::Error, ReasonCode::NameOnlyOnHost, &words);
    let f = about(
        world::dns().with(|d| {
            d.pods = Fact::not_applicable("no Kubernetes", world::now());
            d.servers.truncate(2);
            only_here(&mut d.names[0]);
        }),
        "rancher.example",
    );
    expect(&f, Status::True, Severity::Warn, ReasonCode::NameOnlyOnHost, &["/etc/hosts alone"]);
    let f = name(|n| all_say(n, "NXDOMAIN", &[]));
    expect(&f, Status::False, Severity::Error, ReasonCode::NameOnlyOnHost, &["nsswitch.conf"]);
}

/// Nobody confirms what stands in the file: no server says yes.
#[test]
fn the_hosts_file_with_servers_that_fail_or_are_silent() {
    let by_file = |n: &mut NameFacts| n.hosts_file = vec!["192.0.2.10".into()];
    for code in ["SERVFAIL", "REFUSED"] {
        let f = name(|n| {
            by_file(n);
            all_say(n, code, &[]);
        });
        let words = ["/etc/hosts alone", code, "cannot resolve it now", "Get the named servers to answer"];
        expect(&f, Status::False, Severity::Error, ReasonCode::NameOnlyOnHost, &words);
    }
    let lost = |n: &mut NameFacts| n.answers = vec![silent(FIRST), silent(SECOND)];
    let f = name(|n| {
        by_file(n);
        lost(n);
    });
    expect(&f, Status::False, Severity::Error, ReasonCode::NameOnlyOnHost, &["/etc/hosts alone", "(silent)"]);
    // Without the file something else has it: a cache.
    let words = ["by something else than the servers asked", "(silent)"];
    expect(&name(lost), Status::False, Severity::Error, ReasonCode::DnsServerDown, &words);
    let f = name(|n| all_say(n, "SERVFAIL", &[]));
    expect(&f, Status::False, Severity::Error, ReasonCode::DnsServerFailing, &["SERVFAIL", "DNSSEC"]);
}

#[test]
fn a_hosts_file_that_contradicts_dns_shows_both() {
    let f = name(|n| {
        n.hosts_file = vec!["192.0.2.99".into()];
        n.host = known(HostAnswer { addresses: vec!["192.0.2.99".into()], ms: 0 });
    });
    let words = ["/etc/hosts", "192.0.2.99", "192.0.2.10"];
    expect(&f, Status::False, Severity::Error, ReasonCode::DnsAnswersDiffer, &words);
}

#[test]
fn loopback_comes_from_the_hosts_file_or_from_a_filter() {
    let f = name(|n| {
        n.hosts_file = vec!["127.0.1.1".into()];
        n.host = known(HostAnswer { addresses: vec!["127.0.1.1".into()], ms: 0 });
    });
    expect(&f, Status::False, Severity::Error, ReasonCode::NameIsLoopback, &["127.0.1.1", "/etc/hosts"]);
    for address in ["0.0.0.0", "::1", "::ffff:127.0.0.1", "127.5.5.5"] {
        let f = name(|n| {
            all_say(n, "NOERROR", &[address]);
            n.host = known(HostAnswer { addresses: vec![address.into()], ms: 0 });
        });
        expect(&f, Status::False, Severity::Error, ReasonCode::NameIsLoopback, &[address]);
    }
    let f = name(|n| n.answers[1] = server_answer(SECOND, "NOERROR", &["127.0.0.1"]));
    expect(&f, Status::False, Severity::Error, ReasonCode::NameIsLoopback, &["says 10.0.0.3"]);
}

#[test]
fn split_horizon_and_rotation_are_two_things() {
    let f = name(|n| n.answers[1] = server_answer(SECOND, "NOERROR", &["203.0.113.7"]));
    let words = ["split horizon", "10.0.0.2 says 192.0.2.10", "10.0.0.3 says 203.0.113.7"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::DnsAnswersDiffer, &words);
    let f = name(|n| {
        n.answers[0] = server_answer(FIRST, "NOERROR", &["10.1.1.1"]);
        n.answers[1] = server_answer(SECOND, "NOERROR", &["203.0.113.7"]);
    });
    assert!(f.message.contains("One is a private address"), "{f:?}");
    let f = name(|n| n.answers[1] = server_answer(SECOND, "NOERROR", &["192.0.2.10", "192.0.2.11"]));
    expect(&f, Status::True, Severity::Info, ReasonCode::DnsAnswersDiffer, &["different parts"]);
}

#[test]
fn servers_that_disagree_whether_it_exists_are_quoted() {
    let f = name(|n| n.answers[1] = server_answer(SECOND, "NXDOMAIN", &[]));
    let words = ["disagree", "10.0.0.2 says 192.0.2.10", "10.0.0.3 says that it does not exist", "by chance"];
    expect(&f, Status::False, Severity::Error, ReasonCode::DnsAnswersDiffer, &words);
}

#[test]
fn what_the_cluster_dns_tells_the_pods_is_compared() {
    let f = name(|n| n.answers[2] = server_answer(CLUSTER, "NXDOMAIN", &[]));
    let words = ["Pods cannot resolve", "the cluster DNS 10.43.0.10", "192.0.2.10", "CoreDNS forwards"];
    expect(&f, Status::False, Severity::Error, ReasonCode::DnsAnswersDiffer, &words);
    let f = name(|n| n.answers[2] = server_answer(CLUSTER, "NOERROR", &["198.51.100.1"]));
    expect(&f, Status::True, Severity::Warn, ReasonCode::DnsAnswersDiffer, &["Pods are sent elsewhere"]);
    let f = name(|n| n.answers[2] = server_answer(CLUSTER, "SERVFAIL", &[]));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::DnsServerFailing,
        &["the cluster DNS", "SERVFAIL"],
    );
}

#[test]
fn one_failing_server_of_two_is_a_warning() {
    let f = name(|n| n.answers[1] = server_answer(SECOND, "REFUSED", &[]));
    expect(&f, Status::True, Severity::Warn, ReasonCode::DnsServerFailing, &["10.0.0.3 answers REFUSED"]);
}

#[test]
fn aliases_in_a_circle_and_into_nowhere() {
    let with = |change: &dyn Fn(&mut DnsAnswer)| {
        name(|n| {
            n.host = unknown(UnknownCause::NameNotResolved);
            for answer in &mut n.answers {
                let alias = dns_answer("NOERROR", &[]).with(|a| {
                    a.aliases = vec!["b.example".into(), "rancher.example".into()];
                    change(a);
                });
                (answer.a, answer.aaaa) = (known(alias.clone()), known(alias));
            }
        })
    };
    let f = with(&|a| a.alias_loop = true);
    let words = ["circle", "rancher.example -> b.example -> rancher.example"];
    expect(&f, Status::False, Severity::Error, ReasonCode::DnsAliasBroken, &words);
    let f = with(&|a| (a.aliases, a.code) = (vec!["gone.example".into()], DnsCode::NxDomain));
    let words = ["ends at a name that does not exist", "gone.example"];
    expect(&f, Status::False, Severity::Error, ReasonCode::DnsAliasBroken, &words);
}

#[test]
fn a_cut_answer_that_tcp_does_not_complete() {
    let cut = |addresses: &'static [&'static str]| {
        name(move |n| {
            let answer = dns_answer("NOERROR", addresses).with(|a| {
                (a.truncated, a.tcp_failure) = (true, "connection refused".into());
            });
            n.answers[0].a = known(answer);
        })
    };
    let words = ["too long for UDP", "connection refused", "TCP port 53"];
    expect(&cut(&["192.0.2.10"]), Status::True, Severity::Warn, ReasonCode::DnsAnswerTruncated, &words);
    expect(&cut(&[]), Status::False, Severity::Error, ReasonCode::DnsAnswerTruncated, &words);
    // Where nobody has it, who gave half an answer was asked all the same.
    let f = name(|n| {
        n.hosts_file = vec!["192.0.2.10".into()];
        all_say(n, "NXDOMAIN", &[]);
        let answer = dns_answer("NOERROR", &[]);
        n.answers[0].a = known(answer.with(|a| (a.truncated, a.tcp_failure) = (true, "refused".into())));
        n.answers[0].aaaa = n.answers[0].a.clone();
    });
    assert!(!f.message.contains("was not asked"), "{f:#?}");
}

#[test]
fn a_server_that_denies_the_name_for_one_family() {
    let f = name(|n| n.answers[0].aaaa = known(dns_answer("NXDOMAIN", &[])));
    let words = ["has A records", "NXDOMAIN when asked for AAAA", "musl"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::DnsFamiliesDisagree, &words);
    let f = name(|n| n.answers[0].aaaa = unknown(UnknownCause::TimedOut));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::DnsFamiliesDisagree,
        &["does not answer when asked for AAAA"],
    );
}

#[test]
fn addresses_without_a_route() {
    let with = |addresses: &[&str], dead: &[&str]| {
        name(|n| {
            let addresses: Vec<String> = addresses.iter().map(|a| (*a).to_owned()).collect();
            n.ways = addresses
                .iter()
                .map(|a| AddressWay {
                    address: a.clone(),
                    from: if dead.contains(&a.as_str()) { absent("route") } else { known("10.0.0.1".into()) },
                })
                .collect();
            n.host = known(HostAnswer { addresses, ms: 1 });
        })
    };
    let f = with(&["192.0.2.10", "2001:db8::1"], &["2001:db8::1"]);
    expect(
        &f,
        Status::True,
        Severity::Info,
        ReasonCode::AddressUnroutable,
        &["1 of 2 addresses", "IPv6 2001:db8::1"],
    );
    let f = with(&["2001:db8::1"], &["2001:db8::1"]);
    expect(&f, Status::False, Severity::Error, ReasonCode::AddressUnroutable, &["no route to any IPv6"]);
}

fn appended(of: &[&str], addresses: &[&str]) -> AppendedName {
    AppendedName {
        name: "rancher.example".into(),
        domain: "corp.example".into(),
        of: of.iter().map(|o| (*o).to_owned()).collect(),
        server: FIRST.into(),
        addresses: addresses.iter().map(|a| (*a).to_owned()).collect(),
        wildcard: true,
    }
}

#[test]
fn a_search_domain_with_a_wildcard_counts_by_who_tries_it_first() {
    let with = |of: &[&str], addresses: &[&str], ndots: u32| {
        let dns = world::dns().with(|d| {
            d.appended = vec![appended(of, addresses)];
            d.resolv_conf = known(ResolvConf { ndots, ..world::resolv_conf(&["10.0.0.2"]) });
        });
        about(dns, "rancher.example")
    };
    let words = ["rancher.example.corp.example is 198.51.100.9", "wildcard", "pods (ndots 5)"];
    let reason = ReasonCode::SearchDomainWildcard;
    expect(
        &with(&["host", "pods"], &["198.51.100.9"], 1),
        Status::False,
        Severity::Error,
        reason.clone(),
        &words,
    );
    assert_eq!(with(&["host"], &["198.51.100.9"], 1).severity, Severity::Info);
    assert_eq!(with(&["host"], &["198.51.100.9"], 3).severity, Severity::Error);
    assert_eq!(with(&["pods"], &["192.0.2.10"], 1).severity, Severity::Info, "the same place");
    // The servers deny the name itself, and glibc goes on to the domains.
    let denied = |here: &str, of: &[&str]| {
        let dns = world::dns().with(|d| {
            d.appended = vec![appended(of, &["198.51.100.9"])];
            d.names[0].host = known(HostAnswer { addresses: vec![here.into()], ms: 1 });
            all_say(&mut d.names[0], "NXDOMAIN", &[]);
        });
        about(dns, "rancher.example")
    };
    let words = [
        "does not exist",
        "connects to 198.51.100.9",
        "rancher.example.corp.example",
        "NXDOMAIN",
        "as pods do",
    ];
    let f = denied("198.51.100.9", &["host", "pods"]);
    expect(&f, Status::False, Severity::Error, reason, &words);
    assert!(!f.advice.contains("/etc/hosts"), "{f:#?}");
    assert_eq!(denied("192.0.2.10", &["host"]).reason, ReasonCode::NameOnlyOnHost);
}

#[test]
fn link_local_addresses_are_of_no_use_in_a_name() {
    let words = ["1 of 2 addresses", "link-local", "fe80::1"];
    let f = name(|n| {
        n.host = known(HostAnswer { addresses: vec!["fe80::1".into(), "192.0.2.10".into()], ms: 1 });
        for answer in &mut n.answers {
            answer.aaaa = known(dns_answer("NOERROR", &["fe80::1"]));
        }
    });
    expect(&f, Status::True, Severity::Warn, ReasonCode::AddressUnroutable, &words);
}

#[test]
fn a_name_that_dns_does_not_have_and_one_that_a_proxy_resolves() {
    let f = name(|n| n.problem = "'\u{308}' in it cannot be written in punycode".into());
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::NameNotResolved,
        &["cannot be looked up", "punycode"],
    );
    let mut facts = world::node_facts(CheckFacts {
        dns: Some(known(world::dns().with(|d| {
            d.names[0].host = absent("getaddrinfo(3)");
            all_say(&mut d.names[0], "NXDOMAIN", &[]);
        }))),
        ..CheckFacts::default()
    });
    let reading = world::proxy_reading("rancher.example", DirectKind::Server, false, false);
    let proxies = world::proxies("rancher-system-agent", vec![], vec![reading]);
    let rancher = world::rancher_agent().with(|r| r.proxies = vec![proxies]);
    facts.checks.rancher_agent = Some(known(rancher));
    let found = judge(&facts).findings;
    let f = found
        .iter()
        .find(|f| f.condition_type == ConditionType::DnsResolves && f.subject == "rancher.example");
    expect(f.unwrap(), Status::True, Severity::Warn, ReasonCode::NameNotResolved, &["through a proxy"]);
}

/// Any facts of this check.
pub(crate) fn any_dns() -> impl Strategy<Value = DnsFacts> {
    const CODES: &[&str] = &["NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED", "code 9"];
    const ADDRESSES: &[&str] = &["192.0.2.10", "127.0.0.1", "10.0.0.1", "2001:db8::1", "odd"];
    let answer = || {
        let parts = (word(CODES), prop::collection::vec(word(ADDRESSES), 0..3), 0u8..8);
        parts.prop_map(|(code, addresses, kind)| {
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            dns_answer(&code, &addresses).with(|a| match kind {
                0 => (a.aliases, a.alias_loop) = (vec!["b.example".into()], true),
                1 => a.aliases = vec!["b.example".into()],
                2 => (a.truncated, a.tcp_failure) = (true, "refused".into()),
                _ => {}
            })
        })
    };
    let answers = prop::collection::vec((fact(answer()), fact(answer())), 0..4);
    let host = prop::collection::vec(word(ADDRESSES), 0..3);
    let name = (fact(host), answers, prop::option::of(word(ADDRESSES)), any::<[bool; 3]>());
    let name = name.prop_map(|(host, answers, file, [problem, own, appended])| {
        let name = world::rancher_name().with(|n| {
            n.host = host.map(|addresses| HostAnswer { addresses, ms: 1 });
            n.hosts_file = file.into_iter().collect();
            let servers = [FIRST, SECOND, CLUSTER, "10.9.9.9:53"];
            n.answers = answers
                .into_iter()
                .zip(servers)
                .map(|((a, aaaa), server)| ServerAnswer { server: server.into(), a, aaaa })
                .collect();
            if problem && own {
                n.problem = "it is odd".into();
            }
            if own {
                n.ways = ADDRESSES
                    .iter()
                    .map(|a| AddressWay { address: (*a).into(), from: known((*a).into()) })
                    .collect();
            }
        });
        (name, appended)
    });
    let conf = || {
        let words = word(&["10.0.0.2", "127.0.0.53", "8.8.8.8"]);
        prop::collection::vec(words, 0..5).prop_map(|servers| {
            let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
            world::resolv_conf(&servers)
        })
    };
    let rest =
        (fact(conf()), fact(conf()), fact(answer()), fact(Just(vec!["198.51.100.9".to_owned()])), 0usize..4);
    (prop::collection::vec(name, 0..3), rest).prop_map(
        |(names, (own, pods, nonsense, host_nonsense, servers))| {
            world::dns().with(|d| {
                d.appended = names
                    .iter()
                    .filter(|(_, a)| *a)
                    .map(|_| appended(&["pods"], &["198.51.100.9"]))
                    .collect();
                d.names = names.into_iter().map(|(name, _)| name).collect();
                (d.resolv_conf, d.pods, d.nonsense) = (own, pods, host_nonsense);
                d.servers.truncate(servers);
                d.servers.iter_mut().for_each(|s| s.nonsense = nonsense.clone());
            })
        },
    )
}
