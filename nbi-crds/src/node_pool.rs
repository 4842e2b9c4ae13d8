//! NodePool: the nodes of a ConnectionPoint.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// The nodes that have a ConnectionPoint, by their labels.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "NodePool",
    doc = "A NodePool is the set of nodes that have a ConnectionPoint, by their labels.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "np",
    printcolumn(name = "Labels", type_ = "string", json_path = ".spec.NodeSelector.matchLabels")
)]
#[serde(rename_all = "PascalCase")]
pub struct NodePoolSpec {
    /// Which nodes are in the pool. Nodes join and leave it as their labels change; an empty selector means all.
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: LabelSelector,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for NodePool {
    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&[])
    }
}
