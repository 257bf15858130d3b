//! What the first bytes of userdata mean to cloud-init (`facts/cloud-init.md`, sections 1 and 2).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::Finding;
use crate::gzip;
use crate::version::{Version, Versions};

/// What cloud-init takes the document for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cloud-config mapping.
    CloudConfig,
    /// A list of parts; newer versions on some systems crash on it.
    CloudConfigArchive,
    /// A script.
    Script,
    /// A MIME multipart document.
    Multipart,
    /// A template, rendered before it is read.
    Jinja,
    /// Another `#word` that cloud-init knows (`#include`, `#cloud-boothook`, `#part-handler`).
    OtherDirective,
    /// Compressed with gzip.
    Gzip,
    /// Nothing cloud-init would act on.
    Ignored,
    /// No bytes, or blanks only.
    Empty,
}

impl Kind {
    /// One word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CloudConfig => "cloud-config",
            Self::CloudConfigArchive => "cloud-config-archive",
            Self::Script => "script",
            Self::Multipart => "multipart",
            Self::Jinja => "jinja",
            Self::OtherDirective => "directive",
            Self::Gzip => "gzip",
            Self::Ignored => "ignored",
            Self::Empty => "empty",
        }
    }
}

const HEADER: &str = "#cloud-config";
const TEMPLATE: &str = "## template: jinja";
/// First release that passes over blanks before the header and its case.
const TRIMS: Version = Version::new(0, 7, 0);
const BOM: &[u8] = b"\xEF\xBB\xBF";
const ARCHIVE: &str = "#cloud-config-archive";
const JSONP: &str = "#cloud-config-jsonp";
const OTHER_DIRECTIVES: [&str; 5] = ["#include", "#cloud-boothook", "#part-handler", "#upstart-job", JSONP];

/// Recognises `userdata` as it lies in a *plain text* field and says what cloud-init would make of it.
pub fn recognise(userdata: &[u8]) -> (Kind, Vec<Finding>) {
    if userdata.starts_with(BOM) {
        let (kind, mut findings) = recognise(&userdata[BOM.len()..]);
        let cure = "save the file as UTF-8 without byte-order mark";
        let message = "a byte-order mark (EF BB BF) stands before the header; cloud-init processes nothing";
        findings.push(Finding::error("ByteOrderMark", 1, message, cure));
        let ignored = if kind == Kind::Empty { Kind::Empty } else { Kind::Ignored };
        return (ignored, findings);
    }
    if userdata.starts_with(gzip::MARK) {
        return (Kind::Gzip, Vec::new());
    }
    if let Some(encoding) = utf_16_or_32(userdata) {
        let message = format!("the text is {encoding}; cloud-init reads UTF-8 and ignores all of it");
        let cure = "save it as UTF-8 without byte-order mark (iconv -f UTF-16 -t UTF-8)";
        return (Kind::Ignored, vec![Finding::error("NotUtf8", 1, message, cure)]);
    }
    let text = String::from_utf8_lossy(userdata);
    let trimmed = text.trim_start();
    if trimmed.is_empty() {
        let message = "no userdata: the machine starts as its image is";
        let empty = Finding::error("Empty", 0, message, "a document that begins with #cloud-config");
        return (Kind::Empty, vec![empty]);
    }
    let first_line = text[..text.len() - trimmed.len()].matches('\n').count() + 1;
    let line = trimmed.lines().next().unwrap_or_default();
    let mut findings = Vec::new();
    if trimmed.len() != text.len() {
        let message = format!(
            "the first words stand on line {first_line} behind blanks; old versions match the exact start"
        );
        let finding = Finding::warn("TextBeforeHeader", 1, &message, "delete everything before the header");
        findings.push(finding.of(Versions::Before(TRIMS)));
    }
    let mut kind = kind_of(line.trim_end(), trimmed, first_line, &mut findings);
    if kind == Kind::Jinja && trimmed.len() != text.len() {
        // Told to be a template without the blanks, and then not rendered because of them (templater.py: detect_template).
        kind = Kind::Ignored;
        let message = "blanks stand before the template's header: cloud-init takes it for a template, and then finds none on the first line; nothing is applied";
        let cure = "delete everything before the header";
        findings = vec![Finding::error("TemplateNotRendered", 1, message, cure)];
    }
    if kind == Kind::Multipart && trimmed.len() != text.len() {
        // A blank line ends the headers before the first one (B25; Python's email package reads it so).
        kind = Kind::Ignored;
        let message =
            "blanks stand before the MIME headers, so that they are none; all of the document is ignored";
        let cure = "delete everything before the first header";
        findings = vec![Finding::error("MimeHeadersMissing", 1, message, cure)];
    }
    if matches!(kind, Kind::Script | Kind::Multipart) && text.contains("\r\n") {
        let message =
            "carriage returns at the ends of lines: the interpreter takes them for part of the command";
        findings.push(Finding::warn(
            "CarriageReturns",
            first_line,
            message,
            "save the file with LF line ends",
        ));
    }
    (kind, findings)
}

/// Named by its mark, or by the NUL beside every ASCII character of the first ones.
fn utf_16_or_32(userdata: &[u8]) -> Option<&'static str> {
    match userdata {
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] | [0, 0, 0, b'#', ..] | [b'#', 0, 0, 0, ..] => {
            Some("UTF-32")
        }
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => Some("UTF-16"),
        [0, a, 0, b, ..] | [a, 0, b, 0, ..] if a.is_ascii_graphic() && b.is_ascii_graphic() => Some("UTF-16"),
        _ => None,
    }
}

fn kind_of(line: &str, body: &str, at: usize, findings: &mut Vec<Finding>) -> Kind {
    let word = line.split_whitespace().next().unwrap_or_default();
    if let Some(kind) = template(line, at, findings) {
        return kind;
    }
    if line.starts_with("#!") {
        return Kind::Script;
    }
    // cloud-init matches prefixes, the longest first (canonical/cloud-init: cloudinit/handlers/__init__.py).
    let lower = line.to_ascii_lowercase();
    if lower.starts_with(HEADER) && !lower.starts_with(ARCHIVE) && !lower.starts_with(JSONP) {
        if !line.starts_with(HEADER) {
            let message = format!("{word} is recognised by newer versions only; older ones match the case");
            findings.push(Finding::warn("HeaderCase", at, &message, HEADER).of(Versions::Before(TRIMS)));
        }
        return Kind::CloudConfig;
    }
    if lower.starts_with(ARCHIVE) {
        let message =
            "an archive is a list; some versions (24.4 on Alma and Rocky 9) assume a mapping and crash";
        findings.push(Finding::warn("CloudConfigArchive", at, message, "one plain #cloud-config mapping"));
        return Kind::CloudConfigArchive;
    }
    if OTHER_DIRECTIVES.iter().any(|prefix| lower.starts_with(prefix)) {
        return Kind::OtherDirective;
    }
    if lower.starts_with("content-type:") || lower.starts_with("mime-version:") {
        return Kind::Multipart;
    }
    if word.starts_with("--") && body.to_ascii_lowercase().contains("\ncontent-type:") {
        let message = "a multipart body without its own MIME headers; those of the HTTP answer are not seen";
        let cure = "begin with MIME-Version: 1.0 and Content-Type: multipart/mixed; boundary=\"…\"";
        findings.push(Finding::error("MimeHeadersMissing", at, message, cure));
        return Kind::Ignored;
    }
    findings.push(ignored(line, body, at));
    Kind::Ignored
}

/// Two parts of cloud-init look at a template's first line, one by the exact letters without their case
/// (canonical/cloud-init: handlers/__init__.py), the other for blanks and another name of a renderer (templater.py).
fn template(line: &str, at: usize, findings: &mut Vec<Finding>) -> Option<Kind> {
    let lower = line.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix(TEMPLATE) {
        if rest.trim().is_empty() {
            return Some(Kind::Jinja);
        }
        let message = format!("{line:?} names no renderer that cloud-init knows; nothing is applied");
        findings.push(Finding::error("TemplateNotRendered", at, message, TEMPLATE));
        return Some(Kind::Ignored);
    }
    let other = lower.strip_prefix("##").is_some_and(|rest| rest.trim_start().starts_with("template:"));
    other.then(|| {
        let message =
            format!("{line:?} is a comment, not the header of a template; all of the document is ignored");
        findings.push(Finding::error("HeaderMisspelt", at, message, TEMPLATE));
        Kind::Ignored
    })
}

/// Why a document that has no header is ignored: encoded, misspelt, or simply without one.
fn ignored(line: &str, body: &str, at: usize) -> Finding {
    if let Some(inner) = encoded(body) {
        let message =
            format!("this is base64 of {inner}; a plain field is not decoded, so all of it is ignored");
        let cure = "put this text into the base64 field as it is, or decode it for the plain field; never encode it again";
        return Finding::error("Base64InPlainField", at, &message, cure);
    }
    let squeezed: String =
        line.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_ascii_lowercase();
    if line.starts_with('#') && squeezed.starts_with("cloudconfig") {
        let message = format!("{line:?} is a comment, not the header; all of the document is ignored");
        return Finding::error("HeaderMisspelt", at, &message, HEADER);
    }
    if ["apiVersion:", "kind:"].iter().any(|key| line.starts_with(key)) {
        let message = "this is a Kubernetes object, not userdata";
        let cure = "give the text of its field userData, or what userdata of its Secret decodes to";
        return Finding::error("KubernetesObject", at, message, cure);
    }
    let message = "no header: cloud-init warns of unhandled data once and ignores all of the document";
    Finding::error("HeaderMissing", at, message, "make #cloud-config the first line")
}

/// What a base64 text holds, if it is one: looked at, never guessed from its first letters alone.
fn encoded(body: &str) -> Option<&'static str> {
    let text: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    if text.len() < 16 {
        return None;
    }
    let bytes = STANDARD.decode(&text).or_else(|_| STANDARD_NO_PAD.decode(&text)).ok()?;
    if bytes.starts_with(gzip::MARK) {
        return Some("a gzip file");
    }
    let inner = std::str::from_utf8(&bytes).ok()?;
    let start = inner.trim_start_matches('\u{feff}').trim_start();
    if start.to_ascii_lowercase().starts_with(HEADER) {
        return Some("a cloud-config");
    }
    if start.starts_with("#!") {
        return Some("a script");
    }
    encoded(inner).map(|_| "base64 (encoded twice)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;

    const BODY: &str = "packages: [a]\n";

    fn worst(userdata: &[u8]) -> (Kind, Severity, Vec<&'static str>) {
        let (kind, findings) = recognise(userdata);
        let severity = findings.iter().map(|f| f.severity).max().unwrap_or(Severity::Ok);
        (kind, severity, findings.iter().map(|f| f.code).collect())
    }

    fn check(start: &str, kind: Kind, severity: Severity, codes: &[&str]) {
        let input = format!("{start}{BODY}");
        assert_eq!(worst(input.as_bytes()), (kind, severity, codes.to_vec()), "{input:?}");
    }

    /// Case TC02, every row and further ones of its kind.
    #[test]
    fn header_recognition() {
        use Severity::{Error, Ok, Warn};
        check("", Kind::Ignored, Error, &["HeaderMissing"]);
        check("users:\n- default\n", Kind::Ignored, Error, &["HeaderMissing"]);
        check("\u{feff}#cloud-config\n", Kind::Ignored, Error, &["ByteOrderMark"]);
        check("\u{feff}#!/bin/sh\n", Kind::Ignored, Error, &["ByteOrderMark"]);
        check("\n\n#cloud-config\n", Kind::CloudConfig, Warn, &["TextBeforeHeader"]);
        check("  #cloud-config\n", Kind::CloudConfig, Warn, &["TextBeforeHeader"]);
        check("# cloud-config\n", Kind::Ignored, Error, &["HeaderMisspelt"]);
        check("#cloud_config\n", Kind::Ignored, Error, &["HeaderMisspelt"]);
        check("#  Cloud Config\n", Kind::Ignored, Error, &["HeaderMisspelt"]);
        check("#cloud-configuration\n", Kind::CloudConfig, Ok, &[]);
        check("#cloud-config-jsonp\n", Kind::OtherDirective, Ok, &[]);
        check("#Cloud-Config\n", Kind::CloudConfig, Warn, &["HeaderCase"]);
        check("#CLOUD-CONFIG\n", Kind::CloudConfig, Warn, &["HeaderCase"]);
        check("#cloud-config\n", Kind::CloudConfig, Ok, &[]);
        check("#cloud-config \n", Kind::CloudConfig, Ok, &[]);
        check("#!/bin/bash\r\necho a\r\n", Kind::Script, Warn, &["CarriageReturns"]);
        check("#!/bin/bash\necho a\n", Kind::Script, Ok, &[]);
        check("#cloud-config\r\npackages: [b]\r\n", Kind::CloudConfig, Ok, &[]);
        check("#cloud-config-archive\n", Kind::CloudConfigArchive, Warn, &["CloudConfigArchive"]);
        for header in
            ["## template: jinja", "## Template: Jinja", "## TEMPLATE: JINJA  ", "## template: jinja\r"]
        {
            check(&format!("{header}\n#cloud-config\n"), Kind::Jinja, Ok, &[]);
        }
        for header in [
            "##template:jinja",
            "## template:jinja",
            "##  template: jinja",
            "##\ttemplate: jinja",
            "## template: basic",
        ] {
            check(&format!("{header}\n#cloud-config\n"), Kind::Ignored, Error, &["HeaderMisspelt"]);
        }
        for header in
            ["## template: jinja2", "## template: jinja # x", "\n## template: jinja", " ## Template: jinja"]
        {
            check(&format!("{header}\n#cloud-config\n"), Kind::Ignored, Error, &["TemplateNotRendered"]);
        }
        check("\u{feff}## template: jinja\n#cloud-config\n", Kind::Ignored, Error, &["ByteOrderMark"]);
        check(
            "Content-Type: multipart/mixed; boundary=x\r\n\r\n",
            Kind::Multipart,
            Warn,
            &["CarriageReturns"],
        );
        check("#include\nhttps://cfg.example/a\n", Kind::OtherDirective, Ok, &[]);
        assert_eq!(worst(b"").0, Kind::Empty);
        assert_eq!(worst(b"\n \r\n").0, Kind::Empty);
        assert_eq!(worst(b"\x1f\x8b\x08\x00").0, Kind::Gzip);
        for utf_16 in
            [&b"\xff\xfe#\0c\0"[..], b"\xfe\xff\0#\0c", b"#\0c\0l\0", b"\0#\0c\0l", b"\xff\xfe\0\0#\0\0\0"]
        {
            assert_eq!(worst(utf_16), (Kind::Ignored, Error, vec!["NotUtf8"]), "{utf_16:?}");
        }
        check("--part\nContent-Type: text/cloud-config\n\n", Kind::Ignored, Error, &["MimeHeadersMissing"]);
        check("apiVersion: v1\nkind: Secret\n", Kind::Ignored, Error, &["KubernetesObject"]);
    }

    #[test]
    fn base64_in_a_plain_field() {
        for (plain, what) in [
            (b"#cloud-config\npackages: [a]\n".to_vec(), "a cloud-config"),
            (b"#!/bin/sh\necho hello there\n".to_vec(), "a script"),
            (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x01\x02\x03".to_vec(), "a gzip file"),
            (STANDARD.encode("#cloud-config\npackages: [a]\n").into_bytes(), "encoded twice"),
        ] {
            let (kind, findings) = recognise(STANDARD.encode(&plain).as_bytes());
            assert_eq!((kind, findings[0].code), (Kind::Ignored, "Base64InPlainField"));
            assert!(findings[0].message.contains(what), "{}", findings[0].message);
            assert!(findings[0].cure.contains("base64 field"));
        }
        let given = b"I2Nsb3VkLWNvbmZpZwpwYWNrYWdlczogW2FdCg==";
        assert_eq!(recognise(given).1[0].code, "Base64InPlainField");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for n in 0..=255u8 {
            recognise(&[n]);
            recognise(&[0xEF, 0xBB, 0xBF, n, b'\n', n]);
            recognise(&[b'#', n, 0xC3]);
        }
    }
}
