//! Pod bridges and parent interfaces on hosts. A bridge name belongs to the first namespace that uses it.

use std::collections::BTreeSet;

use eno_schemas::{HostNetwork, Phase};
use ipnet::IpNet;

use crate::kinds::{BridgeSpec, Cause, Invalid, PodLinksSpec, Spec};
use crate::node::Nodes;
use crate::pods::Pods;
use crate::pods::template::{BridgeRequest, BridgeSettings, host_parent, pod_bridge};
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name};

impl Pods {
    /// The settings of a bridge in the Bridge object of a namespace.
    pub(super) fn bridge_settings(
        &self,
        store: &Store,
        namespace: &Name,
        bridge: &str,
    ) -> Option<BridgeSettings> {
        let spec = store.effective(self.bridge_object(store, namespace, bridge)?, Spec::bridge)?;
        Some(BridgeSettings { cidrs: spec.cidrs.clone(), mtu: spec.mtu })
    }

    /// The realised Bridge object of that name.
    fn bridge_object(&self, store: &Store, namespace: &Name, bridge: &str) -> Option<&Key> {
        self.bridge_users.get(bridge)?.iter().find(|key| {
            key.kind == Kind::Bridge && key.namespace == *namespace && realises(store, key, bridge)
        })
    }

    /// The objects that name a host interface.
    fn users_of(&self, interface: &str) -> impl Iterator<Item = &Key> {
        self.bridge_users.get(interface).into_iter().flatten()
    }

    /// Updates the index of the users of host interfaces with the names in an object's specs.
    pub(crate) fn update_bridge_index(&mut self, store: &Store, key: &Key, work: &mut Work) {
        let record = store.get(key).filter(|record| record.status.phase != Some(Phase::Deleted));
        let specs = record.map(|record| (record.spec.as_deref().ok(), record.effective.as_deref()));
        let specs = specs.into_iter().flat_map(|(spec, effective)| spec.into_iter().chain(effective));
        let now: BTreeSet<String> = specs.flat_map(interfaces_of).map(str::to_owned).collect();
        let before = self.interfaces.remove(key).unwrap_or_default();
        for bridge in now.difference(&before) {
            self.bridge_users.entry(bridge.clone()).or_default().insert(key.clone());
        }
        for bridge in before.difference(&now) {
            if let Some(users) = self.bridge_users.get_mut(bridge) {
                users.remove(key);
                if users.is_empty() {
                    self.bridge_users.remove(bridge);
                }
            }
        }
        for bridge in before.symmetric_difference(&now) {
            self.revalidate_bridge_users(bridge, key, work);
        }
        if !now.is_empty() {
            self.interfaces.insert(key.clone(), now);
        }
    }

    /// Queues the users of the bridges of a changed object.
    pub(crate) fn revalidate_bridge_sharers(&mut self, key: &Key, work: &mut Work) {
        for bridge in self.interfaces.get(key).cloned().unwrap_or_default() {
            self.revalidate_bridge_users(&bridge, key, work);
            if key.kind == Kind::Bridge {
                let users = self.users_of(&bridge).filter(|user| user.namespace == key.namespace);
                for user in users.cloned().collect::<Vec<Key>>() {
                    self.replan(&user);
                }
            }
        }
    }

    /// Requests the validation of the users of a host interface, except `but`.
    pub(super) fn revalidate_bridge_users(&self, bridge: &str, but: &Key, work: &mut Work) {
        work.validate.extend(self.users_of(bridge).filter(|user| *user != but).cloned());
    }

    /// Requests the evaluation of the Bridges of a name in all namespaces.
    pub(super) fn reevaluate_bridges(&self, bridge: &str, work: &mut Work) {
        work.evaluate.extend(self.users_of(bridge).filter(|key| key.kind == Kind::Bridge).cloned());
    }

    /// Requests the evaluation of the realised Bridge of a name.
    pub(super) fn reevaluate_bridge(&self, store: &Store, namespace: &Name, bridge: &str, work: &mut Work) {
        work.evaluate.extend(self.bridge_object(store, namespace, bridge).cloned());
    }

    /// The desired state of a pod bridge on a node. `None`: it is not wanted.
    pub(super) fn wanted_bridge(&self, node: &Name, bridge: &str) -> Option<HostNetwork> {
        let requests = self.bridges.get(&(node.clone(), bridge.to_owned()))?;
        let addresses: BTreeSet<IpNet> =
            requests.keys().flat_map(|request| request.addresses.iter().copied()).collect();
        let mtu = requests.keys().filter_map(|request| request.mtu).max();
        Some(HostNetwork::PodBridge { addresses: addresses.into_iter().collect(), mtu })
    }

    /// Counts a link's request to its bridge on a node in or out. Returns true on a change.
    pub(super) fn count_bridge_request(
        &mut self,
        node: &Name,
        bridge: &str,
        request: &BridgeRequest,
        more: bool,
    ) -> bool {
        let key = (node.clone(), bridge.to_owned());
        let requests = self.bridges.entry(key.clone()).or_default();
        let count = requests.entry(request.clone()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        let changed = *count == u32::from(more);
        if *count == 0 {
            requests.remove(request);
        }
        if requests.is_empty() {
            self.bridges.remove(&key);
        }
        changed
    }

    /// Checks the bridges and parents of a configuration's links.
    pub(crate) fn check_links(
        &self,
        store: &Store,
        nodes: &Nodes,
        key: &Key,
        spec: &PodLinksSpec,
    ) -> Result<(), Invalid> {
        for link in &spec.links {
            let list = match key.kind {
                Kind::PodConfig => "networkAttachments",
                _ => "additionalNetworks",
            };
            if let Some(bridge) = pod_bridge(&link.kind) {
                self.check_bridge_name(
                    &format!("{list}[{}].master", link.name),
                    (store, nodes),
                    key,
                    bridge,
                )?;
            } else if let Some(parent) = host_parent(&link.kind) {
                self.check_parent(&format!("{list}[{}].parent", link.name), (store, nodes), key, parent)?;
            }
        }
        Ok(())
    }

    /// Checks the parent interface of a link. Interfaces of a connection point are only for attachments, and a pod
    /// bridge is only for its own namespace. The agent checks all others.
    fn check_parent(
        &self,
        field: &str,
        (store, nodes): (&Store, &Nodes),
        key: &Key,
        parent: &str,
    ) -> Result<(), Invalid> {
        if let Some(point) = carriers(parent).find_map(|name| nodes.owner_of(name)) {
            let problem = format!(
                "{parent} is a network of ConnectionPoint {point}, which only an L2ServiceAttachment leads to; \
                 choose another interface"
            );
            return Err(Invalid::new(field, problem).because(Cause::NotPermitted));
        }
        let counts = |other: &Key| {
            other == key || (other.namespace != key.namespace && has_as_bridge(store, other, parent))
        };
        self.first_user(store, parent, counts)
            .filter(|first| *first != key)
            .map_or(Ok(()), |first| Err(belongs_to(field, parent, first)))
    }

    /// Checks that the name of a Bridge is free.
    pub(crate) fn check_bridge(
        &self,
        store: &Store,
        nodes: &Nodes,
        key: &Key,
        spec: &BridgeSpec,
    ) -> Result<(), Invalid> {
        self.check_bridge_name("name", (store, nodes), key, &spec.name)?;
        let first = self.first_user(store, &spec.name, |other| {
            other.kind == Kind::Bridge && other.namespace == key.namespace
        });
        match first.filter(|first| *first != key) {
            Some(first) => Err(Invalid::new(
                "name",
                format!("Bridge {} has the name {} already; choose another", first.name, spec.name),
            )
            .because(Cause::NameConflict)),
            None => Ok(()),
        }
    }

    fn check_bridge_name(
        &self,
        field: &str,
        (store, nodes): (&Store, &Nodes),
        key: &Key,
        bridge: &str,
    ) -> Result<(), Invalid> {
        if let Some(point) = nodes.owner_of(bridge) {
            let problem = format!("{bridge} is a network of ConnectionPoint {point}; choose another name");
            return Err(Invalid::new(field, problem).because(Cause::NameConflict));
        }
        match self.first_user(store, bridge, |_| true) {
            Some(first) if first.namespace != key.namespace => Err(belongs_to(field, bridge, first)),
            _ => Ok(()),
        }
    }

    /// The owner of a bridge: the object that has it realised keeps it, the others come by age.
    fn first_user(&self, store: &Store, bridge: &str, counts: impl Fn(&Key) -> bool) -> Option<&Key> {
        let users = self.bridge_users.get(bridge)?.iter().filter(|key| counts(key));
        let users = users.filter_map(|key| Some((key, store.get(key)?)));
        let users = users.filter(|(key, record)| {
            realises(store, key, bridge)
                || record.wanted().is_some_and(|spec| interfaces_of(spec).contains(bridge))
        });
        users
            .min_by_key(|(key, record)| (!realises(store, key, bridge), record.seniority(), (*key).clone()))
            .map(|(key, _)| key)
    }

    /// The user that keeps a Bridge from being deleted, as text.
    pub(crate) fn blocking_bridge_user(&self, store: &Store, key: &Key) -> Option<String> {
        let users = self.interfaces.get(key)?.iter().flat_map(|bridge| {
            self.users_of(bridge).filter(|user| {
                user.kind != Kind::Bridge && user.namespace == key.namespace && realises(store, user, bridge)
            })
        });
        let users: Vec<&Key> = users.collect();
        let first = users.first()?;
        let named = format!("{} {}/{}", first.kind, first.namespace, first.name);
        Some(crate::name::and_more(&named, users.len()))
    }

    /// The nodes where a pod bridge is wanted.
    pub(super) fn bridge_nodes<'a>(&'a self, bridge: &'a str) -> impl Iterator<Item = &'a Name> {
        self.bridges.keys().filter(move |(_, name)| name == bridge).map(|(node, _)| node)
    }
}

fn realises(store: &Store, key: &Key, bridge: &str) -> bool {
    let spec = store.get(key).and_then(|record| record.effective.as_deref());
    spec.is_some_and(|spec| interfaces_of(spec).contains(bridge))
}

fn has_as_bridge(store: &Store, key: &Key, name: &str) -> bool {
    let Some(record) = store.get(key) else { return false };
    let mut specs = record.effective.iter().chain(record.wanted());
    specs.any(|spec| bridges_of(spec).contains(name))
}

/// The pod bridges that a spec names.
fn bridges_of(spec: &Spec) -> BTreeSet<&str> {
    match spec {
        Spec::Bridge(spec) => BTreeSet::from([spec.name.as_str()]),
        Spec::PodLinks(spec) => spec.links.iter().filter_map(|link| pod_bridge(&link.kind)).collect(),
        _ => BTreeSet::new(),
    }
}

/// The host interfaces that a spec names: [`bridges_of`], and the parents of its other links.
fn interfaces_of(spec: &Spec) -> BTreeSet<&str> {
    let mut names = bridges_of(spec);
    if let Spec::PodLinks(spec) = spec {
        names.extend(spec.links.iter().filter_map(|link| host_parent(&link.kind)).flat_map(carriers));
    }
    names
}

/// An interface, and the lower one that its name says it is a VLAN of, such as `eth1` for `eth1.100`.
pub(crate) fn carriers(name: &str) -> impl Iterator<Item = &str> {
    let lower = name.rsplit_once('.').filter(|(_, vlan)| vlan.bytes().all(|byte| byte.is_ascii_digit()));
    [Some(name), lower.map(|(lower, _)| lower)].into_iter().flatten()
}

fn belongs_to(field: &str, bridge: &str, first: &Key) -> Invalid {
    let (namespace, kind, name) = (&first.namespace, first.kind, &first.name);
    let problem = format!(
        "bridge {bridge} belongs to namespace {namespace}, where {kind} {name} uses it; choose another name"
    );
    Invalid::new(field, problem).because(Cause::NameConflict)
}
