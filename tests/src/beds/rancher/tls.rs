//! Certificates as people get them right and wrong: a root, an intermediate below it, and what the balancer or the
//! ingress shows.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::HOST;
use crate::beds::pki::{Authority, DAY, Issued, Seconds};

/// What is shown where TLS ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificate {
    /// For the name, in date, with its intermediate, below the root that everybody was given.
    #[default]
    Right,
    /// For another name.
    OtherName,
    /// Without the intermediate that signed it.
    NoIntermediate,
    /// Ended yesterday.
    Expired,
    /// Ends in five days, of ninety.
    Ending,
    /// Begins tomorrow.
    NotYet,
    /// Below a root that nobody was given, with its intermediate.
    UnknownRoot,
}

/// Chain, key, and both in one file as HAProxy reads them.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    pub(super) both: PathBuf,
}

pub(super) struct Certificates {
    folder: PathBuf,
    root: Authority,
    intermediate: Authority,
}

impl Certificates {
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let root = Authority::new("bed root", 3650 * DAY)?;
        let intermediate = root.intermediate("bed intermediate", 1825 * DAY)?;
        std::fs::write(folder.join("root.crt"), root.pem())?;
        Ok(Self { folder: folder.to_owned(), root, intermediate })
    }

    /// The root, as a file.
    pub(super) fn ca(&self) -> PathBuf {
        self.folder.join("root.crt")
    }

    /// The root, PEM, as Rancher serves it at `/cacerts`.
    pub(super) fn root(&self) -> String {
        self.root.pem()
    }

    /// The files of this kind, made once.
    pub(super) fn files(&self, which: Certificate) -> Result<Files> {
        let at = |end: &str| self.folder.join(format!("{which:?}.{end}").to_lowercase());
        let files = Files { chain: at("crt"), key: at("key"), both: at("pem") };
        if files.both.exists() {
            return Ok(files);
        }
        let signed =
            |name: &str, from: Seconds, to: Seconds| self.intermediate.issue(name, &[name], from, to);
        let mut above = self.intermediate.pem();
        let leaf: Issued = match which {
            Certificate::Right => signed(HOST, -30 * DAY, 335 * DAY)?,
            Certificate::OtherName => signed("other.example.com", -30 * DAY, 335 * DAY)?,
            Certificate::Expired => signed(HOST, -365 * DAY, -DAY)?,
            Certificate::Ending => signed(HOST, -85 * DAY, 5 * DAY)?,
            Certificate::NotYet => signed(HOST, DAY, 365 * DAY)?,
            Certificate::NoIntermediate => {
                above.clear();
                signed(HOST, -30 * DAY, 335 * DAY)?
            }
            Certificate::UnknownRoot => {
                let between = Authority::new("unknown root", 3650 * DAY)?
                    .intermediate("unknown intermediate", 1825 * DAY)?;
                above = between.pem();
                between.issue(HOST, &[HOST], -30 * DAY, 335 * DAY)?
            }
        };
        let chain = format!("{}{above}", leaf.certificate);
        std::fs::write(&files.chain, &chain)?;
        let private = |path: &Path| File::options().create_new(true).write(true).mode(0o600).open(path);
        private(&files.key)?.write_all(leaf.key.as_bytes())?;
        private(&files.both)?.write_all(format!("{chain}{}", leaf.key).as_bytes())?;
        Ok(files)
    }
}
