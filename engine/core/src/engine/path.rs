//! The path of an object, as its phase and conditions are evaluated.

use super::Engine;
use crate::Key;
use crate::status::hop::{Aspect, Hop, Part};

impl Engine {
    /// The hops of the path of an object, from pods to the gateway, each with its state. The phase and the conditions
    /// of the object follow from the same states. An object without a path has no hops, and so has what an object that
    /// is being deleted has given up.
    ///
    /// Hops of one tier are in the order in which they are evaluated: the first that is not confirmed is in the
    /// message of the object.
    pub fn path(&self, key: &Key) -> Vec<Hop<'_>> {
        let evaluator = self.evaluator();
        let mut hops = Vec::new();
        evaluator.visit_hops(key, &evaluator.networks(key), &mut |hop| {
            // The agent makes the NICs of a network part of it.
            if let Part::Network { node, network, aspect: Aspect::Whole, .. } = hop.part {
                let nics = self.node.nics_of(network);
                hops.extend(nics.map(|nic| Hop { part: Part::Nic { node, nic }, state: hop.state.clone() }));
            }
            hops.push(hop);
        });
        hops.sort_by_key(|hop| hop.part.tier());
        hops
    }
}
