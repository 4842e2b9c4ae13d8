//! ConnectionPoint: where pods of some nodes meet the fabric.

use eno_schemas::{CniName, InterfaceType, VerifyBetween, VerifyMode};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// Where pods of some nodes meet the fabric: a bridge, a NIC or a pool of devices on every node of a NodePool.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "ConnectionPoint",
    doc = "A ConnectionPoint is where pods of some nodes meet the fabric: a bridge, a NIC or a pool of devices.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "cp",
    printcolumn(name = "CNIs", type_ = "string", json_path = ".status.cnis"),
    printcolumn(name = "NodePool", type_ = "string", json_path = ".spec.NodePool"),
    printcolumn(name = "Interfaces", type_ = "string", json_path = ".spec.Interfaces")
)]
#[serde(rename_all = "PascalCase")]
pub struct ConnectionPointSpec {
    /// A description for people.
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
    /// The CNI plugins that can attach a pod here, the preferred one first.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["Name"])
    )]
    pub supported_cnis: Vec<SupportedCni>,
    /// The NodePool whose nodes have it; absent means every node.
    #[serde(default)]
    #[schemars(schema_with = "schema::name")]
    pub node_pool: Option<String>,
    /// The NICs on the pool's nodes that lead to the fabric. Several on an ovs or bridge ConnectionPoint form one
    /// bond. A NIC that carries an address of its node is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::interface_names::<16>")]
    pub interfaces: Vec<String>,
    /// The namespaces whose attachments with VlanType trunk may see every VLAN here. Absent: a trunk is for namespaces that all
    /// L2Services here are open to.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub trunk_namespaces: Option<LabelSelector>,
    /// Probes that tell whether packets pass on the VLANs here: as the condition Verified of attachments and services.
    /// Absent: Report, between the nodes and to the gateway. They need agents on the nodes.
    pub verify: Option<Verify>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for ConnectionPoint {
    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&["readyInputs", "cnis", "verification"])
    }
}

/// Probes on the VLANs of a ConnectionPoint. They use no address of the networks.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Verify {
    /// What follows from them. None: nothing is probed. Report: the condition Verified; False is Degraded. Gate: an
    /// attachment becomes ready, and a node gets the label of the ConnectionPoint, only once they passed; what was ready stays so.
    pub mode: Option<VerifyMode>,
    /// NodesAndGateway: each node asks the next one, and the gateway. Gateway: only that, for private VLANs. Nodes: no
    /// gateway is asked.
    pub between: Option<VerifyBetween>,
    /// Seconds from one probe of a VLAN to the next, as long as nothing changes; a tenth more or less. Absent: 600.
    #[schemars(range(min = 30, max = 86_400))]
    pub interval: Option<u32>,
}

/// A CNI plugin and how to use it on a ConnectionPoint.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct SupportedCni {
    /// The CNI plugin.
    pub name: CniName,
    /// The kinds of pod interfaces that it can make here.
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub supported_interface_types: Vec<InterfaceType>,
    /// JSON text of an object with the plugin's parameters: BridgeName for ovs and bridge, PoolName for host-device
    /// and sriov, Master for macvlan, ipvlan and vlan; MTU for attachments that name none, but for host-device, sriov and
    /// userspace; PoolName for ovs where pods' devices come from a device plugin.
    #[schemars(
        length(max = 4096),
        extend("x-kubernetes-validations" = [schema::rule(
            "self.matches('^\\\\s*(\\\\{[\\\\s\\\\S]*\\\\}\\\\s*)?$')",
            "must be the JSON text of an object, such as '{\"BridgeName\": \"br-data\"}'",
        )])
    )]
    pub opts: Option<String>,
}
