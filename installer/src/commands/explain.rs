//! `outrider explain`: what a reason code means, and where its runbook is.

use anyhow::bail;
use outrider_protocol::{REASONS, ReasonInfo};

use crate::cli::ExplainArgs;
use crate::exit::Exit;
use crate::output::{Screen, UsageError};

/// Runs the command; the registry is part of the program, so no coordinator is asked.
pub(crate) fn run(args: &ExplainArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let wanted = &args.reason;
    let Some(info) = REASONS.iter().find(|info| info.code.eq_ignore_ascii_case(wanted)) else {
        bail!(UsageError(format!(
            "there is no reason {wanted:?}; `outrider get conditions` and `outrider check` show them, docs/runbooks/README.md \
             lists all"
        )));
    };
    screen.write(&text(info))?;
    Ok(Exit::Ok)
}

fn text(info: &ReasonInfo) -> String {
    let severities = match info.severities {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    format!("{}: {}\nSeverity  {severities}\nRunbook   {}\n", info.code, info.sentence, info.runbook())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_leads_to_its_runbook() {
        for info in REASONS {
            let text = text(info);
            assert!(
                text.contains(info.sentence) && text.ends_with(&format!("/{}.md\n", info.code)),
                "{text}"
            );
        }
    }
}
