//! How machines become nodes.
