//! PyYAML, which cloud-init reads with, as the judge of merges and of what lint says about whole documents. Skipped, and
//! said, where it is not installed.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may fail loudly, its helpers as well, and says what it skips"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use outrider_cloud_init::Severity;
use outrider_cloud_init::lint::lint;
use outrider_cloud_init::merge::merge;

/// The rule of merging, once more and in another language: what the merged document must mean.
const JUDGE: &str = r#"
import base64, sys, yaml

def load(word):
    try:
        return yaml.safe_load(base64.b64decode(word).decode())
    except Exception as e:
        return e

def same(a, b):
    return repr(a) == repr(b)

SCRIPTS = ("/usr/local/custom_script/install.sh", "/var/run/install.sh")

def is_script(item):
    words = item.split() if isinstance(item, str) else item if isinstance(item, list) else []
    return any(str(w).strip("'\";") in SCRIPTS for w in words)

def added(mine, theirs, top=True):
    out = dict(mine)
    for key, value in theirs.items():
        if key not in mine:
            out[key] = value
        elif isinstance(value, list) and (isinstance(mine[key], list) or mine[key] is None):
            have = mine[key] or []
            new = [v for v in value if not any(same(v, h) for h in have)]
            at = next((i for i, h in enumerate(have) if top and key == "runcmd" and is_script(h)), len(have))
            out[key] = have[:at] + new + have[at:] if new else mine[key]
        elif isinstance(value, dict) and isinstance(mine[key], dict):
            out[key] = added(mine[key], value, False)
        elif not same(value, mine[key]):
            raise ValueError(key)
    return out

for line in sys.stdin:
    kind, *words = line.split()
    docs = [load(word) for word in words]
    if kind == "lint":
        print("refused" if isinstance(docs[0], Exception) else "read")
        continue
    one, two, merged = docs
    try:
        expected = added(one or {}, two or {})
        ok = sorted(map(repr, expected.items())) == sorted(map(repr, merged.items()))
        print("same" if ok else "differs: %r against %r" % (expected, merged))
    except Exception as e:
        print("error: %r" % (e,))
"#;

fn installed() -> bool {
    let python = Command::new("python3").args(["-c", "import yaml"]).stderr(Stdio::null()).status();
    let there = python.is_ok_and(|status| status.success());
    if !there {
        println!("skipped: python3 with PyYAML is not installed");
    }
    there
}

fn ask(questions: &[String]) -> Vec<String> {
    let mut child = Command::new("python3")
        .args(["-c", JUDGE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut stdin = child.stdin.take().expect("stdin");
    let input = questions.join("\n") + "\n";
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("python3 ends");
    writer.join().expect("writer").expect("written");
    let answers: Vec<String> =
        String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect();
    assert_eq!(answers.len(), questions.len());
    answers
}

/// A fixed sequence of small numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap_or(0)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

/// Sections of a document, in every layout that people use.
const SECTIONS: [&str; 38] = [
    "packages:\n  - docker\n  - apparmor-parser\n",
    "packages:\n- docker   # wanted\n\n# later\n- jq\n",
    "packages: [docker, 'jq', \"a b\"]\n",
    "packages: []\n",
    "packages:\n",
    "packages: ~   # none\n",
    "packages:\n  - [nginx, '1.20']\n  - docker\n",
    "runcmd:\n  - echo hi\n  - sh /usr/local/custom_script/install.sh\n",
    "runcmd:\n  - |\n    one\n    two\n  - [sh, /var/run/install.sh]\n  - after\n",
    "runcmd:\n- - echo\n  - 'a: b'\n- >-\n  folded\n  line\n",
    "runcmd: [[echo, 0644], [touch, \"/x y\"]]\n",
    "runcmd:\n    - \"quoted: \\u00e9\\t\"\n    # a word\n    - 'it''s'\n",
    "write_files:\n  - path: /a\n    content: |\n      line\n\n        deeper\n      end\n    permissions: '0644'\n",
    "write_files:\n- content: |+\n    kept\n\n\n  path: /b\n",
    "write_files:\n  # why\n  - {path: /c, content: 'x: y', permissions: 0600}\n",
    "write_files:\n- path: /d\n  content: >\n    folded text\n    goes on\n\n    here\n- path: /e\n  content:\n",
    "ntp:\n  enabled: yes\n  servers:\n    - a\n",
    "ntp:\n    pools: [p]\n    servers: [b]\n",
    "apt:\n  sources:\n    x:\n      source: deb http://x y z\n",
    "apt:\n  sources:\n    y: {source: 'deb http://y'}\n  preserve_sources_list: on\n",
    "hostname: no   # a name\n",
    "hostname: 'web-1'\n",
    "timezone: 22:22\n",
    "final_message: \"done: $UPTIME\"\n",
    "mounts:\n- [vdb, /data, auto, 'defaults,nofail', '0', '2']\n",
    "bootcmd:\n  - [cloud-init-per, once, x, 'true']\n",
    "users:\n- default\n- name: bob\n  groups: [sudo]\n",
    "ssh_pwauth: off\n",
    "x-number: 1.30\n",
    "x-time: 2026-11-29 10:00:00\n",
    "x-list:\n  -\n    a: 1\n    b: [2,\n      3]\n  - null\n",
    "swap: {filename: /swap, size: 0x10}\n",
    "x-shared: &c [one, two]\nbootcmd: *c\n",
    "runcmd: &r\n  - one\nx-run: *r\n",
    "x-ntp: &n {servers: [m]}\nntp:\n  <<: *n\n  enabled: true\n",
    "<<: [{packages: [m]}, {packages: [n], timezone: UTC}]\n",
    "x-tagged: !!binary YWJj\n",
    "locale: ! 010\n",
];

fn document(dice: &mut Dice) -> String {
    let mut out = "#cloud-config\n".to_owned();
    let mut keys = Vec::new();
    for _ in 0..=dice.roll(5) {
        let section = dice.pick(&SECTIONS);
        let key = section.split(':').next().unwrap_or_default();
        if !keys.contains(&key) {
            keys.push(key);
            out.push_str(dice.pick(&["", "# a comment\n", "\n"]));
            out.push_str(section);
        }
    }
    if dice.roll(6) == 0 {
        out.truncate(out.trim_end().len());
    }
    if dice.roll(4) == 0 { out.replace('\n', "\r\n") } else { out }
}

#[test]
fn merged_documents_mean_what_pyyaml_makes_of_them() {
    if !installed() {
        return;
    }
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let mut asked = Vec::new();
    let (mut questions, mut refused) = (Vec::new(), 0);
    for _ in 0..1_500 {
        let (one, two) = (document(&mut dice), document(&mut dice));
        match merge(&[&one, &two]) {
            Ok(merged) => {
                assert_eq!(merge(&[&merged, &two]).as_ref(), Ok(&merged), "{one}\n---\n{two}");
                let words = [&one, &two, &merged].map(|text| STANDARD.encode(text));
                questions.push(format!("merge {}", words.join(" ")));
                asked.push((one, two, merged));
            }
            Err(refusal) => {
                refused += 1;
                assert!(!refusal.findings.is_empty(), "{one}\n---\n{two}");
            }
        }
    }
    for (answer, (one, two, merged)) in ask(&questions).iter().zip(&asked) {
        assert_eq!(answer, "same", "{one}\n--- and\n{two}\n--- became\n{merged}");
    }
    assert!(asked.len() > 700 && refused > 40, "{} merged, {refused} refused", asked.len());
}

/// Whether a document is YAML at all, PyYAML and lint say alike.
#[test]
fn what_pyyaml_refuses_is_found() {
    if !installed() {
        return;
    }
    // A block indicator at the start of a line and the line ends of YAML 1.1 (U+0085 and its like) are left out: there
    // the parsers differ, on texts that nobody writes.
    let pieces = [
        "a: b",
        "- c",
        "  - d",
        "  e: f: g",
        "'x",
        "\"y\"",
        "[1, 2",
        "]",
        "{k: v}",
        "}",
        "k: |",
        "  - >-",
        "\t",
        "  ",
        "# z",
        "---",
        "%",
        "@q",
        "`r",
        "&s t",
        "*s",
        "!u v",
        "? w",
        ": x",
        "-",
        "key:",
        "runcmd:",
        "  - echo a: b: c",
        "''",
        "\u{1}",
        "é: ü",
        "? ",
        "<<: {m: n}",
        "t: u\t",
        "\tv: w",
        "x:\ty",
        "- \tz",
        "# a\tb",
        "'c\td'",
        "e: [f,\tg]",
        "h: i\tj",
        "  \tk",
        "n: \"o\tp\" # \t",
        "q: 'r'\t",
        "a1: =",
        "- =",
        "=: a2",
        "a3: <<",
        "<<: [1, 2]",
        "<<: *s",
        "<<: [{a4: b}, *s]",
        "a5: !!int abc",
        "- !!float x",
        "- 2026-02-30",
        "a6: 2026-13-45",
        "a7: 2026-01-01 24:00:00",
        "a8: 0b_",
        "- 0x_",
        "a9: [a?b, c]",
        "b1: [\"c\":d, x:y]",
        "b2: [:c]",
        "b3: {d: e?f}",
        "b4: ! 010",
        "b5: !!seq {a: b}",
        "~: b6",
        ": b7",
    ];
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let documents: Vec<String> = (0..5_000)
        .map(|_| {
            let lines: Vec<&str> = (0..=dice.roll(4)).map(|_| dice.pick(&pieces)).collect();
            format!("#cloud-config\n{}\n", lines.join("\n"))
        })
        .collect();
    let questions: Vec<String> =
        documents.iter().map(|text| format!("lint {}", STANDARD.encode(text))).collect();
    let unreadable = ["NotYaml", "ControlCharacter", "AliasesRefused", "NulByte"];
    let (mut alike, mut stricter, mut missed) = (0, Vec::new(), Vec::new());
    for (answer, text) in ask(&questions).iter().zip(&documents) {
        let findings = lint(text.as_bytes());
        let found = findings.iter().any(|f| unreadable.contains(&f.code));
        // What is no mapping is not applied either, read or not.
        let told = findings.iter().any(|f| f.severity == Severity::Error);
        match (answer == "refused", found) {
            (true, false) if !told => missed.push(text),
            (false, true) => stricter.push(text),
            _ => alike += 1,
        }
    }
    println!("{alike} alike, {} that only PyYAML refuses, {} that only we do", missed.len(), stricter.len());
    // The shortest say most.
    for list in [&mut missed, &mut stricter] {
        list.sort_by_key(|text| text.len());
        list.truncate(40);
    }
    assert!(
        missed.is_empty() && stricter.is_empty(),
        "PyYAML refuses, and lint does not say so: {missed:#?}\nlint refuses what PyYAML reads: {stricter:#?}"
    );
}

/// Every tag on every kind of text: what Python makes no value of, lint refuses, and nothing else.
#[test]
fn tagged_and_plain_scalars_that_pyyaml_makes_nothing_of() {
    if !installed() {
        return;
    }
    let tags =
        ["", "null", "bool", "int", "float", "binary", "timestamp", "str", "seq", "map", "omap", "set"];
    let (long, longest) = ("1".repeat(4300), "1".repeat(4301));
    let texts = [
        "",
        "a",
        "yes",
        "'Off'",
        "0",
        "-12",
        "0b1",
        "0b_",
        "0b",
        "0x_",
        "0xfg",
        "0_",
        "08",
        "1_0",
        "' 5 '",
        "1:30",
        "1:x",
        "1.",
        "-.5e+3",
        "1e5",
        ".inf",
        "nan",
        "1.5:2",
        "YWJj",
        "YWI=",
        "YWI",
        "'Y W\tJj'",
        "é",
        "2026-1-2",
        "2026-11-30",
        "2026-11-31",
        "2024-02-29",
        "2023-02-29",
        "1900-02-29",
        "2000-02-29",
        "0000-01-01",
        "2026-00-10",
        "2026-01-01T10:00:00Z",
        "2026-01-01 23:59:60",
        "2026-1-1 1:00:00 +24",
        "2026-1-1 1:00:00 -23:59",
        "2026-1-1 1:00:00+5:61",
        "2026-1-1 1:00:00.5 Z",
        "2026-01-01t1:2:3",
        "=",
        "'='",
        "<<",
        "[]",
        "{}",
        "[a: b]",
        &long,
        &longest,
    ];
    let written = |tag: &&str| if tag.is_empty() { String::new() } else { format!("!!{tag} ") };
    let documents: Vec<String> = tags
        .iter()
        .map(written)
        .flat_map(|tag| texts.map(|text| format!("#cloud-config\nx-a: {tag}{text}\n")))
        // Of an omap's items Python asks more; nobody writes one.
        .filter(|text| !text.contains("!!omap"))
        .collect();
    let questions: Vec<String> =
        documents.iter().map(|text| format!("lint {}", STANDARD.encode(text))).collect();
    for (answer, text) in ask(&questions).iter().zip(&documents) {
        let found = lint(text.as_bytes()).iter().any(|f| f.code == "NotYaml");
        assert_eq!(found, answer == "refused", "{text}");
        assert_eq!(merge(&[text]).is_err(), found, "{text}");
    }
}
