//! Which switch ports carry which network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::{RoutedInterface, VlanId};

use crate::kinds::{BridgeDomainSpec, LeadsTo, ServiceSpec, Spec, VrfAttachmentSpec};
use crate::status::inputs::Inputs;
use crate::store::Store;
use crate::vlan::{VlanScope, Vlans, vid_of};
use crate::work::Work;
use crate::{Config, Effect, Key, Kind, Name, Target};

use super::Fabric;
use super::changes::Place;
use super::network::End;
use super::placement::{Plan, Routed};
use super::topology::{Indices, Ports, add_ports};

/// Maximum entries of the path cache.
const PATH_CACHE_SIZE: usize = 1024;

/// The ConnectionPoints, the PhysicalNetworks and the routing devices that a path joins.
pub(super) type Endpoints = (BTreeSet<Name>, BTreeSet<Name>, BTreeSet<Name>);

impl Fabric {
    /// Places a network on switch ports and removes it from others.
    pub(super) fn place(&mut self, config: &Config, store: &Store, vlan: &Vlans, key: &Key, work: &mut Work) {
        let mut desired = self.desired_plan(store, vlan, key);
        let desired_routed = self.desired_routed(store, key, desired.as_ref());
        if let Some((_, ports)) = &mut desired {
            // The VRF may not have our finalizer yet, and a router has nothing of a VLAN but its interface in a VRF.
            let waits =
                |device: &Name| self.topology.is_router(device) && !desired_routed.contains_key(device);
            if ports.keys().any(waits) {
                Arc::make_mut(ports).retain(|device, _| !waits(device));
            }
        }
        let known = self.placements.get(key);
        if known.is_some_and(|known| {
            known.rejected_by.is_some()
                && (&known.desired, &known.desired_routed) != (&desired, &desired_routed)
        }) {
            self.clear_rejection(store, key, work);
        }
        let (plan, routed) = self.limit_to_confirmed(vlan, key, desired.clone(), &desired_routed);
        let (before, routed_before) = self.placements.update(key, |placement| {
            (placement.desired, placement.desired_routed) = (desired, desired_routed);
            let before = std::mem::replace(&mut placement.planned, plan.clone());
            let routed_before = std::mem::replace(&mut placement.routed, routed.clone());
            if let (Some((former, _)), Some((now, _))) = (&before, &plan)
                && former != now
            {
                placement.vlans.extend([*former, *now]);
            }
            (before, routed_before)
        });
        let gap = self.gap_of(store, key);
        let gap_before = match gap {
            None => self.networks.get_mut(key).and_then(|network| network.gap.take()),
            gap => std::mem::replace(&mut self.networks.entry(key.clone()).or_default().gap, gap),
        };
        let gap = self.networks.get(key).and_then(|network| network.gap.as_ref());
        let mut changed = before != plan || routed_before != routed || gap_before.as_ref() != gap;
        changed |= self.update_unled(store, key);
        if let Some((vid, ports)) = &before {
            for device in ports.keys() {
                if plan.as_ref().is_none_or(|(new, ports)| new != vid || !ports.contains_key(device)) {
                    changed |= self.want(device, *vid, key, &Place::default(), work);
                    self.note_left(store, key, device);
                }
            }
        }
        if let Some((vid, ports)) = &plan {
            for (device, indices) in ports.iter() {
                let place = Place { ports: indices.clone(), routed: routed.get(device).cloned() };
                changed |= self.want(device, *vid, key, &place, work);
            }
        }
        if changed {
            store.evaluate_networks([key.clone()], work);
        }
        if store.contains(key) {
            work.evaluate.insert(key.clone());
        }
        if config.bridge_domains {
            self.sync_bridge_domain(store, key, work);
        }
        self.drop_if_unused(store, key);
    }

    /// Notes that a switch may still carry VLANs of a network that were removed.
    pub(super) fn note_left(&mut self, store: &Store, network: &Key, device: &Name) {
        if store.contains(network) {
            self.placements.note_left(network, [device.clone()]);
        }
    }

    fn want(&mut self, device: &Name, vid: VlanId, network: &Key, place: &Place, work: &mut Work) -> bool {
        let count = self.change_count;
        let changed =
            self.devices.get_mut(device).is_some_and(|device| device.want(vid, network, place, count));
        if changed {
            work.publish.insert(Target::Fabric(device.clone()));
        }
        changed
    }

    /// The desired plan of a network: its VLAN and ports, in components where it holds the VLAN.
    fn desired_plan(&self, store: &Store, vlan: &Vlans, key: &Key) -> Option<Plan> {
        let record = store.get(key).filter(|record| record.finalized && !record.generated)?;
        let spec = record.effective.as_deref()?;
        let vid = vid_of(spec)?;
        let devices = self.ends_of_network(key).filter_map(End::device);
        let mut ports = self.ports_of(spec.service(), self.points_of(key), devices);
        // A connection point may have grown into a component where another network holds the VLAN.
        let components: BTreeSet<&Name> =
            ports.keys().filter_map(|device| self.topology.component(device)).collect();
        let is_held = |fabric: &Name| vlan.check(vid, key, &VlanScope::Fabric(fabric.clone())).is_ok();
        let held: BTreeSet<&Name> = components.into_iter().filter(|fabric| is_held(fabric)).collect();
        let stays = |device: &Name| self.topology.component(device).is_some_and(|own| held.contains(own));
        if !ports.keys().all(stays) {
            Arc::make_mut(&mut ports).retain(|device, _| stays(device));
        }
        Some((vid, ports))
    }

    /// How the service is led into VRFs on the devices of its plan.
    fn desired_routed(&self, store: &Store, key: &Key, plan: Option<&Plan>) -> Routed {
        let Some((_, ports)) = plan.filter(|_| self.ends_of_network(key).any(|end| end.device().is_some()))
        else {
            return Routed::new();
        };
        let attachments = store.referrers(key).filter_map(|user| {
            let spec = store.effective(user, Spec::vrf_attachment)?;
            // Without our finalizer it may go at any moment, and its devices don't have it yet.
            let record = store.get(&Key::cluster(Kind::VRF, &spec.vrf)).filter(|record| record.finalized)?;
            let vrf = record.effective.as_deref()?.vrf()?;
            (spec.service == key.name).then_some((user, spec, vrf))
        });
        let mut routed = Routed::new();
        for (user, spec, vrf) in attachments {
            for interface in spec.interfaces.iter().filter(|one| ports.contains_key(&one.device)) {
                routed.entry(interface.device.clone()).or_insert_with(|| {
                    Arc::new(RoutedInterface {
                        vrf: vrf.device_name(&spec.vrf).to_owned(),
                        owner: user.to_string(),
                        addresses: interface.addresses.clone(),
                        mtu: spec.mtu,
                        routes: spec.static_routes.clone(),
                    })
                });
            }
        }
        routed
    }

    /// Updates why a network is not led to routers; returns true on a change.
    fn update_unled(&mut self, store: &Store, key: &Key) -> bool {
        let routers: BTreeSet<&Name> = self
            .ends_of_network(key)
            .filter_map(End::device)
            .filter(|device| self.topology.is_router(device))
            .collect();
        let mut unled = BTreeMap::new();
        if !routers.is_empty() {
            let service = store.effective(key, Spec::service);
            let others = self.ports_of(service, self.points_of(key), std::iter::empty());
            for router in routers {
                if let Err(problem) = self.led_to(router, &others) {
                    unled.extend(problem.map(|problem| (router.clone(), problem)));
                }
            }
        }
        let Some(network) = self.networks.get_mut(key) else { return false };
        let changed = network.unled != unled;
        network.unled = unled;
        changed
    }

    /// The ports by which a network with these other ports is led to a router. `Err`: none, and why if that is an error: a
    /// network without other ends waits for them at a router with several fabrics.
    fn led_to(&self, router: &Name, others: &Ports) -> Result<Ports, Option<String>> {
        let fabrics: BTreeSet<&Name> =
            others.keys().filter_map(|device| self.topology.component(device)).collect();
        if fabrics.is_empty() && self.topology.fabrics_of(router).len() > 1 {
            return Err(None);
        }
        self.topology.router_ports(router, &fabrics).map_err(Some)
    }

    /// The ports of connection points, of a service's networks and of the devices that route it, and of all links on
    /// paths between them.
    pub(super) fn ports_of<'a>(
        &self,
        service: Option<&ServiceSpec>,
        points: impl Iterator<Item = &'a Name>,
        devices: impl Iterator<Item = &'a Name>,
    ) -> Arc<Ports> {
        let networks = service.map(|service| service.physical_networks.iter().cloned().collect());
        let ends: Endpoints =
            (points.cloned().collect(), networks.unwrap_or_default(), devices.cloned().collect());
        if let Some(known) = self.path_cache.borrow().get(&ends) {
            return known.clone();
        }
        let mut ports = Ports::new();
        for point in ends.0.iter().filter_map(|name| self.points.get(name)) {
            add_ports(&mut ports, &point.ports);
        }
        for more in ends.1.iter().filter_map(|network| self.topology.network_ports(network)) {
            add_ports(&mut ports, more);
        }
        let led: Vec<Ports> = ends.2.iter().filter_map(|device| self.routing_ports(device, &ports)).collect();
        for more in &led {
            add_ports(&mut ports, more);
        }
        let paths = self.topology.paths_between(ports.keys());
        add_ports(&mut ports, &paths);
        let ports = Arc::new(ports);
        let mut paths = self.path_cache.borrow_mut();
        if paths.len() >= PATH_CACHE_SIZE {
            paths.clear();
        }
        paths.insert(ends, ports.clone());
        ports
    }

    /// The ports by which a network with these other ports is led to a device that routes it. A switch needs none: links
    /// lead there as to any other end.
    fn routing_ports(&self, device: &Name, others: &Ports) -> Option<Ports> {
        if self.topology.is_router(device) {
            return self.led_to(device, others).ok();
        }
        self.topology.component(device).map(|_| Ports::from([(device.clone(), Indices::default())]))
    }

    /// Why a network is not led to a router, as a sentence.
    pub fn unled(&self, network: &Key, router: &Name) -> Option<&str> {
        self.networks.get(network)?.unled.get(router).map(String::as_str)
    }

    /// A hash of the names of ports that is the same in every process. Those that lead to nodes don't count: a node that joins
    /// changes the path of no other.
    pub fn hash_of(&self, ports: &Arc<Ports>) -> u64 {
        let place = Arc::as_ptr(ports).addr();
        if let Some((_, hash)) = self.hash_cache.borrow().get(&place) {
            return *hash;
        }
        let mut inputs = Inputs::default();
        for (device, indices) in ports.iter() {
            let names = self.topology.port_names(device);
            let leads_to_node =
                |index: &&u16| matches!(self.topology.leads_to(device, **index), Some(LeadsTo::Node { .. }));
            let inner = indices.iter().filter(|index| !leads_to_node(index));
            let names: Vec<&Name> = inner.filter_map(|index| names.get(usize::from(*index))).collect();
            inputs.add(&(device, names));
        }
        let hash = inputs.finish();
        let mut hashes = self.hash_cache.borrow_mut();
        if hashes.len() >= PATH_CACHE_SIZE {
            hashes.clear();
        }
        hashes.insert(place, (ports.clone(), hash));
        hash
    }

    /// The networks that an object depends on, each with its VLAN and the ports that matter to this object.
    pub fn paths(&self, store: &Store, key: &Key) -> Vec<(Key, VlanId, Arc<Ports>)> {
        let Some(record) = store.get(key) else { return Vec::new() };
        match record.effective.as_deref() {
            Some(Spec::Attachment(spec)) => {
                let services = spec.services.iter().map(|name| Key::cluster(Kind::L2Service, name));
                let paths = services.filter_map(|key| {
                    let service = store.effective(&key, Spec::service)?;
                    let point = std::iter::once(&spec.connection_point);
                    let ports = self.ports_of(Some(service), point, std::iter::empty());
                    Some((key, service.vid, ports))
                });
                paths.collect()
            }
            Some(Spec::VrfAttachment(spec)) => {
                let key = Key::cluster(Kind::L2Service, &spec.service);
                let path = self.path_into_vrf(store, spec, self.points_of(&key));
                path.into_iter().collect()
            }
            Some(Spec::BgpSessionGroup(spec)) => {
                let key = Key::cluster(Kind::L2Service, &spec.service);
                let Some(service) = store.effective(&key, Spec::service) else { return Vec::new() };
                let devices: BTreeSet<&Name> = store
                    .vrf_attachments_of(&key)
                    .filter(|(_, into)| into.vrf == spec.vrf)
                    .flat_map(|(_, into)| into.devices())
                    .collect();
                let point = std::iter::once(&spec.connection_point);
                let ports = self.ports_of(Some(service), point, devices.into_iter());
                vec![(key, service.vid, ports)]
            }
            Some(_) => {
                let network =
                    if record.generated { Key::cluster(Kind::L2Service, &key.name) } else { key.clone() };
                let planned = self.placements.planned(&network).cloned();
                planned.map(|(vid, ports)| (network, vid, self.switched(ports))).into_iter().collect()
            }
            None => Vec::new(),
        }
    }

    /// The network of a VRFAttachment, its VLAN, and the ports between its devices and these connection points.
    pub fn path_into_vrf<'a>(
        &self,
        store: &Store,
        spec: &'a VrfAttachmentSpec,
        points: impl Iterator<Item = &'a Name>,
    ) -> Option<(Key, VlanId, Arc<Ports>)> {
        let key = Key::cluster(Kind::L2Service, &spec.service);
        let service = store.effective(&key, Spec::service)?;
        let ports = self.ports_of(Some(service), points, spec.devices());
        Some((key, service.vid, ports))
    }

    /// Ports without those of routers: these are the VRFAttachment's alone.
    fn switched(&self, mut ports: Arc<Ports>) -> Arc<Ports> {
        if ports.keys().any(|device| self.topology.is_router(device)) {
            Arc::make_mut(&mut ports).retain(|device, _| !self.topology.is_router(device));
        }
        ports
    }

    /// The devices that may carry VLANs of an object.
    pub fn footprint(&self, store: &Store, key: &Key) -> BTreeSet<Name> {
        if matches!(key.kind, Kind::L2ServiceAttachment | Kind::VRFAttachment | Kind::BGPSessionGroup) {
            let paths = self.paths(store, key);
            return paths.iter().flat_map(|(_, _, ports)| ports.keys().cloned()).collect();
        }
        if let Some((_, ports)) = self.placements.planned(key) {
            return ports.keys().cloned().collect();
        }
        let spec = store.get(key).and_then(|record| record.effective.as_deref());
        let domain = spec.and_then(Spec::bridge_domain);
        let points = domain.into_iter().flat_map(|domain| &domain.connection_points);
        let devices = self.ends_of_network(key).filter_map(End::device);
        self.ports_of(spec.and_then(Spec::service), points, devices).keys().cloned().collect()
    }

    /// The engine's L2BridgeDomain of a service was seen.
    pub fn bridge_domain_seen(&mut self, name: &Name, spec: BridgeDomainSpec) {
        self.bridge_domains.insert(name.clone(), spec);
    }

    /// An L2BridgeDomain is gone. If it was of a service, that is placed again, which writes it again.
    pub(super) fn bridge_domain_gone(&mut self, name: &Name, work: &mut Work) {
        if self.bridge_domains.remove(name).is_some() {
            work.place.insert(Key::cluster(Kind::L2Service, name));
        }
    }

    /// Writes or deletes the L2BridgeDomain of a service.
    fn sync_bridge_domain(&mut self, store: &Store, key: &Key, work: &mut Work) {
        if key.kind != Kind::L2Service {
            return;
        }
        let connection_points: Vec<Name> = self.points_of(key).cloned().collect();
        let vlan = self.placements.planned(key).map(|(vid, _)| *vid);
        let spec = vlan
            .filter(|_| !connection_points.is_empty())
            .map(|vlan| BridgeDomainSpec { vlan, connection_points });
        let domain = Key::cluster(Kind::L2BridgeDomain, &key.name);
        let foreign = store.get(&domain).is_some_and(|record| !record.generated);
        if foreign || self.bridge_domains.get(&key.name) == spec.as_ref() {
            return;
        }
        match &spec {
            Some(spec) => self.bridge_domains.insert(key.name.clone(), spec.clone()),
            None => self.bridge_domains.remove(&key.name),
        };
        work.effects.push(Effect::BridgeDomain { service: key.name.clone(), spec });
    }
}
