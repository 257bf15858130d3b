//! What a person sees while `up` runs: a table redrawn on a terminal, rows appended elsewhere.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use outrider_protocol::{ClusterView, Fleet, NodeView, Severity};

use super::parts::Parts;
use crate::cli::UpArgs;
use crate::commands::check::now;
use crate::commands::get::Object;
use crate::folders;
use crate::output::{Format, Screen, Table, document, text};
use crate::show::{clusters, nodes};

/// Time between looks at the fleet.
const LOOK: Duration = Duration::from_secs(1);
/// Lines kept free for the head, the titles and the shell's prompt.
const SPARE: usize = 11;

/// Shows the fleet until it is dropped. Where the result is printed at the end, only the address is told now.
pub(super) async fn show(
    parts: &Parts,
    args: &UpArgs,
    state_dir: &Path,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let wide = matches!(args.output, Format::Wide);
    let live = match args.output {
        Format::Table | Format::Wide => args.limit.is_none() || screen.interactive,
        _ => false,
    };
    let mut head = format!(
        "Coordinator  {}\nCA SHA-256   {}\nState        {}\n",
        parts.url(),
        parts.ca_checksum(),
        state_dir.display()
    );
    // Other commands look for it in the usual folder only.
    if folders::state().is_ok_and(|usual| usual == state_dir) {
        head.push_str("Reach it     outrider --context up get nodes\n");
    }
    if !live {
        screen.note(head.trim_end());
        return std::future::pending().await;
    }
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    if screen.interactive {
        let mut drawn = 0;
        loop {
            look.tick().await;
            let frame = frame(&head, &parts.fleet().await?, wide, screen);
            screen.write(&redraw(drawn, &frame))?;
            drawn = frame.lines().count();
        }
    }
    screen.write(&format!("{head}\n"))?;
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut table: Option<Table<NodeView>> = None;
    loop {
        look.tick().await;
        let mut changed = parts.fleet().await?.nodes;
        changed.retain(|node| known.insert(node.path(), node.row_mark()) != Some(node.row_mark()));
        if changed.is_empty() {
            continue;
        }
        let fresh = Table::new(nodes::columns(now()), wide);
        let text = match &mut table {
            Some(table) => {
                table.take_columns_of(fresh);
                table.more(&changed)
            }
            None => table.insert(fresh).render(&changed),
        };
        screen.write(&text)?;
    }
}

/// Prints the fleet as it is at the end, where it was not shown all the time.
pub(super) async fn last(parts: &Parts, args: &UpArgs, screen: &mut Screen) -> anyhow::Result<()> {
    let fleet = match args.output {
        Format::Table | Format::Wide if args.limit.is_none() || screen.interactive => return Ok(()),
        _ => parts.fleet().await?,
    };
    let text = match args.output {
        Format::Json => document::json(&fleet)?,
        Format::Yaml => document::yaml(&fleet)?,
        Format::Name => fleet.nodes.iter().map(|node| format!("{}\n", node.path())).collect(),
        ref format => tables(&fleet, matches!(format, Format::Wide), usize::MAX, screen),
    };
    screen.write(&text)
}

/// Everything on one screen.
fn frame(head: &str, fleet: &Fleet, wide: bool, screen: &Screen) -> String {
    let room = screen
        .size()
        .map_or(usize::MAX, |(_, lines)| lines.saturating_sub(SPARE + fleet.clusters.len()).max(5));
    format!("{head}\n{}\nCtrl-C ends it.\n", tables(fleet, wide, room, screen))
}

/// Clusters, then nodes; when not all fit, the worst of them.
fn tables(fleet: &Fleet, wide: bool, room: usize, screen: &Screen) -> String {
    let mut out = String::new();
    if !fleet.clusters.is_empty() {
        let shown: &[ClusterView] = &fleet.clusters[..fleet.clusters.len().min(room)];
        let columns = clusters::columns(&clusters::members(&fleet.nodes));
        out.push_str(&Table::new(columns, wide).on(screen).render(shown));
        out.push('\n');
    }
    let mut shown: Vec<&NodeView> = fleet.nodes.iter().collect();
    let hidden = shown.len().saturating_sub(room);
    if hidden > 0 {
        shown.sort_by_key(|node| std::cmp::Reverse(nodes::worst(node)));
        shown.truncate(room);
    }
    let mut table = Table::new(nodes::columns(now()), wide).on(screen);
    if !wide {
        table = table.compact(shown.iter().copied());
    }
    out.push_str(&table.render(shown));
    if hidden > 0 {
        let troubled = fleet.nodes.iter().filter(|node| nodes::worst(node) > Some(Severity::Info)).count();
        let of = text::count(fleet.nodes.len(), "node");
        out.push_str(&format!("… and {hidden} more; {troubled} of {of} need a look\n"));
    }
    out
}

/// `frame` in place of the `drawn` lines above the cursor. Lines that are too long are cut by the terminal, not wrapped:
/// a wrapped line would move everything below it.
fn redraw(drawn: usize, frame: &str) -> String {
    let mut out = String::from("\x1b[?7l");
    if drawn > 0 {
        out.push_str(&format!("\x1b[{drawn}F"));
    }
    for line in frame.lines() {
        out.push_str(line);
        out.push_str("\x1b[K\n");
    }
    out.push_str("\x1b[J\x1b[?7h");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_goes_over_the_one_before_and_leaves_nothing_of_it() {
        assert_eq!(redraw(0, "a\nb\n"), "\x1b[?7la\x1b[K\nb\x1b[K\n\x1b[J\x1b[?7h");
        assert_eq!(redraw(3, "a\n"), "\x1b[?7l\x1b[3Fa\x1b[K\n\x1b[J\x1b[?7h");
    }
}
