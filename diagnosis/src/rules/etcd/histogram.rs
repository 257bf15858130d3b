//! What happened between two scrapes of a cumulative histogram.

use std::fmt;
use std::time::Duration;

use outrider_protocol::Histogram;

/// What lies between two scrapes shows how it is now only while they are no further apart, and the later no older.
pub(super) const LAST_MINUTES: Duration = Duration::from_secs(1800);

/// No histogram of a latency has a finite bound of eleven days: such a number stands for infinity, which JSON lacks.
const INFINITE_SECONDS: f64 = 1e6;

/// Observations between two scrapes, by finite upper bound in seconds, cumulative: bounds and counts only rise, and no
/// count is above the total.
#[derive(Debug)]
pub(super) struct Difference {
    buckets: Vec<(f64, u64)>,
    pub(super) total: u64,
}

/// Why two scrapes cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Incomparable {
    /// A counter went back: the process is another one.
    Restarted,
    /// The numbers contradict each other, in words.
    Contradictory(String),
}

/// A quantile; beyond the last finite bucket it is known only to be more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantile {
    pub(super) seconds: f64,
    pub(super) or_more: bool,
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.or_more { "more than " } else { "" };
        write!(f, "{more}{}", Latency(self.seconds))
    }
}

/// A latency in seconds, as people read it: milliseconds, as the limits are.
pub(super) struct Latency(pub(super) f64);

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0 * 1000.0;
        if ms < 100.0 { write!(f, "{ms:.1} ms") } else { write!(f, "{ms:.0} ms") }
    }
}

impl Difference {
    /// What `latest` has more than `earlier`.
    pub(super) fn new(earlier: &Histogram, latest: &Histogram) -> Result<Self, Incomparable> {
        let (before, after) = (Scrape::of(earlier)?, Scrape::of(latest)?);
        // The sum goes back as well, but for what rounding takes from it.
        if latest.sum < earlier.sum * 0.999 {
            return Err(Incomparable::Restarted);
        }
        let total = after.total.checked_sub(before.total).ok_or(Incomparable::Restarted)?;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(after.buckets.len());
        for (bound, count) in after.buckets {
            // A bound that the earlier scrape lacks cannot be compared.
            if let Some((_, then)) = before.buckets.iter().find(|(b, _)| *b == bound) {
                let more = count.checked_sub(*then).ok_or(Incomparable::Restarted)?;
                buckets.push((bound, more));
            }
        }
        // Each scrape by itself was sound, so only a process that is another one makes the difference fall.
        let sound = buckets.is_sorted_by_key(|(_, n)| *n) && buckets.last().is_none_or(|(_, n)| *n <= total);
        if sound { Ok(Self { buckets, total }) } else { Err(Incomparable::Restarted) }
    }

    /// The `q` quantile, linear within its bucket.
    pub(super) fn quantile(&self, q: f64) -> Quantile {
        let rank = q * self.total as f64;
        let (mut lower, mut below) = (0.0, 0u64);
        for (bound, count) in &self.buckets {
            if *count as f64 >= rank {
                let inside = count.saturating_sub(below).max(1) as f64;
                let share = ((rank - below as f64) / inside).clamp(0.0, 1.0);
                return Quantile { seconds: lower + (bound - lower) * share, or_more: false };
            }
            (lower, below) = (*bound, *count);
        }
        Quantile { seconds: lower, or_more: true }
    }

    /// How many observations took longer than the first bound at or above `seconds`, and that bound.
    pub(super) fn over(&self, seconds: f64) -> (u64, f64) {
        let bucket = self.buckets.iter().find(|(bound, _)| *bound >= seconds).or(self.buckets.last());
        bucket.map_or((0, seconds), |(bound, count)| (self.total.saturating_sub(*count), *bound))
    }

    /// How many took longer than `seconds` for certain: only a bound at or above it proves that.
    pub(super) fn surely_over(&self, seconds: f64) -> u64 {
        let bucket = self.buckets.iter().find(|(bound, _)| *bound >= seconds);
        bucket.map_or(0, |(_, count)| self.total.saturating_sub(*count))
    }

    /// The slowest: how many, and the bounds between which they took; no upper one beyond the last finite bucket.
    pub(super) fn slowest(&self) -> Option<Slowest> {
        let (mut lower, mut below) = (0.0, 0u64);
        let mut last: Option<Slowest> = None;
        for (bound, count) in &self.buckets {
            if *count > below {
                last = Some(Slowest { count: count - below, more_than: lower, at_most: Some(*bound) });
            }
            (lower, below) = (*bound, *count);
        }
        match self.total - below {
            0 => last,
            count => Some(Slowest { count, more_than: lower, at_most: None }),
        }
    }
}

/// The observations in the highest bucket that holds any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowest {
    pub(super) count: u64,
    pub(super) more_than: f64,
    pub(super) at_most: Option<f64>,
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, more_than) = (self.count, Latency(self.more_than));
        match self.at_most {
            Some(at_most) => write!(f, "the slowest {count} between {more_than} and {}", Latency(at_most)),
            None => write!(f, "the slowest {count} at least {more_than}, beyond the last bucket"),
        }
    }
}

/// One histogram by itself, with its finite buckets in order.
struct Scrape {
    buckets: Vec<(f64, u64)>,
    total: u64,
}

impl Scrape {
    fn of(histogram: &Histogram) -> Result<Self, Incomparable> {
        let mut buckets = histogram.buckets.clone();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets.dedup();
        let infinite = match buckets.last() {
            Some((bound, n)) if *bound >= INFINITE_SECONDS || bound.is_nan() => {
                let n = *n;
                buckets.retain(|(bound, _)| *bound < INFINITE_SECONDS);
                Some(n)
            }
            _ => None,
        };
        let no = |words: String| Err(Incomparable::Contradictory(words));
        // A text may lack either of the two; where both are there they are one number.
        let total = match (infinite, histogram.count) {
            (Some(n), 0) => n,
            (Some(n), count) if n != count => {
                return no(format!("its last bucket counts {n} writes and its total {count}"));
            }
            (_, count) => count,
        };
        if let Some(fall) = buckets.windows(2).find(|w| w[0].1 > w[1].1 || w[0].0 == w[1].0) {
            let (lower, upper) = (Latency(fall[0].0), Latency(fall[1].0));
            return no(format!(
                "{} writes of at most {lower}, but {} of at most {upper}",
                fall[0].1, fall[1].1
            ));
        }
        match buckets.last() {
            Some((bound, n)) if *n > total => {
                no(format!("{n} writes of at most {}, but {total} in all", Latency(*bound)))
            }
            _ => Ok(Self { buckets, total }),
        }
    }
}
