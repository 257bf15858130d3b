//! What Harvester says of a machine beside what its node says.

use std::time::Duration;

use outrider_diagnosis::machines::{Machine, Node, Source, SourceState, Standing, judge, judge_source};
use outrider_diagnosis::{Finding, Judgement, latch};
use outrider_protocol::{
    Condition, ConditionType as T, ReasonCode as R, Severity, Status, Timestamp, UnknownCause,
};
use outrider_sync::harvester::{AgentConnected, Instance, Mark, Nic, Vm};
use proptest::prelude::*;

use crate::registry::check;
use crate::{expect, only, properties};

const NOW: i64 = 1_796_000_000;

pub(crate) fn now() -> Timestamp {
    Timestamp::from_seconds(NOW)
}

pub(crate) fn ago(seconds: u64) -> Timestamp {
    now().before(Duration::from_secs(seconds))
}

/// A machine of the node driver that has been running for so long, made a minute before.
fn running(seconds: u64) -> Vm {
    let instance = Instance {
        created_at: Some(ago(seconds + 20)),
        phase: "Running".into(),
        running_since: Some(ago(seconds)),
        host: "host1".into(),
        ..Instance::default()
    };
    Vm {
        namespace: "prod".into(),
        name: "a".into(),
        cluster: "prod".into(),
        by_node_driver: true,
        created_at: Some(ago(seconds + 60)),
        instance: Some(Box::new(instance)),
        ..Vm::default()
    }
}

fn with_address(mut vm: Vm, address: &str) -> Vm {
    if let Some(instance) = &mut vm.instance {
        instance.first_address = address.into();
        instance.nics = vec![Nic { mac: "52:54:00:00:00:01".into(), addresses: vec![address.into()] }];
    }
    vm
}

fn with_agent(mut vm: Vm, agent: AgentConnected) -> Vm {
    if let Some(instance) = &mut vm.instance {
        instance.agent = agent;
    }
    vm
}

fn machine<'a>(vm: &'a Vm, node: Standing<'a>) -> Machine<'a> {
    let since = vm.instance.as_ref().and_then(|i| i.created_at).unwrap_or(now());
    Machine { vm, node, watched_since: since, agent_lost: None, last_addresses: None, had_first_ipv4: false }
}

fn node<'a>(guest_agent: Option<&'a Condition>) -> Node<'a> {
    Node { name: "n1", is_pending: false, last_seen: Some(ago(5)), heard: Status::True, guest_agent }
}

fn of(vm: &Vm, node: Standing<'_>, t: T) -> Finding {
    only(&judge(&machine(vm, node), now()), t)
}

fn own_word(status: Status, reason: R, since: Timestamp) -> Condition {
    Condition {
        condition_type: T::GuestAgentReady,
        status,
        severity: Severity::Ok,
        reason,
        message: "the agent is as it is.".to_owned(),
        advice: String::new(),
        subject: String::new(),
        last_transition_time: since,
        observed_at: now(),
    }
}

#[test]
fn one_that_was_never_heard_says_how_long_it_is_up_and_what_may_be_the_cause() {
    let contact = |vm: &Vm| of(vm, Standing::Nobody, T::MachineReporting);
    expect(&contact(&running(120)), Status::Unknown, Severity::Info, R::MachineStarting, &["VM up 2 min"]);
    let words =
        ["VM up 7 min, no first contact", "guest agent is not connected", "cloud-init", "ISO", "network"];
    expect(&contact(&running(420)), Status::False, Severity::Warn, R::MachineNeverReported, &words);
    expect(&contact(&running(900)), Status::False, Severity::Error, R::MachineNeverReported, &[]);
    let connected = with_address(with_agent(running(420), AgentConnected::True(None)), "192.0.2.9");
    let words = ["it shows 192.0.2.9", "outrider-agent installed", "coordinator reached"];
    expect(&contact(&connected), Status::False, Severity::Warn, R::MachineNeverReported, &words);
}

#[test]
fn one_that_is_known_is_heard_waits_or_is_silent() {
    let is = |node| Standing::Is(node, Mark::Mac);
    let vm = running(3600);
    let contact = |node| of(&vm, is(node), T::MachineReporting);
    expect(&contact(node(None)), Status::True, Severity::Ok, R::MachineReports, &["host1", "n1"]);
    let pending = Node { is_pending: true, last_seen: None, ..node(None) };
    expect(&contact(pending), Status::Unknown, Severity::Warn, R::EnrolmentPending, &["outrider approve n1"]);
    let silent = Node { heard: Status::Unknown, last_seen: Some(ago(600)), ..node(None) };
    expect(&contact(silent), Status::Unknown, Severity::Warn, R::NodeSilent, &["10 min", "host1"]);
    let mute = Node { last_seen: None, ..node(None) };
    expect(
        &contact(mute),
        Status::False,
        Severity::Error,
        R::MachineNeverReported,
        &["enrolled and has not reported"],
    );
}

#[test]
fn a_stopped_one_is_stale_and_not_gone() {
    let vm = Vm { instance: None, ..running(3600) };
    let contact = of(&vm, Standing::Is(node(None), Mark::Mac), T::MachineReporting);
    expect(&contact, Status::Unknown, Severity::Info, R::MachineStopped, &["stale", "labels are kept"]);
    assert!(!contact.message.contains("Rancher"), "{contact:?}");
    let judgement = judge(&machine(&vm, Standing::Nobody), now());
    assert!(judgement.findings.iter().all(|f| f.condition_type != T::GuestAgentConnected), "{judgement:?}");
}

#[test]
fn how_long_rancher_waits_for_it_to_run_counts_from_when_the_vm_was_made() {
    let made = |seconds, instance: Option<u64>| {
        let instance = instance.map(|seconds| {
            let phase = "Scheduling".into();
            Box::new(Instance { created_at: Some(ago(seconds)), phase, ..Instance::default() })
        });
        Vm { created_at: Some(ago(seconds)), instance, ..running(0) }
    };
    let contact = |vm: &Vm| of(vm, Standing::Nobody, T::MachineReporting);
    let words = ["does not run; Rancher waits 7 min more"];
    expect(&contact(&made(180, None)), Status::Unknown, Severity::Info, R::MachineStopped, &words);
    let words = ["Being started for 10 s", "Rancher waits 60 s more"];
    let started = made(540, Some(10));
    expect(&contact(&started), Status::Unknown, Severity::Info, R::MachineStarting, &words);
    let words = ["Being started for 11 min", "Rancher waits no longer than 10 min"];
    let late = made(700, Some(690));
    expect(&contact(&late), Status::Unknown, Severity::Warn, R::MachineStarting, &words);
    let (old, unknown) = (made(1200, Some(10)), Vm { created_at: None, ..made(0, Some(10)) });
    let by_hand = Vm { by_node_driver: false, ..made(180, None) };
    for vm in [old, unknown, by_hand] {
        assert!(!contact(&vm).message.contains("Rancher"), "{:?}", contact(&vm));
    }
}

#[test]
fn one_that_was_started_anew_may_boot_before_its_silence_counts() {
    let silent = |seen| Node { heard: Status::Unknown, last_seen: Some(ago(seen)), ..node(None) };
    let contact = |up, seen| {
        let vm = running(up);
        of(&vm, Standing::Is(silent(seen), Mark::Mac), T::MachineReporting)
    };
    let words = ["VM up 60 s", "node n1 not heard since"];
    expect(&contact(60, 900), Status::Unknown, Severity::Info, R::MachineStarting, &words);
    expect(&contact(300, 900), Status::Unknown, Severity::Warn, R::NodeSilent, &["15 min"]);
    // It was heard in this run already.
    expect(&contact(280, 130), Status::Unknown, Severity::Warn, R::NodeSilent, &["2 min"]);
}

#[test]
fn the_minutes_left_before_rancher_deletes_it_are_counted() {
    let agent = |vm: &Vm| of(vm, Standing::Nobody, T::GuestAgentConnected);
    let words = ["never connected", "480 s left"];
    let early = agent(&running(120));
    expect(&early, Status::Unknown, Severity::Info, R::GuestAgentNeverConnected, &words[..1]);
    assert!(early.message.contains("8 min left before Rancher"), "{early:?}");
    expect(
        &agent(&running(400)),
        Status::False,
        Severity::Error,
        R::GuestAgentNeverConnected,
        &["3 min left"],
    );
    expect(
        &agent(&running(700)),
        Status::False,
        Severity::Error,
        R::GuestAgentNeverConnected,
        &["passed 100 s ago"],
    );
    // Long after, nobody waits: it was not made so, or had its address.
    let old = agent(&running(7200));
    expect(&old, Status::False, Severity::Warn, R::GuestAgentNeverConnected, &["VM running for 2 h"]);
    assert!(!old.message.contains("Rancher"), "{old:?}");
    let by_hand = Vm { by_node_driver: false, ..running(420) };
    assert!(!agent(&by_hand).message.contains("Rancher takes"), "{:?}", agent(&by_hand));
    // Started again after a month.
    let again = Vm { created_at: Some(ago(2_600_000)), ..running(420) };
    assert!(!agent(&again).message.contains("left before"), "{:?}", agent(&again));
}

#[test]
fn both_sides_of_the_guest_agent_are_joined() {
    let up = own_word(Status::True, R::GuestAgentRunning, ago(60));
    let vm = running(100);
    let late = of(&vm, Standing::Is(node(Some(&up)), Mark::Mac), T::GuestAgentConnected);
    let words = ["Agent up, host has not polled yet", "60 s", "live migration"];
    expect(&late, Status::Unknown, Severity::Info, R::GuestAgentNotPolled, &words);
    let up = own_word(Status::True, R::GuestAgentRunning, ago(500));
    let vm = running(520);
    let late = of(&vm, Standing::Is(node(Some(&up)), Mark::Mac), T::GuestAgentConnected);
    expect(
        &late,
        Status::False,
        Severity::Warn,
        R::GuestAgentNotPolled,
        &["restarting the guest agent does not help"],
    );
    let down = own_word(Status::False, R::GuestAgentNotInstalled, ago(500));
    let none = of(&vm, Standing::Is(node(Some(&down)), Mark::Mac), T::GuestAgentConnected);
    expect(
        &none,
        Status::False,
        Severity::Error,
        R::GuestAgentNeverConnected,
        &["GuestAgentNotInstalled", "n1"],
    );
}

#[test]
fn an_address_that_flaps_alarms_nobody_at_once() {
    let vm = with_agent(running(9000), AgentConnected::True(Some(ago(8000))));
    let last = ["192.0.2.9".into()];
    let flapping =
        |seconds| Machine { last_addresses: Some((&last, ago(seconds))), ..machine(&vm, Standing::Nobody) };
    let shown = |seconds| only(&judge(&flapping(seconds), now()), T::GuestAgentConnected);
    expect(
        &shown(300),
        Status::True,
        Severity::Info,
        R::GuestAgentNoAddress,
        &["192.0.2.9 stays shown", "known flap"],
    );
    expect(&shown(700), Status::False, Severity::Warn, R::GuestAgentNoAddress, &[]);
    let vm = running(9000);
    let lost = |seconds| Machine { agent_lost: Some(ago(seconds)), ..machine(&vm, Standing::Nobody) };
    let shown = |seconds| only(&judge(&lost(seconds), now()), T::GuestAgentConnected);
    expect(&shown(300), Status::True, Severity::Info, R::GuestAgentDisconnected, &["known flap"]);
    expect(&shown(700), Status::False, Severity::Warn, R::GuestAgentDisconnected, &["11 min"]);
}

#[test]
fn a_first_interface_without_ipv4_is_told_as_what_it_is() {
    let vm = with_address(with_agent(running(500), AgentConnected::True(Some(ago(400)))), "fe80::1");
    let shown = of(&vm, Standing::Nobody, T::GuestAgentConnected);
    let words = ["fe80::1 at the first interface", "none but IPv4", "100 s left"];
    expect(&shown, Status::False, Severity::Error, R::GuestAgentNoAddress, &words);
}

#[test]
fn an_address_elsewhere_does_not_end_the_wait_for_the_first_interface() {
    let connected = |seconds: u64, first: &str| {
        let vm = with_agent(running(seconds), AgentConnected::True(Some(ago(seconds - 20))));
        let mut vm = with_address(vm, "192.0.2.9");
        if let Some(instance) = &mut vm.instance {
            instance.first_address = first.into();
        }
        vm
    };
    let shown = |vm: &Vm| of(vm, Standing::Nobody, T::GuestAgentConnected);
    let words =
        ["192.0.2.9, and nothing at the first interface", "8 min left", "first of the machine's networks"];
    expect(&shown(&connected(120, "")), Status::Unknown, Severity::Info, R::GuestAgentNoAddress, &words);
    let words = ["2001:db8::1 at the first interface", "100 s left"];
    let late = connected(500, "2001:db8::1");
    expect(&shown(&late), Status::False, Severity::Error, R::GuestAgentNoAddress, &words);
    // The driver has its address, or waits for none any more.
    let had = Machine { had_first_ipv4: true, ..machine(&late, Standing::Nobody) };
    let had = only(&judge(&had, now()), T::GuestAgentConnected);
    expect(&had, Status::True, Severity::Ok, R::GuestAgentConnectedAtHost, &["192.0.2.9"]);
    let old = shown(&connected(7200, ""));
    expect(&old, Status::True, Severity::Ok, R::GuestAgentConnectedAtHost, &["192.0.2.9"]);
}

#[test]
fn a_connection_lost_before_there_was_an_address_is_no_flap() {
    let vm = running(420);
    let lost = Machine { agent_lost: Some(ago(60)), ..machine(&vm, Standing::Nobody) };
    let shown = only(&judge(&lost, now()), T::GuestAgentConnected);
    let words = ["has not reached the guest agent for 60 s", "3 min left"];
    expect(&shown, Status::False, Severity::Warn, R::GuestAgentDisconnected, &words);
    let lost = Machine { had_first_ipv4: true, ..lost };
    let shown = only(&judge(&lost, now()), T::GuestAgentConnected);
    expect(&shown, Status::True, Severity::Info, R::GuestAgentDisconnected, &["known flap"]);
}

#[test]
fn whose_copies_there_are_is_said() {
    let vm = running(3600);
    let several = Standing::Several { by: Mark::Mac, names: vec!["prod/a", "prod/b"], are_vms: true };
    let f = of(&vm, several, T::MachineIdentified);
    expect(&f, Status::False, Severity::Error, R::MachineAmbiguous, &["2 virtual machines", "MAC", "prod/b"]);
    let other = Standing::Contradicted { node: "n1", by: Mark::Name, against: Mark::Mac };
    let f = of(&vm, other, T::MachineIdentified);
    expect(
        &f,
        Status::False,
        Severity::Warn,
        R::MachineContradicted,
        &["n1", "name", "MAC", "outrider revoke"],
    );
}

pub(crate) fn source(resource: &str, is_optional: bool, state: SourceState) -> Source {
    Source { resource: resource.to_owned(), is_optional, state }
}

pub(crate) fn failed(cause: UnknownCause, last_read: Option<Timestamp>) -> SourceState {
    let detail = "watch virtualmachines.kubevirt.io at https://h: 403 no".to_owned();
    SourceState::Failed { cause, detail, since: ago(40), last_read }
}

#[test]
fn a_source_that_cannot_be_read_is_one_unknown_and_never_no_machines() {
    let server = "https://h";
    let judge =
        |vms, hosts| judge_source(server, &[source("vms", false, vms), source("nodes", true, hosts)], now());
    let read = || SourceState::Read(3);
    expect(&judge(read(), read()), Status::True, Severity::Ok, R::HarvesterRead, &["3 vms", "3 nodes"]);
    let never = judge(failed(UnknownCause::Forbidden, None), read());
    let words = ["watch virtualmachines", "does not mean that there is none", "list and watch"];
    expect(&never, Status::Unknown, Severity::Warn, R::Forbidden, &words);
    let stale = judge(failed(UnknownCause::Unauthenticated, Some(ago(90))), read());
    expect(&stale, Status::Unknown, Severity::Warn, R::Unauthenticated, &["90 s old", "new kubeconfig"]);
    let hosts = judge(read(), failed(UnknownCause::Forbidden, None));
    expect(&hosts, Status::True, Severity::Info, R::HarvesterPartlyRead, &["nodes are not", "annotations"]);
    assert_eq!(judge(SourceState::NotYetRead, read()).reason, R::NotYetRead);
}

#[test]
fn what_rises_clears_with_the_cause() {
    let (never, none) = (running(420), [].as_slice());
    let at = |vm: &Vm, standing, before: &[_]| latch(before, &judge(&machine(vm, standing), now()), now());
    let raised = at(&never, Standing::Nobody, none);
    let known = with_address(with_agent(never.clone(), AgentConnected::True(None)), "192.0.2.9");
    let cleared = at(&known, Standing::Is(node(None), Mark::Mac), &raised.latches);
    assert!(cleared.conditions.iter().all(|c| c.severity == Severity::Ok), "{cleared:#?}");
    let stopped = Vm { instance: None, ..never };
    let cleared = at(&stopped, Standing::Nobody, &raised.latches);
    let types: Vec<&T> = cleared.conditions.iter().map(|c| &c.condition_type).collect();
    assert_eq!(types, [&T::MachineReporting], "{cleared:#?}");
}

fn any_vm() -> impl Strategy<Value = Vm> {
    let phase = prop::sample::select(vec!["Running", "Scheduling", "", "Failed", "Succeeded", "Unknown"]);
    let address = prop::sample::select(vec!["", "192.0.2.9", "fe80::1", "2001:db8::1", "junk"]);
    let agent = prop::sample::select(vec![0, 1, 2, 3]);
    let times =
        (prop::option::of(0u64..90_000), prop::option::of(0u64..90_000), prop::option::of(0u64..90_000));
    (phase, address, agent, times, prop::bool::ANY, prop::bool::ANY, prop::option::of(0u64..600)).prop_map(
        |(phase, address, agent, (made, began, ran), by_node_driver, exists, deleted)| {
            let agent = match agent {
                0 => AgentConnected::Unsaid,
                1 => AgentConnected::False(ran.map(ago)),
                2 => AgentConnected::True(None),
                _ => AgentConnected::True(ran.map(ago)),
            };
            let nics = vec![Nic { mac: "52:54:00:00:00:01".into(), addresses: vec![address.into()] }];
            let instance = Instance {
                created_at: began.map(ago),
                phase: phase.into(),
                running_since: ran.map(ago),
                first_address: address.into(),
                nics: if address.is_empty() { Vec::new() } else { nics },
                agent,
                ..Instance::default()
            };
            Vm {
                by_node_driver,
                created_at: made.map(ago),
                deleted_at: deleted.map(ago),
                instance: exists.then(|| Box::new(instance)),
                ..Vm::default()
            }
        },
    )
}

fn all(judgement: &Judgement) -> Result<(), TestCaseError> {
    judgement.findings.iter().try_for_each(check)
}

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn every_verdict_lies_within_the_registry(
        vm in any_vm(), standing in 0u8..6, seen in prop::option::of(0u64..9000), ready in prop::sample::select(vec![Status::True, Status::False, Status::Unknown])
    ) {
        let word = own_word(ready, R::GuestAgentStopped, ago(50));
        let standing = match standing {
            0 => Standing::Nobody,
            1 => Standing::Is(node(Some(&word)), Mark::Mac),
            2 => Standing::Is(Node { last_seen: None, ..node(None) }, Mark::Name),
            3 => Standing::Is(Node { is_pending: true, ..node(None) }, Mark::SystemUuid),
            4 => Standing::Several { by: Mark::Mac, names: vec!["a", "b"], are_vms: seen.is_some() },
            _ => Standing::Contradicted { node: "n", by: Mark::HostName, against: Mark::Mac },
        };
        let last = ["192.0.2.1".into()];
        let machine = Machine {
            agent_lost: seen.map(ago),
            had_first_ipv4: seen.is_some_and(|at| at.is_multiple_of(2)),
            last_addresses: seen.map(|at| (last.as_slice(), ago(at))),
            ..machine(&vm, standing)
        };
        all(&judge(&machine, now()))?;
    }

    #[test]
    fn every_verdict_on_the_source_does(cause in prop::sample::select(UnknownCause::ALL), optional in prop::bool::ANY, read in prop::option::of(0u64..9000)) {
        let state = failed(cause, read.map(ago));
        check(&judge_source("https://h", &[source("x", optional, state)], now()))?;
    }
}
