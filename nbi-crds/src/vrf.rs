//! VRF: a routing instance on gateways and border leaves.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// A routing instance (RFC 4364) on FabricDevices, that L2Services can be led into.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "VRF",
    plural = "vrfs",
    doc = "A VRF is a routing instance on FabricDevices, that VRFAttachments lead L2Services into.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "vrf",
    printcolumn(name = "DeviceName", type_ = "string", json_path = ".spec.DeviceName"),
    printcolumn(name = "Imports", type_ = "string", json_path = ".spec.ImportTargets"),
    printcolumn(name = "Exports", type_ = "string", json_path = ".spec.ExportTargets")
)]
#[serde(rename_all = "PascalCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule_at(
        ".Devices",
        "self.Devices.all(one, has(one.RouteDistinguisher)) \
         == (has(self.ImportTargets) && self.ImportTargets.size() > 0 \
         || has(self.ExportTargets) && self.ExportTargets.size() > 0) \
         && (self.Devices.all(one, has(one.RouteDistinguisher)) || !self.Devices.exists(one, has(one.RouteDistinguisher)))",
        "must have a RouteDistinguisher on each device together with ImportTargets or ExportTargets, or none of them for \
         a VRF that is local to its devices",
    ),
]))]
pub struct VRFSpec {
    /// The FabricDevices that have it, each with a RouteDistinguisher of its own.
    #[schemars(
        length(min = 1, max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["Name"])
    )]
    pub devices: Vec<VrfDevice>,
    /// Its name on the devices; absent: the object's name. One of this name that is there already is used and never
    /// removed.
    #[serde(default)]
    #[schemars(schema_with = "schema::vrf_name")]
    pub device_name: Option<String>,
    /// The route targets whose routes it takes in, such as 65000:100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::route_targets::<16>")]
    pub import_targets: Vec<String>,
    /// The route targets that its connected and static routes leave with, such as 65000:100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::route_targets::<16>")]
    pub export_targets: Vec<String>,
    /// The labels of the L2Services that may be led in; absent: all.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub services: Option<LabelSelector>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for VRF {
    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&["readyInputs"])
    }
}

/// A device that has a VRF.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct VrfDevice {
    /// The FabricDevice.
    #[schemars(schema_with = "schema::name")]
    pub name: String,
    /// Tells the routes of this VRF on this device from those of all others, such as 65000:100, 4200000000:1 or
    /// 192.0.2.1:100. One per device: of equal ones a route reflector may hide a path. Absent: the VRF is local to the
    /// device.
    #[serde(default)]
    #[schemars(schema_with = "schema::route_distinguisher")]
    pub route_distinguisher: Option<String>,
}
