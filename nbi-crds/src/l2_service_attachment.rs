//! L2ServiceAttachment: L2Services brought to the pods of a namespace.

use eno_schemas::{CniName, InterfaceType, VlanType};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// L2Services brought to the pods of a namespace, as one NetworkAttachmentDefinition of the same name.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "L2ServiceAttachment",
    namespaced,
    doc = "An L2ServiceAttachment brings L2Services to the pods of its namespace, as a NetworkAttachmentDefinition of the same name.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "l2sa",
    printcolumn(name = "VlanType", type_ = "string", json_path = ".spec.VlanType"),
    printcolumn(name = "ConnectionPoint", type_ = "string", json_path = ".spec.ConnectionPoint"),
    printcolumn(name = "L2Services", type_ = "string", json_path = ".spec.L2Services")
)]
#[serde(rename_all = "PascalCase")]
#[schemars(extend("x-kubernetes-validations" = [schema::rule_at(
    ".L2Services",
    "self.VlanType != 'access' || size(self.L2Services) == 1",
    "must name exactly one L2Service when VlanType is access; use selectivetrunk for several",
), schema::rule_at(
    ".AntiSpoof",
    "self.AntiSpoof == oldSelf.AntiSpoof",
    "can't be changed; make another L2ServiceAttachment",
), schema::rule_at(
    ".SubInterfaces",
    "!self.SubInterfaces || self.VlanType != 'access'",
    "must be false when VlanType is access; the pod's interface has the addresses itself",
), schema::rule_at(
    ".SubInterfaces",
    "!self.SubInterfaces || !self.AntiSpoof",
    "must be false when AntiSpoof is true: there is no NetworkAttachmentDefinition to get an interface by",
)]))]
pub struct L2ServiceAttachmentSpec {
    /// The L2Services: exactly one for access, any number for the trunks.
    #[schemars(schema_with = "schema::some_names::<4094>")]
    pub l2_services: Vec<String>,
    /// The ConnectionPoint that pods are attached to.
    #[schemars(schema_with = "schema::name")]
    pub connection_point: String,
    /// How the pod uses its interface.
    #[serde(default)]
    pub pod_interface_type: InterfaceType,
    /// How the VLANs reach the pod.
    pub vlan_type: VlanType,
    /// Which of the ConnectionPoint's CNI plugins makes the interface; absent means the first that can.
    pub implementation: Option<CniName>,
    /// The MTU of the pod's interface in bytes; absent: MTU in Opts of the ConnectionPoint, else the CNI plugin's choice.
    #[serde(rename = "MTU")]
    #[schemars(range(min = 68, max = 65535))]
    pub mtu: Option<u16>,
    /// The other namespaces whose pods may use its NetworkAttachmentDefinition, and so keep it from being deleted; absent
    /// means none.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub usable_from: Option<LabelSelector>,
    /// Only the addresses that ENO leases, and the MAC address of the interface, leave the pod. It is for running pods
    /// (hot-plugging): there is no NetworkAttachmentDefinition. It can't be changed later.
    #[serde(default)]
    pub anti_spoof: bool,
    /// Pods that get their interface by Multus have an interface for each VLAN of L2Services on it, called
    /// `<interface>.<VLAN>`, with addresses and routes of the Subnets. Not with VlanType access.
    #[serde(default)]
    pub sub_interfaces: bool,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for L2ServiceAttachment {
    const IS_OF_NFVOS: bool = true;

    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&[
            "readyInputs",
            "addressPool",
            "podConfigurations",
            "addresses",
            "verification",
            "leftOut",
        ])
    }
}
