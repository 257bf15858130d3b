//! Every field of the three providers' configuration, as data.
//!
//! Names, types and nullability: rancher/eks-operator, rancher/aks-operator and rancher/gke-operator,
//! `pkg/apis/*/v1/types.go`; the tables of `facts/hosted-sync.md`, section 4.

/// Whose cluster it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provider {
    /// Amazon EKS.
    Eks,
    /// Azure AKS.
    Aks,
    /// Google GKE.
    Gke,
}

/// How two values of a field compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equality {
    /// As JSON.
    Exact,
    /// As a version: `1.30` is later than `1.9`.
    Version,
    /// A list without order.
    Set,
    /// A list of networks without order; a list open to all equals the empty one.
    CidrSet,
    /// A map of text.
    Map,
    /// Pools, matched by name, compared field by field.
    Pools,
}

/// What is special about a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    /// Nothing.
    Plain,
    /// Names the cluster or how to reach it; copied from S into U, never synced.
    Identity,
    /// Cannot be changed after creation.
    Immutable,
    /// An absent add-on is the same as `false`.
    AbsentIsFalse,
    /// `true` opens the cluster to more of the world.
    TrueWidens,
    /// `false` opens the cluster to more of the world.
    FalseWidens,
    /// More networks, or none at all, open the cluster to more of the world.
    MoreWidens,
    /// Sent exactly: keys that are not in S are removed.
    RemovesKeys,
    /// Nodes in the pool; never ours while the pool scales by itself.
    Count,
    /// Switches a pool's autoscaling on.
    Autoscaling,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// JSON name.
    pub name: &'static str,
    /// How it compares.
    pub equality: Equality,
    /// Whether null can stand for "unmanaged"; a field that is not nillable is always managed.
    pub nillable: bool,
    /// What is special about it.
    pub special: Trait,
}

const fn field(name: &'static str, equality: Equality, nillable: bool, special: Trait) -> Field {
    Field { name, equality, nillable, special }
}

const fn plain(name: &'static str) -> Field {
    field(name, Equality::Exact, true, Trait::Plain)
}

const fn fixed(name: &'static str) -> Field {
    field(name, Equality::Exact, true, Trait::Immutable)
}

const fn identity(name: &'static str) -> Field {
    field(name, Equality::Exact, false, Trait::Identity)
}

const fn always(name: &'static str) -> Field {
    field(name, Equality::Exact, false, Trait::Plain)
}

const fn exact_map(name: &'static str) -> Field {
    field(name, Equality::Map, true, Trait::RemovesKeys)
}

const fn set(name: &'static str) -> Field {
    field(name, Equality::Set, true, Trait::Plain)
}

const fn version(name: &'static str) -> Field {
    field(name, Equality::Version, true, Trait::Plain)
}

const fn pools(name: &'static str) -> Field {
    field(name, Equality::Pools, true, Trait::Plain)
}

const EKS: &[Field] = &[
    identity("amazonCredentialSecret"),
    identity("displayName"),
    identity("region"),
    identity("imported"),
    fixed("ipFamily"),
    field("subnets", Equality::Set, true, Trait::Identity),
    field("securityGroups", Equality::Set, true, Trait::Identity),
    field("serviceRole", Equality::Exact, true, Trait::Identity),
    fixed("secretsEncryption"),
    fixed("kmsKey"),
    version("kubernetesVersion"),
    field("publicAccess", Equality::Exact, true, Trait::TrueWidens),
    plain("privateAccess"),
    field("publicAccessSources", Equality::CidrSet, true, Trait::MoreWidens),
    exact_map("tags"),
    set("loggingTypes"),
    plain("ebsCSIDriver"),
    pools("nodeGroups"),
];

const EKS_POOL: &[Field] = &[
    plain("nodegroupName"),
    plain("gpu"),
    plain("arm"),
    plain("imageId"),
    plain("diskSize"),
    always("instanceType"),
    exact_map("labels"),
    plain("ec2SshKey"),
    field("desiredSize", Equality::Exact, true, Trait::Count),
    plain("maxSize"),
    plain("minSize"),
    set("subnets"),
    exact_map("tags"),
    exact_map("resourceTags"),
    plain("userData"),
    version("version"),
    plain("launchTemplate"),
    plain("requestSpotInstances"),
    set("spotInstanceTypes"),
    plain("nodeRole"),
];

const AKS: &[Field] = &[
    identity("imported"),
    identity("resourceLocation"),
    identity("resourceGroup"),
    identity("clusterName"),
    identity("azureCredentialSecret"),
    exact_map("tags"),
    version("kubernetesVersion"),
    field("authorizedIpRanges", Equality::CidrSet, true, Trait::MoreWidens),
    field("httpApplicationRouting", Equality::Exact, true, Trait::AbsentIsFalse),
    field("monitoring", Equality::Exact, true, Trait::AbsentIsFalse),
    plain("baseUrl"),
    plain("authBaseUrl"),
    plain("networkPlugin"),
    plain("virtualNetworkResourceGroup"),
    plain("virtualNetwork"),
    plain("subnet"),
    plain("dnsServiceIp"),
    plain("serviceCidr"),
    plain("dockerBridgeCidr"),
    plain("podCidr"),
    plain("nodeResourceGroup"),
    plain("outboundType"),
    plain("loadBalancerSku"),
    plain("networkPolicy"),
    plain("linuxAdminUsername"),
    plain("sshPublicKey"),
    plain("dnsPrefix"),
    field("privateCluster", Equality::Exact, true, Trait::FalseWidens),
    plain("privateDnsZone"),
    plain("logAnalyticsWorkspaceGroup"),
    plain("logAnalyticsWorkspaceName"),
    plain("managedIdentity"),
    plain("userAssignedIdentity"),
    pools("nodePools"),
];

const AKS_POOL: &[Field] = &[
    plain("name"),
    field("count", Equality::Exact, true, Trait::Count),
    plain("maxPods"),
    always("vmSize"),
    plain("osDiskSizeGB"),
    always("osDiskType"),
    always("mode"),
    always("osType"),
    version("orchestratorVersion"),
    set("availabilityZones"),
    plain("maxSurge"),
    plain("maxCount"),
    plain("minCount"),
    field("enableAutoScaling", Equality::Exact, true, Trait::Autoscaling),
    plain("vnetSubnetID"),
    exact_map("nodeLabels"),
    set("nodeTaints"),
];

const GKE: &[Field] = &[
    identity("region"),
    identity("zone"),
    identity("imported"),
    identity("projectID"),
    identity("googleCredentialSecret"),
    identity("clusterName"),
    version("kubernetesVersion"),
    plain("clusterAddons"),
    field("masterAuthorizedNetworks", Equality::Exact, true, Trait::MoreWidens),
    plain("loggingService"),
    plain("monitoringService"),
    plain("networkPolicyEnabled"),
    set("locations"),
    plain("maintenanceWindow"),
    exact_map("labels"),
    always("description"),
    plain("enableKubernetesAlpha"),
    plain("clusterIpv4Cidr"),
    plain("network"),
    plain("subnetwork"),
    plain("privateClusterConfig"),
    plain("ipAllocationPolicy"),
    plain("autopilotConfig"),
    plain("customerManagedEncryptionKey"),
    pools("nodePools"),
];

const GKE_POOL: &[Field] = &[
    plain("name"),
    field("initialNodeCount", Equality::Exact, true, Trait::Count),
    field("autoscaling", Equality::Exact, true, Trait::Autoscaling),
    plain("config"),
    plain("maxPodsConstraint"),
    version("version"),
    plain("management"),
];

impl Provider {
    /// Every top-level field, in the order in which writes would be sent: control plane, pools.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Provider::Eks => EKS,
            Provider::Aks => AKS,
            Provider::Gke => GKE,
        }
    }

    /// Every field of a pool.
    pub fn pool_fields(self) -> &'static [Field] {
        match self {
            Provider::Eks => EKS_POOL,
            Provider::Aks => AKS_POOL,
            Provider::Gke => GKE_POOL,
        }
    }

    /// The field a pool is named by.
    pub fn pool_name(self) -> &'static str {
        match self {
            Provider::Eks => "nodegroupName",
            Provider::Aks | Provider::Gke => "name",
        }
    }

    /// The top-level field `name`; `None` for one this version does not know.
    pub fn field(self, name: &str) -> Option<&'static Field> {
        self.fields().iter().find(|f| f.name == name)
    }

    /// Fields that one call sends together, so that holding one holds the others (EKS: both kinds of access).
    pub fn sent_together(self) -> &'static [&'static [&'static str]] {
        match self {
            Provider::Eks => &[&["publicAccess", "privateAccess"]],
            Provider::Aks | Provider::Gke => &[],
        }
    }

    /// The word in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Provider::Eks => "EKS",
            Provider::Aks => "AKS",
            Provider::Gke => "GKE",
        }
    }
}
