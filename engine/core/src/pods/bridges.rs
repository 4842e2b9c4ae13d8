//! Pod bridges and parent interfaces on hosts. A bridge name belongs to the first namespace that uses it.

use std::collections::BTreeSet;

use eno_schemas::Phase;

use crate::pods::template::{BridgeSettings, host_parent, pod_bridge};
use crate::spec::{BridgeSpec, Cause, Invalid, PodLinksSpec, Spec};
use crate::{Key, Kind, Name};

use crate::engine::Engine;
use crate::status::evaluation::Evaluation;
use crate::status::inputs::Inputs;

impl Engine {
    /// The settings of a bridge in the Bridge object of a namespace.
    pub(crate) fn bridge_settings(&self, namespace: &Name, bridge: &str) -> Option<BridgeSettings> {
        let key = self.bridge_object(namespace, bridge, None)?;
        let spec = self.effective(key, Spec::bridge)?;
        Some(BridgeSettings { cidrs: spec.cidrs.clone(), mtu: spec.mtu })
    }

    /// The realised Bridge object of that name, except `but`.
    fn bridge_object(&self, namespace: &Name, bridge: &str, but: Option<&Key>) -> Option<&Key> {
        let users = self.pods.bridge_users.get(bridge)?;
        users.iter().find(|key| {
            key.kind == Kind::Bridge
                && key.namespace == *namespace
                && Some(*key) != but
                && self.realises(key, bridge)
        })
    }

    fn realises(&self, key: &Key, bridge: &str) -> bool {
        let spec = self.store.records.get(key).and_then(|record| record.effective.as_deref());
        spec.is_some_and(|spec| interfaces_of(spec).contains(bridge))
    }

    /// Updates the index of the users of host interfaces with the names in an object's specs.
    pub(crate) fn update_bridge_index(&mut self, key: &Key) {
        let Some(record) = self.store.records.get_mut(key) else { return };
        let stays = record.status.phase != Some(Phase::Deleted);
        let specs = record.spec.as_deref().ok().into_iter().chain(record.effective.as_deref());
        let now: BTreeSet<String> =
            specs.filter(|_| stays).flat_map(interfaces_of).map(str::to_owned).collect();
        if now == record.bridges {
            return;
        }
        let before = std::mem::replace(&mut record.bridges, now.clone());
        for bridge in now.difference(&before) {
            self.pods.bridge_users.entry(bridge.clone()).or_default().insert(key.clone());
        }
        for bridge in before.difference(&now) {
            if let Some(users) = self.pods.bridge_users.get_mut(bridge) {
                users.remove(key);
                if users.is_empty() {
                    self.pods.bridge_users.remove(bridge);
                }
            }
        }
        for bridge in before.symmetric_difference(&now) {
            self.revalidate_bridge_users(bridge, key);
        }
    }

    /// Queues the users of the bridges of a changed object.
    pub(crate) fn revalidate_bridge_sharers(&mut self, key: &Key) {
        let bridges = self.store.records.get(key).map(|record| record.bridges.clone()).unwrap_or_default();
        for bridge in bridges {
            self.revalidate_bridge_users(&bridge, key);
            if key.kind == Kind::Bridge {
                let users: Vec<Key> =
                    self.pods.bridge_users.get(&bridge).into_iter().flatten().cloned().collect();
                for user in users.iter().filter(|user| user.namespace == key.namespace) {
                    self.replan_pods(user);
                }
            }
        }
    }

    pub(crate) fn revalidate_bridge_users(&mut self, bridge: &str, but: &Key) {
        let users = self.pods.bridge_users.get(bridge).into_iter().flatten();
        self.work.validate.extend(users.filter(|user| *user != but).cloned());
    }

    pub(crate) fn reevaluate_bridge(&mut self, namespace: &Name, bridge: &str) {
        self.work.evaluate.extend(self.bridge_object(namespace, bridge, None).cloned());
    }

    pub(crate) fn check_links(&self, key: &Key, spec: &PodLinksSpec) -> Result<(), Invalid> {
        for link in &spec.links {
            let list = match key.kind {
                Kind::PodConfig => "networkAttachments",
                _ => "additionalNetworks",
            };
            if let Some(bridge) = pod_bridge(&link.kind) {
                self.check_bridge_name(&format!("{list}[{}].master", link.name), key, bridge)?;
            } else if let Some(parent) = host_parent(&link.kind) {
                self.check_parent(&format!("{list}[{}].parent", link.name), key, parent)?;
            }
        }
        Ok(())
    }

    /// Checks the parent interface of a link. Interfaces of a connection point are only for attachments, and a pod
    /// bridge is only for its own namespace. The agent checks all others.
    fn check_parent(&self, field: &str, key: &Key, parent: &str) -> Result<(), Invalid> {
        if let Some(point) = carriers(parent).find_map(|name| self.node.owner_of(name)) {
            let problem = format!(
                "{parent} is a network of ConnectionPoint {point}, which only an L2ServiceAttachment leads to; \
                 choose another interface"
            );
            return Err(Invalid::new(field, problem).because(Cause::NotPermitted));
        }
        let counts = |other: &Key| {
            other == key || (other.namespace != key.namespace && self.has_as_bridge(other, parent))
        };
        self.first_user(parent, counts)
            .filter(|first| *first != key)
            .map_or(Ok(()), |first| Err(belongs_to(field, parent, first)))
    }

    fn has_as_bridge(&self, key: &Key, name: &str) -> bool {
        let Some(record) = self.store.records.get(key) else { return false };
        let mut specs = record.effective.iter().chain(record.wanted());
        specs.any(|spec| bridges_of(spec).contains(name))
    }

    pub(crate) fn check_bridge(&self, key: &Key, spec: &BridgeSpec) -> Result<(), Invalid> {
        self.check_bridge_name("name", key, &spec.name)?;
        let first = self
            .first_user(&spec.name, |other| other.kind == Kind::Bridge && other.namespace == key.namespace);
        match first.filter(|first| *first != key) {
            Some(first) => Err(Invalid::new(
                "name",
                format!("Bridge {} has the name {} already; choose another", first.name, spec.name),
            )
            .because(Cause::NameConflict)),
            None => Ok(()),
        }
    }

    fn check_bridge_name(&self, field: &str, key: &Key, bridge: &str) -> Result<(), Invalid> {
        if let Some(point) = self.node.owner_of(bridge) {
            let problem = format!("{bridge} is a network of ConnectionPoint {point}; choose another name");
            return Err(Invalid::new(field, problem).because(Cause::NameConflict));
        }
        match self.first_user(bridge, |_| true) {
            Some(first) if first.namespace != key.namespace => Err(belongs_to(field, bridge, first)),
            _ => Ok(()),
        }
    }

    /// The owner of a bridge: the object that has it realised keeps it, the others come by age.
    fn first_user(&self, bridge: &str, counts: impl Fn(&Key) -> bool) -> Option<&Key> {
        let users = self.pods.bridge_users.get(bridge)?.iter().filter(|key| counts(key));
        let users = users.filter_map(|key| Some((key, self.store.records.get(key)?)));
        let users = users.filter(|(key, record)| {
            self.realises(key, bridge)
                || record.wanted().is_some_and(|spec| interfaces_of(spec).contains(bridge))
        });
        users
            .min_by_key(|(key, record)| (!self.realises(key, bridge), record.seniority(), (*key).clone()))
            .map(|(key, _)| key)
    }

    /// The user that keeps a Bridge from being deleted, as text.
    pub(crate) fn blocking_bridge_user(&self, key: &Key) -> Option<String> {
        let record = self.store.records.get(key)?;
        let users = record.bridges.iter().flat_map(|bridge| {
            let users = self.pods.bridge_users.get(bridge).into_iter().flatten();
            users.filter(|user| {
                user.kind != Kind::Bridge && user.namespace == key.namespace && self.realises(user, bridge)
            })
        });
        let users: Vec<&Key> = users.collect();
        let first = users.first()?;
        let named = format!("{} {}/{}", first.kind, first.namespace, first.name);
        Some(crate::validate::and_more(&named, users.len()))
    }

    /// Evaluates a Bridge on the nodes where it is wanted.
    pub(crate) fn evaluate_bridge(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        if !self.config.nodes {
            return evaluation.wait(crate::pods::state::NO_AGENTS.into());
        }
        let Some(spec) = self.effective(key, Spec::bridge) else { return };
        inputs.add(&(&spec.name, &spec.cidrs, spec.mtu));
        for name in self.bridge_nodes(&spec.name) {
            let Some(node) = self.node.node(name).filter(|node| node.ready) else { continue };
            let hop = node.network_hop(&spec.name, None, None, node.bridge_since(&spec.name));
            self.note_hop(evaluation, name, &hop, || format!("Node {name}: bridge {}", spec.name));
        }
    }

    /// The nodes where a pod bridge is wanted.
    fn bridge_nodes<'a>(&'a self, bridge: &'a str) -> impl Iterator<Item = &'a Name> {
        self.pods.bridges.keys().filter(move |(_, name)| name == bridge).map(|(node, _)| node)
    }

    /// The nodes where a Bridge is present, for its status.
    pub(crate) fn nodes_with(&self, key: &Key) -> Vec<Name> {
        let Some(spec) = self.effective(key, Spec::bridge) else { return Vec::new() };
        let last = self.store.records.get(key).map(|record| &record.status.nodes);
        let there = |name: &&Name| {
            self.node.node(name).is_some_and(|node| {
                // Without a report since the start the last status still holds.
                let held = !node.is_known() && last.is_some_and(|nodes| nodes.contains(*name));
                held || node.observed_network(&spec.name).is_some()
            })
        };
        self.bridge_nodes(&spec.name).filter(there).cloned().collect()
    }
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
