//! Faults that stand: a full database, learners, ghosts, clusters that fell apart, wrong addresses and certificates, slow
//! disks. What is waited for here are mostly the minutes for which a rule lets a change settle, so the clusters are broken
//! side by side.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use outrider_tests::beds::servers::Pki;
use outrider_tests::table::Table;

use super::*;

pub(super) type Shared = Mutex<Table>;
type Step<'a> = &'a mut dyn FnMut(&mut Servers) -> anyhow::Result<()>;

/// A fault, how it is made, and the reason code it has to be shown under.
struct Fault {
    fault: &'static str,
    made: &'static str,
    reason: &'static str,
}

impl Fault {
    /// Makes it, waits until it is shown, makes the cure, waits until it is not.
    fn show(&self, bed: &mut Servers, table: &Shared, make: Step<'_>, cure: Step<'_>) {
        let raised = self.raise(bed, make);
        self.clear(bed, table, raised, cure);
    }

    fn raise(&self, bed: &mut Servers, make: Step<'_>) -> Raised {
        let (fault, reason) = (self.fault, self.reason);
        let start = Instant::now();
        make(bed).unwrap_or_else(|e| panic!("{fault}: {e:?}"));
        let (took, shown) = seen(bed, fault, start, |s| s.find(reason).is_some());
        let (whose, condition) = shown.find(reason).expect("just seen");
        println!(
            "{fault}: {whose}: {}, after {took:?}: {} | {}",
            said(condition),
            condition.message,
            condition.advice
        );
        assert!(!condition.advice.is_empty(), "{fault}: {condition:?} says what to do");
        described(bed, fault);
        (took, format!("{whose}: {}", said(condition)))
    }

    fn clear(&self, bed: &mut Servers, table: &Shared, (raised, shown): Raised, cure: Step<'_>) {
        let fault = self.fault;
        let cured = Instant::now();
        cure(bed).unwrap_or_else(|e| panic!("{fault}, cured: {e:?}"));
        let (cleared, _) = seen(bed, &format!("{fault}: cleared"), cured, |s| s.find(self.reason).is_none());
        println!("{fault}: cleared after {cleared:?}");
        table.lock().unwrap().timed(fault, self.made, shown, raised, Some(cleared));
    }

    /// Writes down one that is not cured by itself.
    fn keep(&self, table: &Shared, (raised, shown): Raised) {
        table.lock().unwrap().timed(self.fault, self.made, shown, raised, None);
    }
}

/// How long it took, and what was shown.
type Raised = (Duration, String);

#[test]
#[ignore = "run by tests/run --suite quorum"]
fn faults_that_stand() {
    let etcd = newer();
    let title = format!("etcd {}, standing faults: seen at the coordinator", etcd.version);
    let table: Shared = Mutex::new(Table::new(&title));
    let options = Options { agent: AGENT.to_owned(), ..Options::new(&etcd) };
    thread::scope(|scope| {
        let network = [network::a_majority_goes_on, network::client_port_closed, network::peer_port_closed];
        for work in [learners, members, strangers, space, one_member].into_iter().chain(network) {
            let (options, table) = (&options, &table);
            scope.spawn(move || work(options, table));
        }
    });
}

/// A learner on its way, one that is stuck, and one that has to wait for it.
fn learners(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let fault = Fault {
        fault: "learner joining",
        made: "member add --learner, and started",
        reason: "EtcdLearnerJoining",
    };
    let joined = fault.raise(&mut bed, &mut |bed| bed.join_learner().map(drop));
    fault.keep(table, joined);

    let fault = Fault {
        fault: "learner stalled, blocks the next",
        made: "kill -9 of it, etcd refuses a second; cured by start and promotion",
        reason: "EtcdLearnerBlocking",
    };
    let stalled = fault.raise(&mut bed, &mut |bed| {
        bed.server(3).kill_etcd();
        Ok(())
    });
    let second = ["member", "add", "server-5", "--learner", "--peer-urls", "https://10.77.0.5:2380"];
    let refused = format!("{:?}", bed.etcdctl(0, &second).expect_err("etcd takes one learner at a time"));
    assert!(refused.contains("too many learner members"), "{refused}");
    fault.clear(&mut bed, table, stalled, &mut |bed| {
        bed.start_etcd(3)?;
        let id = bed.member_id(3)?;
        let promoted = || bed.etcdctl(0, &["member", "promote", &id]).ok();
        outrider_tests::programs::until("promotion", LIMIT, promoted)?;
        Ok(())
    });
    let fault = Fault { fault: "four voters", made: "the learner was promoted", reason: "EtcdEvenVoters" };
    let even = fault.raise(&mut bed, &mut |_| Ok(()));
    fault.keep(table, even);
}

/// Members that are not what the list, the node or Kubernetes says.
fn members(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let fault = Fault {
        fault: "ghost member",
        made: "keys /registry/minions/ of all nodes but one; agents started anew",
        reason: "EtcdGhostMember",
    };
    let make: Step<'_> = &mut |bed| {
        bed.put_nodes(&["server-1", "server-2"])?;
        // Else they would read the names anew after some minutes.
        (0..bed.len()).try_for_each(|i| {
            bed.server(i).kill_agent();
            bed.server(i).start_agent()
        })
    };
    fault.show(&mut bed, table, make, &mut |bed| bed.put_nodes(&["server-3"]));

    let fault = Fault {
        fault: "peer URL recorded wrongly",
        made: "etcdctl member update to another port",
        reason: "EtcdPeerUrlMismatch",
    };
    let update = |port: u16| {
        move |bed: &mut Servers| {
            let (id, url) = (bed.member_id(2)?, bed.server(2).peer_url(port));
            bed.etcdctl(0, &["member", "update", &id, "--peer-urls", &url]).map(drop)
        }
    };
    fault.show(&mut bed, table, &mut update(2390), &mut update(2380));
}

/// Members of another cluster, and a client of another.
fn strangers(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let fault = Fault {
        fault: "cluster-id clash",
        made: "etcdctl snapshot restore on one node, alone",
        reason: "EtcdClusterIdMismatch",
    };
    fault.show(&mut bed, table, &mut |bed| bed.restore_alone(2), &mut |bed| bed.return_from_restore(2));

    let fault = Fault {
        fault: "split brain under one id",
        made: "port 2380 dropped around one of three, that one started with --force-new-cluster",
        reason: "EtcdSplitBrain",
    };
    // Where they reach each other the one begun anew has the others removed, and there is one half only.
    let make: Step<'_> = &mut |bed| {
        bed.close_port(2380, &[&[0, 1], &[2]])?;
        bed.begin_anew(2)
    };
    fault.show(&mut bed, table, make, &mut |bed| {
        bed.return_from_restore(2)?;
        bed.heal()
    });

    let fault = Fault {
        fault: "another cluster's client certificate",
        made: "client.crt and client.key of another CA on one node",
        reason: "Unauthenticated",
    };
    let other = Pki::new().expect("other CAs");
    fault.show(&mut bed, table, &mut |bed| other.write_client(&bed.server(2).tls()), &mut |bed| {
        let tls = bed.server(2).tls();
        bed.pki().write_client(&tls)
    });
}

/// A database that is full, then emptied, with its alarm left on.
fn space(options: &Options, table: &Shared) {
    let options = Options { quota_bytes: 4 << 20, ..options.clone() };
    let mut bed = start(&options);
    let value = "x".repeat(100_000);
    let fault = Fault {
        fault: "database full",
        made: "100 kB values until the quota of 4 MiB refuses them",
        reason: "EtcdNoSpace",
    };
    let full = fault.raise(&mut bed, &mut |bed| {
        let refused = (0..100).any(|i| bed.etcdctl(0, &["put", &format!("k{i}"), &value]).is_err());
        anyhow::ensure!(refused, "etcd takes everything");
        Ok(())
    });
    fault.keep(table, full);

    let fault = Fault {
        fault: "alarm left over",
        made: "keys deleted, compacted, defragmented; cured by alarm disarm",
        reason: "EtcdAlarmLeftOver",
    };
    let left = fault.raise(&mut bed, &mut |bed| {
        bed.etcdctl(0, &["del", "--prefix", "k"])?;
        let got: serde_json::Value = serde_json::from_str(&bed.etcdctl(0, &["get", "k", "-w", "json"])?)?;
        bed.etcdctl(0, &["compact", &got["header"]["revision"].to_string()])?;
        (0..bed.len()).try_for_each(|i| bed.etcdctl(i, &["defrag"]).map(drop))
    });
    fault.clear(&mut bed, table, left, &mut |bed| bed.etcdctl(0, &["alarm", "disarm"]).map(drop));
}

/// One member of three: lost, frozen, with a slow disk. Quorum holds all the time.
fn one_member(options: &Options, table: &Shared) {
    let mut bed = start(options);
    let before = Before::now(&mut bed);
    let fault =
        Fault { fault: "one member killed", made: "kill -9 of one of three", reason: "EtcdNoTolerance" };
    let kill: Step<'_> = &mut |bed| {
        bed.server(2).kill_etcd();
        Ok(())
    };
    fault.show(&mut bed, table, kill, &mut |bed| bed.start_etcd(2));

    let fault =
        Fault { fault: "one member frozen", made: "SIGSTOP to one of three", reason: "EtcdMemberDown" };
    let freeze = |frozen| move |bed: &mut Servers| bed.server(2).freeze_etcd(frozen);
    fault.show(&mut bed, table, &mut freeze(true), &mut freeze(false));

    // Not by the reason code: the disk of this machine may be slow for everybody.
    let slow = Instant::now();
    let strained = [
        bed.write_all_the_time(0).expect("a writer"),
        bed.slow_disk(2, Duration::from_millis(150)).expect("strace"),
    ];
    let (raised, shown) = seen(&mut bed, "slow disk", slow, |s| {
        s.of_node("server-3", "EtcdDisk").is_some_and(|c| c.status == Status::False)
    });
    let condition = shown.of_node("server-3", "EtcdDisk").expect("just seen");
    println!(
        "slow disk: {}, after {raised:?}: {} | {}",
        said(condition),
        condition.message,
        condition.advice
    );
    assert_eq!(condition.reason.as_str(), "EtcdDiskSlow");
    drop(strained);
    // It clears after two minutes without, which are not waited for here.
    table.lock().unwrap().timed(
        "slow disk",
        "strace holds every fsync of one member for 150 ms, under writes",
        format!("server-3: {}", said(condition)),
        raised,
        None,
    );
    never_lost(&mut bed, "one member of three", before);
}
