//! Label selectors as kubectl's users write them: `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`.
//!
//! As in Kubernetes, `a!=b` and `a notin (…)` also select what has no label `a`.

use std::fmt;

/// A conjunction of requirements; empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

/// What is wrong with a selector, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {what}")]
pub struct SelectorError {
    /// Position, from 1.
    pub at: usize,
    /// What was expected.
    pub what: String,
}

impl Selector {
    /// Reads a selector.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut reader = Reader { text, at: 0 };
        let mut requirements = Vec::new();
        reader.blanks();
        while !reader.is_at_end() {
            requirements.push(reader.requirement()?);
            reader.blanks();
            if reader.is_at_end() {
                break;
            }
            if !reader.eat(",") {
                return Err(reader.error("expected ',' or the end"));
            }
            reader.blanks();
            if reader.is_at_end() {
                return Err(reader.error("a requirement is missing after ','"));
            }
        }
        Ok(Self(requirements))
    }

    /// Whether an object whose label `key` has the value `label(key)` is selected.
    pub fn selects<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|r| match r {
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Missing(key) => label(key).is_none(),
            Requirement::In(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Requirement::NotIn(key, values) => !label(key).is_some_and(|v| values.iter().any(|w| w == v)),
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            // One value is written with a sign: in a set, an empty one would have no place.
            match requirement {
                Requirement::In(key, values) if values.len() == 1 => write!(f, "{key}={}", values.concat())?,
                Requirement::NotIn(key, values) if values.len() == 1 => {
                    write!(f, "{key}!={}", values.concat())?
                }
                Requirement::Exists(key) => f.write_str(key)?,
                Requirement::Missing(key) => write!(f, "!{key}")?,
                Requirement::In(key, values) => write!(f, "{key} in ({})", values.join(","))?,
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    fn error(&self, what: impl Into<String>) -> SelectorError {
        SelectorError { at: self.at + 1, what: what.into() }
    }

    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// A label's key or value: letters, digits and `-_./`.
    fn word(&mut self, what: &str) -> Result<String, SelectorError> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let length = self.rest().find(|c| !is_part(c)).unwrap_or(self.rest().len());
        if length == 0 {
            return Err(self.error(format!("expected {what} (letters, digits, '-', '_', '.', '/')")));
        }
        if length > 317 {
            return Err(self.error(format!("{what} is longer than 317 characters")));
        }
        let word = self.rest().get(..length).unwrap_or_default().to_owned();
        self.at += length;
        Ok(word)
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.eat("!") {
            self.blanks();
            return Ok(Requirement::Missing(self.word("a label's key after '!'")?));
        }
        let key = self.word("a label's key")?;
        self.blanks();
        if self.eat("!=") {
            return Ok(Requirement::NotIn(key, vec![self.value()?]));
        }
        if self.eat("==") || self.eat("=") {
            return Ok(Requirement::In(key, vec![self.value()?]));
        }
        let before = self.at;
        match self.word("an operator").as_deref() {
            Ok("in") => Ok(Requirement::In(key, self.values()?)),
            Ok("notin") => Ok(Requirement::NotIn(key, self.values()?)),
            Ok(_) => {
                self.at = before;
                Err(self.error("expected '=', '!=', 'in (…)', 'notin (…)', ',' or the end"))
            }
            Err(_) => Ok(Requirement::Exists(key)),
        }
    }

    /// The value after `=`; it may be empty.
    fn value(&mut self) -> Result<String, SelectorError> {
        self.blanks();
        if self.is_at_end() || self.rest().starts_with(',') {
            Ok(String::new())
        } else {
            self.word("a value")
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        self.blanks();
        if !self.eat("(") {
            return Err(self.error("expected '('"));
        }
        let mut values = Vec::new();
        loop {
            self.blanks();
            values.push(self.word("a value")?);
            self.blanks();
            if self.eat(")") {
                return Ok(values);
            }
            if !self.eat(",") {
                return Err(self.error("expected ',' or ')'"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selects(selector: &str, labels: &[(&'static str, &'static str)]) -> bool {
        let selector = Selector::parse(selector).unwrap();
        selector.selects(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
    }

    #[test]
    fn selects_as_kubectl_does() {
        let labels = [("a", "b"), ("zone", "eu-1"), ("empty", "")];
        for (selector, selected) in [
            ("", true),
            ("a=b", true),
            ("a==b", true),
            (" a = b ", true),
            ("a=c", false),
            ("a!=b", false),
            ("a!=c", true),
            ("other!=b", true),
            ("a in (x,b)", true),
            ("a in ( x , y )", false),
            ("a notin (x,y)", true),
            ("other notin (x)", true),
            ("a", true),
            ("!a", false),
            ("!other", true),
            ("other", false),
            ("empty=", true),
            ("empty", true),
            ("a=b,zone in (eu-1,eu-2),!other", true),
            ("a=b,zone=eu-2", false),
        ] {
            assert_eq!(selects(selector, &labels), selected, "{selector:?}");
        }
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (selector, at) in [
            ("=b", 1),
            ("a=b,", 5),
            ("a in x", 6),
            ("a in (x", 8),
            ("a in ()", 7),
            ("a b", 3),
            ("a=b c=d", 5),
            ("!", 2),
            ("a=b;c", 4),
        ] {
            let error = Selector::parse(selector).unwrap_err();
            assert_eq!(error.at, at, "{selector:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,64}") {
            let _ = Selector::parse(&text);
        }

        #[test]
        fn what_it_prints_it_reads(text in "[a-c!=,() in]{0,24}") {
            if let Ok(selector) = Selector::parse(&text) {
                prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
            }
        }
    }
}
