//! How long a silent WebSocket lasts, where `idle_test` measures it (E9).
//!
//! Rancher's documents want 1800 s for reading and writing of every proxy in front of it. The tunnel of its agents says
//! something every 5 s (rancher/remotedialer, `PingWriteInterval`), so what is cut are shells and logs in the UI.

use outrider_protocol::{
    BalancerMode, Fact, IdleEnd, IdleFacts, IdleHold, IdleManner, LoadBalancerFacts, Severity,
};

/// What Rancher's documents ask for.
const WANTED_SECONDS: f64 = 1800.0;
/// A timer that is set to just that may be measured a little shorter.
const NEARLY: f64 = 0.99;
/// How often the agents' tunnel says something.
const TUNNEL_SECONDS: f64 = 5.0;

/// A silent WebSocket is cut early: how grave that is, the sentence, and the advice.
pub(super) struct CutEarly {
    pub(super) severity: Severity,
    pub(super) message: String,
    pub(super) advice: String,
}

/// Who ends it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Balancer,
    Ingress,
    Either,
}

/// What was measured, where it is too short and tells of WebSockets.
pub(super) fn cut_early(b: &LoadBalancerFacts) -> Option<CutEarly> {
    let idle = measured(b)?;
    let through = &idle.through;
    if through.end == IdleEnd::Held || through.seconds >= WANTED_SECONDS * NEARLY {
        return None;
    }
    let (who, compared) = who(idle);
    // An HTTP connection that the ingress ends tells nothing of those that were upgraded, and one that nobody compared
    // may be just that.
    if idle.manner == IdleManner::KeptAlive && who != Who::Balancer {
        return None;
    }
    let what = match idle.manner {
        IdleManner::WebSocket => "A silent WebSocket",
        _ => "A silent connection, which to a balancer in L4 is what a WebSocket is,",
    };
    let host = &b.host;
    let message = match through.end {
        IdleEnd::Lost => format!(
            "{what} through {host} is forgotten on the way without a word within {:.0} s (at {}); Rancher wants {WANTED_SECONDS:.0} \
             s{compared}.",
            through.seconds, through.peer
        ),
        _ => format!(
            "{what} through {host} is cut after {} (at {}); Rancher wants {WANTED_SECONDS:.0} s{compared}.",
            seconds(through.seconds),
            through.peer
        ),
    };
    let (severity, what_breaks) = if through.seconds <= TUNNEL_SECONDS {
        (Severity::Error, "Even the tunnels of Rancher's agents, which say something every 5 s, are cut.")
    } else {
        (
            Severity::Warn,
            "Shells and logs in the UI end when nothing is typed or printed for so long; the agents' tunnels say something \
             every 5 s and stay.",
        )
    };
    Some(CutEarly { severity, message: format!("{message} {what_breaks}"), advice: advice(b, who) })
}

/// What is said of it where nothing is wrong: a clause that begins with a semicolon, or nothing.
pub(super) fn clause(b: &LoadBalancerFacts) -> String {
    let idle = match &b.idle {
        Some(Fact::Known { value, .. }) => value,
        Some(Fact::Unknown { detail, .. }) => return format!("; how long silence is borne: {detail}"),
        Some(Fact::NotApplicable { reason, .. }) => {
            return format!("; how long silence is borne is not measured: {reason}");
        }
        Some(Fact::Absent { .. }) | None => return String::new(),
    };
    let held = seconds(idle.through.seconds);
    match (&idle.through.end, &idle.manner) {
        (IdleEnd::Held, IdleManner::WebSocket) => {
            format!("; one without a word was held for {held}, the whole test")
        }
        (IdleEnd::Held, _) => format!("; a connection without a word was held for {held}, the whole test"),
        (_, IdleManner::WebSocket) => format!("; one without a word is cut after {held}"),
        (_, _) => format!(
            "; a connection without a word was held for {held} and then ended by the ingress or the balancer, which tells \
             nothing of WebSockets beyond that"
        ),
    }
}

fn measured(b: &LoadBalancerFacts) -> Option<&IdleFacts> {
    b.idle.as_ref().and_then(Fact::value)
}

/// Who ends it, and how that is known, as a clause that begins with a semicolon.
fn who(idle: &IdleFacts) -> (Who, String) {
    let through = &idle.through;
    let Some(Fact::Known { value: straight, .. }) = &idle.straight else {
        return (Who::Either, "; nothing tells whether the balancer or the ingress ends it".to_owned());
    };
    let IdleHold { peer, seconds: lasted, end } = straight;
    let about = (through.seconds * 0.1).max(2.0);
    let lasted_words = seconds(*lasted);
    match end {
        IdleEnd::Held => (
            Who::Balancer,
            format!("; straight at {peer} it is still there after {lasted_words}: the balancer ends it"),
        ),
        _ if *lasted > through.seconds + about => {
            (Who::Balancer, format!("; straight at {peer} it lasts {lasted_words}: the balancer ends it"))
        }
        _ => (
            Who::Ingress,
            format!("; straight at {peer} it ends after {lasted_words} as well: the ingress ends it"),
        ),
    }
}

fn advice(b: &LoadBalancerFacts, who: Who) -> String {
    let balancer = match b.mode {
        BalancerMode::L4 => {
            "HAProxy: timeout client 1800s and timeout server 1800s; nginx stream: proxy_timeout 1800s; AWS NLB: TCP idle \
             timeout 1800 s"
        }
        _ => {
            "HAProxy: timeout tunnel 1800s; nginx: proxy_read_timeout 1800s and proxy_send_timeout 1800s; AWS ALB: idle timeout \
             1800 s"
        }
    };
    let ingress = "ingress-nginx: the annotations proxy-read-timeout and proxy-send-timeout \"1800\" that Rancher's chart sets; \
                   Traefik: idleTimeout of its entry points";
    match who {
        Who::Balancer => format!("Let the balancer bear 30 minutes of silence. {balancer}."),
        Who::Ingress => format!("Let the ingress bear 30 minutes of silence. {ingress}."),
        Who::Either => {
            format!("Let the balancer and the ingress bear 30 minutes of silence. {balancer}. {ingress}.")
        }
    }
}

fn seconds(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}
