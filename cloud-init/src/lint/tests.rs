mod packed;
mod secrecy;
mod waiting;

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
    let text = "#cloud-config\npackages: [a]\nruncmd: []\npackages: [b]\nssh:\n  emit_keys_to_console: true\n  emit_keys_to_console: false\n";
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
    assert_eq!((slip[0].severity, slip[0].cure.as_str()), (Severity::Error, "write_files:"));
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
    let secret = Context { field: Some(Field::Secret), ..Context::default() };
    assert_eq!(lint_for(wide.as_bytes(), &secret), []);
    assert_eq!(found(&wide), [("TooLargeForVmSpec", 0)]);
}

fn codes_for(text: &str, context: &Context) -> Vec<(&'static str, Severity)> {
    lint_for(text.as_bytes(), context).iter().map(|f| (f.code, f.severity)).collect()
}

fn on(platform: Platform) -> Context {
    Context { platform: Some(platform), ..Context::default() }
}

fn with(version: &str) -> Context {
    Context { version: Some(version.parse().unwrap()), ..Context::default() }
}

/// Case TC04 as lint tells it, and the limits of other platforms.
#[test]
fn sizes_by_platform_and_field() {
    use Severity::{Error, Info, Warn};
    let sized = |bytes: usize| format!("#cloud-config\n#{}\n", "x".repeat(bytes - 16));
    let agent = |bytes: usize| {
        let head =
            "#cloud-config\npackages: [qemu-guest-agent]\nruncmd:\n- systemctl start qemu-guest-agent\n#";
        format!("{head}{}\n", "x".repeat(bytes - head.len() - 1))
    };
    assert_eq!(sized(2048).len(), 2048);
    for platform in [Platform::Harvester, Platform::Kubevirt] {
        assert_eq!(codes_for(&agent(2048), &on(platform)), []);
        assert_eq!(codes_for(&agent(2049), &on(platform)), [("TooLargeForVmSpec", Error)]);
        let secret = Context { field: Some(Field::Secret), ..on(platform) };
        assert_eq!(codes_for(&agent(5000), &secret), []);
    }
    assert_eq!(codes_for(&agent(5000), &on(Platform::RancherMachine)), [("MovedToSecret", Info)]);
    assert_eq!(codes_for(&sized(2049), &Context::default()), [("TooLargeForVmSpec", Warn)]);
    for (platform, bytes) in [
        (Platform::Aws, 16_384),
        (Platform::Azure, 65_535),
        (Platform::Gce, 262_144),
        (Platform::Openstack, 49_149),
        (Platform::Digitalocean, 65_536),
        (Platform::Hetzner, 32_768),
    ] {
        assert_eq!(codes_for(&sized(bytes), &on(platform)), [], "{platform:?}");
        assert_eq!(codes_for(&sized(bytes + 1), &on(platform)), [("TooLarge", Error)], "{platform:?}");
    }
    assert_eq!(codes_for(&sized(1_000_000), &on(Platform::Nocloud)), []);
    let plain = Context { field: Some(Field::Plain), ..Context::default() };
    assert_eq!(codes_for(&sized(2049), &plain), [("TooLargeForVmSpec", Error)]);
    let umlauts = format!("#cloud-config\n#{}\n", "é".repeat(1017));
    assert_eq!((umlauts.chars().count(), umlauts.len()), (1033, 2050));
    assert_eq!(codes_for(&umlauts, &plain), [("TooLargeForVmSpec", Error)]);
}

#[test]
fn what_a_base64_field_holds() {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let base64 = Context { field: Some(Field::Base64), ..Context::default() };
    let sized = |bytes: usize| format!("#cloud-config\n#{}\n", "x".repeat(bytes - 16));
    assert_eq!(encode(&sized(2048)).len(), encode(&sized(2049)).len());
    assert_eq!(codes_for(&encode(&sized(2048)), &base64), []);
    assert_eq!(codes_for(&encode(&sized(2049)), &base64), [("TooLargeForVmSpec", Severity::Error)]);
    let twice = encode(&encode("#cloud-config\npackages: [a]\n"));
    assert_eq!(codes_for(&twice, &base64), [("EncodedTwice", Severity::Error)]);
    assert_eq!(codes_for("#cloud-config\n", &base64), [("NotBase64", Severity::Error)]);
    assert_eq!(codes_for(&encode("#cloud-config\nruncmd: [{a: b}]\n"), &base64)[0].0, "EntryIsMapping");
}

/// B28: what YAML 1.1 makes of plain words where text is wanted.
#[test]
fn words_that_are_misread() {
    for (line, cure) in [
        ("hostname: no", "'no'"),
        ("hostname: 010", "'010'"),
        ("hostname: 1.30", "'1.30'"),
        ("password: 0123", "put it into single quotes"),
        ("timezone: 22:22", "'22:22'"),
        ("final_message: off", "'off'"),
        ("fqdn: 1_000", "'1_000'"),
    ] {
        let findings = lint(format!("#cloud-config\n{line}\n").as_bytes());
        let finding =
            findings.iter().find(|f| f.code == "Misread").unwrap_or_else(|| panic!("{line}: {findings:?}"));
        assert_eq!(
            (finding.severity, finding.cure.as_str(), finding.line),
            (Severity::Error, cure, 2),
            "{line}"
        );
    }
    for line in [
        "hostname: 'no'",
        "hostname: n1",
        "timezone: Europe/Berlin",
        "package_update: yes",
        "packages: [[nginx, '1.20']]",
    ] {
        assert_eq!(found(&format!("#cloud-config\n{line}\n")), [], "{line}");
    }
    assert_eq!(found("#cloud-config\npackages: [[nginx, 1.20]]\n"), [("Misread", 2)]);
    assert_eq!(found("#cloud-config\npackage_update: y\n"), [("Misread", 2)]);
    assert_eq!(found("#cloud-config\npackage_update: 'yes'\n"), [("WrongType", 2)]);
    assert_eq!(
        found("#cloud-config\nntp: [a]\nwrite_files: {path: /a}\n"),
        [("WrongType", 2), ("NotAList", 3)]
    );
    let run = |entry: &str| found(&format!("#cloud-config\nruncmd:\n- {entry}\n"));
    assert_eq!(run("[chmod, 0644, /x]"), [("ArgumentMisread", 3)]);
    assert_eq!(run("[git, config, x.y, yes]"), [("ArgumentMisread", 3)]);
    assert_eq!(run("[sleep, 10]"), []);
    assert_eq!(run("[date, 2026-11-29]"), []);
    assert_eq!(run("yes"), [("EntryNotText", 3)]);
    assert_eq!(run("1.5"), [("EntryNotText", 3)]);
}

/// B23: unknown and misplaced keys, with their path.
#[test]
fn keys_below_the_top_level() {
    let message =
        |text: &str| lint(text.as_bytes()).first().map(|f| (f.code, f.message.clone(), f.cure.clone()));
    let (code, text, cure) =
        message("#cloud-config\nwrite_files:\n- path: /a\n  permission: '0600'\n").unwrap();
    assert_eq!((code, cure.as_str()), ("UnknownKey", "permissions:"));
    assert!(text.contains("write_files[].permission "), "{text}");
    let (code, text, cure) = message("#cloud-config\nntp:\n  enabled: true\n  runcmd: [a]\n").unwrap();
    assert_eq!(code, "MisplacedKey");
    assert!(text.contains("ntp.runcmd") && cure.contains("top level"));
    assert_eq!(found("#cloud-config\nzypper:\n  config: {download.use_deltarpm: true}\n"), []);
    assert_eq!(found("#cloud-config\npower_state: {mode: rebot}\n"), [("UnknownValue", 2)]);
    assert_eq!(found("#cloud-config\nx-ours: &a {b: c}\n"), []);
}

#[test]
fn findings_say_which_releases_they_concern() {
    let case = "#Cloud-Config\npackages: [a]\n";
    assert_eq!(codes_for(case, &with("22.4")), []);
    assert_eq!(codes_for(case, &with("0.6.3")), [("HeaderCase", Severity::Warn)]);
    let empty = "#cloud-config\nruncmd:\n-\n- a\n";
    assert_eq!(codes_for(empty, &with("20.1")), [("EmptyEntry", Severity::Error)]);
    assert_eq!(codes_for(empty, &with("22.4.2")), [("EmptyEntry", Severity::Warn)]);
    assert_eq!(lint(empty.as_bytes())[0].versions.to_string(), "before 21.4");
    let source = "#cloud-config\nwrite_files:\n- path: /a\n  source: {uri: 'https://a/b'}\n";
    assert_eq!(codes_for(source, &Context::default()), [("KeyIsNew", Severity::Info)]);
    assert_eq!(codes_for(source, &with("22.4")), [("KeyIsNew", Severity::Error)]);
    assert_eq!(codes_for(source, &with("24.4")), []);
    let list = "#cloud-config\nchpasswd: {list: ['a:R']}\n";
    assert_eq!(codes_for(list, &with("25.1")), [("KeyIsDeprecated", Severity::Info)]);
    assert_eq!(codes_for(list, &with("21.1")), []);
}

/// Case SP1 and its kind: units that the userdata writes and starts.
#[test]
fn units_that_wait_for_cloud_init() {
    let with_unit = |unit: &str, command: &str| {
        let body = unit.replace('\n', "\n    ");
        found(&format!(
            "#cloud-config\nwrite_files:\n- path: /etc/systemd/system/a.service\n  content: |\n    {body}\nruncmd:\n- {command}\n"
        ))
        .into_iter()
        .map(|(code, _)| code)
        .collect::<Vec<_>>()
    };
    let late = "[Unit]\nAfter=cloud-final.service";
    for command in [
        "systemctl start a",
        "systemctl enable --now a.service",
        "[systemctl, restart, a]",
        "service a start",
        "sh -c 'true && systemctl start a'",
    ] {
        assert_eq!(with_unit(late, command), ["WaitsForItself"], "{command}");
    }
    for command in [
        "systemctl start --no-block a",
        "systemctl --no-block enable --now a",
        "systemctl enable a",
        "systemctl start a &",
    ] {
        assert_eq!(with_unit(late, command), [""; 0], "{command}");
    }
    for after in ["cloud-init.target", "network.target multi-user.target", "graphical.target"] {
        assert_eq!(
            with_unit(&format!("[Unit]\nAfter={after}"), "systemctl start a"),
            ["WaitsForItself"],
            "{after}"
        );
    }
    let both = "[Unit]\nAfter=multi-user.target\n[Install]\nWantedBy=multi-user.target";
    assert_eq!(with_unit(both, "echo"), ["UnitDeadlock"]);
    let fine = "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Install]\nWantedBy=multi-user.target";
    assert_eq!(with_unit(fine, "systemctl start a"), [""; 0]);
    assert_eq!(with_unit("[Unit]\nAfter=network-online.target", "echo"), ["OrderWithoutWish"]);
    assert_eq!(with_unit("[Unit]\nAfter=cloud-final.service\nAfter=", "systemctl start a"), [""; 0]);
    let asks = "[Service]\nType=oneshot\nExecStart=/usr/bin/cloud-init status --wait";
    assert_eq!(with_unit(asks, "systemctl start a"), ["WaitsForItself"]);
    assert_eq!(with_unit("[Unit]\nAfter=b.service\nBefore=b.service", "echo"), ["OrderingCycle"]);
    let drop_in = "#cloud-config\nwrite_files:\n- path: /etc/systemd/system/b.service.d/x.conf\n  content: \"[Unit]\\nAfter=cloud-final.service\\n\"\nruncmd:\n- systemctl start b\n";
    assert_eq!(found(drop_in), [("WaitsForItself", 6)]);
    assert_eq!(found("#cloud-config\nbootcmd:\n- systemctl start a\n"), [("BootcmdStartsUnit", 3)]);
}

#[test]
fn what_holds_up_the_boot() {
    let run = |command: &str| found(&format!("#cloud-config\nruncmd:\n- {command}\n"));
    assert_eq!(run("until curl -s https://x; do sleep 5; done"), [("HoldsUpBoot", 3)]);
    assert_eq!(run("while ! test -e /x; do sleep 1; done"), [("HoldsUpBoot", 3)]);
    assert_eq!(run("for i in 1 2 3; do sleep 1; done"), []);
    assert_eq!(run("timeout 60 sh -c 'until test -e /x; do sleep 1; done'"), []);
    assert_eq!(run("sleep 10m"), [("HoldsUpBoot", 3)]);
    assert_eq!(run("[sleep, infinity]"), [("HoldsUpBoot", 3)]);
    assert_eq!(run("sleep 5"), []);
    assert_eq!(run("systemctl enable --now rke2-server"), [("HoldsUpBoot", 3)]);
    assert_eq!(run("systemctl enable --now --no-block rke2-server"), []);
    assert_eq!(run("reboot"), [("RebootInRuncmd", 3)]);
    assert_eq!(run("rm -rf /var/lib/cloud/*"), [("RunsAtEveryBoot", 3)]);
    assert_eq!(
        run("sh -c 'apt-get update && apt-get install -y x'"),
        [("PackageManagerInRuncmd", 3), ("PackageManagerInRuncmd", 3)]
    );
}

#[test]
fn secrets_are_told_and_never_shown() {
    let pem = "-----BEGIN RSA PRIVATE KEY-----";
    let cluster = format!("K10{}::server:0123456789abcdef", "a".repeat(64));
    let enrolment = format!("OR1{}::id:secret-secret-secret", "b".repeat(64));
    for (text, codes) in [
        (
            format!("write_files:\n- path: /k\n  permissions: '0600'\n  content: |\n    {pem}\n"),
            vec!["SecretInUserdata"],
        ),
        (
            format!("write_files:\n- path: /k\n  content: |\n    {pem}\n"),
            vec!["SecretReadable", "SecretInUserdata"],
        ),
        (format!("write_files:\n- path: /t\n  content: {enrolment}\n"), vec!["SecretReadable"]),
        (format!("write_files:\n- path: /t\n  permissions: 0600\n  content: {enrolment}\n"), vec![]),
        (format!("runcmd:\n- [install, --token, '{enrolment}']\n"), vec!["SecretOnCommandLine"]),
        (format!("runcmd:\n- curl https://x | K3S_TOKEN={cluster} sh -\n"), vec!["SecretInUserdata"]),
        (format!("runcmd:\n- echo Token: {cluster}\n"), vec!["EntryIsMapping", "SecretInUserdata"]),
        ("password: hunter2\n".to_owned(), vec!["SecretInUserdata"]),
        ("password: $6$abc$def\n".to_owned(), vec!["PasswordHash"]),
        (
            "chpasswd:\n  users:\n  - {name: a, password: b, type: text}\n".to_owned(),
            vec!["SecretInUserdata"],
        ),
        ("chpasswd:\n  expire: false\n  users:\n  - {name: a, type: RANDOM}\n".to_owned(), vec![]),
        ("users:\n- default\n- {name: a, plain_text_passwd: b}\n".to_owned(), vec!["SecretInUserdata"]),
    ] {
        let findings = lint(format!("#cloud-config\n{text}").as_bytes());
        let found: Vec<_> = findings.iter().map(|f| f.code).filter(|c| *c != "KeyIsNew").collect();
        assert_eq!(found, codes, "{text}");
        let told = format!("{findings:?}");
        for secret in ["PRIVATE KEY-----", &cluster, "secret-secret", "hunter2", "$6$abc"] {
            assert!(!told.contains(secret), "{told}");
        }
    }
}

#[test]
fn rancher_and_harvester() {
    let script = "#cloud-config\nruncmd:\n- sh /usr/local/custom_script/install.sh\n- systemctl start qemu-guest-agent\n";
    assert_eq!(found(script), [("RancherScriptNotLast", 3)]);
    let bare = "#cloud-config\npackages: [a]\n";
    assert_eq!(codes_for(bare, &on(Platform::Harvester)), [("GuestAgentMissing", Severity::Warn)]);
    assert_eq!(codes_for(bare, &on(Platform::Aws)), []);
    let named = "#cloud-config\nhostname: node1\npackages: [qemu-guest-agent]\n";
    assert_eq!(
        codes_for(named, &on(Platform::RancherMachine)),
        [("SameNameForAll", Severity::Error), ("GuestAgentNotStarted", Severity::Info)]
    );
    assert_eq!(codes_for(named, &on(Platform::Harvester)), [("GuestAgentNotStarted", Severity::Info)]);
}

#[test]
fn keys_that_let_nobody_in() {
    let key = |key: &str| found(&format!("#cloud-config\nssh_authorized_keys:\n- {key}\n"));
    let whole = format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{}", "x".repeat(43));
    assert_eq!(key(&format!("{whole} me@here")), []);
    assert_eq!(key(&format!("from=\"10.0.0.0/8\" {whole}")), []);
    assert_eq!(key("ssh-rsa AAAAB3Nz…"), [("SshKeyBroken", 3)]);
    assert_eq!(key("AAAAB3NzaC1yc2E"), [("SshKeyBroken", 3)]);
    assert_eq!(key(&whole[..40]), [("SshKeyBroken", 3)]);
}

#[test]
fn aliases_are_followed_and_bounded() {
    assert_eq!(found("#cloud-config\nx-a: &a [echo, {b: c}]\nruncmd:\n- *a\n"), [("ArgumentNotText", 2)]);
    assert_eq!(found("#cloud-config\nx-f: &f {owner: root}\nwrite_files:\n- <<: *f\n  path: /a\n"), []);
    assert_eq!(found("#cloud-config\nx-f: &f {path: /a}\nwrite_files:\n- <<: [*f]\n  content: b\n"), []);
    assert_eq!(found("#cloud-config\nruncmd: &a\n- *a\n"), [("AliasesRefused", 3)]);
    let mut bomb = "#cloud-config\nx-0: &x0 [a, a]\n".to_owned();
    for n in 1..40 {
        bomb.push_str(&format!("x-{n}: &x{n} [*x{}, *x{}]\n", n - 1, n - 1));
    }
    assert_eq!(found(&bomb)[0].0, "AliasesRefused");
}

#[test]
fn parts_are_judged_each_and_together() {
    let part = |body: &str| format!("--b\nContent-Type: text/cloud-config\n\n{body}\n");
    let document = |parts: &[&str]| {
        let parts: String = parts.iter().map(|body| part(body)).collect();
        format!("Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n{parts}--b--\n")
    };
    assert_eq!(found(&document(&["#cloud-config\nruncmd:\n- a: b\n"])), [("EntryIsMapping", 9)]);
    assert_eq!(
        found(&document(&["#cloud-config\npackages: [a]\n", "#cloud-config\npackages: [b]\n"])),
        [("PartOverridden", 13)]
    );
    assert_eq!(found(&document(&["#cloud-config\npackages: [a]\n", "#cloud-config\nruncmd: [b]\n"])), []);
    assert_eq!(found(&document(&["hostname: no\n"])), [("Misread", 7)]);
    assert_eq!(found("Content-Type: multipart/mixed\n\na\n"), [("MultipartBroken", 1)]);
}

#[test]
fn characters_that_end_pyyaml() {
    let finding = &lint("#cloud-config\na: b\nc: \u{1}\n".as_bytes())[0];
    assert_eq!((finding.code, finding.line, finding.column), ("ControlCharacter", 3, 4));
    assert_eq!(found("#cloud-config\nhostname: a\u{7f}\n"), [("ControlCharacter", 2)]);
    assert_eq!(found("#cloud-config\nfinal_message: ü – 漢 😀\n"), []);
    assert_eq!(found("## template: jinja\n#cloud-config\n{{ x }}: [\n"), [("TemplateNotJudged", 1)]);
    assert_eq!(
        found("## template: jinja\nhostname: {{ x }}\n"),
        [("TemplateNotJudged", 1), ("HeaderMissing", 2)]
    );
}

#[test]
fn tabs_where_only_blanks_may_stand() {
    for text in [
        "runcmd:\n\t- a\n",
        "hostname:\ta\n",
        "hostname: a\t\n",
        "hostname: a\n\t\n",
        "hostname: a\tb\n",
        "packages: [a,\tb]\n",
    ] {
        let findings = lint(format!("#cloud-config\n{text}").as_bytes());
        assert!(
            findings.iter().any(|f| matches!(f.code, "TabOutsideText" | "NotYaml") && f.line >= 2),
            "{text:?}: {findings:?}"
        );
    }
    for text in [
        "hostname: \"a\tb\"\n",
        "# a\tb\n",
        "write_files:\n- path: /a\n  content: |\n    all:\n    \tcc\n",
        "hostname: a # b\tc\n",
    ] {
        assert_eq!(found(&format!("#cloud-config\n{text}")), [], "{text:?}");
    }
    assert_eq!(found("#cloud-config\nhostname: !mine a\n"), [("NotYaml", 2)]);
    assert_eq!(found("#cloud-config\nhostname: !!str 1\n"), []);
}
