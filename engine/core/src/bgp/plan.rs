//! What a group wants: its nodes and gateways, the interfaces of nodes, and the sessions on devices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::{BgpGroup, HostNetwork, VlanId};
use ipnet::IpNet;

use super::{Group, Groups, Parts, interface_name};
use crate::fabric::vrfs::Sessions;
use crate::kinds::{BgpSessionGroupSpec, Family, Spec, compat};
use crate::node::Nodes;
use crate::pods::hot_plug::address_needs;
use crate::pods::template::AddressNeed;
use crate::store::Store;
use crate::{Key, Kind, Name};

/// Maximum nodes of a group. A report of a device has room for their sessions in two families.
const MAX_WORKERS: usize = 2000;

/// What a group wants.
pub(super) struct Wanted<'a> {
    pub spec: &'a BgpSessionGroupSpec,
    /// The nodes that take part.
    nodes: BTreeSet<Name>,
    /// The first node that is one too many.
    left_out: Option<Name>,
    /// By device: its addresses of the group's families.
    pub gateways: BTreeMap<&'a Name, Vec<IpAddr>>,
    /// What each node needs an address of, or why it can't be had.
    needs: Result<BTreeMap<Family, AddressNeed>, String>,
    /// The network of the interfaces on nodes, and their MTU in bytes.
    network: (&'a String, Option<u32>),
    vlan: VlanId,
}

/// The addresses of devices in a VRF that are gateways of a group, each with its device.
pub(crate) fn gateways<'a>(
    store: &'a Store,
    spec: &'a BgpSessionGroupSpec,
) -> impl Iterator<Item = (&'a Name, IpNet)> {
    let service = Key::cluster(Kind::L2Service, &spec.service);
    let into = store.referrers(&service).filter_map(|user| store.effective(user, Spec::vrf_attachment));
    let into = into.filter(|into| into.service == spec.service && into.vrf == spec.vrf);
    let all = into.flat_map(|into| &into.interfaces);
    let all = all.flat_map(|one| one.addresses.iter().map(|address| (&one.device, *address)));
    all.filter(|(_, address)| spec.address_families.contains(&Family::of(address.addr())))
}

/// The nodes that take part in a group.
pub(crate) fn nodes_of(store: &Store, nodes: &Nodes, spec: &BgpSessionGroupSpec) -> BTreeSet<Name> {
    let on = nodes.nodes_of(&spec.connection_point);
    let selected = store.nodes().filter(|(name, labels)| {
        on.contains(*name) && spec.node_selector.as_ref().is_none_or(|selector| selector.matches(labels))
    });
    selected.map(|(name, _)| name.clone()).collect()
}

/// The needs of a node: an address of the Subnet of the first gateway of each family.
fn needs(store: &Store, spec: &BgpSessionGroupSpec) -> Result<BTreeMap<Family, AddressNeed>, String> {
    let mut needs = BTreeMap::new();
    for need in address_needs(store, &spec.service)? {
        let of_need = |(_, gateway): &(&Name, IpNet)| {
            need.source.network().is_some_and(|network| network.contains(&gateway.addr()))
        };
        if let Some((_, gateway)) = gateways(store, spec).find(of_need) {
            needs.entry(Family::of(gateway.addr())).or_insert(need);
        }
    }
    Ok(needs)
}

impl<'a> Wanted<'a> {
    /// `None`: the object is given up, or what it names was removed by force.
    /// `present`: the group as it is, whose nodes stay.
    fn of(store: &'a Store, nodes: &Nodes, key: &Key, present: Option<&Group>) -> Option<Self> {
        let record = store.get(key).filter(|record| record.finalized)?;
        let spec = record.effective.as_deref()?.bgp_session_group()?;
        let network = compat::host_network(store.connection_point(&spec.connection_point)?)?;
        let vlan = store.service(&spec.service)?.vid;
        let mut by_device: BTreeMap<&Name, Vec<IpAddr>> = BTreeMap::new();
        for (device, address) in gateways(store, spec) {
            by_device.entry(device).or_default().push(address.addr());
        }
        let is_present = |node: &Name| present.is_some_and(|group| group.workers.contains_key(node));
        let (mut nodes, new): (BTreeSet<Name>, BTreeSet<Name>) =
            nodes_of(store, nodes, spec).into_iter().partition(is_present);
        let mut new = new.into_iter();
        nodes.extend(new.by_ref().take(MAX_WORKERS.saturating_sub(nodes.len())));
        Some(Self {
            spec,
            nodes,
            left_out: new.next(),
            gateways: by_device,
            needs: needs(store, spec),
            network,
            vlan,
        })
    }

    /// The interface of a node with these addresses.
    fn interface(&self, addresses: &[IpNet]) -> HostNetwork {
        let (network, mtu) = self.network;
        let is_reached = |gateway: &&IpAddr| addresses.iter().any(|address| address.contains(*gateway));
        let gateways: BTreeSet<IpAddr> =
            self.gateways.values().flatten().filter(is_reached).copied().collect();
        let own: BTreeSet<Family> = addresses.iter().map(|address| Family::of(address.addr())).collect();
        let prefixes =
            self.spec.accept_prefixes.iter().filter(|prefix| own.contains(&Family::of(prefix.addr())));
        HostNetwork::Interface {
            network: network.clone(),
            vlan: self.vlan,
            addresses: addresses.to_vec(),
            gateways: gateways.into_iter().collect(),
            prefixes: prefixes.copied().collect(),
            symmetric: self.spec.symmetric,
            mtu,
        }
    }

    /// The sessions on each device with the nodes that have these addresses.
    fn sessions(&self, key: &Key, workers: &[(&Name, Vec<IpNet>)]) -> Sessions {
        let spec = self.spec;
        let group = |gateways: &Vec<IpAddr>| {
            let reaches = |address: &&IpNet| gateways.iter().any(|gateway| address.contains(gateway));
            let addresses = workers.iter().flat_map(|(_, addresses)| addresses);
            let neighbours: BTreeSet<IpAddr> =
                addresses.filter(|_| !spec.by_prefix).filter(reaches).map(IpNet::addr).collect();
            let needs = self.needs.iter().flat_map(BTreeMap::values).filter(|_| spec.by_prefix);
            let offered = needs.filter(|need| need.source.network().as_ref().is_some_and(reaches));
            BgpGroup {
                owner: key.to_string(),
                local_as: spec.peer_asn,
                peer_as: spec.local_asn,
                neighbours: neighbours.into_iter().collect(),
                dynamic_neighbours: IpNet::aggregate(
                    &offered.flat_map(|need| need.source.prefixes()).collect(),
                ),
                hold_time: spec.hold_time,
                keepalive_time: spec.keepalive_time,
                bfd: spec.bfd,
                graceful_restart: spec.graceful_restart,
                password: spec.device_secret.as_ref().map(ToString::to_string),
                maximum_prefixes: spec.maximum_prefixes,
                accept: spec.accept_prefixes.clone(),
                announce: spec.announce_prefixes.clone(),
                communities: spec.communities.clone(),
            }
        };
        let groups = self.gateways.iter().map(|(device, gateways)| ((*device).clone(), group(gateways)));
        Sessions { vrf: Key::cluster(Kind::VRF, &spec.vrf), groups: groups.collect() }
    }
}

impl Groups {
    /// Plans a group: leases, then the interfaces and sessions with those that are written.
    pub(super) fn plan(&mut self, parts: &mut Parts<'_, '_>, key: &Key) {
        let store = parts.cx.store;
        let wanted = Wanted::of(store, parts.cx.nodes, key, self.by_key.get(key));
        if wanted.is_none() && !self.by_key.contains_key(key) {
            return;
        }
        let mut group = self.by_key.remove(key).unwrap_or_default();
        let before: Vec<Name> = group.workers.keys().cloned().collect();
        group.interface = interface_name(&key.name);
        (group.wake, group.problem) = (None, None);
        let taken = wanted.as_ref().map(|wanted| self.taken_nodes(store, wanted)).unwrap_or_default();
        group.plan_leases(parts, key, wanted.as_ref(), &taken);
        group.plan_interfaces(parts, wanted.as_ref());
        group.settle(parts, key, wanted.is_some());
        if let Some(wanted) = wanted.as_ref().filter(|_| !group.workers.keys().eq(&before)) {
            let others: Vec<Key> = self.equals(store, wanted).map(|(other, _)| other.clone()).collect();
            self.queue.extend(others);
        }
        let is_left = !group.workers.is_empty();
        let is_over = wanted.is_none() && !is_left;
        self.by_key.insert(key.clone(), group);
        let workers: Vec<(&Name, Vec<IpNet>)> = self.workers(key).collect();
        let sessions = wanted.as_ref().map(|wanted| wanted.sessions(key, &workers));
        let nodes = workers.iter().map(|(node, _)| *node);
        let speaker = wanted.as_ref().and_then(|wanted| wanted.speaker_sessions(store, &key.name, nodes));
        parts.fabric.want_sessions(key, sessions, parts.cx.work);
        self.want_speaker(store, key, speaker, parts.cx.work);
        parts.cx.work.evaluate.insert(key.clone());
        if is_over && !store.contains(key) {
            self.by_key.remove(key);
        }
    }

    /// The nodes with another group that has an equal gateway, each with that group: a node can't tell the two apart.
    fn taken_nodes(&self, store: &Store, wanted: &Wanted<'_>) -> BTreeMap<Name, Name> {
        let nodes = self
            .equals(store, wanted)
            .flat_map(|(other, group)| group.workers.keys().map(|node| (node.clone(), other.name.clone())));
        nodes.collect()
    }

    /// The other groups with an equal gateway.
    fn equals(&self, store: &Store, wanted: &Wanted<'_>) -> impl Iterator<Item = (&Key, &Group)> {
        let own: BTreeSet<IpAddr> = wanted.gateways.values().flatten().copied().collect();
        self.by_key.iter().filter(move |(other, _)| {
            let spec = store.effective(other, Spec::bgp_session_group);
            spec.is_some_and(|spec| gateways(store, spec).any(|(_, address)| own.contains(&address.addr())))
        })
    }
}

impl Group {
    /// `taken`: nodes that another group has, each with that group. A node that has addresses keeps them.
    fn plan_leases(
        &mut self,
        parts: &mut Parts<'_, '_>,
        key: &Key,
        wanted: Option<&Wanted<'_>>,
        taken: &BTreeMap<Name, Name>,
    ) {
        let none = BTreeSet::new();
        let nodes = wanted.map_or(&none, |wanted| &wanted.nodes);
        let leave = self.workers.keys().filter(|node| !nodes.contains(*node));
        for node in leave.cloned().collect::<Vec<_>>() {
            self.withdraw(&node);
        }
        let is_apart = |node: &Name| taken.contains_key(node) && !self.workers.contains_key(node);
        parts.pods.sate(key, |node| nodes.contains(node) && !is_apart(node));
        let Some(wanted) = wanted else { return };
        for node in &wanted.nodes {
            let other = taken.get(node).filter(|_| !self.workers.contains_key(node));
            let leased = match (&wanted.needs, other) {
                (_, Some(other)) => {
                    Err(format!("BGPSessionGroup {other} is on the node, with a gateway of the same address"))
                }
                (Ok(needs), None) => self.lease(parts, key, node, needs),
                (Err(problem), None) => Err(problem.clone()),
            };
            if let Err(problem) = leased {
                self.problem.get_or_insert_with(|| (node.clone(), problem));
            }
        }
        if let Some(node) = &wanted.left_out {
            let problem = format!("a BGPSessionGroup has {MAX_WORKERS} nodes at most; narrow NodeSelector");
            self.problem.get_or_insert_with(|| (node.clone(), problem));
        }
    }

    /// Commands the interfaces of nodes. That of a node whose new addresses are not written yet stays as it is.
    fn plan_interfaces(&mut self, parts: &mut Parts<'_, '_>, wanted: Option<&Wanted<'_>>) {
        let (written, interface) = (self.written, &self.interface);
        for (node, leases) in &mut self.workers {
            let addresses: Vec<IpNet> = leases.own.values().map(|lease| lease.address).collect();
            let network = match wanted {
                Some(wanted) if !addresses.is_empty() => {
                    if !leases.is_usable(written) {
                        continue;
                    }
                    Some(wanted.interface(&addresses))
                }
                _ => None,
            };
            parts.cx.nodes.want_bridge(node, interface, network);
            if !leases.retiring.is_empty() && leases.retired_at.is_none() {
                leases.retired_at = Some(parts.cx.nodes.version());
            }
        }
    }
}
