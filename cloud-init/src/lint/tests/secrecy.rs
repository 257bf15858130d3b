//! Secrets: told by kind and place, and never shown, in a message or a cure.

use super::*;

/// What `text` is found to hold, after a look that none of it is shown.
fn told(text: &str) -> Vec<&'static str> {
    let findings = lint(format!("#cloud-config\n{text}").as_bytes());
    let said = format!("{findings:?}");
    assert!(!said.contains("Secret1") && !said.contains("12345"), "{text}\n{said}");
    findings.iter().map(|f| f.code).filter(|code| *code == "SecretInUserdata").collect()
}

#[test]
fn no_message_and_no_cure_shows_one() {
    for text in [
        "password: 12345\n",
        "password: 012345\n",
        "runcmd:\n- mysql -pSecret1: foo\n",
        "runcmd:\n- login Secret1: a: b\n",
        "runcmd:\n- curl -u me:Secret1 https://x\n- PASS: Secret1\n",
        "runcmd:\n- [mysql, -p, 012345]\n",
        "runcmd:\n- note: Secret1Secret2Secret3\n",
        "lock_passwd: Secret1\n",
        "users:\n- {name: a, lock_passwd: Secret1}\n",
        "users:\n- {name: a, passwd: 012345}\n",
        "chpasswd: {users: [{name: a, password: 12345, type: Secret1Password}]}\n",
        "ubuntu_pro: {token: 012345}\n",
        "rh_subscription: {username: a, password: 12345}\n",
        "chpasswd: {list: [root:Secret1], expire: Secret1Secret2Secret3}\n",
        "write_files:\n- {path: /a, encoding: b64, content: Secret1}\n",
    ] {
        told(text);
    }
    // What is plainly none is shown.
    let cure = &lint(b"#cloud-config\nruncmd:\n- mkdir -p /a: b\n")[0].cure;
    assert_eq!(cure, "quote it: - 'mkdir -p /a: b'");
}

#[test]
fn secrets_by_the_name_they_stand_under() {
    for text in [
        "ubuntu_pro: {token: Secret1}\n",
        "ubuntu_advantage: {token: Secret1}\n",
        "rh_subscription: {username: a, password: Secret1}\n",
        "rh_subscription: {activation-key: Secret1, org: 1}\n",
        "landscape: {client: {registration_key: Secret1}}\n",
        "rancherd: {role: agent, token: Secret1}\n",
        "zypper: {repos: [{id: a, baseurl: b, password: Secret1}]}\n",
        "wireguard: {interfaces: [{name: wg0, config_path: /etc/wireguard/wg0.conf, content: \"[Interface]\\nPrivateKey = Secret1\\n\"}]}\n",
    ] {
        assert_eq!(told(text), ["SecretInUserdata"], "{text}");
    }
    for text in [
        "ubuntu_pro: {token: }\n",
        "ubuntu_pro: {token: $TOKEN}\n",
        "x-a: {token_file: /etc/token, no_password: true}\n",
        "users: [default, {name: a, lock_passwd: true}]\n",
        "ssh_pwauth: false\n",
    ] {
        assert_eq!(told(text), [""; 0], "{text}");
    }
}

/// The token of a cluster in the file that RKE2 and K3s read, whatever form it has.
#[test]
fn cluster_tokens_in_ranchers_files() {
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let contents = [
        "token: Secret1",
        "agent-token: Secret1",
        "\"token\": \"Secret1\"",
        "{token: Secret1}",
        "server: x\ntoken:   'Secret1' # mine",
        "token: >-\n  Secret1",
        "etcd-s3-secret-key: Secret1",
        "a: [\ntoken: Secret1",
    ];
    for content in contents {
        for path in ["/etc/rancher/rke2/config.yaml", "/etc/rancher/k3s/config.yaml.d/9.yaml"] {
            let packed = encode(&crate::gzip::tests::packed(content.as_bytes()));
            for (encoding, content) in [
                ("text/plain", format!("{content:?}")),
                ("b64", encode(content.as_bytes())),
                ("gz+b64", packed),
            ] {
                let text = format!(
                    "write_files:\n- path: {path}\n  permissions: '0600'\n  encoding: {encoding}\n  content: {content}\n"
                );
                assert_eq!(told(&text), ["SecretInUserdata"], "{text}");
            }
        }
    }
    for content in ["server: https://x:9345", "token-file: /etc/token", "token: ''", "token: $TOKEN"] {
        let text = format!("write_files:\n- path: /etc/rancher/rke2/config.yaml\n  content: {content:?}\n");
        assert_eq!(told(&text), [""; 0], "{text}");
    }
}

#[test]
fn secrets_on_command_lines() {
    let commands = [
        "curl -fL https://r/system-agent-install.sh | sh -s - --server https://r --token Secret1 --worker",
        "sh /opt/system-agent-install.sh --token=Secret1",
        "kubeadm join 10.0.0.1:6443 --token Secret1 --discovery-token-ca-cert-hash sha256:ab",
        "curl -u a:Secret1 https://x",
        "curl --user=a:Secret1 https://x",
        "wget https://a:Secret1@x/y",
        "echo root:Secret1 | chpasswd",
        "echo 'root:Secret1' | sudo chpasswd",
        "printf 'root:%s' Secret1 | chpasswd",
        "mysql -uroot -pSecret1",
        "sshpass -pSecret1 ssh x",
        "pro attach Secret1Secret",
        "subscription-manager register --username a --password Secret1",
        "tailscale up --authkey Secret1",
        "export DB_PASSWORD=Secret1",
    ];
    for command in commands {
        assert_eq!(told(&format!("runcmd:\n- {command:?}\n")), ["SecretInUserdata"], "{command}");
        let list = format!("runcmd:\n- [sh, -c, {command:?}]\n");
        assert_eq!(told(&list), ["SecretInUserdata"], "{command}");
        let file = format!(
            "write_files:\n- {{path: /a, permissions: '0700', content: {:?}}}\n",
            format!("#!/bin/sh\n{command}\n")
        );
        assert_eq!(told(&file), ["SecretInUserdata"], "{command}");
    }
    for command in [
        "sh /opt/system-agent-install.sh --token $TOKEN",
        "kubeadm join --discovery-token-ca-cert-hash sha256:ab --config /etc/kubeadm.yaml",
        "x --token-file /etc/token",
        "curl -u \"$USER:$PASS\" https://x",
        "echo \"root:$PW\" | chpasswd",
        "echo 'root:$6$ab$cd' | chpasswd -e",
        "mkdir -p /a && cp -pr /b /c",
        "curl https://x:443/y",
        "git clone ssh://git@x/y",
    ] {
        assert_eq!(told(&format!("runcmd:\n- {command:?}\n")), [""; 0], "{command}");
    }
}
