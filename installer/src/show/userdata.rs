//! Findings in userdata, as a document and as lines to read beside the file.

use outrider_cloud_init::header::Kind;
use outrider_cloud_init::lint::{Context, worst};
use outrider_cloud_init::{Finding, Severity};
use outrider_protocol::TypeMeta;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::report::Layout;
use crate::commands::userdata::verify::Verdict;
use crate::output::{Tone, text};

/// `kind: UserdataLint`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Linted {
    #[serde(flatten)]
    meta: TypeMeta,
    source: String,
    /// What cloud-init takes it for.
    format: &'static str,
    /// Decoded.
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cloud_init: Option<String>,
    severity: &'static str,
    findings: Vec<Found>,
    /// What `cloud-init schema` said, where it was asked.
    #[serde(skip_serializing_if = "Option::is_none", rename = "schema")]
    pub(crate) verdict: Option<Verdict>,
    #[serde(skip)]
    worst: Option<Severity>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    severity: &'static str,
    code: &'static str,
    /// From 1; absent: the whole document.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// In characters, from 1; absent: the whole line.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    message: String,
    cure: String,
    /// Releases of cloud-init.
    versions: String,
    #[serde(skip)]
    level: Severity,
}

impl Linted {
    /// A document without findings.
    pub(crate) fn new(source: &str, kind: Kind, bytes: usize, context: Context) -> Self {
        Self {
            meta: TypeMeta::new("UserdataLint"),
            source: source.to_owned(),
            format: kind.as_str(),
            bytes,
            platform: context.platform.map(outrider_cloud_init::Platform::as_str),
            cloud_init: context.version.map(|version| version.to_string()),
            severity: Severity::Ok.as_str(),
            findings: Vec::new(),
            verdict: None,
            worst: None,
        }
    }

    /// Adds findings, which keep their order.
    pub(crate) fn add(&mut self, findings: Vec<Finding>) {
        let severity = worst(&findings).max(self.worst());
        (self.worst, self.severity) = (Some(severity), severity.as_str());
        self.findings.extend(findings.into_iter().map(|f| Found {
            severity: f.severity.as_str(),
            code: f.code,
            line: (f.line > 0).then_some(f.line),
            column: (f.column > 0).then_some(f.column),
            message: f.message,
            cure: f.cure,
            versions: f.versions.to_string(),
            level: f.severity,
        }));
    }

    /// The worst severity found.
    pub(crate) fn worst(&self) -> Severity {
        self.worst.unwrap_or(Severity::Ok)
    }

    /// `userdata/CODE`, one a line.
    pub(crate) fn names(&self) -> String {
        self.findings.iter().map(|found| format!("userdata/{}\n", found.code)).collect()
    }

    fn headline(&self, colour: bool) -> String {
        let count = |level| self.findings.iter().filter(|found| found.level == level).count();
        let (errors, warnings, infos) =
            (count(Severity::Error), count(Severity::Warn), count(Severity::Info));
        let words = [
            (errors, Severity::Error, text::count(errors, "error")),
            (warnings, Severity::Warn, text::count(warnings, "warning")),
            (infos, Severity::Info, format!("{infos} info")),
        ];
        let told: Vec<String> = words
            .into_iter()
            .filter(|(n, ..)| *n > 0)
            .map(|(_, level, text)| tone(level).paint(&text, colour))
            .collect();
        let told = if told.is_empty() { "nothing wrong is found".to_owned() } else { told.join(", ") };
        format!(
            "{}: {}, {}; {told}\n",
            text::printable(&self.source),
            self.format,
            text::count(self.bytes, "byte")
        )
    }
}

pub(crate) fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Ok => Tone::Good,
        Severity::Info => Tone::Notice,
        Severity::Warn => Tone::Warn,
        Severity::Error => Tone::Bad,
    }
}

/// Every finding by its place, and the cure below it.
pub(crate) fn table(linted: &Linted, layout: Layout) -> String {
    let mut out = linted.headline(layout.colour);
    if !linted.findings.is_empty() {
        out.push('\n');
    }
    let place = |found: &Found| match (found.line, found.column) {
        (None, _) => "-".to_owned(),
        (Some(line), None) => line.to_string(),
        (Some(line), Some(column)) => format!("{line}:{column}"),
    };
    let width = linted.findings.iter().map(|found| place(found).width()).max().unwrap_or(0).max(5);
    let indent = "SEVERITY".len() + 2 + width + 2;
    let room = layout.width.map_or(usize::MAX, |columns| columns.saturating_sub(indent));
    if !linted.findings.is_empty() {
        out.push_str(&format!("SEVERITY  {:width$}  FINDING\n", "PLACE"));
    }
    let blank = " ".repeat(indent);
    for found in &linted.findings {
        let severity = tone(found.level).paint(&format!("{:8}", found.severity), layout.colour);
        let mut message = format!("{} ({})", found.message, found.code);
        if layout.wide || found.versions != "all" {
            message.push_str(&format!("; cloud-init: {}", found.versions));
        }
        for (n, line) in text::wrap(&text::printable(&message), room).iter().enumerate() {
            match n {
                0 => out.push_str(&format!("{severity}  {:width$}  {line}\n", place(found))),
                _ => out.push_str(&format!("{blank}{line}\n")),
            }
        }
        for (n, line) in found.cure.lines().enumerate() {
            let mark = if n == 0 { "-> " } else { "   " };
            out.push_str(&format!("{blank}{mark}{}\n", text::printable(line)));
        }
    }
    if let Some(verdict) = &linted.verdict {
        let version = verdict.version.as_deref().unwrap_or("unknown release");
        out.push_str(&format!("\ncloud-init schema ({}): {}\n", text::printable(version), verdict.verdict));
        for line in &verdict.messages {
            out.push_str(&format!("  {}\n", text::printable(line)));
        }
    }
    out
}
