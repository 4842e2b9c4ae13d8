//! Uplinks, patch ports and pods' ports of a desired state, in a common form.

use std::collections::{BTreeMap, BTreeSet};

use super::{BridgeDesired, CLOSED, Item, OvsDesired, PortVlans};

/// A desired port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortSpec {
    /// The item that a rejection names.
    pub(super) item: Item,
    /// Name of the port.
    pub(super) name: String,
    /// Name of its bridge.
    pub(super) bridge: String,
    /// `external_ids:eno-id`.
    pub(super) id: String,
    /// Its role.
    pub(super) role: Role,
    /// Its interfaces; several form a bond.
    pub(super) interfaces: Vec<InterfaceSpec>,
    /// VLANs that it carries.
    pub(super) vlans: PortVlans,
    /// Why it is invalid, whatever the observed state; `None`: it is valid.
    pub(super) invalid: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Uplink,
    Patch,
    Pod,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InterfaceSpec {
    pub(super) name: String,
    /// `type`: empty for an interface of the host.
    pub(super) kind: &'static str,
    pub(super) options: BTreeMap<String, String>,
    pub(super) mtu: Option<u32>,
}

impl PortSpec {
    pub(super) fn is_uplink(&self) -> bool {
        self.role == Role::Uplink
    }

    /// The VLANs of a trunk; empty for an access port.
    pub(super) fn trunks(&self) -> BTreeSet<i64> {
        match &self.vlans {
            PortVlans::Access(_) => BTreeSet::new(),
            PortVlans::Trunk(vlans) => vlans.iter().map(|vlan| i64::from(*vlan)).collect(),
        }
    }

    /// The value of `trunks`. It is never empty, which would mean all VLANs.
    pub(super) fn closed_trunks(&self) -> BTreeSet<i64> {
        let mut trunks = self.trunks();
        if trunks.is_empty() {
            trunks.insert(CLOSED.into());
        }
        trunks
    }
}

/// The uplinks, patch ports and pods' ports of a desired state.
pub(super) fn port_specs(desired: &OvsDesired) -> Vec<PortSpec> {
    let mut ports = Vec::new();
    for (name, bridge) in &desired.bridges {
        ports.extend(uplink(name, bridge));
        ports.extend(patch(desired, name, bridge));
    }
    for (interface, port) in &desired.ports {
        ports.push(checked(PortSpec {
            item: Item::Port(interface.clone()),
            name: interface.clone(),
            bridge: port.bridge.clone(),
            id: port.id.clone(),
            role: Role::Pod,
            interfaces: vec![host_interface(interface, port.mtu)],
            vlans: port.vlans.clone(),
            invalid: None,
        }));
    }
    ports
}

pub(super) fn uplink(name: &str, bridge: &BridgeDesired) -> Option<PortSpec> {
    let uplink = bridge.uplink.as_ref()?;
    let names: BTreeSet<&String> = uplink.interfaces.iter().collect();
    Some(checked(PortSpec {
        item: Item::Bridge(name.into()),
        name: uplink.port.clone(),
        bridge: name.into(),
        id: format!("uplink/{name}"),
        role: Role::Uplink,
        interfaces: names.into_iter().map(|interface| host_interface(interface, uplink.mtu)).collect(),
        vlans: PortVlans::Trunk(bridge.vlans.clone()),
        invalid: None,
    }))
}

/// Both ends of the patch that a bridge asks for. When two bridges ask for each other, the second one yields none.
pub(super) fn patch(desired: &OvsDesired, name: &str, bridge: &BridgeDesired) -> Vec<PortSpec> {
    let Some(other) = &bridge.patch else { return vec![] };
    let mut vlans = bridge.vlans.clone();
    if let Some(back) = desired.bridges.get(other).filter(|back| back.patch.as_deref() == Some(name)) {
        if other.as_str() < name {
            return vec![];
        }
        vlans.extend(&back.vlans);
    }
    let end = |from: &str, to: &str| {
        // Names with a colon can't clash with host interfaces, whose names contain none.
        let options = BTreeMap::from([("peer".to_owned(), patch_port(to, from))]);
        PortSpec {
            item: Item::Bridge(name.into()),
            name: patch_port(from, to),
            bridge: from.into(),
            id: format!("patch/{name}"),
            role: Role::Patch,
            interfaces: vec![InterfaceSpec { name: patch_port(from, to), kind: "patch", options, mtu: None }],
            vlans: PortVlans::Trunk(vlans.clone()),
            invalid: (from == to).then(|| format!("a patch from {from} to itself")),
        }
    };
    vec![checked(end(name, other)), checked(end(other, name))]
}

/// Name of the patch port on the bridge `from` to the bridge `to`.
pub(super) fn patch_port(from: &str, to: &str) -> String {
    format!("{from}:{to}")
}

fn host_interface(name: &str, mtu: Option<u32>) -> InterfaceSpec {
    InterfaceSpec { name: name.into(), kind: "", options: BTreeMap::new(), mtu }
}

fn checked(mut port: PortSpec) -> PortSpec {
    let vlans: Vec<u16> = match &port.vlans {
        PortVlans::Access(vlan) => vec![*vlan],
        PortVlans::Trunk(vlans) => vlans.iter().copied().collect(),
    };
    let names = [&port.bridge].into_iter().chain(match port.role {
        Role::Patch => None,
        Role::Uplink | Role::Pod => Some(&port.name),
    });
    let hosts = port.interfaces.iter().filter(|interface| interface.kind.is_empty());
    let invalid = vlans
        .iter()
        .find(|vlan| !(1..=4094).contains(*vlan))
        .map(|vlan| format!("{vlan} is no VLAN: they are 1 to 4094"))
        .or_else(|| {
            names.chain(hosts.map(|interface| &interface.name)).find_map(|name| interface_name_error(name))
        })
        .or_else(|| port.interfaces.is_empty().then(|| "an uplink without interfaces".to_owned()));
    port.invalid = port.invalid.or(invalid);
    port
}

/// Why a name is not valid for a host interface (`dev_valid_name` of Linux); `None`: it is valid. Bridges are
/// interfaces, too.
pub(super) fn interface_name_error(name: &str) -> Option<String> {
    let bad = |char: char| char == '/' || char == ':' || char.is_whitespace() || char.is_control();
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > 15 {
        "it has more than 15 bytes"
    } else if name == "." || name == ".." || name.contains(bad) {
        "it has characters that no interface may have"
    } else {
        return None;
    };
    Some(format!("{name:?} can't be the name of an interface: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bridge_with_patch(to: &str, vlan: u16) -> BridgeDesired {
        BridgeDesired { patch: Some(to.into()), vlans: BTreeSet::from([vlan]), ..BridgeDesired::default() }
    }

    #[test]
    fn mutual_patches_share_one_pair_of_ports() {
        let bridges =
            [("a".to_owned(), bridge_with_patch("b", 1)), ("b".to_owned(), bridge_with_patch("a", 2))];
        let desired = OvsDesired { bridges: bridges.into(), ..OvsDesired::default() };
        let ports = port_specs(&desired);
        let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["a:b", "b:a"]);
        assert!(ports.iter().all(|port| port.trunks() == BTreeSet::from([1, 2])));
        assert_eq!(ports[0].interfaces[0].options["peer"], "b:a");
    }

    #[test]
    fn invalid_interface_names_are_rejected() {
        for good in ["eth0", "br-ex", "a.b", "exactly15bytes."] {
            assert_eq!(interface_name_error(good), None);
        }
        for bad in ["", ".", "..", "a b", "a/b", "a:b", "a\n", "sixteen-bytes-ab"] {
            assert!(interface_name_error(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn trunk_without_vlans_is_closed() {
        let bridge = BridgeDesired {
            uplink: Some(super::super::UplinkDesired {
                port: "eth0".into(),
                interfaces: vec!["eth0".into()],
                mtu: None,
            }),
            ..BridgeDesired::default()
        };
        assert_eq!(uplink("br", &bridge).unwrap().closed_trunks(), BTreeSet::from([i64::from(CLOSED)]));
    }
}
