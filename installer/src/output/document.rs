//! Documents as JSON and YAML.

use serde::Serialize;

/// The document, indented, with a newline at its end. The same document always yields the same bytes.
pub(crate) fn json<T: Serialize + ?Sized>(document: &T) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

/// The document as a value. By way of its text: writing types straight into a value would have the compiler make all that the
/// protocol writes a second time, which is a megabyte of the program.
pub(crate) fn value<T: Serialize + ?Sized>(document: &T) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::from_slice(json(document)?.as_bytes())?)
}

/// A typed document out of a value; by way of its text for the same reason.
pub(crate) fn typed<T: serde::de::DeserializeOwned>(value: &serde_json::Value) -> anyhow::Result<T> {
    Ok(serde_json::from_slice(value.to_string().as_bytes())?)
}

/// The document as YAML, by way of its JSON so that both have the same fields.
pub(crate) fn yaml<T: Serialize + ?Sized>(document: &T) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(&value(document)?)?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}
