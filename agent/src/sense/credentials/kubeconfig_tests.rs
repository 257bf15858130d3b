use proptest::prelude::*;

use super::*;

const HARVESTER: &str = "apiVersion: v1\nkind: Config\nclusters:\n- name: default\n  cluster:\n    server: https://192.0.2.10:6443\n\
    \x20   certificate-authority-data: Q0E=\ncontexts:\n- name: default\n  context:\n    cluster: default\n    user: default\n\
    \x20   namespace: prod\ncurrent-context: default\nusers:\n- name: default\n  user:\n    token: kubeconfig-user-x:S3CRET\n";

fn passed(text: &str) -> String {
    serde_json::to_string(&excerpt(text)).unwrap()
}

fn fault(text: &str) -> String {
    Kubeconfig::read(text).unwrap().written.chosen().err().unwrap_or_default()
}

#[test]
fn the_current_context_is_chosen() {
    let read = Kubeconfig::read(HARVESTER).unwrap();
    let chosen = read.written.chosen().unwrap();
    assert_eq!(chosen.cluster.server, "https://192.0.2.10:6443");
    assert_eq!((chosen.context.namespace.as_str(), chosen.place), ("prod", 0));
    assert_eq!(chosen.user.kinds(), [CredentialKind::Token]);
    assert_eq!(read.secrets[0].token, "kubeconfig-user-x:S3CRET");
}

#[test]
fn an_excerpt_reads_like_the_file_without_its_secrets() {
    let key = BASE64.encode("-----BEGIN PRIVATE KEY-----\nS3CRET\n-----END PRIVATE KEY-----\n");
    let text = HARVESTER.replace("token: kubeconfig-user-x:S3CRET", &format!(
        "token: kubeconfig-user-x:S3CRET\n    password: S3CRET\n    client-key-data: {key}\n    exec: {{command: /usr/bin/aws, args: [S3CRET], env: [{{name: A, value: S3CRET}}]}}"
    ));
    let passed = passed(&text);
    assert!(!passed.contains("S3CRET") && !passed.contains(&key), "{passed}");
    let (whole, read) = (Kubeconfig::read(&text).unwrap(), Kubeconfig::read(&passed).unwrap());
    assert_eq!(whole.written, read.written);
    assert!(whole.is_whole() && !read.is_whole());
    let user = &read.written.users[0];
    assert_eq!(user.kinds(), [CredentialKind::Token, CredentialKind::Basic, CredentialKind::Exec]);
    assert_eq!(user.exec, "aws");
}

#[test]
fn what_no_client_can_use_is_named() {
    for (from, to, words) in [
        ("current-context: default\n", "", "current-context is not set"),
        ("current-context: default", "current-context: other", "names \"other\""),
        ("cluster: default\n    user", "cluster: gone\n    user", "the cluster \"gone\""),
        ("user: default\n    namespace", "user: gone\n    namespace", "the user \"gone\""),
        ("server: https://192.0.2.10:6443", "server: ''", "has no server"),
        ("users:\n", "users:\n- name: default\n  user: {}\n", "two entries for the user"),
    ] {
        assert!(HARVESTER.contains(from), "{from}");
        let fault = fault(&HARVESTER.replace(from, to));
        assert!(fault.contains(words) && !fault.contains("S3CRET"), "{words}: {fault}");
    }
}

#[test]
fn several_contexts_are_counted_and_one_is_used() {
    let text =
        HARVESTER.replace("contexts:\n", "contexts:\n- name: old\n  context: {cluster: gone, user: gone}\n");
    let read = Kubeconfig::read(&text).unwrap();
    assert_eq!(read.written.contexts.len(), 2);
    assert_eq!(read.written.chosen().unwrap().context.name, "default");
}

#[test]
fn what_is_no_kubeconfig_is_told_apart() {
    for (text, expected) in [
        ("", NoKubeconfig::Empty),
        ("# nothing\n", NoKubeconfig::Empty),
        ("[Global]\nusername = admin\npassword = S3CRET\n", NoKubeconfig::SomethingElse),
        ("{\"cloud\":\"AzurePublicCloud\",\"aadClientSecret\":\"S3CRET\"}", NoKubeconfig::SomethingElse),
        ("users: [S3CRET]\n", NoKubeconfig::Malformed),
        ("clusters: {a: b}\n", NoKubeconfig::Malformed),
        ("users:\n- name: [S3CRET\n", NoKubeconfig::Malformed),
        ("- a\n- b\n", NoKubeconfig::Malformed),
    ] {
        let why = Kubeconfig::read(text).err().unwrap();
        assert_eq!(why, expected, "{text}");
        let passed = passed(text);
        assert!(!passed.contains("S3CRET"));
        assert_eq!(Kubeconfig::read(&passed).err(), Some(expected), "{passed}");
    }
}

#[test]
fn certificates_in_it_are_read_and_their_keys_are_not_passed() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["a".into()]).unwrap().self_signed(&key).unwrap();
    // Some tools put the key into the same text.
    let both = BASE64.encode(format!("{}{}", certificate.pem(), key.serialize_pem()));
    let with = |data: &str| {
        HARVESTER.replace("token: kubeconfig-user-x:S3CRET", &format!("client-certificate-data: {data}"))
    };
    let passed = passed(&with(&both));
    let user = Kubeconfig::read(&passed).unwrap().written.users[0].clone();
    assert_eq!(user.certificates, [BASE64.encode(certificate.der())]);
    assert_eq!(user.kinds(), [CredentialKind::ClientCertificate]);
    assert!(!passed.contains(&BASE64.encode(key.serialize_der())));
    for (data, words) in [("'%%%'", "no base64"), ("aGVsbG8=", "no PEM certificate")] {
        let read = Kubeconfig::read(&with(data)).unwrap();
        assert!(read.written.users[0].certificate_fault.contains(words));
    }
}

proptest! {
    #[test]
    fn never_panics_and_passes_no_secret(bytes in "\\PC{0,200}", token in "S3CRET[a-zA-Z0-9]{1,40}") {
        let _ = Kubeconfig::read(&bytes);
        let _ = excerpt(&bytes);
        let text = HARVESTER.replace("kubeconfig-user-x:S3CRET", &token);
        let passed = passed(&text);
        prop_assert!(!passed.contains(&token));
    }
}
