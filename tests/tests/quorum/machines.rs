//! A machine that is lost whole, and one whose disk is full.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use outrider_tests::table::Table;

use super::standing::Shared;
use super::*;

#[test]
#[ignore = "run by tests/run --suite quorum"]
fn machines_that_are_lost_and_disks_that_are_full() {
    let etcd = newer();
    let title = format!("etcd {}, a machine: seen at the coordinator", etcd.version);
    let table: Shared = Mutex::new(Table::new(&title));
    let options = Options { agent: AGENT.to_owned(), ..Options::new(&etcd) };
    thread::scope(|scope| {
        for work in [lost_with_its_agent, full_disk] {
            let (options, table) = (&options, &table);
            scope.spawn(move || work(options, table));
        }
    });
}

/// Power and network of one of three are gone at the same moment: nobody is left there to say so.
fn lost_with_its_agent(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let before = bed.position().expect("the history");
    let lost = Instant::now();
    let server = bed.server(1);
    server.kill_etcd();
    server.kill_agent();
    server.space.ip("link set eth0 down\n").expect("a link that goes down");
    let (raised, shown) = seen(&mut bed, "tolerance is lost", lost, |s| {
        quorum(s).is_some_and(|c| c.reason.as_str() == "EtcdNoTolerance")
    });
    let condition = quorum(&shown).expect("just seen").clone();
    assert!(condition.message.contains("server-2"), "names it: {condition:?}");
    let (silent, shown) = seen(&mut bed, "the node is silent", lost, |s| s.find("NodeSilent").is_some());
    let (whose, silence) = shown.find("NodeSilent").expect("just seen");
    let said = format!(
        "cluster: {}; {whose}: {} after {:.1} s",
        said(&condition),
        said(silence),
        silent.as_secs_f64()
    );
    println!("machine lost: {said}: {} | {}", condition.message, condition.advice);

    let cured = Instant::now();
    bed.server(1).space.ip("link set eth0 up\n").expect("a link that comes up");
    bed.start_etcd(1).expect("a start");
    bed.server(1).start_agent().expect("an agent");
    let cleared = well(&mut bed, "the machine is back", cured);
    let held = never_lost(&mut bed, "a machine of three", before);
    table.lock().unwrap().timed(
        "machine lost with its agent",
        "kill -9 of member and agent, link down, of one of three",
        format!("{said}; {held}"),
        raised,
        Some(cleared),
    );
}

/// The file system below the data of one of three has no room left.
fn full_disk(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let before = bed.position().expect("the history");
    let disk = bed.server(1).etcd_data();
    bed.server(1).kill_agent();
    bed.server(1).stop_etcd().expect("an end");
    on_a_small_disk(&disk);
    bed.start_etcd(1).expect("a start on the small disk");
    bed.server(1).start_agent().expect("an agent");
    well(&mut bed, "on a small disk", Instant::now());

    let fault = Instant::now();
    let ballast = disk.join("ballast");
    fill(&ballast);
    // Written by another member: the database of this one has to grow, too.
    let value = "x".repeat(100_000);
    for i in 0..400 {
        bed.etcdctl(0, &["put", &format!("k{}", i % 40), &value]).expect("two of three take it");
        if bed.server(1).etcd_said().contains("no space left") {
            break;
        }
    }
    let (raised, shown) = seen(&mut bed, "a full disk", fault, |s| {
        let member = s.of_node("server-2", "EtcdMemberHealthy");
        member.is_some_and(|c| c.status == Status::False && c.message.contains("left"))
    });
    let condition = shown.of_node("server-2", "EtcdMemberHealthy").expect("just seen").clone();
    println!("full disk: {}: {} | {}", said(&condition), condition.message, condition.advice);
    assert!(condition.advice.contains("Make room"), "{condition:?}");

    let cured = Instant::now();
    fs::remove_file(&ballast).unwrap();
    bed.server(1).kill_etcd();
    bed.start_etcd(1).expect("a start with room");
    let cleared = well(&mut bed, "with room again", cured);
    let held = never_lost(&mut bed, "a full disk of one of three", before);
    table.lock().unwrap().timed(
        "disk full below the data",
        "a tmpfs below the data folder of one of three filled to the last byte, under writes",
        format!("server-2: {}; {held}", said(&condition)),
        raised,
        Some(cleared),
    );
    bed.server(1).kill_agent();
    bed.server(1).kill_etcd();
    umount2(&disk, MntFlags::MNT_DETACH).expect("the small disk goes");
}

/// Moves what lies in the folder onto a disk of its own: room for two pieces of the log and a small database.
fn on_a_small_disk(folder: &Path) {
    let aside = folder.with_extension("aside");
    fs::rename(folder, &aside).unwrap();
    fs::create_dir(folder).unwrap();
    mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some("size=224m,mode=700")).unwrap();
    let copied =
        std::process::Command::new("cp").arg("-a").arg(aside.join(".")).arg(folder).status().unwrap();
    assert!(copied.success());
    fs::remove_dir_all(aside).unwrap();
}

/// Writes until there is no room.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let mut piece = vec![0; 64 * 1024];
    while !piece.is_empty() {
        if file.write_all(&piece).is_err() {
            piece.truncate(piece.len() / 2);
        }
    }
}
