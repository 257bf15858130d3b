//! `GKEClusterConfigSpec`: rancher/gke-operator, `pkg/apis/gke.cattle.io/v1/types.go`.

use super::{
    Equality, Field, Trait, Type, boolean, exact_map, field, integer, object, pools, set, text, version,
};

pub(super) const CLUSTER: &[Field] = &[
    text("region").always().identity(),
    text("zone").always().identity(),
    boolean("imported").always().identity(),
    text("projectID").always().identity(),
    text("googleCredentialSecret").always().identity(),
    text("clusterName").always().identity(),
    version("kubernetesVersion"),
    object("clusterAddons", ADDONS),
    object("masterAuthorizedNetworks", AUTHORIZED_NETWORKS).special(Trait::MoreWidens),
    text("loggingService"),
    text("monitoringService"),
    boolean("networkPolicyEnabled"),
    set("locations"),
    text("maintenanceWindow"),
    exact_map("labels"),
    text("description").always(),
    boolean("enableKubernetesAlpha"),
    text("clusterIpv4Cidr"),
    text("network"),
    text("subnetwork"),
    object("privateClusterConfig", PRIVATE_CLUSTER).special(Trait::FalseWidens),
    object("ipAllocationPolicy", IP_ALLOCATION),
    object("autopilotConfig", &[boolean("enabled")]),
    object("customerManagedEncryptionKey", &[text("keyName"), text("ringName")]),
    pools("nodePools", POOL),
];

pub(super) const POOL: &[Field] = &[
    text("name"),
    integer("initialNodeCount").special(Trait::Count),
    object("autoscaling", AUTOSCALING).special(Trait::Autoscaling),
    object("config", NODE),
    integer("maxPodsConstraint"),
    version("version"),
    object("management", &[boolean("autoRepair"), boolean("autoUpgrade")]),
];

const AUTOSCALING: &[Field] = &[boolean("enabled"), integer("maxNodeCount"), integer("minNodeCount")];

const NODE: &[Field] = &[
    text("bootDiskKmsKey"),
    integer("diskSizeGb"),
    text("diskType"),
    text("imageType"),
    exact_map("labels"),
    integer("localSsdCount"),
    text("machineType"),
    set("oauthScopes"),
    boolean("preemptible"),
    set("tags"),
    field("taints", Type::Objects(TAINT), Equality::Exact, Trait::Plain),
    text("serviceAccount"),
];

const TAINT: &[Field] = &[text("effect"), text("key"), text("value")];

const ADDONS: &[Field] =
    &[boolean("httpLoadBalancing"), boolean("horizontalPodAutoscaling"), boolean("networkPolicyConfig")];

const AUTHORIZED_NETWORKS: &[Field] =
    &[field("cidrBlocks", Type::Objects(BLOCK), Equality::Exact, Trait::Plain), boolean("enabled")];

const BLOCK: &[Field] = &[text("cidrBlock"), text("displayName")];

const PRIVATE_CLUSTER: &[Field] =
    &[boolean("enablePrivateEndpoint"), boolean("enablePrivateNodes"), text("masterIpv4CidrBlock")];

const IP_ALLOCATION: &[Field] = &[
    text("clusterIpv4CidrBlock"),
    text("clusterSecondaryRangeName"),
    boolean("createSubnetwork"),
    text("nodeIpv4CidrBlock"),
    text("servicesIpv4CidrBlock"),
    text("servicesSecondaryRangeName"),
    text("subnetworkName"),
    boolean("useIpAliases"),
];
