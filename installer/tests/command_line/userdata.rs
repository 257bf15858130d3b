//! `outrider userdata` as people and scripts call it.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Ended, Home};

const TC01: &str = "#cloud-config\npackages:\n  - docker\n  - apparmor-parser\nruncmd:\n  - systemctl stop ufw.service\n  - sh /usr/local/custom_script/install.sh\nwrite_files:\n  - path: /usr/local/custom_script/install.sh\n    encoding: gzip+b64\n    content: H4sIAAAA\n    permissions: \"0644\"\n";

fn token() -> String {
    format!("OR1{}::abcd1234:secret0123456789secret0123456789", "a1".repeat(32))
}

fn lint(home: &Home, input: &[u8], more: &[&str]) -> Ended {
    home.run_with_input(["userdata", "lint", "-", "-o", "json"].iter().chain(more), input)
}

fn codes(ended: &Ended) -> Vec<String> {
    let answer = ended.json();
    let findings = answer["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

/// Case TC03, file 1, as a script reads it.
#[test]
fn findings_have_their_place_and_cure() {
    let home = Home::new();
    let text = "#cloud-config\nruncmd:\n  - echo \"ok\"\n  - echo Done: installed\n  -\n  - [echo, hi]\n  - 'echo Done: quoted'\n";
    let ended = lint(&home, text.as_bytes(), &[]).with_code(1);
    let answer = ended.json();
    assert_eq!((&answer["kind"], &answer["severity"]), (&"UserdataLint".into(), &"error".into()));
    assert_eq!((&answer["format"], &answer["bytes"]), (&"cloud-config".into(), &text.len().into()));
    assert!(answer["apiVersion"].is_string());
    let first = &answer["findings"][0];
    assert_eq!((&first["line"], &first["column"]), (&4.into(), &5.into()));
    assert_eq!(first["cure"], "quote it: - 'echo Done: installed'");
    assert_eq!(first["versions"], "all");
    assert_eq!(answer["findings"][1]["versions"], "before 21.4");
    let table = home.run_with_input(["userdata", "lint", "-"], text.as_bytes()).with_code(1).out;
    assert!(table.contains("error     4:5    entry 2 of runcmd is a mapping"), "{table}");
    let names =
        home.run_with_input(["userdata", "lint", "-", "-o", "name"], text.as_bytes()).with_code(1).out;
    assert_eq!(names, "userdata/EntryIsMapping\nuserdata/EmptyEntry\n");
}

/// Cases TC02 and TC04 by the exit code.
#[test]
fn the_exit_code_tells_errors() {
    let home = Home::new();
    for (input, code) in [
        (&b"packages: [a]\n"[..], 1),
        (b"\xef\xbb\xbf#cloud-config\npackages: [a]\n", 1),
        (b"\n\n#cloud-config\npackages: [a]\n", 0),
        (b"# cloud-config\npackages: [a]\n", 1),
        (b"#Cloud-Config\npackages: [a]\n", 0),
        (b"#!/bin/bash\r\necho a\r\n", 0),
        (b"#cloud-config\r\npackages: [a]\r\n", 0),
        (b"I2Nsb3VkLWNvbmZpZwpwYWNrYWdlczogW2FdCg==", 1),
        (b"#cloud-config\nuser-data:\n  packages: [a]\n", 1),
        (b"\xff\xfe#\0c\0", 1),
        (b"", 1),
    ] {
        lint(&home, input, &[]).with_code(code);
    }
    lint(&home, b"#Cloud-Config\npackages: [a]\n", &["--strict"]).with_code(1);
    let sized = |bytes: usize| format!("#cloud-config\n#{}\n", "x".repeat(bytes - 16));
    let agent = "--platform=kubevirt";
    assert_eq!(codes(&lint(&home, sized(2048).as_bytes(), &[agent]).with_code(0)), [""; 0]);
    assert_eq!(codes(&lint(&home, sized(2049).as_bytes(), &[agent]).with_code(1))[0], "TooLargeForVmSpec");
    lint(&home, sized(5000).as_bytes(), &[agent, "--field", "secret"]).with_code(0);
    lint(&home, sized(2049).as_bytes(), &["--platform", "ec2"]).with_code(0);
    lint(&home, b"x", &["--platform", "mars"]).with_code(64).says(&["harvester", "rancher-machine"]);
    lint(&home, b"x", &["--cloud-init", "new"]).with_code(64).says(&["24.4"]);
}

#[test]
fn odd_files_are_refused_in_words() {
    let home = Home::new();
    let big = home.path().join("big");
    std::fs::write(&big, vec![b'a'; 10_000_000]).unwrap();
    for command in ["lint", "merge"] {
        home.run(["userdata", command, big.to_str().unwrap()])
            .with_code(1)
            .says(&["more than 4 MiB is no userdata"]);
        home.run(["userdata", command, home.path().to_str().unwrap()]).with_code(1).says(&["it is a folder"]);
    }
    home.run_with_input(["userdata", "merge", "-"], b"\xff\xfe#\0").with_code(1).says(&["UTF-16", "iconv"]);
    home.run_with_input(["userdata", "merge", "-"], b"\x1f\x8b\x08").with_code(1).says(&["gzip -d"]);
    let nested = format!("#cloud-config\na: {}", "[".repeat(200_000));
    home.run_with_input(["userdata", "merge", "-"], nested.as_bytes()).with_code(1).says(&["line 2"]);
    home.run_with_input(["userdata", "merge", "-"], b"## template: jinja\n#cloud-config\n")
        .with_code(1)
        .says(&["template", "JinjaTemplate", "render it first"]);
}

/// Case TC01 by the program.
#[test]
fn ours_are_added_once() {
    let home = Home::new();
    let merge = |text: &str, more: &[&str]| {
        home.run_with_input(["userdata", "merge", "-"].iter().chain(more), text.as_bytes()).with_code(0).out
    };
    for more in [&[][..], &["--coordinator", "https://c.example:8440", "--token", &token()]] {
        let once = merge(TC01, more);
        assert_eq!(merge(&once, more), once);
        assert!(once.starts_with(&TC01[..TC01.find("runcmd").unwrap()]), "{once}");
        let last = once.find("  - sh /usr/local/custom_script/install.sh\nwrite_files:").unwrap();
        assert!(
            once.find("qemu-guest-agent ||").unwrap() < last && once.find("outrider-agent").unwrap() < last
        );
    }
    let both = home.path().join("two.yaml");
    std::fs::write(&both, "#cloud-config\npackages: [qemu-guest-agent]\n").unwrap();
    let two = home
        .run_with_input(["userdata", "merge", "-", both.to_str().unwrap()], TC01.as_bytes())
        .with_code(0)
        .out;
    assert!(
        two.contains("  - qemu-guest-agent\n") && !two.contains("outrider"),
        "several files alone: {two}"
    );
    home.run_with_input(["userdata", "merge", "-", "-"], b"").with_code(64).says(&["several"]);
    home.run(["userdata", "merge", both.to_str().unwrap(), both.to_str().unwrap(), "--cluster", "a"])
        .with_code(64)
        .says(&["--profile"]);
}

#[test]
fn what_is_rendered_holds_the_token_once_and_for_root_alone() {
    let home = Home::new();
    let out = home.path().join("node.yaml");
    let file = home.path().join("token");
    std::fs::write(&file, token() + "\n").unwrap();
    let base = ["userdata", "render", "--profile", "harvester-vm", "--coordinator", "https://c.example:8440"];
    let render = |more: &[&str]| home.run(base.iter().chain(more));
    render(&["--token-file", file.to_str().unwrap(), "--out", out.to_str().unwrap()]).with_code(0);
    let text = std::fs::read_to_string(&out).unwrap();
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(text.matches("abcd1234").count(), 1);
    assert!(text.contains("    permissions: '0600'\n    content: OR1"), "{text}");
    assert_eq!(render(&["--token", &token()]).with_code(0).out, text);
    lint(&home, text.as_bytes(), &["--platform", "harvester", "--strict"]).with_code(0);
    let base64 = render(&["--token", &token(), "--format", "base64"]).with_code(0).out;
    lint(&home, base64.as_bytes(), &["--platform", "harvester", "--field", "base64", "--strict"])
        .with_code(0);
    let refused = render(&["--token", "OR1abc::id:hidden-secret", "--sha256", "x"]).with_code(64);
    assert!(!refused.err.contains("hidden-secret"), "{refused:?}");
    render(&["--token", &token(), "--name", "Not_A_Name", "--format", "secret"])
        .with_code(64)
        .says(&["--name"]);
    render(&["--format", "network"]).with_code(64).says(&["--mac"]);
    let network = home.run(["userdata", "render", "--format", "network", "--mac", "52:54:00:00:00:01"]);
    assert!(network.with_code(0).out.starts_with("version: 2\nethernets:\n"));
}

const KEY: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZ0AAABYJKwYBBAHaRw8BAQdA\n=AbCd\n-----END PGP PUBLIC KEY BLOCK-----\n";

/// Every form that `render` has, for what `merge` makes.
#[test]
fn what_is_merged_has_every_form() {
    let home = Home::new();
    let merge = |more: &[&str]| {
        home.run_with_input(
            ["userdata", "merge", "-", "--profile", "k3s-server"].iter().chain(more),
            TC01.as_bytes(),
        )
    };
    let plain = merge(&[]).with_code(0).out;
    let encoded = merge(&["--format", "base64"]).with_code(0).out;
    let pool = merge(&["--format", "rancher-machine-pool", "--name", "pool1"]).with_code(0).out;
    assert!(pool.contains("\n  name: pool1\n  namespace: fleet-default\n"), "{pool}");
    assert!(pool.contains(&format!("\nuserData: {}\n", encoded.trim_end())), "{pool}");
    let secret = merge(&["--format", "secret", "--mac", "52:54:00:00:00:01"]).with_code(0).out;
    assert!(secret.contains(&format!("\n  userdata: {}\n  networkdata: ", encoded.trim_end())), "{secret}");
    let terraform = merge(&["--format", "terraform", "--name", "k3s"]).with_code(0).out;
    assert!(terraform.contains(&format!("k3s_userdata = <<USERDATA\n{plain}USERDATA\n")), "{terraform}");
    merge(&["--format", "network", "--mac", "52:54:00:00:00:01"]).with_code(64).says(&["`render`"]);
    merge(&["--mac", "52:54:00:00:00:01"]).with_code(64).says(&["network data"]);
    merge(&["--format", "secret", "--name", "A"]).with_code(64).says(&["--name"]);
    merge(&["--coordinator", "https://c.example", "--token-file", "-"])
        .with_code(64)
        .says(&["standard input"]);
}

#[test]
fn a_repository_needs_its_key() {
    let home = Home::new();
    let file = home.path().join("outrider.asc");
    std::fs::write(&file, KEY).unwrap();
    let render =
        |more: &[&str]| home.run(["userdata", "render", "--profile", "k3s-server"].iter().chain(more));
    let key = file.to_str().unwrap();
    let good = ["--agent", "package", "--repo", "http://packages.example/outrider"];
    let with = |more: &[&str]| render(&[&good[..], more].concat());
    let text = with(&["--repo-key", key]).with_code(0).out;
    assert!(text.contains("\n      mDMEZ0AAABYJKwYBBAHaRw8BAQdA\n"), "{text}");
    let by_url = format!("https://packages.example/outrider.asc#{}", "ab".repeat(32));
    assert!(!with(&["--repo-key", &by_url]).with_code(0).out.contains("PGP"));
    with(&[]).with_code(64).says(&["--repo-key"]);
    with(&["--repo-key", "https://packages.example/outrider.asc"]).with_code(64).says(&["#SHA256"]);
    with(&["--repo-key", "/no/such/key"]).with_code(1).says(&["/no/such/key"]);
    std::fs::write(&file, b"\x99\x01\x0d\xff").unwrap();
    with(&["--repo-key", key]).with_code(64).says(&["gpg --enarmor"]);
    render(&["--repo", "http://a", "--repo-key", key]).with_code(64).says(&["--repo"]);
}
