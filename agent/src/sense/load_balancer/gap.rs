//! Whether what failed for a moment answers again: a virtual address that moves to the other balancer, or a balancer that
//! is restarted, is silent for some seconds (VRRP: three advertisements of a second, and before them the script that finds
//! a balancer dead), and that is no outage.
//!
//! Tries that failed in one go, with none between that came through, are followed by others a few seconds later. Only when
//! all of those come through was it a moment; a fault that strikes one connection in as many as there are backends does not
//! get through so many. What failed is asked again by the same protocol: a fault of one path or of HTTP/2 lasts while
//! others are well.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use outrider_protocol::{
    AddressHolder, BalancerService, Fact, GapFacts, Probe, ProbeKind, ProbeTarget, Timestamp, UnknownCause,
};

use super::plan::{Ask, http2_asks, https_asks, web_socket};
use super::probe::{Manner, Prober, Side};
use super::{SPREAD, SenseContext};
use crate::config::LoadBalancerSettings;
use crate::sense::file;

/// From the last failure to the first try again; VRRP's usual three seconds and a half.
const MOMENT: Duration = Duration::from_secs(4);
/// When that fails too, once more after this.
const ANOTHER: Duration = Duration::from_secs(6);
/// What was silent for longer than this is no matter of a moment.
const LONG: Duration = Duration::from_secs(8);

/// Tries at one address that failed in one go.
#[derive(Debug, PartialEq, Eq)]
struct Moment {
    peer: SocketAddr,
    failed: u32,
    from: Timestamp,
    last: Timestamp,
    /// The next that came through.
    until: Option<Timestamp>,
    /// What was asked for in vain, and whether by HTTP/2.
    asked: Vec<(bool, ProbeKind)>,
}

/// Tries again where tries failed in one go, and says where that was a moment's silence.
pub(super) async fn look_again(
    prober: &Prober<'_>,
    balancer: &LoadBalancerSettings,
    through: &[Probe],
    began: Timestamp,
) -> (Vec<Probe>, Vec<GapFacts>) {
    let moments = moments(through, balancer.port, began);
    let Some(last) = moments.iter().map(|m| m.last).max() else { return Default::default() };
    if !prober.pause(MOMENT.saturating_sub(prober.cx.now().since(last))).await {
        return Default::default();
    }
    let times = u32::try_from(balancer.backends.len()).unwrap_or(u32::MAX).saturating_mul(2).clamp(3, 6);
    let again = join_all(moments.iter().map(|moment| confirm(prober, balancer, moment, times))).await;
    let (probes, gaps): (Vec<_>, Vec<_>) = again.into_iter().unzip();
    (probes.into_iter().flatten().collect(), gaps.into_iter().flatten().collect())
}

async fn confirm(
    prober: &Prober<'_>,
    balancer: &LoadBalancerSettings,
    moment: &Moment,
    times: u32,
) -> (Vec<Probe>, Option<GapFacts>) {
    let side = Side { target: ProbeTarget::Balancer, address: moment.peer, secure: true };
    let mut probes: Vec<Probe> = Vec::new();
    let (mut number, mut patience) = (0, 1);
    while number < times {
        if number > 0 && !prober.pause(SPREAD).await {
            return (probes, None);
        }
        let mut came_through = true;
        for (manner, asks) in asks_again(&moment.asked, &balancer.service) {
            let made = prober.converse(&side, manner, None, asks).await;
            came_through = !made.is_empty() && !made.iter().any(is_silence);
            probes.extend(made);
            if !came_through {
                break;
            }
        }
        if came_through {
            number += 1;
        } else if number == 0 && patience > 0 && prober.pause(ANOTHER).await {
            patience -= 1;
        } else {
            return (probes, None);
        }
    }
    let first = probes.iter().find(|probe| !is_silence(probe)).map_or(moment.last, |probe| probe.at);
    let gap = GapFacts {
        address: moment.peer.ip().to_string(),
        failed: moment.failed + u32::try_from(probes.iter().filter(|p| is_silence(p)).count()).unwrap_or(0),
        from: moment.from,
        until: moment.until.unwrap_or(first),
        confirmed: times,
    };
    (probes, Some(gap))
}

/// What is asked again, by protocol: a plain question, and what was asked for in vain.
fn asks_again(asked: &[(bool, ProbeKind)], service: &BalancerService) -> Vec<(Manner, Vec<Ask>)> {
    let plain: Vec<Ask> = https_asks(1, service).pop().into_iter().collect();
    let all = [https_asks(0, service), http2_asks(), web_socket()].concat();
    let of = |http2: bool| {
        let mut asks = plain.clone();
        for (_, kind) in asked.iter().filter(|(by, _)| *by == http2) {
            let ask = all.iter().find(|ask| ask.kind == *kind);
            asks.extend(ask.filter(|ask| !asks.contains(ask)).cloned());
        }
        asks
    };
    let mut again = vec![(Manner::default(), of(false))];
    if asked.iter().any(|(http2, _)| *http2) {
        again.push((Manner::BOTH, of(true)));
    }
    again
}

/// The tries that failed among those at one peer, and whether each was made by HTTP/2 or offered it.
fn in_vain(tries: &[&Probe]) -> Vec<(bool, ProbeKind)> {
    let (mut found, mut http2) = (Vec::new(), false);
    for probe in tries {
        http2 = match &probe.tls {
            Fact::Known { value, .. } => value.alpn == "h2",
            // On the connection of the try before.
            Fact::NotApplicable { .. } if !matches!(probe.tcp, Fact::Unknown { .. }) => http2,
            _ => matches!(probe.kind, ProbeKind::Connect | ProbeKind::WebSocketHttp2),
        };
        let asked = (http2, probe.kind.clone());
        if is_silence(probe) && !found.contains(&asked) {
            found.push(asked);
        }
    }
    found
}

fn moments(through: &[Probe], port: u16, began: Timestamp) -> Vec<Moment> {
    let mut found: Vec<Moment> = Vec::new();
    let mut peers: Vec<SocketAddr> = Vec::new();
    for peer in through.iter().filter_map(|p| p.peer.parse::<SocketAddr>().ok()) {
        if peer.port() == port && !peers.contains(&peer) {
            peers.push(peer);
        }
    }
    for peer in peers {
        let name = peer.to_string();
        let tries: Vec<&Probe> = through.iter().filter(|p| p.peer == name).collect();
        let Some(first) = tries.iter().position(|p| is_silence(p)) else { continue };
        let last = tries.iter().rposition(|p| is_silence(p)).unwrap_or(first);
        let (Some(within), Some(end)) = (tries.get(first..=last), tries.get(last)) else { continue };
        let from = tries[..first].last().map_or(began, |p| p.at);
        if !within.iter().all(|p| is_silence(p)) || end.at.since(from) >= LONG {
            continue;
        }
        found.push(Moment {
            peer,
            failed: u32::try_from(within.len()).unwrap_or(u32::MAX),
            from,
            last: end.at,
            until: tries.get(last + 1).map(|p| p.at),
            asked: in_vain(&tries),
        });
    }
    found
}

/// Nobody answered, or the connection broke: what a machine that is gone looks like.
fn is_silence(probe: &Probe) -> bool {
    fn of<T>(fact: &Fact<T>) -> bool {
        use UnknownCause as C;
        let Fact::Unknown { cause, .. } = fact else { return false };
        matches!(cause, C::ConnectionRefused | C::TimedOut | C::Unreachable | C::TlsFailed)
    }
    of(&probe.tcp) || of(&probe.tls) || of(&probe.http)
}

/// Who answers for the IPv4 addresses among `addresses`, as the kernel has it of the tries just made.
pub(super) async fn neighbours(cx: &SenseContext, addresses: &[SocketAddr]) -> Vec<AddressHolder> {
    let path = cx.path("/proc/net/arp");
    let read = tokio::task::spawn_blocking(move || file::read_text(&path, file::LARGE));
    // Where there is no such table there is nothing to compare.
    let Ok(Ok(table)) = read.await else { return Vec::new() };
    let of = |address: &SocketAddr| {
        let (address, mac) = (address.ip().to_string(), mac_of(&table, &address.ip().to_string())?);
        Some(AddressHolder { address, mac })
    };
    addresses.iter().filter_map(of).collect()
}

/// The hardware address of a complete entry (`ATF_COM`, proc_net(5)).
fn mac_of(table: &str, address: &str) -> Option<String> {
    let mut entries = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let entry = entries.find(|columns| columns.first() == Some(&address))?;
    let flags = u32::from_str_radix(entry.get(2)?.trim_start_matches("0x"), 16).ok()?;
    let mac = entry.get(3)?.to_ascii_lowercase();
    (flags & 2 != 0 && mac.bytes().any(|b| b != b'0' && b != b':')).then_some(mac)
}

#[cfg(test)]
mod tests {
    use outrider_protocol::ProbeKind;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + second * 1000)
    }

    fn tries(outcomes: &str) -> Vec<Probe> {
        let one = |(second, outcome): (usize, char)| Probe {
            kind: ProbeKind::Ping,
            target: ProbeTarget::Balancer,
            peer: "10.0.0.9:443".into(),
            at: at(second as i64),
            tcp: match outcome {
                'x' => Fact::unknown(UnknownCause::TimedOut, "", "", at(0)),
                _ => Fact::known(1.0, "", at(0)),
            },
            tls: Fact::not_applicable("", at(0)),
            http: match outcome {
                'b' => Fact::unknown(UnknownCause::Unreachable, "", "", at(0)),
                _ => Fact::not_applicable("", at(0)),
            },
            raw: String::new(),
        };
        outcomes.chars().enumerate().map(one).collect()
    }

    #[test]
    fn only_failures_in_one_go_are_a_moment() {
        let of = |outcomes: &str| {
            let found = moments(&tries(outcomes), 443, at(-1));
            found.into_iter().next().map(|m| (m.failed, m.from, m.until))
        };
        assert_eq!(of("....."), None);
        assert_eq!(of("..x.."), Some((1, at(1), Some(at(3)))));
        assert_eq!(of("..xxb."), Some((3, at(1), Some(at(5)))));
        assert_eq!(of("xxxx"), Some((4, at(-1), None)));
        assert_eq!(of("..bx"), Some((2, at(1), None)));
        assert_eq!(of("x.x.."), None);
        assert_eq!(of("xxxxxxxxx"), None, "too long for a moment");
        assert_eq!(moments(&tries("x"), 80, at(0)), []);
    }

    #[test]
    fn what_failed_is_asked_again_by_the_same_protocol() {
        let by = |kind: ProbeKind, alpn: Option<&str>, fails: bool| {
            let mut probe = tries("b").remove(0);
            probe.kind = kind;
            match alpn {
                Some(alpn) => {
                    let facts = outrider_protocol::TlsFacts {
                        version: String::new(),
                        alpn: alpn.into(),
                        cipher: String::new(),
                        chain: Vec::new(),
                        trust: Fact::known(String::new(), "", at(0)),
                        name_matches: true,
                        issuer_at: String::new(),
                    };
                    probe.tls = Fact::known(facts, "", at(0));
                }
                None => probe.tls = Fact::not_applicable("", at(0)),
            }
            if !fails {
                probe.http = Fact::not_applicable("", at(0));
            }
            probe
        };
        let kinds = |probes: &[Probe]| -> Vec<(bool, Vec<ProbeKind>)> {
            let asked = in_vain(&probes.iter().collect::<Vec<_>>());
            let again = asks_again(&asked, &BalancerService::Rancher).into_iter();
            again.map(|(m, asks)| (m.http2, asks.into_iter().map(|a| a.kind).collect())).collect()
        };
        use ProbeKind as K;
        let dead_http2 = [
            by(K::Connect, Some("h2"), false),
            by(K::Ping, None, true),
            by(K::Root, Some("http/1.1"), false),
        ];
        assert_eq!(kinds(&dead_http2), [(false, vec![K::Ping]), (true, vec![K::Ping])]);
        let half = [by(K::Root, Some("http/1.1"), false), by(K::CaCerts, None, true)];
        assert_eq!(kinds(&half), [(false, vec![K::Ping, K::CaCerts])]);
        let all = [by(K::WebSocketOrigin, Some("http/1.1"), true), by(K::WebSocketHttp2, Some("h2"), true)];
        assert_eq!(
            kinds(&all),
            [(false, vec![K::Ping, K::WebSocketOrigin]), (true, vec![K::Ping, K::WebSocketHttp2])]
        );
        // A connection that never stood says nothing of what it would have been.
        let no_line: Vec<Probe> = tries("x").into_iter().chain([by(K::Root, Some(""), false)]).collect();
        assert_eq!(kinds(&no_line), [(false, vec![K::Ping])]);
    }

    #[test]
    fn the_kernels_table_is_read() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.0.0.9         0x1         0x2         52:54:00:AB:cd:ef     *        eth0\n\
                     10.0.0.8         0x1         0x0         00:00:00:00:00:00     *        eth0\n\
                     10.0.0.7\n";
        assert_eq!(mac_of(table, "10.0.0.9").as_deref(), Some("52:54:00:ab:cd:ef"));
        for none in ["10.0.0.8", "10.0.0.7", "10.0.0.90", "IP"] {
            assert_eq!(mac_of(table, none), None);
        }
    }
}
