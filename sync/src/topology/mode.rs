//! Whether we write labels at all.
//!
//! Harvester's cloud provider from v0.2.0 on keeps the labels itself and taints the node when they differ from the
//! machine's (`facts/harvester-topology.md`, 3), so that a second writer is of no use. Which version runs cannot be seen from a
//! node: an image that lies there is no proof of what runs. Where that provider may be, labels are compared.

use outrider_protocol::{NodeTopology, TopologyFacts, TopologyMode};

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
    let seen = node.cloud_provider_versions.join(", ");
    match scheme {
        "harvester" if seen.is_empty() => Effective::Verify(
            "Harvester's cloud provider runs in this cluster, and its version cannot be seen from here"
                .to_owned(),
        ),
        "harvester" => Effective::Verify(format!(
            "Harvester's cloud provider runs in this cluster, and its image {seen} on this node is no proof of what runs"
        )),
        _ if !seen.is_empty() => Effective::Verify(format!(
            "the image of Harvester's cloud provider {seen} is on this node, and it may keep the labels"
        )),
        // Their built-in controllers set addresses and no zone.
        "" | "k3s" | "rke2" => Effective::Sync("no cloud provider keeps the labels of this node".to_owned()),
        other => Effective::Verify(format!("the cloud provider {other:?} keeps the labels of this node")),
    }
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
        assert!(!of("harvester://uid", &[]));
        for versions in
            [&["v0.1.4"][..], &["v0.2.0"], &["v0.2.8-build1"], &["v0.1.4", "v0.2.2"], &["main-head"]]
        {
            assert!(!of("harvester://uid", versions) && !of("rke2://n1", versions), "{versions:?}");
        }
        assert!(!of("aws:///eu-1a/i-0", &[]));
    }

    #[test]
    fn a_node_that_waits_for_its_cloud_provider_is_left_to_it() {
        let node = NodeTopology { uninitialized: true, ..NodeTopology::default() };
        assert!(matches!(auto(&node), Effective::Verify(_)));
    }
}
