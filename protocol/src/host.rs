//! What the machine is and how it fares: facts of the checks `host` and `clock`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fact;

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
    /// Offset to the coordinator by its answers' `Date` header or body.
    pub coordinator: Fact<ClockOffset>,
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
