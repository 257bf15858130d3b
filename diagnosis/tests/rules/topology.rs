//! The rules about labels of region and zone, and about a Node that waits for a cloud provider.

use std::collections::BTreeMap;

use outrider_diagnosis::judge;
use outrider_protocol::*;
use proptest::prelude::*;

use crate::registry::{fact, word};
use crate::world::{self, Change, ago, known, unknown};
use crate::{expect, only};

const T: Status = Status::True;
const F: Status = Status::False;

#[track_caller]
fn of(facts: TopologyFacts) -> outrider_diagnosis::Finding {
    let checks = CheckFacts { topology: Some(known(facts)), ..CheckFacts::default() };
    only(&judge(&world::node_facts(checks)), ConditionType::TopologyInSync)
}

fn has(zone: &str, manager: &str) -> TopologyFacts {
    world::topology().with(|t| {
        let Fact::Known { value: node, .. } = &mut t.node else { return };
        node.labels.insert(ZONE.into(), zone.into());
        let operation = if manager == FIELD_MANAGER { "Apply" } else { "Update" };
        let owner = LabelOwner { manager: manager.into(), operation: operation.into(), at: None };
        node.owners.insert(ZONE.into(), vec![owner]);
    })
}

#[test]
fn agreement_names_values_and_source() {
    let words = ["region r1", "zone z1", "the virtual machine"];
    expect(&of(world::topology()), T, Severity::Ok, ReasonCode::TopologyMatches, &words);
    let nobody = world::topology().with(|t| t.machine = Fact::not_applicable("no Harvester", world::now()));
    expect(&of(nobody), T, Severity::Ok, ReasonCode::TopologyUnmanaged, &["neither"]);
}

#[test]
fn a_difference_is_written_compared_or_left_to_its_owner() {
    let ours = has("a", FIELD_MANAGER);
    expect(&of(ours.clone()), F, Severity::Info, ReasonCode::TopologyWriting, &["\"a\"", "\"z1\""]);
    let verify = ours.with(|t| t.mode = TopologyMode::Verify);
    expect(&of(verify), F, Severity::Warn, ReasonCode::TopologyDiffers, &["mode is verify", "only compared"]);
    let words = ["kubectl-label", "take_over = [\"kubectl-label\"]"];
    expect(&of(has("a", "kubectl-label")), F, Severity::Warn, ReasonCode::TopologyOwnedByOther, &words);
    let kept = has("a", FIELD_MANAGER).with(|t| t.strict = true);
    expect(&of(kept), F, Severity::Warn, ReasonCode::TopologyKept, &["strict"]);
    let kept = has("a", FIELD_MANAGER).with(|t| {
        t.strict = true;
        if let Fact::Known { value, .. } = &mut t.machine {
            value.annotations.zone = None;
        }
    });
    expect(&of(kept), F, Severity::Warn, ReasonCode::TopologyKept, &["has none", "nor taken away"]);
    let lost = has("a", "kubelet").with(|t| {
        if let Fact::Known { value, .. } = &mut t.machine {
            value.annotations.zone = None;
        }
    });
    expect(&of(lost), F, Severity::Warn, ReasonCode::TopologyNotRemoved, &["has none", "did not set it"]);
}

#[test]
fn a_fight_and_a_refusal_say_who_and_what() {
    let reverted =
        Reverted { value: "z1".into(), times: 2, to: "a".into(), by: "ccm".into(), at: world::now() };
    let fight = has("a", "ccm").with(|t| t.writes.reverted = BTreeMap::from([(ZONE.into(), reverted)]));
    expect(&of(fight), F, Severity::Error, ReasonCode::TopologyFight, &["2 times", "by ccm"]);
    let failed = |status: u16, conflicts: &[&str]| {
        has("a", FIELD_MANAGER).with(|t| {
            t.writes.failed = Some(WriteFailure {
                status,
                detail: format!("{status}: because"),
                conflicts: conflicts.iter().map(|c| (*c).into()).collect(),
                resource_version: "7".into(),
                at: world::now(),
            });
        })
    };
    let words = ["403: because", "own Node and nothing else"];
    expect(&of(failed(403, &[])), F, Severity::Error, ReasonCode::TopologyWriteRefused, &words);
    expect(&of(failed(0, &[])), F, Severity::Warn, ReasonCode::TopologyWriteRefused, &["tried again"]);
    expect(&of(failed(409, &["other"])), F, Severity::Warn, ReasonCode::TopologyOwnedByOther, &["by other"]);
}

#[test]
fn values_beta_labels_and_sources_that_are_odd_are_named() {
    let machine = |change: fn(&mut MachineTopology)| {
        world::topology().with(|t| {
            if let Fact::Known { value, .. } = &mut t.machine {
                change(value);
            }
        })
    };
    let invalid = machine(|m| m.annotations.zone = Some("rack/7".into()));
    let words = ["\"rack/7\"", "'/'", "Nothing was sent"];
    expect(&of(invalid), F, Severity::Warn, ReasonCode::TopologyValueInvalid, &words);
    let two = machine(|m| m.harvester.zone = Some("z9".into()));
    expect(
        &of(two),
        T,
        Severity::Warn,
        ReasonCode::TopologySourcesDisagree,
        &["z1", "z9", "the former counts"],
    );
    let lost = machine(|m| m.unmatched = "2 virtual machines come into question: a, b".into());
    let words = ["2 virtual machines", "MAC"];
    expect(&of(lost), Status::Unknown, Severity::Warn, ReasonCode::TopologyMachineUnmatched, &words);
    let clone = world::topology().with(|t| {
        t.system_uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223".into();
        if let Fact::Known { value, .. } = &mut t.node {
            value.system_uuid = "11307ca9-b3ef-428c-8861-06e72d69f223".into();
        }
    });
    let words = ["5d307ca9", "11307ca9", "clone"];
    expect(&of(clone), Status::Unknown, Severity::Warn, ReasonCode::TopologyMachineUnmatched, &words);
    let early = machine(|m| {
        (m.annotations, m.copied_from) = (TopologyValues::default(), String::new());
    });
    expect(&of(early), T, Severity::Info, ReasonCode::TopologyStale, &["not copied"]);
    let stopped = machine(|m| m.stopped = true);
    expect(&of(stopped), T, Severity::Info, ReasonCode::TopologyStale, &["no running instance"]);
    let fixed = world::topology().with(|t| t.static_labels = BTreeMap::from([(ZONE.into(), "old".into())]));
    expect(&of(fixed), T, Severity::Warn, ReasonCode::TopologyReasserted, &["zone=old", "node-label"]);
    let beta = world::topology().with(|t| {
        t.mode = TopologyMode::Off;
        t.machine = Fact::not_applicable("no Harvester", world::now());
        if let Fact::Known { value, .. } = &mut t.node {
            value.labels.insert(BETA_ZONE.into(), "old".into());
        }
    });
    expect(&of(beta), T, Severity::Warn, ReasonCode::TopologyBetaDiffers, &["\"old\"", "\"z1\""]);
}

#[test]
fn what_cannot_be_read_is_unknown_with_its_cause() {
    for cause in [UnknownCause::Forbidden, UnknownCause::Unauthenticated, UnknownCause::TimedOut] {
        let node = world::topology().with(|t| t.node = unknown(cause.clone()));
        assert_eq!((of(node.clone()).status, of(node).reason), (Status::Unknown, ReasonCode::from(&cause)));
        let machine = world::topology().with(|t| t.machine = unknown(cause.clone()));
        assert_eq!(of(machine).reason, ReasonCode::from(&cause));
    }
    let gone = world::topology().with(|t| t.node = world::absent("https://h/api/v1/nodes/n1"));
    expect(&of(gone), Status::Unknown, Severity::Warn, ReasonCode::TopologyNodeMissing, &["nodes/n1"]);
}

#[test]
fn a_taint_grows_graver_with_its_age() {
    for (age, severity) in [(10, Severity::Info), (130, Severity::Warn), (700, Severity::Error)] {
        let facts = world::topology().with(|t| {
            if let Fact::Known { value, .. } = &mut t.node {
                (value.uninitialized, value.uninitialized_since) = (true, Some(ago(age)));
            }
        });
        let checks = CheckFacts { topology: Some(known(facts)), ..CheckFacts::default() };
        let found = only(&judge(&world::node_facts(checks)), ConditionType::NodeInitialized);
        expect(&found, F, severity, ReasonCode::NodeUninitialized, &["uninitialized", "at least"]);
    }
}

/// Any facts of this check.
pub(crate) fn any_topology() -> impl Strategy<Value = TopologyFacts> {
    const VALUES: &[&str] = &["", "a", "z1", "rack/7"];
    let values = || {
        let one = || prop::option::of(word(VALUES));
        (one(), one()).prop_map(|(region, zone)| TopologyValues { region, zone })
    };
    let label = (prop::sample::select(vec![REGION, ZONE, BETA_REGION, BETA_ZONE]), word(VALUES));
    let node = (prop::collection::vec((label, word(&["outrider", "ccm", ""])), 0..5), any::<bool>());
    let node = node.prop_map(|(labels, uninitialized)| {
        let mut node = NodeTopology { name: "n1".into(), uninitialized, ..NodeTopology::default() };
        for ((key, value), manager) in labels {
            node.labels.insert(key.into(), value);
            node.owners.insert(key.into(), vec![LabelOwner { manager, operation: "Apply".into(), at: None }]);
        }
        node
    });
    let machine = (values(), values(), any::<[bool; 3]>());
    let machine =
        machine.prop_map(|(annotations, harvester, [follows_host, migrating, stopped])| MachineTopology {
            annotations,
            harvester,
            follows_host,
            migrating,
            stopped,
            ..MachineTopology::default()
        });
    let failed = prop::option::of(prop::sample::select(vec![0u16, 401, 403, 409, 422]));
    let mode = prop::sample::select(TopologyMode::ALL.to_vec());
    (fact(node), fact(machine), fact(values()), values(), mode, failed, any::<bool>()).prop_map(
        |(node, machine, instance, desired, mode, failed, strict)| {
            let failed = failed.map(|status| WriteFailure {
                status,
                detail: "why".into(),
                conflicts: Vec::new(),
                resource_version: String::new(),
                at: world::now(),
            });
            let static_labels = BTreeMap::from([(ZONE.to_owned(), "a".to_owned())]);
            let writes = WriteRecord { failed, ..WriteRecord::default() };
            TopologyFacts {
                node,
                machine,
                instance,
                desired,
                mode,
                writes,
                strict,
                static_labels,
                ..world::topology()
            }
        },
    )
}
