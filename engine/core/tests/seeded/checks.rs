//! The invariants of the simulated cluster.

use eno_core::kinds::Spec;
use eno_core::{Key, Kind, Name, Object, Target};
use eno_schemas::{Desired, FabricVlan, NadVlans, Phase, VlanId};

use super::cluster::{Cluster, Violation, is_user_object};

/// The ports that carry the VLANs of every attachment: of the nodes, and of the links between the switches.
const PORTS: [(&str, &str); 6] = [
    ("leaf1", "e1"),
    ("leaf1", "u1"),
    ("leaf2", "e1"),
    ("leaf2", "u1"),
    ("spine", "leaf1"),
    ("spine", "leaf2"),
];

impl Cluster {
    fn carries(&self, device: &str, port: &str, vid: VlanId) -> bool {
        match self.applied.get(&Target::Fabric(device.into())) {
            Some(Desired::Fabric(fabric)) => {
                fabric.ports.iter().any(|one| one.name == port && one.vlans.contains(vid))
            }
            _ => false,
        }
    }

    /// The VLANs of an applied NAD.
    fn nad_vlans(&self, key: &Key) -> Option<Vec<VlanId>> {
        match self.applied.get(&Target::Nad(key.namespace.clone(), key.name.clone()))? {
            Desired::Nad(nad) => match &nad.attachment.as_ref()?.vlans {
                NadVlans::Access(vid) => Some(vec![*vid]),
                NadVlans::Selective(vids) => Some(vids.iter().collect()),
                NadVlans::Trunk => Some(Vec::new()),
            },
            _ => None,
        }
    }

    /// The VLANs that an attachment requests; `None`: the engine has not received all objects involved.
    fn requested_vlans(&self, key: &Key, of: &Object) -> Option<Vec<VlanId>> {
        let Ok(Spec::Attachment(spec)) = &of.spec else { return None };
        let mut vids = Vec::new();
        for name in &spec.services {
            let key = Key::cluster(Kind::L2Service, name);
            let service = &self.objects.get(&key).filter(|stored| !stored.object.deleting)?.object;
            if self.watch.contains_key(&key) || !service.finalized {
                return None;
            }
            let Ok(Spec::Service(service)) = &service.spec else { return None };
            vids.push(service.vid);
        }
        vids.sort_unstable();
        (!self.watch.contains_key(key)).then_some(vids)
    }

    /// Invariants: each VLAN has one owner, and ready attachments are applied.
    pub fn check(&self) -> Result<(), Violation> {
        for desired in self.nats.commands().map(|(_, stored)| &stored.command.desired) {
            let Desired::Fabric(fabric) = desired else { continue };
            if let Some(vlan) = fabric.vlans.iter().find(|vlan| vlan.owners.len() != 1) {
                return Err(format!("VLAN {} is of {:?}", vlan.vid, vlan.owners));
            }
            let has_vrf = |name: &str| fabric.vrfs.iter().any(|vrf| vrf.name == name);
            let is_led = |vlan: &FabricVlan| match &vlan.routed {
                Some(routed) => has_vrf(&routed.vrf),
                None => fabric.device.role.is_switch(),
            };
            if let Some(vlan) = fabric.vlans.iter().find(|vlan| !is_led(vlan)) {
                return Err(format!("VLAN {} is led into no VRF of the command: {fabric:?}", vlan.vid));
            }
        }
        self.check_cabling()?;
        self.check_routed()?;
        for (key, stored) in &self.objects {
            let ready =
                key.kind == Kind::L2ServiceAttachment && self.last_phases.get(key) == Some(&Phase::Ready);
            if !ready || stored.object.deleting || self.is_unreconciled {
                continue;
            }
            // The former engine may have changed its mind, and this one changes it back.
            let is_changing = self.last.waiting + self.last.outstanding > 0;
            if is_changing && self.inherited.contains(key) {
                continue;
            }
            let Some(requested) = self.requested_vlans(key, &stored.object) else { continue };
            let nad = Target::Nad(key.namespace.clone(), key.name.clone());
            let fabric = PORTS.map(|(device, _)| Target::Fabric(device.into()));
            if fabric.iter().chain([&nad]).any(|target| self.drivers.has_stale_effect(target)) {
                continue;
            }
            let Some(vlans) = self.nad_vlans(key) else {
                return Err(format!("{key} is ready and has no NAD"));
            };
            if vlans != requested {
                return Err(format!("{key} is ready on {vlans:?} and requests {requested:?}"));
            }
            for (vid, (device, port)) in vlans.iter().flat_map(|vid| PORTS.map(|port| (*vid, port))) {
                if !self.carries(device, port, vid) {
                    return Err(format!("{key} is ready and VLAN {vid} is not on {device}:{port}"));
                }
            }
        }
        Ok(())
    }

    /// A ready VRFAttachment is on its device as it is written.
    fn check_routed(&self) -> Result<(), Violation> {
        let is_changing = self.last.waiting + self.last.outstanding > 0;
        for (key, stored) in &self.objects {
            let Ok(Spec::VrfAttachment(spec)) = &stored.object.spec else { continue };
            let is_known = !self.watch.contains_key(key) && !self.is_unreconciled;
            let is_ready = is_known && self.last_phases.get(key) == Some(&Phase::Ready);
            if !is_ready || stored.object.deleting || (is_changing && self.inherited.contains(key)) {
                continue;
            }
            for interface in &spec.interfaces {
                let target = Target::Fabric(interface.device.clone());
                let Some(Desired::Fabric(fabric)) = self.applied.get(&target) else { continue };
                let mut routed = fabric.vlans.iter().filter_map(|vlan| vlan.routed.as_ref());
                let is_there = routed
                    .any(|routed| routed.owner == key.to_string() && routed.addresses == interface.addresses);
                if !is_there && !self.drivers.has_stale_effect(&target) {
                    return Err(format!("{key} is ready and not on {target}"));
                }
            }
        }
        Ok(())
    }

    /// No object is ready if the engine knows that one of its cables is missing.
    fn check_cabling(&self) -> Result<(), Violation> {
        let is_delivered = |key: &Key| !self.watch.contains_key(key);
        let is_switch_delivered = |name: &str| is_delivered(&Key::cluster(Kind::FabricDevice, &name.into()));
        if self.is_unreconciled || !is_switch_delivered("leaf1") || !is_switch_delivered("leaf2") {
            return Ok(());
        }
        for (key, stored) in &self.objects {
            if stored.object.deleting
                || self.last_phases.get(key) != Some(&Phase::Ready)
                || !is_delivered(key)
            {
                continue;
            }
            let lacks_cable = match &stored.object.spec {
                Ok(Spec::Attachment(_)) => !self.cabling.link,
                Ok(Spec::Service(spec)) => !self.cabling.gateway && !spec.physical_networks.is_empty(),
                _ => false,
            };
            if lacks_cable {
                return Err(format!("{key} is ready and a cable of it is missing"));
            }
        }
        Ok(())
    }

    /// Invariant of an object whose finalizer is removed: its configuration is gone.
    pub fn check_removed(&self, key: &Key) -> Result<(), Violation> {
        let nad = Target::Nad(key.namespace.clone(), key.name.clone());
        let left = self.nad_vlans(key).is_some() && !self.drivers.is_unknown(&nad);
        if left && key.kind == Kind::L2ServiceAttachment {
            return Err(format!("{key} is removed and its NAD is left"));
        }
        let name = key.to_string();
        for (target, desired) in self.applied.iter().filter(|(target, _)| !self.drivers.is_unknown(target)) {
            let Desired::Fabric(fabric) = desired else { continue };
            if fabric.vlans.iter().any(|vlan| vlan.owners.contains(&name)) {
                return Err(format!("{key} is removed and {target} has its VLAN"));
            }
            let leads = |vlan: &FabricVlan| vlan.routed.as_ref().is_some_and(|routed| routed.owner == name);
            if fabric.vlans.iter().any(leads) || fabric.vrfs.iter().any(|vrf| vrf.owner == name) {
                return Err(format!("{key} is removed and {target} has what it led into VRFs"));
            }
        }
        Ok(())
    }

    /// Invariants if nothing happens any more: no change waits, and a VLAN is on all switches or on none.
    pub fn check_quiescent(&self) -> Result<(), Violation> {
        if !self.drivers.silent.is_empty() || !self.drivers.unreachable.is_empty() {
            return Ok(());
        }
        if self.last.waiting > 0 || self.last.outstanding > 0 {
            let (waiting, outstanding) = (self.last.waiting, self.last.outstanding);
            return Err(format!("{waiting} changes wait for {outstanding} commands and nothing happens"));
        }
        Ok(())
    }

    /// Invariants of the quiescent cluster without faults: all objects are ready, as their statuses say.
    pub fn check_converged(&self) -> Result<(), Violation> {
        for (key, stored) in &self.objects {
            let phase = stored.outbox.last().and_then(|(_, status)| status.phase);
            let status = stored.status.as_ref();
            if status.and_then(|status| status.phase) != phase {
                return Err(format!("{key} has the status {status:?} and the recorded phase {phase:?}"));
            }
            let stays = |kind: Kind, name: &Name| {
                let named = self.objects.get(&Key::cluster(kind, name));
                named.is_some_and(|stored| !stored.object.deleting)
            };
            let is_complete = match &stored.object.spec {
                Ok(Spec::Attachment(spec)) => {
                    spec.services.iter().all(|service| stays(Kind::L2Service, service))
                }
                Ok(Spec::VrfAttachment(spec)) => {
                    stays(Kind::L2Service, &spec.service) && stays(Kind::VRF, &spec.vrf)
                }
                _ => true,
            };
            let expected = if stored.object.deleting { Phase::Terminating } else { Phase::Ready };
            if is_complete && phase != Some(expected) {
                return Err(format!("{key} ends {phase:?}: {status:?}"));
            }
        }
        Ok(())
    }

    /// Invariants after all objects of users are deleted: nothing of them is left.
    pub fn check_empty(&self) -> Result<(), Violation> {
        if let Some(key) = self.objects.keys().find(|key| is_user_object(key)) {
            return Err(format!("{key} is left"));
        }
        for (target, desired) in &self.applied {
            let Desired::Fabric(fabric) = desired else { return Err(format!("{target} is left")) };
            if !fabric.vrfs.is_empty() {
                return Err(format!("{target} has VRFs left"));
            }
            if !fabric.vlans.is_empty() || fabric.ports.iter().any(|port| !port.vlans.is_empty()) {
                return Err(format!("{target} has VLANs left"));
            }
        }
        Ok(())
    }
}
