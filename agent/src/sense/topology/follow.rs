//! Follows the own Node and the own virtual machine, each in a task: read, watched, read again. What is known of each
//! stands in a channel that holds the newest.

use std::time::Duration;

use kube::api::{GetParams, WatchParams};
use kube::core::{Request, WatchEvent};
use outrider_protocol::{Fact, HostFacts, MachineTopology, NodeTopology, Timestamp, UnknownCause};
use serde_json::Value;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::machine::{self, Machines, Mine};
use super::node::{self, NODES, parse};
use super::session::{Session, WATCH};
use crate::config::TopologySettings;
use crate::sense::{SenseContext, host};

/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Pause where there is nothing to read.
const REST: Duration = Duration::from_secs(30);
/// A watch that lasted for less is followed by as long a pause.
const SHORT: Duration = Duration::from_secs(2);
/// All machines are looked at again after so long: another may have come to have the same MAC.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Two tasks that end with it.
pub(super) struct Followed {
    pub(super) node: Receiver<Fact<NodeTopology>>,
    pub(super) machine: Receiver<Fact<MachineTopology>>,
    tasks: [AbortHandle; 2],
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Followed {
    pub(super) fn start(cx: &SenseContext, settings: &TopologySettings) -> Self {
        fn unread<T>(cx: &SenseContext) -> Fact<T> {
            Fact::unknown(UnknownCause::NotYetRead, "the first read is under way", "topology", cx.now())
        }
        let (of_node, node) = channel(unread(cx));
        let (of_machine, machine) = channel(unread(cx));
        let tasks = [
            tokio::spawn(follow_node(cx.clone(), settings.clone(), of_node)).abort_handle(),
            tokio::spawn(follow_machine(cx.clone(), settings.clone(), node.clone(), of_machine))
                .abort_handle(),
        ];
        Self { node, machine, tasks }
    }
}

/// How long to wait after a failure, or where nothing was found: longer each time, and never in step with others.
#[derive(Default)]
struct Pause(Duration);

impl Pause {
    async fn after_failure(&mut self) {
        self.wait(PAUSE.0, PAUSE.1).await;
    }

    async fn wait(&mut self, first: Duration, longest: Duration) {
        self.0 = (self.0 * 2).clamp(first, longest);
        sleep(self.0.mul_f64(0.5 + 0.5 * rand::random::<f64>())).await;
    }
}

/// Whether there is nothing to be had for now, which is no failure.
fn rests<T>(fact: &Fact<T>) -> bool {
    matches!(fact, Fact::NotApplicable { .. } | Fact::Absent { .. })
}

async fn blocking<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(read).await.ok()
}

async fn follow_node(cx: SenseContext, settings: TopologySettings, out: Sender<Fact<NodeTopology>>) {
    let (mut pause, mut tainted) = (Pause::default(), Tainted::default());
    loop {
        let found = {
            let (cx, settings) = (cx.clone(), settings.clone());
            blocking(move || node::way(&cx, &settings)).await
        };
        let way = match found {
            Some(Ok(way)) => way,
            Some(Err(why)) => {
                let rest = rests(&why);
                out.send_replace(*why);
                if rest {
                    sleep(REST).await
                } else {
                    pause.after_failure().await
                }
                continue;
            }
            None => return,
        };
        let source = format!("{}{NODES}/{}", way.access.server(), way.name);
        let mut session = Session::new(way.access);
        loop {
            match one_round(&cx, &mut session, &way.name, &source, &mut tainted, &out).await {
                Ok(true) => pause = Pause::default(),
                Ok(false) => sleep(REST).await,
                Err(failure) => {
                    out.send_replace(failure.into_fact(source, cx.now()));
                    break;
                }
            }
        }
        pause.after_failure().await;
    }
}

/// Since when the own Node waits for a cloud provider. The taint has no time of its own.
#[derive(Default)]
struct Tainted(Option<Timestamp>);

impl Tainted {
    fn note(&mut self, node: &mut NodeTopology, now: Timestamp) {
        // One without a provider's name has had the taint since it was made.
        let begun = node.created.filter(|_| node.provider_id.is_empty()).unwrap_or(now);
        self.0 = node.uninitialized.then(|| self.0.unwrap_or(begun));
        node.uninitialized_since = self.0;
    }
}

/// Reads the Node and watches it for a while; false when there is none.
async fn one_round(
    cx: &SenseContext,
    session: &mut Session,
    name: &str,
    source: &str,
    tainted: &mut Tainted,
    out: &Sender<Fact<NodeTopology>>,
) -> Result<bool, crate::net::Failure> {
    let nodes = Request::new(NODES);
    let what = format!("get nodes/{name} at {}", session.server());
    let mut tell = |object: &Value| {
        let mut node = parse(object);
        tainted.note(&mut node, cx.now());
        tell_news(out, Fact::known(node, source, cx.now()));
    };
    let Some(object) = session.read(&what, nodes.get(name, &GetParams::default())).await? else {
        out.send_replace(Fact::absent(source, cx.now()));
        return Ok(false);
    };
    tell(&object);
    let only = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH);
    let what = format!("watch nodes with metadata.name={name} at {}", session.server());
    let since = machine::version(&object);
    drop(object);
    let begun = Instant::now();
    let watched = session
        .watch(&what, nodes.watch(&only, &since), |event| match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => tell(&object),
            WatchEvent::Deleted(_) => drop(out.send_replace(Fact::absent(source, cx.now()))),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        })
        .await;
    watched_for(begun, watched).await
}

/// A watch that a server ends at once is no news, and not to be asked for again and again; what was read stands.
async fn watched_for(
    begun: Instant,
    watched: Result<(), crate::net::Failure>,
) -> Result<bool, crate::net::Failure> {
    match watched {
        Err(failure) if failure.cause != UnknownCause::Unreachable => return Err(failure),
        _ => {}
    }
    if begun.elapsed() < SHORT {
        sleep(SHORT).await;
    }
    Ok(true)
}

/// Wakes whoever waits only for what differs in more than its version: a kubelet writes its Node every few minutes.
fn tell_news(out: &Sender<Fact<NodeTopology>>, new: Fact<NodeTopology>) {
    let plain = |fact: &Fact<NodeTopology>| {
        fact.value().map(|node| NodeTopology { resource_version: String::new(), ..node.clone() })
    };
    out.send_if_modified(|old| {
        let is_news = old.value().is_none() || plain(old) != plain(&new);
        *old = new;
        is_news
    });
}

async fn follow_machine(
    cx: SenseContext,
    settings: TopologySettings,
    node: Receiver<Fact<NodeTopology>>,
    out: Sender<Fact<MachineTopology>>,
) {
    let (mut pause, mut lost) = (Pause::default(), Pause::default());
    loop {
        let found = {
            let (cx, settings) = (cx.clone(), settings.clone());
            blocking(move || machine::way(&cx, &settings)).await
        };
        let way = match found {
            Some(Ok(way)) => way,
            Some(Err(why)) => {
                let rest = rests(&why);
                out.send_replace(*why);
                if rest {
                    sleep(REST).await
                } else {
                    pause.after_failure().await
                }
                continue;
            }
            None => return,
        };
        let source = way.access.server();
        let mut machines = Machines::new(way);
        let mut mine: Option<(Mine, Instant)> = None;
        loop {
            match machine_round(&cx, &mut machines, &node, &mut mine, &out).await {
                Ok(true) => (pause, lost) = (Pause::default(), Pause::default()),
                // A namespace has many machines, and each look asks for all of them.
                Ok(false) => lost.wait(REST, LOOK_AGAIN).await,
                Err(failure) => {
                    out.send_replace(failure.into_fact(source, cx.now()));
                    break;
                }
            }
        }
        pause.after_failure().await;
    }
}

/// This machine's own name and cards as they are now: a card is added, and a name changed, while it runs.
async fn own_marks(cx: &SenseContext) -> Result<HostFacts, crate::net::Failure> {
    let cx = cx.clone();
    match blocking(move || host::read(&cx)).await {
        Some(Fact::Known { value, .. }) => Ok(value),
        _ => {
            let why = "this machine's own name and addresses are not known";
            Err(crate::net::Failure::new(UnknownCause::IoError, why))
        }
    }
}

/// Finds the machine when that is due, reads it and watches it for a while; false when there is nothing to watch.
async fn machine_round(
    cx: &SenseContext,
    machines: &mut Machines,
    node: &Receiver<Fact<NodeTopology>>,
    mine: &mut Option<(Mine, Instant)>,
    out: &Sender<Fact<MachineTopology>>,
) -> Result<bool, crate::net::Failure> {
    let source = machines.session.server();
    let tell = |machine: MachineTopology| {
        out.send_if_modified(|old| {
            let is_news = old.value() != Some(&machine);
            *old = Fact::known(machine, source.as_str(), cx.now());
            is_news
        });
    };
    if mine.as_ref().is_none_or(|(_, at)| at.elapsed() >= LOOK_AGAIN) {
        let name = node.borrow().value().map(|node| node.name.clone()).unwrap_or_default();
        let host = own_marks(cx).await?;
        match machines.find(&host, &name).await? {
            Ok(found) => *mine = Some((found, Instant::now())),
            Err(none) => {
                *mine = None;
                tell(*none);
                return Ok(false);
            }
        }
    }
    let Some((found, _)) = mine.clone() else { return Ok(false) };
    let Some((machine, version)) = machines.read(&found).await? else {
        // Gone or renamed: all are looked at again, at once.
        *mine = None;
        return Ok(true);
    };
    tell(machine);
    let mut gone = false;
    let watched = machines.watch(&found, &version, |machine| match machine {
        Some(machine) => tell(machine),
        None => gone = true,
    });
    let begun = Instant::now();
    let watched = watched.await;
    if gone {
        *mine = None;
        return Ok(true);
    }
    watched_for(begun, watched).await
}
