//! What goes wrong, when, and how it shows in the readings of the nodes that see it.
//!
//! The script is a pure function of who a node is and how long the play has run: faults come, last longer than the
//! rules' hysteresis, and go. It touches raw readings only; every condition is the work of the real rules.

use std::time::Duration;

use outrider_protocol::{
    EtcdFacts, Fact, LoadBalancerFacts, NodeFacts, ProbeTarget, Timestamp, UnknownCause,
};

use super::part::{Part, Role, set};

/// What is wrong with one node at one moment, each with the time since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Members of its cluster that are down, by place.
    pub(crate) members_down: [Option<Duration>; 3],
    /// The backend of its balancer that is dead, by place.
    pub(crate) backend_dead: Option<usize>,
    /// Its disk fills, in percent of what it can lose.
    pub(crate) disk_filled: u64,
    /// Its guest agent is gone.
    pub(crate) guest_agent: Option<GuestAgentFault>,
    /// Its clock is wrong, in milliseconds.
    pub(crate) clock_off_ms: i64,
    /// It is switched off: nothing is heard of it.
    pub(crate) silent: bool,
}

impl Faults {
    /// What is wrong, without for how long: readings are taken anew when it changes.
    pub(crate) fn story(&self) -> ([bool; 3], Option<usize>, u64, Option<GuestAgentFault>, bool) {
        let down = self.members_down.map(|since| since.is_some());
        (down, self.backend_dead, self.disk_filled / 10, self.guest_agent, self.clock_off_ms != 0)
    }
}

/// How a guest agent can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestAgentFault {
    /// Somebody stopped it.
    Stopped,
    /// Somebody masked its unit.
    Masked,
    /// It was never installed.
    NotInstalled,
}

/// Seconds after which a node's story begins again: long enough that most of a fleet is well at any moment.
const PERIOD: u64 = 900;

/// Where `at` lies in a period that begins `shift` seconds early: seconds from its begin, and its number.
fn phase(at: Duration, period: u64, shift: u64) -> (u64, u64) {
    let at = at.as_secs() + shift % period;
    (at % period, at / period)
}

/// Seconds since `from`, while it is before `to`.
fn within(at: u64, from: u64, to: u64) -> Option<u64> {
    (from..to).contains(&at).then(|| at - from)
}

/// What is wrong with `part` when the play has run for `elapsed`.
pub(crate) fn script(part: &Part, elapsed: Duration) -> Faults {
    let mut faults = Faults::default();
    if part.role != Role::Vm {
        // The group shares its cluster's fate; other groups are elsewhere in the same story.
        let (at, turn) = phase(elapsed, PERIOD, part.group as u64 * 197);
        let first = turn as usize % 3;
        if let Some(seconds) = within(at, 20, 90) {
            faults.members_down[first] = Some(Duration::from_secs(seconds));
        }
        if let Some(seconds) = within(at, 150, 200) {
            faults.members_down[first] = Some(Duration::from_secs(seconds + 10));
            faults.members_down[(first + 1) % 3] = Some(Duration::from_secs(seconds));
        }
        faults.backend_dead = within(at, 260, 350).map(|_| (first + 2) % 3);
    }
    let (at, turn) = phase(elapsed, PERIOD, part.number as u64 * 53);
    match part.role {
        Role::Server { .. } => {}
        Role::Worker => {
            faults.clock_off_ms = within(at, 60, 200).map_or(0, |_| 47_000);
            faults.disk_filled = within(at, 240, 400).map_or(0, |seconds| (seconds * 100 / 120).min(100));
        }
        Role::Vm => {
            let kinds = [GuestAgentFault::Stopped, GuestAgentFault::Masked, GuestAgentFault::NotInstalled];
            let kind = kinds[(part.number + turn as usize) % kinds.len()];
            faults.guest_agent = within(at, 0, 110).map(|_| kind);
            faults.disk_filled = within(at, 150, 280).map_or(0, |seconds| (seconds * 100 / 90).min(100));
            faults.silent = part.number.is_multiple_of(3) && within(at, 320, 390).is_some();
        }
    }
    faults
}

/// Makes `facts`, those of `part` when all is well, show the faults.
pub(crate) fn apply(faults: &Faults, part: &Part, facts: &mut NodeFacts) {
    let now = facts.now;
    if let (Some(Fact::Known { value: host, .. }), 1..) = (&mut facts.checks.host, faults.disk_filled)
        && let Fact::Known { value: filesystems, .. } = &mut host.filesystems
        && let Some(fs) = filesystems.last_mut()
    {
        // From what is recorded down to two in a hundred of the whole.
        let least = fs.total_bytes / 50;
        fs.available_bytes =
            least + fs.available_bytes.saturating_sub(least) / 100 * (100 - faults.disk_filled);
    }
    if let (Some(Fact::Known { value: clock, .. }), true) =
        (&mut facts.checks.clock, faults.clock_off_ms != 0)
    {
        if let Fact::Known { value, .. } = &mut clock.coordinator {
            value.offset_ms = faults.clock_off_ms;
        }
        if let Fact::Known { value, .. } = &mut clock.kernel {
            value.synchronized = false;
            value.maximum_error_us = 16_000_000;
        }
        clock.service = Fact::absent("org.freedesktop.systemd1", now);
    }
    if let (Some(Fact::Known { value: guest, .. }), Some(fault)) =
        (&mut facts.checks.guest_agent, faults.guest_agent)
    {
        guest.process = Fact::absent("/proc", now);
        if fault == GuestAgentFault::NotInstalled {
            guest.binary = Fact::absent("/usr/bin/qemu-ga", now);
        }
        if let Fact::Known { value: units, .. } = &mut guest.units {
            for unit in units {
                unit.active_state = "inactive".to_owned();
                unit.sub_state = "dead".to_owned();
                let (load, file) = match fault {
                    GuestAgentFault::Stopped => ("loaded", "static"),
                    GuestAgentFault::Masked => ("masked", "masked"),
                    GuestAgentFault::NotInstalled => ("not-found", ""),
                };
                unit.load_state = load.to_owned();
                unit.unit_file_state = file.to_owned();
            }
        }
    }
    if let (Role::Server { index }, Some(Fact::Known { value: etcd, .. })) =
        (part.role, &mut facts.checks.etcd)
    {
        members_down(etcd, &faults.members_down, index, now);
    }
    if let (Some(Fact::Known { value: balancers, .. }), Some(dead)) =
        (&mut facts.checks.load_balancer, faults.backend_dead)
    {
        balancers.iter_mut().for_each(|balancer| backend_dead(balancer, dead, now));
    }
}

fn refused<T>(source: &str, now: Timestamp) -> Fact<T> {
    let detail = "connection refused (os error 111)";
    Fact::unknown(UnknownCause::ConnectionRefused, detail, source, now)
}

/// The view of the member at `own` while some are down: what answers still answers, and sees no leader once too few
/// are left.
fn members_down(etcd: &mut EtcdFacts, down: &[Option<Duration>; 3], own: usize, now: Timestamp) {
    let living: Vec<usize> = (0..down.len()).filter(|i| down[*i].is_none()).collect();
    if living.len() == down.len() {
        return;
    }
    let has_quorum = living.len() > down.len() / 2;
    let recorded =
        etcd.endpoints.iter().find_map(|e| Some(e.status.value()?.leader.clone())).unwrap_or_default();
    let id = |i: &usize| etcd.endpoints.get(*i).map(|e| e.member_id.clone()).unwrap_or_default();
    // The leader stays while it lives; else another term begins with another one.
    let stays = living.iter().any(|i| id(i) == recorded);
    let leader = if stays { recorded } else { living.first().map(id).unwrap_or_default() };
    for (i, endpoint) in etcd.endpoints.iter_mut().enumerate() {
        let source = endpoint.endpoint.clone();
        if let Some(Some(since)) = down.get(i) {
            endpoint.status = refused(&source, now);
            endpoint.linearizable_read = refused(&source, now);
            endpoint.down_since = Some(now.before(*since));
        } else if let Fact::Known { value: status, .. } = &mut endpoint.status {
            status.raft_term += u64::from(!stays || !has_quorum);
            status.leader = if has_quorum { leader.clone() } else { String::new() };
            if !has_quorum {
                status.errors = vec!["etcdserver: no leader".to_owned()];
                let detail = "no answer within 2 s";
                endpoint.linearizable_read = Fact::unknown(UnknownCause::TimedOut, detail, source, now);
            }
        }
    }
    if !has_quorum && let Fact::Known { value: list, .. } = &mut etcd.members {
        list.linearizable = false;
    }
    if down.get(own).is_some_and(Option::is_some) {
        etcd.metrics = refused("http://127.0.0.1:2381/metrics", now);
    }
}

/// One backend behind the balancer refuses; the balancer has noticed and goes round it.
fn backend_dead(balancer: &mut LoadBalancerFacts, dead: usize, now: Timestamp) {
    let mut backends: Vec<String> = Vec::new();
    for probe in balancer.probes.iter_mut().filter(|probe| probe.target == ProbeTarget::Backend) {
        if !backends.contains(&probe.peer) {
            backends.push(probe.peer.clone());
        }
        if backends.iter().position(|peer| *peer == probe.peer) == Some(dead) {
            probe.tcp = refused(&probe.peer, now);
            probe.tls = refused(&probe.peer, now);
            probe.http = refused(&probe.peer, now);
        }
    }
}

/// Readings that nobody holds still: load, memory, latencies, uptime.
pub(crate) fn live(part: &Part, elapsed: Duration, facts: &mut NodeFacts) {
    let step = elapsed.as_secs() / 10;
    // A number from 0 to 99 that is the same whenever it is asked for.
    let noise = |salt: u64| {
        let x = (part.number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ salt;
        (x ^ (x >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
    } % 100;
    if let Some(Fact::Known { value: host, .. }) = &mut facts.checks.host {
        if let Fact::Known { value, .. } = &mut host.uptime_seconds {
            *value += elapsed.as_secs();
        }
        if let Fact::Known { value, .. } = &mut host.memory {
            value.available_bytes -= value.available_bytes / 1000 * noise(1);
        }
        if let Fact::Known { value, .. } = &mut host.load {
            *value =
                [0.4 + noise(2) as f64 / 100.0, 0.6, 0.6].map(|load: f64| (load * 100.0).round() / 100.0);
        }
    }
    if let Some(Fact::Known { value: clock, .. }) = &mut facts.checks.clock
        && let Fact::Known { value: offset, .. } = &mut clock.coordinator
    {
        offset.offset_ms = noise(3) as i64 / 20 - 2;
    }
    if let Some(Fact::Known { value: etcd, .. }) = &mut facts.checks.etcd {
        for endpoint in &mut etcd.endpoints {
            set(&mut endpoint.linearizable_read, 1.5 + noise(4) as f64 / 50.0);
            if let Fact::Known { value: status, .. } = &mut endpoint.status {
                status.raft_index += elapsed.as_secs() * 13;
                status.applied_index = status.raft_index;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use outrider_protocol::{Condition, ReasonCode, Severity, Status};

    use super::super::part::cast;
    use super::*;

    /// Plays `part` for `seconds`, a turn every `step` seconds; calls `see` with every condition of every turn.
    fn play(part: &Part, seconds: u64, step: usize, mut see: impl FnMut(u64, &Condition)) {
        let start: Timestamp = "2027-01-01T00:00:00.000Z".parse().unwrap();
        let mut latches = Vec::new();
        for second in (0..seconds).step_by(step) {
            let elapsed = Duration::from_secs(second);
            let facts = super::super::facts(part, elapsed, start.after(elapsed), latches).unwrap();
            let latched =
                outrider_diagnosis::latch(&facts.latches, &outrider_diagnosis::judge(&facts), facts.now);
            latched.conditions.iter().for_each(|condition| see(second, condition));
            latches = latched.latches;
        }
    }

    #[test]
    fn every_fault_is_found_by_the_rules_and_clears_again() {
        let mut found = BTreeSet::new();
        for part in cast(8).into_iter().filter(|part| !matches!(part.number, 1 | 2 | 4)) {
            let mut last_error = 0;
            let mut ok_after = false;
            play(&part, 1000, 5, |second, condition| {
                if condition.severity > Severity::Info {
                    found.insert(condition.reason.clone());
                    last_error = second;
                }
                ok_after |= condition.severity == Severity::Ok && second > last_error;
            });
            assert!(ok_after, "{} never clears", part.name);
        }
        for reason in [
            ReasonCode::EtcdMemberDown,
            ReasonCode::EtcdNoTolerance,
            ReasonCode::BackendDown,
            ReasonCode::ClockSkewed,
            ReasonCode::DiskSpaceLow,
            ReasonCode::GuestAgentStopped,
            ReasonCode::GuestAgentMasked,
            ReasonCode::GuestAgentNotInstalled,
        ] {
            assert!(found.contains(&reason), "{reason} is never found; found: {found:?}");
        }
    }

    #[test]
    fn quorum_is_lost_with_two_members_and_held_with_one() {
        let part = &cast(3)[2];
        let mut at = Vec::new();
        play(part, 251, 1, |second, condition| {
            if condition.condition_type.as_str() == "EtcdQuorum" {
                at.push((second, condition.status, condition.severity));
            }
        });
        let status = |second: usize| at[second].1;
        assert_eq!(status(10), Status::True);
        assert_eq!((at[80].1, at[80].2), (Status::True, Severity::Error), "one down: no tolerance");
        assert_eq!(status(152), Status::Unknown, "suspected at once");
        assert_eq!(status(170), Status::False, "certain after the election timeout");
        assert_eq!((at[250].1, at[250].2), (Status::True, Severity::Ok), "clear again");
    }
}
