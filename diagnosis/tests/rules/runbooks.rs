//! Runbooks say what the registry says, have every section, and are all in the index.
//!
//! Refresh the index: `UPDATE=1 cargo test -p outrider-diagnosis --test rules runbooks`.

use std::fmt::Write;
use std::path::PathBuf;

use outrider_protocol::{REASONS, ReasonInfo, Severity};

const FULL: [&str; 7] = [
    "## What it means",
    "## What you see",
    "## Why it happens",
    "## What to check",
    "## What to do",
    "## What not to do",
    "## When it clears",
];
const GOOD: [&str; 3] = ["## What it means", "## What you see", "## When it changes"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks")
}

fn severities(info: &ReasonInfo) -> String {
    let (low, high) = info.severities;
    if low == high { low.to_string() } else { format!("{low} to {high}") }
}

#[test]
fn every_page_says_what_the_registry_says_and_has_its_sections() {
    for info in REASONS {
        let page = std::fs::read_to_string(folder().join(format!("{}.md", info.code))).expect(info.code);
        let head = format!("# {}\n\n{}\n\n- Condition: ", info.code, info.sentence);
        assert!(page.starts_with(&head), "{} begins otherwise than {head:?}", info.code);
        let severity = format!("\n- Severity: {}\n", severities(info));
        assert!(page.contains(&severity), "{} lacks {severity:?}", info.code);
        let wanted: &[&str] = if info.severities.1 == Severity::Ok { &GOOD } else { &FULL };
        let sections: Vec<&str> = page.lines().filter(|l| l.starts_with("## ")).collect();
        assert_eq!(sections, wanted, "{}", info.code);
        // A section without words is none.
        for body in page.split("\n## ").skip(1) {
            assert!(body.trim().lines().count() > 1, "{}: {body:?} is empty", info.code);
        }
    }
}

#[test]
fn links_lead_to_pages() {
    for info in REASONS {
        let page = std::fs::read_to_string(folder().join(format!("{}.md", info.code))).expect(info.code);
        for link in page.split("](").skip(1) {
            let target = link.split(')').next().unwrap_or_default();
            assert!(folder().join(target).is_file(), "{} links to {target}", info.code);
        }
    }
}

#[test]
fn the_index_has_every_page() {
    let mut index = String::from(
        "# Runbooks\n\nOne page a reason: what it means, what to check, what to do and what to leave alone, and when it \
         clears.\nThe reason stands in every condition, in the journal (with a `MESSAGE_ID`), and in `outrider describe`.\n\n\
         | reason | severity | in a sentence |\n|---|---|---|\n",
    );
    for info in REASONS {
        let _ = writeln!(index, "| [{0}]({0}.md) | {1} | {2} |", info.code, severities(info), info.sentence);
    }
    let path = folder().join("README.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &index).expect("index");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, index, "refresh: UPDATE=1 cargo test -p outrider-diagnosis --test rules runbooks");
}
