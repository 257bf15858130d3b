//! `outrider context`: the coordinators logged in to.

use anyhow::bail;
use outrider_protocol::TypeMeta;
use serde::Serialize;

use crate::cli::{ContextArgs, ContextCommand};
use crate::contexts::Contexts;
use crate::exit::Exit;
use crate::output::{Column, Format, Screen, Table, document};

/// A remembered coordinator, without its token.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ContextView {
    name: String,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_checksum: Option<String>,
    current: bool,
}

#[derive(Debug, Serialize)]
struct ContextList {
    #[serde(flatten)]
    meta: TypeMeta,
    items: Vec<ContextView>,
}

/// Runs the command.
pub(crate) fn run(args: ContextArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let path = Contexts::path()?;
    let mut contexts = Contexts::load(&path, screen)?;
    let unknown = |name: &str, contexts: &Contexts| {
        anyhow::anyhow!("there is no context {name:?} in {}; known: {}", path.display(), contexts.names())
    };
    match args.command {
        ContextCommand::List { output } => {
            let text = list(&contexts, &output, screen)?;
            screen.write(&text)?;
        }
        ContextCommand::Use { name } => {
            if !contexts.contexts.contains_key(&name) {
                bail!(unknown(&name, &contexts));
            }
            contexts.current = name;
            contexts.save(&path)?;
        }
        ContextCommand::Remove { name } => {
            if contexts.contexts.remove(&name).is_none() {
                bail!(unknown(&name, &contexts));
            }
            if contexts.current == name {
                contexts.current.clear();
            }
            contexts.save(&path)?;
        }
    }
    Ok(Exit::Ok)
}

fn list(contexts: &Contexts, format: &Format, screen: &Screen) -> anyhow::Result<String> {
    let items: Vec<ContextView> = contexts
        .contexts
        .iter()
        .map(|(name, saved)| ContextView {
            name: name.clone(),
            url: saved.url.clone(),
            ca_checksum: saved.ca_checksum.clone(),
            current: *name == contexts.current,
        })
        .collect();
    let list = ContextList { meta: TypeMeta::new("ContextList"), items };
    Ok(match format {
        Format::Json => document::json(&list)?,
        Format::Yaml => document::yaml(&list)?,
        Format::Name => list.items.iter().map(|item| format!("context/{}\n", item.name)).collect(),
        format => {
            let columns = vec![
                Column::new("CURRENT", |c: &ContextView| if c.current { "*" } else { "-" }),
                Column::new("NAME", |c: &ContextView| c.name.clone()),
                Column::new("URL", |c: &ContextView| c.url.clone()),
                Column::wide("CA-SHA256", |c: &ContextView| c.ca_checksum.clone().unwrap_or_default()),
            ];
            Table::new(columns, matches!(format, Format::Wide)).on(screen).render(&list.items)
        }
    })
}
