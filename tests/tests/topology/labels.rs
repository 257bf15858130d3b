//! Labels that are written, taken away, left to others.

use std::time::Duration;

use anyhow::{Result, ensure};
use outrider_tests::table::Table;
use serde_json::{Value, json};

use crate::bed::{BETA, Bed, REGION, ZONE};

const IN_SYNC: &str = "TopologyInSync";

pub(crate) fn run(bed: &mut Bed, table: &mut Table) -> Result<()> {
    bed.run("mode = \"auto\"")?;
    let took = bed.until_label(ZONE, Some("010"))?;
    bed.until_label(REGION, Some("r1"))?;
    ensure!(bed.has(BETA)?.is_none(), "the beta label was made");
    bed.until(IN_SYNC, "TopologyMatches", &["010", "r1"])?;
    ensure!(bed.writes()? == 1, "{} writes", bed.writes()?);
    let owned = bed.node()?["metadata"]["managedFields"].as_array().into_iter().flatten().any(|entry| {
        entry["manager"] == "outrider"
            && entry["operation"] == "Apply"
            && !entry["fieldsV1"]["f:metadata"]["f:labels"][format!("f:{ZONE}")].is_null()
    });
    ensure!(owned, "not ours: {}", bed.node()?["metadata"]["managedFields"]);
    table.timed(
        "a Node without labels",
        "a machine with region r1 and zone 010",
        "both written at once, as text",
        took,
        None,
    );

    nothing_changes(bed, table)?;

    bed.annotate(ZONE, json!("no"))?;
    let took = bed.until_label(ZONE, Some("no"))?;
    table.timed("the machine moved", "its annotation changes to no", "the label follows", took, None);

    bed.annotate(ZONE, Value::Null)?;
    let took = bed.until_label(ZONE, None)?;
    ensure!(bed.has(REGION)?.as_deref() == Some("r1"), "the region went with the zone");
    table.timed(
        "the host loses its label",
        "the annotation is taken away",
        "ours is taken away, the region stays",
        took,
        None,
    );
    bed.annotate(ZONE, json!("z1"))?;
    bed.until_label(ZONE, Some("z1"))?;

    second_writer(bed, table)?;
    beta(bed, table)?;
    fight(bed, table)
}

/// Watches end and begin anew, and other labels change: none of that is written about.
fn nothing_changes(bed: &Bed, table: &mut Table) -> Result<()> {
    let before = bed.writes()?;
    for n in 0..10 {
        bed.label("example.com/other", json!(n.to_string()))?;
        std::thread::sleep(Duration::from_millis(300));
    }
    ensure!(bed.writes()? == before, "{} writes", bed.writes()?);
    table.row("nothing of ours changes", "another label, ten times", "0 writes");
    Ok(())
}

fn second_writer(bed: &mut Bed, table: &mut Table) -> Result<()> {
    bed.apply_as("placement", json!({ZONE: "mine"}))?;
    let (raised, _) = bed.until(IN_SYNC, "TopologyOwnedByOther", &["placement", "mine", "z1"])?;
    ensure!(bed.has(ZONE)?.as_deref() == Some("mine"), "it was overwritten");
    bed.run("mode = \"auto\"\ntake_over = [\"placement\"]")?;
    let cleared = bed.until_label(ZONE, Some("z1"))?;
    bed.until(IN_SYNC, "TopologyMatches", &["z1"])?;
    let made = "server-side apply by the manager placement; then take_over names it";
    table.timed(
        "a second writer",
        made,
        "TopologyOwnedByOther names it, nothing is overwritten",
        raised,
        Some(cleared),
    );
    Ok(())
}

fn beta(bed: &mut Bed, table: &mut Table) -> Result<()> {
    bed.label(BETA, json!("old"))?;
    let (raised, _) = bed.until(IN_SYNC, "TopologyOwnedByOther", &["kubectl-label", "old"])?;
    bed.run("mode = \"auto\"\ntake_over = [\"placement\", \"kubectl-label\"]")?;
    let cleared = bed.until_label(BETA, Some("z1"))?;
    bed.annotate(ZONE, json!("z2"))?;
    bed.until_label(BETA, Some("z2"))?;
    ensure!(bed.has(ZONE)?.as_deref() == Some("z2"), "only one of the two was written");
    let made = "a beta label of another value, set by hand; then take_over names who did";
    table.timed(
        "the beta label is there",
        made,
        "both labels are written in one request",
        raised,
        Some(cleared),
    );
    Ok(())
}

fn fight(bed: &mut Bed, table: &mut Table) -> Result<()> {
    for round in 0..2 {
        bed.apply_as("placement", json!({ZONE: "theirs"}))?;
        if round == 0 {
            bed.until_label(ZONE, Some("z2"))?;
        }
    }
    let (raised, _) = bed.until(IN_SYNC, "TopologyFight", &["2 times", "placement"])?;
    let before = bed.writes()?;
    std::thread::sleep(Duration::from_secs(3));
    ensure!(bed.writes()? == before && bed.has(ZONE)?.as_deref() == Some("theirs"), "it was written on");
    bed.apply_as("placement", json!({ZONE: "z2"}))?;
    let (cleared, _) = bed.until(IN_SYNC, "TopologyMatches", &["z2"])?;
    let made = "the manager that may be taken over sets its value again, twice; then ours";
    table.timed("two that write in turns", made, "TopologyFight, our writes stop", raised, Some(cleared));
    Ok(())
}
