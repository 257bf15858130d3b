//! What Kubernetes takes for a label's value.

/// Longest value of a label (kubernetes/apimachinery, `util/validation`).
const LONGEST: usize = 63;

/// Why Kubernetes would refuse this value; none when it takes it. An empty value, which it takes, is none to us: a region
/// without a name is no region.
pub fn refused(value: &str) -> Option<String> {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let is_inner = |c: char| is_end(c) || "-_.".contains(c);
    let length = value.chars().count();
    if value.is_empty() {
        return Some("it is empty".to_owned());
    }
    if length > LONGEST {
        return Some(format!("it has {length} characters, and a label may have {LONGEST}"));
    }
    if let Some(bad) = value.chars().find(|c| !is_inner(*c)) {
        return Some(format!("it holds {bad:?}, and a label may hold letters, digits, '-', '_' and '.'"));
    }
    if !value.starts_with(is_end) || !value.ends_with(is_end) {
        return Some("it does not begin and end with a letter or a digit".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_would_misread_is_a_value_like_any_other() {
        for value in ["no", "010", "1e3", "null", "~x".trim_start_matches('~'), "a", "eu-1.b_c", "0"] {
            assert_eq!(refused(value), None, "{value}");
        }
    }

    #[test]
    fn what_kubernetes_refuses_is_named() {
        for (value, word) in [
            ("", "empty"),
            ("-a", "begin"),
            ("a.", "end"),
            ("a b", "' '"),
            ("z\u{f6}ne", "'\u{f6}'"),
            ("rack/7", "'/'"),
            (&"x".repeat(64), "64"),
        ] {
            assert!(refused(value).is_some_and(|why| why.contains(word)), "{value:?}: {:?}", refused(value));
        }
        assert_eq!(refused(&"x".repeat(63)), None);
    }
}
