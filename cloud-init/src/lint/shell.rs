//! A shell line taken apart far enough to see which programs it runs: words, separators, quotes. Nothing is expanded.

/// One command of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Simple {
    /// Its words without quotes, behind assignments, keywords, `sudo` and `env`.
    pub(crate) words: Vec<String>,
    /// It is sent to the background.
    pub(crate) background: bool,
    /// It is the condition of a loop (`while`, `until`).
    pub(crate) loops: bool,
    /// It stands behind `until`.
    pub(crate) until: bool,
    /// A `!` stands before it.
    pub(crate) negated: bool,
}

impl Simple {
    /// Name of the program, without its folder.
    pub(crate) fn program(&self) -> &str {
        self.words.first().map(|w| w.rsplit('/').next().unwrap_or(w)).unwrap_or_default()
    }

    /// Words behind the program.
    pub(crate) fn rest(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// One of the words behind the program is `word`.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.rest().iter().any(|w| w == word)
    }

    /// Words behind the program that are no options.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &str> {
        self.rest().iter().map(String::as_str).filter(|word| !word.starts_with('-'))
    }
}

/// How deep `sh -c` is followed.
const MAX_DEPTH: usize = 3;

/// The commands of a text as a shell would run it.
pub(crate) fn of_text(text: &str) -> Vec<Simple> {
    let mut out = Vec::new();
    read(text, MAX_DEPTH, &mut out);
    out
}

/// The commands of an argument list.
pub(crate) fn of_words(words: &[&str]) -> Vec<Simple> {
    let mut out = Vec::new();
    push(words.iter().map(|w| (*w).to_owned()).collect(), false, MAX_DEPTH, &mut out);
    out
}

fn read(text: &str, depth: usize, out: &mut Vec<Simple>) {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut groups = Groups::default();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                word.extend(chars.by_ref().take_while(|c| *c != '\''));
            }
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    word.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
                }
            }
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(c) => word.get_or_insert_default().push(c),
            },
            '#' if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            ' ' | '\t' | '\r' => words.extend(word.take()),
            ';' | '&' | '|' | '\n' | '(' | ')' => {
                let redirects =
                    word.as_ref().is_some_and(|w| w.ends_with(['>', '<'])) || chars.peek() == Some(&'>');
                if c == '&' && redirects {
                    word.get_or_insert_default().push(c);
                    continue;
                }
                words.extend(word.take());
                let background = c == '&' && chars.next_if_eq(&'&').is_none();
                let first = groups.start_of(&words, c, out.len());
                push(std::mem::take(&mut words), background, depth, out);
                if background {
                    out[first..].iter_mut().for_each(|inner| inner.background = true);
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.take());
    push(words, false, depth, out);
}

/// Where loops, conditions and parentheses began, so that an `&` behind their end sends all of them to the background.
#[derive(Default)]
struct Groups {
    keywords: Vec<usize>,
    parentheses: Vec<usize>,
    /// A parenthesis was closed just now, which began there.
    closed: Option<usize>,
}

impl Groups {
    /// Index of the first command that ends with `words`, before the separator `c`, when `at` commands are known.
    fn start_of(&mut self, words: &[String], c: char, at: usize) -> usize {
        let open = |word: &&String| matches!(word.as_str(), "while" | "until" | "for" | "if" | "case" | "{");
        let leads =
            |word: &&String| open(word) || matches!(word.as_str(), "do" | "then" | "else" | "elif" | "!");
        words.iter().take_while(leads).filter(open).for_each(|_| self.keywords.push(at));
        let ended = match words.first().map(String::as_str) {
            Some("done" | "fi" | "esac" | "}") => self.keywords.pop(),
            None => self.closed,
            Some(word) if word.contains(['>', '<']) => self.closed,
            _ => None,
        };
        self.closed = None;
        match c {
            '(' => self.parentheses.push(at),
            ')' => self.closed = self.parentheses.pop(),
            _ => {}
        }
        ended.unwrap_or(at)
    }
}

fn push(words: Vec<String>, background: bool, depth: usize, out: &mut Vec<Simple>) {
    let keyword = |word: &str| {
        matches!(
            word,
            "if" | "then" | "elif" | "else" | "do" | "while" | "until" | "!" | "{" | "}" | "time" | "exec"
        )
    };
    let assigns = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let start = words
        .iter()
        .position(|w| {
            !keyword(w) && !assigns(w) && !matches!(w.as_str(), "sudo" | "env" | "nohup" | "command")
        })
        .unwrap_or(words.len());
    let loops = words[..start].iter().any(|w| w == "while" || w == "until");
    let (until, negated) =
        (words[..start].iter().any(|w| w == "until"), words[..start].iter().any(|w| w == "!"));
    let simple = Simple { words: words[start..].to_vec(), background, loops, until, negated };
    if simple.words.is_empty() {
        return;
    }
    let script = match simple.program() {
        "sh" | "bash" | "dash" | "ash" | "ksh" | "zsh" => {
            simple.rest().iter().position(|w| w.starts_with('-') && w.ends_with('c')).map(|at| at + 1)
        }
        _ => None,
    };
    let script = script.and_then(|at| simple.rest().get(at)).filter(|_| depth > 0).cloned();
    let first = out.len();
    out.push(simple);
    if let Some(script) = script {
        read(&script, depth - 1, out);
        out[first..].iter_mut().for_each(|inner| inner.background |= background);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        of_text(text).iter().map(|simple| simple.words.join(" ")).collect()
    }

    #[test]
    fn lines_as_people_write_them() {
        assert_eq!(
            words("A=b sudo apt-get -y install 'x y'; systemctl start a && true"),
            ["apt-get -y install x y", "systemctl start a", "true"]
        );
        assert_eq!(
            words("bash -ec \"systemctl start b\" # later"),
            ["bash -ec systemctl start b", "systemctl start b"]
        );
        assert_eq!(words("cmd >/dev/null 2>&1 &"), ["cmd >/dev/null 2>&1"]);
        assert!(of_text("cmd >/dev/null 2>&1 &")[0].background);
        assert!(of_text("until curl x; do sleep 5; done")[0].loops);
        for text in [
            "while a; do b; done &",
            "(a; b) &",
            "( while a; do b; done ) >x &",
            "for i in 1; do if a; then b; fi; done &",
            "{ a; b; } &",
        ] {
            assert!(of_text(text).iter().all(|simple| simple.background), "{text}");
        }
        assert!(!of_text("while a; do b & done")[0].background);
        assert!(!of_text("a; (b; c) & d")[0].background);
        assert_eq!(words("if [ -e /x ]; then\n  a \\\n b\nfi"), ["[ -e /x ]", "a b", "fi"]);
        assert_eq!(words("echo \"a; b\" 'c | d'"), ["echo a; b c | d"]);
        assert_eq!(words(""), [""; 0]);
        assert_eq!(words("'unended"), ["unended"]);
        assert_eq!(of_words(&["sh", "-c", "a; b"]).len(), 3);
        let deep = "sh -c 'sh -c \"sh -c sh\"'";
        assert!(of_text(deep).len() <= 4);
    }
}
