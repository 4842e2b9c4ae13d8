//! Subnet: the addresses of an L2Service.

use eno_schemas::Ipam;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::Display;

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// The addresses of an L2Service, and what a pod is told with them.
///
/// CEL has no order of addresses: `Start` after `End`, a pool outside the subnet and pools that overlap are left to
/// the engine.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "Subnet",
    doc = "A Subnet holds the addresses of an L2Service, and what a pod is told with them.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "sn",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.Type"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.Address"),
    printcolumn(name = "Mask", type_ = "integer", json_path = ".spec.Mask"),
    printcolumn(name = "Ipam", type_ = "string", json_path = ".spec.Ipam"),
    printcolumn(name = "Routes", type_ = "string", json_path = ".spec.Routes")
)]
#[serde(rename_all = "PascalCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule_at(
        ".Address",
        "!isIP(self.Address) || ip(self.Address).family() == (self.Type == 'v4' ? 4 : 6)",
        "must be an address of the subnet's Type (v4 or v6)",
    ),
    schema::rule_at(
        ".Mask",
        "self.Mask <= (self.Type == 'v4' ? 30 : 126) + (self.Ipam == 'static' ? 1 : 0)",
        "must be at most 30 when Type is v4 and 126 when it is v6, and one more with Ipam static",
    ),
    schema::rule_at(
        ".AllocationPool",
        "!has(self.AllocationPool) || self.AllocationPool.all(p, [p.Start, p.End].all(a, \
         !isIP(a) || ip(a).family() == (self.Type == 'v4' ? 4 : 6)))",
        "must hold addresses of the subnet's Type (v4 or v6)",
    ),
    schema::rule_at(
        ".HotPlugPool",
        "!has(self.HotPlugPool) || self.HotPlugPool.all(p, [p.Start, p.End].all(a, \
         !isIP(a) || ip(a).family() == (self.Type == 'v4' ? 4 : 6)))",
        "must hold addresses of the subnet's Type (v4 or v6)",
    ),
    schema::rule_at(
        ".HotPlugPool",
        "!has(self.HotPlugPool) || self.HotPlugPool.size() == 0 || self.Ipam != 'eno'",
        "must be absent with Ipam eno, of whose addresses running pods get theirs too",
    ),
    schema::rule_at(
        ".Sticky",
        "!has(self.Sticky) || !self.Sticky || self.Ipam == 'eno'",
        "must be absent or false unless Ipam is eno",
    ),
]))]
pub struct SubnetSpec {
    /// Which IPAM plugin hands out the addresses. With eno it is ENO itself: each address once in the cluster, and the
    /// same pool for pods that start and for running pods.
    pub ipam: Ipam,
    /// The network address, such as 10.10.10.0.
    #[schemars(schema_with = "schema::ip")]
    pub address: String,
    /// The length of the network prefix in bits: at most 30 for v4 and 126 for v6, and one more with Ipam static.
    #[schemars(range(min = 1, max = 128))]
    pub mask: u8,
    /// Whether it is an IPv4 or an IPv6 subnet.
    #[serde(rename = "Type")]
    pub ip_type: IpType,
    /// The addresses that the IPAM plugin may hand out, first and last of each range; absent means all of the subnet.
    /// What is in HotPlugPool, leased by the engine or the NextHop of one of the Routes is never handed out. With Ipam
    /// eno running pods get addresses of it too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub allocation_pool: Vec<IpPool>,
    /// The addresses that the engine itself hands to running pods. No address may be in AllocationPool too, nor be in
    /// use by a pod when it is added here. Not with Ipam eno.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub hot_plug_pool: Vec<IpPool>,
    /// A pod of a StatefulSet, whose name ends with `-` and a number, gets the address again that it had before. Only
    /// with Ipam eno.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
    /// The Routes that pods get with an address of this subnet. Each NextHop is an address of the subnet or, in IPv6,
    /// a link-local one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names::<256>")]
    pub routes: Vec<String>,
    /// How pods resolve names.
    pub dns: Option<Dns>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for Subnet {
    const IS_OF_NFVOS: bool = true;

    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&["nodeAddresses", "fixedAddresses"])
    }
}

/// A range of addresses, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct IpPool {
    /// The first address.
    #[schemars(schema_with = "schema::ip")]
    pub start: String,
    /// The last address, not before the first.
    #[schemars(schema_with = "schema::ip")]
    pub end: String,
}

/// How pods resolve names: the `dns` of a CNI result.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Dns {
    /// Addresses of the name servers, the preferred one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ips::<16>")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(default)]
    #[schemars(schema_with = "schema::domain")]
    pub domain: Option<String>,
    /// The domains in which short names are looked up, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::domains::<32>")]
    pub search: Vec<String>,
}

/// The version of IP.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum IpType {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}
