//! What a token says of itself.
//!
//! A JSON web token carries its claims in the open (RFC 7519); its signature is not checked here, for only the server
//! knows the keys. A token of Rancher is a name, a colon and a key (rancher/rancher, `pkg/auth/tokens`).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use outrider_protocol::{Timestamp, TokenFacts, TokenForm};
use serde_json::Value;

/// Longest token that is looked at.
const MAX_TOKEN: usize = 32 * 1024;
/// Longest name or issuer that is kept, in characters.
const MAX_NAME: usize = 200;

/// The claims of `token`; nothing of its secret part.
pub(crate) fn facts(token: &str) -> TokenFacts {
    let token = token.trim();
    let opaque = TokenFacts {
        form: TokenForm::Opaque,
        name: String::new(),
        issuer: String::new(),
        not_before: None,
        expires_at: None,
        fault: String::new(),
    };
    if token.len() > MAX_TOKEN {
        return TokenFacts { fault: format!("it is longer than {MAX_TOKEN} bytes"), ..opaque };
    }
    if let Some(name) = rancher_name(token) {
        return TokenFacts { form: TokenForm::Rancher, name: name.to_owned(), ..opaque };
    }
    // Every JSON object begins with a brace, which base64 writes as "ey".
    if !token.starts_with("ey") || !token.contains('.') {
        return opaque;
    }
    let jwt = TokenFacts { form: TokenForm::Jwt, ..opaque };
    match claims(token) {
        Ok(claims) => read(&claims, jwt),
        Err(fault) => TokenFacts { fault: fault.to_owned(), ..jwt },
    }
}

/// The name before the colon, where the token is Rancher's: a Kubernetes name and a key of letters and digits.
pub(super) fn rancher_name(token: &str) -> Option<&str> {
    let (name, key) = token.split_once(':')?;
    let is_name = (1..=253).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'));
    let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric());
    (is_name && is_key).then_some(name)
}

fn claims(token: &str) -> Result<Value, &'static str> {
    let parts: Vec<&str> = token.split('.').collect();
    let [_, payload, _] = parts.as_slice() else {
        return Err("it is no whole JSON web token: not three parts");
    };
    let bytes = URL_SAFE_NO_PAD
        .decode(payload.trim_end_matches('='))
        .map_err(|_| "it is no whole JSON web token: its claims are no base64")?;
    let claims: Value =
        serde_json::from_slice(&bytes).map_err(|_| "it is no JSON web token: its claims are no JSON")?;
    if claims.is_object() { Ok(claims) } else { Err("it is no JSON web token: its claims are no object") }
}

fn read(claims: &Value, mut facts: TokenFacts) -> TokenFacts {
    let text = |key: &str| {
        let text = claims.get(key).and_then(Value::as_str).unwrap_or_default();
        text.chars().take(MAX_NAME).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>()
    };
    (facts.name, facts.issuer) = (text("sub"), text("iss"));
    if facts.name.starts_with("system:serviceaccount:") {
        facts.form = TokenForm::ServiceAccount;
    }
    // NumericDate: seconds, with or without a fraction.
    let date = |key: &str| match claims.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|seconds| seconds.is_finite()) {
            Some(seconds) => Ok(Some(Timestamp::from_millis((seconds * 1000.0) as i64))),
            None => Err(format!("its claim {key} is no number of seconds")),
        },
    };
    match (date("exp"), date("nbf").and_then(|nbf| Ok(nbf.or(date("iat")?)))) {
        (Ok(expires_at), Ok(not_before)) => (facts.expires_at, facts.not_before) = (expires_at, not_before),
        (Ok(expires_at), Err(_)) => facts.expires_at = expires_at,
        (Err(fault), _) => facts.fault = fault,
    }
    facts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jwt(claims: &str) -> String {
        format!("eyJhbGciOiJSUzI1NiJ9.{}.c2lnbmF0dXJl", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn claims_are_read_and_a_token_without_an_end_has_none() {
        let claims = r#"{"iss":"https://kubernetes.default.svc","sub":"system:serviceaccount:default:csi","exp":1800000000,"nbf":1700000000}"#;
        let facts = facts(&jwt(claims));
        assert_eq!(facts.form, TokenForm::ServiceAccount);
        assert_eq!(facts.name, "system:serviceaccount:default:csi");
        assert_eq!(facts.expires_at, Some(Timestamp::from_seconds(1_800_000_000)));
        assert_eq!(facts.not_before, Some(Timestamp::from_seconds(1_700_000_000)));
        let legacy =
            super::facts(&jwt(r#"{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:a:b"}"#));
        assert_eq!((legacy.expires_at, legacy.fault.as_str()), (None, ""));
        let fraction = super::facts(&jwt(r#"{"sub":"x","exp":1800000000.5}"#));
        assert_eq!(fraction.expires_at.map(Timestamp::as_millis), Some(1_800_000_000_500));
        assert_eq!(fraction.form, TokenForm::Jwt);
    }

    #[test]
    fn of_ranchers_tokens_only_the_name_is_kept() {
        for (token, name) in [
            ("kubeconfig-user-abcde:xyz", Some("kubeconfig-user-abcde")),
            ("kubeconfig-u-b4qkhsnliz:s3cret", Some("kubeconfig-u-b4qkhsnliz")),
            ("token-x7k2q:s3cret", Some("token-x7k2q")),
            ("Bearer x:y", None),
            (":key", None),
            ("name:", None),
            ("0123456789abcdef", None),
        ] {
            let facts = facts(token);
            let is_rancher = facts.form == TokenForm::Rancher;
            assert_eq!(is_rancher.then_some(facts.name.as_str()), name, "{token}");
            assert!(!format!("{facts:?}").contains("s3cret"));
        }
    }

    #[test]
    fn broken_ones_are_told_apart_and_not_repeated() {
        for (token, words) in [
            ("eyJhbGciOiJSUzI1NiJ9.e30", "three parts"),
            ("eyJhbGciOiJSUzI1NiJ9.!!s3cret!!.x", "base64"),
            ("eyJhbGciOiJSUzI1NiJ9.czNjcmV0.x", "no JSON"),
            ("eyJhbGciOiJSUzI1NiJ9.WzFd.x", "no object"),
        ] {
            let facts = facts(token);
            assert!(facts.fault.contains(words) && !facts.fault.contains("s3cret"), "{facts:?}");
        }
        assert!(facts(&jwt(r#"{"exp":"tomorrow"}"#)).fault.contains("exp"));
        assert!(facts(&"x".repeat(MAX_TOKEN + 1)).fault.contains("longer"));
        assert_eq!(facts("").form, TokenForm::Opaque);
    }

    proptest! {
        #[test]
        fn never_panics_and_keeps_no_key(name in "[a-z0-9-]{1,20}", key in "[A-Z0-9]{20,54}", junk in "\\PC{0,80}") {
            let _ = facts(&junk);
            let _ = facts(&format!("ey{junk}.{junk}.{junk}"));
            let told = format!("{:?}", facts(&format!("{name}:{key}")));
            prop_assert!(!told.contains(&key));
        }
    }
}
