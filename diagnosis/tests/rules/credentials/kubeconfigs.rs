//! Kubeconfigs on a node.

use outrider_protocol::*;

use super::*;
use crate::expect;
use crate::world::unknown;

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
fn ranchers_own_word_on_a_token_counts() {
    let told = |token: Fact<RancherToken>| {
        let call = CredentialCall {
            request: "GET /version".into(),
            status: 200,
            calls: 1,
            refused: 0,
            said: String::new(),
            token: Some(token),
        };
        let found = file(KubeconfigPurpose::Configured, ranchers());
        one(KubeconfigFacts { call: known(call), ..found })
    };
    let month = 30 * 86_400_000;
    let until = |end| known(rancher_token(month, ago(30 * DAY), Some(end)).with(|t| t.created_at = None));
    expect(&told(until(ahead(58 * 60))), T::True, S::Error, R::CredentialEnding, &["58 min", "is accepted"]);
    expect(
        &told(until(ago(62 * 60))),
        T::True,
        S::Warn,
        R::CredentialEnding,
        &["ended 62 min ago", "one of the two clocks is wrong"],
    );
    expect(&told(until(ahead(30 * DAY))), T::True, S::Ok, R::CredentialsGood, &["30 days", "is accepted"]);
    let never = rancher_token(0, ago(40 * DAY), None);
    expect(&told(known(never.clone())), T::True, S::Ok, R::CredentialsGood, &["never", "is accepted"]);
    let off = never.with(|t| t.enabled = Some(false));
    expect(&told(known(off)), T::False, S::Error, R::CredentialRefused, &["switched off", "And yet"]);
    let unread = told(unknown(UnknownCause::Forbidden));
    expect(&unread, T::True, S::Info, R::CredentialsGood, &["accepted", "only Rancher knows"]);
}

#[test]
fn what_its_server_accepts_is_not_called_unusable() {
    let broken = token(TokenForm::Jwt, "", None).with(|t| t.fault = "its claims are no JSON".into());
    let broken = KubeconfigContent { token: Some(known(broken)), ..service_account(None) };
    let mut found = file(KubeconfigPurpose::Configured, broken);
    found.call = answered(200, 1, 0, "");
    let judged = one(found.clone());
    expect(&judged, T::True, S::Info, R::CredentialsGood, &["is accepted", "cannot be told", "no JSON"]);
    assert!(!judged.message.contains("cannot be used"), "{}", judged.message);
    found.call = unknown(UnknownCause::TimedOut);
    expect(&one(found), T::False, S::Warn, R::CredentialUnusable, &["cannot be used"]);
}

#[test]
fn one_that_was_tried_in_vain_is_a_warning_and_nobody_is_told_to_try_it() {
    for (cause, words) in [
        (UnknownCause::TlsFailed, "certificate-authority-data"),
        (UnknownCause::ConnectionRefused, "listens"),
        (UnknownCause::TimedOut, "route"),
        (UnknownCause::InvalidAnswer, "login page"),
    ] {
        let mut found = file(KubeconfigPurpose::Configured, ranchers());
        found.call = unknown(cause.clone());
        let judged = one(found);
        expect(&judged, T::Unknown, S::Warn, ReasonCode::from(&cause), &[words, "could not be asked"]);
        assert!(!judged.advice.contains("let Outrider try"), "{}", judged.advice);
    }
    let untried = one(file(KubeconfigPurpose::Configured, ranchers()));
    expect(&untried, T::Unknown, S::Info, R::CredentialEndUnknown, &["let Outrider try"]);
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
