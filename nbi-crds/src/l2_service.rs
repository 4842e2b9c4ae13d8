//! L2Service: a VLAN.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// A layer-2 network: a VLAN on the fabric, and the subnets that pods on it get their addresses from.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "L2Service",
    doc = "An L2Service is a layer-2 network: a VLAN on the fabric, and the subnets that pods on it get addresses from.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "l2s",
    printcolumn(name = "VLAN", type_ = "integer", json_path = ".spec.SegmentationID"),
    printcolumn(name = "Subnets", type_ = "string", json_path = ".spec.Subnets"),
    printcolumn(name = "PhysicalNW", type_ = "string", json_path = ".spec.PhysicalNW"),
    printcolumn(name = "ConnectionPoints", type_ = "string", json_path = ".status.connectionPoints")
)]
#[serde(rename_all = "PascalCase")]
pub struct L2ServiceSpec {
    /// The VLAN ID, 1 to 4094. It is unique in each connected part of the fabric; the present holder keeps it.
    #[serde(rename = "SegmentationID")]
    #[schemars(schema_with = "schema::vlan_id")]
    pub segmentation_id: u16,
    /// The Subnets that pods get addresses from: at most two, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names::<2>")]
    pub subnets: Vec<String>,
    /// The PhysicalNetworks that the VLAN is led out to.
    #[serde(default, rename = "PhysicalNW", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names::<64>")]
    pub physical_nw: Vec<String>,
    /// The namespaces whose attachments may use it; absent means all that its PhysicalNetworks are open to. Trunks of other
    /// namespaces don't see it.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespaces: Option<LabelSelector>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for L2Service {
    const IS_OF_NFVOS: bool = true;

    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&[
            "readyInputs",
            "grantedID",
            "placement",
            "connectionPoints",
            "verification",
            "leftOut",
        ])
    }
}
