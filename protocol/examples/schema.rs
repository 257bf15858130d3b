//! Writes the JSON Schema of every document to `protocol/schema/`:
//! `cargo run -p outrider-protocol --example schema`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    std::fs::create_dir_all(&folder)?;
    let documents = outrider_protocol::schema::documents();
    for old in std::fs::read_dir(&folder)? {
        std::fs::remove_file(old?.path())?;
    }
    for (kind, schema) in documents {
        let text = serde_json::to_string_pretty(&schema)?;
        std::fs::write(folder.join(format!("{kind}.json")), text + "\n")?;
    }
    Ok(())
}
