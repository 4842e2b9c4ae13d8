//! The messages between the engine and its southbound drivers, and the JSON Schemas that are their contract.
//!
//! Every message is one JSON document. Its schema (draft 2020-12) lies in `schemas/v1/` and is checked when a
//! message is written and when it is read ([`encode`], [`decode`]), so a driver in another language needs nothing
//! but those files. All messages are *level-triggered*: a [`Command`] is the complete desired state of one
//! target, a [`Report`] is what a driver has read back from it.

mod addresses;
mod bgp;
mod callback;
mod carried_out;
mod codec;
mod command;
mod delivery;
mod driver;
mod fabric;
mod mark_mask;
mod nad;
mod node;
mod parts;
mod preview;
mod probe;
mod report;
mod routing;
mod speaker;
pub mod subject;
mod sysctl;
mod text;
mod transition;
mod vlan;
mod vocabulary;

pub use addresses::{AppliedAddresses, NodeAddresses, PodAddress, WaitingPod, has_ordinal};
pub use bgp::{Bfd, BgpError, BgpGroup, BgpSession, BgpState};
pub use callback::{CallbackAction, CallbackAnswer, CallbackRequest, DeadLetter};
pub use codec::{Message, MessageError, decode, decode_command, encode, schema_of};
pub use command::{Command, Decision, Desired, Generation, Transaction};
pub use delivery::{Delivery, DeliveryEnd};
pub use driver::{DriverHello, PayloadKind};
pub use fabric::{
    AddressPair, Device, FabricDesired, FabricPort, FabricVlan, FabricVlans, NeutronSettings, PortBefore,
    PortMode, is_vlan_name, parse_vlan_name, vlan_name,
};
pub use mark_mask::{MarkMask, MarkMaskError};
pub use nad::{Cni, Dns, NadDesired, NadOwner, NadRoute, NadSubnet, NadVlans, Pool, VlanAttachment};
pub use node::{
    AppliedLink, AppliedNetwork, Carrier, HostNetwork, LinkKind, LinkName, Master, NodeDesired, NodePod,
    OvsDatapath, Parent, PathMtu, PodLink, PodRoute, PodRule, PortVlans, PrimaryLink, TunDevice, Tunnel,
    Uplink,
};
pub use parts::{
    CommandMessage, Digit, GroupPart, Head, HeadDesired, HeadGeneration, HeadTransaction, Incomplete, Part,
    PartError, PartHash, PartHashError, RootPart, SwitchPart, SwitchPort, Tree, VlansPart, assemble,
    decode_part,
};
pub use preview::Preview;
pub use probe::{
    CrossedVlans, GatewayAnswer, NetworkProbes, ProbeResults, ProbedGateway, ProbedPath, Unasked, Visit,
    probe_address, probe_mac, probe_mac_prefix,
};
pub use report::{
    Applied, Carried, ChangeReport, DeviceInfo, Failure, Item, Lookup, NO_BGP_STATE, NO_MAC_TABLE, Note,
    Outcome, Rejection, Report, Rollback, Station, VLAN_TAKEN_OFF,
};
pub use routing::{DeviceRole, FabricVrf, RoutedInterface, VrfRoute, routed_description, vrf_description};
pub use speaker::{ANNOUNCED_TO_ALL, Speaker, SpeakerDesired, SpeakerSessions};
pub use subject::{ObjectName, Subject, SubjectKind, TargetName};
pub use sysctl::safe_sysctls;
pub use text::Text;
pub use transition::{LeftOut, Transition};
pub use vlan::{VlanError, VlanId, VlanSet};
pub use vocabulary::{
    ChangeOutcome, CniName, Drift, InterfaceType, Ipam, NetworkType, Phase, ProbeOutcome, VerifyBetween,
    VerifyMode, VlanType,
};
