//! Plans the requests that lead from the observed to the desired state. Pure.
//!
//! - A network or port is ours when it has our [`Mark`]. Everything else is foreign, and stays.
//! - The network of a VLAN is ours, or one that somebody offers by a tag, or a foreign one that the FabricDevice adopts.
//!   A foreign one that is not adopted is refused. If there is none, it is made.
//! - Each trunk with a VLAN has a port of ours on that network as a sub-port with the VLAN as its segmentation id. A
//!   foreign sub-port with that id is refused until it is adopted.
//! - What is ours and not needed goes: first the sub-port, then the port, then the network.
//!
//! A plan has the requests that can be made now. After them, the next plan has those that follow. So a process that
//! dies between any two of them is continued by another.

mod attributes;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eno_schemas::{FabricDesired, FabricPort, Item, NetworkType, Note, Rejection, VlanId, VlanSet};

use crate::mark::{Mark, offer_tag};
use crate::request::{Change, NewNetwork, NewPort, Request, Resource};
use crate::view::{Id, Network, Port, View};

pub use attributes::{Attributes, NewMtu};

/// Maximum networks or ports that one request makes: Neutron takes about 50 ms for each, and proxies wait a minute.
const MAX_CREATES: usize = 100;
/// Maximum sub-ports that one request adds or removes. Neutron takes about 5 ms for each.
const MAX_SUB_PORTS: usize = 1000;

/// The requests that can be made now, and what can't be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In an order in which they can be made one after the other. They are independent of each other.
    pub requests: Vec<Request>,
    /// Desired items that are not applied.
    pub rejected: Vec<Rejection>,
    /// Messages for the administrator.
    pub notes: Vec<Note>,
    /// The network of each desired VLAN that has one.
    pub networks: BTreeMap<VlanId, Id>,
}

/// What Neutron refused since the last read, with the reasons. It is not requested again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    networks: BTreeMap<VlanId, String>,
    /// By VLAN and trunk.
    ports: BTreeMap<(VlanId, Id), String>,
    /// By VLAN and trunk.
    sub_ports: BTreeMap<(VlanId, Id), String>,
    /// By port.
    removals: BTreeMap<Id, String>,
    /// By network or port.
    changes: BTreeMap<Id, String>,
}

impl Refusals {
    /// Records that Neutron refused a request.
    pub fn record(&mut self, request: &Request, reason: &str) {
        let reason = || reason.to_owned();
        match request {
            Request::CreateNetworks(new) => self.networks.extend(new.iter().map(|new| (new.vid, reason()))),
            Request::CreatePorts(new) => {
                self.ports.extend(new.iter().map(|new| ((new.vid, new.trunk.clone()), reason())));
            }
            Request::AddSubPorts { trunk, ports } => {
                self.sub_ports.extend(ports.iter().map(|(_, vid)| ((*vid, trunk.clone()), reason())));
            }
            Request::RemoveSubPorts { ports, .. } => {
                self.removals.extend(ports.iter().map(|(port, _)| (port.clone(), reason())));
            }
            Request::Update(change) | Request::Delete(change) => {
                self.changes.insert(change.id.clone(), reason());
            }
        }
    }

    /// True when nothing was refused.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Plans the difference between the observed and the desired state.
pub fn plan(view: &View, desired: &FabricDesired, mark: &Mark, refusals: &Refusals) -> Plan {
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

/// The port of the spec that a port of the desired state stands for: its name, or for one that left the spec, the name
/// that it had.
pub fn listed_name(port: &FabricPort) -> &str {
    port.lag.as_deref().unwrap_or(&port.name)
}

struct Planner<'a> {
    view: &'a View,
    desired: &'a FabricDesired,
    mark: &'a Mark,
    refusals: &'a Refusals,
    attributes: Attributes<'a>,
    plan: Plan,
    /// The VLANs of each trunk, by its id.
    wanted: BTreeMap<Id, VlanSet>,
    /// The VLANs that need a network.
    needed: VlanSet,
    /// Networks of ours by VLAN.
    ours: BTreeMap<VlanId, Vec<&'a Network>>,
    /// Networks of ours on another physical network, or with another VLAN.
    misplaced: BTreeSet<&'a str>,
    /// Sub-port by trunk and VLAN.
    occupants: HashMap<(&'a str, VlanId), &'a str>,
    /// Trunk and VLAN by sub-port.
    attached: HashMap<&'a str, (&'a str, VlanId)>,
    /// Ports of ours that are no sub-ports, by network and VLAN.
    free: HashMap<(Id, VlanId), Vec<&'a Port>>,
    /// Ports of ours that stay.
    assigned: BTreeSet<&'a str>,
    /// Trunks that get further sub-ports after a later plan: each gets all at once.
    incomplete: BTreeSet<Id>,
    create_networks: Vec<VlanId>,
    create_ports: Vec<NewPort>,
    add: BTreeMap<Id, Vec<(Id, VlanId)>>,
    remove: BTreeMap<Id, Vec<(Id, VlanId)>>,
    changes: Vec<Request>,
}

impl<'a> Planner<'a> {
    fn new(view: &'a View, desired: &'a FabricDesired, mark: &'a Mark, refusals: &'a Refusals) -> Self {
        let attributes = Attributes::new(desired, mark, view.parent_mtu);
        let mut planner = Self {
            view,
            desired,
            mark,
            refusals,
            attributes,
            plan: Plan::default(),
            wanted: BTreeMap::new(),
            needed: VlanSet::EMPTY,
            ours: BTreeMap::new(),
            misplaced: BTreeSet::new(),
            occupants: HashMap::new(),
            attached: HashMap::new(),
            free: HashMap::new(),
            assigned: BTreeSet::new(),
            incomplete: BTreeSet::new(),
            create_networks: Vec::new(),
            create_ports: Vec::new(),
            add: BTreeMap::new(),
            remove: BTreeMap::new(),
            changes: Vec::new(),
        };
        for network in view.networks.values() {
            let Some(vid) = mark.vid_of(&network.name, &network.description) else { continue };
            if planner.attributes.is_misplaced(network, vid) {
                planner.misplaced.insert(&network.id);
            } else {
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
            let Some(vid) = mark.vid_of(&port.name, &port.description) else { continue };
            if !planner.attached.contains_key(port.id.as_str()) {
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
                self.plan.rejected.push(Rejection::permanent(Item::port(&port.name), reason));
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
        if self.desired_type() == NetworkType::Provider {
            let tag = offer_tag(vid);
            let foreign = || {
                let networks = self.view.networks.values();
                networks.filter(|network| !self.is_ours(network))
            };
            let offered: Vec<&Network> = foreign()
                .filter(|network| {
                    network.tags.contains(&tag) && self.attributes.may_offer(network, &self.view.project)
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

    fn adopt_network(&mut self, vid: VlanId, network: &Network) {
        let Network { id, name, .. } = network;
        let what = format!(
            "VLAN {vid} of physical network {} is that of network {name} ({id})",
            self.attributes.physical_network().unwrap_or_default()
        );
        if self.mark.is_of_other_cluster(name, &network.description) {
            self.reject(Item::vlan(vid), format!("{what}, which belongs to another cluster"));
        } else if !self.desired.device.adopt.contains(vid) {
            let tag = offer_tag(vid);
            self.reject(
                Item::vlan(vid),
                format!(
                    "{what}, which is not ours: delete it there, have the VLAN adopted, or give the network the tag \
                     {tag} to have it used as it is"
                ),
            );
        } else if let Some(reason) = self.refusals.changes.get(id) {
            self.reject(Item::vlan(vid), reason.clone());
        } else {
            let attributes = self.attributes.mark_of(vid);
            let change = Change {
                resource: Resource::Network,
                id: id.clone(),
                vid,
                revision: network.revision_number,
                attributes,
            };
            self.changes.push(Request::Update(change));
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
        let occupant = self.occupants.get(&(trunk.as_str(), vid)).copied();
        if let Some(occupant) = occupant {
            let port = self.view.ports.get(occupant);
            let of = port.and_then(|port| self.mark.vid_of(&port.name, &port.description));
            match port {
                Some(port)
                    if of == Some(vid)
                        && port.network_id == network
                        && !self.attributes.is_outdated(port) =>
                {
                    self.assigned.insert(occupant);
                }
                // It is of another network or VLAN, or outdated, and is taken off first.
                Some(_) if of.is_some() => drop(self.incomplete.insert(trunk.clone())),
                _ => self.adopt_sub_port(trunk, vid, occupant, &network),
            }
            return;
        }
        if let Some(reason) = self.refusals.sub_ports.get(&(vid, trunk.clone())) {
            self.reject_on(trunk, vid, &reason.clone());
            return;
        }
        let (refused, attributes) = (&self.refusals.changes, self.attributes);
        let free = self.free.get_mut(&(network.clone(), vid));
        let free = free.and_then(|free| {
            let at = free
                .iter()
                .position(|port| !refused.contains_key(&port.id) && !attributes.is_outdated(port))?;
            Some(free.swap_remove(at))
        });
        if let Some(port) = free {
            self.assigned.insert(&port.id);
            let network = self.view.networks.get(&network).filter(|network| self.is_ours(network));
            let is_refused = |network: &Network| self.refusals.changes.contains_key(&network.id);
            // Neutron refuses a sub-port whose network has a greater MTU than the parent's.
            if network.is_some_and(|network| {
                self.attributes.network_changes(network).contains_key("mtu") && !is_refused(network)
            }) {
                self.incomplete.insert(trunk.clone());
            }
            self.add.entry(trunk.clone()).or_default().push((port.id.clone(), vid));
        } else if let Some(reason) = self.refusals.ports.get(&(vid, trunk.clone())) {
            self.reject_on(trunk, vid, &reason.clone());
        } else {
            let parent = self.view.trunks.get(trunk).and_then(|trunk| self.view.ports.get(&trunk.port_id));
            let attributes = self.attributes.port(vid, self.view.networks.get(&network), &network, parent);
            self.create_ports.push(NewPort { vid, trunk: trunk.clone(), attributes });
            self.incomplete.insert(trunk.clone());
        }
    }

    fn adopt_sub_port(&mut self, trunk: &Id, vid: VlanId, occupant: &str, network: &str) {
        let port = self.view.ports.get(occupant);
        let name = port.map(|port| port.name.as_str()).unwrap_or_default();
        let what = format!(
            "the sub-port of trunk {} with the segmentation id {vid} is port {name} ({occupant})",
            self.trunk_name(trunk)
        );
        let other_network = port.filter(|port| port.network_id != network);
        if port.is_some_and(|port| self.mark.is_of_other_cluster(name, &port.description)) {
            self.reject_on(trunk, vid, &format!("{what}, which belongs to another cluster"));
        } else if !self.desired.device.adopt.contains(vid) {
            let reason =
                format!("{what}, which is not ours: take it off the trunk, or have the VLAN adopted");
            self.reject_on(trunk, vid, &reason);
        } else if let Some(port) = other_network {
            let reason = format!(
                "{what} on network {}, and VLAN {vid} is that of network {network}, so it can't be adopted: take it \
                 off the trunk",
                port.network_id
            );
            self.reject_on(trunk, vid, &reason);
        } else if let Some(reason) = self.refusals.changes.get(occupant) {
            self.reject_on(trunk, vid, &reason.clone());
        } else if let Some(port) = port {
            let change = Change {
                resource: Resource::Port,
                id: port.id.clone(),
                vid,
                revision: port.revision_number,
                attributes: self.attributes.mark_of(vid),
            };
            self.changes.push(Request::Update(change));
        } else {
            self.reject_on(trunk, vid, &format!("{what}, which this credential can't see"));
        }
    }

    /// Takes off the sub-ports of ours that no trunk needs.
    fn remove_sub_ports(&mut self) {
        for (port, (trunk, tag)) in &self.attached {
            let Some(port) = self.view.ports.get(*port) else { continue };
            let Some(vid) = self.mark.vid_of(&port.name, &port.description) else { continue };
            if self.assigned.contains(port.id.as_str()) {
                continue;
            }
            let wanted = self.wanted.get(*trunk).is_some_and(|wanted| wanted.contains(*tag));
            let network = self.view.networks.get(&port.network_id);
            let of = network.and_then(|network| self.mark.vid_of(&network.name, &network.description));
            let in_place = vid == *tag && of.is_none_or(|of| of == vid);
            // What is there stays while the VLAN of the trunk can't be planned.
            if wanted && in_place && !self.plan.networks.contains_key(tag) {
                self.assigned.insert(&port.id);
                continue;
            }
            if let Some(reason) = self.refusals.removals.get(&port.id) {
                let item = self.item_on(trunk, vid);
                self.plan.rejected.push(Rejection::permanent(item, reason.clone()));
            } else {
                self.remove.entry((*trunk).to_owned()).or_default().push((port.id.clone(), vid));
            }
        }
    }

    /// Deletes ports of ours that are no sub-ports, and networks of ours without ports.
    fn delete_unneeded(&mut self) {
        let mut in_use: BTreeSet<&str> = BTreeSet::new();
        for port in self.view.ports.values() {
            let Some(vid) = self.mark.vid_of(&port.name, &port.description) else { continue };
            in_use.insert(&port.network_id);
            let is_free = !self.attached.contains_key(port.id.as_str());
            if is_free && !self.assigned.contains(port.id.as_str()) {
                self.delete(Resource::Port, &port.id, vid, port.revision_number);
            }
        }
        for network in self.view.networks.values() {
            let Some(vid) = self.mark.vid_of(&network.name, &network.description) else { continue };
            let chosen = self.plan.networks.get(&vid) == Some(&network.id);
            if !chosen && !in_use.contains(network.id.as_str()) {
                self.delete(Resource::Network, &network.id, vid, network.revision_number);
            }
        }
    }

    fn delete(&mut self, resource: Resource, id: &Id, vid: VlanId, revision: Option<u64>) {
        match self.refusals.changes.get(id) {
            Some(reason) => self.reject(Item::vlan(vid), reason.clone()),
            None => self.changes.push(Request::Delete(Change {
                resource,
                id: id.clone(),
                vid,
                revision,
                attributes: serde_json::Map::new(),
            })),
        }
    }

    /// Restores the attributes of the networks and ports of ours that stay.
    fn update(&mut self) {
        let networks = self.plan.networks.values().filter_map(|id| self.view.networks.get(id));
        let ports = self.assigned.iter().filter_map(|id| self.view.ports.get(*id));
        let networks = networks.filter_map(|network| {
            let vid = self.mark.vid_of(&network.name, &network.description)?;
            let attributes = self.attributes.network_changes(network);
            let (id, revision) = (network.id.clone(), network.revision_number);
            Some(Change { resource: Resource::Network, id, vid, revision, attributes })
        });
        let ports = ports.filter_map(|port| {
            let vid = self.mark.vid_of(&port.name, &port.description)?;
            let attributes = self.attributes.port_changes(port);
            let (id, revision) = (port.id.clone(), port.revision_number);
            Some(Change { resource: Resource::Port, id, vid, revision, attributes })
        });
        let changes: Vec<Change> =
            networks.chain(ports).filter(|change| !change.attributes.is_empty()).collect();
        for change in changes {
            match self.refusals.changes.get(&change.id) {
                Some(reason) => self.reject(Item::vlan(change.vid), reason.clone()),
                None => self.changes.push(Request::Update(change)),
            }
        }
    }

    fn finish(mut self) -> Plan {
        for trunk in self.wanted.keys().filter_map(|id| self.view.trunks.get(id)) {
            if trunk.status != "ACTIVE" && !self.wanted[&trunk.id].is_empty() {
                let name = self.trunk_name(&trunk.id);
                let message = format!(
                    "trunk {name} has the status {}: its VM is off, or no agent of Neutron has set it up",
                    trunk.status
                );
                self.plan.notes.push(Note::new("TrunkNotActive", Item::port(name), message));
            }
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
        requests.extend(
            self.create_networks
                .chunks(at_once)
                .map(|vids| Request::CreateNetworks(vids.iter().map(new).collect())),
        );
        requests.extend(self.create_ports.chunks(MAX_CREATES).map(|new| Request::CreatePorts(new.to_vec())));
        requests.append(&mut self.changes);
        for (trunk, ports) in self.add.into_iter().filter(|(trunk, _)| !self.incomplete.contains(trunk)) {
            let chunk = |ports: &[_]| Request::AddSubPorts { trunk: trunk.clone(), ports: ports.to_vec() };
            requests.extend(ports.chunks(MAX_SUB_PORTS).map(chunk));
        }
        self.plan
    }

    fn is_ours(&self, network: &Network) -> bool {
        self.mark.vid_of(&network.name, &network.description).is_some()
    }

    fn desired_type(&self) -> NetworkType {
        self.attributes.network_type()
    }

    /// A listed name of a trunk.
    fn trunk_name(&self, trunk: &str) -> &'a str {
        let listed = self.desired.ports.iter().map(listed_name);
        let mut named = listed.filter(|name| self.view.trunk_of.get(*name).is_some_and(|id| id == trunk));
        named.next().unwrap_or_default()
    }

    fn item_on(&self, trunk: &str, vid: VlanId) -> Item {
        let of_trunk =
            |port: &&FabricPort| self.view.trunk_of.get(listed_name(port)).is_some_and(|id| id == trunk);
        let mut listed = self.desired.ports.iter().filter(of_trunk);
        listed.next().map_or_else(|| Item::vlan(vid), |port| Item::port_vlan(&port.name, vid))
    }

    fn reject(&mut self, item: Item, reason: String) {
        self.plan.rejected.push(Rejection::permanent(item, reason));
    }

    fn reject_on(&mut self, trunk: &str, vid: VlanId, reason: &str) {
        let of_trunk = |port: &&FabricPort| {
            self.view.trunk_of.get(listed_name(port)).is_some_and(|id| id == trunk)
                && port.vlans.contains(vid)
        };
        for port in self.desired.ports.iter().filter(of_trunk) {
            self.plan.rejected.push(Rejection::permanent(Item::port_vlan(&port.name, vid), reason));
        }
    }
}
