//! What a port shows, against its file, its authority and the names of this node.

use super::*;

#[test]
fn served_is_not_what_lies_on_disk() {
    // Rotated, not restarted.
    let stale = |days| {
        certificates(NEW, 365).with(|c| {
            c.served[0] =
                served("etcd", 2379, &format!("{TLS}/etcd/server-client.crt"), vec![leaf("old", days)]);
        })
    };
    for (days, status, severity, reason) in [
        (200, Status::True, Severity::Warn, R::CertificateNotServed),
        (100, Status::True, Severity::Warn, R::CertificateNotServed),
        (3, Status::True, Severity::Error, R::CertificateEnding),
        (-3, Status::False, Severity::Error, R::CertificateExpired),
    ] {
        let finding = about(&judged(stale(days)), "etcd:2379");
        expect(
            &finding,
            status,
            severity,
            reason,
            &["Restart needed (systemctl restart rke2-server", "does not see this one"],
        );
        assert!(
            !finding.advice.contains("the process holds"),
            "etcd reads at every handshake: {}",
            finding.advice
        );
        assert!(!finding.advice.contains("does not help"), "{}", finding.advice);
    }
    // The other way round the file is the leftover.
    let newer = certificates(NEW, 3).with(|c| {
        c.served[0] = served("etcd", 2379, &format!("{TLS}/etcd/server-client.crt"), vec![leaf("new", 360)]);
    });
    let finding = about(&judged(newer), "etcd:2379");
    expect(&finding, Status::True, Severity::Info, R::CertificateLeftOver, &["possibly not used"]);
    // One that has ended is what the next start may take.
    let ended = certificates(NEW, -10).with(|c| {
        c.served[0] = served("etcd", 2379, &format!("{TLS}/etcd/server-client.crt"), vec![leaf("new", 360)]);
    });
    expect(
        &about(&judged(ended), "etcd:2379"),
        Status::True,
        Severity::Warn,
        R::CertificateEnding,
        &["it may take at its next start, ended 10 days ago", "a leftover and may be moved away"],
    );
    // A file that cannot be read is told once, under files.
    let broken =
        certificates(NEW, 265).with(|c| c.files[1].certificates = unknown(UnknownCause::InvalidInput));
    let j = judged(broken);
    assert_eq!(about(&j, "etcd:2379").severity, Severity::Ok);
    expect(
        &about(&j, "files"),
        Status::False,
        Severity::Error,
        R::CertificateUnreadable,
        &["server-client.crt"],
    );
}

#[test]
fn one_look_at_a_renewal_under_way_is_no_news() {
    let facts = |c| world::node_facts(CheckFacts { certificates: Some(known(c)), ..CheckFacts::default() });
    let good = facts(certificates(NEW, 365));
    let latches = latch(&[], &judge(&good), good.now).latches;
    let stale = certificates(NEW, 365).with(|c| {
        c.served[0].chain = known(vec![leaf("old", 200)]);
    });
    let j = judge(&facts(stale));
    let shown = |latches: &[Latch], after: u64| {
        let latched = latch(latches, &j, world::now().after(Duration::from_secs(after)));
        let condition = latched.conditions.iter().find(|c| c.subject == "etcd:2379").unwrap().reason.clone();
        (condition, latched.latches)
    };
    let (reason, latches) = shown(&latches, 0);
    assert_eq!(reason, R::CertificatesInDate);
    assert_eq!(shown(&latches, 91).0, R::CertificateNotServed);
}

#[test]
fn another_clusters_certificate_and_names_that_do_not_fit() {
    let foreign = certificates(NEW, 265).with(|c| c.served[0].issuer = world::absent("server-ca.crt"));
    let finding = about(&judged(foreign), "etcd:2379");
    expect(
        &finding,
        Status::False,
        Severity::Error,
        R::CertificateWrong,
        &["did not sign", "another cluster", "sport = :2379"],
    );
    let names = |sans: &[&str]| {
        let sans: Vec<String> = sans.iter().map(|s| (*s).to_owned()).collect();
        let c = certificates(NEW, 265).with(|c| {
            let named = CertificateFacts { sans, ..leaf("etcd", 265) };
            c.served[0].chain = known(vec![named.clone()]);
            c.files[1].certificates = known(vec![named]);
        });
        about(&judged(c), "etcd:2379")
    };
    expect(
        &names(&["10.0.0.9"]),
        Status::False,
        Severity::Error,
        R::CertificateWrong,
        &["n1, 10.0.0.1", "10.0.0.9"],
    );
    expect(
        &names(&["127.0.0.1"]),
        Status::True,
        Severity::Warn,
        R::CertificateWrong,
        &["covers none of this node's"],
    );
    expect(&names(&[]), Status::False, Severity::Error, R::CertificateWrong, &["no name at all"]);
    assert_eq!(names(&["N1"]).severity, Severity::Ok);
    // A host name alone proves no address missing.
    let nameless = certificates(NEW, 265).with(|c| {
        c.node_names = vec!["n9".into()];
    });
    assert_eq!(about(&judged(nameless), "etcd:2379").severity, Severity::Ok);
}

#[test]
fn a_port_that_shows_nothing_is_told_by_how_it_failed() {
    let advice = |cause: UnknownCause, detail: &str| {
        let chain = Fact::unknown(cause, detail, "127.0.0.1:2379", world::now());
        let finding = about(&judged(certificates(NEW, 265).with(|c| c.served[0].chain = chain)), "etcd:2379");
        assert_eq!(finding.status, Status::Unknown);
        assert!(!finding.message.contains("?."), "{}", finding.message);
        finding.advice
    };
    for (cause, detail, words) in [
        (UnknownCause::TimedOut, "no answer within 3 s", "does not answer"),
        (UnknownCause::Unreachable, "it closes at once", "closes at once"),
        (UnknownCause::TlsFailed, "the peer does not speak TLS on this port", "another program has the port"),
        (UnknownCause::Unsupported, "a P-521 key", "Look by hand"),
        (UnknownCause::TlsFailed, "another key?", "a key that does not belong"),
    ] {
        let advice = advice(cause, detail);
        assert!(advice.contains(words), "{detail}: {advice}");
        assert_eq!(advice.contains("a key that does not belong"), detail == "another key?", "{advice}");
    }
}

/// A port and its file at `path`, which was written so many seconds ago and is the newer of the two.
fn renewed(name: &str, port: u16, path: &str, version: &str, seconds: u64) -> Finding {
    let c = certificates(version, 300).with(|c| {
        let mut file = certificate_file(path, Use::Server, vec![leaf("new", 365)]);
        file.modified = Some(world::now().before(Duration::from_secs(seconds)));
        c.files.push(file);
        c.served.push(served(name, port, path, vec![leaf("old", 200)]));
    });
    about(&judged(c), &format!("{name}:{port}"))
}

#[test]
fn what_takes_a_new_file_by_itself_is_given_the_time_and_never_restarted_blindly() {
    let api =
        |seconds| renewed("kube-apiserver", 6443, &format!("{TLS}/serving-kube-apiserver.crt"), OLD, seconds);
    for seconds in [0, 60, 150] {
        let finding = api(seconds);
        expect(&finding, Status::True, Severity::Info, R::CertificateNotServed, &["Nothing to do yet"]);
        assert!(!finding.advice.contains("estart"), "{}", finding.advice);
    }
    let finding = api(151);
    expect(
        &finding,
        Status::True,
        Severity::Warn,
        R::CertificateNotServed,
        &["the key beside it is not its own", "serving-kube-apiserver.key", "Compare first"],
    );
    assert!(!finding.advice.contains("Restart needed"), "{}", finding.advice);
    // The kubelet does from 1.31 on; where the version is not known nobody says so.
    let kubelet = "/var/lib/rancher/rke2/agent/serving-kubelet.crt";
    for (version, seconds, words) in [
        ("v1.30.14-rke2r1", 10, "Restart needed: the process holds the old one"),
        ("", 10, "Restart needed: the process holds the old one"),
        ("v1.31.0-rke2r1", 10, "Nothing to do yet"),
        ("v1.31.0-rke2r1", 3600, "serving-kubelet.key"),
    ] {
        let finding = renewed("kubelet", 10250, kubelet, version, seconds);
        assert!(finding.advice.contains(words), "{version}: {}", finding.advice);
    }
    // What has ended and is about to be replaced is an end all the same.
    let ended = certificates(NEW, 300).with(|c| {
        let path = format!("{TLS}/serving-kube-apiserver.crt");
        let mut file = certificate_file(&path, Use::Server, vec![leaf("new", 365)]);
        file.modified = Some(world::now());
        c.files.push(file);
        c.served.push(served("kube-apiserver", 6443, &path, vec![leaf("old", -1)]));
    });
    let finding = about(&judged(ended), "kube-apiserver:6443");
    expect(&finding, Status::False, Severity::Error, R::CertificateExpired, &["Nothing to do yet"]);
}

#[test]
fn names_that_were_asked_for_are_looked_for() {
    let with = |names: &[&str], port: &str| {
        let c = certificates(NEW, 300).with(|c| {
            c.wanted_names = names.iter().map(|name| (*name).to_owned()).collect();
        });
        about(&judged(c), port)
    };
    let missing = with(&["rancher.example", "n1", "10.0.0.1"], "supervisor:9345");
    expect(
        &missing,
        Status::True,
        Severity::Warn,
        R::CertificateWrong,
        &["does not cover rancher.example", "A restart of rke2-server"],
    );
    assert_eq!(with(&["n1"], "supervisor:9345").severity, Severity::Ok);
    // etcd's are for the members alone.
    assert_eq!(with(&["rancher.example"], "etcd:2379").severity, Severity::Ok);
}

#[test]
fn what_peers_dial_has_to_be_covered() {
    let file = format!("{TLS}/etcd/peer-server-client.crt");
    let node = |sans: &[&str], etcd: EtcdFacts| {
        let leaf =
            CertificateFacts { sans: sans.iter().map(|s| (*s).to_owned()).collect(), ..leaf("peer", 265) };
        let c = certificates(NEW, 265).with(|c| {
            c.served.push(served("etcd-peer", 2380, &file, vec![leaf.clone()]));
            c.served[0].chain = known(vec![leaf.clone()]);
            c.files[1].certificates = known(vec![leaf.clone()]);
        });
        let checks =
            CheckFacts { certificates: Some(known(c)), etcd: Some(known(etcd)), ..CheckFacts::default() };
        judge(&world::node_facts(checks))
    };
    let other = ["localhost", "n1", "127.0.0.1", "10.0.0.99"];
    let j = node(&other, world::etcd(3));
    let words = [
        "does not cover 10.0.0.1 of n1's own peer URL",
        "https://10.0.0.1:2380",
        "10.0.0.99",
        "node-ip",
        "3 members",
    ];
    expect(&about(&j, "etcd-peer:2380"), Status::False, Severity::Error, R::CertificateWrong, &words);
    let words = ["own client URL", "https://10.0.0.1:2379"];
    expect(&about(&j, "etcd:2379"), Status::True, Severity::Warn, R::CertificateWrong, &words);
    // Nobody dials the only member.
    let alone = node(&other, world::etcd(1));
    let words = ["no other member dials it yet"];
    expect(&about(&alone, "etcd-peer:2380"), Status::True, Severity::Warn, R::CertificateWrong, &words);
    // As RKE2, K3s and kubeadm make them, and a URL by name, by IPv6 or by a star.
    let url = |to: &str| {
        world::etcd(3).with(|e| {
            let member = &mut world::list_mut(e).members[0];
            member.peer_urls = vec![format!("https://{to}:2380")];
            member.client_urls = vec![format!("https://{to}:2379"), "http://127.0.0.1:2381".into()];
        })
    };
    for (sans, to) in [
        (&["localhost", "n1", "127.0.0.1", "::1", "10.0.0.1"][..], "10.0.0.1"),
        (&["n1", "127.0.0.1", "fd00::1"], "[fd00:0::1]"),
        (&["127.0.0.1", "n1", "n1.example"], "N1.example"),
        (&["n1", "127.0.0.1", "*.example"], "n1.example"),
    ] {
        for subject in ["etcd-peer:2380", "etcd:2379"] {
            let f = about(&node(sans, url(to)), subject);
            assert_eq!(f.severity, Severity::Ok, "{to} {f:?}");
        }
    }
    // Which member is this server's is not known: nothing is held against it.
    let unread = world::etcd(3).with(|e| e.members = unknown(UnknownCause::TimedOut));
    assert_eq!(about(&node(&other, unread), "etcd-peer:2380").severity, Severity::Ok);
}
