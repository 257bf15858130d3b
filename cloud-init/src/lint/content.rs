//! What a file of `write_files` will hold, decoded as cloud-init decodes it (canonical/cloud-init: cc_write_files.py).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::gzip;
use crate::yaml::Node;

/// How the content is encoded; `None` for a word that cloud-init does not know, and then writes the text as it stands.
pub(super) fn encoding(file: &Node) -> Option<(bool, bool)> {
    let word = file.get("encoding").and_then(Node::text).unwrap_or_default().trim().to_ascii_lowercase();
    match word.as_str() {
        "" | "text/plain" => Some((false, false)),
        "b64" | "base64" => Some((true, false)),
        "gz" | "gzip" => Some((false, true)),
        "gz+b64" | "gzip+b64" | "gz+base64" | "gzip+base64" => Some((true, true)),
        _ => None,
    }
}

/// The content as text; `None` where there is none, or where it cannot be decoded.
pub(super) fn of(file: &Node) -> Option<Cow<'_, str>> {
    let node = file.get("content")?;
    let text = node.text()?;
    let (base64, gzip) = encoding(file).unwrap_or_default();
    let binary = node.tag == Some("binary");
    if !(base64 || gzip || binary) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..usize::from(binary) + usize::from(base64) {
        bytes.retain(|b| !b.is_ascii_whitespace());
        bytes = STANDARD.decode(&bytes).ok()?;
    }
    if gzip {
        bytes = gzip::unpack(&bytes).ok()?;
    }
    Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
}
