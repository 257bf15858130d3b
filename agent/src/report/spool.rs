//! The spool: transitions on their way to the coordinator, and the latches they changed.
//!
//! A log in one segment file. Its head is a checkpoint (epoch, next sequence, latches); transitions follow. A transition
//! is synced before it is sent and leaves when the coordinator has stored it. Because a transition carries the condition
//! it led to, the latches after a crash are those of the head with the transitions applied: a restart neither raises
//! anew what was told nor forgets what was not.
//!
//! - **Full**: transitions that were never sent are merged by type and subject; the newest state stays, with the oldest
//!   status before and the number merged. What may have been sent keeps its content, for the coordinator tells two
//!   contents under one sequence apart. A subject that came and went unsent leaves nothing: mounts and volumes with ever
//!   new names must not fill it. The bound yields only to a greater number of distinct subjects that are still there.
//! - **A torn tail** (a crash in an append) is cut at the last whole record, and so is what lies behind a write that never
//!   reached the disk: none of it was promised. **A damaged head** is set aside as
//!   `spool.corrupt-<ms>` and a new epoch begun. **A damaged middle** costs what is damaged: the records behind it are
//!   read, and the file as it was is set aside likewise.
//! - **A failing disk**: transitions stay in memory, in order, and are written anew as a whole segment at the next try;
//!   a file whose write or sync failed is not trusted again. Nothing is lost while the process lives.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use outrider_protocol::{ConditionType, Latch, SequencedTransition, Timestamp, Transition};
use uuid::Uuid;

use super::disk::{self, Disk, DiskFile, MemoryDisk};
use super::frame::{Record, VERSION, decode, encode, never_written, resume};

const FILE: &str = "spool.log";
/// A segment of which nothing is needed any more is written anew above this size.
const COMPACT_ABOVE: usize = 64 << 10;

/// Bounds of the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Transitions it holds.
    pub count: usize,
    /// Bytes they may have together.
    pub bytes: usize,
}

impl Default for SpoolLimits {
    fn default() -> Self {
        Self { count: 1_000, bytes: 512 << 10 }
    }
}

/// See the [module](self).
pub struct Spool {
    disk: Arc<dyn Disk>,
    limits: SpoolLimits,
    epoch: Uuid,
    next: u64,
    /// Highest sequence that may have reached the coordinator.
    sent: u64,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    merged: u64,
    refused: u64,
    latches: Vec<Latch>,
    /// The open segment; `None` when it must be written anew.
    segment: Option<Segment>,
    /// What went wrong and has not gone right since; empty when the spool works.
    problem: String,
    /// What was found wrong when it was opened; stays for people to see.
    found: String,
}

struct Waiting {
    entry: SequencedTransition,
    bytes: usize,
}

struct Segment {
    file: Box<dyn DiskFile>,
    bytes: usize,
}

/// A transition is not on disk; it is in memory and will be written.
#[derive(Debug, thiserror::Error)]
#[error("the spool cannot be written; its transitions are kept in memory")]
pub struct SpoolError(#[source] pub io::Error);

impl Spool {
    /// Opens the spool in `disk`, or makes a new one. Never fails: what is wrong shows in [`Spool::problem`].
    pub fn open(disk: Arc<dyn Disk>, limits: SpoolLimits, now: Timestamp) -> Self {
        let mut spool = Self {
            disk,
            limits,
            epoch: Uuid::new_v4(),
            next: 1,
            sent: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            merged: 0,
            refused: 0,
            latches: Vec::new(),
            segment: None,
            problem: String::new(),
            found: String::new(),
        };
        match spool.disk.read(FILE) {
            Ok(bytes) => spool.load(&bytes, now),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                spool.found = format!("the spool cannot be read: {error}");
                spool.set_aside(now);
            }
        }
        // A damaged tail must be gone before anything is appended behind it.
        if spool.segment.is_none() {
            let _ = spool.rewrite();
        }
        spool
    }

    /// A spool that lives as long as this value.
    pub fn in_memory() -> Self {
        Self::open(Arc::new(MemoryDisk::default()), SpoolLimits::default(), Timestamp::default())
    }

    fn load(&mut self, bytes: &[u8], now: Timestamp) {
        let (records, mut good) = decode(bytes);
        let mut records = records.into_iter();
        match records.next() {
            Some(Record::Head { version: VERSION, epoch, next, merged, latches }) => {
                (self.epoch, self.next, self.merged, self.latches) = (epoch, next, merged, latches);
            }
            Some(Record::Head { version, .. }) => {
                self.found = format!("the spool has format {version}; this version reads {VERSION}");
                return self.set_aside(now);
            }
            _ => {
                self.found = "the head of the spool is damaged".to_owned();
                return self.set_aside(now);
            }
        }
        records.for_each(|record| self.replay(record));
        let mut damaged = 0;
        while let Some(next) = resume(bytes, good).filter(|next| !never_written(&bytes[good..*next])) {
            damaged += next - good;
            let (records, length) = decode(&bytes[next..]);
            records.into_iter().for_each(|record| self.replay(record));
            good = next + length;
        }
        let cut = bytes.len() - good;
        if damaged > 0 {
            self.found = format!("{damaged} bytes in the middle of the spool are damaged, the rest was read");
            self.set_aside(now);
        } else if cut > 0 {
            // What was being appended when the machine or the process died: it was never promised to survive.
            log::warn!("{cut} bytes of a torn record were cut from the end of the spool");
        } else if let Ok(file) = self.disk.open(FILE) {
            self.segment = Some(Segment { file, bytes: good });
        }
    }

    fn replay(&mut self, record: Record) {
        match record {
            Record::Head { .. } => {}
            Record::Transition(entry) => {
                apply(&mut self.latches, &entry.transition);
                self.next = self.next.max(entry.sequence.saturating_add(1));
                self.push(*entry);
            }
            Record::Sent(through) => self.sent = self.sent.max(through),
            Record::Acknowledged(through) => self.forget(through),
        }
    }

    fn set_aside(&mut self, now: Timestamp) {
        match disk::set_aside(&*self.disk, FILE, now.as_millis()) {
            Ok(name) => self.found.push_str(&format!("; it was set aside as {name}")),
            Err(error) => self.found.push_str(&format!("; it could not be set aside: {error}")),
        }
    }

    /// Latches as the transitions that were appended left them.
    pub fn latches(&self) -> &[Latch] {
        &self.latches
    }

    /// Epoch of the sequences.
    pub fn epoch(&self) -> Uuid {
        self.epoch
    }

    /// Highest sequence given in this epoch; 0 before the first.
    pub fn last_sequence(&self) -> u64 {
        self.next - 1
    }

    /// Transitions that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Transitions merged away since the last acknowledgement.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// What is wrong; empty when the spool works and was found whole.
    pub fn problem(&self) -> String {
        [self.problem.as_str(), self.found.as_str()]
            .iter()
            .filter(|p| !p.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Whether everything that waits is on disk.
    pub fn is_durable(&self) -> bool {
        self.problem.is_empty()
    }

    /// Puts transitions in, with the latches after them. `Ok` means that they survive a crash; after an error they are
    /// in memory, in order, and [`Spool::retry`] or the next append writes them.
    pub fn append(&mut self, transitions: Vec<Transition>, latches: Vec<Latch>) -> Result<(), SpoolError> {
        self.latches = latches;
        let mut frames = Vec::new();
        for transition in transitions {
            let entry = SequencedTransition { sequence: self.next, transition };
            self.next += 1;
            let written = encode(&Record::Transition(Box::new(entry.clone())), &mut frames);
            written.map_err(|e| SpoolError(e.into()))?;
            self.push(entry);
        }
        if self.waiting.len() > self.limits.count || self.waiting_bytes > self.limits.bytes {
            self.merge();
            return self.rewrite();
        }
        match self.write(&frames, true) {
            Some(result) => result,
            None => self.rewrite(),
        }
    }

    /// Tries again to write what a failing disk left in memory.
    pub fn retry(&mut self) -> Result<(), SpoolError> {
        if self.segment.is_some() { Ok(()) } else { self.rewrite() }
    }

    /// The oldest transitions that wait, within bounds but at least one.
    pub fn batch(&self, count: usize, bytes: usize) -> Vec<SequencedTransition> {
        let mut total = 0;
        let fits = |waiting: &&Waiting| {
            let first = total == 0;
            total += waiting.bytes;
            first || total <= bytes
        };
        self.waiting.iter().take(count).take_while(fits).map(|waiting| waiting.entry.clone()).collect()
    }

    /// Remembers that everything up to `through` may reach the coordinator from now on.
    pub fn sending(&mut self, through: u64) {
        if through > self.sent {
            self.sent = through;
            self.note(&Record::Sent(through));
        }
    }

    /// The coordinator has stored everything up to `through`. Gives how many transitions that were.
    pub fn acknowledge(&mut self, through: u64) -> usize {
        let before = self.waiting.len();
        self.forget(through);
        let gone = before - self.waiting.len();
        if gone > 0 {
            self.merged = 0;
            self.found.clear();
            self.note(&Record::Acknowledged(through));
            let large = self.segment.as_ref().is_some_and(|segment| segment.bytes > COMPACT_ABOVE);
            if large && self.waiting_bytes < COMPACT_ABOVE / 2 {
                let _ = self.rewrite();
            }
        }
        gone
    }

    /// Begins a new epoch with what waits: after the coordinator has seen another content under one of our sequences.
    pub fn new_epoch(&mut self) -> Result<(), SpoolError> {
        self.epoch = Uuid::new_v4();
        self.next = 1;
        self.sent = 0;
        for waiting in &mut self.waiting {
            waiting.entry.sequence = self.next;
            self.next += 1;
        }
        self.rewrite()
    }

    /// Takes the oldest transition out, if it is the one with this sequence: the coordinator will never take it.
    pub(super) fn give_up(&mut self, sequence: u64) -> Option<SequencedTransition> {
        let oldest = self.waiting.front().filter(|waiting| waiting.entry.sequence == sequence)?.entry.clone();
        self.forget(sequence);
        self.note(&Record::Acknowledged(sequence));
        self.refused += 1;
        Some(oldest)
    }

    /// Transitions given up since the process started.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Where the spool lies.
    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    fn push(&mut self, entry: SequencedTransition) {
        let bytes = serde_json::to_vec(&entry).map_or(0, |json| json.len());
        self.waiting_bytes += bytes;
        self.waiting.push_back(Waiting { entry, bytes });
    }

    fn forget(&mut self, through: u64) {
        while let Some(first) = self.waiting.front().filter(|waiting| waiting.entry.sequence <= through) {
            self.waiting_bytes -= first.bytes;
            self.waiting.pop_front();
        }
    }

    /// Merges what was never sent by type and subject.
    fn merge(&mut self) {
        let mut kept = VecDeque::new();
        let mut newest: BTreeMap<(ConditionType, String), SequencedTransition> = BTreeMap::new();
        for Waiting { entry, bytes } in std::mem::take(&mut self.waiting) {
            if entry.sequence <= self.sent {
                kept.push_back(Waiting { entry, bytes });
                continue;
            }
            let condition = &entry.transition.condition;
            let key = (condition.condition_type.clone(), condition.subject.clone());
            let mut entry = entry;
            if let Some(older) = newest.remove(&key) {
                let (old, new) = (older.transition, &mut entry.transition);
                new.previous_status = old.previous_status;
                new.previous_reason = old.previous_reason;
                new.merged = new.merged.saturating_add(old.merged).saturating_add(1);
                self.merged += 1;
            }
            newest.insert(key, entry);
        }
        // The last sequence stays, whatever it is about: a heartbeat names it, and the coordinator compares.
        let last = self.last_sequence();
        let came_and_went = |entry: &SequencedTransition| {
            entry.transition.removed && entry.transition.previous_status.is_none() && entry.sequence != last
        };
        let before = newest.len();
        let mut newest: Vec<_> = newest.into_values().filter(|entry| !came_and_went(entry)).collect();
        self.merged += (before - newest.len()) as u64;
        newest.sort_by_key(|entry| entry.sequence);
        self.waiting_bytes = kept.iter().map(|waiting| waiting.bytes).sum();
        self.waiting = kept;
        newest.into_iter().for_each(|entry| self.push(entry));
    }

    /// Writes to the open segment; `None` when there is none. Any failure closes it for good.
    fn write(&mut self, frames: &[u8], sync: bool) -> Option<Result<(), SpoolError>> {
        let segment = self.segment.as_mut()?;
        let result =
            segment.file.append(frames).and_then(|()| if sync { segment.file.sync() } else { Ok(()) });
        segment.bytes += frames.len();
        Some(result.map_err(|error| self.failed(error)))
    }

    /// Writes a record that may be lost: losing it costs a repetition, not a transition.
    fn note(&mut self, record: &Record) {
        let mut frame = Vec::new();
        if encode(record, &mut frame).is_ok() {
            let _ = self.write(&frame, false);
        }
    }

    /// Writes everything that is needed into a new segment.
    fn rewrite(&mut self) -> Result<(), SpoolError> {
        self.segment = None;
        let bytes = self.whole().map_err(|error| self.failed(error))?;
        let opened = disk::replace(&*self.disk, FILE, &bytes).and_then(|()| self.disk.open(FILE));
        let file = opened.map_err(|error| self.failed(error))?;
        self.segment = Some(Segment { file, bytes: bytes.len() });
        self.problem.clear();
        Ok(())
    }

    fn whole(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let head = Record::Head {
            version: VERSION,
            epoch: self.epoch,
            next: self.next,
            merged: self.merged,
            latches: self.latches.clone(),
        };
        encode(&head, &mut bytes)?;
        if self.sent > 0 {
            encode(&Record::Sent(self.sent), &mut bytes)?;
        }
        for waiting in &self.waiting {
            encode(&Record::Transition(Box::new(waiting.entry.clone())), &mut bytes)?;
        }
        Ok(bytes)
    }

    fn failed(&mut self, error: io::Error) -> SpoolError {
        self.segment = None;
        self.problem = format!("the spool cannot be written: {error}");
        SpoolError(error)
    }
}

/// What a transition does to the latches.
fn apply(latches: &mut Vec<Latch>, transition: &Transition) {
    let condition = &transition.condition;
    latches.retain(|latch| latch.condition.key() != condition.key());
    if !transition.removed {
        let at = latches.partition_point(|latch| latch.condition.key() < condition.key());
        latches.insert(at, Latch { condition: condition.clone(), pending: None });
    }
}

#[cfg(test)]
#[path = "spool_tests.rs"]
mod tests;
