//! NodePool: a set of nodes.

use serde::{Deserialize, Serialize};

use crate::kinds::Described;
use crate::selector::Selector;

/// A set of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodePoolSpec {
    /// The labels of its nodes.
    pub node_selector: Selector,
}

impl Described for NodePoolSpec {}
