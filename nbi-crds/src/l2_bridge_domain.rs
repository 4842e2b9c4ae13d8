//! L2BridgeDomain: a VLAN on ConnectionPoints, for fabric plugins.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// A VLAN on ConnectionPoints. Written by hand it is an input; the engine writes them where fabric plugins watch them.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "L2BridgeDomain",
    doc = "An L2BridgeDomain is a VLAN on ConnectionPoints: an input when written by hand, an output for fabric plugins when the engine is told to write them.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "l2bd",
    printcolumn(name = "VLAN", type_ = "integer", json_path = ".spec.Vlan"),
    printcolumn(name = "ConnectionPoints", type_ = "string", json_path = ".spec.ConnectionPoints")
)]
#[serde(rename_all = "PascalCase")]
pub struct L2BridgeDomainSpec {
    /// The VLAN ID, 1 to 4094.
    #[schemars(schema_with = "schema::vlan_id")]
    pub vlan: u16,
    /// The ConnectionPoints on whose switch ports the VLAN is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names::<1024>")]
    pub connection_points: Vec<String>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for L2BridgeDomain {
    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&["readyInputs", "grantedID", "placement"])
    }
}
