use super::*;

fn ours() -> Additions {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    Additions {
        packages: words(&["qemu-guest-agent"]),
        write_files: vec![File {
            path: "/etc/outrider/token".to_owned(),
            permissions: "0600".to_owned(),
            content: "OR1abc::id:secret\n".to_owned(),
        }],
        runcmd: vec![words(&["systemctl", "start", "--no-block", "outrider-agent.service"])],
    }
}

fn merged(text: &str) -> String {
    let once = merge(&[text], &ours()).unwrap_or_else(|f| panic!("{f:?}"));
    assert_eq!(merge(&[&once], &ours()).as_ref(), Ok(&once), "merging its own output changes nothing");
    assert_eq!(lint(once.as_bytes()).iter().filter(|f| f.severity == Severity::Error).count(), 0, "{once}");
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
        ] {
            let run = items(&merged(&text), "runcmd");
            assert!(run.last().unwrap().contains("install.sh"), "{run:?}");
        }
    }
}

#[test]
fn what_is_not_safe_is_refused_with_its_reason() {
    let code = |text: &str| merge(&[text], &ours()).unwrap_err()[0].code;
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
    let out = merge(&[one, two], &ours()).unwrap();
    assert_eq!(items(&out, "packages"), ["\"a\"", "\"b\"", "\"qemu-guest-agent\""]);
    let root = yaml::parse(&out).unwrap().unwrap();
    assert_eq!(canonical(root.get("ssh_pwauth").unwrap()), "false");
    assert_eq!(canonical(root.get("version").unwrap()), "\"1.30\"");
    assert_eq!(merge(&[&out, two], &ours()).as_ref(), Ok(&out));
    let clash = merge(&[one, "#cloud-config\nhostname: y\n"], &ours()).unwrap_err();
    assert_eq!((clash[0].code, clash[0].line), ("SetTwice", 3));
}
