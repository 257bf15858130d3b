//! Desired and upstream state, merged purely: who owns each field, what is in force, what would be written.
//!
//! [`node`] carries the desired configuration of our own nodes. Null means unmanaged and empty means managed and
//! empty; effective = upstream + non-null desired. For nodes, drift is shown and corrected or held, never adopted as
//! desired (adopting on refresh is the rule of hosted clusters). [`harvester`] tells which node a virtual machine is, and
//! [`topology`] plans the labels of region and zone of the own Node.

pub mod harvester;
pub mod hosted;
pub mod node;
pub mod topology;
