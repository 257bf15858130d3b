//! Environments, of which only the few variables are kept that say how a program reaches Rancher. What stands before an `@`
//! in a proxy is a password and never kept.

use crate::sense::environment_file;

/// Variables that are kept, in capitals.
pub const KEPT: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "CATTLE_AGENT_STRICT_VERIFY", "STRICT_VERIFY"];
/// Most assignments of one file.
const MAX: usize = 200;
/// Longest value that is kept.
const MAX_VALUE: usize = 4096;

/// One assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The line it begins in, from 1.
    pub line: usize,
    /// The variable.
    pub name: String,
    /// Its value, without credentials.
    pub value: String,
    /// Written as `export NAME=…`: a shell takes that, systemd does not.
    pub exported: bool,
}

/// The assignments of `text` that are kept.
pub fn parse(text: &str) -> Vec<Assignment> {
    let lines = environment_file::read(text).into_iter().filter(|line| is_kept(&line.name));
    let kept = lines.map(|line| Assignment {
        line: line.number,
        value: clean(&line.name, &line.value),
        name: line.name,
        exported: line.exported,
    });
    kept.take(MAX).collect()
}

/// The assignments of systemd's property `Environment`, words in a shell's quotes.
pub(super) fn of_property(text: &str) -> Vec<Assignment> {
    let mut words = vec![String::new()];
    let (mut quote, mut escaped) = (None, false);
    for c in text.chars().take(64 * 1024) {
        let Some(word) = words.last_mut() else { break };
        match (c, quote) {
            _ if escaped => {
                word.push(c);
                escaped = false;
            }
            ('\\', None | Some('"')) => escaped = true,
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (c, None) if c.is_whitespace() => words.push(String::new()),
            (c, _) => word.push(c),
        }
    }
    kept(words.iter().map(String::as_str))
}

/// The assignments among `NAME=value` words that are kept.
pub(super) fn kept<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Assignment> {
    let words = words.filter_map(|word| word.split_once('=')).filter(|(name, _)| is_kept(name));
    let kept = words.map(|(name, value)| Assignment {
        line: 0,
        name: name.to_owned(),
        value: clean(name, value),
        exported: false,
    });
    kept.take(MAX).collect()
}

/// The file with everything else left out, every line where it was.
pub fn excerpt(text: &str) -> String {
    let found = parse(text);
    let lines = found.last().map_or(0, |last| last.line);
    let mut out = vec![String::new(); lines];
    for assignment in found {
        let export = if assignment.exported { "export " } else { "" };
        // Quoted, so that it is read as it was.
        out[assignment.line - 1] =
            format!("{export}{}='{}'", assignment.name, assignment.value.replace('\'', ""));
    }
    out.join("\n")
}

fn is_kept(name: &str) -> bool {
    KEPT.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The mark of a user name or password that was left out.
pub(super) const HIDDEN: &str = "***";

/// `value` of the variable `name` without credentials.
fn clean(name: &str, value: &str) -> String {
    let value: String = value.chars().filter(|c| !c.is_control()).take(MAX_VALUE).collect();
    if !name.to_ascii_uppercase().ends_with("_PROXY") || name.eq_ignore_ascii_case("NO_PROXY") {
        return if value.contains('@') { HIDDEN.to_owned() } else { value };
    }
    let (scheme, rest) = match value.split_once("://") {
        Some((scheme, rest)) if scheme.len() <= 8 && scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            (format!("{scheme}://"), rest)
        }
        // What stands before "://" may be a password.
        Some((_, rest)) => (format!("{HIDDEN}://"), rest),
        None => (String::new(), value.as_str()),
    };
    let Some((_, host)) = rest.rsplit_once('@') else {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // Without an @ it is a host and a port, or nothing that may be repeated.
        let is_host = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b));
        return format!("{scheme}{}", if is_host && !host.is_empty() { host } else { HIDDEN });
    };
    format!("{scheme}{HIDDEN}@{}", host.split(['/', '?', '#']).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(text: &str) -> Vec<(String, String)> {
        parse(text).into_iter().map(|a| (a.name, a.value)).collect()
    }

    #[test]
    fn files_are_read_as_systemd_does() {
        let text = "# HTTP_PROXY=no\nHTTPS_PROXY=\"http://proxy.example:3128\"\nTOKEN=s3cret\n  no_proxy = 'a, b'\n\
                    NO_PROXY=x,\\\ny\nexport HTTP_PROXY=http://p:1\nhttp_proxy=http://p:2\n;x=1\nNO_PROXY\n";
        let found = parse(text);
        let seen: Vec<(usize, &str, &str, bool)> =
            found.iter().map(|a| (a.line, a.name.as_str(), a.value.as_str(), a.exported)).collect();
        assert_eq!(
            seen,
            [
                (2, "HTTPS_PROXY", "http://proxy.example:3128", false),
                (4, "no_proxy", "a, b", false),
                (5, "NO_PROXY", "x,y", false),
                (7, "HTTP_PROXY", "http://p:1", true),
                (8, "http_proxy", "http://p:2", false),
            ]
        );
    }

    #[test]
    fn no_password_is_kept() {
        for value in [
            "http://user:s3cret@proxy:3128",
            "user:s3cret@proxy:3128",
            "http://us@er:s3cret@proxy:3128",
            "socks5://user:s3cret@proxy:1080/",
            "http://user:s3cret/@proxy",
            "s3cret?x@proxy",
            "user:s3cret://x@p",
            "http://proxy/s3cret",
            "s3cret$",
        ] {
            for text in [format!("HTTPS_PROXY={value}"), format!("export all_proxy='{value}'")] {
                assert!(!format!("{:?}", parse(&text)).contains("s3cret"), "{text}");
                assert!(!excerpt(&text).contains("s3cret"), "{text}");
            }
            assert!(!format!("{:?}", of_property(&format!("A=b HTTP_PROXY={value}"))).contains("s3cret"));
        }
        assert_eq!(values("HTTPS_PROXY=http://u:p@proxy:3128")[0].1, "http://***@proxy:3128");
        assert_eq!(values("HTTPS_PROXY=proxy.example:3128/")[0].1, "proxy.example:3128");
        assert!(!excerpt("CATTLE_TOKEN=s3cret\nNO_PROXY=u:s3cret@x\n").contains("s3cret"));
    }

    #[test]
    fn a_property_is_split_as_a_shell_would() {
        let found = of_property(
            r#"CATTLE_LOGLEVEL=info "NO_PROXY=a b,c" CATTLE_AGENT_STRICT_VERIFY=true HTTP_PROXY=http\x3a//p"#,
        );
        let seen: Vec<(&str, &str)> = found.iter().map(|a| (a.name.as_str(), a.value.as_str())).collect();
        assert_eq!(seen[..2], [("NO_PROXY", "a b,c"), ("CATTLE_AGENT_STRICT_VERIFY", "true")]);
    }

    proptest! {
        #[test]
        fn an_excerpt_reads_as_the_whole(text in "([A-Z_]{1,3}|HTTP_PROXY|no_proxy|export HTTPS_PROXY)(=| )[ -~]{0,20}(\\\\)?\n?") {
            prop_assert_eq!(parse(&excerpt(&text)).len(), parse(&text).len());
        }

        #[test]
        fn excerpts_are_stable(text in "[ -~\\n]{0,200}") {
            let once = excerpt(&text);
            prop_assert_eq!(excerpt(&once), once);
        }
    }
}
