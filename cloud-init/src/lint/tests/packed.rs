//! Userdata packed with gzip.

use base64::Engine as _;

use super::*;
use crate::gzip::{MAX_BYTES, tests::packed};

fn codes(bytes: &[u8], context: &Context) -> Vec<&'static str> {
    lint_for(bytes, context).iter().map(|f| f.code).collect()
}

fn field(field: Field) -> Context {
    Context { field: Some(field), ..Context::default() }
}

#[test]
fn what_is_packed_is_judged() {
    let anywhere = Context::default();
    let judged = |text: &str| codes(&packed(text.as_bytes()), &anywhere);
    assert_eq!(judged("#cloud-config\npackages: [a]\n"), ["Compressed"]);
    assert_eq!(judged("packages: [a]\n"), ["Compressed", "HeaderMissing"]);
    assert_eq!(judged("#cloud-config\nruncmd:\n- a: b\n"), ["Compressed", "EntryIsMapping"]);
    assert_eq!(judged(""), ["Compressed", "Empty"]);
    assert_eq!(judged("#!/bin/sh\n"), ["Compressed"]);
    let mime = "Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n--b\nContent-Type: text/cloud-config\n\nruncmd: [{a: b}]\n--b--\n";
    assert_eq!(judged(mime), ["Compressed", "EntryIsMapping"]);
    let finding = &lint(&packed(b"#cloud-config\nhostname: no\n"))[1];
    assert_eq!((finding.code, finding.line), ("Misread", 2));
}

#[test]
fn what_cloud_init_has_nothing_of() {
    let anywhere = Context::default();
    let good = packed(b"#cloud-config\npackages: [a]\n");
    for cut in 2..good.len() {
        assert_eq!(codes(&good[..cut], &anywhere), ["GzipBroken"], "{cut}");
    }
    assert_eq!(codes(&packed(&good), &anywhere), ["GzipTwice"]);
    let bomb = packed(&vec![b'a'; MAX_BYTES + 1]);
    assert!(codes(&bomb, &field(Field::Secret)).contains(&"GzipTooLarge"));
    assert_eq!(worst(&lint(&bomb)), Severity::Error);
}

#[test]
fn where_it_may_lie() {
    let good = packed(b"#cloud-config\npackages: [a]\n");
    let base64 = base64::engine::general_purpose::STANDARD.encode(&good);
    assert_eq!(codes(&good, &field(Field::Plain)), ["GzipInPlainField", "Compressed"]);
    assert_eq!(codes(base64.as_bytes(), &field(Field::Plain)), ["Base64InPlainField"]);
    assert_eq!(codes(base64.as_bytes(), &field(Field::Base64)), ["Compressed"]);
    assert_eq!(codes(&good, &field(Field::Secret)), ["Compressed"]);
    assert!(
        codes(&good, &Context { platform: Some(Platform::Harvester), ..Context::default() })
            .contains(&"GzipInPlainField")
    );
    assert_eq!(
        codes(&good, &Context { platform: Some(Platform::Aws), ..Context::default() }),
        ["Compressed"]
    );
    // Packed bytes count where a platform counts what arrives.
    let text = format!("#cloud-config\n#{}\n", "x".repeat(4000));
    assert_eq!(
        codes(
            base64::engine::general_purpose::STANDARD.encode(packed(text.as_bytes())).as_bytes(),
            &field(Field::Base64)
        ),
        ["Compressed"]
    );
}

#[test]
fn packed_parts() {
    let base64 =
        base64::engine::general_purpose::STANDARD.encode(packed(b"#cloud-config\nruncmd: [{a: b}]\n"));
    let document = |kind: &str| {
        format!(
            "Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n--b\nContent-Type: {kind}\nContent-Transfer-Encoding: base64\n\n{base64}\n--b--\n"
        )
    };
    assert_eq!(found(&document("application/x-gzip")), [("EntryIsMapping", 8)]);
    assert_eq!(found(&document("text/cloud-config")), [("GzipPartNotUnpacked", 8)]);
}
