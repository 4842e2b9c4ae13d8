//! Route: a route that pods get with an address.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// A route that pods get with an address of a Subnet that names it.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "Route",
    doc = "A Route is what pods get with an address of a Subnet that names it.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "rt",
    printcolumn(name = "Prefix", type_ = "string", json_path = ".spec.Prefix"),
    printcolumn(name = "Mask", type_ = "integer", json_path = ".spec.Mask"),
    printcolumn(name = "NextHop", type_ = "string", json_path = ".spec.NextHop")
)]
#[serde(rename_all = "PascalCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule_at(
        ".Mask",
        "!isIP(self.Prefix) || ip(self.Prefix).family() == 6 || self.Mask <= 32",
        "must be at most 32 when Prefix is an IPv4 address",
    ),
    schema::rule_at(
        ".NextHop",
        "!isIP(self.Prefix) || !isIP(self.NextHop) || ip(self.Prefix).family() == ip(self.NextHop).family()",
        "must be an address of the same IP version as Prefix",
    ),
]))]
pub struct RouteSpec {
    /// The destination's network address, such as 30.30.10.0; 0.0.0.0 or :: with Mask 0 is the default route.
    #[schemars(schema_with = "schema::ip")]
    pub prefix: String,
    /// The length of the destination's prefix in bits: at most 32 for IPv4, 128 for IPv6.
    #[schemars(range(min = 0, max = 128))]
    pub mask: u8,
    /// The address of the gateway, of the same IP version as Prefix.
    #[schemars(schema_with = "schema::ip")]
    pub next_hop: String,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for Route {
    const IS_OF_NFVOS: bool = true;

    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&[])
    }
}
