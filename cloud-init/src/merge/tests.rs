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
    assert_eq!(code("#cloud-config\npackages: &p [a]\nx-p: *p\n"), "FlowList");
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
    assert_eq!((clash.file, clash.findings[0].code, clash.findings[0].line), (1, "SetTwice", 3));
    assert!(clash.findings[0].message.contains("hostname is x on line 3 and y"), "{clash:?}");
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
    assert!(clash.findings[0].message.starts_with("ntp.enabled is true on line 3"), "{clash:?}");
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
        finding.message.contains("/etc/outrider/token on line") && !finding.message.contains("secret"),
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
