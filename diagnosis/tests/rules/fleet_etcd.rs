//! What the verdict over a cluster says beyond quorum: cases TC05 and TC06 by all reports, learners, peer URLs, versions,
//! regions, leaders, ghosts, snapshots, and the same as data.

use outrider_diagnosis::fleet::{Member, judge_cluster, picture, trim};
use outrider_diagnosis::{Finding, Judgement, latch};
use outrider_protocol::*;

use crate::world::{
    self, ago, etcd_from, histogram, kill, known, list_mut, now, orphan, status_mut, unknown,
};
use crate::{expect, only};

/// A cluster as the coordinator has it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) ready: Status,
    pub(crate) zone: String,
    pub(crate) region: String,
    pub(crate) etcd: Option<Fact<EtcdFacts>>,
}

impl World {
    /// `n` healthy servers, each in a zone of its own.
    pub(crate) fn of(n: usize) -> Self {
        let node = |i: usize| Node {
            name: format!("n{i}"),
            ready: Status::True,
            zone: format!("z{i}"),
            region: "r1".into(),
            etcd: Some(known(etcd_from(i, n))),
        };
        Self { nodes: (1..=n).map(node).collect() }
    }

    pub(crate) fn view(&mut self, node: usize, change: impl FnOnce(&mut EtcdFacts)) {
        match &mut self.nodes[node - 1].etcd {
            Some(Fact::Known { value, .. }) => change(value),
            _ => panic!("the view of n{node} is known"),
        }
    }

    pub(crate) fn every(mut self, mut change: impl FnMut(usize, &mut EtcdFacts)) -> Self {
        for i in 1..=self.nodes.len() {
            self.view(i, |e| change(i, e));
        }
        self
    }

    pub(crate) fn members<'a>(&'a self) -> Vec<Member<'a>> {
        let member = |n: &'a Node| Member {
            name: &n.name,
            ready: n.ready,
            zone: &n.zone,
            region: &n.region,
            etcd: n.etcd.as_ref(),
            network: None,
        };
        self.nodes.iter().map(member).collect()
    }

    pub(crate) fn judged(&self) -> Judgement {
        judge_cluster("prod", &self.members(), now())
    }

    pub(crate) fn picture(&self) -> ClusterEtcd {
        picture(&self.members(), now()).unwrap_or_else(|| panic!("there is etcd"))
    }

    pub(crate) fn found(&self, of: ConditionType) -> Finding {
        only(&self.judged(), of)
    }

    fn quorum(&self) -> Finding {
        self.found(ConditionType::EtcdQuorum)
    }

    fn membership(&self) -> Finding {
        self.found(ConditionType::EtcdMembership)
    }
}

fn id(n: usize) -> String {
    world::member(n).id
}

// ---- TC05 and TC06 by all reports ----

/// TC05: m3 away for ten minutes, m4 a learner of 40 s.
fn tc05() -> World {
    let mut w = World::of(4).every(|i, e| {
        if i != 3 {
            kill(e, 3, 600);
        }
        list_mut(e).members[3].is_learner = true;
        let s = status_mut(e, 4);
        (s.is_learner, s.raft_index) = (true, 9_000);
        e.endpoints[3].linearizable_read = unknown(UnknownCause::Unsupported);
        e.learners_since.insert(id(4), ago(40));
    });
    w.nodes[2].ready = Status::Unknown;
    w
}

#[test]
fn tc05_by_all_reports() {
    let w = tc05();
    expect(
        &w.quorum(),
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &[
            "next loss stops the cluster",
            "3 voters",
            "quorum 2",
            "2 healthy",
            "tolerates 0",
            "n3",
            "none of n1, n2",
        ],
    );
    expect(
        &w.membership(),
        Status::True,
        Severity::Info,
        ReasonCode::EtcdLearnerJoining,
        &["n4 is joining, catching up", "9000 of 120000", "40 s", "not counted"],
    );
    let p = w.picture();
    assert_eq!((p.voters, p.quorum, p.healthy, p.tolerated, p.learners), (3, 2, 2, 0, 1));
    let m4 = &p.members[3];
    assert_eq!((&m4.role, &m4.health), (&MemberRole::Learner, &MemberHealth::Healthy));
    assert_eq!(m4.status.as_ref().map(|s| s.raft_lag), Some(111_000));
    let m3 = &p.members[2];
    assert_eq!((&m3.health, m3.down_since), (&MemberHealth::Down, Some(ago(600))));
}

#[test]
fn tc05_variant_the_blocker_and_whom_it_blocks() {
    let mut w = tc05().every(|_, e| {
        kill(e, 4, 1800);
        e.learners_since.insert(id(4), ago(2000));
    });
    // m4's machine is away; n5 runs a server that may not join.
    w.nodes[3].ready = Status::Unknown;
    let mut n5 = w.nodes[0].clone();
    n5.name = "n5".into();
    n5.etcd = Some(known(etcd_from(1, 1)));
    w.nodes.push(n5);
    w.view(5, |e| {
        e.members = unknown(UnknownCause::ConnectionRefused);
        e.endpoints[0].endpoint = "https://127.0.0.1:2379".into();
        e.endpoints[0].member_id = String::new();
        e.endpoints[0].status = unknown(UnknownCause::ConnectionRefused);
        e.endpoints[0].linearizable_read = unknown(UnknownCause::ConnectionRefused);
    });
    expect(
        &w.membership(),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdLearnerBlocking,
        &[
            "n4 has not answered for 30 min",
            "blocks the join of n5",
            "a person removes this learner",
            "n5 joins by itself",
        ],
    );
    // Somebody reaches it: it blocks nobody.
    let mut reached = w.clone();
    reached.view(2, |e| {
        let mut s = world::status(4);
        (s.is_learner, s.raft_index) = (true, 80_000);
        e.endpoints[3].status = known(s);
        e.endpoints[3].down_since = None;
    });
    assert_ne!(reached.membership().reason, ReasonCode::EtcdLearnerBlocking);
}

#[test]
fn tc06_sizes_by_all_reports() {
    for (n, reason, severity) in [
        (1, ReasonCode::EtcdSingleVoter, Severity::Info),
        (2, ReasonCode::EtcdEvenVoters, Severity::Warn),
        (3, ReasonCode::EtcdQuorumMet, Severity::Ok),
        (4, ReasonCode::EtcdEvenVoters, Severity::Warn),
        (5, ReasonCode::EtcdQuorumMet, Severity::Ok),
        (6, ReasonCode::EtcdEvenVoters, Severity::Warn),
        (7, ReasonCode::EtcdQuorumMet, Severity::Ok),
    ] {
        let w = World::of(n);
        let (quorum, tolerated) = (n / 2 + 1, n - (n / 2 + 1));
        let words = [format!("quorum {quorum}"), format!("tolerates {tolerated} more")];
        expect(&w.quorum(), Status::True, severity, reason, &[&words[0], &words[1]]);
        let p = w.picture();
        assert_eq!((p.voters as usize, p.quorum as usize, p.tolerated as usize), (n, quorum, tolerated));
    }
}

#[test]
fn tc06_d_a_ghost_by_all_reports_and_what_its_removal_gives() {
    let ghost = |nodes: Fact<Vec<String>>| {
        let mut w = World::of(4).every(|i, e| {
            if i != 4 {
                kill(e, 4, 90_000);
            }
            e.kubernetes_nodes = nodes.clone();
        });
        w.nodes.pop();
        w
    };
    let w = ghost(known(vec!["n1".into(), "n2".into(), "n3".into()]));
    expect(
        &w.membership(),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdGhostMember,
        &["n4", "cluster of 3 counts as 4", "quorum 3 of 4", "tolerates 0", "after removal", "tolerates 1"],
    );
    let p = w.picture();
    assert_eq!((p.tolerated, p.tolerated_without_ghosts), (0, Some(1)));
    assert_eq!(p.members[3].kubernetes_node, Status::False);
    // Nobody may list the nodes: unknown, no ghost.
    let w = ghost(unknown(UnknownCause::Forbidden));
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
    let p = w.picture();
    assert_eq!((p.tolerated_without_ghosts, p.members[3].kubernetes_node), (None, Status::Unknown));
    let f = World::of(3).membership();
    assert!(f.message.contains("whether each has a Kubernetes node is unknown"), "{}", f.message);
}

#[test]
fn a_list_that_is_older_than_a_member_makes_it_no_ghost() {
    let mut w = World::of(3);
    // n1 knows the nodes of before n3 joined, and a list of before too.
    w.view(1, |e| {
        list_mut(e).members.pop();
        list_mut(e).linearizable = false;
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into()]);
    });
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
}

// ---- learners, peers, leaders, versions, regions ----

#[test]
fn d8_both_ways_of_port_2380_are_told() {
    let link = |e: &mut EtcdFacts, to: usize, active: bool| {
        if let Fact::Known { value, .. } = &mut e.metrics {
            let peer = PeerScrape { active: Some(active), ..PeerScrape::default() };
            value.latest.peers.insert(id(to), peer);
        }
    };
    let mut w = World::of(4).every(|_, e| {
        list_mut(e).members[3].is_learner = true;
        let s = status_mut(e, 4);
        (s.is_learner, s.raft_index) = (true, 9_000);
        e.learners_since.insert(id(4), ago(900));
    });
    // n1 leads.
    w.view(1, |e| link(e, 4, true));
    w.view(4, |e| link(e, 1, false));
    expect(
        &w.membership(),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdLearnerLagging,
        &["port 2380: n1 -> n4 open, n4 -> n1 closed", "111000 behind", "open both ways"],
    );
    w.nodes.remove(3);
    assert!(w.membership().message.contains("n4 -> n1 not known"), "{}", w.membership().message);
}

#[test]
fn d11_the_node_whose_url_differs_is_named() {
    let mut w = World::of(3);
    w.view(2, |e| {
        e.expected = Some(known(ExpectedMember {
            name: "n2".into(),
            peer_urls: vec!["https://[fd00::2]:2380".into()],
            ..ExpectedMember::default()
        }));
    });
    expect(
        &w.membership(),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdPeerUrlMismatch,
        &["Member n2", "https://10.0.0.2:2380", "https://[fd00::2]:2380", "address family", "node-ip"],
    );
}

#[test]
fn leaders_that_differ_in_one_look() {
    let two = |looks: &[usize]| {
        let mut w = World::of(5);
        for look in looks {
            w.view(*look, |e| {
                for n in [4, 5] {
                    let s = status_mut(e, n);
                    (s.leader, s.raft_term) = (id(4), 6);
                }
            });
        }
        w
    };
    expect(
        &two(&[1, 2, 3, 4, 5]).membership(),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdLeadersDisagree,
        &["n1 in term 7 (followed by n1, n2, n3)", "n4 in term 6 (followed by n4, n5)", "Only n1 in term 7"],
    );
    // Two looks in five, taken during an election, are no news.
    assert_eq!(two(&[1, 2]).membership().reason, ReasonCode::EtcdMembersExpected);
    let leaders: Vec<String> = two(&[1, 2, 3, 4, 5])
        .picture()
        .members
        .iter()
        .filter_map(|m| Some(m.status.as_ref()?.leader.clone()))
        .collect();
    assert_eq!(leaders, ["n1", "n1", "n1", "n4", "n4"], "each as it sees it");
}

#[test]
fn versions_apart() {
    let versions = |of: &[&str]| {
        let w = World::of(of.len()).every(|_, e| {
            for (i, v) in of.iter().enumerate() {
                status_mut(e, i + 1).version = (*v).to_owned();
            }
        });
        w.found(ConditionType::EtcdVersions)
    };
    expect(
        &versions(&["3.5.16", "3.5.16", "v3.5.16-k3s1"]),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdVersionsEqual,
        &["etcd 3.5.16 on 3 of 3 members"],
    );
    for of in [["3.5.16", "3.5.16", "3.6.1"], ["3.5.9", "3.5.16", "3.5.16"]] {
        let f = versions(&of);
        expect(&f, Status::True, Severity::Info, ReasonCode::EtcdVersionSkew, &["2 versions", "upgrade"]);
        assert_eq!(f.escalates, Some((std::time::Duration::from_secs(3600), Severity::Warn)));
    }
    expect(
        &versions(&["3.4.27", "3.5.16", "3.6.1"]),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdVersionSkew,
        &["3.4.27 on n1", "3.6.1 on n3", "one minor version at a time"],
    );
    assert_eq!(versions(&["2.3.8", "3.5.16"]).severity, Severity::Error);
    let f = versions(&["not a version", ""]);
    assert_eq!((f.status, f.severity), (Status::Unknown, Severity::Info));
}

#[test]
fn regions_apart_are_against_ranchers_rule() {
    let mut w = World::of(3);
    w.nodes[2].region = "r2".into();
    expect(
        &w.membership(),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdRegionsDiffer,
        &["2 regions: r1 (n1, n2), r2 (n3)", "Rancher", "one region", "members of n3"],
    );
    w.nodes[2].region.clear();
    assert_eq!(w.membership().reason, ReasonCode::EtcdMembersExpected, "an unknown region is no region");
    // A worker elsewhere is no member.
    w.nodes.push(Node {
        name: "w".into(),
        ready: Status::True,
        zone: "z".into(),
        region: "r9".into(),
        etcd: None,
    });
    assert_eq!(w.membership().reason, ReasonCode::EtcdMembersExpected);
}

#[test]
fn all_voters_in_one_zone() {
    let mut w = World::of(3);
    w.nodes.iter_mut().for_each(|n| n.zone = "a".into());
    expect(
        &w.membership(),
        Status::True,
        Severity::Info,
        ReasonCode::EtcdFailureDomain,
        &["Zone a holds 3 of 3 voters (n1, n2, n3)", "quorum is lost with the zone", "leaves 0 of the 2"],
    );
}

#[test]
fn d10_the_minority_and_what_its_return_needs() {
    let mut w = World::of(5);
    for n in [2, 4] {
        w.view(n, |e| {
            status_mut(e, n).cluster_id = "c9".into();
            list_mut(e).cluster_id = "c9".into();
        });
    }
    expect(
        &w.membership(),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdClusterIdMismatch,
        &[
            "2 of 5 are in the minority: n2 (c9), n4 (c9)",
            "n2, n4: rebuilt",
            "join cluster c1 again",
            "old member removed",
        ],
    );
    let p = w.picture();
    assert_eq!(p.cluster_id, "c1");
    let unheard: Vec<(&str, &str)> = p.unheard.iter().map(|u| (u.node.as_str(), u.why.as_str())).collect();
    assert_eq!(unheard, [("n2", "other-cluster"), ("n4", "other-cluster")]);
}

// ---- snapshots ----

fn snapshots(age: Option<u64>, change: impl FnOnce(&mut Snapshots)) -> Option<Fact<Snapshots>> {
    let newest = age.map(|a| SnapshotFile { name: format!("snap-{a}"), at: ago(a), size_bytes: 50_000_000 });
    let mut snapshots = Snapshots {
        folder: "/snapshots".into(),
        count: u32::from(newest.is_some()),
        newest,
        object_storage: false,
        schedule_disabled: false,
    };
    change(&mut snapshots);
    Some(known(snapshots))
}

#[test]
fn a_snapshot_dated_in_the_future_is_not_fresh() {
    let future = || snapshots(Some(0), |s| s.newest.iter_mut().for_each(|n| n.at = world::ahead(86_400)));
    let w = World::of(3).every(|_, e| e.snapshots = future());
    let own = etcd_from(1, 3);
    let node = crate::etcd_quorum::etcd_node(EtcdFacts { snapshots: future(), ..own });
    for f in [
        w.found(ConditionType::EtcdSnapshots),
        only(&outrider_diagnosis::judge(&node), ConditionType::EtcdSnapshots),
    ] {
        assert_eq!((f.status, f.severity), (Status::Unknown, Severity::Warn), "{f:#?}");
        assert!(f.message.contains("ahead of the clock"), "{}", f.message);
    }
}

#[test]
fn one_recent_snapshot_anywhere_will_do() {
    let with = |each: [Option<Fact<Snapshots>>; 3]| {
        let mut each = each.into_iter();
        World::of(3).every(|_, e| e.snapshots = each.next().flatten())
    };
    let of = |each| with(each).found(ConditionType::EtcdSnapshots);
    let hours = |h: u64| snapshots(Some(h * 3600), |_| {});
    let none = || snapshots(None, |_| {});
    let off = || snapshots(None, |s| s.schedule_disabled = true);
    let unread = || Some(unknown(UnknownCause::PermissionDenied));

    expect(
        &of([hours(30), hours(3), hours(9)]),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdSnapshotsFresh,
        &["snap-10800 (50.0 MB) of ", " UTC, in /snapshots of n2", "3 nodes hold any"],
    );
    expect(
        &of([off(), hours(3), off()]),
        Status::True,
        Severity::Info,
        ReasonCode::EtcdSnapshotsOnOneNode,
        &["1 node holds any: n2", "lost with the disk of n2"],
    );
    let stored = snapshots(Some(3600), |s| s.object_storage = true);
    assert_eq!(of([off(), stored, off()]).reason, ReasonCode::EtcdSnapshotsFresh);
    expect(
        &of([hours(30), hours(50), none()]),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdSnapshotsStale,
        &["30 h old", "of n1", "limit 25 h"],
    );
    expect(
        &of([none(), none(), off()]),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdSnapshotsMissing,
        &["n1, n2, n3"],
    );
    expect(
        &of([off(), off(), off()]),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdSnapshotsDisabled,
        &["switched off"],
    );
    expect(
        &of([none(), unread(), off()]),
        Status::Unknown,
        Severity::Warn,
        ReasonCode::PermissionDenied,
        &["n2 (PermissionDenied)"],
    );
    expect(
        &of([hours(1), unread(), hours(2)]),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdSnapshotsFresh,
        &["not read on n2"],
    );
    let j = with([None, None, None]).judged();
    assert!(j.findings.iter().all(|f| f.condition_type != ConditionType::EtcdSnapshots));
    let p = with([hours(30), hours(3), hours(9)]).picture();
    let newest = p.newest_snapshot.unwrap_or_else(|| panic!("there is one"));
    assert_eq!((newest.node.as_str(), newest.nodes, newest.at), ("n2", 3, ago(10_800)));
}

#[test]
fn d19_the_newest_snapshot_of_the_cluster_stands_below_a_lost_quorum() {
    let mut w = World::of(3).every(|i, e| {
        e.snapshots = snapshots(Some(3600 * i as u64), |_| {});
        if i == 1 {
            orphan(e, 1);
            kill(e, 2, 300);
            kill(e, 3, 300);
        }
    });
    w.nodes[1].ready = Status::Unknown;
    w.nodes[2].ready = Status::Unknown;
    expect(
        &w.quorum(),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdQuorumLost,
        &["Bring 1 of n2, n3 back", "snap-3600 (50.0 MB) of ", " UTC, in /snapshots of n1"],
    );
}

// ---- who sees whom, and what is kept ----

#[test]
fn who_sees_whom_is_data() {
    let mut w = World::of(3);
    w.view(1, |e| {
        kill(e, 3, 120);
        e.endpoints[1].status = unknown(UnknownCause::Forbidden);
        if let Fact::Known { value, .. } = &mut e.metrics {
            value.latest.peers.insert(id(3), PeerScrape { active: Some(false), ..PeerScrape::default() });
        }
    });
    w.nodes[2].ready = Status::Unknown;
    let p = w.picture();
    assert_eq!(p.matrix.iter().map(|r| r.node.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);
    let row: Vec<_> = p.matrix[0].cells.iter().map(|c| (c.reached, c.own, c.peer, c.since)).collect();
    assert_eq!(
        row,
        [
            (Status::True, true, Status::Unknown, None),
            (Status::Unknown, false, Status::Unknown, None),
            (Status::False, false, Status::False, Some(ago(120))),
        ]
    );
    assert!(p.matrix[0].cells[1].cause.contains("Forbidden"));
    assert_eq!((p.unheard[0].node.as_str(), p.unheard[0].why.as_str()), ("n3", "silent"));
}

#[test]
fn what_is_dropped_before_it_is_kept_changes_no_verdict() {
    let names: Vec<String> = (1..=5000).map(|i| format!("n{i}")).collect();
    let w = World::of(5).every(|i, e| {
        e.kubernetes_nodes = known(names.clone());
        if i < 4 {
            kill(e, 5, 600);
        }
        if let Fact::Known { value, .. } = &mut e.metrics {
            for scrape in value.earlier.iter_mut().chain([&mut value.latest]) {
                let peer =
                    PeerScrape { active: Some(i != 2), round_trip: histogram(9, 1), ..PeerScrape::default() };
                scrape.peers.insert(id(i % 5 + 1), peer);
            }
        }
    });
    let mut trimmed = w.clone();
    let size = |w: &World| serde_json::to_vec(&w.nodes[0].etcd).map_or(0, |v| v.len());
    for node in &mut trimmed.nodes {
        if let Some(Fact::Known { value, .. }) = &mut node.etcd {
            trim(value);
        }
    }
    assert_eq!(w.judged(), trimmed.judged());
    assert_eq!(w.picture(), trimmed.picture());
    assert!(size(&trimmed) < 10_000 && size(&w) > 40_000, "{} of {}", size(&trimmed), size(&w));
    // Names that tell nothing still tell nothing.
    let strangers: Vec<String> = (1..=500).map(|i| format!("x{i}")).collect();
    let mut w = World::of(3).every(|_, e| e.kubernetes_nodes = known(strangers.clone()));
    w.view(1, trim);
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
}

#[test]
fn no_etcd_no_picture() {
    let node = |etcd| Node {
        name: "w".into(),
        ready: Status::True,
        zone: String::new(),
        region: String::new(),
        etcd,
    };
    assert!(picture(&World { nodes: vec![node(None)] }.members(), now()).is_none());
    // Silent nodes are shown as such, and no number is made up.
    let mut w = World::of(3);
    w.nodes.iter_mut().for_each(|n| n.ready = Status::Unknown);
    let p = w.picture();
    assert_eq!(
        (p.voters, p.quorum, p.healthy, p.tolerated, p.members.len(), p.unheard.len()),
        (0, 0, 0, 0, 0, 3)
    );
}

#[test]
fn machines_that_are_off_are_suspected_at_once_and_certain_an_election_later() {
    let healthy = latch(&[], &World::of(3).judged(), now());
    let mut off = World::of(3);
    off.view(1, |e| {
        kill(e, 2, 1);
        kill(e, 3, 1);
        e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
    });
    for node in &mut off.nodes[1..] {
        if let Some(Fact::Known { at, .. }) = &mut node.etcd {
            *at = ago(20);
        }
    }
    let shown = |latched: &outrider_diagnosis::Latched| {
        let quorum = latched.conditions.iter().find(|c| c.condition_type == ConditionType::EtcdQuorum);
        quorum.map(|c| (c.status, c.severity, c.reason.clone()))
    };
    // Nobody but n1 has spoken since: a suspicion, which pages nobody.
    let doubt = latch(&healthy.latches, &off.judged(), world::ahead(1));
    let suspected = (Status::Unknown, Severity::Warn, ReasonCode::EtcdQuorumSuspected);
    assert_eq!(shown(&doubt), Some(suspected.clone()));
    // n2 and n3 owe their word: certain, once it has held for an election since the suspicion.
    off.nodes[1..].iter_mut().for_each(|n| n.ready = Status::Unknown);
    let later = latch(&doubt.latches, &off.judged(), world::ahead(4));
    assert_eq!(shown(&later), Some(suspected));
    let certain = latch(&later.latches, &off.judged(), world::ahead(6));
    assert_eq!(shown(&certain), Some((Status::False, Severity::Error, ReasonCode::EtcdQuorumLost)));
    // Had they spoken, nothing would have been lost.
    let back = latch(&doubt.latches, &World::of(3).judged(), world::ahead(2));
    let back = latch(&back.latches, &World::of(3).judged(), world::ahead(8));
    assert_eq!(shown(&back).map(|s| s.2), Some(ReasonCode::EtcdQuorumMet));
}
