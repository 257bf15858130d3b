//! What machines of three kinds read, kept as files, and read again as if it were now and elsewhere.
//!
//! Two of the readings were recorded, both in `rancher-server.json`: `etcd`, what the sensor read of a real three-member
//! etcd with TLS, and `loadBalancer`, what it read of a real HAProxy in front of real nginx. In them, names and addresses
//! were replaced by those of the play (`10.0.0.x`, `rancher.example`), and instants moved to one day.
//!
//! Everything else was written by hand in the shape that the sensors yield, and never came from such a machine: `host`
//! (after procfs and sysfs of a SUSE Linux Micro node), `clock` (after adjtimex(2)), `cloudInit` (`facts/cloud-init.md`),
//! `guestAgent` (`facts/guest-agent.md`) and `agent`, in all three files; of `rancher-agent.json` and `harvester-vm.json`
//! nothing was recorded. What goes wrong is written by hand as well, by [`fault`](super::fault).

use std::sync::LazyLock;

use outrider_protocol::{NodeFacts, Timestamp};
use serde_json::Value;

/// The recorded network and name of the balancer.
const NETWORK: &str = "10.0.0.";
const HOST: &str = "rancher.example";

/// One recorded document.
#[derive(Debug)]
pub(crate) struct Recording {
    document: Value,
    now: Timestamp,
}

/// A server of a three-member RKE2 cluster that carries Rancher.
pub(crate) static SERVER: LazyLock<Option<Recording>> =
    LazyLock::new(|| Recording::parse(include_str!("recordings/rancher-server.json")));
/// A worker of such a cluster.
pub(crate) static AGENT: LazyLock<Option<Recording>> =
    LazyLock::new(|| Recording::parse(include_str!("recordings/rancher-agent.json")));
/// A virtual machine on SUSE Virtualization.
pub(crate) static VM: LazyLock<Option<Recording>> =
    LazyLock::new(|| Recording::parse(include_str!("recordings/harvester-vm.json")));

impl Recording {
    fn parse(text: &str) -> Option<Self> {
        let document: Value = serde_json::from_str(text).ok()?;
        let now = document.get("now")?.as_str()?.parse().ok()?;
        Some(Self { document, now })
    }

    /// The facts with every instant in them moved so that they were read at `now`, in the network `network` (`10.1.2.`)
    /// behind a balancer called `host`.
    pub(crate) fn at(&self, now: Timestamp, network: &str, host: &str) -> Option<NodeFacts> {
        let mut document = self.document.clone();
        let by = now.as_millis().saturating_sub(self.now.as_millis());
        each_text(&mut document, &|text| {
            if text.len() == 24
                && text.ends_with('Z')
                && let Ok(at) = text.parse::<Timestamp>()
            {
                *text = Timestamp::from_millis(at.as_millis().saturating_add(by)).to_string();
            } else if text.contains(NETWORK) || text.contains(HOST) {
                *text = text.replace(NETWORK, network).replace(HOST, host);
            }
        });
        serde_json::from_value(document).ok()
    }
}

fn each_text(value: &mut Value, change: &impl Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_text(field, change)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::Severity;

    use super::*;

    #[test]
    fn every_recording_is_read_whole_and_judged_well_at_any_time() {
        for recording in [&SERVER, &AGENT, &VM] {
            let recording = recording.as_ref().expect("a recording that cannot be read");
            for now in ["2026-11-02T09:30:00.000Z", "2031-01-01T00:00:00.000Z"] {
                let facts =
                    recording.at(now.parse().unwrap(), "10.9.9.", "rancher.sim.example").expect("facts");
                assert_eq!(facts.now.to_string(), now);
                assert!(facts.node.simulated, "a recording is not marked as simulated");
                let verdict = outrider_diagnosis::diagnose(&facts);
                let faults: Vec<_> =
                    verdict.conditions.iter().filter(|c| c.severity != Severity::Ok).collect();
                assert!(faults.is_empty(), "{faults:?}");
            }
        }
    }
}
