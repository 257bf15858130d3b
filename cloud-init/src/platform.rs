//! Where userdata is handed over, and how much of it each takes, counted as that one counts.

use std::str::FromStr;

/// Who takes the userdata and gives it to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// A VM of SUSE Virtualization (Harvester), made by hand or by Terraform.
    Harvester,
    /// A machine pool of Rancher on Harvester: its node driver adds Rancher's script and moves what is long to a Secret.
    RancherMachine,
    /// A VM of KubeVirt.
    Kubevirt,
    /// EC2 and what speaks its API.
    Aws,
    /// Azure, as custom data.
    Azure,
    /// Google Compute Engine, as metadata `user-data`.
    Gce,
    /// Nova.
    Openstack,
    /// DigitalOcean.
    Digitalocean,
    /// Hetzner Cloud.
    Hetzner,
    /// vSphere, by guestinfo or a seed image.
    Vmware,
    /// A seed image or folder.
    Nocloud,
}

/// How much userdata a platform takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Most bytes of the document itself, before any base64.
    pub bytes: usize,
    /// How it is counted and by whom.
    pub counting: &'static str,
    /// What to do with more.
    pub way_out: &'static str,
}

const PLATFORMS: [(Platform, &str); 11] = [
    (Platform::Harvester, "harvester"),
    (Platform::RancherMachine, "rancher-machine"),
    (Platform::Kubevirt, "kubevirt"),
    (Platform::Aws, "aws"),
    (Platform::Azure, "azure"),
    (Platform::Gce, "gce"),
    (Platform::Openstack, "openstack"),
    (Platform::Digitalocean, "digitalocean"),
    (Platform::Hetzner, "hetzner"),
    (Platform::Vmware, "vmware"),
    (Platform::Nocloud, "nocloud"),
];

impl Platform {
    /// Every name, as the command line has them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PLATFORMS.iter().map(|(_, name)| *name)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        PLATFORMS.iter().find(|(platform, _)| *platform == self).map_or("", |(_, name)| name)
    }

    /// VMs of KubeVirt, which learns their addresses from the guest agent.
    pub fn is_kubevirt(self) -> bool {
        matches!(self, Self::Harvester | Self::RancherMachine | Self::Kubevirt)
    }

    /// What it takes; `None` where no limit is known that userdata meets in practice.
    ///
    /// Sources: `facts/cloud-init.md`, section 3 (KubeVirt, EC2); the reference of each API for the others: Azure
    /// `osProfile.customData`, Compute Engine metadata values, Nova's schema of `user_data` (65,535 characters of base64),
    /// DigitalOcean and Hetzner `user_data`.
    pub fn limit(self) -> Option<Limit> {
        let limit = |bytes, counting, way_out| Some(Limit { bytes, counting, way_out });
        let load = "have it fetch the rest: #include with a URL, or a script that downloads";
        match self {
            Self::Harvester | Self::Kubevirt => limit(
                super::size::VM_SPEC_LIMIT,
                "a VM's spec takes 2048 after decoding, and base64 does not help",
                super::size::SECRET,
            ),
            Self::Aws => limit(16_384, "EC2 takes 16384 before base64", load),
            Self::Azure => limit(65_535, "Azure takes 65535 of custom data after decoding", load),
            Self::Gce => limit(262_144, "Compute Engine takes 262144 in one metadata value", load),
            Self::Openstack => limit(
                49_149,
                "Nova takes 65535 characters of base64, which is 49149 bytes",
                "compress it with gzip, which cloud-init unpacks, or have it fetch the rest",
            ),
            Self::Digitalocean => limit(65_536, "DigitalOcean takes 65536", load),
            Self::Hetzner => limit(32_768, "Hetzner takes 32768", load),
            Self::RancherMachine | Self::Vmware | Self::Nocloud => None,
        }
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let word = text.to_ascii_lowercase();
        let word = match word.as_str() {
            "ec2" => "aws",
            "gcp" => "gce",
            "rancher" => "rancher-machine",
            "vsphere" => "vmware",
            other => other,
        };
        PLATFORMS.iter().find(|(_, name)| *name == word).map(|(platform, _)| *platform).ok_or_else(|| {
            format!(
                "there is no platform {text:?}; the platforms are {}",
                Self::names().collect::<Vec<_>>().join(", ")
            )
        })
    }
}
