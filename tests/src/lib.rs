//! What crosses crates: beds of real peers, programs as processes, disks that lose power, simulated agents.
//!
//! `tests/run` drives the suites in `tests/tests/`; each prints a table of the faults it made and what was seen.

pub mod agent;
pub mod beds;
pub mod chain;
pub mod checked;
pub mod coordinator;
pub mod fault_disk;
pub mod parsers;
pub mod power_cut;
pub mod programs;
pub mod simulated;
pub mod table;
pub mod witness;
