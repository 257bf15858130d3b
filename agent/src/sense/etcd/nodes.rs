//! Names of the cluster's Kubernetes Nodes, by which members without a machine are told.
//!
//! Where etcd is part of a distribution, the certificate that reads its health may read its keys too. It is used for
//! one thing: the *names* of the keys below the registry of Nodes. No value is asked for, and none could be decoded.

use std::time::Duration;

use outrider_protocol::{Distribution, Fact, UnknownCause};
use tokio::time::Instant;

use super::client::Client;
use super::survey::{List, Survey, limited};
use super::wire::KeysResponse;
use super::{CALL, Found};
use crate::net::Failure;
use crate::sense::SenseContext;

/// Where Kubernetes keeps its Nodes, unless its apiserver was given another `--etcd-prefix`.
pub(super) const REGISTRY: &str = "/registry/minions/";
/// Most keys that one answer may hold; Kubernetes is not made for more Nodes.
pub(super) const MAX_KEYS: i64 = 5000;
/// Names kept whole; of a larger cluster only those that a member's name begins with.
const MAX_KEPT: usize = 500;

/// Names are read again after this long,
const OFTEN: Duration = Duration::from_secs(600);
/// and no earlier than this where the members have changed, or one has no Node: a new server's etcd member is there
/// before its Node is.
const SELDOM: Duration = Duration::from_secs(60);

/// The names of the last look.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    read: Option<Read>,
}

#[derive(Debug)]
struct Read {
    at: Instant,
    names: Fact<Vec<String>>,
    /// Members at the time.
    members: Vec<u64>,
}

impl Nodes {
    /// The names, read again where that is due and somebody with a quorum behind him answers.
    pub(super) async fn refresh(
        &mut self,
        cx: &SenseContext,
        found: &Found,
        survey: &Survey,
    ) -> Fact<Vec<String>> {
        if found.distribution == Distribution::Configured {
            return Fact::unknown(
                UnknownCause::NotYetRead,
                "endpoints in [etcd] may be of any etcd, so its keys are not looked at",
                "Kubernetes Nodes",
                cx.now(),
            );
        }
        if let Some(read) = self.read.as_ref().filter(|read| read.is_good(survey.list.as_ref().ok())) {
            return read.names.clone();
        }
        let (client, via) = match survey.voice() {
            Ok(voice) => voice,
            Err(failure) => {
                // What was read before stays true enough while nobody can be asked.
                return match &self.read {
                    Some(read) => read.names.clone(),
                    None => failure.into_fact("KV/Range", cx.now()),
                };
            }
        };
        let members = survey.list.as_ref().map(|list| &list.members[..]).unwrap_or_default();
        let member_names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        let source = format!("KV/Range of {REGISTRY} at {via}");
        let names = match keys(client).await.and_then(|answer| names(answer, &member_names)) {
            Ok((names, all)) if names.len() < all => {
                let source = format!("{source} ({} of {all}: those named like a member)", names.len());
                Fact::known(names, source, cx.now())
            }
            Ok((names, _)) => Fact::known(names, source, cx.now()),
            Err(failure) => failure.into_fact(source, cx.now()),
        };
        let members = members.iter().map(|member| member.id).collect();
        self.read = Some(Read { at: Instant::now(), names: names.clone(), members });
        names
    }
}

impl Read {
    fn is_good(&self, list: Option<&List>) -> bool {
        let age = self.at.elapsed();
        if age < SELDOM {
            return true;
        }
        let settled = list.is_none_or(|list| {
            let names = self.names.value().map(Vec::as_slice).unwrap_or_default();
            list.members.iter().map(|member| member.id).eq(self.members.iter().copied())
                && list.members.iter().all(|member| names.iter().any(|node| is_like(&member.name, node)))
        });
        settled && age < OFTEN
    }
}

async fn keys(mut client: Client) -> Result<KeysResponse, Failure> {
    limited("KV/Range", Instant::now() + CALL, client.node_keys()).await
}

/// The names behind the keys, and how many there are in all.
fn names(answer: KeysResponse, members: &[&str]) -> Result<(Vec<String>, usize), Failure> {
    let unusable = |detail: String| Err(Failure::new(UnknownCause::InvalidAnswer, detail));
    if answer.more || answer.keys.len() as i64 > MAX_KEYS {
        return unusable(format!(
            "there are more than {MAX_KEYS} keys below {REGISTRY}: the list would be cut"
        ));
    }
    let mut names: Vec<String> = answer
        .keys
        .iter()
        .filter_map(|key| std::str::from_utf8(&key.key).ok()?.strip_prefix(REGISTRY))
        .filter(|name| !name.is_empty() && !name.contains('/') && name.len() <= 253)
        .map(str::to_owned)
        .collect();
    let all = names.len();
    if all == 0 {
        return unusable(format!(
            "no Node below {REGISTRY}: the apiserver may keep them under another --etcd-prefix"
        ));
    }
    if all > MAX_KEPT {
        names.retain(|node| members.iter().any(|member| is_like(member, node)));
        names.truncate(MAX_KEPT);
    }
    Ok((names, all))
}

/// Whether a member of this name may be of that Node: it begins with its name, after the `etcd-` of RKE1.
fn is_like(member: &str, node: &str) -> bool {
    let begins = |text: &str| {
        text.get(..node.len()).is_some_and(|head| !node.is_empty() && head.eq_ignore_ascii_case(node))
    };
    begins(member) || member.strip_prefix("etcd-").is_some_and(begins)
}

#[cfg(test)]
mod tests {
    use super::super::wire::Key;
    use super::*;

    fn answer<'a>(keys: impl IntoIterator<Item = &'a str>) -> KeysResponse {
        let keys = keys.into_iter().map(|key| Key { key: key.as_bytes().to_vec() }).collect();
        KeysResponse { keys, more: false }
    }

    #[test]
    fn names_are_what_follows_the_prefix() {
        let keys =
            ["/registry/minions/n1", "/registry/minions/n2.example", "/registry/minions/", "/other/n3"];
        let (names, all) = names(answer(keys), &[]).unwrap();
        assert_eq!((names, all), (vec!["n1".to_owned(), "n2.example".to_owned()], 2));
    }

    #[test]
    fn no_keys_and_a_cut_list_are_unknown_with_their_cause() {
        let none = names(answer([]), &["n1"]).unwrap_err();
        assert!(none.cause == UnknownCause::InvalidAnswer && none.detail.contains("--etcd-prefix"), "{none}");
        let cut = KeysResponse { more: true, ..answer(["/registry/minions/n1"]) };
        assert!(names(cut, &["n1"]).unwrap_err().detail.contains("more than"));
    }

    #[test]
    fn of_a_large_cluster_those_remain_that_a_member_may_have() {
        let keys: Vec<String> = (0..3000).map(|i| format!("{REGISTRY}worker-{i:04}")).collect();
        let servers = ["/registry/minions/cp1", "/registry/minions/Rke1"];
        let all = keys.iter().map(String::as_str).chain(servers);
        let (names, all) = names(answer(all), &["cp1-1a2b3c4d", "etcd-rke1", "gone-1a2b3c4d"]).unwrap();
        assert_eq!((names, all), (vec!["cp1".to_owned(), "Rke1".to_owned()], 3002));
    }
}
