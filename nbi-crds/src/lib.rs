//! The northbound API: custom resources of `eno.k8s.io/v1alpha1` and of the groups for running pods.
//!
//! The kinds that give interfaces to running pods are in the folder `pods`, in groups of their own.
//!
//! Each kind has a file with its spec; the root type (`L2Service` for `L2ServiceSpec`) is derived. All kinds
//! share one [`Status`]. Spec fields are spelled in PascalCase, status fields in camelCase.
//!
//! The schemas carry what the API server can check by itself: types, bounds and CEL rules. What needs more than
//! one object, or an order of addresses, is left to the engine. `eno-crds` writes the schemas as
//! CustomResourceDefinitions to `deploy/crds`.
#![allow(
    clippy::duplicated_attributes,
    reason = "every printer column of a kind has its own `type_` and `json_path`"
)]

mod bgp_session_group;
mod callback;
mod connection_point;
mod crds;
mod fabric_device;
mod l2_bridge_domain;
mod l2_service;
mod l2_service_attachment;
mod manifest;
mod neutron;
mod node_pool;
mod physical_network;
mod pods;
mod route;
mod schema;
mod status;
mod subnet;
mod verification;
mod vrf;
mod vrf_attachment;

pub use bgp_session_group::{
    AddressFamily, BGPSessionGroup, BGPSessionGroupSpec, BfdTimers, BgpPassword, BgpSession, BgpWorker,
    GracefulRestart, Neighbours, ReturnPath, Speaker,
};
pub use callback::{CallbackFormat, CallbackSecret, Callbacks};
pub use connection_point::{ConnectionPoint, ConnectionPointSpec, SupportedCni, Verify};
pub use crds::{Definition, crds, finalizer};
pub use eno_schemas::{
    ChangeOutcome, CniName, DeviceRole, Drift, InterfaceType, Ipam, Phase, PortMode, ProbeOutcome, VlanType,
};
pub use fabric_device::{Credentials, FabricDevice, FabricDeviceSpec, FabricPort, PortPeer, PortPeerError};
pub use l2_bridge_domain::{L2BridgeDomain, L2BridgeDomainSpec};
pub use l2_service::{L2Service, L2ServiceSpec};
pub use l2_service_attachment::{L2ServiceAttachment, L2ServiceAttachmentSpec};
pub use manifest::{api_version, manifest};
pub use neutron::{AllowedAddressPair, Neutron, PortSecurity};
pub use node_pool::{NodePool, NodePoolSpec};
pub use physical_network::{PhysicalNetwork, PhysicalNetworkSpec, SegmentationRange, SegmentationRangeError};
pub use pods::{
    ATTACH_LABEL_PREFIX, AdditionalNetwork, Bridge, BridgeSpec, ConfigPhase, Lease, LinkFields, LinkType,
    NetworkAttachment, PODCONFIG_LABEL, PODNETWORKCONFIG_LABEL, PodConfig, PodConfigSpec, PodConfiguration,
    PodInterface, PodNetwork, PodNetworkConfig, PodNetworkConfigSpec, PodNetworkOwner, PodNetworkSpec,
    PodNetworkStatus, PrimaryInterface, RouteFields, RuleFields, SampleDeployment, VlanFields,
};
pub use route::{Route, RouteSpec};
pub use status::{
    Condition, ConfigStatus, EnoResource, FixedAddress, LastTransaction, NodeBlocks, Placement, PortBefore,
    Status,
};
pub use subnet::{Dns, IpPool, IpType, Subnet, SubnetSpec};
pub use verification::{VERIFY_ANNOTATION, Verification, VerificationResult, VerifyRequest};
pub use vrf::{VRF, VRFSpec, VrfDevice};
pub use vrf_attachment::{VRFAttachment, VRFAttachmentSpec, VrfInterface, VrfStaticRoute};

/// All kinds. The order is that of tables and of what `make crds` writes.
pub fn kinds() -> Vec<Definition> {
    vec![
        Definition::of::<BGPSessionGroup>(),
        Definition::of::<ConnectionPoint>(),
        Definition::of::<FabricDevice>(),
        Definition::of::<L2BridgeDomain>(),
        Definition::of::<L2Service>(),
        Definition::of::<L2ServiceAttachment>(),
        Definition::of::<NodePool>(),
        Definition::of::<PhysicalNetwork>(),
        Definition::of::<Route>(),
        Definition::of::<Subnet>(),
        Definition::of::<VRF>(),
        Definition::of::<VRFAttachment>(),
        Definition::of::<PodNetwork>(),
        Definition::of::<Bridge>(),
        Definition::of::<PodConfig>(),
        Definition::of::<PodNetworkConfig>(),
    ]
}

/// The API group of all kinds except those for running pods.
pub const GROUP: &str = "eno.k8s.io";

/// The version of every kind.
pub const VERSION: &str = "v1alpha1";

/// The [`finalizer`] of the kinds of [`GROUP`].
pub const FINALIZER: &str = "eno.k8s.io/engine";

/// The condition that tells whether an object's callbacks are delivered; absent until a delivery failed.
pub const CALLBACK_DELIVERED: &str = "CallbackDelivered";

/// The condition that tells whether NATS stores an object's changes of phase; absent unless it refuses one.
pub const RECORDED: &str = "Recorded";

/// The conditions of field managers other than the core's.
pub const CONDITIONS_BESIDE_CORE: [&str; 2] = [CALLBACK_DELIVERED, RECORDED];

/// The `status.observedGeneration` of an object that no engine has seen yet. Programs such as kstatus take an
/// object without a status for a finished one.
pub const UNOBSERVED: i64 = -1;

/// The annotation that, set to `"true"`, lets a FabricDevice be deleted without cleanup.
pub const FORGET_ANNOTATION: &str = "eno.k8s.io/forget";
