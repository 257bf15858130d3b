//! What a given file becomes before it is merged: one plain cloud-config, or several where it is a multipart.

use super::REFUSED;
use super::splice::newline_of;
use crate::header::{self, Kind};
use crate::lint::lint;
use crate::mime::{self, Part};
use crate::yaml::{self, Node, Value};
use crate::{Finding, Severity};

/// Folder whose scripts cloud-init runs before those of `runcmd`, by how often (canonical/cloud-init: cc_scripts_*).
const SCRIPTS: [(&str, &str); 4] = [
    ("text/x-shellscript", "per-instance"),
    ("text/x-shellscript-per-instance", "per-instance"),
    ("text/x-shellscript-per-boot", "per-boot"),
    ("text/x-shellscript-per-once", "per-once"),
];

/// The cloud-configs that `userdata` holds, without byte-order mark and blanks before the header, or why it cannot be
/// merged.
pub(super) fn documents(userdata: &str) -> Result<Vec<String>, Vec<Finding>> {
    if header::recognise(userdata.as_bytes()).0 != Kind::Multipart {
        return Ok(vec![plain(userdata)?]);
    }
    let parts = mime::parts(userdata).map_err(|error| {
        let message = format!("the multipart cannot be read: {}", error.message);
        vec![Finding::error("MultipartBroken", error.line, message, "give its parts as files")]
    })?;
    let mut out = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let place = |findings: Vec<Finding>| {
            let placed = findings.into_iter().map(|finding| Finding {
                line: if part.as_written { finding.line.max(1) + part.line - 1 } else { part.line },
                message: format!("part {}: {}", index + 1, finding.message),
                ..finding
            });
            placed.collect::<Vec<_>>()
        };
        out.push(of_part(index + 1, part).map_err(place)?);
    }
    Ok(out)
}

/// Lines that are cut off before a document which is no multipart.
pub(super) fn lines_before(userdata: &str) -> Option<usize> {
    let text = userdata.trim_start_matches('\u{feff}').trim_start();
    let plain = header::recognise(text.as_bytes()).0 != Kind::Multipart;
    plain.then(|| userdata[..userdata.len() - text.len()].matches('\n').count())
}

fn of_part(number: usize, part: &Part) -> Result<String, Vec<Finding>> {
    let refuse = |code, message: &str, cure: &str| Err(vec![Finding::error(code, 1, message, cure)]);
    let Ok(text) = std::str::from_utf8(&part.body) else {
        return refuse("NotUtf8", "bytes that are not UTF-8", "give it as a file of its own in write_files");
    };
    let (kind, _) = header::recognise(text.as_bytes());
    if kind == Kind::Ignored && part.content_type == "text/cloud-config" {
        return plain(&format!("#cloud-config\n{text}"));
    }
    if kind != Kind::Script {
        return plain(text);
    }
    let folder =
        SCRIPTS.iter().find(|(kind, _)| *kind == part.content_type).map_or("per-instance", |(_, f)| f);
    if part.content_type.contains("boothook") {
        return refuse(
            "NotACloudConfig",
            "a boothook runs before all else, which no key does",
            "give it as bootcmd",
        );
    }
    // cloud-init runs what lies there once for each instance, in the order of names, before runcmd.
    let mut out = format!(
        "#cloud-config\nwrite_files:\n  - path: /var/lib/cloud/scripts/{folder}/part-{number:03}\n    permissions: '0755'\n"
    );
    let literal = text.ends_with('\n') && !text.contains('\r') && !text.contains('\t');
    if literal && text.lines().all(|line| line.chars().all(|c| !c.is_control())) {
        out.push_str("    content: |\n");
        for line in text.lines() {
            out.push_str(&if line.is_empty() { "\n".to_owned() } else { format!("      {line}\n") });
        }
    } else {
        let node = crate::yaml::Node::quoted(text);
        out.push_str(&format!("    content: {}\n", super::item::flow(&node)));
    }
    Ok(out)
}

/// The document with the header as its first line, or why it cannot be merged into.
fn plain(userdata: &str) -> Result<String, Vec<Finding>> {
    let (kind, found) = header::recognise(userdata.as_bytes());
    let text = userdata.trim_start_matches('\u{feff}').trim_start();
    let refuse = |code, message: &str, cure: &str| Err(vec![Finding::error(code, 1, message, cure)]);
    match kind {
        Kind::Empty => return Ok("#cloud-config\n".to_owned()),
        Kind::Jinja => {
            return refuse(
                "JinjaTemplate",
                "the file is a template: it is no YAML before it is rendered, so nothing can be added safely",
                "render it first (cloud-init devel render FILE --instance-data …), or give ours as a part of its own",
            );
        }
        Kind::CloudConfig => {}
        // A mark alone does not make a good document bad: we write without it.
        Kind::Ignored if header::recognise(text.as_bytes()).0 == Kind::CloudConfig => {}
        Kind::Ignored => return Err(found),
        Kind::Script => {
            return refuse(
                "NotACloudConfig",
                "the file is a script, not a cloud-config",
                "put it into write_files and start it from runcmd",
            );
        }
        Kind::Gzip => {
            return refuse("NotACloudConfig", "the file is compressed", "unpack it first (gzip -d)");
        }
        _ => {
            return refuse(
                "NotACloudConfig",
                "the file is no plain cloud-config",
                "give a #cloud-config mapping",
            );
        }
    }
    let mut text = format!("#cloud-config{}", &text["#cloud-config".len()..]);
    if !text.ends_with('\n') {
        text = stripped_block(&text).unwrap_or(text);
        text.push_str(newline_of(&text));
    }
    let refused = |f: &Finding| f.severity == Severity::Error && REFUSED.contains(&f.code);
    let errors: Vec<Finding> = lint(text.as_bytes()).into_iter().filter(refused).collect();
    if errors.is_empty() { Ok(text) } else { Err(errors) }
}

/// A block scalar that the end of the file ends has no line end in its value, and gets one with the line end that is
/// missing: `|-` keeps it without.
fn stripped_block(text: &str) -> Option<String> {
    let root = yaml::parse(text).ok().flatten()?;
    let last = last_scalar(&root);
    let block = !text[last.span.clone()].starts_with(['\'', '"'])
        && matches!(last.value, Value::Scalar { plain: false, .. });
    let head = text[..last.span.start].trim_end();
    let bare = head.trim_end_matches(|c: char| c.is_ascii_digit() || c == '+');
    (block && bare.ends_with(['|', '>'])).then(|| {
        let digits: String = head[bare.len()..].chars().filter(char::is_ascii_digit).collect();
        format!("{bare}{digits}-{}", &text[head.len()..])
    })
}

fn last_scalar(node: &Node) -> &Node {
    match &node.value {
        Value::Sequence { items, flow: false } => items.last().map_or(node, last_scalar),
        Value::Mapping { pairs, flow: false } => pairs.last().map_or(node, |(_, value)| last_scalar(value)),
        _ => node,
    }
}
