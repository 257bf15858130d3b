//! Limits on userdata, counted as those who refuse it count (`facts/cloud-init.md`, section 3).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::lint::Context;
use crate::{Finding, Platform, Severity};

/// Bytes of userdata, decoded, that KubeVirt accepts inside a VM's spec; exactly this many are accepted.
pub const VM_SPEC_LIMIT: usize = 2048;

/// The way out of the limit.
pub(crate) const SECRET: &str =
    "put it into a Secret with the keys userdata and networkdata, and refer to that";

/// Where userdata lies in a VM's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `userData`: plain text.
    Plain,
    /// `userDataBase64`: encoded; what counts is what it decodes to.
    Base64,
    /// A reference to a Secret: this limit does not apply.
    Secret,
}

/// What a base64 field holds, decoded; line ends and blanks inside do not count, and padding may be missing.
pub fn decoded(content: &[u8]) -> Result<Vec<u8>, Finding> {
    let text: Vec<u8> = content.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    STANDARD.decode(&text).or_else(|_| STANDARD_NO_PAD.decode(&text)).map_err(|e| {
        let cure = "encode the text once, or put it into the plain field";
        Finding::error("NotBase64", 0, format!("the base64 field does not decode: {e}"), cure)
    })
}

/// Size of `content` as KubeVirt counts it, in decoded bytes; an error when a base64 field does not decode.
pub fn counted(field: Field, content: &[u8]) -> Result<usize, Finding> {
    if field != Field::Base64 {
        return Ok(content.len());
    }
    decoded(content).map(|bytes| bytes.len())
}

/// Refuses what does not fit into a VM's spec, with both numbers and the way out.
pub fn check(field: Field, content: &[u8]) -> Option<Finding> {
    let bytes = match counted(field, content) {
        Ok(bytes) => bytes,
        Err(finding) => return Some(finding),
    };
    (field != Field::Secret && bytes > VM_SPEC_LIMIT).then(|| {
        let message = format!(
            "{bytes} bytes after decoding; a VM's spec takes {VM_SPEC_LIMIT}, and base64 does not help"
        );
        Finding::error("TooLargeForVmSpec", 0, message, SECRET)
    })
}

/// Whether a document of so many bytes, decoded, fits where it goes. Where nobody said where that is, a VM's spec is what
/// is warned about.
pub(crate) fn fits(bytes: usize, context: &Context) -> Option<Finding> {
    if context.field == Some(Field::Secret) {
        return None;
    }
    match context.platform.map(Platform::limit) {
        Some(Some(limit)) if bytes > limit.bytes => {
            let code = if limit.bytes == VM_SPEC_LIMIT { "TooLargeForVmSpec" } else { "TooLarge" };
            let message = format!("{bytes} bytes; {}", limit.counting);
            Some(Finding::error(code, 0, message, limit.way_out))
        }
        Some(_) if context.platform == Some(Platform::RancherMachine) && bytes > VM_SPEC_LIMIT => {
            let message = format!(
                "{bytes} bytes are more than the {VM_SPEC_LIMIT} of a VM's spec: the driver moves them to a Secret, and the \
                 network data with them, whatever its size"
            );
            Some(Finding::info("MovedToSecret", message, "nothing to do"))
        }
        Some(_) => None,
        None if bytes > VM_SPEC_LIMIT => {
            let message = format!(
                "{bytes} bytes; a VM's spec takes {VM_SPEC_LIMIT} after decoding, and base64 does not help"
            );
            let finding = Finding::error("TooLargeForVmSpec", 0, message, SECRET);
            let named = context.field.is_some();
            Some(if named { finding } else { Finding { severity: Severity::Warn, ..finding } })
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case TC04, every row and its neighbours.
    #[test]
    fn two_kibibytes_of_decoded_bytes() {
        let code = |field, content: &[u8]| check(field, content).map(|f| f.code);
        assert_eq!(code(Field::Plain, &[b'a'; 2048]), None);
        assert_eq!(code(Field::Plain, &[b'a'; 2049]), Some("TooLargeForVmSpec"));
        let (fits, over) = (STANDARD.encode([b'a'; 2048]), STANDARD.encode([b'a'; 2049]));
        assert_eq!((fits.len(), over.len()), (2732, 2732), "the text's length tells nothing");
        assert_eq!(code(Field::Base64, fits.as_bytes()), None);
        assert_eq!(code(Field::Base64, over.as_bytes()), Some("TooLargeForVmSpec"));
        let umlauts = format!("{}{}", "a".repeat(2040), "é".repeat(10));
        let finding = check(Field::Plain, umlauts.as_bytes()).unwrap();
        assert!(finding.message.starts_with("2060 bytes"), "{}", finding.message);
        assert_eq!(code(Field::Secret, &[b'a'; 5000]), None);
        let wrapped = fits.as_bytes().chunks(76).collect::<Vec<_>>().join(&b'\n');
        assert_eq!(code(Field::Base64, &wrapped), None, "line ends inside base64 do not count");
        assert_eq!(code(Field::Base64, b"#cloud-config"), Some("NotBase64"));
    }
}
