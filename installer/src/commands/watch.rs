//! `outrider watch`: one line for every transition of the fleet.

use outrider_protocol::{EventView, List};

use crate::cli::{Global, WatchArgs};
use crate::client::{Client, Happening};
use crate::contexts;
use crate::exit::Exit;
use crate::output::{Format, Screen, Table, document};
use crate::show::events;

use super::follow;

/// Transitions asked for at a time.
const PAGE: usize = 500;

/// Runs the command, until Ctrl-C. A stream that broke goes on where it ended, so that no transition is missed.
pub(crate) async fn run(args: WatchArgs, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
    let mut client = Client::new(contexts::choose(global, screen)?).await?;
    let mut table = Table::new(events::columns(), false).on(screen);
    let mut titled = false;
    let work = async {
        let mut stream = client.watch(None).await?;
        // The newest transition printed: what follows it is asked for when the stream had to leave something out.
        let mut printed = None;
        loop {
            let Some(happenings) = stream.next().await? else {
                stream = follow::again(&client, screen, stream.position()).await?;
                continue;
            };
            let mut told: Vec<EventView> = Vec::new();
            for happening in happenings {
                match happening {
                    Happening::Event(event) => told.push(event),
                    Happening::Resync(position) => {
                        // A history that is shorter than it was is another one: a store came from a backup.
                        printed = printed.map(|id: u64| id.min(position));
                        told.extend(since(&mut client, printed).await?);
                    }
                    Happening::Node(_) | Happening::Cluster(_) => {}
                }
            }
            told.sort_by_key(|event| event.id);
            told.dedup_by_key(|event| event.id);
            told.retain(|event| Some(event.id) > printed);
            let Some(last) = told.last() else { continue };
            printed = Some(last.id);
            let mut text = String::new();
            match &args.output {
                Format::Json => {
                    for event in &told {
                        text.push_str(&(serde_json::to_string(event)? + "\n"));
                    }
                }
                Format::Yaml => {
                    for event in &told {
                        text.push_str(&format!("---\n{}", document::yaml(event)?));
                    }
                }
                _ => text = if titled { table.more(&told) } else { table.render(&told) },
            }
            titled = true;
            screen.write(&text)?;
        }
    };
    follow::until_interrupted(work).await
}

/// Every transition after `position`; none when nothing was printed yet, for then there is nothing to go on from.
async fn since(client: &mut Client, position: Option<u64>) -> anyhow::Result<Vec<EventView>> {
    let Some(mut after) = position else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    loop {
        let page: List<EventView> = client.get(&format!("/v1/events?limit={PAGE}&after={after}")).await?;
        let Some(last) = page.items.last() else { return Ok(all) };
        after = last.id;
        all.extend(page.items);
    }
}
