//! `outrider-coordinator token`.

use std::io::Write;
use std::path::Path;

use outrider_protocol::{List, Timestamp, TokenKind, TokenRequest, TokenView, TypeMeta};

use super::reach::{Reach, now};
use super::{CreateArgs, TokenCommand};

/// Makes, lists or revokes tokens.
pub(super) async fn run(command: TokenCommand, state_dir: &Path) -> anyhow::Result<()> {
    let reach = Reach::find(state_dir).await?;
    let done = act(command, &reach).await;
    if let Reach::Stopped(offline) = reach {
        offline.close().await;
    }
    done
}

async fn act(command: TokenCommand, reach: &Reach) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match command {
        TokenCommand::Create(args) => {
            let request = request(args);
            let token: TokenView = match reach {
                Reach::Running(api) => api.post("/v1/tokens", &request).await?,
                Reach::Stopped(offline) => offline.registrar.create_token(&request, now()).await?,
            };
            writeln!(out, "{}", token.token)?;
        }
        TokenCommand::List { output } => {
            let tokens = match reach {
                Reach::Running(api) => api.get::<List<TokenView>>("/v1/tokens").await?.items,
                Reach::Stopped(offline) => offline.registrar.tokens().await?,
            };
            match output.as_str() {
                "json" => {
                    let list = List {
                        meta: TypeMeta::new("TokenList"),
                        revision: 0,
                        continue_token: String::new(),
                        items: tokens,
                    };
                    serde_json::to_writer_pretty(&mut out, &list)?;
                    writeln!(out)?;
                }
                _ => table(&mut out, &tokens, now())?,
            }
        }
        TokenCommand::Revoke { ids } => {
            for id in ids {
                let token = match reach {
                    Reach::Running(api) => api.delete::<TokenView>(&format!("/v1/tokens/{id}")).await?,
                    Reach::Stopped(offline) => offline.registrar.revoke_token(&id, now()).await?,
                };
                writeln!(out, "token/{} revoked", token.id)?;
            }
        }
    }
    Ok(())
}

fn request(args: CreateArgs) -> TokenRequest {
    TokenRequest {
        meta: TypeMeta::new("TokenRequest"),
        token_kind: if args.pool { TokenKind::Pool } else { TokenKind::Once },
        ttl_seconds: args.ttl.map(|ttl| ttl.as_secs()),
        uses: args.uses,
        name_pattern: args.name_pattern,
        rate_per_hour: args.rate_per_hour,
        admit_seen_vm: args.admit_seen_vm,
        cluster: args.cluster,
    }
}

fn table(out: &mut impl Write, tokens: &[TokenView], now: Timestamp) -> std::io::Result<()> {
    writeln!(out, "{:<14} {:<6} {:<8} {:<10} {:<25} NAMES", "ID", "KIND", "STATE", "USES LEFT", "ENDS")?;
    for token in tokens {
        let state = match token.expires_at {
            _ if token.revoked => "revoked",
            Some(end) if end <= now => "ended",
            _ if token.uses_left == Some(0) => "used",
            _ => "good",
        };
        let uses = token.uses_left.map_or_else(|| "any".to_owned(), |n| n.to_string());
        let ends = token.expires_at.map_or_else(|| "never".to_owned(), |end| end.to_string());
        let names = if token.name_pattern.is_empty() { "*" } else { &token.name_pattern };
        writeln!(out, "{:<14} {:<6} {state:<8} {uses:<10} {ends:<25} {names}", token.id, token.token_kind)?;
    }
    Ok(())
}
