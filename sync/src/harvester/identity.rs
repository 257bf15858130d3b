//! Which node a VM is: by MAC, then the host name the guest reports, then the name, then the system UUID.
//!
//! The strongest mark that a VM shares with any node decides, and only if it leads to one node and that node back to this
//! VM alone. Where two come into question, or another mark that both have says otherwise, there is no match and the reason
//! is named: acting on the wrong machine is worse than not acting (`facts/harvester-topology.md`, C5). A VM and a node of
//! two clusters are never compared (C3).

use std::collections::BTreeMap;

use super::usable_mac;

#[cfg(test)]
mod tests;

/// What two machines may have in common, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// A network card's hardware address.
    Mac,
    /// The host name that the guest agent reports.
    HostName,
    /// The name of the VM.
    Name,
    /// The system UUID.
    SystemUuid,
}

impl Mark {
    const ALL: [Mark; 4] = [Mark::Mac, Mark::HostName, Mark::Name, Mark::SystemUuid];

    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Mark::Mac => "MAC",
            Mark::HostName => "guest host name",
            Mark::Name => "name",
            Mark::SystemUuid => "system UUID",
        }
    }
}

/// A node as it knows itself. Empty means unknown.
#[derive(Clone, Debug, Default)]
pub struct NodeMarks<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Its host name; empty where that is its name, or unknown.
    pub host_name: &'a str,
    /// Cluster; empty when unknown.
    pub cluster: &'a str,
    /// Hardware addresses of real interfaces.
    pub macs: &'a [String],
    /// SMBIOS system UUID.
    pub system_uuid: &'a str,
}

/// A VM as Harvester knows it. Empty means unknown.
#[derive(Clone, Debug, Default)]
pub struct VmMarks<'a> {
    /// Name of the VM.
    pub name: &'a str,
    /// Host name as the guest agent reports it.
    pub guest_host_name: &'a str,
    /// Guest cluster; empty for a VM of none, which may be any node.
    pub cluster: &'a str,
    /// Hardware addresses of its network cards.
    pub macs: Vec<&'a str>,
    /// System UUID.
    pub system_uuid: &'a str,
}

/// What came of one VM. Nodes and VMs are told by their place in what was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identified {
    /// It is this node.
    Is {
        /// The node.
        node: usize,
        /// The mark that says so.
        by: Mark,
    },
    /// No node shares a mark with it.
    Nobody,
    /// Several nodes share the mark with it.
    SeveralNodes {
        /// The nodes.
        nodes: Vec<usize>,
        /// The mark.
        by: Mark,
    },
    /// Several VMs share the mark with the node: clones.
    SeveralVms {
        /// The node.
        node: usize,
        /// The VMs, this one among them.
        vms: Vec<usize>,
        /// The mark.
        by: Mark,
    },
    /// One node shares the mark with it, and both have another mark that differs.
    Contradicted {
        /// The node.
        node: usize,
        /// The mark they share.
        by: Mark,
        /// The mark that differs.
        against: Mark,
    },
}

/// The VMs that come into question for one node, from the node's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vms {
    /// It is this VM.
    One(usize),
    /// None shares a mark with it.
    None,
    /// These do, and none of them can be told to be it; see what was [`Identified`] of each.
    Doubtful(Vec<usize>),
}

impl Vms {
    /// The same answers from the side of `node`.
    pub fn of(identified: &[Identified], node: usize) -> Self {
        let concerns = |vm: &Identified| match vm {
            Identified::Is { .. } | Identified::Nobody => false,
            Identified::SeveralNodes { nodes, .. } => nodes.contains(&node),
            Identified::SeveralVms { node: of, .. } | Identified::Contradicted { node: of, .. } => {
                *of == node
            }
        };
        if let Some(vm) =
            identified.iter().position(|i| matches!(i, Identified::Is { node: of, .. } if *of == node))
        {
            return Vms::One(vm);
        }
        let doubtful: Vec<usize> =
            identified.iter().enumerate().filter(|(_, vm)| concerns(vm)).map(|(vm, _)| vm).collect();
        if doubtful.is_empty() { Vms::None } else { Vms::Doubtful(doubtful) }
    }
}

/// Says of each of `vms` which of `nodes` it is. The order in which they are given changes nothing.
pub fn identify(vms: &[VmMarks<'_>], nodes: &[NodeMarks<'_>]) -> Vec<Identified> {
    let vms: Vec<Known> = vms.iter().map(Known::of_vm).collect();
    let nodes: Vec<Known> = nodes.iter().map(Known::of_node).collect();
    let (by_vm, by_node) = (nearest(&vms, &nodes), nearest(&nodes, &vms));
    let place = |vm: usize| -> Identified {
        let Some((by, of)) = &by_vm[vm] else { return Identified::Nobody };
        let (by, [node]) = (*by, of.as_slice()) else {
            return Identified::SeveralNodes { nodes: of.clone(), by: *by };
        };
        let node = *node;
        match &by_node[node] {
            // Another VM is this node by a stronger mark.
            Some((stronger, _)) if *stronger < by => Identified::Nobody,
            Some((_, back)) if back.len() > 1 => Identified::SeveralVms { node, vms: back.clone(), by },
            _ => match vms[vm].differs(&nodes[node], by) {
                Some(against) => Identified::Contradicted { node, by, against },
                None => Identified::Is { node, by },
            },
        }
    };
    (0..vms.len()).map(place).collect()
}

/// A machine's marks in one spelling.
struct Known {
    cluster: String,
    /// Values by mark; a node's name and host name stand for both kinds of names.
    marks: [Vec<String>; 4],
}

impl Known {
    fn of_vm(vm: &VmMarks<'_>) -> Self {
        let marks = [
            macs(vm.macs.iter().copied()),
            names([vm.guest_host_name]),
            names([vm.name]),
            uuid(vm.system_uuid),
        ];
        Self { cluster: vm.cluster.to_owned(), marks }
    }

    fn of_node(node: &NodeMarks<'_>) -> Self {
        let names = names([node.name, node.host_name]);
        let macs = macs(node.macs.iter().map(String::as_str));
        let marks = [macs, names.clone(), names, uuid(node.system_uuid)];
        Self { cluster: node.cluster.to_owned(), marks }
    }

    fn of(&self, mark: Mark) -> &[String] {
        &self.marks[mark as usize]
    }

    /// Whether they may be one: of two clusters they are not.
    fn may_be(&self, other: &Known) -> bool {
        self.cluster.is_empty() || other.cluster.is_empty() || self.cluster == other.cluster
    }

    /// A mark other than `by` that both have and that differs. Names may: userdata gives a guest another one.
    fn differs(&self, other: &Known, by: Mark) -> Option<Mark> {
        [Mark::Mac, Mark::SystemUuid].into_iter().filter(|mark| *mark != by).find(|mark| {
            let (mine, its) = (self.of(*mark), other.of(*mark));
            !mine.is_empty() && !its.is_empty() && !mine.iter().any(|value| its.contains(value))
        })
    }
}

fn macs<'a>(macs: impl Iterator<Item = &'a str>) -> Vec<String> {
    macs.filter_map(usable_mac).collect()
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.into_iter().filter(|name| !name.is_empty()).map(str::to_ascii_lowercase).collect()
}

/// Whether two system UUIDs are one machine's, in either byte order; none when one of them is unknown or is one that many
/// machines have.
pub fn same_uuid(one: &str, other: &str) -> Option<bool> {
    let (one, other) = (uuid(one), uuid(other));
    (!one.is_empty() && !other.is_empty()).then(|| one.iter().any(|value| other.contains(value)))
}

/// A UUID in both byte orders in which SMBIOS is read: before version 2.6 its first three fields stood the other way.
fn uuid(uuid: &str) -> Vec<String> {
    let digits: String =
        uuid.chars().filter(char::is_ascii_hexdigit).map(|c| c.to_ascii_lowercase()).collect();
    let is_junk = digits.bytes().all(|digit| digit == b'0') || digits.bytes().all(|digit| digit == b'f');
    if digits.len() != 32 || is_junk {
        return Vec::new();
    }
    let turned = |range: std::ops::Range<usize>| -> String {
        let field = digits.get(range).unwrap_or_default();
        field.as_bytes().rchunks(2).map(String::from_utf8_lossy).collect()
    };
    let other =
        [turned(0..8), turned(8..12), turned(12..16), digits.get(16..).unwrap_or_default().to_owned()];
    let mut both = vec![other.concat(), digits];
    both.dedup();
    both
}

/// The strongest mark that each of `from` shares with any of `to`, and with which of them.
fn nearest(from: &[Known], to: &[Known]) -> Vec<Option<(Mark, Vec<usize>)>> {
    let index = Mark::ALL.map(|mark| {
        let mut index: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, known) in to.iter().enumerate() {
            for value in known.of(mark) {
                index.entry(value).or_default().push(place);
            }
        }
        index
    });
    let one = |known: &Known| {
        Mark::ALL.into_iter().zip(&index).find_map(|(mark, index)| {
            let all = known.of(mark).iter().filter_map(|value| index.get(value.as_str())).flatten();
            let mut of: Vec<usize> = all.copied().filter(|place| known.may_be(&to[*place])).collect();
            of.sort_unstable();
            of.dedup();
            (!of.is_empty()).then_some((mark, of))
        })
    };
    from.iter().map(one).collect()
}
