//! What lint and merge cost on 64 KiB, which is more than most platforms take.
//!
//! `cargo bench -p outrider-cloud-init`
//!
//! Processor time is measured, not the time of the wall: other work on the machine does not count.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use outrider_cloud_init::lint::{Context, lint_for};
use outrider_cloud_init::merge::merge;
use outrider_cloud_init::{Field, Platform};

#[path = "../../diagnosis/benches/processor_time/mod.rs"]
mod processor_time;

use processor_time::ProcessorTime;

const KIBI_64: usize = 64 << 10;

/// Commands, files, users and packages, with a finding here and there.
fn mixed() -> String {
    let mut out = "#cloud-config\nhostname: web-1\nusers:\n  - default\n".to_owned();
    for n in 0..40 {
        out.push_str(&format!("  - name: user{n}\n    groups: [sudo, adm]\n    shell: /bin/bash\n"));
    }
    out.push_str("packages:\n");
    for n in 0..100 {
        out.push_str(&format!("  - package-{n}   # wanted\n"));
    }
    out.push_str("write_files:\n");
    for n in 0..120 {
        out.push_str(&format!(
            "  - path: /etc/service.d/{n}.conf\n    permissions: '0644'\n    content: |\n      [Unit]\n      After=network.target\n      Description=number {n}\n"
        ));
    }
    out.push_str("runcmd:\n");
    let mut n = 0;
    while out.len() < KIBI_64 {
        out.push_str(&format!(
            "  - systemctl enable --now --no-block service-{n}.service && echo 'done {n}'\n"
        ));
        out.push_str("  - [sh, -c, \"if [ -e /x ]; then echo y; fi\"]\n");
        n += 1;
    }
    out
}

/// The most nodes that fit: every byte or two one.
fn dense() -> String {
    format!("#cloud-config\nx-list: [{}]\n", "a,".repeat(KIBI_64 / 2))
}

/// As deep as is followed, over and over.
fn deep() -> String {
    let nested = format!("  - {}a{}\n", "[".repeat(95), "]".repeat(95));
    format!("#cloud-config\nx-list:\n{}", nested.repeat(KIBI_64 / nested.len()))
}

/// Lines of `line`, in which `#` is a number, below `head`.
fn lines(head: &str, line: &str) -> String {
    let mut out = format!("#cloud-config\n{head}");
    let mut n = 0;
    while out.len() < KIBI_64 {
        out.push_str(&line.replace('#', &n.to_string()));
        n += 1;
    }
    out
}

/// Entries that all run one script, which runs itself.
fn scripts() -> String {
    let mut out = "#cloud-config\nwrite_files:\n  - path: /a\n    content: |\n".to_owned();
    out.push_str(&"      sh /a\n".repeat(KIBI_64 / 24));
    out.push_str("runcmd:\n");
    while out.len() < KIBI_64 {
        out.push_str("  - sh /a\n");
    }
    out
}

fn costs(c: &mut Criterion<ProcessorTime>) {
    let context = Context { platform: Some(Platform::Harvester), field: Some(Field::Secret), version: None };
    let (mixed, dense) = (mixed(), dense());
    c.bench_function("lint/mixed", |b| b.iter(|| lint_for(black_box(mixed.as_bytes()), &context)));
    c.bench_function("lint/dense", |b| b.iter(|| lint_for(black_box(dense.as_bytes()), &context)));
    for (name, text) in [
        ("deep", deep()),
        ("list", lines("x-list:\n", "  - a\n")),
        ("keys", lines("", "x-#: a\n")),
        ("unknown keys", lines("", "k#: a\n")),
        ("empty commands", lines("runcmd:\n", "  -\n")),
        ("commands that are mappings", lines("runcmd:\n", "  - echo a: #\n")),
        ("misread arguments", lines("runcmd:\n", "  - [a, 010]\n")),
        ("scripts", scripts()),
    ] {
        c.bench_function(&format!("lint/{name}"), |b| {
            b.iter(|| lint_for(black_box(text.as_bytes()), &context))
        });
    }
    let ours = "#cloud-config\npackages: [qemu-guest-agent]\nruncmd:\n  - [a, b]\n";
    c.bench_function("merge/mixed", |b| b.iter(|| merge(&[black_box(&mixed), ours])));
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(ProcessorTime).sample_size(30);
    targets = costs
}
criterion_main!(benches);
