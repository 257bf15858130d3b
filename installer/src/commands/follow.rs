//! Following the fleet: look again whenever the coordinator tells that something changed.

use std::ops::AsyncFnMut;
use std::time::Duration;

use crate::client::{Client, Happening, Unreachable, Watch};
use crate::exit::Exit;
use crate::output::Screen;

/// Shortest and longest wait before a broken stream is opened anew.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(200);

/// Calls `look` now and after every change, until Ctrl-C. A coordinator that is away is waited for: a person who
/// watches wants to see it come back. What fails the first time is an error, though: it never worked.
pub(crate) async fn every_change(
    client: &mut Client,
    screen: &mut Screen,
    mut look: impl AsyncFnMut(&mut Client, &mut Screen) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let work = async {
        let mut stream = client.watch(None).await?;
        stream.accepted().await?;
        look(client, screen).await?;
        loop {
            let seen = match stream.next().await? {
                Some(happenings) if happenings.iter().any(is_change) => {
                    tokio::time::sleep(GATHER).await;
                    stream.skip_waiting();
                    look(client, screen).await
                }
                Some(_) => Ok(()),
                None => {
                    stream = again(client, screen, None).await?;
                    look(client, screen).await
                }
            };
            match seen {
                // Its stream breaks as well, and is opened anew when the coordinator is back.
                Err(error) if error.is::<Unreachable>() => {}
                other => other?,
            }
        }
    };
    until_interrupted(work).await
}

/// Opens the stream anew, however long that takes, after the position last seen. Only a refusal ends it.
pub(crate) async fn again(client: &Client, screen: &mut Screen, after: Option<u64>) -> anyhow::Result<Watch> {
    let mut wait = RETRY.0;
    let mut told = false;
    loop {
        match client.watch(after).await {
            Ok(stream) => {
                if told {
                    screen.note("the coordinator is back");
                }
                return Ok(stream);
            }
            Err(error) if !error.is::<Unreachable>() => return Err(error),
            Err(error) => {
                if !told {
                    screen.note(&format!("{error:#}; trying again"));
                    told = true;
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY.1);
            }
        }
    }
}

/// Runs `work` until it ends or the person presses Ctrl-C, which is how following ends well.
pub(crate) async fn until_interrupted(
    work: impl Future<Output = anyhow::Result<Exit>>,
) -> anyhow::Result<Exit> {
    tokio::select! {
        ended = work => ended,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Ok),
    }
}

fn is_change(happening: &Happening) -> bool {
    matches!(happening, Happening::Node(_) | Happening::Cluster(_) | Happening::Resync(_))
}
