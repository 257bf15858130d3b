//! What a judgement costs: one node, and a fleet of 1,000 clusters of five members.
//!
//! `cargo bench -p outrider-diagnosis`
//!
//! Processor time is measured, not the time of the wall: other work on the machine does not count.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use outrider_diagnosis::fleet::{Member, judge_cluster, picture};
use outrider_diagnosis::{diagnose, judge, latch};
use outrider_protocol::Status;

#[path = "../tests/rules/world/mod.rs"]
mod world;

mod processor_time;

use processor_time::ProcessorTime;

fn one_node(c: &mut Criterion<ProcessorTime>) {
    let mut facts = world::server(3);
    facts.latches = latch(&[], &judge(&facts), facts.now).latches;
    c.bench_function("judge one node", |b| b.iter(|| judge(black_box(&facts))));
    c.bench_function("diagnose one node", |b| b.iter(|| diagnose(black_box(&facts))));
}

fn fleet(c: &mut Criterion<ProcessorTime>) {
    let clusters: Vec<Vec<_>> =
        (0..1000).map(|n| world::views(5, if n % 10 == 0 { &[1] } else { &[] })).collect();
    let clusters: Vec<Vec<Member<'_>>> = clusters
        .iter()
        .map(|views| {
            let member = |(name, fact)| Member {
                name,
                ready: Status::True,
                zone: "a",
                region: "r",
                etcd: Some(fact),
                network: None,
                received: None,
                heard: None,
                retired: None,
                addresses: &[],
                paths: &[],
            };
            views.iter().map(|(name, fact)| member((name.as_str(), fact))).collect()
        })
        .collect();
    let mut group = c.benchmark_group("fleet");
    group.sample_size(20);
    group.bench_function("judge 1,000 clusters of 5", |b| {
        b.iter(|| {
            for members in &clusters {
                black_box(judge_cluster("c", members, world::now()));
            }
        });
    });
    group.bench_function("draw 1,000 clusters of 5", |b| {
        b.iter(|| {
            for members in &clusters {
                black_box(picture(members, world::now()));
            }
        });
    });
    group.finish();
}

criterion_group!(
    name = benches;
    config = Criterion::default().with_measurement(ProcessorTime);
    targets = one_node, fleet
);
criterion_main!(benches);
