use super::*;

/// Code and line of every finding.
fn found(text: &str) -> Vec<(&'static str, usize)> {
    lint(text.as_bytes()).iter().map(|f| (f.code, f.line)).collect()
}

/// Case TC03, file 1: one bad entry makes cloud-init skip the whole list.
#[test]
fn runcmd_entries() {
    let text = "#cloud-config\nruncmd:\n  - echo \"ok\"\n  - echo Done: installed\n  -\n  - [echo, hi]\n  - 'echo Done: quoted'\n";
    let findings = lint(text.as_bytes());
    assert_eq!(found(text), [("EntryIsMapping", 4), ("EmptyEntry", 5)]);
    assert_eq!(worst(&findings), Severity::Error);
    assert!(findings[0].message.contains("entry 2") && findings[0].message.contains("whole runcmd"));
    assert_eq!(findings[0].cure, "quote it: - 'echo Done: installed'");
    assert!(findings[1].message.contains("entry 3"));
}

/// Case TC03, file 2: a second colon, and the file does not parse at all.
#[test]
fn a_second_colon_breaks_the_file() {
    let text = "#cloud-config\nruncmd:\n  - sed -i 's/^Components: main$/Components: main contrib/' /etc/x\n";
    let findings = lint(text.as_bytes());
    assert_eq!(found(text), [("NotYaml", 3)]);
    assert!(findings[0].message.contains("nothing in it would be applied"));
    assert!(findings[0].cure.contains("- 'sed -i ''s/^Components: main$/"), "{}", findings[0].cure);
}

#[test]
fn further_entries_of_the_kind() {
    assert_eq!(found("#cloud-config\nbootcmd:\n- # later\n- a\n"), [("EmptyEntry", 3)]);
    assert_eq!(found("#cloud-config\nruncmd:\n- echo a:\n"), [("EntryIsMapping", 3)]);
    assert_eq!(found("#cloud-config\nruncmd:\n- [sh, -c, {a: b}]\n"), [("ArgumentNotText", 3)]);
    assert_eq!(found("#cloud-config\nruncmd: echo hi\n"), [("NotAList", 2)]);
    assert_eq!(found("#cloud-config\nruncmd:\n- []\n"), [("EmptyEntry", 3)]);
    assert_eq!(found("#cloud-config\nruncmd:\n- ~\n- null\n"), [("EmptyEntry", 3), ("EmptyEntry", 4)]);
    assert_eq!(found("#cloud-config\nruncmd:\n- \"\"\n- 'a: b'\n- |\n  c: d\n"), []);
    assert_eq!(found("#cloud-config\nruncmd:\n- url: http://x/\n"), [("EntryIsMapping", 3)]);
    assert_eq!(found("#cloud-config\nruncmd:\n- curl http://x:80/\n"), []);
}

#[test]
fn keys_twice_are_refused_with_both_lines() {
    let text = "#cloud-config\npackages: [a]\nruncmd: []\npackages: [b]\nssh:\n  x: 1\n  x: 2\n";
    assert_eq!(found(text), [("DuplicateKey", 4), ("DuplicateKey", 7)]);
    let finding = &lint(text.as_bytes())[0];
    assert!(finding.message.contains("line 2 and on line 4") && finding.message.contains("last one wins"));
}

#[test]
fn wrappers_and_misplaced_keys() {
    assert_eq!(
        found("#cloud-config\n# hello\nuser-data:\n  packages: [a]\n  runcmd: []\n"),
        [("UnknownTopLevelKey", 3)]
    );
    assert_eq!(found("#cloud-config\nautoinstall:\n  runcmd: [a]\n"), [("NestedRuncmd", 2)]);
    assert_eq!(found("#cloud-config\nnetwork:\n  version: 2\n"), [("NetworkInUserData", 2)]);
    let slip = lint(b"#cloud-config\nwrite-files: []\n");
    assert_eq!((slip[0].severity, slip[0].cure.as_str()), (Severity::Warn, "write_files:"));
    assert_eq!(lint(b"#cloud-config\npackage: [a]\n")[0].cure, "packages:");
}

#[test]
fn files() {
    let file = |rest: &str| {
        format!("#cloud-config\nusers: [default, {{name: bob}}]\nwrite_files:\n- path: /a\n{rest}")
    };
    assert_eq!(found(&file("  permissions: \"0644\"\n")), []);
    assert_eq!(found(&file("  permissions: 0644\n")), []);
    assert_eq!(found(&file("  permissions: 644\n")), [("PermissionsNotOctal", 5)]);
    assert_eq!(found(&file("  permissions: '0698'\n")), [("PermissionsNotOctal", 5)]);
    assert_eq!(found(&file("  owner: bob:bob\n")), [("OwnerNotYetThere", 5)]);
    assert_eq!(found(&file("  owner: bob:bob\n  defer: yes\n")), []);
    assert_eq!(found(&file("  owner: root:root\n")), []);
    assert_eq!(found(&file("  encoding: b64\n  content: '%%'\n")), [("ContentNotBase64", 6)]);
    assert_eq!(found(&file("  encoding: gzip+b64\n  content: aGVsbG8=\n")), [("ContentNotGzip", 6)]);
    assert_eq!(found(&file("  content: H4sIAAAA\n")), [("EncodingMissing", 5)]);
    assert_eq!(found("#cloud-config\nwrite_files:\n- content: x\n"), [("FileWithoutPath", 3)]);
}

#[test]
fn commands_that_hang_or_race() {
    let run = |command: &str| found(&format!("#cloud-config\nruncmd:\n- {command}\n"));
    assert_eq!(run("apt-get -y install qemu-guest-agent"), [("PackageManagerInRuncmd", 3)]);
    assert_eq!(run("[env, A=b, /usr/bin/apt, install, x]"), [("PackageManagerInRuncmd", 3)]);
    assert_eq!(run("systemctl start multi-user.target"), [("WaitsForItself", 3)]);
    assert_eq!(run("systemctl start --no-block multi-user.target"), []);
    assert_eq!(run("cloud-init status --wait"), [("WaitsForItself", 3)]);
    assert_eq!(run("systemctl restart outrider-agent"), []);
}

#[test]
fn users_without_default() {
    assert_eq!(found("#cloud-config\nusers:\n- name: bob\n"), [("NoDefaultUser", 3)]);
    assert_eq!(found("#cloud-config\nusers:\n- default\n- name: bob\n"), []);
    assert_eq!(found("#cloud-config\nusers: []\n"), []);
}

#[test]
fn odd_documents_get_an_answer() {
    assert_eq!(found("#cloud-config\n- a\n"), [("NotAMapping", 2)]);
    assert_eq!(found("#cloud-config\n"), []);
    assert_eq!(found("#cloud-config\na: 1\0\n"), [("NulByte", 2)]);
    assert_eq!(lint(b"#cloud-config\nhostname: \xff\n")[0].code, "NotUtf8");
    assert_eq!(found("#cloud-config\na: 1\n---\nb: 2\n").last().unwrap().0, "NotYaml");
    let wide = format!("#cloud-config\nruncmd:\n{}", "- echo a\n".repeat(50_000));
    assert!(found(&wide).is_empty());
}
