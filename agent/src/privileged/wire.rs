//! The words between daemon and helper: one JSON line each way on a stream socket, then the connection ends.
//!
//! `{"open":"/path"}` is answered by `"opened"` with the descriptor as ancillary data, `{"list":"/folder"}` by
//! `{"names":[…]}`, `{"describe":"/folder"}` by `{"folder":{…}}` with sizes and times, and each by `{"refused":{"refusal":…,"detail":…}}`.

use std::io;

use serde::{Deserialize, Serialize};

use crate::sense::Folder;

/// Longest request in bytes, line end included: a path has at most 4095 bytes, JSON may escape some of them.
pub(super) const MAX_REQUEST: usize = 8 * 1024;
/// Longest reply in bytes; a longer list of names is refused.
pub(super) const MAX_REPLY: usize = 256 * 1024;

/// What the daemon may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// A read-only descriptor of this file.
    Open(String),
    /// The names in this folder.
    List(String),
    /// What lies in this folder, with sizes and times.
    Describe(String),
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    /// The descriptor comes with this line.
    Opened,
    /// Names in the folder, ordered.
    Names(Vec<String>),
    /// What lies in the folder.
    Folder(Folder),
    /// No, and why.
    Refused {
        /// The kind of refusal.
        refusal: Refusal,
        /// In words: what, where.
        detail: String,
    },
}

/// Why the helper said no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Refusal {
    /// The caller is neither root nor the daemon's user.
    NotYou,
    /// The request is no request.
    BadRequest,
    /// The path is not on the list.
    NotAllowed,
    /// The path is on the list and nothing is there.
    NotFound,
    /// A symbolic link lies on the way.
    Symlink,
    /// It is no regular file, or no folder.
    WrongType,
    /// The operating system said no.
    Failed,
}

impl Request {
    /// One line, with its end.
    pub fn to_line(&self) -> io::Result<Vec<u8>> {
        to_line(self)
    }

    /// The request of a line without its end.
    pub fn from_line(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|e| format!("no request: {e}"))
    }
}

impl Reply {
    /// A refusal.
    pub(super) fn refused(refusal: Refusal, detail: impl Into<String>) -> Self {
        Reply::Refused { refusal, detail: detail.into() }
    }

    /// One line, with its end.
    pub fn to_line(&self) -> io::Result<Vec<u8>> {
        to_line(self)
    }

    /// The reply of a line without its end.
    pub fn from_line(line: &[u8]) -> io::Result<Self> {
        Ok(serde_json::from_slice(line)?)
    }
}

fn to_line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sense::Entry;

    #[test]
    fn the_words_are_fixed() {
        let text = |line: io::Result<Vec<u8>>| String::from_utf8(line.unwrap()).unwrap();
        assert_eq!(text(Request::Open("/a".into()).to_line()), "{\"open\":\"/a\"}\n");
        assert_eq!(text(Request::List("/a".into()).to_line()), "{\"list\":\"/a\"}\n");
        assert_eq!(text(Request::Describe("/a".into()).to_line()), "{\"describe\":\"/a\"}\n");
        assert_eq!(text(Reply::Opened.to_line()), "\"opened\"\n");
        assert_eq!(text(Reply::Names(vec!["x".into()]).to_line()), "{\"names\":[\"x\"]}\n");
        let entry =
            Entry { name: "x".into(), file: true, size: 7, modified_ms: -1, mode: 0o600, uid: 0, gid: 4 };
        let folder = text(Reply::Folder(Folder { entries: vec![entry], free_bytes: None }).to_line());
        let expected = r#"{"folder":{"entries":[{"name":"x","file":true,"size":7,"modifiedMs":-1,"mode":384,"uid":0,"gid":4}],"freeBytes":null}}"#;
        assert_eq!(folder.trim_end(), expected);
        let refused = text(Reply::refused(Refusal::NotAllowed, "no").to_line());
        assert_eq!(refused, "{\"refused\":{\"refusal\":\"notAllowed\",\"detail\":\"no\"}}\n");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Request::from_line(&bytes);
            let _ = Reply::from_line(&bytes);
        }

        #[test]
        fn any_path_survives_the_way(path in "\\PC{0,60}") {
            for request in [Request::Open(path.clone()), Request::List(path.clone()), Request::Describe(path.clone())] {
                let line = request.to_line().unwrap();
                prop_assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
                prop_assert_eq!(Request::from_line(line.trim_ascii_end()), Ok(request));
            }
        }
    }

    #[test]
    fn two_questions_at_once_are_none() {
        assert!(Request::from_line(br#"{"open":"/a","list":"/b"}"#).is_err());
        assert!(Request::from_line(br#"{"write":"/a"}"#).is_err());
        assert!(Request::from_line(b"").is_err());
    }
}
