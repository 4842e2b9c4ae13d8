//! VRFs of devices, and the interfaces by which VLANs are led into them.

use std::collections::BTreeMap;

use eno_engine::forecast::{Key, Kind, Name};
use eno_engine::observation::{self, LeadsTo};
use eno_schemas::{FabricDesired, VlanSet};

use super::switches::Port;
use super::{Builder, Hop, Part, Tier};
use crate::inspect::cabling::PortId;

impl<'a> Builder<'a> {
    /// Adds a VRF of a device, with the VLANs that are led into it.
    pub(super) fn vrf(&mut self, hop: &observation::Hop<'a>) {
        let observation::Part::Vrf { device, vrf } = hop.part else { return };
        let vlans = self.desired(device).into_iter().flat_map(|desired| &desired.vlans);
        let own = vlans.filter(|vlan| vlan.routed.as_ref().is_some_and(|routed| routed.vrf == vrf));
        let vlans = own.map(|vlan| vlan.vid).collect();
        let hop = self.at_device(hop, device, vrf, vlans);
        self.add(Hop {
            id: format!("vrf:{device}:{vrf}"),
            part: Part::Vrf(device.to_string(), vrf.to_owned()),
            ..hop
        });
    }

    /// Adds the interface by which a device leads a VLAN into a VRF: of a router on one of its ports, of a switch beside
    /// the VLAN.
    pub(super) fn routed(&mut self, hop: &observation::Hop<'a>) {
        let observation::Part::Routed { device, vrf, vlan } = hop.part else { return };
        let desired = self.desired(device);
        let routed = desired.and_then(|desired| desired.vlans.get(vlan)?.routed.as_deref());
        let routed = routed.filter(|routed| routed.vrf == vrf);
        let mut ports = desired.into_iter().flat_map(|desired| &desired.ports);
        let detail = match desired.map(|desired| desired.device.role.is_switch()) {
            Some(true) => format!("{device} IRB"),
            Some(false) => match ports.find(|port| port.vlans.contains(vlan)) {
                Some(port) => format!("{device} {}", port.lag.as_ref().unwrap_or(&port.name)),
                None => device.to_string(),
            },
            None => device.to_string(),
        };
        let hop = self.at_device(hop, device, vrf, VlanSet::from_iter([vlan]));
        self.add(Hop {
            id: format!("routed:{device}:{vlan}"),
            detail,
            mtu: routed.and_then(|routed| routed.mtu),
            addresses: routed.into_iter().flat_map(|one| &one.addresses).map(ToString::to_string).collect(),
            part: Part::Routed(device.to_string(), vlan),
            ..hop
        });
    }

    /// Takes all VRFs of a device.
    pub(super) fn all_vrfs(&mut self, device: &str) {
        let vrfs = self.desired(device).into_iter().flat_map(|desired| &desired.vrfs);
        let owners = vrfs.filter_map(|vrf| vrf.owner.strip_prefix("VRF/"));
        for owner in owners {
            let path = self.inputs.observation.path(&Key::cluster(Kind::VRF, &owner.into()));
            let own = path.iter().filter(|hop| hop.part.device().is_some_and(|name| **name == *device));
            own.for_each(|hop| self.vrf(hop));
        }
    }

    /// The devices with a VRF on the path, each with the hop there.
    pub(super) fn at_vrfs(&self) -> Vec<(String, String)> {
        let hops = self.hops.values().filter_map(|hop| match &hop.part {
            Part::Vrf(device, _) | Part::Routed(device, _) => Some((device.clone(), hop.id.clone())),
            _ => None,
        });
        hops.collect()
    }

    /// Other switches reach a router by a leaf that only its ports to nodes stand for: adds what is at the router to them.
    pub(super) fn add_routers(
        &self,
        ports: &BTreeMap<PortId, Port<'a>>,
        vrfs: &[(String, String)],
        ends: &mut BTreeMap<&str, Vec<String>>,
    ) {
        for ((device, _), port) in ports {
            let Some(LeadsTo::Device { device: router, .. }) = port.leads_to else { continue };
            let is_router = self.desired(router).is_some_and(|desired| !desired.device.role.is_switch());
            if let Some(own) = ends.get_mut(device.as_str()).filter(|own| is_router && !own.is_empty()) {
                let at_router = vrfs.iter().filter(|(name, _)| **name == **router);
                own.extend(at_router.map(|(_, hop)| hop.clone()));
            }
        }
    }

    fn desired(&self, device: &str) -> Option<&'a FabricDesired> {
        self.inputs.fabric.switches.get(device).map(|(_, desired)| desired)
    }

    /// A hop with the name of a VRF.
    fn at_device(&self, hop: &observation::Hop<'a>, device: &Name, vrf: &str, vlans: VlanSet) -> Hop {
        let (state, message) = self.inputs.reports.on_switch(self.inputs.observation, hop);
        Hop {
            id: String::new(),
            tier: Tier::Gateways,
            label: format!("VRF {vrf}"),
            detail: device.to_string(),
            group: format!("FabricDevice/{device}"),
            state,
            message,
            vlans,
            mtu: None,
            addresses: Vec::new(),
            part: Part::Elsewhere,
        }
    }
}
