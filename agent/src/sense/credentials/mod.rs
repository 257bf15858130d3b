//! The check `credentials`: kubeconfigs on this node, and Rancher's cloud credentials (`facts/credentials.md`).
//!
//! Of files that only root may read the root helper passes what their tokens say of themselves and no token. A
//! credential that may be read whole is tried by one cheap request an hour (`GET /version`; for Rancher's tokens one more,
//! for the token's own end), unless `[credentials] verify = false`; a refusal is tried three times before it is believed.
//! Exec plugins are never run.
//!
//! Tour: `files` (which kubeconfigs, and what is in them), `kubeconfig` (the text), `token` (claims),
//! `access` (the request), `list` (many of them), `cloud` and `rancher_token` (credentials of Rancher), `rancher_cluster`
//! (what Rancher's own cluster says of the way in).

mod access;
mod cloud;
mod files;
mod kubeconfig;
mod list;
mod rancher_cluster;
mod rancher_token;
mod token;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use outrider_protocol::{CredentialCall, CredentialsFacts, Fact, KubeconfigFacts, UnknownCause};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::files::Found;
use super::SenseContext;
use crate::config::CredentialSettings;

pub(crate) use access::{Access, Answered, object};
pub(crate) use files::read as read_file;
pub(crate) use kubeconfig::excerpt as kubeconfig_excerpt;

/// A credential that was accepted is tried again after so long.
const SETTLED: Duration = Duration::from_secs(3600);

/// Credentials that are tried side by side: a server that is slow holds up no other.
const AT_ONCE: usize = 8;
/// Time that a turn needs to be worth beginning.
const LEAST: Duration = Duration::from_secs(1);

/// What a look leaves for the next: what was accepted, by path.
#[derive(Debug, Default)]
pub struct Memory {
    accepted: BTreeMap<String, Accepted>,
}

#[derive(Clone, Debug)]
struct Accepted {
    at: Instant,
    digest: [u8; 32],
    call: Fact<CredentialCall>,
}

/// One pass, within `limit`.
pub async fn read(
    cx: &SenseContext,
    settings: &CredentialSettings,
    limit: Duration,
    memory: &mut Memory,
) -> Fact<CredentialsFacts> {
    let deadline = Instant::now() + limit.mul_f64(0.9);
    let found = {
        let (cx, settings) = (cx.clone(), settings.clone());
        tokio::task::spawn_blocking(move || {
            let wanted = files::wanted(&cx, &settings);
            wanted
                .into_iter()
                .filter_map(|(path, purpose)| files::read(&cx, &path, purpose))
                .collect::<Vec<Found>>()
        })
        .await
    };
    let found = match found {
        Ok(found) => found,
        Err(e) => return Fact::unknown(UnknownCause::Panicked, e.to_string(), "kubeconfigs", cx.now()),
    };
    if found.is_empty() {
        return Fact::not_applicable(
            "no kubeconfig of RKE2, K3s, kubeadm or Harvester is here, and [credentials] names none",
            cx.now(),
        );
    }
    let (rancher, rancher_cluster) = match reader(cx, settings, &found) {
        Ok(access) => {
            (cloud::read(cx, access, deadline).await, Some(rancher_cluster::read(cx, access, deadline).await))
        }
        // Why it cannot be read stands in one place.
        Err(why) => (why, None),
    };
    let turns = Turns { at_once: Semaphore::new(AT_ONCE), deadline };
    let calls = found.into_iter().map(|Found { mut facts, access }| {
        let (memory, turns) = (&*memory, &turns);
        async move {
            let (call, accepted) = call(cx, settings, &facts, access, memory, turns).await;
            facts.call = call;
            (facts, accepted)
        }
    });
    let mut kubeconfigs: Vec<KubeconfigFacts> = Vec::new();
    let tried = join_all(calls).await;
    for (facts, accepted) in tried {
        match accepted {
            Some(accepted) => memory.accepted.insert(facts.path.clone(), accepted),
            None => memory.accepted.remove(&facts.path),
        };
        kubeconfigs.push(facts);
    }
    memory.accepted.retain(|path, _| kubeconfigs.iter().any(|facts| facts.path == *path));
    Fact::known(
        CredentialsFacts { kubeconfigs, rancher, rancher_cluster },
        "kubeconfigs on this node",
        cx.now(),
    )
}

/// The way into Rancher's own cluster, or why there is none.
fn reader<'a, T>(
    cx: &SenseContext,
    settings: &CredentialSettings,
    found: &'a [Found],
) -> Result<&'a Access, Fact<T>> {
    let Some(path) = &settings.rancher_kubeconfig else {
        return Err(Fact::not_applicable("[credentials] names no rancher_kubeconfig", cx.now()));
    };
    let path = path.display().to_string();
    let unusable = |why: &str| {
        let detail = format!("{path} cannot be used: {why}");
        Err(Fact::unknown(UnknownCause::InvalidInput, detail, path.as_str(), cx.now()))
    };
    match found.iter().find(|found| found.facts.path == path) {
        None => unusable("it was not read"),
        Some(Found { access: Ok(access), .. }) => Ok(access),
        Some(Found { facts, access: Err(why) }) => match &facts.content {
            Fact::Unknown { cause, detail, source, at } => {
                Err(Fact::unknown(cause.clone(), detail.as_str(), source.as_str(), *at))
            }
            Fact::Absent { .. } => unusable("there is no such file"),
            _ => unusable(why),
        },
    }
}

/// Who may ask, and until when.
struct Turns {
    at_once: Semaphore,
    deadline: Instant,
}

/// What one request came to, and what is kept of it; an earlier one stands in while it is young and was good.
async fn call(
    cx: &SenseContext,
    settings: &CredentialSettings,
    facts: &KubeconfigFacts,
    access: Result<Access, String>,
    memory: &Memory,
    turns: &Turns,
) -> (Fact<CredentialCall>, Option<Accepted>) {
    let access = match access {
        Ok(_) if !settings.verify => {
            return (Fact::not_applicable("switched off by credentials.verify", cx.now()), None);
        }
        Ok(access) => access,
        Err(why) => return (Fact::not_applicable(why, cx.now()), None),
    };
    let earlier = memory.accepted.get(&facts.path);
    if let Some(accepted) = earlier.filter(|a| a.digest == access.digest && a.at.elapsed() < SETTLED) {
        return (accepted.call.clone(), Some(accepted.clone()));
    }
    let deadline = turns.deadline;
    let latest = deadline.checked_sub(LEAST).unwrap_or(deadline);
    let Ok(Ok(_turn)) = tokio::time::timeout_at(latest, turns.at_once.acquire()).await else {
        let why = "it was not reached in this pass: others, tried before it, took all the time";
        return (Fact::unknown(UnknownCause::TimedOut, why, access.server(), cx.now()), None);
    };
    let call = access.verify(cx, deadline).await;
    let is_good = call.value().is_some_and(|a| (200..300).contains(&a.status) && a.refused == 0);
    let accepted =
        is_good.then(|| Accepted { at: Instant::now(), digest: access.digest, call: call.clone() });
    (call, accepted)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
