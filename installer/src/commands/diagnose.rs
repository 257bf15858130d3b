//! `outrider diagnose`: captured facts in, conditions out, offline.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use outrider_diagnosis::fleet::{Member, judge_cluster};
use outrider_protocol::{
    BalancerPaths, ClusterView, Condition, ConditionType, Fact, NodeConditions, NodeFacts, Status, Timestamp,
    TypeMeta,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::DiagnoseArgs;
use crate::clocks::Clocks;
use crate::exit::{self, Exit};
use crate::input::{self, Wanted};
use crate::output::{Format, Screen, document, text};
use crate::place;
use crate::show::conditions::Owned;
use crate::show::report::{self, Layout};
use crate::show::worst_first;

use super::get::Object;

/// The facts of ten thousand nodes.
const FACTS: Wanted = Wanted { max_bytes: 1 << 30, what: "captured facts" };

/// Verdicts over several nodes and the clusters they form (`kind: Diagnosis`).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Diagnosis {
    #[serde(flatten)]
    meta: TypeMeta,
    nodes: Vec<NodeConditions>,
    clusters: Vec<ClusterView>,
    /// What a reader has to know of the files' clocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<Note>,
}

/// What a reader has to know of the files of one cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    cluster: String,
    text: String,
}

/// Runs the command. Every file is read before anything is printed: half an answer would look like a whole one.
pub(crate) async fn run(args: DiagnoseArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let mut nodes: Vec<NodeFacts> = Vec::new();
    for file in &args.files {
        let (facts, passed_over) = read(file)?;
        for facts in facts {
            once(&nodes, &facts).with_context(|| file.display().to_string())?;
            nodes.push(facts);
        }
        passed_over.iter().for_each(|note| screen.note(note));
    }
    let verdicts: Vec<NodeConditions> = nodes.iter().map(outrider_diagnosis::diagnose).collect();
    if let [only] = verdicts.as_slice() {
        // One node's verdict is the very document its agent gave.
        let text = super::check::show(only, &args.output, screen)?;
        screen.write(&text)?;
        return Ok(Exit::Ok);
    }
    let mut notes = Vec::new();
    let clusters = clusters(&nodes, &verdicts, &mut notes);
    let diagnosis = Diagnosis { meta: TypeMeta::new("Diagnosis"), nodes: verdicts, clusters, notes };
    let text = match args.output {
        Format::Json => document::json(&diagnosis)?,
        Format::Yaml => document::yaml(&diagnosis)?,
        Format::Name => names(&diagnosis),
        format => table(&diagnosis, Layout::on(screen, matches!(format, Format::Wide))),
    };
    screen.write(&text)?;
    Ok(Exit::Ok)
}

/// Of one node one capture is judged: two of them would count as two nodes of their cluster, or one verdict as two.
fn once(before: &[NodeFacts], facts: &NodeFacts) -> anyhow::Result<()> {
    let of = |f: &NodeFacts| (f.node.name.clone(), f.node.cluster.clone(), f.node.uid.clone());
    let is_same =
        |other: &&NodeFacts| of(other) == of(facts) && (!facts.node.cluster.is_empty() || *other == facts);
    match before.iter().find(is_same) {
        None => Ok(()),
        Some(_) => {
            let cluster = match facts.node.cluster.as_str() {
                "" => String::new(),
                cluster => format!(" of cluster {cluster}"),
            };
            bail!("node {}{cluster} is given twice; give one capture of each node", facts.node.name)
        }
    }
}

fn names(diagnosis: &Diagnosis) -> String {
    let nodes = diagnosis.nodes.iter().map(super::check::names);
    let clusters = diagnosis.clusters.iter().flat_map(|cluster| {
        let name = |c| Owned::new(cluster.path(), false, c).path() + "\n";
        worst_first(&cluster.conditions).into_iter().map(name)
    });
    nodes.chain(clusters).collect()
}

fn table(diagnosis: &Diagnosis, layout: Layout) -> String {
    let clusters = diagnosis.clusters.iter().map(|cluster| {
        let members = diagnosis.nodes.iter().filter(|n| n.node.cluster == cluster.name);
        let summary = headline(cluster, members, layout);
        let notes = diagnosis.notes.iter().filter(|note| note.cluster == cluster.name);
        let note = |note: &Note| {
            text::wrap(&text::printable(&note.text), layout.width.unwrap_or(usize::MAX)).join("\n") + "\n"
        };
        let notes: String = notes.map(note).collect();
        let etcd = cluster.etcd.as_ref();
        // Ages are told as of the capture, for nothing is known of the time since.
        let etcd = etcd.map(|e| crate::show::etcd::tables(e, e.observed_at, layout)).unwrap_or_default();
        let tried = cluster.paths.iter().flat_map(|matrix| &matrix.rows).map(|row| row.at).max();
        let paths = crate::show::paths::tables(&cluster.paths, tried.unwrap_or_default(), layout);
        let rows = report::rows(&cluster.conditions, layout);
        format!("cluster {}: {summary}\n{notes}\n{rows}{etcd}{paths}", cluster.name)
    });
    let mut nodes: Vec<&NodeConditions> = diagnosis.nodes.iter().collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(exit::rank(exit::verdict(&node.conditions))));
    let nodes = nodes.into_iter().map(|node| report::node(node, layout));
    clusters.chain(nodes).collect::<Vec<_>>().join("\n")
}

/// What holds between the nodes, and which of them need a look: nobody reads on behind "all is well".
fn headline<'a>(
    cluster: &ClusterView,
    nodes: impl Iterator<Item = &'a NodeConditions> + Clone,
    layout: Layout,
) -> String {
    let summary = report::summary(&cluster.conditions, layout.colour);
    let troubled = nodes.clone().filter(|node| exit::verdict(&node.conditions) != Exit::Ok);
    let troubled: Vec<&str> = troubled.map(|node| node.node.name.as_str()).collect();
    if troubled.is_empty() {
        return summary;
    }
    let own = nodes.flat_map(|node| &node.conditions).filter(|c| exit::of_one(c) != Exit::Ok);
    let own: Vec<Condition> = own.cloned().collect();
    format!(
        "{}; on the nodes: {} ({})",
        summary.trim_end_matches("; all is well"),
        report::summary(&own, layout.colour),
        text::printable(&troubled.join(", "))
    )
}

/// The facts in `file`, one document or several one after the other, and in words what of them was passed over; `-` is
/// standard input.
fn read(file: &Path) -> anyhow::Result<(Vec<NodeFacts>, Vec<String>)> {
    let (name, bytes) = input::read(file, FACTS)?;
    let (nodes, fields) = parse(&bytes).with_context(|| name.clone())?;
    if nodes.is_empty() {
        bail!("{name} is empty; {INSTEAD}");
    }
    let shown: Vec<&str> = fields.iter().take(7).map(String::as_str).collect();
    let more = match fields.len() - shown.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let note = || {
        let fields = text::printable(&shown.join(", "));
        format!(
            "{name}: outrider {} does not know {fields}{more}, so that was not judged",
            env!("CARGO_PKG_VERSION")
        )
    };
    let notes = if fields.is_empty() { Vec::new() } else { vec![note()] };
    Ok((nodes, notes))
}

/// Facts are read as JSON only.
const INSTEAD: &str = "give what `outrider facts -o json` printed on a node";

fn parse(bytes: &[u8]) -> anyhow::Result<(Vec<NodeFacts>, Vec<String>)> {
    let mut documents = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let (mut nodes, mut passed_over) = (Vec::new(), Vec::new());
    let mut begin = 0;
    while let Some(document) = documents.next() {
        let value = match document {
            Ok(value) => value,
            // The parser's place counts from the start of the input, as a person's editor does.
            Err(e) => bail!("not JSON: {e}; {INSTEAD}"),
        };
        let end = documents.byte_offset();
        if let Ok(meta) = TypeMeta::deserialize(&value) {
            meta.expect("NodeFacts").map_err(|problem| anyhow::anyhow!("{problem}; {INSTEAD}"))?;
        } else {
            bail!("the document has no apiVersion and kind, so it is no NodeFacts; {INSTEAD}");
        }
        let facts = typed(bytes, begin, end).map_err(|problem| anyhow::anyhow!("{problem}; {INSTEAD}"))?;
        known_checks(&value, &facts)?;
        unread_fields("", &value, &document::value(&facts)?, &mut passed_over);
        nodes.push(facts);
        begin = end;
    }
    Ok((nodes, passed_over))
}

/// The paths of fields of `told` that were not `read`. What is empty either way is left out when it is written, and tells
/// nothing.
fn unread_fields(path: &str, told: &Value, read: &Value, out: &mut Vec<String>) {
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) => false,
    };
    match (told, read) {
        (Value::Object(told), Value::Object(read)) => {
            for (key, value) in told {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match read.get(key) {
                    Some(read) => unread_fields(&path, value, read, out),
                    None if !is_empty(value) => out.push(path),
                    None => {}
                }
            }
        }
        (Value::Array(told), Value::Array(read)) => {
            for (i, (told, read)) in told.iter().zip(read).enumerate() {
                unread_fields(&format!("{path}[{i}]"), told, read, out);
            }
        }
        _ => {}
    }
}

/// Nobody reads on behind "all is well" while facts were left out: a check that this version does not know is refused, be it
/// misspelt or of a newer agent.
fn known_checks(document: &Value, facts: &NodeFacts) -> anyhow::Result<()> {
    let known = document::value(&facts.checks)?;
    let told = document.get("checks").and_then(Value::as_object);
    let read = |(check, fact): &(&String, &Value)| fact.is_null() || known.get(check).is_some();
    match told.into_iter().flatten().find(|told| !read(told)) {
        None => Ok(()),
        Some((check, _)) => bail!(
            "checks.{check} is no check that outrider {} knows, and would not be judged: correct its name, judge facts of agent {} \
             with an outrider as new, or take it out",
            env!("CARGO_PKG_VERSION"),
            facts.agent_version
        ),
    }
}

/// The facts in `bytes[begin..end]`, read again from the text for an error that names line, column and field.
fn typed(bytes: &[u8], begin: usize, end: usize) -> Result<NodeFacts, String> {
    let document = &bytes[begin..end];
    let facts: NodeFacts = serde_json::from_slice(document).map_err(|e| {
        let field = place::path(document, place::offset(document, e.line(), e.column()));
        let before = &bytes[..begin];
        let lines = before.iter().filter(|b| **b == b'\n').count();
        // Documents may follow each other on one line.
        let on_the_line = match e.line() {
            1 => before.iter().rev().take_while(|b| **b != b'\n').count(),
            _ => 0,
        };
        let text = e.to_string();
        let what = text.split(" at line ").next().unwrap_or_default();
        let what = if field.is_empty() { what.to_owned() } else { format!("{field}: {what}") };
        format!("line {}, column {}: no NodeFacts: {what}", lines + e.line(), on_the_line + e.column())
    })?;
    if facts.node.name.is_empty() {
        return Err("node.name is empty, so nobody knows whose facts these are".to_owned());
    }
    match facts.thresholds.problem() {
        Some((field, problem)) => Err(format!("thresholds.{field} {problem}")),
        None => Ok(facts),
    }
}

/// The verdict over every cluster that two or more of the nodes name.
fn clusters(nodes: &[NodeFacts], verdicts: &[NodeConditions], notes: &mut Vec<Note>) -> Vec<ClusterView> {
    let mut by_cluster: BTreeMap<&str, Vec<(&NodeFacts, &NodeConditions)>> = BTreeMap::new();
    for (facts, verdict) in nodes.iter().zip(verdicts) {
        if !facts.node.cluster.is_empty() {
            by_cluster.entry(&facts.node.cluster).or_default().push((facts, verdict));
        }
    }
    let several = by_cluster.into_iter().filter(|(_, members)| members.len() > 1);
    several
        .map(|(name, members)| {
            let files: Vec<&NodeFacts> = members.iter().map(|(facts, _)| *facts).collect();
            let clocks = Clocks::of(&files);
            let told: Vec<(Vec<String>, Vec<BalancerPaths>)> = files
                .iter()
                .enumerate()
                .map(|(i, facts)| (addresses(facts), paths(facts, |at| clocks.corrected(i, at))))
                .collect();
            let judged: Vec<Member<'_>> = members
                .iter()
                .zip(&told)
                .zip(&clocks.captured)
                .map(|(((facts, verdict), (addresses, paths)), captured)| Member {
                    name: &facts.node.name,
                    ready: ready(verdict),
                    zone: "",
                    region: "",
                    etcd: facts.checks.etcd.as_ref(),
                    network: facts
                        .checks
                        .kubernetes
                        .as_ref()
                        .and_then(Fact::value)
                        .and_then(|k| k.network.value()),
                    received: Some(*captured),
                    heard: None,
                    retired: None,
                    addresses,
                    paths,
                })
                .collect();
            let now = clocks.now;
            notes.extend(clocks.notes.into_iter().map(|text| Note { cluster: name.to_owned(), text }));
            let latched = outrider_diagnosis::latch(&[], &judge_cluster(name, &judged, now), now);
            ClusterView {
                meta: TypeMeta::new("Cluster"),
                name: name.to_owned(),
                nodes: members.iter().map(|(facts, _)| facts.node.name.clone()).collect(),
                conditions: latched.conditions,
                etcd: outrider_diagnosis::fleet::picture(&judged, now),
                paths: outrider_diagnosis::fleet::matrices(&judged),
            }
        })
        .collect()
}

/// Addresses of its real interfaces.
fn addresses(facts: &NodeFacts) -> Vec<String> {
    let host = facts.checks.host.as_ref().and_then(Fact::value);
    let interfaces = host.and_then(|h| h.interfaces.value()).map_or(&[][..], Vec::as_slice);
    interfaces.iter().filter(|i| !i.is_virtual).flat_map(|i| i.addresses.iter().cloned()).collect()
}

/// What its one pass of tries at balancers came to, `by_our_clock`.
fn paths(facts: &NodeFacts, by_our_clock: impl Fn(Timestamp) -> Timestamp) -> Vec<BalancerPaths> {
    let balancers = facts.checks.load_balancer.as_ref().and_then(Fact::value);
    let tried = balancers.into_iter().flatten().map(outrider_diagnosis::fleet::paths_of);
    tried.map(|tried| BalancerPaths { at: by_our_clock(tried.at), ..tried }).collect()
}

/// A node whose facts are at hand was there to capture them, unless its own verdict says otherwise.
fn ready(verdict: &NodeConditions) -> Status {
    let own = verdict.conditions.iter().find(|c| c.condition_type == ConditionType::Ready);
    own.map_or(Status::True, |condition| condition.status)
}
