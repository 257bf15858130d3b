//! What renews a certificate, and whether a start would now.

use super::*;

#[test]
fn a_restart_is_promised_only_inside_the_window_of_the_version() {
    for (version, days, words) in [
        (OLD, 90, "A restart of rke2-server renews it"),
        (OLD, 91, "A restart does not help yet"),
        ("v1.30.12-rke2r1", 91, "A restart does not help yet"),
        ("v1.30.13-rke2r1", 91, "A restart of rke2-server renews it"),
        ("v1.31.8-rke2r1", 100, "A restart does not help yet"),
        ("v1.31.9-rke2r1", 100, "A restart of rke2-server renews it"),
        ("v1.32.4-rke2r1", 120, "A restart does not help yet"),
        ("v1.32.5-rke2r1", 120, "A restart of rke2-server renews it"),
        ("v1.33.0-rke2r1", 120, "A restart does not help yet"),
        ("v1.33.1-rc1-rke2r1", 120, "A restart of rke2-server renews it"),
        ("v1.34.0-rke2r1", 120, "A restart of rke2-server renews it"),
        ("", 90, "every version renews at a start from 90 days"),
        ("", 91, "with an older one a restart does not help before"),
        ("odd", 120, "The version could not be read"),
    ] {
        let finding = etcd(version, days);
        assert!(finding.advice.contains(words), "{version} {days}: {}", finding.advice);
    }
    // When it helps is a date.
    let finding = etcd(OLD, 100);
    let from = world::in_days(10).to_string();
    assert!(finding.advice.contains(&from[..10]), "{} from {from}", finding.advice);
    // Outside every window, where the configured days inform that early.
    let mut facts = world::node_facts(CheckFacts {
        certificates: Some(known(certificates("", 200))),
        ..CheckFacts::default()
    });
    facts.thresholds.certificate_days = [300, 30, 7];
    let advice = about(&judge(&facts), "etcd:2379").advice;
    for day in [80, 110] {
        assert!(advice.contains(&world::in_days(day).to_string()[..10]), "{day}: {advice}");
    }
}

#[test]
fn a_file_that_the_last_start_left_alone_wakes_nobody() {
    let orphan = format!("{TLS}/client-kube-proxy.crt");
    let node = |started: u64, written: u64, days: i64| {
        certificates(NEW, 300).with(|c| {
            let mut file = certificate_file(&orphan, Use::Server, vec![leaf("kube-proxy", days)]);
            file.modified = Some(ago(written * DAY));
            c.files.push(file);
            let mut marker = certificate_file(
                &format!("{TLS}/client-ca.nochain.crt"),
                Use::Authority,
                vec![authority(3000)],
            );
            marker.modified = Some(ago(started * DAY));
            c.files.push(marker);
        })
    };
    for days in [-40, 3, 20] {
        let finding = about(&judged(node(1, 400, days)), "files");
        expect(
            &finding,
            Status::True,
            Severity::Info,
            R::CertificateLeftOver,
            &["client-kube-proxy.crt", "probably not used", "last start"],
        );
    }
    // That start lay outside its window: it may well be used.
    expect(
        &about(&judged(node(100, 400, 20)), "files"),
        Status::True,
        Severity::Warn,
        R::CertificateEnding,
        &["A restart"],
    );
    // A backup put back writes all files at once: no evidence.
    expect(
        &about(&judged(node(1, 1, -40)), "files"),
        Status::False,
        Severity::Error,
        R::CertificateExpired,
        &[],
    );
    // A service that fails at every start writes its marker too, and renews nothing.
    let failing = node(1, 400, -40).with(|c| c.served.retain(|served| served.name != "supervisor"));
    assert_eq!(about(&judged(failing), "files").reason, R::CertificateExpired);
    // A server that became an agent: its own files lie there, and the agent has started since.
    let agent = |written: u64| {
        node(300, 400, -40).with(|c| {
            let path = "/var/lib/rancher/rke2/agent/serving-kubelet.crt";
            let mut file = certificate_file(path, Use::Agent, vec![leaf("serving", 300)]);
            file.modified = Some(ago(written * DAY));
            c.files.push(file);
            c.served = vec![served("kubelet", 10250, path, vec![leaf("serving", 300)])];
        })
    };
    assert_eq!(about(&judged(agent(1)), "files").reason, R::CertificateLeftOver);
    assert_eq!(about(&judged(agent(300)), "files").reason, R::CertificateExpired);
    // What an agent fetches at every start and did not get is in use all the same.
    let unfetched = node(1, 400, 300).with(|c| {
        c.files[3].certificates = known(vec![leaf("kubelet", 3)]);
        c.files[3].modified = Some(ago(400 * DAY));
    });
    expect(
        &about(&judged(unfetched), "files"),
        Status::True,
        Severity::Error,
        R::CertificateEnding,
        &["client-kubelet.crt"],
    );
    // No start is known.
    let unmarked = node(1, 400, -40).with(|c| c.files.retain(|file| !file.path.contains("nochain")));
    let unknown_start =
        unmarked.clone().with(|c| c.files.iter_mut().for_each(|file| file.modified = Some(ago(400 * DAY))));
    assert_eq!(about(&judged(unknown_start), "files").reason, R::CertificateExpired);
    // A start that renewed the others is known by them.
    expect(
        &about(&judged(unmarked), "files"),
        Status::True,
        Severity::Info,
        R::CertificateLeftOver,
        &["client-kube-proxy.crt", "probably not used"],
    );
    // One that a port shows is used, whatever the dates say.
    let shown = node(1, 400, 3).with(|c| {
        c.served.push(served("kubelet", 10250, &orphan, vec![leaf("kube-proxy", 3)]));
    });
    assert_eq!(about(&judged(shown), "kubelet:10250").severity, Severity::Error);
}

#[test]
fn advice_is_true_for_the_distribution() {
    for (distribution, words) in [
        (Distribution::Kubeadm, "kubeadm certs renew all"),
        (Distribution::Rke1, "rke cert rotate"),
        (Distribution::K3s, "A restart of k3s renews it"),
    ] {
        let c = certificates("", 20).with(|c| c.distribution = distribution);
        let finding = about(&judged(c), "etcd:2379");
        expect(&finding, Status::True, Severity::Warn, R::CertificateEnding, &[words]);
    }
    let agent = certificates("", 20).with(|c| {
        (c.server, c.served) = (false, vec![]);
        c.files.retain(|file| file.usage == Use::Agent);
    });
    assert!(about(&judged(agent), "files").advice.contains("A restart of rke2-agent renews it"));
    let supervisor = about(&judged(certificates(OLD, 100)), "supervisor:9345");
    expect(
        &supervisor,
        Status::True,
        Severity::Info,
        R::CertificateEnding,
        &["Nothing to do", "renews it by itself"],
    );
    let late = about(&judged(certificates(NEW, 100)), "supervisor:9345");
    assert!(late.advice.contains("has not"), "{}", late.advice);
    // Another member's certificate lies on RKE1's nodes.
    let foreign = certificates("", 300).with(|c| {
        c.distribution = Distribution::Rke1;
        c.files.push(certificate_file(
            "/etc/kubernetes/ssl/kube-etcd-10-0-0-9.pem",
            Use::Foreign,
            vec![leaf("m9", -3)],
        ));
    });
    expect(
        &about(&judged(foreign), "files"),
        Status::True,
        Severity::Info,
        R::CertificateLeftOver,
        &["another node"],
    );
}

#[test]
fn what_goes_before_a_restart_does_not_order_one_that_renews_nothing() {
    let down = world::etcd_from(1, 3).with(|e| world::kill(e, 3, 600));
    for (distribution, nothing) in [
        (Distribution::Rke1, "By itself a restart renews nothing: rotate them"),
        (Distribution::Kubeadm, "By itself a restart renews nothing. On this control-plane node"),
        (Distribution::Configured, "a restart by itself is not known to: whoever made this certificate"),
    ] {
        let c = certificates("", 20).with(|c| c.distribution = distribution);
        for etcd in [None, Some(known(down.clone()))] {
            let checks = CheckFacts { certificates: Some(known(c.clone())), etcd, ..CheckFacts::default() };
            let f = about(&judge(&world::node_facts(checks)), "etcd:2379");
            assert!(
                f.advice.contains("whatever is restarted then is restarted one server at a time"),
                "{f:#?}"
            );
            assert!(f.advice.contains(nothing) && !f.advice.contains("then restart, one server"), "{f:#?}");
        }
    }
}

#[test]
fn where_nobody_knows_who_renews_no_restart_is_promised() {
    for distribution in [Distribution::Configured, Distribution::from("banana")] {
        for days in [100, 20, -3] {
            let c = certificates(NEW, days).with(|c| {
                c.distribution = distribution.clone();
                c.served[1].file = String::new();
            });
            let j = judged(c);
            for subject in ["etcd:2379", "supervisor:9345", "files"] {
                let f = about(&j, subject);
                assert!(
                    f.advice.contains(&format!("What renews it is not known here ({distribution})"))
                        && !f.advice.contains("A restart of")
                        && !f.advice.contains("the service"),
                    "{f:#?}"
                );
            }
        }
    }
}
