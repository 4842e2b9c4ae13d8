//! The kinds of custom resources. The file of a kind has its parsed spec, and says what the core knows of it: which
//! objects it names, what its path leads over, what keeps it from being deleted. The parts of the core ask here.
//!
//! The parsed specs are manifests with every text parsed to a value. Ingest builds them from custom resources that may be
//! invalid ([`Invalid`]). `status.realized` holds them, too.

mod bgp_session_group;
mod bridge;
pub mod compat;
mod connection_point;
mod fabric_device;
mod invalid;
mod l2_bridge_domain;
mod l2_service;
mod l2_service_attachment;
mod node_pool;
mod physical_network;
mod pod_links;
mod route;
mod subnet;
mod vrf;
mod vrf_attachment;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::selector::Selector;

pub use bgp_session_group::{BgpSessionGroupSpec, Family};
pub use bridge::BridgeSpec;
pub use connection_point::{ConnectionPointSpec, Plugin, SupportedCni, Verify};
pub use fabric_device::{DevicePort, DeviceSpec, LeadsTo};
pub use invalid::{Cause, Invalid};
pub use l2_bridge_domain::BridgeDomainSpec;
pub use l2_service::ServiceSpec;
pub use l2_service_attachment::AttachmentSpec;
pub use node_pool::NodePoolSpec;
pub use physical_network::PhysicalNetworkSpec;
pub use pod_links::{PodLinkSpec, PodLinksSpec, PrimarySpec};
pub use route::RouteSpec;
pub use subnet::SubnetSpec;
pub use vrf::{VrfDevice, VrfSpec};
pub use vrf_attachment::{VrfAttachmentSpec, VrfInterface};

/// What the core knows of a kind by its spec.
trait Described: Sized + 'static {
    /// How the parts of the core treat an object.
    const FACTS: Facts = Facts::DEFAULT;
    /// The fields that name other objects, in the order in which they are checked.
    const REFERENCES: &'static [Reference<Self>] = &[];
}

/// How the parts of the core treat the objects of a kind.
#[allow(clippy::struct_excessive_bools, reason = "facts of a kind, independent of each other")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// What the path of an object leads over.
    pub path: Path,
    /// What keeps an object from being deleted.
    pub users: Users,
    /// Whether the engine may begin while the API server does not know the kind.
    pub absence: Absence,
    /// An object has a VLAN.
    pub has_vlan: bool,
    /// An object needs networks at ConnectionPoints.
    pub needs_networks: bool,
    /// An object gives interfaces to the pods whose labels name it.
    pub gives_to_pods: bool,
    /// A change may decide again which attachments exclude each other.
    pub admits_trunks: bool,
    /// A spec that only the state of other objects hinders is planned all the same.
    pub planned_when_hindered: bool,
}

impl Facts {
    /// Of a kind that others name, and that asks for nothing by itself.
    const DEFAULT: Self = Self {
        path: Path::Nothing,
        users: Users::Referrers,
        absence: Absence::Never,
        has_vlan: false,
        needs_networks: false,
        gives_to_pods: false,
        admits_trunks: false,
        planned_when_hindered: false,
    };
}

/// What the path of an object leads over. Its phase depends on the state there. When it is deleted, it waits until
/// nothing of it is left there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// It asks for nothing by itself.
    Nothing,
    /// The switch that it is.
    Device,
    /// The devices that have the VRF.
    Vrf,
    /// The host networks of a ConnectionPoint.
    Point,
    /// Networks, on switches and nodes.
    Networks,
    /// A bridge of pods.
    Bridge,
    /// The pods that it gives interfaces to.
    Pods,
}

/// What keeps an object from being deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Users {
    /// The objects that name it.
    Referrers,
    /// The pods that use its NetworkAttachmentDefinition, or whose labels name it.
    Pods,
    /// The links that name the bridge of pods.
    BridgeLinks,
}

/// Whether the engine may begin while the API server does not know a kind, so that its objects seem to be gone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Absence {
    /// No: networks depend on it.
    Never,
    /// Unless a realised object names one of its objects.
    UnlessNamed,
    /// Unless a running pod may have an interface by it.
    UnlessInPods,
}

/// A field of a spec that names other objects.
#[derive(Debug)]
pub(crate) struct Reference<S: 'static> {
    /// Its path below `spec`; `[]` stands for each element of a list.
    field: &'static str,
    /// The kind of the objects.
    kind: Kind,
    /// Their names. An object waits for all of them.
    names: fn(&S) -> Vec<&Name>,
    /// The check of the kind's own part looks at it, between other fields.
    is_checked_by_part: bool,
}

impl<S> Reference<S> {
    const fn new(field: &'static str, kind: Kind, names: fn(&S) -> Vec<&Name>) -> Self {
        Self { field, kind, names, is_checked_by_part: false }
    }

    const fn checked_by_part(field: &'static str, kind: Kind, names: fn(&S) -> Vec<&Name>) -> Self {
        Self { field, kind, names, is_checked_by_part: true }
    }
}

/// An object that a spec names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    /// The field, as in [`Kind::reference_fields`].
    pub field: &'static str,
    /// The kind of the object.
    pub kind: Kind,
    /// Its name.
    pub name: &'a Name,
    /// The check of the kind's own part looks at it.
    pub is_checked_by_part: bool,
}

fn named_by<S: Described>(spec: &S) -> Vec<Named<'_>> {
    let of = |&Reference { field, kind, names, is_checked_by_part }: &Reference<S>| {
        let names = names(spec).into_iter();
        names.map(move |name| Named { field, kind, name, is_checked_by_part }).collect::<Vec<_>>()
    };
    S::REFERENCES.iter().flat_map(of).collect()
}

fn fields<S: Described>() -> Vec<(&'static str, Kind)> {
    S::REFERENCES.iter().map(|reference| (reference.field, reference.kind)).collect()
}

/// Makes [`Kind`] and [`Spec`] of the list of kinds. Each line has the variant of [`Spec`] with its type, the method that
/// reads it, and the kinds that have such a spec.
macro_rules! kinds {
    ($($variant:ident($spec:ident) by $read:ident: $($kind:ident)+;)+) => {
        /// The kinds of custom resources, in the order in which they are evaluated: a kind comes after those that it
        /// names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind {
            $($(#[doc = concat!("With a [`", stringify!($spec), "`].")] $kind,)+)+
        }

        impl Kind {
            /// All of them.
            pub const ALL: [Self; [$($(stringify!($kind)),+),+].len()] = [$($(Self::$kind),+),+];

            /// As the manifest spells it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$kind => stringify!($kind),)+)+
                }
            }

            /// How the parts of the core treat its objects.
            pub(crate) fn facts(self) -> Facts {
                match self {
                    $($(Self::$kind)|+ => $spec::FACTS,)+
                }
            }

            /// The fields of its spec that name other objects, each with their kind. `Ports[].Device` is the field
            /// `Device` of each element of `Ports`.
            pub fn reference_fields(self) -> Vec<(&'static str, Self)> {
                match self {
                    $($(Self::$kind)|+ => fields::<$spec>(),)+
                }
            }
        }

        /// The spec of any kind.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        pub enum Spec {
            $(#[doc = concat!("Of the kind ", $(stringify!($kind), ", ",)+ "in the order of [`Kind::ALL`].")]
            $variant($spec),)+
        }

        impl Spec {
            /// Reads back what `status.realized` holds.
            pub fn from_json(kind: Kind, value: serde_json::Value) -> serde_json::Result<Self> {
                Ok(match kind {
                    $($(Kind::$kind)|+ => Self::$variant(serde_json::from_value(value)?),)+
                })
            }

            /// The objects that it names, in the order of [`Kind::reference_fields`].
            pub(crate) fn named(&self) -> Vec<Named<'_>> {
                match self {
                    $(Self::$variant(spec) => named_by(spec),)+
                }
            }

            $(
                #[doc = concat!("The spec, if it is a [`", stringify!($spec), "`].")]
                pub fn $read(&self) -> Option<&$spec> {
                    match self {
                        Self::$variant(spec) => Some(spec),
                        _ => None,
                    }
                }
            )+
        }
    };
}

kinds! {
    Route(RouteSpec) by route: Route;
    Subnet(SubnetSpec) by subnet: Subnet;
    NodePool(NodePoolSpec) by node_pool: NodePool;
    PhysicalNetwork(PhysicalNetworkSpec) by physical_network: PhysicalNetwork;
    Device(DeviceSpec) by device: FabricDevice;
    Vrf(VrfSpec) by vrf: VRF;
    ConnectionPoint(ConnectionPointSpec) by connection_point: ConnectionPoint;
    Service(ServiceSpec) by service: L2Service;
    BridgeDomain(BridgeDomainSpec) by bridge_domain: L2BridgeDomain;
    VrfAttachment(VrfAttachmentSpec) by vrf_attachment: VRFAttachment;
    Attachment(AttachmentSpec) by attachment: L2ServiceAttachment;
    BgpSessionGroup(BgpSessionGroupSpec) by bgp_session_group: BGPSessionGroup;
    Bridge(BridgeSpec) by bridge: Bridge;
    PodLinks(PodLinksSpec) by pod_links: PodNetworkConfig PodConfig;
}

impl Kind {
    /// The kind of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// True for the kinds that only running pods have something of.
    pub fn is_for_pods(self) -> bool {
        matches!(self.facts().path, Path::Bridge | Path::Pods)
    }

    /// True for the kinds that have a VLAN.
    pub fn has_vlan(self) -> bool {
        self.facts().has_vlan
    }

    /// True for the kinds whose path leads over networks.
    pub fn leads_over_networks(self) -> bool {
        self.facts().path == Path::Networks
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
