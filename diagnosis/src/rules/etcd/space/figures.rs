//! What one member told of its database: size, bytes in use, quota, and the room beside the file.

use std::time::Duration;

use outrider_protocol::{EndpointFacts, EndpointStatus, EtcdFacts, Fact};

use super::super::view::{member_of, name_of, ours};
use crate::wording::{Bytes, Percent, percent};

/// etcd's default quota, 2 GiB; a quota of 0 means this one.
pub(super) const DEFAULT_QUOTA: u64 = 2_147_483_648;
/// etcd refuses writes by the size of the file, not by what is in use: this near to its quota a file is nearly there.
pub(super) const SIZE_NEAR_PERCENT: f64 = 90.0;
/// A file grows by whole pages and batches, so it may end a little above its quota, with the alarm set.
const OVERSHOOT_PERCENT: f64 = 105.0;
/// 8 GB were reported to take 30 to 40 s on dedicated machines (k3s-io/k3s#11122): 5 s a GB, more on a slow disk.
const SECONDS_A_GB: u64 = 5;

/// A member's quota as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quota<'a> {
    /// The member told it.
    Told(u64),
    /// The member told that it has none: a negative one switches the quota off (etcd-io/etcd:server/storage/quota.go).
    Off,
    /// The member did not tell; this other one's is taken for it, `None` where that one has none.
    AsOn(&'a str, Option<u64>),
    /// Nobody told one: the default is assumed.
    Default,
}

impl Quota<'_> {
    /// Whether the member did not tell it itself.
    pub(super) fn is_assumed(self) -> bool {
        matches!(self, Self::AsOn(..) | Self::Default)
    }

    fn assumed(self) -> Option<u64> {
        match self {
            Self::AsOn(_, quota) => quota,
            Self::Default => Some(DEFAULT_QUOTA),
            Self::Told(_) | Self::Off => None,
        }
    }
}

pub(super) struct Space<'a> {
    pub(super) name: &'a str,
    pub(super) id: &'a str,
    pub(super) size: u64,
    /// `None` where the version does not say.
    pub(super) in_use: Option<u64>,
    pub(super) quota: Quota<'a>,
    /// A NOSPACE alarm is set on it.
    pub(super) alarmed: bool,
    /// Free bytes beside the file, where the member is the local one and they could be read.
    pub(super) free: Option<u64>,
    pub(super) folder: &'a str,
}

impl<'a> Space<'a> {
    fn of(etcd: &'a EtcdFacts, e: &'a EndpointFacts, status: &'a EndpointStatus, alarmed: &[&str]) -> Self {
        let bytes = |n: i64| u64::try_from(n).unwrap_or(0);
        let size = bytes(status.db_size_bytes);
        let in_use = bytes(status.db_in_use_bytes);
        let id = member_of(e).unwrap_or_default();
        let is_own = |own: &EndpointFacts| own.local && (std::ptr::eq(own, e) || member_of(own) == Some(id));
        let local = etcd.endpoints.iter().any(is_own);
        let folder = etcd.data_folder.as_ref().and_then(Fact::value).filter(|_| local);
        Self {
            free: folder.and_then(|f| f.free_bytes),
            folder: folder.map_or("", |f| &f.path),
            name: if id.is_empty() { &e.endpoint } else { name_of(etcd.members.value(), id) },
            id,
            size,
            in_use: (in_use > 0).then_some(in_use.min(size)),
            quota: match status.quota_bytes {
                ..0 => Quota::Off,
                0 => Quota::Default,
                told => Quota::Told(bytes(told)),
            },
            alarmed: alarmed.contains(&id),
        }
    }

    /// Every member that told a size, once. Most versions tell a member's quota in its own metrics only: members whose
    /// quota is not told are taken to have that of one which told it, for a cluster is set up alike.
    pub(super) fn all(etcd: &'a EtcdFacts, alarmed: &[&str]) -> Vec<Self> {
        let told = ours(etcd).filter_map(|e| Some((e, e.status.value().filter(|s| has_size(s))?)));
        let mut all: Vec<Self> = Vec::new();
        for space in told.map(|(e, status)| Self::of(etcd, e, status, alarmed)) {
            // Loopback and node address are one member; only one of the two may have its metrics' quota.
            match all.iter_mut().find(|s| !s.id.is_empty() && s.id == space.id) {
                Some(same) if same.quota.is_assumed() => *same = space,
                Some(_) => {}
                None => all.push(space),
            }
        }
        let told = all.iter().find_map(|s| match s.quota {
            Quota::Told(quota) => Some((s.name, Some(quota))),
            Quota::Off => Some((s.name, None)),
            _ => None,
        });
        if let Some((name, quota)) = told {
            for space in all.iter_mut().filter(|s| s.quota == Quota::Default) {
                space.quota = Quota::AsOn(name, quota);
            }
        }
        all
    }

    /// The assumed quota where the size shows that it is not the one in force: without an alarm no file outgrows its quota.
    pub(super) fn disproved(&self) -> Option<u64> {
        let at_most = if self.alarmed { OVERSHOOT_PERCENT } else { 100.0 };
        self.quota.assumed().filter(|quota| percent(self.size, *quota) > at_most)
    }

    /// The quota that the file is held against; `None` where there is none, or none that is known.
    pub(super) fn limit(&self) -> Option<u64> {
        match self.quota {
            Quota::Told(quota) => Some(quota),
            Quota::Off => None,
            Quota::AsOn(..) | Quota::Default if self.disproved().is_some() => None,
            Quota::AsOn(..) | Quota::Default => self.quota.assumed(),
        }
    }

    /// Share of the quota in use, in percent; by size where the version does not say what is in use.
    pub(super) fn used_percent(&self) -> Option<f64> {
        Some(percent(self.in_use.unwrap_or(self.size), self.limit()?))
    }

    pub(super) fn size_percent(&self) -> Option<f64> {
        Some(percent(self.size, self.limit()?))
    }

    /// Whether most of what the file may hold is in use. Where the quota is not known the alarm tells that the file has
    /// reached it.
    pub(super) fn is_used_up(&self, limit_percent: f64) -> bool {
        let by_size = || percent(self.in_use.unwrap_or(self.size), self.size);
        let used = match self.disproved() {
            Some(_) => Some(by_size()),
            None => self.used_percent(),
        };
        used.is_some_and(|used| used > limit_percent)
    }

    /// Whether the file is known to be well below its quota.
    pub(super) fn has_room(&self) -> bool {
        self.disproved().is_none() && self.size_percent().is_none_or(|p| p < SIZE_NEAR_PERCENT)
    }

    /// Whether the file is nearly as large as its quota lets it be.
    pub(super) fn is_near(&self) -> bool {
        self.size_percent().is_some_and(|p| p > SIZE_NEAR_PERCENT)
    }

    /// Whether the file is as large as its quota lets it be, or larger.
    pub(super) fn is_over(&self) -> bool {
        self.limit().is_some_and(|limit| self.size >= limit)
    }

    /// How full it is, to find the fullest; one of unknown quota by its size alone.
    pub(super) fn fullness(&self) -> f64 {
        let used = self.used_percent().unwrap_or(0.0);
        self.size_percent().unwrap_or(100.0 * f64::from(u8::from(self.disproved().is_some()))).max(used)
    }

    /// How long a defragmentation or a snapshot takes, roughly.
    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs((self.size.div_ceil(1_000_000_000) * SECONDS_A_GB).max(1))
    }

    pub(super) fn freeable(&self) -> Option<u64> {
        self.in_use.map(|used| self.size - used)
    }

    /// Size, bytes in use and quota, by name.
    pub(super) fn numbers(&self) -> String {
        let used = self.in_use.map(|used| format!(", in use {}", Bytes(used))).unwrap_or_default();
        let unsaid = if self.in_use.is_none() { "; in-use size not reported" } else { "" };
        format!("{}: size {}{used}, {}{unsaid}", self.name, Bytes(self.size), self.share())
    }

    fn share(&self) -> String {
        if let Some(assumed) = self.disproved() {
            let whose = match self.quota {
                Quota::AsOn(other, _) => format!("that of {other}"),
                _ => "the default".to_owned(),
            };
            return format!("quota not known (not {whose}, {})", Bytes(assumed));
        }
        let (Some(limit), Some(used)) = (self.limit(), self.used_percent()) else {
            return match self.quota {
                Quota::AsOn(other, _) => format!("quota not known ({other} has it switched off)"),
                _ => "no quota (switched off by a negative --quota-backend-bytes)".to_owned(),
            };
        };
        let whose = match self.quota {
            Quota::AsOn(other, _) => format!(", taken to be that of {other}"),
            Quota::Default => ", the default".to_owned(),
            Quota::Told(_) | Quota::Off => String::new(),
        };
        format!("{} of the quota {}{whose}", Percent(used), Bytes(limit))
    }
}

/// A database file is never empty, for etcd lays out its first pages when it makes it, and no more of it is in use than there
/// is; the two are read one after the other, so a little more may be said.
pub(super) fn has_size(status: &EndpointStatus) -> bool {
    let size = status.db_size_bytes;
    size > 0 && status.db_in_use_bytes <= size.saturating_add(size / 20)
}
