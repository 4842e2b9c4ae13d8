//! Gaps: endpoints of a network that can't reach each other. A gap doesn't change the plan: each part of the network
//! is built as far as possible.

use std::collections::BTreeSet;

use crate::spec::Spec;
use crate::store::Store;
use crate::{Key, Kind, Name};

use super::Fabric;

/// Why the endpoints of a network can't reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// No switch port leads to this PhysicalNetwork.
    NoPort(Name),
    /// No link joins the parts of the fabric that have endpoints: the switches at the endpoints, part by part.
    NoPath(Vec<BTreeSet<Name>>),
}

impl Gap {
    /// The message, as seen `from` a switch at one endpoint.
    pub fn describe(&self, from: Option<&Name>) -> String {
        let parts = match self {
            Self::NoPort(name) => return format!("PhysicalNetwork {name}: no switch port leads there"),
            Self::NoPath(parts) => parts,
        };
        let own = from.and_then(|from| parts.iter().position(|part| part.contains(from))).unwrap_or_default();
        let end = |part: usize| parts.get(part).and_then(BTreeSet::first).map_or("", |name| &**name);
        let (from, to) = (from.map_or(end(own), |from| &**from), end(usize::from(own == 0)));
        format!("no way from {from} to {to}: name the link in their Ports")
    }
}

impl Fabric {
    /// The gap of a network, if there is one. It is unknown without any FabricDevice, and for a network that is used
    /// only at ConnectionPoints without switch ports.
    pub(super) fn gap_of(&self, store: &Store, key: &Key) -> Option<Gap> {
        let spec = store.get(key)?.effective.as_deref()?;
        let mut points =
            self.networks.get(key).into_iter().flat_map(|network| network.points.keys()).peekable();
        let is_used = points.peek().is_some();
        let mut ends: BTreeSet<&Name> =
            points.filter_map(|name| self.points.get(name)).flat_map(|point| point.ports.keys()).collect();
        if !self.has_devices || (is_used && ends.is_empty()) {
            return None;
        }
        let mut networks = Vec::new();
        for name in spec.service().into_iter().flat_map(|service| &service.physical_networks) {
            let network = store.effective(&Key::cluster(Kind::PhysicalNetwork, name), Spec::physical_network);
            let unmanaged = network.is_some_and(|network| network.unmanaged);
            match self.topology.network_ports(name) {
                Some(ports) => {
                    networks.push(ports);
                    ends.extend(ports.keys().filter(|_| !unmanaged));
                }
                None if unmanaged => {}
                None => return Some(Gap::NoPort(name.clone())),
            }
        }
        let parts = self.topology.parts(ends, networks);
        (parts.len() > 1).then_some(Gap::NoPath(parts))
    }

    /// The message about the gap for an object that uses the network. An attachment sees it from its own
    /// ConnectionPoint, if that has switch ports.
    pub fn gap_message(&self, store: &Store, key: &Key, network: &Key) -> Option<String> {
        let gap = self.networks.get(network)?.gap.as_ref()?;
        match store.effective(key, Spec::attachment) {
            Some(spec) => {
                Some(gap.describe(Some(self.points.get(&spec.connection_point)?.ports.keys().next()?)))
            }
            None => Some(gap.describe(None)),
        }
    }
}
