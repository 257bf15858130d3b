//! Why a request to Harvester's API came to nothing: a cause of the registry, and words that name verb and resource.

use std::error::Error;

use outrider_protocol::UnknownCause;

/// Longest piece of a server's answer that is quoted.
const QUOTED: usize = 300;

/// A request that came to nothing.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) cause: UnknownCause,
    pub(super) detail: String,
    /// The version to go on from is gone (410), or the server is another: everything has to be listed again, and nothing
    /// is wrong.
    pub(super) is_gone: bool,
}

impl Failure {
    pub(super) fn new(cause: UnknownCause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into(), is_gone: false }
    }

    /// What became of a request to `verb` a resource at a server, as `what` says it.
    pub(super) fn of(what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(what, status.code, &status.reason, &status.message),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
                Self::new(UnknownCause::InvalidAnswer, format!("{what}: the answer is no JSON of that kind"))
            }
            other => {
                let (cause, words) = of_transport(other);
                Self::new(cause, format!("{what}: {words}"))
            }
        }
    }

    /// An answer that is no success. 401 says who we are is not accepted, 403 that we are known and may not.
    pub(super) fn of_status(what: &str, code: u16, reason: &str, message: &str) -> Self {
        let cause = match code {
            401 => UnknownCause::Unauthenticated,
            403 => UnknownCause::Forbidden,
            404 => UnknownCause::Unsupported,
            410 => UnknownCause::Unavailable,
            429 | 500.. => UnknownCause::Unavailable,
            _ => UnknownCause::InvalidAnswer,
        };
        let said: String = message.chars().filter(|c| !c.is_control()).take(QUOTED).collect();
        let said = if said.is_empty() { reason.to_owned() } else { said };
        let is_gone = code == 410 || matches!(reason, "Expired" | "Gone");
        let gone = if is_gone { " (the version to go on from is gone)" } else { "" };
        Self { cause, detail: format!("{what}: {code} {said}{gone}"), is_gone }
    }

    /// The kubeconfig leads to another server, or to other namespaces, than the watch that ended.
    pub(super) fn elsewhere() -> Self {
        Self { is_gone: true, ..Self::new(UnknownCause::NotYetRead, "the kubeconfig is another") }
    }

    /// The same as a failure in any case: a list has no version to go on from, it begins anew by itself.
    pub(super) fn told(self) -> Self {
        Self { is_gone: false, ..self }
    }

    pub(super) fn timed_out(what: &str, limit: std::time::Duration) -> Self {
        Self::new(UnknownCause::TimedOut, format!("{what}: no answer within {} s", limit.as_secs()))
    }
}

/// A connection that failed, by the innermost error that is told by its type.
fn of_transport(error: &kube::Error) -> (UnknownCause, String) {
    let mut innermost: &dyn Error = error;
    let mut cause = UnknownCause::Unreachable;
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(current) = next {
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            cause = match io.kind() {
                std::io::ErrorKind::ConnectionRefused => UnknownCause::ConnectionRefused,
                std::io::ErrorKind::TimedOut => UnknownCause::TimedOut,
                _ => cause,
            };
            // An io::Error hides what it was made of from `source`.
            if let Some(inner) = io.get_ref()
                && inner.downcast_ref::<rustls::Error>().is_some()
            {
                cause = UnknownCause::TlsFailed;
            }
        }
        if current.downcast_ref::<rustls::Error>().is_some() {
            cause = UnknownCause::TlsFailed;
        }
        innermost = current;
        next = current.source();
    }
    let words = innermost.to_string();
    if cause == UnknownCause::Unreachable && words.contains("failed to lookup address") {
        cause = UnknownCause::NameNotResolved;
    }
    if words.contains("deadline has elapsed") || words.contains("timed out") {
        cause = UnknownCause::TimedOut;
    }
    (cause, words.chars().take(QUOTED).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_accepted_is_not_who_may_not() {
        let what = "list virtualmachines.kubevirt.io at https://192.0.2.1:6443";
        for (code, cause) in [
            (401, UnknownCause::Unauthenticated),
            (403, UnknownCause::Forbidden),
            (404, UnknownCause::Unsupported),
            (429, UnknownCause::Unavailable),
            (503, UnknownCause::Unavailable),
        ] {
            let failure = Failure::of_status(what, code, "", "no\u{7}");
            assert_eq!(failure.cause, cause);
            assert_eq!(failure.detail, format!("{what}: {code} no"));
        }
        assert!(
            Failure::of_status(what, 410, "", "").is_gone
                && Failure::of_status(what, 500, "Expired", "").is_gone
        );
        let of_list = Failure::of_status(what, 410, "Expired", "").told();
        assert!(!of_list.is_gone && of_list.detail.ends_with("is gone)"), "{of_list:?}");
    }
}
