//! Rancher's own cluster: one name for all, and nobody else in it.

use outrider_protocol::*;

use super::*;
use crate::world::{absent, unknown};
use crate::{expect, only};

use ReasonCode as R;
use Severity as S;
use Status as T;

fn route(namespace: &str, name: &str, host: &str, is_ranchers: bool) -> Route {
    Route {
        namespace: namespace.into(),
        name: name.into(),
        hosts: vec![host.into()],
        class: "nginx".into(),
        is_ranchers,
    }
}

fn routes(all: &[Route]) -> Fact<Routes> {
    known(Routes { routes: all.to_vec(), left_out: 0 })
}

fn cluster() -> RancherCluster {
    RancherCluster {
        server: "https://192.0.2.1:6443".into(),
        server_url: known("https://rancher.example".into()),
        system_namespaces: known(vec!["kube-system".into(), "ingress-nginx".into()]),
        ingresses: routes(&[route("cattle-system", "rancher", "rancher.example", true)]),
        http_routes: absent("no such API"),
        workloads: known(Workloads::default()),
    }
}

impl Change for RancherCluster {}

/// A balancer of this name and port whose certificate covers `sans`, and which answers `pong` or not.
fn balancer(host: &str, port: u16, sans: &[&str], pongs: bool) -> LoadBalancerFacts {
    let mut all = world::balancer(Vec::new());
    (all.host, all.port, all.name) = (host.into(), port, "front".into());
    let leaf = CertificateFacts {
        subject: "CN=r".into(),
        issuer: "CN=ca".into(),
        sans: sans.iter().map(|san| (*san).to_owned()).collect(),
        not_before: ago(DAY),
        not_after: world::ahead(100 * DAY),
        sha256: String::new(),
        is_ca: false,
        signature: String::new(),
    };
    let tls = TlsFacts {
        version: "TLSv1.3".into(),
        alpn: String::new(),
        cipher: String::new(),
        chain: vec![leaf],
        trust: known(String::new()),
        name_matches: true,
        issuer_at: String::new(),
    };
    let http =
        if pongs { world::http(200, "", "pong") } else { world::http(404, "", "default backend - 404") };
    all.probes = vec![Probe {
        kind: ProbeKind::Ping,
        target: ProbeTarget::Balancer,
        peer: "192.0.2.10:443".into(),
        at: now(),
        tcp: known(1.0),
        tls: known(tls),
        http: known(http),
        raw: String::new(),
    }];
    all
}

fn judged(cluster: Fact<RancherCluster>, balancers: Vec<LoadBalancerFacts>) -> outrider_diagnosis::Judgement {
    let mut facts = facts(vec![file(KubeconfigPurpose::Admin, service_account(None))], None);
    if let Some(Fact::Known { value, .. }) = &mut facts.checks.credentials {
        value.rancher_cluster = Some(cluster);
    }
    facts.checks.load_balancer = Some(known(balancers));
    judge(&facts)
}

fn name(cluster: RancherCluster, balancers: Vec<LoadBalancerFacts>) -> Finding {
    only(&judged(known(cluster), balancers), ConditionType::RancherName)
}

fn dedicated(cluster: RancherCluster) -> Finding {
    only(&judged(known(cluster), Vec::new()), ConditionType::RancherClusterDedicated)
}

const HOST: &str = "rancher.example";

#[test]
fn one_name_everywhere_is_good_and_says_what_was_compared() {
    let found = name(cluster(), vec![balancer("Rancher.Example", 443, &["*.example"], true)]);
    expect(
        &found,
        T::True,
        S::Ok,
        R::RancherNameAgreed,
        &["Ingress cattle-system/rancher", "load balancer front", "certificate"],
    );
    let alone = name(cluster().with(|c| c.ingresses = routes(&[])), Vec::new());
    expect(&alone, T::True, S::Ok, R::RancherNameAgreed, &["no Ingress of Rancher"]);
}

#[test]
fn what_differs_is_named_and_nobody_is_told_to_rename() {
    let good = || vec![balancer(HOST, 443, &[HOST], true)];
    let other = |host: &str| {
        cluster().with(|c| c.ingresses = routes(&[route("cattle-system", "rancher", host, true)]))
    };
    let dead = vec![balancer(HOST, 443, &[HOST], false)];
    for (found, status, severity, words) in [
        (
            name(other("old.example"), dead),
            T::False,
            S::Error,
            ["old.example only", "hostname=rancher.example"],
        ),
        // What has been seen to work is no outage.
        (name(other("old.example"), good()), T::True, S::Warn, ["old.example only", "rewrites the Host"]),
        (name(other("*.corp"), good()), T::True, S::Warn, ["*.corp only", "hostname=rancher.example"]),
        (
            name(cluster(), vec![balancer(HOST, 443, &["lb.example"], true)]),
            T::False,
            S::Error,
            ["lb.example", "subject alternative names"],
        ),
        (
            name(cluster(), vec![balancer("lb.example", 443, &["lb.example"], true)]),
            T::True,
            S::Warn,
            ["called lb.example", "url = \"https://rancher.example\""],
        ),
        (
            name(cluster(), vec![balancer(HOST, 8443, &[HOST], true)]),
            T::True,
            S::Warn,
            ["port 443", "at port 8443"],
        ),
    ] {
        expect(&found, status, severity, R::RancherNameDiffers, &words);
        expect(&found, status, severity, R::RancherNameDiffers, &["Leave server-url as it is"]);
    }
    // One of several balancers by that name is enough; a route that takes every host takes this one.
    let two = name(
        cluster(),
        vec![balancer("lb.example", 443, &["lb.example"], true), balancer(HOST, 443, &[HOST], true)],
    );
    assert_eq!(two.reason, R::RancherNameAgreed, "{two:#?}");
    assert_eq!(name(other(""), good()).reason, R::RancherNameAgreed);
}

#[test]
fn a_url_that_no_agent_can_use_is_told_as_it_is() {
    for (url, word) in [
        ("", "not set"),
        ("http://rancher.example", "http://"),
        ("rancher.example", "no URL"),
        ("https://rancher.example/dashboard", "a path"),
        ("https://localhost", "its own machine"),
    ] {
        let found = name(cluster().with(|c| c.server_url = known(url.into())), Vec::new());
        expect(&found, T::True, S::Warn, R::RancherServerUrlUnusable, &[word]);
    }
}

#[test]
fn what_may_not_be_read_is_unknown_with_the_right_that_is_missing() {
    let detail = "403: ingresses.networking.k8s.io is forbidden: cannot list resource \"ingresses\"";
    let forbidden = || Fact::unknown(UnknownCause::Forbidden, detail, "GET", now());
    let url = name(
        cluster().with(|c| c.server_url = Fact::unknown(UnknownCause::Forbidden, detail, "GET", now())),
        Vec::new(),
    );
    expect(&url, T::Unknown, S::Warn, R::Forbidden, &["server-url", "reader.yaml"]);
    let ingress = name(cluster().with(|c| c.ingresses = forbidden()), Vec::new());
    expect(&ingress, T::Unknown, S::Warn, R::Forbidden, &["cannot list resource \"ingresses\""]);
    // What is known to be wrong is told, whatever else is not.
    let both = name(
        cluster().with(|c| c.http_routes = forbidden()),
        vec![balancer(HOST, 443, &["lb.example"], true)],
    );
    assert_eq!(both.reason, R::RancherNameDiffers);
    // The Ingress that was read answers; a right for HTTPRoutes is not needed for that.
    let enough = name(cluster().with(|c| c.http_routes = forbidden()), Vec::new());
    assert_eq!(enough.reason, R::RancherNameAgreed);
    let pods = dedicated(cluster().with(|c| c.workloads = unknown(UnknownCause::Forbidden)));
    expect(&pods, T::Unknown, S::Warn, R::Forbidden, &["What runs in Rancher's own cluster"]);
    for cause in [UnknownCause::Unauthenticated, UnknownCause::TimedOut] {
        let all = judged(unknown(cause.clone()), Vec::new());
        for of in [ConditionType::RancherName, ConditionType::RancherClusterDedicated] {
            let found = only(&all, of);
            assert_eq!((found.status, found.reason.clone()), (T::Unknown, R::from(&cause)), "{found:#?}");
        }
    }
    let elsewhere = only(
        &judged(absent("https://s/apis/management.cattle.io/v3/settings/server-url"), Vec::new()),
        ConditionType::RancherName,
    );
    expect(&elsewhere, T::Unknown, S::Warn, R::InvalidInput, &["not lead to Rancher's own cluster"]);
}

#[test]
fn others_in_the_cluster_are_named_by_how_much_they_are_in_the_way() {
    expect(&dedicated(cluster()), T::True, S::Ok, R::RancherClusterAlone, &["1 route of Rancher's own"]);
    let web = Workload { namespace: "prod".into(), kind: "Deployment".into(), name: "web".into(), pods: 2 };
    let shared = cluster().with(|c| c.workloads = known(Workloads { foreign: vec![web], left_out: 3 }));
    expect(
        &dedicated(shared.clone()),
        T::True,
        S::Info,
        R::RancherClusterShared,
        &["Deployment prod/web (2 pods)", "and 3 more"],
    );
    let own = route("cattle-system", "rancher", HOST, true);
    let shop = route("prod", "shop", "shop.example", false);
    let beside = shared.clone().with(|c| c.ingresses = routes(&[own.clone(), shop.clone()]));
    expect(
        &dedicated(beside),
        T::True,
        S::Warn,
        R::RancherClusterShared,
        &["Ingress prod/shop (shop.example)", "Deployment prod/web"],
    );
    let steal = route("prod", "steal", HOST, false);
    let contested = shared.with(|c| c.ingresses = routes(&[own.clone(), steal, shop]));
    let found = dedicated(contested);
    expect(
        &found,
        T::True,
        S::Warn,
        R::RancherHostContested,
        &["Ingress prod/steal takes requests for rancher.example"],
    );
    assert_eq!(found.message.matches("prod/steal").count(), 1, "{}", found.message);
    // What came with Kubernetes or Rancher is nobody else's.
    let systems = cluster().with(|c| {
        c.ingresses = routes(&[
            own,
            route("ingress-nginx", "x", "y.example", false),
            route("cattle-monitoring-system", "x", "z.example", false),
        ])
    });
    assert_eq!(dedicated(systems).reason, R::RancherClusterAlone);
}
