//! Computes the operations of one transaction that lead from the observed state to the desired one. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_ovsdb::{Atom, Condition, Mutation, NamedUuid, Operation, Uuid, Value, row};

use super::desired::{PortSpec, interface_name_error, port_specs};
use super::view::{Bridge, Interface, Port, View};
use super::{Datapath, Item, OvsDesired, PortVlans, Rejected};

/// Key in `external_ids` of bridges and ports: the owning cluster.
pub(super) const CLUSTER: &str = "eno-cluster";
/// Key in `external_ids` of ports: their purpose.
pub(super) const ID: &str = "eno-id";
/// Key in `external_ids` of interfaces: their MTU in bytes before ENO raised it.
const ORIGINAL_MTU: &str = "eno-mtu";

/// The changes to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Operations of one transaction; empty when the database is as desired.
    pub(super) operations: Vec<Operation>,
    /// Items that can't be realised.
    pub(super) rejected: Vec<Rejected>,
    /// Messages for administrators.
    pub(super) notes: Vec<String>,
}

/// Computes the plan.
///
/// Ports are added to bridges and removed from them by mutations, so that concurrent changes by others stay. Operations
/// that depend on values of others are guarded by a `wait` for these values. If they have changed, the transaction
/// fails and is planned again.
pub(super) fn plan(desired: &OvsDesired, default: Datapath, view: &View) -> Plan {
    let mut planner = Planner::new(desired, view);
    planner.bridges(default);
    for port in port_specs(desired) {
        planner.port(&port);
    }
    planner.release();
    planner.remove_ports();
    planner.remove_bridges();
    planner.finish()
}

/// True when a row is marked as the cluster's.
pub(super) fn is_ours(external_ids: &BTreeMap<String, String>, cluster: &str) -> bool {
    external_ids.get(CLUSTER).is_some_and(|owner| owner == cluster)
}

pub(super) struct Planner<'a> {
    /// The desired state.
    pub(super) desired: &'a OvsDesired,
    /// The database.
    pub(super) view: &'a View,
    /// Port name to row.
    ports_by_name: BTreeMap<&'a str, Uuid>,
    /// Interface name to the rows of the interface and of its port.
    interfaces: BTreeMap<&'a str, (Uuid, Uuid)>,
    /// Port to the name of its bridge.
    pub(super) bridge_of_port: BTreeMap<Uuid, &'a str>,
    /// The plan so far.
    pub(super) plan: Plan,
    /// Number of the last name that was given to a new row.
    next_name: usize,
    /// Bridges that are made, by name, with their columns but `ports`.
    new_bridges: BTreeMap<&'a str, BTreeMap<String, Value>>,
    /// Ports to add to bridges, by the bridge's name.
    attach: BTreeMap<String, Vec<Atom>>,
    /// Ports to remove from bridges, by the bridge's name.
    detach: BTreeMap<String, Vec<Atom>>,
    /// Ports that stay: desired ones, and foreign ones that match a desired one.
    pub(super) kept: BTreeSet<Uuid>,
    /// Interface to the desired port that uses it.
    claimed: BTreeMap<String, String>,
    /// Bridges that wait for the MTU of a port to be restored.
    restoring_bridges: BTreeSet<&'a str>,
}

impl<'a> Planner<'a> {
    fn new(desired: &'a OvsDesired, view: &'a View) -> Self {
        let mut interfaces = BTreeMap::new();
        for (port, row) in &view.ports {
            for (interface, row) in view.interfaces_of(row) {
                interfaces.insert(row.name.as_str(), (interface, *port));
            }
        }
        let bridge_of_port = view
            .bridges
            .iter()
            .flat_map(|(name, bridge)| bridge.ports.iter().map(move |port| (*port, name.as_str())));
        Self {
            desired,
            view,
            ports_by_name: view.ports.iter().map(|(uuid, port)| (port.name.as_str(), *uuid)).collect(),
            interfaces,
            bridge_of_port: bridge_of_port.collect(),
            plan: Plan::default(),
            next_name: 0,
            new_bridges: BTreeMap::new(),
            attach: BTreeMap::new(),
            detach: BTreeMap::new(),
            kept: BTreeSet::new(),
            claimed: BTreeMap::new(),
            restoring_bridges: BTreeSet::new(),
        }
    }

    pub(super) fn ours(&self, external_ids: &BTreeMap<String, String>) -> bool {
        is_ours(external_ids, &self.desired.cluster)
    }

    pub(super) fn push(&mut self, operation: Operation) {
        self.plan.operations.push(operation);
    }

    pub(super) fn reject(&mut self, item: &Item, retryable: bool, reason: impl Into<String>) {
        self.plan.rejected.push(Rejected { item: item.clone(), reason: reason.into(), retryable });
    }

    fn next_row(&mut self) -> NamedUuid {
        self.next_name += 1;
        NamedUuid::numbered("row", self.next_name)
    }

    fn bridges(&mut self, default: Datapath) {
        for (name, wanted) in &self.desired.bridges {
            let item = Item::Bridge(name.clone());
            match self.view.bridges.get(name) {
                Some(bridge) => {
                    let same = |datapath: Datapath| match bridge.datapath.as_str() {
                        "" => datapath == Datapath::System,
                        there => there == datapath.as_str(),
                    };
                    if self.ours(&bridge.external_ids) {
                        let datapath = wanted.datapath.unwrap_or(default);
                        if !same(datapath) {
                            let columns = row([("datapath_type", datapath.as_str().into())]);
                            self.push(Operation::update("Bridge", [Condition::uuid(bridge.uuid)], columns));
                        }
                    } else if wanted.datapath.is_some_and(|datapath| !same(datapath)) {
                        let there = &bridge.datapath;
                        let note = format!("bridge {name} is not ours; its datapath type {there:?} is left");
                        self.plan.notes.push(note);
                    }
                }
                None => {
                    if let Some(fault) = interface_name_error(name) {
                        self.reject(&item, false, fault);
                    } else if self.ports_by_name.contains_key(name.as_str())
                        || self.interfaces.contains_key(name.as_str())
                    {
                        let reason = format!("{name} is the name of a port of Open vSwitch");
                        self.reject(&item, true, reason);
                    } else {
                        let datapath = wanted.datapath.unwrap_or(default);
                        self.create_bridge(name, datapath);
                    }
                }
            }
        }
    }

    fn create_bridge(&mut self, name: &'a str, datapath: Datapath) {
        let (interface, port) = (self.next_row(), self.next_row());
        let columns = row([("name", name.into()), ("type", "internal".into())]);
        self.push(Operation::insert_named("Interface", columns, interface.clone()));
        let columns = row([("name", name.into()), ("interfaces", Atom::from(interface).into())]);
        self.push(Operation::insert_named("Port", columns, port.clone()));
        self.attach.entry(name.to_owned()).or_default().push(port.into());
        let columns = row([
            ("name", name.into()),
            ("datapath_type", datapath.as_str().into()),
            ("external_ids", Value::map([(CLUSTER, self.desired.cluster.as_str())])),
        ]);
        self.new_bridges.insert(name, columns);
    }

    fn port(&mut self, wanted: &PortSpec) {
        if let Some(reason) = &wanted.invalid {
            self.reject(&wanted.item, false, reason.clone());
            return;
        }
        for interface in &wanted.interfaces {
            if let Some(other) = self.claimed.insert(interface.name.clone(), wanted.name.clone()) {
                let reason = format!("{} is wanted by port {other} as well", interface.name);
                self.reject(&wanted.item, false, reason);
                return;
            }
        }
        if !self.view.bridges.contains_key(&wanted.bridge)
            && !self.new_bridges.contains_key(wanted.bridge.as_str())
        {
            let is_own_bridge = matches!(&wanted.item, Item::Bridge(name) if *name == wanted.bridge);
            // If the bridge was rejected, that rejection has the reason.
            if !is_own_bridge {
                self.reject(&wanted.item, true, format!("there is no bridge {}", wanted.bridge));
            }
            return;
        }
        let by_interface = || {
            let (_, port) = self.interfaces.get(wanted.interfaces.first()?.name.as_str())?;
            Some(*port)
        };
        let present = self.ports_by_name.get(wanted.name.as_str()).copied();
        match present.or_else(by_interface).and_then(|uuid| Some((uuid, self.view.ports.get(&uuid)?))) {
            Some((uuid, port)) if !self.ours(&port.external_ids) => {
                self.kept.insert(uuid);
                if wanted.is_uplink() {
                    self.adopt(wanted, uuid, port);
                } else {
                    let reason = format!("{} is a port that somebody else made", port.name);
                    self.reject(&wanted.item, true, reason);
                }
            }
            found => match found
                .filter(|(_, port)| self.view.interfaces_of(port).any(|(_, interface)| interface.is_gone()))
            {
                // The next plan makes it again.
                Some((uuid, _)) => self.detach(uuid),
                None => self.ensure_port(wanted, present),
            },
        }
    }

    /// Removes a port of ENO from its bridge, which deletes it.
    fn detach(&mut self, uuid: Uuid) {
        self.kept.insert(uuid);
        if let Some(place) = self.bridge_of_port.get(&uuid) {
            self.detach.entry((*place).to_owned()).or_default().push(uuid.into());
        }
    }

    /// Makes a port of ENO, or brings it to its desired state.
    fn ensure_port(&mut self, wanted: &PortSpec, present: Option<Uuid>) {
        let mut interfaces = Vec::new();
        for interface in &wanted.interfaces {
            let Some((uuid, port)) = self.interfaces.get(interface.name.as_str()).copied() else {
                interfaces.push((interface, None));
                continue;
            };
            if self.view.ports.get(&port).is_some_and(|port| !self.ours(&port.external_ids)) {
                let place = self.bridge_of_port.get(&port).copied().unwrap_or_default();
                let reason =
                    format!("{} is on a port of bridge {place} that somebody else made", interface.name);
                self.reject(&wanted.item, true, reason);
                self.kept.extend(present);
                return;
            }
            interfaces.push((interface, Some(uuid)));
        }
        let mut atoms = Vec::new();
        for (interface, uuid) in interfaces {
            let there = uuid.and_then(|uuid| Some((uuid, self.view.interfaces.get(&uuid)?)));
            if let Some((uuid, there)) = there {
                let mut columns = BTreeMap::new();
                if there.kind != interface.kind {
                    columns.insert("type".to_owned(), interface.kind.into());
                }
                // Options of a host interface are not ENO's.
                if !interface.options.is_empty() && there.options != interface.options {
                    columns.insert("options".to_owned(), Value::map(interface.options.clone()));
                }
                if !columns.is_empty() {
                    self.push(Operation::update("Interface", [Condition::uuid(uuid)], columns));
                }
                self.mtu(uuid, there, interface.mtu);
                atoms.push(Atom::from(uuid));
            } else {
                let name = self.next_row();
                let columns = row([
                    ("name", interface.name.as_str().into()),
                    ("type", interface.kind.into()),
                    ("options", Value::map(interface.options.clone())),
                ]);
                self.push(Operation::insert_named("Interface", columns, name.clone()));
                atoms.push(name.into());
            }
        }
        let columns = columns(wanted, atoms);
        let place = wanted.bridge.as_str();
        match present.and_then(|uuid| Some((uuid, self.view.ports.get(&uuid)?))) {
            None => {
                let name = self.next_row();
                let mut columns = columns;
                columns.insert("name".into(), wanted.name.as_str().into());
                let external_ids = [(CLUSTER, self.desired.cluster.as_str()), (ID, wanted.id.as_str())];
                columns.insert("external_ids".into(), Value::map(external_ids));
                self.push(Operation::insert_named("Port", columns, name.clone()));
                self.attach.entry(place.to_owned()).or_default().push(name.into());
            }
            Some((uuid, port)) => {
                self.kept.insert(uuid);
                let changed: BTreeMap<String, Value> = columns
                    .into_iter()
                    .filter(|(column, value)| current_value(port, column).as_ref() != Some(value))
                    .collect();
                if !changed.is_empty() {
                    self.push(Operation::update("Port", [Condition::uuid(uuid)], changed));
                }
                if port.external_ids.get(ID) != Some(&wanted.id) {
                    let mutations = set_external_id(ID, &wanted.id);
                    self.push(Operation::mutate("Port", [Condition::uuid(uuid)], mutations));
                }
                let present = self.bridge_of_port.get(&uuid).copied();
                if present != Some(place) {
                    self.attach.entry(place.to_owned()).or_default().push(uuid.into());
                    if let Some(before) = present {
                        self.detach.entry(before.to_owned()).or_default().push(uuid.into());
                    }
                }
            }
        }
    }

    fn remove_ports(&mut self) {
        for (uuid, port) in &self.view.ports {
            if !self.ours(&port.external_ids) || self.kept.contains(uuid) {
                continue;
            }
            let Some(place) = self.bridge_of_port.get(uuid).copied() else { continue };
            let mut restoring = false;
            for (interface, row) in self.view.interfaces_of(port) {
                // An interface that moves to another port keeps its MTU.
                if !self.claimed.contains_key(&row.name) {
                    restoring |= self.mtu(interface, row, None);
                }
            }
            if restoring {
                self.restoring_bridges.insert(place);
            } else {
                self.detach.entry(place.to_owned()).or_default().push((*uuid).into());
            }
        }
    }

    fn remove_bridges(&mut self) {
        let wanted: BTreeSet<&str> = self.desired.ports.values().map(|port| port.bridge.as_str()).collect();
        for (name, bridge) in &self.view.bridges {
            if !self.ours(&bridge.external_ids)
                || self.desired.bridges.contains_key(name)
                || wanted.contains(name.as_str())
                || self.restoring_bridges.contains(name.as_str())
            {
                continue;
            }
            let foreign = foreign_ports(self.view, name, bridge, &self.desired.cluster);
            if !foreign.is_empty() {
                let note = format!(
                    "bridge {name} is not wanted any more and stays, since ports of others are on it: {}",
                    foreign.join(", ")
                );
                self.plan.notes.push(note);
                continue;
            }
            let Some(root) = &self.view.root else { continue };
            self.detach.remove(name);
            let seen = row([("ports", Value::set(bridge.ports.iter().copied()))]);
            self.push(Operation::expect("Bridge", bridge.uuid, seen));
            let mutation = Mutation::delete("bridges", bridge.uuid);
            self.push(Operation::mutate("Open_vSwitch", [Condition::uuid(root.uuid)], [mutation]));
        }
    }

    /// Requests at least this MTU for an interface, or restores the original one. True when this plan changes the MTU.
    fn mtu(&mut self, uuid: Uuid, interface: &Interface, wanted: Option<u32>) -> bool {
        let before = interface.external_ids.get(ORIGINAL_MTU).and_then(|text| text.parse::<i64>().ok());
        let wanted = wanted.map(i64::from);
        let target = match (before, wanted, interface.mtu) {
            (Some(before), wanted, Some(mtu)) => {
                let target = before.max(wanted.unwrap_or(before));
                (interface.mtu_request != Some(target) && (mtu != target || interface.mtu_request.is_some()))
                    .then_some(target)
            }
            (None, Some(wanted), Some(mtu)) if mtu < wanted => Some(wanted),
            _ => None,
        };
        let Some(target) = target else { return false };
        let columns = row([("mtu_request", target.into())]);
        self.push(Operation::update("Interface", [Condition::uuid(uuid)], columns));
        if let (None, Some(mtu)) = (before, interface.mtu) {
            let mutations = set_external_id(ORIGINAL_MTU, &mtu.to_string());
            self.push(Operation::mutate("Interface", [Condition::uuid(uuid)], mutations));
        }
        true
    }

    fn finish(mut self) -> Plan {
        for (bridge, ports) in std::mem::take(&mut self.detach) {
            if let Some(bridge) = self.view.bridges.get(&bridge) {
                let mutation = Mutation::delete("ports", Value::set(ports));
                self.push(Operation::mutate("Bridge", [Condition::uuid(bridge.uuid)], [mutation]));
            }
        }
        let mut attach = std::mem::take(&mut self.attach);
        let mut bridges = Vec::new();
        for (bridge, mut columns) in std::mem::take(&mut self.new_bridges) {
            columns.insert("ports".into(), Value::set(attach.remove(bridge).unwrap_or_default()));
            let name = self.next_row();
            self.push(Operation::insert_named("Bridge", columns, name.clone()));
            bridges.push(name);
        }
        if let (Some(root), false) = (&self.view.root, bridges.is_empty()) {
            let mutation = Mutation::insert("bridges", Value::set(bridges));
            self.push(Operation::mutate("Open_vSwitch", [Condition::uuid(root.uuid)], [mutation]));
        }
        for (bridge, ports) in attach {
            if let Some(bridge) = self.view.bridges.get(&bridge) {
                let mutation = Mutation::insert("ports", Value::set(ports));
                self.push(Operation::mutate("Bridge", [Condition::uuid(bridge.uuid)], [mutation]));
            }
        }
        self.plan
    }
}

/// Names of the foreign ports on a bridge of ENO.
fn foreign_ports(view: &View, name: &str, bridge: &Bridge, cluster: &str) -> Vec<String> {
    view.ports_of(bridge)
        .filter(|(_, port)| port.name != name && !is_ours(&port.external_ids, cluster))
        .map(|(_, port)| port.name.clone())
        .collect()
}

/// The desired columns of a port of ENO, but its name and `external_ids`.
fn columns(wanted: &PortSpec, interfaces: Vec<Atom>) -> BTreeMap<String, Value> {
    let (tag, trunks, mode) = match &wanted.vlans {
        PortVlans::Access(vlan) => (Value::from(*vlan), Value::empty(), "access"),
        PortVlans::Trunk(_) => (Value::empty(), Value::set(wanted.closed_trunks()), "trunk"),
    };
    let bond = (interfaces.len() > 1).then_some("active-backup");
    row([
        ("interfaces", Value::set(interfaces)),
        ("tag", tag),
        ("trunks", trunks),
        ("vlan_mode", mode.into()),
        ("bond_mode", bond.into()),
    ])
}

/// The present value of a column of [`columns`].
fn current_value(port: &Port, column: &str) -> Option<Value> {
    Some(match column {
        "interfaces" => Value::set(port.interfaces.iter().copied()),
        "tag" => port.tag.into(),
        "trunks" => Value::set(port.trunks.iter().copied()),
        "vlan_mode" => port.vlan_mode.as_deref().into(),
        "bond_mode" => port.bond_mode.as_deref().into(),
        _ => return None,
    })
}

/// Sets a key of `external_ids`. An `insert` alone would not replace an existing value.
pub(super) fn set_external_id(key: &str, value: &str) -> [Mutation; 2] {
    [
        Mutation::delete("external_ids", Value::set([key])),
        Mutation::insert("external_ids", Value::map([(key, value)])),
    ]
}
