//! What a look costs etcd, and distributions of other makers, by the sensor itself.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::{SenseContext, certificates};
use outrider_protocol::{
    Condition, Fact, NodeFacts, NodeRef, Profile, Status, Thresholds, Timestamp, TypeMeta,
};
use outrider_tests::beds::pki::{Authority, DAY};
use outrider_tests::programs::until;
use outrider_tests::table::Table;

use crate::node::{LIMIT, NAMES, Node, on_a_machine_of_its_own, said};

fn context(root: &Path) -> SenseContext {
    SenseContext {
        root: root.to_owned(),
        clock: Arc::new(|| Timestamp::from(SystemTime::now())),
        opener: Arc::new(DirectOpener::below(root)),
    }
}

/// What the rules say of one pass of the sensor over the files below `root`.
fn judged(root: &Path, memory: &mut certificates::Memory) -> Vec<Condition> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fact = runtime.block_on(certificates::read(&context(root), Duration::from_secs(20), memory));
    let mut facts = NodeFacts {
        meta: TypeMeta::new("NodeFacts"),
        node: NodeRef {
            name: "n1".to_owned(),
            uid: String::new(),
            cluster: String::new(),
            profile: Profile::Generic,
            simulated: false,
        },
        agent_version: String::new(),
        now: Timestamp::from(SystemTime::now()),
        thresholds: Thresholds::default(),
        latches: Vec::new(),
        checks: Default::default(),
    };
    assert!(matches!(fact, Fact::Known { .. }), "{fact:?}");
    facts.checks.certificates = Some(fact);
    outrider_diagnosis::diagnose(&facts).conditions
}

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn etcds_log_is_left_in_peace() {
    on_a_machine_of_its_own(|| {
        let mut table = Table::new("what etcd logs of a look");
        let mut node = Node::new();
        node.start_etcd();
        let before = node.complaints();
        let mut memory = certificates::Memory::default();
        judged(Path::new("/"), &mut memory);
        until("etcd has logged", LIMIT, || (node.complaints() == before + 2).then_some(())).unwrap();
        for _ in 0..5 {
            judged(Path::new("/"), &mut memory);
        }
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(node.complaints(), before + 2, "one line a port, and none at the looks that follow");
        table.row(
            "one look",
            "a handshake on 2379 and on 2380, without a client certificate",
            "one line each: rejected connection",
        );
        table.row("five more within the hour", "the daemon's memory", "no line");
    });
}

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn kubeadm_and_rke1_with_advice_that_is_theirs() {
    on_a_machine_of_its_own(|| {
        let mut table = Table::new("other distributions, openssl s_server on 6443");
        let mut node = Node::new();
        for (name, folder, authority, leaf, words) in [
            ("kubeadm", "etc/kubernetes/pki", "ca.crt", "apiserver", "kubeadm certs renew all"),
            ("RKE1", "etc/kubernetes/ssl", "kube-ca.pem", "kube-apiserver", "rke cert rotate"),
        ] {
            let root = tempfile::tempdir_in("/var/lib").unwrap();
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            let ca = Authority::new("kubernetes", 3000 * DAY).unwrap();
            fs::write(folder.join(authority), ca.pem()).unwrap();
            let extension = authority.rsplit('.').next().unwrap();
            for (days, status) in [(20, Status::True), (-2, Status::False)] {
                let issued = ca.issue(leaf, &NAMES, -365 * DAY, days * DAY).unwrap();
                let pair = node.folder.path().join(format!("{leaf}{days}"));
                issued.write(&pair.with_extension("crt"), &pair.with_extension("key")).unwrap();
                fs::write(folder.join(format!("{leaf}.{extension}")), &issued.certificate).unwrap();
                node.stand_in(6443, &pair, &[]);
                let conditions = judged(root.path(), &mut certificates::Memory::default());
                let condition = conditions.iter().find(|c| c.subject == "kube-apiserver:6443").unwrap();
                assert_eq!(condition.status, status, "{conditions:#?}");
                assert!(
                    condition.advice.contains(words) && condition.advice.contains("renews nothing"),
                    "{condition:?}"
                );
                table.row(format!("{name}: {days} days left"), "s_server on 6443", said(condition));
            }
        }
    });
}
