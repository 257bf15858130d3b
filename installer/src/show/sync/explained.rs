//! `outrider sync explain`: a row a field.

use outrider_protocol::{Timestamp, TypeMeta};
use outrider_sync::hosted::explain::{Explanation, Risk, Row, Rules};
use outrider_sync::hosted::object::Hosted;
use outrider_sync::hosted::simulate::scenario::show;
use serde::Serialize;
use serde_json::Value;

use super::{tone, value};
use crate::output::{Cell, Column, Table, Tone, text};
use crate::show::report::Layout;

/// `kind: SyncExplanation`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explained {
    #[serde(flatten)]
    meta: TypeMeta,
    cluster: String,
    provider: &'static str,
    origin: &'static str,
    rules: &'static str,
    last_refresh: Option<String>,
    next_refresh: Option<String>,
    gate: Gate,
    #[serde(skip_serializing_if = "Option::is_none")]
    sync_error: Option<String>,
    fields: Vec<Field>,
    #[serde(skip)]
    due: Option<i64>,
}

/// Whether the next refresh may write the configuration.
#[derive(Debug, Serialize)]
struct Gate {
    open: bool,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Field {
    path: String,
    desired: Value,
    upstream: Value,
    effective: Value,
    managed: bool,
    owner: &'static str,
    refresh: &'static str,
    push: &'static str,
    risk: &'static str,
    reason: String,
    #[serde(skip)]
    tone: Tone,
}

impl Explained {
    /// The answer as a document.
    pub(crate) fn new(hosted: &Hosted, answer: &Explanation, rules: Rules) -> Self {
        Self {
            meta: TypeMeta::new("SyncExplanation"),
            cluster: hosted.name.clone(),
            provider: hosted.provider.as_str(),
            origin: hosted.origin.as_str(),
            rules: rules.as_str(),
            last_refresh: answer.last_refresh.map(|at| show(at, false)),
            next_refresh: answer.next_refresh.map(|at| show(at, false)),
            gate: Gate { open: answer.gate.is_none(), reason: answer.gate.clone().unwrap_or_default() },
            sync_error: hosted.sync_error.clone(),
            fields: answer.rows.iter().map(Field::new).collect(),
            due: answer.next_refresh,
        }
    }

    /// `CLUSTER/FIELD`, one a line.
    pub(crate) fn names(&self) -> String {
        self.fields.iter().map(|field| format!("{}/{}\n", self.cluster, field.path)).collect()
    }
}

impl Field {
    fn new(row: &Row) -> Self {
        Self {
            path: row.path.clone(),
            desired: row.desired.clone(),
            upstream: row.upstream.clone(),
            effective: row.effective.clone(),
            managed: row.managed,
            owner: row.owner.as_str(),
            refresh: row.refresh.as_str(),
            push: row.push.as_str(),
            risk: row.risk.as_str(),
            reason: row.reason.clone(),
            tone: tone(row.risk),
        }
    }

    /// Worth its reason in a table that is not wide.
    fn stands_out(&self) -> bool {
        self.risk != Risk::Safe.as_str()
    }
}

/// The table of fields, with reasons below the rows that need them.
pub(crate) fn table(answer: &Explained, now: i64, layout: Layout) -> String {
    let columns = |wide: bool| {
        let mut columns = vec![
            Column::new("FIELD", |f: &Field| f.path.clone()),
            Column::new("DESIRED", |f: &Field| value(&f.path, &f.desired)),
            Column::new("UPSTREAM", |f: &Field| value(&f.path, &f.upstream)),
        ];
        if wide {
            columns.push(Column::new("EFFECTIVE", |f: &Field| value(&f.path, &f.effective)));
        }
        columns.extend([
            Column::new("MANAGED", |f: &Field| if f.managed { "yes" } else { "no" }),
            Column::new("OWNER", |f: &Field| f.owner),
            Column::new("REFRESH", |f: &Field| f.refresh),
            Column::new("PUSH", |f: &Field| f.push),
            Column::new("RISK", |f: &Field| Cell::toned(f.risk, f.tone)),
        ]);
        columns
    };
    let shown: Vec<&Field> =
        answer.fields.iter().filter(|f| layout.wide || f.managed || f.stands_out()).collect();
    let mut table = Table::new(columns(layout.wide), layout.wide);
    table.limit = layout.width;
    table.colour = layout.colour;
    let rendered = table.render(shown.iter().copied());
    let mut lines = rendered.lines();
    let mut out = head(answer, now);
    out.push('\n');
    out.extend(lines.next().map(|title| format!("{title}\n")));
    let room = layout.width.unwrap_or(120).saturating_sub(4);
    for (line, field) in lines.zip(&shown) {
        out.push_str(line);
        out.push('\n');
        if layout.wide || field.stands_out() {
            for part in text::wrap(&text::printable(&field.reason), room) {
                out.push_str(&format!("    {part}\n"));
            }
        }
    }
    let hidden = answer.fields.len() - shown.len();
    if hidden > 0 {
        let are = if hidden == 1 { "is" } else { "are" };
        out.push_str(&format!(
            "\n{} that the configuration does not manage {are} not shown; -o wide shows all.\n",
            text::count(hidden, "field")
        ));
    }
    out
}

fn head(answer: &Explained, now: i64) -> String {
    let mut out = format!(
        "{}: {}, {}; refresh and push as {} does them\n",
        text::printable(&answer.cluster),
        answer.provider,
        answer.origin,
        answer.rules
    );
    let window = match (&answer.last_refresh, &answer.next_refresh, answer.due) {
        (Some(last), Some(next), Some(due)) if due > now => {
            let left = Timestamp::from_seconds(due).since(Timestamp::from_seconds(now));
            format!("last refresh {last}, the next is due at {next}, in {}", text::age(left))
        }
        (Some(last), Some(next), Some(due)) => {
            let late = Timestamp::from_seconds(now).since(Timestamp::from_seconds(due));
            format!("last refresh {last}, the next was due at {next}, {} ago", text::age(late))
        }
        _ => "the object does not tell when it was last refreshed".to_owned(),
    };
    out.push_str(&format!("{window}\n"));
    if !answer.gate.open {
        out.push_str(&format!(
            "no refresh changes the configuration now: {}\n",
            text::printable(&answer.gate.reason)
        ));
    }
    if let Some(error) = &answer.sync_error {
        out.push_str(&format!("Rancher says: {}\n", text::printable(error)));
    }
    out
}
