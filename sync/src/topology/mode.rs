//! Whether we write labels at all.
//!
//! Harvester's cloud provider from v0.2.0 on keeps the labels itself and taints the node when they differ from the
//! machine's (`facts/harvester-topology.md`, 3), so that a second writer is of no use. Which version runs can be seen only by
//! its image; where it cannot be seen, labels are compared.

use outrider_protocol::{NodeTopology, TopologyFacts, TopologyMode};

/// From here on the cloud provider keeps the labels.
const KEEPS: (u64, u64, u64) = (0, 2, 0);

/// The mode in force, and why it is, as the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effective {
    /// Labels are written.
    Sync(String),
    /// Labels are compared.
    Verify(String),
}

impl Effective {
    /// Why.
    pub fn why(&self) -> &str {
        match self {
            Self::Sync(why) | Self::Verify(why) => why,
        }
    }
}

/// The mode in force on this node.
pub fn effective(facts: &TopologyFacts, node: &NodeTopology) -> Effective {
    match &facts.mode {
        TopologyMode::Sync => Effective::Sync("[topology] mode is sync".to_owned()),
        TopologyMode::Auto => auto(node),
        other => Effective::Verify(format!("[topology] mode is {other}")),
    }
}

fn auto(node: &NodeTopology) -> Effective {
    if node.uninitialized {
        return Effective::Verify(
            "the node waits for a cloud provider, whose labels these may become".to_owned(),
        );
    }
    let scheme = node.provider_id.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme {
        // Their built-in controllers set addresses and no zone.
        "" | "k3s" | "rke2" => Effective::Sync("no cloud provider keeps the labels of this node".to_owned()),
        "harvester" => harvester(&node.cloud_provider_versions),
        other => Effective::Verify(format!("the cloud provider {other:?} keeps the labels of this node")),
    }
}

fn harvester(versions: &[String]) -> Effective {
    let read: Vec<_> = versions.iter().map(|text| version(text)).collect();
    match read.iter().max() {
        Some(Some(newest)) if *newest < KEEPS && read.iter().all(Option::is_some) => Effective::Sync(
            format!("Harvester's cloud provider {} sets labels only once", versions.join(", ")),
        ),
        Some(Some(newest)) if *newest >= KEEPS => Effective::Verify(format!(
            "Harvester's cloud provider {} keeps the labels of this node itself",
            versions.join(", ")
        )),
        _ => Effective::Verify(
            "Harvester's cloud provider runs in this cluster, and its version cannot be seen from here"
                .to_owned(),
        ),
    }
}

fn version(text: &str) -> Option<(u64, u64, u64)> {
    let plain = text.trim_start_matches('v').split(['-', '+']).next()?;
    let mut parts = plain.split('.').map(|part| part.parse().ok());
    let read = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    parts.next().is_none().then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(provider_id: &str, versions: &[&str]) -> bool {
        let versions = versions.iter().map(|v| (*v).to_owned()).collect();
        let node = NodeTopology {
            provider_id: provider_id.to_owned(),
            cloud_provider_versions: versions,
            ..NodeTopology::default()
        };
        matches!(auto(&node), Effective::Sync(_))
    }

    #[test]
    fn auto_writes_only_where_nobody_else_keeps_the_labels() {
        assert!(of("", &[]) && of("k3s://n1", &[]) && of("rke2://n1", &[]));
        assert!(of("harvester://uid", &["v0.1.4"]));
        for versions in [&["v0.2.0"][..], &["v0.2.8-build1"], &["v0.1.4", "v0.2.2"], &["main-head"], &[]] {
            assert!(!of("harvester://uid", versions), "{versions:?}");
        }
        assert!(!of("aws:///eu-1a/i-0", &[]));
    }

    #[test]
    fn a_node_that_waits_for_its_cloud_provider_is_left_to_it() {
        let node = NodeTopology { uninitialized: true, ..NodeTopology::default() };
        assert!(matches!(auto(&node), Effective::Verify(_)));
    }
}
