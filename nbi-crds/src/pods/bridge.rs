//! Bridge: a bridge of pods (`podnetwork.opdev.io`).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_config_status};
use crate::{Callbacks, schema};

/// What a bridge that links of its namespace name as their master is like.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "podnetwork.opdev.io",
    version = "v1alpha1",
    kind = "Bridge",
    namespaced,
    doc = "A Bridge says what a bridge is like that links of its namespace name as their master. It is on the nodes that run their pods, and on no other.",
    status = "crate::ConfigStatus",
    derive = "PartialEq",
    printcolumn(name = "Bridge", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr")
)]
#[serde(rename_all = "camelCase")]
pub struct BridgeSpec {
    /// What it is called on the nodes.
    #[schemars(schema_with = "schema::interface_name")]
    pub name: String,
    /// Its network, such as 192.168.100.0/24, of which it has the first address.
    #[serde(default)]
    #[schemars(schema_with = "schema::network")]
    pub cidr: Option<String>,
    /// As cidr, for both families: at most one network of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::networks::<2>")]
    pub cidrs: Vec<String>,
    /// In bytes; absent: the kernel's choice.
    #[schemars(range(min = 68, max = 65535))]
    pub mtu: Option<u32>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for Bridge {
    fn definition() -> CustomResourceDefinition {
        with_config_status::<Self>(&["readyInputs", "bridgeConfigs", "leftOut"])
    }
}
