//! The parts that `up` runs: started in the order they need each other, ended the other way round.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use outrider_agent::RunOptions;
use outrider_agent::config::ConfigSource;
use outrider_agent::daemon::Embedding;
use outrider_agent::net::Url;
use outrider_agent::notify::Notifier;
use outrider_agent::report::Token;
use outrider_coordinator::{BindError, Coordinator, DEFAULT_PORT, Options, StartError};
use outrider_protocol::{ClusterView, Fleet, List, TokenKind, TokenRequest, TypeMeta};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::cli::UpArgs;
use crate::client::{Client, percent_encoded};
use crate::contexts::{Endpoint, Secret};
use crate::looking::machine;
use crate::output::UsageError;
use crate::simulate::{self, Play};

/// Bytes a socket's path may have, less than the kernel's 108.
const SOCKET_PATH: usize = 90;

/// Coordinator, agent and simulated nodes.
pub(super) struct Parts {
    coordinator: Coordinator,
    agent: JoinHandle<()>,
    agent_ended: watch::Receiver<Option<String>>,
    stop_agent: Option<oneshot::Sender<()>>,
    runtime_dir: PathBuf,
    play: Option<Play>,
}

impl Parts {
    /// Starts them all.
    pub(super) async fn start(args: &UpArgs, state_dir: &Path) -> anyhow::Result<Self> {
        if let Some(file) = args.config.as_ref().filter(|file| !file.exists()) {
            return Err(UsageError(format!("--config: there is no file {}", file.display())).into());
        }
        let coordinator = coordinator(args.listen, &state_dir.join("coordinator")).await?;
        let count = args.simulate as usize;
        let url = Url::parse(&coordinator.url()).context("the coordinator's own address")?;
        retire_former(&coordinator, count).await?;
        let knows: BTreeSet<String> = coordinator
            .nodes()
            .into_iter()
            .filter(|node| node.simulated && node.enrolment != "revoked")
            .map(|node| node.name)
            .collect();
        let token = token(&coordinator, state_dir, count, &knows).await?;
        let runtime_dir = runtime_dir(state_dir)?;
        let (stop_agent, stopped) = oneshot::channel();
        let agent = RunOptions {
            config: args.config.clone().map_or_else(ConfigSource::default, ConfigSource::File),
            state_dir: state_dir.join("agent"),
            runtime_dir: runtime_dir.clone(),
            sense: machine(),
            sensors: None,
            embedding: Some(Embedding { urls: vec![url.to_string()], token: token.clone() }),
            notifier: Notifier::silent(),
        };
        let (tell, agent_ended) = watch::channel(None);
        let agent = tokio::spawn(async move {
            let ended = outrider_agent::run(agent, async { drop(stopped.await) }).await;
            let how =
                ended.map_or_else(|error| format!("{:#}", anyhow::Error::new(error)), |()| String::new());
            tell.send_replace(Some(how));
        });
        let play = (count > 0).then(|| Play::begin(count, url, token, state_dir, &knows));
        Ok(Self { coordinator, agent, agent_ended, stop_agent: Some(stop_agent), runtime_dir, play })
    }

    /// Where the coordinator is.
    pub(super) fn url(&self) -> String {
        self.coordinator.url()
    }

    /// SHA-256 of the coordinator's root certificate.
    pub(super) fn ca_checksum(&self) -> String {
        self.coordinator.ca_checksum()
    }

    /// The fleet as the coordinator shows it, without simulated nodes of former plays.
    pub(super) async fn fleet(&self) -> anyhow::Result<Fleet> {
        let mut client = client(&self.coordinator).await?;
        let clusters: List<ClusterView> = client.get("/v1/clusters").await?;
        let mut nodes = self.coordinator.nodes();
        nodes.retain(|node| !(node.simulated && node.enrolment == "revoked"));
        Ok(Fleet {
            meta: TypeMeta::new("Fleet"),
            coordinator: self.coordinator.view(),
            clusters: clusters.items,
            nodes,
        })
    }

    /// Ends only when the agent has ended by itself, which it should not.
    pub(super) async fn agent_failed(&self) -> anyhow::Error {
        let mut ended = self.agent_ended.clone();
        match ended.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(why)) if !why.is_empty() => anyhow::anyhow!("the agent cannot run: {why}"),
            _ => anyhow::anyhow!("the agent ended by itself"),
        }
    }

    /// Ends them in order: who reports before who is reported to.
    pub(super) async fn end(mut self) {
        drop(self.stop_agent.take());
        let _ = (&mut self.agent).await;
        if let Some(play) = self.play.take() {
            play.end().await;
        }
        self.coordinator.shutdown().await;
        let _ = std::fs::remove_dir_all(&self.runtime_dir);
    }
}

/// Starts the coordinator: where it was told to listen, else at the usual port of the loopback, else at a free one.
async fn coordinator(listen: Option<SocketAddr>, state_dir: &Path) -> anyhow::Result<Coordinator> {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT));
    let options = |address| Options { listen: vec![address], ..Options::on_loopback(state_dir) };
    let started = match outrider_coordinator::start(options(listen.unwrap_or(usual))).await {
        Err(StartError::Bind(BindError::InUse { .. })) if listen.is_none() => {
            outrider_coordinator::start(Options::on_loopback(state_dir)).await
        }
        other => other,
    };
    started.context("the coordinator cannot start")
}

async fn client(coordinator: &Coordinator) -> anyhow::Result<Client> {
    let token = Secret::new(coordinator.operator_token());
    Client::new(Endpoint::new(&coordinator.url(), token, None, "`outrider up`".to_owned())?).await
}

/// Revokes the simulated nodes of a former, larger play: they would be silent for ever.
async fn retire_former(coordinator: &Coordinator, count: usize) -> anyhow::Result<()> {
    let playing: BTreeSet<String> = simulate::names(count).into_iter().collect();
    let nodes = coordinator.nodes();
    let former = nodes.iter().filter(|node| node.simulated && node.enrolment != "revoked");
    let former = former.filter(|node| !playing.contains(&node.name));
    let mut client = client(coordinator).await?;
    for node in former {
        let path = format!("/v1/nodes/{}/revoke", percent_encoded(&node.name));
        client.order(http::Method::POST, &path).await?;
    }
    // They were never machines: nothing of them is worth keeping, and no list is to show them for ever.
    coordinator.forget_simulated().await.context("simulated nodes of a former play cannot be forgotten")
}

/// A token for whoever has to enrol; none when all are known, so that runs leave no heap of tokens behind.
async fn token(
    coordinator: &Coordinator,
    state_dir: &Path,
    count: usize,
    knows: &BTreeSet<String>,
) -> anyhow::Result<Option<Token>> {
    let nodes = coordinator.nodes();
    let known = |uid: Option<String>| uid.is_some_and(|uid| nodes.iter().any(|node| node.uid == uid));
    let own = std::fs::read(state_dir.join("agent/identity.json")).ok();
    let own = own.and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    let own = own.and_then(|ledger| ledger.get("nodeUid")?.as_str().map(str::to_owned));
    let returning = simulate::returning(state_dir);
    let all_return =
        simulate::names(count).iter().all(|name| returning.contains(name) && knows.contains(name));
    if known(own) && all_return {
        return Ok(None);
    }
    let request = TokenRequest {
        meta: TypeMeta::new("TokenRequest"),
        token_kind: TokenKind::Once,
        ttl_seconds: None,
        uses: Some(u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1)),
        name_pattern: String::new(),
        rate_per_hour: 0,
        admit_seen_vm: false,
        cluster: String::new(),
    };
    let view = coordinator.create_token(&request).await.context("cannot make an enrolment token")?;
    Ok(Some(Token::parse(&view.token).context("the token just made")?))
}

/// The folder of the agent's socket: in the state folder, unless that path is too long for a socket's address.
fn runtime_dir(state_dir: &Path) -> anyhow::Result<PathBuf> {
    let beside = state_dir.join("run");
    if beside.as_os_str().len() <= SOCKET_PATH {
        return Ok(beside);
    }
    let made = std::env::temp_dir().join(format!("outrider-up-{}", std::process::id()));
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(&made)
        .with_context(|| format!("cannot make {} for the agent's socket", made.display()))?;
    Ok(made)
}
