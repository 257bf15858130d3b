//! What the machine is and how it fares: facts of the checks `host` and `clock`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Fact, Timestamp};

/// Facts of the check `host`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostFacts {
    /// Host name as the kernel has it.
    pub hostname: Fact<String>,
    /// Application-specific hash of the machine-id (64 hex digits); the raw id never leaves the machine.
    pub machine_id_hash: Fact<String>,
    /// SMBIOS system UUID, lower case; known junk values are `Absent`.
    pub system_uuid: Fact<String>,
    /// The kernel's boot id; changes at every boot.
    pub boot_id: Fact<String>,
    /// cloud-init's instance id; a hint only.
    pub instance_id: Fact<String>,
    /// `/etc/os-release`.
    pub os: Fact<OsRelease>,
    /// Kernel release, as `uname -r`.
    pub kernel: Fact<String>,
    /// Machine architecture, as `uname -m`.
    pub architecture: Fact<String>,
    /// Hypervisor or container technology (`kvm`, `docker`, `none`, …), by DMI, cpuid and PID 1's environment.
    pub virtualization: Fact<String>,
    /// Logical processors online.
    pub cpus: Fact<u32>,
    /// Seconds since boot.
    pub uptime_seconds: Fact<u64>,
    /// Memory in bytes.
    pub memory: Fact<MemoryFacts>,
    /// Run-queue averages over 1, 5 and 15 minutes.
    pub load: Fact<[f64; 3]>,
    /// Share of the last 60 s in which some task stalled on memory, I/O or CPU (`/proc/pressure`), in percent.
    pub pressure: Fact<PressureFacts>,
    /// File systems on disks, once each.
    pub filesystems: Fact<Vec<FilesystemFacts>>,
    /// Network interfaces without loopback.
    pub interfaces: Fact<Vec<InterfaceFacts>>,
}

/// `/etc/os-release`, the fields that tell one system from another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OsRelease {
    /// `ID`, such as `debian` or `sles`.
    pub id: String,
    /// `ID_LIKE`, split at blanks.
    #[serde(default)]
    pub id_like: Vec<String>,
    /// `VERSION_ID`.
    #[serde(default)]
    pub version_id: String,
    /// `PRETTY_NAME`.
    #[serde(default)]
    pub pretty_name: String,
}

/// `/proc/meminfo`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryFacts {
    /// Installed and usable.
    pub total_bytes: u64,
    /// Free or to be freed without swapping.
    pub available_bytes: u64,
    /// Size of swap.
    pub swap_total_bytes: u64,
    /// Unused swap.
    pub swap_free_bytes: u64,
}

/// Pressure-stall averages over 60 s, in percent of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureFacts {
    /// `some avg60` of `/proc/pressure/cpu`.
    pub cpu: f64,
    /// `some avg60` of `/proc/pressure/memory`.
    pub memory: f64,
    /// `some avg60` of `/proc/pressure/io`.
    pub io: f64,
}

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemFacts {
    /// Where it is mounted.
    pub mount: String,
    /// Device or source.
    pub device: String,
    /// Type, such as `ext4`.
    pub fs_type: String,
    /// Size in bytes.
    pub total_bytes: u64,
    /// Bytes an unprivileged user may still write.
    pub available_bytes: u64,
    /// Inodes in all; 0 where the type has no fixed number.
    pub inodes_total: u64,
    /// Inodes free.
    pub inodes_free: u64,
    /// Mounted read-only.
    pub read_only: bool,
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceFacts {
    /// Its name in the guest.
    pub name: String,
    /// Hardware address, lower case with colons; empty where it has none.
    #[serde(default)]
    pub mac: String,
    /// Addresses with prefix length.
    pub addresses: Vec<String>,
    /// Administratively up.
    pub up: bool,
    /// Made by software (bridge, veth, tunnel) and so no evidence of identity.
    #[serde(default)]
    pub is_virtual: bool,
}

/// Facts of the check `clock`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClockFacts {
    /// `adjtimex(2)`.
    pub kernel: Fact<KernelClock>,
    /// Who keeps time, such as `chronyd` or `systemd-timesyncd`.
    pub service: Fact<String>,
    /// What that service says of its sources; `NotApplicable` where there is none, or it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Fact<TimeSource>>,
    /// Offset to the coordinator by its answers' `Date` header or body.
    pub coordinator: Fact<ClockOffset>,
}

/// Where a time service has the time from, in its own words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeSource {
    /// The service.
    pub service: String,
    /// The source that the clock follows now; empty when it follows none.
    pub selected: String,
    /// Stratum of this clock, one more than its source's; 0 or 16 when it follows none.
    pub stratum: u32,
    /// When the clock was last set by a source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// Our clock minus the true time, as the service estimates it, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ms: Option<f64>,
    /// How far off that estimate may be: root dispersion and half the root delay, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertainty_ms: Option<f64>,
    /// Every source, at most sixteen.
    #[serde(default)]
    pub sources: Vec<NtpSource>,
}

open_enum! {
    /// What a time service makes of one of its sources.
    NtpState {
        /// The clock follows it.
        Selected = "selected",
        /// It would do.
        Candidate = "candidate",
        /// It does not answer, or not with a time.
        Unusable = "unusable",
        /// It differs from the majority.
        FalseTicker = "falseticker",
        /// Its answers vary too much.
        Unsteady = "unsteady",
    }
}

/// One source of a time service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NtpSource {
    /// Its address, or name of a reference clock; empty for a name that was never resolved.
    pub address: String,
    /// What the service makes of it.
    pub state: NtpState,
    /// Its stratum; 0 when not known.
    #[serde(default)]
    pub stratum: u32,
    /// How many of the last eight questions it answered.
    #[serde(default)]
    pub answered: u32,
    /// Seconds since its last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_ago: Option<u64>,
    /// Our clock minus its, at that answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_ms: Option<f64>,
}

/// What `adjtimex(2)` says of the system clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelClock {
    /// False while `STA_UNSYNC` is set or the state is `TIME_ERROR`.
    pub synchronized: bool,
    /// Estimated error in microseconds.
    pub estimated_error_us: i64,
    /// Maximum error in microseconds; grows while nobody disciplines the clock.
    pub maximum_error_us: i64,
}

/// Our clock against a peer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClockOffset {
    /// Our clock minus the peer's, in milliseconds; positive when ours is ahead.
    pub offset_ms: i64,
    /// Half the round trip plus the resolution of the peer's stamp, in milliseconds: the offset is no truer than this.
    pub uncertainty_ms: i64,
    /// Who was asked.
    pub peer: String,
}
