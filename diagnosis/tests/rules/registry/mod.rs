//! Every verdict of every rule lies within what the registry allows, and carries words.

mod balancer;
mod cluster;
mod machine;

use outrider_diagnosis::{Finding, fleet, judge, latch};
use outrider_protocol::*;
use proptest::prelude::*;

use self::balancer::balancer;
use self::cluster::{certificates, etcd, kubernetes};
use self::machine::{agent, clock, cloud_init, guest_agent, host};
use crate::world::{self, Change, known, unknown};

pub(crate) fn check(f: &Finding) -> Result<(), TestCaseError> {
    let info = f.reason.info();
    prop_assert!(info.is_some(), "{} is not registered", f.reason);
    let (lowest, highest) = info.unwrap().severities;
    prop_assert!(
        f.severity >= lowest && f.severity <= highest,
        "{} has {}: {}",
        f.reason,
        f.severity,
        f.message
    );
    prop_assert!(f.message.ends_with('.') && f.message.len() > 10, "{}: {:?}", f.reason, f.message);
    prop_assert!(!f.message.contains("  ") && !f.advice.contains("  "), "{:?} {:?}", f.message, f.advice);
    // No hole where a name or a list was to stand.
    let holes =
        ["()", "( ", " )", " ,", " ;", " . ", ", ,", ",.", ":.", "; .", " of.", " at.", " of,", " to,"];
    if f.condition_type.as_str().starts_with("Etcd") {
        let hole = holes.iter().find(|hole| f.message.contains(**hole) || f.advice.contains(**hole));
        prop_assert!(hole.is_none(), "{hole:?}: {:?} {:?}", f.message, f.advice);
    }
    // Whoever is told to look has to be told where.
    prop_assert!(f.severity < Severity::Warn || !f.advice.is_empty(), "{} without advice", f.reason);
    prop_assert!(f.status != Status::False || f.severity > Severity::Ok, "{} is False and ok", f.reason);
    Ok(())
}

fn cause() -> impl Strategy<Value = UnknownCause> {
    prop::sample::select(UnknownCause::ALL)
}

/// A fact in any state, its value from `value`.
pub(crate) fn fact<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Fact<T>> {
    (value, 0u8..8, cause()).prop_map(|(value, state, cause)| match state {
        0 => unknown(cause),
        1 => world::absent("somewhere"),
        2 => Fact::not_applicable("no such thing", world::now()),
        _ => known(value),
    })
}

pub(crate) fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

fn node() -> impl Strategy<Value = NodeFacts> {
    use prop::option::of;
    (
        (of(fact(host())), of(fact(clock())), of(fact(cloud_init())), of(fact(guest_agent()))),
        (
            of(fact(etcd())),
            of(fact(prop::collection::vec(balancer(), 0..3))),
            of(fact(certificates())),
            of(fact(crate::credentials::any_credentials())),
            of(fact(kubernetes())),
            of(fact(crate::dns::any_dns())),
            of(fact(crate::rancher_agent::any_rancher_agent())),
            of(fact(crate::topology::any_topology())),
            of(fact(agent())),
        ),
        prop::sample::select(Profile::ALL),
    )
        .prop_map(
            |(
                (host, clock, cloud_init, guest_agent),
                (
                    etcd,
                    load_balancer,
                    certificates,
                    credentials,
                    kubernetes,
                    dns,
                    rancher_agent,
                    topology,
                    agent,
                ),
                profile,
            )| {
                let checks = CheckFacts {
                    host,
                    clock,
                    cloud_init,
                    guest_agent,
                    etcd,
                    load_balancer,
                    certificates,
                    credentials,
                    kubernetes,
                    dns,
                    rancher_agent,
                    topology,
                    agent,
                };
                world::node_facts(checks).with(|f| f.node.profile = profile)
            },
        )
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn whatever_the_facts_a_verdict_stays_within_the_registry(facts in node()) {
        let judgement = judge(&facts);
        for f in &judgement.findings {
            check(f)?;
        }
        let latched = latch(&facts.latches, &judgement, facts.now);
        for c in &latched.conditions {
            let (lowest, highest) = c.reason.info().unwrap().severities;
            prop_assert!(c.severity >= lowest && c.severity <= highest, "{:?}", c);
        }
        // A check that was read shows something or says why it does not; one that was not read shows nothing.
        let read = [
            (Check::Host, facts.checks.host.is_some()),
            (Check::Clock, facts.checks.clock.is_some()),
            (Check::CloudInit, facts.checks.cloud_init.is_some()),
            (Check::GuestAgent, facts.checks.guest_agent.is_some()),
            (Check::Etcd, facts.checks.etcd.is_some()),
            (Check::LoadBalancer, facts.checks.load_balancer.is_some()),
            (Check::Certificates, facts.checks.certificates.is_some()),
            (Check::Credentials, facts.checks.credentials.is_some()),
            (Check::Kubernetes, facts.checks.kubernetes.is_some()),
            (Check::Dns, facts.checks.dns.is_some()),
            (Check::RancherAgent, facts.checks.rancher_agent.is_some()),
            (Check::Topology, facts.checks.topology.is_some()),
            (Check::Agent, facts.checks.agent.is_some()),
        ];
        for (check, was_read) in read {
            let said = latched.conditions.iter().any(|c| c.condition_type.check_of(&c.subject) == check)
                || judgement.not_applicable.iter().any(|n| n.check == check);
            // All parts of the host may be missing at once; nothing else may.
            if check != Check::Host || !was_read {
                prop_assert_eq!(said, was_read, "{}", check);
            }
        }
    }

    #[test]
    fn fleet_verdicts_stay_within_the_registry(all in prop::collection::vec((fact(etcd()), 0u8..3, word(&["", "a", "b", "c"]), prop::option::of(crate::kubernetes::any_network())), 0..6)) {
        let names: Vec<String> = (1..=all.len()).map(|n| format!("n{n}")).collect();
        let members: Vec<fleet::Member<'_>> = all.iter().zip(&names).map(|((etcd, ready, zone, network), name)| fleet::Member {
            name,
            ready: [Status::True, Status::True, Status::Unknown][usize::from(*ready)],
            zone,
            region: "",
            etcd: Some(etcd),
            network: network.as_ref(),
            received: None,
            heard: None,
            retired: None,
            addresses: &[],
            paths: &[],
        }).collect();
        for f in fleet::judge_cluster("c", &members, world::now()).findings {
            check(&f)?;
            prop_assert_eq!(f.subject, "c");
        }
    }
}
