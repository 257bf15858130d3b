//! Report: enrolment, the spool of transitions, delivery to the coordinator.

use outrider_protocol::{ClockOffset, Fact, NodeConfig, Timestamp};

/// How enrolment and delivery stand; what the loop judges the agent by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryStatus {
    /// URL in use; empty when no coordinator is configured.
    pub coordinator: String,
    /// `enrolled`, `pending`, `refused` or `none`.
    pub enrolment: String,
    /// Uid the coordinator gave; empty before.
    pub node_uid: String,
    /// The last failure, in words; empty when the last try worked.
    pub error: String,
    /// Since when tries fail.
    pub failing_since: Option<Timestamp>,
    /// Transitions in the spool.
    pub spooled: u64,
    /// Transitions a full spool merged away since the last acknowledgement.
    pub merged: u64,
    /// What is wrong with the spool; empty when it works.
    pub spool_problem: String,
    /// End of our client certificate.
    pub certificate_not_after: Option<Timestamp>,
    /// Our clock against the coordinator's.
    pub clock_offset: Option<Fact<ClockOffset>>,
    /// Desired configuration last received.
    pub desired: Option<NodeConfig>,
}
