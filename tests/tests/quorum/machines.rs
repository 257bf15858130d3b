//! A machine that is lost whole, and one whose disk is full.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use outrider_tests::programs::until;
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
    let before = Before::now(&mut bed);
    let lost = Instant::now();
    let server = bed.server(1);
    // First: a machine that is off says goodbye to nobody.
    server.space.ip("link set eth0 down\n").expect("a link that goes down");
    server.kill_etcd();
    server.kill_agent();
    let (raised, shown) = seen(&mut bed, "tolerance is lost", lost, |s| {
        quorum(s).is_some_and(|c| c.reason.as_str() == "EtcdNoTolerance")
    });
    let condition = quorum(&shown).expect("just seen").clone();
    assert!(condition.message.contains("server-2"), "names it: {condition:?}");
    // The member's silence and the node's are one cause, and told as one.
    let (one_cause, shown) = seen(&mut bed, "the node is part of it", lost, |s| {
        quorum(s).is_some_and(|c| c.message.contains("its node server-2 is silent since"))
    });
    println!("machine lost, after {one_cause:?}: {}", quorum(&shown).expect("just seen").message);
    in_time("the node is part of it", one_cause, ONE_CAUSE);
    described(&bed, "machine lost");
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

/// From the end of a machine until the verdict says that its node is silent: the loss, a question, and two seconds for it.
const ONE_CAUSE: Duration = Duration::from_secs(10);

/// The file system below the data of one of three has no room left.
fn full_disk(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let before = Before::now(&mut bed);
    let data = bed.server(1).etcd_data();
    bed.server(1).kill_agent();
    bed.server(1).stop_etcd().expect("an end");
    let disk = SmallDisk::below(&data);
    bed.start_etcd(1).expect("a start on the small disk");
    // Before that the disk would be filled under a member that only starts. What the coordinator shows is older.
    bed.wait_for_quorum(1).expect("a member on the small disk");
    let next_piece = || Some(()).filter(|()| has_set_aside(&data.join("member/wal")));
    until("the next piece of the log is set aside", LIMIT, next_piece).expect("it is");
    bed.server(1).start_agent().expect("an agent");
    well(&mut bed, "on a small disk", Instant::now());

    let ballast = data.join("ballast");
    fill(&ballast);
    let written = write_until_it_ends(&mut bed, 1);
    let fault = Instant::now();
    let (raised, shown) = seen(&mut bed, "a full disk", fault, |s| {
        let member = s.of_node("server-2", "EtcdMemberHealthy");
        member.is_some_and(|c| c.status == Status::False && c.message.contains("left"))
    });
    let condition = shown.of_node("server-2", "EtcdMemberHealthy").expect("just seen").clone();
    described(&bed, "a full disk");
    println!("full disk: {}: {} | {}", said(&condition), condition.message, condition.advice);
    assert!(condition.advice.contains("Make room"), "{condition:?}");
    in_time("a full disk", raised, DISK_FULL);

    let cured = Instant::now();
    fs::remove_file(&ballast).unwrap();
    bed.start_etcd(1).expect("a start with room");
    let cleared = well(&mut bed, "with room again", cured);
    let held = never_lost(&mut bed, "a full disk of one of three", before);
    table.lock().unwrap().timed(
        "disk full below the data",
        format!("a tmpfs below the data folder of one of three filled to the last byte; it ended {written} MiB of writes later"),
        format!("server-2: {}; {held}", said(&condition)),
        raised,
        Some(cleared),
    );
    drop(disk);
}

/// Whether the piece of the log that comes next lies there whole.
fn has_set_aside(wal: &Path) -> bool {
    let files = fs::read_dir(wal).into_iter().flatten().flatten();
    let mut next = files.filter(|f| f.path().extension().is_some_and(|e| e == "tmp"));
    next.any(|f| f.metadata().is_ok_and(|m| m.len() >= 64_000_000))
}

/// From the end of the member until its disk is named.
const DISK_FULL: Duration = Duration::from_secs(5);

/// Writes to the cluster until member `i`, whose disk is full, ends for want of room; how many MiB that took.
///
/// etcd goes on in what it has set aside: two pieces of its log of 64 MB each and, in later versions, 16 MB of its
/// database. What is written here is more than the database has, and less than the log.
fn write_until_it_ends(bed: &mut Servers, i: usize) -> usize {
    const MOST: usize = 48;
    let value = vec![b'x'; 1 << 20];
    for n in 0..MOST {
        let put = bed.put(usize::from(i == 0), &format!("k{}", n % 4), &value);
        if !bed.server(i).etcd_runs() {
            let log = bed.server(i).etcd_log();
            assert!(
                log.contains("no space left"),
                "it ended, and not for want of room: {}",
                bed.server(i).etcd_said()
            );
            return n + 1;
        }
        // A leader that ends takes the write under way with it: then the next look shows that it ended.
        if let Err(e) = put {
            println!("full disk: write {n}: {e:#}");
        }
    }
    panic!(
        "no fault was made: the disk of member {i} is full and it still runs after {MOST} MiB of writes; it said last: {}",
        bed.server(i).etcd_said()
    );
}

/// A disk of its own below a folder, with room for two pieces of the log and a small database; gone with this value,
/// however the test ends.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Moves what lies in the folder onto it.
    fn below(folder: &Path) -> Self {
        let aside = folder.with_extension("aside");
        fs::rename(folder, &aside).unwrap();
        fs::create_dir(folder).unwrap();
        mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some("size=224m,mode=700")).unwrap();
        let disk = Self(folder.to_owned());
        let copied =
            std::process::Command::new("cp").arg("-a").arg(aside.join(".")).arg(folder).status().unwrap();
        assert!(copied.success());
        fs::remove_dir_all(aside).unwrap();
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Detached: the member that still runs on it ends with the bed, and the disk with the member.
        if let Err(e) = umount2(&self.0, MntFlags::MNT_DETACH) {
            println!("{}: {e}", self.0.display());
        }
    }
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
