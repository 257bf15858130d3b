//! How the process ends: the exit codes are a contract with shells and monitoring systems.

use std::process::ExitCode;

use outrider_protocol::{Condition, Severity, Status};

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

/// The verdict over all conditions: error before unknown before warning before ok. Behind what could not be read may lie
/// an error, so a warning does not hide it (as `max_state` of the Monitoring Plugins orders its states).
pub(crate) fn verdict(conditions: &[Condition]) -> Exit {
    conditions.iter().map(of_one).fold(Exit::Ok, worse)
}

/// The one of two that is told.
pub(crate) fn worse(a: Exit, b: Exit) -> Exit {
    if rank(b) > rank(a) { b } else { a }
}

/// How bad a verdict is; worse is greater.
pub(crate) fn rank(exit: Exit) -> usize {
    let worse = [Exit::CheckWarning, Exit::CheckUnknown, Exit::CheckError];
    worse.iter().position(|e| *e == exit).map_or(0, |place| place + 1)
}

/// What one condition makes of a check.
///
/// Status `Unknown` counts as unknown when it is a warning: a check that sees nothing must not pass for one that sees no
/// fault. One that merely dims the picture, or has not gathered enough yet, is for information and does not.
pub(crate) fn of_one(condition: &Condition) -> Exit {
    match (condition.severity, condition.status) {
        (Severity::Error, _) => Exit::CheckError,
        (Severity::Warn, Status::Unknown) => Exit::CheckUnknown,
        (Severity::Warn, _) => Exit::CheckWarning,
        _ => Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{ConditionType, ReasonCode, Timestamp};

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
    fn error_beats_unknown_beats_warning_beats_ok() {
        let ok = condition(Severity::Ok, Status::True, ReasonCode::HostHasRoom);
        let info = condition(Severity::Info, Status::Unknown, ReasonCode::EtcdDiskUnmeasured);
        let dim = condition(Severity::Info, Status::Unknown, ReasonCode::PermissionDenied);
        let blind = condition(Severity::Warn, Status::Unknown, ReasonCode::PermissionDenied);
        let warn = condition(Severity::Warn, Status::True, ReasonCode::DiskSpaceLow);
        let error = condition(Severity::Error, Status::Unknown, ReasonCode::EtcdQuorumSuspected);
        assert_eq!(verdict(&[]), Exit::Ok);
        assert_eq!(verdict(&[ok.clone(), info.clone(), dim.clone()]), Exit::Ok);
        assert_eq!(verdict(&[warn.clone(), dim]), Exit::CheckWarning);
        assert_eq!(verdict(&[ok.clone(), blind.clone()]), Exit::CheckUnknown);
        assert_eq!(verdict(&[blind.clone(), warn.clone(), ok.clone()]), Exit::CheckUnknown);
        assert_eq!(verdict(&[warn.clone(), blind.clone()]), Exit::CheckUnknown);
        assert_eq!(verdict(&[error, blind, warn, ok]), Exit::CheckError);
    }
}
