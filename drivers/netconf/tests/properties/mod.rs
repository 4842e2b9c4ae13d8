//! Properties of each dialect: one edit reaches the desired state and leaves foreign configuration unchanged.

mod bgp;
mod device;
mod ieee8021q;
mod junos;
mod nxos;
mod openconfig;
mod routing;
mod routing_session;
mod shelf;
mod srlinux;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Range;

use device::{Model, Node};
use eno_driver_netconf::dialect::Dialect;
use eno_driver_netconf::plan::{
    ChangeUnit, Exclusions, Inventory, Mode, ObservedConfig, applied, interfaces, ours, plan,
    with_new_port_memory,
};
use eno_fabric_driver::desired::desired_vlans;
use eno_schemas::{
    Applied, Device, Drift, FabricDesired, FabricPort, FabricVlan, FabricVlans, Item, PortMode, VlanId,
    VlanSet, vlan_name,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::{vid, with_port_memory};

/// The VIDs of random states.
const VIDS: Range<u16> = 1..24;

fn ids(ids: &BTreeSet<u16>) -> VlanSet {
    ids.iter().map(|id| vid(*id)).collect()
}

/// The name of a VLAN by its owner: 0 this cluster, 1 another cluster, 2 a person, else none.
fn name_of(owner: u8, id: u16) -> Option<String> {
    match owner {
        0 => Some(vlan_name("c1", vid(id))),
        1 => Some(vlan_name("c2", vid(id))),
        2 => Some("a&<b".to_owned()),
        _ => None,
    }
}

/// VLANs by VID, with their owners for [`name_of`], and whether they are active.
type Vlans = BTreeMap<u16, (u8, bool)>;

fn any_vlans(owners: Range<u8>, sizes: Range<usize>) -> impl Strategy<Value = Vlans> {
    prop::collection::btree_map(VIDS, (owners, prop::bool::weighted(0.8)), sizes)
}

fn any_ports<P: Debug>(port: impl Strategy<Value = P>) -> impl Strategy<Value = BTreeMap<String, P>> {
    prop::collection::btree_map("[a-e]", port, 1..5)
}

prop_compose! {
    fn any_desired()(
        vlans in prop::collection::btree_set(VIDS, 0..16),
        ports in prop::collection::btree_map(
            "[a-d]",
            (prop_oneof![1 => Just(BTreeSet::new()), 4 => prop::collection::btree_set(VIDS, 0..12)], any::<bool>(), any::<bool>()),
            0..4,
        ),
        drift in prop_oneof![3 => Just(Drift::Repair), 1 => Just(Drift::Report)],
        adopt in prop_oneof![3 => Just(BTreeSet::new()), 1 => prop::collection::btree_set(VIDS, 0..8)],
    ) -> FabricDesired {
        let vlans = ids(&vlans);
        FabricDesired {
            cluster: "c1".into(),
            device: Device { drift, adopt: ids(&adopt), ..Device::new("") },
            cluster_uid: None,
            vrfs: Vec::new(),
            lookup: None,
            vlans: vlans.iter().map(|vid| FabricVlan::new(vid, vec![])).collect(),
            ports: ports.into_iter().map(|(name, (on_port, trunk, closed))| FabricPort {
                mode: if trunk { PortMode::Trunk } else { PortMode::Keep },
                closed,
                ..FabricPort::new(name, ids(&on_port).intersection(&vlans))
            }).collect(),
        }
    }
}

/// Three desired states: some VLANs on some ports, others on the same ports, then none. The first has no port memory.
fn any_histories() -> impl Strategy<Value = Vec<FabricDesired>> {
    (any_desired(), any_desired()).prop_map(|(mut first, other)| {
        first.device.adopt = VlanSet::EMPTY;
        first.ports.iter_mut().for_each(|port| port.closed = false);
        let mut second = FabricDesired { vlans: other.vlans.clone(), ..first.clone() };
        for port in &mut second.ports {
            let same = other.ports.iter().find(|same| same.name == port.name);
            port.vlans = same.map_or(VlanSet::EMPTY, |same| same.vlans.clone());
        }
        let mut last = FabricDesired { vlans: FabricVlans::new(), ..first.clone() };
        last.ports.iter_mut().for_each(|port| port.vlans = VlanSet::EMPTY);
        vec![first, second, last]
    })
}

/// A unit that the device refuses, or none.
fn any_excluded() -> impl Strategy<Value = Option<(ChangeUnit, Item)>> {
    prop::option::of((VIDS, "[a-d]", 0_u8..3).prop_map(|(id, port, what)| match what {
        0 => (ChangeUnit::Vlan(vid(id)), Item::vlan(vid(id))),
        1 => (ChangeUnit::Port(port.clone()), Item::port(port)),
        _ => (ChangeUnit::PortVlan(port.clone(), vid(id)), Item::port_vlan(port, vid(id))),
    }))
}

/// Checks that the reported closed ports are correct, and that remembering them does not change the plan.
fn check_port_memory(observed: &ObservedConfig, desired: &FabricDesired) -> Result<(), TestCaseError> {
    let reported_closed = |desired: &FabricDesired| match applied(observed, desired) {
        Applied::Fabric { closed, .. } => closed.expect("it is reported"),
        other => panic!("{other:?}"),
    };
    let closed = reported_closed(desired);
    for port in &desired.ports {
        let current = observed.ports.get(&port.name);
        let trunk = current.filter(|current| current.mode == Some(Mode::Trunk) && !current.open);
        let of_ours = trunk.map_or(VlanSet::EMPTY, |current| {
            current
                .tagged()
                .intersection(&ours(observed, "c1"))
                .difference(&current.taken.keys().copied().collect())
        });
        if closed.contains(&port.name) {
            prop_assert!(port.closed || !of_ours.is_empty(), "{} was not closed", port.name);
        } else {
            prop_assert!(of_ours.is_empty(), "{} is closed", port.name);
            prop_assert!(!port.closed || port.vlans.is_empty(), "{} was closed", port.name);
        }
    }
    let mut next = desired.clone();
    next.ports.iter_mut().for_each(|port| port.closed = closed.contains(&port.name));
    prop_assert_eq!(&reported_closed(&next), &closed);
    prop_assert!(
        plan(observed, &next, &Exclusions::default()).changes
            == plan(observed, desired, &Exclusions::default()).changes
    );
    Ok(())
}

/// No failure is written to a file.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// Runs a property for many inputs.
fn check<S: Strategy>(inputs: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let mut runner = TestRunner::new(config());
    runner.run(&inputs, property).unwrap_or_else(|error| panic!("{error}\n{runner}"));
}

static EMPTY_INVENTORY: Inventory = Inventory::new();

/// A dialect on a device that follows its model.
struct DialectUnderTest<'a> {
    dialect: &'a dyn Dialect,
    model: &'a Model,
    inventory: &'a Inventory,
}

/// The result of an edit, for properties of a single dialect.
struct EditResult {
    after: ObservedConfig,
    after_xml: Vec<Node>,
}

impl<'a> DialectUnderTest<'a> {
    /// With an empty inventory.
    fn new(dialect: &'a dyn Dialect, model: &'a Model) -> Self {
        Self { dialect, model, inventory: &EMPTY_INVENTORY }
    }

    /// Checks [`applies_in_one_edit`](Self::applies_in_one_edit) on any device.
    fn check_apply<S: Strategy>(&self, devices: S, xml: impl Fn(&S::Value) -> Vec<Node>) {
        check((devices, any_desired(), any_excluded()), |(device, desired, excluded)| {
            self.applies_in_one_edit(&xml(&device), &desired, excluded.as_ref()).map(drop)
        });
    }

    /// Checks [`leaves_no_residue`](Self::leaves_no_residue) on any device.
    fn check_removal<S: Strategy>(&self, devices: S, xml: impl Fn(&S::Value) -> Vec<Node>) {
        check((devices, any_histories()), |(device, history)| {
            self.leaves_no_residue(&xml(&device), &history)
        });
    }

    /// The configuration as a transaction reads it. Ports that only the inventory has are in hardware alone.
    fn parse(&self, nodes: &[Node]) -> ObservedConfig {
        let mut observed =
            self.dialect.parse(&device::reply(nodes).into(), self.inventory).expect("the dialect reads it");
        for name in self.inventory.keys() {
            observed.ports.entry(name.clone()).or_default();
        }
        observed.vlans.settle("c1");
        observed
    }

    /// Brings the device to each desired state, with the port memory of the one before, and returns its last
    /// configuration. The last state has no VLAN, so that only the foreign configuration may be left.
    fn restores_foreign_config(
        &self,
        start: &[Node],
        history: &[FabricDesired],
    ) -> Result<Vec<Node>, TestCaseError> {
        let mut nodes = start.to_vec();
        let mut port_memory = None;
        for desired in history {
            let mut desired = desired.clone();
            if let Some(applied) = &port_memory {
                desired = with_port_memory(desired, applied);
            }
            let before = self.parse(&nodes);
            prop_assert!(port_memory.is_some() || ours(&before, "c1").is_empty(), "nothing is ours");
            let planned = plan(&before, &desired, &Exclusions::default());
            nodes = device::apply(
                &nodes,
                &self.dialect.render(&before, &planned.changes).to_string(),
                self.model,
            );
            let after = self.parse(&nodes);
            let more = plan(&after, &desired, &Exclusions::default()).changes;
            prop_assert!(more.is_empty(), "{:?} is left to do", more);
            let then = with_new_port_memory(&desired, &planned);
            let more = plan(&after, &then, &Exclusions::default()).changes;
            prop_assert!(more.is_empty(), "{:?} is left to do", more);
            port_memory = Some(applied(&after, &then));
        }
        Ok(nodes)
    }

    /// Checks that the canonical configuration after such a history is that before it.
    fn leaves_no_residue(&self, start: &[Node], history: &[FabricDesired]) -> Result<(), TestCaseError> {
        let end = device::canonical(&self.restores_foreign_config(start, history)?, self.model);
        let start = device::canonical(start, self.model);
        prop_assert!(start == end, "was\n{}is\n{}", device::text(&start), device::text(&end));
        Ok(())
    }

    /// Applies the desired state in one edit, and checks the properties of all dialects.
    fn applies_in_one_edit(
        &self,
        before_xml: &[Node],
        desired: &FabricDesired,
        excluded: Option<&(ChangeUnit, Item)>,
    ) -> Result<EditResult, TestCaseError> {
        let before = self.parse(before_xml);
        let mut out = Exclusions::default();
        let skipped = excluded.map(|(_, item)| item);
        if let Some((unit, _)) = excluded {
            out.add(unit.clone(), "no");
        }
        let planned = plan(&before, desired, &out);
        let after_xml = device::apply(
            before_xml,
            &self.dialect.render(&before, &planned.changes).to_string(),
            self.model,
        );
        let after = self.parse(&after_xml);

        // One edit is enough: a second plan is empty.
        let more = plan(&after, desired, &out).changes;
        prop_assert!(more.is_empty(), "{:?} is left to do", more);
        let (ours_before, ours_after) = (ours(&before, "c1"), ours(&after, "c1"));
        let skips = |vid: VlanId, port: &str| skipped.is_some_and(|item| item.covers(vid, port));
        let rejected = |vid: VlanId, port: &str| planned.rejected.iter().any(|r| r.item.covers(vid, port));
        for port in &desired.ports {
            let current = after.ports.get(&port.name);
            for vid in port.vlans.iter().filter(|vid| !rejected(*vid, &port.name)) {
                let current = current.expect("a port that does not exist is rejected");
                prop_assert!(ours_after.contains(vid), "VLAN {} is wanted", vid);
                prop_assert!(current.open || current.tagged().contains(vid), "{} on {}", vid, port.name);
                prop_assert_ne!(current.native, Some(vid));
            }
            let Some(current) = current.filter(|current| current.mode == Some(Mode::Trunk) && !current.open)
            else {
                continue;
            };
            for vid in current.tagged().intersection(&ours_before).difference(&port.vlans).iter() {
                let taken = before.ports.get(&port.name).is_some_and(|was| was.taken.contains_key(&vid));
                let its_own = current.native == Some(vid) || taken || current.inherited.contains(vid);
                prop_assert!(skips(vid, &port.name) || its_own, "{} is not wanted on {}", vid, port.name);
            }
        }
        // Foreign VLANs are unchanged unless they are adopted, and no trunk is opened.
        let desired_vlans = desired_vlans(desired);
        let adopted = desired.device.adopt.intersection(&desired_vlans);
        for (vid, vlan) in before.vlans.iter().filter(|(vid, _)| !ours_before.contains(*vid)) {
            if adopted.contains(vid) && vlan.rename_blocker.is_none() && !skips(vid, "") {
                prop_assert!(ours_after.contains(vid), "VLAN {} is to be adopted", vid);
            } else {
                let is = after.vlans.get(vid).map(|vlan| (vlan.name.clone(), vlan.active));
                prop_assert_eq!(is, Some((vlan.name.clone(), vlan.active)));
            }
        }
        let listed = interfaces(desired);
        prop_assert_eq!(before.ports.keys().collect::<Vec<_>>(), after.ports.keys().collect::<Vec<_>>());
        // On some devices ports are listed by VLANs only: a deleted VLAN is on no port, and the VLAN of untagged
        // frames shows once it is adopted.
        let gone = &planned.changes.delete;
        let changed = gone.union(&adopted);
        let stays = |vid: Option<VlanId>| vid.filter(|vid| !changed.contains(*vid));
        for (name, was) in &before.ports {
            let is = &after.ports[name];
            let untagged = [(was.native, is.native), (was.access, is.access)];
            if !listed.contains(name.as_str()) || skipped == Some(&Item::port(name)) {
                prop_assert_eq!(was.tagged().difference(gone), is.tagged().difference(gone));
                prop_assert_eq!(was.mode, is.mode);
                for (was, is) in untagged {
                    prop_assert_eq!(stays(was), stays(is));
                }
                continue;
            }
            // The native VLAN of a port shows while it is a trunk.
            if was.mode == Some(Mode::Trunk) || is.mode != Some(Mode::Trunk) {
                prop_assert_eq!(stays(was.native), stays(is.native));
            }
            prop_assert!(was.open || !is.open, "{} was opened", name);
            if was.open {
                let port = desired.ports.iter().find(|port| port.name == *name).expect("a listed port");
                let may = port.closed && was.unfit.is_none() && !was.open_by_inheritance;
                let close = may && desired.device.drift == Drift::Repair;
                prop_assert_eq!(is.open, !close, "{} was open", name);
                let noted = |kind: &str| {
                    planned.notes.iter().any(|note| note.kind == kind && note.item == Item::port(name))
                };
                prop_assert!(!noted("OpenTrunk") || !may, "{} is no trunk of others", name);
                prop_assert!(!noted("Drift") || may && !close, "{} is not left as somebody made it", name);
            }
            prop_assert!(is.mode == Some(Mode::Trunk) || is.tagged.is_empty() || is.mode == was.mode);
            let foreign = was.tagged().difference(&ours_before).difference(&ours_after);
            prop_assert!(foreign.is_subset(is.tagged()), "{} lost {}", name, foreign.difference(is.tagged()));
            let new = is.tagged().difference(was.tagged());
            let closed: VlanSet = is.native.into_iter().collect();
            prop_assert!(new.is_subset(&ours_after.union(&closed)), "{} carries {} now", name, new);
        }
        check_port_memory(&after, desired)?;
        Ok(EditResult { after, after_xml })
    }
}
