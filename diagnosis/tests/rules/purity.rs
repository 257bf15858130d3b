//! Rules depend on facts alone: the crate's sources reach for no clock, file, network, thread or process.

use std::path::Path;

const FORBIDDEN: [&str; 16] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::io",
    "std::sync",
    "SystemTime",
    "Instant",
    "::now(",
    "tokio",
    "async ",
    "static mut",
    "thread_local",
    "rand",
    "unsafe",
];

/// Lines of a source without its unit tests.
fn code(source: &str) -> &str {
    source.split("#[cfg(test)]").next().unwrap_or(source)
}

fn offences(source: &str) -> Vec<String> {
    let lines = code(source).lines().enumerate();
    let lines = lines.filter(|(_, l)| !l.trim_start().starts_with("//"));
    let hits = lines.flat_map(|(n, l)| {
        FORBIDDEN.iter().filter(move |word| l.contains(*word)).map(move |word| format!("{}: {word}", n + 1))
    });
    hits.collect()
}

fn sources(folder: &Path, out: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

#[test]
fn sources_touch_no_clock_file_network_or_thread() {
    let mut all = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    assert!(all.len() > 15, "the sources were found: {all:?}");
    for path in all {
        let found = offences(&std::fs::read_to_string(&path).expect("source"));
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}

#[test]
fn the_search_finds_what_it_looks_for() {
    assert_eq!(offences("let t = std::time::SystemTime::now();\n").len(), 2);
    assert!(offences("// tokio is not used\n#[cfg(test)]\nuse std::fs;\n").is_empty());
}

#[test]
fn the_only_dependencies_are_the_protocol_and_what_is_as_pure() {
    let manifest =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).expect("manifest");
    let section =
        manifest.split("[dependencies]").nth(1).expect("section").split("\n[").next().expect("section");
    let names: Vec<&str> =
        section.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    assert_eq!(names, ["outrider-protocol.workspace = true", "outrider-sync.workspace = true"]);
}
