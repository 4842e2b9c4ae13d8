//! PodConfig: interfaces for running pods (`podconfig.opdev.io`).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_config_status};
use crate::{Callbacks, schema};

use super::LinkFields;

/// Interfaces of the pods of its namespace that carry the label `podconfig: <its name>`.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "podconfig.opdev.io",
    version = "v1alpha1",
    kind = "PodConfig",
    namespaced,
    doc = "A PodConfig gives interfaces to the running pods of its namespace that carry the label podconfig with its name.",
    status = "crate::ConfigStatus",
    derive = "PartialEq",
    shortname = "podconf",
    printcolumn(name = "Links", type_ = "string", json_path = ".status.links"),
    printcolumn(name = "Pods", type_ = "string", json_path = ".status.pods", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct PodConfigSpec {
    /// A Deployment of two unprivileged pods with this object's label, to see what it does.
    pub sample_deployment: Option<SampleDeployment>,
    /// The interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::map_list::<NetworkAttachment, 64>")]
    pub network_attachments: Vec<NetworkAttachment>,
    /// VLANs of those interfaces, or of the pod's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<VlanFields, 256>")]
    pub vlans: Vec<VlanFields>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for PodConfig {
    fn definition() -> CustomResourceDefinition {
        with_config_status::<Self>(&["podConfigurations", "addresses", "leftOut", "links", "pods"])
    }
}

/// A Deployment to see what a PodConfig does.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SampleDeployment {
    /// Whether it is made.
    #[serde(default)]
    pub create: bool,
    /// Its name.
    #[serde(default)]
    #[schemars(schema_with = "schema::name")]
    pub name: Option<String>,
}

/// An interface of each pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkAttachment {
    /// In the pod it is called by this and the PID of the pod's first container, on the node the same with an `h` in
    /// front; neither may have more than 15 bytes.
    #[schemars(schema_with = "schema::link_name")]
    pub name: String,
    /// What it is made of.
    #[serde(flatten)]
    pub link: LinkFields,
}

/// A VLAN of an interface.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VlanFields {
    /// One of networkAttachments, or an interface that the pod has, such as eth0.
    #[schemars(schema_with = "schema::interface_name")]
    pub parent_interface_name: String,
    /// The VLAN.
    #[serde(rename = "vlanID")]
    #[schemars(schema_with = "schema::vlan_id")]
    pub vlan_id: u16,
    /// A bridge inside the pod that it is a member of.
    #[serde(default)]
    #[schemars(schema_with = "schema::link_name")]
    pub bridge_name: Option<String>,
}
