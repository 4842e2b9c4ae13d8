//! VLANs and desired states for the unit tests.

use eno_conformance::fabrics;
use eno_schemas::{Bfd, BgpGroup, Device, FabricDesired, FabricVrf};

pub(crate) use eno_conformance::fabrics::{set, vid};

use crate::plan::{ObservedVlan, ObservedVlans};

/// The desired state of cluster `c` with these VLANs, and with ports by name and VLANs.
pub(crate) fn desired(vlans: &str, ports: &[(&str, &str)]) -> FabricDesired {
    fabrics::desired("c", Device::new(""), vlans, ports)
}

/// Active VLANs under the names of cluster `c`.
pub(crate) fn own_vlans(vlans: &str) -> ObservedVlans {
    set(vlans).iter().map(|vid| (vid, ObservedVlan::ours("c", vid))).collect()
}

/// A VRF with a group of this name, which has neighbours of both families.
pub(crate) fn vrf_with_group(name: &str, group: &str) -> FabricVrf {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let group = BgpGroup {
        owner: format!("BGPSessionGroup/{group}"),
        local_as: 64512,
        peer_as: 64513,
        neighbours: vec!["192.0.2.11".parse().unwrap(), "2001:db8::11".parse().unwrap()],
        dynamic_neighbours: nets(&["198.51.100.0/24"]),
        hold_time: 9,
        keepalive_time: 3,
        bfd: Some(Bfd { receive_interval: 300, transmit_interval: 300, detect_multiplier: 3 }),
        graceful_restart: None,
        password: None,
        maximum_prefixes: Some(100),
        accept: nets(&["203.0.113.0/24", "2001:db8:1::/48"]),
        announce: nets(&["0.0.0.0/0"]),
        communities: vec!["65000:100".into()],
    };
    FabricVrf {
        name: name.to_owned(),
        owner: format!("VRF/{name}"),
        route_distinguisher: None,
        import_targets: Vec::new(),
        export_targets: Vec::new(),
        bgp: vec![group],
    }
}
