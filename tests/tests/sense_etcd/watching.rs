//! Cheap looks between passes: a lost, new or changed member makes a pass due within seconds.

use std::time::{Duration, Instant};

use outrider_agent::config::EtcdSettings;
use outrider_agent::sense::etcd::{Memory, Watched, watch};
use outrider_protocol::EtcdFacts;
use outrider_tests::beds::etcd::Options;

use super::{at, cluster, context, pass_until, settings, up};

/// Looks once a second until something changes; how long that took and what it was.
async fn changed(
    settings: &EtcdSettings,
    memory: &mut Memory,
    facts: &mut EtcdFacts,
    limit: Duration,
) -> (Duration, String) {
    let start = Instant::now();
    loop {
        match watch(&context(), settings, memory, facts).await {
            Watched::Changed(_, why) => return (start.elapsed(), why),
            Watched::Same(_) => {}
            Watched::Lost => panic!("quorum was never lost: {facts:#?}"),
        }
        assert!(start.elapsed() < limit, "nothing was seen within {limit:?}: {facts:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A settled cluster of three in which member 0 leads, so that the loss of another is no election.
async fn led_by_the_first(
    cluster: &outrider_tests::beds::etcd::EtcdCluster,
    settings: &EtcdSettings,
    memory: &mut Memory,
) -> EtcdFacts {
    let facts = pass_until(settings, memory, |f| up(f) == 3 && f.members.value().is_some()).await;
    let first = facts.endpoints[0].member_id.clone();
    let leader = facts.endpoints[0].status.value().unwrap().leader.clone();
    if leader != first {
        let i = (0..3).find(|i| at(&facts, &cluster.endpoint(*i)).member_id == leader).unwrap();
        cluster.etcdctl(i, &["move-leader", &first]).unwrap();
    }
    pass_until(settings, memory, |f| {
        f.endpoints.iter().all(|e| e.status.value().is_some_and(|s| s.leader == first))
    })
    .await
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn a_member_that_dies_without_costing_quorum_is_seen_at_the_next_look() {
    let Some(mut cluster) = cluster(3, Options::default()) else { return };
    let (settings, mut memory) = (settings(&cluster), Memory::default());
    let mut facts = led_by_the_first(&cluster, &settings, &mut memory).await;
    assert!(matches!(watch(&context(), &settings, &mut memory, &mut facts).await, Watched::Same(_)));
    cluster.kill(2);
    let (took, why) = changed(&settings, &mut memory, &mut facts, Duration::from_secs(20)).await;
    println!("killed member seen after {} ms: {why}", took.as_millis());
    assert!(why.contains(&cluster.endpoint(2)), "{why}");
    let mut facts = pass_until(&settings, &mut memory, |f| up(f) == 2).await;
    // It comes back: the round comes to it.
    cluster.restart(2).unwrap();
    let (took, why) = changed(&settings, &mut memory, &mut facts, Duration::from_secs(60)).await;
    println!("member that came back seen after {} ms: {why}", took.as_millis());
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn a_member_that_freezes_is_seen_when_the_round_comes_to_it() {
    let Some(cluster) = cluster(3, Options::default()) else { return };
    let (settings, mut memory) = (settings(&cluster), Memory::default());
    let mut facts = led_by_the_first(&cluster, &settings, &mut memory).await;
    cluster.freeze(1, true);
    let (took, why) = changed(&settings, &mut memory, &mut facts, Duration::from_secs(40)).await;
    println!("frozen member seen after {} ms: {why}", took.as_millis());
    assert!(why.contains(&cluster.endpoint(1)), "{why}");
    cluster.freeze(1, false);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn an_election_and_a_new_learner_are_seen() {
    let Some(mut cluster) = cluster(3, Options::default()) else { return };
    let (settings, mut memory) = (settings(&cluster), Memory::default());
    let mut facts = led_by_the_first(&cluster, &settings, &mut memory).await;
    let second = at(&facts, &cluster.endpoint(1)).member_id.clone();
    cluster.etcdctl(0, &["move-leader", &second]).unwrap();
    let (took, why) = changed(&settings, &mut memory, &mut facts, Duration::from_secs(20)).await;
    println!("election seen after {} ms: {why}", took.as_millis());

    let mut facts = pass_until(&settings, &mut memory, |f| up(f) == 3).await;
    // etcd takes no member while one is connected for less than five seconds.
    let start = Instant::now();
    let learner = loop {
        match cluster.add_learner() {
            Ok(learner) => break learner,
            Err(e) => assert!(start.elapsed().as_secs() < 60 && e.to_string().contains("unhealthy"), "{e}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let (took, why) = changed(&settings, &mut memory, &mut facts, Duration::from_secs(60)).await;
    println!("new learner seen after {} ms: {why}", took.as_millis());
    let facts = pass_until(&settings, &mut memory, |f| up(f) == 4).await;
    let id = &at(&facts, &cluster.endpoint(learner)).member_id;
    let points = &facts.learner_progress[id];
    assert!(points.last().is_some_and(|p| p.index > 0 && p.front >= p.index), "{points:?}");
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn a_learner_watches_itself_without_a_pass_a_second() {
    let Some(mut cluster) = cluster(1, Options::default()) else { return };
    let learner = cluster.add_learner().unwrap();
    let own = EtcdSettings { endpoints: vec![cluster.endpoint(learner)], ..settings(&cluster) };
    let mut memory = Memory::default();
    let mut facts = pass_until(&own, &mut memory, |f| {
        f.endpoints[0].status.value().is_some_and(|s| s.is_learner && !s.leader.is_empty())
    })
    .await;
    let watched = watch(&context(), &own, &mut memory, &mut facts).await;
    assert!(matches!(watched, Watched::Same(_)), "{watched:?}");
}
