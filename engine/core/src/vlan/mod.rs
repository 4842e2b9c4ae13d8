//! Which network holds which VLAN ID.

mod ids;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eno_schemas::{Phase, VlanId};

use crate::fabric::Fabric;
use crate::fabric::scopes::or_unplaced;
use crate::spec::Spec;
use crate::store::Store;
use crate::store::record::Record;
use crate::work::Work;
use crate::{Key, Kind, Name};

use ids::Ids;
pub use ids::{Seniority, VlanScope};

/// The VLAN that a spec names, if it is a network's.
pub fn vid_of(spec: &Spec) -> Option<VlanId> {
    spec.service().map(|service| service.vid).or_else(|| spec.bridge_domain().map(|domain| domain.vlan))
}

/// True for the kinds that have a VLAN.
pub fn is_network(key: &Key) -> bool {
    matches!(key.kind, Kind::L2Service | Kind::L2BridgeDomain)
}

/// A claim in a status: the VLAN, the network with its record, and the scopes.
type Claim<'a> = (VlanId, &'a Key, &'a Record, BTreeSet<VlanScope>);

/// The claims of networks on VLAN IDs, and who holds them.
#[derive(Debug, Default)]
pub struct Vlans {
    /// The claims and the holders.
    ids: Ids,
    /// By network: the VLANs that it claims.
    claimed: HashMap<Key, BTreeSet<VlanId>>,
    /// Networks whose claims are to be updated.
    claim_queue: BTreeSet<Key>,
    /// VLAN IDs whose holders are to be decided.
    arbitrate_queue: BTreeSet<VlanId>,
    /// Claims were restored from statuses, once after the start.
    restored: bool,
}

impl Vlans {
    /// `Ok` when `key` holds `vid` in `scope`, else the holder that it conflicts with.
    pub fn check(&self, vid: VlanId, key: &Key, scope: &VlanScope) -> Result<(), Option<&Key>> {
        self.ids.check(vid, key, scope)
    }

    /// The holder of `vid` in `scope`.
    pub fn holder(&self, vid: VlanId, scope: &VlanScope) -> Option<&Key> {
        self.ids.holder(vid, scope)
    }

    /// Takes what other parts requested.
    pub fn take_requests(&mut self, work: &mut Work) {
        self.claim_queue.extend(std::mem::take(&mut work.claim));
        self.arbitrate_queue.extend(std::mem::take(&mut work.arbitrate));
    }

    /// True when nothing is left to be done.
    pub fn is_idle(&self) -> bool {
        self.claim_queue.is_empty() && self.arbitrate_queue.is_empty()
    }

    /// A network is gone: work on it is dropped.
    pub fn drop_work(&mut self, key: &Key) {
        self.claim_queue.remove(key);
    }

    /// Does one piece of work: restores all claims once, updates the claims of one network, or decides the holders of
    /// one VLAN ID. Returns false when there is none.
    pub fn step(&mut self, store: &Store, fabric: &Fabric, work: &mut Work) -> bool {
        if !self.restored {
            self.restored = true;
            self.restore(store, fabric);
        } else if let Some(key) = self.claim_queue.pop_first() {
            self.update_claims(store, fabric, &key);
        } else if let Some(vid) = self.arbitrate_queue.pop_first() {
            for key in self.ids.arbitrate(vid) {
                work.validate.extend(store.referrers(&key).cloned());
                work.place.insert(key.clone());
                work.validate.insert(key);
            }
        } else {
            return false;
        }
        true
    }

    /// Restores VLAN claims before any new decision: first where a VLAN is realised, then where it is requested,
    /// objects in error last.
    fn restore(&mut self, store: &Store, fabric: &Fabric) {
        let mut rounds: [Vec<Claim<'_>>; 4] = Default::default();
        for (key, record) in store.iter().filter(|(key, record)| is_network(key) && !record.generated) {
            let Some(vid) = record.effective.as_deref().and_then(vid_of) else { continue };
            let last = usize::from(record.status.phase == Some(Phase::Error));
            rounds[last].push((vid, key, record, fabric.realised_scopes(store, key)));
            rounds[2 + last].push((vid, key, record, fabric.claimed_scopes(store, key)));
        }
        for claims in rounds {
            let vids: BTreeSet<VlanId> = claims.iter().map(|(vid, ..)| *vid).collect();
            for (vid, key, record, scopes) in claims {
                self.ids.claim(vid, key, record.seniority(), scopes);
                self.claimed.entry(key.clone()).or_default().insert(vid);
            }
            for vid in vids {
                self.ids.arbitrate(vid);
            }
        }
    }

    /// Updates the VLAN claims of a network. A network that is being removed keeps its claims until it is gone.
    fn update_claims(&mut self, store: &Store, fabric: &Fabric, key: &Key) {
        let mut claims: BTreeMap<VlanId, BTreeSet<VlanScope>> = BTreeMap::new();
        let mut seniority = (0, Name::from(""));
        match store.get(key) {
            Some(record) if record.status.phase == Some(Phase::Deleted) => {}
            Some(record) if record.deleting && record.effective.is_none() => {
                let vid = record.status.realized.as_deref().and_then(vid_of);
                claims.extend(vid.map(|vid| (vid, self.ids.scopes(vid, key))));
                seniority = record.seniority();
            }
            Some(record) if !record.generated => {
                seniority = record.seniority();
                if let Some(vid) = record.effective.as_deref().and_then(vid_of) {
                    claims.insert(vid, or_unplaced(fabric.realised_scopes(store, key)));
                }
                // Users of an object that is being deleted may still request it elsewhere.
                let spec = record.wanted().or(record.effective.as_ref());
                if let Some(vid) = spec.and_then(|spec| vid_of(spec)) {
                    // A request adds scopes, and replaces the scope Unplaced.
                    claims.insert(vid, fabric.claimed_scopes(store, key));
                }
            }
            _ => {}
        }
        if let Some((vid, scopes)) = fabric.withheld_scopes(key) {
            claims.entry(vid).or_default().extend(scopes);
        }
        let before = if claims.is_empty() {
            self.claimed.remove(key)
        } else {
            self.claimed.insert(key.clone(), claims.keys().copied().collect())
        };
        for vid in before.into_iter().flatten() {
            claims.entry(vid).or_default();
        }
        for (vid, scopes) in claims {
            if self.ids.claim(vid, key, seniority.clone(), scopes) {
                self.arbitrate_queue.insert(vid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
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
        while vlans.step(&store, &fabric, &mut work) {}
        assert_eq!(vlans.check(vid, &young, &scope), Err(Some(&old)));
        delete(&mut store, &old);
        work.claim.insert(old);
        vlans.take_requests(&mut work);
        while vlans.step(&store, &fabric, &mut work) {}
        assert_eq!((vlans.check(vid, &young, &scope), vlans.is_idle()), (Ok(()), true));
        assert!(work.validate.contains(&young) && work.place.contains(&young));
    }
}
