//! The status that all kinds share.

use std::collections::BTreeMap;

use eno_schemas::{ChangeOutcome, Phase};
use kube::core::object::HasStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::{BgpSession, BgpWorker, ConfigPhase, Lease, PodConfiguration, Verification, schema};

/// A kind with this status.
pub trait EnoResource: kube::Resource<DynamicType = ()> + HasStatus<Status = Status> {}

impl<K: kube::Resource<DynamicType = ()> + HasStatus<Status = Status>> EnoResource for K {}

/// A change that was made on a device.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastTransaction {
    /// The transaction over several devices that it was a part of; absent when it was made by itself.
    #[schemars(length(max = 253))]
    pub id: Option<String>,
    /// When it was confirmed or taken back.
    #[schemars(schema_with = "schema::date_time")]
    pub at: String,
    /// How long it took, in milliseconds, without the time that it was held.
    #[schemars(range(min = 0))]
    pub took_ms: i64,
    /// How many VLANs, and VLANs on ports, were made.
    #[schemars(range(min = 0))]
    pub added: i64,
    /// How many VLANs, and VLANs on ports, were taken away.
    #[schemars(range(min = 0))]
    pub removed: i64,
    /// How it ended: confirmed or rolled-back.
    pub outcome: ChangeOutcome,
}

/// What a port of a switch was like before it carried a VLAN of ours.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortBefore {
    /// The device's own name for it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// It was a trunk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trunk: bool,
    /// Settings that a VLAN of ours changes, by the driver's names for them. One that is not named was not set. Absent:
    /// it is not known.
    #[serde(default)]
    #[schemars(schema_with = "schema::settings")]
    pub settings: Option<BTreeMap<String, String>>,
    /// The VLANs of its list that became ours later, such as 10-20,30.
    #[schemars(length(max = 20480))]
    pub vlans: Option<String>,
}

/// Where a network is on switches, while a switch rejects it or it moves to another VLAN ID.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The VLAN ID with which it was last confirmed.
    #[serde(default, rename = "confirmedID")]
    #[schemars(schema_with = "schema::vlan_id")]
    pub confirmed_id: Option<u16>,
    /// The switch ports where it was last confirmed, each as FabricDevice:port; absent: the reports of switches tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096), inner(length(max = 512)), extend("x-kubernetes-list-type" = "set"))]
    pub confirmed_ports: Vec<String>,
    /// The VLAN ID that it is to have.
    #[serde(default, rename = "desiredID")]
    #[schemars(schema_with = "schema::vlan_id")]
    pub desired_id: Option<u16>,
    /// The FabricDevice that rejects it.
    #[schemars(length(max = 253))]
    pub rejected_by: Option<String>,
    /// The rejected request may succeed later.
    pub retryable: Option<bool>,
}

/// The addresses of a Subnet that a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeBlocks {
    /// The node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// What it may give to its pods, as networks such as 10.0.0.16/28.
    #[schemars(length(max = 4096), inner(length(max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub blocks: Vec<String>,
}

/// An address of a Subnet that is that of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FixedAddress {
    /// The address.
    #[schemars(length(max = 45))]
    pub address: String,
    /// The namespace of the pod.
    #[schemars(length(max = 253))]
    pub namespace: String,
    /// The pod.
    #[schemars(length(max = 253))]
    pub pod: String,
    /// The node where the pod is, or was.
    #[schemars(length(max = 253))]
    pub node: String,
}

/// A `metav1.Condition` whose time keeps fractions of seconds.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about, such as Ready.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds: True, False or Unknown.
    pub status: String,
    /// Why, in one CamelCase word for programs.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// When its status last changed.
    pub last_transition_time: String,
    /// The metadata.generation that it was made for.
    pub observed_generation: Option<i64>,
}

/// The [`Status`] of the kinds that give interfaces to pods.
pub type ConfigStatus = Status<ConfigPhase>;

/// What the engine reports about an object.
///
/// One type for all kinds; [`crate::crds`] says which of the later fields a kind has, and what they mean for it. Absent
/// fields are not serialised, so that a value of this type is also the body of a server-side apply patch.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "What the engine reports about the object.")]
pub struct Status<P = Phase> {
    /// Where the object is on its way: pending, ready, error, terminating or deleted.
    pub phase: Option<P>,
    /// Why it is in this phase: the hop that is not done and what would help.
    #[schemars(length(max = 32768))]
    pub message: Option<String>,
    /// The metadata.generation that this status is about; -1 until the engine has seen the object.
    #[schemars(range(min = -1))]
    pub observed_generation: Option<i64>,
    /// Details by type: Ready says the same as the phase, with a reason for programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// How many transitions the object has made; numbers the callbacks.
    #[schemars(range(min = 0))]
    pub transitions: Option<i64>,
    /// The last valid inputs, which stay realised while the spec is invalid. Written and read by the engine alone.
    #[serde(default)]
    #[schemars(schema_with = "schema::free_object")]
    pub realized: Option<Value>,
    /// What the object was made of when it was last ready, as a hash. Written and read by the engine alone.
    #[schemars(length(max = 64))]
    pub ready_inputs: Option<String>,
    /// The names of the CNI plugins that can attach a pod, in one text, for people.
    #[schemars(length(max = 8192))]
    pub cnis: Option<String>,
    /// The VLAN ID that the object holds; another object asking for the same one is in error.
    #[serde(default, rename = "grantedID")]
    #[schemars(schema_with = "schema::vlan_id")]
    pub granted_id: Option<u16>,
    /// Where the network is confirmed and where it is to be, while a switch rejects it or it moves to another VLAN ID.
    #[serde(default)]
    #[schemars(schema_with = "schema::plain::<Placement>")]
    pub placement: Option<Placement>,
    /// The L2Service whose name the pool of addresses has; absent: the IPAM plugin chooses the pool. Written and read by
    /// the engine alone.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub address_pool: Option<String>,
    /// The ConnectionPoints on which attachments use the service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names::<1024>")]
    pub connection_points: Vec<String>,
    /// The switch ports that lead to the network, each as FabricDevice:port; at most 1024 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 512)), extend("x-kubernetes-list-type" = "set"))]
    pub switch_ports: Vec<String>,
    /// The answer to the annotation eno.k8s.io/verify, or to its last value that was carried out.
    #[serde(default)]
    #[schemars(schema_with = "schema::plain::<Verification>")]
    pub verification: Option<Verification>,
    /// Identifies the cluster in the names of its VLANs on the device: eno-<clusterID>-<VLAN ID>.
    #[serde(rename = "clusterID")]
    #[schemars(length(max = 8))]
    pub cluster_id: Option<String>,
    /// The dialect that the driver speaks with the device.
    #[schemars(length(max = 63))]
    pub dialect: Option<String>,
    /// The capabilities that the driver uses on the device, such as candidate and confirmed-commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub capabilities: Vec<String>,
    /// The fingerprint of the host key that the device showed, as ssh-keygen -l prints it.
    #[schemars(length(max = 256))]
    pub host_key_fingerprint: Option<String>,
    /// The device's make, model or software, as far as it tells.
    #[schemars(length(max = 1024))]
    pub model: Option<String>,
    /// How a change of the device can be taken back after it took effect: persistent and session devices do it by
    /// themselves unless the change is confirmed, and so can change together with others; none can't.
    #[schemars(length(max = 63))]
    pub rollback: Option<String>,
    /// Seconds after which the driver reads the device again though nothing was heard of it; a quarter more or less.
    #[schemars(range(min = 0))]
    pub audit_interval: Option<i64>,
    /// The device tells the driver of changes by other hands, so that they are found at once; otherwise they are found
    /// when it is read again.
    pub change_notifications: Option<bool>,
    /// The last change that was made on the device.
    #[serde(default)]
    #[schemars(schema_with = "schema::plain::<LastTransaction>")]
    pub last_transaction: Option<LastTransaction>,
    /// The ports that are trunks with a list on which there are VLANs of ours, and those of which somebody emptied the
    /// list: with Drift Repair they get one again. Written and read by the engine alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 4096),
        inner(length(min = 1, max = 63)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub closed_ports: Vec<String>,
    /// Ports and LAGs that the spec does not list any more, until the device shows none of our VLANs there. The annotation
    /// eno.k8s.io/forget: "true" gives them up. Written and read by the engine alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 4096),
        inner(length(min = 1, max = 63)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub leaving_ports: Vec<String>,
    /// What ports were like before they carried VLANs of ours: they are so again after the last one. Written and read by
    /// the engine alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<PortBefore, 4096>")]
    pub ports_before: Vec<PortBefore>,
    /// How many VLANs, VLANs on ports, VRFs and routed interfaces are not yet on the device as they are wanted, or not
    /// yet gone. Brought up to date when something else changes in the status, and when nothing is left.
    #[schemars(range(min = 0))]
    pub pending_changes: Option<i64>,
    /// The running pods that were given an interface by a label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<PodConfiguration, 10000>")]
    pub pod_configurations: Vec<PodConfiguration>,
    /// What each pod of a PodNetworkConfig has.
    #[serde(default, rename = "PodNetworkConfigs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<PodConfiguration, 10000>")]
    pub pod_network_configs: Vec<PodConfiguration>,
    /// Where a Bridge is, by node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10000), inner(length(max = 512)))]
    pub bridge_configs: Vec<String>,
    /// The addresses that are those pods' own. Written and read by the engine alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<Lease, 40000>")]
    pub addresses: Vec<Lease>,
    /// The addresses that nodes have with Ipam eno, by node. A node gives them to its pods. Written and read by the engine
    /// alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<NodeBlocks, 20000>")]
    pub node_addresses: Vec<NodeBlocks>,
    /// The addresses that are those of single pods, with Ipam eno: pods that ask for one, and pods of StatefulSets where the
    /// Subnet is Sticky. Written and read by the engine alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<FixedAddress, 20000>")]
    pub fixed_addresses: Vec<FixedAddress>,
    /// The nodes that take part in BGP sessions, with their addresses. Written and read by the engine alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<BgpWorker, 5000>")]
    pub workers: Vec<BgpWorker>,
    /// Sessions, at most 256. Those that are not established come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<BgpSession, 256>")]
    pub sessions: Vec<BgpSession>,
    /// How many sessions there are to be.
    #[schemars(range(min = 0))]
    pub all_sessions: Option<i64>,
    /// How many of them are established.
    #[schemars(range(min = 0))]
    pub established_sessions: Option<i64>,
    /// The names of the speaker's objects for the gateways, such as those that a BGPAdvertisement of MetalLB names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names::<1024>")]
    pub speaker_peers: Vec<String>,
    /// How many entries each list of the status leaves out, by the list's name: a status has a bound.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::left_out")]
    pub left_out: BTreeMap<String, i64>,
    /// The names of the interfaces that each pod is given, in one text, for people.
    #[schemars(length(max = 8192))]
    pub links: Option<String>,
    /// The names of the pods that have an entry, in one text, for people.
    #[schemars(length(max = 8192))]
    pub pods: Option<String>,
}
