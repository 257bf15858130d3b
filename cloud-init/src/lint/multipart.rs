//! Multipart userdata: each part by its own rules, and what the later parts take from the earlier ones (B7, B8).

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Context, body, compressed};
use crate::gzip;
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
        let bytes = if part.body.starts_with(gzip::MARK) {
            opened(&part.content_type, &part.body, &mut found).map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(part.body.as_slice()))
        };
        let kind = bytes.as_deref().map(|bytes| header::recognise(bytes).0);
        // Its Content-Type says what it is; the header inside is only asked where that does not.
        let typed = part.content_type == "text/cloud-config" && kind.is_some_and(|k| k != Kind::CloudConfig);
        if let Some(bytes) = bytes.as_deref().filter(|_| typed) {
            let headed = [b"#cloud-config\n", bytes].concat();
            body(&headed, &inner, &mut found);
            found.iter_mut().for_each(|f| f.line = f.line.saturating_sub(1));
        } else if let Some(bytes) = &bytes {
            body(bytes, &inner, &mut found);
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
        if kind != Some(Kind::CloudConfig) && !typed {
            continue;
        }
        let root = bytes
            .as_deref()
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .and_then(|text| yaml::parse(text).ok().flatten());
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

/// A packed part, which cloud-init unpacks where its type says that it is packed (canonical/cloud-init: user_data.py,
/// `DECOMP_TYPES`).
fn opened(content_type: &str, packed: &[u8], found: &mut Vec<Finding>) -> Option<Vec<u8>> {
    let says_so = ["gzip", "gunzip", "x-compress"].iter().any(|word| content_type.contains(word));
    if !(says_so && content_type.starts_with("application/")) {
        let message = format!(
            "gzip in a part of type {content_type:?}, which cloud-init does not unpack: it is ignored"
        );
        found.push(Finding::error("GzipPartNotUnpacked", 1, message, "Content-Type: application/gzip"));
        return None;
    }
    compressed::unpacked(packed, found)
}
