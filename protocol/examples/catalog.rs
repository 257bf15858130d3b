//! Writes the journal's catalog, `packaging/usr/lib/systemd/catalog/outrider.catalog`, which `journalctl -x` shows beside our
//! lines: `cargo run -p outrider-protocol --example catalog`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/usr/lib/systemd/catalog/outrider.catalog");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let entries = outrider_protocol::REASONS.iter().map(|reason| {
        let (code, sentence, id) = (reason.code, reason.sentence, reason.message_id);
        format!(
            "-- {id}\nSubject: {code}\nDefined-By: Outrider\nDocumentation: man:outrider-explain(1)\n\n{sentence}\n\nThe runbook: \
             outrider explain {code}\n\n"
        )
    });
    std::fs::write(path, entries.collect::<String>().trim_end().to_owned() + "\n")
}
