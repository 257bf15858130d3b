//! `write_files`: modes, owners and encodings that do not mean what they look like.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Finding;
use crate::scalar::{Meaning, meaning};
use crate::yaml::{Node, Value};

pub(super) fn check(root: &Node, findings: &mut Vec<Finding>) {
    let Some(files) = root.get("write_files") else { return };
    let Some(items) = files.items() else { return };
    let created: Vec<&str> = root
        .get("users")
        .and_then(Node::items)
        .into_iter()
        .flatten()
        .filter_map(|user| user.get("name").and_then(Node::text).or_else(|| user.text()))
        .collect();
    for (index, file) in items.iter().enumerate() {
        let number = index + 1;
        match file.get("path").and_then(Node::text) {
            None => {
                let message = format!("entry {number} of write_files has no path; nothing is written");
                findings.push(Finding::error("FileWithoutPath", 0, message, "path: /where/it/goes").at(file));
            }
            Some(path) if !path.starts_with('/') => {
                let message = format!("entry {number} of write_files has the relative path {path:?}");
                findings.push(Finding::warn("RelativePath", 0, message, format!("path: /{path}")).at(file));
            }
            Some(_) => {}
        }
        permissions(number, file, findings);
        owner(number, file, &created, findings);
        content(number, file, findings);
    }
}

/// B28: `0644` is 420 to PyYAML, which is what was meant; `644` is not.
fn permissions(number: usize, file: &Node, findings: &mut Vec<Finding>) {
    let Some(node) = file.get("permissions") else { return };
    let Value::Scalar { text, plain } = &node.value else { return };
    let octal = text.trim_start_matches("0o");
    let bad_digits = octal.is_empty() || !octal.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let decimal = *plain && !text.starts_with('0') && matches!(meaning(text), Meaning::Int(_));
    if bad_digits || decimal {
        let message = match decimal {
            true => format!("entry {number} of write_files: unquoted {text} is decimal, not a mode"),
            false => format!("entry {number} of write_files: {text:?} is no octal mode"),
        };
        let cure =
            if bad_digits { "permissions: '0644'".to_owned() } else { format!("permissions: '0{octal}'") };
        findings.push(Finding::error("PermissionsNotOctal", 0, message, cure).at(node));
    }
}

/// B21: files are written before users are made, unless deferred.
fn owner(number: usize, file: &Node, created: &[&str], findings: &mut Vec<Finding>) {
    let Some(node) = file.get("owner") else { return };
    let user = node.text().unwrap_or_default().split(':').next().unwrap_or_default();
    let deferred = file.get("defer").and_then(Node::text).map(meaning) == Some(Meaning::Bool(true));
    if created.contains(&user) && !deferred {
        let message = format!(
            "entry {number} of write_files belongs to {user}, whom this file creates later: it is not written"
        );
        findings.push(Finding::error("OwnerNotYetThere", 0, message, "defer: true").at(node));
    }
}

fn content(number: usize, file: &Node, findings: &mut Vec<Finding>) {
    let Some(node) = file.get("content") else { return };
    let text = node.text().unwrap_or_default();
    let written = file.get("encoding").and_then(Node::text).unwrap_or_default();
    let encoding = written.trim().to_ascii_lowercase();
    let squeezed: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    match encoding.as_str() {
        "b64" | "base64" | "gz+b64" | "gzip+b64" | "gz+base64" | "gzip+base64" => {
            let decoded = STANDARD.decode(&squeezed);
            let gzip = encoding.starts_with('g');
            if decoded.is_err() {
                let message =
                    format!("entry {number} of write_files says {encoding} and its content is no base64");
                findings
                    .push(Finding::error("ContentNotBase64", 0, message, "encode the content once").at(node));
            } else if gzip && !decoded.is_ok_and(|bytes| bytes.starts_with(&[0x1F, 0x8B])) {
                let message =
                    format!("entry {number} of write_files says {encoding} and its content is no gzip file");
                findings.push(
                    Finding::error("ContentNotGzip", 0, message, "compress it, or encoding: b64").at(node),
                );
            }
        }
        "" | "text/plain" if squeezed.starts_with("H4sI") && STANDARD.decode(&squeezed).is_ok() => {
            let message = format!(
                "entry {number} of write_files holds base64 of gzip without an encoding: it is written as it stands"
            );
            findings.push(Finding::error("EncodingMissing", 0, message, "encoding: gzip+b64").at(node));
        }
        "" | "text/plain" if text.starts_with("#!") && text.contains("\r\n") => {
            let message = format!("entry {number} of write_files is a script with carriage returns");
            findings.push(Finding::warn("CarriageReturns", 0, message, "save it with LF line ends").at(node));
        }
        "" | "text/plain" | "gz" | "gzip" => {}
        other => {
            let message = format!(
                "entry {number} of write_files has the unknown encoding {other:?}; the content is written as it stands"
            );
            findings
                .push(Finding::error("UnknownEncoding", 0, message, "encoding: b64 or gzip+b64").at(node));
        }
    }
}
