//! Documents as JSON and YAML.

use serde::Serialize;

/// The document, indented, with a newline at its end. The same document always yields the same bytes.
pub(crate) fn json<T: Serialize + ?Sized>(document: &T) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

/// The document as YAML, by way of its JSON so that both have the same fields.
pub(crate) fn yaml<T: Serialize + ?Sized>(document: &T) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(&serde_json::to_value(document)?)?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}
