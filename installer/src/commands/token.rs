//! `outrider token`: what lets machines ask to be nodes.

use http::Method;
use outrider_protocol::{List, Timestamp, TokenKind, TokenRequest, TokenView, TypeMeta};

use crate::cli::{Global, TokenArgs, TokenCommand, TokenCreateArgs};
use crate::client::{Client, in_our_words, percent_encoded};
use crate::contexts;
use crate::exit::Exit;
use crate::output::{Format, Screen, Table, document, text};
use crate::show::tokens;

/// Runs the command.
pub(crate) async fn run(args: TokenArgs, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
    let mut client = Client::new(contexts::choose(global, screen)?).await?;
    match args.command {
        TokenCommand::Create(args) => create(args, &mut client, screen).await,
        TokenCommand::List { output } => list(&output, &mut client, screen).await,
        TokenCommand::Revoke { ids } => {
            let mut exit = Exit::Ok;
            for id in ids {
                match client.order(Method::DELETE, &format!("/v1/tokens/{}", percent_encoded(&id))).await {
                    Ok(()) => screen.write(&format!("token/{id} revoked\n"))?,
                    Err(error) => exit = screen.failure(&in_our_words(error, &id), Exit::Usage),
                }
            }
            Ok(exit)
        }
    }
}

async fn create(args: TokenCreateArgs, client: &mut Client, screen: &mut Screen) -> anyhow::Result<Exit> {
    let request = TokenRequest {
        meta: TypeMeta::new("TokenRequest"),
        token_kind: if args.pool { TokenKind::Pool } else { TokenKind::Once },
        ttl_seconds: args.ttl.map(|ttl| ttl.as_secs()),
        uses: args.uses,
        name_pattern: args.name_pattern,
        rate_per_hour: args.rate_per_hour,
        admit_seen_vm: args.admit_seen_vm,
        cluster: args.cluster,
    };
    let token: TokenView = client.post("/v1/tokens", &request).await.map_err(|e| in_our_words(e, ""))?;
    let text = match args.output {
        Format::Json => document::json(&token)?,
        Format::Yaml => document::yaml(&token)?,
        // Alone on its line, so that a script can take it.
        _ => format!("{}\n", token.token),
    };
    screen.write(&text)?;
    if !matches!(args.output, Format::Json | Format::Yaml) {
        screen.note(&told(&token));
    }
    Ok(Exit::Ok)
}

/// What was made, in a line: the token itself tells none of it.
fn told(token: &TokenView) -> String {
    let life = match token.expires_at {
        Some(end) => format!("ends in {} ({end})", text::age(end.since(token.created_at))),
        None => "no end".to_owned(),
    };
    let uses = match token.uses_left {
        Some(1) => "for 1 node".to_owned(),
        Some(n) => format!("for {n} nodes"),
        None => "for any number of nodes".to_owned(),
    };
    format!("token/{} of kind {}: {life}, {uses}; it is shown this once", token.id, token.token_kind)
}

async fn list(format: &Format, client: &mut Client, screen: &mut Screen) -> anyhow::Result<Exit> {
    let list: List<TokenView> = screen.busy("Asking the coordinator", client.get("/v1/tokens")).await?;
    let now = Timestamp::from(std::time::SystemTime::now());
    let text = match format {
        Format::Json => document::json(&list)?,
        Format::Yaml => document::yaml(&list)?,
        Format::Name => list.items.iter().map(|token| format!("token/{}\n", token.id)).collect(),
        format => {
            Table::new(tokens::columns(now), matches!(format, Format::Wide)).on(screen).render(&list.items)
        }
    };
    screen.write(&text)?;
    Ok(Exit::Ok)
}
