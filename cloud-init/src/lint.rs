//! What cloud-init would ignore, drop or misread, with its place and the cure.
//!
//! One rule a function, each a fault that people met: the number in its comment is that of `facts/cloud-init.md`,
//! section 11. Nothing is executed and nothing is rewritten.

mod commands;
mod compressed;
mod content;
mod credentials;
mod files;
mod keys;
mod multipart;
mod rancher;
pub(crate) mod secrets;
pub(crate) mod shell;
mod units;
mod users;
mod waiting;

use crate::construct;
use crate::header::{self, Kind};
use crate::platform::Platform;
use crate::scalar::{Meaning, meaning};
use crate::size::{self, Field};
use crate::version::Version;
use crate::yaml::{self, Node, Value};
use crate::{Finding, Severity};

/// What is known of where the userdata goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Who takes it; unknown: limits are told as warnings.
    pub platform: Option<Platform>,
    /// Where it lies in a VM's spec; unknown: as plain text.
    pub field: Option<Field>,
    /// The image's cloud-init; unknown: findings of every release are told.
    pub version: Option<Version>,
}

/// Findings by place; empty when all of the document would be read as it was meant.
pub fn lint(userdata: &[u8]) -> Vec<Finding> {
    lint_for(userdata, &Context::default())
}

/// The same for what is known of platform, field and release; what does not concern the release is left out.
pub fn lint_for(userdata: &[u8], context: &Context) -> Vec<Finding> {
    let mut findings = Vec::new();
    let decoded = (context.field == Some(Field::Base64)).then(|| size::decoded(userdata));
    let document = match &decoded {
        Some(Err(finding)) => return vec![finding.clone()],
        Some(Ok(bytes)) => bytes,
        None => userdata,
    };
    findings.extend(size::fits(document.len(), context));
    body(document, context, &mut findings);
    if decoded.is_some() {
        for finding in findings.iter_mut().filter(|finding| finding.code == "Base64InPlainField") {
            finding.code = "EncodedTwice";
            finding.message =
                "what the field decodes to is base64 again; it is decoded once, so all of it is ignored"
                    .to_owned();
            finding.cure = "encode the document once".to_owned();
        }
    }
    findings.retain(|finding| finding.versions.concern(context.version));
    findings.sort_by_key(|f| (f.line, f.column));
    findings
}

fn body(userdata: &[u8], context: &Context, findings: &mut Vec<Finding>) {
    let (kind, found) = header::recognise(userdata);
    findings.extend(found);
    match kind {
        Kind::CloudConfig => {
            text_of(userdata, findings).into_iter().for_each(|text| cloud_config(text, context, findings))
        }
        Kind::Multipart => {
            text_of(userdata, findings)
                .into_iter()
                .for_each(|text| multipart::check(text, context, findings));
        }
        Kind::Jinja => jinja(userdata, context, findings),
        Kind::Gzip => compressed::check(userdata, context, findings),
        _ => {}
    }
}

/// B29: a template is no YAML before it is rendered.
fn jinja(userdata: &[u8], context: &Context, findings: &mut Vec<Finding>) {
    let message = "a template: what it says is known only after it was rendered, so nothing behind its first lines is judged";
    let cure = "render it (cloud-init devel render FILE) and lint what comes out";
    findings.push(Finding { line: 1, ..Finding::info("TemplateNotJudged", message, cure) });
    let rest = userdata.iter().position(|b| *b == b'\n').map_or(&[][..], |at| &userdata[at + 1..]);
    let (kind, found) = header::recognise(rest);
    if matches!(kind, Kind::Ignored | Kind::Empty) {
        findings.extend(
            found.into_iter().filter(|f| f.code != "Empty").map(|f| Finding { line: f.line + 1, ..f }),
        );
    }
    if context.platform == Some(Platform::RancherMachine) && !userdata.starts_with(b"## template: jinja\n") {
        let message =
            "Rancher's driver keeps the template's header only where the file begins with it exactly";
        let cure = "make the first line ## template: jinja, with LF behind it";
        findings.push(Finding::warn("TemplateHeaderLost", 1, message, cure));
    }
}

/// The document as text, unless what it holds makes cloud-init refuse it.
fn text_of<'a>(userdata: &'a [u8], findings: &mut Vec<Finding>) -> Option<&'a str> {
    match std::str::from_utf8(userdata) {
        Ok(text) => Some(text),
        Err(e) => {
            let before = &userdata[..e.valid_up_to()];
            let line = 1 + before.iter().filter(|b| **b == b'\n').count();
            let message = "bytes that are not UTF-8; cloud-init cannot decode the document";
            findings.push(Finding::error("NotUtf8", line, message, "save the file as UTF-8"));
            None
        }
    }
}

/// What PyYAML's reader lets in; anything else ends it (its reader.py, NON_PRINTABLE).
fn printable(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Nodes that aliases may add to what the text holds itself.
const ALIAS_BUDGET: usize = 20_000;

fn cloud_config(text: &str, context: &Context, findings: &mut Vec<Finding>) {
    if let Some(at) = text.find(|c| !printable(c) && c != '\u{feff}') {
        let line = 1 + text[..at].matches('\n').count();
        let column = 1 + text[..at].chars().rev().take_while(|c| *c != '\n').count();
        let (code, what) = match text[at..].chars().next() {
            Some('\0') | None => ("NulByte", "a NUL byte".to_owned()),
            Some(c) => ("ControlCharacter", format!("the control character U+{:04X}", u32::from(c))),
        };
        let message = format!("{what}; no YAML reader takes it, so nothing in the file is applied");
        let finding = Finding::error(code, line, message, "delete it, or encode the content");
        return findings.push(Finding { column, ..finding });
    }
    let root = match yaml::parse(text) {
        Ok(root) => root,
        Err(error) => return findings.push(unparsable(text, &error)),
    };
    let Some(root) = root.filter(|root| !is_null(root)) else {
        // Nothing but comments: a tab is no comment, and ends the reader all the same.
        return tabs(text, &Node::quoted(""), findings);
    };
    if root.pairs().is_none() {
        let message = "the document is no mapping of keys; all of it is ignored";
        return findings
            .push(Finding::error("NotAMapping", root.line, message, "key: value lines").at(&root));
    }
    if let Err(error) = construct::check(&root) {
        return findings.push(unreadable(&error));
    }
    tabs(text, &root, findings);
    duplicates(&root, findings);
    let root = if root.has_aliases() {
        match yaml::expand(&root, text.len() + ALIAS_BUDGET) {
            Ok(root) => root,
            Err(error) => {
                let finding =
                    Finding::error("AliasesRefused", error.line, error.message, "write the values out");
                return findings.push(Finding { column: error.column, ..finding });
            }
        }
    } else {
        root
    };
    let units = units::written(&root);
    keys::check(&root, context, findings);
    let world = commands::World { units: &units, scripts: &waiting::scripts(&root) };
    commands::check(&root, &world, context, findings);
    files::check(&root, findings);
    credentials::check(&root, findings);
    units::check(&units, findings);
    users::check(&root, findings);
    secrets::check(&root, findings);
    rancher::check(&root, context, findings);
}

/// PyYAML lets a tab stand in quotes, in block text and in comments; anywhere else it ends it.
fn tabs(text: &str, root: &Node, findings: &mut Vec<Finding>) {
    let mut from;
    let Some(mut tab) = text.find('\t') else { return };
    let mut texts = Vec::new();
    spans(root, &mut texts);
    // Where the text ends that `at` stands in, if it does in one.
    let inside = |at: usize| {
        let behind = texts.partition_point(|span| span.start <= at);
        texts[..behind].last().map(|span| span.end).filter(|end| *end > at)
    };
    loop {
        let start = text[..tab].rfind('\n').map_or(0, |n| n + 1);
        let mut hashes = text[start..tab].match_indices('#').map(|(n, _)| start + n);
        let comment =
            |at: &usize| (*at == start || text[..*at].ends_with([' ', '\t'])) && inside(*at).is_none();
        // What else stands in the same text or comment is passed over with it: each line is looked at once.
        if let Some(end) = inside(tab) {
            from = end;
        } else if hashes.any(|at| comment(&at)) {
            from = text[tab..].find('\n').map_or(text.len(), |n| tab + n);
        } else {
            let line = 1 + text[..tab].matches('\n').count();
            let column = 1 + text[start..tab].chars().count();
            let message = "a tab where only blanks may stand; cloud-init's YAML reader stops there, so nothing in the file is applied";
            let finding = Finding::error(
                "TabOutsideText",
                line,
                message,
                "blanks instead of the tab, or quotes around the text",
            );
            return findings.push(Finding { column, ..finding });
        }
        match text[from..].find('\t') {
            Some(next) => tab = from + next,
            None => return,
        }
    }
}

/// Places of all that stands in quotes or is block text, in order.
fn spans(node: &Node, out: &mut Vec<std::ops::Range<usize>>) {
    match &node.value {
        Value::Scalar { plain: false, .. } => out.push(node.span.clone()),
        Value::Scalar { .. } | Value::Alias(_) => {}
        Value::Sequence { items, .. } => items.iter().for_each(|item| spans(item, out)),
        Value::Mapping { pairs, .. } => pairs.iter().for_each(|(key, value)| {
            spans(key, out);
            spans(value, out);
        }),
    }
}

/// What Python prints of a plain scalar that is no text to YAML 1.1, where that differs from what is written; in words.
pub(crate) fn misread(node: &Node) -> Option<String> {
    let Value::Scalar { text, plain: true } = &node.value else { return None };
    match meaning(text) {
        Meaning::Bool(b) => {
            let printed = if b { "True" } else { "False" };
            (text != printed).then(|| format!("the word {printed}"))
        }
        Meaning::Int(n) => (n.to_string() != *text).then(|| format!("the number {n}")),
        Meaning::Float => {
            let number = text.parse::<f64>().ok().map(|n| format!("{n:?}"));
            (number.as_deref() != Some(text)).then(|| {
                number.map_or_else(|| "another number".to_owned(), |number| format!("the number {number}"))
            })
        }
        Meaning::Timestamp => (text.len() != 10).then(|| "a time in another form".to_owned()),
        Meaning::Null | Meaning::Special | Meaning::Text => None,
    }
}

/// A plain scalar that YAML 1.1 takes for something else than text, even if it is printed as it was written.
pub(crate) fn is_not_text(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar { text, plain: true }
        if !matches!(meaning(text), Meaning::Text | Meaning::Special | Meaning::Null))
}

/// A cure that quotes `text`, unless it may hold a secret.
pub(crate) fn quoted_cure(before: &str, text: &str) -> String {
    if credentials::may_be_in(text) {
        return "put it into single quotes".to_owned();
    }
    format!("{before}{}", single_quoted(text))
}

/// `text` for a sentence about the value of `path`, unless it may be a secret.
pub(crate) fn said(path: &str, text: &str) -> String {
    let masked = path.split(['.', '[']).any(credentials::names_one) || credentials::may_be_in(text);
    if masked { "what stands there".to_owned() } else { text.to_owned() }
}

/// It parses, and PyYAML makes no values of it.
fn unreadable(error: &yaml::Error) -> Finding {
    let message =
        format!("cloud-init's YAML reader stops at {}; nothing in the file would be applied", error.message);
    let cure = "quote it where it is text, and otherwise correct it";
    Finding { column: error.column, ..Finding::error("NotYaml", error.line, message, cure) }
}

/// B9: nothing of a file that does not parse is applied. Two colons in one entry are the usual cause.
fn unparsable(text: &str, error: &yaml::Error) -> Finding {
    if error.limit {
        let message = format!("the file is {}, which is not judged; cloud-init may read it", error.message);
        let finding = Finding::error("NestedTooDeep", error.line, message, "write it flatter");
        return Finding { column: error.column, ..finding };
    }
    let line = text.lines().nth(error.line.saturating_sub(1)).unwrap_or_default();
    let entry =
        line.trim_start().strip_prefix("- ").map(str::trim_end).filter(|e| e.matches(": ").count() > 1);
    let cure = match entry {
        Some(entry) => quoted_cure("quote the entry: - ", entry),
        None => "correct the line; quote text that holds a colon and a blank".to_owned(),
    };
    let message = format!("the file does not parse ({}); nothing in it would be applied", error.message);
    Finding { column: error.column, ..Finding::error("NotYaml", error.line, message, cure) }
}

/// `text` in single quotes, as YAML writes them.
pub(crate) fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Nothing there, or a plain null.
pub(crate) fn is_null(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar { text, plain: true } if meaning(text) == Meaning::Null)
}

/// B11: PyYAML keeps the last of two equal keys and says nothing.
fn duplicates(node: &Node, findings: &mut Vec<Finding>) {
    match &node.value {
        Value::Mapping { pairs, .. } => {
            let mut seen = std::collections::HashMap::new();
            for (key, value) in pairs {
                if matches!(key.value, Value::Sequence { .. } | Value::Mapping { .. }) {
                    let message = "a list or a mapping as a key; cloud-init's YAML reader stops there, so nothing in the file is applied";
                    findings.push(Finding::error("KeyNotText", key.line, message, "name: value").at(key));
                }
                if let Some(name) = key.text().filter(|name| *name != "<<")
                    && let Some(first) = seen.insert(name, key.line)
                {
                    let message = format!(
                        "{name:?} stands on line {first} and on line {}; the last one wins, the first is lost without a word",
                        key.line
                    );
                    findings
                        .push(Finding::error("DuplicateKey", key.line, message, "make one of both").at(key));
                }
                duplicates(value, findings);
            }
        }
        Value::Sequence { items, .. } => items.iter().for_each(|item| duplicates(item, findings)),
        Value::Scalar { .. } | Value::Alias(_) => {}
    }
}

/// The worst severity among `findings`.
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|f| f.severity).max().unwrap_or(Severity::Ok)
}

#[cfg(test)]
mod tests;
