//! The check `etcd` against a real cluster: members that die, freeze and come back, and peers that are not etcd.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod distribution;
mod hostile;
mod watching;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use outrider_agent::config::EtcdSettings;
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::SenseContext;
use outrider_agent::sense::etcd::{Memory, poll_local, read};
use outrider_protocol::{
    CheckFacts, Condition, ConditionType, EndpointFacts, EtcdFacts, Fact, NodeFacts, NodeRef, Profile,
    ReasonCode, Thresholds, Timestamp, TypeMeta, UnknownCause,
};
use outrider_tests::beds::etcd::{EtcdCluster, Options, installed};

/// Longer than any pass may take on a busy machine; a pass without limits would hang for good.
const PASS: Duration = Duration::from_secs(30);

fn context() -> SenseContext {
    SenseContext {
        root: PathBuf::from("/"),
        clock: Arc::new(|| Timestamp::from(SystemTime::now())),
        opener: Arc::new(DirectOpener::new()),
    }
}

fn settings(cluster: &EtcdCluster) -> EtcdSettings {
    EtcdSettings {
        endpoints: vec![cluster.endpoint(0)],
        endpoints_refused: false,
        ca: Some(cluster.ca()),
        cert: Some(cluster.client_certificate()),
        key: Some(cluster.client_key()),
        election_timeout: None,
    }
}

/// `None`, said in one line, where etcd is not installed.
fn cluster(n: u8, options: Options) -> Option<EtcdCluster> {
    match installed() {
        Ok(_) => Some(EtcdCluster::start(n, options).unwrap()),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

async fn pass(settings: &EtcdSettings, memory: &mut Memory) -> EtcdFacts {
    let fact = tokio::time::timeout(PASS, read(&context(), settings, memory)).await.expect("a pass ends");
    match fact {
        Fact::Known { value, .. } => value,
        other => panic!("{other:?}"),
    }
}

/// Passes until the facts satisfy `done`; the last ones when they never do.
async fn pass_until(
    settings: &EtcdSettings,
    memory: &mut Memory,
    done: impl Fn(&EtcdFacts) -> bool,
) -> EtcdFacts {
    let start = Instant::now();
    loop {
        let facts = pass(settings, memory).await;
        if done(&facts) {
            return facts;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{facts:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn cause<T>(fact: &Fact<T>) -> Option<&UnknownCause> {
    match fact {
        Fact::Unknown { cause, .. } => Some(cause),
        _ => None,
    }
}

fn at<'a>(facts: &'a EtcdFacts, endpoint: &str) -> &'a EndpointFacts {
    facts
        .endpoints
        .iter()
        .find(|e| e.endpoint == endpoint)
        .unwrap_or_else(|| panic!("no {endpoint}: {facts:#?}"))
}

/// What the rules make of who is in the cluster.
fn membership(facts: &EtcdFacts) -> Condition {
    let now = Timestamp::from(SystemTime::now());
    let node = NodeFacts {
        meta: TypeMeta::new("NodeFacts"),
        node: NodeRef {
            name: "m1".into(),
            uid: String::new(),
            cluster: "bed".into(),
            profile: Profile::Generic,
            simulated: false,
        },
        agent_version: String::new(),
        now,
        thresholds: Thresholds::default(),
        latches: Vec::new(),
        checks: CheckFacts { etcd: Some(Fact::known(facts.clone(), "etcd", now)), ..CheckFacts::default() },
    };
    let latched = outrider_diagnosis::latch(&[], &outrider_diagnosis::judge(&node), now);
    latched
        .conditions
        .into_iter()
        .find(|c| c.condition_type == ConditionType::EtcdMembership)
        .expect("judged")
}

fn up(facts: &EtcdFacts) -> usize {
    facts.endpoints.iter().filter(|e| e.status.value().is_some()).count()
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn three_members_die_and_come_back() {
    let Some(mut cluster) = cluster(3, Options::default()) else { return };
    let (settings, mut memory, cx) = (settings(&cluster), Memory::default(), context());
    assert!(poll_local(&cx, &settings, &mut memory).await.is_none(), "nothing has been found yet");

    let facts = pass_until(&settings, &mut memory, |f| up(f) == 3).await;
    let list = facts.members.value().unwrap();
    assert_eq!((list.members.len(), list.linearizable), (3, true));
    assert_eq!(facts.alarms.value(), Some(&vec![]));
    assert_eq!(
        (facts.election_timeout_ms, facts.local_endpoint.as_str()),
        (1000, cluster.endpoint(0).as_str())
    );
    for (i, endpoint) in facts.endpoints.iter().enumerate() {
        let status = endpoint.status.value().unwrap();
        assert_eq!(endpoint.local, i == 0);
        assert_eq!((&status.member_id, &status.cluster_id), (&endpoint.member_id, &list.cluster_id));
        assert!(list.members.iter().any(|m| m.id == endpoint.member_id));
        assert!(endpoint.linearizable_read.value().is_some(), "{endpoint:?}");
        assert!(!status.leader.is_empty() && status.db_size_bytes > 0 && status.raft_index > 0);
    }
    let quota = facts.endpoints[0].status.value().unwrap().quota_bytes;
    assert_eq!(
        quota,
        2 * 1024 * 1024 * 1024,
        "the quota comes from the metrics where Status does not say it"
    );
    let scrape = &facts.metrics.value().unwrap().latest;
    assert!(scrape.wal_fsync.count > 0);
    let others: Vec<&String> = scrape.peers.keys().collect();
    assert_eq!(others.len(), 2, "{others:?}");
    for (id, peer) in &scrape.peers {
        assert!(list.members.iter().any(|m| m.id == *id) && *id != facts.endpoints[0].member_id, "{id}");
        assert_eq!(peer.active, Some(true), "{peer:?}");
    }
    // Two followers have little to say to each other; the leader is heard from.
    assert!(scrape.peers.values().any(|peer| peer.received_bytes > 0.0), "{:?}", scrape.peers);
    // Its own command line says who the member means to be, and how patient it is.
    let expected = facts.expected.as_ref().unwrap().value().unwrap();
    let own = list.members.iter().find(|m| m.id == facts.endpoints[0].member_id).unwrap();
    assert_eq!(
        (&expected.name, &expected.peer_urls, &expected.client_urls),
        (&own.name, &own.peer_urls, &own.client_urls)
    );
    assert_eq!((expected.election_timeout_ms, expected.heartbeat_ms), (Some(1000), Some(100)));
    let data = facts.data_folder.as_ref().unwrap().value().unwrap();
    assert!(data.free_bytes.is_some_and(|free| free > 0) && !data.tombstone && !data.reset_flag, "{data:?}");
    assert!(facts.paths.contains(&cluster.client_key().display().to_string()), "{:?}", facts.paths);
    let earlier = pass(&settings, &mut memory).await.metrics.value().unwrap().earlier.clone();
    assert_eq!(earlier, Some(facts.metrics.value().unwrap().latest.clone()));
    assert!(poll_local(&cx, &settings, &mut memory).await.unwrap().value().is_some());

    cluster.kill(2);
    let facts =
        pass_until(&settings, &mut memory, |f| f.endpoints[0].linearizable_read.value().is_some()).await;
    let dead = at(&facts, &cluster.endpoint(2));
    assert_eq!(cause(&dead.status), Some(&UnknownCause::ConnectionRefused), "{dead:?}");
    let since = dead.down_since.unwrap();
    assert_eq!(up(&facts), 2);
    let list = facts.members.value().unwrap();
    let named = list.members.iter().find(|m| m.id == dead.member_id).unwrap();
    assert_eq!((named.name.as_str(), list.linearizable), (cluster.name(2), true));
    let again = pass(&settings, &mut memory).await;
    assert_eq!(at(&again, &cluster.endpoint(2)).down_since, Some(since));

    cluster.kill(1);
    let poll = poll_local(&cx, &settings, &mut memory).await.unwrap();
    assert!(poll.value().is_none(), "{poll:?}");
    let facts = pass_until(&settings, &mut memory, |f| {
        f.endpoints[0].status.value().is_some_and(|status| status.leader.is_empty())
    })
    .await;
    assert_eq!(up(&facts), 1);
    assert!(facts.endpoints[0].linearizable_read.value().is_none());
    assert!(cause(&facts.alarms).is_some(), "alarms are unknown without quorum, never none");
    if let Some(list) = facts.members.value() {
        assert!(!list.linearizable, "{list:?}");
    }

    cluster.restart(1).unwrap();
    cluster.restart(2).unwrap();
    let facts = pass_until(&settings, &mut memory, |f| up(f) == 3 && f.alarms.value().is_some()).await;
    assert!(facts.endpoints.iter().all(|e| e.down_since.is_none()));
    assert!(facts.members.value().unwrap().linearizable);
    assert!(poll_local(&cx, &settings, &mut memory).await.unwrap().value().is_some());
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn the_others_are_still_asked_when_the_local_member_dies() {
    let Some(mut cluster) = cluster(3, Options::default()) else { return };
    let (settings, mut memory) = (settings(&cluster), Memory::default());
    let before = pass_until(&settings, &mut memory, |f| up(f) == 3).await;
    cluster.kill(0);
    let facts =
        pass_until(&settings, &mut memory, |f| f.members.value().is_some_and(|l| l.linearizable)).await;
    let local = &facts.endpoints[0];
    assert!(local.local && cause(&local.status) == Some(&UnknownCause::ConnectionRefused), "{local:?}");
    assert_eq!(local.member_id, before.endpoints[0].member_id, "it is still known whose endpoint that is");
    assert_eq!(up(&facts), 2);
    assert!(cause(&facts.metrics).is_some());
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn the_list_of_another_cluster_is_not_taken_while_the_local_member_is_silent() {
    let Some(mut cluster) = cluster(3, Options::default()) else { return };
    let (settings, mut memory) = (settings(&cluster), Memory::default());
    let before = pass_until(&settings, &mut memory, |f| up(f) == 3).await;
    let ours = before.cluster_id.clone().expect("a cluster id");
    assert_eq!(before.members.value().unwrap().cluster_id, ours);

    // One is begun anew alone at its old address, and alone it answers reads: to whoever looks for a quorum it is the best.
    cluster.begin_anew_alone(2).unwrap();
    cluster.kill(0);
    let anew = cluster.endpoint(2);
    let foreign = |f: &EtcdFacts| {
        let status = at(f, &anew).status.value();
        status.map(|s| s.cluster_id.clone()).filter(|id| *id != ours)
    };
    let facts =
        pass_until(&settings, &mut memory, |f| foreign(f).is_some() && f.members.value().is_some()).await;
    let list = facts.members.value().unwrap();
    assert_eq!((&list.cluster_id, list.members.len(), list.linearizable), (&ours, 3, false), "{list:?}");
    assert_eq!(facts.cluster_id.as_ref(), Some(&ours));
    assert!(facts.no_read_since.is_some(), "a read that the other cluster answered is none of this one");

    cluster.kill(1);
    let facts = pass_until(&settings, &mut memory, |f| up(f) == 1).await;
    assert!(facts.members.value().is_none(), "{:?}", facts.members);
    let other = foreign(&facts).expect("it answers");
    let condition = membership(&facts);
    assert_eq!(condition.reason, ReasonCode::EtcdClusterIdMismatch, "{condition:?}");
    assert!(condition.message.contains(&ours) && condition.message.contains(&other), "{condition:?}");
    println!("{}", condition.message);

    // Its own word counts again as soon as it gives one; and who knows nothing yet takes neither of two.
    cluster.restart(0).unwrap();
    cluster.restart(1).unwrap();
    let facts =
        pass_until(&settings, &mut memory, |f| f.members.value().is_some_and(|l| l.linearizable)).await;
    assert_eq!(facts.members.value().unwrap().cluster_id, ours);
    cluster.kill(0);
    let all = EtcdSettings { endpoints: cluster.endpoints(), ..settings };
    let facts = pass_until(&all, &mut Memory::default(), |f| up(f) == 2).await;
    assert!(facts.members.value().is_none() && facts.cluster_id.is_none(), "{facts:#?}");
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn a_frozen_member_costs_its_limit_and_no_more() {
    let Some(cluster) = cluster(3, Options::default()) else { return };
    let (settings, mut memory) = (settings(&cluster), Memory::default());
    pass_until(&settings, &mut memory, |f| up(f) == 3).await;
    cluster.freeze(2, true);
    let facts = pass(&settings, &mut memory).await;
    let frozen = at(&facts, &cluster.endpoint(2));
    assert_eq!(cause(&frozen.status), Some(&UnknownCause::TimedOut), "{frozen:?}");
    // A new connection to it is taken by the kernel and never answered either.
    let facts = pass(&settings, &mut memory).await;
    assert_eq!(cause(&at(&facts, &cluster.endpoint(2)).status), Some(&UnknownCause::TimedOut));
    cluster.freeze(2, false);
    pass_until(&settings, &mut memory, |f| up(f) == 3).await;
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn a_learner_counts_as_nothing_bad() {
    let Some(mut cluster) = cluster(1, Options::default()) else { return };
    let (settings, mut memory) = (settings(&cluster), Memory::default());
    let learner = cluster.add_learner().unwrap();
    let facts = pass_until(&settings, &mut memory, |f| up(f) == 2).await;
    let endpoint = at(&facts, &cluster.endpoint(learner));
    assert!(endpoint.status.value().unwrap().is_learner);
    assert_eq!(cause(&endpoint.linearizable_read), Some(&UnknownCause::Unsupported), "{endpoint:?}");
    assert!(facts.learners_since.contains_key(&endpoint.member_id));

    // The learner's own view: it may not be asked for the list, and says so.
    let own = EtcdSettings { endpoints: vec![cluster.endpoint(learner)], ..settings.clone() };
    let facts = pass(&own, &mut Memory::default()).await;
    assert_eq!(cause(&facts.endpoints[0].linearizable_read), Some(&UnknownCause::Unsupported));
    assert!(cause(&facts.members).is_some(), "{:?}", facts.members);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn an_alarm_is_read_and_left_alone() {
    let options = Options { quota_bytes: 1024 * 1024, ..Options::default() };
    let Some(cluster) = cluster(1, options) else { return };
    let (settings, mut memory) = (settings(&cluster), Memory::default());
    let value = "x".repeat(100_000);
    let refused = (0..100).any(|i| cluster.etcdctl(0, &["put", &format!("k{i}"), &value]).is_err());
    assert!(refused, "etcd refuses writes over its quota");
    let facts = pass(&settings, &mut memory).await;
    let alarms = facts.alarms.value().unwrap();
    assert_eq!(alarms.len(), 1, "{alarms:?}");
    assert_eq!((alarms[0].kind.as_str(), &alarms[0].member_id), ("NOSPACE", &facts.endpoints[0].member_id));
    assert_eq!(facts.endpoints[0].status.value().unwrap().quota_bytes, 1024 * 1024);
    assert!(cluster.etcdctl(0, &["alarm", "list"]).unwrap().contains("NOSPACE"));
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn wrong_certificates_are_told_apart() {
    let Some(cluster) = cluster(1, Options::default()) else { return };
    let Some(other) = self::cluster(1, Options::default()) else { return };
    let good = settings(&cluster);
    let dir = tempfile::tempdir().unwrap();
    let junk = dir.path().join("junk");
    std::fs::write(&junk, "hello").unwrap();

    // The files themselves: the whole check is unknown.
    for (broken, says) in [
        (EtcdSettings { key: Some(other.client_key()), ..good.clone() }, "does not belong"),
        (EtcdSettings { cert: Some(dir.path().join("missing")), ..good.clone() }, "not there"),
        (EtcdSettings { key: Some(junk.clone()), ..good.clone() }, "private key"),
        (EtcdSettings { ca: Some(junk.clone()), ..good.clone() }, "no PEM certificate"),
    ] {
        match read(&context(), &broken, &mut Memory::default()).await {
            Fact::Unknown { cause: UnknownCause::InvalidInput, detail, .. } => {
                assert!(detail.contains(says), "{detail}");
            }
            fact => panic!("{fact:?}"),
        }
    }
    // What the peer makes of them: the endpoint is unknown.
    let foreign = EtcdSettings {
        cert: Some(other.client_certificate()),
        key: Some(other.client_key()),
        ..good.clone()
    };
    let facts = pass(&foreign, &mut Memory::default()).await;
    assert_eq!(cause(&facts.endpoints[0].status), Some(&UnknownCause::Unauthenticated), "{facts:#?}");
    let untrusted = EtcdSettings { ca: Some(other.ca()), ..good.clone() };
    let facts = pass(&untrusted, &mut Memory::default()).await;
    assert_eq!(cause(&facts.endpoints[0].status), Some(&UnknownCause::TlsFailed), "{facts:#?}");
    assert_eq!(cause(&facts.members), Some(&UnknownCause::TlsFailed));

    // New files are noticed between passes, good ones too.
    let rotating = dir.path().join("ca.crt");
    std::fs::copy(other.ca(), &rotating).unwrap();
    let settings = EtcdSettings { ca: Some(rotating.clone()), ..good };
    let mut memory = Memory::default();
    assert_eq!(up(&pass(&settings, &mut memory).await), 0);
    std::fs::copy(cluster.ca(), &rotating).unwrap();
    assert_eq!(up(&pass(&settings, &mut memory).await), 1);
    std::fs::copy(other.ca(), &rotating).unwrap();
    assert_eq!(up(&pass(&settings, &mut memory).await), 0, "a kept connection does not hide files that fail");
}

/// A peer that answers every connection in one way; stops with the test.
fn peer(answer: Option<&'static [u8]>) -> String {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { break };
            if let Some(bytes) = answer {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(bytes);
            }
            if answer != Some(b"") {
                held.push(stream);
            }
        }
    });
    url
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn peers_that_are_not_etcd_are_unknown_within_the_limit() {
    // A SETTINGS frame as HTTP/2 begins, and then nothing.
    const HALF: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    let refused = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", free.local_addr().unwrap())
    };
    for (url, expected) in [
        (refused, UnknownCause::ConnectionRefused),
        (peer(None), UnknownCause::TimedOut),
        (peer(Some(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno")), UnknownCause::InvalidAnswer),
        (peer(Some(b"")), UnknownCause::Unreachable),
        (peer(Some(HALF)), UnknownCause::TimedOut),
    ] {
        let settings = EtcdSettings { endpoints: vec![url.clone()], ..EtcdSettings::default() };
        let facts = pass(&settings, &mut Memory::default()).await;
        assert_eq!(cause(&facts.endpoints[0].status), Some(&expected), "{:?}", facts.endpoints[0]);
        assert!(cause(&facts.members).is_some() && cause(&facts.alarms).is_some());
        assert!(cause(&facts.metrics).is_some(), "{:?}", facts.metrics);
    }
}
