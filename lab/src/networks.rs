//! Builds the networks that benchmarks and soak runs create.

use std::collections::BTreeMap;

use eno_nbi_crds::{
    Callbacks, CniName, ConnectionPoint, ConnectionPointSpec, InterfaceType, L2Service, L2ServiceAttachment,
    L2ServiceAttachmentSpec, L2ServiceSpec, NodePool, NodePoolSpec, SupportedCni, VlanType,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::json;

/// A NodePool of the nodes with a label; `nodes`: only these.
pub(crate) fn pool(name: &str, label: (&str, &str), nodes: Option<&[String]>) -> NodePool {
    let among = nodes.map(|nodes| {
        vec![LabelSelectorRequirement {
            key: "kubernetes.io/hostname".to_owned(),
            operator: "In".to_owned(),
            values: Some(nodes.to_vec()),
        }]
    });
    let node_selector = LabelSelector {
        match_labels: Some(BTreeMap::from([(label.0.to_owned(), label.1.to_owned())])),
        match_expressions: among,
    };
    NodePool::new(name, NodePoolSpec { node_selector, callbacks: Callbacks::default() })
}

/// A ConnectionPoint on the NodePool of its name, with an Open vSwitch bridge on `eth1`.
pub(crate) fn connection_point(name: &str, bridge: &str) -> ConnectionPoint {
    let cni = SupportedCni {
        name: CniName::Ovs,
        supported_interface_types: vec![InterfaceType::Kernel],
        opts: Some(json!({ "BridgeName": bridge }).to_string()),
    };
    let spec = ConnectionPointSpec {
        description: None,
        supported_cnis: vec![cni],
        node_pool: Some(name.to_owned()),
        interfaces: vec!["eth1".to_owned()],
        trunk_namespaces: None,
        verify: None,
        callbacks: Callbacks::default(),
    };
    ConnectionPoint::new(name, spec)
}

/// An L2Service without Subnets.
pub(crate) fn service(name: &str, vid: u16, physical_nw: Vec<String>, callbacks: Callbacks) -> L2Service {
    let subnets = Vec::new();
    let spec = L2ServiceSpec { segmentation_id: vid, subnets, physical_nw, namespaces: None, callbacks };
    L2Service::new(name, spec)
}

/// An L2ServiceAttachment for kernel interfaces.
pub(crate) fn attachment(
    name: &str,
    l2_services: Vec<String>,
    point: &str,
    vlan_type: VlanType,
    callbacks: Callbacks,
) -> L2ServiceAttachment {
    let spec = L2ServiceAttachmentSpec {
        l2_services,
        connection_point: point.to_owned(),
        pod_interface_type: InterfaceType::Kernel,
        vlan_type,
        implementation: None,
        mtu: None,
        usable_from: None,
        anti_spoof: false,
        sub_interfaces: false,
        callbacks,
    };
    L2ServiceAttachment::new(name, spec)
}
