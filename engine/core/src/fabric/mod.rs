//! The switches: their graph, the placement of networks on them, and their transactions.

mod changes;
pub mod device;
mod devices;
mod gap;
pub mod locate;
mod lookups;
pub mod network;
pub mod placement;
mod planner;
mod rejection;
pub mod scopes;
pub mod topology;
pub mod transaction;
pub mod vrfs;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{Applied, Desired, FabricDesired, Outcome, Phase, Report, VlanId, VlanSet};

use crate::kinds::BridgeDomainSpec;
use crate::store::Store;
use crate::vlan::Vlans;
use crate::work::Work;
use crate::{Config, Key, Kind, Name, Target};

use device::{DeviceTarget, SharedBlocks, SwitchState};
use lookups::LookupQueue;
use network::{Counted, Network, Point};
use placement::Placements;
use topology::{Ports, Topology};

/// A desired state of a switch that is issued.
#[derive(Debug)]
pub struct IssuedState {
    /// The driver of the switch.
    pub driver: Name,
    /// The state.
    pub state: SwitchState,
    /// The hash of the state.
    pub hash: String,
    /// No other state was known to be on the switch, and this one is.
    pub is_first: bool,
}

/// The switches and the networks on them.
#[derive(Debug, Default)]
pub struct Fabric {
    /// The graph of the switches.
    topology: Topology,
    /// A FabricDevice changed: `topology` is built anew.
    topology_dirty: bool,
    /// A FabricDevice exists that is not being deleted.
    has_devices: bool,
    /// The ConnectionPoints as the fabric sees them.
    points: HashMap<Name, Point>,
    /// The switch ports between endpoints. Cleared when `points` or `topology` change.
    path_cache: RefCell<HashMap<planner::Endpoints, Arc<Ports>>>,
    /// The hashes of the ports in `path_cache`, by their place. They stay there while they are in it.
    hash_cache: RefCell<HashMap<usize, (Arc<Ports>, u64)>>,
    /// Where each L2Service and hand-written L2BridgeDomain is used.
    networks: HashMap<Key, Network>,
    /// By L2ServiceAttachment and L2BridgeDomain: what of it is counted in `networks`.
    counted: HashMap<Key, Counted>,
    /// Where each of them is on switches.
    pub placements: Placements,
    /// By L2Service: the L2BridgeDomain that the engine has written for it.
    bridge_domains: HashMap<Name, BridgeDomainSpec>,
    /// The switches.
    devices: BTreeMap<Name, DeviceTarget>,
    /// Shared by what they are commanded.
    blocks: SharedBlocks,
    /// Those whose last change took much longer than that of the others. Emptied by what may change them.
    slow: OnceCell<BTreeSet<Name>>,
    /// Orders the changes of all switches; grows with each state that is handed out ([`changes`]).
    change_count: u64,
    /// The BGP sessions of each object.
    sessions: BTreeMap<Key, vrfs::Sessions>,
    /// The live drivers that can make no VRFs.
    without_vrfs: BTreeSet<Name>,
    /// The live drivers that can make no BGP sessions.
    without_bgp: BTreeSet<Name>,
    /// The live drivers that know no neighbours by a network.
    without_dynamic_neighbours: BTreeSet<Name>,
    /// The drivers that answer lookups.
    with_lookups: BTreeSet<Name>,
    /// The switches that may have to be asked anew for the ports of probes.
    lookup_queue: LookupQueue,
    /// Networks to be placed on switch ports, and VRFs to be placed on devices.
    queue: BTreeSet<Key>,
}

impl Fabric {
    /// The graph of the switches.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// A switch.
    pub fn device(&self, name: &Name) -> Option<&DeviceTarget> {
        self.devices.get(name)
    }

    /// A switch, with its name.
    pub fn named_device(&self, name: &Name) -> Option<(&Name, &DeviceTarget)> {
        self.devices.get_key_value(name)
    }

    /// Takes what other parts requested.
    pub fn take_requests(&mut self, work: &mut Work) {
        self.queue.extend(std::mem::take(&mut work.place));
        self.lookup_queue.nodes.append(&mut work.lookup);
    }

    /// True when nothing is left to be done.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.topology_dirty && self.lookup_queue.is_empty()
    }

    /// A network is gone: work on it is dropped.
    fn drop_work(&mut self, key: &Key) {
        self.queue.remove(key);
    }

    /// Builds the topology anew if a FabricDevice changed. Returns false when none did.
    pub fn step_topology(&mut self, store: &Store, work: &mut Work) -> bool {
        let dirty = std::mem::take(&mut self.topology_dirty);
        if dirty {
            self.rebuild_topology(store, work);
        }
        dirty
    }

    /// Places one network. Returns false when there is none to be placed.
    pub fn step(&mut self, config: &Config, store: &Store, vlan: &Vlans, work: &mut Work) -> bool {
        let Some(key) = self.queue.pop_first() else { return false };
        if key.kind == Kind::VRF {
            self.place_vrf(store, &key, work);
            return true;
        }
        self.place(config, store, vlan, &key, work);
        true
    }

    /// Restores the command of a former leader for a switch, with its hash. Adds the networks in it with their VLANs to
    /// `had`. Returns false when the switch does not exist any more.
    pub fn restore_command(
        &mut self,
        store: &Store,
        name: &Name,
        (former, hash): &(FabricDesired, String),
        had: &mut BTreeSet<(Key, VlanId)>,
    ) -> bool {
        let Some(device) = self.devices.get_mut(name) else { return false };
        for network in device.restore_command(former, hash, had) {
            if self.placements.planned(&network).is_none_or(|(_, ports)| !ports.contains_key(name)) {
                self.note_left(store, &network, name);
            }
        }
        true
    }

    /// An object is gone.
    pub fn remove_object(&mut self, key: &Key, work: &mut Work) {
        self.drop_work(key);
        self.placements.forget_left(key);
        match key.kind {
            Kind::FabricDevice => self.remove_device(&key.name, work),
            Kind::ConnectionPoint => self.remove_point(&key.name),
            Kind::L2BridgeDomain => self.bridge_domain_gone(&key.name, work),
            _ => {}
        }
    }

    /// Restores what the statuses and the commands of a former leader (`had`: their networks and VLANs) tell of
    /// placements, and registers the present desired states, since reports on them may be there already. `former`: the
    /// commands, with their hashes.
    pub fn start(
        &mut self,
        config: &Config,
        store: &Store,
        former: &[(Name, (FabricDesired, String))],
        had: BTreeSet<(Key, VlanId)>,
        work: &mut Work,
    ) {
        self.restore_vlan_changes(store, had);
        self.restore_rejections(config, store, work);
        for device in self.devices.values_mut() {
            device.begin(config, &self.blocks, self.change_count);
        }
        for (name, (desired, hash)) in former {
            if let Some(device) = self.devices.get_mut(name) {
                device.begin_with_hash(desired, hash, self.change_count);
            }
        }
        self.change_count += 1;
    }

    /// The objects that were being deleted wait for these switches ([`may_remove`]), also those that were still in use. What
    /// else is deleted later waits for those on its path.
    pub fn restore_removals(&mut self, store: &Store, devices: &BTreeSet<Name>) -> BTreeSet<Key> {
        let going = store.iter().filter(|(key, record)| {
            !devices.is_empty()
                && (key.kind.leads_over_networks() || key.kind == Kind::VRF)
                && record.status.phase == Some(Phase::Terminating)
        });
        let going: BTreeSet<Key> = going.map(|(key, _)| key.clone()).collect();
        for key in &going {
            self.placements.note_left(key, devices.iter().cloned());
        }
        going
    }

    /// The driver and the desired state of a switch. `alive`: the drivers that are alive.
    pub fn desired(
        &self,
        config: &Config,
        alive: &BTreeSet<Name>,
        name: &Name,
    ) -> Option<(Name, Arc<Desired>)> {
        let device = self.devices.get(name)?;
        let state = device.render(config, &self.blocks, &self.undecided_vlans(alive, name));
        Some((device.driver.clone(), state.desired().clone()))
    }

    /// The desired state of a switch, which is issued now. A state that the switch has already reported is confirmed at
    /// once. `None`: there is no such switch.
    pub fn issue(
        &mut self,
        config: &Config,
        store: &Store,
        alive: &BTreeSet<Name>,
        name: &Name,
        work: &mut Work,
    ) -> Option<IssuedState> {
        let undecided = self.undecided_vlans(alive, name);
        let device = self.devices.get_mut(name)?;
        device.refresh(config, &self.blocks);
        let state = device.render(config, &self.blocks, &undecided);
        let hash = state.tree().root().to_string();
        let (was_known, vrfs) = (device.is_known(), device.vrf_facts());
        let confirmed = device.record_issued(&hash, self.change_count, undecided);
        device.evaluate_changed_vrfs(vrfs.as_ref(), work);
        let driver = device.driver.clone();
        self.change_count += 1;
        let is_first = device.is_known() != was_known;
        if is_first || confirmed.is_some() {
            work.evaluate.insert(Key::cluster(Kind::FabricDevice, name));
        }
        store.evaluate_networks(confirmed.unwrap_or_default(), work);
        Some(IssuedState { driver, state, hash, is_first })
    }

    /// Processes the report of a switch.
    pub fn report(&mut self, store: &Store, vlan: &Vlans, name: &Name, report: Report, work: &mut Work) {
        self.retry_after_report(name, &report, work);
        self.assign_orphan_vlans(vlan, name, &report);
        let Some(device) = self.devices.get_mut(name) else { return };
        self.slow.take();
        let (known, was_plain) = (device.is_known(), device.is_plain());
        let vrfs = device.vrf_facts();
        let effects = device.report(report);
        device.evaluate_changed_vrfs(vrfs.as_ref(), work);
        let only_confirms = was_plain && device.is_plain() && self.placements.all_settled();
        let first = !known && device.is_known();
        if effects.port_memory_changed {
            work.publish.insert(Target::Fabric(name.clone()));
        }
        self.adopt_confirmed(name, &effects);
        if effects.found_initial_state {
            self.refresh_withheld(store, work);
        }
        self.handle_confirmed(store, name, &effects.networks, first, work);
        self.publish_partial(work);
        work.evaluate.insert(Key::cluster(Kind::FabricDevice, name));
        if only_confirms && self.placements.all_settled() {
            store.evaluate_confirmed(name, effects.networks, work);
        } else {
            store.evaluate_networks(effects.networks, work);
        }
    }

    /// These drivers appeared or disappeared.
    pub fn drivers_changed(&mut self, store: &Store, changed: &BTreeSet<Name>, work: &mut Work) {
        let mut networks = BTreeSet::new();
        for (name, device) in self.devices.iter().filter(|(_, device)| changed.contains(&device.driver)) {
            work.evaluate.insert(Key::cluster(Kind::FabricDevice, name));
            self.lookup_queue.devices.insert(name.clone());
            networks.append(&mut device.networks());
        }
        store.evaluate_networks(networks, work);
        self.publish_partial(work);
    }

    /// The clocks of drivers differ from the engine's in another way than before.
    pub fn skews_changed(&self, before: &BTreeMap<Name, Name>, now: &BTreeMap<Name, Name>, work: &mut Work) {
        let devices = self.devices.iter().filter(|(_, device)| {
            let driver = &device.driver;
            before.get(driver) != now.get(driver)
        });
        work.evaluate.extend(devices.map(|(name, _)| Key::cluster(Kind::FabricDevice, name)));
    }
}

/// True when a device may have VLANs, VRFs or routed interfaces that its last command removes: there is no report, it is
/// on another command, it is a failure, or the device may still roll the removal back. `hash`: that of the command.
pub fn may_remove((command, hash): &(FabricDesired, String), report: Option<&Report>) -> bool {
    let Some(report) = report else { return true };
    if report.generation.hash == *hash && report.outcome == Outcome::Applied {
        return false;
    }
    if report.outcome == Outcome::Held {
        return true;
    }
    let Some(Applied::Fabric { vlans, ports, vrfs, routed, .. }) = &report.applied else { return true };
    let commanded = command.vlans.vids();
    let carries = |name: &str| command.ports.iter().find(|port| port.name == name).map(|port| &port.vlans);
    let is_routed = |vid: VlanId| command.vlans.get(vid).is_some_and(|vlan| vlan.routed.is_some());
    !vlans.is_subset(&commanded)
        || !routed.iter().all(is_routed)
        || !vrfs.iter().all(|name| command.vrfs.iter().any(|vrf| vrf.name == *name))
        || ports.iter().any(|(name, vlans)| !vlans.is_subset(carries(name).unwrap_or(&VlanSet::EMPTY)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::fixture::{config, key, store, switch};

    #[test]
    fn network_is_placed_on_the_ports_of_its_physical_network() {
        let store = store([
            (Kind::PhysicalNetwork, "dc", json!({})),
            (Kind::FabricDevice, "leaf1", switch("dc")),
            (Kind::L2Service, "s", json!({ "SegmentationID": 100, "PhysicalNW": ["dc"] })),
        ]);
        let service = key(Kind::L2Service, "s");
        let (mut fabric, mut vlan, mut work) = (Fabric::default(), Vlans::default(), Work::default());
        fabric.touch_topology();
        assert!(fabric.step_topology(&store, &mut work) && !fabric.step_topology(&store, &mut work));
        assert!(work.place.contains(&service), "the topology changed");
        while fabric.step_claims(&store, &mut vlan, &mut work) {}
        fabric.take_requests(&mut work);
        work = Work::default();
        while fabric.step(&config(), &store, &vlan, &mut work) {}
        let (vid, ports) = fabric.placements.planned(&service).expect("a plan");
        assert_eq!((vid.get(), &*ports["leaf1"]), (100, &[0][..]));
        assert_eq!(work.publish, BTreeSet::from([Target::Fabric("leaf1".into())]));
        assert_eq!(fabric.take_lookups(), BTreeSet::from(["leaf1".into()]));
        assert!(work.evaluate.contains(&service) && fabric.is_idle());
    }
}
