//! PodNetwork: everything that a pod was given, in one place.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, status_only};
use crate::schema;

/// Nothing is asked for by a PodNetwork: the engine writes it, for people to read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "PodNetwork",
    namespaced,
    doc = "A PodNetwork shows every interface that the pod of its name was given at run time, and who asked for it. The engine writes it; it goes with the pod.",
    status = "PodNetworkStatus",
    derive = "PartialEq",
    shortname = "podnet",
    printcolumn(name = "Node", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "Interfaces", type_ = "string", json_path = ".status.interfaceNames"),
    printcolumn(name = "Addresses", type_ = "string", json_path = ".status.addresses")
)]
pub struct PodNetworkSpec {}

impl Described for PodNetwork {
    const IS_APPLIED: bool = false;

    fn definition() -> CustomResourceDefinition {
        status_only::<Self>()
    }
}

/// What a pod was given.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "What the pod was given.")]
pub struct PodNetworkStatus {
    /// Where the pod runs.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub node: String,
    /// Its interfaces.
    #[serde(default)]
    #[schemars(schema_with = "schema::list::<PodInterface, 256>")]
    pub interfaces: Vec<PodInterface>,
    /// How many entries each list of the status leaves out, by the list's name: a status has a bound.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::left_out")]
    pub left_out: BTreeMap<String, i64>,
    /// The names of its interfaces in one text, for people.
    #[schemars(length(max = 8192))]
    pub interface_names: Option<String>,
    /// The addresses of its interfaces in one text, for people.
    #[schemars(length(max = 8192))]
    pub addresses: Option<String>,
}

/// An interface of a pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodInterface {
    /// Who asked for it.
    pub owner: PodNetworkOwner,
    /// The interface, as its owner's spec names it.
    #[schemars(length(max = 512))]
    pub link: String,
    /// As `ip link add type …` calls it; `primary`: a change of the interface that the cluster's own network made;
    /// `none`: the owner, which a label of the pod names, does not exist.
    #[schemars(length(max = 16))]
    pub kind: String,
    /// What it is called in the pod; absent: it is not there yet.
    #[schemars(length(max = 15))]
    pub name: Option<String>,
    /// What its other end is called on the node.
    #[schemars(length(max = 15))]
    pub host_name: Option<String>,
    /// The bridge that its other end is a port of.
    #[schemars(length(max = 15))]
    pub bridge: Option<String>,
    /// The MAC address.
    #[schemars(length(max = 17))]
    pub hardware_addr: Option<String>,
    /// In bytes.
    #[schemars(range(min = 0, max = 4_294_967))]
    pub mtu: Option<u32>,
    /// With prefix lengths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 64)))]
    pub addresses: Vec<String>,
    /// As `ip route` writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 256)))]
    pub routes: Vec<String>,
    /// Why it is not, or not entirely, there.
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// The object that asked for an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkOwner {
    /// PodConfig, PodNetworkConfig or L2ServiceAttachment.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Its name; `<namespace>/<name>` in another namespace than the pod's.
    #[schemars(length(max = 317))]
    pub name: String,
}
