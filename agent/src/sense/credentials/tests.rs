use outrider_protocol::{CredentialKind, KubeconfigPurpose, TokenForm};

use super::super::prepared::Machine;
use super::*;

const LIMIT: Duration = Duration::from_secs(20);
const CLOUD_CONFIG: &str = "/etc/kubernetes/cloud-config";

fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: default, cluster: {{server: '{server}'}}}}]\n\
         contexts: [{{name: default, context: {{cluster: default, user: default}}}}]\ncurrent-context: default\n\
         users: [{{name: default, user: {{{user}}}}}]\n"
    )
}

async fn facts(machine: &Machine, settings: CredentialSettings) -> Fact<CredentialsFacts> {
    read(&machine.cx(), &settings, LIMIT, &mut Memory::default()).await
}

async fn found(machine: &Machine) -> Vec<KubeconfigFacts> {
    facts(machine, CredentialSettings::default()).await.value().cloned().unwrap().kubeconfigs
}

#[tokio::test]
async fn a_machine_without_kubeconfigs_has_nothing_to_look_at() {
    let machine = Machine::new();
    assert!(matches!(facts(&machine, CredentialSettings::default()).await, Fact::NotApplicable { .. }));
    // Other cloud providers keep their configuration under the same name.
    machine.write(CLOUD_CONFIG, "[Global]\nusername = admin\npassword = S3CRET\n");
    assert!(matches!(facts(&machine, CredentialSettings::default()).await, Fact::NotApplicable { .. }));
}

#[tokio::test]
async fn each_is_found_in_its_place() {
    let machine = Machine::new();
    let text = kubeconfig("http://127.0.0.1:1", "token: 'kubeconfig-user-x:S3CRET'");
    machine.write(CLOUD_CONFIG, &text);
    machine.write("/etc/rancher/rke2/config.yaml", "data-dir: /data/rke2\n");
    machine.write("/data/rke2/etc/config-files/cloud-provider-config", &text);
    machine.write("/etc/rancher/rke2/rke2.yaml", &text);
    let settings = CredentialSettings {
        kubeconfigs: vec!["/root/terraform.yaml".into()],
        ..CredentialSettings::default()
    };
    let facts = facts(&machine, settings).await;
    let told = serde_json::to_string(&facts).unwrap();
    assert!(!told.contains("S3CRET"), "{told}");
    let found: Vec<(String, KubeconfigPurpose, bool)> = facts
        .value()
        .unwrap()
        .kubeconfigs
        .iter()
        .map(|k| (k.path.clone(), k.purpose.clone(), k.content.value().is_some()))
        .collect();
    let expected = [
        (CLOUD_CONFIG, KubeconfigPurpose::CloudProvider, true),
        ("/etc/rancher/rke2/rke2.yaml", KubeconfigPurpose::Admin, true),
        ("/data/rke2/etc/config-files/cloud-provider-config", KubeconfigPurpose::CloudProvider, true),
        ("/root/terraform.yaml", KubeconfigPurpose::Configured, false),
    ];
    assert_eq!(found, expected.map(|(path, purpose, read)| (path.to_owned(), purpose, read)));
    let missing = &facts.value().unwrap().kubeconfigs[3];
    assert!(matches!(missing.content, Fact::Absent { .. }), "{missing:?}");
}

#[tokio::test]
async fn no_secret_goes_to_a_server_that_is_not_verified() {
    for (server, user, words) in [
        ("http://127.0.0.1:1", "token: x", "plain http"),
        (
            "https://127.0.0.1:1', insecure-skip-tls-verify: true, x: '",
            "token: x",
            "insecure-skip-tls-verify",
        ),
        ("https://127.0.0.1:1', proxy-url: 'http://p", "token: x", "proxy"),
        ("https://127.0.0.1:1', certificate-authority-data: '%%", "token: x", "no base64"),
        ("https://127.0.0.1:1", "exec: {command: aws}", "neither a token nor"),
        ("ftp://x", "token: x", "no address"),
    ] {
        let machine = Machine::new();
        machine.write(CLOUD_CONFIG, &kubeconfig(server, user));
        let call = found(&machine).await.remove(0).call;
        let Fact::NotApplicable { reason, .. } = &call else { panic!("{words}: {call:?}") };
        assert!(reason.contains(words), "{reason}");
    }
}

#[tokio::test]
async fn a_request_can_be_switched_off_and_one_that_fails_has_its_cause() {
    let machine = Machine::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    machine.write(CLOUD_CONFIG, &kubeconfig(&format!("https://{closed}"), "token: x"));
    let Fact::Unknown { cause, .. } = found(&machine).await.remove(0).call else { panic!("nobody listens") };
    assert_eq!(cause, UnknownCause::ConnectionRefused);
    let off = CredentialSettings { verify: false, ..CredentialSettings::default() };
    let call = facts(&machine, off).await.value().unwrap().kubeconfigs[0].call.clone();
    assert!(
        matches!(call, Fact::NotApplicable { ref reason, .. } if reason.contains("credentials.verify")),
        "{call:?}"
    );
}

#[tokio::test]
async fn credentials_in_files_beside_are_read() {
    let machine = Machine::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
    machine.write("/etc/kubernetes/pki/admin.crt", &certificate.pem());
    machine.write("/run/token", "kubeconfig-user-y:S3CRET\n");
    let user =
        "client-certificate: /etc/kubernetes/pki/admin.crt, client-key: /nowhere.key, tokenFile: /run/token";
    machine.write("/etc/kubernetes/admin.conf", &kubeconfig("https://127.0.0.1:1", user));
    let admin = found(&machine).await.remove(0);
    let content = admin.content.value().unwrap();
    assert_eq!(content.kinds, [CredentialKind::TokenFile, CredentialKind::ClientCertificate]);
    assert_eq!(content.token.as_ref().unwrap().value().unwrap().form, TokenForm::Rancher);
    assert!(content.certificate.as_ref().unwrap().value().is_some());
    assert!(matches!(admin.call, Fact::NotApplicable { ref reason, .. } if reason.contains("/nowhere.key")));
    for (file, what) in [("/run/token2", "absolute"), ("./token", "absolute")] {
        machine.write(CLOUD_CONFIG, &kubeconfig("https://127.0.0.1:1", &format!("tokenFile: {file}")));
        let token = found(&machine).await.remove(0).content.value().unwrap().token.clone().unwrap();
        let expected = if file.starts_with('/') {
            matches!(token, Fact::Absent { .. })
        } else {
            matches!(token, Fact::Unknown { ref detail, .. } if detail.contains(what))
        };
        assert!(expected, "{token:?}");
    }
}

#[tokio::test]
async fn a_certificate_and_a_key_of_different_pairs_are_a_fault() {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD as BASE64;
    let made = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let ((certificate, own), (_, other)) = (made(), made());
    let machine = Machine::new();
    machine.write("/pki/own.key", &own);
    machine.write("/pki/other.key", &other);
    machine.write("/pki/none.key", "nothing");
    machine.write("/pki/a.crt", &certificate);
    let data = |text: &str| BASE64.encode(text);
    let inline = format!("client-certificate-data: {}", data(&certificate));
    for (user, fault) in [
        (format!("{inline}, client-key-data: {}", data(&own)), ""),
        (format!("{inline}, client-key-data: {}", data(&other)), "of different pairs"),
        (format!("client-certificate: /pki/a.crt, client-key-data: {}", data(&other)), "of different pairs"),
        (format!("{inline}, client-key: /pki/own.key"), ""),
        (format!("{inline}, client-key: /pki/other.key"), "in /pki/other.key are of different pairs"),
        ("client-certificate: /pki/a.crt, client-key: /pki/other.key".to_owned(), "of different pairs"),
        (format!("{inline}, client-key: /pki/none.key"), "/pki/none.key: no PEM private key"),
        (format!("{inline}, client-key: /pki/absent.key"), "/pki/absent.key, is not there"),
        (format!("{inline}, client-key-data: '%%'"), "client-key-data is no base64"),
        (format!("{inline}, client-key-data: {}", data("nothing")), "client-key-data: no PEM private key"),
        (inline.clone(), "no key to it"),
    ] {
        machine.write("/etc/rancher/rke2/rke2.yaml", &kubeconfig("https://127.0.0.1:1", &user));
        let facts = found(&machine).await.remove(0);
        let content = facts.content.value().unwrap();
        assert!(content.certificate.as_ref().unwrap().value().is_some(), "{content:?}");
        if fault.is_empty() {
            assert_eq!(content.fault, "");
        } else {
            assert!(content.fault.contains(fault), "{fault}: {content:?}");
        }
        // What the root helper passes tells the same.
        let text = std::fs::read_to_string(machine.path("/etc/rancher/rke2/rke2.yaml")).unwrap();
        let excerpt = serde_json::to_string(&kubeconfig_excerpt(&text)).unwrap();
        machine.write("/etc/rancher/rke2/rke2.yaml", &excerpt);
        let passed = found(&machine).await.remove(0);
        assert_eq!(passed.content.value(), Some(content));
        assert!(!excerpt.contains(&data(&own)) && !excerpt.contains(&data(&other)), "{excerpt}");
    }
}

#[tokio::test]
async fn a_huge_file_and_one_that_is_none_are_told() {
    let machine = Machine::new();
    machine.write("/etc/rancher/k3s/k3s.yaml", "clusters: [");
    std::fs::create_dir_all(machine.path("/etc/rancher/rke2")).unwrap();
    std::fs::File::create(machine.path("/etc/rancher/rke2/rke2.yaml")).unwrap().set_len(1 << 40).unwrap();
    for found in found(&machine).await {
        let Fact::Unknown { cause, .. } = &found.content else { panic!("{found:?}") };
        assert_eq!(*cause, UnknownCause::InvalidInput, "{found:?}");
    }
}

#[tokio::test]
async fn what_everybody_may_read_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new();
    machine.write(CLOUD_CONFIG, &kubeconfig("http://x", "token: x"));
    for (mode, told) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(machine.path(CLOUD_CONFIG), std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(found(&machine).await[0].world_readable, told);
    }
}

#[tokio::test]
async fn slow_servers_hide_no_other_and_what_was_not_reached_says_so() {
    // Accepts by the kernel alone and never says a word.
    let slow = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let of = async |slow_ones: usize, last: std::net::SocketAddr| {
        let machine = Machine::new();
        let mut settings = CredentialSettings::default();
        let servers = std::iter::repeat_n(slow.local_addr().unwrap(), slow_ones).chain([last]);
        for (n, server) in servers.enumerate() {
            let path = format!("/root/{n}.yaml");
            machine.write(&path, &kubeconfig(&format!("https://{server}"), "token: x"));
            settings.kubeconfigs.push(path.into());
        }
        let read = read(&machine.cx(), &settings, Duration::from_secs(3), &mut Memory::default()).await;
        read.value().cloned().unwrap().kubeconfigs.pop().unwrap().call
    };
    let call = of(AT_ONCE - 1, closed).await;
    assert!(matches!(call, Fact::Unknown { cause: UnknownCause::ConnectionRefused, .. }), "{call:?}");
    let call = of(AT_ONCE, closed).await;
    assert!(
        matches!(call, Fact::Unknown { cause: UnknownCause::TimedOut, ref detail, .. } if detail.contains("not reached in this pass")),
        "{call:?}"
    );
}
