//! Who this machine is already: its identity at a coordinator, and the machine-id that clones share.

use std::fs;
use std::io::ErrorKind;

use outrider_agent::net::certificate;
use outrider_agent::report::disk::StdDisk;
use outrider_agent::report::identity::{self, Ledger};
use outrider_protocol::Severity;

use super::{Finding, Preflight, tell};
use crate::install::STATE;

/// Looks for an identity; gives what enrolment brought, where it may be read.
pub(super) fn look(looked: &Preflight<'_>, findings: &mut Vec<Finding>) -> Option<Ledger> {
    machine_id(looked, findings);
    let folder = looked.machine.at(STATE);
    match fs::read_dir(&folder) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tell(
                findings,
                "identity",
                Severity::Warn,
                format!("{} cannot be read: {error}", folder.display()),
                "",
            );
            return None;
        }
    }
    let ledger = identity::peek(&StdDisk::open(&folder).ok()?)?;
    let Some(token) = &looked.given.token else {
        let message = format!("this machine is a node already, uid {}", ledger.node_uid);
        tell(findings, "identity", Severity::Info, message, "");
        return Some(ledger);
    };
    let roots = certificate::certificates(ledger.ca_bundle.as_bytes()).unwrap_or_default();
    let known: Vec<String> = roots.iter().map(|root| certificate::hex(&certificate::sha256(root))).collect();
    if known.contains(&token.pin) {
        let message = format!(
            "this machine is a node of that coordinator already, uid {}; it stays that",
            ledger.node_uid
        );
        tell(findings, "identity", Severity::Info, message, "");
    } else {
        let message = format!(
            "this machine is a node of another coordinator (uid {}, CA {}); the token pins {}",
            ledger.node_uid,
            known.join(", "),
            token.pin
        );
        let advice = "Is it a clone, or does it move? Then let it go first: `outrider uninstall --purge` here, and `outrider \
                      revoke NODE` at the other coordinator. Did the CA change? A node that knows the old one finds the new \
                      one by itself: run this without a token.";
        tell(findings, "identity", Severity::Error, message, advice);
    }
    Some(ledger)
}

/// Machines with one machine-id are told apart by less; rancher-system-agent's node id is made of it too.
fn machine_id(looked: &Preflight<'_>, findings: &mut Vec<Finding>) {
    let text = fs::read_to_string(looked.machine.at("/etc/machine-id")).unwrap_or_default();
    let text = text.trim();
    if looked.machine.live && (text.len() != 32 || !text.chars().all(|c| c.is_ascii_hexdigit())) {
        let message = "/etc/machine-id holds no machine-id".to_owned();
        tell(
            findings,
            "identity",
            Severity::Warn,
            message,
            "Run systemd-machine-id-setup: machines are told apart by it.",
        );
    } else if !looked.machine.live && text.len() == 32 {
        let message =
            "/etc/machine-id is set in this image; machines that are made of it would share it".to_owned();
        tell(
            findings,
            "identity",
            Severity::Warn,
            message,
            "Empty it as the last step of the build: truncate -s 0 /etc/machine-id",
        );
    }
}
