//! Documents that people hand over as files, pipes or standard input: bounded, and refused in words that help.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, bail};

/// What is read, and how much of it can be meant.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Most bytes; more is a mistake.
    pub(crate) max_bytes: u64,
    /// What more than that is not, such as `captured facts`.
    pub(crate) what: &'static str,
}

/// The name to show, and the bytes; `-` is standard input. What is no text is refused, and a byte-order mark left out.
pub(crate) fn read(file: &Path, wanted: Wanted) -> anyhow::Result<(String, Vec<u8>)> {
    let (name, mut bytes) = raw(file, wanted)?;
    if let Some(what) = no_text(&bytes) {
        bail!("{name} is {what}");
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok((name, bytes))
}

/// The same with every byte as it is.
pub(crate) fn raw(file: &Path, wanted: Wanted) -> anyhow::Result<(String, Vec<u8>)> {
    let (name, bytes) = if file == Path::new("-") {
        ("standard input".to_owned(), bounded(io::stdin().lock(), wanted))
    } else {
        (file.display().to_string(), open(file, wanted).and_then(|file| bounded(file, wanted)))
    };
    let bytes = bytes.with_context(|| format!("cannot read {name}"))?;
    Ok((name, bytes))
}

/// Editors put it before UTF-8; it says nothing.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What bytes are that no parser here takes for text, and what to do about it.
fn no_text(bytes: &[u8]) -> Option<&'static str> {
    Some(match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, b'{' | b'[', ..] | [b'{' | b'[', 0, ..] => {
            "UTF-16, as > of Windows PowerShell writes it; save it as UTF-8 (iconv -f UTF-16 -t UTF-8, or in PowerShell \
             | Out-File -Encoding utf8)"
        }
        [0x1f, 0x8b, ..] => "compressed with gzip; unpack it first (gzip -d, or gzip -dc into a pipe to -)",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "compressed with zstd; unpack it first (zstd -d)",
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "compressed with xz; unpack it first (xz -d)",
        [b'P', b'K', 3, 4, ..] => "a zip archive; unpack it first",
        _ => return None,
    })
}

/// One JSON or YAML document.
pub(crate) fn document(file: &Path, wanted: Wanted) -> anyhow::Result<(String, serde_json::Value)> {
    let (name, bytes) = read(file, wanted)?;
    let text = std::str::from_utf8(&bytes).with_context(|| format!("{name} is no text"))?;
    if text.trim().is_empty() {
        bail!("{name} is empty");
    }
    // JSON is YAML as well, but its own parser is quicker and says better what is wrong.
    let value = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|e| anyhow::anyhow!("{name} is not JSON: {e}"))?,
        false => serde_saphyr::from_str(text)
            .map_err(|e| anyhow::anyhow!("{name} is not one YAML document: {e}"))?,
    };
    Ok((name, value))
}

/// Opens a file or a pipe: process substitution hands over the latter. A device has no end, or no beginning.
fn open(file: &Path, wanted: Wanted) -> io::Result<File> {
    let metadata = fs::metadata(file)?;
    let kind = metadata.file_type();
    let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if kind.is_dir() {
        return refuse("it is a folder; name the files in it");
    }
    if kind.is_char_device() || kind.is_block_device() {
        return refuse("it is a device; give a file, or - for standard input");
    }
    if metadata.len() > wanted.max_bytes {
        return Err(too_long(wanted));
    }
    File::open(file)
}

fn too_long(wanted: Wanted) -> io::Error {
    let limit = match wanted.max_bytes {
        bytes if bytes < 1 << 20 => format!("{} KiB", bytes >> 10),
        bytes if bytes < 1 << 30 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} GiB", bytes >> 30),
    };
    io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit} is no {}", wanted.what))
}

fn bounded(from: impl Read, wanted: Wanted) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(wanted.max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > wanted.max_bytes {
        return Err(too_long(wanted));
    }
    Ok(bytes)
}
