//! RKE2 and K3s: which datastore a server has, by the order its own code decides in
//! (`facts/rke2-k3s-on-disk.md`, section 5): a write-ahead log on disk means embedded etcd, whatever the
//! configuration says; else the configured datastore; else a join or a first start.

use std::io;
use std::path::{Path, PathBuf};

use outrider_protocol::{Distribution, UnknownCause};

use super::discover::{Discovery, Disk, Found, RANCHER_ELECTION, Step, TlsFiles, loopback};
use super::disk::SnapshotSettings;
use super::expected::Configuration;
use crate::net::Failure;
use crate::sense::rancher::{self, Opened, Program, Told, scheme};

/// Looks for a server of this program.
pub(super) fn find(disk: &Disk<'_>, program: &Program) -> Step {
    let told = rancher::read(&Opened(disk.0), program);
    let data = told.data_dir(program);
    match find_in(disk, program, &told, &data) {
        Ok(step) => match (step, &told.problem) {
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
    told: &Told,
    data: &Path,
) -> Result<Step, (io::Error, PathBuf)> {
    let list = |path: PathBuf| disk.list(&path).map_err(|e| (e, path));
    let title = program.title;
    let (server, etcd) = (data.join("server"), data.join("server/db/etcd"));
    if list(etcd.join("member"))?.is_some_and(|names| names.iter().any(|n| n == "wal")) {
        return Ok(Step::found(found(disk, program, told, data, &etcd.join("member/wal"))));
    }
    let Some(in_server) = list(server)? else {
        return Ok(match list(data.to_owned())? {
            Some(_) => Step::not_here(format!("{title} agent: etcd runs on the servers only")),
            None => Step::Next,
        });
    };
    let options = &told.options;
    if let Some(endpoint) = options.datastore_endpoint() {
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
    // The endpoint may stand where it is not read: the socket tells that there is one.
    if in_server.iter().any(|n| n == "kine.sock") {
        return Ok(Step::not_here(format!(
            "{title} server with another datastore behind kine (server/kine.sock), not etcd"
        )));
    }
    if options.disable_etcd() {
        // What joins nobody has to keep its state somewhere, and that is what kine stands before.
        return Ok(Step::not_here(match options.server() {
            None if program.distribution == Distribution::Rke2 => format!(
                "{title} server on another datastore behind kine (disable-etcd, and no server to join), not etcd"
            ),
            None => format!("{title} server without etcd (disable-etcd, and no server to join)"),
            Some(_) => format!(
                "{title} server with the control plane only (disable-etcd): etcd runs on the servers it joins"
            ),
        }));
    }
    // These files exist only on servers that run etcd: it should be here and its data is not.
    let certificates = data.join("server/tls/etcd");
    if list(certificates.clone())?.is_some_and(|names| names.iter().any(|n| n == "client.crt")) {
        return Ok(Step::found(found(disk, program, told, data, &certificates)));
    }
    // Made at the first start that comes so far.
    if list(data.join("server/db"))?.is_none() {
        let begins = if options.cluster_init() { " and is to begin one (cluster-init)" } else { "" };
        return Ok(Step::not_here(format!(
            "{title} server that has no datastore{begins}: it never started here, or was emptied (no server/db)"
        )));
    }
    Ok(Step::not_here(format!("{title} server without etcd (no write-ahead log and no etcd certificates)")))
}

fn found(disk: &Disk<'_>, program: &Program, told: &Told, data: &Path, evidence: &Path) -> Found {
    let (tls, etcd) = (data.join("server/tls/etcd"), data.join("server/db/etcd"));
    // Best effort: both only add to what the member itself says.
    let removed = disk.list(&etcd).ok().flatten().is_some_and(|names| names.iter().any(|n| n == "tombstone"));
    let name = disk.read(&etcd.join("name")).ok().flatten().and_then(|bytes| String::from_utf8(bytes).ok());
    let mut found_by = evidence.display().to_string();
    if removed {
        found_by.push_str(" (with a tombstone: this member was removed from its cluster)");
    }
    let ipv6 = told.options.node_ips().first().is_some_and(|ip| ip.is_ipv6());
    let (first, second) = if ipv6 { ("::1", "127.0.0.1") } else { ("127.0.0.1", "::1") };
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
        snapshots: Some(snapshots(told, data)),
        data: Some(etcd),
    }
}

fn snapshots(told: &Told, data: &Path) -> SnapshotSettings {
    let options = &told.options;
    let folder = options.snapshot_dir().map_or_else(|| data.join("server/db/snapshots"), PathBuf::from);
    let relative = (!folder.is_absolute()).then(|| {
        let detail = format!("etcd-snapshot-dir {} is no absolute path", folder.display());
        Failure::new(UnknownCause::Unsupported, detail)
    });
    SnapshotSettings {
        folder,
        object_storage: options.object_storage(),
        schedule_disabled: options.snapshots_disabled(),
        problem: told.problem.clone().or(relative),
    }
}
