//! Any credentials at all, and what holds of every one.

use outrider_protocol::*;
use proptest::prelude::*;

use super::*;
use crate::rank;
use crate::world::unknown;

fn any_fact<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Fact<T>> {
    (value, 0u8..6, prop::sample::select(UnknownCause::ALL)).prop_map(|(value, state, cause)| match state {
        0 => unknown(cause),
        1 => world::absent("somewhere"),
        2 => Fact::not_applicable("no such thing", now()),
        _ => known(value),
    })
}

fn any_content() -> impl Strategy<Value = KubeconfigContent> {
    let time = prop::option::of(any::<i64>().prop_map(Timestamp::from_millis));
    let any_token =
        (prop::sample::select(TokenForm::ALL), time, any::<bool>()).prop_map(|(form, end, faulty)| {
            token(form, "t", end).with(|t| t.fault = if faulty { "broken".into() } else { String::new() })
        });
    let certificate = any::<i64>().prop_map(|ms| {
        with_certificate(Timestamp::from_millis(ms)).certificate.and_then(|c| c.value().cloned()).unwrap()
    });
    let kinds = prop::collection::vec(prop::sample::select(CredentialKind::ALL), 0..3);
    let fault = prop::sample::select(vec!["", "", "", "no context"]);
    (kinds, prop::option::of(any_fact(any_token)), prop::option::of(any_fact(certificate)), fault).prop_map(
        |(kinds, token, certificate, fault)| KubeconfigContent {
            kinds,
            token,
            certificate,
            fault: fault.into(),
            ..service_account(None)
        },
    )
}

/// Any credentials at all.
pub(crate) fn any_credentials() -> impl Strategy<Value = CredentialsFacts> {
    let call = (0u16..600, 0u32..4, 0u32..4).prop_map(|(status, calls, refused)| {
        answered(status, calls, refused, "said").value().cloned().unwrap()
    });
    let purpose = prop::sample::select(KubeconfigPurpose::ALL);
    let kubeconfig =
        (purpose, any_fact(any_content()), any_fact(call)).prop_map(|(purpose, content, call)| {
            KubeconfigFacts { content, call, ..file(purpose, service_account(None)) }
        });
    let made =
        any::<[i64; 2]>().prop_map(|[ttl, made]| rancher_token(ttl, Timestamp::from_millis(made), None));
    let one = (
        any_fact(made),
        prop::option::of("[0-9]{0,18}"),
        prop::option::of(any_fact(any_content())),
        any_fact(prop::collection::vec("[a-z]{1,5}", 0..3)),
        any::<bool>(),
    );
    let one = one.prop_map(|(token, expiration, kubeconfig, used_by, made_to_last)| CloudCredential {
        token,
        expiration,
        kubeconfig,
        used_by,
        made_to_last,
        ..credential("cc-1")
    });
    let cloud = prop::collection::vec(one, 0..3).prop_map(|credentials| CloudCredentials {
        server: "https://s".into(),
        credentials,
        others: 1,
        left_out: 0,
    });
    let cluster = prop::option::of(any_fact(any_cluster()));
    (prop::collection::vec(kubeconfig, 0..3), any_fact(cloud), cluster).prop_filter_map(
        "a sensor that found nothing says so",
        |(kubeconfigs, rancher, rancher_cluster)| {
            let says = !kubeconfigs.is_empty() || !matches!(rancher, Fact::NotApplicable { .. });
            says.then_some(CredentialsFacts { kubeconfigs, rancher, rancher_cluster })
        },
    )
}

fn any_cluster() -> impl Strategy<Value = RancherCluster> {
    let route = || {
        let host = prop::sample::select(vec!["", "rancher.example", "*.example", "other.example"]);
        let made = (
            prop::collection::vec(host, 0..3),
            any::<bool>(),
            prop::sample::select(vec!["prod", "cattle-system"]),
        );
        made.prop_map(|(hosts, is_ranchers, namespace)| Route {
            namespace: namespace.into(),
            name: "r".into(),
            hosts: hosts.into_iter().map(str::to_owned).collect(),
            class: String::new(),
            is_ranchers,
        })
    };
    let routes =
        || any_fact(prop::collection::vec(route(), 0..4).prop_map(|routes| Routes { routes, left_out: 0 }));
    let url = prop::sample::select(vec![
        "",
        "https://rancher.example",
        "https://r.example:8443",
        "x",
        "https://127.0.0.1",
    ]);
    let workloads = (0u32..3, 0u32..3).prop_map(|(n, left_out)| Workloads {
        foreign: (0..n)
            .map(|n| Workload {
                namespace: "prod".into(),
                kind: "Pod".into(),
                name: format!("p{n}"),
                pods: n,
            })
            .collect(),
        left_out,
    });
    let systems = prop::collection::vec(Just("prod".to_owned()), 0..2);
    (any_fact(url.prop_map(str::to_owned)), any_fact(systems), routes(), routes(), any_fact(workloads))
        .prop_map(|(server_url, system_namespaces, ingresses, http_routes, workloads)| RancherCluster {
            server: "https://s".into(),
            server_url,
            system_namespaces,
            ingresses,
            http_routes,
            workloads,
        })
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn a_later_end_is_never_worse(days in -40i64..40, more in 0i64..40) {
        let at = |days: i64| Timestamp::from_millis(now().as_millis() + days * 86_400_000);
        let early = provider(service_account(Some(at(days))));
        let late = provider(service_account(Some(at(days + more))));
        prop_assert!(rank(&late) <= rank(&early), "{:?} {:?}", early, late);
    }

    #[test]
    fn an_unkept_clock_never_says_expired(days in -400i64..400) {
        let end = Timestamp::from_millis(now().as_millis() + days * 86_400_000);
        let mut facts = facts(vec![file(KubeconfigPurpose::Admin, with_certificate(end))], None);
        facts.checks.clock = None;
        prop_assert_eq!(of(&facts, "").status, Status::Unknown);
    }
}
