//! A leaf–spine fabric with a ConnectionPoint on each leaf.

use eno_core::{Event, Labels};

use super::{World, connection_point, node_pool};

/// The switches of the leaf–spine fabric.
pub const DEVICES: [&str; 4] = ["leaf1", "leaf2", "spine1", "spine2"];

/// A leaf–spine fabric with transactions. The ConnectionPoint `left` has the nodes of leaf1, `right` those of leaf2.
pub fn split_fabric() -> World {
    let mut w = World::with_transactions();
    w.settle();
    for (side, nodes) in [("left", ["node1", "node2"]), ("right", ["node3", "node4"])] {
        for node in nodes {
            let labels = Labels::from([("side".into(), side.into())]);
            w.nodes.insert(node.into(), (labels.clone(), true));
            w.engine.handle(Event::Node { name: node.into(), labels, ready: true });
        }
        w.apply(node_pool(side, "side", &[side]));
        w.apply(connection_point(side, Some(side)));
    }
    w.settle();
    w.outcomes.clear();
    w.participant_counts.clear();
    w
}
