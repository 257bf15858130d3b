//! RKE2 and K3s: which datastore a server has, by the order its own code decides in
//! (`facts/rke2-k3s-on-disk.md`, section 5): a write-ahead log on disk means embedded etcd, whatever the
//! configuration says; else the configured datastore; else a join or a first start.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use outrider_protocol::{Distribution, UnknownCause};
use serde_json::Value;

use super::discover::{Discovery, Disk, Found, RANCHER_ELECTION, Step, TlsFiles, loopback};
use super::disk::SnapshotSettings;
use super::expected::Configuration;
use crate::net::Failure;
use crate::privileged::{scheme, word};

/// One of the two.
pub(super) struct Program {
    distribution: Distribution,
    title: &'static str,
    data_dir: &'static str,
    config: &'static str,
}

/// RKE2.
pub(super) const RKE2: Program = Program {
    distribution: Distribution::Rke2,
    title: "RKE2",
    data_dir: "/var/lib/rancher/rke2",
    config: "/etc/rancher/rke2/config.yaml",
};

/// K3s.
pub(super) const K3S: Program = Program {
    distribution: Distribution::K3s,
    title: "K3s",
    data_dir: "/var/lib/rancher/k3s",
    config: "/etc/rancher/k3s/config.yaml",
};

/// What we read of the merged configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The data folder.
    pub data_dir: Option<String>,
    /// Where the datastore is; it may carry a password.
    pub datastore_endpoint: Option<String>,
    /// This server runs without etcd.
    pub disable_etcd: bool,
    /// Where snapshots go.
    pub snapshot_dir: Option<String>,
    /// They also go to S3.
    pub object_storage: bool,
    /// None are taken.
    pub snapshots_disabled: bool,
    /// The first `node-ip` is an IPv6 address.
    pub ipv6: bool,
    /// What could not be read or understood.
    problem: Option<Failure>,
}

/// Looks for a server of this program.
pub(super) fn find(disk: &Disk<'_>, program: &Program) -> Step {
    let config = read_config(disk, Path::new(program.config));
    let data = PathBuf::from(config.data_dir.as_deref().unwrap_or(program.data_dir));
    match find_in(disk, program, &config, &data) {
        Ok(step) => match (step, &config.problem) {
            // An unreadable configuration may hide another data folder or datastore: then "no" is not known.
            (Step::Done(Discovery::NotHere(reason)), Some(problem)) => {
                let failure =
                    problem.clone().during(format_args!("{reason}, but its configuration is not known"));
                Step::Done(Discovery::Failed { failure, source: program.config.into() })
            }
            (step, _) => step,
        },
        Err((error, path)) => Step::failed(&error, &path),
    }
}

fn find_in(
    disk: &Disk<'_>,
    program: &Program,
    config: &Config,
    data: &Path,
) -> Result<Step, (io::Error, PathBuf)> {
    let list = |path: PathBuf| disk.list(&path).map_err(|e| (e, path));
    let title = program.title;
    let (server, etcd) = (data.join("server"), data.join("server/db/etcd"));
    if list(etcd.join("member"))?.is_some_and(|names| names.iter().any(|n| n == "wal")) {
        return Ok(Step::found(found(disk, program, config, data, &etcd.join("member/wal"))));
    }
    let Some(in_server) = list(server)? else {
        return Ok(match list(data.to_owned())? {
            Some(_) => Step::not_here(format!("{title} agent: etcd runs on the servers only")),
            None => Step::Next,
        });
    };
    if let Some(endpoint) = &config.datastore_endpoint {
        // The endpoint may carry a password: only its kind is told.
        let kind = scheme(endpoint).unwrap_or("sqlite");
        return Ok(Step::not_here(match kind {
            "http" | "https" | "unix" | "unixs" => {
                format!("{title} server with an external etcd: give its endpoints in [etcd] to watch it")
            }
            kind => format!("{title} server with an external datastore ({kind}), not etcd"),
        }));
    }
    if list(data.join("server/db"))?.is_some_and(|names| names.iter().any(|n| n == "state.db")) {
        return Ok(Step::not_here(format!("{title} server on sqlite (state.db), not etcd")));
    }
    // The endpoint may stand on the command line, which is not read: the socket tells that there is one.
    if in_server.iter().any(|n| n == "kine.sock") {
        return Ok(Step::not_here(format!(
            "{title} server with another datastore behind kine (server/kine.sock), not etcd"
        )));
    }
    if config.disable_etcd {
        return Ok(Step::not_here(format!("{title} server without etcd (disable-etcd)")));
    }
    // These files exist only on servers that run etcd: it should be here and its data is not.
    let certificates = data.join("server/tls/etcd");
    if list(certificates.clone())?.is_some_and(|names| names.iter().any(|n| n == "client.crt")) {
        return Ok(Step::found(found(disk, program, config, data, &certificates)));
    }
    Ok(Step::not_here(format!("{title} server without etcd (no write-ahead log and no etcd certificates)")))
}

fn found(disk: &Disk<'_>, program: &Program, config: &Config, data: &Path, evidence: &Path) -> Found {
    let (tls, etcd) = (data.join("server/tls/etcd"), data.join("server/db/etcd"));
    // Best effort: both only add to what the member itself says.
    let removed = disk.list(&etcd).ok().flatten().is_some_and(|names| names.iter().any(|n| n == "tombstone"));
    let name = disk.read(&etcd.join("name")).ok().flatten().and_then(|bytes| String::from_utf8(bytes).ok());
    let mut found_by = evidence.display().to_string();
    if removed {
        found_by.push_str(" (with a tombstone: this member was removed from its cluster)");
    }
    let (first, second) = if config.ipv6 { ("::1", "127.0.0.1") } else { ("127.0.0.1", "::1") };
    Found {
        distribution: program.distribution.clone(),
        found_by,
        endpoints: vec![loopback(first)],
        local_alternative: Some(loopback(second)),
        files: Some(TlsFiles {
            ca: tls.join("server-ca.crt"),
            client: Some((tls.join("client.crt"), tls.join("client.key"))),
        }),
        election_timeout: RANCHER_ELECTION,
        local_name: name.map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()),
        configuration: Configuration::File(etcd.join("config")),
        snapshots: Some(SnapshotSettings {
            folder: config
                .snapshot_dir
                .as_ref()
                .map_or_else(|| data.join("server/db/snapshots"), PathBuf::from),
            object_storage: config.object_storage,
            schedule_disabled: config.snapshots_disabled,
            problem: config.problem.clone(),
        }),
        data: Some(etcd),
    }
}

/// `config.yaml` and then `config.yaml.d/*.yaml` by name, later values winning.
///
/// They hold the join token, so the root helper passes an excerpt only, and takes us to a configured `data-dir` by its
/// default name too. A file that may not be read is therefore no problem here.
fn read_config(disk: &Disk<'_>, path: &Path) -> Config {
    let mut config = Config::default();
    let folder = path.with_extension("yaml.d");
    let mut files = vec![path.to_owned()];
    match disk.list(&folder) {
        Ok(names) => {
            let mut names = names.unwrap_or_default();
            names.retain(|n| n.ends_with(".yaml") || n.ends_with(".yml"));
            names.sort();
            files.extend(names.iter().map(|n| folder.join(n)));
        }
        Err(e) => config.note(&e, &folder),
    }
    for file in files {
        match disk.read(&file) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                if let Err(why) = config.merge(&bytes) {
                    let failure = Failure::new(UnknownCause::InvalidInput, why);
                    config.problem.get_or_insert(failure.during(file.display()));
                }
            }
            Err(e) => config.note(&e, &file),
        }
    }
    config
}

impl Config {
    fn note(&mut self, error: &io::Error, path: &Path) {
        if error.kind() != io::ErrorKind::PermissionDenied {
            self.problem.get_or_insert(Failure::from(error).during(path.display()));
        }
    }

    /// Takes what one file sets. The error shows nothing of the file: it may hold a token.
    pub fn merge(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8")?;
        if text.trim().is_empty() {
            return Ok(());
        }
        // A file of comments alone is a document without a value.
        let values: Option<BTreeMap<String, Value>> =
            serde_saphyr::from_str(text).map_err(|_| "not a YAML mapping")?;
        let values = values.unwrap_or_default();
        let word = |key: &str| word(&values, key);
        let filled = |key: &str| word(key).filter(|text| !text.is_empty());
        self.data_dir = filled("data-dir").or(self.data_dir.take());
        self.datastore_endpoint = filled("datastore-endpoint").or(self.datastore_endpoint.take());
        self.snapshot_dir = filled("etcd-snapshot-dir").or(self.snapshot_dir.take());
        for (key, setting) in [
            ("disable-etcd", &mut self.disable_etcd),
            ("etcd-s3", &mut self.object_storage),
            ("etcd-disable-snapshots", &mut self.snapshots_disabled),
        ] {
            if let Some(value) = word(key) {
                *setting = value == "true";
            }
        }
        if let Some(address) = filled("node-ip") {
            self.ipv6 = address.contains(':');
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merged(files: &[&str]) -> Config {
        let mut config = Config::default();
        for file in files {
            config.merge(file.as_bytes()).unwrap();
        }
        config
    }

    #[test]
    fn later_files_win_and_json_is_yaml() {
        let config = merged(&[
            "data-dir: /data/rke2\ndatastore-endpoint: ''\nnode-ip: [10.0.0.1, 'fd00::1']\n",
            r#"{ "disable-etcd": true, "node-ip": "fd00::2,10.0.0.1" }"#,
        ]);
        assert_eq!(config.data_dir.as_deref(), Some("/data/rke2"));
        assert_eq!((config.datastore_endpoint, config.disable_etcd, config.ipv6), (None, true, true));
    }

    #[test]
    fn a_file_of_comments_alone_sets_nothing() {
        assert_eq!(merged(&["# nothing yet\n", "---\n", "~"]), Config::default());
    }

    #[test]
    fn a_broken_file_is_named_without_its_content() {
        let error = Config::default().merge(b"token: s3cret\n- x").unwrap_err();
        assert!(!error.contains("s3cret"));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Config::default().merge(&bytes);
        }
    }
}
