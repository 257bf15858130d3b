//! Multipart userdata: each part by its own rules, and what the later parts take from the earlier ones (B7, B8).

use std::collections::BTreeMap;

use super::{Context, body};
use crate::header::{self, Kind};
use crate::mime;
use crate::yaml;
use crate::{Field, Finding};

pub(super) fn check(text: &str, context: &Context, findings: &mut Vec<Finding>) {
    let parts = match mime::parts(text) {
        Ok(parts) => parts,
        Err(error) => {
            let message = format!("the multipart cannot be read: {}", error.message);
            let cure = "make it with cloud-init devel make-mime, or write one cloud-config";
            return findings.push(Finding::error("MultipartBroken", error.line, message, cure));
        }
    };
    // Limits are the whole document's.
    let inner = Context { field: Some(Field::Secret), ..*context };
    let mut set: BTreeMap<String, usize> = BTreeMap::new();
    for (index, part) in parts.iter().enumerate() {
        let number = index + 1;
        let mut found = Vec::new();
        let (kind, _) = header::recognise(&part.body);
        // Its Content-Type says what it is; the header inside is only asked where that does not.
        let typed = part.content_type == "text/cloud-config" && kind != Kind::CloudConfig;
        if typed {
            let headed = [b"#cloud-config\n", part.body.as_slice()].concat();
            body(&headed, &inner, &mut found);
            found.iter_mut().for_each(|f| f.line = f.line.saturating_sub(1));
        } else {
            body(&part.body, &inner, &mut found);
        }
        for mut finding in found {
            finding.message = format!("part {number}: {}", finding.message);
            if part.as_written && finding.line > 0 {
                finding.line += part.line - 1;
            } else {
                (finding.line, finding.column) = (part.line, 0);
            }
            findings.push(finding);
        }
        if part.merge_type {
            let message =
                format!("part {number} asks for a way of merging, which has no effect beyond the first part");
            let cure = "write one cloud-config (outrider userdata merge FILE…)";
            findings.push(Finding::warn("MergeTypeUnreliable", part.line, message, cure));
        }
        if kind != Kind::CloudConfig && !typed {
            continue;
        }
        let root = std::str::from_utf8(&part.body).ok().and_then(|text| yaml::parse(text).ok().flatten());
        for (key, _) in root.iter().filter_map(yaml::Node::pairs).flatten() {
            let Some(name) = key.text() else { continue };
            if let Some(earlier) = set.insert(name.to_owned(), number) {
                let message = format!(
                    "part {number} sets {name}, which part {earlier} sets as well: the later one wins, and the earlier is lost"
                );
                let cure = "write one cloud-config (outrider userdata merge FILE…)";
                findings.push(Finding::error("PartOverridden", part.line, message, cure));
            }
        }
    }
}
