//! BGPSessionGroup: BGP sessions between the nodes of a ConnectionPoint and a VRF.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// BGP sessions (RFC 4271) between nodes and the devices that lead an L2Service into a VRF: one per node, device and address
/// family.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "BGPSessionGroup",
    plural = "bgpsessiongroups",
    doc = "A BGPSessionGroup brings up BGP sessions between nodes and the devices that lead an L2Service into a VRF.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "bgpsg",
    printcolumn(name = "VRF", type_ = "string", json_path = ".spec.VRF"),
    printcolumn(name = "L2Service", type_ = "string", json_path = ".spec.L2Service"),
    printcolumn(name = "LocalASN", type_ = "integer", json_path = ".spec.LocalASN"),
    printcolumn(name = "PeerASN", type_ = "integer", json_path = ".spec.PeerASN"),
    printcolumn(name = "Established", type_ = "integer", json_path = ".status.establishedSessions"),
    printcolumn(name = "Sessions", type_ = "integer", json_path = ".status.allSessions")
)]
#[serde(rename_all = "PascalCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule_at(
        ".KeepaliveTime",
        "self.KeepaliveTime < self.HoldTime",
        "must be less than HoldTime; a third of it is usual",
    ),
    schema::rule_at(
        ".GracefulRestart",
        "!has(self.GracefulRestart) || !has(self.BFD)",
        "can't go with BFD: BFD ends a session whose routes a graceful restart keeps; leave one of the two out",
    ),
    schema::rule_at(
        ".AllowPods",
        "!has(self.AllowPods) || !self.AllowPods || has(self.Password)",
        "needs Password: a pod on the L2Service could open a session in place of a node",
    ),
    schema::rule_at(
        ".Password",
        "!has(self.Password) || has(self.Password.SpeakerSecretName) == (has(self.Speaker) && self.Speaker != 'None')",
        "SpeakerSecretName goes with a Speaker: give it where ENO configures the speaker, and only there",
    ),
    schema::rule_at(
        ".Neighbours",
        "!has(self.Neighbours) || self.Neighbours != 'Prefix' || has(self.Password)",
        "Prefix needs Password: any host with an address of the Subnet could open a session",
    ),
]))]
pub struct BGPSessionGroupSpec {
    /// The VRF.
    #[serde(rename = "VRF")]
    #[schemars(schema_with = "schema::name")]
    pub vrf: String,
    /// The L2Service that the sessions run over. VRFAttachments lead it into the VRF: their addresses are the gateways.
    #[serde(rename = "L2Service")]
    #[schemars(schema_with = "schema::name")]
    pub l2_service: String,
    /// The ConnectionPoint whose nodes take part.
    #[schemars(schema_with = "schema::name")]
    pub connection_point: String,
    /// The labels of the nodes that take part; absent: all of the ConnectionPoint.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// The AS of the nodes.
    #[serde(rename = "LocalASN")]
    #[schemars(range(min = 1, max = 4_294_967_295_i64))]
    pub local_asn: i64,
    /// The AS of the devices as the nodes see it. Where the VRF has a BGP instance with another AS, that stays.
    #[serde(rename = "PeerASN")]
    #[schemars(range(min = 1, max = 4_294_967_295_i64))]
    pub peer_asn: i64,
    /// The address families, of each of which a session is.
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub address_families: Vec<AddressFamily>,
    /// Seconds without a message after which a session ends.
    #[serde(default = "hold_time")]
    #[schemars(range(min = 3, max = 65535))]
    pub hold_time: u16,
    /// Seconds between two messages that keep a session.
    #[serde(default = "keepalive_time")]
    #[schemars(range(min = 1, max = 21845))]
    pub keepalive_time: u16,
    /// Ends a session at once when the other side is not seen (RFC 5880); absent: no BFD.
    #[serde(default, rename = "BFD")]
    #[schemars(schema_with = "schema::plain::<BfdTimers>")]
    pub bfd: Option<BfdTimers>,
    /// Keeps routes while a node's speaker restarts (RFC 4724); absent: it does not.
    #[serde(default)]
    #[schemars(schema_with = "schema::plain::<GracefulRestart>")]
    pub graceful_restart: Option<GracefulRestart>,
    /// The password of all sessions (RFC 2385); absent: none.
    #[serde(default)]
    #[schemars(schema_with = "schema::plain::<BgpPassword>")]
    pub password: Option<BgpPassword>,
    /// A node that announces more prefixes is disconnected; absent: no maximum.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub maximum_prefixes: Option<u32>,
    /// The prefixes that the devices take from nodes, and all in them, such as 198.51.100.0/24; nothing else.
    #[schemars(schema_with = "schema::some_cidrs::<64>")]
    pub accept_prefixes: Vec<String>,
    /// The prefixes that the devices announce to nodes; absent: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs::<64>")]
    pub announce_prefixes: Vec<String>,
    /// The communities that devices add to what they take, such as 65000:100 (RFC 1997).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::communities::<16>")]
    pub communities: Vec<String>,
    /// How devices know the nodes.
    #[serde(default)]
    pub neighbours: Neighbours,
    /// The BGP speaker on the nodes that ENO configures.
    #[serde(default)]
    pub speaker: Speaker,
    /// Where answers to what came from a gateway leave.
    #[serde(default)]
    pub return_path: ReturnPath,
    /// Pods may have attachments of the L2Service too. Needs Password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_pods: bool,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for BGPSessionGroup {
    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&[
            "workers",
            "sessions",
            "allSessions",
            "establishedSessions",
            "speakerPeers",
            "leftOut",
            "readyInputs",
        ])
    }
}

const fn hold_time() -> u16 {
    90
}

const fn keepalive_time() -> u16 {
    30
}

/// How devices know the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Neighbours {
    /// By the address of each.
    #[default]
    PerNode,
    /// By the addresses that the Subnets have for nodes, so that no device changes when a node comes. Devices wait for the
    /// nodes. Needs Password.
    Prefix,
}

/// A BGP speaker on the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Speaker {
    /// ENO configures none. The status has what a person needs to configure one.
    #[default]
    None,
    /// MetalLB: ENO makes its BGPPeers.
    MetalLB,
}

/// Where answers to what came from a gateway leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReturnPath {
    /// By the routes of the node.
    #[default]
    None,
    /// To that gateway, by the interface of the sessions, also those of pods. The node marks these connections.
    Symmetric,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AddressFamily {
    /// IPv4 addresses, and IPv4 prefixes.
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6 addresses, and IPv6 prefixes.
    #[serde(rename = "IPv6")]
    V6,
}

/// Timers of BFD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct BfdTimers {
    /// Milliseconds between two packets that the device takes.
    #[serde(default = "bfd_interval")]
    #[schemars(range(min = 50, max = 60000))]
    pub receive_interval: u32,
    /// Milliseconds between two packets that the device sends.
    #[serde(default = "bfd_interval")]
    #[schemars(range(min = 50, max = 60000))]
    pub transmit_interval: u32,
    /// How many missing packets end a session.
    #[serde(default = "detect_multiplier")]
    #[schemars(range(min = 2, max = 50))]
    pub detect_multiplier: u8,
}

const fn bfd_interval() -> u32 {
    300
}

const fn detect_multiplier() -> u8 {
    3
}

/// Graceful restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct GracefulRestart {
    /// Seconds for which routes stay.
    #[serde(default = "restart_time")]
    #[schemars(range(min = 1, max = 4095))]
    pub restart_time: u16,
}

const fn restart_time() -> u16 {
    120
}

/// Where the password of sessions is.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct BgpPassword {
    /// A Secret of the namespace eno-devices, whose key `password` the driver of the devices reads.
    #[schemars(schema_with = "schema::name")]
    pub device_secret_name: String,
    /// A Secret of the type kubernetes.io/basic-auth in the namespace of the speaker, which reads its key `password`. Only
    /// with a Speaker.
    #[serde(default)]
    #[schemars(schema_with = "schema::name")]
    pub speaker_secret_name: Option<String>,
}

/// A node that takes part, and its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpWorker {
    /// The node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// Its addresses with their prefix lengths: one per family, and former ones until the node has confirmed that they are gone.
    #[schemars(length(max = 8), inner(length(max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<String>,
}

/// A session of a node with a device.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpSession {
    /// The node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// The FabricDevice.
    #[schemars(length(max = 253))]
    pub device: String,
    /// The device's address.
    #[schemars(length(max = 45))]
    pub address: String,
    /// Its state, such as established (RFC 4271, section 8.2.2); absent: the device does not know the session.
    #[schemars(length(max = 32))]
    pub state: Option<String>,
    /// Since when it is established.
    #[schemars(length(max = 64))]
    pub since: Option<String>,
    /// Why it ended, or does not begin.
    #[schemars(length(max = 1024))]
    pub last_error: Option<String>,
}
