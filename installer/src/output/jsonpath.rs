//! `-o jsonpath=TEMPLATE`, as kubectl's users write it: text, `{expression}`, `{"\n"}`, `{range …}…{end}`.
//!
//! The expressions themselves are RFC 9535 queries; kubectl's habits are translated: no leading `$`, `\.` inside a
//! name, the root in the middle of a range as `$`, the current item as `@` or nothing.

use serde_json::Value;
use serde_json_path::JsonPath;

/// A parsed template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Pick(Query),
    Range(Query, Vec<Part>),
}

#[derive(Clone, Debug)]
struct Query {
    /// Starts at the document even inside a range.
    from_root: bool,
    path: JsonPath,
}

impl Template {
    /// Reads a template; the error says what is wrong and where.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the template is empty; write for example '{.items[*].name}'".to_owned());
        }
        if !text.contains('{') {
            return Ok(Self { parts: vec![Part::Pick(Query::parse(text)?)] });
        }
        // The parts of every open range, outermost (the template itself) first.
        let mut open: Vec<(Option<Query>, Vec<Part>)> = vec![(None, Vec::new())];
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            let (before, after) = rest.split_at(start);
            let end = closing_brace(after).ok_or_else(|| format!("no closing brace after {after:?}"))?;
            let inner = after[1..end].trim();
            rest = &after[end + 1..];
            push(&mut open, (!before.is_empty()).then(|| Part::Text(before.to_owned())));
            if inner == "end" {
                match (open.pop(), open.last_mut()) {
                    (Some((Some(query), parts)), Some((_, outer))) => outer.push(Part::Range(query, parts)),
                    _ => return Err("{end} without {range …}".to_owned()),
                }
            } else if let Some(query) = inner.strip_prefix("range ") {
                open.push((Some(Query::parse(query.trim())?), Vec::new()));
            } else if inner.starts_with(['"', '\'']) {
                push(&mut open, Some(Part::Text(unquote(inner)?)));
            } else {
                push(&mut open, Some(Part::Pick(Query::parse(inner)?)));
            }
        }
        push(&mut open, (!rest.is_empty()).then(|| Part::Text(rest.to_owned())));
        match (open.pop(), open.is_empty()) {
            (Some((None, parts)), true) => Ok(Self { parts }),
            _ => Err("{range …} without {end}".to_owned()),
        }
    }

    /// What the template picks from `document`; kubectl adds no newline, and neither do we.
    pub(crate) fn render(&self, document: &Value) -> String {
        let mut out = String::new();
        render(&self.parts, document, document, &mut out);
        out
    }
}

fn push(open: &mut [(Option<Query>, Vec<Part>)], part: Option<Part>) {
    if let (Some((_, parts)), Some(part)) = (open.last_mut(), part) {
        parts.push(part);
    }
}

fn render(parts: &[Part], root: &Value, current: &Value, out: &mut String) {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Pick(query) => {
                let picked: Vec<String> = query.select(root, current).into_iter().map(plain).collect();
                out.push_str(&picked.join(" "));
            }
            Part::Range(query, inner) => {
                for item in query.select(root, current) {
                    render(inner, root, item, out);
                }
            }
        }
    }
}

/// A string without quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Query {
    fn parse(text: &str) -> Result<Self, String> {
        let from_root = text.starts_with('$');
        let steps = text.trim_start_matches(['$', '@']);
        let standard = format!("${}", standard_steps(steps));
        match JsonPath::parse(&standard) {
            Ok(path) => Ok(Self { from_root, path }),
            Err(e) => Err(format!("{text:?} is no path ({e}); write for example .items[*].name")),
        }
    }

    fn select<'a>(&self, root: &'a Value, current: &'a Value) -> Vec<&'a Value> {
        self.path.query(if self.from_root { root } else { current }).all()
    }
}

/// kubectl's steps in the standard's spelling: names that need quotes get them.
fn standard_steps(steps: &str) -> String {
    let mut out = String::new();
    let mut chars = steps.chars().peekable();
    // A leading name without its dot is allowed.
    let mut in_name = !steps.starts_with(['.', '[']) && !steps.is_empty();
    let mut name = String::new();
    let mut depth = 0usize;
    let mut quote: Option<char> = None;
    let flush = |name: &mut String, out: &mut String| {
        if name.is_empty() {
            return;
        }
        let simple = name.chars().all(|c| c == '_' || c.is_alphanumeric())
            && !name.starts_with(|c: char| c.is_ascii_digit());
        match (simple || name == "*", out.ends_with("..")) {
            (true, true) => out.push_str(name),
            (true, false) => out.push_str(&format!(".{name}")),
            (false, _) => out.push_str(&format!("['{}']", name.replace('\'', "\\'"))),
        }
        name.clear();
    };
    while let Some(c) = chars.next() {
        if depth > 0 {
            out.push(c);
            match (quote, c) {
                (Some(q), c) if q == c => quote = None,
                (None, '\'' | '"') => quote = Some(c),
                (None, '[') => depth += 1,
                (None, ']') => depth -= 1,
                _ => {}
            }
            continue;
        }
        match c {
            '[' => {
                flush(&mut name, &mut out);
                out.push('[');
                depth = 1;
                in_name = false;
            }
            '.' => {
                flush(&mut name, &mut out);
                if chars.peek() == Some(&'.') {
                    chars.next();
                    out.push_str("..");
                }
                in_name = true;
            }
            '\\' if in_name => name.extend(chars.next()),
            c => name.push(c),
        }
    }
    flush(&mut name, &mut out);
    out
}

/// Place of the brace that closes the one at the start, outside of quotes.
fn closing_brace(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), c) if q == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '}') => return Some(i),
            _ => {}
        }
    }
    None
}

fn unquote(text: &str) -> Result<String, String> {
    let quote = text.chars().next().unwrap_or('"');
    let inner = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
    let inner = inner.ok_or_else(|| format!("the quotes of {text} do not close"))?;
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some(other) => out.push(other),
                None => return Err(format!("{text} ends in a lone backslash")),
            },
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn picked(template: &str) -> String {
        let document = json!({
            "kind": "NodeList",
            "items": [
                { "name": "a", "ready": "True", "labels": { "kubernetes.io/os": "linux" }, "n": 1,
                  "conditions": [{ "type": "Ready", "status": "True" }, { "type": "EtcdQuorum", "status": "False" }] },
                { "name": "b", "ready": "Unknown", "labels": {}, "n": 2, "conditions": [] },
            ],
        });
        Template::parse(template).expect(template).render(&document)
    }

    #[test]
    fn templates_read_as_in_kubectl() {
        assert_eq!(picked("{.items[*].name}"), "a b");
        assert_eq!(picked("{$.items[0].name}"), "a");
        assert_eq!(picked(".items[*].n"), "1 2");
        assert_eq!(picked("{.items[-1:].name}"), "b");
        assert_eq!(picked("{range .items[*]}{.name}{\"\\t\"}{@.ready}{'\\n'}{end}"), "a\tTrue\nb\tUnknown\n");
        assert_eq!(picked("{range .items[*]}{.name} of {$.kind};{end}"), "a of NodeList;b of NodeList;");
        assert_eq!(picked(r"{.items[0].labels.kubernetes\.io/os}"), "linux");
        assert_eq!(picked(r#"{.items[*].conditions[?(@.type=="EtcdQuorum")].status}"#), "False");
        assert_eq!(picked("{..name}"), "a b");
        assert_eq!(picked("{.items[*].nothing}"), "");
        assert_eq!(picked("names: {.items[*].name}!"), "names: a b!");
        assert_eq!(picked("{\"}\"}"), "}");
        assert_eq!(picked("{.items[0].conditions[0]}"), r#"{"status":"True","type":"Ready"}"#);
    }

    proptest::proptest! {
        #[test]
        fn any_template_is_read_or_refused(text in r#"[{}\[\]."'a-z@$*?()=\\ 0-9:,-]{0,24}|\PC{0,24}"#) {
            if let Ok(template) = Template::parse(&text) {
                template.render(&json!({ "a": [{ "b": 1 }], "items": [1, "x"] }));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (template, word) in [
            ("", "empty"),
            ("{.items", "closing brace"),
            ("{range .items[*]}{.name}", "without {end}"),
            ("{.name}{end}", "without {range"),
            ("{.items[}", "no path"),
            ("{\"a}", "closing brace"),
        ] {
            let problem = Template::parse(template).expect_err(template);
            assert!(problem.contains(word), "{template}: {problem}");
        }
    }
}
