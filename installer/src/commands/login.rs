//! `outrider login`: try a coordinator and its token, then remember them.

use std::io::{BufRead, IsTerminal};

use anyhow::{Context, bail};
use outrider_protocol::CoordinatorView;

use crate::cli::{Global, LoginArgs};
use crate::client::Client;
use crate::contexts::{Contexts, Endpoint, Saved, Secret, checksum, coordinator_url, variable};
use crate::exit::Exit;
use crate::output::{Screen, UsageError};

/// Longest line taken for a token.
const MAX_TOKEN: u64 = 4096;

/// Runs the command. Nothing is remembered that did not work.
pub(crate) async fn run(args: LoginArgs, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
    if global.context.is_some() {
        bail!(UsageError("login takes --name for the name to remember, not --context".to_owned()));
    }
    let url = coordinator_url(&args.url)?;
    let given = args.ca_checksum.as_deref();
    if let Some(given) = given {
        checksum(given).map_err(|problem| UsageError(format!("--ca-checksum: {problem}")))?;
    }
    let token = token(&args, screen)?;
    if let (Some(given), Some(pinned)) = (given, token.pin())
        && checksum(given) != checksum(&pinned)
    {
        let given = given.replace(':', "").to_lowercase();
        bail!(UsageError(format!(
            "the CA does not match: --ca-checksum is {given}, the token pins {pinned}; find out which one is the \
             coordinator's before you trust either"
        )));
    }
    let endpoint = Endpoint::new(&args.url, token.clone(), given, "as given".to_owned())?;
    let mut client = Client::new(endpoint).await?;
    let coordinator: CoordinatorView =
        screen.busy("Asking the coordinator", client.get("/v1/coordinator")).await?;
    let name = args.name.unwrap_or_else(|| url.authority());
    let path = Contexts::path()?;
    let mut contexts = Contexts::load(&path, screen)?;
    // Kept beside the token: another token, from OUTRIDER_TOKEN, is no reason to trust another authority.
    let ca_checksum = given.map(|given| given.replace(':', "").to_lowercase()).or_else(|| token.pin());
    contexts.contexts.insert(name.clone(), Saved { url: url.to_string(), ca_checksum, token });
    contexts.current.clone_from(&name);
    contexts.save(&path)?;
    screen.write(&format!(
        "Logged in to {url} (coordinator {}); context {name:?} is in use.\n",
        coordinator.version
    ))?;
    Ok(Exit::Ok)
}

/// The token: as an argument, from the environment, or one line of standard input.
fn token(args: &LoginArgs, screen: &mut Screen) -> anyhow::Result<Secret> {
    let (from, text) = match (&args.token, variable("OUTRIDER_TOKEN")?) {
        (Some(token), _) if token != "-" => ("--token", token.clone()),
        (None, Some(token)) => ("OUTRIDER_TOKEN", token),
        _ => {
            let stdin = std::io::stdin();
            if stdin.is_terminal() {
                screen.note("Paste the operator token and press Enter:");
            }
            let mut line = String::new();
            std::io::Read::take(stdin.lock(), MAX_TOKEN)
                .read_line(&mut line)
                .context("cannot read the token from standard input")?;
            ("standard input", line)
        }
    };
    if text.trim().is_empty() {
        bail!(UsageError(
            "no token was given: use --token, OUTRIDER_TOKEN or standard input; the first one is in the coordinator's \
             state folder"
                .to_owned()
        ));
    }
    let token = Secret::new(&text);
    token.check_form(from)?;
    Ok(token)
}
