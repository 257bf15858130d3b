//! Why a field is as it is: a row a field and a row a pool, with what the next refresh and the next push would do.
//!
//! From one object only that is claimed which the object proves. Who wrote a value last is known where S, A and the
//! cloud's view tell it; until when it is at risk is known where the object says when it was last refreshed. Everything
//! else is `Unknown`, with what would be needed to know (`facts/hosted-sync.md`; rancher-docs `sync-clusters.md`).

mod answer;
mod pools;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compare::{equal, same, same_document};
use super::fields::{Equality, Field, Trait, shape};
use super::object::{Hosted, Origin, Progress, Source};
use super::plan::{self, Hold, Plan, plan};
use super::rancher::{self, push::Does, push::Step};
use super::{Document, effective, known};

pub use answer::{Explanation, Owner, Push, Refresh, Risk, Row};

/// Seconds between two refreshes where Rancher's settings `eks-refresh`, `aks-refresh` and `gke-refresh` say nothing.
pub const DEFAULT_INTERVAL_SECONDS: i64 = 300;

/// Whose rules the columns `refresh` and `push` follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Ours.
    Outrider,
    /// Rancher's, as its code does it.
    Rancher,
}

impl Rules {
    /// The word in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Rules::Outrider => "outrider",
            Rules::Rancher => "rancher",
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The cluster.
    pub hosted: &'a Hosted,
    /// The cloud's view as it is now; without it the object's own upstreamSpec is used.
    pub live: Option<&'a Document>,
    /// Unix seconds.
    pub now: i64,
    /// Seconds between two refreshes.
    pub interval: i64,
    /// Whose rules.
    pub rules: Rules,
}

/// Answers.
pub fn explain(question: &Question<'_>) -> Explanation {
    let context = Context::new(question);
    let provider = question.hosted.provider;
    let mut rows = Vec::new();
    for field in provider.fields() {
        match field.equality == Equality::Pools {
            true => rows.extend(context.pools(field)),
            false => rows.extend(context.field(field)),
        }
    }
    rows.extend(context.unknown_fields());
    Explanation {
        last_refresh: question.hosted.last_refresh,
        next_refresh: context.next_refresh,
        gate: context.gate.closed().map(str::to_owned),
        rows,
    }
}

/// What a push would send by our rules, from one object: the plan behind `sync plan`.
pub fn plan_of(question: &Question<'_>, confirmed: &BTreeSet<String>) -> Plan {
    let hosted = question.hosted;
    let empty = Document::new();
    let cloud = question.live.or(hosted.upstream.as_ref()).unwrap_or(&empty);
    plan(&plan::Input {
        provider: hosted.provider,
        spec: &hosted.spec,
        live: cloud,
        in_progress: matches!(hosted.progress, Progress::Updating(_)) && !not_yet_applied(hosted),
        edited: &edited(hosted, cloud),
        base: hosted.applied.as_ref(),
        confirmed,
        last_push: None,
    })
}

/// S was edited and is not yet applied; false where A is not known.
fn not_yet_applied(hosted: &Hosted) -> bool {
    hosted.applied.as_ref().is_some_and(|applied| !same_document(hosted.provider, &hosted.spec, applied))
}

/// Fields edited since they were last applied, each with the value that was in force before.
fn edited(hosted: &Hosted, cloud: &Document) -> BTreeMap<String, Value> {
    let Some(applied) = &hosted.applied else { return BTreeMap::new() };
    let changed =
        hosted.provider.fields().iter().filter(|f| !same(hosted.provider, f, &hosted.spec, applied));
    let seen = |field: &Field| known(applied, field.name).or_else(|| known(cloud, field.name));
    changed.filter_map(|f| Some((f.name.to_owned(), seen(f)?.clone()))).collect()
}

/// Whether a refresh may write S.
enum Gate {
    Open,
    /// S was edited and not yet applied, or an update is under way.
    Closed(String),
    /// A is not known.
    Unknown(String),
}

impl Gate {
    fn closed(&self) -> Option<&str> {
        match self {
            Gate::Open => None,
            Gate::Closed(why) | Gate::Unknown(why) => Some(why),
        }
    }
}

fn gate(question: &Question<'_>) -> Gate {
    let hosted = question.hosted;
    match (&hosted.applied, hosted.source) {
        (None, Source::ClusterConfig) => {
            return Gate::Unknown(
                "this object does not hold what was applied; give clusters.management.cattle.io".to_owned(),
            );
        }
        (None, Source::Cluster) => return Gate::Closed("the configuration was never applied".to_owned()),
        (Some(_), _) if not_yet_applied(hosted) => {
            return Gate::Closed("the configuration was edited and is not yet applied".to_owned());
        }
        (Some(_), _) => {}
    }
    match (&hosted.progress, question.rules) {
        // Rancher's refresh does not ask whether an update is under way.
        (Progress::Updating(why), Rules::Outrider) => Gate::Closed(format!("an update is under way: {why}")),
        _ => Gate::Open,
    }
}

/// What all rows have in common.
struct Context<'a> {
    question: &'a Question<'a>,
    cloud: Option<&'a Document>,
    gate: Gate,
    next_refresh: Option<i64>,
    plan: Plan,
    /// S after Rancher's next refresh.
    rancher_refresh: Document,
    rancher_push: BTreeMap<String, Step>,
    misfits: Vec<shape::Misfit>,
}

/// One value on all sides. `applied` is `None` where A is not known at all.
struct Sides<'a> {
    ours: Option<&'a Value>,
    applied: Option<Option<&'a Value>>,
    cloud: Option<&'a Value>,
    /// S and the cloud mean the same.
    agree: bool,
    /// S and A mean the same.
    unedited: bool,
    /// The cloud and A mean the same.
    unmoved: bool,
}

impl<'a> Context<'a> {
    fn new(question: &'a Question<'a>) -> Self {
        let hosted = question.hosted;
        let cloud = question.live.or(hosted.upstream.as_ref());
        let empty = Document::new();
        let seen = cloud.unwrap_or(&empty);
        let provider = hosted.provider;
        Self {
            question,
            cloud,
            gate: gate(question),
            next_refresh: hosted.last_refresh.map(|last| last.saturating_add(question.interval)),
            plan: plan_of(question, &BTreeSet::new()),
            rancher_refresh: rancher::refresh(&hosted.spec, hosted.applied.as_ref(), seen),
            rancher_push: rancher::push::push(provider, hosted.origin, &hosted.spec, seen),
            misfits: [Some(&hosted.spec), cloud]
                .into_iter()
                .flatten()
                .flat_map(|d| shape::misfits(provider, d))
                .collect(),
        }
    }

    /// The row of a field that is no list of pools; none where neither side has it.
    fn field(&self, field: &Field) -> Option<Row> {
        let hosted = self.question.hosted;
        let provider = hosted.provider;
        let ours = known(&hosted.spec, field.name);
        let cloud = self.cloud.and_then(|c| known(c, field.name));
        if ours.is_none() && cloud.is_none() {
            return None;
        }
        let applied = hosted.applied.as_ref().map(|a| known(a, field.name));
        let alike = |a: Option<&Value>, b: Option<&Value>| match (a, b) {
            (Some(a), Some(b)) => equal(provider, field, a, b),
            (None, None) => true,
            (Some(one), None) | (None, Some(one)) => {
                field.special == Trait::AbsentIsFalse && one == &Value::Bool(false)
            }
        };
        let sides = Sides {
            ours,
            applied,
            cloud,
            agree: alike(ours, cloud),
            unedited: applied.is_some_and(|a| alike(ours, a)),
            unmoved: applied.is_some_and(|a| alike(a, cloud)),
        };
        let mut row = self.row(field.name, &sides);
        if field.special == Trait::Identity {
            row.refresh = Refresh::Nothing;
            row.push = Push::Nothing;
            row.owner = Owner::Rancher;
            row.risk = Risk::Safe;
            row.reason = "names the cluster or how to reach it; it is never synced".to_owned();
            return Some(row);
        }
        if let Some(misfit) = self.misfits.iter().find(|m| m.field() == field.name) {
            return Some(invalid(row, format!("{} {}", misfit.path, misfit.reason)));
        }
        row.refresh = self.refresh_of(field, &sides);
        row.push = self.push_of(field.name, sides.ours.is_some());
        (row.owner, row.risk) = self.judge(field, &sides, row.refresh, row.push);
        row.reason = self.reason(&row, &sides);
        Some(row)
    }

    fn row(&self, path: &str, sides: &Sides<'_>) -> Row {
        let of = |value: Option<&Value>| value.cloned().unwrap_or(Value::Null);
        Row {
            path: path.to_owned(),
            desired: of(sides.ours),
            upstream: of(sides.cloud),
            effective: of(sides.ours.or(sides.cloud)),
            managed: sides.ours.is_some(),
            owner: Owner::Unknown,
            refresh: Refresh::Unknown,
            push: Push::Unknown,
            risk: Risk::Unknown,
            reason: String::new(),
        }
    }

    fn refresh_of(&self, field: &Field, sides: &Sides<'_>) -> Refresh {
        let Some(ours) = sides.ours else { return Refresh::Nothing };
        if self.cloud.is_none() {
            return Refresh::Unknown;
        }
        match &self.gate {
            Gate::Unknown(_) => return Refresh::Unknown,
            Gate::Closed(_) if sides.agree => return Refresh::Nothing,
            Gate::Closed(_) => return Refresh::Wait,
            Gate::Open => {}
        }
        match self.question.rules {
            Rules::Outrider => match sides.cloud {
                _ if sides.agree => Refresh::Nothing,
                None => Refresh::Keep,
                Some(_) => Refresh::Adopt,
            },
            Rules::Rancher => match self.rancher_refresh.get(field.name) {
                None | Some(Value::Null) => Refresh::Unmanage,
                Some(after) if after == ours => match sides.cloud {
                    None if !sides.agree => Refresh::Keep,
                    _ => Refresh::Nothing,
                },
                Some(_) if self.question.hosted.origin == Origin::Imported && !sides.agree => {
                    Refresh::Nothing
                }
                Some(_) if sides.agree => Refresh::Rewrite,
                Some(_) => Refresh::Adopt,
            },
        }
    }

    fn push_of(&self, path: &str, managed: bool) -> Push {
        if !managed {
            return Push::Nothing;
        }
        if self.cloud.is_none() {
            return Push::Unknown;
        }
        if self.question.rules == Rules::Rancher {
            return match self.rancher_push.get(path).map(|step| step.does) {
                None | Some(Does::Nothing) => Push::Nothing,
                Some(Does::Update) => Push::Update,
                Some(Does::Create) => Push::Create,
                Some(Does::Delete) => Push::Delete,
                Some(Does::Fail) => Push::Fail,
            };
        }
        if self.plan.held.iter().any(|held| held.write.path == path) {
            return Push::Hold;
        }
        match self.plan.writes.iter().find(|write| write.path == path).map(|write| write.action) {
            None => Push::Nothing,
            Some(plan::Action::Update) => Push::Update,
            Some(plan::Action::CreatePool) => Push::Create,
            Some(plan::Action::DeletePool) => Push::Delete,
        }
    }

    /// Whose value is in force, and what becomes of a change.
    fn judge(&self, field: &Field, sides: &Sides<'_>, refresh: Refresh, push: Push) -> (Owner, Risk) {
        if sides.ours.is_none() {
            return (Owner::Cloud, Risk::Safe);
        }
        if self.cloud.is_none() {
            return (Owner::Unknown, Risk::Unknown);
        }
        if sides.cloud.is_none() && !sides.agree {
            let risk = if refresh == Refresh::Unmanage { Risk::AtRisk } else { Risk::Unknown };
            return (Owner::Rancher, risk);
        }
        if field.equality == Equality::Version
            && sides.unedited
            && !self.version_can_be_lost(push)
            && !sides.agree
        {
            return match self.gate {
                Gate::Open if self.question.hosted.origin == Origin::Created => (Owner::Cloud, Risk::Adopted),
                _ => (Owner::Cloud, Risk::Safe),
            };
        }
        self.judge_change(sides)
    }

    /// A version that is ahead in the cloud is lost only where a push would send the lower one.
    fn version_can_be_lost(&self, push: Push) -> bool {
        let lower = self
            .plan
            .held
            .iter()
            .any(|h| h.hold == Hold::VersionLower && h.write.path == "kubernetesVersion");
        !lower || push == Push::Update
    }

    fn judge_change(&self, sides: &Sides<'_>) -> (Owner, Risk) {
        let hosted = self.question.hosted;
        if sides.agree {
            return match self.next_refresh.is_some() || self.question.live.is_some() {
                true => (Owner::Rancher, Risk::Safe),
                false => (Owner::Unknown, Risk::Unknown),
            };
        }
        if sides.applied.is_none() {
            return (Owner::Unknown, Risk::Unknown);
        }
        if !sides.unedited {
            return match (sides.unmoved, self.question.rules) {
                (false, _) => (Owner::Rancher, Risk::Superseded),
                (true, Rules::Rancher) => (Owner::Rancher, Risk::AtRisk),
                (true, Rules::Outrider) => (Owner::Rancher, Risk::Safe),
            };
        }
        if hosted.origin == Origin::Imported {
            return (Owner::Rancher, Risk::RolledBack);
        }
        match (&self.gate, self.question.rules) {
            (Gate::Closed(_), Rules::Rancher) => (Owner::Cloud, Risk::Lost),
            (Gate::Closed(_), Rules::Outrider) if not_yet_applied(hosted) => (Owner::Cloud, Risk::WouldLose),
            (Gate::Unknown(_), _) => (Owner::Unknown, Risk::Unknown),
            _ => match self.next_refresh {
                Some(_) => (Owner::Cloud, Risk::AtRisk),
                None => (Owner::Unknown, Risk::Unknown),
            },
        }
    }

    /// Fields of other versions: shown, never touched.
    fn unknown_fields(&self) -> Vec<Row> {
        let hosted = self.question.hosted;
        let empty = Document::new();
        let all = effective(&hosted.spec, self.cloud.unwrap_or(&empty));
        let strange = all.keys().filter(|name| hosted.provider.field(name).is_none());
        strange
            .filter_map(|name| {
                let (ours, cloud) = (known(&hosted.spec, name), self.cloud.and_then(|c| known(c, name)));
                ours.or(cloud)?;
                let sides = Sides {
                    ours,
                    applied: None,
                    cloud,
                    agree: ours == cloud,
                    unedited: false,
                    unmoved: false,
                };
                let mut row = self.row(name, &sides);
                row.reason = "this version does not know the field; it is left as it is".to_owned();
                (row.refresh, row.push) = match self.question.rules {
                    Rules::Outrider => (Refresh::Nothing, Push::Nothing),
                    Rules::Rancher if row.managed => (Refresh::Unknown, Push::Unknown),
                    Rules::Rancher => (Refresh::Nothing, Push::Nothing),
                };
                Some(row)
            })
            .collect()
    }
}

fn invalid(mut row: Row, reason: String) -> Row {
    row.refresh = Refresh::Nothing;
    row.push = if row.managed { Push::Hold } else { Push::Nothing };
    row.reason = format!("{reason}; nothing is done with it");
    row
}

#[cfg(test)]
mod tests;
