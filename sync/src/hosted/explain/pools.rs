//! Rows of a list of pools: one for the list, one for each pool that either side has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Context, Gate, Owner, Push, Refresh, Risk, Row, Rules, Sides, invalid};
use crate::hosted::compare::{pool_differences, pools_by_name};
use crate::hosted::fields::Field;
use crate::hosted::object::Origin;
use crate::hosted::{Provider, effective, known};

type Named<'a> = BTreeMap<&'a str, &'a Value>;

impl Context<'_> {
    /// The rows of the list `field`; none where neither side has one.
    pub(super) fn pools(&self, field: &Field) -> Vec<Row> {
        let hosted = self.question.hosted;
        let ours = known(&hosted.spec, field.name);
        let cloud = self.cloud.and_then(|c| known(c, field.name));
        if ours.is_none() && cloud.is_none() {
            return Vec::new();
        }
        let sides =
            Sides { ours, applied: None, cloud, agree: ours == cloud, unedited: false, unmoved: false };
        let list = self.row(field.name, &sides);
        if let Some(misfit) = self.misfits.iter().find(|m| m.field() == field.name) {
            return vec![invalid(list, format!("{} {}", misfit.path, misfit.reason))];
        }
        let applied = hosted.applied.as_ref().map(|a| known(a, field.name));
        let named = |list| optional_by_name(hosted.provider, list);
        let (mine, theirs, before) = match (named(ours), named(cloud), named(applied.flatten())) {
            (Ok(mine), Ok(theirs), Ok(before)) => (mine, theirs, before),
            (Err(reason), ..) => return vec![invalid(list, reason)],
            (_, Err(reason), _) => return vec![invalid(list, format!("in the cloud: {reason}"))],
            (.., Err(reason)) => return vec![invalid(list, format!("as last applied: {reason}"))],
        };
        let pools = self.pool_rows(field, [&mine, &theirs, &before], applied.is_some());
        let mut rows = vec![self.list_row(list, &mine, &theirs, &pools)];
        rows.extend(pools);
        rows
    }

    fn pool_rows(
        &self,
        field: &Field,
        [mine, theirs, before]: [&Option<Named<'_>>; 3],
        applied_known: bool,
    ) -> Vec<Row> {
        let provider = self.question.hosted.provider;
        let names: BTreeSet<&str> =
            [mine, theirs].into_iter().flatten().flat_map(|pools| pools.keys().copied()).collect();
        let side = |pools: &Option<Named<'_>>, name: &str| {
            pools.as_ref().and_then(|p| p.get(name).copied()).cloned()
        };
        names
            .into_iter()
            .map(|name| {
                let (ours, cloud, old) = (side(mine, name), side(theirs, name), side(before, name));
                let sides = Sides {
                    ours: ours.as_ref(),
                    applied: applied_known.then_some(old.as_ref()),
                    cloud: cloud.as_ref(),
                    agree: alike(provider, ours.as_ref(), cloud.as_ref()),
                    unedited: applied_known && alike(provider, ours.as_ref(), old.as_ref()),
                    unmoved: applied_known && alike(provider, old.as_ref(), cloud.as_ref()),
                };
                self.pool_row(field, name, &sides, mine.is_some())
            })
            .collect()
    }

    fn pool_row(&self, field: &Field, name: &str, sides: &Sides<'_>, managed: bool) -> Row {
        let mut row = self.row(&format!("{}/{name}", field.name), sides);
        row.managed = managed;
        row.effective = match (sides.ours, sides.cloud) {
            (Some(Value::Object(ours)), Some(Value::Object(cloud))) => Value::Object(effective(ours, cloud)),
            // A managed list decides which pools there are.
            (None, Some(_)) if managed => Value::Null,
            _ => row.effective,
        };
        row.refresh = self.pool_refresh(sides, managed);
        row.push = self.push_of(&row.path, managed);
        (row.owner, row.risk) = match managed {
            false => (Owner::Cloud, Risk::Safe),
            true if self.cloud.is_none() || known_list(self, field).is_none() => {
                (Owner::Unknown, Risk::Unknown)
            }
            true => self.judge_change(sides),
        };
        row.reason = self.reason(&row, sides);
        row
    }

    fn pool_refresh(&self, sides: &Sides<'_>, managed: bool) -> Refresh {
        if !managed {
            return Refresh::Nothing;
        }
        if self.cloud.is_none() {
            return Refresh::Unknown;
        }
        match &self.gate {
            Gate::Unknown(_) => Refresh::Unknown,
            _ if sides.agree => Refresh::Nothing,
            Gate::Closed(_) => Refresh::Wait,
            Gate::Open
                if self.question.rules == Rules::Rancher
                    && self.question.hosted.origin == Origin::Imported =>
            {
                Refresh::Nothing
            }
            Gate::Open => Refresh::Adopt,
        }
    }

    /// The list as a whole is as its worst pool is.
    fn list_row(
        &self,
        mut row: Row,
        mine: &Option<Named<'_>>,
        theirs: &Option<Named<'_>>,
        pools: &[Row],
    ) -> Row {
        row.managed = mine.is_some();
        row.effective = match (mine, theirs) {
            (Some(_), _) => row.desired.clone(),
            _ => row.upstream.clone(),
        };
        let Some(mine) = mine else {
            (row.owner, row.refresh, row.push, row.risk) =
                (Owner::Cloud, Refresh::Nothing, Push::Nothing, Risk::Safe);
            row.reason =
                "null in the configuration: every pool is the cloud's, none is adopted, changed or deleted"
                    .to_owned();
            return row;
        };
        let Some(theirs) = theirs else {
            row.refresh = if self.cloud.is_some() { Refresh::Keep } else { Refresh::Unknown };
            row.push = if self.cloud.is_some() { Push::Nothing } else { Push::Unknown };
            row.reason = "the cloud's pools are not told; the configuration keeps its list".to_owned();
            return row;
        };
        let worst = pools.iter().max_by_key(|pool| pool.risk);
        row.risk = worst.map_or(Risk::Safe, |pool| pool.risk);
        row.owner = worst.map_or(Owner::Rancher, |pool| pool.owner);
        let any = |refresh| pools.iter().any(|pool| pool.refresh == refresh);
        row.refresh = [Refresh::Unknown, Refresh::Wait, Refresh::Adopt]
            .into_iter()
            .find(|refresh| any(*refresh))
            .unwrap_or(Refresh::Nothing);
        let any = |push| pools.iter().any(|pool| pool.push == push);
        row.push = [Push::Unknown, Push::Fail, Push::Hold, Push::Delete, Push::Create, Push::Update]
            .into_iter()
            .find(|push| any(*push))
            .unwrap_or(Push::Nothing);
        row.reason = list_reason(mine, theirs, pools);
        row
    }
}

/// The cloud's list itself, where it is told.
fn known_list<'a>(context: &'a Context<'_>, field: &Field) -> Option<&'a Value> {
    context.cloud.and_then(|c| known(c, field.name))
}

fn list_reason(mine: &Named<'_>, theirs: &Named<'_>, pools: &[Row]) -> String {
    let only = |a: &Named<'_>, b: &Named<'_>| -> Vec<String> {
        a.keys().filter(|name| !b.contains_key(*name)).map(|name| (*name).to_owned()).collect()
    };
    let mut parts = vec![format!("{} desired, {} in the cloud", mine.len(), theirs.len())];
    let (here, there) = (only(mine, theirs), only(theirs, mine));
    if !here.is_empty() {
        parts.push(format!("only desired: {}", here.join(", ")));
    }
    if !there.is_empty() {
        parts.push(format!("only in the cloud: {}", there.join(", ")));
    }
    let differ = pools
        .iter()
        .filter(|p| !p.desired.is_null() && !p.upstream.is_null() && p.risk != Risk::Safe)
        .count();
    if differ > 0 {
        parts.push(format!("{differ} differ"));
    }
    parts.join("; ")
}

fn optional_by_name(provider: Provider, list: Option<&Value>) -> Result<Option<Named<'_>>, String> {
    list.map(|list| by_name(provider, list)).transpose()
}

/// The pools as they stand, by name; an error where a name is missing or stands twice.
fn by_name(provider: Provider, list: &Value) -> Result<Named<'_>, String> {
    pools_by_name(provider, list)?;
    let named = |item| Some((Value::get(item, provider.pool_name())?.as_str()?, item));
    Ok(list.as_array().into_iter().flatten().filter_map(named).collect())
}

/// Whether two pools mean the same, from the first one's point of view: what it leaves null is not compared.
fn alike(provider: Provider, a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a.and_then(Value::as_object), b.and_then(Value::as_object)) {
        (Some(a), Some(b)) => pool_differences(provider, a, b).is_empty(),
        (None, None) => true,
        _ => false,
    }
}
