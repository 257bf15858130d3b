//! What a server answers against what is written, the clocks, and who answers.

use outrider_protocol::*;

use super::*;
use crate::expect;

fn asked(content: KubeconfigContent, call: Fact<CredentialCall>) -> NodeFacts {
    let found = KubeconfigFacts { call, ..file(KubeconfigPurpose::Configured, content) };
    facts(vec![found], None)
}

fn early(by: u64) -> KubeconfigContent {
    let token = token(TokenForm::ServiceAccount, "x", None).with(|t| t.not_before = Some(ahead(by)));
    KubeconfigContent { token: Some(known(token)), ..service_account(None) }
}

const FORBIDDEN: &str = "nodes is forbidden: User \"x\" cannot list resource \"nodes\"";

/// 200 and 403 both prove that the server knows the credential, so that what a clock says of it is the clock's fault.
#[test]
fn what_the_server_knows_has_not_ended_whatever_a_clock_says() {
    for ended in [service_account(Some(ago(5 * DAY))), with_certificate(ago(5 * DAY))] {
        let good = of(&asked(ended.clone(), answered(200, 1, 0, "")), "");
        let words = [
            "And yet it is accepted",
            "one of the two clocks is wrong",
            "Compare this clock and the server's",
        ];
        expect(&good, T::True, S::Warn, R::CredentialEnding, &words);
        let lacking = of(&asked(ended.clone(), answered(403, 1, 0, FORBIDDEN)), "");
        let words = [
            "is valid and lacks a right",
            "ended 5 days ago",
            "one of the two clocks is wrong",
            "verb and the resource",
            "Compare this clock and the server's",
        ];
        expect(&lacking, T::False, S::Warn, R::CredentialForbidden, &words);
        // By a clock that nobody keeps: what the server says is certain, what the clock says is not.
        let good = of(&unkept(asked(ended.clone(), answered(200, 1, 0, ""))), "");
        let words =
            ["nobody keeps this clock", "And yet it is accepted", "is good now", "Correct the clock first"];
        expect(&good, T::True, S::Warn, R::CredentialClockUnsure, &words);
        let lacking = of(&unkept(asked(ended, answered(403, 1, 0, FORBIDDEN))), "");
        expect(
            &lacking,
            T::False,
            S::Warn,
            R::CredentialForbidden,
            &["lacks a right", "Correct the clock first"],
        );
    }
    let later = of(&unkept(asked(service_account(Some(ahead(50 * DAY))), answered(200, 1, 0, ""))), "");
    expect(&later, T::True, S::Info, R::CredentialClockUnsure, &["ends in 50 days", "is good now"]);
    let soon = of(&unkept(asked(service_account(Some(ahead(3 * DAY))), answered(200, 1, 0, ""))), "");
    expect(&soon, T::True, S::Warn, R::CredentialClockUnsure, &["ends in 3 days"]);
    let early = of(&asked(early(3600), answered(200, 1, 0, "")), "");
    let words = ["is not valid before", "is good now", "Compare this clock with another"];
    expect(&early, T::True, S::Warn, R::CredentialClockUnsure, &words);
    // Its claims cannot be read, and the server knows whose they are.
    let broken = token(TokenForm::Jwt, "", None).with(|t| t.fault = "its claims are no JSON".into());
    let broken = KubeconfigContent { token: Some(known(broken)), ..service_account(None) };
    let lacking = of(&asked(broken, answered(403, 1, 0, FORBIDDEN)), "");
    expect(&lacking, T::False, S::Warn, R::CredentialForbidden, &["no JSON"]);
    assert!(!lacking.message.contains("cannot be used"), "{lacking:#?}");
}

/// Where the clock may be why, it is looked at before anything is made anew.
#[test]
fn a_refusal_that_a_clock_may_explain_sends_to_the_clock_first() {
    let refused = || answered(401, 3, 3, "Unauthorized");
    let ended = |content: KubeconfigContent| unkept(asked(content, refused()));
    for (facts, clock) in [
        (asked(early(3600), refused()), "Compare this clock with another"),
        (ended(service_account(Some(ago(5 * DAY)))), "Correct the clock first"),
        (ended(with_certificate(ago(5 * DAY))), "Correct the clock first"),
    ] {
        let found = of(&facts, "");
        let words = [clock, "If it is refused with the right time as well: Get a new one"];
        expect(&found, T::False, S::Error, R::CredentialRefused, &words);
        assert!(found.advice.starts_with(clock), "{found:#?}");
    }
    let kept = of(&asked(service_account(None), refused()), "");
    assert!(!kept.advice.contains("clock"), "{kept:#?}");
}

#[test]
fn refusals_before_another_answer_are_counted() {
    let flaky = |status, said: &str| of(&asked(ranchers(), answered(status, 4, 3, said)), "");
    let told = |reason: R, status: T, severity, found: &Finding| {
        let words = ["401 came to 3 of 4 tries; only 1 of 4", "Several servers behind one address"];
        expect(found, status, severity, reason, &words);
    };
    told(R::CredentialForbidden, T::False, S::Warn, &flaky(403, FORBIDDEN));
    told(R::CredentialRefused, T::True, S::Warn, &flaky(200, ""));
    told(
        R::CredentialGone,
        T::False,
        S::Error,
        &flaky(404, "clusters.management.cattle.io \"c-m-abc\" not found"),
    );
    told(R::Unavailable, T::Unknown, S::Warn, &flaky(503, "no leader"));
    // All of them: one refusal, counted once.
    let all = of(&asked(ranchers(), answered(401, 3, 3, "must authenticate")), "");
    assert!(!all.message.contains("401 came to"), "{all:#?}");
}

/// What a proxy says in place of the server says nothing of the credential.
#[test]
fn the_words_of_another_than_the_server_tell_nothing_of_the_credential() {
    const NGINX: &str =
        "<html> <head><title>X</title></head> <body> <center><h1>X</h1></center> <hr><center>nginx</center>";
    for (status, said, who) in [
        (404, "404 page not found", "Traefik"),
        (404, "default backend - 404", "nginx"),
        (404, "<!doctype html><title>Not Found</title>", "a page"),
        (404, "", "is not said"),
        (410, "", "is not said"),
        (401, NGINX, "nginx"),
        (403, NGINX, "nginx"),
        (403, "<html><body><h1>403 Forbidden</h1> Request forbidden by administrative rules.", "HAProxy"),
    ] {
        let found = of(&asked(ranchers(), answered(status, 1, 0, said)), "");
        let words = [who, "cannot be told", "That says nothing of the credential"];
        expect(&found, T::Unknown, S::Warn, R::InvalidAnswer, &words);
        // That it has ended is known whoever answers.
        let ended = of(&asked(service_account(Some(ago(DAY))), answered(status, 1, 0, said)), "");
        expect(&ended, T::False, S::Error, R::CredentialExpired, &["ended 24 h ago", "cannot be told"]);
    }
    for (status, said, reason) in [
        (404, "the server could not find the requested resource", R::CredentialGone),
        (404, "clusters.management.cattle.io \"c-m-abc\" not found", R::CredentialGone),
        (410, "token expired", R::CredentialGone),
        (401, "must authenticate", R::CredentialRefused),
        (401, "Unauthorized", R::CredentialRefused),
        (401, "", R::CredentialRefused),
        (403, "", R::CredentialForbidden),
    ] {
        assert_eq!(
            of(&asked(ranchers(), answered(status, 3, 3, said)), "").reason,
            reason,
            "{status} {said}"
        );
    }
}
