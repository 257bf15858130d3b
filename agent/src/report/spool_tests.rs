//! The spool over a disk that loses, tears and fails.

use std::sync::Mutex;

use outrider_protocol::{Condition, ReasonCode, Severity, Status};
use proptest::prelude::*;

use super::*;

fn now() -> Timestamp {
    Timestamp::from_seconds(1_800_000_000)
}

/// Transition number `id` of subject `subject`.
fn transition(id: u64, subject: u8, status: Status, previous: Option<Status>) -> Transition {
    let at = Timestamp::from_millis(id as i64);
    Transition {
        at,
        condition: Condition {
            condition_type: ConditionType::EtcdQuorum,
            status,
            severity: Severity::Warn,
            reason: ReasonCode::from("Test"),
            message: format!("number {id}"),
            advice: String::new(),
            subject: format!("s{subject}"),
            last_transition_time: at,
            observed_at: at,
        },
        previous_status: previous,
        previous_reason: None,
        removed: false,
        merged: 0,
    }
}

fn id_of(entry: &SequencedTransition) -> u64 {
    entry.transition.at.as_millis() as u64
}

/// A disk in memory that remembers what is durable.
#[derive(Clone, Default)]
struct FaultyDisk(Arc<Mutex<Platter>>);

#[derive(Default)]
struct Platter {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Calls that work before one fails; `None` for none that fails.
    fail_in: Option<u32>,
}

#[derive(Default)]
struct Inode {
    content: Vec<u8>,
    durable: usize,
    /// A sync failed: what was not durable then never will be, whatever later syncs say.
    dropped: bool,
}

impl Platter {
    fn fault(&mut self) -> io::Result<()> {
        match &mut self.fail_in {
            Some(0) => {
                self.fail_in = None;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl FaultyDisk {
    fn platter(&self) -> std::sync::MutexGuard<'_, Platter> {
        self.0.lock().unwrap()
    }

    /// What is left after the power went: names as of the last folder sync or as they were, unsynced bytes in part.
    fn crash(&self, keep_names: bool, keep_bytes: usize, garbage: u8) -> FaultyDisk {
        let platter = self.platter();
        let names = if keep_names { platter.names.clone() } else { platter.durable_names.clone() };
        let inodes = platter.inodes.iter().map(|inode| {
            let left = inode.durable + keep_bytes.min(inode.content.len() - inode.durable);
            let mut content = inode.content[..left].to_vec();
            // A file that had grown keeps its length in places, with whatever lay in the blocks.
            if left < inode.content.len() {
                content.resize(left + usize::from(garbage) % 64, garbage);
            }
            Inode { durable: content.len(), content, dropped: false }
        });
        let inodes = inodes.collect();
        FaultyDisk(Arc::new(Mutex::new(Platter {
            inodes,
            durable_names: names.clone(),
            names,
            fail_in: None,
        })))
    }
}

impl Disk for FaultyDisk {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let platter = self.platter();
        let inode = *platter.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(platter.inodes[inode].content.clone())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut platter = self.platter();
        platter.fault()?;
        platter.inodes.push(Inode::default());
        let inode = platter.inodes.len() - 1;
        platter.names.insert(name.to_owned(), inode);
        Ok(Box::new(FaultyFile(self.clone(), inode)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut platter = self.platter();
        platter.fault()?;
        let inode = *platter.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(FaultyFile(self.clone(), inode)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut platter = self.platter();
        platter.fault()?;
        let inode = platter.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        platter.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut platter = self.platter();
        platter.fault()?;
        platter.durable_names = platter.names.clone();
        Ok(())
    }
}

struct FaultyFile(FaultyDisk, usize);

impl DiskFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut platter = self.0.platter();
        let fault = platter.fault();
        let part = if fault.is_err() { &bytes[..bytes.len() / 2] } else { bytes };
        platter.inodes[self.1].content.extend_from_slice(part);
        fault
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut platter = self.0.platter();
        let fault = platter.fault();
        let inode = &mut platter.inodes[self.1];
        if fault.is_err() {
            inode.dropped = true;
        }
        if !inode.dropped {
            inode.durable = inode.content.len();
        }
        fault
    }
}

#[derive(Clone, Debug)]
enum Op {
    Append(u8),
    Sending,
    Acknowledge(u8),
    Retry,
    NewEpoch,
    FailIn(u32),
    Crash { keep_names: bool, keep_bytes: usize, garbage: u8 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (1u8..4).prop_map(Op::Append),
        2 => Just(Op::Sending),
        2 => any::<u8>().prop_map(Op::Acknowledge),
        1 => Just(Op::Retry),
        1 => Just(Op::NewEpoch),
        3 => (0u32..12).prop_map(Op::FailIn),
        2 => (any::<bool>(), prop_oneof![Just(0usize), Just(usize::MAX), 0usize..400], any::<u8>())
            .prop_map(|(keep_names, keep_bytes, garbage)| Op::Crash { keep_names, keep_bytes, garbage }),
    ];
    proptest::collection::vec(op, 1..60)
}

/// What must hold, whatever happened: every transition that was promised and not acknowledged is there, once, in order.
struct Promises {
    /// Ids that were promised to survive and are not acknowledged.
    owed: Vec<u64>,
    /// Ids that were acknowledged: they may come again, under their sequence.
    acknowledged: Vec<u64>,
    /// Status of the last transition that was promised, per subject.
    next_id: u64,
}

fn waiting(spool: &Spool) -> Vec<SequencedTransition> {
    spool.batch(usize::MAX, usize::MAX)
}

fn check(spool: &Spool, promises: &Promises) -> Result<(), TestCaseError> {
    let entries = waiting(spool);
    prop_assert!(entries.windows(2).all(|w| w[0].sequence < w[1].sequence), "sequences do not grow");
    let ids: Vec<u64> = entries.iter().map(id_of).collect();
    prop_assert!(ids.windows(2).all(|w| w[0] < w[1]), "out of order or twice: {ids:?}");
    for id in &promises.owed {
        prop_assert!(ids.contains(id), "transition {id} is lost; there are {ids:?}");
    }
    prop_assert!(entries.last().is_none_or(|last| last.sequence <= spool.last_sequence()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_promised_is_there_once_and_in_order_after_any_crash(ops in ops()) {
        let mut disk = FaultyDisk::default();
        let mut spool = Spool::open(Arc::new(disk.clone()), SpoolLimits::default(), now());
        let mut promises = Promises { owed: Vec::new(), acknowledged: Vec::new(), next_id: 1 };
        for op in ops {
            match op {
                Op::Append(count) => {
                    let transitions: Vec<_> = (0..u64::from(count))
                        .map(|i| transition(promises.next_id + i, (i % 3) as u8, Status::False, None))
                        .collect();
                    promises.next_id += u64::from(count);
                    let mut latches = spool.latches().to_vec();
                    transitions.iter().for_each(|t| apply(&mut latches, t));
                    let promised = spool.append(transitions, latches).is_ok();
                    if promised {
                        // A success covers what failed before it.
                        promises.owed = waiting(&spool).iter().map(id_of).collect();
                    }
                }
                Op::Sending => {
                    if let Some(last) = waiting(&spool).last() {
                        spool.sending(last.sequence);
                    }
                }
                Op::Acknowledge(share) => {
                    let entries = waiting(&spool);
                    if entries.is_empty() { continue }
                    let through = &entries[usize::from(share) % entries.len()];
                    spool.acknowledge(through.sequence);
                    let gone = id_of(through);
                    promises.owed.retain(|id| *id > gone);
                    promises.acknowledged.extend(entries.iter().map(id_of).filter(|id| *id <= gone));
                }
                Op::Retry => if spool.retry().is_ok() {
                    promises.owed = waiting(&spool).iter().map(id_of).collect();
                },
                Op::NewEpoch => if spool.new_epoch().is_ok() {
                    promises.owed = waiting(&spool).iter().map(id_of).collect();
                },
                Op::FailIn(calls) => disk.platter().fail_in = Some(calls),
                Op::Crash { keep_names, keep_bytes, garbage } => {
                    disk = disk.crash(keep_names, keep_bytes, garbage);
                    spool = Spool::open(Arc::new(disk.clone()), SpoolLimits::default(), now());
                    prop_assert_eq!(spool.problem(), "");
                    check(&spool, &promises)?;
                    // Whatever came back is on disk and so promised now; acknowledged ones that came back are sent again.
                    promises.owed = waiting(&spool).iter().map(id_of).collect();
                    let last = waiting(&spool).last().map(id_of).unwrap_or(0);
                    for latch in spool.latches() {
                        let shown = latch.condition.observed_at.as_millis() as u64;
                        prop_assert!(shown < promises.next_id);
                    }
                    prop_assert!(last < promises.next_id);
                }
            }
            check(&spool, &promises)?;
        }
    }

    /// However often it overflows: per subject, the chain of states has no gap and every transition is counted.
    #[test]
    fn a_full_spool_merges_and_counts(changes in proptest::collection::vec((0u8..5, any::<bool>()), 1..300), sent in 0u64..20) {
        let limits = SpoolLimits { count: 12, bytes: usize::MAX };
        let mut spool = Spool::open(Arc::new(MemoryDisk::default()), limits, now());
        let mut last: BTreeMap<u8, Status> = BTreeMap::new();
        for (i, (subject, good)) in changes.iter().enumerate() {
            let status = if *good { Status::True } else { Status::False };
            let previous = last.insert(*subject, status);
            let t = transition(i as u64 + 1, *subject, status, previous);
            spool.append(vec![t], Vec::new()).unwrap();
            if spool.last_sequence() == sent {
                spool.sending(sent);
            }
        }
        let entries = waiting(&spool);
        prop_assert!(entries.windows(2).all(|w| w[0].sequence < w[1].sequence));
        let counted: u64 = entries.iter().map(|e| 1 + u64::from(e.transition.merged)).sum();
        prop_assert_eq!(counted, changes.len() as u64);
        prop_assert!(entries.len() as u64 <= 12 + sent);
        for (subject, status) in last {
            let chain: Vec<_> =
                entries.iter().map(|e| &e.transition).filter(|t| t.condition.subject == format!("s{subject}")).collect();
            prop_assert_eq!(chain[0].previous_status, None);
            prop_assert!(chain.windows(2).all(|w| w[1].previous_status == Some(w[0].condition.status)));
            prop_assert_eq!(chain.last().unwrap().condition.status, status);
        }
    }
}

#[test]
fn subjects_that_come_and_go_unsent_do_not_fill_the_spool() {
    let limits = SpoolLimits { count: 20, bytes: usize::MAX };
    let mut spool = Spool::open(Arc::new(MemoryDisk::default()), limits, now());
    let named = |id: u64, previous, removed| {
        let mut t = transition(id, 0, Status::False, previous);
        (t.condition.subject, t.removed) = (format!("volume-{}", id / 2), removed);
        t
    };
    // One that the coordinator may know: that it went must be told.
    spool.append(vec![named(2, None, false)], Vec::new()).unwrap();
    spool.sending(1);
    spool.append(vec![named(3, Some(Status::False), true)], Vec::new()).unwrap();
    for volume in 2..500 {
        spool.append(vec![named(2 * volume, None, false)], Vec::new()).unwrap();
        spool.append(vec![named(2 * volume + 1, Some(Status::False), true)], Vec::new()).unwrap();
        assert!(spool.len() <= 20, "{} wait after {volume} volumes", spool.len());
    }
    let entries = waiting(&spool);
    let told: Vec<_> =
        entries.iter().map(|e| (e.transition.condition.subject.as_str(), e.transition.removed)).collect();
    assert_eq!(told[..2], [("volume-1", false), ("volume-1", true)]);
    assert_eq!(entries.last().unwrap().sequence, spool.last_sequence());
    assert!(spool.merged() > 400, "{}", spool.merged());
}

#[test]
fn a_damaged_head_is_set_aside_and_a_new_epoch_begun() {
    let disk = Arc::new(MemoryDisk::default());
    let mut spool = Spool::open(disk.clone(), SpoolLimits::default(), now());
    spool.append(vec![transition(1, 1, Status::False, None)], Vec::new()).unwrap();
    let epoch = spool.epoch();
    let mut bytes = disk.read("spool.log").unwrap();
    bytes[12] ^= 1;
    disk::replace(&*disk, "spool.log", &bytes).unwrap();
    let spool = Spool::open(disk.clone(), SpoolLimits::default(), now());
    assert!(spool.is_empty() && spool.epoch() != epoch);
    assert!(spool.problem().contains("set aside as spool.corrupt-1800000000000"), "{}", spool.problem());
    assert_eq!(disk.read("spool.corrupt-1800000000000").unwrap(), bytes);
    let again = Spool::open(disk, SpoolLimits::default(), now());
    assert_eq!((again.problem(), again.epoch()), (String::new(), spool.epoch()));
}

#[test]
fn a_damaged_middle_costs_what_is_damaged_and_says_so() {
    let disk = Arc::new(MemoryDisk::default());
    let mut spool = Spool::open(disk.clone(), SpoolLimits::default(), now());
    let mut ends = Vec::new();
    for id in 1..=3 {
        spool.append(vec![transition(id, 1, Status::False, None)], Vec::new()).unwrap();
        ends.push(disk.read("spool.log").unwrap().len());
    }
    let mut bytes = disk.read("spool.log").unwrap();
    bytes[usize::midpoint(ends[0], ends[1])] ^= 1;
    disk::replace(&*disk, "spool.log", &bytes).unwrap();
    let again = Spool::open(disk.clone(), SpoolLimits::default(), now());
    let ids: Vec<u64> = again.batch(9, usize::MAX).iter().map(id_of).collect();
    assert_eq!((ids, again.epoch(), again.last_sequence()), (vec![1, 3], spool.epoch(), 3));
    let lost = format!("{} bytes in the middle", ends[1] - ends[0]);
    assert!(again.problem().contains(&lost), "{}", again.problem());
    assert_eq!(disk.read("spool.corrupt-1800000000000").unwrap(), bytes);
    let third = Spool::open(disk, SpoolLimits::default(), now());
    assert_eq!((third.problem(), third.len()), (String::new(), 2));
}

#[test]
fn a_format_of_a_later_version_is_kept_for_it() {
    let disk = Arc::new(MemoryDisk::default());
    let mut bytes = Vec::new();
    let head = Record::Head { version: 9, epoch: Uuid::new_v4(), next: 5, merged: 0, latches: Vec::new() };
    encode(&head, &mut bytes).unwrap();
    disk::replace(&*disk, "spool.log", &bytes).unwrap();
    let spool = Spool::open(disk.clone(), SpoolLimits::default(), now());
    assert!(spool.problem().contains("format 9"), "{}", spool.problem());
    assert_eq!(disk.read("spool.corrupt-1800000000000").unwrap(), bytes);
}

#[test]
fn a_full_disk_loses_nothing_and_says_so() {
    let disk = FaultyDisk::default();
    let mut spool = Spool::open(Arc::new(disk.clone()), SpoolLimits::default(), now());
    disk.platter().fail_in = Some(0);
    let error = spool.append(vec![transition(1, 1, Status::False, None)], Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "the spool cannot be written; its transitions are kept in memory");
    assert!(spool.problem().contains("cannot be written"), "{}", spool.problem());
    assert_eq!(spool.len(), 1);
    spool.retry().unwrap();
    assert!(spool.problem().is_empty());
    let disk = disk.crash(false, 0, 0);
    let spool = Spool::open(Arc::new(disk), SpoolLimits::default(), now());
    assert_eq!(waiting(&spool).iter().map(id_of).collect::<Vec<_>>(), [1]);
}

#[test]
fn latches_survive_with_their_last_transition_and_without_the_ones_that_are_gone() {
    let disk = Arc::new(MemoryDisk::default());
    let mut spool = Spool::open(disk.clone(), SpoolLimits::default(), now());
    let (one, two) = (transition(1, 1, Status::True, None), transition(2, 2, Status::True, None));
    let (worse, gone) = (
        transition(3, 1, Status::False, Some(Status::True)),
        Transition { removed: true, ..transition(4, 2, Status::True, Some(Status::True)) },
    );
    for t in [one, two, worse.clone(), gone] {
        let mut latches = spool.latches().to_vec();
        apply(&mut latches, &t);
        spool.append(vec![t], latches).unwrap();
        let last = spool.last_sequence();
        spool.acknowledge(last);
    }
    let spool = Spool::open(disk, SpoolLimits::default(), now());
    assert!(spool.is_empty());
    assert_eq!(spool.latches(), [Latch { condition: worse.condition, pending: None }]);
}

#[test]
fn an_acknowledged_spool_does_not_grow_for_ever() {
    let disk = Arc::new(MemoryDisk::default());
    let mut spool = Spool::open(disk.clone(), SpoolLimits::default(), now());
    for id in 1..2_000 {
        spool.append(vec![transition(id, 1, Status::False, None)], Vec::new()).unwrap();
        let last = spool.last_sequence();
        spool.acknowledge(last);
    }
    assert!(disk.read("spool.log").unwrap().len() < 2 * COMPACT_ABOVE);
    assert_eq!(spool.last_sequence(), 1_999);
}
