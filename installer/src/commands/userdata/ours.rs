//! What is asked for on the command line, as a request to render.

use std::path::Path;

use anyhow::Context as _;
use outrider_agent::report::Token;
use outrider_cloud_init::render::{Agent, GuestAgent, Problem, Profile, Request, render};

use crate::cli::OursArgs;
use crate::input::{self, Wanted};
use crate::output::UsageError;

const TOKEN: Wanted = Wanted { max_bytes: 64 << 10, what: "token" };

/// The userdata for `profile`.
pub(super) fn rendered(profile: Profile, args: &OursArgs) -> anyhow::Result<String> {
    render(profile, &request(args)?).map_err(|problems| refused(&problems))
}

/// Everything that was wrong with the options, a line each.
pub(super) fn refused(problems: &[Problem]) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(|p| format!("--{}: {}", p.what, p.message)).collect();
    UsageError(lines.join("\nerror: ")).into()
}

fn request(args: &OursArgs) -> anyhow::Result<Request> {
    Ok(Request {
        coordinators: args.coordinator.clone(),
        token: token(args)?,
        cluster: args.cluster.clone(),
        load_balancer: args.load_balancer.clone(),
        agent: args.agent.as_deref().map(agent).unwrap_or_default(),
        sha256: args.sha256.iter().map(|word| sum(word)).collect(),
        guest_agent: args.guest_agent.as_deref().map(guest_agent).transpose()?,
    })
}

/// The enrolment token, taken apart once so that a slip is told as the agent would tell it.
fn token(args: &OursArgs) -> anyhow::Result<Option<String>> {
    let text = match (&args.token, &args.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(file)) => read(file)?,
        (None, None) => return Ok(None),
    };
    let token = Token::parse(&text).map_err(|e| UsageError(format!("--token: {e}")))?;
    Ok(Some(token.expose().to_owned()))
}

fn read(file: &Path) -> anyhow::Result<String> {
    let (name, bytes) = input::read(file, TOKEN)?;
    String::from_utf8(bytes).with_context(|| format!("{name} is no text"))
}

fn agent(word: &str) -> Agent {
    match word {
        "image" => Agent::Image,
        "package" => Agent::Package("outrider".to_owned()),
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
