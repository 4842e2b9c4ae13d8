//! VRFAttachment: an L2Service in a VRF.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// Leads an L2Service into a VRF: the addresses that answer there, and routes by hosts of the service.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "VRFAttachment",
    plural = "vrfattachments",
    doc = "A VRFAttachment leads an L2Service into a VRF: the addresses that answer there, and routes by hosts of the service.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "vrfa",
    printcolumn(name = "VRF", type_ = "string", json_path = ".spec.VRF"),
    printcolumn(name = "L2Service", type_ = "string", json_path = ".spec.L2Service"),
    printcolumn(name = "Device", type_ = "string", json_path = ".spec.Interfaces[0].Device"),
    printcolumn(name = "Addresses", type_ = "string", json_path = ".spec.Interfaces[0].Addresses")
)]
#[serde(rename_all = "PascalCase")]
pub struct VRFAttachmentSpec {
    /// The VRF.
    #[serde(rename = "VRF")]
    #[schemars(schema_with = "schema::name")]
    pub vrf: String,
    /// The L2Service, which the VRF's Services have to select.
    #[serde(rename = "L2Service")]
    #[schemars(schema_with = "schema::name")]
    pub l2_service: String,
    /// The device by which it is led in, and the addresses there.
    #[schemars(
        length(min = 1, max = 1),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["Device"])
    )]
    pub interfaces: Vec<VrfInterface>,
    /// Routes of the VRF to what lies behind hosts of the service, such as pools of addresses of user equipment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list::<VrfStaticRoute, 256>")]
    pub static_routes: Vec<VrfStaticRoute>,
    /// The largest IP packet in bytes; absent: the device's default.
    #[serde(rename = "MTU")]
    #[schemars(range(min = 1280, max = 9216))]
    pub mtu: Option<u16>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for VRFAttachment {
    const IS_OF_NFVOS: bool = true;

    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&["readyInputs"])
    }
}

/// A routed interface of an L2Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct VrfInterface {
    /// A FabricDevice of the VRF. It becomes an end of the L2Service.
    #[schemars(schema_with = "schema::name")]
    pub device: String,
    /// Its addresses in the service's Subnets, with their prefix lengths, such as 10.10.10.1/24. No pod gets them.
    #[schemars(schema_with = "schema::some_cidrs::<8>")]
    pub addresses: Vec<String>,
}

/// A route of a VRF by a host of an L2Service.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule_at(
        ".NextHop",
        "!isCIDR(self.Prefix) || !isIP(self.NextHop) || cidr(self.Prefix).ip().family() == ip(self.NextHop).family()",
        "must be an address of the same IP version as Prefix",
    ),
]))]
pub struct VrfStaticRoute {
    /// The destination, such as 10.45.0.0/16.
    #[schemars(schema_with = "schema::cidr")]
    pub prefix: String,
    /// The address of a host in the network of one of Addresses.
    #[schemars(schema_with = "schema::ip")]
    pub next_hop: String,
    /// Of several routes to a prefix the lowest counts; absent: the device's default.
    #[serde(default)]
    #[schemars(range(min = 1, max = 255))]
    pub preference: Option<u8>,
}
