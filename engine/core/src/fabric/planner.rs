//! Planning: from realised specs to the desired state of every target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::{Phase, VlanAttachment, VlanId, VlanType};

use crate::fabric::device::DeviceTarget;
use crate::fabric::topology::{Indices, Ports, Topology, add_ports};
use crate::nad::target::{self as nad, NadTarget};
use crate::spec::{AttachmentSpec, BridgeDomainSpec, DeviceSpec, ServiceSpec, Spec};
use crate::validate::compat;
use crate::vlan::VlanScope;
use crate::{Effect, Key, Kind, Labels, Name, PortMemory, Target};

use crate::engine::Engine;
use crate::nad::addresses::LeaseHandling;
use crate::store::record::{Network, Point, Record};

/// Maximum entries of the path cache.
const PATH_CACHE_SIZE: usize = 1024;

/// The ConnectionPoints and PhysicalNetworks that a path joins.
pub(crate) type Endpoints = (BTreeSet<Name>, BTreeSet<Name>);

impl Engine {
    /// Builds the topology from all realised FabricDevices. When it changed, everything that depends on it is
    /// validated and planned again.
    pub(crate) fn rebuild_topology(&mut self) {
        self.fabric.topology_dirty = false;
        let specs: BTreeMap<Name, Arc<Spec>> = self
            .store
            .records
            .iter()
            .filter(|(key, record)| key.kind == Kind::FabricDevice && record.finalized)
            .filter_map(|(key, record)| Some((key.name.clone(), record.effective.clone()?)))
            .collect();
        let topology = Topology::new(specs.iter().filter_map(|(name, spec)| Some((name, spec.device()?))));
        let mut reshaped = false;
        for (name, spec) in specs.iter().filter_map(|(name, spec)| Some((name, spec.device()?))) {
            let ports = topology.port_names(name);
            let changed = if let Some(device) = self.fabric.devices.get_mut(name) {
                if device.set_audit_interval(spec.device.audit_interval) {
                    self.schedule.publish_queue.insert(Target::Fabric(name.clone()));
                }
                device.update_spec(spec, ports, self.fabric.change_count)
            } else {
                let device =
                    DeviceTarget::new(spec, ports, &self.port_memory(name, spec), self.fabric.change_count);
                self.fabric.devices.insert(name.clone(), device);
                true
            };
            let changed = self.forget_leaving(name) || changed;
            if changed {
                reshaped = true;
                self.schedule.publish_queue.insert(Target::Fabric(name.clone()));
                self.status.queue.insert(Key::cluster(Kind::FabricDevice, name));
            }
        }
        self.drain_leaving(&specs);
        let same = self.fabric.topology.same(&topology);
        self.fabric.topology = topology;
        self.fabric.path_cache.borrow_mut().clear();
        let is_there = |(key, record): (&Key, &Record)| key.kind == Kind::FabricDevice && !record.deleting;
        let has_fabric = self.store.records.iter().any(is_there);
        let had_fabric = std::mem::replace(&mut self.fabric.has_devices, has_fabric);
        if !same || reshaped || has_fabric != had_fabric {
            self.status
                .queue
                .extend(self.store.records.keys().filter(|key| key.kind == Kind::PhysicalNetwork).cloned());
            self.revalidate_kind(Kind::ConnectionPoint);
            self.revalidate_kind(Kind::L2Service);
            self.vlan.claim_queue.extend(self.fabric.networks.keys().cloned());
            self.fabric.queue.extend(self.fabric.networks.keys().cloned());
            let services = self.store.records.keys().filter(|key| key.kind == Kind::L2Service);
            self.vlan.claim_queue.extend(services.clone().cloned());
            self.fabric.queue.extend(services.cloned());
        }
    }

    /// The port memory in the status of a device, if it is still the same device. Ports that left the spec while no
    /// engine led are added as leaving.
    fn port_memory(&self, name: &Name, spec: &DeviceSpec) -> PortMemory {
        let Some(record) = self.store.records.get(&Key::cluster(Kind::FabricDevice, name)) else {
            return PortMemory::default();
        };
        let before = record.status.realized.as_deref().and_then(Spec::device);
        let Some(before) = before.filter(|before| before.is_same_device(spec)) else {
            return PortMemory::default();
        };
        let mut memory = record.status.port_memory.clone();
        memory.closed.retain(|port| before.lag(port) == spec.lag(port));
        let interfaces = |spec: &DeviceSpec| -> BTreeSet<Name> {
            spec.ports.iter().map(|port| port.lag.as_ref().unwrap_or(&port.name)).cloned().collect()
        };
        memory.leaving.extend(interfaces(before).difference(&interfaces(spec)).cloned());
        memory
    }

    /// Drops the leaving ports of a device that the admin annotated for it; returns true on a change.
    fn forget_leaving(&mut self, name: &Name) -> bool {
        let record = self.store.records.get(&Key::cluster(Kind::FabricDevice, name));
        let forgets = record.is_some_and(|record| record.forget && !record.deleting);
        forgets
            && self
                .fabric
                .devices
                .get_mut(name)
                .is_some_and(|device| device.forget_leaving(self.fabric.change_count))
    }

    /// Adds devices that are being deleted since before this process started: they are emptied first.
    fn drain_leaving(&mut self, specs: &BTreeMap<Name, Arc<Spec>>) {
        let leaving: BTreeMap<Name, Arc<Spec>> = self
            .store
            .records
            .iter()
            .filter(|(key, record)| key.kind == Kind::FabricDevice && record.finalized && record.deleting)
            .filter(|(key, _)| !self.fabric.devices.contains_key(&key.name))
            .filter_map(|(key, record)| {
                let spec = record.status.realized.as_ref().or(record.spec.as_ref().ok());
                Some((key.name.clone(), spec?.clone()))
            })
            .collect();
        if leaving.is_empty() {
            return;
        }
        let all = specs.iter().chain(&leaving);
        let topology = Topology::new(all.filter_map(|(name, spec)| Some((name, spec.device()?))));
        for (name, spec) in leaving.iter().filter_map(|(name, spec)| Some((name, spec.device()?))) {
            let ports = topology.port_names(name);
            let device =
                DeviceTarget::new(spec, ports, &self.port_memory(name, spec), self.fabric.change_count);
            self.fabric.devices.insert(name.clone(), device);
            self.schedule.publish_queue.insert(Target::Fabric(name.clone()));
        }
    }

    /// Computes the switch ports and scopes of a connection point.
    pub(crate) fn plan_point(&mut self, key: &Key) {
        let Some(record) = self.store.records.get(key) else { return };
        let spec = record.spec.as_ref().ok().or(record.effective.as_ref());
        let Some(spec) = spec.and_then(|spec| spec.connection_point()) else { return };
        // Several plugins may have one parent.
        let masters: BTreeSet<&str> = spec.cnis.iter().filter_map(|cni| cni.plugin.master()).collect();
        let nics: Vec<&str> = if spec.interfaces.is_empty() {
            masters.into_iter().collect()
        } else {
            spec.interfaces.iter().map(String::as_str).collect()
        };
        let pool = spec.node_pool.as_ref().map(|name| Key::cluster(Kind::NodePool, name));
        let selector =
            pool.as_ref().map(|pool| self.effective(pool, Spec::node_pool).map(|pool| &pool.node_selector));
        let is_member = |labels: &Labels| selector.is_none_or(|s| s.is_some_and(|s| s.matches(labels)));
        let has_several_nodes = self.store.nodes.values().filter(|labels| is_member(labels)).nth(1).is_some();
        let mut point = Point { has_several_nodes, ..Point::default() };
        for (node, labels) in &self.store.nodes {
            let selected = match selector {
                Some(selector) => selector.is_some_and(|selector| selector.matches(labels)),
                None => !nics.is_empty(),
            };
            if !selected {
                continue;
            }
            let ports = self.fabric.topology.node_ports(node, &nics);
            if !ports.is_empty() {
                let bare = nics.iter().filter(|nic| !self.fabric.topology.has_nic(node, nic));
                point.missing.extend(bare.map(|nic| (node.clone(), Some((*nic).to_owned()))));
            } else if pool.is_some() {
                point.missing.push((node.clone(), None));
            }
            add_ports(&mut point.ports, &ports);
        }
        if point.ports.is_empty() {
            point.missing.clear();
        }
        // The bridge is always a scope: it may have been in use before the fabric reached it.
        point.scopes = self.fabric_scopes(&point.ports);
        let pool = spec.node_pool.clone().unwrap_or_else(|| "".into());
        let bridge = spec.cnis.iter().find_map(|cni| cni.plugin.bridge()).unwrap_or(&key.name);
        point.scopes.insert(VlanScope::Bridge(pool, bridge.into()));
        if self.fabric.points.get(&key.name) == Some(&point) {
            return;
        }
        self.fabric.points.insert(key.name.clone(), point);
        self.fabric.path_cache.borrow_mut().clear();
        for (network, seen) in &self.fabric.networks {
            if seen.requested.contains_key(&key.name) || seen.points.contains_key(&key.name) {
                self.vlan.claim_queue.insert(network.clone());
                self.fabric.queue.insert(network.clone());
                self.status.queue.extend(self.store.referrers.get(network).into_iter().flatten().cloned());
            }
        }
    }

    fn fabric_scopes(&self, ports: &Ports) -> BTreeSet<VlanScope> {
        ports
            .keys()
            .filter_map(|device| self.fabric.topology.component(device))
            .map(|name| VlanScope::Fabric(name.clone()))
            .collect()
    }

    /// Restores VLAN claims before any new decision: first where a VLAN is realised, then where it is requested,
    /// objects in error last.
    pub(crate) fn restore_claims(&mut self) {
        self.vlan.restored = true;
        let mut rounds: [Vec<(VlanId, Key, BTreeSet<VlanScope>)>; 4] = Default::default();
        for (key, record) in
            self.store.records.iter().filter(|(key, record)| is_network(key) && !record.generated)
        {
            let Some(vid) = record.effective.as_deref().and_then(vid_of) else { continue };
            let last = usize::from(record.status.phase == Some(Phase::Error));
            rounds[last].push((vid, key.clone(), self.realised_scopes(key)));
            rounds[2 + last].push((vid, key.clone(), self.claimed_scopes(key)));
        }
        for claims in rounds {
            let vids: BTreeSet<VlanId> = claims.iter().map(|(vid, ..)| *vid).collect();
            for (vid, key, scopes) in claims {
                let seniority =
                    self.store.records.get(&key).map_or_else(|| (0, "".into()), Record::seniority);
                self.vlan.ids.claim(vid, &key, seniority, scopes);
                self.fabric.networks.entry(key).or_default().claimed.insert(vid);
            }
            for vid in vids {
                self.vlan.ids.arbitrate(vid);
            }
        }
    }

    fn realised_scopes(&self, key: &Key) -> BTreeSet<VlanScope> {
        let points = self.fabric.networks.get(key).map(|network| network.points.keys());
        let mut scopes = self.scopes_of_points(points.into_iter().flatten());
        if let Some(service) = self.effective(key, Spec::service) {
            scopes.extend(self.scopes_of_networks(service));
        }
        scopes
    }

    fn scopes_of_points<'a>(&self, points: impl Iterator<Item = &'a Name>) -> BTreeSet<VlanScope> {
        points
            .filter_map(|name| self.fabric.points.get(name))
            .flat_map(|point| point.scopes.iter().cloned())
            .collect()
    }

    fn scopes_of_networks(&self, service: &ServiceSpec) -> BTreeSet<VlanScope> {
        let mut scopes = BTreeSet::new();
        for name in &service.physical_networks {
            match self.fabric.topology.network_ports(name) {
                Some(ports) => scopes.extend(self.fabric_scopes(ports)),
                None => drop(scopes.insert(VlanScope::Network(name.clone()))),
            }
        }
        scopes
    }

    /// The scopes where a service has to hold its VLAN to be valid: those of its networks, and those where it is
    /// realised.
    pub(crate) fn own_scopes(&self, key: &Key, spec: &ServiceSpec) -> BTreeSet<VlanScope> {
        let mut scopes = self.realised_scopes(key);
        scopes.extend(self.scopes_of_networks(spec));
        scopes
    }

    /// All scopes in which a network claims its VLAN.
    pub(crate) fn claimed_scopes(&self, key: &Key) -> BTreeSet<VlanScope> {
        let mut scopes = self.realised_scopes(key);
        if let Some(network) = self.fabric.networks.get(key) {
            scopes.extend(self.scopes_of_points(network.requested.keys()));
        }
        let spec = self.store.records.get(key).and_then(|record| record.spec.as_ref().ok());
        if let Some(service) = spec.and_then(|spec| spec.service()) {
            scopes.extend(self.scopes_of_networks(service));
        }
        or_unplaced(scopes)
    }

    /// Updates the VLAN claims of a network. A network that is being removed keeps its claims until it is gone.
    pub(crate) fn update_claims(&mut self, key: &Key) {
        let mut claims: BTreeMap<VlanId, BTreeSet<VlanScope>> = BTreeMap::new();
        let mut seniority = (0, Name::from(""));
        match self.store.records.get(key) {
            Some(record) if record.status.phase == Some(Phase::Deleted) => {}
            Some(record) if record.deleting && record.effective.is_none() => {
                let vid = record.status.realized.as_deref().and_then(vid_of);
                claims.extend(vid.map(|vid| (vid, self.vlan.ids.scopes(vid, key))));
                seniority = record.seniority();
            }
            Some(record) if !record.generated => {
                seniority = record.seniority();
                if let Some(vid) = record.effective.as_deref().and_then(vid_of) {
                    claims.insert(vid, or_unplaced(self.realised_scopes(key)));
                }
                // Users of an object that is being deleted may still request it elsewhere.
                let spec = record.wanted().or(record.effective.as_ref());
                if let Some(vid) = spec.and_then(|spec| vid_of(spec)) {
                    // A request adds scopes, and replaces the scope Unplaced.
                    claims.insert(vid, self.claimed_scopes(key));
                }
            }
            _ => {}
        }
        if let Some((vid, scopes)) = self.withheld_scopes(key) {
            claims.entry(vid).or_default().extend(scopes);
        }
        let network = self.fabric.networks.entry(key.clone()).or_default();
        for vid in std::mem::replace(&mut network.claimed, claims.keys().copied().collect()) {
            claims.entry(vid).or_default();
        }
        for (vid, scopes) in claims {
            if self.vlan.ids.claim(vid, key, seniority.clone(), scopes) {
                self.vlan.arbitrate_queue.insert(vid);
            }
        }
        self.drop_if_unused(key);
    }

    fn drop_if_unused(&mut self, key: &Key) {
        let unused = |network: &Network| {
            network.points.is_empty()
                && network.requested.is_empty()
                && network.planned.is_none()
                && network.claimed.is_empty()
                && network.refusal.is_none()
        };
        if !self.store.records.contains_key(key) && self.fabric.networks.get(key).is_some_and(unused) {
            self.fabric.networks.remove(key);
        }
    }

    /// Updates how many users each network has at each connection point.
    pub(crate) fn update_usage(&mut self, key: &Key) {
        if !is_user(key) {
            return;
        }
        let Some(record) = self.store.records.get_mut(key) else { return };
        let active = record.finalized && !record.generated;
        let requested = record.wanted().filter(|_| active).cloned();
        let counted = record.effective.clone().filter(|_| active);
        let old_requested = std::mem::replace(&mut record.requested, requested.clone());
        let old_counted = std::mem::replace(&mut record.counted, counted.clone());
        for (old, new, realised) in [(old_requested, requested, false), (old_counted, counted, true)] {
            if old == new {
                continue;
            }
            for (spec, more) in [(new, true), (old, false)] {
                for (network, point) in spec.as_deref().map(|spec| demands(key, spec)).unwrap_or_default() {
                    let entry = self.fabric.networks.entry(network.clone()).or_default();
                    let points = if realised { &mut entry.points } else { &mut entry.requested };
                    if Network::count(points, &point, more) {
                        self.vlan.claim_queue.insert(network.clone());
                        if realised {
                            self.fabric.queue.insert(network);
                        }
                    }
                }
            }
        }
    }

    /// Plans a network onto switch ports and removes it from others.
    pub(crate) fn replan(&mut self, key: &Key) {
        let desired = self.desired_plan(key);
        let plan = self.apply_refusal(key, desired);
        let gap = self.gap_of(key);
        let Some(network) = self.fabric.networks.get_mut(key) else {
            if plan.is_none() {
                return;
            }
            self.fabric.networks.insert(key.clone(), Network::default());
            return self.replan(key);
        };
        let before = std::mem::replace(&mut network.planned, plan.clone());
        let gap_before = std::mem::replace(&mut network.gap, gap);
        let mut changed = before != plan || gap_before != network.gap;
        if let Some((vid, ports)) = &before {
            for device in ports.keys() {
                if plan.as_ref().is_none_or(|(new, ports)| new != vid || !ports.contains_key(device)) {
                    changed |= self.want(device, *vid, key, &Indices::default());
                    self.note_device_cleanup(device, key);
                }
            }
        }
        if let Some((vid, ports)) = &plan {
            for (device, indices) in ports.iter() {
                changed |= self.want(device, *vid, key, indices);
            }
        }
        if let (Some((former, _)), Some((now, _))) = (&before, &plan)
            && former != now
        {
            self.fabric.pending_vlan_changes.entry(key.clone()).or_default().extend([*former, *now]);
        }
        if changed {
            self.reevaluate_networks(BTreeSet::from([key.clone()]));
        }
        if self.store.records.contains_key(key) {
            self.status.queue.insert(key.clone());
        }
        self.sync_bridge_domain(key);
        self.drop_if_unused(key);
    }

    /// Notes that a device may still carry VLANs of a network that were removed.
    pub(crate) fn note_device_cleanup(&mut self, device: &Name, network: &Key) {
        if let Some(record) = self.store.records.get_mut(network) {
            record.cleanup_devices.insert(device.clone());
        }
    }

    fn want(&mut self, device: &Name, vid: VlanId, network: &Key, ports: &Indices) -> bool {
        let count = self.fabric.change_count;
        let changed =
            self.fabric.devices.get_mut(device).is_some_and(|device| device.want(vid, network, ports, count));
        if changed {
            self.schedule.publish_queue.insert(Target::Fabric(device.clone()));
        }
        changed
    }

    /// The desired plan of a network: its VLAN and ports, in components where it holds the VLAN.
    fn desired_plan(&self, key: &Key) -> Option<(VlanId, Arc<Ports>)> {
        let record = self.store.records.get(key).filter(|record| record.finalized && !record.generated)?;
        let spec = record.effective.as_deref()?;
        let points = self.fabric.networks.get(key).map(|network| network.points.keys());
        let vid = vid_of(spec)?;
        let mut ports = self.ports_of(spec.service(), points.into_iter().flatten());
        // A connection point may have grown into a component where another network holds the VLAN.
        let fabric_scopes: BTreeSet<&Name> =
            ports.keys().filter_map(|device| self.fabric.topology.component(device)).collect();
        let is_held =
            |fabric: &Name| self.vlan.ids.check(vid, key, &VlanScope::Fabric(fabric.clone())).is_ok();
        let held: BTreeSet<&Name> = fabric_scopes.iter().copied().filter(|fabric| is_held(fabric)).collect();
        let stays =
            |device: &Name| self.fabric.topology.component(device).is_some_and(|own| held.contains(own));
        if !ports.keys().all(stays) {
            Arc::make_mut(&mut ports).retain(|device, _| stays(device));
        }
        Some((vid, ports))
    }

    /// The ports of connection points and of a service's networks, and of all links on paths between them.
    fn ports_of<'a>(
        &self,
        service: Option<&ServiceSpec>,
        points: impl Iterator<Item = &'a Name>,
    ) -> Arc<Ports> {
        let networks = service.map(|service| service.physical_networks.iter().cloned().collect());
        let ends: Endpoints = (points.cloned().collect(), networks.unwrap_or_default());
        if let Some(known) = self.fabric.path_cache.borrow().get(&ends) {
            return known.clone();
        }
        let mut ports = Ports::new();
        for point in ends.0.iter().filter_map(|name| self.fabric.points.get(name)) {
            add_ports(&mut ports, &point.ports);
        }
        for more in ends.1.iter().filter_map(|network| self.fabric.topology.network_ports(network)) {
            add_ports(&mut ports, more);
        }
        let paths = self.fabric.topology.paths_between(ports.keys());
        add_ports(&mut ports, &paths);
        let ports = Arc::new(ports);
        let mut paths = self.fabric.path_cache.borrow_mut();
        if paths.len() >= PATH_CACHE_SIZE {
            paths.clear();
        }
        paths.insert(ends, ports.clone());
        ports
    }

    /// The networks that an object depends on, each with its VLAN and the ports that matter to this object.
    pub(crate) fn paths(&self, key: &Key) -> Vec<(Key, VlanId, Arc<Ports>)> {
        match self.store.records.get(key).and_then(|record| record.effective.as_deref()) {
            Some(Spec::Attachment(spec)) => {
                let services = spec.services.iter().map(|name| Key::cluster(Kind::L2Service, name));
                services
                    .filter_map(|service_key| {
                        let service = self.effective(&service_key, Spec::service)?;
                        let ports = self.ports_of(Some(service), std::iter::once(&spec.connection_point));
                        Some((service_key.clone(), service.vid, ports))
                    })
                    .collect()
            }
            Some(_) => {
                let network = if self.store.records.get(key).is_some_and(|record| record.generated) {
                    Key::cluster(Kind::L2Service, &key.name)
                } else {
                    key.clone()
                };
                let planned = self.fabric.networks.get(&network).and_then(|network| network.planned.clone());
                planned.map(|(vid, ports)| (network, vid, ports)).into_iter().collect()
            }
            None => Vec::new(),
        }
    }

    /// The devices that may carry VLANs of an object.
    pub(crate) fn footprint(&self, key: &Key) -> BTreeSet<Name> {
        if key.kind == Kind::L2ServiceAttachment
            || self.fabric.networks.get(key).is_some_and(|network| network.planned.is_some())
        {
            return self.paths(key).iter().flat_map(|(_, _, ports)| ports.keys().cloned()).collect();
        }
        let spec = self.store.records.get(key).and_then(|record| record.effective.as_deref());
        let points: Vec<Name> = spec
            .and_then(Spec::bridge_domain)
            .map(|domain| domain.connection_points.clone())
            .unwrap_or_default();
        self.ports_of(spec.and_then(Spec::service), points.iter()).keys().cloned().collect()
    }

    /// Plans the NAD of an attachment.
    pub(crate) fn plan_nad(&mut self, key: &Key) {
        let Some(record) = self.store.records.get(key).filter(|record| record.finalized) else { return };
        let uid = record.uid.clone();
        let is_wanted = record.effective.is_some();
        if !is_wanted && !self.nad.targets.contains_key(key) && record.status.realized.is_none() {
            return;
        }
        let desired = |leases| {
            // A NAD without an address to give does not exist.
            let attachment = if is_wanted && self.exhausted(key, leases).is_none() {
                Some(self.render(key, leases)?)
            } else {
                None
            };
            Some(nad::desired(key, &uid, attachment))
        };
        // A NAD that can't be rendered, because a referenced object was removed by force, stays as it is.
        let (Some(desired), Some(unleased)) =
            (desired(LeaseHandling::Exclude), desired(LeaseHandling::Ignore))
        else {
            return;
        };
        let nad = self.nad.targets.entry(key.clone()).or_insert_with(|| NadTarget::new(uid.clone()));
        nad.uid = uid;
        if nad.want(&desired, &unleased) {
            self.schedule.publish_queue.insert(Target::Nad(key.namespace.clone(), key.name.clone()));
        }
    }

    /// Renders the configuration of an attachment's NAD.
    pub(crate) fn render(&self, key: &Key, leases: LeaseHandling) -> Option<VlanAttachment> {
        let spec: &AttachmentSpec = self.effective(key, Spec::attachment)?;
        let point = self.effective(
            &Key::cluster(Kind::ConnectionPoint, &spec.connection_point),
            Spec::connection_point,
        )?;
        let chosen = compat::choose(spec, point).ok()?;
        let mut vids = BTreeSet::new();
        let mut subnets = Vec::new();
        for name in &spec.services {
            let service = self.effective(&Key::cluster(Kind::L2Service, name), Spec::service)?;
            vids.insert(service.vid);
            if spec.vlan_type == VlanType::Access {
                for subnet in &service.subnets {
                    subnets.push(self.render_subnet(subnet, leases)?);
                }
            }
        }
        let (cni, vlans) = nad::cni(&chosen.plugin, spec.interface, spec.vlan_type, &vids);
        Some(VlanAttachment { cni, vlans, mtu: spec.mtu(chosen), subnets })
    }

    /// Writes or deletes the L2BridgeDomain of a service, if that is configured.
    fn sync_bridge_domain(&mut self, key: &Key) {
        if !self.config.bridge_domains || key.kind != Kind::L2Service {
            return;
        }
        let network = self.fabric.networks.get(key).filter(|network| !network.points.is_empty());
        let spec = network.and_then(|network| {
            let connection_points = network.points.keys().cloned().collect();
            Some(BridgeDomainSpec { vlan: network.planned.as_ref()?.0, connection_points })
        });
        let domain = Key::cluster(Kind::L2BridgeDomain, &key.name);
        let foreign = self.store.records.get(&domain).is_some_and(|record| !record.generated);
        if foreign || self.fabric.bridge_domains.get(&key.name) == spec.as_ref() {
            return;
        }
        match &spec {
            Some(spec) => self.fabric.bridge_domains.insert(key.name.clone(), spec.clone()),
            None => self.fabric.bridge_domains.remove(&key.name),
        };
        self.work.effects.push(Effect::BridgeDomain { service: key.name.clone(), spec });
    }
}

fn or_unplaced(scopes: BTreeSet<VlanScope>) -> BTreeSet<VlanScope> {
    if scopes.is_empty() { BTreeSet::from([VlanScope::Unplaced]) } else { scopes }
}

pub(crate) fn is_network(key: &Key) -> bool {
    matches!(key.kind, Kind::L2Service | Kind::L2BridgeDomain)
}

/// True for the kinds that use networks at connection points.
pub(crate) fn is_user(key: &Key) -> bool {
    matches!(key.kind, Kind::L2ServiceAttachment | Kind::L2BridgeDomain)
}

pub(crate) fn vid_of(spec: &Spec) -> Option<VlanId> {
    spec.service().map(|service| service.vid).or_else(|| spec.bridge_domain().map(|domain| domain.vlan))
}

/// The networks that a spec wants, each with a connection point.
fn demands(key: &Key, spec: &Spec) -> Vec<(Key, Name)> {
    match spec {
        Spec::Attachment(spec) => spec
            .services
            .iter()
            .map(|name| (Key::cluster(Kind::L2Service, name), spec.connection_point.clone()))
            .collect(),
        Spec::BridgeDomain(spec) => {
            spec.connection_points.iter().map(|point| (key.clone(), point.clone())).collect()
        }
        _ => Vec::new(),
    }
}
