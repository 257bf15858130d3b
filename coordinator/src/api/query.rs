//! Query parameters, against the table of endpoints: a slip of the pen is answered, not ignored.
//!
//! What nodes ask is left alone, for a newer agent may say more than this coordinator knows; so is `/healthz`, for a probe
//! that decorates its request must not be told that the process is dead.

use axum::extract::Query;
use http::Uri;

use super::error::{Answer, Failure};
use super::routes::{Access, Endpoint, Route};
use super::strict::meant;

/// Refuses parameters that the endpoint does not know, or whose value it cannot take.
pub(super) fn check(endpoint: &Endpoint, uri: &Uri) -> Answer<()> {
    let lenient = matches!(endpoint.access, Access::Node | Access::NodeEvenExpired)
        || matches!(endpoint.route, Route::Enroll | Route::Healthz);
    if lenient || uri.query().is_none_or(str::is_empty) {
        return Ok(());
    }
    let Query(given) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|_| {
        let what = "the query cannot be read as key=value pairs divided by '&'";
        Failure::bad_request("InvalidParameter", what, "Percent-encode what is no letter or digit.")
    })?;
    let known: Vec<&str> = endpoint.query.iter().map(|(name, ..)| *name).collect();
    for (at, (key, value)) in given.iter().enumerate() {
        let Some((_, kind, description)) = endpoint.query.iter().find(|(name, ..)| name == key) else {
            return Err(unknown(endpoint, key, &known));
        };
        if given.iter().skip(at + 1).any(|(other, _)| other == key) {
            let what = format!("{} is given twice", readable(key));
            return Err(Failure::bad_request("InvalidParameter", what, "Give it once."));
        }
        let expected = match *kind {
            "integer" if value.parse::<u64>().is_err() => "a whole number from 0 on",
            "boolean" if !matches!(value.as_str(), "true" | "false") => "true or false",
            _ => continue,
        };
        return Err(Failure::bad_request(
            "InvalidParameter",
            format!("{key} is {}; {expected} is expected", readable(value)),
            format!("{key}: {description}"),
        ));
    }
    Ok(())
}

fn unknown(endpoint: &Endpoint, key: &str, known: &[&str]) -> Failure {
    let takes = match known {
        [] => format!("{} takes none", endpoint.path),
        known => format!("{} takes {}", endpoint.path, known.join(", ")),
    };
    Failure::bad_request(
        "UnknownParameter",
        format!("there is no parameter {}{}; {takes}", readable(key), meant(key, known)),
        "Correct or leave out the parameter; GET /v1/openapi.json has every path with its parameters.",
    )
}

/// A caller's word, quoted and cut to a readable length.
fn readable(word: &str) -> String {
    format!("{:?}", word.chars().take(64).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::super::routes::ENDPOINTS;
    use super::*;

    fn answer(method: http::Method, path: &str, query: &str) -> Result<(), String> {
        let endpoint = ENDPOINTS.iter().find(|e| e.method == method && e.path == path).unwrap();
        let uri = format!("{path}{query}").replace(['{', '}'], "").parse().unwrap();
        check(endpoint, &uri).map_err(|f| format!("{}: {}", f.error().reason, f.error().message))
    }

    #[test]
    fn what_is_not_known_and_what_does_not_fit_is_named_with_what_would() {
        use http::Method;
        for (method, path, query, words) in [
            (
                Method::GET,
                "/v1/nodes",
                "?labelselector=a",
                &["\"labelselector\"", "mean labelSelector", "limit"][..],
            ),
            (
                Method::GET,
                "/v1/nodes",
                "?fieldSelector=a",
                &["UnknownParameter", "labelSelector, limit, continue"],
            ),
            (Method::GET, "/v1/clusters", "?limit=5", &["UnknownParameter", "/v1/clusters takes none"]),
            (Method::GET, "/v1/nodes", "?limit=x", &["InvalidParameter", "limit is \"x\"", "whole number"]),
            (Method::GET, "/v1/nodes", "?limit=", &["limit is \"\""]),
            (Method::GET, "/v1/nodes", "?limit=-1", &["limit is \"-1\""]),
            (Method::GET, "/v1/nodes", "?limit=1&limit=2", &["\"limit\" is given twice"]),
            (Method::GET, "/v1/events", "?after=now", &["after is \"now\""]),
            (
                Method::DELETE,
                "/v1/ca/roots/{generation}",
                "?force=yes",
                &["force is \"yes\"", "true or false"],
            ),
            (Method::GET, "/readyz", "?verbos", &["mean verbose"]),
        ] {
            let problem = answer(method, path, query).unwrap_err();
            for word in words {
                assert!(problem.contains(word), "{path}{query}: {word:?} is not in {problem:?}");
            }
        }
        for (method, path, query) in [
            (Method::GET, "/v1/nodes", ""),
            (Method::GET, "/v1/nodes", "?"),
            (Method::GET, "/v1/nodes", "?limit=2&continue=&labelSelector=a%3Db"),
            (Method::GET, "/readyz", "?verbose"),
            (Method::GET, "/healthz", "?nocache=17"),
            (Method::POST, "/v1/reports", "?newer=1"),
            (Method::POST, "/v1/enroll", "?newer=1"),
        ] {
            assert_eq!(answer(method, path, query), Ok(()), "{path}{query}");
        }
    }
}
