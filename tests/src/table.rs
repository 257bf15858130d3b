//! The table a suite closes with: fault, how it was made for real, what was seen, and how long it took.

use std::fmt::Write;
use std::time::Duration;

/// One fault and what came of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// What went wrong.
    pub fault: String,
    /// How it was made for real.
    pub made: String,
    /// The condition, answer or count that was seen.
    pub seen: String,
    /// From the fault to the report of it.
    pub raised: Option<Duration>,
    /// From the cure to the report of it.
    pub cleared: Option<Duration>,
}

/// Rows of one suite, printed when it is dropped, so that a suite that fails half-way still shows what it saw.
#[derive(Debug)]
pub struct Table {
    title: String,
    rows: Vec<Row>,
}

impl Table {
    /// An empty table.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), rows: Vec::new() }
    }

    /// Adds a row with times.
    pub fn timed(
        &mut self,
        fault: impl Into<String>,
        made: impl Into<String>,
        seen: impl Into<String>,
        raised: Duration,
        cleared: Option<Duration>,
    ) {
        let (fault, made, seen) = (fault.into(), made.into(), seen.into());
        self.rows.push(Row { fault, made, seen, raised: Some(raised), cleared });
    }

    /// Adds a row without times.
    pub fn row(&mut self, fault: impl Into<String>, made: impl Into<String>, seen: impl Into<String>) {
        let (fault, made, seen) = (fault.into(), made.into(), seen.into());
        self.rows.push(Row { fault, made, seen, raised: None, cleared: None });
    }

    /// The table as text.
    pub fn render(&self) -> String {
        let seconds = |d: Option<Duration>| d.map_or("-".to_owned(), |d| format!("{:.1} s", d.as_secs_f64()));
        let mut lines = vec![["fault", "made by", "seen", "to raise", "to clear"].map(str::to_owned)];
        lines.extend(self.rows.iter().map(|r| {
            [r.fault.clone(), r.made.clone(), r.seen.clone(), seconds(r.raised), seconds(r.cleared)]
        }));
        let width = |i: usize| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2), width(3), width(4)];
        let mut out = format!("\n{}\n", self.title);
        for line in &lines {
            let mut text = String::new();
            for (cell, width) in line.iter().zip(widths) {
                let _ = write!(text, "{cell:<width$}  ");
            }
            let _ = writeln!(out, "  {}", text.trim_end());
        }
        out
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        use std::io::Write;
        let _ = std::io::stdout().write_all(self.render().as_bytes());
    }
}
