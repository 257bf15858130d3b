//! `outrider describe`: all that is known of one node or cluster.

use outrider_protocol::{ClusterView, EventView, List, NodeView, Timestamp};

use crate::cli::{DescribeArgs, Described, Global};
use crate::client::{Client, percent_encoded};
use crate::contexts;
use crate::exit::Exit;
use crate::output::{Format, Screen, document};
use crate::show::describe;
use crate::show::report::Layout;

use super::get::one;

/// Transitions shown below a node.
const LAST: usize = 20;

/// Runs the command.
pub(crate) async fn run(args: DescribeArgs, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
    let mut client = Client::new(contexts::choose(global, screen)?).await?;
    let layout = Layout::on(screen, false);
    let now = Timestamp::from(std::time::SystemTime::now());
    let text = match args.kind {
        Described::Node => {
            let node: NodeView = one(&mut client, "nodes", &args.name).await?;
            match args.output {
                Format::Json => document::json(&node)?,
                Format::Yaml => document::yaml(&node)?,
                _ => {
                    let events = last_events(&mut client, &args.name).await?;
                    describe::node(&node, &events, now, layout)
                }
            }
        }
        Described::Cluster => {
            let cluster: ClusterView = one(&mut client, "clusters", &args.name).await?;
            match args.output {
                Format::Json => document::json(&cluster)?,
                Format::Yaml => document::yaml(&cluster)?,
                _ => {
                    let all: List<NodeView> = client.list("/v1/nodes", "").await?;
                    let members: Vec<NodeView> =
                        all.items.into_iter().filter(|node| node.cluster == cluster.name).collect();
                    describe::cluster(&cluster, &members, now, layout)
                }
            }
        }
    };
    screen.write(&text)?;
    Ok(Exit::Ok)
}

/// The newest transitions of a node, the newest last.
async fn last_events(client: &mut Client, node: &str) -> anyhow::Result<Vec<EventView>> {
    let path = format!("/v1/nodes/{}/events?limit={LAST}", percent_encoded(node));
    let mut list: List<EventView> = client.get(&path).await?;
    list.items.sort_by_key(|event| event.id);
    Ok(list.items)
}
