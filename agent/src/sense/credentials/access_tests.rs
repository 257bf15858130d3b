use super::*;

fn answered(token: &str, status: u16, body: &str) -> Answered {
    let status = StatusCode::from_u16(status).unwrap();
    Answered { status, body: Bytes::from(body.to_owned()), secret: Secret::of(token) }
}

#[test]
fn a_server_that_echoes_a_token_has_it_taken_out_of_its_words() {
    let rancher = "kubeconfig-user-x:S3CRETKEY";
    let jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.S3CRETKEY";
    let padding = "x".repeat(SAID - 30);
    for (token, body) in [
        (rancher, format!("bad token {rancher}")),
        (rancher, "stack: key=S3CRETKEY name=kubeconfig-user-x".to_owned()),
        (rancher, "token=kubeconfig-user-x%3AS3CRETKEY".to_owned()),
        (rancher, format!("{{\"message\": \"Authorization: Bearer {rancher}\"}}")),
        // Cut in its middle by the limit of what is kept.
        (rancher, format!("{padding} {rancher}")),
        (jwt, format!("stack: Authorization: Bearer {jwt}")),
        (jwt, "signature S3CRETKEY does not fit".to_owned()),
        ("S3CRETKEY", "bad token S3CRETKEY".to_owned()),
    ] {
        let said = answered(token, 401, &body).said();
        assert!(!said.contains("S3CR") && said.contains("[secret]"), "{said}");
        for status in [401, 403, 500, 302] {
            let Err(failure) = object(&answered(token, status, &body)) else { panic!("{status}") };
            assert!(!failure.detail.contains("S3CR"), "{}", failure.detail);
        }
    }
    assert_eq!(answered("", 401, "must authenticate").said(), "must authenticate");
    assert_eq!(answered("x", 401, "must not expire").said(), "must not expire");
}

#[test]
fn only_a_version_of_kubernetes_proves_that_a_credential_is_accepted() {
    assert!(is_version(br#"{"major":"1","gitVersion":"v1.34.1+rke2r1"}"#));
    for other in [
        "<!DOCTYPE html><title>Login</title>",
        "",
        "null",
        "[]",
        "{}",
        "{\"gitVersion\":\"\"}",
        "{\"gitVersion\":1}",
    ] {
        assert!(!is_version(other.as_bytes()), "{other}");
    }
}
