//! Nothing is published.

use outrider_protocol::{Fact, ReasonCode as R, Severity, Status, UnknownCause};

use super::checksum::expected;
use super::{Mode, TYPE, View, short};
use crate::finding::Finding;

/// SHA-256 of nothing.
const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

impl View<'_> {
    pub(super) fn empty(&self) -> Option<Finding> {
        if !self.is_empty() {
            return None;
        }
        let given = expected(self.b);
        let host = &self.b.host;
        let publish = "Either publish the private CA (helm: privateCA=true, and the PEM in the secret tls-ca in \
                       cattle-system), or, where the certificate is a public one, set agent-tls-mode to system-store and \
                       register nodes without --ca-checksum.";
        if given == NOTHING && self.mode != Mode::SystemStore {
            return self.error(
                R::CaCertsEmpty,
                format!(
                    "The checksum that is given ({}…) is that of no bytes at all, and /cacerts of {host} is empty: it was taken \
                     from there, and agents find no CA to trust by it.",
                    short(&given)
                ),
                publish,
            );
        }
        if !given.is_empty() && self.mode != Mode::SystemStore {
            return self.error(
                R::CaCertsEmpty,
                format!(
                    "A checksum is given ({}…) and /cacerts of {host} is empty: agents stop with \"Configured cacerts \
                     checksum ({}…) does not match given --ca-checksum ({}…)\".",
                    short(&given),
                    short(&self.ca.sha256),
                    short(&given)
                ),
                publish,
            );
        }
        match (self.mode, self.system()) {
            (Mode::Strict, _) => self.error(
                R::CaCertsEmpty,
                format!(
                    "Agents verify strictly and /cacerts of {host} is empty: every registration fails, certainly and before it \
                     begins (\"Aborting system-agent installation due to requested strict CA verification with no CA \
                     checksum provided\")."
                ),
                publish,
            ),
            (Mode::SystemStore, Some("")) if !given.is_empty() => Some(self.left_over(format!(
                "A checksum is given ({}…) and /cacerts of {host} is empty; agents in system-store mode discard it, for this \
                 machine's roots trust the chain.",
                short(&given)
            ))),
            (Mode::SystemStore, Some("")) => Some(self.new_finding(
                Status::True,
                Severity::Ok,
                R::CaTrusted,
                format!(
                    "/cacerts of {host} is empty, and the chain is trusted by this machine's own roots, which is what agents \
                     in system-store mode go by."
                ),
            )),
            (Mode::Unsaid, Some("")) => Some(
                self.new_finding(
                    Status::True,
                    Severity::Warn,
                    R::CaCertsEmpty,
                    format!(
                        "/cacerts of {host} is empty. The chain is trusted by this machine's own roots, so agents in \
                         system-store mode work; in strict mode, which new installations of Rancher have, every \
                         registration fails."
                    ),
                )
                .advice(
                    "See Rancher's setting agent-tls-mode and write it into [[load_balancer]] (agent_tls_mode): with \
                     system-store this is right as it is.",
                ),
            ),
            (_, Some(why)) => self.error(
                R::CaChainMismatch,
                format!(
                    "/cacerts of {host} is empty, and this machine's own roots do not trust the chain: {why}. Agents have \
                     nothing to trust Rancher by."
                ),
                publish,
            ),
            (_, None) => Some(
                Finding::unknown(
                    TYPE,
                    match &self.ca.system_trusts_chain {
                        Fact::Unknown { cause, .. } => cause,
                        _ => &UnknownCause::NotYetRead,
                    },
                    Severity::Warn,
                    self.at,
                    format!(
                        "/cacerts of {host} is empty, and whether this machine's own roots trust the chain is not known; agents \
                         have nothing else to go by."
                    ),
                )
                .advice(publish),
            ),
        }
    }
}
