//! A signed repository that the document itself sets up, for whichever package manager the image has.

use std::collections::{BTreeMap, BTreeSet};

use super::{Problem, authority_of, plain};

/// Where packages come from, and by what they are told from others' (`packaging/repository` makes it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// `http://`, `https://` or `file:///`, of the folder that holds `deb/` and `rpm/`. What comes from there is signed, so
    /// that plain HTTP does.
    pub url: String,
    /// The public key that it is signed with.
    pub key: Key,
}

/// A public key of OpenPGP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// Itself, in ASCII armour.
    Text(String),
    /// Where it lies, in ASCII armour.
    Url {
        /// `http://`, `https://` or `file:///`.
        url: String,
        /// SHA-256 of the file there, 64 hex digits.
        sha256: String,
    },
}

const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";

impl Repository {
    pub(super) fn problems(&self, out: &mut Vec<Problem>) {
        let places = "no http://, https:// or file:/// URL";
        if !is_place(&self.url) {
            out.push(Problem::new("repo", format!("{:?} is {places}", self.url)));
        }
        match &self.key {
            Key::Text(text) => out.extend(lines(text).err().map(|why| Problem::new("repo-key", why))),
            Key::Url { url, sha256 } => {
                if !is_place(url) {
                    out.push(Problem::new("repo-key", format!("{url:?} is {places}")));
                }
                if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
                    let message = "what is downloaded is checked; write URL#SHA256, the 64 hex digits that sha256sum prints";
                    out.push(Problem::new("repo-key", message));
                }
            }
        }
    }

    pub(super) fn bind(
        &self,
        package: &str,
        flags: &mut BTreeSet<&'static str>,
        values: &mut BTreeMap<&'static str, String>,
    ) {
        flags.extend(["install", "packed", "repository"]);
        values.insert("package", package.to_owned());
        values.insert("repository", self.url.trim_end_matches('/').to_owned());
        match &self.key {
            Key::Text(text) => {
                flags.insert("key_text");
                let lines = lines(text).unwrap_or_default();
                let indented = lines.iter().map(|line| match *line {
                    "" => String::new(),
                    line => format!("      {line}"),
                });
                values.insert("key_text", indented.collect::<Vec<_>>().join("\n"));
                values.insert("key", "../outrider.asc".to_owned());
            }
            Key::Url { url, sha256 } => {
                flags.insert("key_url");
                values.insert("key_url", url.clone());
                values.insert("key_sum", sha256.to_ascii_lowercase());
                values.insert("key", "k".to_owned());
            }
        }
    }
}

/// What apt, zypper, dnf and curl take as it stands, and so does a shell: no blanks, quotes, `$` or brackets.
fn is_place(url: &str) -> bool {
    let path = match url.split_once("://") {
        Some(("file", path)) => Some(path).filter(|path| path.starts_with('/')),
        Some(("http" | "https", rest)) => authority_of(rest).map(|authority| &rest[authority.len()..]),
        _ => None,
    };
    path.is_some_and(|path| path.is_empty() || plain(path, "/-._~+=:"))
}

/// The lines of the key without what says nothing (`Comment:`), or why it is none.
fn lines(text: &str) -> Result<Vec<&str>, String> {
    let export = "export it with gpg --armor --export";
    if text.contains("PRIVATE KEY") {
        return Err("this is a PRIVATE key, which belongs to nobody but the signer; export the public one (gpg --armor --export)".to_owned());
    }
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().map(str::trim).collect();
    let begins = lines.iter().filter(|line| **line == BEGIN).count();
    let (Some(begin), Some(end), 1) =
        (lines.iter().position(|l| *l == BEGIN), lines.iter().rposition(|l| *l == END), begins)
    else {
        return Err(format!("it holds no public key, or several, in ASCII armour ({BEGIN}); {export}"));
    };
    let inside = lines.get(begin + 1..end).unwrap_or_default();
    let body: Vec<&str> =
        inside.iter().copied().filter(|line| !line.is_empty() && !line.contains(": ")).collect();
    if body.is_empty() || !body.iter().all(|line| plain(line, "+/=")) {
        return Err(format!("between its first and its last line stands what is no base64; {export}"));
    }
    Ok([BEGIN, ""].into_iter().chain(body).chain([END]).collect())
}
