//! `outrider-coordinator ca`.

use std::io::Write;
use std::path::Path;

use anyhow::bail;
use outrider_coordinator::OPERATOR_TOKEN_FILE;
use outrider_protocol::{List, RootView, TypeMeta};

use super::CaCommand;
use super::reach::{Offline, Reach, now};

/// Shows or changes what is trusted.
pub(super) async fn run(command: CaCommand, state_dir: &Path) -> anyhow::Result<()> {
    if let CaCommand::Show { output } = &command
        && output == "pem"
    {
        let bundle = std::fs::read(state_dir.join("ca/ca.pem"))?;
        return Ok(std::io::stdout().lock().write_all(&bundle)?);
    }
    let reach = Reach::find(state_dir).await?;
    let mut done = act(command, &reach).await;
    if let Reach::Stopped(offline) = reach {
        // A running coordinator has its token's file follow by itself.
        let file = state_dir.join(OPERATOR_TOKEN_FILE);
        if done.is_ok() && file.exists() {
            let followed = offline.registrar.ensure_operator_token(&file, now()).await;
            done = followed.map(drop).map_err(Into::into);
        }
        offline.close().await;
    }
    done
}

async fn act(command: CaCommand, reach: &Reach) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let (roots, output) = match command {
        CaCommand::Show { output } => (list(reach).await?, output),
        CaCommand::Rotate => {
            match reach {
                Reach::Running(api) => {
                    api.post::<RootView>("/v1/ca/roots", &()).await?;
                }
                Reach::Stopped(offline) => {
                    offline.authority.rotate(now())?;
                }
            }
            writeln!(
                out,
                "A new root issues from now on. The one before stays trusted: agents learn the new one when"
            )?;
            writeln!(out, "they renew. Retire it when `ca show` names no node that has not.")?;
            (list(reach).await?, "table".to_owned())
        }
        CaCommand::Retire { generation, force } => {
            match reach {
                Reach::Running(api) => {
                    let path = format!("/v1/ca/roots/{generation}?force={force}");
                    api.delete::<List<RootView>>(&path).await?;
                }
                Reach::Stopped(offline) => retire(offline, generation, force)?,
            }
            (list(reach).await?, "table".to_owned())
        }
    };
    if output == "json" {
        serde_json::to_writer_pretty(&mut out, &roots)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "{:<4} {:<8} {:<25} {:<65} NOT RENEWED", "ROOT", "STATE", "ENDS", "CHECKSUM")?;
    for root in &roots.items {
        let state = if root.active { "active" } else { "trusted" };
        let waiting = if root.active { "-".to_owned() } else { root.nodes.len().to_string() };
        writeln!(
            out,
            "{:<4} {state:<8} {:<25} {:<65} {waiting}",
            root.generation, root.not_after, root.checksum
        )?;
    }
    Ok(())
}

fn retire(offline: &Offline, generation: u32, force: bool) -> anyhow::Result<()> {
    let is_known = offline.authority.roots().iter().any(|r| r.generation == generation && !r.active);
    let left_out = if is_known { offline.registrar.nodes_of_root(generation) } else { Vec::new() };
    if !left_out.is_empty() && !force {
        bail!(
            "{} nodes have not renewed since root {generation}, the first of them {}; wait until they have, or give \
             --force: they must enrol anew then",
            left_out.len(),
            left_out[0].name
        );
    }
    Ok(offline.authority.retire(generation, now())?)
}

async fn list(reach: &Reach) -> anyhow::Result<List<RootView>> {
    let offline = match reach {
        Reach::Running(api) => return api.get("/v1/ca/roots").await,
        Reach::Stopped(offline) => offline,
    };
    let items = offline.authority.roots().into_iter().map(|root| {
        let left_out =
            if root.active { Vec::new() } else { offline.registrar.nodes_of_root(root.generation) };
        RootView {
            meta: TypeMeta::new("Root"),
            generation: root.generation,
            checksum: root.pin.to_string(),
            active: root.active,
            not_after: root.not_after,
            nodes: left_out.iter().map(|record| record.name.clone()).collect(),
        }
    });
    Ok(List {
        meta: TypeMeta::new("RootList"),
        revision: 0,
        continue_token: String::new(),
        items: items.collect(),
    })
}
