//! `outrider watch`: one line for every transition of the fleet.

use outrider_protocol::EventView;

use crate::cli::{Global, WatchArgs};
use crate::client::{Client, Happening};
use crate::contexts;
use crate::exit::Exit;
use crate::output::{Format, Screen, Table, document};
use crate::show::events;

use super::follow;

/// Runs the command, until Ctrl-C. A stream that broke goes on where it ended, so that no transition is missed.
pub(crate) async fn run(args: WatchArgs, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
    let client = Client::new(contexts::choose(global, screen)?).await?;
    let mut table = Table::new(events::columns(), false).on(screen);
    let mut titled = false;
    let work = async {
        let mut stream = client.watch(None).await?;
        loop {
            let Some(happenings) = stream.next().await? else {
                stream = follow::again(&client, screen, stream.position()).await;
                continue;
            };
            let told: Vec<EventView> = happenings
                .into_iter()
                .filter_map(|happening| match happening {
                    Happening::Event(event) => Some(event),
                    _ => None,
                })
                .collect();
            if told.is_empty() {
                continue;
            }
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
