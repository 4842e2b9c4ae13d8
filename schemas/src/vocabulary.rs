//! Enums that custom resources and messages share. Parsed specs and messages use these types directly.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// Declares plain enums, with the case of their texts. A spec, a status, a message and `as_str` spell a value alike.
macro_rules! vocabulary {
    ($(
        $(#[$about:meta])*
        pub enum $name:ident: $case:literal { $($(#[$about_value:meta])* $value:ident,)* }
    )*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(Serialize, Deserialize, JsonSchema, Display, IntoStaticStr)]
        #[serde(rename_all = $case)]
        #[strum(serialize_all = $case)]
        pub enum $name { $($(#[$about_value])* $value,)* }

        impl $name {
            /// As a spec, a status and a message spell it.
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        }
    )*};
}

vocabulary! {
    /// Where an object is on its way to the wire and back.
    #[derive(Default)]
    pub enum Phase: "lowercase" {
        /// Seen; something that it needs is not done yet.
        #[default]
        Pending,
        /// Everything that realises it has confirmed it.
        Ready,
        /// It can't be done; the message names the hop and the remedy.
        Error,
        /// Deleted by a client, and still in use or being cleaned up.
        Terminating,
        /// Verifiably gone. Seen only in the last callback and transition.
        Deleted,
    }

    /// How the VLANs of an attachment reach the pod.
    pub enum VlanType: "lowercase" {
        /// One VLAN, untagged.
        Access,
        /// Everything that the bridge or NIC carries, tagged: see TrunkNamespaces of the ConnectionPoint.
        Trunk,
        /// The VLANs of the named L2Services only, tagged.
        SelectiveTrunk,
    }

    /// What follows from probes of a ConnectionPoint.
    #[derive(Default)]
    pub enum VerifyMode: "PascalCase" {
        /// Nothing is probed.
        None,
        /// The condition Verified.
        #[default]
        Report,
        /// The condition Verified, without which nothing becomes ready for the first time.
        Gate,
    }

    /// Between whom probes go.
    #[derive(Default)]
    pub enum VerifyBetween: "PascalCase" {
        /// From each node to the next one and to the gateway.
        #[default]
        NodesAndGateway,
        /// From each node to the gateway.
        Gateway,
        /// From each node to the next one.
        Nodes,
    }

    /// The CNI plugins that an attachment can be made with.
    pub enum CniName: "kebab-case" {
        /// A port of an Open vSwitch bridge (ovs-cni).
        Ovs,
        /// A device moved into the pod.
        HostDevice,
        /// A macvlan interface on a master.
        Macvlan,
        /// A port of a Linux bridge.
        Bridge,
        /// A VLAN subinterface of a master.
        Vlan,
        /// An ipvlan interface on a master.
        Ipvlan,
        /// A virtual function of an SR-IOV NIC.
        Sriov,
        /// A vhost-user or memif port of a userspace switch.
        Userspace,
    }

    /// How a pod uses its interface.
    #[derive(Default)]
    pub enum InterfaceType: "lowercase" {
        /// Through the kernel's network stack.
        #[default]
        Kernel,
        /// Through DPDK, past the kernel.
        Dpdk,
    }

    /// The IPAM plugins that can hand out a subnet's addresses.
    pub enum Ipam: "kebab-case" {
        /// Unique in the cluster.
        Whereabouts,
        /// Unique on each node among the pods of one L2ServiceAttachment.
        HostLocal,
        /// The first address of AllocationPool, for each pod.
        Static,
        /// Unique in the cluster, without the API server: ENO's own.
        Eno,
    }
}

/// The reaction to drift of our configuration on a device. Messages spell it in lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Drift {
    /// Set it again.
    #[default]
    Repair,
    /// Leave the drift and report it in the status.
    Report,
}

/// What a network of OpenStack is on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkType {
    /// The VLAN of the same ID on the physical network.
    #[default]
    Provider,
    /// What the cloud gives to a project, often a tunnel. It ends in the cloud.
    Tenant,
}

/// What came of a probe. What failed comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeOutcome {
    /// The next node did not answer.
    Lost,
    /// The next node answered on another VLAN.
    Leaking,
    /// The next node answered, but not to a packet of the MTU.
    TooBig,
    /// The gateway did not answer.
    Silent,
    /// The next node could not be asked.
    Unasked,
    /// The next node answered.
    Passed,
    /// The gateway answered.
    Answered,
    /// The next node did not answer on another VLAN.
    Isolated,
}

/// How a change of a device ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeOutcome {
    /// The change is confirmed.
    #[default]
    Confirmed,
    /// The change was rolled back.
    RolledBack,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_json() {
        fn check<T: Copy + Serialize + std::fmt::Display>(all: &[T]) {
            for one in all {
                assert_eq!(serde_json::to_value(one).unwrap(), one.to_string());
            }
        }
        check(&[Phase::Pending, Phase::Terminating]);
        check(&[VlanType::Access, VlanType::SelectiveTrunk]);
        check(&[CniName::Ovs, CniName::HostDevice]);
        check(&[InterfaceType::Kernel, InterfaceType::Dpdk]);
        check(&[Ipam::HostLocal, Ipam::Static]);
        assert_eq!(VlanType::SelectiveTrunk.as_str(), "selectivetrunk");
    }
}
