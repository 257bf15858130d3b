//! A healthy etcd, and how to break it.

use std::collections::BTreeMap;

use outrider_protocol::*;

use super::*;

pub fn member(n: usize) -> Member {
    Member {
        id: format!("{n:016x}"),
        name: format!("n{n}"),
        peer_urls: vec![format!("https://10.0.0.{n}:2380")],
        client_urls: vec![format!("https://10.0.0.{n}:2379")],
        is_learner: false,
    }
}

pub fn status(n: usize) -> EndpointStatus {
    EndpointStatus {
        member_id: format!("{n:016x}"),
        cluster_id: "c1".into(),
        version: "3.5.16".into(),
        db_size_bytes: 100_000_000,
        db_in_use_bytes: 60_000_000,
        quota_bytes: 2_147_483_648,
        leader: format!("{:016x}", 1),
        raft_term: 7,
        raft_index: 120_000,
        applied_index: 120_000,
        is_learner: false,
        errors: Vec::new(),
    }
}

pub fn endpoint(n: usize, local: bool) -> EndpointFacts {
    EndpointFacts {
        endpoint: format!("https://10.0.0.{n}:2379"),
        member_id: format!("{n:016x}"),
        local,
        status: known(status(n)),
        linearizable_read: if local {
            known(1.2)
        } else {
            Fact::not_applicable("only asked of the local member", now())
        },
        down_since: None,
    }
}

/// Members 1 to `n`, all voters and healthy, seen from member `local`.
pub fn etcd_from(local: usize, n: usize) -> EtcdFacts {
    EtcdFacts {
        distribution: Distribution::Rke2,
        found_by: "/var/lib/rancher/rke2/server/db/etcd".into(),
        election_timeout_ms: 5000,
        local_endpoint: format!("https://10.0.0.{local}:2379"),
        cluster_id: None,
        members: known(MemberList {
            cluster_id: "c1".into(),
            linearizable: true,
            members: (1..=n).map(member).collect(),
        }),
        endpoints: (1..=n).map(|i| endpoint(i, i == local)).collect(),
        alarms: known(Vec::new()),
        metrics: known(EtcdMetrics { earlier: Some(scrape(300, 0, 0)), latest: scrape(0, 1000, 0) }),
        kubernetes_nodes: Fact::not_applicable("nobody asked", now()),
        learners_since: BTreeMap::new(),
        no_read_since: None,
        learner_progress: BTreeMap::new(),
        expected: None,
        data_folder: None,
        snapshots: None,
        paths: Vec::new(),
    }
}

pub fn etcd(n: usize) -> EtcdFacts {
    etcd_from(1, n)
}

pub fn list_mut(e: &mut EtcdFacts) -> &mut MemberList {
    match &mut e.members {
        Fact::Known { value, .. } => value,
        _ => panic!("the member list is known"),
    }
}

pub fn status_mut(e: &mut EtcdFacts, n: usize) -> &mut EndpointStatus {
    match &mut e.endpoints[n - 1].status {
        Fact::Known { value, .. } => value,
        _ => panic!("the status is known"),
    }
}

/// Member `n` does not answer, for `seconds`.
pub fn kill(e: &mut EtcdFacts, n: usize, seconds: u64) {
    let endpoint = &mut e.endpoints[n - 1];
    endpoint.status = unknown(UnknownCause::ConnectionRefused);
    endpoint.linearizable_read = unknown(UnknownCause::ConnectionRefused);
    endpoint.down_since = Some(ago(seconds));
}

/// Member `n` answers and sees no leader, as a survivor without quorum does.
pub fn orphan(e: &mut EtcdFacts, n: usize) {
    let s = status_mut(e, n);
    s.leader = String::new();
    s.errors = vec!["etcdserver: no leader".into()];
    e.endpoints[n - 1].linearizable_read = unknown(UnknownCause::TimedOut);
}

pub fn scrape(seconds_ago: u64, fast: u64, slow: u64) -> EtcdScrape {
    EtcdScrape {
        at: ago(seconds_ago),
        wal_fsync: histogram(fast, slow),
        backend_commit: histogram(fast, slow),
        leader_changes: 2.0,
        proposals_failed: 0.0,
        proposals_pending: 0.0,
        peers: BTreeMap::new(),
    }
}

/// `fast` observations of at most 4 ms and `slow` of 128 to 256 ms, in etcd's buckets.
pub fn histogram(fast: u64, slow: u64) -> Histogram {
    let mut buckets: Vec<(f64, u64)> = (0..14)
        .map(|i| {
            let bound = 0.001 * f64::from(1 << i);
            let n = if bound >= 0.256 {
                fast + slow
            } else if bound >= 0.004 {
                fast
            } else {
                0
            };
            (bound, n)
        })
        .collect();
    buckets.push((f64::MAX, fast + slow));
    Histogram { buckets, count: fast + slow, sum: fast as f64 * 0.003 + slow as f64 * 0.2 }
}

/// Every member's report of a cluster of `n`, with the members in `down` dead and silent to the others.
pub fn views(n: usize, down: &[usize]) -> Vec<(String, Fact<EtcdFacts>)> {
    (1..=n)
        .map(|local| {
            let mut e = etcd_from(local, n);
            for d in down {
                kill(&mut e, *d, 600);
            }
            (format!("n{local}"), known(e))
        })
        .collect()
}
