//! NodePool: a set of nodes.

use serde::{Deserialize, Serialize};

use super::{Described, Selector};

/// A set of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodePoolSpec {
    /// The labels of its nodes.
    pub node_selector: Selector,
}

impl Described for NodePoolSpec {}
