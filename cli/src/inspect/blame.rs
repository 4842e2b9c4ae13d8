//! Who wants each VLAN on a port of a switch.

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::forecast::{Key, Kind};
use eno_engine::observation::{Observation, Part};
use eno_schemas::{Carried, FabricDesired, FabricPort, RoutedInterface, VlanId, VlanSet};
use serde::Serialize;

use super::path::{Reports, State};

/// The states of the interfaces by which a device leads VLANs into VRFs, with explanations.
pub(crate) type RoutedStates = BTreeMap<VlanId, (State, String)>;

/// A VLAN on a port.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    /// Its VLAN ID.
    pub vlan: VlanId,
    /// The objects that request it.
    pub wanted_by: Vec<String>,
    /// The VRF that its sub-interface of a router is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// The addresses of the sub-interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// What else is known, such as `untagged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The sub-interfaces of a router's port, each with its VLAN.
fn sub_interfaces<'a>(
    fabric: &'a FabricDesired,
    port: Option<&'a FabricPort>,
) -> impl Iterator<Item = (VlanId, &'a RoutedInterface)> {
    let port = port.filter(|_| !fabric.device.role.is_switch()).into_iter();
    port.flat_map(|port| port.vlans.iter())
        .filter_map(|vid| Some((vid, fabric.vlans.get(vid)?.routed.as_deref()?)))
}

/// The states of the sub-interfaces of a router's port, by the core's verdict on what wants them.
pub(crate) fn routed_states(
    observation: &Observation,
    reports: &Reports,
    (device, fabric): (&str, &FabricDesired),
    port: &str,
) -> RoutedStates {
    let port = fabric.ports.iter().find(|one| one.name == port);
    let states = sub_interfaces(fabric, port).filter_map(|(vid, routed)| {
        let name = routed.owner.strip_prefix("VRFAttachment/")?;
        let path = observation.path(&Key::cluster(Kind::VRFAttachment, &name.into()));
        let hop = path.iter().find(
            |hop| matches!(hop.part, Part::Routed { device: on, vlan, .. } if **on == *device && vlan == vid),
        )?;
        Some((vid, reports.on_switch(observation, hop)))
    });
    states.collect()
}

/// The VLANs of a port with their owners, in ascending order. `states`: of the sub-interfaces, if it is a router's.
pub(crate) fn blame(
    fabric: &FabricDesired,
    port: &str,
    carried: Option<&Carried>,
    states: &RoutedStates,
) -> Vec<Line> {
    let port = fabric.ports.iter().find(|one| one.name == port);
    let wanted = port.map(|port| &port.vlans);
    let routed: BTreeMap<VlanId, &RoutedInterface> = sub_interfaces(fabric, port).collect();
    let is_carried =
        |vid: VlanId| carried.is_some_and(|carried| carried.open || carried.tagged.contains(vid));
    let mut vids: BTreeSet<VlanId> = wanted.into_iter().flat_map(VlanSet::iter).collect();
    if let Some(carried) = carried {
        vids.extend(carried.tagged.iter().chain(carried.untagged));
    }
    let line = |vid: VlanId| {
        let is_wanted = wanted.is_some_and(|vlans| vlans.contains(vid));
        let owners = fabric.vlans.iter().find(|vlan| is_wanted && vlan.vid == vid);
        let note = match (states.get(&vid), carried) {
            (Some((State::Confirmed | State::Unknown, _)), _) => None,
            (Some((state, message)), _) => Some(format!("{}: {message}", state.as_str())),
            (None, Some(carried)) if carried.untagged == Some(vid) => Some("untagged".into()),
            (None, Some(_)) if is_wanted && !is_carried(vid) => Some("not there yet".into()),
            _ => None,
        };
        let mut wanted_by = owners.map(|vlan| vlan.owners.clone()).unwrap_or_default();
        let routed = routed.get(&vid);
        wanted_by.extend(routed.map(|routed| routed.owner.clone()));
        let addresses = routed.into_iter().flat_map(|routed| &routed.addresses);
        let addresses = addresses.map(ToString::to_string).collect();
        Line { vlan: vid, wanted_by, vrf: routed.map(|routed| routed.vrf.clone()), addresses, note }
    };
    vids.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use eno_schemas::{Device, FabricPort, FabricVlan, FabricVlans, PortMode};

    use super::*;

    #[test]
    fn blame_separates_managed_and_foreign_vlans() {
        let set = |text: &str| text.parse::<VlanSet>().expect(text);
        let vid = |id| VlanId::new(id).expect("a VLAN ID");
        let fabric = FabricDesired {
            cluster: "c".into(),
            cluster_uid: None,
            device: Device::new(""),
            vrfs: Vec::new(),
            lookup: None,
            vlans: FabricVlans::from_iter([
                FabricVlan::new(vid(10), vec!["L2Service/a".into(), "L2Service/b".into()]),
                FabricVlan::new(vid(11), vec!["L2Service/c".into()]),
            ]),
            ports: vec![FabricPort {
                name: "p".into(),
                lag: None,
                mode: PortMode::Keep,
                vlans: set("10-11"),
                closed: false,
                before: None,
            }],
        };
        let carried = Carried { tagged: set("10,20"), untagged: Some(vid(1)), open: false };
        let lines: Vec<_> = blame(&fabric, "p", Some(&carried), &RoutedStates::new())
            .into_iter()
            .map(|line| (line.vlan.get(), line.wanted_by.len(), line.note))
            .collect();
        let note = |text: &str| Some(text.to_owned());
        let expected =
            [(1, 0, note("untagged")), (10, 2, None), (11, 1, note("not there yet")), (20, 0, None)];
        assert_eq!(lines, expected);
        assert_eq!(blame(&fabric, "p", None, &RoutedStates::new()).len(), 2);
    }
}
