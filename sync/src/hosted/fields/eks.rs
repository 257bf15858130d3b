//! `EKSClusterConfigSpec`: rancher/eks-operator, `pkg/apis/eks.cattle.io/v1/types.go`.

use super::{Field, Trait, boolean, exact_map, integer, networks, object, pools, set, text, version};

pub(super) const CLUSTER: &[Field] = &[
    text("amazonCredentialSecret").always().identity(),
    text("displayName").always().identity(),
    text("region").always().identity(),
    boolean("imported").always().identity(),
    text("ipFamily").immutable(),
    set("subnets").identity(),
    set("securityGroups").identity(),
    text("serviceRole").identity(),
    boolean("secretsEncryption").immutable(),
    text("kmsKey").immutable(),
    version("kubernetesVersion"),
    boolean("publicAccess").special(Trait::TrueWidens),
    boolean("privateAccess"),
    networks("publicAccessSources"),
    exact_map("tags"),
    set("loggingTypes"),
    boolean("ebsCSIDriver"),
    pools("nodeGroups", POOL),
];

pub(super) const POOL: &[Field] = &[
    text("nodegroupName"),
    boolean("gpu"),
    boolean("arm"),
    text("imageId"),
    integer("diskSize"),
    text("instanceType").always(),
    exact_map("labels"),
    text("ec2SshKey"),
    integer("desiredSize").special(Trait::Count),
    integer("maxSize"),
    integer("minSize"),
    set("subnets"),
    exact_map("tags"),
    exact_map("resourceTags"),
    text("userData"),
    version("version"),
    object("launchTemplate", LAUNCH_TEMPLATE),
    boolean("requestSpotInstances"),
    set("spotInstanceTypes"),
    text("nodeRole"),
];

const LAUNCH_TEMPLATE: &[Field] = &[text("id"), text("name"), integer("version")];
