//! Enums that keep words they do not know.
//!
//! A coordinator may be a version older than an agent: a condition type or reason it has never heard of must be
//! stored and shown, not refused. `open_enum!` makes such an enum: known words are variants, the rest is `Other`.

/// Declares a string enum whose unknown words survive a round trip as `Other`.
#[macro_export]
macro_rules! open_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vmeta])* $variant,)+
            /// A word this version does not know, kept as it was written.
            Other(std::sync::Arc<str>),
        }

        impl $name {
            /// Every word this version knows, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word as it stands in JSON, logs and metrics.
            pub fn as_str(&self) -> &str {
                match self { $($name::$variant => $word,)+ $name::Other(word) => word }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.pad(self.as_str()) }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word { $($word => $name::$variant,)+ other => $name::Other(other.into()) }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> { s.serialize_str(self.as_str()) }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(d)?;
                Ok($name::from(word.as_ref()))
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> { stringify!($name).into() }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let words: Vec<&str> = vec![$($word),+];
                schemars::json_schema!({ "type": "string", "examples": words,
                    "description": "One of the examples, or a word of a later version." })
            }
        }
    };
}
