//! Environment files as systemd reads them (systemd.exec(5), `EnvironmentFile=`). What is read here may hold secrets: who asks
//! keeps what may be known of it.

/// Longest assignment that is read.
const MAX: usize = 64 * 1024;

/// One assignment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The line it begins in, from 1.
    pub(crate) number: usize,
    /// The variable.
    pub(crate) name: String,
    /// Its value without quotes.
    pub(crate) value: String,
    /// Written as `export NAME=…`: a shell takes that, systemd does not.
    pub(crate) exported: bool,
}

/// Every assignment of `text`, in order.
pub(crate) fn read(text: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut whole = line.trim_start().to_owned();
        if whole.is_empty() || whole.starts_with(['#', ';']) {
            continue;
        }
        // A backslash at the end goes on with the next line.
        while whole.ends_with('\\') && whole.len() < MAX {
            whole.pop();
            match lines.next() {
                Some((_, next)) => whole.push_str(next),
                None => break,
            }
        }
        let Some((name, value)) = whole.split_once('=') else { continue };
        let (name, exported) = match name.trim().strip_prefix("export") {
            Some(rest) if rest.starts_with(char::is_whitespace) => (rest.trim(), true),
            _ => (name.trim(), false),
        };
        if !name.is_empty() {
            found.push(Line {
                number: number + 1,
                name: name.to_owned(),
                value: unquoted(value.trim()),
                exported,
            });
        }
    }
    found
}

/// What systemd takes of `text`.
pub(crate) fn assignments(text: &str) -> Vec<(String, String)> {
    read(text).into_iter().filter(|line| !line.exported).map(|line| (line.name, line.value)).collect()
}

/// A value without its quotes.
fn unquoted(value: &str) -> String {
    let mut out = String::new();
    let (mut quote, mut escaped) = (None, false);
    for c in value.chars().take(MAX) {
        match (c, quote) {
            _ if escaped => {
                out.push(c);
                escaped = false;
            }
            ('\\', None | Some('"')) => escaped = true,
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (c, _) => out.push(c),
        }
    }
    out
}
