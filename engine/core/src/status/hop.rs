//! The hops of the path of an object, and the state of each. Phases, conditions, labels of nodes and
//! [`crate::Engine::path`] all follow from these states.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use eno_schemas::{Failure, Item, Rejection, VlanId};
use serde::Serialize;

use crate::kinds::LeadsTo;
use crate::{ConditionType, Name};

/// The state of one hop of a path, such as one VLAN on one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HopState<'a> {
    /// The driver has read it back as wanted.
    Confirmed,
    /// It is not confirmed yet.
    Waiting(Wait<'a>),
    /// The target does not answer, or its driver can't tell whether it has it.
    Unreachable {
        /// The message of the driver.
        reason: &'a str,
        /// It was confirmed when the target answered last: it is assumed to be there still.
        was_confirmed: bool,
    },
    /// The target or its driver refused it.
    Refused {
        /// The message of the driver.
        reason: &'a str,
        /// The same request may succeed later.
        retryable: bool,
    },
    /// What would carry it does not exist: the reason, as a sentence.
    Missing(Cow<'a, str>),
}

/// What a hop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait<'a> {
    /// A report of its driver.
    Report,
    /// A process of this driver.
    Driver(&'a str),
    /// The agent of its node.
    Agent,
    /// Somebody who restores what somebody else changed, since the FabricDevice has `Drift: Report`.
    Drift,
    /// The leases of the pod, which are written to the status of their object first.
    Leases,
}

/// A tier of a path, from the pod to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Pods.
    Pods,
    /// Interfaces in pods, and NetworkAttachmentDefinitions.
    Interfaces,
    /// Bridges, or what takes their place, on nodes.
    Bridges,
    /// NICs of nodes.
    Nics,
    /// Ports of switches to nodes.
    Leaves,
    /// Ports between switches, and switches.
    Spines,
    /// Ports of switches to PhysicalNetworks, and VRFs.
    Gateways,
}

/// One hop of the path of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop<'a> {
    /// What it is.
    pub part: Part<'a>,
    /// Its state.
    pub state: HopState<'a>,
}

/// What a hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A pod.
    Pod(PodId<'a>),
    /// The pods of a sample Deployment.
    Sample,
    /// The agents of all nodes.
    Agents,
    /// An interface that an agent makes in a pod.
    Interface {
        /// The pod.
        pod: PodId<'a>,
        /// Its node.
        node: &'a Name,
        /// The id of the interface in commands and reports.
        id: &'a str,
        /// The name of the link in the spec, or that of the primary interface.
        name: &'a str,
        /// It is the primary interface, whose MTU is changed.
        is_primary: bool,
    },
    /// A pod bridge of an interface.
    PodBridge {
        /// The pod.
        pod: PodId<'a>,
        /// Its node.
        node: &'a Name,
        /// The name of the bridge.
        bridge: &'a str,
    },
    /// The removal of an interface from a pod.
    Removal {
        /// The pod.
        pod: PodId<'a>,
        /// Its node.
        node: &'a Name,
        /// The id of the interface.
        id: &'a str,
    },
    /// The NetworkAttachmentDefinition of an attachment.
    Nad,
    /// A network of a host, or a part of it.
    Network {
        /// The node.
        node: &'a Name,
        /// `bridge` or `interface`.
        noun: &'static str,
        /// Its name on the host.
        network: &'a str,
        /// The part of it.
        aspect: Aspect,
    },
    /// A NIC by which a network of a host leads to the fabric.
    Nic {
        /// The node.
        node: &'a Name,
        /// The name of the network on the host.
        network: &'a str,
        /// Its name on the host.
        nic: &'a str,
    },
    /// A VLAN on a port of a switch.
    Port {
        /// The switch.
        device: &'a Name,
        /// The name of the port.
        port: &'a str,
        /// The VLAN.
        vlan: VlanId,
        /// What the port leads to, if that is known.
        leads_to: Option<&'a LeadsTo>,
    },
    /// A VRF of a device.
    Vrf {
        /// The device.
        device: &'a Name,
        /// Its name there.
        vrf: &'a str,
    },
    /// The interface by which a device leads a VLAN into a VRF.
    Routed {
        /// The device.
        device: &'a Name,
        /// The name of the VRF there.
        vrf: &'a str,
        /// The VLAN.
        vlan: VlanId,
    },
    /// What a BGP speaker on the nodes knows.
    Speaker,
    /// A BGP session of a node with a device.
    Session {
        /// The node.
        node: &'a Name,
        /// The device.
        device: &'a Name,
        /// The device's address.
        address: IpAddr,
    },
    /// The link between two ends of a network.
    Link,
    /// The change of a network that a switch refused. `None`: an earlier version did not store the switch.
    Change(Option<&'a Name>),
    /// A switch as a whole.
    Device(&'a Name),
    /// A part of a switch that its driver refuses.
    Item(&'a Name, &'a Item),
}

/// A pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodId<'a> {
    /// Its name.
    pub name: &'a Name,
    /// Its uid.
    pub uid: &'a Name,
}

/// A part of the network of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// The network itself.
    Whole,
    /// A VLAN on it.
    Vlan(VlanId),
    /// Its MTU, in bytes.
    Mtu(u32),
}

impl<'a> HopState<'a> {
    /// The state of a part of a target by the last report. `rejections`: those that cover the part. `is_confirmed`: the
    /// part was read back as wanted. `failure`: that of the whole target.
    ///
    /// A refusal says more than a missing answer, and both say more than what was read back before. A failure of the
    /// target refuses a part that is not there: it may pass without a change of the part.
    pub fn of_report(
        rejections: impl IntoIterator<Item = &'a Rejection>,
        is_confirmed: bool,
        failure: Option<&'a Failure>,
    ) -> Self {
        match (Self::deciding(rejections), failure) {
            (Some(Rejection { reason, unreachable: true, .. }), _) => {
                Self::Unreachable { reason, was_confirmed: false }
            }
            (Some(Rejection { reason, retryable, .. }), _) => Self::Refused { reason, retryable: *retryable },
            (None, Some(failure)) if failure.unreachable => {
                Self::Unreachable { reason: &failure.reason, was_confirmed: is_confirmed }
            }
            _ if is_confirmed => Self::Confirmed,
            (None, Some(failure)) => Self::Refused { reason: &failure.reason, retryable: true },
            (None, None) => Self::Waiting(Wait::Report),
        }
    }

    /// The one of these rejections of a part from which its state follows.
    pub fn deciding(rejections: impl IntoIterator<Item = &'a Rejection>) -> Option<&'a Rejection> {
        // The first of those that refuse it, or else the first.
        rejections.into_iter().min_by_key(|rejection| rejection.unreachable)
    }

    /// Orders states, the worst first.
    pub fn severity(&self) -> u8 {
        match self {
            Self::Refused { .. } => 0,
            Self::Unreachable { .. } => 1,
            Self::Missing(_) => 2,
            Self::Waiting(_) => 3,
            Self::Confirmed => 4,
        }
    }

    /// True when the configuration is there, as far as is known.
    pub fn is_there(&self) -> bool {
        matches!(self, Self::Confirmed | Self::Unreachable { was_confirmed: true, .. })
    }

    /// Why it is not there, if its driver told.
    pub(crate) fn problem(&self) -> Option<String> {
        match self {
            Self::Refused { reason, .. } | Self::Unreachable { reason, was_confirmed: false } => {
                Some((*reason).to_owned())
            }
            _ => None,
        }
    }

    /// The same, waiting for `wait` instead of a report.
    pub(crate) fn waiting_for(self, wait: impl FnOnce() -> Wait<'a>) -> Self {
        if self == Self::Waiting(Wait::Report) { Self::Waiting(wait()) } else { self }
    }
}

impl fmt::Display for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Report => f.write_str("is not confirmed yet"),
            Self::Driver(driver) => write!(f, "waits: driver {driver} is not running"),
            Self::Agent => f.write_str("waits: the agent of the node is not running"),
            Self::Drift => f.write_str("was changed by another hand; with Drift: Report it stays so"),
            Self::Leases => f.write_str("its addresses are being written down"),
        }
    }
}

impl<'a> Hop<'a> {
    /// A hop that does not exist yet.
    pub(crate) fn missing(part: Part<'a>, why: impl Into<Cow<'a, str>>) -> Self {
        Self { part, state: HopState::Missing(why.into()) }
    }

    /// What it lacks, for people. `None`: it is confirmed.
    pub fn message(&self) -> Option<String> {
        let message = self.message_in_pod()?;
        Some(match self.part.pod() {
            Some(pod) => format!("Pod {}: {message}", pod.name),
            None => message,
        })
    }

    /// [`Self::message`] where the pod is known.
    pub(crate) fn message_in_pod(&self) -> Option<String> {
        let what = || self.part.to_string();
        // The reason says which part it is about.
        let is_whole = matches!(self.part, Part::Pod(_) | Part::Change(_) | Part::Device(_) | Part::Agents);
        Some(match &self.state {
            HopState::Confirmed => return None,
            HopState::Waiting(wait) => match self.part {
                Part::Pod(_) => wait.to_string(),
                _ => format!("{} {wait}", what()),
            },
            HopState::Refused { reason, .. } | HopState::Unreachable { reason, .. } if is_whole => {
                (*reason).to_owned()
            }
            HopState::Refused { reason, .. } if self.is_retried() => {
                format!("{}: {reason}; it is retried", what())
            }
            HopState::Refused { reason, .. } => format!("{}: {reason}", what()),
            HopState::Unreachable { reason, .. } => format!("{} waits: {reason}", what()),
            HopState::Missing(reason) => reason.clone().into_owned(),
        })
    }

    /// The message about the target, which does not answer, about a session that is not established, or about a node that
    /// lacks its interface.
    pub(crate) fn unreachable_target(&self) -> Option<String> {
        if let (Part::Session { .. } | Part::Network { .. }, HopState::Missing(why)) =
            (self.part, &self.state)
        {
            return Some(why.clone().into_owned());
        }
        let HopState::Unreachable { reason, .. } = self.state else { return None };
        Some(match (self.part, self.part.node()) {
            (_, Some(node)) => format!("Node {node}: {reason}"),
            (
                Part::Port { device, .. }
                | Part::Vrf { device, .. }
                | Part::Routed { device, .. }
                | Part::Item(device, _),
                _,
            ) => {
                format!("FabricDevice {device}: {reason}")
            }
            (Part::Nad, _) => format!("NetworkAttachmentDefinition: {reason}"),
            _ => (*reason).to_owned(),
        })
    }

    /// True for what an agent could not do in a pod: it tries again, so this is no error of the object.
    pub(crate) fn is_retried(&self) -> bool {
        matches!(self.part, Part::Interface { .. } | Part::PodBridge { .. })
            && matches!(self.state, HopState::Refused { retryable: true, .. })
    }
}

impl<'a> Part<'a> {
    /// Where it is on the path.
    pub fn tier(self) -> Tier {
        match self {
            Self::Pod(_) | Self::Sample | Self::Agents => Tier::Pods,
            Self::Interface { .. } | Self::Removal { .. } | Self::Nad => Tier::Interfaces,
            Self::PodBridge { .. } | Self::Network { .. } | Self::Speaker => Tier::Bridges,
            Self::Nic { .. } => Tier::Nics,
            Self::Port { leads_to: Some(LeadsTo::Node { .. }), .. } => Tier::Leaves,
            Self::Port { leads_to: Some(LeadsTo::PhysicalNetwork(_)), .. }
            | Self::Vrf { .. }
            | Self::Routed { .. }
            | Self::Session { .. } => Tier::Gateways,
            Self::Port { .. } | Self::Link | Self::Change(_) | Self::Device(_) | Self::Item(..) => {
                Tier::Spines
            }
        }
    }

    /// The condition of attachments that tells of it.
    pub fn condition(self) -> ConditionType {
        match self {
            Self::Nad => ConditionType::NadReady,
            Self::Network { .. } | Self::Nic { .. } => ConditionType::NodesReady,
            Self::Pod(_)
            | Self::Sample
            | Self::Agents
            | Self::Interface { .. }
            | Self::Removal { .. }
            | Self::PodBridge { .. } => ConditionType::PodsReady,
            Self::Port { .. }
            | Self::Vrf { .. }
            | Self::Routed { .. }
            | Self::Speaker
            | Self::Session { .. }
            | Self::Link
            | Self::Change(_)
            | Self::Device(_)
            | Self::Item(..) => ConditionType::FabricReady,
        }
    }

    /// The node that it is on.
    pub fn node(self) -> Option<&'a Name> {
        match self {
            Self::Interface { node, .. }
            | Self::PodBridge { node, .. }
            | Self::Removal { node, .. }
            | Self::Network { node, .. }
            | Self::Nic { node, .. }
            | Self::Session { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The switch that it is on.
    pub fn device(self) -> Option<&'a Name> {
        match self {
            Self::Port { device, .. }
            | Self::Vrf { device, .. }
            | Self::Routed { device, .. }
            | Self::Session { device, .. }
            | Self::Device(device)
            | Self::Item(device, _) => Some(device),
            Self::Change(device) => device,
            _ => None,
        }
    }

    /// The pod that it is in.
    pub fn pod(self) -> Option<PodId<'a>> {
        match self {
            Self::Pod(pod)
            | Self::Interface { pod, .. }
            | Self::PodBridge { pod, .. }
            | Self::Removal { pod, .. } => Some(pod),
            _ => None,
        }
    }
}

impl fmt::Display for Part<'_> {
    /// Parts in a pod are named without it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => write!(f, "Pod {}", pod.name),
            Self::Sample => f.write_str("spec.sampleDeployment"),
            Self::Agents => f.write_str("the agents"),
            Self::Interface { node, name, is_primary, .. } => {
                let noun = if *is_primary { "" } else { "link " };
                write!(f, "{noun}{name} on Node {node}")
            }
            Self::PodBridge { node, bridge, .. } => write!(f, "Node {node}: bridge {bridge}"),
            Self::Removal { node, id, .. } => write!(f, "the removal of {id} on Node {node}"),
            Self::Nad => f.write_str("NetworkAttachmentDefinition"),
            Self::Network { node, noun, network, aspect } => {
                write!(f, "Node {node}: {noun} {network}")?;
                match aspect {
                    Aspect::Whole => Ok(()),
                    Aspect::Vlan(vid) => write!(f, ": VLAN {vid}"),
                    Aspect::Mtu(mtu) => write!(f, ": MTU {mtu}"),
                }
            }
            Self::Nic { node, nic, .. } => write!(f, "Node {node}: NIC {nic}"),
            Self::Port { device, port, vlan, .. } => {
                write!(f, "FabricDevice {device}: VLAN {vlan} on port {port}")
            }
            Self::Vrf { device, vrf } => write!(f, "FabricDevice {device}: VRF {vrf}"),
            Self::Routed { device, vrf, vlan } => {
                write!(f, "FabricDevice {device}: VLAN {vlan} in VRF {vrf}")
            }
            Self::Session { node, device, address } => {
                write!(f, "BGP session of Node {node} with {address} of FabricDevice {device}")
            }
            Self::Speaker => f.write_str("the BGP speaker"),
            Self::Link => f.write_str("the link"),
            Self::Change(Some(device)) => write!(f, "FabricDevice {device}: the change"),
            Self::Change(None) => f.write_str("the change"),
            Self::Device(_) => f.write_str("the device"),
            Self::Item(_, item) => write!(f, "{item}"),
        }
    }
}
