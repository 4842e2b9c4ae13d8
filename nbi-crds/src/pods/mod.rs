//! The kinds that give interfaces to running pods, in the groups and the spelling in which their users write them:
//! `podnetwork.opdev.io/v1alpha1` and `podconfig.opdev.io/v1alpha1`; and PodNetwork, which shows what a pod got.

mod bridge;
mod link;
mod pod_config;
mod pod_network;
mod pod_network_config;
mod status;

pub use bridge::{Bridge, BridgeSpec};
pub use link::{LinkFields, LinkType, RouteFields, RuleFields};
pub use pod_config::{NetworkAttachment, PodConfig, PodConfigSpec, SampleDeployment, VlanFields};
pub use pod_network::{PodInterface, PodNetwork, PodNetworkOwner, PodNetworkSpec, PodNetworkStatus};
pub use pod_network_config::{AdditionalNetwork, PodNetworkConfig, PodNetworkConfigSpec, PrimaryInterface};
pub use status::{ConfigPhase, Lease, PodConfiguration};

/// The label whose value is the name of a PodConfig of the pod's namespace, which the pod gets.
pub const PODCONFIG_LABEL: &str = "podconfig";

/// The label whose value is the name of a PodNetworkConfig of the pod's namespace, which the pod gets.
pub const PODNETWORKCONFIG_LABEL: &str = "podNetworkConfig";

/// Prefix of the label that attaches a running pod, followed by the name of an L2ServiceAttachment of its
/// namespace. The value is the interface's name; empty: the next `net<N>`.
pub const ATTACH_LABEL_PREFIX: &str = "attach.eno.k8s.io/";
