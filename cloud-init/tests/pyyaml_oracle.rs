//! PyYAML, which cloud-init reads with, as the oracle for what plain scalars mean. Skipped, and said, where it is not
//! installed.

use std::io::Write as _;
use std::process::{Command, Stdio};

use outrider_cloud_init::scalar::{Meaning, meaning};

const RESOLVE: &str = r#"
import sys, yaml
r = yaml.SafeLoader("")
for line in sys.stdin.read().split("\n"):
    tag = r.resolve(yaml.ScalarNode, line, (True, False)).rsplit(":", 1)[1]
    value = str(r.construct_yaml_int(yaml.ScalarNode("", line))) if tag == "int" else ""
    print(tag, value)
"#;

fn word(meaning: &Meaning) -> (&'static str, String) {
    match meaning {
        Meaning::Null => ("null", String::new()),
        Meaning::Bool(_) => ("bool", String::new()),
        Meaning::Int(n) => ("int", n.to_string()),
        Meaning::Float => ("float", String::new()),
        Meaning::Timestamp => ("timestamp", String::new()),
        Meaning::Special => ("special", String::new()),
        Meaning::Text => ("str", String::new()),
    }
}

/// A fixed sequence of short texts over the characters that decide.
fn texts() -> Vec<String> {
    let parts = [
        "0",
        "1",
        "7",
        "9",
        "12",
        "59",
        "60",
        "_",
        ":",
        ".",
        "-",
        "+",
        "e",
        "E",
        "x",
        "b",
        "o",
        "yes",
        "No",
        "on",
        "true",
        "null",
        "~",
        "inf",
        "NaN",
        "2026",
        "-01-",
        "T10:00:00",
        " ",
        "Z",
        "=",
        "<<",
        "a",
        "f",
    ];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % n as u64).unwrap_or(0)
    };
    (0..60_000)
        .map(|_| (0..=next(5)).map(|_| parts[next(parts.len())]).collect::<String>())
        // Blanks at the ends are never part of a plain scalar.
        .filter(|text| text.trim() == text)
        .collect()
}

#[test]
fn plain_scalars_mean_what_pyyaml_says() {
    let python = Command::new("python3").args(["-c", "import yaml"]).stderr(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        println!("skipped: python3 with PyYAML is not installed");
        return;
    }
    let texts = texts();
    let mut child = Command::new("python3")
        .args(["-c", RESOLVE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut stdin = child.stdin.take().expect("stdin");
    let input = texts.join("\n");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("python3 ends");
    writer.join().expect("writer").expect("written");
    let answers = String::from_utf8(output.stdout).expect("text");
    let mut compared = 0;
    for (text, answer) in texts.iter().zip(answers.lines()) {
        let (tag, value) = answer.split_once(' ').expect("two words");
        let ours = meaning(text);
        let (our_tag, our_value) = word(&ours);
        let tag = if matches!(tag, "merge" | "value") { "special" } else { tag };
        let huge = matches!(ours, Meaning::Int(n) if n == i128::MAX || n == -i128::MAX);
        assert_eq!(our_tag, tag, "{text:?}");
        assert!(our_value == value || huge, "{text:?}: {our_value} against {value}");
        compared += 1;
    }
    assert_eq!(compared, texts.len());
}
