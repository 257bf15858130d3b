//! `facts/credentials.md`: every kind of credential, every way it may end, and every answer.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::world::{self, Change, DAY, ago, ahead, known, now, unknown};
use crate::{expect, rank};

const RANCHER: &str = "https://rancher.example/k8s/clusters/c-m-abc";
const VIP: &str = "https://192.0.2.10:6443";

fn token(form: TokenForm, name: &str, expires_at: Option<Timestamp>) -> TokenFacts {
    TokenFacts {
        form,
        name: name.into(),
        issuer: String::new(),
        not_before: None,
        expires_at,
        fault: String::new(),
    }
}

fn service_account(expires_at: Option<Timestamp>) -> KubeconfigContent {
    KubeconfigContent {
        current_context: "default".into(),
        contexts: 1,
        user: "default".into(),
        server: VIP.into(),
        kinds: vec![CredentialKind::Token],
        token: Some(known(token(TokenForm::ServiceAccount, "system:serviceaccount:prod:csi", expires_at))),
        ..KubeconfigContent::default()
    }
}

fn ranchers() -> KubeconfigContent {
    let token = Some(known(token(TokenForm::Rancher, "kubeconfig-user-x", None)));
    KubeconfigContent { server: RANCHER.into(), token, ..service_account(None) }
}

fn with_certificate(not_after: Timestamp) -> KubeconfigContent {
    let certificate = CertificateFacts {
        subject: "CN=system:admin,O=system:masters".into(),
        issuer: "CN=rke2-client-ca".into(),
        sans: vec![],
        not_before: ago(DAY),
        not_after,
        sha256: String::new(),
        is_ca: false,
        signature: String::new(),
    };
    let kinds = vec![CredentialKind::ClientCertificate];
    KubeconfigContent { kinds, token: None, certificate: Some(known(certificate)), ..service_account(None) }
}

fn file(purpose: KubeconfigPurpose, content: KubeconfigContent) -> KubeconfigFacts {
    KubeconfigFacts {
        path: "/etc/kubernetes/cloud-config".into(),
        purpose,
        world_readable: false,
        content: known(content),
        call: Fact::not_applicable("switched off by credentials.verify", now()),
    }
}

fn answered(status: u16, calls: u32, refused: u32, said: &str) -> Fact<CredentialCall> {
    let request = "GET /version".to_owned();
    known(CredentialCall { request, status, calls, refused, said: said.into(), token: None })
}

fn facts(kubeconfigs: Vec<KubeconfigFacts>, rancher: Option<Fact<CloudCredentials>>) -> NodeFacts {
    let rancher = rancher.unwrap_or_else(|| Fact::not_applicable("none", now()));
    let checks = CheckFacts {
        clock: Some(known(world::clock())),
        credentials: Some(known(CredentialsFacts { kubeconfigs, rancher })),
        ..CheckFacts::default()
    };
    world::node_facts(checks)
}

fn of(facts: &NodeFacts, subject: &str) -> Finding {
    let found = judge(facts).findings;
    let of =
        |f: &&Finding| f.condition_type == ConditionType::CredentialsValid && f.subject.contains(subject);
    found.iter().find(of).unwrap_or_else(|| panic!("{subject}: {found:#?}")).clone()
}

fn one(kubeconfig: KubeconfigFacts) -> Finding {
    of(&facts(vec![kubeconfig], None), "")
}

fn provider(content: KubeconfigContent) -> Finding {
    one(file(KubeconfigPurpose::CloudProvider, content))
}

use ReasonCode as R;
use Severity as S;
use Status as T;

#[test]
fn a_token_without_an_end_is_good_and_never_expired_in_1970() {
    expect(&provider(service_account(None)), T::True, S::Ok, R::CredentialsGood, &["no end", "not tried"]);
}

#[test]
fn an_end_warns_fourteen_and_seven_days_ahead() {
    for (days, severity, reason) in [
        (30, S::Ok, R::CredentialsGood),
        (15, S::Ok, R::CredentialsGood),
        (14, S::Warn, R::CredentialEnding),
        (8, S::Warn, R::CredentialEnding),
        (7, S::Error, R::CredentialEnding),
        (1, S::Error, R::CredentialEnding),
    ] {
        let end = Some(ahead(days * DAY));
        expect(&provider(service_account(end)), T::True, severity, reason, &["ends in"]);
        let admin = one(file(KubeconfigPurpose::Admin, with_certificate(ahead(days * DAY))));
        assert_eq!(admin.severity, severity, "{days}");
    }
    let ended = provider(service_account(Some(ago(3 * DAY))));
    expect(&ended, T::False, S::Error, R::CredentialExpired, &["ended 3 days ago", "ServiceAccount"]);
    let ended = one(file(KubeconfigPurpose::Admin, with_certificate(ago(1))));
    expect(&ended, T::False, S::Error, R::CredentialExpired, &["system:admin", "CertificatesValid"]);
}

#[test]
fn days_are_settings() {
    let mut facts = facts(vec![file(KubeconfigPurpose::Admin, with_certificate(ahead(20 * DAY)))], None);
    facts.thresholds.credential_days = [30, 21];
    expect(&of(&facts, ""), T::True, S::Error, R::CredentialEnding, &["20 days"]);
}

#[test]
fn no_end_is_judged_by_a_clock_that_nobody_keeps() {
    let unsynchronised = |facts: &mut NodeFacts| {
        let clock = world::clock().with(|c| {
            c.kernel = known(KernelClock {
                synchronized: false,
                estimated_error_us: 16_000_000,
                maximum_error_us: 16_000_000,
            });
            c.coordinator = Fact::not_applicable("none", now());
        });
        facts.checks.clock = Some(known(clock));
    };
    for (end, severity) in [(ahead(300 * DAY), S::Info), (ahead(3 * DAY), S::Error), (ago(DAY), S::Error)] {
        let mut facts = facts(vec![file(KubeconfigPurpose::CloudProvider, service_account(Some(end)))], None);
        unsynchronised(&mut facts);
        expect(&of(&facts, ""), T::Unknown, severity, R::CredentialClockUnsure, &["nobody keeps this clock"]);
        facts.checks.clock = None;
        expect(&of(&facts, ""), T::Unknown, severity, R::CredentialClockUnsure, &["not known"]);
        facts.checks.clock = Some(known(world::clock().with(|c| {
            c.kernel = unknown(UnknownCause::PermissionDenied);
            c.coordinator = unknown(UnknownCause::TimedOut);
        })));
        assert_eq!(of(&facts, "").reason, R::CredentialClockUnsure);
    }
    // What has no end needs no clock.
    let mut facts = facts(vec![file(KubeconfigPurpose::CloudProvider, service_account(None))], None);
    unsynchronised(&mut facts);
    assert_eq!(of(&facts, "").reason, R::CredentialsGood);
}

#[test]
fn a_skewed_clock_leaves_open_only_what_the_two_clocks_disagree_on() {
    let skewed = |hours: i64, end: Timestamp| {
        let mut facts = facts(vec![file(KubeconfigPurpose::CloudProvider, service_account(Some(end)))], None);
        let offset =
            ClockOffset { offset_ms: hours * 3_600_000, uncertainty_ms: 500, peer: "c.example".into() };
        facts.checks.clock = Some(known(world::clock().with(|c| c.coordinator = known(offset))));
        of(&facts, "")
    };
    expect(
        &skewed(48, ago(DAY)),
        T::Unknown,
        S::Error,
        R::CredentialClockUnsure,
        &["ahead of that of c.example"],
    );
    expect(&skewed(48, ago(10 * DAY)), T::False, S::Error, R::CredentialExpired, &[]);
    expect(&skewed(-48, ahead(300 * DAY)), T::True, S::Ok, R::CredentialsGood, &[]);
}

#[test]
fn answers_are_told_apart() {
    let asked = |content: KubeconfigContent, call| {
        let mut found = file(KubeconfigPurpose::Configured, content);
        found.call = call;
        one(found)
    };
    let good = asked(ranchers(), answered(200, 1, 0, ""));
    expect(&good, T::True, S::Info, R::CredentialsGood, &["accepted", "only Rancher knows"]);
    let refused = asked(ranchers(), answered(401, 3, 3, "must authenticate"));
    expect(
        &refused,
        T::False,
        S::Error,
        R::CredentialRefused,
        &["3 of 3", "must authenticate", "purged", "restore"],
    );
    let foreign = asked(service_account(None), answered(401, 3, 3, "Unauthorized"));
    expect(&foreign, T::False, S::Error, R::CredentialRefused, &["deleted", "another key"]);
    let expired = asked(service_account(Some(ago(DAY))), answered(401, 3, 3, "Unauthorized"));
    expect(&expired, T::False, S::Error, R::CredentialExpired, &["ended 24 h ago", "401"]);
    let now_and_then = asked(ranchers(), answered(200, 3, 2, ""));
    expect(&now_and_then, T::True, S::Warn, R::CredentialRefused, &["only 1 of 3"]);
    let forbidden =
        asked(service_account(None), answered(403, 1, 0, "User \"x\" cannot list resource \"nodes\""));
    expect(
        &forbidden,
        T::False,
        S::Warn,
        R::CredentialForbidden,
        &["cannot list resource", "verb and the resource"],
    );
    for status in [404, 410] {
        let gone =
            asked(ranchers(), answered(status, 1, 0, "clusters.management.cattle.io \"c-m-abc\" not found"));
        expect(&gone, T::False, S::Error, R::CredentialGone, &["c-m-abc", &status.to_string()]);
    }
    let busy = asked(ranchers(), answered(503, 1, 0, ""));
    expect(&busy, T::Unknown, S::Warn, R::Unavailable, &["503"]);
    for (cause, words) in [
        (UnknownCause::TlsFailed, "certificate-authority-data"),
        (UnknownCause::Unreachable, "route"),
        (UnknownCause::TimedOut, "route"),
        (UnknownCause::NameNotResolved, "resolve"),
        (UnknownCause::ConnectionRefused, "listens"),
    ] {
        let away = asked(service_account(None), unknown(cause.clone()));
        expect(&away, T::Unknown, S::Warn, ReasonCode::from(&cause), &[words, VIP]);
    }
    // That it has ended is known whoever answers.
    let ended = asked(service_account(Some(ago(DAY))), unknown(UnknownCause::Unreachable));
    expect(&ended, T::False, S::Error, R::CredentialExpired, &["could not be asked"]);
    let late = asked(service_account(Some(ago(60))), answered(200, 1, 0, ""));
    expect(&late, T::True, S::Warn, R::CredentialEnding, &["And yet it is accepted", "clocks"]);
}

#[test]
fn what_no_client_can_use_is_an_error_where_it_is_needed() {
    let faulty = KubeconfigContent { fault: "current-context is not set".into(), ..service_account(None) };
    expect(
        &provider(faulty.clone()),
        T::False,
        S::Error,
        R::CredentialUnusable,
        &["current-context", "Harvester"],
    );
    expect(&one(file(KubeconfigPurpose::Admin, faulty)), T::False, S::Warn, R::CredentialUnusable, &[]);
    let mut malformed = file(KubeconfigPurpose::CloudProvider, service_account(None));
    malformed.content = unknown(UnknownCause::InvalidInput);
    expect(&one(malformed), T::False, S::Error, R::CredentialUnusable, &["cannot be used"]);
    let mut unread = file(KubeconfigPurpose::Admin, service_account(None));
    unread.content = unknown(UnknownCause::PermissionDenied);
    expect(&one(unread), T::Unknown, S::Warn, R::PermissionDenied, &[]);
    let mut missing = file(KubeconfigPurpose::Configured, service_account(None));
    missing.content = world::absent("x");
    expect(&one(missing), T::False, S::Warn, R::CredentialUnusable, &["not there"]);
    let broken = token(TokenForm::Jwt, "", None).with(|t| t.fault = "its claims are no JSON".into());
    let broken = KubeconfigContent { token: Some(known(broken)), ..service_account(None) };
    expect(&provider(broken), T::False, S::Error, R::CredentialUnusable, &["no JSON"]);
}

#[test]
fn other_kinds_are_named() {
    let bare = |kinds: Vec<CredentialKind>| KubeconfigContent {
        kinds,
        token: None,
        exec: "aws".into(),
        ..service_account(None)
    };
    let of = |kinds| one(file(KubeconfigPurpose::Configured, bare(kinds)));
    expect(
        &of(vec![CredentialKind::Exec]),
        T::Unknown,
        S::Info,
        R::CredentialEndUnknown,
        &["\"aws\"", "never runs"],
    );
    expect(&of(vec![]), T::False, S::Warn, R::CredentialUnusable, &["no credential"]);
    expect(&of(vec![CredentialKind::Basic]), T::False, S::Warn, R::CredentialUnusable, &["1.19"]);
    expect(&of(vec![CredentialKind::AuthProvider]), T::False, S::Warn, R::CredentialUnusable, &["1.26"]);
    let early = token(TokenForm::ServiceAccount, "x", None).with(|t| t.not_before = Some(ahead(600)));
    let early = KubeconfigContent { token: Some(known(early)), ..service_account(None) };
    expect(&provider(early), T::Unknown, S::Warn, R::CredentialClockUnsure, &["not valid before"]);
}

#[test]
fn swapped_kubeconfigs_are_told() {
    expect(
        &provider(ranchers()),
        T::False,
        S::Warn,
        R::CredentialWrongKind,
        &["through Rancher", "ServiceAccount"],
    );
    let driver = credential("cc-1").with(|c| c.kubeconfig = Some(known(service_account(None))));
    let driver = driver.with(|c| c.token = Fact::not_applicable("none", now()));
    expect(&cloud(vec![driver], "cc-1"), T::False, S::Warn, R::CredentialWrongKind, &["node driver", VIP]);
}

#[test]
fn what_else_is_worth_knowing_is_said() {
    let mut found = file(KubeconfigPurpose::CloudProvider, service_account(None).with(|c| c.contexts = 3));
    found.world_readable = true;
    expect(&one(found), T::True, S::Ok, R::CredentialsGood, &["of 3", "Every user of this machine"]);
}

// ---- Rancher's cloud credentials ----

fn rancher_token(ttl_ms: i64, made: Timestamp, expires_at: Option<Timestamp>) -> RancherToken {
    RancherToken {
        name: "kubeconfig-user-x".into(),
        ext: false,
        ttl_ms: Some(ttl_ms),
        created_at: Some(made),
        expires_at,
        expired: false,
        enabled: Some(true),
        unread: Vec::new(),
    }
}

fn credential(id: &str) -> CloudCredential {
    CloudCredential {
        id: id.into(),
        name: "lab".into(),
        kind: CloudKind::Harvester,
        created_at: Some(ago(20 * DAY)),
        expiration: None,
        made_to_last: false,
        kubeconfig: Some(known(ranchers())),
        token: known(rancher_token(30 * 86_400_000, ago(20 * DAY), Some(ahead(10 * DAY)))),
        key_hint: String::new(),
        temporary: false,
        used_by: known(vec!["fleet-default/prod".into(), "fleet-default/test".into()]),
    }
}

fn cloud(credentials: Vec<CloudCredential>, subject: &str) -> Finding {
    let all =
        CloudCredentials { server: "https://127.0.0.1:6443".into(), credentials, others: 0, left_out: 0 };
    of(&facts(Vec::new(), Some(known(all))), subject)
}

fn only(change: impl FnOnce(&mut CloudCredential)) -> Finding {
    cloud(vec![credential("cc-1").with(change)], "cc-1")
}

#[test]
fn a_credential_that_ends_names_the_clusters_that_use_it() {
    expect(
        &only(|_| ()),
        T::True,
        S::Warn,
        R::CredentialEnding,
        &["10 days", "fleet-default/prod", "fleet-default/test", "2 clusters use"],
    );
    let over = rancher_token(30 * 86_400_000, ago(31 * DAY), Some(ago(DAY)));
    let ended = only(|c| c.token = known(over.clone()));
    expect(
        &ended,
        T::False,
        S::Error,
        R::CredentialExpired,
        &["24 h ago", "fleet-default/prod", "kubeconfig-default-token-ttl-minutes"],
    );
    let unused = only(|c| (c.token, c.used_by) = (known(over), known(vec![])));
    expect(&unused, T::False, S::Warn, R::CredentialExpired, &["No cluster uses it"]);
}

#[test]
fn a_ttl_of_zero_is_never_whatever_else_is_left_over() {
    let left_over = |t: &mut RancherToken| (t.expires_at, t.expired) = (Some(ago(10 * DAY)), true);
    let never = rancher_token(0, ago(40 * DAY), None).with(left_over);
    let stale =
        only(|c| (c.token, c.expiration) = (known(never), Some(ago(10 * DAY).as_millis().to_string())));
    expect(&stale, T::True, S::Ok, R::CredentialsGood, &["never", "stale"]);
    // In ext.cattle.io it is below 0, and 0 is a default that is not told.
    let ext = |ttl| rancher_token(ttl, ago(40 * DAY), None).with(|t| t.ext = true);
    expect(&only(|c| c.token = known(ext(-1))), T::True, S::Ok, R::CredentialsGood, &["below 0"]);
    expect(
        &only(|c| c.token = known(ext(0))),
        T::Unknown,
        S::Info,
        R::CredentialEndUnknown,
        &["default TTL"],
    );
    let told = ext(0).with(|t| t.expires_at = Some(ahead(3 * DAY)));
    expect(&only(|c| c.token = known(told)), T::True, S::Error, R::CredentialEnding, &["3 days"]);
}

#[test]
fn a_token_that_is_gone_or_switched_off_is_told_apart() {
    let gone = only(|c| c.token = world::absent("tokens"));
    expect(&gone, T::False, S::Error, R::CredentialGone, &["kubeconfig-user-x", "purged"]);
    let off = only(|c| c.token = known(rancher_token(0, ago(DAY), None).with(|t| t.enabled = Some(false))));
    expect(&off, T::False, S::Error, R::CredentialRefused, &["switched off"]);
    let odd = rancher_token(0, ago(DAY), None).with(|t| (t.ttl_ms, t.unread) = (None, vec!["ttl".into()]));
    expect(&only(|c| c.token = known(odd)), T::Unknown, S::Info, R::CredentialEndUnknown, &["ttl"]);
}

#[test]
fn the_annotation_is_read_in_every_shape_it_comes_in() {
    let annotated = |text: &str| {
        only(|c| (c.token, c.expiration) = (unknown(UnknownCause::Forbidden), Some(text.to_owned())))
    };
    let (soon, over) = (ahead(3 * DAY).as_millis(), ago(3 * DAY).as_millis());
    expect(&annotated(&soon.to_string()), T::True, S::Error, R::CredentialEnding, &["3 days", "annotation"]);
    expect(&annotated(&over.to_string()), T::False, S::Error, R::CredentialExpired, &["3 days ago"]);
    let seconds = annotated(&(soon / 1000).to_string());
    expect(&seconds, T::True, S::Error, R::CredentialEnding, &["3 days", "read as seconds"]);
    expect(&annotated("0"), T::False, S::Error, R::CredentialGone, &["gone already"]);
    for malformed in ["", "-1", "tomorrow", "2026-12-01T00:00:00Z", "99999999999999999", "1.5"] {
        expect(&annotated(malformed), T::Unknown, S::Info, R::CredentialEndUnknown, &["no time"]);
    }
    let absent = only(|c| c.token = unknown(UnknownCause::Forbidden));
    expect(&absent, T::Unknown, S::Info, R::CredentialEndUnknown, &["could not be read"]);
    let lasting = only(|c| (c.token, c.made_to_last) = (unknown(UnknownCause::Forbidden), true));
    expect(&lasting, T::True, S::Ok, R::CredentialsGood, &["last"]);
}

#[test]
fn one_token_in_two_credentials_is_told_of_both() {
    let never = |id: &str| credential(id).with(|c| c.token = known(rancher_token(0, ago(DAY), None)));
    for id in ["cc-1", "cc-2"] {
        let found = cloud(vec![never("cc-1"), never("cc-2")], id);
        expect(&found, T::True, S::Warn, R::CredentialShared, &["kubeconfig-user-x", "refuses"]);
    }
}

#[test]
fn keys_of_aws_show_four_characters_and_their_age() {
    let aws = |temporary| {
        only(|c| {
            (c.kind, c.kubeconfig, c.key_hint, c.temporary) =
                (CloudKind::Amazon, None, "WXYZ".into(), temporary);
        })
    };
    expect(&aws(false), T::True, S::Ok, R::CredentialsGood, &["WXYZ", "20 days ago"]);
    expect(&aws(true), T::False, S::Warn, R::CredentialTemporary, &["STS"]);
}

#[test]
fn what_could_not_be_read_of_rancher_is_said_once_with_its_cause() {
    for (cause, words) in [
        (UnknownCause::Forbidden, "list secrets in cattle-global-data"),
        (UnknownCause::Unauthenticated, "not accepted"),
        (UnknownCause::Unreachable, "way"),
    ] {
        let found = of(&facts(Vec::new(), Some(unknown(cause.clone()))), "cloud credentials");
        expect(&found, T::Unknown, S::Warn, ReasonCode::from(&cause), &[words]);
    }
    let other = of(&facts(Vec::new(), Some(world::absent("x"))), "cloud credentials");
    expect(&other, T::Unknown, S::Info, R::Unsupported, &["Rancher's own cluster"]);
    let clusters = only(|c| c.used_by = unknown(UnknownCause::Forbidden));
    assert!(clusters.message.contains("Which clusters use it could not be read"), "{clusters:#?}");
    let none = cloud(Vec::new(), "cloud credentials");
    expect(&none, T::True, S::Ok, R::CredentialsGood, &["no credential of Harvester"]);
}

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
    (prop::collection::vec(kubeconfig, 0..3), any_fact(cloud)).prop_filter_map(
        "a sensor that found nothing says so",
        |(kubeconfigs, rancher)| {
            let says = !kubeconfigs.is_empty() || !matches!(rancher, Fact::NotApplicable { .. });
            says.then_some(CredentialsFacts { kubeconfigs, rancher })
        },
    )
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
