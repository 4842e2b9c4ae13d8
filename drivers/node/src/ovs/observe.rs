//! Computes the observed part of the desired state. Pure.

use std::collections::BTreeSet;

use super::desired::{PortSpec, patch_port, uplink as uplink_spec};
use super::plan::{Plan, is_ours};
use super::view::{Bridge, Port, View};
use super::{
    AppliedBridge, AppliedPort, BridgeDesired, Datapath, Item, OvsApplied, OvsDesired, PortDesired,
    PortVlans, Rejected,
};

/// `external_ids:owner` of the ports that ovs-cni makes.
const OVS_CNI: &str = "ovs-cni.network.kubevirt.io";

/// The observed part of the desired state, with the rejections of the plan and the errors of Open vSwitch.
pub(super) fn observe(desired: &OvsDesired, view: &View, plan: &Plan) -> OvsApplied {
    let mut applied =
        OvsApplied { rejected: plan.rejected.clone(), notes: plan.notes.clone(), ..OvsApplied::default() };
    for (name, wanted) in &desired.bridges {
        if let Some(there) = view.bridges.get(name) {
            let bridge = bridge(desired, view, (name, wanted), there, &mut applied);
            applied.bridges.insert(name.clone(), bridge);
        }
    }
    for (interface, wanted) in &desired.ports {
        port(desired, view, (interface, wanted), &mut applied);
    }
    note_stale_ports(desired, view, &mut applied);
    applied
}

fn bridge(
    desired: &OvsDesired,
    view: &View,
    (name, wanted): (&str, &BridgeDesired),
    bridge: &Bridge,
    applied: &mut OvsApplied,
) -> AppliedBridge {
    let owned = is_ours(&bridge.external_ids, &desired.cluster);
    let mut result = AppliedBridge { owned, vlans: wanted.vlans.clone(), open: false, mtu: None };
    let item = Item::Bridge(name.to_owned());
    if let Some(fault) = local_fault(view, name, bridge) {
        result.vlans.clear();
        reject(applied, &item, format!("Open vSwitch did not make bridge {name}: {fault}"));
        return result;
    }
    if let Some(uplink) = uplink_spec(name, wanted) {
        match find(view, bridge, &uplink) {
            Some(port) => {
                retain_carried(&mut result.vlans, port);
                result.open = !is_ours(&port.external_ids, &desired.cluster) && port.trunks.is_empty();
                if reject_if_faulty(view, port, "uplink", &item, applied) {
                    result.vlans.clear();
                }
                result.mtu = mtu(view, port);
                if let (Some(wanted), Some(there)) =
                    (uplink.interfaces.iter().find_map(|one| one.mtu), result.mtu)
                    && there < wanted
                {
                    let name = &port.name;
                    reject(applied, &item, format!("uplink {name} carries {there} bytes, not {wanted}"));
                }
            }
            None => result.vlans.clear(),
        }
    }
    if let Some(other) = &wanted.patch {
        for (from, to) in [(name, other.as_str()), (other.as_str(), name)] {
            let end = patch_port(from, to);
            let bridge = view.bridges.get(from);
            let port = bridge.and_then(|bridge| view.ports_of(bridge).find(|(_, port)| port.name == end));
            match port {
                Some((_, port)) if !reject_if_faulty(view, port, "patch", &item, applied) => {
                    retain_carried(&mut result.vlans, port);
                }
                _ => result.vlans.clear(),
            }
        }
    }
    result
}

/// Why Open vSwitch did not make a bridge of the database. Its local interface, which has its name, shows the error.
fn local_fault(view: &View, name: &str, bridge: &Bridge) -> Option<String> {
    let (_, port) = view.ports_of(bridge).find(|(_, port)| port.name == name)?;
    let (_, interface) = view.interfaces_of(port).next()?;
    let fault = interface.fault()?;
    let datapath = if bridge.datapath.is_empty() { Datapath::System.as_str() } else { &bridge.datapath };
    Some(format!("{fault}; has this node the datapath {datapath:?}?"))
}

/// The port on a bridge that matches a desired one: by its name, or a foreign port by its interfaces.
fn find<'a>(view: &'a View, bridge: &Bridge, wanted: &PortSpec) -> Option<&'a Port> {
    let ports = || bridge.ports.iter().filter_map(|uuid| view.ports.get(uuid));
    let interfaces: BTreeSet<&str> = wanted.interfaces.iter().map(|one| one.name.as_str()).collect();
    ports().find(|port| port.name == wanted.name).or_else(|| {
        ports().find(|port| {
            interfaces == view.interfaces_of(port).map(|(_, interface)| interface.name.as_str()).collect()
        })
    })
}

/// Retains the VLANs that a trunk port carries.
fn retain_carried(vlans: &mut BTreeSet<u16>, port: &Port) {
    if !port.trunks.is_empty() {
        vlans.retain(|vlan| port.trunks.contains(&i64::from(*vlan)));
    }
    if port.vlan_mode.as_deref() == Some("access") || (port.vlan_mode.is_none() && port.tag.is_some()) {
        vlans.clear();
    }
}

/// Rejects the item when no interface of a port works, and returns true then. A bond that works in part is a note.
fn reject_if_faulty(view: &View, port: &Port, role: &str, item: &Item, applied: &mut OvsApplied) -> bool {
    let mut working = false;
    let mut faults = Vec::new();
    for (_, interface) in view.interfaces_of(port) {
        match interface.fault() {
            Some(fault) => faults.push(format!("{role} {}: {fault}", interface.name)),
            None => working = true,
        }
    }
    if working {
        applied.notes.extend(faults);
    } else {
        reject(applied, item, faults.join("; "));
    }
    !working
}

/// The smallest MTU of a port's interfaces, in bytes.
fn mtu(view: &View, port: &Port) -> Option<u32> {
    view.interfaces_of(port).filter_map(|(_, interface)| u32::try_from(interface.mtu?).ok()).min()
}

fn port(desired: &OvsDesired, view: &View, (name, wanted): (&str, &PortDesired), applied: &mut OvsApplied) {
    let Some(bridge) = view.bridges.get(&wanted.bridge) else { return };
    let Some((_, port)) = view.ports_of(bridge).find(|(_, port)| port.name == name) else { return };
    let item = Item::Port(name.to_owned());
    if !is_ours(&port.external_ids, &desired.cluster)
        || reject_if_faulty(view, port, "interface", &item, applied)
    {
        return;
    }
    let tag = port.tag.and_then(|tag| u16::try_from(tag).ok());
    let vlans = if let (Some("access"), Some(tag)) = (port.vlan_mode.as_deref(), tag) {
        PortVlans::Access(tag)
    } else {
        let vlans = port.trunks.iter().filter_map(|vlan| u16::try_from(*vlan).ok());
        PortVlans::Trunk(vlans.filter(|vlan| *vlan != super::CLOSED).collect())
    };
    let there = AppliedPort { bridge: wanted.bridge.clone(), vlans, mtu: mtu(view, port) };
    applied.ports.insert(name.to_owned(), there);
}

/// Adds a note for each stale port that ovs-cni left on a desired bridge.
fn note_stale_ports(desired: &OvsDesired, view: &View, applied: &mut OvsApplied) {
    for name in desired.bridges.keys() {
        let Some(bridge) = view.bridges.get(name) else { continue };
        for (_, port) in view.ports_of(bridge) {
            if port.external_ids.get("owner").is_none_or(|owner| owner != OVS_CNI) {
                continue;
            }
            if let Some(fault) = view.interfaces_of(port).find_map(|(_, interface)| interface.fault()) {
                let note =
                    format!("port {} of bridge {name}, which ovs-cni made, is stale: {fault}", port.name);
                applied.notes.push(note);
            }
        }
    }
}

/// Rejects the item, unless it is rejected already.
fn reject(applied: &mut OvsApplied, item: &Item, reason: String) {
    if applied.rejected.iter().all(|rejected| rejected.item != *item) {
        applied.rejected.push(Rejected { item: item.clone(), reason, retryable: true });
    }
}
