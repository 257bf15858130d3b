//! What a store promises, and whether it kept it: appends numbered transitions, says each number once it is durable, and
//! later reads back what is there.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use outrider_agent::report::disk::StdDisk;
use outrider_agent::report::{Spool, SpoolLimits};
use outrider_coordinator::store::sqlite::SqliteStore;
use outrider_coordinator::store::{EventFilter, Expect, History, Origin, Store};
use outrider_protocol::{
    Condition, ConditionType, ReasonCode, SequencedTransition, Severity, Status, Timestamp, Transition,
};
use uuid::Uuid;

/// Epoch of everything a witness appends to a store.
pub const EPOCH: Uuid = Uuid::from_u128(0x0bad_d15c_0000_4000_8000_0000_0000_0001);
const KEY: &str = "witness/last";

fn origin() -> Origin {
    Origin { uid: "witness".to_owned(), name: "witness".to_owned() }
}

/// Transition number `n`: it says so.
pub fn transition(n: u64) -> Transition {
    let condition = Condition {
        condition_type: ConditionType::HostHealthy,
        status: if n.is_multiple_of(2) { Status::True } else { Status::False },
        severity: Severity::Warn,
        reason: ReasonCode::DiskSpaceLow,
        // Long enough that some records cross a sector.
        message: format!("{n} {}", "x".repeat((n as usize * 37) % 700)),
        advice: String::new(),
        subject: format!("/disk-{}", n % 5),
        last_transition_time: Timestamp::from_seconds(1_790_000_000),
        observed_at: Timestamp::from_seconds(1_790_000_000),
    };
    Transition {
        at: Timestamp::from_seconds(1_790_000_000),
        condition,
        previous_status: None,
        previous_reason: None,
        removed: false,
        merged: 0,
    }
}

/// The number a transition says.
pub fn number(transition: &Transition) -> anyhow::Result<u64> {
    let text = transition.condition.message.split(' ').next().unwrap_or_default();
    text.parse().with_context(|| format!("{text:?} is no number"))
}

/// One part of the agent or the coordinator that promises durability.
pub trait Witness {
    /// Appends number `n` after `n - 1`; `Ok` is the promise that it survives.
    fn append(&mut self, n: u64) -> anyhow::Result<()>;
    /// All numbers that are there, in order.
    fn numbers(&mut self) -> anyhow::Result<Vec<u64>>;
    /// What the part says was wrong with its files when it was opened; empty when nothing was.
    fn complaint(&self) -> String;
}

/// Opens a witness by its name: `spool` or `store`.
pub fn open(kind: &str, folder: &Path) -> anyhow::Result<Box<dyn Witness>> {
    match kind {
        "spool" => Ok(Box::new(SpoolWitness::open(folder)?)),
        "store" => Ok(Box::new(StoreWitness::open(folder)?)),
        other => bail!("no witness is called {other:?}; there are spool and store"),
    }
}

struct SpoolWitness(Spool);

impl SpoolWitness {
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let disk = StdDisk::open(folder)?;
        Ok(Self(Spool::open(Arc::new(disk), SpoolLimits::default(), Timestamp::from_seconds(1_790_000_000))))
    }
}

impl Witness for SpoolWitness {
    fn append(&mut self, n: u64) -> anyhow::Result<()> {
        // Now and then the coordinator takes some, as it would: its acknowledgements are noted in the same file.
        if n.is_multiple_of(7) {
            self.0.sending(n - 1);
        }
        Ok(self.0.append(vec![transition(n)], Vec::new())?)
    }

    fn numbers(&mut self) -> anyhow::Result<Vec<u64>> {
        self.0.batch(usize::MAX, usize::MAX).iter().map(|entry| number(&entry.transition)).collect()
    }

    fn complaint(&self) -> String {
        self.0.problem()
    }
}

struct StoreWitness {
    runtime: tokio::runtime::Runtime,
    store: SqliteStore,
    complaint: String,
}

impl StoreWitness {
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let opened = SqliteStore::open(folder)?;
        let complaint = opened.set_aside.as_ref().map(|aside| format!("{aside:?}")).unwrap_or_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, store: opened.store, complaint })
    }
}

impl Witness for StoreWitness {
    fn append(&mut self, n: u64) -> anyhow::Result<()> {
        let entry = SequencedTransition { sequence: n, transition: transition(n) };
        let appended = self.runtime.block_on(self.store.append(
            &origin(),
            EPOCH,
            &[entry],
            Timestamp::from_seconds(1),
        ))?;
        ensure!(appended.acknowledged == n, "acknowledged {} of {n}", appended.acknowledged);
        // Documents are durable in the order of their writes, as history is.
        self.runtime.block_on(self.store.put(KEY, Bytes::from(n.to_string()), Expect::Any))?;
        Ok(())
    }

    fn numbers(&mut self) -> anyhow::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        let mut after = 0;
        loop {
            let events = self.runtime.block_on(self.store.events(&EventFilter::default(), after, 500))?;
            let Some(last) = events.last() else { break };
            after = last.id;
            for event in &events {
                numbers.push(number(&event.transition)?);
            }
        }
        let acknowledged = self.runtime.block_on(self.store.acknowledged("witness", EPOCH))?;
        let highest = numbers.last().copied().unwrap_or(0);
        ensure!(acknowledged == highest, "acknowledged {acknowledged}, stored up to {highest}");
        let document = self.runtime.block_on(self.store.get(KEY))?;
        let kept: u64 = document.map_or(Ok(0), |entry| String::from_utf8_lossy(&entry.value).parse())?;
        ensure!(kept <= highest, "the document says {kept}, the history {highest}");
        Ok(numbers)
    }

    fn complaint(&self) -> String {
        self.complaint.clone()
    }
}

impl Drop for StoreWitness {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.close());
    }
}
