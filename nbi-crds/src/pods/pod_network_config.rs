//! PodNetworkConfig: interfaces for running pods (`podnetwork.opdev.io`).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_config_status};
use crate::{Callbacks, schema};

use super::LinkFields;

/// Interfaces of the pods of its namespace that carry the label `podNetworkConfig: <its name>`.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "podnetwork.opdev.io",
    version = "v1alpha1",
    kind = "PodNetworkConfig",
    namespaced,
    doc = "A PodNetworkConfig gives interfaces to the running pods of its namespace that carry the label podNetworkConfig with its name.",
    status = "crate::ConfigStatus",
    derive = "PartialEq",
    shortname = "pnc",
    printcolumn(name = "Links", type_ = "string", json_path = ".status.links"),
    printcolumn(name = "Pods", type_ = "string", json_path = ".status.pods", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkConfigSpec {
    /// A name for people; pods are picked by the object's name. Written `Name` or `name`.
    #[serde(rename = "Name")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// As `Name`.
    #[serde(rename = "name")]
    #[schemars(length(max = 253))]
    pub lower_name: Option<String>,
    /// The interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<AdditionalNetwork, 64>")]
    pub additional_networks: Vec<AdditionalNetwork>,
    /// A change of the pods' primary interface, which is undone with this object.
    pub eth0: Option<PrimaryInterface>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for PodNetworkConfig {
    fn definition() -> CustomResourceDefinition {
        with_config_status::<Self>(&["PodNetworkConfigs", "addresses", "leftOut", "links", "pods"])
    }
}

/// An interface of each pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdditionalNetwork {
    /// In the pod it is called by this and the PID of the pod's first container, on the node the same with an `h` in
    /// front; neither may have more than 15 bytes.
    #[schemars(schema_with = "schema::link_name")]
    pub network_name: String,
    /// What it is for.
    #[schemars(length(max = 1024))]
    pub network_description: Option<String>,
    /// What it is made of.
    #[serde(flatten)]
    pub link: LinkFields,
}

/// A change of the primary interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrimaryInterface {
    /// In bytes.
    #[schemars(range(min = 68, max = 65535))]
    pub mtu: u32,
}
