//! `outrider get`: lists of the fleet, and what changes in them, as kubectl's users expect it.

use std::collections::BTreeMap;

use anyhow::bail;
use outrider_protocol::{
    ApiError, ClusterView, CoordinatorView, List, MachineView, NodeView, PoolView, Severity, Timestamp,
    TypeMeta,
};
use serde::Serialize;

use crate::cli::{GetArgs, Global, Kind};
use crate::client::{Client, Refused, percent_encoded};
use crate::contexts;
use crate::exit::Exit;
use crate::output::{Column, Format, Screen, Table, UsageError, document};
use crate::show::clusters::Members;
use crate::show::{clusters, conditions, in_short, machines, nodes, pools, worst_first};

use super::follow;

/// Something `get` can list.
pub(crate) trait Object: Serialize + Clone + Send + Sync + 'static {
    /// Kind of the list.
    const LIST: &'static str;
    /// `node/NAME`, as `-o name` prints it.
    fn path(&self) -> String;
    /// What must differ before a watch prints the document again; readings that move all the time are left out.
    fn mark(&self) -> String;
    /// What must differ before a watch prints the row again: less than the document, for a row shows less.
    fn row_mark(&self) -> String {
        self.mark()
    }
    /// Its columns; a cluster's tell of its nodes as well.
    fn columns(now: Timestamp, members: &Members) -> Vec<Column<Self>>;
}

impl Object for NodeView {
    const LIST: &'static str = "NodeList";

    fn path(&self) -> String {
        format!("node/{}", self.name)
    }

    fn mark(&self) -> String {
        let own = (
            &self.uid,
            self.ready,
            &self.enrolment,
            &self.cluster,
            &self.zone,
            &self.labels,
            &self.agent_version,
        );
        format!("{own:?}{}", marks(&self.conditions))
    }

    fn row_mark(&self) -> String {
        let own = (&self.uid, self.ready, &self.enrolment, &self.cluster, &self.zone, &self.agent_version);
        format!(
            "{own:?}{}",
            marks(worst_first(self.conditions.iter().filter(|c| c.severity > Severity::Info)))
        )
    }

    fn columns(now: Timestamp, _members: &Members) -> Vec<Column<Self>> {
        nodes::columns(now)
    }
}

impl Object for ClusterView {
    const LIST: &'static str = "ClusterList";

    fn path(&self) -> String {
        format!("cluster/{}", self.name)
    }

    fn mark(&self) -> String {
        format!("{:?}{}", self.nodes, marks(&self.conditions))
    }

    fn columns(_now: Timestamp, members: &Members) -> Vec<Column<Self>> {
        clusters::columns(members)
    }
}

impl Object for conditions::Owned {
    const LIST: &'static str = "ObjectConditionList";

    fn path(&self) -> String {
        format!("{}/{}/{}", self.object, self.condition.condition_type, self.condition.subject)
            .trim_end_matches('/')
            .to_owned()
    }

    fn mark(&self) -> String {
        marks([&self.condition])
    }

    fn columns(now: Timestamp, _members: &Members) -> Vec<Column<Self>> {
        conditions::columns(now)
    }
}

impl Object for MachineView {
    const LIST: &'static str = "MachineList";

    fn path(&self) -> String {
        format!("machine/{}/{}", self.namespace, self.name)
    }

    fn mark(&self) -> String {
        let own = (&self.state, &self.node, &self.host, &self.addresses, &self.cluster, &self.pool);
        format!("{own:?}{}", marks(&self.conditions))
    }

    fn columns(now: Timestamp, _members: &Members) -> Vec<Column<Self>> {
        machines::columns(now)
    }
}

impl Object for PoolView {
    const LIST: &'static str = "PoolList";

    fn path(&self) -> String {
        format!("pool/{}/{}", self.cluster, self.name)
    }

    fn mark(&self) -> String {
        let counts =
            (self.wanted, self.present, self.running, self.reporting, self.deleting, self.never_reported);
        let went = (self.replacing, self.replaced_last_hour, self.departures.len(), &self.wanted_unknown);
        format!("{counts:?}{went:?}{}", marks(&self.conditions))
    }

    fn columns(_now: Timestamp, _members: &Members) -> Vec<Column<Self>> {
        pools::columns()
    }
}

fn marks<'a>(conditions: impl IntoIterator<Item = &'a outrider_protocol::Condition>) -> String {
    let one = |c: &outrider_protocol::Condition| {
        format!("|{}|{}|{}|{}|{}", c.condition_type, c.subject, c.status, c.severity, c.reason)
    };
    conditions.into_iter().map(one).collect()
}

/// Runs the command.
pub(crate) async fn run(args: GetArgs, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
    if args.selector.is_some() && !args.names.is_empty() {
        bail!(UsageError("give names or a label selector, not both".to_owned()));
    }
    let without_labels = match args.kind {
        Kind::Nodes | Kind::Conditions => None,
        Kind::Clusters => Some("clusters"),
        Kind::Machines => Some("machines"),
        Kind::Pools => Some("pools"),
    };
    if let (Some(_), Some(kind)) = (&args.selector, without_labels) {
        bail!(UsageError(format!("{kind} have no labels; -l is for nodes and conditions")));
    }
    let mut client = Client::new(contexts::choose(global, screen)?).await?;
    match args.kind {
        Kind::Nodes => show(&args, &mut client, screen, wanted_nodes).await,
        Kind::Clusters => show(&args, &mut client, screen, clusters_and_members).await,
        Kind::Conditions => show(&args, &mut client, screen, wanted_conditions).await,
        Kind::Machines => {
            warn_of_sources(&mut client, screen).await?;
            show(&args, &mut client, screen, wanted_machines).await
        }
        Kind::Pools => {
            warn_of_sources(&mut client, screen).await?;
            show(&args, &mut client, screen, wanted_pools).await
        }
    }
}

async fn show<T: Object>(
    args: &GetArgs,
    client: &mut Client,
    screen: &mut Screen,
    read: impl AsyncFn(&mut Client, &GetArgs) -> anyhow::Result<Found<T>>,
) -> anyhow::Result<Exit> {
    let mut printer = Printer::new(args, screen);
    if args.watch {
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        let in_rows = matches!(args.output, Format::Table | Format::Wide);
        return follow::every_change(client, screen, async |client, screen| {
            let mut found = read(client, args).await?;
            let items = std::mem::take(&mut found.items);
            let changed: Vec<T> = items
                .into_iter()
                .filter(|item| {
                    let mut mark = if in_rows { item.row_mark() } else { item.mark() };
                    if let (true, Some(members)) = (
                        in_rows,
                        item.path().strip_prefix("cluster/").and_then(|name| found.members.get(name)),
                    ) {
                        mark.push_str(&format!("{members:?}"));
                    }
                    known.insert(item.path(), mark.clone()) != Some(mark)
                })
                .collect();
            printer.changes(&changed, &found.members, screen)
        })
        .await;
    }
    let found = screen.busy("Asking the coordinator", read(client, args)).await?;
    printer.all(&found, args, screen)?;
    let mut exit = Exit::Ok;
    for missing in &found.missing {
        exit = screen.failure(missing, Exit::Usage);
    }
    if found.items.is_empty()
        && found.missing.is_empty()
        && matches!(args.output, Format::Table | Format::Wide)
    {
        screen.note("No resources found.");
    }
    Ok(exit)
}

/// What was found, and an error for each name that was not.
pub(crate) struct Found<T> {
    items: Vec<T>,
    missing: Vec<anyhow::Error>,
    revision: u64,
    /// How the nodes of clusters are; empty where something else is listed.
    members: Members,
}

async fn wanted_nodes(client: &mut Client, args: &GetArgs) -> anyhow::Result<Found<NodeView>> {
    if args.names.is_empty() {
        let selector =
            args.selector.as_deref().map(|text| format!("labelSelector={}", percent_encoded(text)));
        let list: List<NodeView> = client.list("/v1/nodes", &selector.unwrap_or_default()).await?;
        return Ok(Found {
            items: list.items,
            missing: Vec::new(),
            revision: list.revision,
            members: Members::new(),
        });
    }
    by_name(client, "nodes", &args.names).await
}

/// Clusters, and where they are shown as rows how their nodes are.
async fn clusters_and_members(client: &mut Client, args: &GetArgs) -> anyhow::Result<Found<ClusterView>> {
    let mut found = wanted_clusters(client, args).await?;
    if matches!(args.output, Format::Table | Format::Wide) && !found.items.is_empty() {
        found.members = clusters::members(&client.list::<NodeView>("/v1/nodes", "").await?.items);
    }
    Ok(found)
}

async fn wanted_clusters(client: &mut Client, args: &GetArgs) -> anyhow::Result<Found<ClusterView>> {
    if args.names.is_empty() {
        let list: List<ClusterView> = client.get("/v1/clusters").await?;
        return Ok(Found {
            items: list.items,
            missing: Vec::new(),
            revision: list.revision,
            members: Members::new(),
        });
    }
    by_name(client, "clusters", &args.names).await
}

async fn wanted_conditions(client: &mut Client, args: &GetArgs) -> anyhow::Result<Found<conditions::Owned>> {
    let mut nodes: Found<NodeView>;
    let mut clusters: Found<ClusterView> =
        Found { items: Vec::new(), missing: Vec::new(), revision: 0, members: Members::new() };
    if args.names.is_empty() {
        nodes = wanted_nodes(client, args).await?;
        if args.selector.is_none() {
            clusters = wanted_clusters(client, args).await?;
        }
    } else {
        // A name may be a node's or a cluster's, or both.
        nodes = by_name(client, "nodes", &args.names).await?;
        clusters = by_name(client, "clusters", &args.names).await?;
        nodes.missing.retain(|error| {
            let name = |name: &String| error.to_string().contains(&format!("{name:?}"));
            !clusters.items.iter().any(|cluster| name(&cluster.name))
        });
    }
    let of_nodes = nodes.items.iter().flat_map(|node| {
        node.conditions.iter().map(|c| conditions::Owned::new(node.path(), node.simulated, c))
    });
    let all: Vec<NodeView> = match clusters.items.is_empty() || args.names.is_empty() {
        true => Vec::new(),
        // Whether a cluster is simulated is told by its nodes, and those were not asked for.
        false => client.list::<NodeView>("/v1/nodes", "").await?.items,
    };
    let of_clusters = clusters.items.iter().flat_map(|cluster| {
        let simulated =
            nodes.items.iter().chain(&all).any(|node| node.cluster == cluster.name && node.simulated);
        cluster.conditions.iter().map(move |c| conditions::Owned::new(cluster.path(), simulated, c))
    });
    let mut items: Vec<conditions::Owned> = of_nodes.chain(of_clusters).collect();
    conditions::sort(&mut items);
    Ok(Found {
        items,
        missing: nodes.missing,
        revision: nodes.revision.max(clusters.revision),
        members: Members::new(),
    })
}

/// Machines, all or by `name` or `namespace/name`.
async fn wanted_machines(client: &mut Client, args: &GetArgs) -> anyhow::Result<Found<MachineView>> {
    let list: List<MachineView> = client.list("/v1/machines", "").await?;
    let is_called = |machine: &MachineView, name: &String| {
        *name == machine.name || *name == format!("{}/{}", machine.namespace, machine.name)
    };
    let is_missing = |name: &&String| !list.items.iter().any(|machine| is_called(machine, name));
    let missing = args.names.iter().filter(is_missing).map(|name| not_found("machines", name)).collect();
    let is_wanted =
        |m: &MachineView| args.names.is_empty() || args.names.iter().any(|name| is_called(m, name));
    let items = list.items.into_iter().filter(is_wanted).collect();
    Ok(Found { items, missing, revision: list.revision, members: Members::new() })
}

/// Pools, all or by `name` or `cluster/name`.
async fn wanted_pools(client: &mut Client, args: &GetArgs) -> anyhow::Result<Found<PoolView>> {
    let list: List<PoolView> = client.get("/v1/pools").await?;
    let is_called = |pool: &PoolView, name: &String| {
        *name == pool.name || *name == format!("{}/{}", pool.cluster, pool.name)
    };
    let is_missing = |name: &&String| !list.items.iter().any(|pool| is_called(pool, name));
    let missing = args.names.iter().filter(is_missing).map(|name| not_found("pools", name)).collect();
    let is_wanted =
        |pool: &PoolView| args.names.is_empty() || args.names.iter().any(|name| is_called(pool, name));
    let items = list.items.into_iter().filter(is_wanted).collect();
    Ok(Found { items, missing, revision: list.revision, members: Members::new() })
}

/// Says what keeps the coordinator from reading machines: what is listed is as old as that.
async fn warn_of_sources(client: &mut Client, screen: &mut Screen) -> anyhow::Result<()> {
    let coordinator: CoordinatorView = client.get("/v1/coordinator").await?;
    for condition in coordinator.conditions.iter().filter(|c| c.severity > Severity::Info) {
        screen.note(&format!("{}: {} {}", in_short(condition), condition.message, condition.advice));
    }
    Ok(())
}

async fn by_name<T: serde::de::DeserializeOwned>(
    client: &mut Client,
    kind: &str,
    names: &[String],
) -> anyhow::Result<Found<T>> {
    let mut found = Found { items: Vec::new(), missing: Vec::new(), revision: 0, members: Members::new() };
    for name in names {
        match one(client, kind, name).await {
            Ok(item) => found.items.push(item),
            Err(error) if is_missing(&error) => found.missing.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// One node or cluster (`kind` is `nodes` or `clusters`), or kubectl's words for that it is not there.
pub(crate) async fn one<T: serde::de::DeserializeOwned>(
    client: &mut Client,
    kind: &str,
    name: &str,
) -> anyhow::Result<T> {
    match client.get(&format!("/v1/{kind}/{}", percent_encoded(name))).await {
        Err(error) if is_missing(&error) => Err(not_found(kind, name)),
        other => other,
    }
}

fn not_found(kind: &str, name: &str) -> anyhow::Error {
    Refused(ApiError::new(404, "NotFound", format!("{kind} {name:?} not found"), "")).into()
}

fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.0.code == 404)
}

/// Prints objects in one format, all at once or as they change.
struct Printer<T> {
    format: Format,
    table: Table<T>,
    titled: bool,
}

impl<T: Object> Printer<T> {
    fn new(args: &GetArgs, screen: &Screen) -> Self {
        let mut printer = Self {
            format: args.output.clone(),
            table: Table::new(Vec::new(), false),
            titled: args.no_headers,
        };
        printer.table = printer.fresh(&Members::new(), screen);
        printer
    }

    fn fresh(&self, members: &Members, screen: &Screen) -> Table<T> {
        let now = Timestamp::from(std::time::SystemTime::now());
        Table::new(T::columns(now, members), matches!(self.format, Format::Wide)).on(screen)
    }

    fn all(&mut self, found: &Found<T>, args: &GetArgs, screen: &mut Screen) -> anyhow::Result<()> {
        let list = List {
            meta: TypeMeta::new(T::LIST),
            revision: found.revision,
            continue_token: String::new(),
            items: found.items.clone(),
        };
        self.table = self.fresh(&found.members, screen);
        // One name asks for one object, and that is what is printed.
        let alone = (args.names.len() == 1 && args.kind != Kind::Conditions).then(|| found.items.first());
        let value = match alone {
            Some(Some(item)) => document::value(item)?,
            Some(None) => return Ok(()),
            None => document::value(&list)?,
        };
        let text = match &self.format {
            Format::Json => document::json(&value)?,
            Format::Yaml => document::yaml(&value)?,
            Format::Name => names(&found.items),
            Format::JsonPath(template) => template.render(&value),
            _ if found.items.is_empty() => String::new(),
            _ if args.no_headers => self.table.more(&found.items),
            Format::Wide => self.table.render(&found.items),
            _ => self.fresh(&found.members, screen).compact(&found.items).render(&found.items),
        };
        screen.write(&text)
    }

    fn changes(&mut self, changed: &[T], members: &Members, screen: &mut Screen) -> anyhow::Result<()> {
        if changed.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        match &self.format {
            Format::Json => {
                for item in changed {
                    text.push_str(&(serde_json::to_string(item)? + "\n"));
                }
            }
            Format::Yaml => {
                for item in changed {
                    text.push_str(&format!("---\n{}", document::yaml(item)?));
                }
            }
            Format::Name => text = names(changed),
            Format::JsonPath(template) => {
                for item in changed {
                    text.push_str(&template.render(&document::value(item)?));
                }
            }
            _ => {
                // Ages count to the moment of printing; the widths stay those of the first rows.
                let now = self.fresh(members, screen);
                self.table.take_columns_of(now);
                text = if self.titled { self.table.more(changed) } else { self.table.render(changed) };
                self.titled = true;
            }
        }
        screen.write(&text)
    }
}

fn names<T: Object>(items: &[T]) -> String {
    items.iter().map(|item| item.path() + "\n").collect()
}
