//! The conditions of a status: `metav1.Condition` with the types and reasons that the engine writes.

use strum::{AsRefStr, Display, EnumString};

use crate::Name;
use crate::kinds::Cause;

/// The `type` of a condition. The order is that of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, AsRefStr, Display, EnumString)]
#[cfg_attr(test, derive(strum::VariantArray))]
pub enum ConditionType {
    /// Pods get their addresses from the attachment's Subnets.
    AddressesAssigned,
    /// Few addresses of the Subnet, or none, are left for pods.
    AddressesLow,
    /// Pods get addresses of a pool that no other L2Service has.
    AddressesSeparate,
    /// No two pods get the same address.
    AddressesUnique,
    /// What announces addresses by the speaker does so to all its peers.
    AnnouncedToAll,
    /// A change of the device can be rolled back.
    CanRollBack,
    /// The clock of the driver differs from that of the engine.
    ClockSkew,
    /// Another cluster uses this cluster's identifier on the device.
    #[strum(serialize = "ClusterIDClash")]
    ClusterIdClash,
    /// The object is ready, and a target of it fails now.
    Degraded,
    /// The device differs from what was verified on it.
    Drift,
    /// Links join the ends of all attachments to those of the service.
    EndsJoined,
    /// FabricDevices have the ports of the attachment's ConnectionPoint.
    FabricManaged,
    /// The switches on the path are done.
    FabricReady,
    /// Pods that may not use the attachment use it.
    ForeignPods,
    /// The device holds a change until its transaction is decided.
    Held,
    /// Nodes are at other ports of the device than FabricDevices say.
    Miswired,
    /// The NetworkAttachmentDefinition is done.
    #[strum(serialize = "NADReady")]
    NadReady,
    /// Each next hop of the Subnet's Routes is an address that something has.
    NextHopAnswers,
    /// The device can't be asked for the state of its BGP sessions.
    #[strum(serialize = "NoBGPState")]
    NoBgpState,
    /// The device lacks the NETCONF confirmed commit.
    NoConfirmedCommit,
    /// The device can't be asked for the ports of probes.
    NoMacTable,
    /// The device can't lock its running configuration.
    NoRunningLock,
    /// The nodes on the path are done.
    NodesReady,
    /// A trunk on the device carries every VLAN.
    OpenTrunk,
    /// Every link on the path carries the MTU of the interface.
    #[strum(serialize = "PathMTU")]
    PathMtu,
    /// The running pods have what the object gives them.
    PodsReady,
    /// The device answers.
    Reachable,
    /// The phase is `ready`.
    Ready,
    /// Another device or VRF has the same route distinguisher.
    SharedDistinguisher,
    /// The error stays until something changes (kstatus).
    Stalled,
    /// The device's startup configuration lacks the last change.
    StartupNotSaved,
    /// The trunk was checked against closed L2Services.
    TrunkChecked,
    /// A trunk of OpenStack is not active.
    TrunkNotActive,
    /// `Opts` has keys without effect.
    UnknownOpts,
    /// Workloads without pods name the NetworkAttachmentDefinition in their templates.
    UsedByTemplates,
    /// Packets pass, as agents found.
    Verified,
    /// ENO took a VLAN off a list of others.
    VlanTakenOff,
}

/// The `reason` of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, AsRefStr, Display, EnumString)]
pub enum ConditionReason {
    /// All that was asked answers.
    Answered,
    /// The device answers.
    Answers,
    /// The device has what is desired.
    AsWanted,
    /// Nothing can be asked.
    CannotProbe,
    /// The clocks of two processes differ.
    ClocksDiffer,
    /// Every target has confirmed it.
    Confirmed,
    /// The object is gone.
    Deleted,
    /// Somebody else changed the device.
    Drift,
    /// Two hosts have one address.
    DuplicateAddress,
    /// The Subnet has few free addresses.
    FewLeft,
    /// Another object holds the VLAN ID.
    #[strum(serialize = "IDConflict")]
    IdConflict,
    /// No plugin of the ConnectionPoint fits.
    Incompatible,
    /// The spec is invalid.
    Invalid,
    /// Link-local addresses are not in what ENO knows.
    LinkLocal,
    /// Packets are lost.
    Lost,
    /// Another object holds the name.
    NameConflict,
    /// The NICs of a pool are unknown.
    #[strum(serialize = "NICsUnknown")]
    NicsUnknown,
    /// No FabricDevice has the ports.
    NoFabricDevice,
    /// The Subnet has no free address.
    NoneLeft,
    /// No VRFAttachment has the address.
    NoInterface,
    /// No link leads there.
    NoPath,
    /// The workload has no pods.
    NoPods,
    /// A selector does not admit the namespace.
    NotPermitted,
    /// Nothing was asked.
    NotProbed,
    /// The device does not support it.
    NotSupported,
    /// `UsableFrom` does not admit the pod's namespace.
    NotUsableFrom,
    /// Something is at another port.
    OtherPort,
    /// Addresses are unique within one attachment only.
    PerAttachment,
    /// Addresses are unique within one node only.
    PerNode,
    /// The confirmed commit survives the session (RFC 6241, 8.4).
    Persistent,
    /// Pods use the pool of addresses.
    PoolInUse,
    /// The error is transient.
    Recoverable,
    /// A named object does not exist.
    ReferenceNotFound,
    /// A named object is not ready.
    ReferenceNotReady,
    /// A named object is being deleted.
    ReferenceTerminating,
    /// A target refused it.
    Refused,
    /// The driver reported it.
    ReportedByDriver,
    /// The confirmed commit ends with the session (RFC 4741, 8.4).
    Session,
    /// The pod sets its addresses itself.
    SetByPod,
    /// Two have the same.
    Shared,
    /// The object is being deleted.
    Terminating,
    /// Packets of the MTU are lost, and small ones are not.
    TooBig,
    /// A link on the path has a smaller MTU.
    TooSmall,
    /// A transaction is not decided yet.
    Transaction,
    /// A key is not known.
    UnknownKey,
    /// The device does not answer.
    Unreachable,
    /// A target has not confirmed it yet.
    Waiting,
}

impl ConditionReason {
    /// True when it can't be told whether the condition holds: its status is `Unknown`.
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::CannotProbe | Self::LinkLocal | Self::NotProbed)
    }
}

impl From<Cause> for ConditionReason {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Spec => Self::Invalid,
            Cause::Incompatible => Self::Incompatible,
            Cause::ReferenceNotFound => Self::ReferenceNotFound,
            Cause::ReferenceNotReady => Self::ReferenceNotReady,
            Cause::ReferenceTerminating => Self::ReferenceTerminating,
            Cause::IdConflict => Self::IdConflict,
            Cause::NameConflict => Self::NameConflict,
            Cause::NotPermitted => Self::NotPermitted,
        }
    }
}

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    /// Its type.
    pub kind: ConditionType,
    /// Its status: `True` or `False`.
    pub holds: bool,
    /// Its reason.
    pub reason: ConditionReason,
    /// Its message; empty: none.
    pub message: String,
}

impl ConditionState {
    /// A condition of this type.
    pub fn new(
        kind: ConditionType,
        holds: bool,
        reason: ConditionReason,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, holds, reason, message: message.into() }
    }
}

/// One condition of a status, as `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: ConditionType,
    /// Its status: `True` or `False`.
    pub holds: bool,
    /// Its reason.
    pub reason: ConditionReason,
    /// Its message; empty: none.
    pub message: String,
    /// The time at which `holds` last changed, RFC 3339.
    pub since: Name,
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    #[test]
    fn texts_of_types_and_reasons_are_those_of_the_api() {
        for (kind, text) in [
            (ConditionType::NadReady, "NADReady"),
            (ConditionType::PathMtu, "PathMTU"),
            (ConditionType::ClusterIdClash, "ClusterIDClash"),
            (ConditionType::VlanTakenOff, eno_schemas::VLAN_TAKEN_OFF),
            (ConditionType::NoMacTable, eno_schemas::NO_MAC_TABLE),
            (ConditionType::NoBgpState, eno_schemas::NO_BGP_STATE),
            (ConditionType::AnnouncedToAll, eno_schemas::ANNOUNCED_TO_ALL),
        ] {
            assert_eq!(kind.to_string(), text);
            assert_eq!(text.parse(), Ok(kind));
        }
        assert_eq!(ConditionReason::IdConflict.to_string(), "IDConflict");
        assert_eq!("NICsUnknown".parse(), Ok(ConditionReason::NicsUnknown));
        assert!("Somebody's".parse::<ConditionType>().is_err());
        let texts = ConditionType::VARIANTS.iter().map(ToString::to_string);
        assert!(texts.is_sorted(), "statuses list conditions in this order");
    }

    #[test]
    fn console_knows_each_type() {
        let page = include_str!("../../../../console/src/components/HopPanel.tsx");
        let list = |name: &str| {
            let (_, list) = page.split_once(&format!("const {name} = new Set([")).expect("a list");
            let (list, _) = list.split_once(']').expect("its end");
            list.split(',')
                .map(|text| text.trim().trim_matches('"').to_owned())
                .filter(|text| !text.is_empty())
        };
        let mut listed: Vec<String> = list("TROUBLE").chain(list("FINE")).collect();
        listed.sort();
        let others = ["CallbackDelivered", "Recorded"].map(str::to_owned);
        let mut all: Vec<String> =
            ConditionType::VARIANTS.iter().map(ToString::to_string).chain(others).collect();
        all.sort();
        assert_eq!(listed, all);
    }
}
