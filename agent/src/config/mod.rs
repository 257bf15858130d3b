//! Configuration in three stages: as written -> merged -> typed settings.

mod settings;

pub use settings::*;
