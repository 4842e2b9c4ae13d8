//! The common interface of all kinds.

use kube::core::object::{HasSpec, HasStatus};

use crate::{
    ConnectionPoint, FabricDevice, L2BridgeDomain, L2Service, L2ServiceAttachment, NodePool, PhysicalNetwork,
    Route, Status, Subnet,
};

/// A kind of this API.
pub trait EnoResource: kube::Resource<DynamicType = ()> + HasSpec + HasStatus<Status = Status> {
    /// The fields of [`Status`], as serialised, that this kind has in addition to the common ones.
    const STATUS_EXTRAS: &'static [&'static str];

    /// The URL that the object's transitions are posted to.
    fn callback_url(&self) -> Option<&str>;
}

macro_rules! eno_resource {
    ($($kind:ident: $extras:expr;)*) => {
        $(impl EnoResource for $kind {
            const STATUS_EXTRAS: &'static [&'static str] = &$extras;

            fn callback_url(&self) -> Option<&str> {
                self.spec.callback_url.as_deref()
            }
        })*
    };
}

eno_resource! {
    ConnectionPoint: ["readyInputs", "cnis"];
    FabricDevice: [
        "readyInputs",
        "clusterID",
        "dialect",
        "capabilities",
        "hostKeyFingerprint",
        "model",
        "rollback",
        "auditInterval",
        "changeNotifications",
        "lastTransaction",
        "closedPorts",
        "leavingPorts",
        "portsBefore",
        "pendingChanges",
    ];
    L2BridgeDomain: ["readyInputs", "grantedID"];
    L2Service: ["readyInputs", "grantedID", "connectionPoints"];
    L2ServiceAttachment: ["readyInputs", "podConfigurations", "addresses"];
    NodePool: [];
    PhysicalNetwork: ["switchPorts"];
    Route: [];
    Subnet: [];
}
