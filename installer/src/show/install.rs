//! What an installation found, would do and did, as a document and for people.

use outrider_protocol::{Severity, TypeMeta};
use serde::Serialize;

use super::report::Layout;
use crate::install::{Finding, Held, Plan, Planned, Undo};
use crate::output::{Tone, text};

/// `kind: InstallReport`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    #[serde(flatten)]
    meta: TypeMeta,
    action: &'static str,
    /// `done`, `nothing-to-do`, `dry-run`, `refused` or `failed`.
    outcome: &'static str,
    /// The error, when it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    findings: Vec<Finding>,
    steps: Vec<Line>,
    /// What is left alone, and why.
    held: Vec<Held>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    kind: &'static str,
    target: String,
    reason: String,
}

impl Report {
    /// Of an installation that was looked at and planned.
    pub(crate) fn install(findings: &[Finding], plan: &Plan, dry_run: bool) -> Self {
        let steps = plan.steps.iter().map(|Planned { step, reason }| Line {
            kind: step.kind(),
            target: step.target(),
            reason: reason.clone(),
        });
        Self::new("install", findings.to_vec(), steps.collect(), plan.held.clone(), dry_run)
    }

    /// Of the way back.
    pub(crate) fn uninstall(undo: &Undo, dry_run: bool) -> Self {
        let steps = undo.steps.iter().map(|Planned { step, reason }| Line {
            kind: step.kind(),
            target: step.target(),
            reason: reason.clone(),
        });
        Self::new("uninstall", Vec::new(), steps.collect(), undo.held.clone(), dry_run)
    }

    fn new(
        action: &'static str,
        findings: Vec<Finding>,
        steps: Vec<Line>,
        held: Vec<Held>,
        dry_run: bool,
    ) -> Self {
        let refused = findings.iter().any(|finding| finding.severity == Severity::Error);
        let outcome = match (refused, steps.is_empty(), dry_run) {
            (true, _, _) => "refused",
            (false, true, _) => "nothing-to-do",
            (false, false, true) => "dry-run",
            (false, false, false) => "planned",
        };
        Self {
            meta: TypeMeta::new("InstallReport"),
            action,
            outcome,
            error: String::new(),
            findings,
            steps,
            held,
        }
    }

    /// There is something to do, nothing stands in its way, and it is wanted.
    pub(crate) fn may_go_on(&self) -> bool {
        self.outcome == "planned"
    }

    /// All steps were done.
    pub(crate) fn done(&mut self) {
        self.outcome = "done";
    }

    /// A step failed; those after it were not done.
    pub(crate) fn failed(&mut self, error: &anyhow::Error) {
        (self.outcome, self.error) = ("failed", format!("{error:#}"));
    }

    /// What was found to be another's on the way.
    pub(crate) fn stayed(&mut self, held: Vec<Held>) {
        self.held.extend(held);
    }

    /// It was refused, or failed.
    pub(crate) fn is_bad(&self) -> bool {
        matches!(self.outcome, "refused" | "failed")
    }
}

/// For people: what was found, what is done, what is left, how it ended.
pub(crate) fn table(report: &Report, layout: Layout) -> String {
    let mut out = String::new();
    let width = layout.width.unwrap_or(usize::MAX);
    for finding in &report.findings {
        let tone = Tone::from(finding.severity);
        let head = format!(
            "{}  {:13}  ",
            tone.paint(&format!("{:5}", finding.severity), layout.colour),
            finding.check
        );
        paragraph(&mut out, &head, 22, &finding.message, width);
        if !finding.advice.is_empty() {
            paragraph(&mut out, &format!("{:22}-> ", ""), 25, &finding.advice, width);
        }
    }
    let told = |title: &str, lines: Vec<(String, String)>, out: &mut String| {
        if lines.is_empty() {
            return;
        }
        out.push_str(&format!("{}{title}\n", if out.is_empty() { "" } else { "\n" }));
        for (what, why) in lines {
            paragraph(out, "  ", 4, &format!("{what}: {why}"), width);
        }
    };
    let title = match report.outcome {
        "done" => "Done",
        "failed" => "To be done, until it failed",
        _ => "To be done",
    };
    told(title, grouped(&report.steps), &mut out);
    let held = report.held.iter().map(|held| (held.target.clone(), held.reason.clone())).collect();
    told("Left alone", held, &mut out);
    if !out.is_empty() {
        out.push('\n');
    }
    paragraph(&mut out, "", 0, &ending(report), width);
    out
}

/// One line for many files that are treated alike.
fn grouped(steps: &[Line]) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut rest = steps;
    while let Some(first) = rest.first() {
        let alike =
            rest.iter().take_while(|line| line.kind == first.kind && line.reason == first.reason).count();
        let what = match alike {
            1..=3 => rest[..alike].iter().map(|line| line.target.as_str()).collect::<Vec<_>>().join(", "),
            n => format!("{n} times below {}", common(&rest[..n])),
        };
        lines.push((format!("{} {what}", first.kind), first.reason.clone()));
        rest = &rest[alike..];
    }
    lines
}

/// The folder that all of these lie in.
fn common(lines: &[Line]) -> String {
    let mut common = lines.first().map(|line| line.target.clone()).unwrap_or_default();
    while !lines.iter().all(|line| line.target.starts_with(&format!("{common}/"))) {
        match common.rfind('/') {
            Some(at) => common.truncate(at),
            None => break,
        }
    }
    if common.is_empty() { "/".to_owned() } else { common }
}

fn ending(report: &Report) -> String {
    match (report.outcome, report.action) {
        ("refused", _) => "Nothing was changed: something stands in the way.".to_owned(),
        ("failed", "install") => format!(
            "Failed: {}. What was done before is in the receipt: run the same command again once this is mended, or \
             `outrider uninstall` to take it back.",
            report.error
        ),
        ("failed", _) => format!("Failed: {}. Run it again once this is mended.", report.error),
        ("nothing-to-do", "install") => "Nothing to do: this machine is as asked for.".to_owned(),
        ("nothing-to-do", _) => "Nothing to do.".to_owned(),
        ("dry-run", _) => "Nothing was changed: --dry-run.".to_owned(),
        (_, "install") => "This machine is set up as a node. `systemctl status outrider-agent` and `outrider check` say how it \
                           fares, `outrider get nodes` whether it was let in."
            .to_owned(),
        _ => "What `outrider install` made is gone, but for what is named above.".to_owned(),
    }
}

/// `message` after `head`, further lines indented by `indent` columns.
fn paragraph(out: &mut String, head: &str, indent: usize, message: &str, width: usize) {
    let room = width.saturating_sub(indent).max(20);
    for (n, line) in text::wrap(&text::printable(message), room).iter().enumerate() {
        let lead = if n == 0 { head.to_owned() } else { " ".repeat(indent) };
        out.push_str(&format!("{lead}{line}\n"));
    }
}
