//! Who wants each VLAN on a port of a switch.

use std::collections::BTreeSet;

use eno_schemas::{Carried, FabricDesired, VlanId, VlanSet};
use serde::Serialize;

/// A VLAN on a port.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    /// Its VLAN ID.
    pub vlan: VlanId,
    /// The objects that request it.
    pub wanted_by: Vec<String>,
    /// What else is known, such as `untagged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// The VLANs of a port with their owners, in ascending order.
pub(crate) fn blame(fabric: &FabricDesired, port: &str, carried: Option<&Carried>) -> Vec<Line> {
    let wanted = fabric.ports.iter().find(|one| one.name == port).map(|one| &one.vlans);
    let is_carried =
        |vid: VlanId| carried.is_some_and(|carried| carried.open || carried.tagged.contains(vid));
    let mut vids: BTreeSet<VlanId> = wanted.into_iter().flat_map(VlanSet::iter).collect();
    if let Some(carried) = carried {
        vids.extend(carried.tagged.iter().chain(carried.untagged));
    }
    let line = |vid: VlanId| {
        let is_wanted = wanted.is_some_and(|vlans| vlans.contains(vid));
        let owners = fabric.vlans.iter().find(|vlan| is_wanted && vlan.vid == vid);
        let note = match carried {
            Some(carried) if carried.untagged == Some(vid) => Some("untagged"),
            Some(_) if is_wanted && !is_carried(vid) => Some("not there yet"),
            _ => None,
        };
        Line { vlan: vid, wanted_by: owners.map(|vlan| vlan.owners.clone()).unwrap_or_default(), note }
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
        let lines: Vec<_> = blame(&fabric, "p", Some(&carried))
            .into_iter()
            .map(|line| (line.vlan.get(), line.wanted_by.len(), line.note))
            .collect();
        let expected =
            [(1, 0, Some("untagged")), (10, 2, None), (11, 1, Some("not there yet")), (20, 0, None)];
        assert_eq!(lines, expected);
        assert_eq!(blame(&fabric, "p", None).len(), 2);
    }
}
