//! One file a command: it parses no arguments and draws no tables, it does the work between the two.

pub(crate) mod approve;
pub(crate) mod check;
pub(crate) mod context;
pub(crate) mod describe;
pub(crate) mod diagnose;
pub(crate) mod explain;
pub(crate) mod facts;
mod follow;
pub(crate) mod generate;
pub(crate) mod get;
pub(crate) mod install;
pub(crate) mod label;
pub(crate) mod login;
pub(crate) mod revoke;
pub(crate) mod sync;
pub(crate) mod token;
pub(crate) mod uninstall;
pub(crate) mod userdata;
pub(crate) mod watch;
