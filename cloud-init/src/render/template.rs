//! The little language of `templates/`: `{{name}}`, `#if NAME` to `#end`, `#part NAME` for what several
//! profiles share, and `#note …` for who reads the template.

use std::collections::{BTreeMap, BTreeSet};

const PARTS: [(&str, &str); 5] = [
    ("packages", include_str!("../../templates/parts/packages.yaml")),
    ("guest-agent", include_str!("../../templates/parts/guest-agent.yaml")),
    ("install", include_str!("../../templates/parts/install.yaml")),
    ("repository", include_str!("../../templates/parts/repository.yaml")),
    ("start", include_str!("../../templates/parts/start.yaml")),
];

/// The text of `template` with its parts, without what its conditions leave out, and with its values.
pub(super) fn fill(
    template: &str,
    flags: &BTreeSet<&'static str>,
    values: &BTreeMap<&'static str, String>,
) -> Result<String, String> {
    let mut out = String::new();
    let mut conditions: Vec<bool> = Vec::new();
    lines(template, flags, values, &mut conditions, &mut out)?;
    if conditions.is_empty() { Ok(out) } else { Err("an #if without its #end".to_owned()) }
}

fn lines(
    text: &str,
    flags: &BTreeSet<&'static str>,
    values: &BTreeMap<&'static str, String>,
    conditions: &mut Vec<bool>,
    out: &mut String,
) -> Result<(), String> {
    for line in text.lines() {
        let shown = conditions.iter().all(|met| *met);
        if let Some(name) = line.strip_prefix("#if ") {
            conditions.push(flags.contains(name));
        } else if line == "#end" {
            conditions.pop().ok_or("an #end without its #if")?;
        } else if let Some(name) = line.strip_prefix("#part ") {
            let part = PARTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
            lines(part.ok_or_else(|| format!("no part {name}"))?, flags, values, conditions, out)?;
        } else if shown && !line.starts_with("#note ") {
            out.push_str(&with_values(line, values)?);
            out.push('\n');
        }
    }
    Ok(())
}

fn with_values(line: &str, values: &BTreeMap<&'static str, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after.split_once("}}").ok_or("a {{ without its }}")?;
        out.push_str(before);
        out.push_str(values.get(name).ok_or_else(|| format!("nothing is given for {name}"))?);
        rest = behind;
    }
    Ok(out + rest)
}
