//! The check `certificates`: what lies on disk, and what the ports of this node really show (`facts/etcd.md`, section 8).
//!
//! Of a private key nothing is kept but whether it is that of the certificate beside it, by the fingerprints of their
//! public halves; where only root may read it, that fingerprint is all that the root helper tells. Files are certificates
//! by name, and one that holds a key as well (the kubelet's own client file) is left out. A port is asked by one TLS handshake, by address and without a server name, because the listener of RKE2's
//! and K3s' supervisor takes every name it is asked for into its certificate (rancher/dynamiclistener, `listener.go`).
//! etcd writes a line to its log for every handshake without a client certificate, so its ports are asked once an hour,
//! and again when the file has changed.
//!
//! Tour: `node` (which files and ports this node has), `rancher` and `kubernetes` (where they lie), `files` (what is in
//! a file), `key` (whether its key belongs to it), `issuer` (who signed it), `served` (what a port shows).

mod files;
mod issuer;
pub(in crate::sense) mod key;
mod kubernetes;
mod node;
#[cfg(test)]
mod node_tests;
mod rancher;
mod served;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outrider_protocol::{
    CertificateFacts, CertificateFile, CertificateUse, CertificatesFacts, Fact, ServedCertificate,
    UnknownCause,
};
use tokio::time::Instant;

use self::files::Read;
use self::issuer::{Authority, signer};
pub(crate) use self::key::excerpt as key_excerpt;
use self::node::{Disk, Node, Port, Search};
use super::SenseContext;

/// How soon to look again while what is served differs from what lies on disk, or a port could not be asked.
pub const AGAIN: Duration = Duration::from_secs(60);
/// etcd's ports are asked this seldom while nothing changes…
const SETTLED: Duration = Duration::from_secs(3600);
/// …and this seldom while something does.
const UNSETTLED: Duration = Duration::from_secs(300);

/// Data folders of RKE2 and K3s: the usual ones, and those that are configured. Blocking.
pub(crate) fn data_folders(cx: &SenseContext) -> Vec<std::path::PathBuf> {
    let disk = Disk(&*cx.opener);
    let mut folders = Vec::new();
    for program in [&crate::sense::rancher::RKE2, &crate::sense::rancher::K3S] {
        for folder in rancher::data_folders(&disk, program) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

/// What a look leaves for the next: what etcd's ports showed, by port.
#[derive(Debug, Default)]
pub struct Memory {
    shown: BTreeMap<u16, Shown>,
}

/// What a port showed, when, and what lay in its file then.
#[derive(Debug)]
struct Shown {
    at: Instant,
    on_disk: Option<String>,
    served: ServedCertificate,
}

/// One pass, within `limit`.
pub async fn read(cx: &SenseContext, limit: Duration, memory: &mut Memory) -> Fact<CertificatesFacts> {
    let deadline = Instant::now() + limit.mul_f64(0.9);
    let found = {
        let cx = cx.clone();
        tokio::task::spawn_blocking(move || look_at_disk(&cx)).await
    };
    let (node, reads, authorities) = match found {
        Ok(Ok(found)) => found,
        Ok(Err(fact)) => return *fact,
        Err(e) => return Fact::unknown(UnknownCause::Panicked, e.to_string(), "certificate files", cx.now()),
    };
    let files: Vec<CertificateFile> = reads.into_iter().map(|read| read.file).collect();
    let addresses = node.asked_addresses();
    let names = [node.names.as_slice(), &node.wanted_names].concat();
    let authorities_known = fingerprints(&files);
    let known = |port: &Port| {
        let shown = memory.shown.get(&port.port).filter(|shown| shown.is_still_good(port, &files))?;
        Some(shown.served.clone())
    };
    // Side by side: ports that hang, as all of one machine do together, cost one limit and not one each.
    let asked = node.ports.iter().map(|port| (port, known(port)));
    let looks = futures_util::future::join_all(asked.map(|(port, known)| {
        let (addresses, authorities, names) = (&addresses, &authorities, &names);
        async move {
            match known {
                Some(known) => (port, known, false),
                None => (port, served::look(cx, port, addresses, authorities, names, deadline).await, true),
            }
        }
    }));
    let mut served = Vec::with_capacity(node.ports.len());
    for (port, mut shown, is_new) in looks.await {
        if is_new {
            leave_out_authorities(&mut shown.chain, &authorities_known);
        }
        if is_new && port.logs_handshakes {
            let on_disk = on_disk(&shown.file, &files);
            let kept = Shown { at: Instant::now(), on_disk, served: shown.clone() };
            memory.shown.insert(port.port, kept);
        }
        served.push(shown);
    }
    let source = node.found_by.clone();
    let facts = CertificatesFacts {
        distribution: node.distribution,
        found_by: node.found_by,
        server: node.server,
        version: node.version,
        node_names: node.names,
        wanted_names: node.wanted_names,
        files,
        files_left_out: node.left_out,
        served,
    };
    Fact::known(facts, source, cx.now())
}

/// Something is under way or wrong at a port: the next look follows soon.
pub fn is_in_motion(facts: &CertificatesFacts) -> bool {
    facts.served.iter().any(|served| {
        is_unsettled(served, &facts.files)
            || served
                .chain
                .value()
                .and_then(|c| c.first())
                .is_some_and(|leaf| leaf.not_after <= served.chain.at())
    })
}

/// A port that could not be asked, or shows another certificate than lies on disk.
fn is_unsettled(served: &ServedCertificate, files: &[CertificateFile]) -> bool {
    match &served.chain {
        Fact::Known { value, .. } => {
            let on_disk = on_disk(&served.file, files);
            matches!((value.first(), on_disk), (Some(shown), Some(file)) if shown.sha256 != file)
        }
        Fact::Unknown { .. } => true,
        Fact::Absent { .. } | Fact::NotApplicable { .. } => false,
    }
}

/// Fingerprints of this node's authorities.
fn fingerprints<'a>(files: impl IntoIterator<Item = &'a CertificateFile>) -> BTreeSet<String> {
    let authorities = files.into_iter().filter(|file| file.usage == CertificateUse::Authority);
    let certificates = authorities.flat_map(|file| file.certificates.value().into_iter().flatten());
    certificates.map(|certificate| certificate.sha256.clone()).collect()
}

/// RKE2 and K3s put the authority behind every leaf: once among the facts is enough.
fn leave_out_authorities(chain: &mut Fact<Vec<CertificateFacts>>, known: &BTreeSet<String>) {
    if let Fact::Known { value, .. } = chain {
        let mut place = 0;
        value.retain(|certificate| {
            place += 1;
            place == 1 || !known.contains(&certificate.sha256)
        });
        value.shrink_to_fit();
    }
}

/// Fingerprint of the certificate in a file.
fn on_disk(path: &str, files: &[CertificateFile]) -> Option<String> {
    let file = files.iter().find(|file| file.path == path)?;
    file.certificates.value()?.first().map(|leaf| leaf.sha256.clone())
}

impl Shown {
    /// Whether it may stand in for a new handshake: the port was seen, and its file is what it was.
    fn is_still_good(&self, port: &Port, files: &[CertificateFile]) -> bool {
        let same_file =
            port.file_text() == self.served.file && self.on_disk == on_disk(&self.served.file, files);
        let limit = if is_unsettled(&self.served, files) { UNSETTLED } else { SETTLED };
        matches!(self.served.chain, Fact::Known { .. }) && same_file && self.at.elapsed() < limit
    }
}

type OnDisk = (Node, Vec<Read>, Vec<Authority>);

/// The blocking part: where things lie, and what is in them. The error is the fact of the whole check.
fn look_at_disk(cx: &SenseContext) -> Result<OnDisk, Box<Fact<CertificatesFacts>>> {
    let node = match node::search(cx) {
        Search::Found(node) => *node,
        Search::NotHere(reason) => return Err(Box::new(Fact::not_applicable(reason, cx.now()))),
        Search::Failed(failure, source) => return Err(Box::new(failure.into_fact(source, cx.now()))),
    };
    let mut reads: Vec<Read> = node.files.iter().map(|wanted| files::read(cx, wanted, &node.names)).collect();
    let authorities: Vec<Authority> = reads.iter().filter_map(Authority::of).collect();
    let unread = reads.iter().find(|read| {
        read.file.usage == CertificateUse::Authority && read.file.certificates.value().is_none()
    });
    let unread = unread.map(|read| read.file.path.clone());
    for read in &mut reads {
        read.file.issuer = issuer_of(cx, read, &authorities, unread.as_deref());
    }
    let known = fingerprints(reads.iter().map(|read| &read.file));
    for read in reads.iter_mut().filter(|read| read.file.usage != CertificateUse::Authority) {
        leave_out_authorities(&mut read.file.certificates, &known);
    }
    let unlisted = node.unlisted.iter().map(|(folder, usage, failure)| {
        let path = folder.display().to_string();
        Read::failed(&path, usage.clone(), failure.clone().into_fact(path.as_str(), cx.now()), cx.now())
    });
    reads.extend(unlisted);
    Ok((node, reads, authorities))
}

fn issuer_of(
    cx: &SenseContext,
    read: &Read,
    authorities: &[Authority],
    unread: Option<&str>,
) -> Fact<String> {
    let source = "authorities on this node";
    match read.file.usage {
        CertificateUse::Authority | CertificateUse::SelfMade => {
            return Fact::not_applicable("signed by itself or by nobody on this node", cx.now());
        }
        _ if read.chain.is_empty() => return Fact::not_applicable("no certificate was read", cx.now()),
        _ => {}
    }
    match (signer(&read.chain, authorities), unread) {
        (Ok(Some(path)), _) => Fact::known(path.to_owned(), source, cx.now()),
        (Ok(None), Some(unread)) => {
            let detail = format!(
                "no authority that could be read signed it, and {unread} is missing or could not be read"
            );
            Fact::unknown(UnknownCause::InvalidInput, detail, source, cx.now())
        }
        (Ok(None), None) if authorities.is_empty() => {
            Fact::not_applicable("no authority lies on this node", cx.now())
        }
        (Ok(None), None) => Fact::absent(source, cx.now()),
        (Err(failure), _) => failure.into_fact(source, cx.now()),
    }
}
