//! `outrider explain`: what a reason code or a condition means and what to do, from the runbooks that the program carries:
//! the machine that needs them may have no network.

use anyhow::bail;
use include_dir::{Dir, include_dir};
use outrider_protocol::{REASONS, ReasonInfo};

use crate::cli::ExplainArgs;
use crate::exit::Exit;
use crate::output::{Screen, UsageError};

/// One file a reason code, `CODE.md`.
static RUNBOOKS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../docs/runbooks");

/// How a runbook names the conditions that carry its reason.
const CONDITION: &str = "- Condition: ";

/// Runs the command; registry and runbooks are part of the program, so no coordinator is asked.
pub(crate) fn run(args: &ExplainArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let wanted = args.reason.as_str();
    if let Some(info) = REASONS.iter().find(|info| info.code.eq_ignore_ascii_case(wanted)) {
        screen.write(&reason(info))?;
        return Ok(Exit::Ok);
    }
    // A node of Kubernetes shows our conditions with this before them.
    let wanted = wanted
        .get(.."Outrider".len())
        .filter(|head| head.eq_ignore_ascii_case("Outrider"))
        .map_or(wanted, |head| &args.reason[head.len()..]);
    match condition(wanted) {
        Some(text) => screen.write(&text)?,
        None => bail!(UsageError(format!(
            "there is no reason and no condition {:?}; `outrider get conditions` and `outrider check` show them",
            args.reason
        ))),
    }
    Ok(Exit::Ok)
}

fn runbook(info: &ReasonInfo) -> &'static str {
    let file = RUNBOOKS.get_file(format!("{}.md", info.code));
    file.and_then(include_dir::File::contents_utf8).unwrap_or_default()
}

fn severities(info: &ReasonInfo) -> String {
    match info.severities {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    }
}

/// The runbook. Its title is the code and its first paragraph the sentence.
fn reason(info: &ReasonInfo) -> String {
    let text = runbook(info);
    let body =
        text.split_once("\n\n").and_then(|(_, rest)| rest.split_once("\n\n")).map_or("", |(_, body)| body);
    format!("{}: {}\n\n{body}", info.code, info.sentence)
}

/// The conditions that a runbook names.
fn conditions(runbook: &str) -> impl Iterator<Item = &str> {
    let line = runbook.lines().find_map(|line| line.strip_prefix(CONDITION)).unwrap_or_default();
    line.split('`').skip(1).step_by(2).filter(|word| !matches!(*word, "True" | "False" | "Unknown"))
}

/// The reasons that a condition of this type may carry, the graver ones first; `None` where no runbook names it.
fn condition(wanted: &str) -> Option<String> {
    let names = |info: &&ReasonInfo| conditions(runbook(info)).any(|name| name.eq_ignore_ascii_case(wanted));
    let mut found: Vec<&ReasonInfo> = REASONS.iter().filter(names).collect();
    let name = conditions(runbook(found.first()?)).find(|name| name.eq_ignore_ascii_case(wanted))?;
    found.sort_by_key(|info| std::cmp::Reverse((info.severities.1, info.severities.0)));
    let width = found.iter().map(|info| info.code.len()).max().unwrap_or_default();
    let rows = found.iter().map(|info| {
        format!("  {:width$}  {:13}  {}\n", info.code.to_string(), severities(info), info.sentence)
    });
    let rows: String = rows.collect();
    Some(format!("{name} carries one of these reasons; outrider explain REASON says what to do.\n\n{rows}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_says_what_to_do_or_that_nothing_is_to_be_done() {
        for info in REASONS {
            let text = reason(info);
            assert!(text.contains(info.sentence), "{text}");
            assert!(text.contains("## What it means") && text.contains("\n- Severity: "), "{text}");
            let is_fault = info.severities.1 >= outrider_protocol::Severity::Warn;
            assert!(!is_fault || text.contains("## What to do"), "{text}");
        }
    }

    #[test]
    fn a_condition_shows_its_reasons_by_either_of_its_names() {
        let text = condition("etcdspace").unwrap();
        assert!(text.starts_with("EtcdSpace carries") && text.contains("EtcdNoSpace"), "{text}");
        assert!(!text.contains("EtcdQuorumLost"), "{text}");
        for info in REASONS {
            for name in conditions(runbook(info)) {
                assert!(condition(name).unwrap().contains(&info.code.to_string()), "{name}");
            }
        }
    }
}
