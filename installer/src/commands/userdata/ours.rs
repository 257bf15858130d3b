//! What is asked for on the command line, as a request to render.

use std::path::Path;

use anyhow::Context as _;
use outrider_cloud_init::render::{Agent, GuestAgent, Key, Problem, Profile, Repository, Request, render};
use outrider_protocol::InstallIndex;

use crate::cli::OursArgs;
use crate::client::Client;
use crate::commands::install::token;
use crate::contexts::{Endpoint, Secret};
use crate::input::{self, Wanted};
use crate::output::UsageError;

const KEY: Wanted = Wanted { max_bytes: 64 << 10, what: "public key" };

/// The userdata for `profile`.
pub(super) async fn rendered(profile: Profile, args: &OursArgs) -> anyhow::Result<String> {
    let mut request = request(args)?;
    if let Some(family) = args.agent.as_deref().and_then(of_coordinator) {
        from_coordinator(&mut request, family?).await?;
    }
    render(profile, &request).map_err(|problems| refused(&problems))
}

/// The family that `coordinator` or `coordinator:FAMILY` asks for: an archive where none is said, which suits every image.
fn of_coordinator(word: &str) -> Option<Result<&str, UsageError>> {
    let family = match word.strip_prefix("coordinator")? {
        "" => "tar",
        rest => rest.strip_prefix(':')?,
    };
    let message = || format!("--agent: the coordinator serves tar, deb and rpm, and no {family:?}");
    Some(if ["tar", "deb", "rpm"].contains(&family) { Ok(family) } else { Err(UsageError(message())) })
}

/// The agent that the first coordinator serves, with the SHA-256 that it tells now, over TLS with the CA that the token pins.
/// With --sha256 nobody is asked.
async fn from_coordinator(request: &mut Request, family: &str) -> anyhow::Result<()> {
    let (Some(url), Some(token)) = (request.coordinators.first(), &request.token) else {
        let message = "--agent coordinator: name the coordinator with --coordinator and give an enrolment token; what it \
                       serves is for who may become a node";
        return Err(UsageError(message.to_owned()).into());
    };
    let url = url.trim_end_matches('/');
    let ending = if family == "tar" { "tar.gz" } else { family };
    request.agent = Agent::Url(format!("{url}/install/outrider-agent-{{arch}}.{ending}"));
    if !request.sha256.is_empty() {
        return Ok(());
    }
    let endpoint = Endpoint::new(url, Secret::new(token), None, "--coordinator".to_owned())?;
    let index: InstallIndex = Client::new(endpoint).await?.get("/install/index.json").await.context(
        "the SHA-256 of what the coordinator serves cannot be asked for; with --sha256 nobody is asked",
    )?;
    let sums = index.items.iter().filter(|item| item.family == family);
    request.sha256 = sums.map(|item| (Some(item.architecture.clone()), item.sha256.clone())).collect();
    if request.sha256.is_empty() {
        let unreadable: String = index.unreadable.iter().map(|why| format!(" (there is {why})")).collect();
        anyhow::bail!(
            "the coordinator at {url} serves no {family} of its version {}{unreadable}: put what packaging/build makes into its \
             folder of packages (`outrider-coordinator serve --install-dir`)",
            index.version
        );
    }
    Ok(())
}

/// Everything that was wrong with the options, a line each.
pub(super) fn refused(problems: &[Problem]) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(|p| format!("--{}: {}", p.what, p.message)).collect();
    UsageError(lines.join("\nerror: ")).into()
}

fn request(args: &OursArgs) -> anyhow::Result<Request> {
    Ok(Request {
        coordinators: args.node.coordinator.clone(),
        token: token(&args.node)?.map(|token| token.expose().to_owned()),
        cluster: args.node.cluster.clone(),
        load_balancer: args.load_balancer.clone(),
        agent: args.agent.as_deref().map(agent).unwrap_or_default(),
        sha256: args.sha256.iter().map(|word| sum(word)).collect(),
        repository: repository(args)?,
        guest_agent: args.guest_agent.as_deref().map(guest_agent).transpose()?,
    })
}

/// The repository that the document sets up, with its key where that is a file.
fn repository(args: &OursArgs) -> anyhow::Result<Option<Repository>> {
    let (Some(url), Some(key)) = (&args.repo, &args.repo_key) else { return Ok(None) };
    let key = match key.contains("://").then(|| key.split_once('#').unwrap_or((key.as_str(), ""))) {
        Some((url, sha256)) => Key::Url { url: url.to_owned(), sha256: sha256.to_owned() },
        None => {
            let (name, bytes) = input::read(Path::new(key), KEY)?;
            let text = String::from_utf8(bytes);
            Key::Text(text.map_err(|_| {
                UsageError(format!("--repo-key: {name} is no text; make it one with gpg --enarmor"))
            })?)
        }
    };
    Ok(Some(Repository { url: url.clone(), key }))
}

fn agent(word: &str) -> Agent {
    match word {
        "image" => Agent::Image,
        "package" => Agent::Package("outrider-agent".to_owned()),
        path if path.starts_with('/') => Agent::File(path.to_owned()),
        _ => match word.strip_prefix("package:") {
            Some(name) => Agent::Package(name.to_owned()),
            None => Agent::Url(word.to_owned()),
        },
    }
}

fn guest_agent(word: &str) -> anyhow::Result<GuestAgent> {
    Ok(match word {
        "package" => GuestAgent::Package,
        "image" => GuestAgent::Image,
        "none" => GuestAgent::None,
        path if path.starts_with('/') => GuestAgent::File(path.to_owned()),
        other => {
            let message =
                format!("--guest-agent: {other:?} is none of package, image, none or a path in the image");
            return Err(UsageError(message).into());
        }
    })
}

fn sum(word: &str) -> (Option<String>, String) {
    match word.split_once('=') {
        Some((arch, sum)) => (Some(arch.to_owned()), sum.to_owned()),
        None => (None, word.to_owned()),
    }
}
