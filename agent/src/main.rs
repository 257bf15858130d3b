//! `outrider-agent`.
fn main() {}
