//! How the process ends: the exit codes are a contract with shells and monitoring systems.

use std::process::ExitCode;

use outrider_protocol::{Condition, ReasonCode, Severity, Status, UnknownCause};

/// What the process tells its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It worked; for `check`: all is well.
    Ok,
    /// It could not be done.
    Failed,
    /// `EX_USAGE`: called wrongly.
    Usage,
    /// `check`: something is to be looked at in working hours.
    CheckWarning,
    /// `check`: something is to be looked at now.
    CheckError,
    /// `check`: something could not be read, or the command was called wrongly.
    CheckUnknown,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Failed | Exit::CheckWarning => 1,
            Exit::CheckError => 2,
            Exit::CheckUnknown => 3,
            Exit::Usage => 64,
        })
    }
}

/// The verdict over all conditions, by the plugins' order: error before warning before unknown before ok.
pub(crate) fn verdict(conditions: &[Condition]) -> Exit {
    let rank = |exit: &Exit| {
        [Exit::CheckUnknown, Exit::CheckWarning, Exit::CheckError].iter().position(|e| e == exit)
    };
    conditions.iter().map(of_one).max_by_key(rank).unwrap_or(Exit::Ok)
}

/// What one condition makes of a check.
///
/// Status `Unknown` counts as unknown when it is a warning, or when a read failed: a check that sees nothing must not
/// pass for one that sees no fault. One that merely has not gathered enough yet does not.
pub(crate) fn of_one(condition: &Condition) -> Exit {
    match (condition.severity, condition.status) {
        (Severity::Error, _) => Exit::CheckError,
        (Severity::Warn, Status::Unknown) => Exit::CheckUnknown,
        (Severity::Warn, _) => Exit::CheckWarning,
        (_, Status::Unknown) if read_failed(&condition.reason) => Exit::CheckUnknown,
        _ => Exit::Ok,
    }
}

fn read_failed(reason: &ReasonCode) -> bool {
    let causes = UnknownCause::ALL.iter().filter(|cause| **cause != UnknownCause::NotYetRead);
    causes.into_iter().any(|cause| cause.as_str() == reason.as_str())
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{ConditionType, Timestamp};

    use super::*;

    fn condition(severity: Severity, status: Status, reason: ReasonCode) -> Condition {
        Condition {
            condition_type: ConditionType::HostHealthy,
            subject: String::new(),
            status,
            severity,
            reason,
            message: String::new(),
            advice: String::new(),
            last_transition_time: Timestamp::default(),
            observed_at: Timestamp::default(),
        }
    }

    #[test]
    fn error_beats_warning_beats_unknown_beats_ok() {
        let ok = condition(Severity::Ok, Status::True, ReasonCode::HostHasRoom);
        let info = condition(Severity::Info, Status::Unknown, ReasonCode::EtcdDiskUnmeasured);
        let blind = condition(Severity::Info, Status::Unknown, ReasonCode::PermissionDenied);
        let warn = condition(Severity::Warn, Status::True, ReasonCode::DiskSpaceLow);
        let error = condition(Severity::Error, Status::Unknown, ReasonCode::EtcdQuorumSuspected);
        assert_eq!(verdict(&[]), Exit::Ok);
        assert_eq!(verdict(&[ok.clone(), info.clone()]), Exit::Ok);
        assert_eq!(verdict(&[ok.clone(), blind.clone()]), Exit::CheckUnknown);
        assert_eq!(verdict(&[blind.clone(), warn.clone(), ok.clone()]), Exit::CheckWarning);
        assert_eq!(verdict(&[error, blind, warn, ok]), Exit::CheckError);
    }
}
