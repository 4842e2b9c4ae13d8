//! The steps of a plan.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use eno_fabric_driver::desired::listed_name;
use eno_fabric_driver::report::reject_vlan;
use eno_schemas::{FabricDesired, FabricPort, Item, NetworkType, Note, Rejection, Text, VlanId, VlanSet};

use super::attributes::NewMtu;
use super::{Attributes, Plan, Refusals};
use crate::mark::{Mark, offer_tag};
use crate::request::{NewNetwork, NewPort, Request, Resource};
use crate::view::{Id, Network, Port, Trunk, View};

/// Maximum networks or ports that one request makes: Neutron takes about 50 ms for each, and proxies wait a minute.
const MAX_CREATES: usize = 100;
/// Maximum sub-ports that one request adds or removes. Neutron takes about 15 ms for each.
const MAX_SUB_PORTS: usize = 1000;
/// Rejections for the same reason that say it in full. A report has at most 1 MB.
const MAX_FULL_REASONS: usize = 64;

/// Plans the difference between the observed and the desired state.
pub(super) fn plan(view: &View, desired: &FabricDesired, mark: &Mark, refusals: &Refusals) -> Plan {
    let mut planner = Planner::new(view, desired, mark, refusals);
    planner.resolve_ports();
    for vid in planner.needed.clone().iter() {
        planner.choose_network(vid);
    }
    for (trunk, wanted) in planner.wanted.clone() {
        for vid in wanted.iter() {
            planner.place(&trunk, vid);
        }
    }
    planner.remove_sub_ports();
    planner.delete_unneeded();
    planner.update();
    planner.finish()
}

pub(super) struct Planner<'a> {
    pub(super) view: &'a View,
    pub(super) desired: &'a FabricDesired,
    pub(super) mark: &'a Mark,
    pub(super) refusals: &'a Refusals,
    pub(super) attributes: Attributes<'a>,
    plan: Plan,
    /// The VLANs of each trunk, by its id.
    wanted: BTreeMap<Id, VlanSet>,
    /// The VLANs that need a network.
    needed: VlanSet,
    /// Networks of ours by VLAN.
    ours: BTreeMap<VlanId, Vec<&'a Network>>,
    /// Sub-port by trunk and VLAN.
    occupants: HashMap<(&'a str, VlanId), &'a str>,
    /// Trunk and VLAN by sub-port.
    attached: HashMap<&'a str, (&'a str, VlanId)>,
    /// Ports of ours that are no sub-ports, by network and VLAN.
    free: HashMap<(Id, VlanId), Vec<&'a Port>>,
    /// Networks and MAC addresses of our ports that Neutron lets go. It makes no second port with both.
    addresses: HashSet<(&'a str, &'a str)>,
    /// Ports of ours that stay.
    assigned: BTreeSet<&'a str>,
    /// Trunks that get further sub-ports after a later plan: each gets all at once.
    incomplete: BTreeSet<Id>,
    create_networks: Vec<VlanId>,
    create_ports: Vec<NewPort>,
    add: BTreeMap<Id, Vec<(Id, VlanId)>>,
    remove: BTreeMap<Id, Vec<(Id, VlanId)>>,
    pub(super) changes: Vec<Request>,
}

impl<'a> Planner<'a> {
    fn new(view: &'a View, desired: &'a FabricDesired, mark: &'a Mark, refusals: &'a Refusals) -> Self {
        let mut planner = Self {
            view,
            desired,
            mark,
            refusals,
            attributes: Attributes::new(desired, mark, view.parent_mtu),
            plan: Plan::default(),
            wanted: BTreeMap::new(),
            needed: VlanSet::EMPTY,
            ours: BTreeMap::new(),
            occupants: HashMap::new(),
            attached: HashMap::new(),
            free: HashMap::new(),
            addresses: HashSet::new(),
            assigned: BTreeSet::new(),
            incomplete: BTreeSet::new(),
            create_networks: Vec::new(),
            create_ports: Vec::new(),
            add: BTreeMap::new(),
            remove: BTreeMap::new(),
            changes: Vec::new(),
        };
        for network in view.networks.values() {
            let own = view.own_network(network, mark);
            if let Some(vid) = own.filter(|vid| !planner.attributes.is_misplaced(network, *vid)) {
                planner.ours.entry(vid).or_default().push(network);
            }
        }
        for trunk in view.trunks.values() {
            for sub in &trunk.sub_ports {
                if let Some(vid) = sub.vid() {
                    planner.occupants.insert((&trunk.id, vid), &sub.port_id);
                    planner.attached.insert(&sub.port_id, (&trunk.id, vid));
                }
            }
        }
        for port in view.ports.values() {
            let Some(vid) = view.own_port(port, mark) else { continue };
            let is_kept = refusals.changes.contains_key(&port.id) || refusals.removals.contains_key(&port.id);
            if !is_kept {
                planner.addresses.insert((&port.network_id, &port.mac_address));
            }
            let is_attached = planner.attached.contains_key(port.id.as_str());
            if !is_attached && !refusals.elsewhere.contains(&port.id) {
                planner.free.entry((port.network_id.clone(), vid)).or_default().push(port);
            }
        }
        planner
    }

    /// Finds the trunk of each listed port.
    fn resolve_ports(&mut self) {
        for port in &self.desired.ports {
            let name = listed_name(port);
            if self.attributes.physical_network() == Some(name) {
                self.needed = self.needed.union(&port.vlans);
            } else if let Some(trunk) = self.view.trunk_of.get(name) {
                let wanted = self.wanted.entry(trunk.clone()).or_default();
                *wanted = wanted.union(&port.vlans);
                self.needed = self.needed.union(&port.vlans);
            } else if !port.vlans.is_empty() {
                let reason = self.view.unresolved.get(name).cloned();
                let reason = reason.unwrap_or_else(|| format!("Neutron has no trunk {name}"));
                self.reject(Item::port(&port.name), reason);
            }
        }
    }

    /// Finds the network of a VLAN, adopts it, or makes it.
    fn choose_network(&mut self, vid: VlanId) {
        let ours = self.ours.get(&vid).map(Vec::as_slice).unwrap_or_default();
        // Two processes may have made one each. That with the most sub-ports stays.
        let used = |network: &&Network| {
            let port = |id: &&str| self.view.ports.get(*id).is_some_and(|port| port.network_id == network.id);
            let count = if ours.len() > 1 { self.attached.keys().filter(|id| port(id)).count() } else { 0 };
            (count, std::cmp::Reverse(network.id.clone()))
        };
        if let Some(network) = ours.iter().copied().max_by_key(used) {
            self.plan.networks.insert(vid, network.id.clone());
            return;
        }
        if self.attributes.network_type() == NetworkType::Provider {
            let tag = offer_tag(vid);
            let view = self.view;
            let foreign =
                || view.networks.values().filter(|network| view.own_network(network, self.mark).is_none());
            let offered: Vec<&Network> = foreign()
                .filter(|network| {
                    network.tags.contains(&tag) && self.attributes.may_offer(network, &view.project)
                })
                .collect();
            match offered.as_slice() {
                [] => {}
                [network] => {
                    self.plan.networks.insert(vid, network.id.clone());
                    return;
                }
                [one, other, ..] => {
                    let reason = format!(
                        "networks {} and {} both have the tag {tag}: take it off all but one",
                        one.id, other.id
                    );
                    self.reject(Item::vlan(vid), reason);
                    return;
                }
            }
            if let Some(network) = foreign().find(|network| self.attributes.is_vlan(network, vid)) {
                self.adopt_network(vid, network);
                return;
            }
        }
        match self.refusals.networks.get(&vid) {
            Some(reason) => self.reject(Item::vlan(vid), reason.clone()),
            None => self.create_networks.push(vid),
        }
    }

    /// Gives a trunk its sub-port of a VLAN.
    fn place(&mut self, trunk: &Id, vid: VlanId) {
        let Some(network) = self.plan.networks.get(&vid).cloned() else {
            let pending = self.create_networks.contains(&vid)
                || self.changes.iter().any(|change| change.vlans().contains(vid));
            if pending {
                self.incomplete.insert(trunk.clone());
            }
            return;
        };
        let parent = self.parent(trunk);
        if let Some(occupant) = self.occupants.get(&(trunk.as_str(), vid)).copied() {
            let port = self.view.ports.get(occupant);
            let of = port.and_then(|port| self.view.own_port(port, self.mark));
            match port {
                Some(port)
                    if of == Some(vid)
                        && port.network_id == network
                        && !self.attributes.is_outdated(port, parent) =>
                {
                    self.assigned.insert(occupant);
                }
                // It is of another network or VLAN, or outdated, and is taken off first.
                Some(_) if of.is_some() => match self.refusals.removals.get(occupant).cloned() {
                    Some(reason) => self.reject_on(trunk, vid, &reason),
                    None => drop(self.incomplete.insert(trunk.clone())),
                },
                _ => self.adopt_sub_port(trunk, vid, occupant, &network),
            }
            return;
        }
        if let Some(reason) = self.refusal_of(trunk) {
            self.reject_on(trunk, vid, &reason);
            // A port that was made for it waits.
            self.take_free_port(&network, vid, parent);
            return;
        }
        if let Some(port) = self.take_free_port(&network, vid, parent) {
            if let Some(reason) = self.refusals.sub_ports.get(&(vid, trunk.clone())) {
                self.reject_on(trunk, vid, &reason.clone());
            } else {
                self.add.entry(trunk.clone()).or_default().push((port.id.clone(), vid));
                if self.exceeds_mtu(&network) {
                    self.incomplete.insert(trunk.clone());
                }
            }
        } else if let Some(reason) = self.refusals.ports.get(&(vid, trunk.clone())) {
            self.reject_on(trunk, vid, &reason.clone());
        } else {
            let held_address = parent.filter(|parent| {
                self.attributes.has_port_security()
                    && self.addresses.contains(&(network.as_str(), parent.mac_address.as_str()))
            });
            // The port that has the address goes first.
            if held_address.is_none() {
                let attributes =
                    self.attributes.port(vid, self.view.networks.get(&network), &network, parent);
                self.create_ports.push(NewPort { vid, trunk: trunk.clone(), attributes });
            }
            self.incomplete.insert(trunk.clone());
        }
    }

    /// Why Neutron changes nothing about a trunk.
    fn refusal_of(&self, trunk: &str) -> Option<String> {
        let trunk = self.view.trunks.get(trunk).filter(|trunk| !trunk.admin_state_up)?;
        Some(format!(
            "trunk {} is disabled: enable it with openstack network trunk set --enable {}",
            self.trunk_name(&trunk.id),
            trunk.id
        ))
    }

    /// A port of ours that is no sub-port; it stays.
    fn take_free_port(&mut self, network: &str, vid: VlanId, parent: Option<&Port>) -> Option<&'a Port> {
        let free = self.free.get_mut(&(network.to_owned(), vid))?;
        let fits = |port: &&Port| {
            !self.refusals.changes.contains_key(&port.id) && !self.attributes.is_outdated(port, parent)
        };
        let at = free.iter().position(fits)?;
        let port = free.swap_remove(at);
        self.assigned.insert(&port.id);
        Some(port)
    }

    /// True when a network of ours gets a smaller MTU first: Neutron refuses a sub-port with a greater one than the
    /// parent's.
    fn exceeds_mtu(&self, network: &str) -> bool {
        let network = self.view.networks.get(network);
        let network = network.filter(|network| self.view.own_network(network, self.mark).is_some());
        network.is_some_and(|network| {
            self.attributes.network_changes(network).contains_key("mtu")
                && !self.refusals.changes.contains_key(&network.id)
        })
    }

    /// Takes off the sub-ports of ours that no trunk needs.
    fn remove_sub_ports(&mut self) {
        let attached: BTreeMap<&str, (&str, VlanId)> =
            self.attached.iter().map(|(port, place)| (*port, *place)).collect();
        for (port, (trunk, tag)) in attached {
            let Some(port) = self.view.ports.get(port) else { continue };
            let Some(vid) = self.view.own_port(port, self.mark) else { continue };
            if self.assigned.contains(port.id.as_str()) {
                continue;
            }
            let wanted = self.wanted.get(trunk).is_some_and(|wanted| wanted.contains(tag));
            let network = self.view.networks.get(&port.network_id);
            let of = network.and_then(|network| self.view.own_network(network, self.mark));
            let in_place = vid == tag && of.is_none_or(|of| of == vid);
            // What is there stays while the VLAN of the trunk can't be planned.
            if wanted && in_place && !self.plan.networks.contains_key(&tag) {
                self.assigned.insert(&port.id);
                continue;
            }
            let refusal = self.refusals.removals.get(&port.id).cloned().or_else(|| self.refusal_of(trunk));
            if let Some(reason) = refusal {
                let item = self.item_on(trunk, vid);
                self.reject(item, reason);
            } else {
                self.remove.entry(trunk.to_owned()).or_default().push((port.id.clone(), vid));
            }
        }
    }

    /// Deletes ports of ours that are no sub-ports, and networks of ours without ports.
    fn delete_unneeded(&mut self) {
        let mut in_use: BTreeSet<&str> = BTreeSet::new();
        for port in self.view.ports.values() {
            let Some(vid) = self.view.own_port(port, self.mark) else { continue };
            in_use.insert(&port.network_id);
            if self.refusals.elsewhere.contains(&port.id) {
                let reason = format!(
                    "port {} is ours and a sub-port of a trunk that Ports does not list: list that trunk, or take \
                     the sub-port off it",
                    port.id
                );
                self.leftover(vid, reason);
            } else if !self.attached.contains_key(port.id.as_str())
                && !self.assigned.contains(port.id.as_str())
            {
                self.delete(Resource::port(&port.id, vid));
            }
        }
        for network in self.view.networks.values() {
            let Some(vid) = self.view.own_network(network, self.mark) else { continue };
            let chosen = self.plan.networks.get(&vid) == Some(&network.id);
            if !chosen && !in_use.contains(network.id.as_str()) {
                self.delete(Resource::network(&network.id, vid));
            }
        }
    }

    fn delete(&mut self, resource: Resource) {
        match self.refusals.changes.get(&resource.id) {
            Some(reason) => self.leftover(resource.vid, reason.clone()),
            None => self.changes.push(Request::Delete { resource }),
        }
    }

    /// Something of ours that is not needed can't go. A VLAN that is needed has other things.
    fn leftover(&mut self, vid: VlanId, reason: String) {
        if self.needed.contains(vid) {
            self.plan.notes.push(Note::new("Drift", Item::vlan(vid), reason));
        } else {
            self.reject(Item::vlan(vid), reason);
        }
    }

    /// Restores the attributes of the networks and ports of ours that stay.
    fn update(&mut self) {
        let networks = self.plan.networks.values().filter_map(|id| self.view.networks.get(id));
        let ports = self.assigned.iter().filter_map(|id| self.view.ports.get(*id));
        let networks = networks.filter_map(|network| {
            let vid = self.view.own_network(network, self.mark)?;
            let attributes = self.attributes.network_changes(network);
            Some((Resource::network(&network.id, vid), network.revision_number, attributes))
        });
        let ports = ports.filter_map(|port| {
            let vid = self.view.own_port(port, self.mark)?;
            Some((Resource::port(&port.id, vid), port.revision_number, self.attributes.port_changes(port)))
        });
        let changes: Vec<_> =
            networks.chain(ports).filter(|(.., attributes)| !attributes.is_empty()).collect();
        for (resource, revision, attributes) in changes {
            match self.refusals.changes.get(&resource.id) {
                Some(reason) => self.reject(Item::vlan(resource.vid), reason.clone()),
                None => self.changes.push(Request::Update { resource, revision, attributes }),
            }
        }
    }

    fn finish(mut self) -> Plan {
        for (id, vlans) in &self.wanted {
            let trunk =
                self.view.trunks.get(id).filter(|trunk| trunk.status != "ACTIVE" && !vlans.is_empty());
            let Some(Trunk { status, .. }) = trunk else { continue };
            let name = self.trunk_name(id);
            let message = format!(
                "trunk {name} has the status {status}: its VM is off, or no agent of Neutron has set it up"
            );
            self.plan.notes.push(Note::new("TrunkNotActive", Item::port(name), message));
        }
        let requests = &mut self.plan.requests;
        for (trunk, mut ports) in self.remove {
            ports.sort_by_key(|(_, vid)| *vid);
            let chunk = |ports: &[_]| Request::RemoveSubPorts { trunk: trunk.clone(), ports: ports.to_vec() };
            requests.extend(ports.chunks(MAX_SUB_PORTS).map(chunk));
        }
        let ours = self.ours.values().flatten().copied();
        let (mtu, at_once) = match self.attributes.new_mtu(ours) {
            NewMtu::Request(mtu) => (mtu, MAX_CREATES),
            // The first was refused, so that it tells nothing.
            NewMtu::Unknown if !self.refusals.networks.is_empty() => (None, MAX_CREATES),
            NewMtu::Unknown => {
                self.create_networks.truncate(1);
                (None, 1)
            }
        };
        let new = |vid: &VlanId| NewNetwork { vid: *vid, attributes: self.attributes.network(*vid, mtu) };
        let networks = self.create_networks.chunks(at_once);
        requests.extend(networks.map(|vids| Request::CreateNetworks(vids.iter().map(new).collect())));
        requests.extend(self.create_ports.chunks(MAX_CREATES).map(|new| Request::CreatePorts(new.to_vec())));
        requests.append(&mut self.changes);
        for (trunk, ports) in self.add.into_iter().filter(|(trunk, _)| !self.incomplete.contains(trunk)) {
            let chunk = |ports: &[_]| Request::AddSubPorts { trunk: trunk.clone(), ports: ports.to_vec() };
            requests.extend(ports.chunks(MAX_SUB_PORTS).map(chunk));
        }
        self.plan.rejected.sort_by(|one, other| one.item.cmp(&other.item));
        shorten(&mut self.plan.rejected);
        self.plan
    }

    /// The parent port of a trunk.
    fn parent(&self, trunk: &str) -> Option<&'a Port> {
        self.view.ports.get(&self.view.trunks.get(trunk)?.port_id)
    }

    /// A listed name of a trunk.
    pub(super) fn trunk_name(&self, trunk: &str) -> &'a str {
        let listed = self.desired.ports.iter().map(listed_name);
        let mut named = listed.filter(|name| self.view.trunk_of.get(*name).is_some_and(|id| id == trunk));
        named.next().unwrap_or_default()
    }

    fn ports_of(&self, trunk: &str) -> impl Iterator<Item = &'a FabricPort> {
        let (view, trunk) = (self.view, trunk.to_owned());
        let of_trunk = move |port: &&FabricPort| view.trunk_of.get(listed_name(port)) == Some(&trunk);
        self.desired.ports.iter().filter(of_trunk)
    }

    fn item_on(&self, trunk: &str, vid: VlanId) -> Item {
        let port = self.ports_of(trunk).next();
        port.map_or_else(|| Item::vlan(vid), |port| Item::port_vlan(&port.name, vid))
    }

    pub(super) fn reject(&mut self, item: Item, reason: String) {
        self.plan.rejected.push(Rejection::permanent(item, reason));
    }

    pub(super) fn reject_on(&mut self, trunk: &str, vid: VlanId, reason: &str) {
        let ports: Vec<&FabricPort> = self.ports_of(trunk).collect();
        self.plan.rejected.extend(reject_vlan(&ports, vid, reason));
    }
}

/// Refers the later of many rejections for the same reason to the first.
fn shorten(rejected: &mut [Rejection]) {
    let mut seen: HashMap<Text, (usize, Item)> = HashMap::new();
    for rejection in rejected {
        let (count, first) =
            seen.entry(rejection.reason.clone()).or_insert_with(|| (0, rejection.item.clone()));
        *count += 1;
        if *count > MAX_FULL_REASONS {
            rejection.reason = format!("as {first}").into();
        }
    }
}
