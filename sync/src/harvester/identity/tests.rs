use proptest::prelude::*;

use super::*;

fn node<'a>(name: &'a str, macs: &'a [String], system_uuid: &'a str) -> NodeMarks<'a> {
    NodeMarks { name, cluster: "prod", macs, system_uuid, ..NodeMarks::default() }
}

fn vm<'a>(name: &'a str, macs: &[&'a str], system_uuid: &'a str) -> VmMarks<'a> {
    VmMarks { name, cluster: "prod", macs: macs.to_vec(), system_uuid, ..VmMarks::default() }
}

fn mac(n: u8) -> String {
    format!("52:54:00:00:00:{n:02x}")
}

const UUID_1: &str = "5d307ca9-b3ef-428c-8861-06e72d69f223";
const UUID_2: &str = "aaaaaaaa-b3ef-428c-8861-06e72d69f223";

#[test]
fn a_mac_tells_it_whatever_the_names_and_any_card_will_do() {
    let (one, two) = ([mac(1)], [mac(2), mac(3)]);
    let nodes = [node("renamed", &one, ""), node("b", &two, "")];
    let (m1, m3, m9) = (mac(1), mac(3), mac(9));
    let upper = m3.to_uppercase().replace(':', "-");
    let vms = [vm("b", &[&m1], ""), vm("a", &[&m9, &upper], "")];
    let is = |node| Identified::Is { node, by: Mark::Mac };
    assert_eq!(identify(&vms, &nodes), [is(0), is(1)]);
}

#[test]
fn without_macs_the_host_name_goes_before_the_name_and_that_before_the_uuid() {
    let nodes = [node("guest-1", &[], ""), node("a", &[], ""), node("c", &[], UUID_1)];
    let vms = [VmMarks { guest_host_name: "Guest-1", ..vm("a", &[], "") }, vm("x", &[], UUID_1)];
    assert_eq!(
        identify(&vms, &nodes),
        [Identified::Is { node: 0, by: Mark::HostName }, Identified::Is { node: 2, by: Mark::SystemUuid }]
    );
    assert_eq!(identify(&[vm("A", &[], "")], &nodes), [Identified::Is { node: 1, by: Mark::Name }]);
}

#[test]
fn a_uuid_is_the_same_in_either_byte_order() {
    let turned = "a97c305d-efb3-8c42-8861-06e72d69f223";
    let nodes = [node("n", &[], turned)];
    assert_eq!(identify(&[vm("v", &[], UUID_1)], &nodes), [Identified::Is { node: 0, by: Mark::SystemUuid }]);
    let junk = "00000000-0000-0000-0000-000000000000";
    assert_eq!(identify(&[vm("v", &[], junk)], &[node("n", &[], junk)]), [Identified::Nobody]);
    assert_eq!((same_uuid(UUID_1, turned), same_uuid(UUID_1, UUID_2)), (Some(true), Some(false)));
    assert_eq!((same_uuid(UUID_1, junk), same_uuid("", UUID_1)), (None, None));
}

#[test]
fn clones_are_named_from_both_sides() {
    let one = [mac(1)];
    let m1 = mac(1);
    let nodes = [node("a", &one, "")];
    let vms = [vm("a", &[&m1], ""), vm("copy-of-a", &[&m1], "")];
    let both = Identified::SeveralVms { node: 0, vms: vec![0, 1], by: Mark::Mac };
    let identified = identify(&vms, &nodes);
    assert_eq!(identified, [both.clone(), both]);
    assert_eq!(Vms::of(&identified, 0), Vms::Doubtful(vec![0, 1]));

    let nodes = [node("a", &one, ""), node("b", &one, "")];
    let identified = identify(&[vm("a", &[&m1], "")], &nodes);
    assert_eq!(identified, [Identified::SeveralNodes { nodes: vec![0, 1], by: Mark::Mac }]);
    assert_eq!(Vms::of(&identified, 1), Vms::Doubtful(vec![0]));
}

#[test]
fn the_same_system_uuid_twice_is_a_clone_too() {
    let nodes = [node("a", &[], UUID_1)];
    let identified = identify(&[vm("x", &[], UUID_1), vm("y", &[], UUID_1)], &nodes);
    assert!(matches!(&identified[0], Identified::SeveralVms { by: Mark::SystemUuid, .. }), "{identified:?}");
}

#[test]
fn another_machine_under_an_old_name_is_not_the_old_machine() {
    let (old, m2) = ([mac(1)], mac(2));
    let nodes = [node("a", &old, UUID_1)];
    let contradicted = |by, against| [Identified::Contradicted { node: 0, by, against }];
    assert_eq!(identify(&[vm("a", &[&m2], "")], &nodes), contradicted(Mark::Name, Mark::Mac));
    assert_eq!(identify(&[vm("a", &[], UUID_2)], &nodes), contradicted(Mark::Name, Mark::SystemUuid));
    let m1 = mac(1);
    assert_eq!(identify(&[vm("b", &[&m1], UUID_2)], &nodes), contradicted(Mark::Mac, Mark::SystemUuid));
    assert_eq!(Vms::of(&identify(&[vm("b", &[&m1], UUID_2)], &nodes), 0), Vms::Doubtful(vec![0]));
}

#[test]
fn the_node_that_is_a_vm_by_its_mac_is_no_other_one_by_name() {
    let one = [mac(1)];
    let m1 = mac(1);
    let nodes = [node("a", &one, "")];
    let vms = [vm("a", &[], ""), vm("b", &[&m1], "")];
    assert_eq!(identify(&vms, &nodes), [Identified::Nobody, Identified::Is { node: 0, by: Mark::Mac }]);
    assert_eq!(Vms::of(&identify(&vms, &nodes), 0), Vms::One(1));
}

#[test]
fn a_vm_of_another_cluster_is_never_compared() {
    let one = [mac(1)];
    let m1 = mac(1);
    let nodes = [node("a", &one, UUID_1)];
    let other = VmMarks { cluster: "test", ..vm("a", &[&m1], UUID_1) };
    assert_eq!(identify(&[other], &nodes), [Identified::Nobody]);
    let none = VmMarks { cluster: "", ..vm("x", &[&m1], "") };
    assert_eq!(identify(&[none], &nodes), [Identified::Is { node: 0, by: Mark::Mac }]);
}

#[test]
fn addresses_that_many_have_tell_nothing() {
    for common in [
        "ee:ee:ee:ee:ee:ee",
        "02:00:00:00:00:00",
        "00:00:00:00:00:00",
        "01:00:5e:00:00:01",
        "",
        "52:54:0:0:0:1",
    ] {
        let of_node = [common.to_owned()];
        assert_eq!(
            identify(&[vm("v", &[common], "")], &[node("n", &of_node, "")]),
            [Identified::Nobody],
            "{common}"
        );
    }
}

/// A machine of few marks, so that they meet often.
type Drawn = (u8, u8, Vec<u8>, u8, u8);

fn machines() -> impl Strategy<Value = Vec<Drawn>> {
    prop::collection::vec((0u8..5, 0u8..4, prop::collection::vec(0u8..6, 0..3), 0u8..4, 0u8..3), 0..7)
}

struct Texts {
    name: String,
    host: String,
    macs: Vec<String>,
    uuid: String,
    cluster: String,
}

fn texts(drawn: &[Drawn]) -> Vec<Texts> {
    let one = |(name, host, macs, uuid, cluster): &Drawn| Texts {
        name: format!("m{name}"),
        host: if *host == 0 { String::new() } else { format!("m{host}") },
        macs: macs.iter().map(|m| mac(*m)).collect(),
        uuid: if *uuid == 0 { String::new() } else { UUID_1.replace("5d", &format!("{uuid:02}")) },
        cluster: ["", "prod", "test"][usize::from(*cluster)].to_owned(),
    };
    drawn.iter().map(one).collect()
}

fn as_vms(texts: &[Texts]) -> Vec<VmMarks<'_>> {
    fn one(t: &Texts) -> VmMarks<'_> {
        let macs = t.macs.iter().map(String::as_str).collect();
        VmMarks { name: &t.name, guest_host_name: &t.host, cluster: &t.cluster, macs, system_uuid: &t.uuid }
    }
    texts.iter().map(one).collect()
}

fn as_nodes(texts: &[Texts]) -> Vec<NodeMarks<'_>> {
    fn one(t: &Texts) -> NodeMarks<'_> {
        NodeMarks {
            name: &t.name,
            host_name: &t.host,
            cluster: &t.cluster,
            macs: &t.macs,
            system_uuid: &t.uuid,
        }
    }
    texts.iter().map(one).collect()
}

proptest! {
    #[test]
    fn no_node_is_two_vms_and_no_match_contradicts(vms in machines(), nodes in machines()) {
        let (vms, nodes) = (texts(&vms), texts(&nodes));
        let identified = identify(&as_vms(&vms), &as_nodes(&nodes));
        let mut taken = std::collections::BTreeSet::new();
        for (vm, identified) in vms.iter().zip(&identified) {
            let Identified::Is { node, by } = identified else { continue };
            prop_assert!(taken.insert(*node), "{identified:?}");
            let node = &nodes[*node];
            prop_assert!(vm.cluster.is_empty() || node.cluster.is_empty() || vm.cluster == node.cluster);
            let shares_mac = vm.macs.iter().any(|mac| node.macs.contains(mac));
            prop_assert!(shares_mac || *by != Mark::Mac);
            prop_assert!(shares_mac || vm.macs.is_empty() || node.macs.is_empty());
            prop_assert!(vm.uuid == node.uuid || vm.uuid.is_empty() || node.uuid.is_empty());
        }
    }

    #[test]
    fn the_order_changes_nothing(vms in machines(), nodes in machines()) {
        let (vms, nodes) = (texts(&vms), texts(&nodes));
        let straight = identify(&as_vms(&vms), &as_nodes(&nodes));
        let (mut back_vms, mut back_nodes) = (as_vms(&vms), as_nodes(&nodes));
        back_vms.reverse();
        back_nodes.reverse();
        let (last_vm, last_node) = (vms.len().saturating_sub(1), nodes.len().saturating_sub(1));
        let turned = |places: Vec<usize>, last: usize| {
            let mut places: Vec<usize> = places.into_iter().map(|place| last - place).collect();
            places.sort_unstable();
            places
        };
        let turn = |identified: Identified| match identified {
            Identified::Is { node, by } => Identified::Is { node: last_node - node, by },
            Identified::Nobody => Identified::Nobody,
            Identified::SeveralNodes { nodes, by } => Identified::SeveralNodes { nodes: turned(nodes, last_node), by },
            Identified::SeveralVms { node, vms, by } => {
                Identified::SeveralVms { node: last_node - node, vms: turned(vms, last_vm), by }
            }
            Identified::Contradicted { node, by, against } => {
                Identified::Contradicted { node: last_node - node, by, against }
            }
        };
        let back: Vec<Identified> = identify(&back_vms, &back_nodes).into_iter().rev().map(turn).collect();
        prop_assert_eq!(back, straight);
    }

    #[test]
    fn what_is_of_other_clusters_changes_nothing(vms in machines(), nodes in machines(), others in machines()) {
        let (vms, mut nodes, mut others) = (texts(&vms), texts(&nodes), texts(&others));
        nodes.iter_mut().for_each(|node| node.cluster = "prod".to_owned());
        others.iter_mut().for_each(|vm| vm.cluster = "elsewhere".to_owned());
        let alone = identify(&as_vms(&vms), &as_nodes(&nodes));
        let mut all = as_vms(&vms);
        all.extend(as_vms(&others));
        let among = identify(&all, &as_nodes(&nodes));
        prop_assert_eq!(&among[..vms.len()], &alone[..]);
        prop_assert!(among[vms.len()..].iter().all(|vm| *vm == Identified::Nobody));
    }
}
