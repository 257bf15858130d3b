use outrider_protocol::KubeconfigContent;
use serde_json::json;

use super::super::super::prepared::Machine;
use super::*;

const TEXT: &str = "kind: Config\nclusters: [{name: c, cluster: {server: 'https://rancher.example/k8s/clusters/c-m-x'}}]\n\
    contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n\
    users: [{name: u, user: {token: 'kubeconfig-user-x:S3CRET'}}]\n";

fn secret(name: &str, annotations: Value, data: Value) -> Value {
    let metadata = json!({
        "name": name, "namespace": "cattle-global-data", "creationTimestamp": "2026-11-01T00:00:00Z",
        "annotations": annotations,
    });
    json!({"metadata": metadata, "data": data, "type": "Opaque"})
}

fn harvester(annotations: Value, text: &str) -> CloudCredential {
    let data = json!({
        "harvestercredentialConfig-kubeconfigContent": BASE64.encode(text),
        "harvestercredentialConfig-clusterId": BASE64.encode("c-m-x"),
    });
    match told(&Machine::new().cx(), secret("cc-abc", annotations, data)) {
        Told::Credential(credential) => *credential,
        _ => panic!("no credential"),
    }
}

#[test]
fn of_a_credential_the_name_of_its_token_is_known_and_no_key() {
    let credential = harvester(json!({"field.cattle.io/name": "lab", EXPIRATION: "1796000000000"}), TEXT);
    assert_eq!((credential.id.as_str(), credential.name.as_str()), ("cc-abc", "lab"));
    assert_eq!(credential.expiration.as_deref(), Some("1796000000000"));
    assert_eq!(token_name(&credential).as_deref(), Some("kubeconfig-user-x"));
    assert!(!credential.made_to_last && credential.created_at.is_some());
    let told = serde_json::to_string(&credential).unwrap();
    assert!(!told.contains("S3CRET"), "{told}");
}

#[test]
fn ranchers_mark_counts_for_the_kubeconfig_it_was_made_for() {
    let checksum = certificate::hex(&certificate::sha256(TEXT.as_bytes()));
    assert!(harvester(json!({MADE_TO_LAST: checksum}), TEXT).made_to_last);
    assert!(!harvester(json!({MADE_TO_LAST: checksum}), &TEXT.replace("user-x", "user-y")).made_to_last);
    assert!(!harvester(Value::Null, TEXT).made_to_last);
}

#[test]
fn a_broken_kubeconfig_is_told_and_not_repeated() {
    for (text, words) in
        [("", "empty"), ("clusters: [S3CRET", "not the YAML"), ("a: S3CRET", "neither clusters")]
    {
        let fact = harvester(Value::Null, text).kubeconfig.unwrap();
        let Fact::Unknown { detail, .. } = &fact else { panic!("{fact:?}") };
        assert!(detail.contains(words) && !detail.contains("S3CRET"), "{detail}");
    }
    let fault = harvester(Value::Null, &TEXT.replace("current-context: c\n", "")).kubeconfig.unwrap();
    let fault: &KubeconfigContent = fault.value().unwrap();
    assert!(fault.fault.contains("current-context"));
}

#[test]
fn of_an_access_key_four_characters_are_told() {
    let aws = |key: &str| {
        let data = json!({ACCESS_KEY: BASE64.encode(key), "amazonec2credentialConfig-secretKey": BASE64.encode("S3CRET")});
        match told(&Machine::new().cx(), secret("cc-aws", Value::Null, data)) {
            Told::Credential(credential) => *credential,
            _ => panic!("no credential"),
        }
    };
    let lasting = aws("AKIAIOSFODNN7EXAMPLE");
    assert_eq!((lasting.key_hint.as_str(), lasting.temporary), ("MPLE", false));
    assert!(aws("ASIAIOSFODNN7EXAMPLE\n").temporary);
    for odd in ["short", "", "ünïcödé-and-long-enough"] {
        assert_eq!(aws(odd).key_hint, "", "{odd}");
    }
    let told = serde_json::to_string(&lasting).unwrap();
    assert!(!told.contains("AKIA") && !told.contains("S3CRET"), "{told}");
}

#[test]
fn what_is_no_credential_of_these_clouds_is_counted_or_left() {
    let cx = Machine::new().cx();
    let azure = secret("cc-az", Value::Null, json!({"azurecredentialConfig-clientSecret": "eA=="}));
    assert!(matches!(told(&cx, azure), Told::Other));
    for other in [
        secret("x", Value::Null, json!({"a": "b"})),
        secret("x", Value::Null, Value::Null),
        json!({}),
        json!(1),
    ] {
        assert!(matches!(told(&cx, other), Told::Nothing));
    }
}

#[test]
fn clusters_and_their_machine_pools_name_credentials() {
    let cluster = json!({
        "metadata": {"namespace": "fleet-default", "name": "prod"},
        "spec": {
            "cloudCredentialSecretName": "cattle-global-data:cc-abc",
            "rkeConfig": {"machinePools": [{"cloudCredentialSecretName": "cattle-global-data:cc-def"}, {}, 1]},
        },
    });
    let (name, used) = uses(&cluster);
    assert_eq!(name, "fleet-default/prod");
    assert_eq!(used, ["cattle-global-data:cc-abc", "cattle-global-data:cc-def"]);
    assert_eq!(uses(&json!({})).1, Vec::<String>::new());
}
