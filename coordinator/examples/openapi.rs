//! Writes the OpenAPI document to `coordinator/openapi.json`, or to the path given:
//! `cargo run -p outrider-coordinator --example openapi`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let path = std::env::args_os().nth(1).map_or_else(default, PathBuf::from);
    let mut text =
        serde_json::to_string_pretty(&outrider_coordinator::openapi()).map_err(std::io::Error::other)?;
    text.push('\n');
    std::fs::write(path, text)
}
