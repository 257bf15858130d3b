//! Rancher's cloud credentials.

use outrider_protocol::*;

use super::*;
use crate::expect;
use crate::world::unknown;

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
    // It may be left over, and the one better source was not read.
    for (text, severity) in [(soon, S::Error), (over, S::Error), (ahead(100 * DAY).as_millis(), S::Info)] {
        let words = [
            "left over from before a renewal",
            "itself could not be read",
            "get tokens.management.cattle.io",
        ];
        let found = annotated(&text.to_string());
        expect(&found, found.status, severity, found.reason.clone(), &words);
    }
    let malformed = annotated("next week");
    let words = ["token kubeconfig-user-x could not be read", "no time", "get tokens.management.cattle.io"];
    expect(&malformed, T::Unknown, S::Info, R::CredentialEndUnknown, &words);
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
    let ending = cloud(vec![credential("cc-1"), credential("cc-2")], "cc-1");
    expect(&ending, T::True, S::Warn, R::CredentialEnding, &["10 days", "refuses"]);
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
    let old = ["STS", "made 20 days ago", "36 h at most", "if the credential was not edited since"];
    expect(&aws(true), T::False, S::Error, R::CredentialTemporary, &old);
}

/// What its age says of a temporary key counts by a clock that is kept, and the harm by who uses it.
#[test]
fn a_temporary_key_has_ended_when_its_credential_is_older_than_such_a_key_can_be() {
    let sts = |made: Option<Timestamp>| {
        credential("cc-1").with(|c| {
            (c.kind, c.kubeconfig, c.temporary, c.created_at) = (CloudKind::Amazon, None, true, made);
        })
    };
    for (made, severity) in [
        (Some(ago(35 * 3600)), S::Warn),
        (Some(ago(37 * 3600)), S::Error),
        (Some(ahead(DAY)), S::Warn),
        (None, S::Warn),
    ] {
        let found = cloud(vec![sts(made)], "cc-1");
        let word = if severity == S::Error { "has ended" } else { "ends within hours" };
        expect(&found, T::False, severity, R::CredentialTemporary, &[word]);
    }
    let unused = sts(Some(ago(9 * DAY))).with(|c| c.used_by = known(vec![]));
    assert_eq!(cloud(vec![unused], "cc-1").severity, S::Warn);
    let all = CloudCredentials {
        server: "https://127.0.0.1:6443".into(),
        credentials: vec![sts(Some(ago(9 * DAY)))],
        others: 0,
        left_out: 0,
    };
    let found = of(&unkept(facts(Vec::new(), Some(known(all)))), "cc-1");
    expect(&found, T::False, S::Warn, R::CredentialTemporary, &["ends within hours"]);
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

#[test]
fn what_cannot_be_understood_is_not_called_good() {
    let token = |t: TokenFacts| {
        only(|c| {
            c.kubeconfig = Some(known(KubeconfigContent { token: Some(known(t)), ..ranchers() }));
            c.token = Fact::not_applicable("none", now());
        })
    };
    let faulty =
        super::token(TokenForm::Jwt, "x", None).with(|t| t.fault = "its claim exp is no number".into());
    expect(&token(faulty), T::Unknown, S::Info, R::CredentialEndUnknown, &["exp is no number"]);
    let early = super::token(TokenForm::Jwt, "x", None).with(|t| t.not_before = Some(ahead(600)));
    expect(&token(early), T::Unknown, S::Info, R::CredentialEndUnknown, &["a clock is wrong"]);
    let unmade = rancher_token(30 * 86_400_000, ago(DAY), None).with(|t| t.created_at = None);
    let unmade = only(|c| c.token = known(unmade));
    expect(&unmade, T::Unknown, S::Info, R::CredentialEndUnknown, &["TTL of 30 days", "neither"]);
    let below = rancher_token(-1, ago(DAY), None);
    expect(
        &only(|c| c.token = known(below)),
        T::Unknown,
        S::Info,
        R::CredentialEndUnknown,
        &["below 0 (-1 ms)"],
    );
    let unread = only(|c| c.token = unknown(UnknownCause::Forbidden));
    let right = &["docs/rancher-access/reader.yaml", "get tokens.management.cattle.io"];
    expect(&unread, T::Unknown, S::Info, R::CredentialEndUnknown, right);
}
