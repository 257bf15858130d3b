//! Case TC10: the result of cloud-init.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::world::{self, Change, absent, cloud_init, known, unknown};
use crate::{expect, only};

fn judged(fact: Fact<CloudInitFacts>) -> Finding {
    let j = judge(&world::node_facts(CheckFacts { cloud_init: Some(fact), ..CheckFacts::default() }));
    only(&j, ConditionType::CloudInitSucceeded)
}

fn result(c: CloudInitFacts) -> Finding {
    judged(known(c))
}

fn warned(level: &str, text: &str) -> impl FnOnce(&mut CloudInitFacts) {
    move |c| {
        c.recoverable_errors.insert(level.into(), vec![text.into()]);
    }
}

#[test]
fn tc10_a_done_without_errors() {
    for code in [Some(0), None] {
        expect(
            &result(cloud_init("done", code)),
            Status::True,
            Severity::Ok,
            ReasonCode::CloudInitDone,
            &["done"],
        );
    }
}

#[test]
fn tc10_b_degraded_is_success_with_the_text_shown() {
    let c = cloud_init("done", Some(2)).with(|c| c.extended_status = "degraded done".into());
    let f = result(c.with(warned("WARNING", "group already exists")));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::CloudInitDegraded,
        &["group already exists", "WARNING", "degraded done", "exit code 2"],
    );
    // The same fault told in other ways.
    expect(
        &result(cloud_init("done", Some(2))),
        Status::True,
        Severity::Warn,
        ReasonCode::CloudInitDegraded,
        &[],
    );
    let only_list = cloud_init("done", None).with(warned("DEPRECATED", "use of x"));
    expect(&result(only_list), Status::True, Severity::Warn, ReasonCode::CloudInitDegraded, &["use of x"]);
    let only_word = cloud_init("done", Some(0)).with(|c| c.extended_status = "degraded done".into());
    expect(&result(only_word), Status::True, Severity::Warn, ReasonCode::CloudInitDegraded, &[]);
    let many = cloud_init("done", Some(2)).with(|c| {
        c.recoverable_errors.insert("WARNING".into(), (0..9).map(|n| format!("warning {n}")).collect());
    });
    expect(
        &result(many),
        Status::True,
        Severity::Warn,
        ReasonCode::CloudInitDegraded,
        &["9 recoverable", "and 6 more"],
    );
}

#[test]
fn tc10_c_failed() {
    let c = cloud_init("error", Some(1))
        .with(|c| c.errors = vec!["('scripts_user', ProcessExecutionError)".into()]);
    expect(
        &result(c),
        Status::False,
        Severity::Error,
        ReasonCode::CloudInitFailed,
        &["scripts_user", "exit code 1"],
    );
    for c in [cloud_init("error", None), cloud_init("done", Some(1)), cloud_init("error", Some(0))] {
        expect(&result(c), Status::False, Severity::Error, ReasonCode::CloudInitFailed, &[]);
    }
    // Result files alone, with errors in them.
    let c = cloud_init("done", None).with(|c| c.errors = vec!["no disk".into()]);
    expect(&result(c), Status::False, Severity::Error, ReasonCode::CloudInitFailed, &["no disk"]);
}

#[test]
fn tc10_d_running_is_running_whatever_the_exit_code() {
    for code in [Some(2), Some(0), Some(1), None] {
        let c = cloud_init("running", code).with(|c| {
            c.stage = "modules-final".into();
            c.stage_seconds = Some(40);
        });
        let f = result(c);
        expect(
            &f,
            Status::Unknown,
            Severity::Info,
            ReasonCode::CloudInitRunning,
            &["modules-final", "40 s", "Wait"],
        );
    }
    let c = cloud_init("running", Some(2)).with(|c| {
        c.stage = "modules-final".into();
        c.stage_seconds = Some(4 * 3600);
    });
    expect(
        &result(c),
        Status::Unknown,
        Severity::Warn,
        ReasonCode::CloudInitRunning,
        &["4 h", "again and again"],
    );
    let c = cloud_init("running", None).with(|c| c.errors = vec!["no disk".into()]);
    expect(&result(c), Status::Unknown, Severity::Warn, ReasonCode::CloudInitRunning, &["no disk"]);
}

#[test]
fn tc10_e_disabled_is_not_waited_for() {
    for code in [Some(0), Some(2), None] {
        expect(
            &result(cloud_init("disabled", code)),
            Status::True,
            Severity::Info,
            ReasonCode::CloudInitDisabled,
            &["nothing is waited for"],
        );
    }
}

#[test]
fn tc10_f_a_missing_command_is_unknown() {
    let f = judged(absent("/usr/bin/cloud-init"));
    expect(
        &f,
        Status::Unknown,
        Severity::Info,
        ReasonCode::CloudInitNotInstalled,
        &["/usr/bin/cloud-init", "Do not wait"],
    );
}

#[test]
fn words_of_later_versions_go_by_their_exit_code() {
    expect(
        &result(cloud_init("splendid", Some(0))),
        Status::True,
        Severity::Ok,
        ReasonCode::CloudInitDone,
        &[],
    );
    expect(
        &result(cloud_init("splendid", Some(1))),
        Status::False,
        Severity::Error,
        ReasonCode::CloudInitFailed,
        &[],
    );
    expect(
        &result(cloud_init("splendid", Some(2))),
        Status::True,
        Severity::Warn,
        ReasonCode::CloudInitDegraded,
        &[],
    );
    expect(
        &result(cloud_init("splendid", None)),
        Status::Unknown,
        Severity::Warn,
        ReasonCode::InvalidAnswer,
        &["splendid"],
    );
}

#[test]
fn not_yet_begun_and_not_readable() {
    expect(
        &result(cloud_init("not run", None)),
        Status::Unknown,
        Severity::Info,
        ReasonCode::CloudInitNotRun,
        &[],
    );
    let facts = world::node_facts(CheckFacts {
        cloud_init: Some(unknown(UnknownCause::PermissionDenied)),
        ..CheckFacts::default()
    });
    let j = judge(&facts);
    assert!(j.findings.is_empty());
    assert_eq!((&j.blind[0].check, &j.blind[0].cause), (&Check::CloudInit, &UnknownCause::PermissionDenied));
}
