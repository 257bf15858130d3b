use super::*;
use crate::Severity;
use crate::lint::lint;

const OURS: &str = "#cloud-config\npackages: [qemu-guest-agent]\nwrite_files:\n  # the agent's own\n  - path: /etc/outrider/token\n    permissions: '0600'\n    content: |\n      OR1abc::id:secret\nruncmd:\n  - [systemctl, start, --no-block, outrider-agent.service]\n";

fn merged(text: &str) -> String {
    let once = merge(&[text, OURS]).unwrap_or_else(|f| panic!("{f:?}"));
    assert_eq!(merge(&[&once, OURS]).as_ref(), Ok(&once), "merging its own output changes nothing");
    assert_eq!(merge(&[&once]).as_ref(), Ok(&once), "reading it alone changes nothing");
    let before: Vec<_> = lint(text.as_bytes()).iter().map(|f| f.code).collect();
    let errors = |f: &&Finding| f.severity == Severity::Error && !before.contains(&f.code);
    assert_eq!(lint(once.as_bytes()).iter().find(errors), None, "{once}");
    once
}

fn items(text: &str, key: &str) -> Vec<String> {
    let root = yaml::parse(text).unwrap().unwrap();
    root.get(key).unwrap().items().unwrap().iter().map(canonical).collect()
}

const TC01: &str = r#"#cloud-config
packages:
  - docker
  - apparmor-parser
runcmd:
  - systemctl stop ufw.service
  - sh /usr/local/custom_script/install.sh
write_files:
  - path: /usr/local/custom_script/install.sh
    encoding: gzip+b64
    content: H4sIAAAA
    permissions: "0644"
"#;

/// Case TC01.
#[test]
fn merge_into_existing_userdata() {
    let out = merged(TC01);
    assert!(out.starts_with("#cloud-config\n"));
    assert_eq!(items(&out, "packages"), ["\"docker\"", "\"apparmor-parser\"", "\"qemu-guest-agent\""]);
    let run = items(&out, "runcmd");
    assert_eq!(run.len(), 3);
    assert!(run[0].contains("ufw") && run[1].contains("--no-block") && run[2].contains("install.sh"));
    assert!(out.contains("    content: H4sIAAAA\n    permissions: \"0644\"\n"));
    let listed = TC01.replace("  - docker\n", "  - docker\n  - qemu-guest-agent\n");
    assert_eq!(items(&merged(&listed), "packages").len(), 3);
    for line in TC01.lines() {
        assert!(out.lines().any(|l| l == line), "{line:?} is lost");
    }
}

#[test]
fn everything_else_stays_as_it_was_written() {
    let text = "#cloud-config\n# who: ops\nhostname: no   # a name, really\nmode: 0644\n\npackages:   # ours\n- 'a'   # first\n\n# about runcmd\nruncmd:\n    - |\n      echo a\n\n      echo b\n    # last words\n\nntp: {enabled: yes}\n";
    let out = merged(text);
    let mut rest = out.lines();
    for line in text.lines() {
        assert!(rest.any(|l| l == line), "{line:?} is lost or out of order in\n{out}");
    }
    assert_eq!(items(&out, "runcmd").len(), 2);
}

#[test]
fn layouts_of_lists() {
    for text in [
        "#cloud-config\npackages: [a, 'b c']\nruncmd: []\n",
        "#cloud-config\npackages: [a, b]  # why\nhostname: x\n",
        "#cloud-config\npackages:\nhostname: x\n",
        "#cloud-config\npackages: null\nruncmd: ~   # later\n",
        "#cloud-config\npackages:\n- a",
        "#cloud-config\nruncmd:\n-\n  - echo\n  - a\n",
        "#cloud-config\nruncmd:\n- - echo\n  - a\n",
        "#cloud-config\nwrite_files:\n- path: /a\n  content: |+\n    x\n\n\nhostname: y\n",
        "#cloud-config\nwrite_files:\n- path: /a\n  content:\nhostname: y\n",
        "#cloud-config\r\npackages:\r\n- a\r\nruncmd:\r\n- b\r\n",
        "#cloud-config\n",
        "#cloud-config",
        "",
        "\u{feff}#cloud-config\npackages: [a]\n",
        "\n\n#Cloud-Config\npackages: [a]\n",
    ] {
        let out = merged(text);
        assert!(out.starts_with("#cloud-config"), "{out}");
        assert!(items(&out, "packages").contains(&"\"qemu-guest-agent\"".to_owned()), "{out}");
        if text.contains("\r\n") {
            assert!(!out.replace("\r\n", "").contains('\n'), "{out:?}");
        }
        if text.contains("|+") {
            let root = yaml::parse(&out).unwrap().unwrap();
            let file = &root.get("write_files").unwrap().items().unwrap()[0];
            assert_eq!(file.get("content").unwrap().text(), Some("x\n\n\n"), "{out}");
        }
    }
}

#[test]
fn ranchers_script_stays_last_in_every_spelling() {
    for entry in
        ["sh /var/run/install.sh", "[sh, /var/run/install.sh]", "'sh /usr/local/custom_script/install.sh'"]
    {
        for text in [
            format!("#cloud-config\nruncmd:\n- {entry}\n"),
            format!("#cloud-config\nruncmd:\n- a\n# Rancher's\n- {entry}   # last\n\n"),
            format!("#cloud-config\nruncmd: [a, {entry}]\n"),
            format!("#cloud-config\nruncmd:\n  - |\n    a\n    b\n  - {entry}\n"),
            format!("#cloud-config\nruncmd:\n  - >\n    a\n\n  # c\n  - {entry}\n"),
            format!("#cloud-config\nruncmd:\n- - a\n  - |\n    b\n- {entry}\nhostname: x\n"),
        ] {
            let run = items(&merged(&text), "runcmd");
            assert!(run.last().unwrap().contains("install.sh"), "{run:?}");
        }
    }
}

#[test]
fn what_is_not_safe_is_refused_with_its_reason() {
    let code = |text: &str| merge(&[text, OURS]).unwrap_err().findings[0].code;
    assert_eq!(code("## template: jinja\n#cloud-config\npackages: [{{ a }}]\n"), "JinjaTemplate");
    assert_eq!(code("#!/bin/sh\n"), "NotACloudConfig");
    assert_eq!(code("packages: [a]\n"), "HeaderMissing");
    assert_eq!(code("#cloud-config\npackages: [a]\npackages: [b]\n"), "DuplicateKey");
    assert_eq!(code("#cloud-config\nruncmd:\n- a: b\n"), "EntryIsMapping");
    assert_eq!(code("#cloud-config\n{packages: [a]}\n"), "FlowDocument");
    assert_eq!(code("#cloud-config\npackages: &p [a]\n"), "FlowList");
    assert_eq!(code("#cloud-config\nhostname: a\n...\n"), "DocumentEnd");
    assert_eq!(code("#cloud-config\npackages: text\n"), "NotAList");
}

#[test]
fn several_files_become_one() {
    let one = "#cloud-config\npackages: [a]\nhostname: x\nmode: 0644\n";
    let two = "#cloud-config\npackages: [a, b]\nhostname: x\nruncmd:\n- [sh, -c, \"echo 'a: b'\"]\nssh_pwauth: no\nversion: \"1.30\"\n";
    let out = merge(&[one, two, OURS]).unwrap();
    assert_eq!(items(&out, "packages"), ["\"a\"", "\"b\"", "\"qemu-guest-agent\""]);
    let root = yaml::parse(&out).unwrap().unwrap();
    assert_eq!(canonical(root.get("ssh_pwauth").unwrap()), "false");
    assert_eq!(canonical(root.get("version").unwrap()), "\"1.30\"");
    assert_eq!(merge(&[&out, two, OURS]).as_ref(), Ok(&out));
    let clash = merge(&[one, "#cloud-config\nhostname: y\n"]).unwrap_err();
    assert_eq!((clash.file, clash.findings[0].code, clash.findings[0].line), (0, "SetTwice", 3));
    assert!(clash.findings[0].message.contains("hostname is a value here and a value in"), "{clash:?}");
}

#[test]
fn what_is_added_keeps_its_layout() {
    let ours = "#cloud-config\n# about ntp\nntp:\n    enabled: yes   # always\n    servers: [a,\n      b]\nwrite_files:\n    # a script\n    - path: /x\n      content: |\n          #!/bin/sh\n\n            deeper\n          echo 'a: b'   # not a comment of ours\n      permissions: '0755'\n    - {path: /y, content: \"z\\n\"}\nruncmd:\n    - |\n        one\n\n        two\n    - >-\n        folded\n        line\n    -\n        - far\n        - away\n";
    let out = merge(&["#cloud-config\nwrite_files:\n- path: /a\nruncmd: [a]\n", ours]).unwrap();
    assert!(
        out.contains("# about ntp\nntp:\n    enabled: yes   # always\n    servers: [a,\n      b]\n"),
        "{out}"
    );
    assert!(
        out.contains("# a script\n- path: /x\n  content: |\n      #!/bin/sh\n\n        deeper\n"),
        "{out}"
    );
    assert!(out.contains("  - |\n      one\n\n      two\n  - >-\n"), "{out}");
    assert!(out.contains("- [far, away]\n"), "{out}");
    let meant = |text: &str, key: &str| canonical(yaml::parse(text).unwrap().unwrap().get(key).unwrap());
    assert_eq!(meant(&out, "ntp"), meant(ours, "ntp"));
    assert!(
        meant(&out, "write_files").ends_with(meant(ours, "write_files").trim_start_matches('[')),
        "{out}"
    );
    assert_eq!(merge(&[&out, ours]).as_ref(), Ok(&out));
}

#[test]
fn mappings_are_added_key_by_key() {
    let one = "#cloud-config\nntp:\n  enabled: true   # yes\n  servers: [a]\n\n# next\napt:\n  sources:\n    x: {source: deb x}\nhostname: h\n";
    let two = "#cloud-config\nntp:\n  servers: [b]\n  pools: [c]\napt:\n  sources:\n    y:\n      source: deb y\n  preserve_sources_list: true\n";
    let out = merge(&[one, two]).unwrap();
    let root = yaml::parse(&out).unwrap().unwrap();
    let ntp = root.get("ntp").unwrap();
    assert_eq!(canonical(ntp.get("servers").unwrap()), "[\"a\",\"b\"]");
    assert_eq!(canonical(ntp.get("pools").unwrap()), "[\"c\"]");
    let sources = root.get("apt").unwrap().get("sources").unwrap();
    assert_eq!(canonical(sources), "{\"x\":{\"source\":\"deb x\"},\"y\":{\"source\":\"deb y\"}}");
    assert!(out.contains("  enabled: true   # yes\n") && out.contains("\n\n# next\n"), "{out}");
    assert_eq!(merge(&[&out, two]).as_ref(), Ok(&out));
    let clash = merge(&[one, "#cloud-config\nntp: {enabled: false}\n"]).unwrap_err();
    assert!(clash.findings[0].message.starts_with("ntp.enabled is true here and false in"), "{clash:?}");
    let braces = merge(&["#cloud-config\nntp: {enabled: true}\n", two]).unwrap_err();
    assert_eq!(braces.findings[0].code, "FlowDocument");
}

#[test]
fn one_file_is_not_written_twice() {
    let other = OURS.replace("id:secret", "id:other");
    let clash = merge(&[&merged("#cloud-config\n"), &other]).unwrap_err();
    let finding = &clash.findings[0];
    assert_eq!(finding.code, "SetTwice");
    assert!(
        finding.message.contains("/etc/outrider/token") && !finding.message.contains("secret"),
        "{clash:?}"
    );
    // A command that is run twice on purpose stays twice.
    let twice = "#cloud-config\nruncmd: [a, b, a]\n";
    let out = merge(&["#cloud-config\nruncmd: [c]\n", twice]).unwrap();
    assert_eq!(items(&out, "runcmd"), ["\"c\"", "\"a\"", "\"b\"", "\"a\""]);
    assert_eq!(merge(&[&out, twice]).as_ref(), Ok(&out));
}

#[test]
fn aliases_of_an_added_file_are_written_out() {
    let two = "#cloud-config\nx-m: &m {permissions: '0600'}\nwrite_files:\n- {path: /b, <<: *m}\nruncmd:\n- &c [echo, 0644]\n- *c\n";
    let out = merge(&["#cloud-config\nwrite_files:\n- path: /a\n", two]).unwrap();
    assert_eq!(items(&out, "write_files")[1], "{\"path\":\"/b\",\"permissions\":\"0600\"}");
    assert_eq!(items(&out, "runcmd"), ["[\"echo\",420]", "[\"echo\",420]"]);
    assert!(out.contains("0644") && !out.contains('*'), "{out}");
    // Those of the file that is added to stay as they are.
    let kept = merge(&[two, "#cloud-config\nruncmd: [z]\n"]).unwrap();
    assert!(kept.contains("- *c\n- z\n"), "{kept}");
}

#[test]
fn a_multipart_becomes_one_document() {
    let part = |kind: &str, body: &str| format!("--b\nContent-Type: {kind}\n\n{body}\n");
    let document = |parts: &[String]| {
        format!(
            "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n{}--b--\n",
            parts.concat()
        )
    };
    let text = document(&[
        part("text/cloud-config", "#cloud-config\npackages: [a]   # one\nruncmd: [x]\n"),
        part("text/x-shellscript", "#!/bin/sh\n\necho 'hi: there'\n"),
        part("text/cloud-config", "packages: [b]\n"),
    ]);
    let out = merged(&text);
    assert_eq!(items(&out, "packages"), ["\"a\"", "\"b\"", "\"qemu-guest-agent\""]);
    let script = &items(&out, "write_files")[0];
    assert!(
        script.contains("/var/lib/cloud/scripts/per-instance/part-002") && script.contains("hi: there"),
        "{out}"
    );
    let template = document(&[part("text/jinja2", "## template: jinja\n#cloud-config\na: {{ b }}\n")]);
    let refused = merge(&[&template, OURS]).unwrap_err();
    assert_eq!((refused.findings[0].code, refused.findings[0].line), ("JinjaTemplate", 7));
    let bad = document(&[part("text/cloud-config", "#cloud-config\nruncmd:\n- a: b\n")]);
    assert_eq!(merge(&[&bad]).unwrap_err().findings[0].line, 9);
}

/// Whatever a refusal is about, no value is in it.
#[test]
fn no_refusal_shows_a_value() {
    let sections = [
        ("password: SecretA1x\n", "password: [SecretA2x]\n"),
        ("password: 471108150\n", "password: 471108151\n"),
        ("rancherd: {token: SecretB1x}\n", "rancherd: {token: SecretB2x}\n"),
        ("chpasswd:\n  list: root:SecretC1x\n", "chpasswd: {list: [root:SecretC2x]}\n"),
        ("runcmd: SecretD1x\n", "runcmd: [SecretD2x]\n"),
        ("x-any: [SecretE1x]\n", "x-any: {SecretE2x: SecretE3x}\n"),
        ("users: [{name: a, passwd: SecretF1x}]\n", "users: [{name: a, passwd: SecretF2x}]\n"),
        ("apt: {sources: {a: {key: SecretG1x}}}\n", "apt: {sources: {a: {key: SecretG2x}}}\n"),
        ("ssh_pwauth: SecretH1x\n", "ssh_pwauth: true\n"),
        ("x: &x {password: SecretI1x}\n<<: *x\n", "password: SecretI2x\n"),
    ];
    for (one, two) in sections {
        for (one, two) in [(one, two), (two, one)] {
            let refusal =
                merge(&[&format!("#cloud-config\n{one}"), &format!("#cloud-config\n{two}")]).unwrap_err();
            let said = format!("{refusal:?}");
            assert!(!said.contains("Secret") && !said.contains("4711"), "{said}");
        }
    }
    let shown =
        merge(&["#cloud-config\nssh_pwauth: true\n", "#cloud-config\nssh_pwauth: false\n"]).unwrap_err();
    assert_eq!(shown.findings[0].message, "ssh_pwauth is a value here and a value in the file that is added");
}

#[test]
fn what_comes_in_by_a_merge_key_is_not_overridden() {
    let refused = |text: &str| {
        let refusal = merge(&[&format!("#cloud-config\n{text}"), OURS]).unwrap_err();
        (refusal.file, refusal.findings[0].code, refusal.findings[0].line)
    };
    let script = "sh /var/run/install.sh";
    assert_eq!(refused(&format!("x-a: &a\n  runcmd: [{script}]\n<<: *a\n")), (0, "MergeKey", 4));
    assert_eq!(
        refused(&format!("x-a: &a {{runcmd: [{script}]}}\nx-b: &b {{packages: [z]}}\n<<: [*a, *b]\n")),
        (0, "MergeKey", 4)
    );
    assert_eq!(refused(&format!("<<: {{runcmd: [{script}]}}\n")), (0, "MergeKey", 2));
    // What it does not bring may be added, and a key of its own beside it wins already.
    for text in ["x-a: &a {hostname: b}\n<<: *a\n", "x-a: &a {runcmd: [b]}\n<<: *a\nruncmd: [c]\n"] {
        let out = merged(&format!("#cloud-config\n{text}"));
        assert!(out.contains("<<: *a") && items(&out, "packages").len() == 1, "{out}");
    }
    let nested = merge(&[
        "#cloud-config\nx-a: &a {servers: [a]}\nntp:\n  <<: *a\n  enabled: true\n",
        "#cloud-config\nntp: {servers: [b]}\n",
    ]);
    assert_eq!(nested.unwrap_err().findings[0].code, "MergeKey");
}

#[test]
fn a_list_in_two_places_is_not_added_to() {
    for text in [
        "runcmd: &c [a]\nbootcmd: *c\n",
        "runcmd: &c\n  - a\nbootcmd: *c\n",
        "bootcmd: &c\n  - a\nruncmd: *c\n",
        "x-a: &c [a]\nruncmd: *c\n",
        "packages: &c\n- a\nx-b: {d: [*c]}\n",
    ] {
        let refusal = merge(&[&format!("#cloud-config\n{text}"), OURS]).unwrap_err();
        assert_eq!((refusal.file, refusal.findings[0].code), (0, "SharedByAlias"), "{text}");
        assert!(refusal.findings[0].line > 1);
    }
    for (one, two) in [
        ("ntp: &n\n  servers: [a]\nx-n: *n\n", "ntp: {pools: [b]}\n"),
        ("x-n: &n {servers: [a]}\nntp: *n\n", "ntp: {pools: [b]}\n"),
        ("ntp: &n\n  servers: [a]\nx-n: {<<: *n}\n", "ntp: {servers: [b]}\n"),
    ] {
        let refusal =
            merge(&[&format!("#cloud-config\n{one}"), &format!("#cloud-config\n{two}")]).unwrap_err();
        assert_eq!(refusal.findings[0].code, "SharedByAlias", "{one}");
    }
    // An anchor that nobody names ties nothing, and what is there already is not added.
    merged("#cloud-config\nruncmd: &c\n  - a\n");
    let same = "#cloud-config\nx-a: &c [a]\npackages: *c\n";
    assert_eq!(merge(&[same, "#cloud-config\npackages: [a]\n"]).as_deref(), Ok(same));
}

#[test]
fn a_refusal_is_said_of_the_file_it_is_about() {
    let host = |name: &str| format!("#cloud-config\nhostname: {name}\n");
    let place = |files: &[&str]| {
        let refusal = merge(files).unwrap_err();
        (refusal.file, refusal.findings[0].line)
    };
    assert_eq!(place(&["#cloud-config\na: b\nhostname: x\n", &host("y")]), (0, 3));
    assert_eq!(place(&["\n\n#cloud-config\nhostname: x\n", &host("y")]), (0, 4));
    assert_eq!(place(&[&host("x"), &host("x"), &host("y")]), (0, 2));
    assert_eq!(place(&[&host("x"), "#cloud-config\na: b: c\n"]), (1, 2));
    let several = merge(&["#cloud-config\na: b\n", &host("x"), &host("y")]).unwrap_err();
    assert_eq!((several.file, several.findings[0].line), (2, 0));
    assert!(
        several.findings[0].message.starts_with("in what was merged before it, hostname is"),
        "{several:?}"
    );
}

/// A block that the end of the file ends has no line end in its value, and gets none.
#[test]
fn a_block_at_the_end_keeps_its_value() {
    for (text, kept) in [
        ("write_files:\n- path: /a\n  content: |\n    hello", "content: |-\n    hello\n"),
        ("write_files:\n- path: /a\n  content: |+\n    hello", "content: |-\n    hello\n"),
        ("write_files:\n- path: /a\n  content: >2\n      hello", "content: >2-\n      hello\n"),
        ("write_files:\n- path: /a\n  content: |-\n    hello", "content: |-\n    hello\n"),
        ("write_files:\n- path: /a\n  content: 'a |'", "content: 'a |'\n"),
        ("write_files:\n- path: /a\n  content: |\n    hello\n", "content: |\n    hello\n"),
    ] {
        assert!(merged(&format!("#cloud-config\n{text}")).contains(kept), "{text}");
    }
}

#[test]
fn ranchers_script_is_what_runs_it() {
    let runs = |entry: &str| {
        let root = yaml::parse(&format!("- {entry}\n")).unwrap().unwrap();
        is_rancher_script(&root.items().unwrap()[0])
    };
    for entry in [
        "sh /var/run/install.sh",
        "sh -x /var/run/install.sh",
        "/usr/local/custom_script/install.sh",
        "'sudo bash /var/run/install.sh; true'",
        "[sh, -c, 'sh /var/run/install.sh']",
        "[sh, -c, 'chmod +x /var/run/install.sh && exec /var/run/install.sh']",
        "timeout 600 sh /var/run/install.sh",
        ". /var/run/install.sh",
    ] {
        assert!(runs(entry), "{entry}");
    }
    for entry in [
        "echo see /var/run/install.sh for more",
        "chmod +x /var/run/install.sh",
        "[echo, /var/run/install.sh]",
        "[sh, -c, 'echo sh; cat /var/run/install.sh']",
        "sh /opt/var/run/install.sh",
    ] {
        assert!(!runs(entry), "{entry}");
    }
}
