//! The scopes in which networks claim their VLANs.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{Phase, VlanId};

use crate::kinds::{ServiceSpec, Spec};
use crate::store::Store;
use crate::vlan::{Claim, VlanScope, Vlans, vid_of};
use crate::work::Work;
use crate::{Key, Name};

use super::Fabric;
use super::network::End;
use super::topology::Ports;

impl Fabric {
    /// The scopes of switch ports.
    pub fn fabric_scopes(&self, ports: &Ports) -> BTreeSet<VlanScope> {
        let components = ports.keys().filter_map(|device| self.topology().component(device));
        components.map(|name| VlanScope::Fabric(name.clone())).collect()
    }

    /// The scopes where a network is realised.
    pub fn realised_scopes(&self, store: &Store, key: &Key) -> BTreeSet<VlanScope> {
        let mut scopes = self.scopes_of_ends(self.ends_of_network(key));
        if let Some(service) = store.effective(key, Spec::service) {
            scopes.extend(self.scopes_of_networks(service));
        }
        scopes
    }

    fn scopes_of_ends<'a>(&self, ends: impl Iterator<Item = &'a End>) -> BTreeSet<VlanScope> {
        let mut scopes = BTreeSet::new();
        for end in ends {
            match end {
                End::Point(name) => {
                    scopes
                        .extend(self.point(name).into_iter().flat_map(|point| point.scopes.iter().cloned()));
                }
                End::Device(name) => scopes.extend(self.device_scopes(name)),
            }
        }
        scopes
    }

    /// The scopes in which a network that is routed by a device has to hold its VLAN: the fabric of a switch; a router
    /// itself, and its fabric if it has only one.
    pub fn device_scopes(&self, device: &Name) -> BTreeSet<VlanScope> {
        let fabrics = self.topology().fabrics_of(device);
        let own = self.topology().component(device);
        let only = fabrics.iter().copied().filter(|_| fabrics.len() == 1);
        own.into_iter().chain(only).cloned().map(VlanScope::Fabric).collect()
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
            scopes.extend(self.scopes_of_ends(network.requested.keys()));
        }
        let spec = store.get(key).and_then(|record| record.spec.as_ref().ok());
        if let Some(service) = spec.and_then(|spec| spec.service()) {
            scopes.extend(self.scopes_of_networks(service));
        }
        or_unplaced(scopes)
    }

    /// Does one piece of work on VLAN IDs: restores all claims once, updates the claims of one network, or decides the
    /// holders of one VLAN ID. Returns false when there is none.
    pub fn step_claims(&self, store: &Store, vlan: &mut Vlans, work: &mut Work) -> bool {
        if vlan.begins() {
            self.restore_claims(store, vlan);
        } else if let Some(key) = vlan.pop_claim() {
            self.update_claims(store, vlan, &key);
        } else {
            return vlan.step(store, work);
        }
        true
    }

    /// Restores VLAN claims before any new decision: first where a VLAN is realised, then where it is requested,
    /// objects in error last.
    fn restore_claims(&self, store: &Store, vlan: &mut Vlans) {
        let mut rounds: [Vec<Claim<'_>>; 4] = Default::default();
        for (key, record) in
            store.iter().filter(|(key, record)| key.kind.facts().has_vlan && !record.generated)
        {
            let Some(vid) = record.effective.as_deref().and_then(vid_of) else { continue };
            let last = usize::from(record.status.phase == Some(Phase::Error));
            rounds[last].push((vid, key, record.seniority(), self.realised_scopes(store, key)));
            rounds[2 + last].push((vid, key, record.seniority(), self.claimed_scopes(store, key)));
        }
        for claims in rounds {
            vlan.restore(claims);
        }
    }

    /// Updates the VLAN claims of a network. A network that is being removed keeps its claims until it is gone.
    fn update_claims(&self, store: &Store, vlan: &mut Vlans, key: &Key) {
        let mut claims: BTreeMap<VlanId, BTreeSet<VlanScope>> = BTreeMap::new();
        let mut seniority = (0, Name::from(""));
        match store.get(key) {
            Some(record) if record.status.phase == Some(Phase::Deleted) => {}
            Some(record) if record.deleting && record.effective.is_none() => {
                let vid = record.status.realized.as_deref().and_then(vid_of);
                claims.extend(vid.map(|vid| (vid, vlan.scopes(vid, key))));
                seniority = record.seniority();
            }
            Some(record) if !record.generated => {
                seniority = record.seniority();
                if let Some(vid) = record.effective.as_deref().and_then(vid_of) {
                    claims.insert(vid, or_unplaced(self.realised_scopes(store, key)));
                }
                // Users of an object that is being deleted may still request it elsewhere.
                let spec = record.wanted().or(record.effective.as_ref());
                if let Some(vid) = spec.and_then(|spec| vid_of(spec)) {
                    // A request adds scopes, and replaces the scope Unplaced.
                    claims.insert(vid, self.claimed_scopes(store, key));
                }
            }
            _ => {}
        }
        if let Some((vid, scopes)) = self.withheld_scopes(key) {
            claims.entry(vid).or_default().extend(scopes);
        }
        vlan.claim(key, &seniority, claims);
    }
}

/// A network without a location claims its VLAN everywhere.
fn or_unplaced(scopes: BTreeSet<VlanScope>) -> BTreeSet<VlanScope> {
    if scopes.is_empty() { BTreeSet::from([VlanScope::Unplaced]) } else { scopes }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Kind;
    use crate::store::fixture::{delete, key, store};

    #[test]
    fn vlan_goes_to_the_younger_claim_once_the_older_network_is_gone() {
        let service = || json!({ "SegmentationID": 100, "PhysicalNW": ["dc"] });
        let mut store = store([
            (Kind::PhysicalNetwork, "dc", json!({})),
            (Kind::L2Service, "old", service()),
            (Kind::L2Service, "young", service()),
        ]);
        let (old, young) = (key(Kind::L2Service, "old"), key(Kind::L2Service, "young"));
        let (mut vlans, fabric, mut work) = (Vlans::default(), Fabric::default(), Work::default());
        let (vid, scope) = (VlanId::new(100).unwrap(), VlanScope::Network("dc".into()));
        while fabric.step_claims(&store, &mut vlans, &mut work) {}
        assert_eq!(vlans.check(vid, &young, &scope), Err(Some(&old)));
        delete(&mut store, &old);
        work.claim.insert(old);
        vlans.take_requests(&mut work);
        while fabric.step_claims(&store, &mut vlans, &mut work) {}
        assert_eq!((vlans.check(vid, &young, &scope), vlans.is_idle()), (Ok(()), true));
        assert!(work.validate.contains(&young) && work.place.contains(&young));
    }
}
