//! The virtual machine that this node is, as the Harvester cluster has it.
//!
//! Which of the namespace's machines it is, [`outrider_sync::harvester`] says; until one is found, and every ten minutes
//! after, all of them are looked at, page by page. In between only that one is read and watched.

use kube::api::{GetParams, ListParams, WatchParams};
use kube::core::{Request, WatchEvent};
use outrider_protocol::{
    Fact, HostFacts, KubeconfigPurpose as Purpose, MachineTopology, REGION, TopologyValues, UnknownCause,
    ZONE,
};
use outrider_sync::harvester::{
    CREATOR_LABEL, Identified, NODE_DRIVER, NodeMarks, VirtualMachine, VirtualMachineInstance, Vm, Vms,
    identify,
};
use serde_json::Value;

use super::node::{list, short};
use super::session::{Session, WATCH};
use crate::config::TopologySettings;
use crate::net::Failure;
use crate::sense::SenseContext;
use crate::sense::certificates::data_folders;
use crate::sense::credentials::{self, Access};

/// Machines of one page, and most pages.
const PAGE: u32 = 50;
const PAGES: usize = 100;
/// Annotation of an instance: name of the host whose labels Harvester copied to it.
const HOST_NAME: &str = "kubernetes.io/hostname";
/// Most candidates that are named.
const NAMED: usize = 8;

/// The way to the Harvester cluster.
pub(super) struct Way {
    pub(super) access: Access,
    namespace: String,
}

/// The cloud provider's kubeconfig, in either of its places (`facts/harvester-topology.md`, 7), or the one that is
/// configured. Blocking.
pub(super) fn way(cx: &SenseContext, settings: &TopologySettings) -> Result<Way, Box<Fact<MachineTopology>>> {
    let (paths, purpose) = match &settings.harvester_kubeconfig {
        Some(path) => (vec![path.clone()], Purpose::Configured),
        None => {
            let of_rancher =
                data_folders(cx).into_iter().map(|data| data.join("etc/config-files/cloud-provider-config"));
            (of_rancher.chain(["/etc/kubernetes/cloud-config".into()]).collect(), Purpose::CloudProvider)
        }
    };
    for path in paths {
        let Some(found) = credentials::read_file(cx, &path, purpose.clone()) else { continue };
        let source = path.display().to_string();
        let unusable = |cause: UnknownCause, why: &str| {
            let why = format!("{source} cannot be used: {why}");
            Box::new(Fact::unknown(cause, why, source.as_str(), cx.now()))
        };
        let content = match found.facts.content {
            Fact::Known { value, .. } => value,
            Fact::Unknown { cause, detail, source, at } => {
                return Err(Box::new(Fact::Unknown { cause, detail, source, at }));
            }
            _ => return Err(unusable(UnknownCause::InvalidInput, "there is no such file")),
        };
        if !content.fault.is_empty() {
            return Err(unusable(UnknownCause::InvalidInput, &content.fault));
        }
        let access = found.access.map_err(|why| unusable(UnknownCause::PermissionDenied, &why))?;
        // As the cloud provider reads it (harvester/cloud-provider-harvester: pkg/cloud-controller-manager/ccm.go).
        let namespace = if content.namespace.is_empty() { "default".to_owned() } else { content.namespace };
        return Ok(Way { access, namespace });
    }
    let why = "no kubeconfig of Harvester's cloud provider is here, and [topology] names none";
    Err(Box::new(Fact::not_applicable(why, cx.now())))
}

/// The machine that was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mine {
    name: String,
    by: &'static str,
}

/// Requests for the machines of one namespace.
pub(super) struct Machines {
    pub(super) session: Session,
    instances: Request,
    machines: Request,
    namespace: String,
}

impl Machines {
    pub(super) fn new(way: Way) -> Self {
        let below =
            |what: &str| Request::new(format!("/apis/kubevirt.io/v1/namespaces/{}/{what}", way.namespace));
        Self {
            instances: below("virtualmachineinstances"),
            machines: below("virtualmachines"),
            session: Session::new(way.access),
            namespace: way.namespace,
        }
    }

    fn what(&self, verb: &str) -> String {
        format!(
            "{verb} virtualmachineinstances in the namespace {} at {}",
            self.namespace,
            self.session.server()
        )
    }

    /// Looks at all machines for this node; the reading when there is not exactly one.
    pub(super) async fn find(
        &mut self,
        host: &HostFacts,
        node: &str,
    ) -> Result<Result<Mine, Box<MachineTopology>>, Failure> {
        let macs = macs(host)?;
        let running = self.each(true, |item| {
            serde_json::from_value::<VirtualMachineInstance>(item).ok().map(|vmi| Vm::from(&vmi))
        });
        let running = running.await?;
        let marks = NodeMarks {
            name: node,
            host_name: host.hostname.value().map_or("", String::as_str),
            cluster: "",
            macs: &macs,
            system_uuid: host.system_uuid.value().map_or("", String::as_str),
        };
        let found = chosen(&running, &marks);
        if !matches!(&found, Err(none) if none.candidates.is_empty()) {
            return Ok(
                found.map_err(|none| MachineTopology { namespace: self.namespace.clone(), ..*none }.into())
            );
        }
        // Nothing runs that is this node: perhaps it stands there stopped.
        let stopped = self
            .each(false, |item| serde_json::from_value::<VirtualMachine>(item).ok().map(|vm| Vm::from(&vm)));
        let stopped = stopped.await?;
        Ok(Err(Box::new(match chosen(&stopped, &marks) {
            Ok(mine) => MachineTopology {
                namespace: self.namespace.clone(),
                name: mine.name,
                matched_by: mine.by.to_owned(),
                stopped: true,
                ..MachineTopology::default()
            },
            Err(none) => MachineTopology { namespace: self.namespace.clone(), ..*none },
        })))
    }

    /// All machines. A list whose rest the server no longer has is begun anew, once.
    async fn each(&mut self, running: bool, keep: impl Fn(Value) -> Option<Vm>) -> Result<Vec<Vm>, Failure> {
        for _ in 0..2 {
            if let Some(all) = self.pages(running, &keep).await? {
                return Ok(all);
            }
        }
        let why = format!("{}: the server forgot the list before its end, twice", self.what("list"));
        Err(Failure::new(UnknownCause::Unavailable, why))
    }

    /// All pages; none when a page is asked for too late (410). An object that cannot be read is a failure: it may be this node.
    async fn pages(
        &mut self,
        running: bool,
        keep: &impl Fn(Value) -> Option<Vm>,
    ) -> Result<Option<Vec<Vm>>, Failure> {
        let resource = if running { self.instances.clone() } else { self.machines.clone() };
        let (mut all, mut token) = (Vec::new(), String::new());
        for _ in 0..PAGES {
            let mut page = ListParams::default().limit(PAGE);
            if !token.is_empty() {
                page = page.continue_token(&token);
            }
            let what = self.what("list");
            let answer = self.session.read(&what, resource.list(&page)).await?;
            let Some(mut answer) = answer else {
                if !token.is_empty() {
                    return Ok(None);
                }
                let why = format!("{what}: this server knows no such resource");
                return Err(Failure::new(UnknownCause::Unsupported, why));
            };
            let next =
                answer.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(Value::Array(items)) = answer.get_mut("items").map(Value::take) {
                for item in items {
                    let name =
                        short(item.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default());
                    let unread = || {
                        let why = format!("{what}: the object {name:?} has another shape than KubeVirt's");
                        Failure::new(UnknownCause::InvalidAnswer, why)
                    };
                    all.push(keep(item).ok_or_else(unread)?);
                }
            }
            if next.is_empty() {
                return Ok(Some(all));
            }
            token = next;
        }
        let why = format!("{} has more than {} machines", self.namespace, PAGES * PAGE as usize);
        Err(Failure::new(UnknownCause::Unsupported, why))
    }

    /// The machine that was found, read anew, with its version; none when it is gone.
    pub(super) async fn read(&mut self, mine: &Mine) -> Result<Option<(MachineTopology, String)>, Failure> {
        let what = self.what("get");
        let answer = self.session.read(&what, self.instances.get(&mine.name, &GetParams::default())).await?;
        Ok(answer.map(|object| (parse(&object, mine), version(&object))))
    }

    /// Watches it until the watch ends.
    pub(super) async fn watch(
        &mut self,
        mine: &Mine,
        version: &str,
        mut on: impl FnMut(Option<MachineTopology>),
    ) -> Result<(), Failure> {
        let what = self.what("watch");
        let only = WatchParams::default().fields(&format!("metadata.name={}", mine.name)).timeout(WATCH);
        self.session
            .watch(&what, self.instances.watch(&only, version), |event| match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => on(Some(parse(&object, mine))),
                WatchEvent::Deleted(_) => on(None),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
            })
            .await
    }
}

pub(super) fn version(object: &Value) -> String {
    short(object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default())
}

/// MACs of this machine's own cards; a failure where the cards could not be read, for by its name alone another machine may
/// be found.
fn macs(host: &HostFacts) -> Result<Vec<String>, Failure> {
    if let Fact::Unknown { cause, detail, .. } = &host.interfaces {
        let why = format!("this machine's network cards could not be read: {detail}");
        return Err(Failure::new(cause.clone(), why));
    }
    let cards = host.interfaces.value().into_iter().flatten().filter(|card| !card.is_virtual);
    Ok(cards.map(|card| card.mac.clone()).collect())
}

/// The one machine that is this node; or what was found instead.
fn chosen(all: &[Vm], node: &NodeMarks<'_>) -> Result<Mine, Box<MachineTopology>> {
    let marks: Vec<_> = all.iter().map(Vm::marks).collect();
    let identified = identify(&marks, std::slice::from_ref(node));
    let none = |candidates: Vec<String>, unmatched: String| {
        Err(Box::new(MachineTopology { candidates, unmatched, ..MachineTopology::default() }))
    };
    match Vms::of(&identified, 0) {
        Vms::One(place) => {
            let by = match identified.get(place) {
                Some(Identified::Is { by, .. }) => by.as_str(),
                _ => "",
            };
            Ok(Mine { name: all[place].name.to_string(), by })
        }
        Vms::None => {
            let why =
                format!("none of {} virtual machines has a MAC, host name or name of this node", all.len());
            none(Vec::new(), why)
        }
        Vms::Doubtful(places) => {
            let candidates: Vec<String> =
                places.iter().take(NAMED).map(|p| all[*p].name.to_string()).collect();
            let why = match places.first().and_then(|place| identified.get(*place)) {
                Some(Identified::Contradicted { by, against, .. }) => format!(
                    "the virtual machine {} has the {} of this node and another {}",
                    candidates.join(", "),
                    by.as_str(),
                    against.as_str()
                ),
                _ => {
                    format!("{} virtual machines come into question: {}", places.len(), candidates.join(", "))
                }
            };
            none(candidates, why)
        }
    }
}

/// What is kept of a running machine's object.
fn parse(object: &Value, mine: &Mine) -> MachineTopology {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let annotation = |key: &str| {
        let value = object.pointer("/metadata/annotations").and_then(|all| all.get(key)?.as_str());
        value.map(|value| value.chars().take(253).collect::<String>())
    };
    let harvester = |key: &str| annotation(&format!("topology.harvesterhci.io/{key}"));
    let kind = |owner: &&Value| owner.get("kind").and_then(Value::as_str) == Some("VirtualMachine");
    let owner = list(object, "/metadata/ownerReferences").iter().find(kind);
    let creator = object.pointer("/metadata/labels").and_then(|all| all.get(CREATOR_LABEL)?.as_str());
    let moving = object.pointer("/status/migrationState");
    let ended = moving.and_then(|state| state.get("completed")).and_then(Value::as_bool);
    MachineTopology {
        namespace: short(text("/metadata/namespace")),
        name: short(text("/metadata/name")),
        uid: short(owner.and_then(|owner| owner.get("uid")?.as_str()).unwrap_or_default()),
        matched_by: mine.by.to_owned(),
        candidates: Vec::new(),
        unmatched: String::new(),
        host: short(text("/status/nodeName")),
        annotations: TopologyValues { region: annotation(REGION), zone: annotation(ZONE) },
        harvester: TopologyValues { region: harvester("region"), zone: harvester("zone") },
        follows_host: creator == Some(NODE_DRIVER),
        copied_from: annotation(HOST_NAME).map(|name| short(&name)).unwrap_or_default(),
        migrating: moving.is_some_and(|state| !state.is_null()) && ended != Some(true),
        stopped: false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_instance_tells_its_machine_its_host_and_whose_labels_were_copied() {
        let mine = Mine { name: "n1".to_owned(), by: "MAC" };
        let object = json!({
            "metadata": {"name": "n1", "uid": "of the instance",
                "labels": {CREATOR_LABEL: NODE_DRIVER},
                "annotations": {ZONE: "z1", HOST_NAME: "host1"},
                "ownerReferences": [{"kind": "X", "uid": "x"}, {"kind": "VirtualMachine", "uid": "vm"}]},
            "status": {"nodeName": "host1"}
        });
        let read = parse(&object, &mine);
        assert_eq!(
            (read.uid.as_str(), read.copied_from.as_str(), read.host.as_str()),
            ("vm", "host1", "host1")
        );
        assert!(read.follows_host && read.annotations.zone.as_deref() == Some("z1"));
        let bare = parse(&json!({}), &mine);
        assert_eq!((bare.uid.as_str(), bare.copied_from.as_str(), bare.follows_host), ("", "", false));
    }
}
