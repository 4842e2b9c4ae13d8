//! The scopes in which networks claim their VLANs.

use std::collections::BTreeSet;

use crate::spec::{ServiceSpec, Spec};
use crate::store::Store;
use crate::vlan::VlanScope;
use crate::{Key, Name};

use super::Fabric;
use super::topology::Ports;

impl Fabric {
    /// The scopes of switch ports.
    pub fn fabric_scopes(&self, ports: &Ports) -> BTreeSet<VlanScope> {
        let components = ports.keys().filter_map(|device| self.topology().component(device));
        components.map(|name| VlanScope::Fabric(name.clone())).collect()
    }

    /// The scopes where a network is realised.
    pub fn realised_scopes(&self, store: &Store, key: &Key) -> BTreeSet<VlanScope> {
        let mut scopes = self.scopes_of_points(self.points_of(key));
        if let Some(service) = store.effective(key, Spec::service) {
            scopes.extend(self.scopes_of_networks(service));
        }
        scopes
    }

    fn scopes_of_points<'a>(&self, points: impl Iterator<Item = &'a Name>) -> BTreeSet<VlanScope> {
        points.filter_map(|name| self.point(name)).flat_map(|point| point.scopes.iter().cloned()).collect()
    }

    fn scopes_of_networks(&self, service: &ServiceSpec) -> BTreeSet<VlanScope> {
        let mut scopes = BTreeSet::new();
        for name in &service.physical_networks {
            match self.topology().network_ports(name) {
                Some(ports) => scopes.extend(self.fabric_scopes(ports)),
                None => drop(scopes.insert(VlanScope::Network(name.clone()))),
            }
        }
        scopes
    }

    /// The scopes where a service has to hold its VLAN to be valid: those of its networks, and those where it is
    /// realised.
    pub fn own_scopes(&self, store: &Store, key: &Key, spec: &ServiceSpec) -> BTreeSet<VlanScope> {
        let mut scopes = self.realised_scopes(store, key);
        scopes.extend(self.scopes_of_networks(spec));
        scopes
    }

    /// All scopes in which a network claims its VLAN.
    pub fn claimed_scopes(&self, store: &Store, key: &Key) -> BTreeSet<VlanScope> {
        let mut scopes = self.realised_scopes(store, key);
        if let Some(network) = self.network(key) {
            scopes.extend(self.scopes_of_points(network.requested.keys()));
        }
        let spec = store.get(key).and_then(|record| record.spec.as_ref().ok());
        if let Some(service) = spec.and_then(|spec| spec.service()) {
            scopes.extend(self.scopes_of_networks(service));
        }
        or_unplaced(scopes)
    }
}

/// A network without a location claims its VLAN everywhere.
pub fn or_unplaced(scopes: BTreeSet<VlanScope>) -> BTreeSet<VlanScope> {
    if scopes.is_empty() { BTreeSet::from([VlanScope::Unplaced]) } else { scopes }
}
