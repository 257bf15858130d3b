//! Every field of the three providers' configuration, as data.
//!
//! [`shape`] says where a document does not have these types. Names, types and nullability: rancher/eks-operator, rancher/aks-operator and rancher/gke-operator,
//! `pkg/apis/*/v1/types.go`; the tables of `facts/hosted-sync.md`, section 4.

mod aks;
mod eks;
mod gke;
pub mod shape;

/// Whose cluster it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provider {
    /// Amazon EKS.
    Eks,
    /// Azure AKS.
    Aks,
    /// Google GKE.
    Gke,
}

/// What kind of JSON value a field holds, as the operators' Go types have it.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// Text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Integer,
    /// A list of texts.
    TextList,
    /// Text to text; a value may be null.
    TextMap,
    /// An object with these fields.
    Object(&'static [Field]),
    /// A list of objects with these fields.
    Objects(&'static [Field]),
}

/// How two values of a field compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equality {
    /// As JSON.
    Exact,
    /// As a version: `1.30` is later than `1.9`.
    Version,
    /// A list without order.
    Set,
    /// A list of networks without order; a list open to all equals the empty one.
    CidrSet,
    /// A map of text.
    Map,
    /// Pools, matched by name, compared field by field.
    Pools,
}

/// What is special about a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// Nothing.
    Plain,
    /// Names the cluster or how to reach it; copied from S into U, never synced.
    Identity,
    /// Cannot be changed after creation.
    Immutable,
    /// An absent add-on is the same as `false`.
    AbsentIsFalse,
    /// `true` opens the cluster to more of the world.
    TrueWidens,
    /// `false` opens the cluster to more of the world.
    FalseWidens,
    /// More networks, or none at all, open the cluster to more of the world.
    MoreWidens,
    /// Sent exactly: keys that are not in S are removed.
    RemovesKeys,
    /// Nodes in the pool; never ours while the pool scales by itself.
    Count,
    /// Switches a pool's autoscaling on.
    Autoscaling,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// JSON name.
    pub name: &'static str,
    /// What kind of value it holds.
    pub holds: Type,
    /// How it compares.
    pub equality: Equality,
    /// Whether null can stand for "unmanaged"; a field that is not nillable is always managed.
    pub nillable: bool,
    /// What is special about it.
    pub special: Trait,
}

const fn field(name: &'static str, holds: Type, equality: Equality, special: Trait) -> Field {
    Field { name, holds, equality, nillable: true, special }
}

const fn text(name: &'static str) -> Field {
    field(name, Type::Text, Equality::Exact, Trait::Plain)
}

const fn boolean(name: &'static str) -> Field {
    field(name, Type::Bool, Equality::Exact, Trait::Plain)
}

const fn integer(name: &'static str) -> Field {
    field(name, Type::Integer, Equality::Exact, Trait::Plain)
}

const fn version(name: &'static str) -> Field {
    field(name, Type::Text, Equality::Version, Trait::Plain)
}

const fn set(name: &'static str) -> Field {
    field(name, Type::TextList, Equality::Set, Trait::Plain)
}

const fn networks(name: &'static str) -> Field {
    field(name, Type::TextList, Equality::CidrSet, Trait::MoreWidens)
}

const fn exact_map(name: &'static str) -> Field {
    field(name, Type::TextMap, Equality::Map, Trait::RemovesKeys)
}

const fn object(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Type::Object(fields), Equality::Exact, Trait::Plain)
}

const fn pools(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, Type::Objects(fields), Equality::Pools, Trait::Plain)
}

impl Field {
    /// Null cannot stand for "unmanaged": a plain Go value is always there.
    const fn always(self) -> Self {
        Field { nillable: false, ..self }
    }

    const fn special(self, special: Trait) -> Self {
        Field { special, ..self }
    }

    const fn identity(self) -> Self {
        self.special(Trait::Identity)
    }

    const fn immutable(self) -> Self {
        self.special(Trait::Immutable)
    }
}

impl Provider {
    /// Every top-level field, in the order in which writes would be sent: control plane, pools.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Provider::Eks => eks::CLUSTER,
            Provider::Aks => aks::CLUSTER,
            Provider::Gke => gke::CLUSTER,
        }
    }

    /// Every field of a pool.
    pub fn pool_fields(self) -> &'static [Field] {
        match self {
            Provider::Eks => eks::POOL,
            Provider::Aks => aks::POOL,
            Provider::Gke => gke::POOL,
        }
    }

    /// The field a pool is named by.
    pub fn pool_name(self) -> &'static str {
        match self {
            Provider::Eks => "nodegroupName",
            Provider::Aks | Provider::Gke => "name",
        }
    }

    /// The top-level field that holds the pools.
    pub fn pool_list(self) -> &'static str {
        match self {
            Provider::Eks => "nodeGroups",
            Provider::Aks | Provider::Gke => "nodePools",
        }
    }

    /// The top-level field `name`; `None` for one this version does not know.
    pub fn field(self, name: &str) -> Option<&'static Field> {
        self.fields().iter().find(|f| f.name == name)
    }

    /// Fields that one call sends together, so that holding one holds the others (EKS: both kinds of access).
    pub fn sent_together(self) -> &'static [&'static [&'static str]] {
        match self {
            Provider::Eks => &[&["publicAccess", "privateAccess"]],
            Provider::Aks | Provider::Gke => &[],
        }
    }

    /// The word in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Provider::Eks => "EKS",
            Provider::Aks => "AKS",
            Provider::Gke => "GKE",
        }
    }
}
