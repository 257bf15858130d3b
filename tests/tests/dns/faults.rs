//! Each fault made at real dnsmasq, in the files that glibc reads, or in both.

use outrider_tests::programs::Process;
use outrider_tests::table::Table;

use crate::bed::*;

/// One fault: what, how, the servers' options, the files, and the reason expected about which subject.
struct Fault {
    fault: &'static str,
    made: &'static str,
    first: Option<Vec<String>>,
    second: Option<Vec<String>>,
    files: &'static [(&'static str, &'static str)],
    subject: &'static str,
    reason: &'static str,
    words: &'static [&'static str],
}

#[test]
#[ignore = "needs root, dnsmasq and ip"]
fn each_fault_is_told_from_its_neighbours() {
    on_a_machine_of_its_own(|node| {
        let mut table = Table::new("dns: dnsmasq on two addresses, glibc beside them");
        for fault in faults() {
            node.reset();
            for (path, text) in fault.files {
                node.write(path, text);
            }
            let servers = [(FIRST, &fault.first), (SECOND, &fault.second)];
            let running: Vec<Process> = servers
                .into_iter()
                .filter_map(|(address, options)| Some(node.server(address, &words(options.as_ref()?))))
                .collect();
            let start = std::time::Instant::now();
            let checked = node.check();
            let took = start.elapsed();
            let condition = about(&checked, fault.subject);
            assert_eq!(condition.reason.as_str(), fault.reason, "{}:\n{}", fault.fault, checked.lines());
            for word in fault.words {
                let found = condition.message.contains(word) || condition.advice.contains(word);
                assert!(found, "{}: {word:?} is missing in\n{}", fault.fault, checked.lines());
            }
            let seen = format!("{} {} {}", condition.status, condition.severity, condition.reason);
            // Without a daemon a verdict is shown at the first look; the cure is the next row's start.
            table.timed(fault.fault, fault.made, seen, took, None);
            drop(running);
        }
    });
}

fn faults() -> Vec<Fault> {
    let s = |options: &[&str]| Some(options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>());
    let ok = || Some(good());
    let with = |more: &[&str]| {
        let mut all = good();
        all.extend(more.iter().map(|o| (*o).to_owned()));
        Some(all)
    };
    let fault = |fault, made, first, second, subject, reason, words| Fault {
        fault,
        made,
        first,
        second,
        files: &[],
        subject,
        reason,
        words,
    };
    vec![
        fault(
            "none",
            "two servers that agree",
            ok(),
            ok(),
            NAME,
            "NamesResolve",
            &["198.51.100.10", "2 of 2"],
        ),
        fault("none", "the same, the servers", ok(), ok(), "servers", "NamesResolve", &["2 DNS servers"]),
        fault(
            "no such name",
            "--local=/#/",
            s(&["--local=/#/"]),
            s(&["--local=/#/"]),
            NAME,
            "NameNotResolved",
            &["NXDOMAIN"],
        ),
        fault(
            "a name without an address",
            "--txt-record alone",
            s(&["--txt-record=rancher.example,x", "--local=/#/"]),
            s(&["--txt-record=rancher.example,x", "--local=/#/"]),
            NAME,
            "NameNotResolved",
            &["neither an A nor an AAAA"],
        ),
        fault(
            "REFUSED",
            "dnsmasq without upstreams",
            s(&[]),
            s(&[]),
            NAME,
            "DnsServerFailing",
            &["REFUSED", "allow-query"],
        ),
        fault(
            "no server answers",
            "nobody listens",
            None,
            None,
            NAME,
            "DnsServerDown",
            &["nothing listens there"],
        ),
        fault(
            "the first server is dead",
            "nobody listens at it",
            None,
            ok(),
            "servers",
            "DnsServerDown",
            &["first", FIRST],
        ),
        fault(
            "the spare is dead",
            "nobody listens at it",
            ok(),
            None,
            "servers",
            "DnsServerDown",
            &["spare", SECOND],
        ),
        fault("the name is well all the same", "the same", None, ok(), NAME, "NamesResolve", &["1 of 2"]),
        fault(
            "split horizon",
            "another address at the second",
            ok(),
            s(&["--host-record=rancher.example,10.7.7.7", "--local=/#/"]),
            NAME,
            "DnsAnswersDiffer",
            &["127.1.0.2 says 198.51.100.10", "127.1.0.3 says 10.7.7.7", "private"],
        ),
        fault(
            "one server does not know it",
            "--local=/#/ at the first",
            s(&["--local=/#/"]),
            ok(),
            NAME,
            "NameNotResolved",
            &["does not resolve on this host", "says 198.51.100.10"],
        ),
        fault(
            "loopback from a filter",
            "--address=/rancher.example/0.0.0.0",
            s(&["--address=/rancher.example/0.0.0.0", "--local=/#/"]),
            s(&["--address=/rancher.example/0.0.0.0", "--local=/#/"]),
            NAME,
            "NameIsLoopback",
            &["0.0.0.0"],
        ),
        fault(
            "this node alone",
            "the record has this node's address",
            s(&["--host-record=rancher.example,192.0.2.1", "--local=/#/"]),
            s(&["--host-record=rancher.example,192.0.2.1", "--local=/#/"]),
            NAME,
            "NameIsThisNode",
            &["192.0.2.1", "single server"],
        ),
        fault(
            "AAAA without a way",
            "an AAAA record, no IPv6 route",
            s(&["--host-record=rancher.example,198.51.100.10,2001:db8::7", "--local=/#/"]),
            s(&["--host-record=rancher.example,198.51.100.10,2001:db8::7", "--local=/#/"]),
            NAME,
            "AddressUnroutable",
            &["2001:db8::7", "1 of 2 addresses"],
        ),
        fault(
            "none",
            "an alias of an alias",
            s(&[
                "--cname=rancher.example,lb.example",
                "--cname=lb.example,node.example",
                "--host-record=node.example,198.51.100.10",
                "--local=/#/",
            ]),
            s(&[
                "--cname=rancher.example,lb.example",
                "--cname=lb.example,node.example",
                "--host-record=node.example,198.51.100.10",
                "--local=/#/",
            ]),
            NAME,
            "NamesResolve",
            &["198.51.100.10", "node.example"],
        ),
        fault(
            "answers everything",
            "--address=/#/203.0.113.9",
            s(&["--host-record=rancher.example,198.51.100.10", "--address=/#/203.0.113.9"]),
            ok(),
            "servers",
            "DnsAnswersEverything",
            &[".invalid cannot exist", FIRST],
        ),
        Fault {
            files: &[("/etc/hosts", "127.0.0.1 localhost\n198.51.100.10 rancher.example\n")],
            ..fault(
                "in the hosts file alone",
                "an entry, and servers that deny it",
                s(&["--local=/#/"]),
                s(&["--local=/#/"]),
                NAME,
                "NameOnlyOnHost",
                &["/etc/hosts alone", "NXDOMAIN"],
            )
        },
        Fault {
            files: &[("/etc/hosts", "198.51.100.99 rancher.example\n")],
            ..fault(
                "the hosts file contradicts DNS",
                "an entry with another address",
                ok(),
                ok(),
                NAME,
                "DnsAnswersDiffer",
                &["/etc/hosts", "198.51.100.99", "198.51.100.10"],
            )
        },
        Fault {
            files: &[("/etc/hosts", "127.0.1.1 rancher.example\n")],
            ..fault(
                "loopback from the hosts file",
                "127.0.1.1",
                ok(),
                ok(),
                NAME,
                "NameIsLoopback",
                &["127.0.1.1"],
            )
        },
        Fault {
            files: &[(
                "/etc/resolv.conf",
                "search corp.example\nnameserver 127.1.0.2\nnameserver 127.1.0.3\n",
            )],
            ..fault(
                "a wildcard behind a search domain",
                "search corp.example, --address=/corp.example/…",
                with(&["--address=/corp.example/198.51.100.5"]),
                with(&["--address=/corp.example/198.51.100.5"]),
                "servers",
                "SearchDomainWildcard",
                &["corp.example", "198.51.100.5"],
            )
        },
        Fault {
            files: &[(
                "/etc/resolv.conf",
                "search corp.example\nnameserver 127.1.0.2\nnameserver 127.1.0.3\noptions ndots:5\n",
            )],
            ..fault(
                "tried before the name itself",
                "the same with ndots:5",
                with(&["--address=/corp.example/198.51.100.5"]),
                with(&["--address=/corp.example/198.51.100.5"]),
                NAME,
                "SearchDomainWildcard",
                &["rancher.example.corp.example is 198.51.100.5", "this host"],
            )
        },
        Fault {
            files: &[(
                "/etc/resolv.conf",
                "nameserver 127.1.0.2\nnameserver 127.1.0.3\nnameserver 127.1.0.2\nnameserver 127.1.0.9\n",
            )],
            ..fault(
                "a fourth server",
                "four lines",
                ok(),
                ok(),
                "servers",
                "DnsServersIgnored",
                &["127.1.0.9 never is"],
            )
        },
        Fault {
            files: &[(
                "/etc/resolv.conf",
                "nameserver 127.1.0.2\nnameserver 127.1.0.3\nnameserver dns.example\n",
            )],
            ..fault(
                "a line without effect",
                "a name as nameserver",
                ok(),
                ok(),
                "servers",
                "DnsServersIgnored",
                &["line 3"],
            )
        },
    ]
}
