//! The status of the kinds that give interfaces to pods.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::schema;

/// Where a configuration is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigPhase {
    /// Not looked at yet.
    Unset,
    /// Some pod does not have it yet.
    Configuring,
    /// Every pod that is picked has it.
    Configured,
    /// It can't be done, or not for some pod; the message says what and why.
    Error,
    /// Deleted by a client, and being taken back.
    Terminating,
    /// Verifiably gone. Seen only in the last transition.
    Deleted,
}

/// What the engine reports about a configuration of pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "What the engine reports about the object.")]
pub struct ConfigStatus {
    /// Where the object is on its way: unset, configuring, configured, error or terminating.
    pub phase: Option<ConfigPhase>,
    /// Why it is in this phase: the pod or node that is not done and what would help.
    #[schemars(length(max = 32768))]
    pub message: Option<String>,
    /// The metadata.generation that this status is about; -1 until the engine has seen the object.
    #[schemars(range(min = -1))]
    pub observed_generation: Option<i64>,
    /// Details by type: Ready says the same as the phase, with a reason for programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// How many transitions the object has made.
    #[schemars(range(min = 0))]
    pub transitions: Option<i64>,
    /// The last valid inputs, which stay realised while the spec is invalid. Written and read by the engine alone.
    #[serde(default)]
    #[schemars(schema_with = "schema::free_object")]
    pub realized: Option<Value>,
    /// What the object was made of when it was last ready, as a hash. Written and read by the engine alone.
    #[schemars(length(max = 64))]
    pub ready_inputs: Option<String>,
    /// What each pod of a PodConfig has.
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
    /// The addresses that are the pods' own. Written and read by the engine alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<Lease, 40000>")]
    pub addresses: Vec<Lease>,
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

/// What one pod has.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodConfiguration {
    /// The pod.
    #[schemars(length(max = 253))]
    pub pod_name: String,
    /// One entry for each of its interfaces, such as `{podVethName:pc02841804 podIPAddr:192.168.100.2/24
    /// peerVethName:hpc02841804 bridge:pcbr0}`.
    #[serde(default)]
    #[schemars(length(max = 256), inner(length(max = 2048)))]
    pub config_list: Vec<String>,
    /// What it does not have and why.
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// Addresses that are a pod's own for as long as it is picked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The pod.
    #[schemars(length(max = 253))]
    pub pod: String,
    /// Its metadata.uid.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// The interface, as the spec names it. The name of the object, if none of its interfaces in the pod has an address.
    #[schemars(length(max = 512))]
    pub link: String,
    /// The name in the pod of an attachment's interface, in the first entry of a pod. It stays as long as the labels
    /// choose no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15))]
    pub interface: Option<String>,
    /// With the prefix length of their network.
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub addresses: Vec<String>,
}
