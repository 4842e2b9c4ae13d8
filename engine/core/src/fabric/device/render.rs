//! The desired state of a switch. The last one is kept: the next one shares every block of 16 VLANs without a changed one,
//! and costs what changed. Switches with the same VLANs share their blocks.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{Desired, FabricDesired, FabricPort, FabricVlan, PortMode, Tree, VlanId, VlanSet};

use super::{DeviceTarget, leaving_name};
use crate::event::Config;
use crate::fabric::changes::{Owners, Place};
use crate::fabric::topology::Indices;

/// A desired state of a switch, and the hashes of its parts.
#[derive(Clone, Debug)]
pub struct SwitchState {
    /// Of a switch: [`Self::new`] makes no other.
    desired: Arc<Desired>,
    tree: Arc<Tree>,
}

impl SwitchState {
    fn new(desired: FabricDesired) -> Self {
        let tree = Arc::new(Tree::of(&desired));
        Self { desired: Arc::new(Desired::Fabric(desired)), tree }
    }

    /// The state `desired`. Only parts in which it differs from this state are hashed.
    fn changed_to(&self, desired: FabricDesired) -> Self {
        let Some(before) = self.fabric() else { return Self::new(desired) };
        let tree = self.tree.updated(before, &desired);
        if tree.root() == self.tree.root() {
            return self.clone();
        }
        Self { desired: Arc::new(Desired::Fabric(desired)), tree: Arc::new(tree) }
    }

    /// The state itself.
    pub fn desired(&self) -> &Arc<Desired> {
        &self.desired
    }

    /// The hashes of its parts.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The state itself, which always is of a switch.
    pub(super) fn fabric(&self) -> Option<&FabricDesired> {
        match &*self.desired {
            Desired::Fabric(desired) => Some(desired),
            Desired::Nad(_) | Desired::Node(_) | Desired::Speaker(_) => None,
        }
    }
}

/// By key, the block of 16 VLANs that was rendered last for any switch. Most networks are on many switches.
#[derive(Debug, Default)]
pub struct SharedBlocks(RefCell<HashMap<u8, Arc<[FabricVlan]>>>);

impl SharedBlocks {
    /// The block with these VLANs.
    fn share(&self, key: u8, vlans: Vec<FabricVlan>) -> Arc<[FabricVlan]> {
        // No other switch has these.
        if vlans.iter().any(|vlan| vlan.routed.is_some()) {
            return vlans.into();
        }
        let mut blocks = self.0.borrow_mut();
        if let Some(block) = blocks.get(&key).filter(|block| ***block == *vlans) {
            return block.clone();
        }
        let block: Arc<[FabricVlan]> = vlans.into();
        blocks.insert(key, block.clone());
        block
    }
}

/// The last rendered state, and what changed since.
#[derive(Debug, Default)]
pub(super) struct Rendering {
    /// The state with all that was wanted. `None`: all has to be rendered.
    last: Option<SwitchState>,
    /// The VLANs that changed since.
    pub(super) changed: VlanSet,
    /// Something that is not per VLAN changed since.
    pub(super) switch_changed: bool,
}

impl Rendering {
    /// True when the present state is this one.
    pub(super) fn is_of(&self, state: &FabricDesired) -> bool {
        let is_current = self.changed.is_empty() && !self.switch_changed;
        is_current && self.last.as_ref().and_then(SwitchState::fabric) == Some(state)
    }
}

impl DeviceTarget {
    /// Renders what changed since the last call, for [`Self::render`] to share.
    pub fn refresh(&mut self, config: &Config, blocks: &SharedBlocks) {
        let last = Some(self.render(config, blocks, &VlanSet::EMPTY));
        self.rendering = Rendering { last, ..Rendering::default() };
    }

    /// The complete desired state, except that the VLANs `without` are as last confirmed.
    pub fn render(&self, config: &Config, blocks: &SharedBlocks, without: &VlanSet) -> SwitchState {
        let Rendering { last, changed, switch_changed } = &self.rendering;
        let changed = changed.union(without);
        match last {
            Some(last) if changed.is_empty() && !switch_changed => last.clone(),
            Some(last) => last.changed_to(self.compose(config, blocks, last.fabric(), &changed, without)),
            None => {
                let all = without.union(&self.wanted.keys().copied().collect());
                SwitchState::new(self.compose(config, blocks, None, &all, without))
            }
        }
    }

    /// [`Self::render`], with all but the VLANs `changed` from the state `before`. The ports are the same there.
    fn compose(
        &self,
        config: &Config,
        blocks: &SharedBlocks,
        before: Option<&FabricDesired>,
        changed: &VlanSet,
        without: &VlanSet,
    ) -> FabricDesired {
        let owners = |vid: VlanId| {
            let owners = if without.contains(vid) {
                Cow::Owned(self.changes.confirmed_owners(vid, self.wanted.get(&vid)))
            } else {
                Cow::Borrowed(self.wanted.get(&vid)?)
            };
            // A router has nothing of a VLAN but its interface in a VRF. That of a former leader may be unknown.
            let is_led = self.access.role.is_switch() || owners.routed().is_some();
            Some(owners).filter(|owners| !owners.is_empty() && is_led)
        };
        let mut vlans = before.map(|before| before.vlans.clone()).unwrap_or_default();
        for block in changed.iter().map(VlanId::block).collect::<BTreeSet<u8>>() {
            let vids = (0..16).filter_map(|low| VlanId::new(u16::from(block) << 4 | low).ok());
            let names = |owners: &Owners| owners.networks().map(ToString::to_string).collect();
            let wanted = vids.filter_map(|vid| {
                let owners = owners(vid)?;
                Some(FabricVlan { routed: owners.routed().cloned(), ..FabricVlan::new(vid, names(&owners)) })
            });
            vlans.set_block(block, blocks.share(block, wanted.collect()));
        }
        let placed: Vec<(VlanId, Cow<'_, Owners>)> =
            changed.iter().filter_map(|vid| Some((vid, owners(vid)?))).collect();
        let carried = self.carried(placed.iter().map(|(vid, owners)| (*vid, &**owners)));
        let former = before.into_iter().flat_map(|before| &before.ports);
        let former: HashMap<&str, &VlanSet> = former.map(|port| (port.name.as_str(), &port.vlans)).collect();
        let ports = self.ports.iter().zip(carried).map(|(port, carries)| {
            let vlans = match former.get(port.name.as_str()) {
                Some(former) => former.difference(changed).union(&carries),
                None => carries,
            };
            FabricPort { vlans, ..port.clone() }
        });
        let leaving = self.leaving.iter().map(|(interface, leaving)| FabricPort {
            name: leaving_name(interface),
            lag: Some(interface.clone()),
            mode: PortMode::Keep,
            vlans: VlanSet::EMPTY,
            closed: false,
            before: leaving.before.clone(),
        });
        let mut ports: Vec<FabricPort> = ports.chain(leaving).collect();
        ports.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        FabricDesired {
            cluster: config.cluster.clone(),
            cluster_uid: config.cluster_uid.clone(),
            device: self.access.clone(),
            vrfs: self.vrfs.rendered(&vlans),
            vlans,
            ports,
            lookup: self.lookup.revision.clone(),
        }
    }

    /// The VLANs on each port where these networks want them.
    pub(super) fn carried<'a>(&self, placed: impl Iterator<Item = (VlanId, &'a Owners)>) -> Vec<VlanSet> {
        // Networks with the same endpoints share one list of ports, and most are like the one before.
        let mut places: HashMap<*const u16, usize> = HashMap::new();
        let mut alike: Vec<(&Indices, VlanSet)> = Vec::new();
        let mut last = 0;
        for (vid, owners) in placed {
            for Place { ports: indices, .. } in owners.values() {
                let is_last = |(same, _): &(&Indices, VlanSet)| same.as_ptr() == indices.as_ptr();
                if !alike.get(last).is_some_and(is_last) {
                    last = *places.entry(indices.as_ptr()).or_insert(alike.len());
                    if last == alike.len() {
                        alike.push((indices, VlanSet::EMPTY));
                    }
                }
                alike[last].1.insert(vid);
            }
        }
        let mut carried = vec![VlanSet::EMPTY; self.ports.len()];
        for (indices, vids) in &alike {
            for index in indices.iter() {
                let carries = &mut carried[usize::from(*index)];
                *carries = carries.union(vids);
            }
        }
        carried
    }
}

#[cfg(test)]
mod tests {
    use eno_schemas::{Device, DeviceRole};
    use proptest::prelude::*;

    use super::*;
    use crate::kinds::DeviceSpec;
    use crate::status::PortMemory;
    use crate::store::fixture::config;
    use crate::{Key, Kind, Name};

    const PORTS: u16 = 3;

    fn target() -> DeviceTarget {
        let spec = DeviceSpec { driver: "netconf".into(), device: Device::new("x:830"), ports: Vec::new() };
        let ports: Vec<Name> = (0..PORTS).map(|port| format!("e{port}").into()).collect();
        DeviceTarget::new(&spec, &ports, &PortMemory::default(), 0)
    }

    fn vid(vid: u16) -> VlanId {
        VlanId::new(vid).unwrap()
    }

    fn want(target: &mut DeviceTarget, (id, network): (u16, u8), ports: &[u16], count: u64) {
        let network = Key::cluster(Kind::L2Service, &format!("s{network}").into());
        let place = Place { ports: ports.into(), routed: None };
        target.want(vid(id), &network, &place, count);
    }

    fn blocks_of(state: &SwitchState) -> Vec<Arc<[FabricVlan]>> {
        let vlans = &state.fabric().unwrap().vlans;
        (0..=u8::MAX).filter_map(|block| vlans.block(block).cloned()).collect()
    }

    /// The number of blocks of a state that are not shared with a former state.
    fn own_blocks(state: &SwitchState, former: &SwitchState) -> usize {
        let former = blocks_of(former);
        blocks_of(state).iter().filter(|own| !former.iter().any(|block| Arc::ptr_eq(block, own))).count()
    }

    #[test]
    fn change_of_one_vlan_renders_one_block_however_many_there_are() {
        for there in [100, 1_000, 4_000] {
            let (mut target, blocks) = (target(), SharedBlocks::default());
            (1..=there).for_each(|id| want(&mut target, (id, 0), &[0, 1], 1));
            target.refresh(&config(), &blocks);
            let before = target.render(&config(), &blocks, &VlanSet::EMPTY);
            want(&mut target, (there + 1, 0), &[1, 2], 2);
            let after = target.render(&config(), &blocks, &VlanSet::EMPTY);
            assert_eq!(own_blocks(&after, &before), 1, "of {there}");
            let (new, old) = after.tree().difference(before.tree());
            assert!(new.len() <= 3 && old.len() <= 3, "root, group and block: {new:?} for {old:?}");
            // A state that leaves a change out shares all other blocks.
            target.refresh(&config(), &blocks);
            let without: VlanSet = [vid(there + 1)].into_iter().collect();
            let partial = target.render(&config(), &blocks, &without);
            assert!(own_blocks(&partial, &target.render(&config(), &blocks, &VlanSet::EMPTY)) <= 1);
            assert_eq!(partial.tree(), before.tree(), "nothing of the VLAN was confirmed");
        }
    }

    /// The interface that a former leader made may be unknown, so what is confirmed may have ports only.
    #[test]
    fn router_has_no_vlan_without_its_interface() {
        for (role, vlans) in [(DeviceRole::Router, 0), (DeviceRole::Switch, 1)] {
            let mut target = target();
            target.access.role = role;
            want(&mut target, (110, 0), &[0], 1);
            let state = target.render(&config(), &SharedBlocks::default(), &VlanSet::EMPTY);
            let fabric = state.fabric().unwrap();
            let carried = fabric.ports.iter().map(|port| port.vlans.len()).sum::<usize>();
            assert_eq!((fabric.vlans.iter().count(), carried), (vlans, vlans), "{role:?}");
        }
    }

    #[test]
    fn state_without_a_change_is_shared() {
        let (mut target, blocks) = (target(), SharedBlocks::default());
        want(&mut target, (100, 0), &[0], 1);
        target.refresh(&config(), &blocks);
        let before = target.render(&config(), &blocks, &VlanSet::EMPTY);
        want(&mut target, (100, 0), &[1], 2);
        want(&mut target, (100, 0), &[0], 2);
        for _ in 0..2 {
            target.refresh(&config(), &blocks);
            assert!(Arc::ptr_eq(
                target.render(&config(), &blocks, &VlanSet::EMPTY).desired(),
                before.desired()
            ));
        }
    }

    #[test]
    fn switches_with_the_same_vlans_share_their_blocks() {
        let blocks = SharedBlocks::default();
        let states = [[0], [1]].map(|ports| {
            let mut target = target();
            (1..=100).for_each(|id| want(&mut target, (id, 0), &ports, 1));
            target.refresh(&config(), &blocks);
            target.render(&config(), &blocks, &VlanSet::EMPTY)
        });
        assert_ne!(states[0].tree(), states[1].tree(), "the ports differ");
        assert_eq!(own_blocks(&states[0], &states[1]), 0);
    }

    proptest! {
        /// A state that shares what did not change is the one that is rendered at once, with its own hashes.
        #[test]
        fn shared_states_are_complete(
            steps in prop::collection::vec(
                (prop_oneof![1u16..40, 4080u16..=4094], 0u8..3, prop::collection::btree_set(0..PORTS, 0..3),
                 prop::collection::vec(prop_oneof![1u16..40, 4080u16..=4094], 0..4), any::<[bool; 3]>()),
                1..30,
            ),
        ) {
            let (mut target, blocks) = (target(), SharedBlocks::default());
            for (count, (id, network, ports, without, [refresh, confirm, audit])) in (1u64..).zip(steps) {
                want(&mut target, (id, network), &ports.into_iter().collect::<Vec<_>>(), count);
                if audit {
                    target.set_audit_interval(std::num::NonZeroU32::new(u32::from(id)));
                }
                if refresh {
                    target.refresh(&config(), &blocks);
                }
                let without: VlanSet = without.into_iter().map(vid).collect();
                let state = target.render(&config(), &blocks, &without);
                let all = without.union(&target.wanted.keys().copied().collect());
                let at_once = target.compose(&config(), &SharedBlocks::default(), None, &all, &without);
                prop_assert_eq!(state.fabric(), Some(&at_once));
                prop_assert_eq!(&**state.tree(), &Tree::of(&at_once));
                if confirm {
                    target.changes.record_issued("a", count, without);
                    let extent = target.changes.extent("a").unwrap();
                    target.confirm(&extent);
                }
            }
        }
    }
}
