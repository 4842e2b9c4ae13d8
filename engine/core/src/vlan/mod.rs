//! Which network holds which VLAN ID. [`crate::fabric`] knows in which scopes a network claims one.

mod ids;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eno_schemas::VlanId;

use crate::Key;
use crate::kinds::Spec;
use crate::store::Store;
use crate::store::record::Seniority;
use crate::work::Work;

use ids::Ids;
pub use ids::VlanScope;

/// The VLAN that a spec names, if it is a network's.
pub fn vid_of(spec: &Spec) -> Option<VlanId> {
    spec.service().map(|service| service.vid).or_else(|| spec.bridge_domain().map(|domain| domain.vlan))
}

/// A claim in a status: the VLAN, the network with its seniority, and the scopes.
pub type Claim<'a> = (VlanId, &'a Key, Seniority, BTreeSet<VlanScope>);

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

    /// True once: the claims are to be restored from statuses.
    pub fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.restored, true)
    }

    /// Takes the next network whose claims are to be updated out of the queue.
    pub fn pop_claim(&mut self) -> Option<Key> {
        self.claim_queue.pop_first()
    }

    /// Decides the holders of one VLAN ID. Returns false when there is none.
    pub fn step(&mut self, store: &Store, work: &mut Work) -> bool {
        let Some(vid) = self.arbitrate_queue.pop_first() else { return false };
        for key in self.ids.arbitrate(vid) {
            work.validate.extend(store.referrers(&key).cloned());
            work.place.insert(key.clone());
            work.validate.insert(key);
        }
        true
    }

    /// The scopes in which a network claims a VLAN.
    pub fn scopes(&self, vid: VlanId, key: &Key) -> BTreeSet<VlanScope> {
        self.ids.scopes(vid, key)
    }

    /// Adds claims from statuses, and decides their holders at once.
    pub fn restore(&mut self, claims: Vec<Claim<'_>>) {
        let vids: BTreeSet<VlanId> = claims.iter().map(|(vid, ..)| *vid).collect();
        for (vid, key, seniority, scopes) in claims {
            self.ids.claim(vid, key, seniority, scopes);
            self.claimed.entry(key.clone()).or_default().insert(vid);
        }
        for vid in vids {
            self.ids.arbitrate(vid);
        }
    }

    /// Replaces the claims of a network.
    pub fn claim(
        &mut self,
        key: &Key,
        seniority: &Seniority,
        mut claims: BTreeMap<VlanId, BTreeSet<VlanScope>>,
    ) {
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
