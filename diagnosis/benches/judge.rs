//! What a judgement costs: one node, and a fleet of 1,000 clusters of five members.
//!
//! `cargo bench -p outrider-diagnosis`

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use outrider_diagnosis::fleet::{Member, judge_cluster};
use outrider_diagnosis::{diagnose, judge, latch};
use outrider_protocol::Status;

#[path = "../tests/rules/world.rs"]
mod world;

fn one_node(c: &mut Criterion) {
    let mut facts = world::server(3);
    facts.latches = latch(&[], &judge(&facts), facts.now).latches;
    c.bench_function("judge one node", |b| b.iter(|| judge(black_box(&facts))));
    c.bench_function("diagnose one node", |b| b.iter(|| diagnose(black_box(&facts))));
}

fn fleet(c: &mut Criterion) {
    let clusters: Vec<Vec<_>> =
        (0..1000).map(|n| world::views(5, if n % 10 == 0 { &[1] } else { &[] })).collect();
    let mut group = c.benchmark_group("fleet");
    group.sample_size(20);
    group.bench_function("judge 1,000 clusters of 5", |b| {
        b.iter(|| {
            for views in &clusters {
                let members: Vec<Member<'_>> = views
                    .iter()
                    .map(|(name, fact)| Member {
                        name,
                        ready: Status::True,
                        zone: "a",
                        region: "r",
                        etcd: Some(fact),
                        network: None,
                    })
                    .collect();
                black_box(judge_cluster("c", &members, world::now()));
            }
        })
    });
    group.finish();
}

criterion_group!(benches, one_node, fleet);
criterion_main!(benches);
