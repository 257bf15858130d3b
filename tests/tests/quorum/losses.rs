//! Quorum lost and found: killed, frozen and cut off members, and restarts that are no loss.

use std::time::Instant;

use outrider_tests::table::Table;

use super::*;

/// A fault that takes the quorum away, and its cure.
struct Loss {
    fault: &'static str,
    made: String,
    make: fn(&mut Servers, &[usize]) -> anyhow::Result<()>,
    cure: fn(&mut Servers, &[usize]) -> anyhow::Result<()>,
}

/// Makes the fault on `these`, and undoes it.
fn lose(bed: &mut Servers, table: &mut Table, loss: &Loss, these: &[usize]) {
    let fault = Instant::now();
    (loss.make)(bed, these).unwrap_or_else(|e| panic!("{}: {e:?}", loss.fault));
    let (suspected, _) = seen(bed, &format!("{}: suspected", loss.fault), fault, is_suspected);
    let (certain, shown) = seen(bed, &format!("{}: certain", loss.fault), fault, is_lost);
    let condition = quorum(&shown).expect("EtcdQuorum");
    let numbers = format!("{}, suspected after {:.1} s", said(condition), suspected.as_secs_f64());
    println!("{}: {numbers}, certain after {certain:?}: {}", loss.fault, condition.message);
    described(bed, loss.fault);
    let cured = Instant::now();
    (loss.cure)(bed, these).unwrap_or_else(|e| panic!("{}: {e:?}", loss.fault));
    let (cleared, _) = seen(bed, &format!("{}: quorum holds again", loss.fault), cured, |s| !is_suspected(s));
    // The next one begins when everybody says so; other conditions may take their time.
    seen(bed, &format!("{}: quorum by every word", loss.fault), cured, |s| {
        let met = |c: Option<&Condition>| c.is_some_and(|c| c.reason.as_str() == "EtcdQuorumMet");
        met(quorum(s)) && s.nodes.keys().all(|node| met(s.of_node(node, "EtcdQuorum")))
    });
    table.timed(loss.fault, loss.made.clone(), numbers, certain, Some(cleared));
    in_time(&format!("{}: suspected", loss.fault), suspected, SUSPECTED);
    in_time(&format!("{}: certain", loss.fault), certain, bed.election() + CERTAIN_EXTRA);
    assert!(!condition.advice.is_empty() && condition.message.contains("voters"), "{condition:?}");
}

/// Restarts one member after the other as an upgrade does: nothing may be called lost.
fn rolling_restart(bed: &mut Servers, table: &mut Table) {
    let before = Before::now(bed);
    let start = Instant::now();
    for i in 0..bed.len() {
        bed.server(i).stop_etcd().expect("an end");
        bed.start_etcd(i).expect("a start");
        bed.wait_for_quorum(i).expect("quorum");
    }
    well(bed, "rolling restart: all is well", Instant::now());
    let took = start.elapsed();
    let held = never_lost(bed, "rolling restart", before);
    assert!(held.ends_with("never False"), "not even by the elections it makes: {held}");
    table.row(
        "rolling restart, no loss",
        format!("SIGTERM and start, one of {} after the other, in {:.0} s", bed.len(), took.as_secs_f64()),
        held,
    );
}

fn all_losses(options: &Options) {
    let mut bed = start(options);
    let family = if options.ipv6 { ", IPv6" } else { "" };
    let title = format!(
        "etcd {}, {} members, {}{family}: seen at the coordinator",
        options.etcd.version, options.members, options.timing
    );
    let mut table = Table::new(&title);
    rolling_restart(&mut bed, &mut table);

    // All but the smallest majority less one: what remains is one short of the quorum.
    let majority = usize::from(options.members) / 2 + 1;
    let these: Vec<usize> = (0..majority).collect();
    let n = bed.len();
    let kill = Loss {
        fault: "majority killed",
        made: format!("kill -9 of {majority} of {n} members"),
        make: |bed, these| {
            these.iter().for_each(|i| bed.server(*i).kill_etcd());
            Ok(())
        },
        cure: |bed, these| these.iter().try_for_each(|i| bed.start_etcd(*i)),
    };
    lose(&mut bed, &mut table, &kill, &these);
    let freeze = Loss {
        fault: "majority frozen",
        made: format!("SIGSTOP to {majority} of {n} members"),
        make: |bed, these| these.iter().try_for_each(|i| bed.server(*i).freeze_etcd(true)),
        cure: |bed, these| these.iter().try_for_each(|i| bed.server(*i).freeze_etcd(false)),
    };
    lose(&mut bed, &mut table, &freeze, &these);
    let split = Loss {
        fault: "every member cut off from every other",
        made: "nftables drops between all namespaces".to_owned(),
        make: |bed, _| {
            let alone: Vec<[usize; 1]> = (0..bed.len()).map(|i| [i]).collect();
            let groups: Vec<&[usize]> = alone.iter().map(|g| &g[..]).collect();
            bed.partition(&groups)
        },
        cure: |bed, _| bed.heal(),
    };
    lose(&mut bed, &mut table, &split, &[]);
    drop(table);
}

#[test]
#[ignore = "run by tests/run --suite quorum"]
fn three_members_with_default_timing() {
    all_losses(&Options::new(&installed()));
}

#[test]
#[ignore = "run by tests/run --suite quorum"]
fn three_members_with_the_timing_of_rke2() {
    all_losses(&Options { timing: Timing::RKE2, ipv6: true, ..Options::new(&newer()) });
}
