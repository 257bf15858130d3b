//! Writes the table of reasons into `docs/runbooks/README.md`: `cargo run -p outrider-protocol --example runbooks`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks/README.md");
    let text = std::fs::read_to_string(&path)?;
    let is_row = |line: &&str| line.starts_with("| [");
    let (before, after) = (text.lines().take_while(|l| !is_row(l)), text.lines().skip_while(|l| !is_row(l)));
    let rows = outrider_protocol::REASONS.iter().map(|reason| {
        let (code, (least, most)) = (reason.code, reason.severities);
        let range = if least == most { least.to_string() } else { format!("{least} to {most}") };
        format!("| [{code}]({code}.md) | {range} | {} |", reason.sentence)
    });
    let mut lines: Vec<String> = before.map(str::to_owned).collect();
    lines.extend(rows);
    lines.extend(after.skip_while(is_row).map(str::to_owned));
    std::fs::write(path, lines.join("\n") + "\n")
}
