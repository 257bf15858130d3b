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
        let call = CredentialCall { token: Some(token), ..world::credential_call(200) };
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
    let off = told(known(off));
    expect(&off, T::True, S::Warn, R::CredentialRefused, &["switched off", "And yet it is accepted"]);
    assert!(!off.message.contains("not accepted"), "{off:#?}");
    let unread = told(unknown(UnknownCause::Forbidden));
    expect(&unread, T::True, S::Info, R::CredentialsGood, &["accepted", "only Rancher knows"]);
}

/// A token that says this of itself, refused by its server with 401.
fn refused(clock_kept: bool, form: TokenForm, change: impl FnOnce(&mut TokenFacts)) -> Finding {
    let told = token(form, "system:serviceaccount:prod:csi", None).with(change);
    let content = KubeconfigContent { token: Some(known(told)), ..service_account(None) };
    let found = KubeconfigFacts {
        call: answered(401, 3, 3, "Unauthorized"),
        ..file(KubeconfigPurpose::Configured, content)
    };
    let mut facts = facts(vec![found], None);
    if let Some(Fact::Known { value, .. }) = &mut facts.checks.clock
        && !clock_kept
    {
        value.kernel = known(KernelClock { synchronized: false, estimated_error_us: 1, maximum_error_us: 1 });
        value.coordinator = Fact::not_applicable("none", now());
    }
    of(&facts, "")
}

#[test]
fn a_refusal_says_of_the_end_what_the_token_says_and_no_more() {
    use TokenForm::{Jwt, Opaque, ServiceAccount};
    let not_ended = "It has not ended by its own claims";
    let past = |t: &mut TokenFacts| t.expires_at = Some(ago(2 * DAY));
    let future = |t: &mut TokenFacts| t.expires_at = Some(ahead(200 * DAY));
    for (found, words) in [
        (
            refused(true, ServiceAccount, future),
            vec![not_ended, "ServiceAccount or its Secret was deleted", "another key"],
        ),
        (refused(true, ServiceAccount, |_| ()), vec!["It has no end by its own claims", "another key"]),
        (refused(true, Jwt, future), vec![not_ended, "revoked", "issuer"]),
        (refused(true, Opaque, |_| ()), vec!["says nothing of itself", "has ended, was deleted"]),
        (
            refused(true, Jwt, |t| t.fault = "its claims are no JSON".into()),
            vec!["does not tell (its claims are no JSON)"],
        ),
        (
            refused(true, ServiceAccount, |t| t.not_before = Some(ahead(DAY))),
            vec!["is not valid before", "That may be why", "another key"],
        ),
        (
            refused(false, ServiceAccount, past),
            vec!["By this clock", "ended 2 days ago", "nobody keeps this clock", "That may be why"],
        ),
    ] {
        expect(&found, T::False, S::Error, R::CredentialRefused, &words);
        assert_eq!(found.message.contains(not_ended), words[0] == not_ended, "{found:#?}");
    }
    let ended = refused(true, ServiceAccount, past);
    expect(&ended, T::False, S::Error, R::CredentialExpired, &["ended 2 days ago", "401 to 3 of 3"]);
    assert!(!ended.advice.contains("before"), "{ended:#?}");
    let certificate = KubeconfigFacts {
        call: answered(401, 3, 3, "Unauthorized"),
        ..file(KubeconfigPurpose::Admin, with_certificate(ago(DAY)))
    };
    let mut facts = facts(vec![certificate], None);
    facts.checks.clock = None;
    let words = ["takes client certificates from", "By this clock", "ended 24 h ago"];
    expect(&of(&facts, ""), T::False, S::Error, R::CredentialRefused, &words);
}

#[test]
fn a_right_that_lacks_is_said_of_a_credential_that_ends_too() {
    let forbidden = || answered(403, 1, 0, "User \"x\" cannot list resource \"nodes\"");
    let soon = file(KubeconfigPurpose::Configured, service_account(Some(ahead(3 * DAY))));
    let words =
        ["ends in 3 days", "forbidden", "cannot list resource", "Get a new one", "verb and the resource"];
    expect(
        &one(KubeconfigFacts { call: forbidden(), ..soon.clone() }),
        T::True,
        S::Error,
        R::CredentialEnding,
        &words,
    );
    let mut unkept = facts(vec![KubeconfigFacts { call: forbidden(), ..soon.clone() }], None);
    unkept.checks.clock = None;
    expect(&of(&unkept, ""), T::False, S::Warn, R::CredentialForbidden, &["By this clock", "ends in 3 days"]);
    let gone = one(KubeconfigFacts { call: answered(404, 1, 0, "not found"), ..soon });
    expect(&gone, T::False, S::Error, R::CredentialGone, &["answers 404", "ends in 3 days"]);
}

#[test]
fn a_handshake_that_ends_at_the_client_certificate_is_a_refusal_of_it() {
    let ended = |content: KubeconfigContent| {
        let call = Fact::unknown(
            UnknownCause::Unauthenticated,
            "the peer refused our client certificate (HandshakeFailure)",
            VIP,
            now(),
        );
        one(KubeconfigFacts { call, ..file(KubeconfigPurpose::Configured, content) })
    };
    let words =
        ["does not accept the client certificate", "HandshakeFailure", "takes client certificates from"];
    let shown = ended(with_certificate(ahead(300 * DAY)));
    expect(&shown, T::False, S::Error, R::CredentialRefused, &words);
    let past = ended(with_certificate(ago(DAY)));
    expect(&past, T::False, S::Error, R::CredentialExpired, &["ended 24 h ago", "HandshakeFailure"]);
    let none = ended(service_account(None));
    expect(
        &none,
        T::Unknown,
        S::Warn,
        R::Unauthenticated,
        &["wants a client certificate", "which this kubeconfig does not hold"],
    );
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
