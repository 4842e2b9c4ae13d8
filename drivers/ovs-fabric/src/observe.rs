//! The observed part of a desired state.

use std::collections::{BTreeMap, BTreeSet};

use eno_fabric_driver::desired::{listed_name, ports_by};
use eno_fabric_driver::report::Observation;
use eno_schemas::{Applied, Carried, FabricDesired, FabricPort, Item, Rejection, VlanId, VlanSet};

use crate::ownership::VlanOwnership;
use crate::plan::Plan;
use crate::view::{Mode, Port, View};

/// The observed state for a report, once `plan` has no changes or was not carried out. Also returns a
/// rejection for each port that forwards nothing.
pub fn observe(view: &View, desired: &FabricDesired, plan: &Plan) -> (Applied, Vec<Rejection>) {
    let mut observation = Observation::new(VlanSet::EMPTY);
    let mut faults = Vec::new();
    let index = view.index();
    let mut bridges: BTreeMap<&str, VlanOwnership<'_>> = BTreeMap::new();
    let resolve = |listed: &FabricPort| index.port(listed_name(listed));
    let members = ports_by(desired, resolve);
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
                let tagged = port.trunks.vlans().clone();
                let of_ours = if port.is_open() {
                    plan.granted.get(&listed.name).cloned().unwrap_or_default()
                } else {
                    tagged.intersection(&ownership.ours)
                };
                (Carried { tagged, untagged: native, open: port.is_open() }, of_ours)
            }
        };
        let members = members.get(&uuid).map(Vec::as_slice).unwrap_or_default();
        observation.add(listed, there, &of_ours, members);
        if let Some(fault) = port_error(view, port).filter(|_| !listed.vlans.is_empty()) {
            faults.push(Rejection::permanent(Item::port(&listed.name), fault));
            observation.forwards_nothing(listed);
        }
    }
    (observation.applied(desired), faults)
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
