//! Processor time as criterion's measure, for the benchmarks of every crate.

use criterion::measurement::{Measurement, ValueFormatter, WallTime};

static WALL: WallTime = WallTime;

/// Nanoseconds that this thread has run, by the kernel's count.
pub(crate) struct ProcessorTime;

fn ran_for() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
}

impl Measurement for ProcessorTime {
    type Intermediate = u64;
    type Value = u64;

    fn start(&self) -> u64 {
        ran_for()
    }

    fn end(&self, start: u64) -> u64 {
        ran_for().saturating_sub(start)
    }

    fn add(&self, a: &u64, b: &u64) -> u64 {
        a + b
    }

    fn zero(&self) -> u64 {
        0
    }

    fn to_f64(&self, value: &u64) -> f64 {
        *value as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        // It formats nanoseconds, whoever counted them.
        WALL.formatter()
    }
}
