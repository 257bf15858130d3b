//! The plan for the labels of the own Node: each rule by a case, and what must hold whatever is read.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use outrider_protocol::*;
use outrider_sync::topology::{Action, Effective, FIGHT, Hold, TopologyPlan, Want, plan, stranger};
use proptest::prelude::*;

fn at() -> Timestamp {
    Timestamp::from_seconds(1_796_000_000)
}

fn known<T>(value: T) -> Fact<T> {
    Fact::known(value, "test", at())
}

fn owner(manager: &str, operation: &str) -> LabelOwner {
    LabelOwner { manager: manager.into(), operation: operation.into(), at: None }
}

fn machine(zone: Option<&str>) -> MachineTopology {
    MachineTopology {
        namespace: "guest".into(),
        name: "n1".into(),
        matched_by: "MAC".into(),
        host: "host1".into(),
        annotations: TopologyValues { region: None, zone: zone.map(str::to_owned) },
        follows_host: true,
        copied_from: "host1".into(),
        ..MachineTopology::default()
    }
}

fn facts(labels: &[(&str, &str, &str)], zone: Option<&str>) -> TopologyFacts {
    let mut node = NodeTopology {
        name: "n1".into(),
        uid: "u".into(),
        resource_version: "7".into(),
        ..Default::default()
    };
    for (key, value, manager) in labels {
        let operation = if *manager == FIELD_MANAGER { "Apply" } else { "Update" };
        node.labels.insert((*key).into(), (*value).into());
        if !manager.is_empty() {
            node.owners.insert((*key).into(), vec![owner(manager, operation)]);
        }
    }
    TopologyFacts {
        mode: TopologyMode::Sync,
        take_over: vec!["mine".into()],
        strict: false,
        node: known(node),
        machine: known(machine(zone)),
        host: None,
        desired: TopologyValues::default(),
        configured: TopologyValues::default(),
        instance: Fact::absent("test", at()),
        static_labels: BTreeMap::new(),
        system_uuid: String::new(),
        writes: WriteRecord::default(),
    }
}

#[track_caller]
fn action(plan: &TopologyPlan, key: &str) -> Action {
    plan.keys.iter().find(|k| k.key == key).unwrap_or_else(|| panic!("no {key}")).action.clone()
}

fn zone(facts: &TopologyFacts) -> Action {
    action(&plan(facts).unwrap(), ZONE)
}

#[test]
fn the_label_is_written_and_the_beta_label_only_where_it_is() {
    let bare = plan(&facts(&[], Some("z1"))).unwrap();
    let apply = bare.apply.unwrap();
    assert_eq!(apply.labels, BTreeMap::from([(ZONE.to_owned(), "z1".to_owned())]));
    assert!(!apply.force && bare.keys.iter().all(|k| k.key != BETA_ZONE));
    let both = plan(&facts(&[(ZONE, "a", FIELD_MANAGER), (BETA_ZONE, "a", "mine")], Some("z1"))).unwrap();
    let apply = both.apply.unwrap();
    assert_eq!(apply.labels.keys().collect::<Vec<_>>(), [BETA_ZONE, ZONE]);
    assert!(apply.force);
}

#[test]
fn nobody_elses_value_is_overwritten_unless_its_manager_is_named() {
    let held = |manager: &str| zone(&facts(&[(ZONE, "a", manager)], Some("z1")));
    assert_eq!(held("kubelet"), Action::Held(Hold::Owned(vec!["kubelet".into()])));
    assert_eq!(held(""), Action::Held(Hold::OwnerUnknown));
    assert_eq!(held("mine"), Action::Write { force: true });
    assert_eq!(held(FIELD_MANAGER), Action::Write { force: false });
    // Our name without server-side apply is somebody else's.
    let mut stranger = facts(&[(ZONE, "a", FIELD_MANAGER)], Some("z1"));
    if let Fact::Known { value, .. } = &mut stranger.node {
        value.owners.get_mut(ZONE).unwrap()[0].operation = "Update".into();
    }
    assert!(matches!(zone(&stranger), Action::Held(Hold::Owned(_))));
}

#[test]
fn a_held_label_holds_the_one_beside_it() {
    let beta_held = facts(&[(ZONE, "a", FIELD_MANAGER), (BETA_ZONE, "a", "ccm")], Some("z1"));
    assert_eq!(zone(&beta_held), Action::Held(Hold::With(BETA_ZONE)));
    let held = facts(&[(ZONE, "a", "ccm"), (BETA_ZONE, "a", FIELD_MANAGER)], Some("z1"));
    assert_eq!(action(&plan(&held).unwrap(), BETA_ZONE), Action::Held(Hold::With(ZONE)));
    assert_eq!(plan(&held).unwrap().apply, None);
}

#[test]
fn what_the_host_lost_is_taken_away_only_if_we_set_it() {
    assert_eq!(zone(&facts(&[(ZONE, "a", FIELD_MANAGER)], None)), Action::Remove);
    assert_eq!(zone(&facts(&[(ZONE, "a", "kubelet")], None)), Action::Held(Hold::NotOurs));
    assert_eq!(zone(&facts(&[(ZONE, "a", "")], None)), Action::Held(Hold::NotOurs));
    // An empty text is no value, and no order to write one.
    assert_eq!(zone(&facts(&[(ZONE, "a", FIELD_MANAGER)], Some(""))), Action::Remove);
    // Where Harvester copies no labels, no annotation says nothing.
    let mut other = facts(&[(ZONE, "a", FIELD_MANAGER)], None);
    if let Fact::Known { value, .. } = &mut other.machine {
        value.follows_host = false;
    }
    assert_eq!(zone(&other), Action::Nothing);
}

#[test]
fn no_annotation_says_nothing_before_harvester_has_copied_any() {
    let never = MachineTopology { copied_from: String::new(), ..machine(None) };
    let nowhere = MachineTopology { host: String::new(), ..machine(None) };
    for machine in [never, nowhere] {
        let mut facts = facts(&[(ZONE, "a", FIELD_MANAGER)], None);
        facts.machine = known(machine);
        assert_eq!(zone(&facts), Action::Nothing);
        let want = plan(&facts).unwrap().keys[1].want.clone();
        assert!(matches!(&want, Want::Unknown { why } if why.contains("not copied")), "{want:?}");
    }
}

#[test]
fn the_node_of_another_machine_is_left_alone_whatever_the_source() {
    let with = |provider_id: &str, uid: &str, theirs: &str, ours: &str| {
        let mut facts = facts(&[(ZONE, "a", FIELD_MANAGER)], Some("z1"));
        if let Fact::Known { value, .. } = &mut facts.node {
            (value.provider_id, value.system_uuid) = (provider_id.into(), theirs.into());
        }
        facts.machine = known(MachineTopology { uid: uid.into(), ..machine(Some("z1")) });
        facts.system_uuid = ours.into();
        facts
    };
    const UUID: &str = "5d307ca9-b3ef-428c-8861-06e72d69f223";
    const TURNED: &str = "A97C305D-EFB3-8C42-8861-06E72D69F223";
    const OTHER: &str = "11307ca9-b3ef-428c-8861-06e72d69f223";
    for (provider_id, uid, theirs, ours) in [
        ("harvester://1", "1", UUID, TURNED),
        ("harvester://1", "", "", UUID),
        ("harvester://", "1", UUID, ""),
        ("rke2://n1", "1", "", ""),
    ] {
        let facts = with(provider_id, uid, theirs, ours);
        assert_eq!(stranger(&facts), None, "{provider_id} {uid}");
        assert_eq!(zone(&facts), Action::Write { force: false });
    }
    for (provider_id, uid, theirs, ours, words) in [
        ("harvester://1", "2", "", "", "harvester://1"),
        ("harvester://1", "1", UUID, OTHER, UUID),
        ("rke2://n1", "", UUID, OTHER, OTHER),
    ] {
        let mut facts = with(provider_id, uid, theirs, ours);
        assert!(stranger(&facts).is_some_and(|why| why.contains(words)), "{:?}", stranger(&facts));
        assert_eq!(plan(&facts).unwrap().apply, None);
        facts.desired.zone = Some("z2".into());
        assert_eq!(plan(&facts).unwrap().apply, None);
        facts.desired.zone = Some(String::new());
        assert_eq!(zone(&facts), Action::Nothing);
    }
    let mut alone = with("", "", UUID, OTHER);
    alone.machine = Fact::not_applicable("no Harvester", at());
    alone.configured.zone = Some("z1".into());
    assert_eq!(zone(&alone), Action::Nothing);
}

#[test]
fn a_hosts_labels_count_only_while_it_is_known_to_run_the_machine() {
    let with = |machine: Fact<MachineTopology>| {
        let mut facts = facts(&[], None);
        let values = TopologyValues { region: None, zone: Some("host".into()) };
        facts.host = Some(HostTopology { name: "host1".into(), values, at: at() });
        facts.machine = machine;
        zone(&facts)
    };
    assert_eq!(with(known(machine(None))), Action::Write { force: false });
    assert_eq!(with(Fact::not_applicable("no Harvester", at())), Action::Write { force: false });
    let unmatched = MachineTopology { unmatched: "two".into(), host: String::new(), ..machine(None) };
    let stopped = MachineTopology { stopped: true, host: String::new(), ..machine(None) };
    for machine in [
        known(unmatched),
        known(stopped),
        Fact::absent("test", at()),
        Fact::unknown(UnknownCause::TimedOut, "", "test", at()),
    ] {
        assert_eq!(with(machine), Action::Nothing);
    }
}

#[test]
fn what_cannot_be_read_changes_nothing_and_is_not_passed_over() {
    let mut facts = facts(&[(ZONE, "a", FIELD_MANAGER)], Some("z1"));
    facts.configured.zone = Some("z9".into());
    facts.machine = Fact::unknown(UnknownCause::Forbidden, "no", "test", at());
    assert_eq!(zone(&facts), Action::Nothing);
    let unmatched = MachineTopology { unmatched: "two".into(), ..machine(Some("z1")) };
    let stopped = MachineTopology { stopped: true, ..machine(None) };
    for machine in [unmatched, stopped] {
        facts.machine = known(machine);
        assert_eq!(zone(&facts), Action::Nothing);
    }
    facts.machine = Fact::not_applicable("no Harvester", at());
    assert_eq!(zone(&facts), Action::Write { force: false });
}

#[test]
fn sources_count_in_their_order() {
    let value = |facts: &TopologyFacts| match &plan(facts).unwrap().keys[1].want {
        Want::Value { value, .. } => value.clone(),
        want => format!("{want:?}"),
    };
    let mut facts = facts(&[], Some("machine"));
    facts.configured.zone = Some("configured".into());
    facts.instance = known(TopologyValues { region: None, zone: Some("instance".into()) });
    let host = |name: &str| HostTopology {
        name: name.into(),
        values: TopologyValues { region: None, zone: Some("host".into()) },
        at: at(),
    };
    assert_eq!(value(&facts), "machine");
    facts.host = Some(host("host1"));
    assert_eq!(value(&facts), "host");
    assert_eq!(plan(&facts).unwrap().disagreements.len(), 1);
    // The machine has moved since.
    facts.host = Some(host("host2"));
    assert_eq!(value(&facts), "machine");
    facts.desired.zone = Some("desired".into());
    assert_eq!(value(&facts), "desired");
    facts.desired.zone = Some(String::new());
    assert!(value(&facts).starts_with("Nothing"));
    facts.desired.zone = None;
    facts.machine = Fact::not_applicable("no Harvester", at());
    facts.host = None;
    assert_eq!(value(&facts), "configured");
    facts.configured.zone = None;
    assert_eq!(value(&facts), "instance");
}

#[test]
fn strict_migrating_verify_and_a_fight_hold() {
    let base = || facts(&[(ZONE, "a", FIELD_MANAGER)], Some("z1"));
    let mut strict = base();
    strict.strict = true;
    assert_eq!(zone(&strict), Action::Held(Hold::Strict));
    let mut lost = facts(&[(ZONE, "a", FIELD_MANAGER)], None);
    lost.strict = true;
    assert_eq!(zone(&lost), Action::Held(Hold::Strict));
    let mut first = facts(&[], Some("z1"));
    first.strict = true;
    assert_eq!(zone(&first), Action::Write { force: false });
    let mut migrating = base();
    migrating.machine = known(MachineTopology { migrating: true, ..machine(Some("z1")) });
    assert_eq!(zone(&migrating), Action::Held(Hold::Migrating));
    let mut verify = base();
    verify.mode = TopologyMode::Verify;
    assert!(matches!(zone(&verify), Action::Held(Hold::Verify(_))));
    let mut fight = base();
    let reverted = |value: &str, times| Reverted {
        value: value.into(),
        times,
        to: "a".into(),
        by: "x".into(),
        at: at(),
    };
    fight.writes.reverted = BTreeMap::from([(ZONE.to_owned(), reverted("z1", FIGHT))]);
    assert_eq!(zone(&fight), Action::Held(Hold::Fight(FIGHT)));
    fight.writes.reverted = BTreeMap::from([(ZONE.to_owned(), reverted("z0", FIGHT))]);
    assert_eq!(zone(&fight), Action::Write { force: false });
}

#[test]
fn a_value_that_can_be_no_label_is_never_sent_and_the_other_is() {
    let mut facts = facts(&[], Some("rack/7"));
    if let Fact::Known { value, .. } = &mut facts.machine {
        value.annotations.region = Some("r1".into());
    }
    let plan = plan(&facts).unwrap();
    assert!(matches!(action(&plan, ZONE), Action::Held(Hold::Refused(_))));
    assert_eq!(plan.apply.unwrap().labels, BTreeMap::from([(REGION.to_owned(), "r1".to_owned())]));
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "a", "no", "010", "z/1", "b"]).prop_map(str::to_owned)
}

fn any_facts() -> impl Strategy<Value = TopologyFacts> {
    let label = (prop::sample::select(vec![REGION, ZONE, BETA_REGION, BETA_ZONE]), word());
    let manager = prop::sample::select(vec![FIELD_MANAGER, "mine", "ccm", ""]);
    let labels = prop::collection::vec((label, manager), 0..6);
    let values = || {
        (prop::option::of(word()), prop::option::of(word()))
            .prop_map(|(region, zone)| TopologyValues { region, zone })
    };
    let mode = prop::sample::select(TopologyMode::ALL.to_vec());
    let machine =
        (values(), any::<[bool; 4]>()).prop_map(|(annotations, [follows, moving, stopped, lost])| {
            MachineTopology {
                annotations,
                follows_host: follows,
                migrating: moving,
                stopped,
                unmatched: if lost { "two".into() } else { String::new() },
                ..machine(None)
            }
        });
    let flags = (any::<bool>(), any::<bool>(), 0u32..4);
    (labels, values(), values(), mode, machine, flags).prop_map(
        |(labels, desired, configured, mode, machine, flags)| {
            let given: Vec<_> =
                labels.iter().map(|((key, value), manager)| (*key, value.as_str(), *manager)).collect();
            let reverted = Reverted {
                value: "a".into(),
                times: flags.2,
                to: String::new(),
                by: String::new(),
                at: at(),
            };
            TopologyFacts {
                mode,
                strict: flags.0,
                machine: if flags.1 { known(machine) } else { Fact::not_applicable("none", at()) },
                desired,
                configured,
                writes: WriteRecord {
                    reverted: BTreeMap::from([(ZONE.to_owned(), reverted)]),
                    ..WriteRecord::default()
                },
                ..facts(&given, None)
            }
        },
    )
}

/// What the API server makes of an apply: ours are what is in it, and what is left out goes if nobody else owns it.
fn applied(facts: &TopologyFacts, plan: &TopologyPlan) -> TopologyFacts {
    let mut after = facts.clone();
    let (Some(apply), Fact::Known { value: node, .. }) = (&plan.apply, &mut after.node) else { return after };
    for key in [REGION, ZONE, BETA_REGION, BETA_ZONE] {
        let owners = node.owners.entry(key.to_owned()).or_default();
        let were_ours = owners.iter().any(outrider_sync::topology::is_ours);
        owners.retain(|owner| !outrider_sync::topology::is_ours(owner));
        match apply.labels.get(key) {
            Some(value) => {
                if node.labels.get(key) != Some(value) {
                    owners.clear();
                }
                owners.push(owner(FIELD_MANAGER, "Apply"));
                node.labels.insert(key.to_owned(), value.clone());
            }
            None if were_ours && owners.is_empty() => {
                node.labels.remove(key);
            }
            None => {}
        }
    }
    node.owners.retain(|_, owners| !owners.is_empty());
    after
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn writing_ends(facts in any_facts()) {
        let first = plan(&facts).unwrap();
        let after = applied(&facts, &first);
        let second = plan(&after).unwrap();
        prop_assert_eq!(&second.apply, &None, "{:#?}", second.keys);
    }

    #[test]
    fn nothing_is_written_that_may_not_be(facts in any_facts()) {
        let plan = plan(&facts).unwrap();
        let node = facts.node.value().unwrap();
        if matches!(plan.mode, Effective::Verify(_)) {
            prop_assert_eq!(&plan.apply, &None);
        }
        let Some(apply) = &plan.apply else { return Ok(()) };
        for (key, value) in &apply.labels {
            prop_assert!(outrider_sync::topology::refused(value).is_none() || node.labels.get(key) == Some(value), "{key}={value}");
            let foreign = node.owners.get(key).into_iter().flatten().filter(|o| o.manager == "ccm").count();
            prop_assert!(foreign == 0 || node.labels.get(key) == Some(value), "{key} is ccm's");
            prop_assert!(!key.starts_with("failure-domain") || node.labels.contains_key(key), "{key} was made");
        }
        // What goes was ours alone.
        let applied = applied(&facts, &plan);
        for key in node.labels.keys().filter(|key| !applied.node.value().unwrap().labels.contains_key(*key)) {
            prop_assert!(node.owners[key].iter().all(outrider_sync::topology::is_ours), "{key}");
        }
    }

    #[test]
    fn an_unknown_source_changes_nothing(mut facts in any_facts()) {
        facts.machine = Fact::unknown(UnknownCause::TimedOut, "", "", at());
        facts.desired = TopologyValues::default();
        prop_assert_eq!(plan(&facts).unwrap().apply, None);
    }
}
