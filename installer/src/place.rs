//! Where in a JSON text a byte lies, as the path of its field. A typed reading that failed tells line and column; carrying the
//! path along instead would have the compiler make every type of the protocol a second time.

/// The path of the value at `offset` of a JSON text that is well formed up to there, such as `checks.etcd.value[0].id`; empty for
/// the document itself.
pub(crate) fn path(text: &[u8], offset: usize) -> String {
    let mut open: Vec<Step> = Vec::new();
    let mut bytes = text.iter().copied().enumerate().take(offset);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'{' => open.push(Step::Field { key: String::new(), is_named: false }),
            b'[' => open.push(Step::Item(0)),
            b'}' | b']' => drop(open.pop()),
            b':' => {
                if let Some(Step::Field { is_named, .. }) = open.last_mut() {
                    *is_named = true;
                }
            }
            b',' => match open.last_mut() {
                Some(Step::Field { key, is_named }) => {
                    key.clear();
                    *is_named = false;
                }
                Some(Step::Item(n)) => *n += 1,
                None => {}
            },
            b'"' => {
                let mut end = None;
                while let Some((at, byte)) = bytes.next() {
                    match byte {
                        b'\\' => drop(bytes.next()),
                        b'"' => {
                            end = Some(at);
                            break;
                        }
                        _ => {}
                    }
                }
                if let (Some(end), Some(Step::Field { key, is_named: false })) = (end, open.last_mut()) {
                    *key = serde_json::from_slice(&text[at..=end]).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for step in open {
        match step {
            Step::Field { key, .. } if path.is_empty() => path = key,
            Step::Field { key, .. } if key.is_empty() => {}
            Step::Field { key, .. } => {
                path.push('.');
                path.push_str(&key);
            }
            Step::Item(n) => path.push_str(&format!("[{n}]")),
        }
    }
    path
}

/// The offset in `text` of a place told by serde_json: lines count from 1, columns are bytes of the line that were read.
pub(crate) fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let begins = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let begin = std::iter::once(0).chain(begins).nth(line.saturating_sub(1)).unwrap_or(text.len());
    begin.saturating_add(column).min(text.len())
}

enum Step {
    /// In an object: the key, and whether its value is reached.
    Field { key: String, is_named: bool },
    /// In an array: how many values were before.
    Item(usize),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    fn failed<'a, T: Deserialize<'a> + std::fmt::Debug>(text: &'a str) -> String {
        let error = serde_json::from_slice::<T>(text.as_bytes()).unwrap_err();
        path(text.as_bytes(), offset(text.as_bytes(), error.line(), error.column()))
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "it is only read in vain")]
    struct Outer {
        first: Vec<Inner>,
        #[serde(default)]
        second: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "it is only read in vain")]
    struct Inner {
        id: u64,
        #[serde(default)]
        name: String,
    }

    #[test]
    fn a_failure_is_told_by_the_path_of_its_field() {
        for (text, expected) in [
            (r#"{"first": [{"id": 1}, {"id": "x"}]}"#, "first[1].id"),
            (r#"{"first": [{"id": 1, "name": "a,]}:\"b"}, {"name": "c"}]}"#, "first[1]"),
            ("{\"first\": [],\n \"second\": {\"id\": 5,\n \"name\": []}}", "second.name"),
            (r#"{"second": {"id": 5}}"#, ""),
            (r#"{"first": {"id": 5}}"#, "first"),
            (r#"{"first": [{"id": -5}]}"#, "first[0].id"),
            ("[1]", "[0]"),
            (r#"{"first": [{"id": 1, "\u006eame": 7}]}"#, "first[0].name"),
        ] {
            assert_eq!(failed::<Outer>(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_and_no_place_is_too_much(text in "[\\[\\]{}:,\"\\\\a1\n ]{0,60}", line in 0..9_usize, column in 0..90_usize) {
            let bytes = text.as_bytes();
            let _ = path(bytes, offset(bytes, line, column));
            let _ = path(bytes, column);
        }
    }
}
