//! The observed part of a desired state.

use std::collections::{BTreeMap, BTreeSet};

use eno_ovsdb::Uuid;
use eno_schemas::{Applied, Carried, FabricDesired, FabricPort, Item, Rejection, VlanId, VlanSet};

use crate::ownership::{VlanOwnership, vlan_ids};
use crate::plan::Plan;
use crate::view::{Mode, Port, View};

/// The observed state for a report, once `plan` has no changes or was not carried out. Also returns a
/// rejection for each port that forwards nothing.
pub fn observe(view: &View, desired: &FabricDesired, plan: &Plan) -> (Applied, Vec<Rejection>) {
    let (mut vlans, mut ports, mut carried) = (VlanSet::EMPTY, BTreeMap::new(), BTreeMap::new());
    let mut faults = Vec::new();
    let index = view.index();
    let mut bridges: BTreeMap<&str, VlanOwnership<'_>> = BTreeMap::new();
    let resolve = |listed: &FabricPort| index.port(listed.lag.as_ref().unwrap_or(&listed.name));
    // Several members of a bond may be listed.
    let mut wanted: BTreeMap<Uuid, VlanSet> = BTreeMap::new();
    for (uuid, listed) in desired.ports.iter().filter_map(|listed| Some((resolve(listed)?, listed))) {
        let all = wanted.entry(uuid).or_default();
        *all = all.union(&listed.vlans);
    }
    for listed in &desired.ports {
        let Some(uuid) = resolve(listed) else { continue };
        let Some(port) = view.ports.get(&uuid) else { continue };
        let bridge = index.bridge(uuid).unwrap_or_default();
        let none = BTreeSet::new();
        let ownership = bridges.entry(bridge).or_insert_with(|| {
            VlanOwnership::of(view, view.bridges.get(bridge).unwrap_or(&none), &desired.cluster, None)
        });
        let (there, of_ours) = match port.mode() {
            Mode::Other(_) => continue,
            Mode::Access(vlan) => {
                let untagged = VlanId::new(vlan).ok();
                (Carried { untagged, ..Carried::default() }, VlanSet::EMPTY)
            }
            Mode::Trunk { native } => {
                let tagged: VlanSet = vlan_ids(&port.trunks).collect();
                let of_ours = if port.is_open() {
                    plan.granted.get(&listed.name).cloned().unwrap_or_default()
                } else {
                    tagged.intersection(&ownership.ours)
                };
                (Carried { tagged, untagged: native, open: port.is_open() }, of_ours)
            }
        };
        // For a bond member without desired VLANs, the VLANs desired through other members do not count.
        let of_others = wanted.get(&uuid).filter(|_| listed.vlans.is_empty()).cloned().unwrap_or_default();
        let of_ours = of_ours.difference(&of_others);
        carried.insert(listed.name.clone(), there);
        vlans = vlans.union(&of_ours);
        if let Some(fault) = port_error(view, port).filter(|_| !listed.vlans.is_empty()) {
            faults.push(Rejection::permanent(Item::port(&listed.name), fault));
        } else if !of_ours.is_empty() {
            ports.insert(listed.name.clone(), of_ours);
        }
    }
    // A VLAN without a listed port needs no configuration.
    let on_ports = desired.ports.iter().fold(VlanSet::EMPTY, |all, port| all.union(&port.vlans));
    vlans.extend(desired.vlans.iter().map(|vlan| vlan.vid).filter(|vid| !on_ports.contains(*vid)));
    (Applied::Fabric { vlans, ports, carried, closed: None, before: BTreeMap::new() }, faults)
}

/// Why a port forwards nothing: Open vSwitch could open none of its interfaces. The mirror updates when it
/// can.
fn port_error(view: &View, port: &Port) -> Option<String> {
    let mut errors = Vec::new();
    for interface in view.interfaces_of(port) {
        let error = interface.error.as_ref()?;
        errors.push(format!("interface {}: {error}", interface.name));
    }
    let errors = errors.join(", ");
    (!errors.is_empty()).then(|| format!("Open vSwitch could not open port {}: {errors}", port.name))
}
