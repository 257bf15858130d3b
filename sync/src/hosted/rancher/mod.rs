//! What Rancher does: its refresh, and in [`push`](mod@push) what its operators send. To show what comes next; never to
//! act by.
//!
//! The refresh is rancher/rancher: `pkg/controllers/management/clusterupstreamrefresher/cluster_upstream_refresher.go`, at 59bd052:
//! top-level keys only, deep equality, a null from the cloud makes a field unmanaged, and the gate is S == A alone.

pub mod push;

use serde_json::Value;

use super::Document;

/// S after Rancher's next refresh with the cloud's view `upstream`.
pub fn refresh(spec: &Document, applied: Option<&Document>, upstream: &Document) -> Document {
    if applied != Some(spec) {
        return spec.clone();
    }
    let mut out = spec.clone();
    for (field, theirs) in upstream {
        match out.get(field) {
            None | Some(Value::Null) => {}
            Some(ours) if ours == theirs => {}
            Some(_) => {
                out.insert(field.clone(), theirs.clone());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn after(spec: Value, upstream: Value) -> Value {
        let spec = spec.as_object().unwrap();
        Value::Object(refresh(spec, Some(spec), upstream.as_object().unwrap()))
    }

    /// Rows of `cases/hosted-sync-edges.md` in which Rancher differs from our rules, or agrees.
    #[test]
    fn rows_where_rancher_differs() {
        assert_eq!(after(json!({"a": false}), json!({"a": true})), json!({"a": true}), "row 1");
        assert_eq!(after(json!({"a": null}), json!({"a": true})), json!({"a": null}), "row 2");
        assert_eq!(
            after(json!({"virtualNetwork": "v"}), json!({"virtualNetwork": null})),
            json!({"virtualNetwork": null}),
            "row 6"
        );
        assert_eq!(after(json!({"g": "g"}), json!({})), json!({"g": "g"}), "row 7");
        assert_eq!(
            after(json!({"l": ["a", "b"]}), json!({"l": ["b", "a"]})),
            json!({"l": ["b", "a"]}),
            "row 9"
        );
        assert_eq!(
            after(json!({"p": []}), json!({"p": ["0.0.0.0/0"]})),
            json!({"p": ["0.0.0.0/0"]}),
            "row 10"
        );
        assert_eq!(
            after(json!({"n": [{"gpu": false}]}), json!({"n": [{"gpu": null}]})),
            json!({"n": [{"gpu": null}]}),
            "row 14"
        );
        assert_eq!(
            after(json!({"monitoring": false}), json!({"monitoring": null})),
            json!({"monitoring": null}),
            "row 20"
        );
    }

    #[test]
    fn a_closed_gate_changes_nothing() {
        let (spec, upstream) = (json!({"a": 1}), json!({"a": 2}));
        let (spec, upstream) = (spec.as_object().unwrap(), upstream.as_object().unwrap());
        assert_eq!(&refresh(spec, None, upstream), spec);
        assert_eq!(&refresh(spec, Some(upstream), upstream), spec);
    }
}
