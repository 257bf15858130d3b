//! Token objects of Rancher, as its APIs write them (rancher/rancher, `pkg/apis/management.cattle.io/v3/authn_types.go`
//! and `pkg/apis/ext.cattle.io/v1`). Pure: an object in, what it says out.

use outrider_protocol::{RancherToken, Timestamp, UnknownCause};
use serde_json::Value;

use crate::net::Failure;

/// Longest name that is kept, in characters.
const MAX_NAME: usize = 253;

/// `tokens.management.cattle.io` as Kubernetes shows it.
pub(super) fn management(object: &Value) -> Result<RancherToken, Failure> {
    let name = object.pointer("/metadata/name");
    read(object, name, object.get("ttl"), object.get("expiresAt"), object.get("expired"), false)
}

/// The same as Rancher's own API (`/v3/tokens/NAME`) shows it.
pub(super) fn norman(object: &Value) -> Result<RancherToken, Failure> {
    let name = object.get("name").filter(|name| name.as_str().is_some_and(|n| !n.is_empty()));
    let name = name.or(object.get("id"));
    let mut token =
        read(object, name, object.get("ttl"), object.get("expiresAt"), object.get("expired"), false)?;
    if token.created_at.is_none() {
        token.created_at = time(object.get("created"), "created", &mut token.unread);
    }
    Ok(token)
}

/// `tokens.ext.cattle.io`.
pub(super) fn ext(object: &Value) -> Result<RancherToken, Failure> {
    let status = |key: &str| object.pointer(&format!("/status/{key}"));
    let name = object.pointer("/metadata/name");
    let mut token =
        read(object, name, object.pointer("/spec/ttl"), status("expiresAt"), status("expired"), true)?;
    token.enabled = object.pointer("/spec/enabled").and_then(Value::as_bool);
    Ok(token)
}

fn read(
    object: &Value,
    name: Option<&Value>,
    ttl: Option<&Value>,
    expires_at: Option<&Value>,
    expired: Option<&Value>,
    ext: bool,
) -> Result<RancherToken, Failure> {
    let name = name.and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name
        .ok_or_else(|| Failure::new(UnknownCause::InvalidAnswer, "what was answered is no token object"))?;
    let mut unread = Vec::new();
    let ttl_ms = match ttl {
        None | Some(Value::Null) => None,
        Some(value) => {
            let ttl = value.as_i64();
            if ttl.is_none() {
                unread.push("ttl".to_owned());
            }
            ttl
        }
    };
    let created_at = time(object.pointer("/metadata/creationTimestamp"), "creationTimestamp", &mut unread);
    let expires_at = time(expires_at, "expiresAt", &mut unread);
    Ok(RancherToken {
        name: name.chars().take(MAX_NAME).collect(),
        ext,
        ttl_ms,
        created_at,
        expires_at,
        expired: expired.and_then(Value::as_bool).unwrap_or(false),
        enabled: object.get("enabled").and_then(Value::as_bool),
        unread,
    })
}

/// An instant; an empty one is none.
fn time(value: Option<&Value>, field: &str, unread: &mut Vec<String>) -> Option<Timestamp> {
    let text = match value {
        None | Some(Value::Null) => return None,
        Some(Value::String(text)) if text.is_empty() => return None,
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    if text.is_none() {
        unread.push(field.to_owned());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_three_shapes_of_a_token_are_read() {
        let v3 = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Token",
            "metadata": {"name": "kubeconfig-user-x", "creationTimestamp": "2026-11-01T00:00:00Z"},
            "ttl": 2_592_000_000_i64, "expiresAt": "2026-12-01T00:00:00Z", "expired": false, "token": "S3CRET", "enabled": true,
        });
        let token = management(&v3).unwrap();
        assert_eq!((token.ttl_ms, token.enabled, token.ext), (Some(2_592_000_000), Some(true), false));
        assert_eq!(token.expires_at.unwrap().to_string(), "2026-12-01T00:00:00.000Z");
        assert!(!format!("{token:?}").contains("S3CRET"));
        let norman = norman(&json!({
            "id": "kubeconfig-user-x", "name": "kubeconfig-user-x", "created": "2026-11-01T00:00:00Z",
            "ttl": 0, "expiresAt": "", "expired": false,
        }))
        .unwrap();
        assert_eq!((norman.ttl_ms, norman.expires_at), (Some(0), None));
        assert!(norman.created_at.is_some() && norman.unread.is_empty());
        let ext = ext(&json!({
            "metadata": {"name": "token-abc", "creationTimestamp": "2026-11-01T00:00:00Z"},
            "spec": {"ttl": -1, "enabled": false}, "status": {"expired": false, "expiresAt": ""},
        }))
        .unwrap();
        assert_eq!((ext.ttl_ms, ext.enabled, ext.ext), (Some(-1), Some(false), true));
    }

    #[test]
    fn what_is_not_understood_is_named_and_what_is_no_token_refused() {
        let odd = json!({"metadata": {"name": "t"}, "ttl": "30d", "expiresAt": "tomorrow"});
        assert_eq!(management(&odd).unwrap().unread, ["ttl", "expiresAt"]);
        for value in [json!({}), json!([]), json!("x"), json!({"metadata": {"name": ""}})] {
            assert!(
                management(&value).is_err() && norman(&value).is_err() && ext(&value).is_err(),
                "{value}"
            );
        }
    }
}
