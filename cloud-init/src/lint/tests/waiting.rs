//! Waits for the end of cloud-init inside cloud-init.

use base64::Engine as _;

use super::*;

fn errors(text: &str) -> Vec<&'static str> {
    let findings = lint(format!("#cloud-config\n{text}").as_bytes());
    findings.iter().filter(|f| f.severity == Severity::Error).map(|f| f.code).collect()
}

const UNIT: &str = "[Unit]\nAfter=cloud-final.service\n[Service]\nExecStart=/bin/true\n";
const WAITS: &str = "#!/bin/sh\necho a\ncloud-init status --wait\n";

/// `content` as every encoding of `write_files` has it.
fn encoded(content: &str) -> Vec<(&'static str, String)> {
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let packed = crate::gzip::tests::packed(content.as_bytes());
    vec![
        ("''", format!("{content:?}")),
        ("text/plain", format!("{content:?}")),
        ("b64", encode(content.as_bytes())),
        ("base64", encode(content.as_bytes())),
        ("B64", encode(content.as_bytes())),
        ("gz+b64", encode(&packed)),
        ("gzip+base64", encode(&packed)),
        ("gzip", format!("!!binary {}", encode(&packed))),
        ("''", format!("!!binary {}", encode(content.as_bytes()))),
    ]
}

#[test]
fn units_in_every_encoding_and_from_templates() {
    for (unit, start) in [
        ("my.service", "my"),
        ("my@.service", "my@a"),
        ("my@.service", "my@a.service"),
        ("my@a.service", "my@a"),
    ] {
        for (encoding, content) in encoded(UNIT) {
            let text = |command: &str| {
                format!(
                    "write_files:\n- path: /etc/systemd/system/{unit}\n  encoding: {encoding}\n  content: {content}\nruncmd:\n- {command}\n"
                )
            };
            assert_eq!(
                errors(&text(&format!("systemctl start {start}"))),
                ["WaitsForItself"],
                "{unit} {encoding}"
            );
            assert_eq!(
                errors(&text(&format!("systemctl start --no-block {start}"))),
                [""; 0],
                "{unit} {encoding}"
            );
            assert_eq!(errors(&text("systemctl start other@a")), [""; 0]);
        }
    }
}

#[test]
fn scripts_that_wait_and_are_run() {
    for (encoding, content) in encoded(WAITS) {
        let text = |command: &str| {
            format!(
                "write_files:\n- path: /opt/a.sh\n  encoding: {encoding}\n  content: {content}\nruncmd:\n- {command}\n"
            )
        };
        for command in [
            "/opt/a.sh",
            "sh /opt/a.sh",
            "[bash, -x, /opt/a.sh]",
            "sh -c '. /opt/a.sh'",
            "chmod +x /opt/a.sh && /opt/a.sh",
        ] {
            assert_eq!(errors(&text(command)), ["WaitsForItself"], "{encoding} {command}");
        }
        for command in
            ["chmod +x /opt/a.sh", "sh /opt/a.sh &", "echo /opt/a.sh", "systemd-run --no-block /opt/a.sh"]
        {
            assert_eq!(errors(&text(command)), [""; 0], "{encoding} {command}");
        }
    }
    let inner = "write_files:\n- {path: /opt/a.sh, content: \"sh /opt/b.sh\"}\n- {path: /opt/b.sh, content: \"systemctl is-system-running --wait\"}\nruncmd: [sh /opt/a.sh]\n";
    assert_eq!(errors(inner), ["WaitsForItself"]);
    let itself = "write_files:\n- {path: /opt/a.sh, content: \"sh /opt/a.sh\"}\nruncmd: [sh /opt/a.sh]\n";
    assert_eq!(errors(itself), [""; 0]);
    let unit = format!(
        "write_files:\n- {{path: /etc/systemd/system/u.service, content: {UNIT:?}}}\n- {{path: /a, content: \"systemctl start u\"}}\nruncmd: [sh /a]\n"
    );
    assert_eq!(errors(&unit), ["WaitsForItself"]);
}

#[test]
fn loops_that_cannot_end() {
    let run = |command: &str| errors(&format!("runcmd:\n- {command:?}\n"));
    for command in [
        "systemctl is-system-running --wait",
        "while [ ! -f /var/lib/cloud/instance/boot-finished ]; do sleep 1; done",
        "while ! [ -f /var/lib/cloud/instance/boot-finished ]; do sleep 1; done",
        "while ! test -e /run/cloud-init/result.json; do :; done",
        "until [ -f /var/lib/cloud/instance/boot-finished ]; do sleep 1; done",
        "until [[ -e /run/cloud-init/result.json ]]; do sleep 5; done",
        "until ls /var/lib/cloud/instance/boot-finished; do sleep 5; done",
        "until cloud-init status | grep -q done; do sleep 1; done",
        "until cloud-init status --long | egrep 'status: done'; do sleep 1; done",
        "while cloud-init status | grep -q running; do sleep 1; done",
        "while ! cloud-init status | grep -q done; do sleep 1; done",
        "while cloud-init status | grep -qv done; do sleep 1; done",
        "until [ \"$(cloud-init status)\" = 'status: done' ]; do sleep 1; done",
        "while [ \"$(cloud-init status)\" != 'status: done' ]; do sleep 1; done",
        "until systemctl is-system-running; do sleep 1; done",
        "bash -c 'until cloud-init status | grep -q done; do sleep 1; done'",
    ] {
        assert_eq!(run(command), ["WaitsForItself"], "{command}");
    }
    for command in [
        "while [ -f /var/lib/cloud/instance/boot-finished ]; do sleep 1; done",
        "until [ ! -f /run/cloud-init/result.json ]; do sleep 1; done",
        "until cloud-init status | grep -q running; do sleep 1; done",
        "(until cloud-init status | grep -q done; do sleep 1; done; reboot) &",
        "i=0; until cloud-init status | grep -q done; do i=$((i+1)); [ $i -gt 9 ] && break; sleep 1; done",
        "timeout 60 sh -c 'until [ -f /run/cloud-init/result.json ]; do sleep 1; done'",
        "systemctl is-system-running",
        "[ -f /var/lib/cloud/instance/boot-finished ] || echo first",
        "until [ -f /opt/mine ]; do sleep 1; done",
    ] {
        assert_eq!(run(command), [""; 0], "{command}");
    }
}
