//! `outrider sync plan`: what is written, and what is held.

use std::collections::BTreeMap;

use outrider_protocol::TypeMeta;
use outrider_sync::hosted::explain::Rules;
use outrider_sync::hosted::object::Hosted;
use outrider_sync::hosted::plan::{Action, Plan, Write};
use outrider_sync::hosted::rancher::push::{Does, Step};
use outrider_sync::hosted::{Document, known};
use serde::Serialize;
use serde_json::Value;

use super::short;
use crate::output::text;
use crate::show::report::Layout;

/// `kind: SyncPlan`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Planned {
    #[serde(flatten)]
    meta: TypeMeta,
    cluster: String,
    provider: &'static str,
    rules: &'static str,
    requeue: bool,
    writes: Vec<Planning>,
    held: Vec<Planning>,
    conflicts: Vec<Conflict>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Planning {
    path: String,
    action: &'static str,
    from: Value,
    to: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmable: Option<bool>,
    reason: String,
}

/// Edited on purpose while the cloud changed too.
#[derive(Debug, Serialize)]
struct Conflict {
    path: String,
    seen: Value,
    now: Value,
}

impl Planning {
    fn new(write: Write) -> Self {
        let action = match write.action {
            Action::Update => "update",
            Action::CreatePool => "create",
            Action::DeletePool => "delete",
        };
        let Write { path, from, to, .. } = write;
        Self { path, action, from, to, hold: None, confirmable: None, reason: String::new() }
    }
}

impl Planned {
    /// The plan by our rules.
    pub(crate) fn of_ours(hosted: &Hosted, plan: Plan) -> Self {
        let held = plan.held.into_iter().map(|held| Planning {
            hold: Some(format!("{:?}", held.hold)),
            confirmable: Some(held.hold.confirmable()),
            reason: held.reason,
            ..Planning::new(held.write)
        });
        Self {
            held: held.collect(),
            requeue: plan.requeue,
            writes: plan.writes.into_iter().map(Planning::new).collect(),
            conflicts: plan
                .conflicts
                .into_iter()
                .map(|(path, seen, now)| Conflict { path, seen, now })
                .collect(),
            ..Self::empty(hosted, Rules::Outrider)
        }
    }

    /// What Rancher's operators would send: they hold nothing, but leave some differences as they are.
    pub(crate) fn of_rancher(hosted: &Hosted, cloud: &Document, steps: BTreeMap<String, Step>) -> Self {
        let provider = hosted.provider;
        let side = |document: &Document, path: &str| match path.split_once('/') {
            None => known(document, path).cloned().unwrap_or(Value::Null),
            Some((list, name)) => {
                let pools = known(document, list).and_then(Value::as_array).into_iter().flatten();
                let named =
                    |pool: &&Value| pool.get(provider.pool_name()).and_then(Value::as_str) == Some(name);
                pools.into_iter().find(named).cloned().unwrap_or(Value::Null)
            }
        };
        let mut plan = Self::empty(hosted, Rules::Rancher);
        // In the order in which they would be sent.
        let place = |path: &str| {
            let field = path.split('/').next().unwrap_or_default();
            provider.fields().iter().position(|f| f.name == field)
        };
        let mut steps: Vec<(String, Step)> = steps.into_iter().collect();
        steps.sort_by_key(|(path, _)| place(path));
        for (path, step) in steps {
            let (from, to) = (side(cloud, &path), side(&hosted.spec, &path));
            let action = match step.does {
                Does::Update => "update",
                Does::Create => "create",
                Does::Delete => "delete",
                Does::Fail => "fail",
                Does::Nothing => "leave",
            };
            let planning =
                Planning { path, action, from, to, hold: None, confirmable: None, reason: step.why };
            match step.does {
                Does::Nothing | Does::Fail => plan.held.push(planning),
                _ => plan.writes.push(planning),
            }
        }
        plan
    }

    fn empty(hosted: &Hosted, rules: Rules) -> Self {
        Self {
            meta: TypeMeta::new("SyncPlan"),
            cluster: hosted.name.clone(),
            provider: hosted.provider.as_str(),
            rules: rules.as_str(),
            requeue: false,
            writes: Vec::new(),
            held: Vec::new(),
            conflicts: Vec::new(),
        }
    }

    /// `CLUSTER/FIELD` of what would be written, one a line.
    pub(crate) fn names(&self) -> String {
        self.writes.iter().map(|write| format!("{}/{}\n", self.cluster, write.path)).collect()
    }
}

/// The plan for people: what is written, then what is held and why.
pub(crate) fn table(plan: &Planned, layout: Layout) -> String {
    let mut out = format!(
        "{}: {}, a push as {} does it; nothing was sent\n",
        text::printable(&plan.cluster),
        plan.provider,
        plan.rules
    );
    if plan.requeue {
        out.push_str("An update is under way: nothing is sent before it is done.\n");
        return out;
    }
    let room = layout.width.unwrap_or(120).saturating_sub(8);
    let mut section = |title: &str, list: &[Planning]| {
        if list.is_empty() {
            return;
        }
        out.push_str(&format!("\n{title}\n"));
        for planning in list {
            let change = match planning.action {
                "create" | "delete" => String::new(),
                _ => format!("  {} -> {}", short(&planning.from), short(&planning.to)),
            };
            out.push_str(&format!(
                "    {:<7} {}{change}\n",
                planning.action,
                text::printable(&planning.path)
            ));
            let hint = match planning.confirmable {
                Some(true) => format!("; --confirm {} plans it", planning.path),
                _ => String::new(),
            };
            for line in text::wrap(&text::printable(&format!("{}{hint}", planning.reason)), room) {
                if !line.is_empty() {
                    out.push_str(&format!("            {line}\n"));
                }
            }
        }
    };
    section("Would be sent, in this order:", &plan.writes);
    section(if plan.rules == "rancher" { "Differs, and is not sent:" } else { "Held:" }, &plan.held);
    if !plan.conflicts.is_empty() {
        out.push_str("\nEdited on purpose while the cloud changed too:\n");
        for conflict in &plan.conflicts {
            let path = &conflict.path;
            out.push_str(&format!(
                "    {path}: was {} when it was edited, is {} now\n",
                short(&conflict.seen),
                short(&conflict.now)
            ));
        }
    }
    if plan.writes.is_empty() && plan.held.is_empty() {
        out.push_str(
            "\nNothing to send: what is managed is as it is in the cloud, as far as the cloud tells.\n",
        );
    }
    out
}
