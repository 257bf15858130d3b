//! Userdata packed with gzip, which cloud-init unpacks once (canonical/cloud-init: cloudinit/user_data.py).

use super::{Context, body};
use crate::gzip::{self, Failure};
use crate::header::{self, Kind};
use crate::{Field, Finding};

/// Judges what `packed` holds; lines are those of what is unpacked.
pub(super) fn check(packed: &[u8], context: &Context, findings: &mut Vec<Finding>) {
    let spec = context.platform.is_some_and(crate::Platform::is_kubevirt);
    if context.field == Some(Field::Plain) || (context.field.is_none() && spec) {
        let message = "gzip in a plain text field, which holds no such bytes: it does not arrive as it is";
        let cure = "base64 of it in the base64 field, or a Secret";
        findings.push(Finding::error("GzipInPlainField", 0, message, cure));
    }
    let Some(inner) = unpacked(packed, findings) else { return };
    let message = format!(
        "gzip of {} bytes, {} unpacked; what follows is about what is unpacked, and its lines",
        packed.len(),
        inner.len()
    );
    findings.push(Finding::info("Compressed", message, "nothing to do"));
    // Where it lies was judged for the packed bytes.
    let inside = Context { field: Some(Field::Secret), ..*context };
    body(&inner, &inside, findings);
}

/// What `packed` holds, unless cloud-init would have nothing of it.
pub(super) fn unpacked(packed: &[u8], findings: &mut Vec<Finding>) -> Option<Vec<u8>> {
    let inner = match gzip::unpack(packed) {
        Ok(inner) => inner,
        Err(Failure::Broken) => {
            let message =
                "the gzip file is cut or damaged; cloud-init cannot unpack it, and ignores all of it";
            findings.push(Finding::error("GzipBroken", 0, message, "pack it again (gzip -t FILE tests it)"));
            return None;
        }
        Err(Failure::TooLarge) => {
            let message = format!(
                "the gzip file unpacks to more than {} MiB, which is no userdata; it is not judged",
                gzip::MAX_BYTES >> 20
            );
            findings.push(Finding::error("GzipTooLarge", 0, message, "have it fetch what is large"));
            return None;
        }
    };
    if header::recognise(&inner).0 == Kind::Gzip {
        let message = "packed twice; cloud-init unpacks once, and ignores all of what is packed still";
        findings.push(Finding::error("GzipTwice", 0, message, "pack it once"));
        return None;
    }
    Some(inner)
}
