//! What the daemon may know of the configuration of RKE2 and K3s.
//!
//! Their `config.yaml` holds the join token and may hold a database password, so it is never passed. The helper reads
//! it and passes a document of the few keys that tell which datastore a node has and where (`facts/rke2-k3s-on-disk.md`,
//! section 5), in a sealed memory file: to the daemon it is the file with its secrets left out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::Value;

/// Keys without a secret in them.
const KEYS: [&str; 4] = ["data-dir", "disable-etcd", "node-ip", "cluster-init"];
/// Of this one only the scheme is kept: the rest is a connection string with a password.
const DATASTORE: &str = "datastore-endpoint";

/// The keys that may be known, of the text of a configuration file. The error never quotes the text.
pub(super) fn excerpt(text: &str) -> Result<BTreeMap<String, Value>, &'static str> {
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    let all: Option<BTreeMap<String, Value>> =
        serde_saphyr::from_str(text).map_err(|_| "not the YAML of a configuration")?;
    // A key may end in `+`: its values are added to those of earlier files.
    let known = |key: &str| KEYS.contains(&key.trim_end_matches('+'));
    let kept = all.unwrap_or_default().into_iter().filter_map(|(key, value)| {
        if key == DATASTORE {
            let scheme =
                value.as_str().and_then(|v| v.split_once("://")).map(|(scheme, _)| format!("{scheme}://"));
            // Without a scheme it is a path of sqlite, and empty means unset.
            let unset = value.as_str().is_some_and(str::is_empty);
            return Some((
                key,
                if unset { String::new() } else { scheme.unwrap_or_else(|| "sqlite".into()) }.into(),
            ));
        }
        known(&key).then_some((key, value))
    });
    Ok(kept.collect())
}

/// The excerpt as a file that nobody can change.
pub(super) fn to_file(excerpt: &BTreeMap<String, Value>) -> io::Result<OwnedFd> {
    let descriptor = memfd_create("outrider-excerpt", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(descriptor);
    file.write_all(&serde_json::to_vec(excerpt)?)?;
    file.rewind()?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let text = "token: K10abc::server:s3cret\ndata-dir: /data\nnode-ip: [10.0.0.1]\nagent-token: s3cret\n\
                    datastore-endpoint: postgres://rancher:s3cret@db:5432/k3s\nnode-ip+: [10.0.0.2]\n";
        let mut out = String::new();
        File::from(to_file(&excerpt(text).unwrap()).unwrap()).read_to_string(&mut out).unwrap();
        assert!(!out.contains("s3cret") && !out.contains("K10"), "{out}");
        let expected = r#"{"data-dir":"/data","datastore-endpoint":"postgres://","node-ip":["10.0.0.1"],"node-ip+":["10.0.0.2"]}"#;
        assert_eq!(out, expected);
    }

    #[test]
    fn unusual_datastores_keep_their_kind() {
        let kind = |text: &str| excerpt(text).unwrap()[DATASTORE].clone();
        assert_eq!(kind("datastore-endpoint: ''"), "");
        assert_eq!(kind("datastore-endpoint: /var/db"), "sqlite");
        assert_eq!(kind("datastore-endpoint: [a, b]"), "sqlite");
    }

    #[test]
    fn nothing_and_broken_are_told_apart() {
        assert_eq!(excerpt("# only a comment\n").map(|e| e.len()), Ok(0));
        assert_eq!(excerpt("").map(|e| e.len()), Ok(0));
        assert!(excerpt("token: [s3cret\n").is_err_and(|e| !e.contains("s3cret")));
        assert!(excerpt("- a\n- b\n").is_err());
    }

    #[test]
    fn the_file_is_sealed() {
        let mut file = File::from(to_file(&BTreeMap::new()).unwrap());
        assert!(file.write_all(b"x").is_err());
        assert!(file.set_len(0).is_err());
    }
}
