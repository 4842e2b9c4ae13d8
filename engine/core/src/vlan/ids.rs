//! Arbitration of VLAN IDs: which network holds which ID in which scope.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eno_schemas::VlanId;

use crate::store::record::Seniority;
use crate::{Key, Name};

/// The scope within which a VLAN ID is unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VlanScope {
    /// The network has no location yet. This scope conflicts with every other.
    Unplaced,
    /// A connected component of the fabric, named after its first device.
    Fabric(Name),
    /// A network outside the fabric.
    Network(Name),
    /// A bridge on the nodes of a pool (empty: all nodes).
    Bridge(Name, Name),
}

impl VlanScope {
    /// The text that status messages show.
    pub fn describe(&self) -> String {
        match self {
            Self::Unplaced => "this cluster".into(),
            Self::Fabric(device) => format!("the fabric of FabricDevice {device}"),
            Self::Network(name) => format!("PhysicalNetwork {name}"),
            Self::Bridge(pool, bridge) if pool.is_empty() => format!("bridge {bridge} of all nodes"),
            Self::Bridge(pool, bridge) => format!("bridge {bridge} of NodePool {pool}"),
        }
    }

    fn conflicts(&self, other: &Self) -> bool {
        self == other || matches!(self, Self::Unplaced) || matches!(other, Self::Unplaced)
    }
}

/// All claims on VLAN IDs, and their holders.
#[derive(Debug, Default)]
pub struct Ids {
    vlans: HashMap<VlanId, Vlan>,
}

#[derive(Debug, Default)]
struct Vlan {
    /// By network: its seniority and the scopes that it claims.
    claims: BTreeMap<Key, (Seniority, BTreeSet<VlanScope>)>,
    /// By scope: the holder of the ID there; at most one.
    held: BTreeMap<VlanScope, BTreeSet<Key>>,
}

impl Ids {
    /// Sets the scopes in which `key` claims `vid`; an empty set withdraws the claim. Returns true on a change: the
    /// caller then calls [`Self::arbitrate`].
    pub fn claim(
        &mut self,
        vid: VlanId,
        key: &Key,
        seniority: Seniority,
        scopes: BTreeSet<VlanScope>,
    ) -> bool {
        let vlan = self.vlans.entry(vid).or_default();
        if scopes.is_empty() {
            return vlan.claims.remove(key).is_some();
        }
        let claim = (seniority, scopes);
        if vlan.claims.get(key) == Some(&claim) {
            return false;
        }
        vlan.claims.insert(key.clone(), claim);
        true
    }

    /// Decides the holder of `vid` in each scope. A holder that still claims the ID keeps it. Holders in another
    /// scope come next, since a component may have got another name. All others come by seniority. Returns the keys
    /// whose grant changed, and all that are refused.
    pub fn arbitrate(&mut self, vid: VlanId) -> BTreeSet<Key> {
        let Some(vlan) = self.vlans.get_mut(&vid) else { return BTreeSet::new() };
        let before = std::mem::take(&mut vlan.held);
        // A holder without a location keeps the ID wherever it turns up, and vice versa.
        let holders: BTreeSet<&Key> = before.values().flatten().collect();
        let holds_at =
            |scope: &VlanScope, key: &Key| before.get(scope).is_some_and(|keys| keys.contains(key));
        let held_before = |scope: &VlanScope, key: &Key| match scope {
            VlanScope::Unplaced => holders.contains(key),
            _ => holds_at(scope, key) || holds_at(&VlanScope::Unplaced, key),
        };
        let mut order: Vec<(bool, bool, bool, &Seniority, &Key, &VlanScope)> = Vec::new();
        for (key, (seniority, scopes)) in &vlan.claims {
            for scope in scopes {
                let holds = held_before(scope, key);
                let nowhere = holds && *scope == VlanScope::Unplaced;
                order.push((!holds, !holders.contains(key), nowhere, seniority, key, scope));
            }
        }
        order.sort();
        let mut held: BTreeMap<VlanScope, BTreeSet<Key>> = BTreeMap::new();
        let mut changed: BTreeSet<Key> = BTreeSet::new();
        for (new, .., key, scope) in order {
            let taken =
                held.iter().any(|(other, keys)| scope.conflicts(other) && keys.iter().any(|k| k != key));
            if !taken {
                held.entry(scope.clone()).or_default().insert(key.clone());
            }
            // A refused key is always returned, since the holder in its message may have changed.
            if taken || new {
                changed.insert(key.clone());
            }
        }
        vlan.held = held;
        if vlan.claims.is_empty() {
            self.vlans.remove(&vid);
        }
        changed
    }

    /// The scopes in which `key` claims `vid`.
    pub fn scopes(&self, vid: VlanId, key: &Key) -> BTreeSet<VlanScope> {
        let claim = self.vlans.get(&vid).and_then(|vlan| vlan.claims.get(key));
        claim.map(|(_, scopes)| scopes.clone()).unwrap_or_default()
    }

    /// The holder of `vid` in `scope`.
    pub fn holder(&self, vid: VlanId, scope: &VlanScope) -> Option<&Key> {
        self.vlans.get(&vid)?.held.get(scope)?.first()
    }

    /// `Ok` when `key` holds `vid` in `scope`, else the holder that it conflicts with.
    pub fn check(&self, vid: VlanId, key: &Key, scope: &VlanScope) -> Result<(), Option<&Key>> {
        let Some(vlan) = self.vlans.get(&vid) else { return Err(None) };
        if vlan.held.get(scope).is_some_and(|keys| keys.contains(key)) {
            return Ok(());
        }
        let holders = vlan.held.iter().filter(|(other, _)| scope.conflicts(other)).flat_map(|(_, keys)| keys);
        Err(holders.into_iter().find(|holder| *holder != key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn key(name: &str) -> Key {
        Key::cluster(Kind::L2Service, &name.into())
    }

    fn at(scopes: &[&str]) -> BTreeSet<VlanScope> {
        scopes.iter().map(|name| VlanScope::Fabric((*name).into())).collect()
    }

    #[test]
    fn arbitrate_keeps_the_holder_until_it_withdraws() {
        let vid = VlanId::new(100).unwrap();
        let fabric = VlanScope::Fabric("f".into());
        let mut ids = Ids::default();
        ids.claim(vid, &key("young"), (20, "u2".into()), at(&["f"]));
        ids.arbitrate(vid);
        ids.claim(vid, &key("old"), (10, "u1".into()), at(&["f"]));
        ids.claim(vid, &key("middle"), (15, "u3".into()), at(&["f"]));
        ids.arbitrate(vid);
        assert_eq!(ids.check(vid, &key("young"), &fabric), Ok(()));
        assert_eq!(ids.check(vid, &key("old"), &fabric), Err(Some(&key("young"))));
        ids.claim(vid, &key("young"), (20, "u2".into()), BTreeSet::new());
        assert!(ids.arbitrate(vid).contains(&key("old")));
        assert_eq!(ids.check(vid, &key("old"), &fabric), Ok(()));
        assert_eq!(ids.check(vid, &key("middle"), &fabric), Err(Some(&key("old"))));
    }

    #[test]
    fn arbitrate_separates_fabrics_but_not_unplaced_claims() {
        let vid = VlanId::new(7).unwrap();
        let mut ids = Ids::default();
        ids.claim(vid, &key("a"), (1, "a".into()), at(&["x"]));
        ids.claim(vid, &key("b"), (2, "b".into()), at(&["y"]));
        ids.claim(vid, &key("c"), (0, "c".into()), BTreeSet::from([VlanScope::Unplaced]));
        ids.arbitrate(vid);
        assert_eq!(ids.check(vid, &key("c"), &VlanScope::Unplaced), Ok(()));
        assert!(ids.check(vid, &key("a"), &VlanScope::Fabric("x".into())).is_err());
        ids.claim(vid, &key("c"), (0, "c".into()), at(&["z"]));
        ids.arbitrate(vid);
        for (name, scope) in [("a", "x"), ("b", "y"), ("c", "z")] {
            assert_eq!(ids.check(vid, &key(name), &VlanScope::Fabric(scope.into())), Ok(()), "{name}");
        }
    }
}
