//! Enrolment and delivery against a fake coordinator, in paused time.

mod delivery;
mod enrolment;

use std::time::SystemTime;

use outrider_protocol::{
    ApiError, Condition, ConditionType, Identity, NodeConfigSpec, NodeRef, Profile, ReasonCode, Severity,
    Status, TypeMeta,
};
use tokio::time::timeout;

use super::fake::{Fake, Lines};
use super::*;
use crate::net::Url;

/// Far more than any of this takes, in time that costs nothing.
const LONG: Duration = Duration::from_secs(3600);

fn transition(id: i64) -> Transition {
    let at = Timestamp::from_millis(id);
    Transition {
        at,
        condition: Condition {
            condition_type: ConditionType::HostHealthy,
            status: if id % 2 == 0 { Status::True } else { Status::False },
            severity: Severity::Warn,
            reason: ReasonCode::DiskSpaceLow,
            message: format!("number {id}"),
            advice: String::new(),
            subject: format!("s{}", id % 7),
            last_transition_time: at,
            observed_at: at,
        },
        previous_status: None,
        previous_reason: None,
        removed: false,
        merged: 0,
    }
}

fn state(digest: &str) -> NodeState {
    NodeState {
        digest: digest.to_owned(),
        identity: Identity { boot_id: "boot-1".to_owned(), ..Identity::default() },
        conditions: Vec::new(),
        etcd: None,
        paths: Vec::new(),
        network: None,
        zone: String::new(),
        region: String::new(),
    }
}

fn target(urls: &[String], token: TokenSource) -> Target {
    Target {
        urls: urls.iter().map(|url| Url::parse(url).unwrap()).collect(),
        ca_checksum: None,
        token,
        heartbeat: Duration::from_secs(30),
        refresh: Duration::from_secs(300),
        node: NodeRef {
            name: "n1".to_owned(),
            uid: String::new(),
            cluster: "c1".to_owned(),
            profile: Profile::Generic,
            simulated: false,
        },
    }
}

fn reporter(fakes: &[&Fake], disk: &MemoryDisk, target: Target) -> Reporter {
    reporter_ahead(fakes, disk, target, Duration::ZERO)
}

/// One whose clock is ahead.
fn reporter_ahead(fakes: &[&Fake], disk: &MemoryDisk, target: Target, ahead: Duration) -> Reporter {
    Reporter::start(ReporterOptions {
        disk: Ok(Arc::new(disk.clone())),
        limits: SpoolLimits::default(),
        clock: Arc::new(move || Timestamp::from(SystemTime::now()).after(ahead)),
        transport: Arc::new(Lines(fakes.iter().map(|fake| (*fake).clone()).collect())),
        target,
    })
}

fn started(fake: &Fake, disk: &MemoryDisk) -> Reporter {
    let reporter = reporter(&[fake], disk, target(&[fake.url()], fake.token()));
    reporter.put(Vec::new(), &[], Some(state("d1")));
    reporter
}

/// Waits until delivery stands as `wanted`; the last status otherwise.
async fn until(reporter: &Reporter, wanted: impl FnMut(&DeliveryStatus) -> bool) -> DeliveryStatus {
    let mut status = reporter.status();
    let found = timeout(LONG, status.wait_for(wanted)).await.map(|found| found.unwrap().clone());
    found.unwrap_or_else(|_| panic!("not reached; the last status is {:?}", *reporter.status().borrow()))
}

/// Waits until the fake has seen what `wanted` asks for.
async fn seen(fake: &Fake, wanted: impl Fn(&super::fake::Mind) -> bool) {
    let wait = async {
        while !wanted(&fake.mind()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(LONG, wait).await.expect("the coordinator has not seen it");
}

fn ids(fake: &Fake) -> Vec<i64> {
    fake.mind().history.iter().map(|t| t.at.as_millis()).collect()
}
