//! Node pools: how many machines each has, how many it should have, and which went.
//!
//! What went is kept for an hour, a hundred machines a pool at most, and over restarts: a pool whose machines are made and
//! deleted for ever is told by their succession alone.

use std::collections::{BTreeMap, BTreeSet};

use outrider_diagnosis::latch;
use outrider_diagnosis::machines::{POOL_WINDOW, Pool as Judged, PoolWanted, judge_pool, replaced};
use outrider_protocol::{Departure, Latch, PoolView, Timestamp, Transition, TypeMeta};
use outrider_sync::harvester::{WantedPool, wanted_pool};
use serde::{Deserialize, Serialize};

use super::inventory::{Inventory, Machine};
use super::seen::Seen;

/// Where pools lie in the store.
pub(crate) const POOLS: &str = "pools/";
/// So many departures of one pool are kept.
const MOST_DEPARTURES: usize = 100;

/// Guest cluster and pool.
pub(crate) type Key = (String, String);

/// What is remembered of one pool, and what was made of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pool {
    latches: Vec<Latch>,
    /// Machine set of its machines; empty where they have several or none.
    machine_set: Box<str>,
    departures: Vec<Departure>,
    watched_since: Timestamp,
    short_since: Option<Timestamp>,
    #[serde(skip)]
    view: Option<PoolView>,
}

impl Pool {
    /// A machine of it goes, or is gone.
    pub(super) fn depart(&mut self, key: &str, seen: &Seen, is_gone: bool, now: Timestamp) {
        let known = self.departures.iter_mut().find(|gone| *gone.uid == *seen.uid);
        let of = |replaced_by: String, gone_at: Option<Timestamp>| Departure {
            machine: key.to_owned(),
            uid: seen.uid.to_string(),
            created_at: seen.created_at,
            leaving_since: seen.leaving.unwrap_or(now),
            gone_at,
            reported: seen.reported,
            agent_connected: seen.agent_connected,
            had_address: seen.had_address,
            replaced_by,
        };
        let gone_at = is_gone.then_some(now);
        match known {
            Some(known) => *known = of(std::mem::take(&mut known.replaced_by), known.gone_at.or(gone_at)),
            None => self.departures.push(of(String::new(), gone_at)),
        }
        if self.departures.len() > MOST_DEPARTURES {
            self.departures.remove(0);
        }
    }

    /// A machine of it appeared: it stands for the first that went and has no other in its place.
    pub(super) fn appear(&mut self, key: &str) {
        if let Some(gone) = self.departures.iter_mut().find(|gone| gone.replaced_by.is_empty()) {
            key.clone_into(&mut gone.replaced_by);
        }
    }

    /// Forgets what is too old to be counted.
    fn expire(&mut self, now: Timestamp) {
        let is_here = |gone: &Departure| gone.gone_at.is_none();
        self.departures.retain(|gone| is_here(gone) || now.since(gone.leaving_since) < POOL_WINDOW);
    }

    pub(super) fn conditions(&self) -> impl Iterator<Item = &outrider_protocol::Condition> {
        self.latches.iter().map(|latch| &latch.condition)
    }

    pub(super) fn latches(self) -> Vec<Latch> {
        self.latches
    }

    pub(super) fn view(&self) -> Option<&PoolView> {
        self.view.as_ref()
    }
}

/// What the machines of one pool amount to.
#[derive(Clone, Debug, Default)]
struct Counts {
    present: u32,
    running: u32,
    reporting: u32,
    deleting: u32,
    never_reported: u32,
    /// Machines that do not report yet.
    mute: Vec<String>,
    machine_sets: BTreeSet<Box<str>>,
    newest_reporting: Option<Timestamp>,
}

impl Counts {
    fn add(&mut self, key: &str, seen: &Seen, machine: &Machine, is_running: bool) {
        self.present += 1;
        self.running += u32::from(is_running);
        self.deleting += u32::from(seen.leaving.is_some());
        self.machine_sets.insert(seen.machine_set.clone());
        if machine.is_heard {
            self.reporting += u32::from(seen.leaving.is_none());
            self.newest_reporting = self.newest_reporting.max(seen.appeared);
        } else {
            self.never_reported += u32::from(is_running && !seen.reported);
            self.mute.push(key.to_owned());
        }
    }
}

/// What Rancher wants of one pool.
enum Wanted {
    NotRead,
    Unknown(String),
    Known(u32),
}

/// What changed of the pools.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) transitions: Vec<(Key, Transition)>,
    /// Pools to be stored anew.
    pub(super) stored: Vec<Key>,
    /// Pools that are no more.
    pub(super) ended: Vec<(Key, Pool)>,
}

/// Judges every pool that has machines, is wanted, or had machines within the last hour. `clusters` are those of the fleet.
pub(super) fn judge(
    pools: &mut BTreeMap<Key, Pool>,
    machines: &BTreeMap<std::sync::Arc<str>, std::sync::Arc<Machine>>,
    inventory: &Inventory,
    clusters: &BTreeSet<String>,
    now: Timestamp,
) -> Changes {
    let mut counts: BTreeMap<Key, Counts> = BTreeMap::new();
    for (key, machine) in machines {
        let Some(seen) =
            machine.seen.as_ref().filter(|seen| !seen.pool.is_empty() && !seen.cluster.is_empty())
        else {
            continue;
        };
        let pool = (seen.cluster.to_string(), seen.pool.to_string());
        let is_running =
            inventory.machines.get(key).and_then(|entry| entry.instance()).is_some_and(|i| i.is_running());
        counts.entry(pool).or_default().add(key, seen, machine, is_running);
    }
    pools.values_mut().for_each(|pool| pool.expire(now));
    for (key, counts) in &counts {
        let pool = pools.entry(key.clone()).or_default();
        let mut sets = counts.machine_sets.iter();
        pool.machine_set = match (sets.next(), sets.next()) {
            (Some(one), None) => one.clone(),
            _ => Box::default(),
        };
    }
    let wanted = inventory.wanted();
    let mut found = match_wanted(pools, &wanted, clusters);
    let mut changes = Changes::default();
    let is_over = |key: &Key, pool: &Pool, found: &BTreeMap<Key, Wanted>| {
        !counts.contains_key(key)
            && pool.departures.is_empty()
            && !matches!(found.get(key), Some(Wanted::Known(_)))
    };
    let over: Vec<Key> =
        pools.iter().filter(|(key, pool)| is_over(key, pool, &found)).map(|(k, _)| k.clone()).collect();
    for key in over {
        if let Some(pool) = pools.remove(&key) {
            changes.ended.push((key, pool));
        }
    }
    for (key, pool) in pools.iter_mut() {
        let counts = counts.remove(key).unwrap_or_default();
        let wanted = found.remove(key).unwrap_or(Wanted::NotRead);
        pool.judge(key, &counts, &wanted, now, &mut changes);
    }
    changes
}

/// What is wanted of each pool; pools that are wanted and have no machine yet are added.
fn match_wanted(
    pools: &mut BTreeMap<Key, Pool>,
    wanted: &Option<Result<Vec<WantedPool>, String>>,
    clusters: &BTreeSet<String>,
) -> BTreeMap<Key, Wanted> {
    let all = match wanted {
        None => return BTreeMap::new(),
        Some(Err(why)) => {
            return pools.keys().map(|key| (key.clone(), Wanted::Unknown(why.clone()))).collect();
        }
        Some(Ok(all)) => all,
    };
    let mut found = BTreeMap::new();
    let (mut taken, mut doubtful) = (Vec::new(), BTreeSet::new());
    for (key, pool) in pools.iter() {
        let one = match wanted_pool(&key.0, &key.1, &pool.machine_set, all) {
            Ok(of) => {
                taken.push(of);
                of.quantity.map_or_else(
                    || Wanted::Unknown("the pool's object at Rancher has no quantity".to_owned()),
                    Wanted::Known,
                )
            }
            Err(why) => {
                // A machine set that is told in full is no other pool's; a long one is labelled with a hash.
                if pool.machine_set.is_empty() || pool.machine_set.starts_with("hash_") {
                    doubtful.insert(key.0.clone());
                }
                Wanted::Unknown(why)
            }
        };
        found.insert(key.clone(), one);
    }
    // A pool without a machine is told by Rancher alone; where another of the cluster has found no counterpart, it may be that one.
    let is_new = |of: &&WantedPool| {
        of.on_harvester
            && clusters.contains(&*of.cluster)
            && !doubtful.contains(&*of.cluster)
            && !taken.contains(of)
    };
    for of in all.iter().filter(is_new) {
        let (Some(quantity), key) = (of.quantity, (of.cluster.to_string(), of.pool.to_string())) else {
            continue;
        };
        if quantity > 0 && !found.contains_key(&key) {
            pools.entry(key.clone()).or_default();
            found.insert(key, Wanted::Known(quantity));
        }
    }
    found
}

impl Pool {
    fn judge(&mut self, key: &Key, counts: &Counts, wanted: &Wanted, now: Timestamp, changes: &mut Changes) {
        let is_new = self.watched_since == Timestamp::default();
        if is_new {
            self.watched_since = now;
        }
        let mut judged = Judged {
            wanted: match wanted {
                Wanted::NotRead => PoolWanted::NotRead,
                Wanted::Unknown(why) => PoolWanted::Unknown(why),
                Wanted::Known(n) => PoolWanted::Known(*n),
            },
            present: counts.present as usize,
            deleting: counts.deleting as usize,
            reporting: counts.reporting as usize,
            short_since: None,
            departures: &self.departures,
            newest_reporting: counts.newest_reporting,
            watched_since: self.watched_since,
        };
        let was_short = self.short_since;
        // While what is wanted is not known, since when it was short stays.
        if matches!(wanted, Wanted::Known(_)) {
            self.short_since = if judged.is_short() { self.short_since.or(Some(now)) } else { None };
        }
        judged.short_since = self.short_since;
        let latched = latch(&self.latches, &judge_pool(&judged, now), now);
        if is_new || !latched.transitions.is_empty() || was_short != self.short_since {
            changes.stored.push(key.clone());
        }
        changes
            .transitions
            .extend(latched.transitions.into_iter().map(|transition| (key.clone(), transition)));
        let replaced: Vec<&str> = replaced(&self.departures, now).map(|gone| &*gone.replaced_by).collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        self.view = Some(PoolView {
            meta: TypeMeta::new("Pool"),
            cluster: key.0.clone(),
            name: key.1.clone(),
            wanted: if let Wanted::Known(n) = wanted { Some(*n) } else { None },
            wanted_unknown: match wanted {
                Wanted::NotRead => "not read (--rancher-kubeconfig)".to_owned(),
                Wanted::Unknown(why) => why.clone(),
                Wanted::Known(_) => String::new(),
            },
            present: counts.present,
            running: counts.running,
            reporting: counts.reporting,
            deleting: counts.deleting,
            never_reported: counts.never_reported,
            replacing: count(counts.mute.iter().filter(|key| replaced.contains(&key.as_str())).count()),
            replaced_last_hour: count(replaced.len()),
            watched_since: self.watched_since,
            departures: self.departures.clone(),
            conditions: latched.latches.iter().map(|latch| latch.condition.clone()).collect(),
        });
        self.latches = latched.latches;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(uid: &str) -> Seen {
        Seen { uid: uid.into(), cluster: "prod".into(), pool: "pool1".into(), ..Seen::default() }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn one_that_appears_stands_for_the_first_that_went() {
        let mut pool = Pool::default();
        let leaving = Seen { leaving: Some(at(10)), ..seen("a") };
        pool.depart("prod/a", &leaving, false, at(10));
        pool.depart("prod/b", &seen("b"), true, at(20));
        pool.appear("prod/c");
        pool.depart("prod/a", &leaving, true, at(30));
        let told: Vec<_> =
            pool.departures.iter().map(|d| (&*d.machine, &*d.replaced_by, d.gone_at)).collect();
        assert_eq!(told, [("prod/a", "prod/c", Some(at(30))), ("prod/b", "", Some(at(20)))]);
        assert_eq!(pool.departures[0].leaving_since, at(10));
        pool.appear("prod/d");
        pool.appear("prod/e");
        assert_eq!(pool.departures[1].replaced_by, "prod/d");
        pool.expire(at(3615));
        assert_eq!(pool.departures.len(), 1, "an hour later");
        for n in 0..300 {
            pool.depart("prod/x", &seen(&n.to_string()), true, at(n));
        }
        assert_eq!(pool.departures.len(), MOST_DEPARTURES);
        // As it is stored, and read again.
        let again: Pool = serde_json::from_slice(&serde_json::to_vec(&pool).unwrap()).unwrap();
        assert_eq!(again.departures, pool.departures);
    }

    fn of(pool: &str, quantity: Option<u32>, on_harvester: bool) -> WantedPool {
        WantedPool {
            namespace: "f".into(),
            cluster: "prod".into(),
            pool: pool.into(),
            quantity,
            on_harvester,
        }
    }

    #[test]
    fn pools_without_machines_are_those_of_harvester_whose_cluster_is_known_and_clear() {
        let key = |pool: &str| ("prod".to_owned(), pool.to_owned());
        let clusters = BTreeSet::from(["prod".to_owned()]);
        let all = vec![of("pool1", Some(3), true), of("empty", Some(2), true), of("cloud", Some(2), false)];
        let known = |pool: &str| BTreeMap::from([(key(pool), Pool::default())]);
        let words = |found: &BTreeMap<Key, Wanted>| {
            let word = |wanted: &Wanted| match wanted {
                Wanted::NotRead => "not read".to_owned(),
                Wanted::Unknown(_) => "unknown".to_owned(),
                Wanted::Known(n) => n.to_string(),
            };
            found.iter().map(|(key, wanted)| format!("{}={}", key.1, word(wanted))).collect::<Vec<_>>()
        };
        let mut pools = known("pool1");
        let found = match_wanted(&mut pools, &Some(Ok(all.clone())), &clusters);
        assert_eq!(words(&found), ["empty=2", "pool1=3"]);
        // The pool of these machines may be any of those that are wanted.
        let found = match_wanted(&mut known("hash_abc_z"), &Some(Ok(all.clone())), &clusters);
        assert_eq!(words(&found), ["hash_abc_z=unknown"]);
        let found = match_wanted(&mut known("pool1"), &Some(Ok(all)), &BTreeSet::new());
        assert_eq!(words(&found), ["pool1=3"], "a cluster of nobody here");
        assert_eq!(
            words(&match_wanted(&mut known("pool1"), &Some(Err("403".to_owned())), &clusters)),
            ["pool1=unknown"]
        );
        assert!(match_wanted(&mut known("pool1"), &None, &clusters).is_empty());
    }
}
