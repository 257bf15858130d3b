//! A cluster's etcd for people: the numbers, a row a member, and who reaches whom.

use outrider_protocol::{
    ClusterEtcd, ClusterMember, MatrixCell, MatrixRow, MemberHealth, MemberRole, Severity, Status, Timestamp,
};

use super::describe::table;
use super::report::Layout;
use crate::output::{Cell, Column, Tone, text};

/// What stands above the conditions: as it is now, while conditions wait until a change has held.
pub(crate) fn fields(etcd: &ClusterEtcd, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut out = vec![
        ("etcd now", numbers(etcd)),
        ("etcd seen", format!("{} ago", text::age(now.since(etcd.observed_at)))),
    ];
    if !etcd.unheard.is_empty() {
        let all: Vec<String> = etcd.unheard.iter().map(|u| format!("{} ({})", u.node, u.why)).collect();
        out.push(("No report of", all.join(", ")));
    }
    if let Some(snapshot) = &etcd.newest_snapshot {
        let elsewhere = if snapshot.object_storage { "; object storage is configured as well" } else { "" };
        out.push((
            "Snapshot",
            format!(
                "{} ago: {} in {} of {} ({}); {} any{elsewhere}",
                text::age(now.since(snapshot.at)),
                snapshot.name,
                snapshot.folder,
                snapshot.node,
                size(i64::try_from(snapshot.size_bytes).unwrap_or(i64::MAX)),
                match snapshot.nodes {
                    1 => "1 node holds".to_owned(),
                    n => format!("{n} nodes hold"),
                }
            ),
        ));
    }
    out
}

fn numbers(etcd: &ClusterEtcd) -> String {
    if etcd.voters == 0 {
        return "unknown: no report holds a member list".to_owned();
    }
    let missing = etcd.quorum.saturating_sub(etcd.healthy.saturating_add(etcd.unknown));
    let reserve = match (missing, etcd.unknown) {
        (0, 0) => format!("{} more may fail", etcd.tolerated),
        (0, _) => format!("at least {} more may fail", etcd.tolerated),
        (missing, _) => format!("{missing} too few"),
    };
    let mut out =
        format!("{} of {} voters healthy, quorum {}, {reserve}", etcd.healthy, etcd.voters, etcd.quorum);
    if etcd.unknown > 0 {
        out.push_str(&format!("; {} unknown", etcd.unknown));
    }
    if let Some(after) = etcd.tolerated_without_ghosts {
        out.push_str(&format!(" ({after} more may fail once the ghosts are removed)"));
    }
    if etcd.learners > 0 {
        out.push_str(&format!(
            "; {}, not counted",
            text::count(usize::try_from(etcd.learners).unwrap_or(0), "learner")
        ));
    }
    out
}

/// Members, and who reaches whom.
pub(crate) fn tables(etcd: &ClusterEtcd, now: Timestamp, layout: Layout) -> String {
    let mut out = String::new();
    if !etcd.members.is_empty() {
        out.push_str("\netcd members:\n");
        out.push_str(&table(members(now), layout).render(&etcd.members));
    }
    if !etcd.matrix.is_empty() && !etcd.members.is_empty() {
        out.push_str("\nWho reaches whom (from the node on the left to the member above, client port):\n");
        out.push_str(&table(matrix(&etcd.members, now), layout).render(&etcd.matrix));
    }
    out
}

fn members(now: Timestamp) -> Vec<Column<ClusterMember>> {
    let status = |m: &ClusterMember, f: fn(&outrider_protocol::MemberStatus) -> String| {
        m.status.as_ref().map(f).unwrap_or_default()
    };
    vec![
        Column::new("NAME", |m: &ClusterMember| m.name.clone()),
        Column::new("NODE", |m: &ClusterMember| match m.kubernetes_node {
            Status::False => Cell::toned("ghost", Severity::Warn),
            _ => Cell::from(&m.node),
        }),
        Column::new("ZONE", |m: &ClusterMember| m.zone.clone()),
        Column::new("ROLE", |m: &ClusterMember| m.role.as_str().to_owned()),
        Column::new("HEALTH", move |m: &ClusterMember| {
            let since = m.down_since.map(|at| format!(" {}", text::age(now.since(at)))).unwrap_or_default();
            Cell::toned(format!("{}{since}", m.health.as_str()), tone(m))
        }),
        Column::new("VERSION", move |m: &ClusterMember| status(m, |s| s.version.clone())),
        Column::new("DB", move |m: &ClusterMember| status(m, |s| size(s.db_size_bytes))),
        Column::new("IN USE", move |m: &ClusterMember| {
            status(m, |s| if s.db_in_use_bytes > 0 { size(s.db_in_use_bytes) } else { String::new() })
        }),
        Column::new("LAG", move |m: &ClusterMember| status(m, |s| s.raft_lag.to_string())),
        Column::new("TERM", move |m: &ClusterMember| status(m, |s| s.raft_term.to_string())),
        Column::new("SEES LEADER", move |m: &ClusterMember| match &m.status {
            Some(s) if s.leader.is_empty() => Cell::toned("none", Severity::Error),
            Some(s) => Cell::from(&s.leader),
            None => Cell::from(""),
        }),
        Column::new("ALARMS", |m: &ClusterMember| Cell::toned(m.alarms.join(","), alarm_tone(m))),
        Column::wide("ID", |m: &ClusterMember| m.id.clone()),
        Column::wide("REGION", |m: &ClusterMember| m.region.clone()),
        Column::wide("PEER URLS", |m: &ClusterMember| m.peer_urls.join(",")),
        Column::new("WHY", |m: &ClusterMember| m.why.clone()),
    ]
}

fn alarm_tone(m: &ClusterMember) -> Tone {
    if m.alarms.is_empty() { Tone::Plain } else { Tone::Bad }
}

fn tone(m: &ClusterMember) -> Tone {
    match (&m.health, &m.role) {
        (MemberHealth::Healthy, _) => Tone::Good,
        (MemberHealth::Unknown, _) | (_, MemberRole::Learner) => Tone::Warn,
        _ => Tone::Bad,
    }
}

fn matrix(members: &[ClusterMember], now: Timestamp) -> Vec<Column<MatrixRow>> {
    let from = Column::new("FROM", |row: &MatrixRow| row.node.clone());
    let to = members.iter().enumerate().map(|(i, member)| {
        Column::new(text::printable(&member.name), move |row: &MatrixRow| {
            row.cells.get(i).map_or_else(|| Cell::from(""), |cell| seen(cell, now))
        })
    });
    let age = Column::new("SEEN", move |row: &MatrixRow| format!("{} ago", text::age(now.since(row.at))));
    [from].into_iter().chain(to).chain([age]).collect()
}

/// "yes", "NO 2m", "?", each with what the member itself counts of its peer connection where that differs.
fn seen(cell: &MatrixCell, now: Timestamp) -> Cell {
    let own = if cell.own { "itself: " } else { "" };
    let peer = match (cell.reached, cell.peer) {
        (_, Status::False) => ", 2380 down",
        // A client port that is closed is no member that is away.
        (Status::False, Status::True) => ", 2380 up",
        _ => "",
    };
    let since = cell.since.map(|at| format!(" {}", text::age(now.since(at)))).unwrap_or_default();
    let (word, tone) = match (cell.reached, cell.peer) {
        (Status::True, Status::False) => ("yes", Tone::Warn),
        (Status::True, _) => ("yes", Tone::Good),
        (Status::False, _) => ("NO", Tone::Bad),
        (Status::Unknown, _) => ("?", Tone::Warn),
    };
    Cell::toned(format!("{own}{word}{since}{peer}"), tone)
}

/// Bytes in decimal units.
#[allow(clippy::cast_precision_loss)] // one digit behind the point needs no 53 bits
fn size(bytes: i64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["kB", "MB", "GB", "TB"] {
        if value < 999.95 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}
