//! One judgement of which clock is right for everything that ends: certificates of this node, of a balancer and of
//! `/cacerts`, an authority that Rancher's agent pins, and credentials (`facts/credentials.md`, 7).

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::expect;
use crate::world::{self, Change, in_days, known, now};

use ReasonCode as R;
use Severity as S;
use Status as T;

const DAY_MS: i64 = 86_400_000;

/// What a node knows of its clock and of others'.
struct Clocks {
    kept: bool,
    coordinator_ms: Option<i64>,
    /// By its own service's word.
    service_ms: Option<f64>,
    /// Ours minus theirs, of backends.
    peers_ms: Vec<i64>,
    /// A file was written so many days ahead.
    written_ahead: Option<u64>,
}

const KEPT: Clocks =
    Clocks { kept: true, coordinator_ms: None, service_ms: None, peers_ms: Vec::new(), written_ahead: None };

/// A node on which everything begins and ends at these moments.
fn node(clocks: &Clocks, from: Timestamp, end: Timestamp) -> NodeFacts {
    let dated = |c: &mut CertificateFacts| (c.not_before, c.not_after) = (from, end);
    let mut through = world::probe(
        ProbeKind::Root,
        ProbeTarget::Balancer,
        "192.0.2.10:443",
        Some(world::http(200, "", "")),
    );
    if let Fact::Known { value, .. } = &mut through.tls {
        value.chain.iter_mut().for_each(dated);
    }
    let backends = clocks.peers_ms.iter().enumerate().map(|(n, offset_ms)| {
        let answer = HttpAnswer { date_offset_ms: Some(*offset_ms), ..world::http(200, "", "pong") };
        world::probe(ProbeKind::Ping, ProbeTarget::Backend, &format!("10.0.0.{}:80", n + 1), Some(answer))
    });
    let ca = world::published().with(|ca| {
        if let Fact::Known { value, .. } = &mut ca.certificates {
            value.iter_mut().for_each(dated);
        }
    });
    let balancer = world::balancer(std::iter::once(through).chain(backends).collect());
    let balancer = LoadBalancerFacts { ca: Some(known(ca)), ..balancer };
    let certificates = world::certificates("v1.33.1-rke2r1", 265).with(|c| {
        let chains = c.files.iter_mut().map(|file| &mut file.certificates);
        for chain in chains.chain(c.served.iter_mut().map(|served| &mut served.chain)) {
            if let Fact::Known { value, .. } = chain {
                value.iter_mut().for_each(dated);
            }
        }
        if let Some(days) = clocks.written_ahead {
            c.files[2].modified = Some(world::ahead(days * world::DAY));
        }
    });
    let credentials = world::credentials().with(|c| {
        let content = &mut c.kubeconfigs[0].content;
        if let Fact::Known {
            value: KubeconfigContent { token: Some(Fact::Known { value, .. }), .. }, ..
        } = content
        {
            value.expires_at = Some(end);
        }
        c.kubeconfigs[0].call = Fact::not_applicable("off", now());
    });
    let rancher = world::rancher_agent().with(|r| {
        if let Fact::Known { value: SystemAgent { connection: Fact::Known { value, .. }, .. }, .. } =
            &mut r.agent
            && let Fact::Known { value, .. } = &mut value.authorities
        {
            value.iter_mut().for_each(dated);
        }
    });
    let source = clocks.service_ms.map(|ms| {
        known(TimeSource {
            service: "chronyd".into(),
            selected: "192.0.2.1".into(),
            stratum: 3,
            updated_at: Some(world::ago(30)),
            offset_ms: Some(ms),
            uncertainty_ms: Some(2.0),
            sources: Vec::new(),
        })
    });
    let clock = world::clock().with(|c| {
        let (synchronized, error) = (clocks.kept, 10);
        c.kernel = known(KernelClock { synchronized, estimated_error_us: error, maximum_error_us: error });
        c.source = source;
        c.coordinator = match clocks.coordinator_ms {
            Some(offset_ms) => {
                known(ClockOffset { offset_ms, uncertainty_ms: 600, peer: "c.example".into() })
            }
            None => Fact::not_applicable("none", now()),
        };
    });
    world::node_facts(CheckFacts {
        clock: Some(known(clock)),
        load_balancer: Some(known(vec![balancer])),
        certificates: Some(known(certificates)),
        credentials: Some(known(credentials)),
        rancher_agent: Some(known(rancher)),
        ..CheckFacts::default()
    })
}

/// What is said of each end.
fn ends(clocks: &Clocks, from: Timestamp, end: Timestamp) -> Vec<Finding> {
    let found = judge(&node(clocks, from, end)).findings;
    let of = [
        (ConditionType::CertificatesValid, "etcd:2379"),
        (ConditionType::CertificatesValid, "ca"),
        (ConditionType::LoadBalancerReachable, "rancher"),
        (ConditionType::RancherCa, "rancher"),
        (ConditionType::RancherAgentReady, "connection"),
        (ConditionType::CredentialsValid, "/etc/kubernetes/cloud-config"),
    ];
    of.map(|(of, subject)| {
        let is_it = |f: &&Finding| f.condition_type == of && f.subject == subject;
        found.iter().find(is_it).unwrap_or_else(|| panic!("{of} {subject}: {found:#?}")).clone()
    })
    .to_vec()
}

#[track_caller]
fn all_unsure(clocks: &Clocks, from: Timestamp, end: Timestamp, words: &str) {
    for found in ends(clocks, from, end) {
        let reason = match found.condition_type {
            ConditionType::CredentialsValid => R::CredentialClockUnsure,
            _ => R::CertificateClockUnsure,
        };
        expect(&found, T::Unknown, S::Error, reason, &["By this clock", words]);
        assert!(!found.advice.starts_with("Renew"), "{found:#?}");
    }
}

#[track_caller]
fn all(clocks: &Clocks, from: Timestamp, end: Timestamp, status: Status, words: &str) {
    for found in ends(clocks, from, end) {
        assert_eq!(found.status, status, "{found:#?}");
        assert!(!found.message.contains("By this clock"), "{found:#?}");
        assert!(found.message.contains(words), "{words}: {found:#?}");
    }
}

#[test]
fn a_coordinator_that_is_proven_wrong_judges_no_end() {
    let agree = vec![10, -20, 30];
    for days in [400, -400] {
        let wrong = Clocks { coordinator_ms: Some(days * DAY_MS), peers_ms: agree.clone(), ..KEPT };
        all(&wrong, in_days(-30), in_days(330), T::True, "");
        all(&wrong, in_days(-30), in_days(-3), T::False, "ended");
    }
}

#[test]
fn a_clock_that_is_proven_wrong_judges_no_end() {
    let ahead = 10 * DAY_MS;
    for (clocks, words) in [
        (
            Clocks { peers_ms: vec![ahead, ahead + 200], ..KEPT },
            "10 days ahead of those of 10.0.0.1, 10.0.0.2",
        ),
        (
            Clocks { service_ms: Some(ahead as f64), ..KEPT },
            "10 days ahead of the true time by its own service's word",
        ),
        (Clocks { coordinator_ms: Some(ahead), ..KEPT }, "10 days ahead of that of c.example"),
        (
            Clocks { coordinator_ms: Some(ahead), peers_ms: vec![ahead], ..KEPT },
            "10 days ahead of that of c.example",
        ),
        (Clocks { kept: false, ..KEPT }, "nobody keeps this clock"),
        (Clocks { kept: false, peers_ms: vec![ahead], ..KEPT }, "864000 s (10 days) ahead of 10.0.0.1"),
    ] {
        all_unsure(&clocks, in_days(-30), in_days(-3), words);
    }
    // By both clocks it has ended.
    all(&Clocks { peers_ms: vec![ahead, ahead], ..KEPT }, in_days(-30), in_days(-12), T::False, "ended");
}

#[test]
fn what_begins_in_the_future_of_a_clock_in_doubt_is_left_open_too() {
    let behind = -10 * DAY_MS;
    for clocks in [
        Clocks { peers_ms: vec![behind, behind], ..KEPT },
        Clocks { written_ahead: Some(10), ..KEPT },
        Clocks { kept: false, ..KEPT },
    ] {
        let found = ends(&clocks, in_days(2), in_days(330));
        for found in found.iter().filter(|f| f.condition_type != ConditionType::CredentialsValid).take(3) {
            expect(found, T::Unknown, S::Error, R::CertificateClockUnsure, &["not valid before"]);
        }
    }
}

#[test]
fn clocks_that_are_seconds_apart_leave_open_only_what_the_seconds_decide() {
    let slight = Clocks { coordinator_ms: Some(25_000), ..KEPT };
    let seconds = |s: i64| Timestamp::from_millis(now().as_millis() + s * 1000);
    all_unsure(&slight, in_days(-30), seconds(-10), "25 s ahead of that of c.example");
    all(&slight, in_days(-30), seconds(-60), T::False, "ended");
    all(&slight, in_days(-300), in_days(3), T::True, "ends in 3 days");
    // A level that lies between the two is no question of the clock.
    all(&slight, in_days(-300), seconds(7 * 86_400 + 10), T::True, "ends in 7 days");
}

#[test]
fn ages_of_this_machines_own_files_are_told_by_this_machines_clock() {
    let wrong = Clocks { coordinator_ms: Some(-400 * DAY_MS), ..KEPT };
    let facts = node(&wrong, in_days(-30), in_days(330)).with(|f| {
        if let Some(Fact::Known { value, .. }) = &mut f.checks.rancher_agent
            && let Fact::Known { value: SystemAgent { plans: Fact::Known { value, .. }, .. }, .. } =
                &mut value.agent
        {
            value.active_since = Some(world::ago(60));
        }
    });
    let stuck = judge(&facts).findings.into_iter().find(|f| f.reason == R::RancherAgentPlanStuck);
    assert!(stuck.is_none(), "{stuck:#?}");
}
