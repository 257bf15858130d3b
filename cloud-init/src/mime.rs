//! MIME multipart userdata taken apart: the parts that cloud-init would read, each with the line it begins on.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Type without parameters, lower case, such as `text/cloud-config`.
    pub content_type: String,
    /// File name, where one is given.
    pub name: String,
    /// A header asks for a way of merging (`Merge-Type`, `X-Merge-Type`).
    pub merge_type: bool,
    /// The body, decoded.
    pub body: Vec<u8>,
    /// Line of the document on which the body begins, from 1.
    pub line: usize,
    /// The body stands in the document as it is; otherwise lines inside it cannot be told.
    pub as_written: bool,
}

/// Why a document is no multipart that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// Most parts that are read; userdata has a handful.
const MAX_PARTS: usize = 200;
/// How deep a multipart inside a multipart is followed.
const MAX_DEPTH: usize = 4;

/// The parts of `text`, containers opened.
pub fn parts(text: &str) -> Result<Vec<Part>, Error> {
    let mut out = Vec::new();
    read(text, 1, MAX_DEPTH, &mut out)?;
    Ok(out)
}

struct Headers {
    content_type: String,
    boundary: Option<String>,
    name: String,
    encoding: String,
    merge_type: bool,
}

fn read(text: &str, first_line: usize, depth: usize, out: &mut Vec<Part>) -> Result<(), Error> {
    let (headers, body, line) = headers(text, first_line);
    let refuse = |message: &str| Err(Error { line: first_line, message: message.to_owned() });
    if !headers.content_type.starts_with("multipart/") {
        if out.len() == MAX_PARTS {
            return refuse("more parts than can be meant");
        }
        out.push(part(headers, body, line));
        return Ok(());
    }
    let Some(boundary) = headers.boundary.filter(|boundary| !boundary.is_empty()) else {
        return refuse("a multipart without a boundary in its Content-Type");
    };
    if depth == 0 {
        return refuse("multiparts nested deeper than can be meant");
    }
    let (open, close) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut start: Option<(usize, usize)> = None;
    let (mut at, mut number, mut found) = (0, line, false);
    for whole in body.split_inclusive('\n') {
        let trimmed = whole.trim_end();
        let ends = trimmed == close;
        if ends || trimmed == open {
            found = true;
            if let Some((from, from_line)) = start.take() {
                // The line end before a boundary belongs to the boundary.
                let inner = body[from..at].strip_suffix('\n').unwrap_or(&body[from..at]);
                read(inner.strip_suffix('\r').unwrap_or(inner), from_line, depth - 1, out)?;
            }
            if ends {
                return Ok(());
            }
            start = Some((at + whole.len(), number + 1));
        }
        at += whole.len();
        number += 1;
    }
    if !found {
        return refuse("no line with the boundary that its Content-Type names");
    }
    if let Some((from, from_line)) = start {
        read(&body[from..], from_line, depth - 1, out)?;
    }
    Ok(())
}

fn part(headers: Headers, body: &str, line: usize) -> Part {
    let (body, as_written) = match headers.encoding.as_str() {
        "base64" => {
            let squeezed: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            STANDARD
                .decode(squeezed)
                .map_or_else(|_| (body.as_bytes().to_vec(), true), |bytes| (bytes, false))
        }
        "quoted-printable" => (quoted_printable(body), false),
        _ => (body.as_bytes().to_vec(), true),
    };
    Part {
        content_type: headers.content_type,
        name: headers.name,
        merge_type: headers.merge_type,
        body,
        line,
        as_written,
    }
}

fn quoted_printable(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes().peekable();
    let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
    while let Some(b) = bytes.next() {
        if b != b'=' {
            out.push(b);
            continue;
        }
        bytes.next_if_eq(&b'\r');
        if bytes.next_if_eq(&b'\n').is_some() {
            continue;
        }
        let Some(high) = digit(bytes.peek()) else {
            out.push(b);
            continue;
        };
        bytes.next();
        let low = digit(bytes.peek());
        if low.is_some() {
            bytes.next();
        }
        out.push(u8::try_from(high * 16 + low.unwrap_or(0)).unwrap_or(b'?'));
    }
    out
}

/// Headers, the text behind the blank line that ends them, and the line it begins on.
fn headers(text: &str, first_line: usize) -> (Headers, &str, usize) {
    let mut fields: Vec<(String, String)> = Vec::new();
    let (mut at, mut line) = (0, first_line);
    for whole in text.split_inclusive('\n') {
        let trimmed = whole.trim_end();
        let field = trimmed.split_once(':').filter(|(name, _)| !name.is_empty() && !name.contains(' '));
        if trimmed.is_empty() {
            at += whole.len();
            line += 1;
            break;
        } else if whole.starts_with([' ', '\t']) && !fields.is_empty() {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(trimmed.trim_start());
            }
        } else if let Some((name, value)) = field {
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        } else {
            // No header: what stands here is the body already.
            break;
        }
        at += whole.len();
        line += 1;
    }
    let get = |name: &str| fields.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value.as_str());
    let kind = get("content-type");
    let parameter = |field: &str, name: &str| {
        field.split(';').skip(1).find_map(|word| {
            let (key, value) = word.split_once('=')?;
            (key.trim().eq_ignore_ascii_case(name)).then(|| value.trim().trim_matches('"').to_owned())
        })
    };
    let content_type = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let headers = Headers {
        content_type: if content_type.is_empty() { "text/plain".to_owned() } else { content_type },
        boundary: parameter(kind, "boundary"),
        name: parameter(get("content-disposition"), "filename").unwrap_or_default(),
        encoding: get("content-transfer-encoding").to_ascii_lowercase(),
        merge_type: !get("merge-type").is_empty() || !get("x-merge-type").is_empty(),
    };
    (headers, &text[at..], line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "Content-Type: multipart/mixed; boundary=\"==x==\"\nMIME-Version: 1.0\n\nignored\n--==x==\nContent-Type: text/cloud-config; charset=\"us-ascii\"\nContent-Disposition: attachment;\n filename=\"a.yaml\"\n\n#cloud-config\npackages: [a]\n\n--==x==\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\nIyEvYmluL3NoCg==\n--==x==--\nafter\n";

    #[test]
    fn parts_with_their_lines() {
        let found = parts(TWO).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].content_type.as_str(), found[0].name.as_str(), found[0].line),
            ("text/cloud-config", "a.yaml", 10)
        );
        assert_eq!(found[0].body, b"#cloud-config\npackages: [a]\n");
        assert_eq!((found[1].body.as_slice(), found[1].as_written), (&b"#!/bin/sh\n"[..], false));
        let crlf = parts(&TWO.replace('\n', "\r\n")).unwrap();
        assert_eq!((crlf.len(), crlf[0].line), (2, 10));
        assert_eq!(crlf[0].body, b"#cloud-config\r\npackages: [a]\r\n");
    }

    #[test]
    fn what_is_no_multipart_is_refused() {
        for (text, word) in [
            ("Content-Type: multipart/mixed\n\n", "without a boundary"),
            ("Content-Type: multipart/mixed; boundary=x\n\nnothing\n", "no line with the boundary"),
        ] {
            assert!(parts(text).unwrap_err().message.contains(word), "{text:?}");
        }
        let nested = (0..9).fold("a".to_owned(), |inner, n| {
            format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n{inner}\n--b{n}--\n")
        });
        assert!(parts(&nested).unwrap_err().message.contains("nested"));
        let many = format!("Content-Type: multipart/mixed; boundary=x\n\n{}", "--x\n\na\n".repeat(500));
        assert!(parts(&many).unwrap_err().message.contains("more parts"));
        assert_eq!(quoted_printable("a=20b=\nc=3D=ZZ"), b"a bc==ZZ");
    }
}
