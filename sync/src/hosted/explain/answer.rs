//! The answer, and the words it is given in.

use serde_json::Value;

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Unix seconds of the last refresh, where the object tells it.
    pub last_refresh: Option<i64>,
    /// Unix seconds when the next refresh is due.
    pub next_refresh: Option<i64>,
    /// Why the next refresh would leave the configuration alone; `None` when it would not.
    pub gate: Option<String>,
    /// A row a field and a row a pool, in the provider's order.
    pub rows: Vec<Row>,
}

/// One field, or one pool (`nodeGroups/NAME`).
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which.
    pub path: String,
    /// S; null when it is unmanaged.
    pub desired: Value,
    /// The cloud's value; null when it is not told.
    pub upstream: Value,
    /// What is in force.
    pub effective: Value,
    /// S manages it.
    pub managed: bool,
    /// Whose value is in force.
    pub owner: Owner,
    /// What the next refresh does to S.
    pub refresh: Refresh,
    /// What the next push does to the cloud.
    pub push: Push,
    /// What becomes of a change.
    pub risk: Risk,
    /// In words, with times and values.
    pub reason: String,
}

/// Whose value is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Rancher's configuration.
    Rancher,
    /// The cloud: the field is unmanaged, or was changed there.
    Cloud,
    /// The object does not tell.
    Unknown,
}

/// What the next refresh does to S.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Nothing.
    Nothing,
    /// S takes the cloud's value.
    Adopt,
    /// S takes the cloud's spelling of the same value (Rancher only).
    Rewrite,
    /// S becomes null, and the field unmanaged (Rancher only).
    Unmanage,
    /// Nothing while the gate is closed.
    Wait,
    /// S keeps its value: the cloud does not tell this field.
    Keep,
    /// It cannot be told.
    Unknown,
}

/// What the next push does to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// Nothing.
    Nothing,
    /// Sends S.
    Update,
    /// Creates the pool.
    Create,
    /// Deletes the pool.
    Delete,
    /// Planned, and held for the reason given.
    Hold,
    /// Fails.
    Fail,
    /// It cannot be told.
    Unknown,
}

/// What becomes of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Nobody else writes it, or both agree.
    Safe,
    /// The next refresh takes it over and no push can undo it.
    Adopted,
    /// A later change made on purpose came over it.
    Superseded,
    /// It cannot be told.
    Unknown,
    /// A push before the next refresh would undo it.
    AtRisk,
    /// The push that is due would undo it; we hold it.
    WouldLose,
    /// Rancher rolls it back: an imported cluster that was edited through Rancher.
    RolledBack,
    /// The push that is due undoes it.
    Lost,
}

macro_rules! words {
    ($type:ty, $($variant:ident => $word:literal),+ $(,)?) => {
        impl $type {
            /// The word in JSON and on the command line.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

words!(Owner, Rancher => "rancher", Cloud => "cloud", Unknown => "Unknown");
words!(Refresh, Nothing => "nothing", Adopt => "adopt", Rewrite => "rewrite", Unmanage => "unmanage", Wait => "wait",
    Keep => "keep", Unknown => "Unknown");
words!(Push, Nothing => "nothing", Update => "update", Create => "create", Delete => "delete", Hold => "hold",
    Fail => "fail", Unknown => "Unknown");
words!(Risk, Safe => "SAFE", Adopted => "ADOPTED", Superseded => "SUPERSEDED", Unknown => "Unknown",
    AtRisk => "AT RISK", WouldLose => "WOULD LOSE", RolledBack => "ROLLED BACK", Lost => "LOST");
