//! One resource of Harvester's API, or of Rancher's, listed page by page and then watched from where the list was.
//!
//! The server ends a watch after [`WATCH`] and it goes on from where it was, so that a right that was taken, a token that was
//! revoked and a server that hangs are noticed within a minute, though a watch that stands would not tell. A version that is
//! gone (410) is listed anew. What was read stays while reading fails, with its age.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::WatchEvent;
use outrider_sync::harvester::{
    Metadata, ProvisioningCluster, VirtualMachine, VirtualMachineInstance, Vm, WantedPool,
};
use rand::RngExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Harvester;
use super::access::Client;
use super::failure::Failure;
use super::inventory::Host;

/// Objects of one page.
const PAGE: usize = 250;
/// How long a page, or the head of a watch, may take.
const ANSWER: Duration = Duration::from_secs(15);
/// How long the server may keep a watch.
const WATCH: Duration = Duration::from_secs(40);
/// After so long without a word a watch is dead: the server would have ended it before.
const SILENCE: Duration = Duration::from_secs(50);
/// Pauses between tries.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(20));

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    /// `VirtualMachine`.
    Vms,
    /// `VirtualMachineInstance`.
    Instances,
    /// `Node`: labels of hosts, where the rights allow it.
    Hosts,
    /// `Cluster` of Rancher's own cluster: how many machines are wanted of each pool.
    Clusters,
}

impl Resource {
    /// What is read of Harvester.
    pub(super) const OF_HARVESTER: [Resource; 3] = [Resource::Vms, Resource::Instances, Resource::Hosts];

    /// Its name with its group, as rights are given to it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Resource::Vms => "virtualmachines.kubevirt.io",
            Resource::Instances => "virtualmachineinstances.kubevirt.io",
            Resource::Hosts => "nodes",
            Resource::Clusters => "clusters.provisioning.cattle.io",
        }
    }

    pub(super) fn is_optional(self) -> bool {
        self == Resource::Hosts
    }

    fn path(self, namespace: Option<&str>) -> String {
        let (api, plural) = match self {
            Resource::Vms => ("/apis/kubevirt.io/v1", "virtualmachines"),
            Resource::Instances => ("/apis/kubevirt.io/v1", "virtualmachineinstances"),
            Resource::Hosts => return "/api/v1/nodes".to_owned(),
            Resource::Clusters => ("/apis/provisioning.cattle.io/v1", "clusters"),
        };
        match namespace {
            Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
            None => format!("{api}/{plural}"),
        }
    }

    /// Of hosts only the metadata: a Node with its images is large, and its labels are all that is looked at.
    fn accept(self, kind: &str) -> String {
        match self {
            Resource::Hosts => format!("application/json;as={kind};g=meta.k8s.io;v=v1"),
            _ => "application/json".to_owned(),
        }
    }
}

/// An object in the form in which it is kept.
pub(super) trait Kept: Clone + DeserializeOwned + Send + Sync + 'static {
    fn metadata(&self) -> &Metadata;
    fn kept(&self) -> Item;
}

/// What is kept of one object.
pub(super) enum Item {
    Vm(Vm),
    Instance(Vm),
    Host(Host),
    /// A cluster by `namespace/name`, with its pools.
    Wanted(Box<str>, Vec<WantedPool>),
}

impl Kept for VirtualMachine {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn kept(&self) -> Item {
        Item::Vm(self.into())
    }
}

impl Kept for VirtualMachineInstance {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn kept(&self) -> Item {
        Item::Instance(self.into())
    }
}

impl Kept for ProvisioningCluster {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn kept(&self) -> Item {
        let Metadata { namespace, name, .. } = &self.metadata;
        Item::Wanted(format!("{namespace}/{name}").into(), self.pools())
    }
}

/// The metadata of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct HostObject {
    #[serde(default)]
    metadata: Metadata,
}

impl Kept for HostObject {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn kept(&self) -> Item {
        Item::Host(Host::of(&self.metadata))
    }
}

#[derive(Deserialize)]
struct Page<T> {
    metadata: PageMetadata,
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    continue_token: String,
}

/// Reads `resource` until it is dropped.
pub(crate) async fn read(harvester: Arc<Harvester>, resource: Resource) {
    match resource {
        Resource::Vms => read_as::<VirtualMachine>(&harvester, resource).await,
        Resource::Instances => read_as::<VirtualMachineInstance>(&harvester, resource).await,
        Resource::Hosts => read_as::<HostObject>(&harvester, resource).await,
        Resource::Clusters => read_as::<ProvisioningCluster>(&harvester, resource).await,
    }
}

async fn read_as<T: Kept>(harvester: &Harvester, resource: Resource) {
    let mut pause = BACKOFF.0;
    loop {
        let failure = match harvester.client(resource).await {
            Ok(client) => follow_all::<T>(harvester, &client, resource, &mut pause).await,
            Err(failure) => failure,
        };
        if failure.is_gone {
            log::info!("{} are listed anew: {}", resource.name(), failure.detail);
        } else {
            harvester.failed(resource, failure);
        }
        // Jittered, so that many coordinators do not come back at once.
        let part = rand::rng().random_range(0.5..1.0);
        tokio::time::sleep(pause.mul_f64(part)).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Lists and watches every namespace until one of them fails, or the kubeconfig is another.
async fn follow_all<T: Kept>(
    harvester: &Harvester,
    client: &Client,
    resource: Resource,
    pause: &mut Duration,
) -> Failure {
    let namespaces: Vec<Option<&str>> = match client.namespaces.as_slice() {
        [] => vec![None],
        _ if resource == Resource::Hosts => vec![None],
        some => some.iter().map(|namespace| Some(namespace.as_str())).collect(),
    };
    let mut all = Vec::new();
    let mut positions = Vec::new();
    for namespace in namespaces {
        let reader = Reader { client, resource, namespace };
        match reader.list::<T>().await {
            Ok((items, version)) => {
                all.extend(items);
                positions.push((reader, version));
            }
            Err(failure) => return failure,
        }
    }
    harvester.replace(resource, &client.words(), all);
    let began = Instant::now();
    let follow =
        positions.into_iter().map(|(reader, version)| Box::pin(reader.follow::<T>(harvester, version)));
    let failure = futures_util::future::select_all(follow).await.0;
    // Where lists are answered and watches are not, one list must not follow the other without a pause.
    if began.elapsed() >= BACKOFF.1 {
        *pause = BACKOFF.0;
    }
    failure
}

struct Reader<'a> {
    client: &'a Client,
    resource: Resource,
    namespace: Option<&'a str>,
}

impl Reader<'_> {
    fn what(&self, verb: &str) -> String {
        let of = self.namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        format!("{verb} {}{of} at {}", self.resource.name(), self.client.server)
    }

    fn request(&self, query: &str, kind: &str) -> Result<http::Request<Vec<u8>>, Failure> {
        let uri = format!("{}?{query}", self.resource.path(self.namespace));
        let request =
            http::Request::get(uri).header(http::header::ACCEPT, self.resource.accept(kind)).body(Vec::new());
        request.map_err(|e| Failure::new(outrider_protocol::UnknownCause::InvalidInput, e.to_string()))
    }

    /// Every object, and the version from which a watch goes on.
    async fn list<T: Kept>(&self) -> Result<(Vec<Item>, String), Failure> {
        let what = self.what("list");
        let (mut items, mut after) = (Vec::new(), String::new());
        loop {
            let token =
                if after.is_empty() { String::new() } else { format!("&continue={}", escaped(&after)) };
            let request = self.request(&format!("limit={PAGE}{token}"), "PartialObjectMetadataList")?;
            let answer = tokio::time::timeout(ANSWER, self.client.kube.request_text(request)).await;
            let text = answer
                .map_err(|_| Failure::timed_out(&what, ANSWER))?
                .map_err(|e| Failure::of(&what, &e).told())?;
            let page: Page<T> =
                serde_json::from_str(&text).map_err(|e| Failure::of(&what, &kube::Error::SerdeError(e)))?;
            items.extend(page.items.iter().map(Kept::kept));
            if page.metadata.continue_token.is_empty() {
                return Ok((items, page.metadata.resource_version));
            }
            after = page.metadata.continue_token;
        }
    }

    /// Watches from `version` on, one watch after the other, until one fails.
    async fn follow<T: Kept>(self, harvester: &Harvester, mut version: String) -> Failure {
        loop {
            let began = Instant::now();
            if let Err(failure) = self.watch::<T>(harvester, &mut version).await {
                return failure;
            }
            // A server that ends every watch at once is not asked without end.
            tokio::time::sleep_until(began + BACKOFF.0).await;
            // A kubeconfig that was replaced, or lost, is not used any longer than the watch that began with it.
            match harvester.client(self.resource).await {
                Ok(client)
                    if client.server == self.client.server && client.namespaces == self.client.namespaces => {
                }
                Ok(_) => return Failure::elsewhere(),
                Err(failure) => return failure,
            }
        }
    }

    /// One watch, until the server ends it.
    async fn watch<T: Kept>(&self, harvester: &Harvester, version: &mut String) -> Result<(), Failure> {
        let what = self.what("watch");
        let query = format!(
            "watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            WATCH.as_secs(),
            escaped(version)
        );
        let request = self.request(&query, "PartialObjectMetadata")?;
        // The newest client, in case only the token in the kubeconfig is another.
        let kube = harvester.client(self.resource).await?.kube;
        let head = tokio::time::timeout(ANSWER, kube.request_events::<T>(request)).await;
        let events =
            head.map_err(|_| Failure::timed_out(&what, ANSWER))?.map_err(|e| Failure::of(&what, &e))?;
        let mut events = std::pin::pin!(events);
        harvester.alive(self.resource);
        loop {
            let next = tokio::time::timeout(SILENCE, events.try_next()).await;
            let event =
                next.map_err(|_| Failure::timed_out(&what, SILENCE))?.map_err(|e| Failure::of(&what, &e))?;
            match event {
                None => return Ok(()),
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    version.clone_from(&object.metadata().resource_version);
                    harvester.apply(object.kept());
                }
                Some(WatchEvent::Deleted(object)) => {
                    version.clone_from(&object.metadata().resource_version);
                    harvester.remove(object.kept());
                }
                Some(WatchEvent::Bookmark(bookmark)) => {
                    version.clone_from(&bookmark.metadata.resource_version)
                }
                Some(WatchEvent::Error(status)) => {
                    return Err(Failure::of_status(&what, status.code, &status.reason, &status.message));
                }
            }
        }
    }
}

/// `text` as a value in a query.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
