//! kill -9 proves no fsync, for the page cache outlives the process. Here the disk itself fails below the agent's spool
//! and the coordinator's store: the power goes after every single change, syncs fail, writes fail or are cut short, the
//! file system is full. Whatever was promised to survive must be there, once and in order, and no hand be needed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod programs;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use outrider_tests::fault_disk::{Fault, FaultDisk, build};
use outrider_tests::programs::{Process, program};
use outrider_tests::table::Table;
use outrider_tests::witness;

const KINDS: [&str; 2] = ["spool", "store"];

fn shim() -> &'static Path {
    static SHIM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = SHIM.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = build(folder.path()).expect("a shim");
        (folder, path)
    });
    path
}

fn disk() -> FaultDisk {
    FaultDisk::new(shim(), |root| fs::create_dir(root.join("state"))).expect("a disk")
}

fn witness_command(kind: &str, disk: &FaultDisk, count: u64) -> Command {
    let mut command = Command::new(program("witness").expect("a witness"));
    command.arg(kind).arg(disk.root().join("state")).arg("1").arg(count.to_string());
    command
}

/// Numbers that were promised, from what a witness said.
fn promised(lines: &[String]) -> Vec<u64> {
    lines.iter().filter_map(|line| line.parse().ok()).collect()
}

/// Opens what the disk holds after a cut, holds it against the promises, and goes on working with it.
fn verify(kind: &str, folder: &Path, promised: &[u64], what: &str) {
    let state = folder.join("state");
    let mut witness = witness::open(kind, &state).unwrap_or_else(|e| panic!("{what}: {e:#}"));
    assert_eq!(witness.complaint(), "", "{what}: opened with a complaint");
    let there = witness.numbers().unwrap_or_else(|e| panic!("{what}: {e:#}"));
    assert!(there.is_sorted_by(|a, b| a < b), "{what}: not once and in order: {there:?}");
    let lost: Vec<_> = promised.iter().filter(|n| !there.contains(n)).collect();
    assert!(lost.is_empty(), "{what}: lost {lost:?} of {promised:?}; there: {there:?}");
    let next = there.last().copied().unwrap_or(0) + 1;
    witness.append(next).unwrap_or_else(|e| panic!("{what}: goes on with {next}: {e:#}"));
    assert_eq!(witness.numbers().expect("numbers").last(), Some(&next), "{what}");
}

/// The bed itself: a program that syncs nothing loses what it wrote, one that syncs everything does not.
#[test]
#[ignore = "run by tests/run --suite faults"]
fn the_disk_catches_a_program_that_does_not_sync() {
    let outcomes = |script: &str| {
        let disk = disk();
        let script = script.replace("ROOT", &disk.root().join("state").display().to_string());
        let run = disk.run(Command::new("sh").arg("-c").arg(script), 0).expect("a run");
        assert!(run.status.success() && run.lines == ["promised"], "{run:?}");
        let seen =
            (0..60).map(|seed| fs::read(disk.cut(seed).expect("a cut").path().join("state/kept")).ok());
        seen.collect::<BTreeSet<_>>()
    };
    let careless = outcomes("echo value > ROOT/new && mv ROOT/new ROOT/kept && echo promised");
    assert!(careless.contains(&None) && careless.contains(&Some(Vec::new())), "{careless:?}");
    // Of these only the content is certain, not its name.
    let half =
        outcomes("echo value > ROOT/new && sync -d ROOT/new && mv ROOT/new ROOT/kept && echo promised");
    assert_eq!(half, BTreeSet::from([None, Some(b"value\n".to_vec())]));
    let careful =
        "echo value > ROOT/new && sync -d ROOT/new && mv ROOT/new ROOT/kept && sync ROOT && echo promised";
    assert_eq!(outcomes(careful), BTreeSet::from([Some(b"value\n".to_vec())]));
}

#[test]
#[ignore = "run by tests/run --suite faults"]
fn the_power_may_go_after_any_change() {
    let mut table =
        Table::new("power cuts: everything promised is there, once, in order; work goes on without a hand");
    for (kind, count, seeds) in [("spool", 16, 6), ("store", 10, 3)] {
        let whole = disk();
        let run = whole.run(&mut witness_command(kind, &whole, count), 0).expect("a run");
        assert_eq!(promised(&run.lines).len() as u64, count, "{run:?}");
        let changes = whole.history().expect("a history").1 as u64;
        let mut kept = BTreeSet::new();
        for kill_at in 1..=changes {
            let disk = disk();
            let run = disk.run(&mut witness_command(kind, &disk, count), kill_at).expect("a run");
            let promised = promised(&run.lines);
            kept.insert(promised.len());
            for seed in 0..seeds {
                let what = format!("{kind}, power gone after change {kill_at}, seed {seed}");
                verify(kind, disk.cut(kill_at * 1000 + seed).expect("a cut").path(), &promised, &what);
            }
        }
        assert!(kept.len() as u64 >= count, "every number of promises was cut at: {kept:?}");
        let cuts = changes * seeds;
        table.row(
            format!("power gone under the {kind}"),
            format!("SIGKILL after each of {changes} changes; unsynced ones lost, torn, reordered"),
            format!("{cuts} cuts, nothing promised was lost"),
        );
    }
}

#[test]
#[ignore = "run by tests/run --suite faults"]
fn what_fails_to_be_written_is_not_promised() {
    let mut table = Table::new("failing calls: what was promised is there after a power cut as well");
    for kind in KINDS {
        for (fault, count, name, made) in [
            (Fault::Sync, 1, "one fsync fails", "EIO once; the page cache keeps what the disk may not have"),
            (Fault::Sync, 4, "four fsyncs fail", "EIO four times"),
            (Fault::Write, 3, "writes fail", "EIO three times"),
            (Fault::Half, 2, "writes are cut short", "half written, then ENOSPC, twice"),
            (Fault::Full, 5, "the disk is full for a while", "ENOSPC five times"),
        ] {
            let disk = disk();
            let mut command = witness_command(kind, &disk, 40);
            disk.arm(command.arg("5"), 0).stdin(Stdio::null()).stdout(Stdio::piped());
            let mut process = Process::spawn(&mut command).expect("a witness");
            let out = BufReader::new(process.child().stdout.take().expect("a pipe"));
            let mut lines = Vec::new();
            for line in out.lines() {
                lines.push(line.expect("a line"));
                if lines.len() == 10 {
                    disk.fail(fault, count).expect("a switch");
                }
            }
            let status = process.wait(Duration::from_secs(30)).expect("an end");
            let (promised, failed) =
                (promised(&lines), lines.iter().filter(|l| l.starts_with("failed")).count());
            assert!(status.success(), "{kind}, {name}: {lines:?}");
            assert!(failed > 0, "{kind}, {name}: no append failed, so the fault was not made");
            assert_eq!(
                promised.last(),
                Some(&40),
                "{kind}, {name}: works again once the disk does: {lines:?}"
            );
            for seed in 0..8 {
                let what = format!("{kind}, {name}, seed {seed}");
                verify(kind, disk.cut(seed).expect("a cut").path(), &promised, &what);
            }
            table.row(
                format!("{kind}: {name}"),
                made,
                format!("{failed} of 40 refused, {} kept", promised.len()),
            );
        }
    }
}

/// A real full file system: a small tmpfs in a mount namespace of its own.
#[test]
#[ignore = "run by tests/run --suite faults"]
fn a_full_file_system_is_said_and_survived() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: a tmpfs needs root");
        return;
    }
    let mut table = Table::new("a full file system");
    for (kind, size) in [("spool", 96), ("store", 900)] {
        let folder = tempfile::tempdir().expect("a folder");
        let (disk, kept) = (folder.path().join("disk"), folder.path().join("kept"));
        fs::create_dir(&disk).expect("a folder");
        // Grows until it is full, then somebody makes room; all inside a namespace that ends with the script.
        let script = format!(
            "set -e; mount -t tmpfs -o size={size}k none {disk}; mkdir {disk}/state; \
             {witness} {kind} {disk}/state 1 600 1 > {folder}/lines & \
             until grep -q failed {folder}/lines; do sleep 0.05; done; \
             mount -o remount,size=100m {disk}; wait $!; cp -a {disk} {kept}",
            disk = disk.display(),
            kept = kept.display(),
            folder = folder.path().display(),
            witness = program("witness").expect("a witness").display(),
        );
        let status = Command::new("unshare").args(["-m", "sh", "-c", &script]).stdin(Stdio::null()).status();
        let lines = fs::read_to_string(folder.path().join("lines")).unwrap_or_default();
        assert!(status.expect("unshare").success(), "{kind}: {lines}");
        let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        let failed: Vec<_> = lines.iter().filter(|line| line.starts_with("failed")).collect();
        assert!(
            failed[0].to_lowercase().contains("space"),
            "{kind}: the error says what is wrong: {}",
            failed[0]
        );
        assert_eq!(promised(&lines).last(), Some(&600), "{kind}: goes on by itself: {failed:?}");
        verify(kind, &kept, &promised(&lines), kind);
        table.row(
            format!("{kind} on a full file system"),
            format!("tmpfs of {size} KiB, later enlarged"),
            format!(
                "{} refused ({}), rest kept",
                failed.len(),
                failed[0].rsplit(": ").next().unwrap_or_default()
            ),
        );
    }
}
