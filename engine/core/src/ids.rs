//! Who may use which VLAN ID where.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eno_schemas::VlanId;

use crate::{Key, Name};

/// Where a VLAN ID is unique.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VlanScope {
    /// A network that is nowhere yet: it stands in the way of everyone with the same ID, and they in its.
    Unplaced,
    /// A connected part of the fabric, called after its first device.
    Fabric(Name),
    /// A network outside the fabric.
    Network(Name),
    /// A bridge on the nodes of a pool (empty: all nodes).
    Bridge(Name, Name),
}

impl VlanScope {
    /// As messages name it.
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

/// Who comes first among those who hold nothing: the older, then the lower uid.
pub type Seniority = (i64, Name);

/// What everybody claims and holds.
#[derive(Debug, Default)]
pub struct Ids {
    vlans: HashMap<VlanId, Vlan>,
}

#[derive(Debug, Default)]
struct Vlan {
    claims: BTreeMap<Key, (Seniority, BTreeSet<VlanScope>)>,
    held: BTreeMap<VlanScope, BTreeSet<Key>>,
}

impl Ids {
    /// Says what `key` claims of `vid`; an empty set withdraws. True when that is new: then [`Self::arbitrate`].
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

    /// Decides who holds `vid` where: who holds it and still claims it keeps it, who holds it elsewhere comes next
    /// (a part of the fabric may have got another name), the rest goes by seniority.
    /// Returns those for whom something changed, and those who are still refused.
    pub fn arbitrate(&mut self, vid: VlanId) -> BTreeSet<Key> {
        let Some(vlan) = self.vlans.get_mut(&vid) else { return BTreeSet::new() };
        let before = std::mem::take(&mut vlan.held);
        // Who held it without being anywhere holds it wherever it turns up, and the other way round.
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
            // Those who are refused hear of each decision, since the holder that their message names may change.
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

    /// What `key` claims of `vid`.
    pub fn scopes(&self, vid: VlanId, key: &Key) -> BTreeSet<VlanScope> {
        let claim = self.vlans.get(&vid).and_then(|vlan| vlan.claims.get(key));
        claim.map(|(_, scopes)| scopes.clone()).unwrap_or_default()
    }

    /// Who holds `vid` at `place`.
    pub fn holder(&self, vid: VlanId, scope: &VlanScope) -> Option<&Key> {
        self.vlans.get(&vid)?.held.get(scope)?.first()
    }

    /// `Ok` when `key` holds `vid` at `place`, else who stands in the way.
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
    fn the_holder_keeps_it_and_the_next_gets_it() {
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
    fn separate_parts_do_not_meet_but_who_is_nowhere_meets_all() {
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
