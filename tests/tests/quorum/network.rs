//! The network between members breaks in part: splits with a majority left, loss in one direction, delay, one port. Who still has a
//! majority goes on, and nobody may say otherwise.

use std::thread::sleep;
use std::time::Instant;

use outrider_protocol::Severity;
use outrider_tests::table::Table;

use super::standing::Shared;
use super::*;

/// Long enough for a doubt to show: a poll, a pass, an election, and the time certainty takes.
const WATCHED: Duration = Duration::from_secs(15);

/// Three members: one far away, one cut off, one that hears nothing.
pub(super) fn a_majority_goes_on(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let row = |fault: &str, made: &str, shown: String, times: Option<(Duration, Duration)>| {
        let mut table = table.lock().unwrap();
        match times {
            Some((raised, cleared)) => table.timed(fault, made, shown, raised, Some(cleared)),
            None => table.row(fault, made, shown),
        }
    };

    let before = Before::now(&mut bed);
    bed.delay_peer(2, Duration::from_millis(100)).expect("proxies");
    bed.wait_for_quorum(2).expect("quorum");
    let slow = Instant::now();
    bed.etcdctl(2, &["get", "k"]).expect("a read");
    assert!(slow.elapsed() >= Duration::from_millis(200), "the detour is taken: {:?}", slow.elapsed());
    sleep(WATCHED);
    let shown = never_lost(&mut bed, "delayed peer", before);
    assert!(bed.look().expect("a look").is_well(3), "{}", bed.look().expect("a look").lines());
    row("a peer 100 ms away, each way", "TCP proxies between it and the others", shown, None);
    bed.server(2).stop_etcd().expect("an end");
    bed.heal().expect("no rules");
    bed.start_etcd(2).expect("a start");
    bed.wait_for_quorum(2).expect("quorum");
    well(&mut bed, "without delay", Instant::now());

    let before = Before::led_by_the_first(&mut bed);
    let fault = Instant::now();
    bed.partition(&[&[0, 1], &[2]]).expect("rules");
    let (raised, shown) = seen(&mut bed, "partition 2|1", fault, |s| s.find("EtcdPartitioned").is_some());
    let condition = shown.find("EtcdPartitioned").map(|(_, c)| c.clone()).expect("just seen");
    println!("partition 2|1: {}: {}", said(&condition), condition.message);
    described(&bed, "partition 2|1");
    let alone = shown.of_node("server-3", "EtcdMemberHealthy").map(said).unwrap_or_default();
    seen(&mut bed, "partition 2|1: no doubt left", fault, |s| !is_suspected(s));
    let held = never_lost(&mut bed, "partition 2|1", before);
    let cured = Instant::now();
    bed.heal().expect("no rules");
    let cleared = well(&mut bed, "partition 2|1: well again", cured);
    let text = format!("{}; {held}; server-3: {alone}", said(&condition));
    row("partition 2|1", "nftables drops, both ways", text, Some((raised, cleared)));

    let before = Before::led_by_the_first(&mut bed);
    let others = [bed.address(0), bed.address(1)];
    let fault = Instant::now();
    bed.server(2).space.lose_from(&others).expect("rules");
    let (raised, shown) = seen(&mut bed, "one-way loss", fault, |s| {
        s.of_node("server-3", "EtcdMemberHealthy").is_some_and(|c| c.status == Status::False)
    });
    let alone = shown.of_node("server-3", "EtcdMemberHealthy").cloned().expect("just seen");
    println!("one-way loss: {}: {}", said(&alone), alone.message);
    // It may force elections: doubt is right then, loss is not.
    seen(&mut bed, "one-way loss: no doubt left", fault, |s| !is_suspected(s));
    let held = never_lost(&mut bed, "one-way loss", before);
    let cured = Instant::now();
    bed.heal().expect("no rules");
    let cleared = well(&mut bed, "one-way loss: well again", cured);
    let text = format!("server-3: {}; {held}", said(&alone));
    row("one-way loss", "one member hears nothing and is heard", text, Some((raised, cleared)));
}

/// The client port is closed between the servers and the port of peers is not: nothing stops and nobody is apart.
pub(super) fn client_port_closed(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let before = Before::now(&mut bed);
    let fault = Instant::now();
    bed.close_port(2379, &[&[0], &[1], &[2]]).expect("rules");
    let (raised, shown) = seen(&mut bed, "2379 closed", fault, |s| s.find("EtcdClientPortClosed").is_some());
    let condition = shown.find("EtcdClientPortClosed").map(|(_, c)| c.clone()).expect("just seen");
    described(&bed, "2379 closed");
    println!("2379 closed: {}: {} | {}", said(&condition), condition.message, condition.advice);
    assert_eq!((condition.status, condition.severity), (Status::True, Severity::Warn), "{condition:?}");
    for server in ["server-1", "server-2", "server-3"] {
        assert!(condition.message.contains(server), "{condition:?}");
    }
    let held = never_lost(&mut bed, "2379 closed", before);
    let wrong = ["EtcdPartitioned", "EtcdNoTolerance", "EtcdMemberDown"];
    let events = bed.events(before.event).expect("the history");
    let told: Vec<&Condition> = events
        .iter()
        .map(|e| &e.transition.condition)
        .filter(|c| c.severity > Severity::Info && wrong.contains(&c.reason.as_str()))
        .collect();
    assert!(told.is_empty(), "no partition and no loss: {told:#?}");
    let cured = Instant::now();
    bed.heal().expect("no rules");
    let cleared = well(&mut bed, "2379 open again", cured);
    let text = format!("{}; {held}", said(&condition));
    table.lock().unwrap().timed(
        "2379 closed between servers",
        "nftables drops TCP 2379, both ways",
        text,
        raised,
        Some(cleared),
    );
}

/// The port of peers is closed around one server and its client port is not: each agent reaches every member, and that one
/// has no leader.
pub(super) fn peer_port_closed(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let before = Before::led_by_the_first(&mut bed);
    let fault = Instant::now();
    bed.close_port(2380, &[&[0, 1], &[2]]).expect("rules");
    // Between two followers etcd says next to nothing and counts nothing lost: unless the lead moves, only its way to the
    // leader is known to be closed, and that it sees none.
    let all_ways = |c: &Condition| {
        c.status == Status::False && c.message.contains("on port 2380, though their client ports")
    };
    let one_way = |c: &Condition| {
        (c.status, c.severity) == (Status::True, Severity::Warn)
            && c.message.starts_with("Port 2380 is closed between living voters: ")
            && c.message.contains("server-3 sees no leader")
    };
    let apart = |s: &Seen| s.find("EtcdPartitioned").is_some_and(|(_, c)| all_ways(c) || one_way(c));
    let (raised, shown) = seen(&mut bed, "2380 closed", fault, apart);
    let condition = shown.find("EtcdPartitioned").map(|(_, c)| c.clone()).expect("just seen");
    described(&bed, "2380 closed");
    println!("2380 closed: {}: {} | {}", said(&condition), condition.message, condition.advice);
    if one_way(&condition) {
        assert!(condition.advice.contains("between server-3 and the other members too"), "{condition:?}");
    }
    let alone = shown.of_node("server-3", "EtcdMemberHealthy").map(said).unwrap_or_default();
    seen(&mut bed, "2380 closed: no doubt left", fault, |s| !is_suspected(s));
    let held = never_lost(&mut bed, "2380 closed", before);
    let cured = Instant::now();
    bed.heal().expect("no rules");
    let cleared = well(&mut bed, "2380 open again", cured);
    let text = format!("{}; {held}; server-3: {alone}", said(&condition));
    table.lock().unwrap().timed(
        "2380 closed around one server",
        "nftables drops TCP 2380, both ways",
        text,
        raised,
        Some(cleared),
    );
}

#[test]
#[ignore = "run by tests/run --suite quorum"]
fn five_members_split_two_and_three() {
    let etcd = newer();
    let options = Options { members: 5, agent: AGENT.to_owned(), ..Options::new(&etcd) };
    let mut table = Table::new(&format!("etcd {}, five members, {}", etcd.version, options.timing));
    let mut bed = start(&options);
    let before = Before::led_by_the_first(&mut bed);
    let fault = Instant::now();
    bed.partition(&[&[0, 1, 2], &[3, 4]]).expect("rules");
    let (raised, shown) = seen(&mut bed, "partition 3|2", fault, |s| {
        s.of_node("server-5", "EtcdMemberHealthy").is_some_and(|c| c.status == Status::False)
    });
    let alone = shown.of_node("server-5", "EtcdMemberHealthy").map(said).unwrap_or_default();
    seen(&mut bed, "partition 3|2: no doubt left", fault, |s| !is_suspected(s));
    let text = format!("server-5: {alone}; {}", never_lost(&mut bed, "partition 3|2", before));
    table.timed("partition 3|2", "nftables drops, both ways", text, raised, None);

    // One more of the majority: nobody has three any more.
    let fault = Instant::now();
    bed.server(0).kill_etcd();
    let (suspected, _) = seen(&mut bed, "suspected", fault, is_suspected);
    let (certain, shown) = seen(&mut bed, "certain", fault, is_lost);
    let text =
        format!("{}, suspected after {:.1} s", said(quorum(&shown).expect("it")), suspected.as_secs_f64());
    println!("partition 3|2 and one killed: {text}, certain after {certain:?}");
    let cured = Instant::now();
    bed.heal().expect("no rules");
    bed.start_etcd(0).expect("a start");
    let (cleared, _) = seen(&mut bed, "quorum holds again", cured, |s| !is_suspected(s));
    well(&mut bed, "well again", cured);
    table.timed("partition 3|2, then one of the 3 lost", "kill -9", text, certain, Some(cleared));
    drop(table);
    in_time("suspected", suspected, SUSPECTED);
    in_time("certain", certain, bed.election() + CERTAIN_EXTRA);
}
